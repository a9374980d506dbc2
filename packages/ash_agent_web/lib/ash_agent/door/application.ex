defmodule AshAgent.Door.Application do
  @moduledoc false

  use Application

  alias AshAgent.Door.Feed

  @impl true
  def start(_type, _args) do
    children = [
      {Registry, keys: :unique, name: Feed.Names},
      {Task.Supervisor, name: Feed.Supervisor}
    ]

    Supervisor.start_link(children, strategy: :one_for_one)
  end
end
