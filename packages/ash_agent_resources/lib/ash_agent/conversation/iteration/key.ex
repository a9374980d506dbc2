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
  def cast_input(nil, _constraints), do: {:ok, nil}
  def cast_input(id, _constraints) when is_binary(id), do: {:ok, id}
  def cast_input(id, _constraints) when is_integer(id), do: {:ok, Integer.to_string(id)}
  def cast_input(_other, _constraints), do: :error

  @impl true
  def cast_stored(nil, _constraints), do: {:ok, nil}

  def cast_stored(key, constraints) when is_binary(key),
    do: {:ok, String.replace_prefix(key, constraints[:prefix], "")}

  def cast_stored(_other, _constraints), do: :error

  @impl true
  def dump_to_native(nil, _constraints), do: {:ok, nil}

  def dump_to_native(id, constraints) when is_binary(id),
    do: {:ok, constraints[:prefix] <> id}

  def dump_to_native(_other, _constraints), do: :error
end
