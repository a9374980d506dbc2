defmodule AshAgent.ResourcesInspectTest do
  # Ash inspects its resources itself, in one line without sensitive attributes.
  use AshAgent.TestSupport.InspectCases,
    app: :ash_agent_resources,
    except: [AshAgent.Context.Embedded]

  alias AshAgent.{Context, Conversation}

  @moduletag :ash
  @moduletag integrations: ["Ash"]

  test "an embedded conversation is inspected without its texts" do
    line = inspect(AshAgent.Context.Embedded.from_context(Context.new("a secret")))
    refute line =~ "secret"
    refute line =~ "\n"
  end

  defp values do
    context = Context.new("a secret")

    [
      Conversation.Error.exception(reason: :busy),
      AshAgent.Resource.Error.exception(reason: :paused, context: context)
    ]
  end
end
