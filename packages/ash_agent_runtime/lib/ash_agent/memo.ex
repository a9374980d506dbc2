defmodule AshAgent.Memo do
  @moduledoc false

  # Values that are made once for each VM. Reading one copies nothing.

  @doc "Returns the value of a key, which `make` makes the first time."
  def fetch(key, make) do
    with nil <- :persistent_term.get(key, nil) do
      made = make.()
      :persistent_term.put(key, made)
      made
    end
  end
end
