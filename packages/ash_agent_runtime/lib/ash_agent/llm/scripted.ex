defmodule AshAgent.LLM.Scripted do
  @moduledoc """
  A model that plays back a script and records its requests, for tests and demos.

      iex> llm = AshAgent.LLM.Scripted.new([
      ...>   %{tool_calls: [%{id: "call_1", name: "add", arguments: %{"a" => 1, "b" => 2}}]},
      ...>   "The sum is 3."
      ...> ])
      iex> tools = %{"add" => fn %{"a" => a, "b" => b} -> {:ok, a + b} end}
      iex> {:ok, result} = AshAgent.Runtime.run(AshAgent.Context.new("1 + 2?"), llm: llm, tools: tools)
      iex> result.output
      "The sum is 3."
      iex> for request <- AshAgent.LLM.Scripted.requests(llm), do: AshAgent.Context.count_messages(request.context)
      [1, 3]

  It streams as well (`AshAgent.LLM.stream/4`): word by word, and as slowly as `:delay` says, so demos and tests don't need a network. A
  stream is JSON, so the keys of arguments are strings then.

  The script is kept by a process that is linked to the caller of `new/2`.
  """

  use AshAgent.Arguments

  @behaviour AshAgent.LLM

  alias AshAgent.{Context, Response}
  alias AshAgent.LLM.{Error, Reading}
  alias AshAgent.LLM.Scripted.Stream

  @schema AshAgent.Options.schema([
            {:delay, :non_neg_integer, [default: 0],
             "milliseconds between two pieces of a stream; 30 looks like natural typing."}
          ])

  @typedoc """
  One answer: a string, a `t:AshAgent.Response.message/0`, `{:ok, answer}`, `{:error, reason}`, `{:cut, answer}`, or a function that takes
  the context, or the context and the options, and returns one of these. Functions run in the model's process: they may raise, exit
  or sleep.

  The connection of a `{:cut, answer}` closes after half of it: a stream gets that half and an error, a whole answer only the error.
  """
  @type answer ::
          binary()
          | AshAgent.Response.message()
          | {:ok, AshAgent.Response.message()}
          | {:error, term()}
          | {:cut, AshAgent.Response.message() | binary()}
          | (Context.t() -> answer())
          | (Context.t(), keyword() -> answer())

  @doc """
  Starts a script and returns the model that plays it.

  `answers` is a list, which is played once (then the answer is `{:error, :script_exhausted}`), or a function, which is called every
  time.

  ## Options

  #{AshAgent.Options.docs(@schema)}

  ## Examples

      iex> llm = AshAgent.LLM.Scripted.new(["Hello!"])
      iex> {:ok, response} = AshAgent.LLM.chat(llm, AshAgent.Context.new("Hi"))
      iex> AshAgent.Response.text(response)
      "Hello!"
      iex> AshAgent.LLM.chat(llm, AshAgent.Context.new("Hi"))
      {:error, :script_exhausted}
  """
  @doc since: "0.1.0"
  @spec new(
          [answer()] | (Context.t() -> answer()) | (Context.t(), keyword() -> answer()),
          keyword()
        ) :: AshAgent.LLM.t()
  def new(answers, opts \\ [])
      when is_list(answers) or is_function(answers, 1) or is_function(answers, 2) do
    opts = AshAgent.Options.validate!(opts, @schema)
    {:ok, script} = Agent.start_link(fn -> {answers, []} end)
    {__MODULE__, script: script, delay: opts[:delay]}
  end

  @doc """
  Returns the requests so far, oldest first, each as `%{context: context, opts: options}`.

  ## Examples

      iex> AshAgent.LLM.Scripted.requests(AshAgent.LLM.Scripted.new([]))
      []
  """
  @doc since: "0.1.0"
  @spec requests(AshAgent.LLM.t()) :: [%{context: Context.t(), opts: keyword()}]
  def requests({__MODULE__, opts}),
    do:
      opts |> Keyword.fetch!(:script) |> Agent.get(fn {_, requests} -> Enum.reverse(requests) end)

  @impl true
  def chat(%Context{} = context, opts) do
    case next(context, opts) do
      {:cut, _answer} -> {:error, Error.from_transport({:connection, :closed})}
      reply -> reply
    end
  end

  @impl true
  def stream(%Context{} = context, opts, fun) when is_function(fun, 2) do
    delay = Keyword.get(opts, :delay, 0)

    case next(context, opts) do
      {:ok, %{} = answer} ->
        case pieces(answer) do
          {:ok, pieces} -> pieces |> read(fun, delay) |> result()
          {:error, _what_is_wrong} -> {:ok, answer}
        end

      {:cut, answer} ->
        answer = if is_binary(answer), do: %{content: answer}, else: answer
        {:ok, pieces} = pieces(answer)

        case pieces |> Enum.take(div(length(pieces), 2)) |> read(fun, delay) do
          {:ok, reading} -> result({:error, {:connection, :closed}, reading})
          halted -> result(halted)
        end

      reply ->
        reply
    end
  end

  defp pieces(%Response{} = response), do: {:ok, Stream.pieces(response)}

  defp pieces(answer) do
    with {:ok, response} <- Response.from_message(answer),
         do: {:ok, Stream.pieces(response)}
  end

  # Reads the pieces as a client reads a transport.
  defp read(pieces, fun, delay) do
    opts = [provider: :anthropic, model: "scripted", max_response_bytes: 1_073_741_824]
    reading = Reading.new(opts, :stream, [], fun)

    {:cont, reading} =
      Reading.take({:head, 200, [{"content-type", "text/event-stream"}]}, reading)

    Enum.reduce_while(pieces, {:ok, reading}, fn piece, {:ok, reading} ->
      Process.sleep(delay)
      {next, reading} = Reading.take({:data, piece}, reading)
      {next, {if(next == :halt, do: :halted, else: :ok), reading}}
    end)
  end

  defp result({:halted, reading}), do: result({:ok, reading})

  defp result(outcome) do
    case Reading.result(outcome) do
      {:ok, response} -> {:ok, response}
      {:error, error, _delivered?} -> {:error, error}
    end
  end

  defp next(context, opts) do
    {script, opts} = Keyword.pop!(opts, :script)
    request = %{context: context, opts: Keyword.drop(opts, [:delay, :on_retry])}

    script
    |> Agent.get_and_update(fn
      {[answer | rest], requests} -> {answer, {rest, [request | requests]}}
      {[], requests} -> {{:error, :script_exhausted}, {[], [request | requests]}}
      {function, requests} -> {function, {function, [request | requests]}}
    end)
    |> play(context, request.opts)
  end

  defp play(function, context, opts) when is_function(function, 1),
    do: function.(context) |> play(context, opts)

  defp play(function, context, opts) when is_function(function, 2),
    do: function.(context, opts) |> play(context, opts)

  defp play(text, _context, _opts) when is_binary(text), do: {:ok, %{content: text}}
  defp play(%{} = answer, _context, _opts), do: {:ok, answer}
  defp play(reply, _context, _opts), do: reply
end
