defmodule AshAgent.Store.SQLiteConformanceTest do
  use ExUnit.Case, async: true
  use AshAgent.Store.Conformance, store: open!()

  defp open! do
    {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
    store
  end
end
