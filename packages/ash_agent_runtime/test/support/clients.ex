defmodule AshAgent.TestSupport.Clients do
  # The client of each provider, and bytes in pieces as a network cuts them.
  @moduledoc false

  alias AshAgent.LLM

  def modules do
    [
      anthropic: LLM.Anthropic,
      openai_chat: LLM.OpenAICompatible,
      openai_responses: LLM.OpenAIResponses,
      gemini: LLM.Gemini,
      bedrock: LLM.Bedrock,
      ollama: LLM.Ollama,
      mistral: LLM.Mistral
    ]
  end

  @doc "Cuts bytes into pieces of 1 to `most` bytes, the same ones for the same seed."
  def cut_randomly(bytes, seed, most) do
    random = :rand.seed_s(:exsss, {:erlang.phash2(seed), 1, 2})
    cut_randomly(bytes, most, random, [])
  end

  defp cut_randomly(bytes, most, random, cut) do
    case :rand.uniform_s(most, random) do
      {size, random} when byte_size(bytes) > size ->
        <<piece::binary-size(size), rest::binary>> = bytes
        cut_randomly(rest, most, random, [piece | cut])

      _the_rest ->
        Enum.reverse([bytes | cut])
    end
  end
end
