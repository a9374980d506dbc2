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

  @tag :tmp_dir
  test "each package can be read by Mix without the repository around it", %{tmp_dir: dir} do
    for folder <- [".", "packages/ash_agent_runtime", "packages/ash_agent_resources"] do
      # What a package has of the files that its mix.exs may read.
      alone = Path.join(dir, Path.basename(Path.expand(folder)))
      File.mkdir_p!(Path.join(alone, "native"))
      File.cp!(Path.join(folder, "mix.exs"), Path.join(alone, "mix.exs"))
      precompiled = Path.join(folder, "native/precompiled.exs")

      if File.exists?(precompiled),
        do: File.cp!(precompiled, Path.join(alone, "native/precompiled.exs"))

      project = "Code.require_file(\"mix.exs\"); IO.puts(Mix.Project.config()[:version])"
      options = [cd: alone, stderr_to_stdout: true, env: [{"MIX_ENV", "prod"}]]
      {words, status} = System.cmd("elixir", ["-e", "Mix.start(); " <> project], options)
      assert {folder, status, words} == {folder, 0, Mix.Project.config()[:version] <> "\n"}
    end
  end
end
