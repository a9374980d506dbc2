# How the errors of this package are inspected: in one line, without conversations.

alias AshAgent.{Conversation, OneLine, Resource}

defimpl Inspect, for: [Conversation.Error, Resource.Error] do
  def inspect(error, _opts), do: OneLine.describe_error(error)
end
