defmodule AshAgent.Runtime.Application do
  @moduledoc false
  # Starts the processes that live as long as the application: the pool of HTTP connections, and the renewals of claims.

  use Application

  @impl true
  def start(_type, _args) do
    Supervisor.start_link([AshAgent.LLM.Transport.HTTP1.Pool, AshAgent.Store.Renewals],
      strategy: :one_for_one,
      name: AshAgent.Runtime.Supervisor
    )
  end
end
