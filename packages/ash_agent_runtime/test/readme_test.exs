defmodule AshAgent.Runtime.ReadmeTest do
  use ExUnit.Case, async: true

  alias AshAgent.TestSupport.{Guide, Readme}

  @root Path.expand("../../..", __DIR__)

  test "the README's example gives what it says", do: Readme.run("README.md")

  test "the agent in the repository's README answers as it says",
    do: Readme.run(Path.join(@root, "README.md"), "An agent")

  test "the guide for the start does what it says" do
    guide = @root |> Path.join("guides/getting-started.md") |> File.read!()
    assert Guide.run(String.replace(guide, ~r/```elixir\ndefp deps.*?```\n/s, "")) == 8
  end

  test "the cheat sheet's calls return what it says" do
    assert @root |> Path.join("guides/cheatsheet.cheatmd") |> File.read!() |> Guide.run() == 11
  end
end
