defmodule AshAgent.Conversation.Application do
  @moduledoc false
  # The supervisor of turns, which do not end with the process that began them.

  use Application

  @impl true
  def start(_type, _args) do
    children =
      for name <- [AshAgent.Conversation.Sessions, AshAgent.Conversation.Waiting],
          do: Supervisor.child_spec({DynamicSupervisor, name: name}, id: name)

    # What began here, and may have no session yet.
    begun = {Registry, keys: :duplicate, name: AshAgent.Conversation.Begun}
    Supervisor.start_link([begun | children], strategy: :one_for_one)
  end
end
