defmodule AshAgent.TestSupport.McpServers do
  @moduledoc false

  # MCP servers of others: those from npm in the folder _build/mcp, and one made with the Python SDK.

  alias AshAgent.Context.JSON
  alias AshAgent.TestSupport.{Python, Wait}

  @build Path.expand("../../../../_build", __DIR__)
  @npm Path.join(@build, "mcp/node_modules/@modelcontextprotocol")
  @python Path.expand("mcp_server.py", __DIR__)

  @doc "The program and the arguments that start a server from npm, such as `\"everything\"`, or `nil`."
  def npm(name) do
    main = "#{@npm}/server-#{name}/dist/index.js"
    node = System.find_executable("node")
    if node && File.regular?(main), do: {node, [main]}
  end

  # Other versions have other scenarios.
  @conformance "0.2.0-alpha.12"

  @doc "The same for the official suite, which needs node 22, that of npm's package `node`, say."
  def conformance do
    nodes = [Path.join(@npm, "../node/bin/node"), System.find_executable("node")]

    with %{"version" => @conformance} <- package("conformance"),
         node when node != nil <- Enum.find(nodes, &node_22?/1),
         do: {Path.expand(node), ["#{@npm}/conformance/dist/index.js"]},
         else: (_other -> nil)
  end

  def conformance_version, do: @conformance

  defp node_22?(node) do
    with true <- node != nil and File.regular?(node),
         {"v" <> version, 0} <- System.cmd(node, ["--version"]),
         do: version |> Integer.parse() |> elem(0) >= 22,
         else: (_missing -> false)
  end

  defp package(name) do
    with {:ok, json} <- File.read("#{@npm}/#{name}/package.json"), do: JSON.decode!(json)
  end

  @doc "The same for the server that is made with the Python SDK."
  def python do
    with {python, _found} <- Python.find(@python), do: {python, [@python]}
  end

  @doc "Their versions."
  def versions do
    npm =
      for name <- ["everything", "filesystem"], npm(name) do
        "server-#{name}-" <> package("server-#{name}")["version"]
      end

    npm ++ python_version()
  end

  defp python_version do
    case Python.find(@python) do
      {_python, found} -> found
      nil -> []
    end
  end

  @doc "A port of this machine that nobody listens on just now."
  def free_port do
    {:ok, socket} = :gen_tcp.listen(0, ip: {127, 0, 0, 1})
    {:ok, number} = :inet.port(socket)
    :gen_tcp.close(socket)
    number
  end

  @doc "Starts a server that listens on a port of this machine, waits until it does, and returns its port and the id of its process."
  def listen({program, args}, env \\ &[{"PORT", &1}], more \\ fn _port -> [] end) do
    number = free_port()
    env = for {name, value} <- env.("#{number}"), do: {to_charlist(name), to_charlist(value)}
    options = [:binary, :stderr_to_stdout, args: args ++ more.("#{number}"), env: env]
    port = Port.open({:spawn_executable, program}, options)
    {:os_pid, os_pid} = Port.info(port, :os_pid)
    ExUnit.Callbacks.on_exit(fn -> kill(os_pid) end)

    true =
      Wait.until(fn -> match?({:ok, _}, :gen_tcp.connect({127, 0, 0, 1}, number, [])) end, 60_000)

    {number, os_pid}
  end

  @doc "Kills a process."
  def kill(os_pid), do: System.cmd("kill", ["-9", "#{os_pid}"], stderr_to_stdout: true)
end
