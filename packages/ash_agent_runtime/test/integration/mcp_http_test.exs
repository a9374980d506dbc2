if Code.ensure_loaded?(ExMCP.Client) do
  defmodule AshAgent.Integration.MCPHTTPTest do
    # Servers at an address that do what they should not, in both eras.
    use ExUnit.Case, async: false

    import ExUnit.CaptureLog

    alias AshAgent.{Context, LLM, MCP, Runtime}
    alias AshAgent.Context.JSON
    alias AshAgent.Runtime.ToolExecutor
    alias AshAgent.TestSupport.{McpHttp, Wait}

    @moduletag :mcp
    @moduletag :capture_log
    @moduletag integrations: ["ex_mcp"]

    @tools %{
      "tools" =>
        for(name <- ["one", "two"], do: %{"name" => name, "inputSchema" => %{"type" => "object"}})
    }
    @done %{"content" => [%{"type" => "text", "text" => "done"}]}
    @answer %{"id" => :id, "result" => Map.put(@done, "resultType", "complete")}
    @unknown ~s(the MCP server "x" broke the connection off, and whether the call did its work is not known)

    defp eras,
      do: [
        modern: &McpHttp.modern/1,
        session: &McpHttp.legacy("s1", &1),
        stateless: &McpHttp.legacy(nil, &1)
      ]

    # The address of a server that lists two tools, and answers calls by a function.
    defp serve(wrap, call) do
      McpHttp.start(
        wrap.(fn
          %{"method" => "tools/list"}, _headers -> {:result, @tools}
          %{"method" => "tools/call"} = message, headers -> call.(message, headers)
          %{"method" => _} = message, headers -> call.(message, headers)
          _answer, _headers -> {202, [], ""}
        end)
      )
    end

    defp tools(url, keys \\ %{}, opts \\ []) do
      server = Map.merge(%{name: "x", url: url}, keys)
      mcp = start_supervised!({MCP, [servers: [server]] ++ opts}, id: make_ref())
      MCP.tools(mcp)
    end

    defp call(tools, name, arguments \\ %{}, opts \\ []) do
      calls = [%{id: "1", name: "x__" <> name, arguments: arguments}]
      [%{result: result}] = ToolExecutor.execute_tools(calls, tools, %{}, opts)
      result
    end

    test "a call whose stream breaks is not sent again, and its outcome is unknown" do
      for {era, wrap} <- eras(), how <- [[:cut], [], [%{"method" => "notifications/x"}, :cut]] do
        count = :counters.new(1, [])

        tools =
          wrap
          |> serve(fn
            %{"method" => "tools/call"}, _ -> :counters.add(count, 1, 1) && {:stream, how}
            _other, _ -> {:result, %{}}
          end)
          |> tools()

        assert {era, call(tools, "one")} == {era, {:error, @unknown}}
        assert call(tools, "one") == {:error, @unknown}
        assert :counters.get(count, 1) == 2
      end
    end

    test "a run has the outcome of such a call as unknown, and goes on" do
      for {_era, wrap} <- eras(), how <- [:close, {:stream, [:cut]}] do
        tools =
          wrap
          |> serve(fn
            %{"method" => "tools/call"}, _ -> how
            _other, _ -> {:result, %{}}
          end)
          |> tools()

        calls = [%{id: "a", name: "x__one", arguments: %{}}]
        llm = LLM.Scripted.new([%{tool_calls: calls}, "Sorry."])
        assert {:ok, result} = Runtime.run(Context.new("Go"), llm: llm, tools: tools)
        assert result.output == "Sorry."
        assert Context.Calls.tool_call_status(result.context, "a") == :unknown
      end
    end

    test "a call whose client dies has an outcome that nobody knows" do
      for {_era, wrap} <- eras() do
        me = self()

        url =
          serve(wrap, fn
            %{"method" => "tools/call"}, _ -> {:stream, [fn -> send(me, :waits) end, :wait]}
            _other, _ -> {:result, %{}}
          end)

        mcp = start_supervised!({MCP, servers: [%{name: "x", url: url}]}, id: make_ref())
        tools = MCP.tools(mcp)
        {_link, client} = AshAgent.MCP.Connection.client(connection(mcp).pid, 5_000)
        llm = LLM.Scripted.new([%{tool_calls: [%{id: "a", name: "x__one"}]}, "Sorry."])
        run = Task.async(fn -> Runtime.run(Context.new("Go"), llm: llm, tools: tools) end)
        assert_receive :waits, 60_000
        # Nothing but the client is gone when the call's process hears of it.
        :sys.suspend(connection(mcp).pid)
        Process.exit(client, :kill)
        assert {:ok, result} = Task.await(run, 60_000)
        assert Context.Calls.tool_call_status(result.context, "a") == :unknown
      end
    end

    describe "a task" do
      @offered %{"extensions" => %{"io.modelcontextprotocol/tasks" => %{}}}
      @task %{
        "taskId" => "t1",
        "status" => "working",
        "createdAt" => "2026-01-01T00:00:00Z",
        "lastUpdatedAt" => "2026-01-01T00:00:00Z",
        "ttlMs" => 3_600_000,
        "pollIntervalMs" => 100
      }

      # Servers that have tasks, and tell the test what they are asked and what the client offers.
      defp serve_tasks(wrap, state) do
        test = self()

        answer =
          wrap.(fn message, _headers ->
            send(test, {:asked, message["method"], offers(message), message["params"]})

            case {message["method"], message["params"]} do
              {"tools/list", _} -> {:result, @tools}
              {"tools/call", _} -> answer_call(offers(message))
              {"tasks/get", %{"taskId" => "t1"}} -> {:result, Agent.get(state, & &1)}
              {"tasks/cancel", _} -> {:result, %{}}
              {"tasks/" <> _, _} -> {:error, %{"code" => -32_602, "message" => "unknown task"}}
              _other -> {:result, %{}}
            end
          end)

        McpHttp.start(fn message, headers ->
          with {:result, %{"capabilities" => _} = result} <- answer.(message, headers),
               do: {:result, update_in(result["capabilities"], &Map.merge(&1, @offered))}
        end)
      end

      defp offers(message),
        do: get_in(message, ["params", "_meta", "io.modelcontextprotocol/clientCapabilities"])

      defp answer_call(@offered), do: {:result, Map.put(@task, "resultType", "task")}
      defp answer_call(_none), do: {:result, @done}

      defp model do
        fn context ->
          text = inspect(Context.to_messages(context), limit: :infinity)

          cond do
            text =~ "RESULT" -> {:ok, %{content: "It has come."}}
            text =~ "id: \"a\"" -> {:ok, %{content: "I started it."}}
            true -> {:ok, %{tool_calls: [%{id: "a", name: "x__one", arguments: %{}}]}}
          end
        end
      end

      test "is offered for a call that can wait, asked about, and its result is that of the call" do
        state = start_supervised!({Agent, fn -> @task end})
        store = AshAgent.TestSupport.StoredSessions.sqlite()
        url = serve_tasks(&McpHttp.modern/1, state)
        opts = [servers: [%{name: "x", url: url}], tasks: store, name: :mcp_http_tasks]
        start_supervised!({MCP, opts})
        tools = fn -> MCP.tools(:mcp_http_tasks) end
        opts = [name: :mcp_http_sessions, store: store, llm: model(), tools: tools]
        start_supervised!({AshAgent.Sessions, opts ++ [recover: :infinity]})
        prompt = AshAgent.Sessions.prompt(:mcp_http_sessions, "c", "Go")
        assert {:ok, %{output: "I started it."}} = prompt
        assert_received {:asked, "tools/call", @offered, _}
        assert_receive {:asked, "tasks/get", @offered, %{"taskId" => "t1"}}, 60_000
        result = put_in(@done, ["content", Access.at(0), "text"], "RESULT")
        done = Map.merge(@task, %{"status" => "completed", "result" => result})
        Agent.update(state, fn _ -> done end)

        assert Wait.until(fn ->
                 {:ok, context} = AshAgent.Sessions.context(:mcp_http_sessions, "c")
                 match?(%{content: "It has come."}, List.last(Context.to_messages(context)))
               end)

        # Whatever else is asked offers nothing.
        refute_received {:asked, "tools/list", @offered, _}
        assert call(MCP.tools(:mcp_http_tasks), "one") == {:ok, "done"}
        assert_received {:asked, "tools/call", offered, _}
        assert offered == %{}
      end

      test "that was offered to nobody, or that the server does not know, has an unknown outcome" do
        url =
          serve(&McpHttp.modern/1, fn
            %{"method" => "tools/call"}, _ -> {:result, Map.put(@task, "resultType", "task")}
            _other, _ -> {:error, %{"code" => -32_602, "message" => "unknown task"}}
          end)

        mcp = start_supervised!({MCP, servers: [%{name: "x", url: url}]}, id: make_ref())
        assert {:error, words} = call(MCP.tools(mcp), "one")
        assert words =~ "with a task that nobody can wait for"
        client = AshAgent.MCP.ExMCPClient
        pid = connection(mcp).pid

        assert client.task(pid, "get", %{"taskId" => "t"}, 5_000) ==
                 {:gone, "does not know the task"}
      end

      test "of the old era is neither offered nor asked about" do
        for {era, wrap} <- Keyword.delete(eras(), :modern) do
          test = self()

          wrap_and_tell = fn answer ->
            answer = wrap.(answer)
            fn message, headers -> send(test, {:got, message}) && answer.(message, headers) end
          end

          url =
            serve(wrap_and_tell, fn
              %{"method" => "tools/call"}, _ ->
                {:result, Map.put(@done, "task", @task)}

              _other, _ ->
                {:result, %{}}
            end)

          store = AshAgent.TestSupport.StoredSessions.sqlite()
          opts = [servers: [%{name: "x", url: url}], tasks: store]
          mcp = start_supervised!({MCP, opts}, id: make_ref())
          assert [%{late: nil}, %{late: nil}] = tools = MCP.tools(mcp)
          assert_received {:got, %{"method" => "initialize", "params" => params}}
          assert {era, params["capabilities"]} == {era, %{}}
          assert {era, call(tools, "one")} == {era, {:ok, "done"}}
          assert_received {:got, %{"method" => "tools/call", "params" => params}}
          assert Map.keys(params) -- ["name", "arguments", "_meta"] == []
        end
      end
    end

    describe "a question" do
      @question %{
        "message" => "How many?",
        "requestedSchema" => %{
          "type" => "object",
          "properties" => %{"seats" => %{"type" => "integer"}},
          "required" => ["seats"]
        }
      }
      @asks %{
        "resultType" => "input_required",
        "inputRequests" => %{"q" => %{"method" => "elicitation/create", "params" => @question}},
        "requestState" => "s1"
      }

      test "of the new era is answered by the call once more, and its call is announced" do
        test = self()

        url =
          serve(&McpHttp.modern/1, fn %{"method" => "tools/call", "params" => params} = message,
                                      _ ->
            send(test, {:called, offers(message), Map.drop(params, ["_meta"])})
            {:result, if(params["inputResponses"], do: @done, else: @asks)}
          end)

        opts = [questions: :ask, name: :mcp_http_asks, servers: [%{name: "x", url: url}]]
        start_supervised!({MCP, opts})
        llm = LLM.Scripted.new([%{tool_calls: [%{id: "a", name: "x__one"}]}, "Done."])
        opts = [llm: llm, tools: MCP.tools(:mcp_http_asks)]
        {:paused, %{calls: [%{question: true}]} = paused} = Runtime.run(Context.new("Go"), opts)
        form = %{"elicitation" => %{"form" => %{}}}
        assert_received {:called, ^form, params}
        assert params == %{"name" => "one", "arguments" => %{}}
        context = Context.Calls.answer_tool_call(paused.context, "a", %{"seats" => "2"})
        {:ok, %{output: "Done."}} = Runtime.resume(context, opts)
        assert_received {:called, ^form, params}
        answer = %{"action" => "accept", "content" => %{"seats" => 2}}

        assert Map.drop(params, ["name", "arguments"]) ==
                 %{"inputResponses" => %{"q" => answer}, "requestState" => "s1"}

        refute_received {:called, _, _}
      end

      test "is refused without somebody who answers" do
        url = serve(&McpHttp.modern/1, fn _call, _ -> {:result, @asks} end)
        assert {:error, words} = url |> tools() |> call("one")
        assert words =~ "asks for something that it does not get here, and has not done the call"
      end

      test "of the old era is answered by a function or a person while the call is open" do
        for {era, wrap} <- Keyword.delete(eras(), :modern), answers? <- [true, :ask, nil] do
          test = self()
          ref = make_ref()

          wrap_and_tell = fn answer ->
            answer = wrap.(answer)

            fn message, headers ->
              if message, do: send(test, {ref, message})
              answer.(message, headers)
            end
          end

          ask = %{"id" => "q1", "method" => "elicitation/create", "params" => @question}
          wait = fn -> Process.sleep(if(answers? == :ask, do: 2_000, else: 500)) end

          url =
            serve(wrap_and_tell, fn
              %{"method" => "tools/call"}, _ -> {:stream, [ask, wait, @answer]}
              _other, _ -> {:result, %{}}
            end)

          fun = if answers? == true, do: fn _ -> {:ok, %{"seats" => 2}} end, else: answers?
          opts = [servers: [%{name: "x", url: url}], questions: fun]
          mcp = start_supervised!({MCP, opts}, id: make_ref())
          run = Task.async(fn -> call(MCP.tools(mcp), "one") end)

          if answers? == :ask do
            assert Wait.until(fn -> MCP.questions(mcp) != [] end)
            [%{id: nil, key: key, question: "How many?", server: "x"}] = MCP.questions(mcp)
            assert {:error, %Context.Error{}} = MCP.answer(mcp, key, %{"seats" => "x"})
            assert :ok = MCP.answer(mcp, key, %{"seats" => "2"})
            assert Wait.until(fn -> MCP.questions(mcp) == [] end)
          end

          assert {era, Task.await(run, 60_000)} == {era, {:ok, "done"}}
          assert_received {^ref, %{"method" => "initialize", "params" => params}}

          assert params["capabilities"] ==
                   if(answers?, do: %{"elicitation" => %{"form" => %{}}}, else: %{})

          assert_receive {^ref, %{"id" => "q1"} = answer}, 60_000

          if answers?,
            do: assert(answer["result"] == %{"action" => "accept", "content" => %{"seats" => 2}}),
            else: assert(answer["error"]["code"] == -32_601)
        end
      end
    end

    test "a connection that is cut before an answer is the same" do
      for {_era, wrap} <- eras() do
        count = :counters.new(1, [])

        tools =
          wrap
          |> serve(fn
            %{"method" => "tools/call"}, _ -> :counters.add(count, 1, 1) && :close
            _other, _ -> {:result, %{}}
          end)
          |> tools()

        assert call(tools, "one") == {:error, @unknown}
        assert :counters.get(count, 1) == 1
      end
    end

    test "ten slow calls take the time of one, and each hears of its own progress alone" do
      for {_era, wrap} <- eras() do
        me = self()
        all = :counters.new(1, [])

        tools =
          wrap
          |> serve(fn
            %{"method" => "tools/call", "params" => params}, _ ->
              token = params["_meta"]["progressToken"]
              :counters.add(all, 1, 1)
              # None of them ends before all have begun.
              wait = fn -> Wait.until(fn -> :counters.get(all, 1) == 10 end) end
              n = params["arguments"]["n"]
              progress = %{"progressToken" => token, "progress" => n}
              other = %{"progressToken" => "guessed", "progress" => 100}
              notify = &%{"method" => "notifications/progress", "params" => &1}
              {:stream, [notify.(other), notify.(progress), wait, @answer]}

            _other, _ ->
              {:result, %{}}
          end)
          |> tools()

        calls =
          for n <- 1..10 do
            on_event = fn name, measured, _ -> send(me, {List.last(name), n, measured}) end
            Task.async(fn -> call(tools, "one", %{"n" => n}, on_event: on_event) end)
          end

        assert calls |> Task.await_many(60_000) |> Enum.uniq() == [{:ok, "done"}]
        for n <- 1..10, do: assert_received({:progress, ^n, %{progress: ^n}})
        refute_received {:progress, _, _}
      end
    end

    test "a call that is cancelled is cancelled at the server, and others go on" do
      for {era, wrap} <- eras() do
        me = self()

        tools =
          wrap
          |> serve(fn
            %{"method" => "tools/call", "params" => %{"name" => "one"}} = message, _ ->
              {:stream,
               [fn -> send(me, {:waits, message["id"]}) end, :wait, fn -> send(me, :closed) end]}

            %{"method" => "notifications/cancelled", "params" => params}, _ ->
              send(me, {:cancelled, params["requestId"]})
              {:result, %{}}

            _other, _ ->
              {:result, @done}
          end)
          |> tools()

        run = Task.async(fn -> call(tools, "one") end)
        assert_receive {:waits, id}, 60_000
        assert call(tools, "two") == {:ok, "done"}
        Task.shutdown(run, :brutal_kill)
        assert_receive :closed, 60_000

        if era == :modern,
          do: refute_received({:cancelled, _}),
          else: assert_received({:cancelled, ^id})

        assert call(tools, "two") == {:ok, "done"}
      end
    end

    test "a session that the server has forgotten is begun anew, however it says so" do
      text = fn text ->
        ~s({"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"#{text}"}})
      end

      for gone <- [
            {404, [], ""},
            {404, [{"content-type", "application/json"}], text.("Session not found")},
            {400, [{"content-type", "application/json"}],
             text.("Bad Request: No valid session ID provided")},
            {:error, %{"code" => -32_002, "message" => "Server not initialized"}},
            {:error, %{"code" => -32_000, "message" => "Session has expired"}}
          ] do
        once = :counters.new(1, [])

        tools =
          (&McpHttp.legacy("s1", &1))
          |> serve(fn
            %{"method" => "tools/call"}, %{"mcp-session-id" => "s1"} ->
              :counters.add(once, 1, 1)
              if :counters.get(once, 1) == 1, do: gone, else: {:result, @done}

            _other, _ ->
              {:result, %{}}
          end)
          |> tools()

        assert call(tools, "one") ==
                 {:error,
                  ~s(the MCP server "x" has forgotten the session; another one is started)}

        assert Wait.until(fn -> call(tools, "one") == {:ok, "done"} end)
      end
    end

    test "what is refused is an error of that call alone, without what the server says to it" do
      for {_era, wrap} <- eras(),
          {answer, words} <- [
            {{500, [], "hunter2"}, "answered with HTTP status 500"},
            {{401, [{"www-authenticate", "Bearer x=\"hunter2\""}], "hunter2"}, "HTTP status 401"},
            {{302, [{"location", "http://127.0.0.1:1/hunter2"}], ""},
             "answered with HTTP status 302"},
            {{200, [{"content-type", "text/html"}], "hunter2"}, "broke the connection off"},
            {{:error, %{"code" => -32_602, "message" => "no such thing"}},
             "answered with an error: no such thing"}
          ] do
        tools =
          wrap
          |> serve(fn
            %{"method" => "tools/call", "params" => %{"name" => "one"}}, _ -> answer
            _other, _ -> {:result, @done}
          end)
          |> tools()

        assert {:error, got} = call(tools, "one")
        assert got =~ words
        refute got =~ "hunter2"
        assert call(tools, "two") == {:ok, "done"}
      end
    end

    test "a text that is not UTF-8, and what is no message, are read as far as possible" do
      bytes = ~s("text":"a) <> <<255>> <> ~s(b"}]})

      for {_era, wrap} <- eras() do
        answer =
          &~s({"jsonrpc":"2.0","id":#{&1},"result":{"resultType":"complete","content":[{"type":"text",#{bytes}})

        tools =
          wrap
          |> serve(fn
            %{"params" => %{"name" => "one"}, "id" => id}, _ ->
              {200, [{"content-type", "application/json"}], answer.(JSON.encode(id))}

            %{"params" => %{"name" => "two"}, "id" => id}, _ ->
              noise = [
                "data: {\n\n",
                "data: [1]\r\n\r\n",
                ": comment\n\n",
                "event: x\rdata\r\r",
                "id: 7\n\n"
              ]

              {:stream, noise ++ ["data: " <> answer.(JSON.encode(id)) <> "\n\n"]}

            _other, _ ->
              {:result, %{}}
          end)
          |> tools()

        assert call(tools, "one") == {:ok, "a\uFFFDb"}
        assert call(tools, "two") == {:ok, "a\uFFFDb"}
      end
    end

    test "what a server says of itself may be anything" do
      for odd <- [nil, 1, "", %{}, [], "2099-01-01", String.duplicate("a", 100_000)],
          key <- ["protocolVersion", "capabilities", "serverInfo"] do
        answer =
          McpHttp.legacy("s", fn
            %{"method" => "tools/list"}, _ -> {:result, @tools}
            _other, _ -> {:result, @done}
          end)

        url =
          McpHttp.start(fn message, headers ->
            with {200, headers, text} <- answer.(message, headers) do
              {200, headers,
               text |> JSON.decode!() |> put_in(["result", key], odd) |> JSON.encode()}
            end
          end)

        mcp =
          start_supervised!({MCP, servers: [%{name: "x", url: url}], timeout: 3_000},
            id: make_ref()
          )

        # It can be used, or is not available. Nothing waits for ever.
        for tool <- MCP.tools(mcp, missing: :skip),
            do:
              assert({kind, words} = call([tool], "one")) &&
                assert(kind in [:ok, :error] and is_binary(words))
      end
    end

    test "servers may send much, and get an error of that call for too much" do
      long = String.duplicate("a", 3_000_000)
      result = fn text -> Map.put(@done, "content", [%{"type" => "text", "text" => text}]) end

      for {_era, wrap} <- eras(), how <- [:json, :stream] do
        tools =
          wrap
          |> serve(fn
            %{"method" => "tools/call", "params" => params}, _ ->
              times = params["arguments"]["times"]
              result = Map.put(result.(String.duplicate(long, times)), "resultType", "complete")

              if how == :json,
                do: {:result, result},
                else: {:stream, [%{"id" => :id, "result" => result}]}

            _other, _ ->
              {:result, %{}}
          end)
          |> tools(%{}, max_result_bytes: 3_500_000)

        assert {:ok, ^long} = call(tools, "one", %{"times" => 1})
        assert {:error, words} = call(tools, "one", %{"times" => 2})
        assert words =~ "ask for less"
        assert {:error, words} = call(tools, "one", %{"times" => 20})
        assert words =~ "sent more than it may"
        assert {:ok, ^long} = call(tools, "one", %{"times" => 1})
      end
    end

    test "what carries messages is bounded, and a message that takes too much memory ends the connection" do
      # Few bytes that are much in memory.
      wide = [~s(,"result":{"content":[), List.duplicate("{},", 6_000_000), "1]}}\n\n"]

      for {era, wrap} <- eras() do
        me = self()

        url =
          serve(wrap, fn
            %{"params" => %{"name" => "one"}, "id" => id}, _ ->
              {:stream,
               [IO.iodata_to_binary([~s(data: {"jsonrpc":"2.0","id":), JSON.encode(id), wide])]}

            %{"params" => %{"arguments" => %{"wait" => true}}}, _ ->
              {:stream,
               [fn -> send(me, {:waits, self()}) && receive(do: (:go -> :ok)) end, @answer]}

            _other, _ ->
              {:result, @done}
          end)

        mcp = start_supervised!({MCP, servers: [%{name: "x", url: url}]}, id: make_ref())
        tools = MCP.tools(mcp)
        waits = Task.async(fn -> call(tools, "two", %{"wait" => true}) end)
        assert_receive {:waits, server}, 60_000
        connection = connection(mcp)
        {:links, links} = Process.info(connection.pid, :links)

        sizes =
          for pid <- links, pid != connection.remote do
            {_, info} = Process.info(pid, :garbage_collection)
            info[:max_heap_size]
          end

        # The client's, and that of the call.
        assert {era, length(sizes)} == {era, 2}
        assert Enum.all?(sizes, &match?(%{size: size, kill: true} when size > 0, &1))
        send(server, :go)
        assert Task.await(waits) == {:ok, "done"}

        assert {:error, words} = call(tools, "one", %{}, timeout: 30_000)
        assert words =~ "whether the call did its work is not known"
        assert Wait.until(fn -> call(tools, "two") == {:ok, "done"} end)
      end
    end

    # The process of the connection, and what keeps it.
    defp connection(mcp) do
      [{_, remote, _, _}] = Supervisor.which_children(mcp)
      %{remote: remote, pid: :sys.get_state(remote).connection.held}
    end

    @not_mcp ~s(the MCP server "x" did not answer as MCP says)

    test "what is no answer is not taken for one, and a wrong answer is an error" do
      for {_era, wrap} <- eras(),
          {messages, expected} <- [
            {[%{"id" => :id}, @answer], {:ok, "done"}},
            {[Map.put(@answer, "jsonrpc", "1.0"), @answer], {:ok, "done"}},
            {[%{"id" => :id, "method" => "roots/list", "params" => %{}}, @answer], {:ok, "done"}},
            {[%{"id" => nil, "result" => %{}}, @answer], {:ok, "done"}},
            {[Map.put(@answer, "error", nil)], {:ok, "done"}},
            {[%{"id" => :id}], {:error, @unknown}},
            {[Map.put(@answer, "jsonrpc", "1.0")], {:error, @unknown}},
            {[%{"id" => :id, "error" => "no"}], {:error, @not_mcp}},
            {[%{"id" => :id, "error" => %{"code" => "1", "message" => "no"}}],
             {:error, @not_mcp}},
            {[Map.put(@answer, "error", %{"code" => 1, "message" => "no"})], {:error, @not_mcp}}
          ] do
        tools =
          wrap
          |> serve(fn
            %{"method" => "tools/call"}, _ -> {:stream, messages}
            _other, _ -> {:result, %{}}
          end)
          |> tools()

        assert {messages, call(tools, "one", %{}, timeout: 20_000)} == {messages, expected}
      end
    end

    test "a server that asks with the id of the first request is not misread" do
      answer =
        McpHttp.legacy(fn
          %{"method" => "tools/list"}, _ -> {:result, @tools}
          _other, _ -> {:result, @done}
        end)

      url =
        McpHttp.start(fn
          %{"method" => "initialize"} = message, headers ->
            {200, _headers, text} = answer.(message, headers)
            ping = %{"id" => :id, "method" => "ping", "params" => %{}}
            {:stream, [ping, %{"id" => :id}, JSON.decode!(text)]}

          message, headers ->
            answer.(message, headers)
        end)

      assert url |> tools() |> call("one") == {:ok, "done"}
    end

    test "a call may say initialize, and still has the header of its protocol" do
      for {_era, wrap} <- eras() do
        me = self()

        tools =
          wrap
          |> serve(fn
            %{"method" => "tools/call"}, headers ->
              send(me, {:headers, headers}) && {:result, @done}

            _other, _ ->
              {:result, %{}}
          end)
          |> tools()

        assert call(tools, "one", %{"initialize" => "initialize"}) == {:ok, "done"}
        assert_received {:headers, %{"mcp-protocol-version" => "20" <> _}}
      end
    end

    test "what a server says becomes a header only if it can be nothing else" do
      for {odd, kept} <- [
            {"s1\r\n x-evil: 1", nil},
            {"s1\r\n\tx", nil},
            {"s 1", nil},
            {"s\u00e9", nil},
            {String.duplicate("s", 8_193), nil},
            {"!s-1~", "!s-1~"}
          ] do
        me = self()

        tools =
          (&McpHttp.legacy(odd, &1))
          |> serve(fn
            %{"method" => "tools/call"}, headers ->
              send(me, {:headers, headers}) && {:result, @done}

            _other, _ ->
              {:result, %{}}
          end)
          |> tools()

        assert call(tools, "one") == {:ok, "done"}
        assert_received {:headers, headers}
        assert {odd, headers["mcp-session-id"]} == {odd, kept}
        refute Map.has_key?(headers, "x-evil")
      end
    end

    test "a list with anything in it is read, and what becomes headers of it is bounded" do
      marked = %{"type" => "string", "x-mcp-header" => "Where"}
      schema = %{"type" => "object", "properties" => %{"where" => marked}}
      odd = [1, nil, "x", [], %{}, %{"name" => 1}, %{"name" => "odd", "inputSchema" => [1]}]
      deep = Enum.reduce(1..100, marked, fn _, inner -> %{"properties" => %{"a" => inner}} end)

      large = [
        %{"name" => "deep", "inputSchema" => deep},
        %{"name" => "deep", "input_schema" => deep}
      ]

      for {era, wrap} <- eras() do
        me = self()

        answer =
          wrap.(fn
            %{"method" => "tools/list", "params" => params}, _ ->
              page = params["cursor"] || "1"
              named = for n <- 1..100, do: %{"name" => "t#{page}_#{n}", "inputSchema" => schema}

              next =
                if page == "3", do: %{}, else: %{"nextCursor" => "#{String.to_integer(page) + 1}"}

              {:result, Map.put(next, "tools", odd ++ large ++ named)}

            %{"method" => "tools/call"}, headers ->
              send(me, {:headers, headers})
              {:result, @done}

            _other, _ ->
              {:result, %{}}
          end)

        server = %{name: "x", url: McpHttp.start(answer)}
        mcp = start_supervised!({MCP, servers: [server]}, id: make_ref())
        tools = MCP.tools(mcp)

        for name <- ["t1_1", "t2_1", "t3_1"] do
          assert call(tools, name, %{"where" => "here"}) == {:ok, "done"}
          assert_received {:headers, headers}
          assert headers["mcp-param-where"] == if(era == :modern, do: "here")
        end

        {link, _client} = AshAgent.MCP.Connection.client(connection(mcp).pid, 5_000)
        kept = AshAgent.MCP.Connection.get(link.(), :tool_headers, %{})
        assert map_size(kept) <= 512
        assert Map.get(kept, "deep", []) == []
        assert kept == %{} or era == :modern
      end
    end

    # A server of the old era whose answer to a call goes on in another stream.
    defp resumed(first, others) do
      answer =
        McpHttp.legacy(fn
          %{"method" => "tools/list"}, _ -> {:result, @tools}
          %{"method" => "tools/call"} = message, _ -> {:stream, first.(message["id"])}
          _other, _ -> {:result, %{}}
        end)

      McpHttp.start(fn
        nil, %{"last-event-id" => id} -> {:stream, others.(id)}
        message, headers -> answer.(message, headers)
      end)
    end

    test "a stream that goes on at once, again and again, is not asked for without a pause" do
      count = :counters.new(1, [])
      event = fn n -> ["id: #{n}\nretry: 0\ndata: {}\n\n"] end
      url = resumed(event, fn id -> :counters.add(count, 1, 1) && event.(id) end)
      assert {:error, "timed out" <> _} = url |> tools() |> call("one", %{}, timeout: 1_500)
      assert :counters.get(count, 1) in 1..15
    end

    test "a stream that ends in the middle of an event goes on before it" do
      me = self()

      first = fn id ->
        send(me, {:id, id})
        ["id: 6\nretry: 100\ndata: {}\n\n", ~s(id: 7\ndata: {"jsonrpc":"2.0",)]
      end

      url =
        resumed(first, fn
          "6" ->
            send(me, {:resumed, self()})
            id = receive do: ({:id, id} -> id)

            [
              ~s(data: {"jsonrpc":"2.0","id":#{JSON.encode(id)},"result":#{JSON.encode(@done)}}\n\n)
            ]

          _other ->
            []
        end)

      tools = tools(url)
      run = Task.async(fn -> call(tools, "one", %{}, timeout: 20_000) end)
      assert_receive {:id, id}, 60_000
      assert_receive {:resumed, server}, 60_000
      send(server, {:id, id})
      assert Task.await(run, 60_000) == {:ok, "done"}
    end

    test "a stream may begin with a mark of its encoding, and end without an empty line" do
      for {_era, wrap} <- eras(),
          {first, last} <- [{"\uFEFF", "\n\n"}, {"", ""}, {"", "\n"}, {"", "\r\n"}] do
        tools =
          wrap
          |> serve(fn
            %{"method" => "tools/call", "id" => id}, _ ->
              answer = %{@answer | "id" => id} |> Map.put("jsonrpc", "2.0") |> JSON.encode()
              {:stream, [first <> "data: " <> answer <> last]}

            _other, _ ->
              {:result, %{}}
          end)
          |> tools()

        assert call(tools, "one") == {:ok, "done"}
      end
    end

    test "answers to a server that asks without end, and takes none, are bounded in number and time" do
      count = :counters.new(1, [])

      questions =
        for n <- 1..150, do: %{"id" => "q#{n}", "method" => "roots/list", "params" => %{}}

      answer =
        McpHttp.legacy(fn
          %{"method" => "tools/list"}, _ ->
            {:result, @tools}

          %{"method" => "tools/call"}, _ ->
            {:stream, questions ++ [fn -> Process.sleep(500) end, @answer]}

          _other, _ ->
            {:result, %{}}
        end)

      url =
        McpHttp.start(fn
          %{"id" => "q" <> _}, _ -> :counters.add(count, 1, 1) && {:stream, [:wait]}
          message, headers -> answer.(message, headers)
        end)

      tools = tools(url, %{}, timeout: 3_000)
      assert call(tools, "one") == {:ok, "done"}
      assert Wait.until(fn -> :counters.get(count, 1) == 100 end)
      assert call(tools, "one") == {:ok, "done"}
      assert :counters.get(count, 1) == 100
      # Those that took too long make room.
      Process.sleep(3_000)
      assert call(tools, "one") == {:ok, "done"}
      assert Wait.until(fn -> :counters.get(count, 1) == 200 end)
    end

    describe "a server that wants to know who asks" do
      # Takes the token "good", and for the tool "two" only "better".
      defp guarded(wrap, denied) do
        me = self()

        guard = fn answer ->
          fn message, headers ->
            if message, do: send(me, {:method, message["method"]})
            token = headers["authorization"]
            better? = message["params"]["name"] == "two"

            cond do
              message == nil ->
                answer.(message, headers)

              token not in ["Bearer good", "Bearer better"] ->
                {401, [{"www-authenticate", "Bearer"}], "hunter2"}

              better? and token != "Bearer better" ->
                {403, [{"www-authenticate", denied}], "hunter2"}

              true ->
                answer.(message, headers)
            end
          end
        end

        serve(&guard.(wrap.(&1)), fn _message, _headers -> {:result, @done} end)
      end

      defp forget_methods do
        receive do
          {:method, _} -> forget_methods()
        after
          0 -> :ok
        end
      end

      @denied ~s(Bearer error="insufficient_scope", scope="read write")

      test "gets the token of whoever asks, another one when it does not take that, and calls once more" do
        for {_era, wrap} <- eras() do
          me = self()
          {:ok, kept} = Agent.start_link(fn -> "old" end)

          auth = fn
            %{challenge: nil} ->
              {:ok, Agent.get(kept, & &1)}

            %{challenge: challenge} = ask ->
              send(
                me,
                {:asked, Map.drop(ask, [:challenge, :url]), Map.delete(challenge, :header)}
              )

              token = if challenge.status == 401, do: "good", else: "better"
              Agent.update(kept, fn _ -> token end)
              {:ok, token}
          end

          url = guarded(wrap, @denied)
          server = %{name: "x", url: url, per_actor: true}
          mcp = start_supervised!({MCP, servers: [server], auth: auth}, id: make_ref())
          tools = MCP.tools(mcp, actor: %{id: 7}, tenant: "a")
          who = %{server: "x", actor: %{id: 7}, tenant: "a"}
          assert_received {:asked, ^who, %{status: 401, scopes: []}}
          assert call(tools, "one") == {:ok, "done"}
          refute_received {:asked, _, _}
          assert call(tools, "two") == {:ok, "done"}
          assert_received {:asked, ^who, %{status: 403, scopes: ["read", "write"]}}
          refute_received {:asked, _, _}
        end
      end

      test "is asked for an actor without a tenant, for a tenant without an actor, and for nobody" do
        for {_era, wrap} <- eras(), keys <- [[actor: 1], [tenant: "a"], []] do
          {me, ref} = {self(), make_ref()}
          auth = &(send(me, {ref, Map.take(&1, [:actor, :tenant])}) && {:ok, "good"})
          server = %{name: "x", url: guarded(wrap, @denied), per_actor: keys != []}
          mcp = start_supervised!({MCP, servers: [server], auth: auth}, id: make_ref())
          assert [_, _] = MCP.tools(mcp, keys)
          assert_received {^ref, asked}
          assert asked == Map.merge(%{actor: nil, tenant: nil}, Map.new(keys))
        end
      end

      test "and gets no token is an error that says where to sign in, or what is wrong" do
        for {_era, wrap} <- eras(),
            {answer, words} <- [
              {{:sign_in, "https://example.com/in?state=1"},
               "wants a sign-in; open https://example.com/in?state=1"},
              {{:error, "is not for you"}, "is not for you"},
              {:odd, "cannot be asked: :auth returned neither"},
              {:raise, "cannot be asked: :auth failed (RuntimeError)"},
              {{:ok, "wrong"}, "HTTP status 401"}
            ] do
          auth = fn
            %{challenge: nil} ->
              {:ok, nil}

            _ask ->
              if answer == :raise, do: raise("hunter2"), else: answer
          end

          opts = [servers: [%{name: "x", url: guarded(wrap, @denied)}], auth: auth]
          mcp = start_supervised!({MCP, opts}, id: MCP)
          error = assert_raise MCP.Error, fn -> MCP.tools(mcp) end
          assert Exception.message(error) =~ words
          refute Exception.message(error) =~ "hunter2"
          # A sign-in is not begun again for the other era.
          if match?({:sign_in, _}, answer), do: refute_received({:method, "initialize"})
          stop_supervised!(MCP)
          forget_methods()
        end
      end

      @tag capture_log: false
      test "shows a token in no log, state, error or result" do
        for {_era, wrap} <- eras() do
          log =
            capture_log([level: :debug], fn ->
              url =
                serve(wrap, fn
                  %{"params" => %{"name" => "one"}}, _ -> :close
                  _other, _ -> {:result, @done}
                end)

              opts = [servers: [%{name: "x", url: url}], auth: fn _ -> {:ok, "hunter2"} end]
              mcp = start_supervised!({MCP, opts}, id: make_ref())
              tools = MCP.tools(mcp)
              refute inspect(call(tools, "one")) =~ "hunter2"
              assert call(tools, "two") == {:ok, "done"}
              [{_, remote, _, _}] = Supervisor.which_children(mcp)
              connection = :sys.get_state(remote).connection.held

              for pid <- [mcp, remote, connection],
                  do: refute(inspect(:sys.get_status(pid), limit: :infinity) =~ "hunter2")

              refute inspect(tools, limit: :infinity) =~ "hunter2"
              # Processes that crash in the middle.
              {_link, client} = AshAgent.MCP.Connection.client(connection, 5_000)
              ref = Process.monitor(client)
              GenServer.cast(client, {:odd, "hunter2"})
              assert_receive {:DOWN, ^ref, :process, _, _}
              assert Wait.until(fn -> call(tools, "two") == {:ok, "done"} end)
            end)

          refute log =~ "hunter2"
        end
      end
    end

    test "a server that asks for a model or a person is refused, and the call goes on" do
      me = self()

      for method <- ["sampling/createMessage", "elicitation/create", "roots/list"] do
        question = %{
          "id" => "q",
          "method" => method,
          "params" => %{"message" => "Who?", "messages" => []}
        }

        url =
          McpHttp.start(fn
            %{"id" => "q", "error" => error}, _headers ->
              send(me, {:refused, method, error["code"]})
              {202, [], ""}

            message, headers ->
              McpHttp.legacy("s", fn
                %{"method" => "tools/list"}, _ ->
                  {:result, @tools}

                _call, _ ->
                  {:stream, [question, fn -> Process.sleep(200) end, @answer]}
              end).(message, headers)
          end)

        assert call(tools(url), "one") == {:ok, "done"}
        assert_receive {:refused, ^method, -32_601}
      end

      for kind <- ["elicitation/create", "sampling/createMessage"] do
        count = :counters.new(1, [])

        asks = %{
          "method" => kind,
          "params" => %{"message" => "Who?", "mode" => "form", "requestedSchema" => %{}}
        }

        tools =
          (&McpHttp.modern/1)
          |> serve(fn %{"method" => "tools/call"}, _ ->
            :counters.add(count, 1, 1)

            {:result,
             %{
               "resultType" => "input_required",
               "inputRequests" => %{"a" => asks},
               "requestState" => "s"
             }}
          end)
          |> tools()

        assert {:error, words} = call(tools, "one")
        assert words =~ "asks for something that it does not get here"
        assert :counters.get(count, 1) == 1
      end
    end
  end
end
