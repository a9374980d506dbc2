defmodule AshAgent.TestSupport.Readme do
  @moduledoc false

  import ExUnit.Assertions

  @doc "Runs the first Elixir example of a page under a heading, and checks each `#=>` after an expression."
  def run(page, heading \\ "Example") do
    [_, example] =
      Regex.run(~r/## #{heading}\n(?:(?!\n## ).)*?```elixir\n(.*?)```/s, File.read!(page))

    checked = Regex.replace(~r/^(?![# ])(.+)\n#=> (.+)$/m, example, "true = (\\1) === (\\2)")

    assert length(Regex.scan(~r/#=> /, example)) == length(Regex.scan(~r/^true = /m, checked))
    assert {true, _} = Code.eval_string(checked)
  end
end
