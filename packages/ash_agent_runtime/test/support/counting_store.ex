defmodule AshAgent.TestSupport.CountingStore do
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
  def run(counting, key, operation, params), do: count(counting, :run, key, operation, params)

  @impl AshAgent.Store.Relational
  def read(counting, key, query, params), do: count(counting, :read, key, query, params)

  defp count(%{store: store, to: to}, function, key, statement, params) do
    send(to, {:store, key, byte_size(hd(params))})
    apply(SQLite, function, [store, key, statement, params])
  end
end
