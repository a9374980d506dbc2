defmodule AshAgent.Context.Application do
  @moduledoc false

  use Application

  # Turns of `AshAgent.Conversation` do not end with the process that began them.
  @sessions if Code.ensure_loaded?(Ash.Resource),
              do: [
                {DynamicSupervisor, name: AshAgent.Conversation.Sessions, strategy: :one_for_one}
              ],
              else: []

  @impl true
  def start(_type, _args) do
    children = [AshAgent.LLM.Transport.HTTP1.Pool | @sessions]
    Supervisor.start_link(children, strategy: :one_for_one, name: AshAgent.Context.Supervisor)
  end
end
