# What the first save of 500 messages costs in a SQLite file, and an append of one turn: CPU time, time, and the size of the file,
# beside a plain table with a row of JSON for each message. The index of the search is written behind the saves, so each row is told
# twice: when the save has returned, and when the index is written, too. Then what searches of 40 such conversations cost, and to rewind and
# delete one, and what it costs to list the calls that wait for late results, and to deliver one, where 10,000 wait.
#
#     cd packages/ash_agent_runtime && ELIXIR_ERL_OPTIONS="+sbwt none +sbwtdcpu none +sbwtdio none" MIX_ENV=prod mix run ../../bench/stores.exs
#
# Schedulers that spin would count as work while the bench waits for the index. Twenty appends follow each other within the time
# that the index waits for more, and are indexed together.

Code.require_file("support/harness.exs", __DIR__)
Code.require_file("support/json_libraries.exs", __DIR__)

defmodule AshAgent.Bench.Stores do
  @moduledoc false

  alias AshAgent.Bench.{Harness, JSONLibraries}
  alias AshAgent.{Context, Store}
  alias AshAgent.Store.{Relational, SQLite}

  @repeats if Harness.quick?(), do: 3, else: 11

  def main do
    IO.puts("#{Harness.environment()}\n")
    context = Enum.reduce(1..125, Context.new("Begin."), &turn(&2, &1))
    messages = Context.to_messages(context)
    longer = turn(context, 126)
    more = Enum.drop(Context.to_messages(longer), length(messages))
    json = hd(JSONLibraries.all())

    IO.puts("#{length(messages)} messages; the plain table is written with #{json.name}\n")

    IO.puts(
      "| | CPU, ms | time, ms | file, MB | an append: CPU, ms | time, ms |\n|---|--:|--:|--:|--:|--:|"
    )

    # By turns, so that another program disturbs both.
    {plain, stored} =
      for(
        _ <- 1..@repeats,
        do: {in_file(&plain(&1, json, messages, more)), in_file(&stored(&1, context, longer))}
      )
      |> Enum.unzip()

    {returned, indexed} = Enum.unzip(stored)
    row("a plain table", plain)
    row("a store, until the save returns", returned)
    row("a store, with the index written behind it", indexed)

    IO.puts(
      "\nCPU of the first save, from quarter to quarter: #{quartiles(plain)}, #{quartiles(returned)} and #{quartiles(indexed)} ms"
    )

    in_file(&search/1)
    in_file(&late/1)
  end

  ## Searches

  @conversations if Harness.quick?(), do: 8, else: 40
  @changed if Harness.quick?(), do: 1, else: 7

  defp search(path) do
    {:ok, store} = SQLite.open(path)

    kept =
      for first <- 1..@conversations do
        context = Enum.reduce(1..125, Context.new("Begin."), &turn(&2, &1 + first))
        {:ok, kept} = Store.create(store, context)
        kept
      end

    {:ok, _} = Store.create(store, Context.new("Xylograph"))
    await_index(store)
    IO.puts("\n#{@conversations} conversations\n\n| | median, ms |\n|---|--:|")
    find = fn words -> {:ok, %{results: [_ | _]}} = Store.search(store, words) end

    for {name, words} <- [
          {"a word of one iteration", "xylograph"},
          {"a word of a tenth of all", "word17"},
          {"two such words", "word17 word4211"}
        ],
        do: IO.puts("| #{name} | #{median(fn _n -> find.(words) end, 7)} |")

    rewind = fn kept, left ->
      number = kept.value.current_iteration - left
      {:ok, _} = Store.append(store, kept, Context.rewind(kept.value, to: number))
    end

    changes = [
      {"two iterations rewound", &rewind.(&1, 2)},
      {"150 iterations rewound", &rewind.(&1, 150)},
      {"a conversation deleted", &(:ok = Store.delete(store, &1.id))}
    ]

    for {{name, change}, group} <- Enum.zip(changes, Enum.chunk_every(kept, @changed)),
        do: IO.puts("| #{name} | #{median(&change.(Enum.at(group, &1 - 1)), @changed)} |")
  end

  ## Late results

  @waiting if Harness.quick?(), do: 1_000, else: 10_000
  @people 100

  defp late(path) do
    {:ok, store} = SQLite.open(path)
    for n <- 1..@waiting, do: {:ok, _} = Store.create(store, waiting(n))
    {:ok, page} = Store.waiting_calls(store, limit: div(@waiting, 2))
    {:ok, %{calls: [_ | _]}} = Store.waiting_calls(store, after: page.next)

    IO.puts(
      "\n#{@waiting} calls that wait, of #{@waiting} conversations\n\n| | median, ms |\n|---|--:|"
    )

    row = fn name, fun -> IO.puts("| #{name} | #{median(fun)} |") end
    row.("the first 100", fn _n -> {:ok, %{calls: [_ | _]}} = Store.waiting_calls(store) end)

    row.("100 from the middle", fn _n ->
      {:ok, %{calls: [_ | _]}} = Store.waiting_calls(store, after: page.next)
    end)

    row.("the #{div(@waiting, @people)} of a person", fn n ->
      {:ok, %{calls: [_ | _]}} = Store.waiting_calls(store, for: "person #{rem(n, @people)}")
    end)

    row.("those whose deadlines pass", fn _n -> {:ok, []} = Store.expire_waiting(store) end)

    row.("a delivery", fn n ->
      {:ok, :kept} = Store.arrive(store, "c#{n}", "h#{n}", {:ok, "green"})
    end)

    row.("the same again", fn n ->
      {:ok, :again} = Store.arrive(store, "c#{n}", "h#{n}", {:ok, "green"})
    end)
  end

  defp waiting(n) do
    wait = %{
      for: "person #{rem(n, @people)}",
      handle: "h#{n}",
      deadline: ~U[2099-01-01 00:00:00Z]
    }

    Context.new(words(n, 100), id: "c#{n}")
    |> Context.add_assistant_message(nil, [%{id: "a", name: :build, arguments: %{"n" => n}}])
    |> Context.add_tool_results([{"a", {:waiting, wait}}])
  end

  defp median(fun, times \\ 200) do
    times =
      for n <- 1..times do
        {time, _} = :timer.tc(fn -> fun.(n) end)
        time
      end

    :erlang.float_to_binary(Harness.median(times) / 1000, decimals: 2)
  end

  # 2.7 KB a message, with words that a search can tell apart, and arguments as models write them.
  defp turn(context, n) do
    arguments = ~s({"path":"lib/file_#{n}.ex","text":"#{words(n, 60)}"})
    call = %{id: "call_#{n}", name: "read_file", arguments: arguments}

    context
    |> Context.add_assistant_message(words(n, 200), [call])
    |> Context.add_tool_results([{"call_#{n}", {:ok, words(n + 1, 700)}}])
    |> Context.add_assistant_message(words(n + 2, 200))
    |> Context.add_user_message(words(n + 3, 100))
  end

  defp words(n, count),
    do: Enum.map_join(1..count, " ", &"word#{rem(&1 * (n + 7) * 7919, 5_003)}")

  defp in_file(fun) do
    path =
      Path.join(System.tmp_dir!(), "ash_agent_bench_#{System.unique_integer([:positive])}.db")

    try do
      fun.(path)
    after
      for end_ <- ["", "-wal", "-shm"], do: File.rm(path <> end_)
    end
  end

  defp row(name, found) do
    cells =
      found
      |> Enum.zip_with(&Harness.median/1)
      |> Enum.map_join(" | ", &:erlang.float_to_binary(&1 / 1, decimals: 2))

    IO.puts("| #{name} | #{cells} |")
  end

  defp quartiles(found) do
    sorted = found |> Enum.map(&hd/1) |> Enum.sort()
    last = length(sorted) - 1
    "#{Enum.at(sorted, div(last, 4))}-#{Enum.at(sorted, last - div(last, 4))}"
  end

  defp measure(fun) do
    :erlang.garbage_collect()
    {before, _} = :erlang.statistics(:runtime)
    started = System.monotonic_time()
    result = fun.()
    took = System.convert_time_unit(System.monotonic_time() - started, :native, :microsecond)
    {later, _} = :erlang.statistics(:runtime)
    {result, later - before, took / 1000}
  end

  # An append is too short for a clock of milliseconds.
  @appends 20

  # What it costs until the save has returned, and until the index is written.
  defp stored(path, context, longer) do
    {:ok, store} = SQLite.open(path)
    {{:ok, kept}, cpu, took} = measure(fn -> Store.create(store, context) end)
    size = size(store)
    {_, cpu_index, took_index} = measure(fn -> await_index(store) end)
    size_index = size(store)

    {_, cpu_more, more} =
      measure(fn ->
        Enum.reduce(1..@appends, kept, fn n, kept ->
          next = if n == 1, do: longer, else: turn(kept.value, 126 + n)
          {:ok, kept} = Store.append(store, kept, next)
          kept
        end)
      end)

    {_, cpu_more_index, more_index} = measure(fn -> await_index(store) end)

    {[cpu, took, size, cpu_more / @appends, more / @appends],
     [
       cpu + cpu_index,
       took + took_index,
       size_index,
       (cpu_more + cpu_more_index) / @appends,
       (more + more_index) / @appends
     ]}
  end

  # It waits a fifth of a second for more to come.
  defp await_index(store) do
    with {:ok, count} when count > 0 <- Relational.count_unindexed(store) do
      Process.sleep(10)
      await_index(store)
    end
  end

  defp plain(path, json, messages, more) do
    {:ok, store} = SQLite.open(path)

    statement(
      store,
      :script,
      "create table plain (id integer primary key, conversation text, message text)",
      []
    )

    # A parameter comes as bytes.
    insert =
      "insert into plain (conversation, message) select 'c', value from json_each(cast($1 as text)) returning id"

    encode = fn messages ->
      IO.iodata_to_binary(
        json.encode.(for(m <- messages, do: IO.iodata_to_binary(json.encode.(to_plain(m)))))
      )
    end

    {_, cpu, took} = measure(fn -> statement(store, :write, insert, [encode.(messages)]) end)
    size = size(store)

    {_, cpu_more, time} =
      measure(fn ->
        for _ <- 1..@appends, do: statement(store, :write, insert, [encode.(more)])
      end)

    [cpu, took, size, cpu_more / @appends, time / @appends]
  end

  defp to_plain(message), do: message |> Map.take([:role, :content, :tool_calls]) |> plain_value()

  defp plain_value(%{} = map),
    do: Map.new(map, fn {key, value} -> {to_string(key), plain_value(value)} end)

  defp plain_value(list) when is_list(list), do: Enum.map(list, &plain_value/1)
  defp plain_value(other), do: other

  defp statement(store, mode, sql, params) do
    reference = make_ref()
    :ok = SQLite.Native.run(store.ref, {mode, reference}, [sql], params)
    receive do: ({:ash_agent_sqlite, ^reference, {:ok, rows}} -> rows)
  end

  defp size(store) do
    pages = "select page_count * page_size from pragma_page_count(), pragma_page_size()"
    [[[bytes]]] = statement(store, :read, pages, [])
    bytes / 1_000_000
  end
end

AshAgent.Bench.Stores.main()
