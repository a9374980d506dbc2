defmodule AshAgent.Test.CountingStore do
  @moduledoc false
  # A store in memory that tells a process what it is asked: `{:store, operation, bytes}` for each round trip.

  use AshAgent.Store.Relational

  alias AshAgent.Store.SQLite

  defstruct [:store, :to]

  def new(to) do
    {:ok, store} = SQLite.open(":memory:")
    %__MODULE__{store: store, to: to}
  end

  @impl AshAgent.Store.Relational
  def dialect, do: :sqlite

  @impl AshAgent.Store.Relational
  def run(counting, key, operation, json), do: count(counting, :run, key, operation, json)

  @impl AshAgent.Store.Relational
  def read(counting, key, query, json), do: count(counting, :read, key, query, json)

  defp count(%{store: store, to: to}, function, key, statement, json) do
    send(to, {:store, key, byte_size(json)})
    apply(SQLite, function, [store, key, statement, json])
  end
end
