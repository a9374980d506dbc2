defmodule Mix.Tasks.AshAgent.Mcp do
  @shortdoc "Serves an agent to a client of MCP over standard input and output"

  @moduledoc """
  Serves an agent, or a set of tools, to a client of the Model Context Protocol over standard input and output.

      mix ash_agent.mcp MyApp.MCP

  The module has a function `mcp_server/0` that returns an `AshAgent.MCP.Server`. The application is started, and what it logs or prints goes to
  standard error. Compile it before a client starts the task. In a release, a client starts `bin/my_app eval "AshAgent.MCP.Server.stdio(MyApp.MCP)"`.
  """

  use Mix.Task

  alias AshAgent.MCP.Server.Stdio

  @usage "usage: mix ash_agent.mcp MODULE, a module with mcp_server/0"

  @impl true
  def run([name]) do
    device = Stdio.take_over()
    # Which reads the configuration of logs.
    Mix.Task.run("app.config")
    Stdio.move_logs()
    Mix.Task.run("app.start")
    module = Module.concat([name])

    if Code.ensure_loaded?(module) and function_exported?(module, :mcp_server, 0),
      do: Stdio.serve(module.mcp_server(), device),
      else: Mix.raise("#{inspect(module)} has no mcp_server/0; #{@usage}")
  end

  def run(_args), do: Mix.raise(@usage)
end
