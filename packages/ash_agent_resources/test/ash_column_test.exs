# A conversation in attributes of its record is kept as in any other store.
defmodule AshAgent.Integration.ColumnTest.MemoryKept do
  use ExUnit.Case, async: false

  alias AshAgent.Integration.{Kept, MemoryKept}

  @moduletag :ash
  @moduletag :capture_log
  @moduletag integrations: ["Ash"]

  use AshAgent.Store.Conformance, store: Kept.new(MemoryKept), chats: false

  test "starts nothing twice, nor what is gone", %{store: store} do
    kept = create!(store, talk())
    assert {:ok, kept, ["k"]} = Store.start(store, kept, [%{key: "k"}, %{key: "k"}])
    :ok = Store.delete(store, kept.id)
    assert {:error, :not_found} = Store.start(store, kept, [%{key: "k"}])
  end

  test "shows nothing of itself in logs and in what inspects records", %{store: store} do
    secret = "SECRET-"

    log =
      ExUnit.CaptureLog.capture_log([level: :debug], fn ->
        call = %{id: secret, name: secret, arguments: %{secret => secret}}

        context = Context.new(secret, id: new_id()) |> Context.add_assistant_message(nil, [call])

        kept =
          create!(store, context,
            owner: "o",
            note: %{secret => secret}
          )

        {:ok, _} = Store.enqueue(store, kept.id, secret, metadata: %{secret => secret})
        {:ok, kept, _} = Store.start(store, kept, [%{key: "k", call: call}])
        append!(store, kept, context, finished: [%{key: "k", state: :ok, call: call}])
        send(self(), {:record, Ash.get!(MemoryKept, kept.id)})
      end)

    assert log =~ "Updating"
    refute log =~ secret
    assert_received {:record, record}
    refute inspect(record, limit: :infinity, printable_limit: :infinity) =~ secret
  end
end

if Code.ensure_loaded?(AshAgent.Integration.TableKept) do
  defmodule AshAgent.Integration.ColumnTest.TableKept do
    use ExUnit.Case, async: false

    alias AshAgent.Integration.{Kept, Repo, TableKept}

    @moduletag :ash
    @moduletag :postgres
    @moduletag integrations: ["Ash", "AshPostgres", "Postgrex", "PostgreSQL"]

    setup_all do
      Repo.query!("DROP TABLE IF EXISTS kept_chats")
      Repo.query!(TableKept.table())
      :ok
    end

    use AshAgent.Store.Conformance, store: Kept.new(TableKept), chats: false

    test "is not selected unless asked for", %{store: store} do
      id = create!(store, talk()).id
      assert %{kept: %Ash.NotLoaded{}, kept_state: %Ash.NotLoaded{}} = Ash.get!(TableKept, id)
      assert %{kept: %Context{}} = Ash.get!(TableKept, id, load: [:kept])
    end

    test "is damaged: an error that shows nothing", %{store: store} do
      id = create!(store, talk()).id
      Repo.query!("UPDATE kept_chats SET kept_state = 'SECRET' WHERE id = $1", [id])
      assert {:error, %Store.Error{reason: {:corrupt, _}} = error} = Store.fetch(store, id)
      refute inspect(error) =~ "SECRET"
      Repo.query!("UPDATE kept_chats SET kept = '{\"SECRET\": 1}' WHERE id = $1", [id])
      assert {:error, %Store.Error{} = error} = Store.fetch(store, id)
      refute inspect(error) =~ "SECRET"
      Repo.query!("DELETE FROM kept_chats WHERE id = $1", [id])
    end

    test "is not written over by an older record", %{store: store} do
      kept = create!(store, talk())
      old = Ash.get!(TableKept, kept.id)
      kept = append!(store, kept, Context.add_user_message(kept.value, "x"))
      assert old.kept_version < Ash.get!(TableKept, kept.id).kept_version
      Ash.update!(old, %{}, action: :touch)
      assert_kept(store, kept.value)
    end
  end
end
