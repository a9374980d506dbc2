defmodule AshAgent.LLM do
  @moduledoc """
  What answers: the behaviour of models that `AshAgent.Runtime` talks to.

  A model is one of

    * a function of one argument, the context, or of two, the context and the options of `c:chat/2`
    * a module that implements `c:chat/2`
    * `{module, options}`; the options are given to `c:chat/2` on every call

  `AshAgent.LLM.OpenAICompatible` and `AshAgent.LLM.Anthropic` are real clients, `AshAgent.LLM.Scripted` plays given
  answers for tests and demos.

      iex> llm = fn context ->
      ...>   {:ok, %{content: "You sent " <> Integer.to_string(AshAgent.Context.count_messages(context)) <> " message(s)."}}
      ...> end
      iex> AshAgent.LLM.chat(llm, AshAgent.Context.new("Hello!"))
      {:ok, %{content: "You sent 1 message(s)."}}

  A module of one's own:

      defmodule MyApp.Echo do
        @behaviour AshAgent.LLM

        @impl true
        def chat(context, _opts) do
          %{content: text} = context |> AshAgent.Context.to_messages() |> List.last()
          {:ok, %{content: text}}
        end
      end
  """

  alias AshAgent.Context

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

  @optional_callbacks prepare: 1

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

  def chat({module, own}, %Context{} = context, opts) when is_atom(module) and is_list(own) do
    merged = Keyword.merge(own, opts)

    # :infinity is greater than any number.
    case {own[:timeout], opts[:timeout]} do
      {a, b} when a != nil and b != nil ->
        module.chat(context, Keyword.put(merged, :timeout, min(a, b)))

      _ ->
        module.chat(context, merged)
    end
  end

  def chat(module, %Context{} = context, opts) when is_atom(module),
    do: chat({module, []}, context, opts)

  defp refuse(got) do
    raise ArgumentError,
          "expected a model: a function of arity 1 or 2, or a module with chat/2, alone or with its options, got: #{got}"
  end
end
