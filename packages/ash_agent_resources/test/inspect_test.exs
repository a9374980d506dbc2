defmodule AshAgent.ResourcesInspectTest do
  use AshAgent.TestSupport.InspectCases, app: :ash_agent_resources

  alias AshAgent.{Context, Conversation}
  alias AshAgent.Context.Embedded

  @moduletag :ash
  @moduletag integrations: ["Ash"]

  defp values do
    context = Context.new("a secret")

    [
      Conversation.Error.exception(reason: :busy),
      AshAgent.Resource.Error.exception(reason: :paused, context: context),
      Embedded.from_context(context)
    ]
  end
end
