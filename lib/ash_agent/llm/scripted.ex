defmodule AshAgent.LLM.Scripted do
  @moduledoc """
  A model that plays given answers, for tests and demos, and records the requests that it got.

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

  The script is kept by a process that is linked to the one that calls `new/1`.
  """

  @behaviour AshAgent.LLM

  alias AshAgent.Context

  @typedoc """
  One answer: text, an `t:AshAgent.LLM.answer/0`, `{:ok, answer}`, `{:error, reason}`, or a function of the context, or
  of the context and the options, that returns one of these. Functions run where the model runs: they may raise,
  exit or sleep.
  """
  @type answer ::
          binary()
          | AshAgent.LLM.answer()
          | {:ok, AshAgent.LLM.answer()}
          | {:error, term()}
          | (Context.t() -> answer())
          | (Context.t(), keyword() -> answer())

  @doc """
  Starts a script and returns the model that plays it.

  `answers` is a list, which is played once (then the answer is `{:error, :script_exhausted}`), or a function, which
  is asked every time.

  ## Examples

      iex> llm = AshAgent.LLM.Scripted.new(["Hello!"])
      iex> AshAgent.LLM.chat(llm, AshAgent.Context.new("Hi"))
      {:ok, %{content: "Hello!"}}
      iex> AshAgent.LLM.chat(llm, AshAgent.Context.new("Hi"))
      {:error, :script_exhausted}
  """
  @doc since: "0.1.0"
  @spec new([answer()] | (Context.t() -> answer()) | (Context.t(), keyword() -> answer())) ::
          AshAgent.LLM.t()
  def new(answers)
      when is_list(answers) or is_function(answers, 1) or is_function(answers, 2) do
    {:ok, script} = Agent.start_link(fn -> {answers, []} end)
    {__MODULE__, script: script}
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
    {script, opts} = Keyword.pop!(opts, :script)
    request = %{context: context, opts: opts}

    script
    |> Agent.get_and_update(fn
      {[answer | rest], requests} -> {answer, {rest, [request | requests]}}
      {[], requests} -> {{:error, :script_exhausted}, {[], [request | requests]}}
      {function, requests} -> {function, {function, [request | requests]}}
    end)
    |> play(context, opts)
  end

  defp play(function, context, opts) when is_function(function, 1),
    do: function.(context) |> play(context, opts)

  defp play(function, context, opts) when is_function(function, 2),
    do: function.(context, opts) |> play(context, opts)

  defp play(text, _context, _opts) when is_binary(text), do: {:ok, %{content: text}}
  defp play(%{} = answer, _context, _opts), do: {:ok, answer}
  defp play(reply, _context, _opts), do: reply
end
