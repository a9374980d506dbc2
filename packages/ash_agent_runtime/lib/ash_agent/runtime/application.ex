defmodule AshAgent.Runtime.Application do
  @moduledoc false

  use Application

  @impl true
  def start(_type, _args) do
    Supervisor.start_link([AshAgent.LLM.Transport.HTTP1.Pool],
      strategy: :one_for_one,
      name: AshAgent.Runtime.Supervisor
    )
  end
end
