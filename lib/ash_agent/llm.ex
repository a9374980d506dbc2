defmodule AshAgent.LLM do
  @moduledoc """
  What answers: the behaviour of models that `AshAgent.Runtime` talks to.

  A model is one of

    * a function of one argument, the context, or of two, the context and the options of `c:chat/2`
    * a module that implements `c:chat/2`
    * `{module, options}`; the options are given to `c:chat/2` on every call

  Clients of providers come with the package: `AshAgent.LLM.Anthropic`, `AshAgent.LLM.OpenAIResponses`,
  `AshAgent.LLM.OpenAICompatible`, `AshAgent.LLM.Gemini`, `AshAgent.LLM.Bedrock`, `AshAgent.LLM.Mistral` and
  `AshAgent.LLM.Ollama`. `AshAgent.LLM.Scripted` plays given answers for tests and demos.

      iex> llm = fn context ->
      ...>   {:ok, %{content: "You sent " <> Integer.to_string(AshAgent.Context.count_messages(context)) <> " message(s)."}}
      ...> end
      iex> AshAgent.LLM.chat(llm, AshAgent.Context.new("Hello!"))
      {:ok, %{content: "You sent 1 message(s)."}}

  Writing your own model:

      defmodule MyApp.Echo do
        @behaviour AshAgent.LLM

        @impl true
        def chat(context, _opts) do
          %{content: text} = context |> AshAgent.Context.to_messages() |> List.last()
          {:ok, %{content: text}}
        end
      end

  ## What all clients have in common

  **Streams.** `stream/4` gives the events of an answer to a function while it comes in. The response is read as fast as the
  function returns and not faster; when it returns `:halt`, or its process ends, the connection closes, and so the provider
  stops.

  **Timeouts.** `:connect_timeout`, `:first_byte_timeout` and `:idle_timeout` limit the single waits, `:timeout` everything
  together, repetitions included. The error's reason says which one it was.

  **Repetition.** Refusals with status 408, 409, 425, 429 and 5xx, overloads that are reported under status 200, and
  connections that are refused or cut are tried again up to `:max_retries` times, after half a second, then one, two and
  so on, or after the time that the provider asks for (`retry-after`), if that is not longer than `:max_retry_delay`. Once
  something of an answer was delivered, nothing is repeated: the error holds what had come.

  **Errors** are an `AshAgent.LLM.Error` with a reason to match on, the status, the provider's own words, and whether it helps
  to try again.

  **Transport.** Requests go over `AshAgent.LLM.Transport.HTTP1`, which keeps connections alive, uses the machine's CA
  certificates and checks the server's name; redirects are not followed. The option `:transport` takes another one, such as
  `AshAgent.LLM.Transport.Req`.

  **Secrets.** A key is in no log, error or inspected option: it is kept inside a function from the moment `new/1`,
  `AshAgent.Runtime.run/2` or `AshAgent.Session.start_link/1` has seen it, and cut out of what providers say. Given as a
  function, it is read at each call and never stands in a supervisor's specification either.
  """

  alias AshAgent.{Context, Response}

  @typedoc """
  What a model answered. Every key is optional, and further keys are left alone.

    * `:content` - text, or `nil` for none
    * `:parts` - the answer as parts (thinking, text, ...); when there are any, they are kept in place of `:content`
    * `:tool_calls` - as `t:AshAgent.Context.tool_call/0`; none ends the loop
    * `:usage` - a map of numbers, such as `%{input_tokens: 10, output_tokens: 2}`
    * `:finish_reason` - why the model stopped, in the provider's word
  """
  @type answer :: %{
          optional(:content) => binary() | nil,
          optional(:parts) => [Context.part()] | nil,
          optional(:tool_calls) => [Context.tool_call()] | nil,
          optional(:usage) => map() | nil,
          optional(:finish_reason) => binary() | nil,
          optional(atom()) => term()
        }

  @type t ::
          module()
          | {module(), keyword()}
          | (Context.t() -> {:ok, answer()} | {:error, term()})
          | (Context.t(), keyword() -> {:ok, answer()} | {:error, term()})

  @doc """
  Answers the conversation.

  `opts` are the model's own options and, from the runtime, `:tools` (a list of
  `%{name: text, description: text | nil, parameters: schema}`) and `:timeout` (milliseconds that are left).
  """
  @callback chat(context :: Context.t(), opts :: keyword()) :: {:ok, answer()} | {:error, term()}

  @doc """
  Checks a model's own options once, before the first call, and returns those that `c:chat/2` is to get.

  This is the place to hide secrets in functions, so that no crash report can print them.
  """
  @callback prepare(opts :: keyword()) :: keyword()

  @doc """
  Answers the conversation as a stream.

  `fun` gets the events of a piece of the answer (`t:AshAgent.Response.event/0`, never none) and the response as it is with
  them. It runs in the caller's process; the model reads on when it has returned. When it returns `:halt`, the model
  stops and returns `{:ok, response}` with the response interrupted.
  """
  @callback stream(
              context :: Context.t(),
              opts :: keyword(),
              fun :: ([Response.event()], Response.t() -> term())
            ) :: {:ok, Response.t()} | {:error, term()}

  @optional_callbacks prepare: 1, stream: 3

  @doc """
  Checks a model and returns it ready for `chat/3`.

  `AshAgent.Runtime` and `AshAgent.Session` do it themselves. Raises `ArgumentError` for what is no model; options are
  not shown in the message, since they may hold keys.

  ## Examples

      iex> AshAgent.LLM.new(AshAgent.LLM.Nothing)
      ** (ArgumentError) expected a model: a function of arity 1 or 2, or a module with chat/2, alone or with its options, got: AshAgent.LLM.Nothing, which has no chat/2
  """
  @doc since: "0.1.0"
  @spec new(t()) :: t()
  def new(llm) when is_function(llm, 1) or is_function(llm, 2), do: llm

  def new(module) when is_atom(module) and module not in [nil, true, false],
    do: new({module, []})

  def new({module, opts}) when is_atom(module) and is_list(opts) do
    cond do
      not (Code.ensure_loaded?(module) and function_exported?(module, :chat, 2)) ->
        refuse("#{inspect(module)}, which has no chat/2")

      not Keyword.keyword?(opts) ->
        refuse("#{inspect(module)} with options that are no keyword list")

      function_exported?(module, :prepare, 1) ->
        {module, module.prepare(opts)}

      true ->
        {module, opts}
    end
  end

  def new(function) when is_function(function), do: refuse(inspect(function))
  def new(nil), do: refuse("nil")
  def new(_other), do: refuse("something else")

  @doc """
  Asks a model and returns what it returned.

  What the model raises is not caught; `AshAgent.Runtime` does that.

  ## Options

    * `:tools` - the tools that the model may call, as `c:chat/2` describes them. Defaults to none.
    * `:timeout` - milliseconds the call may take, when the model keeps to it. A smaller one among the model's own
      options wins. Defaults to none.

  ## Examples

      iex> AshAgent.LLM.chat(fn _context, opts -> {:ok, %{content: inspect(opts)}} end, AshAgent.Context.new("Hi"), timeout: 5)
      {:ok, %{content: "[timeout: 5]"}}
  """
  @doc since: "0.1.0"
  @spec chat(t(), Context.t(), keyword()) :: {:ok, answer()} | {:error, term()}
  def chat(llm, context, opts \\ [])
  def chat(llm, %Context{} = context, _opts) when is_function(llm, 1), do: llm.(context)
  def chat(llm, %Context{} = context, opts) when is_function(llm, 2), do: llm.(context, opts)

  def chat({module, own}, %Context{} = context, opts) when is_atom(module) and is_list(own),
    do: module.chat(context, merge(own, opts))

  def chat(module, %Context{} = context, opts) when is_atom(module),
    do: chat({module, []}, context, opts)

  # :infinity is greater than any number.
  defp merge(own, opts) do
    merged = Keyword.merge(own, opts)

    case {own[:timeout], opts[:timeout]} do
      {a, b} when a != nil and b != nil -> Keyword.put(merged, :timeout, min(a, b))
      _ -> merged
    end
  end

  @doc """
  Tells whether a model can stream: whether it is a module with `c:stream/3`.

  ## Examples

      iex> AshAgent.LLM.streams?({AshAgent.LLM.Ollama, model: "llama3.2"})
      true
      iex> AshAgent.LLM.streams?(fn _context -> {:ok, %{content: "Hi"}} end)
      false
  """
  @doc since: "0.1.0"
  @spec streams?(t()) :: boolean()
  def streams?({module, _opts}), do: streams?(module)

  def streams?(module) when is_atom(module),
    do: Code.ensure_loaded?(module) and function_exported?(module, :stream, 3)

  def streams?(_function), do: false

  @doc """
  Asks a model for a stream, gives its events to `fun` as they come, and returns `{:ok, response}` or `{:error, error}`.

  `fun` takes an event, or a list of events and the response as it is with them; see `t:AshAgent.Response.event/0`. It runs
  in this process, and what it takes its time for, the provider waits for. When it returns `:halt`, the request is cancelled
  and the response is interrupted.

  After an error nothing more comes. What had been delivered stands in the error's `response`, for
  `AshAgent.Context.add_response/3`. Takes the options of `chat/3`. Raises `ArgumentError` for a model that cannot stream, see
  `streams?/1`.

  ## Examples

      iex> llm = AshAgent.LLM.Scripted.new(["Hello there!"])
      iex> show = fn
      ...>   {:text, _part, text} -> send(self(), {:shown, text})
      ...>   _other -> :ok
      ...> end
      iex> {:ok, response} = AshAgent.LLM.stream(llm, AshAgent.Context.new("Hi"), show)
      iex> AshAgent.Response.message(response)
      %{role: :assistant, content: "Hello there!"}
      iex> receive do: ({:shown, text} -> text)
      "Hello "
  """
  @doc since: "0.1.0"
  @spec stream(
          t(),
          Context.t(),
          keyword(),
          (Response.event() -> term()) | ([Response.event()], Response.t() -> term())
        ) :: {:ok, Response.t()} | {:error, term()}
  def stream(llm, context, opts \\ [], fun)

  def stream({module, own} = llm, %Context{} = context, opts, fun)
      when is_list(opts) and (is_function(fun, 1) or is_function(fun, 2)) do
    unless streams?(llm),
      do:
        raise(
          ArgumentError,
          "#{inspect(module)} has no stream/3: ask it with AshAgent.LLM.chat/3"
        )

    module.stream(context, merge(own, opts), by_feed(fun))
  end

  def stream(module, context, opts, fun) when is_atom(module),
    do: stream({module, []}, context, opts, fun)

  def stream(function, _context, _opts, _fun) when is_function(function),
    do: raise(ArgumentError, "a function cannot stream: ask it with AshAgent.LLM.chat/3")

  @doc false
  def by_feed(fun) when is_function(fun, 2), do: fun

  def by_feed(fun) when is_function(fun, 1) do
    fn events, _response ->
      Enum.find_value(events, fn event -> if fun.(event) == :halt, do: :halt end)
    end
  end

  @doc false
  # A response in the form of `t:answer/0`.
  def answer(%Response{} = response) do
    message = Response.message(response)

    content =
      case message.content do
        [_ | _] = parts ->
          if Enum.all?(parts, &(map_size(&1) == 2 and &1.type == :text)),
            do: %{content: Enum.map_join(parts, & &1.text)},
            else: %{content: nil, parts: Enum.map(parts, &thinking/1)}

        text ->
          %{content: text}
      end

    Map.merge(content, %{
      tool_calls: message[:tool_calls] || [],
      usage: Response.usage(response),
      finish_reason: Response.finish_word(response),
      model: Response.model(response)
    })
  end

  # Some servers give what they reasoned as details alone.
  defp thinking(
         %{type: :thinking, text: "", provider_metadata: %{reasoning_details: details}} = part
       )
       when is_list(details) do
    texts = for %{"text" => text} when is_binary(text) <- details, do: text
    %{part | text: Enum.join(texts)}
  end

  defp thinking(part), do: part

  defp refuse(got) do
    raise ArgumentError,
          "expected a model: a function of arity 1 or 2, or a module with chat/2, alone or with its options, got: #{got}"
  end
end
