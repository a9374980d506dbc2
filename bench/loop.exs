# What the loop costs beside the bare loop that somebody would write: CPU time of this VM, with the model in another process
# of the system (bench/peers).
#
#     cd packages/ash_agent_runtime && ELIXIR_ERL_OPTIONS="+sbwt none +sbwtdcpu none +sbwtdio none" \
#       MIX_ENV=prod mix run ../../bench/loop.exs
#
# The bare loop uses our transport and a JSON library, keeps maps, and does everything in one process. Both send the same
# messages and the same tools, and get the same bytes: an answer is a stream only where the row is about one. Schedulers that
# wait actively would count as work, so they do not. Two rows have a transport without a network: beside each other, they show
# what it costs that the processor has slept, however short.

Code.require_file("support/harness.exs", __DIR__)
Code.require_file("support/json_libraries.exs", __DIR__)
Code.require_file("support/loopback.exs", __DIR__)

defmodule AshAgent.Bench.Answers do
  @moduledoc "A transport that answers as the server of `bench/peers` does, after a pause of so many milliseconds, or at once."
  @behaviour AshAgent.LLM.Transport

  @impl true
  def stream(_request, acc, fun, opts) do
    number = Process.get(__MODULE__, 0)
    Process.put(__MODULE__, if(number == opts[:calls], do: 0, else: number + 1))
    if opts[:pause] > 0, do: Process.sleep(opts[:pause])
    {:cont, acc} = fun.({:head, 200, [{"content-type", "application/json"}]}, acc)
    {_, acc} = fun.({:data, answer(message(number, opts[:calls]))}, acc)
    {:ok, acc}
  end

  defp message(calls, calls), do: {~s({"role":"assistant","content":"Done."}), "stop"}

  defp message(number, _calls) do
    arguments = ~S({\"query\":\"number ) <> "#{number}" <> ~S(\"})
    function = ~s({"name":"search","arguments":"#{arguments}"})
    call = ~s({"id":"call_#{number}","type":"function","function":#{function}})
    {~s({"role":"assistant","content":null,"tool_calls":[#{call}]}), "tool_calls"}
  end

  defp answer({message, reason}) do
    ~s({"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":#{message},) <>
      ~s("finish_reason":"#{reason}"}],"usage":{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110}})
  end
end

defmodule AshAgent.Bench.Loop do
  @moduledoc false

  alias AshAgent.Bench.{Answers, Harness, JSONLibraries, Loopback}
  alias AshAgent.{Context, LLM, Runtime}
  alias AshAgent.LLM.Transport.{HTTP1, Request}

  @repeats if Harness.quick?(), do: 3, else: 9
  # Turns of one measurement.
  @turns if Harness.quick?(), do: 200, else: 2_000

  def main do
    url = Loopback.start()
    json = hd(Enum.filter(JSONLibraries.all(), &(&1.module == Jason)) ++ JSONLibraries.all())
    IO.puts("#{Harness.environment()}; the bare loop uses #{json.name}\n")
    IO.puts("| CPU | bare loop, us | ours, us | ratio | spread |\n|---|--:|--:|--:|--:|")

    for turns <- [10, 50, 200], do: row("a turn of #{turns}", url, json, turns, 1)
    for tools <- [51, 101], do: row("a turn of 50, #{tools} tools", url, json, 50, tools)

    for {name, pause} <- [{"at once", 0}, {"after a millisecond", 1}] do
      transport = {Answers, calls: 49, pause: pause}
      row("a turn of 50, answered #{name}", url, json, 50, 1, transport: transport)
    end

    for turns <- [10, 50],
        do:
          row("client and context alone: a turn of #{turns}", url, json, turns, 1, ours: &alone/4)

    pieces = if Harness.quick?(), do: 500, else: 2_000

    stream = fn name, pieces, times ->
      compare(
        name,
        pieces * times,
        fn ->
          for _ <- 1..times, do: bare_stream(url, json, "#{name_of(name)}-#{pieces}")
        end,
        fn -> for _ <- 1..times, do: our_stream(url, "#{name_of(name)}-#{pieces}") end
      )
    end

    stream.("pieces: a piece of a fast stream", 20_000, 4)
    stream.("paced: a piece a millisecond", pieces, 1)
  end

  defp name_of(name), do: name |> String.split(":") |> hd()

  defp row(name, url, json, turns, tools, opts \\ []) do
    transport = opts[:transport] || {HTTP1, keep_alive: 30_000}
    ours = opts[:ours] || (&ours/4)
    times = max(1, div(@turns, turns))
    tools = tools(tools)
    offered = offered(tools)

    compare(
      name,
      times * turns,
      fn -> for _ <- 1..times, do: bare(url, json, turns, offered, transport) end,
      fn -> for _ <- 1..times, do: ours.(url, turns, tools, transport) end
    )
  end

  defp compare(name, count, bare, ours) do
    bare.()
    ours.()

    times =
      for _ <- 1..@repeats do
        {cpu(bare) / count, cpu(ours) / count}
      end

    {bare, ours} = Enum.unzip(times)
    median = Harness.median(for {bare, ours} <- times, do: ours / bare)
    spread = "#{round((Enum.max(ours) - Enum.min(ours)) / Harness.median(ours) * 100)} %"
    figures = [Harness.median(bare), Harness.median(ours), median]
    shown = Enum.map_join(figures, " | ", &:erlang.float_to_binary(&1, decimals: 2))
    IO.puts("| #{name} | #{shown} | #{spread} |")
  end

  # Microseconds of all threads of this VM.
  defp cpu(fun) do
    :erlang.garbage_collect()
    before = runtime()
    fun |> Task.async() |> Task.await(:infinity)
    runtime() - before
  end

  # The VM counts in steps of 10 ms, Linux in nanoseconds.
  defp runtime do
    case Path.wildcard("/proc/self/task/*/schedstat") do
      [] ->
        {milliseconds, _} = :erlang.statistics(:runtime)
        milliseconds * 1000

      threads ->
        # A thread is counted as far as it has stopped.
        Process.sleep(1)

        nanoseconds =
          for thread <- threads, do: thread |> File.read!() |> Integer.parse() |> elem(0)

        Enum.sum(nanoseconds) / 1000
    end
  end

  ## The same tools for both

  defp tools(count) do
    search = %{
      name: "search",
      description: "Searches",
      function: fn %{"query" => query} -> {:ok, "found " <> query} end,
      parameters: %{
        "type" => "object",
        "properties" => %{"query" => %{"type" => "string"}},
        "required" => ["query"]
      }
    }

    others = for n <- 2..count//1, do: mcp_tool(n)
    [search | others]
  end

  # As those of MCP servers are: a sentence for each, and five parameters.
  defp mcp_tool(n) do
    words =
      "Does what tool #{n} does, with the file, the issue or the page that its arguments name. "

    properties =
      for p <- 1..5,
          into: %{},
          do: {"parameter_#{p}", %{"type" => "string", "description" => words}}

    %{
      name: "tool_#{n}",
      description: words <> words,
      function: fn _ -> {:ok, "done"} end,
      parameters: %{"type" => "object", "properties" => properties, "required" => ["parameter_1"]}
    }
  end

  defp offered(tools) do
    for tool <- tools do
      function = Map.take(tool, [:name, :description, :parameters])
      %{"type" => "function", "function" => Map.new(function, fn {k, v} -> {to_string(k), v} end)}
    end
  end

  ## The bare loop

  defp bare(url, json, turns, tools, transport) do
    body = %{"model" => "turns-#{turns - 1}", "tools" => tools}
    iterate(url, json, body, transport, [%{"role" => "user", "content" => "Look around."}])
  end

  defp iterate(url, json, body, {module, opts} = transport, messages) do
    sent = json.encode.(Map.put(body, "messages", Enum.reverse(messages)))

    take = fn
      {:data, data}, acc -> {:cont, [acc | data]}
      _head, acc -> {:cont, acc}
    end

    {:ok, answer} = module.stream(request(url, sent), [], take, opts)
    %{"choices" => [%{"message" => message}]} = json.decode.(IO.iodata_to_binary(answer))

    case message do
      %{"tool_calls" => [%{"id" => id, "function" => %{"arguments" => arguments}}]} ->
        %{"query" => query} = json.decode.(arguments)
        result = %{"role" => "tool", "tool_call_id" => id, "content" => "found " <> query}
        iterate(url, json, body, transport, [result, message | messages])

      %{"content" => text} ->
        text
    end
  end

  defp request(url, body) do
    headers = fn -> [{"content-type", "application/json"}, {"authorization", "Bearer key"}] end
    uri = URI.parse(url <> "/chat/completions")
    %Request{method: "POST", uri: uri, headers: headers, body: body}
  end

  defp bare_stream(url, json, model) do
    messages = [%{"role" => "user", "content" => "Go on."}]
    sent = json.encode.(%{"model" => model, "stream" => true, "messages" => messages})

    take = fn
      {:data, data}, {rest, text} ->
        {:cont, read_events(:binary.split(rest <> data, "\n\n", [:global]), text, json)}

      _head, acc ->
        {:cont, acc}
    end

    {:ok, {"", text}} = HTTP1.stream(request(url, sent), {"", []}, take, keep_alive: 30_000)
    IO.iodata_to_binary(text)
  end

  defp read_events([rest], text, _json), do: {rest, text}
  defp read_events(["data: [DONE]" | events], text, json), do: read_events(events, text, json)

  defp read_events(["data: " <> event | events], text, json) do
    case json.decode.(event) do
      %{"choices" => [%{"delta" => %{"content" => piece}}]} ->
        read_events(events, [text | piece], json)

      _other ->
        read_events(events, text, json)
    end
  end

  ## Ours

  defp ours(url, turns, tools, transport) do
    heard = fn _name, _measured, _metadata -> :ok end
    llm = llm(url, "turns-#{turns - 1}", transport: transport)
    opts = [llm: llm, tools: tools, max_iterations: turns + 1, stream: false, on_event: heard]
    {:ok, %{output: "Done."}} = Runtime.run(Context.new("Look around."), opts)
  end

  # What no loop around them could be cheaper than: our client and context alone, in one process, as the bare loop is.
  defp alone(url, turns, tools, transport) do
    {module, opts} = llm(url, "turns-#{turns - 1}", transport: transport)
    opened = LLM.Client.open(module, [tools: tools] ++ opts, :chat)
    go_on(opened, Context.new("Look around."))
  end

  defp go_on(opened, context) do
    {:ok, response} = LLM.Client.ask(opened, context, [], fn _events, _response -> :ok end)
    {:ok, context} = Context.add_response(context, response)

    case Context.pending_tool_calls(context) do
      [] ->
        context

      [%{id: id, arguments: %{"query" => query}}] ->
        go_on(opened, Context.add_tool_results(context, [{id, {:ok, "found " <> query}}]))
    end
  end

  defp our_stream(url, model) do
    opts = [
      llm: llm(url, model),
      stream: true,
      on_event: fn _name, _measured, _metadata -> :ok end
    ]

    {:ok, %{output: "word " <> _}} = Runtime.run(Context.new("Go on."), opts)
  end

  defp llm(url, model, more \\ []),
    do: LLM.OpenAICompatible.new([base_url: url, model: model, api_key: "key"] ++ more)
end

AshAgent.Bench.Loop.main()
