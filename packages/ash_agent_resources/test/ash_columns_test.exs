alias AshAgent.Integration.{MemoryColumns, TableColumns}

# What earlier releases kept in columns of the record is found in the store. The file has what such a release has written.
for {resource, tags, integrations} <- [
      {MemoryColumns, [:ash], ["Ash"]},
      {TableColumns, [:ash, :postgres], ["Ash", "AshPostgres", "Postgrex", "PostgreSQL"]}
    ],
    Code.ensure_loaded?(resource) do
  defmodule Module.concat(
              AshAgent.Integration.ColumnsTest,
              resource |> Module.split() |> List.last()
            ) do
    use ExUnit.Case, async: false

    alias AshAgent.{Context, Store}
    alias AshAgent.Context.JSON
    alias AshAgent.Conversation.{Info, Upkeep}
    alias AshAgent.Integration.{Chats, Repo}

    for tag <- tags, do: @moduletag(tag)
    @moduletag :capture_log
    @moduletag integrations: integrations

    @resource resource
    @rows "../test/fixtures/columns.json" |> Path.expand(__DIR__) |> File.read!()

    setup_all do
      if @resource == TableColumns do
        Chats.tables(TableColumns)
      else
        start_supervised!({Store.SQLite, name: Chats.store(nil), path: ":memory:"})
      end

      :ok
    end

    setup do
      if @resource == TableColumns, do: Repo.query!("TRUNCATE kept_chats")
      store = Info.store(@resource, nil)

      on_exit(fn ->
        if @resource == MemoryColumns, do: Ash.DataLayer.Ets.stop(@resource)
      end)

      for {id, row} <- JSON.decode!(@rows) do
        Store.delete(store, "#{Info.name(@resource)}:#{id}")
        kept = row["kept"] |> JSON.encode() |> IO.iodata_to_binary() |> Context.from_snapshot!()
        Ash.create!(@resource, %{id: id, kept: kept, kept_state: row["kept_state"]})
      end

      %{store: store}
    end

    defp fetch!(store, id) do
      {:ok, kept} = Store.fetch(store, "#{Info.name(@resource)}:#{id}")
      kept
    end

    test "all of it is there, under the key of the record, and moved once", %{store: store} do
      assert Upkeep.move_columns(@resource) == {:ok, 2}
      assert Upkeep.move_columns(@resource) == {:ok, 0}

      kept = fetch!(store, "c1")
      assert %{status: :running, revision: 2, owner: "dead@node 1 <0.1.0>"} = kept
      assert kept.metadata == %{user: 7}
      assert {kept.value[:id], Context.count_messages(kept.value)} == {"c1", 3}
      assert {:ok, [%{note: %{by: :ann}}, %{note: %{cost: 3}}]} = Store.history(store, kept.id)
      assert {:ok, [%{state: :ok, call: %{name: :pay}}]} = Store.calls(store, kept.id)

      # The journal knows its calls again.
      assert {:ok, [%{key: key}]} = Store.calls(store, kept.id)
      assert Store.call_key(Context.rewind(kept.value, to: 1), "call_1") == key

      assert {:ok, [%{id: "p2", input: "And then?", metadata: %{"from" => "web"}}]} =
               Store.waiting(store, kept.id)

      # The message that was taken is not taken again.
      assert {:ok, "p1"} = Store.enqueue(store, kept.id, "Hurry", id: "p1")
      assert {:ok, [%{id: "p2"}]} = Store.waiting(store, kept.id)

      # Its lease is over, so that it goes on.
      assert {:ok, claims} = Store.expired(store, owner: "sweep")
      assert kept.id in Enum.map(claims, & &1.id)

      fork = fetch!(store, "c2")
      assert {fork.status, fork.revision, fork.parent_id} == {:idle, 1, kept.id}
      assert DateTime.compare(kept.updated_at, fork.updated_at) in [:lt, :eq]
    end

    test "a move that broke off is taken up again", %{store: store} do
      {:ok, _} = Store.create(store, Ash.get!(@resource, "c1").kept, note: %{by: :ann})
      assert Upkeep.move_columns(@resource) == {:ok, 2}
      assert fetch!(store, "c1").revision == 2
      assert {:ok, [_, _]} = Store.history(store, fetch!(store, "c1").id)
    end

    test "neither another conversation nor one that runs is moved over", %{store: store} do
      {:ok, _} = Store.create(store, Context.new("Another", id: "c1"))

      assert_raise RuntimeError, ~r/another conversation with the id "c1"/, fn ->
        Upkeep.move_columns(@resource)
      end

      :ok = Store.delete(store, "c1")
      record = Ash.get!(@resource, "c1")
      state = JSON.decode!(record.kept_state)
      later = DateTime.utc_now() |> DateTime.add(60) |> DateTime.to_iso8601()
      text = %{state | "lease_until" => later} |> JSON.encode() |> IO.iodata_to_binary()
      Ash.Seed.update!(record, %{kept_state: text})

      assert_raise RuntimeError, ~r/a turn of the conversation "c1" is running/, fn ->
        Upkeep.move_columns(@resource)
      end

      Store.delete(store, "c2")
    end
  end
end
