defmodule AshAgent.Conversation.ArrowsTest do
  # What Mix prints is captured for the whole VM.
  use ExUnit.Case, async: false

  alias AshAgent.TestSupport.Arrows

  test "no files need each other in a circle at compile time", do: assert(Arrows.circles() == "")

  test "handles of contexts are for the context's package",
    do: assert(Arrows.intrusions(:ash_agent_resources) == [])

  test "the packages below know none of these modules" do
    assert Arrows.upward(:ash_agent_context, :ash_agent_resources) == []
    assert Arrows.upward(:ash_agent_runtime, :ash_agent_resources) == []
  end
end
