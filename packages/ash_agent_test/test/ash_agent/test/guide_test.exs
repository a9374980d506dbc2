defmodule AshAgent.Test.GuideTest do
  use ExUnit.Case, async: true

  alias AshAgent.TestSupport.Guide

  test "the examples of the guide on testing give what it says" do
    guide = File.read!("guides/testing.md")
    assert Guide.run(guide) == length(Regex.scan(~r/^#=> /m, guide))
  end
end
