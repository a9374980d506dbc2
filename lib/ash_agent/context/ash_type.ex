if Code.ensure_loaded?(Ash.Type) do
  defmodule AshAgent.Context.AshType do
    @moduledoc """
    Stores contexts with Ash, in a column of type `:map` (JSONB in PostgreSQL).

        attribute :context, AshAgent.Context.AshType

    The attribute or argument takes a context, what `AshAgent.Context.dump/1` gives, or what `AshAgent.Context.to_map/1`
    gives, with atom or string keys. It is compiled when Ash is there.
    """

    use Ash.Type

    alias AshAgent.Context
    alias AshAgent.Context.Stored

    @impl true
    def storage_type(_constraints), do: :map

    # A context is a whole document: a query has nothing to compare it with.
    @impl true
    def cast_in_query?(_constraints), do: false

    @impl true
    def matches_type?(value, _constraints), do: is_struct(value, Context)

    @impl true
    def cast_input(input, _constraints), do: input |> Stored.cast() |> describe()

    @impl true
    def cast_stored(stored, _constraints), do: stored |> Stored.load() |> describe()

    @impl true
    def dump_to_native(context, _constraints), do: Stored.dump(context)

    @impl true
    def dump_to_embedded(context, _constraints), do: Stored.dump(context)

    @impl true
    def equal?(a, b), do: Stored.equal?(a, b)

    defp describe({:error, error}), do: {:error, message: Exception.message(error)}
    defp describe(ok), do: ok
  end
end
