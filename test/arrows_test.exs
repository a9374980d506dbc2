defmodule AshAgent.ArrowsTest do
  # What Mix prints is captured for the whole VM.
  use ExUnit.Case, async: false

  alias AshAgent.TestSupport.Arrows

  test "no files need each other in a circle at compile time", do: assert(Arrows.circles() == "")

  test "what touches handles is found" do
    found = Arrows.intrusions(:ash_agent_context)
    assert Enum.any?(found, &(&1 =~ "lib/ash_agent/response.ex calls AshAgent.Context.Native"))
    assert Enum.any?(found, &(&1 =~ "lib/ash_agent/chat_context/stored.ex looks into a context"))
  end
end
