defmodule AshAgent.Conversation.Iteration.Key do
  @moduledoc false

  # The id of a record; the store has the key of its conversation instead.

  use Ash.Type

  @impl true
  def storage_type(_constraints), do: :string

  @impl true
  def constraints,
    do: [
      prefix: [type: :string, required: true, doc: "What the keys of the resource begin with."]
    ]

  @impl true
  def cast_input(id, _constraints) when is_integer(id), do: {:ok, Integer.to_string(id)}
  def cast_input(id, _constraints), do: change(id, & &1)

  @impl true
  def cast_stored(key, constraints),
    do: change(key, &String.replace_prefix(&1, constraints[:prefix], ""))

  @impl true
  def dump_to_native(id, constraints), do: change(id, &(constraints[:prefix] <> &1))

  defp change(nil, _fun), do: {:ok, nil}
  defp change(text, fun) when is_binary(text), do: {:ok, fun.(text)}
  defp change(_other, _fun), do: :error
end
