defmodule AshAgent.Store.PostgresFaultsTest do
  # It stops the server that other tests use.
  use ExUnit.Case, async: false

  alias AshAgent.{Context, Store}
  alias AshAgent.Store.{Error, Postgres}
  alias AshAgent.Store.Postgres.Migrations
  alias AshAgent.TestSupport.{PgServer, PgSQL, StoreWriter}

  @secret "a secret of the user"

  describe "a driver" do
    defp answering(answer),
      do: Postgres.new({fn _sql, _params -> answer.() end, fn function -> {:ok, function.()} end})

    test "that fails in any way is an error that shows nothing" do
      answers = [
        fn -> raise @secret end,
        fn -> throw(@secret) end,
        fn -> exit(@secret) end,
        fn -> {:error, @secret} end,
        fn -> {:error, %RuntimeError{message: @secret}} end,
        fn -> {:error, %{postgres: %{pg_code: @secret, message: @secret}}} end,
        fn -> {:error, %{postgres: %{pg_code: "40001", detail: @secret}}} end,
        fn -> {:error, {@secret, [@secret]}} end,
        fn -> @secret end
      ]

      for answer <- answers do
        store = answering(answer)

        for result <- [
              Store.create(store, Context.new(@secret)),
              Store.fetch(store, "c"),
              Store.list(store, metadata: %{a: @secret}),
              Store.enqueue(store, "c", @secret),
              Migrations.migrate(store)
            ] do
          assert {:error, %Error{reason: {:unavailable, _}} = error} = result
          refute inspect(error) =~ @secret
          refute Exception.message(error) =~ @secret
        end
      end
    end

    test "gets the schema's name as it was given" do
      test = self()
      query = fn sql, _params -> send(test, {:sql, sql}) && {:ok, []} end
      prefix = ~S(a\1\0"b)
      store = Postgres.new({query, fn function -> {:ok, function.()} end}, prefix: prefix)
      assert {:error, :not_found} = Store.fetch(store, "c")
      assert_received {:sql, sql}
      assert sql =~ ~S("a\1\0""b".ash_agent_conversations)
      assert [created | _] = Migrations.sql(0, 1, prefix: prefix)
      assert created =~ ~S("a\1\0""b".ash_agent_conversations)
    end

    test "tells its codes, in the words of the error" do
      for {code, reason} <- [
            {"53100", :disk_full},
            {"25006", :read_only},
            {"54000", :too_large},
            {"58030", :io},
            {"57P01", :unavailable},
            {"42P01", :refused}
          ] do
        store = answering(fn -> {:error, %{postgres: %{pg_code: code, message: @secret}}} end)
        assert {:error, %Error{reason: {^reason, ^code}} = error} = Store.fetch(store, "c")
        assert Exception.message(error) =~ code
      end
    end

    test "of which nothing is known is refused" do
      for database <- [nil, "repo", {1, 2}, fn -> 1 end, {Postgrex}],
          do:
            assert_raise(ArgumentError, ~r/expected a repository/, fn ->
              Postgres.new(database)
            end)

      assert inspect(Postgres.new(SomeRepo)) == "#AshAgent.Store.Postgres<>"
    end
  end

  describe "the server" do
    @describetag :p1_pgsql
    @describetag integrations: ["PostgreSQL", "p1_pgsql"]

    setup do
      store = Postgres.new(PgSQL.pool!())
      {:ok, 5} = Migrations.migrate(store)
      _ = Store.delete(store, "c")
      {:ok, store: store}
    end

    test "migrates once, whoever asks, and into a schema of its own", %{store: store} do
      {query, transaction} = store.database
      schema = ~s(odd "name' of #{System.unique_integer([:positive])})
      other = Postgres.new({query, transaction}, prefix: schema)
      assert {:error, %Error{reason: {:schema, 0, 5}} = error} = Migrations.check(other)
      assert Exception.message(error) =~ "migrations"
      assert {:error, %Error{reason: {:refused, "3F000"}}} = Migrations.migrate(other)
      {:ok, _} = query.("create schema #{String.trim_trailing(other.prefix, ".")}", [])

      assert [{:ok, 5}] =
               1..6
               |> Enum.map(fn _ -> Task.async(fn -> Migrations.migrate(other) end) end)
               |> Task.await_many(30_000)
               |> Enum.uniq()

      assert :ok = Migrations.check(other)
      {:ok, _} = Store.create(other, Context.new("x", id: "c"))
      assert {:error, :not_found} = Store.fetch(store, "c")
      for statement <- Migrations.sql(5, 0, prefix: schema), do: {:ok, _} = query.(statement, [])
      assert {:error, %Error{reason: {:schema, 0, 5}}} = Migrations.check(other)
    end

    test "keeps nothing of a transaction whose function raises", %{store: store} do
      {query, transaction} = store.database
      {:ok, kept} = Store.create(store, Context.new("x", id: "c"))

      broken =
        Postgres.new(
          {query, fn function -> transaction.(fn -> function.() && raise @secret end) end},
          prefix: "none"
        )

      {:ok, _} = query.("create schema if not exists none", [])
      assert {:error, %Error{} = error} = Migrations.migrate(broken)
      refute inspect(error) =~ @secret
      assert {:error, %Error{reason: {:schema, 0, 5}}} = Migrations.check(broken)

      catch_error(
        transaction.(fn ->
          {:ok, _} =
            Store.append(store, kept, Context.add_assistant_message(kept.value, "no")) &&
              raise @secret
        end)
      )

      {:ok, fetched} = Store.fetch(store, "c")
      assert Context.equal?(fetched.value, kept.value)
    end

    @tag timeout: 120_000
    test "has what a killed VM had written", %{store: store} do
      {:ok, _} = Store.create(store, Context.new("0", id: "c"))

      for _round <- 1..3 do
        acknowledged = StoreWriter.kill_in_the_middle(Postgres, log())
        assert {:ok, kept} = Store.fetch(store, "c")
        assert :ok = StoreWriter.check(kept.value, acknowledged)

        # The server may do the last that it was sent even now.
        with {:error, :stale} <- Store.append(store, kept, kept.value) do
          assert {:ok, kept} = Store.fetch(store, "c")
          assert :ok = StoreWriter.check(kept.value, acknowledged)
          assert {:ok, _} = Store.append(store, kept, kept.value)
        end
      end
    end

    # The driver tells of its connections' deaths, with all that it holds.
    @tag :capture_log
    @tag timeout: 120_000
    test "that is killed itself has what it had acknowledged", %{store: store} do
      {:ok, _} = Store.create(store, Context.new("0", id: "c"))

      for _round <- 1..2 do
        acknowledged =
          StoreWriter.kill_in_the_middle(Postgres, log(), fn _vm -> PgServer.control("stop") end)

        assert {:error, %Error{reason: {:unavailable, _}} = error} = Store.fetch(store, "c")
        assert Exception.message(error) =~ "fetch the conversation"
        PgServer.control("restart")
        {:ok, kept} = PgServer.until_back(fn -> Store.fetch(store, "c") end)
        assert :ok = StoreWriter.check(kept.value, acknowledged)
        assert {:ok, _} = Store.append(store, kept, kept.value)
      end
    end

    defp log,
      do:
        Path.join(System.tmp_dir!(), "ash_agent_store_#{System.unique_integer([:positive])}.log")
        |> tap(&on_exit(fn -> File.rm(&1) end))
  end
end
