defmodule AshAgent.Store.PartitionsTest do
  use ExUnit.Case, async: true

  @moduletag :p1_pgsql
  @moduletag integrations: ["PostgreSQL", "p1_pgsql"]

  import AshAgent.TestSupport.Runs, only: [drain: 1]

  alias AshAgent.{Context, Store}
  alias AshAgent.Store.Postgres
  alias AshAgent.Store.Postgres.Migrations
  alias AshAgent.TestSupport.{PgSQL, StoreWork}

  @partitions 32

  # Tables of a schema of their own, and all statements that are run on them, with what they do.
  defp open!(opts) do
    {query, transaction} = PgSQL.connect!()
    schema = "partitions_#{System.unique_integer([:positive])}"
    {:ok, _} = query.("create schema #{schema}", [])
    plain = Postgres.new({query, transaction}, prefix: schema)
    assert {:ok, _} = Migrations.migrate(plain, opts)
    on_exit(fn -> drop(schema) end)
    test = self()

    noted = fn sql, params ->
      send(test, {:statement, sql, params})
      query.(sql, params)
    end

    {Postgres.new({noted, transaction}, prefix: schema), query}
  end

  defp drop(schema) do
    {query, _} = PgSQL.connect!()
    {:ok, _} = query.("drop schema #{schema} cascade", [])
  end

  # What the server does with a statement whose parameters it does not know when it makes the plan.
  defp plan(query, sql, params) do
    types = Enum.map_join(params, ", ", fn _ -> "text" end)
    values = Enum.map_join(params, ", ", &("'" <> String.replace(&1, "'", "''") <> "'"))
    {:ok, _} = query.("prepare looked_at (#{types}) as #{sql}", [])
    {:ok, %{rows: rows}} = query.("explain (costs off) execute looked_at (#{values})", [])
    {:ok, _} = query.("deallocate looked_at", [])
    Enum.map_join(rows, "\n", &hd/1)
  end

  defp statements, do: drain(do: ({:statement, sql, params} -> {sql, params}))

  test "a turn looks at one partition of each table" do
    {store, query} = open!(partitions: @partitions)
    StoreWork.do_turns(store)
    {:ok, _} = query.("set plan_cache_mode = force_generic_plan", [])
    done = Enum.uniq_by(statements(), &elem(&1, 0))
    assert length(done) > 15
    plans = for {sql, params} <- done, do: {sql, plan(query, sql, params)}

    for {sql, plan} <- plans do
      scanned =
        Regex.scan(~r/Scan (?:using \w+ )?on (?:\w+\.)?ash_agent_(\w+)_p(\d+)/, plan,
          capture: :all_but_first
        )

      numbers = scanned |> Enum.map(&List.last/1) |> Enum.uniq()
      assert length(numbers) <= 1, "#{sql}\n\n#{plan}"
    end

    assert Enum.count(plans, fn {_sql, plan} -> plan =~ "Subplans Removed: #{@partitions - 1}" end) >
             15
  end

  test "what fans out says so, and partitioned tables do what others do" do
    {store, _query} = open!(partitions: 3)
    StoreWork.do_turns(store)

    for n <- 1..20,
        do:
          {:ok, _} = Store.create(store, Context.new("word #{n}", id: "m#{n}", metadata: %{m: 1}))

    {:ok, root} = Store.fetch(store, "m1")
    {:ok, _} = Store.create(store, Context.fork(root.value, id: "fork"))
    assert {:ok, %{conversations: found}} = Store.list(store, metadata: %{m: 1}, limit: 100)
    assert length(found) == 21
    assert {:ok, %{results: [_]}} = Store.search(store, "word 20")

    for n <- 1..20 do
      assert :ok = Store.rename(store, "m#{n}", "renamed #{n}")
      assert {:ok, %{value: value}} = Store.fetch(store, "renamed #{n}")
      assert Context.to_messages(value) == [%{role: :user, content: "word #{n}"}]
      assert {:ok, [_]} = Store.history(store, "renamed #{n}")
    end

    assert {:ok, %{results: [%{id: "renamed 20"}]}} = Store.search(store, "word 20")
    assert {:ok, %{conversations: 21}} = Store.erase(store, metadata: %{m: 1}, batch: 6)
    assert {:ok, %{results: []}} = Store.search(store, "word")
  end

  test "older tables are copied as the guide says" do
    {store, query} = open!([])
    StoreWork.do_turns(store)

    image = %{
      type: :image,
      media_type: "image/png",
      data: Base.encode64(:binary.copy("x", 3_000))
    }

    {:ok, kept} = Store.create(store, Context.new([image], id: "c"), owner: "a")
    {:ok, _, ["k"]} = Store.start(store, kept, [%{key: "k", call: %{name: :pay}}])
    {:ok, _} = Store.enqueue(store, "c", "And then?", id: "p")
    {parted, _query} = open!(partitions: 4)

    [older, newer] =
      for %{prefix: prefix} <- [store, parted], do: String.trim_trailing(prefix, ".")

    guide = File.read!("guides/tables.md")

    [_, statement, tables] =
      Regex.run(~r/```sql\n(INSERT INTO agents\.[^`]*)```\s+and then ((?:`\w+`[, and]*)+)/, guide)

    for [table] <- [["conversations"] | Regex.scan(~r/\w+(?=`)/, tables)] do
      copy =
        statement
        |> String.replace("conversations", table)
        |> String.replace("agents.", newer <> ".")
        |> String.replace("public.", older <> ".")

      {:ok, _} = query.(copy, [])
    end

    for id <- ["c", "chat"] do
      {:ok, before} = Store.fetch(store, id)
      {:ok, now} = Store.fetch(parted, id)
      assert {now.epoch, now.revision, now.owner} == {before.epoch, before.revision, before.owner}
      assert now.value.__struct__.equal?(now.value, before.value)

      for read <- [&Store.history/2, &Store.calls/2, &Store.waiting/2, &Store.arrivals/2],
          do: assert(read.(parted, id) == read.(store, id))
    end

    assert {:ok, %{results: [_ | _] = found}} = Store.search(parted, "x")
    assert {:ok, %{results: ^found}} = Store.search(store, "x")
    assert {:ok, %{blobs: 1, calls: 1, prompts: 1}} = Store.erase(parted, ids: ["c"])
  end

  test "rows are looked for by their keys where nothing is known of the tables" do
    {store, query} = open!([])
    StoreWork.do_turns(store)
    StoreWork.do_others(store)
    {:ok, _} = query.("set plan_cache_mode = force_generic_plan", [])
    # The tables are empty, so all their pages would be read faster than an index.
    {:ok, _} = query.("set enable_seqscan = off", [])

    for {sql, params} <- Enum.uniq_by(statements(), &elem(&1, 0)) do
      plan = plan(query, sql, params)
      refute plan =~ ~r/Seq Scan on (\w+\.)?ash_agent/, "#{sql}\n\n#{plan}"

      # A list of keys is not compared with row by row.
      refute plan =~ ~r/Filter: .*\b(id|key)\)? = ANY/, "#{sql}\n\n#{plan}"
      if sql =~ "'keys'", do: assert(plan =~ "Index Cond: ((conversation_id = $2) AND (key = r")
      if sql =~ "'taken'", do: assert(plan =~ "hashed SubPlan")
      # A page goes along an index, from where it begins.
      if sql =~ ~r/order by c\.(updated|created)_at/ and sql =~ "'after_id'" do
        assert plan =~ ~r/Index Cond: .*ROW\(/, "#{sql}\n\n#{plan}"
        refute plan =~ "Sort", "#{sql}\n\n#{plan}"
      end
    end
  end
end
