if Code.ensure_loaded?(ExMCP.Client) do
  defmodule AshAgent.Integration.MCPTest do
    # The environment belongs to the whole VM.
    use ExUnit.Case, async: false

    import ExUnit.CaptureLog

    alias AshAgent.{Context, LLM, MCP, Runtime}
    alias AshAgent.Runtime.ToolExecutor
    alias AshAgent.TestSupport.{McpServers, Wait}

    @moduletag :mcp
    @moduletag :capture_log

    setup_all do
      {:ok, _} = Application.ensure_all_started(:ex_mcp)
      :ok
    end

    defp start!(servers, opts \\ []),
      do: start_supervised!({MCP, [servers: servers] ++ opts}, id: make_ref())

    defp everything(keys \\ %{}),
      do: program("everything", McpServers.npm("everything"), ["stdio"], keys)

    defp python(notes, keys \\ %{}), do: program("py", McpServers.python(), [notes], keys)

    defp program(name, {program, args}, more, keys),
      do: Map.merge(%{name: name, command: program, args: args ++ more}, keys)

    defp call(tools, name, arguments \\ %{}, opts \\ []) do
      [%{result: result}] =
        ToolExecutor.execute_tools(
          [%{id: "1", name: name, arguments: arguments}],
          tools,
          %{},
          opts
        )

      result
    end

    # A call that somebody makes who is ended in its middle.
    defp started(tools, name, arguments) do
      me = self()
      on_event = fn name, measurements, _ -> send(me, {:event, List.last(name), measurements}) end
      Task.async(fn -> call(tools, name, arguments, on_event: on_event) end)
    end

    defp names(tools), do: Enum.map(tools, & &1.name)

    defp there?(file, words), do: match?({:ok, ^words}, File.read(file))

    describe "server-everything over stdio" do
      @describetag :mcp_npm
      @describetag integrations: ["ex_mcp", "MCP servers"]

      test "is listed, and its results become text, parts and errors" do
        tools = [everything()] |> start!() |> MCP.tools()
        assert "everything__echo" in names(tools)
        assert Enum.all?(tools, &(&1.repeat == :never and &1.description != nil))

        assert call(tools, "everything__echo", %{"message" => "hi"}) == {:ok, "Echo: hi"}

        assert {:ok, [%{type: :text}, %{type: :image, media_type: "image/png"}, %{type: :text}]} =
                 call(tools, "everything__get-tiny-image")

        assert {:ok, "{" <> _ = json} =
                 call(tools, "everything__get-structured-content", %{"location" => "Chicago"})

        assert {:ok, %{"temperature" => _}} = AshAgent.Context.JSON.decode(json)

        text = %{"resourceType" => "Text", "resourceId" => 1}
        assert {:ok, words} = call(tools, "everything__get-resource-reference", text)
        assert words =~ "Resource demo://resource/dynamic/text/1 (text/plain):\n"
        blob = %{text | "resourceType" => "Blob"}

        assert {:ok, [_, %{type: :file, media_type: "text/plain", data: data}, _]} =
                 call(tools, "everything__get-resource-reference", blob)

        assert {:ok, _} = Base.decode64(data)
        assert {:ok, words} = call(tools, "everything__get-resource-links", %{"count" => 2})
        assert words =~ "Resource demo://resource/dynamic/text/2"

        assert {:error, words} = call(tools, "everything__get-sum", %{"a" => "x", "b" => 1})
        assert words =~ "expected a number"
      end

      test "gets only the environment that it may have" do
        variables = ["ASH_AGENT_TEST_SECRET", "ASH_AGENT_TEST_LINES", "ASH_AGENT_TEST_NAMED"]
        on_exit(fn -> Enum.each(variables, &System.delete_env/1) end)
        for name <- variables, do: System.put_env(name, "hunter2\nHOME=/\nASH=x\n")

        env = fn keys ->
          {:ok, json} =
            [everything(keys)] |> start!() |> MCP.tools() |> call("everything__get-env")

          AshAgent.Context.JSON.decode!(json)
        end

        plain = env.(%{})
        assert plain["PATH"] == System.get_env("PATH")
        assert Map.keys(plain) -- ~w(HOME LOGNAME PATH SHELL TERM USER) == []

        more = env.(%{env: %{"GIVEN" => "a b"}, inherit_env: ["ASH_AGENT_TEST_NAMED"]})

        assert Map.drop(more, Map.keys(plain)) == %{
                 "GIVEN" => "a b",
                 "ASH_AGENT_TEST_NAMED" => "hunter2\nHOME=/\nASH=x\n"
               }

        assert env.(%{inherit_env: true})["ASH_AGENT_TEST_SECRET"] == "hunter2\nHOME=/\nASH=x\n"
      end

      test "tells the progress of a run" do
        tools = [everything()] |> start!() |> MCP.tools()

        call = %{
          id: "1",
          name: "everything__trigger-long-running-operation",
          arguments: %{"duration" => 1, "steps" => 2}
        }

        me = self()

        on_event = fn name, measurements, metadata ->
          send(me, {:event, List.last(name), measurements, metadata})
        end

        llm = LLM.Scripted.new([%{tool_calls: [call]}, "Done."])

        assert {:ok, %{output: "Done."}} =
                 Runtime.run(Context.new("Go"), llm: llm, tools: tools, on_event: on_event)

        assert_receive {:event, :progress, %{progress: 1, total: 2},
                        %{tool_call_id: "1", context_id: id}}
                       when is_binary(id)

        assert_receive {:event, :progress, %{progress: 2, total: 2}, _}
      end
    end

    describe "server-filesystem over stdio" do
      @describetag :mcp_npm
      @describetag :tmp_dir
      @describetag integrations: ["ex_mcp", "MCP servers"]

      test "reads and writes in its folder, as far as the rules of a run allow", %{tmp_dir: dir} do
        dir = Path.expand(dir)
        files = program("files", McpServers.npm("filesystem"), [dir], %{})
        tools = [files, everything()] |> start!() |> MCP.tools()
        File.write!(Path.join(dir, "a.txt"), "Hello")

        calls = [
          %{
            id: "1",
            name: "files__read_text_file",
            arguments: %{"path" => Path.join(dir, "a.txt")}
          },
          %{
            id: "2",
            name: "files__write_file",
            arguments: %{"path" => Path.join(dir, "b.txt"), "content" => "b"}
          },
          %{id: "3", name: "files__read_text_file", arguments: %{"path" => "/etc/passwd"}}
        ]

        llm = LLM.Scripted.new([%{tool_calls: calls}, "Done."])

        {:ok, result} =
          Runtime.run(Context.new("Go"),
            llm: llm,
            tools: tools,
            permission_rules: [{:deny, "files__write_*"}]
          )

        assert [read, written, outside] = Context.get_iteration(result.context, 1).tool_calls
        assert read.result == {:ok, "Hello"}
        assert {:error, _} = written.result
        refute File.exists?(Path.join(dir, "b.txt"))
        assert {:error, "Access denied" <> _} = outside.result
      end
    end

    describe "server-everything over HTTP" do
      @describetag :mcp_npm
      @describetag integrations: ["ex_mcp", "MCP servers"]

      setup do
        {program, args} = McpServers.npm("everything")
        {number, os_pid} = McpServers.listen({program, args ++ ["streamableHttp"]})

        server = %{
          name: "ev",
          url: "http://127.0.0.1:#{number}/mcp",
          headers: %{"authorization" => "Bearer hunter2"}
        }

        {:ok, server: server, os_pid: os_pid}
      end

      test "makes ten slow calls in the time of one, and tells their progress while they run", %{
        server: server
      } do
        tools = [server] |> start!() |> MCP.tools()
        assert call(tools, "ev__echo", %{"message" => "hi"}) == {:ok, "Echo: hi"}
        slow = %{"duration" => 3, "steps" => 3}
        begun = System.monotonic_time(:millisecond)

        runs = for _ <- 1..10, do: started(tools, "ev__trigger-long-running-operation", slow)

        assert_receive {:event, :progress, %{progress: 1, total: 3}}, 60_000
        assert Enum.all?(runs, &(Task.yield(&1, 0) == nil))
        assert call(tools, "ev__echo", %{"message" => "meanwhile"}) == {:ok, "Echo: meanwhile"}
        for {:ok, words} <- Task.await_many(runs, 60_000), do: assert(words =~ "Long running")
        assert System.monotonic_time(:millisecond) - begun < 15_000
      end

      test "loses one call that times out, and no other", %{server: server} do
        tools = [server] |> start!() |> MCP.tools()

        other =
          started(tools, "ev__trigger-long-running-operation", %{"duration" => 3, "steps" => 1})

        long = %{"duration" => 600, "steps" => 1}

        assert {:error, "timed out" <> _} =
                 call(tools, "ev__trigger-long-running-operation", long, timeout: 500)

        assert {:ok, "Long running" <> _} = Task.await(other, 60_000)
        assert call(tools, "ev__echo", %{"message" => "again"}) == {:ok, "Echo: again"}
      end

      @tag capture_log: false
      test "may die; no key is logged, at whatever level", %{server: server, os_pid: os_pid} do
        log =
          capture_log([level: :debug], fn ->
            mcp = start!([server])
            tools = MCP.tools(mcp)

            long =
              started(tools, "ev__trigger-long-running-operation", %{
                "duration" => 600,
                "steps" => 1
              })

            assert_receive {:event, :start, _}
            McpServers.kill(os_pid)
            assert {:error, words} = Task.await(long, 60_000)
            assert words =~ ~s(the MCP server "ev" )

            assert Wait.until(fn ->
                     match?({:error, _}, call(tools, "ev__echo", %{"message" => "gone"}))
                   end)

            # The old list is there for those who begin now.
            assert names(MCP.tools(mcp)) == names(tools)
          end)

        refute log =~ "hunter2"
      end
    end

    describe "the guide" do
      @describetag :mcp_npm
      @describetag :tmp_dir
      @describetag integrations: ["ex_mcp", "MCP servers"]

      # Its code as it stands there, but for the programs and places of this machine.
      test "runs", %{tmp_dir: dir} do
        dir = Path.expand(dir)
        File.write!(Path.join(dir, "a.txt"), "Hello")
        {node, [everything]} = McpServers.npm("everything")
        {_node, [filesystem]} = McpServers.npm("filesystem")
        {number, _os_pid} = McpServers.listen({node, [everything, "streamableHttp"]})

        blocks =
          for [block] <-
                Regex.scan(~r/```elixir\n(.*?)```/s, File.read!("guides/mcp.md"),
                  capture: :all_but_first
                ),
              not String.starts_with?(block, "# mix.exs") do
            block
            |> String.replace(~s("npx"), inspect(node))
            |> String.replace(
              ~s("-y", "@modelcontextprotocol/server-filesystem"),
              inspect(filesystem)
            )
            |> String.replace("/srv/documents", dir)
            |> String.replace("localhost:3001", "127.0.0.1:#{number}")
          end

        read = %{
          tool_calls: [
            %{
              id: "1",
              name: "files__read_text_file",
              arguments: %{"path" => Path.join(dir, "a.txt")}
            }
          ]
        }

        script = [read, "It says hello." | List.duplicate("Done.", 10)]
        bindings = [llm: LLM.Scripted.new(script), token: "t", context: Context.new("Go")]
        env = Code.env_for_eval([])

        {values, {bindings, _env}} =
          Enum.map_reduce(blocks, {bindings, env}, fn block, {bindings, env} ->
            {value, bindings, env} =
              block |> Code.string_to_quoted!() |> Code.eval_quoted_with_env(bindings, env)

            {value, {bindings, env}}
          end)

        assert [%{result: {:ok, "Hello"}}] =
                 Context.get_iteration(bindings[:result].context, 1).tool_calls

        assert Enum.at(values, 1) == ["files__read_file", "files__read_text_file"]
        assert for({:error, _} = error <- values, do: error) == []
        {:ok, supervisor} = hd(values)
        assert {:ok, _} = AshAgent.Session.prompt(bindings[:session], "Hi")
        Supervisor.stop(supervisor)
      end
    end

    describe "a server made with the Python SDK" do
      @describetag :mcp_python
      @describetag :tmp_dir
      @describetag integrations: ["ex_mcp", "MCP servers"]

      setup %{tmp_dir: dir}, do: {:ok, notes: Path.expand("notes", dir)}

      test "is listed page by page, and lists what is new", %{notes: notes} do
        mcp = start!([python(notes, %{trust_annotations: true})])
        tools = MCP.tools(mcp)
        assert names(tools) == ["py__wait", "py__grow", "py__sound", "py__end"]
        assert for(tool <- tools, tool.repeat == :safe, do: tool.name) == ["py__sound"]

        assert call(tools, "py__sound") ==
                 {:ok, [%{type: :audio, media_type: "audio/wav", data: "UklGRg=="}]}

        assert call(tools, "py__grow") == {:ok, "grown"}
        assert Wait.until(fn -> length(MCP.tools(mcp)) == 5 end)
        [grown] = names(MCP.tools(mcp)) -- names(tools)
        assert mcp |> MCP.tools() |> call(grown) == {:error, "grown.twice is new"}
      end

      test "hears of calls that are cancelled and that time out, and makes the others", %{
        notes: notes
      } do
        tools = [python(notes)] |> start!() |> MCP.tools()
        other = started(tools, "py__wait", %{"label" => "other"})
        assert_receive {:event, :progress, %{progress: 0.5, total: 2}}
        late = call(tools, "py__wait", %{"label" => "late"}, timeout: 2_000)
        assert late == {:error, "timed out after 2000 ms"}
        assert Wait.until(fn -> there?(notes, "late\n") end)
        assert {:ok, [_audio]} = call(tools, "py__sound")
        assert Task.yield(other, 0) == nil
        Task.shutdown(other, :brutal_kill)
        assert Wait.until(fn -> there?(notes, "late\nother\n") end)
      end

      test "may die during a call, and is there again", %{notes: notes} do
        tools = [python(notes)] |> start!() |> MCP.tools()
        other = started(tools, "py__wait", %{"label" => "other"})
        assert_receive {:event, :progress, _}

        words =
          ~s(the MCP server "py" ended during the call, and whether the call did its work is not known)

        assert call(tools, "py__end") == {:error, words}
        assert Task.await(other) == {:error, words}
        assert Wait.until(fn -> match?({:ok, _}, call(tools, "py__sound")) end, 60_000)
      end

      test "may have an output schema that refers to itself" do
        assert [python("--recursive")] |> start!() |> MCP.tools() |> length() == 4
      end

      test "hears of cancelled calls and lists what is new over HTTP, too", %{notes: notes} do
        {number, _os_pid} = McpServers.listen(McpServers.python(), fn _ -> [] end, &[notes, &1])
        mcp = start!([%{name: "py", url: "http://127.0.0.1:#{number}/mcp"}])
        tools = MCP.tools(mcp)
        late = call(tools, "py__wait", %{"label" => "late"}, timeout: 2_000)
        assert late == {:error, "timed out after 2000 ms"}
        assert Wait.until(fn -> there?(notes, "late\n") end)
        assert call(tools, "py__grow") == {:ok, "grown"}
        assert Wait.until(fn -> length(MCP.tools(mcp)) == 5 end)
      end
    end

    describe "a program of the old era" do
      @describetag :mcp_python
      @describetag integrations: ["ex_mcp", "MCP servers"]

      defp odd(mode, opts) do
        {python, _args} = McpServers.python()
        script = Path.expand("../support/mcp_odd.py", __DIR__)
        start!([program("odd", {python, [script]}, [mode], %{})], opts)
      end

      test "can be used, whatever it does with what it does not know, and whatever else it writes" do
        for mode <- ["dies", "silent", "slow", "noisy"] do
          tools = mode |> odd(timeout: 9_000) |> MCP.tools()
          assert {mode, call(tools, "odd__add")} == {mode, {:ok, "aaa"}}
        end
      end

      test "that sends a flood costs its own call some time" do
        tools = "flood" |> odd([]) |> MCP.tools()
        me = self()
        on_event = fn name, measured, _ -> send(me, {List.last(name), measured}) end
        assert call(tools, "odd__add", %{}, on_event: on_event) == {:ok, "aaa"}
        {:messages, messages} = Process.info(self(), :messages)
        assert Enum.count(messages, &match?({:progress, _}, &1)) in 1..5_000
      end

      test "that sends too much ends, which is the end of its calls alone" do
        mcp = odd("large", max_result_bytes: 1_000_000)
        assert {:error, words} = mcp |> MCP.tools() |> call("odd__add")
        assert words =~ "ended during the call, and whether the call did its work is not known"
        assert Wait.until(fn -> names(MCP.tools(mcp)) == ["odd__add"] end)
      end
    end

    test "a program that writes no messages is an error that says so" do
      program = %{
        name: "x",
        command: "sh",
        args: ["-c", "while read -r line; do echo hello; done"]
      }

      error = assert_raise MCP.Error, fn -> [program] |> start!(timeout: 3_000) |> MCP.tools() end

      assert %{"x" => words} = elem(error.reason, 1)
      assert words =~ "did not respond"
    end

    test "a program that does not exist is an error that names it" do
      error =
        assert_raise MCP.Error, fn ->
          [%{name: "x", command: "mcp-nowhere"}] |> start!() |> MCP.tools()
        end

      assert Exception.message(error) =~
               ~s("x" cannot be started: "mcp-nowhere" does not exist or is not executable)
    end

    test "an address that refuses is an error with its status, and without what it says" do
      {:ok, socket} = :gen_tcp.listen(0, [:binary, active: false, ip: {127, 0, 0, 1}])
      {:ok, number} = :inet.port(socket)
      start_supervised!({Task, fn -> refuse(socket) end})

      server = %{
        name: "x",
        url: "http://127.0.0.1:#{number}/mcp",
        headers: %{"authorization" => "Bearer hunter2"}
      }

      error = assert_raise MCP.Error, fn -> [server] |> start!() |> MCP.tools() end
      assert error.reason == {:unavailable, %{"x" => "wants to know who asks (HTTP status 401)"}}
    end

    defp refuse(socket) do
      {:ok, accepted} = :gen_tcp.accept(socket)
      {:ok, _request} = :gen_tcp.recv(accepted, 0)

      :gen_tcp.send(
        accepted,
        "HTTP/1.1 401 Unauthorized\r\nconnection: close\r\ncontent-length: 7\r\n\r\nhunter2"
      )

      :gen_tcp.close(accepted)
      refuse(socket)
    end

    test "an address that is not one is an error without it" do
      error =
        assert_raise MCP.Error, fn ->
          [%{name: "x", url: "ftp://hunter2"}] |> start!() |> MCP.tools()
        end

      assert Exception.message(error) =~
               "has a :url that is not an address with http:// or https://"

      refute Exception.message(error) =~ "hunter2"

      error =
        assert_raise MCP.Error, fn ->
          [%{name: "x", url: "http://127.0.0.1:1/hunter2"}] |> start!() |> MCP.tools()
        end

      refute Exception.message(error) =~ "hunter2"
    end

    @tag :tmp_dir
    test "a program that does not end with its input is killed, with what it started", %{
      tmp_dir: dir
    } do
      file = Path.expand("pids", dir)
      script = ~S(sleep 600 & echo $$ $! >"$0"; wait)

      {:ok, mcp} =
        MCP.start_link(servers: [%{name: "x", command: "sh", args: ["-c", script, file]}])

      assert Wait.until(fn -> match?({:ok, <<_, _::binary>>}, File.read(file)) end)
      pids = file |> File.read!() |> String.split()

      alive? = fn ->
        Enum.any?(pids, &match?({_, 0}, System.cmd("kill", ["-0", &1], stderr_to_stdout: true)))
      end

      assert alive?.()
      Supervisor.stop(mcp)
      assert Wait.until(fn -> not alive?.() end, 60_000)
    end

    test "a program that speaks no MCP is not waited for without end" do
      error =
        assert_raise MCP.Error, fn ->
          [%{name: "x", command: "sleep", args: ["600"]}] |> start!(timeout: 500) |> MCP.tools()
        end

      assert error.reason == {:unavailable, %{"x" => "did not respond within 500 ms"}}
    end
  end
end
