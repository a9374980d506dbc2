# Storage: `MIX_ENV=prod mix run bench/storage.exs`.
#
# Three figures: reading a snapshot beside parsing the same text only (serde_json's own values: `cargo bench --package
# ash_agent_context_core --bench snapshot`), writing one beside to_map/1 and jiffy, and a delta of one iteration at
# different lengths.

Code.require_file("support/harness.exs", __DIR__)

alias AshAgent.Bench.Harness
alias AshAgent.Context

at = ~U[2026-01-01 00:00:00.000000Z]

text = fn n ->
  String.pad_trailing("message #{n} ", 2048, "All work and no play makes a dull agent. ")
end

# n messages of 2 KB by turns of the user and the model.
without_calls = fn n ->
  for i <- 2..n, reduce: Context.new(text.(1), at: at) do
    context when rem(i, 2) == 0 -> Context.add_assistant_message(context, text.(i), [], at: at)
    context -> Context.add_user_message(context, text.(i), at: at)
  end
end

# n iterations with one call each.
with_calls = fn n ->
  for i <- 1..n, reduce: Context.new("start", at: at) do
    context ->
      call = %{id: "call_#{i}", name: :search, arguments: %{query: "number #{i}"}}

      context
      |> Context.add_assistant_message(text.(i), [call], at: at)
      |> Context.add_tool_results([{"call_#{i}", {:ok, text.(i)}}], at: at)
  end
end

number = fn value ->
  :erlang.float_to_binary(value * 1.0, decimals: if(value < 10, do: 2, else: 0))
end

verdict = fn reached? -> if reached?, do: "yes", else: "NO" end

IO.puts(Harness.environment())

conversations = [
  {"1000 messages of 2 KB", without_calls.(1000)},
  {"1000 messages of 2 KB with 500 calls", with_calls.(500)}
]

# A library that other applications have; without it the aim cannot be judged.
jiffy? = Code.ensure_loaded?(:jiffy)

plain = fn context ->
  clean = fn clean, term ->
    case term do
      %DateTime{} = time -> DateTime.to_iso8601(time)
      map when is_map(map) -> Map.new(map, fn {key, value} -> {key, clean.(clean, value)} end)
      list when is_list(list) -> Enum.map(list, &clean.(clean, &1))
      {status, value} -> [status, value]
      nil -> :null
      other -> other
    end
  end

  map = Context.to_map(context)
  map = if jiffy?, do: clean.(clean, map), else: map
  {map, fn -> Context.to_map(context) end}
end

IO.puts(
  "\nWriting: to_snapshot/1, beside to_map/1 and :jiffy.encode/1 of its map made JSON data beforehand\n"
)

IO.puts("| conversation | to_map and jiffy | to_snapshot | times faster | aim: 20 |")
IO.puts("|---|---|---|---|---|")

for {name, context} <- conversations, jiffy? do
  {map, to_map} = plain.(context)

  times =
    Harness.compare(
      fn -> Context.to_snapshot(context) end,
      fn ->
        to_map.()
        IO.iodata_to_binary(apply(:jiffy, :encode, [map]))
      end,
      fn snapshot, json -> byte_size(snapshot) > 2_000_000 and byte_size(json) > 2_000_000 end
    )

  IO.puts(
    "| #{name} | #{number.(times.plain)} us | #{number.(times.native)} us | #{number.(1 / times.ratio)} | #{verdict.(times.ratio <= 1 / 20)} |"
  )
end

IO.puts(
  "\nReading: load/1, beside AshAgent.Context.JSON.decode/1 and :jiffy.decode/2 of the same text\n"
)

IO.puts("| conversation | JSON.decode | jiffy | from_snapshot |")
IO.puts("|---|---|---|---|")

for {name, context} <- conversations do
  snapshot = Context.to_snapshot(context)
  read = fn -> Context.load!(snapshot) end
  same? = fn copy, document -> Context.equal?(context, copy) and is_map(document) end
  decode = Harness.compare(read, fn -> Context.JSON.decode!(snapshot) end, same?)

  jiffy =
    if jiffy?,
      do:
        number.(
          Harness.compare(
            read,
            fn -> apply(:jiffy, :decode, [snapshot, [:return_maps]]) end,
            same?
          ).plain
        ),
      else: "-"

  IO.puts(
    "| #{name} | #{number.(decode.plain)} us | #{jiffy} us | #{number.(decode.native)} us |"
  )
end

IO.puts("\nA delta of one iteration: dump(context, since: last), and load/2 of it\n")
IO.puts("| iterations | dump | load |")
IO.puts("|---|---|---|")

deltas =
  for n <- [10, 100, 1000, 10_000], into: %{} do
    stored = with_calls.(n)
    context = Context.add_assistant_message(stored, "done", [], at: at)
    last = context.current_iteration
    delta = Context.dump(context, since: last)

    times =
      Harness.compare(
        fn -> Context.dump(context, since: last) end,
        fn -> Context.load!(stored, delta) end,
        fn dump, loaded ->
          dump == delta and length(dump["iterations"]) == 1 and loaded.current_iteration == last
        end
      )

    IO.puts("| #{n} | #{number.(times.native)} us | #{number.(times.plain)} us |")
    {n, times}
  end

IO.puts(
  "\nthe same at 10 and at 1000 (within 1.5 times): #{verdict.(deltas[1000].native <= 1.5 * deltas[10].native)}"
)
