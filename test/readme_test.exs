defmodule ReadmeTest do
  use ExUnit.Case, async: true

  # Runs the Elixir example of the README and checks every `#=>` behind an expression.
  test "the README's example gives what it says" do
    [_, example] = Regex.run(~r/## Example\n\n```elixir\n(.*?)```/s, File.read!("README.md"))

    checked = Regex.replace(~r/^(?!#)(.+)\n#=> (.+)$/m, example, "true = (\\1) === (\\2)")

    assert length(Regex.scan(~r/#=> /, example)) == length(Regex.scan(~r/^true = /m, checked))
    assert {true, _} = Code.eval_string(checked)
  end
end
