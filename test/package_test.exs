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

  # And the path to the package below it, if it depends on one.
  @packages [
    {".", []},
    {"packages/ash_agent_runtime", ["../.."]},
    {"packages/ash_agent_resources", ["../ash_agent_runtime"]},
    {"packages/ash_agent_test", ["../ash_agent_runtime"]},
    {"packages/ash_agent_web", ["../ash_agent_resources"]}
  ]

  @tag :tmp_dir
  test "Mix can read each package without the repository around it, and asks Hex for the one below",
       %{tmp_dir: dir} do
    for {folder, below} <- @packages do
      # What a package has of the files that its mix.exs may read.
      alone = Path.join([dir, Path.basename(Path.expand(folder)), "alone"])
      File.mkdir_p!(Path.join(alone, "native"))
      File.cp!(Path.join(folder, "mix.exs"), Path.join(alone, "mix.exs"))
      precompiled = Path.join(folder, "native/precompiled.exs")

      if File.exists?(precompiled),
        do: File.cp!(precompiled, Path.join(alone, "native/precompiled.exs"))

      assert {folder, read(alone)} ==
               {folder, {Mix.Project.config()[:version], for(_ <- below, do: [])}}
    end
  end

  # With a name in `:hex`, Hex would ask its registry what the folder depends on. Without the key, `mix hex.build` would leave the
  # package below out of the requirements.
  test "in the repository, a package depends on the folder of the one below" do
    for {folder, below} <- @packages do
      {_version, options} = read(folder)

      assert {folder, options} ==
               {folder, for(path <- below, do: [path: path, hex: false, env: :prod])}
    end
  end

  # The version, and the options of dependencies on packages of the repository, where Hex is missing.
  defp read(folder) do
    script = """
    Mix.start()
    Code.require_file("mix.exs")
    config = Mix.Project.config()
    own = for {app, "~> " <> _, options} <- config[:deps], String.starts_with?("\#{app}", "ash_agent_"), do: options
    IO.inspect({config[:version], own})
    """

    options = [cd: folder, stderr_to_stdout: true, env: [{"MIX_ENV", "prod"}]]
    {words, status} = System.cmd("elixir", ["-e", script], options)
    assert {folder, status} == {folder, 0}, words
    words |> Code.eval_string() |> elem(0)
  end
end
