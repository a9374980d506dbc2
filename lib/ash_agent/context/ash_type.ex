if Code.ensure_loaded?(Ash.Type) do
  defmodule AshAgent.Context.AshType do
    @moduledoc """
    Stores contexts with Ash, in a column of type `:map` (JSONB in PostgreSQL), or in one of text or bytes.

        attribute :context, AshAgent.Context.AshType

    It is compiled when Ash is there.

    ## Constraints

        attribute :context, AshAgent.Context.AshType do
          constraints storage: :text, max_iterations: 500
        end

    #{Spark.Options.docs(AshAgent.Context.Stored.schema(AshAgent.Context))}

    Attributes and arguments take contexts, and nothing else unless `:accept` says so: whoever sends parameters could send
    any conversation, with a system prompt of its own, with answers that no model gave and results of tools that never
    ran. `accept: [:messages]` takes a list of messages, and a map as `AshAgent.Context.to_map/1` gives it, with atom or
    string keys; `accept: [:dump]` what `AshAgent.Context.dump/1` gives, as a map or as JSON text. A parameter brings neither
    approvals of tool calls nor structs: both are left out of what is read. An empty map is refused, since it would be an
    empty conversation in the place of the stored one; `nil` takes a conversation away.

    What the data layer holds is the application's own, and comes back as it was.

    The errors that Ash makes of a refused value show the value: keep their messages out of logs where conversations must
    not be seen.

    ## Queries

    A filter compares contents: `filter(context == ^context)` finds rows that hold an equal context, in any data layer.
    With Jason, a JSON column is written from the JSON text that the core makes.
    """

    use AshAgent.Context.Stored.AshType, of: AshAgent.Context
  end
end
