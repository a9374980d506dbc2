defmodule AshAgent.ChatContext.GuideTest do
  use ExUnit.Case, async: true

  # Runs the Elixir examples of the guide, one after the other, and checks every `#=>` behind an expression.
  test "the examples of the guide on branches give what they say" do
    guide = File.read!("guides/branches.md")
    blocks = Regex.scan(~r/```elixir\n(.*?)```/s, guide, capture: :all_but_first)
    example = Enum.join(blocks, "\n")
    checked = Regex.replace(~r/^(?!#)(.+)\n#=> (.+)$/m, example, "true = (\\1) === (\\2)")

    results = length(Regex.scan(~r/^#=> /m, example))
    assert results == length(Regex.scan(~r/^true = /m, checked))
    assert results >= 8
    assert {true, _} = Code.eval_string(checked)
  end
end
