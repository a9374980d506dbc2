if Code.ensure_loaded?(Ecto.Adapters.Postgres) do
  defmodule AshAgent.Integration.StoreMigration do
    @moduledoc false
    use Ecto.Migration

    alias AshAgent.Store.Postgres.Migrations

    def up do
      execute(~s(create schema if not exists "of Ecto"))
      Migrations.up(version: 5, prefix: "of Ecto")
    end

    def down, do: Migrations.down(version: 1, prefix: "of Ecto")
  end

  defmodule AshAgent.Integration.EctoStoreTest do
    use ExUnit.Case, async: false

    @moduletag :ecto
    @moduletag :postgres
    @moduletag integrations: ["Ecto", "PostgreSQL"]

    alias AshAgent.Integration.StoreMigration
    alias AshAgent.Store
    alias AshAgent.Store.Postgres
    alias MyApp.Repo

    setup_all do
      Ecto.Migrator.up(Repo, 1, StoreMigration, log: false)
      on_exit(fn -> Ecto.Migrator.down(Repo, 1, StoreMigration, log: false) end)
    end

    use AshAgent.Store.Conformance, store: store()

    defp store, do: Postgres.new(Repo, prefix: "of Ecto")

    test "the migration is noted, goes down and up again, and a second one does nothing" do
      assert :ok = Postgres.Migrations.check(store())
      assert :ok = Ecto.Migrator.down(Repo, 1, StoreMigration, log: false)
      assert {:error, %Store.Error{reason: {:schema, 0, 5}}} = Postgres.Migrations.check(store())
      assert {:error, %Store.Error{reason: {:refused, "42P01"}}} = Store.fetch(store(), "x")
      assert :ok = Ecto.Migrator.up(Repo, 1, StoreMigration, log: false)
      assert {:ok, 5} = Postgres.Migrations.migrate(store())
      assert :ok = Postgres.Migrations.check(store())
    end

    test "a write within the application's transaction is undone with it", %{store: store} do
      kept = create!(store, talk())

      assert {:error, :no} =
               Repo.transaction(fn ->
                 {:ok, _} = Store.append(store, kept, Context.add_user_message(kept.value, "x"))
                 Repo.rollback(:no)
               end)

      assert_kept(store, kept.value)
      append!(store, kept, Context.add_user_message(kept.value, "y"))
    end

    @tag :capture_log
    test "a megabyte of what JSON refuses is kept", %{store: store} do
      big = String.duplicate("\u{0}\u{10FFFF}\"\\", 125_000)
      kept = create!(store, Context.new(big, id: new_id(), metadata: %{big => big}))
      append!(store, kept, Context.add_assistant_message(kept.value, big))
    end
  end

  defmodule AshAgent.Integration.PostgrexStoreTest do
    use ExUnit.Case, async: false

    alias AshAgent.Store

    @moduletag :ecto
    @moduletag :postgres
    @moduletag integrations: ["Postgrex", "PostgreSQL"]

    @pool AshAgent.Integration.Pool

    setup_all do
      config =
        MyApp.Repo.config() |> Keyword.take([:hostname, :port, :username, :password, :database])

      start_supervised!({Postgrex, [name: @pool, pool_size: 8] ++ config})
      {:ok, 5} = Store.Postgres.Migrations.migrate(store())
      :ok
    end

    defp store, do: Store.Postgres.new({Postgrex, @pool})

    use Store.Conformance, store: store()
  end
end
