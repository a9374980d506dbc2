defmodule AshAgent.ChatContext.AshType do
  @moduledoc """
  Stores chats with Ash, in a column of type `:map` (JSONB in PostgreSQL), or in a column of text or bytes.

      attribute :chat, AshAgent.ChatContext.AshType

  It works as `AshAgent.Context.AshType` does for contexts.

  ## Constraints

  #{Spark.Options.docs(AshAgent.Context.Stored.schema(AshAgent.ChatContext))}

  Attributes and arguments take chats, and with `accept: [:dump]` also dumps of `AshAgent.ChatContext.dump/1`, as a map or as JSON
  text. Settings say which tools may run and which commands start servers, so a dump with settings is refused unless the list
  contains `:config` as well. `max_iterations` limits the longest branch.
  """

  use AshAgent.Context.Stored.AshType, of: AshAgent.ChatContext
end
