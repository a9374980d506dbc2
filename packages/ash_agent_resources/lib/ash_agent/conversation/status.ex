defmodule AshAgent.Conversation.Status do
  @moduledoc """
  The type of a conversation's `status`: `:idle`, `:running`, `:paused`, `:waiting` or `:parked`, see `AshAgent.Store.Conversation`.

  In GraphQL it is the enum `ConversationStatus`.
  """

  use Ash.Type.Enum, values: AshAgent.Store.Conversation.statuses()

  @doc false
  def graphql_type(_constraints), do: :conversation_status
end
