defmodule AshAgent.Conversation.PackageTest do
  use ExUnit.Case, async: true

  test "the package has its pages and its guides" do
    files =
      Enum.flat_map(Mix.Project.config()[:package][:files], &Path.wildcard(&1, match_dot: true))

    for file <- ~w(lib mix.exs .formatter.exs README.md CHANGELOG.md LICENSE guides/ash.md),
        do: assert(file in files)
  end
end
