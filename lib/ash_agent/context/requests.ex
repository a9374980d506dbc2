defmodule AshAgent.Context.Requests do
  @moduledoc """
  Requests to providers, made from a conversation's view.

  Call these as functions of `AshAgent.Context`, which checks their arguments. Here they take anything with the context's `:ref`.
  """

  alias AshAgent.Context.{Error, Native, Options, Reply}

  @providers [:anthropic, :openai_chat, :openai_responses, :gemini, :bedrock, :ollama, :mistral]

  @typedoc "A provider whose API a request is for."
  @type provider ::
          :anthropic
          | :openai_chat
          | :openai_responses
          | :gemini
          | :bedrock
          | :ollama
          | :mistral

  @typedoc "Why no request can be made now, see `validate_for_request/1`."
  @type obstacle ::
          :no_messages
          | :last_message_from_assistant
          | {:pending_tool_calls, ids :: [String.t()]}

  @doc false
  defguard is_provider(provider) when provider in @providers

  @doc false
  def providers, do: @providers

  @doc """
  Returns `{:ok, request}` with the message part of a provider's request as a map with string keys, or `{:error, error}`.

  The map has `"system"` and `"messages"` for Anthropic and Bedrock, `"messages"` for OpenAI chat, Ollama and Mistral,
  `"instructions"` and `"input"` for OpenAI Responses, and `"systemInstruction"` and `"contents"` for Gemini; for Anthropic
  also `"container"` once its tools ran in one. It obeys the provider's rules; `request_report/3` lists what had to be
  changed for that. The conversation itself does not change. To send a request, use `encode_request/3`, which is faster.

  The error's reason is `{:pending_tool_calls, ids}` while tool calls wait for their results, `{:unknown_iteration,
  number, first..last}`, or `{:invalid, path, expected}` for a number that no float can hold, which JSON readers refuse. Costs O(n).

  ## Options

  #{Options.docs(:request)}

  ## Examples

      iex> context = AshAgent.Context.new("Hello!", system_prompt: "Be brief.")
      iex> AshAgent.Context.request(context, :anthropic)
      {:ok, %{"system" => "Be brief.", "messages" => [%{"role" => "user", "content" => "Hello!"}]}}

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.request!(:gemini)
      %{"contents" => [%{"role" => "user", "parts" => [%{"text" => "Hello!"}]}]}
  """
  @doc since: "0.1.0"
  @spec request(Reply.handle(), provider(), keyword()) :: {:ok, map()} | {:error, Error.t()}
  def request(%{ref: ref} = _context, provider, opts \\ []),
    do: ref |> Native.context_request(checked_options(provider, opts)) |> Reply.to_result()

  @doc """
  Returns `{:ok, iodata}` with a complete JSON request body, or `{:error, error}`.

  Takes the options of `request/3`, and `:body`: a map with the provider's other fields (model, tools, max_tokens, ...),
  which come before the message part. A field of the message part in it raises `ArgumentError`. Anthropic's `container`, which a
  request names again after the provider's tools ran in it, may be yours: `container: nil` asks for a new one, and one with `skills`
  alone gets the id.

  Each message is encoded once for each provider and set of options, and the encodings of old iterations join into larger
  ones. The iodata is a list of binaries that point to them: about as many as iterations since a multiple of 16, and one for
  each megabyte. Appending never changes the bytes before the appended message (cache breakpoints aside), so that
  providers' prompt caches hit.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> {:ok, body} = AshAgent.Context.encode_request(context, :openai_chat, body: %{model: "gpt-4o"})
      iex> IO.iodata_to_binary(body)
      ~s({"model":"gpt-4o","messages":[{"role":"user","content":"Hello!"}]})

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.encode_request!(:ollama) |> IO.iodata_to_binary()
      ~s({"messages":[{"role":"user","content":"Hello!"}]})
  """
  @doc since: "0.1.0"
  @spec encode_request(Reply.handle(), provider(), keyword()) ::
          {:ok, iodata()} | {:error, Error.t()}
  def encode_request(%{ref: ref} = _context, provider, opts \\ []) do
    opts = Options.validate!(opts, :encode_request)

    case Native.context_encode_request(ref, request_options(provider, opts), opts[:body]) do
      {:error, {:reserved_field, key}} ->
        AshAgent.Caller.refuse!(
          "the field #{inspect(key)} of :body is made from the conversation; leave it out"
        )

      reply ->
        Reply.to_result(reply)
    end
  end

  @doc """
  Returns the changes that `request/3` with the same options makes so that the provider accepts the request.

  Each change is a map with `:change`, `:from` (in the conversation), `:to` (in the request, `nil` if nothing is sent),
  `:iteration` and `:position`; those of the system prompt come first. Changes are `:renamed_id`, `:renamed_tool`,
  `:wrapped_arguments` (arguments that are not a JSON object), `:dropped_blank_text`, `:replaced_bytes` (invalid UTF-8),
  `:dropped_thinking`, `:thinking_to_text`, `:dropped_part`, `:dropped_message`, `:part_to_text`, `:moved_part` (an image in a
  tool result, sent after the results), `:moved_call` (a call that is sent later than the model made it),
  `:call_to_function` (a call of a kind that the provider does not know) and `:added_message` (a user message that says
  "Continue." where the provider wants one and there is none).

  A provider refuses one half of a call that it answered itself without the other, such as the result of a web search without
  the search. So if one half is hidden, masked or before `:since`, the other is left out as well, as `:dropped_part`.

  The view's changes are listed as well: `:hidden_iterations` and `:summarized_iterations` (`:from` is the range as text),
  `:cleared_result` and `:shortened_result` (`:from` is the id of the call) and `:masked_text`.

  Raises `AshAgent.Context.Error` as `AshAgent.Context.request!/3` does. Costs O(n).

  ## Examples

      iex> context = AshAgent.Context.new("Hi") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a.b", name: :now}])
      iex> context = AshAgent.Context.add_tool_results(context, [{"a.b", {:ok, "10:00"}}])
      iex> AshAgent.Context.request_report(context, :anthropic) |> hd()
      %{change: :renamed_id, from: "a.b", to: "a_b", iteration: 1, position: 1}
  """
  @doc since: "0.1.0"
  @spec request_report(Reply.handle(), provider(), keyword()) :: [map()]
  def request_report(%{ref: ref} = _context, provider, opts \\ []),
    do: ref |> Native.context_request_report(checked_options(provider, opts)) |> Reply.ok!()

  @doc """
  Returns the conversation as plain text, for models that take a single text.

  Blocks `[System]`, `[User]`, `[Assistant]` and `[Tool NAME]` are separated by blank lines. Costs O(n).

  ## Options

  #{Options.docs(:to_prompt)}

  ## Examples

      iex> AshAgent.Context.new("Hello!", system_prompt: "Be brief.") |> AshAgent.Context.to_prompt()
      "[System]\\nBe brief.\\n\\n[User]\\nHello!"
  """
  @doc since: "0.1.0"
  @spec to_prompt(Reply.handle(), keyword()) :: String.t()
  def to_prompt(%{ref: ref} = _context, opts \\ []) do
    opts = Options.validate!(opts, :to_prompt)
    ref |> Native.context_to_prompt(opts[:mode]) |> Reply.ok!()
  end

  @doc """
  Returns whether a request can be made from the context now: `:ok` or `{:error, reasons}`.

  The reasons are `:no_messages` (there is nothing but the system prompt), `:last_message_from_assistant` (the model has
  answered; some providers refuse to continue, others continue the answer) and `{:pending_tool_calls, ids}`. `request/3`
  refuses only the last of them.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> AshAgent.Context.validate_for_request(context)
      :ok
      iex> context |> AshAgent.Context.add_assistant_message("Hi!") |> AshAgent.Context.validate_for_request()
      {:error, [:last_message_from_assistant]}
  """
  @doc since: "0.1.0"
  @spec validate_for_request(Reply.handle()) :: :ok | {:error, [obstacle()]}
  def validate_for_request(%{ref: ref} = _context) do
    case ref |> Native.context_unready() |> Reply.ok!() do
      [] -> :ok
      reasons -> {:error, reasons}
    end
  end

  @doc false
  def checked_options(provider, opts),
    do: request_options(provider, Options.validate!(opts, :request))

  @doc false
  def request_options(provider, opts) do
    {response, conversation} =
      check_known(provider, opts[:previous_response_id], opts[:conversation])

    %{
      provider: provider,
      model: opts[:model],
      thinking: opts[:thinking],
      system_role: opts[:system_role],
      cache: opts[:cache] == :auto,
      since: opts[:since],
      max_result_bytes: opts[:max_result_bytes],
      dialect: dialect(provider, opts[:dialect]),
      previous_response_id: response,
      conversation: conversation,
      interrupt: opts[:pending] == :interrupt
    }
  end

  defp dialect(_provider, nil), do: nil
  defp dialect(:openai_chat, dialect), do: Atom.to_string(dialect)
  defp dialect(provider, _dialect), do: not_for!(":dialect", :openai_chat, provider)

  # The part of the conversation that the provider keeps itself.
  defp check_known(_provider, nil, nil), do: {nil, nil}
  defp check_known(:openai_responses, response, nil), do: {response, nil}
  defp check_known(:openai_responses, nil, conversation), do: {nil, conversation}

  defp check_known(:openai_responses, _response, _conversation) do
    AshAgent.Caller.refuse!(
      "options :previous_response_id and :conversation exclude each other: give one of them"
    )
  end

  defp check_known(provider, response, _conversation) do
    name = if response, do: ":previous_response_id", else: ":conversation"
    not_for!(name, :openai_responses, provider)
  end

  @spec not_for!(String.t(), provider(), provider()) :: no_return()
  defp not_for!(option, owner, provider) do
    AshAgent.Caller.refuse!(
      "option #{option} is for #{inspect(owner)}; leave it out for #{inspect(provider)}"
    )
  end
end
