defmodule AshAgent.Context.EnhancerGuideTest do
  use ExUnit.Case, async: true

  alias AshAgent.TestSupport.Guide

  test "the examples of the guide on budgets give what it says" do
    guide = File.read!("../../guides/budgets.md")
    checked = Guide.run(guide)
    assert checked > 20
    assert checked == length(Regex.scan(~r/#=> /, guide))
  end
end
