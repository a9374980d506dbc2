defmodule AshAgent.Context.EctoType do
  @moduledoc """
  Stores contexts with Ecto, in a column of type `:map` (JSONB in PostgreSQL).

      schema "conversations" do
        field :context, AshAgent.Context.EctoType
      end

  A changeset's `cast/4` takes a context, what `AshAgent.Context.dump/1` gives, as a map or as JSON text, what
  `AshAgent.Context.to_map/1` gives, with atom or string keys, or a list of messages. A long conversation is better stored
  a row an iteration, see the guide [Storage](storage.html).

  It is an `Ecto.Type` and works without Ecto being a dependency of this package.

  ## A type of your own

  For a text or a binary column, or for other limits, define a type:

      defmodule MyApp.ContextType do
        use AshAgent.Context.EctoType, storage: :text, accept: [:messages], max_bytes: 1_000_000
      end

  #{AshAgent.Options.docs(AshAgent.Context.Stored.schema(AshAgent.Context))}

  `:messages` is a list of messages, or a map as `AshAgent.Context.to_map/1` gives it; `:dump` what `AshAgent.Context.dump/1`
  gives, as a map or as JSON text.

  Whoever may send parameters could send any conversation: with a system prompt of its own, with answers that no model
  gave. So take messages and dumps only where that is meant. What parameters bring has lost its approvals and its structs
  in any case; what `load/1` reads from the column has not.
  """

  use AshAgent.Context.Stored.EctoType, of: AshAgent.Context, accept: [:messages, :dump]

  defmacro __using__(opts) do
    quote do
      use AshAgent.Context.Stored.EctoType, [{:of, AshAgent.Context} | unquote(opts)]
    end
  end
end
