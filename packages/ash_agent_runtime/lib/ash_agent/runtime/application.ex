defmodule AshAgent.Runtime.Application do
  @moduledoc false
  # What runs as long as the application: the pool of HTTP connections.

  use Application

  @impl true
  def start(_type, _args) do
    Supervisor.start_link([AshAgent.LLM.Transport.HTTP1.Pool],
      strategy: :one_for_one,
      name: AshAgent.Runtime.Supervisor
    )
  end
end
