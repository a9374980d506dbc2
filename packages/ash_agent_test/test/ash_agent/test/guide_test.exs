defmodule AshAgent.Test.GuideTest do
  use ExUnit.Case, async: true

  alias AshAgent.TestSupport.Guide

  for page <- ~w(testing evaluations) do
    test "the examples of the guide on #{page} give what it says" do
      guide = File.read!("guides/#{unquote(page)}.md")
      assert Guide.run(guide) == length(Regex.scan(~r/^#=> /m, guide))
    end
  end
end
