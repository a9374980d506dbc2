defmodule AshAgent.TestSupport.RequestChecker do
  @moduledoc """
  Checks request bodies against the wire rules of their provider.

  Written from the description of the wire formats alone; it shares no code with the projection it judges. Where the rules
  are not proven it takes the strict side.

  ## Options

    * `:thinking` - Anthropic: whether extended thinking is on, so that the running tool loop has to start with a thinking
      block. Defaults to what the body's own `"thinking"` field says.
    * `:prefill` - Anthropic: whether the model takes a history that ends with an assistant message. Defaults to `true`.
    * `:mid_conversation_system` - Anthropic: whether the model takes `"system"` messages. Defaults to `false`.
    * `:dialect` - OpenAI chat: what the server makes of reasoning. Defaults to OpenAI's own, which takes none.
    * `:max_id_length` - OpenAI chat: the longest call id. Defaults to 40, what older models and Azure take; newer ones 64.
    * `:store` - OpenAI Responses: whether the vendor keeps the items, so that reasoning needs no `"encrypted_content"`.
      Defaults to the body's own `"store"` field, else `true`, as the API does.
    * `:adjacent` - OpenAI Responses: whether no message may stand between a call and its output, but for those of the
      call's own answer. Defaults to `true`.
    * `:signatures` - Gemini: whether the running turn's calls need a signature, as Gemini 3 demands. Defaults to `true`.
    * `:model_last` - Gemini: whether a history may end with the model. Defaults to `false`.
    * `:model` - Bedrock: the model id; `"status"` is refused for models other than Claude and Nova. Defaults to none.
    * `:tool_config` - Bedrock: whether the body has to have `"toolConfig"` when it has tool blocks. Defaults to `false`.
    * `:observed` - whether to apply rules that only vendors' error reports and notes show (see the checkers). Defaults to
      `true`.
  """

  alias AshAgent.TestSupport.RequestChecker.{
    Anthropic,
    Bedrock,
    Gemini,
    Mistral,
    Ollama,
    OpenAIChat
  }

  alias AshAgent.TestSupport.RequestChecker.{OpenAIResponses, Shape}

  @checkers %{
    anthropic: Anthropic,
    openai_chat: OpenAIChat,
    openai_responses: OpenAIResponses,
    gemini: Gemini,
    bedrock: Bedrock,
    ollama: Ollama,
    mistral: Mistral
  }

  @options [
    :thinking,
    :prefill,
    :mid_conversation_system,
    :max_id_length,
    :dialect,
    :store,
    :adjacent,
    :signatures,
    :model_last,
    :model,
    :tool_config,
    :observed
  ]

  @type finding :: Shape.finding()

  @doc "The providers there is a checker for."
  @spec providers() :: [atom()]
  def providers do
    [:anthropic, :openai_chat, :openai_responses, :gemini, :bedrock, :ollama, :mistral]
  end

  @doc """
  What is wrong with a decoded `body`, the message part or the whole, for `provider`; `[]` when nothing is.
  """
  @spec validate_request(term(), atom(), keyword()) :: [finding()]
  def validate_request(body, provider, opts \\ []) when is_map_key(@checkers, provider) do
    opts = Keyword.validate!(opts, @options)

    case Shape.json(body, []) ++ Shape.map(body, []) do
      [] -> Map.fetch!(@checkers, provider).check(body, opts)
      findings -> findings
    end
  end

  @doc "The findings as lines of text, for the message of a failed test."
  @spec format([finding()]) :: String.t()
  def format(findings) do
    Enum.map_join(findings, "\n", fn %{rule: rule, path: path, detail: detail} ->
      "#{rule} at #{if path == [], do: "the top", else: Enum.join(path, ".")}: #{detail}"
    end)
  end
end
