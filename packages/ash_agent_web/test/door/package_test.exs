defmodule AshAgent.Door.PackageTest do
  # What Mix prints is captured for the whole VM.
  use ExUnit.Case, async: false

  alias AshAgent.TestSupport.Arrows

  test "no files need each other in a circle at compile time", do: assert(Arrows.circles() == "")

  test "handles of contexts are for the context's package",
    do: assert(Arrows.intrusions(:ash_agent_web) == [])

  test "the packages below know none of these modules" do
    for below <- [:ash_agent_context, :ash_agent_runtime],
        do: assert(Arrows.upward(below, :ash_agent_web) == [])
  end

  test "readers and protocols ask nobody" do
    for file <- ~w(reader ai_sdk ag_ui responses mark table input) do
      source = File.read!("lib/ash_agent/door/#{file}.ex")
      refute source =~ ~r/\bSessions?\.[a-z]|GenServer|send\(|receive do|Process\./, file
    end
  end
end
