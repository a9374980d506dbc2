defmodule AshAgent.LLM do
  @moduledoc """
  The behaviour of models, which `AshAgent.Runtime` asks for answers.

  A model is one of

    * a function that takes the context, or the context and the options of `c:chat/2`
    * a module that implements `c:chat/2`
    * `{module, options}`; the options are passed to `c:chat/2` on every call

  The package has clients for providers: `AshAgent.LLM.Anthropic`, `AshAgent.LLM.OpenAIResponses`,
  `AshAgent.LLM.OpenAICompatible`, `AshAgent.LLM.Gemini`, `AshAgent.LLM.Bedrock`, `AshAgent.LLM.Mistral` and
  `AshAgent.LLM.Ollama`. `AshAgent.LLM.ReqLLM` reaches all providers of that library, and `AshAgent.LLM.Scripted` plays back a
  script in tests and demos.

      iex> llm = fn context ->
      ...>   {:ok, %{content: "You sent " <> Integer.to_string(AshAgent.Context.count_messages(context)) <> " message(s)."}}
      ...> end
      iex> {:ok, response} = AshAgent.LLM.chat(llm, AshAgent.Context.new("Hello!"))
      iex> AshAgent.Response.text(response)
      "You sent 1 message(s)."

  Writing your own model:

      defmodule MyApp.Echo do
        @behaviour AshAgent.LLM

        @impl true
        def chat(context, _opts) do
          %{content: text} = context |> AshAgent.Context.to_messages() |> List.last()
          {:ok, %{content: text}}
        end
      end

  A model returns an `AshAgent.Response`, or a message as a map, which `AshAgent.Response.from_message/1` turns into one:
  `chat/3` returns a response either way.

  ## The clients

  **Streams.** `stream/4` passes the events of an answer to a function while it comes. The response is read only as fast as the function returns; in a run, up to 16 pieces may wait for their consumer. If the function returns `:halt`, or its process ends, the connection closes, and with it the provider stops.

  **Timeouts.** `:connect_timeout`, `:first_byte_timeout` and `:idle_timeout` limit single waits, and `:timeout` limits everything together, including retries. The error's reason says which one was reached.

  **Retries.** Refusals with status 408, 409, 425, 429 and 5xx, overloads reported with status 200, and connections that are refused or cut are retried up to `:max_retries` times, after half a second, one second, two seconds and so on, or after the time that the provider asks for (`retry-after`), unless that is longer than `:max_retry_delay`. Once a part of an answer was delivered, the request is not retried: the error contains that part.

  **Errors** are an `AshAgent.LLM.Error` with a reason to match on, the status, the provider's own words, and whether retrying may help.

  **Transport.** Requests use `AshAgent.LLM.Transport.HTTP1`, which keeps connections alive, uses the machine's CA certificates and verifies the server's name; redirects are not followed. The option `:transport` selects another one, such as `AshAgent.LLM.Transport.Req`.

  **Secrets.** A key never appears in a log, an error or an inspected option: `new/1`, `AshAgent.Runtime.run/2` and `AshAgent.Session.start_link/1` put it into a function, and it is removed from the provider's words. If you pass a function, it is called for each request, and the key is not in a supervisor's specification either.
  """

  use AshAgent.Arguments

  alias AshAgent.{Context, Response}
  alias AshAgent.LLM.Transport.HTTP1

  import AshAgent.Context.Requests, only: [is_provider: 1]

  @typedoc "A model's reply: a response, or a message that a response is made from."
  @type reply :: {:ok, Response.t() | Response.message()} | {:error, term()}

  @type t ::
          module()
          | {module(), keyword()}
          | (Context.t() -> reply())
          | (Context.t(), keyword() -> reply())

  @doc """
  Answers the conversation.

  `opts` are the model's own options, and from the runtime `:tools` (a list of
  `%{name: string, description: string | nil, parameters: schema}`, with `late: true` if its result may come later), `:timeout` (the milliseconds that are left), for the clients of this
  package `:output` (the fields of a request that ask for a typed answer), and
  `:on_retry` for modules: a function that a model that tries again calls before it waits, with `%{error: error, attempt: 1, wait: 500}`,
  an `AshAgent.LLM.Error`, the number of the attempt, and the milliseconds. The runtime records it and emits an event.
  """
  @callback chat(context :: Context.t(), opts :: keyword()) :: reply()

  @doc """
  Checks a model's own options once, before the first call, and returns those that `c:chat/2` gets.

  This is the place to hide secrets in functions, so that no crash report can print them.
  """
  @callback prepare(opts :: keyword()) :: keyword()

  @doc """
  Answers the conversation as a stream.

  `fun` gets the events of a piece of the answer (at least one `t:AshAgent.Response.event/0`) and the response that includes them. It
  runs in the caller's process, and the model continues reading when it has returned. If it returns `:halt`, the model stops and
  returns `{:ok, response}` with the interrupted response.
  """
  @callback stream(
              context :: Context.t(),
              opts :: keyword(),
              fun :: ([Response.event()], Response.t() -> term())
            ) :: reply()

  @optional_callbacks prepare: 1, stream: 3

  # Names, so that none of them is needed to compile this module.
  @models Enum.map(
            ~w(Anthropic Bedrock Gemini Mistral Ollama OpenAICompatible OpenAIResponses ReqLLM),
            &Module.concat(__MODULE__, &1)
          )

  @doc """
  Checks a model and returns it ready for `chat/3`.

  `AshAgent.Runtime` and `AshAgent.Session` call it themselves. Raises `ArgumentError` for anything that is not a model, without
  showing options, which may contain keys.

  ## Examples

      iex> AshAgent.LLM.new(String)
      ** (ArgumentError) expected a model: a function of arity 1 or 2, or a module with chat/2, alone or with its options, got: String, which has no chat/2
  """
  @doc since: "0.1.0"
  @spec new(t()) :: t()
  def new(llm) when is_function(llm, 1) or is_function(llm, 2), do: llm

  def new(module) when is_atom(module) and module not in [nil, true, false],
    do: new({module, []})

  def new({module, opts}) when is_atom(module) and is_list(opts) do
    cond do
      not Code.ensure_loaded?(module) ->
        models = Enum.map_join(@models, ", ", &inspect/1)
        refuse("#{inspect(module)}, which is no module; the models are #{models}")

      not function_exported?(module, :chat, 2) ->
        refuse("#{inspect(module)}, which has no chat/2")

      not Keyword.keyword?(opts) ->
        refuse("#{inspect(module)} with options that are not a keyword list")

      function_exported?(module, :prepare, 1) ->
        {module, module.prepare(opts)}

      true ->
        {module, opts}
    end
  end

  def new(other), do: refuse(AshAgent.Options.kind(other))

  @doc """
  Asks a model and returns `{:ok, response}` or `{:error, reason}`.

  The reason is the model's own, or `{:invalid_answer, error}` if the model returned neither a response nor a valid
  message; `error` is an exception or a string. Exceptions of the model are not rescued; `AshAgent.Runtime` does that.

  ## Options

    * `:tools` - the tools that the model may call, as `c:chat/2` describes them. Defaults to no tools.
    * `:timeout` - milliseconds that the call may take, if the model observes it. A smaller one among the model's own options takes
      precedence. Defaults to no limit.

  They are passed to the model, together with its own options, which it checks.

  ## Examples

      iex> {:ok, response} =
      ...>   AshAgent.LLM.chat(fn _context, opts -> {:ok, %{content: inspect(opts)}} end, AshAgent.Context.new("Hi"), timeout: 5)
      iex> AshAgent.Response.text(response)
      "[timeout: 5]"
  """
  @doc since: "0.1.0"
  @spec chat(t(), Context.t(), keyword()) :: {:ok, Response.t()} | {:error, term()}
  def chat(llm, context, opts \\ [])
  def chat(llm, %Context{} = context, _opts) when is_function(llm, 1), do: reply(llm.(context))

  def chat(llm, %Context{} = context, opts) when is_function(llm, 2),
    do: reply(llm.(context, opts))

  def chat({module, own}, %Context{} = context, opts) when is_atom(module) and is_list(own),
    do: context |> module.chat(merge(own, opts)) |> reply()

  def chat(module, %Context{} = context, opts) when is_atom(module),
    do: chat({module, []}, context, opts)

  defp reply({:ok, %Response{}} = reply), do: reply
  defp reply({:error, _reason} = reply), do: reply

  defp reply({:ok, %{} = message}) when not is_struct(message) do
    with {:error, error} <- Response.from_message(message), do: {:error, {:invalid_answer, error}}
  end

  defp reply(_other) do
    words =
      "expected {:ok, response}, {:ok, message} with the message as a map, or {:error, reason}"

    {:error, {:invalid_answer, words}}
  end

  # :infinity is greater than any number.
  defp merge(own, opts) do
    merged = Keyword.merge(own, opts)

    case {own[:timeout], opts[:timeout]} do
      {a, b} when a != nil and b != nil -> Keyword.put(merged, :timeout, min(a, b))
      _ -> merged
    end
  end

  @doc false
  # The name of the model, if its options have it.
  def model_name({_module, opts}) do
    name = opts[:model]
    if is_binary(name) and String.valid?(name), do: name
  end

  def model_name(_function), do: nil

  @doc false
  # The parameters of a request beside messages and tools, as far as the model gives them: never a possible key.
  def describe(llm, mode) do
    own =
      with {module, opts} <- llm,
           true <- function_exported?(module, :describe, 2) do
        module.describe(opts, mode)
      else
        _function_or_other -> %{}
      end

    for {key, value} <- [model: model_name(llm), provider: provider(llm)],
        value != nil,
        into: own,
        do: {to_string(key), to_string(value)}
  end

  @doc false
  # A client's encoding of requests, `{provider, options}`, or `nil` for other models.
  def encoding({_module, opts} = llm) do
    if provider = Keyword.keyword?(opts[:request]) && provider(llm),
      do: {provider, Keyword.put_new(opts[:request], :model, opts[:model])}
  end

  def encoding(_function), do: nil

  @doc false
  # A client that asks its provider to keep what was sent, unless its options say otherwise or the model is not known to do that.
  def keep_sent({module, opts} = llm) do
    with {provider, request} <- encoding(llm),
         false <- Keyword.has_key?(request, :cache),
         model when is_binary(model) <- opts[:model],
         true <- Context.Audit.caches?(provider, model),
         do: {module, Keyword.update!(opts, :request, &[{:cache, :auto} | &1])},
         else: (_as_it_is -> llm)
  end

  def keep_sent(function), do: function

  @doc false
  def provider({_module, opts}) do
    provider = opts[:provider]
    if is_provider(provider), do: provider
  end

  def provider(_function), do: nil

  @doc false
  # A function that asks a model of the package for one answer after the other, with what these share made ready once, or `nil` for other
  # models, which may count on a process for each. It takes the context, the options of one request, and the function of `stream/4`.
  def opener({module, own}, opts, mode) do
    if function_exported?(module, :open_requests, 2) do
      fn ->
        HTTP1.hold_connection()
        opened = module.open_requests(merge(own, opts), mode)
        &(opened |> __MODULE__.Client.ask(&1, &2, &3) |> reply())
      end
    end
  end

  def opener(_function, _opts, _mode), do: nil

  @doc """
  Returns whether a model can stream, which is whether it is a module with `c:stream/3`.

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
  Asks a model for a stream, passes its events to `fun` as they come, and returns `{:ok, response}` or `{:error, error}`.

  `fun` takes an event, or a list of events and the response that includes them; see `t:AshAgent.Response.event/0`. It
  runs in this process, and the provider waits until it returns. If it returns `:halt`, the request is cancelled and the
  response is interrupted.

  No event follows an error. The error's `response` has the part of the answer that was delivered, for
  `AshAgent.Context.add_response/3`. Takes the options of `chat/3`. Raises `ArgumentError` for a model that cannot stream,
  see `streams?/1`.

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
        AshAgent.Caller.refuse!(
          "#{inspect(module)} has no stream/3; ask it with AshAgent.LLM.chat/3"
        )

    context |> module.stream(merge(own, opts), by_feed(fun)) |> reply()
  end

  def stream(module, context, opts, fun) when is_atom(module),
    do: stream({module, []}, context, opts, fun)

  def stream(function, _context, _opts, _fun) when is_function(function),
    do: AshAgent.Caller.refuse!("a function cannot stream; ask it with AshAgent.LLM.chat/3")

  @doc false
  def by_feed(fun) when is_function(fun, 2), do: fun

  def by_feed(fun) when is_function(fun, 1) do
    fn events, _response ->
      Enum.find_value(events, fn event -> if fun.(event) == :halt, do: :halt end)
    end
  end

  defp refuse(got) do
    AshAgent.Caller.refuse!(
      "expected a model: a function of arity 1 or 2, or a module with chat/2, alone or with its options, got: #{got}"
    )
  end
end
