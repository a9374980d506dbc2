defmodule AshAgent.MCP.ServerTest do
  # An agent, and a set of tools, as a client of MCP has them.
  use ExUnit.Case, async: true

  @moduletag :ex_mcp
  @moduletag :capture_log
  @moduletag integrations: ["ex_mcp"]

  alias AshAgent.{LLM, Sessions, Store}
  alias AshAgent.MCP.Server
  alias AshAgent.Runtime.{AskUser, Tool}
  alias AshAgent.TestSupport.McpAsks

  import McpAsks

  @form %{
    "type" => "object",
    "properties" => %{"name" => %{"type" => "string"}},
    "required" => ["name"]
  }

  defp store do
    {:ok, store} = Store.SQLite.open(":memory:")
    store
  end

  defp agent(opts \\ []) do
    name = Module.concat(__MODULE__, "S#{System.unique_integer([:positive])}")
    {own, opts} = Keyword.split(opts, [:llm, :tools, :approval])
    own = Keyword.put_new(own, :llm, LLM.Scripted.new(["Hello, Ada!", "Again!", "And again."]))
    start_supervised!({Sessions, [name: name, store: store()] ++ own}, id: name)
    server([sessions: name] ++ opts)
  end

  defp step(_arguments, _context, scope) do
    scope.progress.(1, 2)
    {:ok, "done"}
  end

  defp tools(opts \\ []) do
    name = Module.concat(__MODULE__, "T#{System.unique_integer([:positive])}")
    {own, opts} = Keyword.split(opts, [:approval, :tool_timeout, :permission_rules, :store])
    own = Keyword.put_new_lazy(own, :store, &store/0)

    tools = %{
      "add" => %{
        function: fn %{"a" => a, "b" => b} -> {:ok, a + b} end,
        description: "Adds",
        parameters: %{
          type: :object,
          properties: %{a: %{type: :integer}, b: %{type: :integer}},
          required: [:a, :b]
        }
      },
      "fail" => fn _ -> {:error, "there is nothing"} end,
      "raise" => fn _ -> raise "the password is hunter2" end,
      "slow" => fn %{"ms" => ms} ->
        Process.sleep(ms)
        {:ok, %{"slept" => ms}}
      end,
      "whose" => fn _, %{name: name} -> {:ok, name} end,
      "step" => %Tool{name: "step", run: &step/3},
      "ask" => AskUser.tool(name: "ask", form: @form)
    }

    spec = Server.tool_sessions([name: name, tools: tools] ++ own)
    start_supervised!(spec, id: name)
    server([tools: name] ++ opts)
  end

  @elicits %{"elicitation" => %{"form" => %{}}}
  @tasks Map.put(@elicits, "extensions", %{"io.modelcontextprotocol/tasks" => %{}})

  test "an agent is a tool: it answers, and the conversation goes on for whoever began it" do
    server = agent()
    assert [%{"name" => "ask_agent"}] = ask(server, "tools/list", %{})["result"]["tools"]
    result = call(server, "ask_agent", %{"message" => "I am Ada."})
    assert %{"answer" => "Hello, Ada!", "conversation" => id} = result["structuredContent"]
    assert [%{"text" => "Hello, Ada!"}, %{"text" => "conversation: " <> ^id}] = result["content"]
    arguments = %{"message" => "And?", "conversation" => id}

    assert call(server, "ask_agent", arguments)["structuredContent"] == %{
             "answer" => "Again!",
             "conversation" => id
           }

    for id <- [id <> "a", "c1", %{"not_eq" => ""}] do
      refused = call(server, "ask_agent", %{"message" => "And?", "conversation" => id})
      assert %{"isError" => true, "content" => [%{"text" => "unknown conversation"}]} = refused
    end

    assert %{"isError" => true} = call(server, "ask_agent", arguments, as: "eve")
  end

  test "tools answer, fail in their own words, and show nothing of what they raise" do
    server = tools()
    names = for %{"name" => name} <- ask(server, "tools/list", %{})["result"]["tools"], do: name
    assert names == ~w(add ask fail raise slow step whose)
    assert %{"content" => [%{"text" => "3"}]} = call(server, "add", %{"a" => 1, "b" => 2})

    assert %{"isError" => true, "content" => [%{"text" => text}]} =
             call(server, "add", %{"a" => "x", "b" => 1})

    assert text =~ "do not fit"

    assert %{"isError" => true, "content" => [%{"text" => "there is nothing"}]} =
             call(server, "fail", %{})

    assert %{"isError" => true, "content" => [%{"text" => text}]} = call(server, "raise", %{})
    refute text =~ "hunter2"
    assert %{"structuredContent" => %{"slept" => 1}} = call(server, "slow", %{"ms" => 1})
    assert %{"content" => [%{"text" => "ada"}]} = call(server, "whose", %{})

    assert %{"error" => %{"code" => -32_602}} =
             ask(server, "tools/call", %{"name" => "none", "arguments" => %{}})
  end

  test "who is not known gets nothing, from no origin and no other host" do
    server = tools()
    list = &post(server, "tools/list", %{}, &1).status
    assert list.([]) == 200
    assert list.(as: nil) == 401
    assert list.(as: "mallory") == 403
    assert list.(host: "evil.example.com") == 403
    assert list.(headers: [{"origin", "http://evil.example.com"}]) == 403

    assert list.(
             headers: [
               {"origin", "http://evil.example.com"},
               {"x-forwarded-host", "evil.example.com"},
               {"x-forwarded-proto", "http"}
             ]
           ) == 403

    assert list.(headers: [{"content-type", "text/plain"}]) == 415
    assert list.(big: String.duplicate("a", 1_000_001)) == 413
  end

  test "a call that takes long is a task, and its own error completes it" do
    server = tools(task_after: 50)
    task = call(server, "slow", %{"ms" => 500}, caps: @tasks)

    assert %{"resultType" => "task", "status" => "working", "taskId" => id, "ttlMs" => 86_400_000} =
             task

    assert %{"status" => "working"} = get(server, id)

    assert %{"status" => "completed", "result" => %{"structuredContent" => %{"slept" => 500}}} =
             await(server, id)

    for {id, as} <- [{id, "eve"}, {id <> "a", "ada"}, {"unknown", "ada"}, {"", "ada"}],
        method <- ~w(get update cancel) do
      params =
        if method == "update",
          do: %{"taskId" => id, "inputResponses" => %{}},
          else: %{"taskId" => id}

      assert %{"error" => %{"code" => -32_602, "message" => words}} =
               ask(server, "tasks/" <> method, params, caps: @tasks, as: as)

      assert id == "" or words == "unknown task"
    end
  end

  test "a task is cancelled" do
    server = tools(task_after: 50)
    %{"taskId" => id} = call(server, "slow", %{"ms" => 60_000}, caps: @tasks)
    assert ask(server, "tasks/cancel", %{"taskId" => id}, caps: @tasks)["result"]
    assert %{"status" => "cancelled"} = await(server, id)
  end

  test "an approval outside of a task is a question, which is answered once" do
    server = tools(approval: fn call, _ -> if call.name == "add", do: :ask, else: :approve end)
    params = %{"name" => "add", "arguments" => %{"a" => 1, "b" => 2}}
    asked = ask(server, "tools/call", params, caps: @elicits)["result"]

    assert %{
             "resultType" => "input_required",
             "inputRequests" => requests,
             "requestState" => state
           } = asked

    assert [{approval, %{"method" => "elicitation/create", "params" => %{"message" => words}}}] =
             Map.to_list(requests)

    assert words =~ "add" and words =~ ~s("a":1)

    yes = %{"action" => "accept", "content" => %{"approve" => true}}
    retry = Map.merge(params, %{"inputResponses" => %{approval => yes}, "requestState" => state})
    # Nothing but the state makes it an answer to a question.
    for other <- [
          Map.delete(retry, "requestState"),
          Map.put(retry, "requestState", state <> "a"),
          Map.put(retry, "arguments", %{"a" => 1, "b" => 3}),
          Map.put(retry, "inputResponses", %{"other" => yes})
        ],
        do:
          assert(
            %{"error" => %{"code" => -32_602}} = ask(server, "tools/call", other, caps: @elicits)
          )

    assert %{"error" => %{"code" => -32_602}} =
             ask(server, "tools/call", retry, caps: @elicits, as: "eve")

    assert %{"content" => [%{"text" => "3"}]} =
             ask(server, "tools/call", retry, caps: @elicits)["result"]

    assert %{"error" => %{"message" => words}} = ask(server, "tools/call", retry, caps: @elicits)
    assert words =~ "already been consumed"
  end

  test "a question inside of a task is answered there" do
    server = tools()

    %{"resultType" => "task", "taskId" => id, "status" => "input_required"} =
      call(server, "ask", %{"question" => "Who?"}, caps: @tasks)

    %{"status" => "input_required", "inputRequests" => requests} = get(server, id)

    assert [{question, %{"params" => %{"message" => "Who?", "requestedSchema" => @form}}}] =
             Map.to_list(requests)

    update =
      &ask(server, "tasks/update", %{"taskId" => id, "inputResponses" => %{question => &1}},
        caps: @tasks
      )

    assert %{"error" => _} = update.(%{"action" => "accept", "content" => %{"name" => 1}})
    assert %{"result" => _} = update.(%{"action" => "accept", "content" => %{"name" => "Ada"}})

    assert %{"status" => "completed", "result" => %{"structuredContent" => %{"name" => "Ada"}}} =
             await(server, id)
  end

  test "who may not decide, or has no questions, is told in words" do
    server = tools(approval: fn _, _ -> :ask end)
    params = %{"a" => 1, "b" => 2}

    assert %{"isError" => true, "content" => [%{"text" => words}]} =
             call(server, "add", params, caps: @elicits, as: "bob")

    assert words =~ "cannot be given here"
    assert %{"isError" => true} = call(server, "add", params)
    assert %{"status" => "working"} = call(server, "add", params, caps: @tasks, as: "bob")
  end

  test "progress comes while the answer does" do
    conn = post(tools(), "tools/call", %{"name" => "step", "arguments" => %{}}, progress: "p1")

    assert [%{"method" => "notifications/progress", "params" => params}, %{"result" => _}] =
             events(conn)

    assert %{"progressToken" => "p1", "progress" => 1, "total" => 2} = params

    conn =
      post(agent(), "tools/call", %{"name" => "ask_agent", "arguments" => %{"message" => "Hi"}},
        progress: 7
      )

    assert [%{"method" => "notifications/progress"} | _] = events(conn)
  end

  test "who has no tasks waits, and then comes back" do
    llm = fn _ ->
      Process.sleep(300)
      {:ok, %{content: "Late."}}
    end

    server = agent(llm: llm, wait: 50)

    assert %{"isError" => true, "content" => [%{"text" => words}]} =
             call(server, "ask_agent", %{"message" => "Hi"})

    assert [_, id] = Regex.run(~r/with the conversation (\S+)/, words)
    patient = %{server | wait: 10_000}

    assert %{"structuredContent" => %{"answer" => "Late."}} =
             call(patient, "ask_agent", %{"message" => "And?", "conversation" => id})
  end
end
