defmodule AshAgent.Runtime.LateTest do
  # A call that waits is not pending: nothing runs it again, and a run goes on.
  use ExUnit.Case, async: true

  alias AshAgent.{Context, Runtime, Session, Store}
  alias AshAgent.Context.Calls
  alias AshAgent.Store.SQLite

  defp waiting do
    Context.new("Build it", id: "c")
    |> Context.add_assistant_message(nil, [%{id: "a", name: "build", arguments: %{}}])
    |> Context.add_tool_results([{"a", {:waiting, %{for: "ci", handle: "1"}}}])
  end

  defp arrived(context) do
    {:ok, context} = Calls.arrive(context, "a", {:ok, "green"})
    context
  end

  # Says what it was asked last.
  defp echo(context) do
    %{content: [%{content: words}]} = context |> Context.to_messages() |> List.last()
    {:ok, %{content: "heard " <> words}}
  end

  defp opts do
    test = self()
    build = fn _ -> send(test, :ran) && {:ok, "built"} end
    [llm: &echo/1, tools: %{build: build}, approval: fn _, _ -> :ask end]
  end

  test "a run goes on, and a call that waits stays open" do
    for run <- [&Runtime.run/2, &Runtime.resume/2] do
      {:ok, result} = run.(waiting(), opts())
      assert result.output =~ "heard This call is still running"
      assert [%{state: :open}] = Calls.late_calls(result.context)
      # It is answered.
      assert {:ok, ^result} = Runtime.run(result.context, opts()) |> same(result)
    end

    refute_received :ran
  end

  defp same({:ok, %{context: context}}, %{context: context} = result), do: {:ok, result}

  test "what has arrived stands before the next request" do
    for context <- [
          arrived(waiting()),
          waiting() |> Context.add_assistant_message("It runs.") |> arrived()
        ] do
      {:ok, result} = Runtime.run(context, opts())
      assert result.output == "heard green"
      assert [%{state: :placed}] = Calls.late_calls(result.context)
    end

    refute_received :ran
  end

  test "behind the results of calls that are pending" do
    context =
      waiting()
      |> Context.add_assistant_message("Again", [%{id: "b", name: "build", arguments: %{}}])
      |> arrived()

    {:ok, result} = Runtime.run(context, Keyword.delete(opts(), :approval))
    assert_received :ran
    refute_received :ran
    assert result.output == "heard green"
    assert [%{state: :placed, placed: 3}] = Calls.late_calls(result.context)
  end

  test "a session is idle while a call waits, and goes on after a restart" do
    {:ok, store} = SQLite.open(":memory:")
    {:ok, kept} = Store.create(store, waiting(), status: :running)
    assert [] = Context.pending_tool_calls(kept.value)

    start = fn ->
      start_supervised!({Session, [id: "c", store: store] ++ opts()}, id: make_ref())
    end

    session = start.()
    refute match?({:paused, _calls}, Session.status(session))
    {:ok, result} = Session.resume(session)
    assert result.output =~ "heard This call is still running"
    assert Session.status(session) == :idle
    refute_received :ran
    assert [%{state: :open}] = session |> Session.context() |> Calls.late_calls()
    assert {:ok, []} = Store.calls(store, "c")
  end
end
