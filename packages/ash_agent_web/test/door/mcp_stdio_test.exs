defmodule AshAgent.MCP.StdioTest do
  # Our server and our client, with a pipe between them.
  use ExUnit.Case, async: true

  alias AshAgent.Context.JSON
  alias AshAgent.MCP
  alias AshAgent.Runtime.ToolExecutor
  alias AshAgent.TestSupport.McpSuite

  @moduletag :ex_mcp
  @moduletag :capture_log
  @moduletag integrations: ["ex_mcp"]

  defp program do
    path = Enum.flat_map(:code.get_path(), &["-pa", to_string(&1)])
    start = "AshAgent.MCP.Server.stdio(#{inspect(McpSuite)})"
    # What it prints and logs.
    quiet = ["-c", ~S(exec "$0" "$@" 2>/dev/null), System.find_executable("elixir")]
    {System.find_executable("sh"), quiet ++ path ++ ["-e", start]}
  end

  test "a client starts the program, and calls its tools side by side" do
    {command, args} = program()
    server = %{name: "s", command: command, args: args, inherit_env: true}
    {:ok, mcp} = MCP.start_link(servers: [server], timeout: 60_000)
    tools = MCP.tools(mcp)
    call = &%{id: &1, name: "s__" <> &2, arguments: &3}

    calls = [
      call.("a", "slow_compute", %{"seconds" => 1}),
      call.("b", "greet", %{"name" => "Ada"}),
      call.("c", "slow_compute", %{"seconds" => 1}),
      call.("d", "failing_job", %{})
    ]

    started = System.monotonic_time(:millisecond)
    results = ToolExecutor.execute_tools(calls, tools, %{}, max_concurrency: 4)
    assert System.monotonic_time(:millisecond) - started < 3_000
    results = Map.new(results, &{&1.id, &1.result})
    assert %{"a" => {:ok, "computed"}, "b" => {:ok, "Hello, Ada!"}, "d" => {:error, _}} = results
    Supervisor.stop(mcp)
  end

  test "the task says how it is called" do
    assert_raise Mix.Error, ~r/usage: mix ash_agent.mcp MODULE/, fn ->
      Mix.Tasks.AshAgent.Mcp.run([])
    end
  end

  test "nothing but messages is written, and each request has its answer" do
    {command, args} = program()

    port =
      Port.open({:spawn_executable, command}, [:binary, :exit_status, line: 1_000_000, args: args])

    meta = %{
      "io.modelcontextprotocol/protocolVersion" => "2026-07-28",
      "io.modelcontextprotocol/clientInfo" => %{"name" => "test", "version" => "1"},
      "io.modelcontextprotocol/clientCapabilities" => %{},
      "progressToken" => "p"
    }

    ask = fn id, name, arguments ->
      params = %{"name" => name, "arguments" => arguments, "_meta" => meta}
      JSON.encode(%{"jsonrpc" => "2.0", "id" => id, "method" => "tools/call", "params" => params})
    end

    lines = [
      ask.(1, "slow_compute", %{"seconds" => 60}),
      ask.(2, "greet", %{"name" => "Žofie"}),
      "no json",
      ask.(3, "greet", %{"name" => String.duplicate("a", 1_000_001)}),
      ask.(4, "test_tool_with_progress", %{}),
      JSON.encode(%{
        "jsonrpc" => "2.0",
        "method" => "notifications/cancelled",
        "params" => %{"requestId" => 1}
      })
    ]

    for line <- lines, do: Port.command(port, [line, "\n"])
    messages = read(port, [])
    Port.close(port)

    assert %{"result" => %{"content" => [%{"text" => "Hello, Žofie!"}]}} =
             Enum.find(messages, &(&1["id"] == 2))

    assert 2 == Enum.count(messages, &(&1["error"]["code"] == -32_600))
    assert length(for %{"method" => "notifications/progress"} = m <- messages, do: m) >= 2
    assert Enum.find(messages, &(&1["id"] == 1)) == nil
  end

  # Until the call with progress has ended. Each line is JSON.
  defp read(port, messages) do
    receive do
      {^port, {:data, {:eol, line}}} ->
        message = JSON.decode!(line)
        if message["id"] == 4, do: [message | messages], else: read(port, [message | messages])

      {^port, {:exit_status, status}} ->
        flunk("the program ended with status #{status}")
    after
      60_000 -> flunk("nothing more after #{inspect(messages)}")
    end
  end
end
