Code.require_file("base.exs", __DIR__)

alias AshAgent.{Context, LLM, Runtime, Store}

{:ok, _} = Application.ensure_all_started(:ash_agent_runtime)
[url] = System.argv()

search = %{
  description: "Searches",
  function: fn %{"query" => query} -> {:ok, "found " <> query} end,
  parameters: %{
    "type" => "object",
    "properties" => %{"query" => %{"type" => "string"}},
    "required" => ["query"]
  }
}

llm = &LLM.OpenAICompatible.new(base_url: url, model: &1, api_key: "key")

turns = fn count ->
  # The others do not stream here, either.
  own = [llm: llm.("turns-#{count - 1}"), max_iterations: count + 1, stream: false]
  opts = own ++ [tools: %{search: search}]
  {:ok, %{output: "Done."}} = Runtime.run(Context.new("Look around."), opts)
end

# Somebody hears each piece, as with the others.
stream = fn model ->
  heard = fn _name, _measured, _metadata -> :ok end
  {:ok, _} = Runtime.run(Context.new("Go on."), llm: llm.(model), stream: true, on_event: heard)
end

words = fn n, count ->
  Enum.map_join(1..count, " ", &"word#{rem(&1 * (n + 7) * 7919, 5_003)}")
end

parts = fn n ->
  arguments = ~s({"path":"lib/file_#{n}.ex","text":"#{words.(n, 60)}"})
  call = %{id: "call_#{n}", name: "read_file", arguments: arguments}
  {call, words.(n, 200), words.(n + 1, 700), words.(n + 2, 200), words.(n + 3, 100)}
end

turn = fn {call, thought, result, answer, question}, context ->
  context
  |> Context.add_assistant_message(thought, [call])
  |> Context.add_tool_results([{call.id, {:ok, result}}])
  |> Context.add_assistant_message(answer)
  |> Context.add_user_message(question)
end

{:ok, store} = Store.SQLite.open(System.get_env("PEERS_FILE", ":memory:"))

prepare = fn conversations, appends ->
  ready =
    for _ <- 1..conversations,
        do: Enum.reduce(1..125, Context.new("Begin."), &turn.(parts.(&1), &2))

  Process.put(:saves, {ready, Enum.map(126..(125 + appends), parts)})
  :erlang.garbage_collect()
end

save = fn ->
  {ready, more} = Process.get(:saves)

  kept =
    for context <- ready, reduce: nil do
      _ ->
        {:ok, kept} = Store.create(store, context)
        kept
    end

  Process.put(:saves, {kept, more})
end

append = fn ->
  {kept, more} = Process.get(:saves)

  Enum.reduce(more, kept, fn parts, kept ->
    {:ok, kept} = Store.append(store, kept, turn.(parts, kept.value))
    kept
  end)
end

# The index is written behind the saves: a search writes what is left.
settle = fn -> {:ok, %{behind: 0}} = Store.search(store, "nothing") end

store = %{"prepare" => prepare, "save" => save, "append" => append, "settle" => settle}
Peers.serve(turns, stream, store)
