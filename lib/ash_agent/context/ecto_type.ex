defmodule AshAgent.Context.EctoType do
  @moduledoc """
  Stores contexts with Ecto, in a column of type `:map` (JSONB in PostgreSQL).

      schema "conversations" do
        field :context, AshAgent.Context.EctoType
      end

  A changeset's `cast/4` takes a context, a dump of `AshAgent.Context.dump/1` as a map or as JSON text, a map of
  `AshAgent.Context.to_map/1` with atom or string keys, or a list of messages. Store long conversations in one row per iteration,
  as shown in the guide [Storage](storage.html).

  It is an `Ecto.Type`, though this package does not depend on Ecto.

  ## A type of your own

  For a text or a binary column, or for other limits, define a type:

      defmodule MyApp.ContextType do
        use AshAgent.Context.EctoType, storage: :text, accept: [:messages], max_bytes: 1_000_000
      end

  #{AshAgent.Options.docs(AshAgent.Context.Stored.schema(AshAgent.Context))}

  `:messages` accepts a list of messages or a map of `AshAgent.Context.to_map/1`; `:dump` accepts a dump of
  `AshAgent.Context.dump/1`, as a map or as JSON text.

  Anyone who may send parameters could send any conversation: with a system prompt of their own, or answers that no model gave.
  So accept messages and dumps only where you mean to. In any case, conversations from parameters lose their approvals and their
  structs; those that `load/1` reads from the column keep them.
  """

  use AshAgent.Context.Stored.EctoType, of: AshAgent.Context, accept: [:messages, :dump]

  defmacro __using__(opts) do
    quote do
      use AshAgent.Context.Stored.EctoType, [{:of, AshAgent.Context} | unquote(opts)]
    end
  end
end
