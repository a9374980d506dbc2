if Code.ensure_loaded?(Ash.Type) do
  defmodule AshAgent.ChatContext.AshType do
    @moduledoc """
    Stores chats with Ash, in a column of type `:map` (JSONB in PostgreSQL), or in one of text or bytes.

        attribute :chat, AshAgent.ChatContext.AshType

    It is compiled when Ash is there, and does for chats what `AshAgent.Context.AshType` does for contexts.

    ## Constraints

    #{Spark.Options.docs(AshAgent.Context.Stored.schema(AshAgent.ChatContext))}

    Attributes and arguments take chats, and with `accept: [:dump]` what `AshAgent.ChatContext.dump/1` gives, as a map or as
    JSON text. Settings say which tools may run and which commands start servers: a dump with settings is refused
    unless the list has `:config` as well. `max_iterations` counts those of the longest branch.
    """

    use AshAgent.Context.Stored.AshType, of: AshAgent.ChatContext
  end
end
