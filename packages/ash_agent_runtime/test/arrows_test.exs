defmodule AshAgent.Runtime.ArrowsTest do
  # What Mix prints is captured for the whole VM.
  use ExUnit.Case, async: false

  alias AshAgent.TestSupport.Arrows

  test "no files need each other in a circle at compile time", do: assert(Arrows.circles() == "")

  test "handles of contexts are for the context's package",
    do: assert(Arrows.intrusions(:ash_agent_runtime) == [])

  test "the context's package knows none of these modules" do
    assert Arrows.upward(:ash_agent_context, :ash_agent_runtime) == []
    assert [_ | _] = Arrows.upward(:ash_agent_runtime, :ash_agent_context)
  end

  test "ash_agent_test is above this package, and looks into no handle" do
    for lower <- [:ash_agent_context, :ash_agent_runtime],
        do: assert(Arrows.upward(lower, :ash_agent_test) == [])

    assert [_ | _] = Arrows.upward(:ash_agent_test, :ash_agent_runtime)
    assert Arrows.intrusions(:ash_agent_test) == []
  end
end
