defmodule AshAgent.MCP.Server.Used do
  @moduledoc false

  # Which states of questions were answered, once over all nodes: `ExMCP.Server.ReplayCache` on a store. A conversation without a message is
  # created under the state's id, which the store does once, and pruned when the state is too old to be taken.

  alias AshAgent.{Context, Store}

  @metadata %{ash_agent_mcp: "answered"}
  # A look for old ones comes after so many, on average.
  @prune 50
  # Clocks of nodes may differ by as much.
  @skew 120

  def consume(id, expires_at, store: store) do
    with {:ok, _kept} <- Store.create(store, mark(id)) do
      if :rand.uniform(@prune) == 1, do: prune(store, expires_at - System.system_time(:second))
      :ok
    else
      {:error, :exists} -> {:error, :replayed}
      _failed -> {:error, :unavailable}
    end
  end

  defp mark(id) do
    name = Base.url_encode64(:crypto.hash(:sha256, id), padding: false)
    Context.new("answered", id: "mcp-answered:" <> name, metadata: @metadata)
  end

  defp prune(store, left),
    do: Store.prune(store, older_than: max(left, 0) + @skew, metadata: @metadata)
end
