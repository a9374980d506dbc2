defmodule AshAgent.Store.Conformance.Late do
  @moduledoc false
  # A late result is stored once, whoever brings it, and none is lost. Stores without `arrive/5` are not checked.

  use AshAgent.Store.Conformance.Group, {"late results", {:arrive, 5}}

  alias AshAgent.Context.Calls

  check "are kept once, and the first one stays", %{store: store} do
    {kept, [key, other]} = start(store)
    assert {:ok, :kept} = Store.arrive(store, kept.id, key, {:ok, %{a: {1}}}, from: {:job, 7})
    assert {:ok, :again} = Store.arrive(store, kept.id, key, {:ok, %{a: {1}}})
    assert {:error, :answered} = Store.arrive(store, kept.id, key, {:ok, %{a: {2}}})
    assert {:error, :answered} = Store.arrive(store, kept.id, key, {:error, %{a: {1}}})
    assert {:error, :answered} = Store.arrive(store, kept.id, key, {:cancelled, "late"})
    assert {:ok, :kept} = Store.arrive(store, kept.id, other, {:cancelled, "no"})
    assert {:ok, :again} = Store.arrive(store, kept.id, other, {:cancelled, "no"})
    assert {:error, :cancelled} = Store.arrive(store, kept.id, other, {:ok, 1})
    assert {:ok, [one, two]} = Store.arrivals(store, kept.id)
    assert %{key: ^key, outcome: {:ok, %{a: {1}}}, from: {:job, 7}, at: %DateTime{}} = one
    assert %{key: ^other, outcome: {:cancelled, "no"}, from: nil} = two
    assert {:error, :not_found} = Store.arrive(store, new_id(), key, {:ok, 1})

    for unknown <- ["", "x", "x.1", key <> "0", "\u{0}", <<255>>, String.duplicate("k", 600)],
        do: assert({:error, :unknown} = Store.arrive(store, kept.id, unknown, {:ok, 1}))

    assert_raise ArgumentError, fn -> Store.arrive(store, kept.id, key, "green") end
    assert {:error, %Context.Error{}} = Store.arrive(store, kept.id, key, {:ok, [1 | 2]})
  end

  check "are not stored after the time that whoever brings them has, but known", %{store: store} do
    {kept, [key, _other]} = start(store)
    past = DateTime.add(DateTime.utc_now(), -1, :second)
    assert {:error, :late} = Store.arrive(store, kept.id, key, {:ok, 1}, until: past)
    assert {:ok, []} = Store.arrivals(store, kept.id)
    soon = DateTime.add(DateTime.utc_now(), 60, :second)
    assert {:ok, :kept} = Store.arrive(store, kept.id, key, {:ok, 1}, until: soon)
    assert {:ok, :again} = Store.arrive(store, kept.id, key, {:ok, 1}, until: past)
    assert {:error, :answered} = Store.arrive(store, kept.id, key, {:ok, 2}, until: past)
  end

  check "wait in their rows until the conversation has them", %{store: store} do
    {kept, keys} = start(store)
    kept = wait!(store, kept, keys)
    assert Enum.sort(keys) == store |> waiting(id: kept.id) |> Enum.map(& &1.key) |> Enum.sort()
    assert {:ok, calls} = Store.calls(store, kept.id)
    assert Enum.map(calls, & &1.state) == [:waiting, :waiting]

    [key, other] = keys
    assert {:ok, :kept} = Store.arrive(store, kept.id, key, {:ok, "green"}, from: "ci")

    assert [%{key: ^other, call: %{name: :pay, arguments: %{n: 2}, id: "call_2"}}] =
             waiting(store, id: kept.id)

    assert {:ok, [%{key: ^key} = arrival]} = Store.arrivals(store, kept.id)

    kept = take!(store, kept, arrival)
    assert {:ok, []} = Store.arrivals(store, kept.id)
    assert {:ok, :again} = Store.arrive(store, kept.id, key, {:ok, "green"})
    assert {:error, :answered} = Store.arrive(store, kept.id, key, {:ok, "red"})
    assert {:ok, calls} = Store.calls(store, kept.id)
    assert Enum.sort(Enum.map(calls, & &1.state)) == [:arrived, :waiting]

    # The conversation may get a result in another way.
    {:ok, context} = Calls.arrive(kept.value, {:handle, other}, {:ok, 1})
    kept = append!(store, kept, context)
    assert [] = waiting(store, id: kept.id)
    assert {:error, :answered} = Store.arrive(store, kept.id, other, {:ok, 2})
    assert {:ok, []} = Store.arrivals(store, kept.id)
  end

  check "come before, while and after the call waits", %{store: store} do
    {kept, [key, other]} = start(store)
    assert {:ok, :kept} = Store.arrive(store, kept.id, key, {:ok, 1})
    kept = wait!(store, kept, [key, other])
    assert [%{key: ^other}] = waiting(store, id: kept.id)
    assert {:ok, [arrival]} = Store.arrivals(store, kept.id)
    kept = take!(store, kept, arrival)

    # The tool has an answer after all, and one that nobody knows may still be answered.
    for {state, told} <- [
          ok: {:error, :answered},
          error: {:error, :answered},
          denied: {:error, :cancelled},
          unknown: {:ok, :kept}
        ] do
      key = "#{state}-#{new_id()}"
      {:ok, kept} = Store.fetch(store, kept)
      {:ok, kept, [^key]} = Store.start(store, kept, [%{key: key}])
      append!(store, kept, kept.value, finished: [%{key: key, state: state}])
      assert told == Store.arrive(store, kept.id, Store.arrival_key(key, 1), {:ok, 1})
    end
  end

  check "are told that the conversation was rewound, cancelled or that they are late", %{
    store: store
  } do
    {kept, [key, _other] = keys} = start(store)
    kept = wait!(store, kept, keys)
    assert {:ok, :kept} = Store.arrive(store, kept.id, key, {:ok, 1})
    assert {:ok, [arrival]} = Store.arrivals(store, kept.id)
    kept = take!(store, kept, arrival)
    kept = append!(store, kept, Context.rewind(kept.value, to: 1))
    for key <- keys, do: assert({:error, :rewound} = Store.arrive(store, kept.id, key, {:ok, 1}))
    assert [] = waiting(store, id: kept.id)
    assert {:ok, []} = Store.arrivals(store, kept.id)

    {kept, [key, other]} = start(store)
    kept = wait!(store, kept, [key, other])
    {:ok, context} = Calls.arrive(kept.value, {:handle, key}, {:cancelled, "stop"})
    kept = append!(store, kept, context, cancelled: [key])
    assert {:error, :cancelled} = Store.arrive(store, kept.id, key, {:ok, 1})
    # The conversation did not take it.
    assert {:ok, :kept} = Store.arrive(store, kept.id, other, {:ok, 1})
    kept = append!(store, kept, kept.value, arrived: [other])
    assert {:ok, []} = Store.arrivals(store, kept.id)
    assert {:ok, [_, _] = calls} = Store.calls(store, kept.id)
    assert Enum.sort(Enum.map(calls, & &1.state)) == [:arrived, :cancelled]
  end

  check "are a passed deadline, if that comes first", %{store: store} do
    {kept, [key, other]} = start(store)
    past = ~U[2026-01-01 10:00:00.000000Z]
    kept = wait!(store, kept, [key, other], deadline: past)

    assert [%{deadline: deadline}, _] =
             waiting(store, id: kept.id, deadline_before: DateTime.utc_now())

    assert DateTime.compare(deadline, past) == :eq
    assert [] = waiting(store, id: kept.id, deadline_before: past)
    assert {:ok, :kept} = Store.arrive(store, kept.id, key, {:ok, 1})

    passed = at_once(4, fn _ -> Store.expire_waiting(store, limit: 1_000) end)
    passed = for {:ok, keys} <- passed, %{id: id} = row <- keys, id == kept.id, do: row.key
    assert passed == [other]
    assert {:error, :late} = Store.arrive(store, kept.id, other, {:ok, 1})
    assert {:error, :answered} = Store.arrive(store, kept.id, key, {:ok, 2})
    assert {:ok, arrivals} = Store.arrivals(store, kept.id)

    assert [%{outcome: {:error, :deadline}, from: "deadline"}] =
             for(a <- arrivals, a.key == other, do: a)
  end

  check "end what waits for its deadline alone", %{store: store} do
    {kept, [key, other]} = start(store)
    past = ~U[2026-01-01 10:00:00Z]
    waiting = for key <- [key, other], do: %{key: key, deadline: past, call: %{name: "wait_for"}}
    kept = append!(store, kept, kept.value, waiting: waiting)
    assert [] = waiting(store, id: kept.id)
    kept = append!(store, kept, kept.value, arrived: [other])
    {:ok, _} = Store.expire_waiting(store, limit: 1_000)
    assert {:ok, [%{key: ^key, outcome: {:error, :deadline}}]} = Store.arrivals(store, kept.id)
    append!(store, kept, kept.value, arrived: [key])
    assert {:ok, []} = Store.arrivals(store, kept.id)
    {:ok, _} = Store.expire_waiting(store, limit: 1_000)
    assert {:ok, []} = Store.arrivals(store, kept.id)

    assert_raise ArgumentError, fn ->
      Store.append(store, kept, kept.value, waiting: [%{key: key}])
    end
  end

  check "of two who deliver at once is one, and whoever writes loses none", %{store: store} do
    for _ <- 1..5 do
      {kept, [key, other]} = start(store)
      kept = wait!(store, kept, [key, other])

      answers =
        at_once(8, fn
          8 ->
            Enum.reduce(1..5, kept, fn n, kept ->
              append!(store, kept, Context.put_metadata(kept.value, :n, n))
            end)

          n ->
            {n, Store.arrive(store, kept.id, key, {:ok, n})}
        end)

      assert [{winner, _}] = for({_n, {:ok, :kept}} = answer <- answers, do: answer)
      assert 6 = Enum.count(answers, &match?({_n, {:error, :answered}}, &1))
      assert {:ok, [%{outcome: {:ok, ^winner}}]} = Store.arrivals(store, kept.id)
    end
  end

  check "are listed over all conversations, by whom they wait for, in pages", %{store: store} do
    ann = {:user, new_id()}

    ids =
      for n <- 1..5 do
        {kept, keys} = start(store)
        wait!(store, kept, keys, for: if(n == 5, do: %{"team" => ann}, else: ann))
        # Those that have waited longest come first, and a database may count milliseconds.
        Process.sleep(3)
        kept.id
      end

    assert [%{for: %{"team" => ^ann}}, _] = waiting(store, for: %{"team" => ann})
    assert [] = waiting(store, for: new_id())

    pages =
      Stream.unfold([], fn
        nil ->
          nil

        opts ->
          {:ok, page} = Store.waiting_calls(store, [for: ann, limit: 3] ++ opts)
          {Enum.map(page.calls, &{&1.id, &1.key}), page.next && [after: page.next]}
      end)

    found = Enum.to_list(pages)
    assert Enum.all?(Enum.take(found, 2), &(length(&1) == 3))
    found = Enum.concat(found)
    assert Enum.uniq(found) == found
    assert Enum.map(found, &elem(&1, 0)) |> Enum.dedup() == Enum.take(ids, 4)

    # Who waits for a turn is found until somebody has it.
    [{id, key} | _] = found
    assert {:ok, :kept} = Store.arrive(store, id, key, {:ok, 1})
    refute id in arrived(store)
    {:ok, kept} = Store.claim(store, id, owner: "a", reclaim: true)
    {:ok, _} = Store.release(store, kept, status: :paused)
    refute id in arrived(store)
    {:ok, kept} = Store.claim(store, id, owner: "a", status: :idle)
    {:ok, _} = Store.release(store, kept)
    assert id in arrived(store)
  end

  check "hide what masks hide, and go with the conversation", %{store: store} do
    {kept, [key, other] = keys} = start(store)
    kept = wait!(store, kept, keys)
    kept = append!(store, kept, Context.View.put_masks(kept.value, [{"secret", "-"}]))
    assert [%{call: %{arguments: %{words: "-"}}} | _] = waiting(store, id: kept.id)

    # A fork and what is moved.
    fork = create!(store, Context.fork(kept.value, id: new_id()))
    assert [] = waiting(store, id: fork.id)
    assert {:error, :unknown} = Store.arrive(store, fork.id, key, {:ok, 1})
    {:ok, kept} = Store.release(store, kept)
    assert {:ok, :kept} = Store.arrive(store, kept.id, key, {:ok, 1})

    if can?(store, :rename, 3) do
      id = new_id()
      assert :ok = Store.rename(store, kept.id, id)
      assert {:error, :not_found} = Store.arrive(store, kept.id, other, {:ok, 1})
      assert {:ok, :again} = Store.arrive(store, id, key, {:ok, 1})
      assert [%{key: ^other}] = waiting(store, id: id)
      assert {:ok, [_]} = Store.arrivals(store, id)
      if can?(store, :erase, 2), do: assert({:ok, %{arrivals: 1}} = Store.erase(store, ids: [id]))
      :ok = with {:error, :not_found} <- Store.delete(store, id), do: :ok
      assert [] = waiting(store, id: id)
      assert {:ok, []} = Store.arrivals(store, id)
    end
  end

  defp start(store) do
    calls = for n <- 1..2, do: %{id: "call_#{n}", name: :pay, arguments: %{n: n, words: "secret"}}

    context =
      Context.new("x", id: new_id())
      |> Context.add_assistant_message("Hi!")
      |> Context.add_user_message("Pay")

    context = Context.add_assistant_message(context, nil, calls)
    kept = create!(store, context, owner: "a", status: :running)
    keys = for call <- calls, do: Store.call_key(context, call.id)
    {:ok, kept, started} = Store.start(store, kept, Enum.map(keys, &%{key: &1}))
    assert Enum.sort(started) == Enum.sort(keys)
    {kept, Enum.map(keys, &Store.arrival_key(&1, 1))}
  end

  defp wait!(store, kept, keys, more \\ []) do
    results =
      for {key, n} <- Enum.with_index(keys, 1),
          do: {"call_#{n}", {:waiting, Map.new([handle: key] ++ more)}}

    append!(store, kept, Context.add_tool_results(kept.value, results))
  end

  defp take!(store, kept, arrival) do
    {:ok, context} =
      Calls.arrive(kept.value, {:handle, arrival.key}, arrival.outcome,
        from: arrival.from,
        at: arrival.at
      )

    append!(store, kept, Calls.place_arrivals(context))
  end

  defp arrived(store, opts \\ []) do
    assert {:ok, %{ids: ids, next: next}} = Store.arrived(store, [limit: 2] ++ opts)
    if next, do: ids ++ arrived(store, after: next), else: ids
  end

  defp waiting(store, opts) do
    assert {:ok, %{calls: calls, next: nil}} = Store.waiting_calls(store, opts)
    calls
  end
end
