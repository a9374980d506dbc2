defmodule AshAgent.Store.Conformance.Finding do
  @moduledoc false
  # Conversations are listed, and facts about their writes are known.

  use AshAgent.Store.Conformance.Group, "finding"

  check "by status and metadata, in pages without gaps", %{store: store} do
    mark = new_id()

    create = fn number ->
      create!(
        store,
        Context.new("x", id: new_id(), metadata: %{:mark => mark, "n" => rem(number, 3)}),
        status: one_of([:running, :paused])
      )
    end

    kept = Enum.map(1..11, create)
    filter = [metadata: %{mark: mark}]

    pages = fn opts ->
      Stream.unfold(filter ++ opts, fn opts ->
        with [_ | _] <- opts, {:ok, page} = Store.list(store, opts) do
          {page.conversations, page.next && Keyword.put(opts, :after, page.next)}
        end
      end)
      |> Enum.to_list()
    end

    for order <- [:asc, :desc], by <- [:created_at, :updated_at] do
      found = pages.(limit: 3, order: order, by: by) |> List.flatten()
      assert Enum.sort(Enum.map(found, & &1.id)) == Enum.sort(Enum.map(kept, & &1.id))
      times = Enum.map(found, &{DateTime.to_unix(Map.fetch!(&1, by), :microsecond), &1.id})
      assert times == Enum.sort(times, order)
    end

    assert Enum.all?(pages.(limit: 2), &(length(&1) <= 2))

    for status <- [:running, :paused] do
      found = pages.(status: status) |> List.flatten()

      assert Enum.sort(Enum.map(found, & &1.id)) ==
               Enum.sort(for %{status: ^status, id: id} <- kept, do: id)
    end

    assert {:ok, %{conversations: []}} = Store.list(store, filter ++ [status: :waiting])

    assert {:ok, %{conversations: two}} = Store.list(store, metadata: %{:mark => mark, "n" => 2})

    assert length(two) == 4 - 0
    assert {:ok, %{conversations: []}} = Store.list(store, metadata: %{mark: "'\"\u{0}$.*"})

    assert {:ok, %{conversations: []}} = Store.list(store, metadata: %{:mark => mark, "n" => "2"})

    assert {:ok, %{conversations: []}} =
             Store.list(store, filter ++ [until: ~U[2020-01-01 00:00:00Z]])

    assert {:ok, %{conversations: [_ | _]}} =
             Store.list(store, filter ++ [since: ~U[2020-01-01 00:00:00Z]])

    assert_raise ArgumentError, fn -> Store.list(store, metadata: %{a: %{}}) end
  end

  check "by what the metadata are now", %{store: store} do
    mark = new_id()
    kept = create!(store, talk())
    append!(store, kept, Context.put_metadata(kept.value, :mark, mark))
    assert {:ok, %{conversations: [found]}} = Store.list(store, metadata: %{mark: mark})
    assert %{value: nil, metadata: %{mark: ^mark}, claimed?: false} = found
  end

  check "of what was written, and of nothing once it is deleted", %{store: store} do
    kept = create!(store, talk(), note: %{model: {:a, "\u{0}"}})
    kept = append!(store, kept, kept.value, note: %{n: 2})
    {:ok, claim} = Store.claim(store, kept.id, owner: "a")
    {:ok, claim, _} = Store.start(store, claim, [%{key: "k"}])
    claim = append!(store, claim, claim.value)
    {:ok, _} = Store.enqueue(store, kept.id, "x")
    assert {:ok, [first, second, third]} = Store.history(store, kept.id)
    assert %{revision: 1, epoch: 0, owner: nil, note: %{model: {:a, "\u{0}"}}} = first
    assert {%{n: 2}, %{epoch: 1, owner: "a", note: note}} = {second.note, third}
    assert note == %{}
    assert {:ok, [^third]} = Store.history(store, kept.id, after: 2)
    assert {:ok, [^first]} = Store.history(store, kept.id, limit: 1)

    assert :ok = Store.delete(store, kept.id)
    assert {:error, :not_found} = Store.delete(store, kept.id)
    assert {:error, :not_found} = Store.fetch(store, kept.id)
    assert {:error, :not_found} = Store.append(store, claim, claim.value)
    assert {:error, :not_found} = Store.renew(store, claim)
    assert {:error, :not_found} = Store.claim(store, kept.id, owner: "b")

    for read <- [&Store.history/2, &Store.calls/2, &Store.waiting/2],
        do: assert({:ok, []} = read.(store, kept.id))

    create!(store, talk(kept.id))
  end
end
