defmodule AshAgent.Store.CorpusTest do
  use ExUnit.Case, async: true

  # What was stored with any version of the tables is there for ever, see test/corpus/README.md.

  alias AshAgent.{ChatContext, Context, Store}
  alias AshAgent.Store.{Postgres, Schema, SQL, SQLite}
  alias AshAgent.Store.Postgres.Migrations
  alias AshAgent.TestSupport.PgSQL

  @moduletag :tmp_dir

  test "each version has a file" do
    assert length(Path.wildcard("test/corpus/version_*.db")) == Schema.latest(:sqlite)
  end

  for version <- 1..Schema.latest(:sqlite) do
    test "a file of version #{version} loads, is found and goes on", %{tmp_dir: folder} do
      path = Path.join(folder, "store.db")
      File.cp!("test/corpus/version_#{unquote(version)}.db", path)
      {:ok, store} = SQLite.open(path)
      goes_on(store)
      # It is of the latest version now.
      {:ok, store} = SQLite.open(path)
      assert {:ok, _} = Store.fetch(store, "chat")
    end
  end

  for version <- 1..Schema.latest(:postgres) do
    @tag :p1_pgsql
    @tag integrations: ["PostgreSQL", "p1_pgsql"]
    test "PostgreSQL's tables of version #{version} are brought up to date" do
      {query, transaction} = PgSQL.connect!()
      schema = "corpus_#{unquote(version)}"
      {:ok, _} = query.("drop schema if exists #{schema} cascade", [])
      {:ok, _} = query.("create schema #{schema}", [])
      store = Postgres.new({query, transaction}, prefix: schema)
      {:ok, unquote(version)} = Migrations.migrate(store, version: unquote(version))
      # What has changed since is for PostgreSQL alone.
      file = min(unquote(version), Schema.latest(:sqlite))
      copy("test/corpus/version_#{file}.db", query, schema)
      if unquote(version) >= 2, do: fill_words(query, schema)
      assert {:ok, latest} = Migrations.migrate(store)
      assert latest == Schema.latest(:postgres)
      goes_on(store)
    end
  end

  @tag :p1_pgsql
  @tag integrations: ["PostgreSQL", "p1_pgsql"]
  test "PostgreSQL's tables go back to each version, and come again" do
    {query, transaction} = PgSQL.connect!()
    {:ok, _} = query.("drop schema if exists corpus_down cascade", [])
    {:ok, _} = query.("create schema corpus_down", [])
    store = Postgres.new({query, transaction}, prefix: "corpus_down")
    {:ok, latest} = Migrations.migrate(store)

    for version <- (latest - 1)..1 do
      for statement <- Migrations.sql(latest, version, prefix: "corpus_down"),
          do: {:ok, _} = query.(statement, [])

      assert {:error, %{reason: {:schema, ^version, ^latest}}} = Migrations.check(store)
      assert {:ok, ^latest} = Migrations.migrate(store)
      assert :ok = Migrations.check(store)
    end
  end

  defp goes_on(store) do
    assert {:ok, %{metadata: %{user: 7}, status: :idle, epoch: 1} = kept} =
             Store.fetch(store, "talk")

    assert [%{role: :user, content: [_text, %{type: :image}]} | _] =
             Context.to_messages(kept.value)

    assert {:ok, [%{id: "p1", input: "And then?"}]} = Store.waiting(store, "talk")
    assert {:ok, [%{state: :ok, call: %{name: :pay}}]} = Store.calls(store, "talk")
    assert {:ok, [%{note: %{by: :ann}} | _]} = Store.history(store, "talk")

    assert {:ok, %{results: found, next: nil}} =
             Store.search(store, "harbour", metadata: %{user: 7})

    assert Enum.sort(Enum.map(found, & &1.id)) == ["fork", "talk"]

    assert {:ok, %{kind: :chat, value: chat} = stored} = Store.fetch(store, "chat")
    assert Enum.map(ChatContext.branches(chat), & &1.name) == ["main", "idea"]
    more = ChatContext.update_context(chat, &Context.add_assistant_message(&1, "root"))
    assert {:ok, _} = Store.append(store, stored, more)
    assert {:ok, %{results: [%{branch: "idea"}]}} = Store.search(store, "twig")

    context = Context.add_user_message(kept.value, "Farewell")
    assert {:ok, _} = Store.append(store, kept, context, taken: ["p1"])
    assert {:ok, fetched} = Store.fetch(store, "talk")
    assert Context.equal?(fetched.value, context)
    assert {:ok, %{results: [%{id: "talk"}]}} = Store.search(store, "farewell")

    assert {:ok, receipt} = Store.erase(store, metadata: %{user: 7})
    assert Enum.sort(receipt.ids) == ["child", "fork", "talk"]
    assert {:ok, %{conversations: [%{id: "chat"}]}} = Store.list(store)
  end

  # Rows as they are: both databases have the same columns, but for the words of the search.
  defp copy(path, query, schema) do
    {:ok, store} = SQLite.open(":memory:")

    execute = fn mode, sql ->
      reference = make_ref()
      :ok = SQLite.Native.run(store.ref, {mode, reference}, [sql], [])
      assert_receive {:ash_agent_sqlite, ^reference, {:ok, rows}}
      rows
    end

    execute.(:script, "attach '#{path}' as old")

    for table <- ~w(conversations branches iterations calls prompts history blobs),
        [[_ | _] = columns] <- [
          execute.(:read, "select name from pragma_table_info('ash_agent_#{table}', 'old')")
        ] do
      names = columns |> List.flatten() |> Enum.join(", ")
      [rows] = execute.(:read, "select #{names} from old.ash_agent_#{table}")

      for row <- rows do
        values = Enum.map_join(row, ", ", &literal/1)

        {:ok, _} =
          query.("insert into #{schema}.ash_agent_#{table} (#{names}) values (#{values})", [])
      end
    end
  end

  defp fill_words(query, schema) do
    [fill] = for "insert into {texts}" <> _ = fill <- Schema.up(:postgres, 2), do: fill
    {:ok, _} = query.(SQL.name_tables(fill, "#{schema}."), [])
  end

  defp literal(nil), do: "null"
  defp literal(number) when is_integer(number), do: Integer.to_string(number)
  defp literal(text), do: "'" <> String.replace(text, "'", "''") <> "'"
end
