defmodule AshAgent.Context.Application do
  @moduledoc false

  use Application

  @impl true
  def start(_type, _args) do
    children = [AshAgent.LLM.Transport.HTTP1.Pool]
    Supervisor.start_link(children, strategy: :one_for_one, name: AshAgent.Context.Supervisor)
  end
end
