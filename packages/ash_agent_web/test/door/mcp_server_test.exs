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

  # An exception's message, and a caller's.
  @secret "the password is hunter2"

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
    {own, opts} = Keyword.split(opts, [:llm, :tools, :approval, :max_iterations])
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
    {own, opts} = Keyword.split(opts, [:approval, :permission_rules, :store])
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
      "raise" => fn _ -> raise @secret end,
      "slow" => fn %{"ms" => ms} ->
        Process.sleep(ms)
        {:ok, %{"slept" => ms}}
      end,
      "whose" => fn _, %{name: name} -> {:ok, name} end,
      "step" => %Tool{name: "step", run: &step/3},
      "ask" => AskUser.tool(name: "ask", form: @form)
    }

    {more, opts} = Keyword.pop(opts, :more, %{})
    spec = Server.tool_sessions([name: name, tools: Map.merge(tools, more)] ++ own)
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

  test "an id ends after its time, and with the secret that sealed it" do
    server = tools(task_after: 0)
    %{"taskId" => id} = call(server, "add", %{"a" => 1, "b" => 2}, caps: @tasks)
    assert %{"status" => "completed"} = await(server, id)
    [old] = Server.secrets(server)
    new = {"k2", String.duplicate("n", 32)}
    # Another secret under the same id.
    forged = {"k1", String.duplicate("n", 32)}
    assert %{"status" => "completed"} = get(%{server | secrets: fn -> [new, old] end}, id)

    for other <- [%{server | secrets: [new]}, %{server | secrets: [forged]}, %{server | ttl: 1}] do
      Process.sleep(2)
      answer = ask(other, "tasks/get", %{"taskId" => id}, caps: @tasks)
      assert answer["error"]["message"] == "unknown task"
    end
  end

  test "a result that comes late ends the task, and a cancelled one is not taken" do
    test = self()

    later = fn _arguments, %{arrival_key: key} ->
      send(test, {:key, key})
      {:later, []}
    end

    server = tools(task_after: 50, more: %{"build" => %{function: later, late: true}})
    sessions = server.door.place

    task = fn ->
      %{"taskId" => id} = call(server, "build", %{}, caps: @tasks)
      assert_receive {:key, key}
      {:ok, turn} = Server.Turn.find(server, %{principal: "ada"}, id)
      assert %{"status" => "working"} = get(server, id)
      {id, turn.identity.conversation, key}
    end

    {id, conversation, key} = task.()
    assert {:ok, :kept} = Sessions.arrive(sessions, conversation, key, {:ok, "green"})

    assert %{"status" => "completed", "result" => %{"content" => [%{"text" => "green"}]}} =
             await(server, id)

    {id, conversation, key} = task.()
    assert %{"result" => _} = ask(server, "tasks/cancel", %{"taskId" => id}, caps: @tasks)
    assert {:error, :cancelled} = Sessions.arrive(sessions, conversation, key, {:ok, "green"})
    assert %{"status" => "cancelled"} = await(server, id)
  end

  # What went wrong in the servers of others in 2026, by its class.

  describe "of what goes wrong, clients read a kind" do
    test "when the model's provider says something, or its code raises" do
      for llm <- [
            fn _ -> {:error, @secret} end,
            fn _ ->
              {:error, %LLM.Error{reason: :x, kind: :server_error, provider_message: @secret}}
            end,
            fn _ -> raise @secret end,
            fn _ -> exit(@secret) end
          ] do
        server = agent(llm: llm, task_after: 5_000)
        said = %{"message" => "Hi"}
        assert %{"isError" => true} = result = call(server, "ask_agent", said)
        assert [%{"text" => "the turn failed: " <> _}] = result["content"]
        task = call(%{server | task_after: 0}, "ask_agent", said, caps: @tasks)
        ended = await(server, task["taskId"])
        assert %{"status" => "failed", "error" => %{"code" => -32_603}} = ended
        refute inspect([result, task, ended]) =~ "hunter2"
      end
    end

    test "when a tool raises, exits, throws, or returns an error that is no text" do
      for tool <- [
            fn _ -> raise @secret end,
            fn _ -> exit(@secret) end,
            fn _ -> throw(@secret) end,
            fn _ -> {:error, %{why: @secret}} end,
            fn _ -> {:error, %RuntimeError{message: @secret}} end
          ] do
        server = tools(more: %{"breaks" => tool})
        assert %{"isError" => true} = result = call(server, "breaks", %{})
        refute inspect(result) =~ "hunter2"
      end
    end

    test "when the application's function raises, or returns what is no identity" do
      for identity <- [
            fn _ -> raise @secret end,
            fn _ -> {:ok, %{}} end,
            fn _ -> {:ok, %{principal: nil}} end,
            fn _ -> {:ok, %{principal: %{"not_eq" => ""}}} end,
            fn _ -> {:ok, %{principal: ""}} end,
            fn _ -> {:ok, %{principal: "ada", conversation: %{"not_eq" => ""}}} end,
            fn _ -> {:error, @secret} end,
            fn _ -> nil end
          ] do
        conn = post(tools(identify: identity), "tools/list", %{}, [])
        assert conn.status in [403, 503]
        refute conn.resp_body =~ "hunter2"
      end
    end

    test "when the sessions are gone" do
      server = server(sessions: :nobody_has_started_these)

      conn =
        post(
          server,
          "tools/call",
          %{"name" => "ask_agent", "arguments" => %{"message" => @secret}},
          []
        )

      assert conn.status in [200, 503]
      refute conn.resp_body =~ "hunter2"
      refute conn.resp_body =~ "persistent"
    end
  end

  test "a loop without end is bounded, and so is what waits for it" do
    llm = fn context ->
      id = "c#{context.current_iteration}"
      {:ok, %{tool_calls: [%{id: id, name: "again", arguments: %{}}]}}
    end

    server = agent(llm: llm, tools: %{"again" => fn _ -> {:ok, "more"} end}, max_iterations: 5)
    result = call(server, "ask_agent", %{"message" => "Go"})
    assert %{"isError" => true, "content" => [%{"text" => words}]} = result
    assert words =~ "the turn failed: " and words =~ "max_iterations"
    assert %{"result" => %{"tools" => [_]}} = ask(server, "tools/list", %{"cursor" => "again"})
  end

  test "what is said is a text, and no template" do
    llm = fn context ->
      [%{content: said} | _] = context |> AshAgent.Context.to_messages() |> Enum.reverse()
      {:ok, %{content: AshAgent.Door.Reader.text(said)}}
    end

    said = ~S|<%= System.cmd("id", []) %> #{1 + 1} {{7*7}}|
    result = call(agent(llm: llm), "ask_agent", %{"message" => said})
    assert result["structuredContent"]["answer"] == said
  end

  test "ids that are no texts are no ids" do
    server = tools()

    for id <- [
          %{"not_eq" => ""},
          %{"or" => [%{}]},
          ["a"],
          1,
          nil,
          true,
          String.duplicate("a", 5_000)
        ] do
      assert %{"error" => %{"code" => code}} =
               ask(server, "tasks/get", %{"taskId" => id}, caps: @tasks, name: "x")

      assert code in [-32_600, -32_602, -32_020]
    end
  end

  test "a session of the old era is for whoever began it" do
    server = tools()

    initialize = %{
      "protocolVersion" => "2025-11-25",
      "capabilities" => %{},
      "clientInfo" => %{"name" => "t", "version" => "1"}
    }

    conn = old(server, "initialize", initialize, [])
    assert [session] = for({"mcp-session-id", id} <- conn.resp_headers, do: id)
    own = [headers: [{"mcp-session-id", session}, {"mcp-protocol-version", "2025-11-25"}]]
    assert old(server, "notifications/initialized", nil, own).status == 202
    add = %{"name" => "add", "arguments" => %{"a" => 1, "b" => 2}}
    assert old(server, "tools/call", add, own).resp_body =~ ~s("text":"3")
    assert old(server, "tools/call", add, [as: "eve"] ++ own).status in 400..404
    refute old(server, "tasks/list", %{}, own).resp_body =~ "result"
    # One client would change the log of the whole VM.
    before = Logger.level()
    refute old(server, "logging/setLevel", %{"level" => "emergency"}, own).resp_body =~ "result"
    assert Logger.level() == before
  end

  test "nothing of what was asked is in a log or in what is inspected" do
    server = tools(task_after: 0)

    log =
      ExUnit.CaptureLog.capture_log(fn ->
        call(server, "slow", %{"ms" => 10, "secret" => @secret}, caps: @tasks)
        call(server, "raise", %{"secret" => @secret})
        ask(server, "tools/call", %{"name" => "none", "arguments" => %{"secret" => @secret}})
        ask(server, "tasks/get", %{"taskId" => @secret}, caps: @tasks)
      end)

    refute log =~ "hunter2"
    refute inspect(server) =~ "ssssssss"
  end
end
