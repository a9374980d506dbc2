defmodule AshAgent.Store.Conformance.Journal do
  @moduledoc false
  # Calls are started once.

  use AshAgent.Store.Conformance.Group, "the journal"

  check "starts each attempt once, and knows those without an outcome", %{store: store} do
    {kept, [one, two]} = ask_for_calls(store)
    facts = %{id: "call_1", name: :pay, at: {1, "\u{0}"}}
    assert {:ok, kept, [^one]} = Store.start(store, kept, [%{key: one, call: facts}])
    assert {:ok, kept, started} = Store.start(store, kept, [%{key: one}, %{key: two}])
    assert started == [two]
    assert {:ok, kept, []} = Store.start(store, kept, [%{key: one}, %{key: two}])
    assert {:ok, [_, _]} = Store.calls(store, kept.id)
    assert {:ok, [first]} = Store.calls(store, kept.id, keys: [one])

    assert %{key: ^one, attempt: 1, epoch: 1, state: :started, call: ^facts, ended_at: nil} =
             first

    context = Context.add_tool_results(kept.value, [{"call_1", {:ok, 1}}])
    kept = append!(store, kept, context, finished: [%{key: one, state: :ok}])
    assert {:ok, [%{key: ^two}]} = Store.calls(store, kept.id, state: :started)

    assert {:ok, [%{key: ^one, state: :ok, call: ^facts} = done]} =
             Store.calls(store, kept.id, keys: [one])

    assert DateTime.compare(done.ended_at, done.started_at) in [:gt, :eq]
  end

  check "keeps the first word about an attempt", %{store: store} do
    {kept, [one, two]} = ask_for_calls(store)
    {:ok, kept, _} = Store.start(store, kept, [%{key: one}])
    kept = append!(store, kept, kept.value, finished: [%{key: one, state: :unknown}])

    kept =
      append!(store, kept, kept.value,
        finished: [%{key: one, state: :ok}, %{key: two, state: :denied}]
      )

    assert {:ok, kept, []} = Store.start(store, kept, [%{key: one}, %{key: two}])
    assert {:ok, _, [^one]} = Store.start(store, kept, [%{key: one, attempt: 2}])

    assert {:ok, calls} =
             Store.calls(store, kept.id, keys: [one, two], state: [:unknown, :denied, :ok])

    assert Enum.sort(Enum.map(calls, & &1.state)) == [:denied, :unknown]
  end

  check "gives an attempt to one of those who resume at once", %{store: store} do
    {kept, [one, two]} = ask_for_calls(store)
    answers = at_once(10, fn _ -> Store.start(store, kept, [%{key: one}, %{key: two}]) end)
    assert Enum.all?(answers, &match?({:ok, _, _}, &1))
    assert answers |> Enum.flat_map(&elem(&1, 2)) |> Enum.sort() == Enum.sort([one, two])
  end

  check "gives an approved call to one claim, and not again to the next", %{store: store} do
    {kept, [one, _]} = ask_for_calls(store)
    kept = append!(store, kept, Context.Calls.approve_tool_call(kept.value, "call_1", by: "ann"))
    {:ok, kept, [^one]} = Store.start(store, kept, [%{key: one}])
    assert {:ok, next} = Store.claim(store, kept.id, owner: "a", reclaim: true)
    assert Context.Calls.tool_call_status(next.value, "call_1") == :approved
    assert Store.call_key(next.value, "call_1") == one
    assert {:ok, next, []} = Store.start(store, next, [%{key: one}])
    assert {:ok, [%{epoch: 1, state: :started}]} = Store.calls(store, next.id)
    assert {:error, :stale} = Store.start(store, kept, [%{key: "other"}])
  end

  check "has a key of its own for a call after a rewind, in a fork, in a branch", %{store: store} do
    {kept, [one, _]} = ask_for_calls(store)
    context = kept.value |> Context.interrupt() |> Context.add_user_message("Again")

    again = &Context.add_assistant_message(&1, nil, [%{id: "call_9", name: :pay, arguments: %{}}])
    before = again.(context)
    Process.sleep(1)

    after_it =
      kept.value
      |> Context.interrupt()
      |> Context.rewind(to: 1)
      |> Context.add_user_message("Again")
      |> again.()

    assert before.current_iteration == after_it.current_iteration

    contexts = [before, after_it, Context.fork(before)]
    keys = [one, Store.call_key(before, "call_9", branch: "idea")]
    keys = keys ++ Enum.map(contexts, &Store.call_key(&1, "call_9"))
    assert Enum.uniq(keys) == keys

    # An application may set times.
    at = ~U[2026-01-01 10:00:00Z]

    keys =
      for words <- ["Pay Ann", "Pay Bob", [%{type: :text, text: "Pay Cid"}]] do
        before
        |> Context.rewind(to: 1)
        |> Context.interrupt("stopped", at: at)
        |> Context.add_user_message(words, at: at)
        |> Context.add_assistant_message(nil, [%{id: "call_1", name: :pay}], at: at)
        |> Context.add_tool_results([{"call_1", {:ok, 1}}], at: at)
        |> Context.add_assistant_message(nil, [%{id: "call_9", name: :pay}], at: at)
        |> Store.call_key("call_9")
      end

    assert Enum.uniq(keys) == keys
  end

  defp ask_for_calls(store) do
    ids = ["call_1", "call_2"]
    calls = for id <- ids, do: %{id: id, name: :pay, arguments: %{}}
    context = Context.new("Pay", id: new_id()) |> Context.add_assistant_message(nil, calls)
    kept = create!(store, context, owner: "a", status: :running)
    {kept, Enum.map(ids, &Store.call_key(context, &1))}
  end
end
