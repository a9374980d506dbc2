defmodule AshAgent.Store.Conformance.Runs do
  @moduledoc false
  # Sessions leave consistent stores: a conversation that is idle has no call that is running by the journal.

  use AshAgent.Store.Conformance.Group, "runs"

  alias AshAgent.Session

  # The ways in which a turn ends whose owner died while a call ran.
  @ends [:goes_on, :prompt, :deny, :approve, :cancel, :context_denied]

  check "leave no call started where nothing runs, whoever died and whatever a person said",
        %{store: store} do
    # Sessions are killed, which their processes say in the log.
    ExUnit.CaptureLog.capture_log(fn -> Enum.each(@ends, &check_ending(store, &1)) end)
  end

  defp check_ending(store, ending) do
    id = new_id()
    {ended, hangs} = die_while_a_call_runs(store, id)
    assert {:ok, [%{key: ^hangs}]} = Store.calls(store, id, state: :started)
    finish(ending, store, id)

    assert {:ok, kept} = Store.fetch(store, id)
    assert {ending, kept.status, kept.owner} == {ending, :idle, nil}
    assert Context.pending_tool_calls(kept.value) == []
    assert {ending, Store.calls(store, id, state: :started)} == {ending, {:ok, []}}

    # Finished calls have their results, and of started ones the model reads that nobody knows their outcome.
    assert {:ok, [%{state: :ok}]} = Store.calls(store, id, keys: [ended])
    assert {:ok, [%{attempt: 1, state: :unknown} | _]} = Store.calls(store, id, keys: [hangs])
    [_user, _calls, %{content: results} | _] = Context.to_messages(kept.value)
    said = inspect(results)
    if ending == :context_denied, do: assert(said =~ "denied")
    if ending in [:goes_on, :prompt, :deny, :cancel], do: assert(said =~ "outcome is unknown")
  end

  defp die_while_a_call_runs(store, id) do
    test = self()
    tools = tools(fn -> send(test, {:runs, id}) && Process.sleep(:infinity) end)
    {:ok, session} = Session.start_link(store: store, id: id, llm: &answer/1, tools: tools)
    Process.unlink(session)
    {:ok, _ref} = Session.prompt_async(session, "Pay")
    assert_receive {:runs, ^id}, 60_000
    [ended, hangs] = await(fn -> ended(store, id) end)
    monitor = Process.monitor(session)
    Process.exit(session, :kill)
    assert_receive {:DOWN, ^monitor, _, _, _}, 60_000
    {ended, hangs}
  end

  # The result of the call beside it is stored.
  defp ended(store, id) do
    {:ok, calls} = Store.calls(store, id)

    case Enum.sort_by(calls, & &1.state) do
      [%{state: :ok, key: one}, %{state: :started, key: other}] -> [one, other]
      _ -> nil
    end
  end

  defp finish(ending, store, id) do
    opts = [store: store, id: id, llm: &answer/1, tools: tools(fn -> {:ok, "paid"} end)]
    asks = [approval: fn _call, _tool_context -> :ask end]

    {:ok, session} =
      case ending do
        :goes_on -> Session.start_link(opts)
        :prompt -> Session.start_link([go_on: false] ++ opts)
        _person -> Session.start_link(asks ++ opts)
      end

    Process.unlink(session)
    if ending not in [:goes_on, :prompt], do: await(fn -> paused?(session) end)

    case ending do
      :goes_on -> :ok
      :prompt -> {:ok, _} = Session.prompt(session, "Never mind")
      :deny -> :ok = Session.deny(session, "hangs", "I have paid myself", by: "ann")
      :approve -> :ok = Session.approve(session, "hangs", by: "ann")
      :cancel -> :ok = Session.cancel(session)
      :context_denied -> :ok
    end

    if ending in [:deny, :approve], do: {:ok, _} = Session.resume(session)
    if ending != :context_denied, do: await(fn -> Session.status(session) == :idle end)
    GenServer.stop(session)
    if ending == :context_denied, do: deny_by_hand(store, id, opts)
  end

  # An application that has no session.
  defp deny_by_hand(store, id, opts) do
    {:ok, kept} = Store.claim(store, id, owner: "a")
    context = Context.Calls.deny_tool_call(kept.value, "hangs", "no")
    {:ok, result} = AshAgent.Runtime.run(context, [kept: kept] ++ Keyword.delete(opts, :id))
    {:ok, _} = Store.release(store, result.kept)
  end

  defp tools(pay),
    do: %{"look" => fn _ -> {:ok, "fine"} end, "pay" => fn _ -> pay.() end}

  defp answer(context) do
    case List.last(Context.to_messages(context)) do
      %{content: "Pay"} ->
        calls = [%{id: "ends", name: "look", arguments: %{}}, %{id: "hangs", name: "pay"}]
        {:ok, %{tool_calls: calls}}

      _later ->
        {:ok, %{content: "Done"}}
    end
  end

  defp paused?(session), do: match?({:paused, _}, Session.status(session))

  defp await(fun) do
    with falsy when falsy in [nil, false] <- fun.() do
      Process.sleep(5)
      await(fun)
    end
  end
end
