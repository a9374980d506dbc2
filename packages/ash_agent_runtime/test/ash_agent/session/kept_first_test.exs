defmodule AshAgent.Session.KeptFirstTest do
  use ExUnit.Case, async: true

  # With a store, nothing is shown before it is kept; the pieces of an answer are shown as pieces.

  import AshAgent.TestSupport.Runs, only: [drain: 1]

  import AshAgent.TestSupport.Wait, only: [until: 1]

  alias AshAgent.{Context, LLM, Session, Store}
  alias AshAgent.Runtime.Error
  alias AshAgent.Store.SQLite
  alias AshAgent.TestSupport.WatchedStore

  @moduletag :capture_log

  # A store whose writes wait until the test answers them.
  defp start(llm, opts \\ []) do
    {:ok, store} = SQLite.open(":memory:")
    test = self()

    ask = fn
      :before, :append ->
        send(test, {:writing, self()})
        receive do: ({:write, answer} -> answer)

      _moment, _name ->
        :ok
    end

    opts = Keyword.merge([store: WatchedStore.new(store, ask), id: "c", llm: llm], opts)
    {start_supervised!({Session, opts}), store}
  end

  defp write(answer \\ :ok) do
    assert_receive {:writing, run}, 5_000
    send(run, {:write, answer})
  end

  defp words(context) do
    for %{role: role, content: text} <- Context.to_messages(context), do: {role, text}
  end

  defp changes(ref), do: drain(do: ({Session, ^ref, _number, change} -> change))

  test "context/1, snapshots, subscribers and who asked see an answer when it is stored" do
    {session, store} = start(LLM.Scripted.new(["Hello there!"]))
    {:ok, ref, _snapshot} = Session.subscribe(session)
    {:ok, mine} = Session.prompt_async(session, "Hi")

    # The first write has the prompt, which is in the store as one that waits.
    assert_receive {:writing, run}, 5_000
    assert words(Session.context(session)) == []
    send(run, {:write, :ok})

    assert_receive {:writing, run}, 5_000
    until(fn -> Session.snapshot(session).message[:content] == "Hello there!" end)
    assert words(Session.context(session)) == [user: "Hi"]
    contexts = for {:context, context} <- changes(ref), do: words(context)
    assert contexts == [[user: "Hi"]]
    assert_receive {Session, ^mine, {:context, _prompt}}
    refute_received {Session, ^mine, {:context, _answer}}

    {:ok, kept} = Store.fetch(store, "c")
    assert words(kept.value) == [user: "Hi"]

    send(run, {:write, :ok})
    assert_receive {Session, ^mine, {:ok, _result}}, 5_000
    assert words(Session.context(session)) == [user: "Hi", assistant: "Hello there!"]
    assert %{message: nil} = Session.snapshot(session)
    assert [{:context, context} | _] = Enum.filter(changes(ref), &match?({:context, _}, &1))
    assert words(context) == [user: "Hi", assistant: "Hello there!"]
  end

  test "an answer that could not be stored is in the error, and nowhere else" do
    {session, _store} = start(fn _ -> {:ok, %{content: "Lost?"}} end)
    asked = Task.async(fn -> Session.prompt(session, "Hi") end)
    write()
    write({:error, %Store.Error{reason: {:disk_full, :test}}})
    assert {:error, %Error{reason: {:store_error, _}, stored: true} = error} = Task.await(asked)
    assert {:assistant, "Lost?"} in words(error.context)
    assert words(Session.context(session)) == [user: "Hi"]

    # The next write has it.
    asked = Task.async(fn -> Session.resume(session) end)
    write()
    assert {:ok, %{output: "Lost?"}} = Task.await(asked)
    assert {:assistant, "Lost?"} in words(Session.context(session))
  end

  test "an answer that waits for its write when the turn is cancelled is kept once" do
    {session, store} = start(LLM.Scripted.new(["Hello there!"]))
    {:ok, _ref} = Session.prompt_async(session, "Hi")
    write()
    assert_receive {:writing, _run}, 5_000
    until(fn -> Session.snapshot(session).message[:content] == "Hello there!" end)
    cancelled = Task.async(fn -> Session.cancel(session) end)
    write()
    assert Task.await(cancelled) == :ok
    until(fn -> Session.status(session) == :idle end)
    expected = [user: "Hi", assistant: "Hello there!"]
    assert words(Session.context(session)) == expected
    {:ok, kept} = Store.fetch(store, "c")
    assert words(kept.value) == expected
  end

  test "a result is shown when it is stored, beside a call that hangs" do
    test = self()
    call = &%{id: &1, name: &1, arguments: %{}}

    llm = LLM.Scripted.new([%{tool_calls: [call.("pay"), call.("hang")]}, "Done."])

    tools = %{
      "pay" => fn _ -> {:ok, "paid"} end,
      "hang" => fn _ -> send(test, {:hanging, self()}) && receive(do: (:end -> {:ok, 1})) end
    }

    {session, store} = start(llm, tools: tools)
    {:ok, _ref} = Session.prompt_async(session, "Pay")
    for _ <- 1..2, do: write()
    assert_receive {:hanging, tool}, 5_000
    assert_receive {:writing, run}, 5_000
    refute {:tool, "paid"} in words(Session.context(session))
    send(run, {:write, :ok})
    until(fn -> inspect(Context.to_messages(Session.context(session))) =~ "paid" end)
    assert {:ok, [%{state: :ok}]} = Store.calls(store, "c", state: :ok)
    assert {:ok, [%{state: :started}]} = Store.calls(store, "c", state: :started)
    send(tool, :end)
    for _ <- 1..2, do: write()
    until(fn -> Session.status(session) == :idle end)
  end
end
