defmodule AshAgent.MCP.TasksTest do
  # A call that a server answers with a task waits as any call whose result comes later.
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.McpClient, only: [page: 1, server: 3, text: 1, tool: 1]
  import AshAgent.TestSupport.StoredSessions, only: [sqlite: 0]
  import AshAgent.TestSupport.Wait, only: [until: 1]

  alias AshAgent.{Context, LLM, MCP, Runtime, Sessions, Store}
  alias AshAgent.Context.Calls
  alias AshAgent.TestSupport.McpClient

  @moduletag :capture_log

  setup do: {:ok, store: sqlite(), server: start_supervised!({Agent, fn -> %{asked: []} end})}

  # A server whose only tool starts a task. What it says of the task is put by `say/3`, and what it was asked is kept.
  defp fake(server, extra \\ %{}) do
    test = self()

    %{
      list: fn _cursor -> {:ok, Map.put(page([tool("build")]), :tasks?, true)} end,
      call: fn _name, arguments, _progress, [offers: offers, answers: %{}] ->
        offers = offers -- [:questions]
        send(test, {:called, arguments, offers})
        call(Agent.get(server, & &1), offers)
      end,
      task: fn method, %{"taskId" => task} = params ->
        if method == "update", do: send(test, {:updated, params["inputResponses"]})

        Agent.get_and_update(server, fn state ->
          {Map.get(state, task, {:ok, %{"taskId" => task, "status" => "working"}}),
           Map.update!(state, :asked, &[{method, task} | &1])}
        end)
      end
    }
    |> Map.merge(extra)
  end

  defp call(%{answer: answer}, _offers), do: answer
  defp call(_state, []), do: text("at once")
  defp call(_state, [:tasks]), do: task("t1")

  defp task(id, more \\ %{}) do
    own = %{"taskId" => id, "status" => "working", "ttlMs" => 3_600_000, "pollIntervalMs" => 100}
    {:task, Map.merge(own, more)}
  end

  defp say(server, task, answer),
    do: Agent.update(server, &Map.put(&1, task, {:ok, Map.put(answer, "taskId", task)}))

  defp completed(text),
    do: %{
      "status" => "completed",
      "result" => %{"content" => [%{"type" => "text", "text" => text}]}
    }

  defp asked(server), do: server |> Agent.get(& &1.asked) |> Enum.reverse()

  defp mcp(fake, tasks, keys \\ %{}) do
    id = make_ref()
    name = :"mcp#{System.unique_integer([:positive])}"

    opts = [
      servers: [server("ci", fake, Map.drop(keys, [:as, :questions]))],
      client: McpClient,
      tasks: tasks,
      questions: keys[:questions],
      name: keys[:as] || name
    ]

    start_supervised!({MCP, opts}, id: id)
    {opts[:name], id}
  end

  defp model do
    fn context ->
      text = inspect(Context.to_messages(context), limit: :infinity)

      cond do
        text =~ "RESULT" ->
          {:ok, %{content: "It has come."}}

        not (text =~ "id: \"a\"") ->
          {:ok, %{tool_calls: [%{id: "a", name: "ci__build", arguments: %{}}]}}

        true ->
          {:ok, %{content: "I started it."}}
      end
    end
  end

  defp sessions(store, tools) do
    name = :"mcp_tasks#{System.unique_integer([:positive])}"
    opts = [name: name, store: store, llm: model(), tools: tools, recover: :infinity]
    start_supervised!({Sessions, opts}, id: name)
    name
  end

  defp run(nil, id, opts), do: Runtime.run(Context.new("Go", id: id), opts)

  defp run(store, id, opts) do
    context = Context.new("Go", id: id)
    {:ok, kept} = Store.create(store, context)
    Runtime.run(context, opts ++ [store: store, kept: kept])
  end

  defp last(store) do
    {:ok, kept} = Store.fetch(store, "c")
    List.last(Context.to_messages(kept.value)).content
  end

  defp result(store) do
    {:ok, kept} = Store.fetch(store, "c")
    [call] = Enum.filter(Calls.late_calls(kept.value), &(&1.id == "a"))
    {call.state, Calls.tool_call_status(kept.value, "a")}
  end

  test "the turn goes on, and the result begins one, also when the servers were started again", %{
    store: store,
    server: server
  } do
    fake = fake(server)
    {mcp, id} = mcp(fake, store, %{as: :mcp_again})
    tools = fn -> MCP.tools(mcp) end
    name = sessions(store, tools)
    assert {:ok, %{output: "I started it."}} = Sessions.prompt(name, "c", "Build it")
    assert_received {:called, %{}, [:tasks]}
    assert {:ok, %{calls: [waiting]}} = Sessions.waiting(store, for: "mcp:ci")
    assert waiting.for == %{for: "mcp:ci", task: "t1", every: 100, who: %{}}
    assert DateTime.diff(waiting.deadline, DateTime.utc_now()) in 3_500..3_600
    until(fn -> {"get", "t1"} in asked(server) end)
    :ok = stop_supervised!(id)
    mcp(fake, name, %{as: :mcp_again})
    say(server, "t1", completed("RESULT"))
    until(fn -> last(store) == "It has come." end)
    assert result(store) == {:placed, :ok}
    refute {"cancel", "t1"} in asked(server)
    refute_received {:called, _, _}
  end

  test "how a task ends is how the call ends, in words", %{store: store, server: server} do
    failed = %{
      "status" => "failed",
      "error" => %{"code" => -32_000, "message" => "RESULT no disk"}
    }

    error = put_in(completed("RESULT no"), ["result", "isError"], true)

    for {answer, status, words} <- [
          {{:ok, completed("RESULT")}, :ok, "RESULT"},
          {{:ok, error}, :error, "RESULT no"},
          {{:ok, failed}, :error, ~s(the MCP server "ci" answered with an error: RESULT no disk)},
          {{:ok, %{"status" => "cancelled"}}, :error, ~s(the MCP server "ci" cancelled the task)},
          {{:gone, "does not know the task"}, :unknown,
           ~s(the MCP server "ci" does not know the task, and whether it did its work is not known)}
        ] do
      id = "c#{System.unique_integer([:positive])}"
      {mcp, mcp_id} = mcp(fake(server), store)
      answer = with {:ok, map} <- answer, do: {:ok, Map.put(map, "taskId", "t1")}
      Agent.update(server, &Map.put(&1, "t1", answer))
      name = sessions(store, fn -> MCP.tools(mcp) end)
      assert {:ok, _} = Sessions.prompt(name, id, "Build it")
      until(fn -> match?({:ok, [_]}, Store.arrivals(store, id)) end)
      {:ok, [arrival]} = Store.arrivals(store, id)
      assert arrival.outcome == {status, words}
      assert arrival.from == "mcp:ci"
      :ok = stop_supervised!(mcp_id)
    end
  end

  defp asks(id) do
    form = %{
      "type" => "object",
      "properties" => %{"n" => %{"type" => "integer"}},
      "required" => ["n"]
    }

    params = %{"message" => "How many?", "requestedSchema" => form}
    request = %{"method" => "elicitation/create", "params" => params}
    %{"status" => "input_required", "inputRequests" => %{id => request}}
  end

  test "what a task asks is answered by a person, as often as it asks, and after a restart", %{
    store: store,
    server: server
  } do
    fake = fake(server)
    opts = %{as: :mcp_asking, questions: :ask}
    {mcp, id} = mcp(fake, store, opts)
    name = sessions(store, fn -> MCP.tools(mcp) end)
    say(server, "t1", asks("q1"))
    assert {:ok, %{output: "I started it."}} = Sessions.prompt(name, "c", "Build it")
    until(fn -> MCP.questions(mcp) != [] end)
    :ok = stop_supervised!(id)
    mcp(fake, name, opts)
    until(fn -> MCP.questions(mcp) != [] end)

    assert [%{id: "c", key: key, server: "ci", question: "How many?", form: form}] =
             MCP.questions(mcp)

    assert form["required"] == ["n"]
    assert {:error, %Context.Error{}} = MCP.answer(mcp, key, %{"n" => "x"})
    assert {:error, %Context.Error{}} = Sessions.answer(name, "c", "a", %{"n" => "x"})
    assert {:error, %MCP.Error{reason: :no_question}} = MCP.answer(mcp, "other", %{"n" => 1})
    # By the call, as any question, and by the key.
    assert :ok = Sessions.answer(name, "c", "a", %{"n" => "1"})
    assert_receive {:updated, %{"q1" => %{"action" => "accept", "content" => %{"n" => 1}}}}
    # It takes a moment to know it.
    Process.sleep(300)
    assert MCP.questions(mcp) == []
    assert {:error, %MCP.Error{reason: :no_question}} = MCP.answer(mcp, key, %{"n" => 1})
    say(server, "t1", asks("q2"))
    until(fn -> MCP.questions(mcp) != [] end)
    assert :ok = MCP.answer(mcp, key, :decline)
    assert_receive {:updated, %{"q2" => %{"action" => "decline"}}}
    say(server, "t1", completed("RESULT"))
    until(fn -> last(store) == "It has come." end)
    refute_received {:updated, _}
  end

  test "a function answers what a task asks, once, and nobody else does", %{
    store: store,
    server: server
  } do
    for {questions, expected} <- [
          {fn %{question: "How many?"} -> {:ok, %{"n" => 1}} end, :ok},
          {fn _ -> :decline end, :ok},
          {nil, :error}
        ] do
      Agent.update(server, fn _ -> %{asked: []} end)
      say(server, "t1", asks("q1"))
      {mcp, id} = mcp(fake(server), store, %{questions: questions})
      name = sessions(store, fn -> MCP.tools(mcp) end)
      conversation = "c#{System.unique_integer([:positive])}"
      assert {:ok, _} = Sessions.prompt(name, conversation, "Build it")

      if questions do
        assert_receive {:updated, %{"q1" => _answer}}, 5_000
        Process.sleep(300)
        refute_received {:updated, _}
        say(server, "t1", completed("RESULT"))
      end

      until(fn -> match?({:ok, [_]}, Store.arrivals(store, conversation)) end)
      {:ok, [%{outcome: {status, words}}]} = Store.arrivals(store, conversation)
      assert status == expected
      if questions == nil, do: assert(words =~ "asks for something that it does not get here")
      assert {"cancel", "t1"} in asked(server) == (questions == nil)
      :ok = stop_supervised!(id)
    end
  end

  test "a call that is called off has its task cancelled", %{store: store, server: server} do
    {mcp, _id} = mcp(fake(server), store)
    name = sessions(store, fn -> MCP.tools(mcp) end)
    assert {:ok, _} = Sessions.prompt(name, "c", "Build it")
    until(fn -> {"get", "t1"} in asked(server) end)
    {:ok, %{calls: [%{key: key}]}} = Sessions.waiting(name)
    {:ok, :kept} = Sessions.cancel_call(name, "c", key)
    until(fn -> {"cancel", "t1"} in asked(server) end)
    assert Enum.count(asked(server), &match?({"cancel", _}, &1)) == 1
  end

  test "no task is offered where nobody can wait", %{store: store, server: server} do
    {mcp, _id} = mcp(fake(server), store)
    tools = MCP.tools(mcp)
    llm = fn -> LLM.Scripted.new([%{tool_calls: [%{id: "a", name: "ci__build"}]}, "Done."]) end
    assert {:ok, %{output: "Done."}} = Runtime.run(Context.new("Go"), llm: llm.(), tools: tools)
    assert_received {:called, _, []}

    sub = Runtime.SubAgent.tool(name: "sub", description: "-", llm: llm.(), tools: tools)
    calls = [%{id: "s", name: "sub", arguments: %{"task" => "Go"}}]
    llm = LLM.Scripted.new([%{tool_calls: calls}, "Done."])
    assert {:ok, %{output: "Done."}} = run(store, "c", llm: llm, tools: [sub])
    assert_received {:called, _, []}
    refute_received {:called, _, _}
  end

  test "a call that is stopped before its server answers waits for nothing", %{
    store: store,
    server: server
  } do
    {mcp, _id} = mcp(fake(server, %{call: fn _, _, _ -> Process.sleep(:infinity) end}), store)
    llm = LLM.Scripted.new([%{tool_calls: [%{id: "a", name: "ci__build"}]}, "Sorry."])
    opts = [llm: llm, tools: MCP.tools(mcp), tool_timeout: 50]
    assert {:ok, %{output: "Sorry.", context: context}} = run(store, "c", opts)
    assert Calls.tool_call_status(context, "a") == :unknown
    assert Sessions.waiting(store) == {:ok, %{calls: [], next: nil}}
  end

  test "a task that was not offered, or that cannot be kept, is an outcome that nobody knows", %{
    store: store,
    server: server
  } do
    {mcp, _id} = mcp(fake(server), store)

    for {answer, kept} <- [
          {task("t1"), nil},
          {task(""), store},
          {task(String.duplicate("t", 1_001)), store},
          {task(<<255>>), store},
          {{:task, %{"status" => "working"}}, store}
        ] do
      Agent.update(server, &Map.put(&1, :answer, answer))
      llm = LLM.Scripted.new([%{tool_calls: [%{id: "a", name: "ci__build"}]}, "Sorry."])
      id = "c#{System.unique_integer([:positive])}"
      opts = [llm: llm, tools: MCP.tools(mcp)]
      assert {:ok, %{output: "Sorry.", context: context}} = run(kept, id, opts)
      assert Calls.tool_call_status(context, "a") == :unknown
    end
  end

  test "what is kept of somebody is an id, and one without an id is offered none", %{
    store: store,
    server: server
  } do
    {mcp, _id} = mcp(fake(server), store, %{per_actor: true})
    secret = %{id: 7, token: "SECRET"}

    for {keys, who} <- [
          {[actor: secret, tenant: "t"], %{actor: 7, tenant: "t"}},
          {[actor: %{token: "SECRET"}], nil}
        ] do
      id = "c#{System.unique_integer([:positive])}"
      llm = LLM.Scripted.new([%{tool_calls: [%{id: "a", name: "ci__build"}]}, "Done."])
      tools = MCP.tools(mcp, keys)
      opts = [llm: llm, tools: tools, runtime_context: Map.new(keys)]
      assert {:ok, _} = run(store, id, opts)
      {:ok, %{calls: calls}} = Sessions.waiting(store, id: id)
      assert Enum.map(calls, & &1.for.who) == List.wrap(who)
      {:ok, kept} = Store.fetch(store, id)
      refute inspect(Context.dump(kept.value), limit: :infinity) =~ "SECRET"
    end
  end

  test "questions about many tasks are as often as the server wants, and ever more seldom when it fails",
       %{
         store: store,
         server: server
       } do
    {mcp, _id} = mcp(fake(server), store)
    Agent.update(server, &Map.put(&1, "t1", {:error, "has no time"}))
    name = sessions(store, fn -> MCP.tools(mcp) end)
    for n <- 1..40, do: {:ok, _} = Sessions.prompt(name, "c#{n}", "Build it")
    until(fn -> length(asked(server)) >= 40 end)
    Process.sleep(2_000)
    assert length(asked(server)) <= 40 * 4
    say(server, "t1", completed("RESULT"))

    for n <- 1..40,
        do: until(fn -> match?({:ok, %{calls: []}}, Sessions.waiting(store, id: "c#{n}")) end)
  end
end
