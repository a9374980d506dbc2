defmodule AshAgent.Test.ReplayTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Runs, only: [drain: 1, prompt: 2]

  import AshAgent.Test, only: [replay: 2]

  alias AshAgent.{Context, LLM, Runtime, Store}
  alias AshAgent.Test.Server

  defp tools(properties) do
    schema = %{"type" => "object", "properties" => properties}
    run = fn _ -> flunk("a tool was called") end
    [%{name: "look", description: "Looks.", parameters: schema, function: run}]
  end

  # Nobody listens there: a request would fail.
  defp llm(opts \\ []), do: client(Server.refused_url(), opts)

  defp client(url, opts),
    do: LLM.Anthropic.new(Keyword.merge([model: "m", base_url: url], opts))

  defp loaded(context), do: context |> Context.to_snapshot() |> Context.load!()

  setup do
    script = [%{tool_calls: [%{id: "a", name: "look", arguments: %{}}]}, "It rains."]
    server = start_supervised!({Server, script: script})
    looking = for tool <- tools(%{}), do: %{tool | function: fn _ -> {:ok, "rain"} end}
    opts = [llm: client(Server.base_url(server), []), tools: looking]
    {:ok, result} = Runtime.run(Context.new("Weather?", system_prompt: "Be kind."), opts)
    %{context: loaded(result.context)}
  end

  test "nothing differs where nothing changed, and nothing is called", %{context: context} do
    assert replay(context, llm: llm(), tools: tools(%{})) == {:same, 2}
    assert replay(context, llm: llm(), tools: tools(%{}), system_prompt: "Be kind.") == {:same, 2}
  end

  for life <- ["fresh", "loaded"],
      how <- ["while the turn runs", "later", "to a call that waits"] do
    test "a conversation with late results, #{life}, that came #{how}, is the same" do
      how = unquote(how)
      {:ok, store} = Store.SQLite.open(":memory:")
      test = self()

      build = fn _, %{arrival_key: key} ->
        send(test, {:key, key})

        if how == "while the turn runs",
          do: {:ok, :kept} = Store.arrive(store, "c", key, {:ok, "green"})

        {:later, deadline: 3_600_000}
      end

      wait =
        if how == "to a call that waits",
          do: [%{tool_calls: [%{id: "w", name: "wait_for", arguments: %{}}]}],
          else: []

      script =
        [%{tool_calls: [%{id: "a", name: "build", arguments: %{}}]}] ++
          wait ++ ["It runs.", "It is green."]

      server = start_supervised!({Server, script: script}, id: :late)

      tools = [
        %{
          name: "build",
          description: "Builds.",
          parameters: %{"type" => "object"},
          function: build,
          late: true
        }
      ]

      {:ok, kept} = Store.create(store, Context.new("Build it", id: "c"), owner: "a")
      opts = [llm: client(Server.base_url(server), []), tools: tools, store: store]
      {:ok, result} = Runtime.run(kept.value, [kept: kept] ++ opts)
      assert_received {:key, key}

      if how != "while the turn runs",
        do: {:ok, :kept} = Store.arrive(store, "c", key, {:ok, "green"})

      {:ok, result} = Runtime.run(result.context, [kept: result.kept] ++ opts)
      assert [%{state: :placed}] = Context.Calls.late_calls(result.context)
      context = if unquote(life) == "loaded", do: loaded(result.context), else: result.context
      requests = length(Server.requests(server))
      assert replay(context, llm: llm(), tools: tools) == {:same, requests}
    end
  end

  test "each change is named with its cause, in every request", %{context: context} do
    city = %{"city" => %{"type" => "string"}}

    for {opts, cause, where} <- [
          {[tools: tools(city)], :tools, "the tool `look` has a new parameter `city`"},
          {[tools: []], :tools, "the tool `look` is gone"},
          {[llm: llm(model: "n")], :field, "the field model"},
          {[llm: llm(max_tokens: 7)], :field, "the field max_tokens"},
          {[llm: llm(body: %{temperature: 0})], :field, "the field temperature"},
          {[stream: false], :field, "the field stream"},
          {[system_prompt: "Be brief."], :system, "the system prompt"}
        ] do
      replayed = replay(context, Keyword.merge([llm: llm(), tools: tools(%{})], opts))
      assert {:different, [%{iteration: 1, differences: [difference]}, second]} = replayed
      assert %{iteration: 2} = second
      assert {difference.cause, difference.where} == {cause, where}
    end
  end

  # An iteration's messages of the user, the conversation as it was sent, and with others in their place.
  for {name, others, words} <- [
        {"the first of three", ~w(two three),
         "message 1 (user): a message or result that was sent here is gone"},
        {"the second of three", ~w(one three),
         "message 2 (user): a message or result that was sent here is gone"},
        {"the last of three", ~w(one two),
         "message 3 (assistant): a message or result that was sent here is gone"},
        {"none, but one more", ~w(one two four three),
         "message 3 (user): the conversation has this, which was not sent"},
        {"another one", ~w(one four three),
         "message 2 (user): the conversation has something else than was sent"}
      ],
      prompt <- [nil, "Be kind."] do
    test "a message that is gone or new is named at its place: #{name}, with the system prompt #{inspect(prompt)}" do
      server = start_supervised!({Server, script: ["Yes.", "Yes."]}, id: :twice)

      said = fn words ->
        [first | rest] = words

        context =
          Context.new(first, if(unquote(prompt), do: [system_prompt: unquote(prompt)], else: []))

        Enum.reduce(rest, context, &Context.add_user_message(&2, &1))
      end

      llm = client(Server.base_url(server), [])
      {:ok, result} = Runtime.run(said.(~w(one two three)), llm: llm)
      assert replay(result, []) == {:same, 1}
      sent = get_in(Context.dump(result.context), ["iterations", Access.at(0), "sent"])

      {:ok, other} = Runtime.run(said.(unquote(others)), llm: llm)
      was = get_in(Context.dump(other.context), ["iterations", Access.at(0), "sent"])

      edited =
        other.context |> Context.to_snapshot() |> String.replace(was, sent) |> Context.load!()

      assert {:different, [%{iteration: 1, differences: [difference]}]} = replay(edited, [])
      assert difference.where =~ "iteration 1, " <> unquote(words)
    end
  end

  test "a request with the schema in its prompt is compared, and so is the schema" do
    server =
      start_supervised!({Server, script: [~s({"a": 5, "b": 1}), ~s({"a": "x"})]}, id: :typed)

    opts = [llm: client(Server.base_url(server), []), output: [a: :string], output_mode: :text]
    {:ok, %{context: context}} = Runtime.run(Context.new("Weather?"), opts)
    assert [%{outcome: :same}, %{outcome: :same}] = Context.Audit.replay(loaded(context))
    assert replay(context, opts) == {:same, 2}

    assert {:different, [first, _second]} =
             replay(context, Keyword.put(opts, :output, a: :integer))

    assert [%{where: "the field output" <> _}] = first.differences

    edited =
      context
      |> Context.to_snapshot()
      |> String.replace("Weather?", "Whether?")
      |> Context.load!()

    assert {:different, [%{iteration: 1} | _]} = replay(edited, [])
  end

  test "without a model, what the messages became is compared, and a version of the package is a cause",
       %{context: context} do
    assert replay(context, []) == {:same, 2}
    document = Context.dump(context)
    [sent | _] = for %{"sent" => sent} <- document["iterations"], do: sent
    [whole, version | _] = String.split(sent, " ")
    {length, digest} = {hd(String.split(whole, "-")), String.reverse(whole)}

    now = "#{length}-#{digest} 0.0.1 - 0"
    other = String.replace(Context.to_snapshot(context), "#{whole} #{version} - ", now)
    replayed = replay(Context.load!(other), [])
    assert {:different, [%{iteration: 1, differences: [difference]} | _]} = replayed
    assert difference.cause == :version

    assert to_string(difference) ==
             "iteration 1, message 1 (user): version 0.0.1 of the package sent it otherwise: it has \"Weather?\""

    # What a mask keeps from people is kept from this, too.
    masked = other |> Context.load!() |> Context.View.put_masks([{"Weather", "..."}])
    assert {:different, [%{differences: [difference]} | _]} = replay(masked, [])
    assert difference.is == nil
  end

  test "options of how a request is encoded are named, and those of then are used" do
    server = start_supervised!({Server, script: ["Hi", "Ho"]}, id: :cached)
    marked = [request: [cache: :auto]]

    {:ok, %{context: context}} = prompt("Hello", llm: client(Server.base_url(server), marked))

    context = loaded(context)
    assert replay(context, llm: llm(marked)) == {:same, 1}
    assert {:different, [%{differences: [difference]}]} = replay(context, llm: llm())
    assert to_string(difference) =~ "the field cache"
    assert replay(context, []) == {:same, 1}
  end

  test "where digests alone are kept, they are compared" do
    server = start_supervised!({Server, script: ["Hi", "Ho"]}, id: :hashed)
    own = [body: %{temperature: 1}]

    for tools <- [tools(%{}), []] do
      opts = [llm: client(Server.base_url(server), own), tools: tools, request_notes: :hashes]
      {:ok, %{context: context}} = prompt("Hello", opts)
      context = loaded(context)
      assert replay(context, llm: llm(own), tools: tools) == {:same, 1}
      city = tools(%{"city" => %{"type" => "string"}})

      assert {:different, [%{differences: [%{cause: :tools, where: "the tool `look`" <> _}]}]} =
               replay(context, llm: llm(own), tools: city)

      assert {:different, [%{differences: [%{where: "the field temperature"}]}]} =
               replay(context, llm: llm(body: %{temperature: 2}), tools: tools)
    end
  end

  test "rules about tools and types of answers are those of a run" do
    server = start_supervised!({Server, script: [~s({"city":"Oslo"})]}, id: :typed)
    opts = [tools: tools(%{}), allowed_tools: [], output: [city: :string]]

    llm = client(Server.base_url(server), [])
    {:ok, %{context: context}} = prompt("Where?", [llm: llm] ++ opts)
    assert {:same, 1} = replay(context, [llm: llm()] ++ opts)

    for {changed, cause} <- [
          {[allowed_tools: ["look"]], :tools},
          {[output: [town: :string]], :field},
          {[output_mode: :text], :field}
        ] do
      assert {:different, [%{differences: differences}]} =
               replay(context, [llm: llm()] ++ Keyword.merge(opts, changed))

      assert cause in Enum.map(differences, & &1.cause), inspect({changed, differences})
    end
  end

  test "views of today are compared with those of then" do
    result = %{tool_calls: [%{name: "look", arguments: %{}}]}

    script = List.duplicate(result, 6) ++ ["Done"]
    server = start_supervised!({Server, script: script}, id: :views)
    rain = fn _ -> {:ok, String.duplicate("rain ", 50)} end
    looking = for tool <- tools(%{}), do: %{tool | function: rain}

    clear = fn keep ->
      fn context, _needs -> {:ok, Context.View.clear_tool_results(context, keep: keep)} end
    end

    opts = [llm: client(Server.base_url(server), []), tools: looking, view: [clear.(2)]]
    {:ok, %{context: context}} = prompt("Weather?", opts)
    context = loaded(context)
    today = [llm: llm(), tools: tools(%{})]

    assert replay(context, today) == {:same, 7}
    assert replay(context, [view: [clear.(2)]] ++ today) == {:same, 7}

    assert {:different, [%{iteration: 3, differences: [difference]} | _]} =
             replay(context, [view: [clear.(1)]] ++ today)

    assert %{cause: :view, where: "the view of today clears other results" <> _} = difference

    failing = fn _context, _needs -> {:error, :down} end

    assert {:different, [%{iteration: 1, differences: [%{where: words}]} | _]} =
             replay(context, [view: [failing]] ++ today)

    assert words =~ "the view of today cannot be made"
  end

  test "no connection is opened, which would be seen", %{context: context} do
    for {module, function} <- [gen_tcp: :connect, gen_udp: :open, ssl: :connect, socket: :open] do
      Code.ensure_loaded!(module)
      :erlang.trace_pattern({module, function, :_}, true, [])
    end

    {answer, traced} =
      trace(fn -> replay(context, llm: llm(), tools: tools(%{}), system_prompt: "Be kind.") end)

    assert answer == {:same, 2}
    assert traced == []

    {{:error, _nobody_listens}, traced} =
      trace(fn -> LLM.chat(llm(max_retries: 0), Context.new("Hi")) end)

    assert [{:gen_tcp, :connect, _arguments} | _] = traced
  end

  # What a process and those that it starts call of that.
  defp trace(fun) do
    task = Task.async(fn -> receive(do: (:go -> fun.())) end)
    :erlang.trace(task.pid, true, [:call, :set_on_spawn])
    send(task.pid, :go)
    answer = Task.await(task, :infinity)
    reference = :erlang.trace_delivered(:all)
    assert_receive {:trace_delivered, :all, ^reference}, 60_000
    {answer, traced()}
  end

  defp traced, do: drain(do: ({:trace, _pid, :call, called} -> called))

  test "a conversation without notes of its requests is not comparable" do
    context = Context.new("Hi") |> Context.add_assistant_message("Hello!")
    assert replay(context, llm: llm()) == :not_comparable
  end
end
