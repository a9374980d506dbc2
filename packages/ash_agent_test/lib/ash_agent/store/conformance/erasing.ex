defmodule AshAgent.Store.Conformance.Erasing do
  @moduledoc false
  # A filter's conversations go with all forks and children, and old ones go if nobody has them. Stores without `erase/2` and
  # `prune/2` are not checked.

  use AshAgent.Store.Conformance.Group, {"erasing and pruning", {:erase, 2}}

  check "erases what a filter finds, with forks and children, in any batches", %{store: store} do
    for batch <- [1, 2, 100] do
      mark = new_id()
      root = create!(store, marked(mark), owner: "a", status: :running)
      {:ok, root, ["k"]} = Store.start(store, root, [%{key: "k"}])
      {:ok, _} = Store.enqueue(store, root.id, "x")
      fork = create!(store, fork(root))
      deeper = create!(store, fork(fork))
      child = create!(store, Context.new("x", id: new_id(), metadata: %{parent_id: deeper.id}))
      others = for _ <- 1..3, do: create!(store, marked(mark))
      stays = create!(store, marked(new_id()))
      ids = Enum.sort(for kept <- [root, fork, deeper, child | others], do: kept.id)

      test = self()
      note = &send(test, {:batch, &1})

      assert {:ok, receipt} =
               Store.erase(store, metadata: %{mark: mark}, batch: batch, on_batch: note)

      assert Enum.sort(receipt.ids) == ids

      # The forks have the iterations of what they come from.
      assert Map.delete(receipt, :ids) ==
               %{
                 conversations: 7,
                 iterations: 7,
                 calls: 1,
                 prompts: 1,
                 writes: 7,
                 blobs: 0,
                 arrivals: 0
               }

      assert Enum.sort(batches() |> Enum.flat_map(& &1.ids)) == ids

      for id <- ids do
        assert {:error, :not_found} = Store.fetch(store, id)
        assert {:ok, []} = Store.history(store, id)
      end

      assert {:error, :not_found} = Store.append(store, root, root.value)
      assert_kept(store, stays.value)
      assert {:ok, %{ids: [], writes: 0}} = Store.erase(store, metadata: %{mark: mark})
    end
  end

  check "erases by ids, also what is left of a conversation that is gone", %{store: store} do
    [gone, root, stays] = for _ <- 1..3, do: create!(store, talk())
    [orphan, fork, other] = for kept <- [gone, root, stays], do: create!(store, fork(kept))
    :ok = Store.delete(store, gone.id)
    assert {:ok, receipt} = Store.erase(store, ids: [gone.id, root.id, root.id, new_id()])
    assert Enum.sort(receipt.ids) == Enum.sort([orphan.id, root.id, fork.id])
    assert {:ok, %{ids: []}} = Store.erase(store, ids: [])
    for kept <- [stays, other], do: assert_kept(store, kept.value)

    for opts <- [[], [batch: 1], [ids: ["a"], status: :idle]],
        do: assert_raise(ArgumentError, fn -> Store.erase(store, opts) end)
  end

  check "ends where conversations are each other's parents", %{store: store} do
    [a, b, c] = for _ <- 1..3, do: new_id()

    for {id, parent} <- [{a, b}, {b, a}, {c, c}],
        do: create!(store, Context.new("x", id: id, metadata: %{parent_id: parent}))

    assert {:ok, %{ids: ids}} = Store.erase(store, ids: [a, c])
    assert Enum.sort(ids) == Enum.sort([a, b, c])
  end

  check "erases what is forked in the meantime", %{store: store} do
    root = create!(store, talk())
    fork = create!(store, fork(root))
    late = fork(root)

    note = fn %{ids: ids} ->
      if ids == [fork.id], do: create!(store, late)
    end

    assert {:ok, receipt} = Store.erase(store, ids: [root.id], batch: 1, on_batch: note)
    assert receipt.ids == [fork.id, root.id, late[:id]]
  end

  check "ends although others go on creating what it looks for", %{store: store} do
    mark = new_id()
    for _ <- 1..5, do: create!(store, marked(mark))

    # One of the filter and a child of each that goes, and more than go.
    more = fn %{ids: ids} ->
      for id <- ids do
        create!(store, marked(mark))
        create!(store, Context.new("x", id: new_id(), metadata: %{parent_id: id}))
      end
    end

    started = DateTime.utc_now()
    opts = [metadata: %{mark: mark}, batch: 2, on_batch: more]
    assert {:ok, %{conversations: erased}} = Store.erase(store, opts)
    assert erased >= 5
    {:ok, %{conversations: [_ | _]}} = Store.list(store, metadata: %{mark: mark})

    # A time that is still to come is not waited for.
    until = DateTime.add(started, 3_600, :second)
    assert {:ok, _receipt} = Store.erase(store, metadata: %{mark: mark}, until: until)
    assert {:ok, %{conversations: []}} = Store.list(store, metadata: %{mark: mark})

    for _ <- 1..5, do: create!(store, marked(mark))
    opts = [older_than: 0, metadata: %{mark: mark}, batch: 2, on_batch: more]
    assert {:ok, %{conversations: pruned}} = Store.prune(store, opts)
    assert pruned >= 5
    {:ok, %{conversations: [_ | _]}} = Store.list(store, metadata: %{mark: mark})
  end

  check "erases while others write", %{store: store} do
    mark = new_id()
    kept = for _ <- 1..6, do: create!(store, marked(mark))

    at_once(7, fn
      7 ->
        {:ok, _} = Store.erase(store, metadata: %{mark: mark}, batch: 2)

      number ->
        kept = Enum.at(kept, number - 1)
        refused? = fn answer -> answer == {:error, :not_found} end

        Enum.reduce_while(1..200, kept, fn turn, kept ->
          case Store.append(store, kept, Context.add_user_message(kept.value, "#{turn}")) do
            {:ok, kept} -> {:cont, kept}
            answer -> {:halt, assert(refused?.(answer))}
          end
        end)
    end)

    assert {:ok, %{conversations: []}} = Store.list(store, metadata: %{mark: mark})
    for %{id: id} <- kept, do: assert({:ok, []} = Store.history(store, id))
  end

  check "prunes what is old, and neither owned nor in use", %{store: store} do
    mark = new_id()
    create = fn opts -> create!(store, marked(mark), opts) end
    old = for _ <- 1..5, do: create.([])
    waits = create.([])
    others = [create.(status: :paused), create.(owner: "a"), create.(owner: "a", lease: 1)]
    prune = &Store.prune(store, [metadata: %{mark: mark}] ++ &1)

    assert {:ok, %{ids: []}} = prune.(older_than: 3_600)
    Process.sleep(2_100)
    {:ok, _} = Store.enqueue(store, waits.id, "x")
    assert {:ok, %{ids: []}} = prune.(older_than: 2, status: :waiting)
    assert {:ok, receipt} = prune.(older_than: 2, batch: 2)
    assert Enum.sort(receipt.ids) == old |> Enum.map(& &1.id) |> Enum.sort()
    assert %{conversations: 5, iterations: 5, prompts: 0, writes: 5} = receipt
    for kept <- [waits | others], do: assert_kept(store, kept.value)

    lapse()
    assert {:ok, %{ids: [id]}} = prune.(older_than: 0, status: [:paused, :running])
    assert id == hd(others).id
    assert {:ok, %{prompts: 1}} = prune.(older_than: 0)
    assert_raise ArgumentError, fn -> Store.prune(store, []) end
  end

  defp marked(mark), do: Context.new("x", id: new_id(), metadata: %{mark: mark})

  # The metadata stay with the conversation that has them.
  defp fork(kept),
    do: kept.value |> Context.fork(id: new_id()) |> Context.put_metadata(:mark, nil)

  defp batches do
    receive do
      {:batch, receipt} -> [receipt | batches()]
    after
      0 -> []
    end
  end
end
