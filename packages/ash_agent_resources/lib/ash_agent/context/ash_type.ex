defmodule AshAgent.Context.AshType do
  @moduledoc """
  Stores contexts with Ash, in a column of type `:map` (JSONB in PostgreSQL), or in a column of text or bytes.

      attribute :context, AshAgent.Context.AshType

  ## Constraints

      attribute :context, AshAgent.Context.AshType do
        constraints storage: :text, max_iterations: 500
      end

  #{Spark.Options.docs(AshAgent.Context.Stored.schema(AshAgent.Context))}

  By default, attributes and arguments take only contexts from parameters, since anyone who sends parameters could send any
  conversation: with a system prompt of their own, answers that no model gave, and results of tools that never ran.
  `accept: [:messages]` also takes a list of messages, or a map of `AshAgent.Context.to_map/1` with atom or string keys;
  `accept: [:dump]` also takes a dump of `AshAgent.Context.dump/1`, as a map or as JSON text. Conversations from parameters lose
  their approvals of tool calls and their structs. An empty map is refused, since it would replace the stored conversation with
  an empty one; `nil` removes a conversation.

  Conversations in the data layer are the application's own and load as they were stored.

  Ash's errors for refused values show the value: keep their messages out of logs if conversations are confidential.

  ## Queries

  Filters compare contents: `filter(context == ^context)` finds rows with an equal context, in any data layer. With Jason, a
  JSON column is written from the JSON text that the core makes.
  """

  use AshAgent.Context.Stored.AshType, of: AshAgent.Context
end
