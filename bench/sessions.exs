# Sessions of stored conversations in PostgreSQL: how many rows, bytes and statements they need, and how fast a node takes
# over those of another one, among few and among many. From these figures the guide "Production" reckons larger numbers.

# BENCH_QUICK=1 shows only that it works.

for file <-
      ~w(support/harness.exs ../test/support/integrations.ex ../packages/ash_agent_runtime/test/support/pgsql.ex ../soak/cluster/database.exs),
    do: Code.require_file(file, __DIR__)

defmodule AshAgent.Bench.Sessions do
  @moduledoc false

  alias AshAgent.Bench.Harness
  alias AshAgent.{Context, Sessions, Store}
  alias AshAgent.Soak.Cluster.Database
  alias AshAgent.TestSupport.PgSQL

  @sizes if Harness.quick?(), do: [1_000, 2_000], else: [10_000, 100_000]
  @lost if Harness.quick?(), do: 200, else: 2_000
  @prompts if Harness.quick?(), do: 20, else: 300
  @idle if Harness.quick?(), do: 200, else: 10_000
  # A shorter one is renewed alone.
  @lease if Harness.quick?(), do: 3_000, else: 30_000

  def run do
    # Lost sessions say so.
    Logger.configure(level: :none)
    {query, transaction} = PgSQL.pool!()
    count = :counters.new(1, [])

    store =
      Store.Postgres.new(
        {fn sql, params ->
           :counters.add(count, 1, 1)
           query.(sql, params)
         end, transaction}
      )

    db = Database.open()

    IO.puts("""
    erlang-p1-pgsql, 8 connections, fsync off. A conversation has 6 turns; a turn is one prompt with one answer.

    | stored conversations | bytes each, with indexes | rows each | search for expired claims | taken over a second | statements each | first prompt | statements | next prompt | statements |
    |---|---|---|---|---|---|---|---|---|---|\
    """)

    Enum.reduce(@sizes, 0, fn size, filled ->
      Database.fill(db, filled + 1, size)
      IO.puts(row(db, store, count, size))
      size
    end)

    IO.puts("\n" <> idle(store, count))
  end

  # What sessions ask for that nobody asks for anything, over a lease.
  defp idle(store, count) do
    {:ok, supervisor} = DynamicSupervisor.start_link(strategy: :one_for_one)
    Process.unlink(supervisor)
    started = System.monotonic_time(:millisecond)

    1..@idle
    |> Task.async_stream(&start_idle(supervisor, store, &1),
      max_concurrency: 16,
      timeout: :infinity
    )
    |> Stream.run()

    took = System.monotonic_time(:millisecond) - started
    # Each has renewed its claim once.
    Process.sleep(div(@lease, 2))
    before = :counters.get(count, 1)
    Process.sleep(@lease)
    asked = :counters.get(count, 1) - before
    left = DynamicSupervisor.count_children(supervisor).active
    :ok = DynamicSupervisor.stop(supervisor, :shutdown, :infinity)

    "#{@idle} idle sessions, started in #{show(took / 1_000)} s, with a lease of #{div(@lease, 1_000)} s: " <>
      "#{show(asked / (@lease / 1_000))} statements a second; #{left} still have their claims"
  end

  defp start_idle(supervisor, store, number) do
    opts = [
      store: store,
      id: "idle-#{number}",
      llm: &answer/1,
      lease: @lease,
      hibernate_after: 1_000
    ]

    {:ok, _session} = DynamicSupervisor.start_child(supervisor, {AshAgent.Session, opts})
  end

  defp row(db, store, count, size) do
    sizes = Database.sizes(db)
    bytes = sizes |> Enum.map(&elem(&1, 2)) |> Enum.sum() |> div(size)
    rows = sizes |> Enum.map(&elem(&1, 1)) |> Enum.sum() |> Kernel./(size)
    search = search(store)
    {rate, taken} = take_over(db, store, count, size)
    {{first, first_asked}, {next, next_asked}} = prompts(store, count, size)

    "| #{size} | #{bytes} | #{show(rows)} | #{show(search)} ms | #{round(rate)} | #{show(taken)} | " <>
      "#{show(first)} ms | #{show(first_asked)} | #{show(next)} ms | #{show(next_asked)} |"
  end

  # What each node does every few seconds, when there is nothing.
  defp search(store) do
    times =
      for _ <- 1..50,
          do: elem(:timer.tc(fn -> {:ok, []} = Store.expired(store, owner: "bench") end), 0)

    Harness.median(times) / 1_000
  end

  # Another node ran them, and is gone.
  defp take_over(db, store, count, size) do
    step = div(size, @lost)

    Database.rows(db, """
    with lost as (update ash_agent_conversations set owner = 'gone', epoch = epoch + 1, status = 'running',
      lease_until = now() - interval '1 second'
      where id <> 'c0' and cast(substr(id, 2) as bigint) % #{step} = 0 returning 1) select count(*) from lost
    """)

    before = :counters.get(count, 1)
    # The search begins at once.
    start(store, recover: 1)
    started = System.monotonic_time(:millisecond)
    wait(fn -> Database.left(db) == {0, 0} end)
    took = System.monotonic_time(:millisecond) - started
    asked = :counters.get(count, 1) - before
    stop()
    {@lost / (took / 1_000), asked / @lost}
  end

  defp prompts(store, count, size) do
    start(store, recover: :infinity)
    ids = for n <- 1..@prompts, do: "c#{rem(n * 7, size) + 1}"
    first = asked(count, fn -> for id <- ids, do: prompt(id) end)
    next = asked(count, fn -> for id <- ids, do: prompt(id) end)
    stop()
    {first, next}
  end

  # The median time in milliseconds, and statements each.
  defp asked(count, fun) do
    before = :counters.get(count, 1)
    times = fun.()
    {Harness.median(times) / 1_000, (:counters.get(count, 1) - before) / length(times)}
  end

  defp prompt(id) do
    {time, {:ok, %{output: "Yes."}}} =
      :timer.tc(fn -> Sessions.prompt(__MODULE__, id, "And now?") end)

    time
  end

  defp start(store, opts) do
    {:ok, pid} =
      Sessions.start_link([name: __MODULE__, store: store, llm: &answer/1, batch: 500] ++ opts)

    # It is stopped again.
    Process.unlink(pid)
  end

  defp stop, do: :ok = Supervisor.stop(__MODULE__, :shutdown, :infinity)

  defp answer(%Context{}), do: {:ok, %{content: "Yes."}}

  defp wait(fun), do: unless(fun.(), do: Process.sleep(20) && wait(fun))

  defp show(value) when value >= 100, do: "#{round(value)}"
  defp show(value), do: :erlang.float_to_binary(value / 1, decimals: 1)
end

if System.get_env("ASH_AGENT_CONTEXT_PGPORT") do
  IO.puts(AshAgent.Bench.Harness.environment() <> "\n")
  AshAgent.Bench.Sessions.run()
else
  IO.puts("PostgreSQL is missing.")
end
