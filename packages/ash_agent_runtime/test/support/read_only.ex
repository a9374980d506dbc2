defmodule AshAgent.TestSupport.ReadOnly do
  @moduledoc false

  alias AshAgent.Store

  @doc "Opens a file with a conversation `c`, and writes to it. Runs in a VM that may not."
  def write(path) do
    {:ok, _} = Application.ensure_all_started(:ash_agent_runtime)

    with {:ok, store} <- Store.SQLite.open(path),
         {:ok, kept} <- Store.fetch(store, "c"),
         do: Store.append(store, kept, AshAgent.Context.add_assistant_message(kept.value, "x"))
  end
end
