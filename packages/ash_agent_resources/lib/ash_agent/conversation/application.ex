defmodule AshAgent.Conversation.Application do
  @moduledoc false
  # The supervisor of turns, which do not end with the process that began them.

  use Application

  @impl true
  def start(_type, _args) do
    children = [
      {DynamicSupervisor, name: AshAgent.Conversation.Sessions, strategy: :one_for_one}
    ]

    Supervisor.start_link(children, strategy: :one_for_one)
  end
end
