defmodule AshAgent.TestSupport.Clients do
  # The client of each provider, whether it takes what is sent, and bytes in pieces as a network cuts them.
  @moduledoc false

  import ExUnit.Assertions

  alias AshAgent.LLM
  alias AshAgent.Test.Server
  alias AshAgent.TestSupport.RequestChecker

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

  @doc "Makes a provider's client for a server, with what it needs besides these options."
  def new(provider, url, opts \\ []) do
    region = if provider == :bedrock, do: [region: "eu-central-1"], else: []
    own = region ++ [model: "m", api_key: "k", base_url: url]
    modules()[provider].new(Keyword.merge(own, opts))
  end

  @doc "Checks each request that a server has got by its provider's rules; signatures of answers in tests are made up."
  def assert_taken(provider, server) do
    for %{body: body} <- Server.requests(server) do
      findings = RequestChecker.validate_request(body, provider, signatures: false)
      assert findings == [], RequestChecker.format(findings)
    end
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
