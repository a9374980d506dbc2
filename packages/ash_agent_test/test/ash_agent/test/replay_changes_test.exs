defmodule AshAgent.Test.ReplayChangesTest do
  # Runs of all clients against a server, stored. A thousand times one thing is changed, in what is kept or in today's code: it is found
  # and named at the right place. What is not changed is not.
  use ExUnit.Case, async: true

  import AshAgent.Test, only: [replay: 2]

  alias AshAgent.{Context, Runtime, Store}
  alias AshAgent.Context.JSON
  alias AshAgent.Test.Server
  alias AshAgent.TestSupport.Clients

  @clients Clients.modules()
  @changes 1_000

  setup_all do
    :rand.seed(:exsss, ExUnit.configuration()[:seed])
    %{runs: for({provider, _client} <- @clients, _run <- 1..2, do: run(provider))}
  end

  ## Runs

  defp run(provider) do
    turns = 1 + :rand.uniform(2)
    script = Enum.flat_map(1..turns, fn turn -> calls(turn) ++ ["Answer #{word()}"] end)
    opts = if provider == :mistral, do: [provider: :mistral], else: []
    {:ok, server} = Server.start_link([script: script] ++ opts)
    own = %{"temperature" => :rand.uniform(9), "top_p" => :rand.uniform(9)}
    today = %{provider: provider, body: own, tools: for(n <- 1..2, do: tool(n))}

    context =
      Enum.reduce(1..turns, nil, fn turn, before ->
        context =
          if before,
            do: before |> Context.add_user_message("Question #{word()}") |> look(turn),
            else: Context.new("Question #{word()}", system_prompt: "Be #{word()}.")

        opts = [llm: client(today, Server.base_url(server)), tools: tools(today, &answer/1)]
        {:ok, result} = Runtime.run(context, opts)
        result.context
      end)

    GenServer.stop(server)
    Map.put(today, :snapshot, Context.to_snapshot(context))
  end

  # Some views change in the course of a conversation.
  defp look(context, turn) do
    case rem(turn + :rand.uniform(2), 4) do
      0 -> context
      1 -> Context.View.clear_tool_results(context, keep: 1)
      2 -> Context.View.put_prompt_block(context, :note, "Note #{word()}")
      3 -> Context.View.put_max_result_bytes(context, 100)
    end
  end

  defp calls(turn) do
    for round <- 1..:rand.uniform(3) do
      %{
        content: "Step #{word()}",
        tool_calls:
          for(
            n <- 1..:rand.uniform(3),
            do: %{id: "call_#{turn}_#{round}_#{n}", name: "tool_1", arguments: %{"q" => word()}}
          )
      }
    end
  end

  defp tool(n) do
    properties =
      for p <- 1..2, into: %{}, do: {"p#{p}", %{"type" => "string", "description" => word()}}

    %{
      name: "tool_#{n}",
      description: "Does #{word()}.",
      parameters: %{"type" => "object", "properties" => properties}
    }
  end

  defp tools(today, function),
    do: for(tool <- today.tools, do: Map.put(tool, :function, function))

  defp answer(%{"q" => q}),
    do: {:ok, "Found #{q} and #{word()}" <> String.duplicate(".", 50 * :rand.uniform(4))}

  defp never(_arguments), do: flunk("a tool was called")

  defp client(today, url) do
    own = if today.provider == :bedrock, do: [region: "eu-central-1"], else: []

    @clients[today.provider].new(
      [model: "m", base_url: url, api_key: "k", body: today.body] ++ own
    )
  end

  defp today(run), do: [llm: client(run, Server.refused_url()), tools: tools(run, &never/1)]

  defp word, do: for(_ <- 1..(3 + :rand.uniform(5)), into: "", do: <<Enum.random(?a..?z)>>)

  ## Changes

  test "each of 1,000 changes is found, and named where it is", %{runs: runs} do
    for _ <- 1..@changes do
      run = Enum.random(runs)
      kind = Enum.random([:message, :message, :schema, :option, :view])
      {changed, today, {number, cause, where}} = change(kind, run)
      found = changed |> Context.load!() |> replay(today)

      assert {:different, [%{iteration: ^number, differences: [difference]} | rest]} = found,
             inspect({run.provider, kind, number, where, found})

      assert difference.cause == cause and difference.where =~ where,
             inspect({run.provider, kind, where, found})

      # What differs only as it does is not told again.
      if kind in [:message, :view], do: assert(rest == [])
    end
  end

  test "what is not changed is the same, however it is stored", %{runs: runs} do
    {:ok, store} = Store.SQLite.open(":memory:")

    for run <- runs do
      context = Context.load!(run.snapshot)
      assert {:same, count} = replay(context, today(run))
      {:ok, kept} = Store.create(store, context)
      {:ok, fetched} = Store.fetch(store, kept.id)
      going_on = Context.add_user_message(context, "And now?")

      for other <- [
            context |> Context.dump() |> JSON.encode() |> Context.load!(),
            fetched.value,
            Context.fork(context),
            going_on,
            going_on
            |> Context.View.put_max_result_bytes(100)
            |> Context.View.clear_tool_results(keep: 0)
          ] do
        assert replay(other, today(run)) == {:same, count}
        assert replay(other, []) == {:same, count}
      end

      assert {:same, one} = replay(Context.rewind(context, to: 1), today(run))
      assert one == 1
    end
  end

  # A text of a message, or a result, of those that were sent.
  defp change(:message, run) do
    document = JSON.decode!(run.snapshot)
    last = List.last(document["iterations"])["number"]

    places =
      for %{"number" => number, "messages" => messages} <- document["iterations"],
          {message, at} <- Enum.with_index(messages),
          # The last answer was never sent.
          message["role"] == "user" or number < last or at + 1 < length(messages),
          text <- texts(message),
          do: {number, at, message, text}

    {number, at, message, {text, call}} = Enum.random(places)
    another = text <> word()
    changed = String.replace(run.snapshot, JSON.encode(text), JSON.encode(another))

    # A question is sent in its own iteration, everything else with the next one.
    sent_in = if message["role"] == "user", do: number, else: next(document, number, at)

    where =
      if call,
        do: "iteration #{number}, tool result of #{call}",
        else: "iteration #{number}, message #{at + 1} (#{message["role"]})"

    {changed, today(run), {sent_in, :message, where}}
  end

  defp change(:schema, run) do
    [first | others] = run.tools
    property = Enum.random(["p1", "p2"])

    {tool, where} =
      Enum.random([
        {%{first | description: first.description <> word()}, "the tool `tool_1`, description"},
        {put_in(first, [:parameters, "properties", property, "description"], word() <> "!"),
         "parameter `#{property}`"},
        {put_in(first, [:parameters, "properties", "new"], %{"type" => "integer"}),
         "the tool `tool_1` has a new parameter `new`"}
      ])

    {run.snapshot, today(%{run | tools: [tool | others]}), {1, :tools, where}}
  end

  defp change(:option, run) do
    name = Enum.random(["temperature", "top_p"])
    body = Map.update!(run.body, name, &(&1 + 1))
    {run.snapshot, today(%{run | body: body}), {1, :field, "the field #{name}"}}
  end

  # The view of some request, from which on it is another one.
  defp change(:view, run) do
    document = JSON.decode!(run.snapshot)

    noted =
      for %{"number" => number} = one <- document["iterations"],
          is_map_key(one, "sent"),
          do: number

    number = Enum.random(noted)
    view = %{"covers" => [], "blocks" => [%{"name" => "other", "text" => word()}]}

    # Only this request has it.
    iterations =
      for one <- document["iterations"] do
        cond do
          one["number"] == number -> Map.put(one, "view", view)
          one["number"] == number + 1 -> Map.put_new(one, "view", view_at(document, number))
          true -> one
        end
      end

    changed = JSON.encode(%{document | "iterations" => iterations})
    {changed, today(run), {number, :view, "the view is kept otherwise"}}
  end

  defp view_at(document, number) do
    document["iterations"]
    |> Enum.filter(&(&1["number"] <= number and is_map_key(&1, "view")))
    |> List.last()
    |> Map.fetch!("view")
  end

  defp texts(message) do
    content = for text <- List.wrap(message["content"]), is_binary(text), do: {text, nil}

    results =
      for %{"id" => id, "result" => %{"value" => text}} <- message["tool_calls"] || [],
          do: {text, id}

    content ++ results
  end

  # The next iteration that a request was made in.
  defp next(document, number, _at) do
    document["iterations"]
    |> Enum.map(& &1["number"])
    |> Enum.find(&(&1 > number))
  end
end
