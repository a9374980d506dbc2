defmodule AshAgent.Test.PackageTest do
  use ExUnit.Case, async: true

  alias AshAgent.TestSupport.Readme

  test "the README's example gives what it says", do: Readme.run("README.md")

  test "the package has its pages" do
    files =
      Enum.flat_map(Mix.Project.config()[:package][:files], &Path.wildcard(&1, match_dot: true))

    for file <- ~w(lib mix.exs .formatter.exs README.md CHANGELOG.md LICENSE guides/testing.md),
        do: assert(file in files)
  end
end
