# What a turn costs in a store at different lengths of a conversation, what a run's journal costs, and what loading costs:
#
#     cd packages/ash_agent_runtime && MIX_ENV=prod mix run ../../bench/stores.exs
#
# A turn is an agent's iteration with a call: its answer of 2 KB, the start of the call and its result, three writes. Beside it,
# the whole snapshot is written after each of the two changes, into a table of its own of the same database. A run is one of
# AshAgent.Runtime with such turns and a model and a tool that take no time, with the store and without. PostgreSQL is measured where
# ASH_AGENT_CONTEXT_PGPORT and ASH_AGENT_CONTEXT_PGPASSWORD name one on loopback, through Postgrex when that is on the code path and else
# through the distribution's Erlang driver.

Code.require_file("support/harness.exs", __DIR__)
Code.require_file("../test/support/integrations.ex", __DIR__)
Code.require_file("../packages/ash_agent_runtime/test/support/pgsql.ex", __DIR__)

for {name, dialect} <- [CountedSQLite: :sqlite, CountedPostgres: :postgres] do
  defmodule Module.concat(AshAgent.Bench, name) do
    @moduledoc false
    # Counts what a store is asked.

    use AshAgent.Store.Relational

    defstruct [:store, :count]

    @impl AshAgent.Store.Relational
    def dialect, do: unquote(dialect)

    @impl AshAgent.Store.Relational
    def run(counted, key, operation, params), do: ask(counted, :run, [key, operation, params])

    @impl AshAgent.Store.Relational
    def read(counted, key, query, params), do: ask(counted, :read, [key, query, params])

    defp ask(%{store: %module{} = store, count: count}, function, args) do
      :counters.add(count, 1, 1)
      apply(module, function, [store | args])
    end
  end
end

defmodule AshAgent.Bench.Stores do
  @moduledoc false

  alias AshAgent.Bench.{CountedPostgres, CountedSQLite, Harness}
  alias AshAgent.Context
  alias AshAgent.{Runtime, Store}
  alias AshAgent.Store.SQLite.Native

  @lengths if Harness.quick?(), do: [10, 1_000], else: [10, 1_000, 10_000]
  @batches if Harness.quick?(), do: 3, else: 9
  # A whole snapshot of 10,000 iterations takes a second.
  @batches_whole 3

  def run do
    for {name, store, whole} <- stores() do
      IO.puts(
        "\n#{name}\n\n| iterations | turns a second | whole snapshot each turn | ours is | written a turn |\n|---|---|---|---|---|"
      )

      for length <- @lengths do
        context =
          Enum.reduce(1..length, Context.new("start", id: "bench-#{length}"), &turn(&2, &1))

        _ = Store.delete(store, context[:id])
        {:ok, kept} = Store.create(store, context, owner: "bench", lease: 3_600_000)

        {ours, _} = batches(kept, @batches, 20, &turn_in_store(store, &1, length))
        {theirs, _} = batches(context, @batches_whole, 1, &turn_in_snapshots(whole, &1, length))

        IO.puts(
          "| #{length} | #{round(ours)} | #{show(theirs)} | #{show(ours / theirs)} times faster | #{written(store, kept)} |"
        )

        :ok = Store.delete(store, context[:id])
      end

      journal(store)
      round_trips(store)
      loading(store)
      statements(store)
      growth(name, store)
    end
  end

  # What 10,000 turns leave, each with a picture in every tenth, or with none.
  defp growth(name, store) do
    IO.puts(
      "\n| turns | KB, without media | KB a turn | KB, with media | KB a turn |\n|---:|---:|---:|---:|---:|"
    )

    plain = grow(name, store, fn _number -> nil end)
    media = grow(name, store, &if(rem(&1, 10) == 0, do: picture()))

    for {turns, bytes, more} <- Enum.zip_with(plain, media, fn {n, a}, {n, b} -> {n, a, b} end) do
      cells =
        for size <- [bytes, more], do: "#{round(size / 1024)} | #{show(size / 1024 / turns)}"

      IO.puts("| #{turns} | #{Enum.join(cells, " | ")} |")
    end
  end

  defp grow(name, store, picture) do
    _ = Store.delete(store, "grows")

    {:ok, kept} =
      Store.create(store, Context.new("start", id: "grows"), owner: "bench", lease: 3_600_000)

    empty = size(name, store)

    {sizes, _kept} =
      Enum.map_reduce(@lengths, {0, kept}, fn turns, {done, kept} ->
        kept =
          Enum.reduce((done + 1)..turns, kept, fn number, kept ->
            kept = turn_in_store(store, kept, number)
            if part = picture.(number), do: show_picture(store, kept, part), else: kept
          end)

        {{turns, size(name, store) - empty}, {turns, kept}}
      end)

    :ok = Store.delete(store, "grows")
    sizes
  end

  defp show_picture(store, kept, part) do
    {:ok, kept} = Store.append(store, kept, Context.add_user_message(kept.value, [part]))
    kept
  end

  # 100 KB each.
  defp picture do
    data = Base.encode64(:crypto.strong_rand_bytes(100_000))
    %{type: :image, media_type: "image/png", data: data}
  end

  # Bytes of the tables and indexes, without what deletions have left free.
  defp size(_name, %Store.Postgres{} = store) do
    tables =
      "('conversations'), ('branches'), ('iterations'), ('texts'), ('calls'), ('prompts'), ('history'), ('blobs')"

    for table <- ~w(conversations branches iterations texts calls prompts history blobs),
        do: {:ok, _} = Store.Postgres.query(store, "vacuum ash_agent_#{table}", [])

    {:ok, [[text]]} =
      Store.Postgres.query(
        store,
        "select cast(sum(pg_total_relation_size('ash_agent_' || t.name)) as text) from (values #{tables}) as t(name)",
        []
      )

    String.to_integer(text)
  end

  defp size(_name, %Store.SQLite{} = store) do
    [[[pages]], [[free]], [[bytes]]] =
      for pragma <- ~w(page_count freelist_count page_size),
          do: sqlite_rows!(store, "pragma #{pragma}")

    (pages - free) * bytes
  end

  defp sqlite_rows!(store, statement) do
    reference = make_ref()
    :ok = Native.run(store.ref, {:read, reference}, [statement], [])
    receive do: ({:ash_agent_sqlite, ^reference, {:ok, [rows]}} -> rows)
  end

  # Each statement, where there are so many of what it is about: keys, calls, messages, writes, iterations or conversations.
  defp statements(store) do
    IO.puts(
      "\n| ms | #{Enum.join(@lengths, " | ")} |\n|---|#{String.duplicate("---:|", length(@lengths))}"
    )

    columns = for count <- @lengths, do: of_size(store, count)

    for {name, _} <- hd(columns) do
      cells = for column <- columns, do: column |> List.keyfind(name, 0) |> elem(1) |> show()
      IO.puts("| #{name} | #{Enum.join(cells, " | ")} |")
    end
  end

  defp of_size(store, count) do
    mark = %{bench: "statements #{count}"}
    {:ok, _} = Store.erase(store, metadata: mark)
    ids = for n <- 1..count, do: "message #{n}"
    keys = for n <- 1..count, do: "key-of-a-call-with-43-characters-#{n}"
    calls = for key <- keys, do: %{key: key, call: %{id: key, name: :pay}}

    context =
      Enum.reduce(1..count, Context.new("start", id: "s-#{count}", metadata: mark), &turn(&2, &1))

    {create, kept} =
      once(fn -> Store.create(store, context, owner: "bench", lease: 3_600_000) end)

    {start, kept} = once(fn -> Store.start(store, kept, calls) end)
    by_keys = often(fn -> Store.calls(store, kept.id, keys: keys) end)
    by_state = often(fn -> Store.calls(store, kept.id, state: :started) end)
    finished = for call <- calls, do: Map.put(call, :state, :ok)
    {finish, kept} = once(fn -> Store.append(store, kept, kept.value, finished: finished) end)
    for id <- ids, do: {:ok, _} = Store.enqueue(store, kept.id, "Hi", id: id)
    {enqueue, _} = once(fn -> Store.enqueue(store, kept.id, "Hi", id: "one more") end)
    waiting = often(fn -> Store.waiting(store, kept.id) end)
    {taken, kept} = once(fn -> Store.append(store, kept, kept.value, taken: ids) end)
    {append, kept} = once(fn -> Store.append(store, kept, turn(kept.value, 1)) end)
    {renew, kept} = once(fn -> Store.renew(store, kept) end)
    fetch = often(fn -> Store.fetch(store, kept) end)
    search = often(fn -> Store.search(store, "dull agent", id: kept.id) end)
    {rewind, kept} = once(fn -> Store.append(store, kept, Context.rewind(kept.value, to: 1)) end)
    {release, kept} = once(fn -> Store.release(store, kept) end)
    {claim, kept} = once(fn -> Store.claim(store, kept.id, owner: "bench", lease: 3_600_000) end)

    kept =
      Enum.reduce(2..count, kept, fn _, kept ->
        {:ok, kept} = Store.append(store, kept, kept.value)
        kept
      end)

    history = often(fn -> Store.history(store, kept.id, limit: count) end)
    {:ok, kept} = Store.release(store, kept)
    {rename, _} = once(fn -> Store.rename(store, kept.id, kept.id <> "-renamed") end)
    {delete, _} = once(fn -> Store.delete(store, kept.id <> "-renamed") end)

    for n <- 1..count do
      opts = if rem(n, 2) == 0, do: [owner: "gone", lease: 1, status: :running], else: []

      {:ok, _} =
        Store.create(store, Context.new("x", id: "s-#{count}-#{n}", metadata: mark), opts)
    end

    list = often(fn -> Store.list(store, metadata: mark, limit: min(count, 100)) end)
    last = [order: :asc, limit: 100] ++ last_page(store, [])
    page = often(fn -> Store.list(store, last) end)
    claims = for n <- 1..count//2, do: claim!(store, "s-#{count}-#{n}")
    {renew_all, _} = once(fn -> Store.renew_all(store, claims) end)
    for claim <- claims, do: {:ok, _} = Store.release(store, claim)
    expired = [owner: "bench", lease: 3_600_000, limit: div(count, 2)]
    {expired, _} = once(fn -> Store.expired(store, expired) end)
    {prune, _} = once(fn -> Store.prune(store, older_than: 0, metadata: mark) end)
    {erase, _} = once(fn -> Store.erase(store, metadata: mark) end)

    [
      {"create/3, so many iterations", create},
      {"fetch/2, so many iterations", fetch},
      {"append/4 of a turn after so many", append},
      {"append/4 that rewinds so many", rewind},
      {"start/3 of so many calls", start},
      {"append/4, finished: so many calls", finish},
      {"calls/3, keys: so many", by_keys},
      {"calls/3, state: of so many", by_state},
      {"enqueue/4 after so many", enqueue},
      {"waiting/2, so many", waiting},
      {"append/4, taken: so many", taken},
      {"claim/3, with a fetch", claim},
      {"renew/2", renew},
      {"release/3", release},
      {"history/3, so many writes", history},
      {"search/3 for 20 of so many iterations", search},
      {"rename/3 with so many writes", rename},
      {"delete/2 with so many writes", delete},
      {"list/2, 100 of so many conversations", list},
      {"list/2, the last page of all", page},
      {"renew_all/2, half of so many", renew_all},
      {"expired/2, half of so many", expired},
      {"prune/2, half of so many", prune},
      {"erase/2, the other half", erase}
    ]
  end

  defp claim!(store, id) do
    {:ok, claim} = Store.claim(store, id, owner: "bench", lease: 3_600_000)
    claim
  end

  # Where the last page begins.
  defp last_page(store, cursor) do
    {:ok, page} = Store.list(store, [order: :asc, limit: 100] ++ cursor)
    if page.next, do: last_page(store, after: page.next), else: cursor
  end

  # In a process of its own, so that what came before is not collected meanwhile.
  defp once(function) do
    heap = [min_heap_size: 4_000_000]

    {pid, monitor} =
      :erlang.spawn_opt(fn -> exit({:timed, :timer.tc(function)}) end, [:monitor | heap])

    receive do
      {:DOWN, ^monitor, :process, ^pid, {:timed, {time, :ok}}} ->
        {time / 1000, nil}

      {:DOWN, ^monitor, :process, ^pid, {:timed, {time, answer}}} when elem(answer, 0) == :ok ->
        {time / 1000, elem(answer, 1)}

      {:DOWN, ^monitor, :process, ^pid, reason} ->
        raise "failed: #{inspect(reason)}"
    end
  end

  defp often(function),
    do: Harness.median(for _ <- 1..@batches, do: function |> once() |> elem(0))

  # What an iteration of a run takes.
  defp journal(store) do
    turns = 50

    run = fn opts ->
      {time, {:ok, _}} =
        :timer.tc(fn ->
          Runtime.run(
            Context.new("start", id: "bench-run"),
            [llm: &model(&1, turns), tools: tools(), max_iterations: turns + 1] ++ opts.()
          )
        end)

      time / (turns + 1)
    end

    kept = fn ->
      _ = Store.delete(store, "bench-run")
      {:ok, kept} = Store.create(store, Context.new("start", id: "bench-run"), owner: "bench")
      [store: store, kept: kept]
    end

    without = for(_ <- 1..@batches, do: run.(fn -> [] end)) |> Harness.median()
    with_store = for(_ <- 1..@batches, do: run.(kept)) |> Harness.median()
    :ok = Store.delete(store, "bench-run")

    IO.puts(
      "\nan iteration of a run: #{show(with_store)} us with the store, #{show(without)} us without"
    )
  end

  # What a run asks a store for an answer with eight calls, beside its begin and its last answer.
  defp round_trips(%module{} = store) do
    counted = if module == Store.SQLite, do: CountedSQLite, else: CountedPostgres

    [together, apart] =
      for wait <- [0, 40] do
        count = :counters.new(1, [])
        _ = Store.delete(store, "bench-trips")
        store = struct!(counted, store: store, count: count)
        {:ok, kept} = Store.create(store, Context.new("start", id: "bench-trips"), owner: "bench")
        before = :counters.get(count, 1)
        tool = fn %{"n" => n} -> Process.sleep(n * wait) && {:ok, n} end
        opts = [llm: &model_of_eight/1, tools: %{"wait" => tool}, store: store, kept: kept]
        {:ok, _} = Runtime.run(kept.value, opts)
        :counters.get(count, 1) - before - 2
      end

    :ok = Store.delete(store, "bench-trips")

    IO.puts(
      "\nround trips for an answer with 8 calls: #{together} where they end together, #{apart} where one ends every 40 ms"
    )
  end

  defp model_of_eight(%{current_iteration: 1}) do
    calls = for n <- 1..8, do: %{id: "call_#{n}", name: "wait", arguments: %{"n" => n}}
    {:ok, %{tool_calls: calls}}
  end

  defp model_of_eight(_context), do: {:ok, %{content: "Done"}}

  defp model(%{current_iteration: n}, turns) when n > turns, do: {:ok, %{content: "Done"}}

  defp model(%{current_iteration: n}, _turns),
    do: {:ok, %{content: text(n), tool_calls: [call(n)]}}

  defp tools, do: %{"search" => fn %{"query" => _} -> {:ok, "found"} end}

  # 1,000 messages of 2 KB.
  defp loading(store) do
    context = Enum.reduce(1..500, Context.new("start", id: "bench-load"), &turn(&2, &1))
    _ = Store.delete(store, "bench-load")
    {:ok, _} = Store.create(store, context)
    snapshot = Context.to_snapshot(context)
    check = &Context.equal?/2

    fetch = fn ->
      {:ok, kept} = Store.fetch(store, "bench-load")
      kept.value
    end

    times = Harness.compare(fetch, fn -> Context.load!(snapshot) end, check)

    IO.puts(
      "\nfetch/2 of #{Context.count_messages(context)} messages: #{show(times.native)} us; load/1 of the same: #{show(times.plain)} us"
    )

    :ok = Store.delete(store, "bench-load")
  end

  # Turns a second: the median of the batches.
  defp batches(state, count, turns, step) do
    {rates, state} =
      Enum.map_reduce(1..count, state, fn _, state ->
        {time, state} =
          :timer.tc(fn -> Enum.reduce(1..turns, state, fn _, state -> step.(state) end) end)

        {turns * 1_000_000 / time, state}
      end)

    {Harness.median(rates), state}
  end

  defp text(n),
    do: String.pad_trailing("message #{n} ", 2048, "All work and no play makes a dull agent. ")

  defp call(n), do: %{id: "call_#{n}", name: "search", arguments: ~s({"query":"number #{n}"})}
  defp answer(context, n), do: Context.add_assistant_message(context, text(n), [call(n)])

  defp result(context, n),
    do: Context.add_tool_results(context, [{"call_#{n}", {:ok, "found #{n}"}}])

  defp turn(context, n), do: context |> answer(n) |> result(n)

  defp turn_in_store(store, kept, n) do
    {:ok, kept} = Store.append(store, kept, answer(kept.value, n), status: :running)
    key = Store.call_key(kept.value, "call_#{n}")
    {:ok, kept, [^key]} = Store.start(store, kept, [%{key: key, call: call(n)}])

    {:ok, kept} =
      Store.append(store, kept, result(kept.value, n), finished: [%{key: key, state: :ok}])

    kept
  end

  defp turn_in_snapshots(whole, context, n) do
    Enum.reduce([&answer/2, &result/2], context, fn step, context ->
      context = step.(context, n)
      whole.(context[:id], Context.to_snapshot(context))
      context
    end)
  end

  # What PostgreSQL writes into its log for a turn.
  defp written(%Store.Postgres{} = store, kept) do
    {:ok, kept} = Store.fetch(store, kept)

    position = fn ->
      {:ok, [[text]]} =
        Store.Postgres.query(
          store,
          "select cast(pg_current_wal_insert_lsn() - '0/0' as text)",
          []
        )

      String.to_integer(text)
    end

    {turns, before} = {50, position.()}
    Enum.reduce(1..turns, kept, fn _, kept -> turn_in_store(store, kept, 7) end)
    "#{show((position.() - before) / turns / 1024)} KB of WAL"
  end

  defp written(_store, _kept), do: "-"

  defp stores do
    sqlite =
      for synchronous <- [:full, :normal] do
        path = Path.join(System.tmp_dir!(), "ash_agent_bench_#{System.pid()}_#{synchronous}.db")
        {:ok, store} = Store.SQLite.open(path, synchronous: synchronous)

        sqlite!(
          store,
          :script,
          "create table if not exists snapshots (id text primary key, snapshot text)",
          []
        )

        put =
          "insert into snapshots values ($1, $2) on conflict (id) do update set snapshot = excluded.snapshot returning 1"

        {"SQLite, synchronous: #{synchronous}", store, &sqlite!(store, :write, put, [&1, &2])}
      end

    sqlite ++ postgres()
  end

  defp sqlite!(store, mode, statement, params) do
    reference = make_ref()
    :ok = Native.run(store.ref, {mode, reference}, [statement], params)
    receive do: ({:ash_agent_sqlite, ^reference, {:ok, _}} -> :ok)
  end

  defp postgres do
    with port when port != nil <- System.get_env("ASH_AGENT_CONTEXT_PGPORT") do
      {name, database} = driver(port)
      store = Store.Postgres.new(database)
      {:ok, _} = Store.Postgres.Migrations.migrate(store)

      {:ok, _} =
        Store.Postgres.query(
          store,
          "create table if not exists bench_snapshots (id text primary key, snapshot jsonb)",
          []
        )

      put =
        "insert into bench_snapshots values ($1, cast(cast($2 as text) as jsonb)) on conflict (id) do update set snapshot = excluded.snapshot returning 1"

      {:ok, [[fsync]]} = Store.Postgres.query(store, "select current_setting('fsync')", [])

      [
        {"PostgreSQL, #{name}, fsync #{fsync}", store,
         fn id, text -> {:ok, [_]} = Store.Postgres.query(store, put, [id, text]) end}
      ]
    else
      nil -> []
    end
  end

  defp driver(port) do
    if Code.ensure_loaded?(Postgrex) do
      {:ok, _} = Application.ensure_all_started(:postgrex)
      password = System.fetch_env!("ASH_AGENT_CONTEXT_PGPASSWORD")

      options = [
        hostname: "127.0.0.1",
        port: String.to_integer(port),
        username: "postgres",
        password: password,
        database: "postgres",
        pool_size: 2
      ]

      {:ok, pool} = apply(Postgrex, :start_link, [options])
      {"Postgrex", {Postgrex, pool}}
    else
      {"erlang-p1-pgsql", AshAgent.TestSupport.PgSQL.connect!()}
    end
  end

  defp show(value) when value >= 100, do: "#{round(value)}"
  defp show(value), do: :erlang.float_to_binary(value / 1, decimals: 1)
end

IO.puts(AshAgent.Bench.Harness.environment())
AshAgent.Bench.Stores.run()
