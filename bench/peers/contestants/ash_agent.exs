alias AshAgent.{Context, LLM, Runtime}

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

IO.puts("ready")

for line <- IO.stream(:stdio, :line) do
  [what | numbers] = String.split(line)
  [first | rest] = Enum.map(numbers, &String.to_integer/1)

  case what do
    "turns" ->
      turns.(first)

    "many" ->
      1..first
      |> Enum.map(fn _ -> Task.async(fn -> turns.(hd(rest)) end) end)
      |> Task.await_many(:infinity)

    _pieces ->
      stream.("#{what}-#{first}")
  end

  IO.puts("done")
end
