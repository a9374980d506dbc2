defmodule AshAgent.Web.ArrowsTest do
  # What Mix prints is captured for the whole VM.
  use ExUnit.Case, async: false

  alias AshAgent.TestSupport.Arrows

  test "no files need each other in a circle at compile time", do: assert(Arrows.circles() == "")

  test "handles of contexts are for the context's package",
    do: assert(Arrows.intrusions(:ash_agent_web) == [])

  test "the packages below know none of these modules" do
    for below <- [:ash_agent_context, :ash_agent_runtime, :ash_agent_resources],
        do: assert(Arrows.upward(below, :ash_agent_web) == [])
  end
end
