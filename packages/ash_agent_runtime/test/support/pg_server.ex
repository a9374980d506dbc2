defmodule AshAgent.TestSupport.PgServer do
  @moduledoc false

  # The PostgreSQL that bin/postgres started, for tests that kill it.

  @root Path.expand("../../../..", __DIR__)

  @doc "Stops it without warning, or starts it again: `\"stop\"`, `\"restart\"`."
  def control(command) do
    script =
      ". bin/postgres; as_postgres $ASH_AGENT_CONTEXT_PGCTL -m immediate -w #{command} >/dev/null 2>&1"

    {_, 0} = System.cmd("bash", ["-c", script], cd: @root)
    :ok
  end

  @doc "Asks a store until it answers: every connection of the pool finds out for itself that the server is back."
  def until_back(ask, tries \\ 100) do
    with {:error, %AshAgent.Store.Error{}} when tries > 0 <- ask.() do
      Process.sleep(50)
      until_back(ask, tries - 1)
    end
  end
end
