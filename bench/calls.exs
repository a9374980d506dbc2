# How often turns call NIFs and check options, counted by the VM: the figures are the same on each machine and in each run.
#
#     cd packages/ash_agent_runtime && MIX_ENV=prod mix run ../../bench/calls.exs
#
# A function that ran on a normal scheduler and then on a dirty one is one call. Everything is counted, from the first context, or the
# start of the session, and the script of the model to the end of the turn.

defmodule AshAgent.Bench.Calls do
  @moduledoc false

  alias AshAgent.{Context, LLM, Runtime, Session, Store}

  @counted [Context.Native, AshAgent.Options]

  def main do
    {:ok, store} = Store.SQLite.open(":memory:")

    IO.puts(
      "| a turn with the scripted model | calls of NIFs | checks of options |\n|---|--:|--:|"
    )

    for {name, turn} <- [
          {"a run without a tool call", fn -> run(0) end},
          {"a run with one tool call", fn -> run(1) end},
          {"a run with eleven tool calls", fn -> run(11) end},
          {"a session with one tool call, stored and subscribed to", fn -> prompt(store) end}
        ] do
      # The first time makes what is kept for all others.
      turn.()
      {nifs, checks} = count(turn)
      IO.puts("| #{name} | #{nifs} | #{checks} |")
    end
  end

  defp count(turn) do
    trace(true)
    turn.()
    trace(:pause)
    nifs = for {name, count} <- counts(Context.Native), "#{name}" =~ ~r/_normal$/, do: count
    checks = for {:validate!, count} <- counts(AshAgent.Options), do: count
    trace(false)
    {Enum.sum(nifs), Enum.sum(checks)}
  end

  defp trace(how) do
    for module <- @counted do
      {:module, _} = Code.ensure_loaded(module)
      :erlang.trace_pattern({module, :_, :_}, how, [:call_count])
    end
  end

  defp counts(module) do
    for {name, arity} <- module.__info__(:functions),
        {:call_count, count} = :erlang.trace_info({module, name, arity}, :call_count),
        do: {name, count}
  end

  defp run(calls) do
    opts = [llm: script(calls), tools: tools(), max_iterations: calls + 1]
    {:ok, %{output: "Done."}} = Runtime.run(Context.new("1 + 2?"), opts)
  end

  defp prompt(store) do
    opts = [id: "c#{System.unique_integer()}", store: store, llm: script(1), tools: tools()]
    {:ok, session} = Session.start_link(opts)
    {:ok, _ref, _snapshot} = Session.subscribe(session)
    {:ok, %{output: "Done."}} = Session.prompt(session, "1 + 2?")
  end

  defp script(calls) do
    LLM.Scripted.new(
      for n <- 1..calls//1 do
        %{tool_calls: [%{id: "call_#{n}", name: "add", arguments: %{"a" => n, "b" => 2}}]}
      end ++ ["Done."]
    )
  end

  defp tools, do: %{add: fn %{"a" => a, "b" => b} -> {:ok, a + b} end}
end

AshAgent.Bench.Calls.main()
