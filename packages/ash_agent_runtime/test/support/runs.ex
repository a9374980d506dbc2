defmodule AshAgent.TestSupport.Runs do
  @moduledoc false

  # What tests of runs are made of: models, tools, and what runs and processes have told the test.

  alias AshAgent.{Context, Runtime}

  @doc "A model that always says this."
  def say(text), do: fn _context -> {:ok, %{content: text}} end

  @doc "Runs a conversation that begins with this."
  def prompt(text, opts), do: text |> Context.new() |> Runtime.run(opts)

  @doc "The results of an iteration's calls."
  def results(context, number \\ 1),
    do: for(%{result: result} <- Context.get_iteration(context, number).tool_calls, do: result)

  @doc "A tool that sends the caller of this function `{tag, pid}`, and never ends."
  def hanging(tag) do
    test = self()

    fn _arguments ->
      send(test, {tag, self()})
      Process.sleep(:infinity)
    end
  end

  @doc "What the messages that have come and match give: `drain(do: ({:ran, name} -> name))`."
  defmacro drain(do: [{:->, meta, [[pattern], value]}]) do
    clause = {:->, meta, [[pattern], {:ok, value}]}

    quote do
      AshAgent.TestSupport.Runs.all(fn ->
        receive(do: unquote([clause]), after: (0 -> nil))
      end)
    end
  end

  @doc false
  def all(next),
    do: for({:ok, value} <- Enum.take_while(Stream.repeatedly(next), & &1), do: value)
end
