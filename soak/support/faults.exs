defmodule AshAgent.Soak.Faults do
  @moduledoc """
  What must not happen: `:changed` contexts, `:unexpected` answers and `:logged` errors. Counts all and keeps the first
  of each kind. It is a handler of `:logger`, too.
  """

  @kept 5
  @kinds [:changed, :unexpected, :logged]

  def start do
    :ets.new(__MODULE__, [:public, :named_table, :ordered_set])
    :ets.insert(__MODULE__, for(kind <- @kinds, do: {kind, 0}))
    :ok = :logger.add_handler(__MODULE__, __MODULE__, %{level: :error})
  end

  @doc "Notes a fault; `text` is made only for those that are kept."
  def add(kind, text) do
    number = :ets.update_counter(__MODULE__, kind, 1)
    if number <= @kept, do: :ets.insert(__MODULE__, {{kind, number}, text.()})
    :ok
  end

  def count(kind), do: :ets.lookup_element(__MODULE__, kind, 2)

  @doc "The texts that are kept."
  def texts, do: for({{kind, _number}, text} <- :ets.tab2list(__MODULE__), do: "#{kind}: #{text}")

  @doc false
  def log(event, _config) do
    add(:logged, fn -> inspect(event, limit: 40, printable_limit: 1000) end)
  end
end
