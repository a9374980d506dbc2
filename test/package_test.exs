defmodule AshAgent.PackageTest do
  use ExUnit.Case, async: true

  test "the package has the licences of all that it has or that its build puts into the library" do
    files =
      Enum.flat_map(Mix.Project.config()[:package][:files], &Path.wildcard(&1, match_dot: true))

    for file <- ["LICENSE", "NOTICE", "README.md", "mix.exs"], do: assert(file in files)

    build = File.read!("native/ash_agent_context_core/build.rs")
    notice = File.read!("NOTICE")
    vocabularies = Regex.scan(~r/tiktoken_rs::(\w+_base)/, build, capture: :all_but_first)
    assert [_, _] = vocabularies
    for [vocabulary] <- vocabularies, do: assert(notice =~ vocabulary)

    for words <- ["MIT License", "OpenAI", "Permission is hereby granted"],
        do: assert(notice =~ words)
  end
end
