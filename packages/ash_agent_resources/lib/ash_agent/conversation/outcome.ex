defmodule AshAgent.Conversation.Outcome do
  @moduledoc """
  The type of `last_outcome`: how the last turn of a conversation that ended did so.

    * `:answered` - with an answer
    * `:length` - its answer is cut off at a limit of tokens
    * `:refused`, `:filtered` - the model declined to answer, or the provider's filter stopped it
    * `:halted` - a tool ended it
    * `:budget` - it reached a limit of cost, tokens or calls, or its cost could not be known
    * `:max_iterations`, `:timeout` - it reached that limit
    * `:failed` - something went wrong
    * `:cancelled` - a person ended it
    * `:waiting` - it ended without an answer, with calls whose results come later

  In GraphQL it is the enum `ConversationOutcome`.
  """

  use Ash.Type.Enum, values: AshAgent.Runtime.Ended.outcomes()

  @doc false
  def graphql_type(_constraints), do: :conversation_outcome
end
