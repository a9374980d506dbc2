defmodule AshAgent.ReleaseTest do
  use ExUnit.Case, async: true

  @moduletag :tmp_dir

  @packages [
    {".", "ash_agent_context", nil},
    {"packages/ash_agent_runtime", "ash_agent_runtime", "ash_agent_context"},
    {"packages/ash_agent_resources", "ash_agent_resources", "ash_agent_runtime"},
    {"packages/ash_agent_test", "ash_agent_test", "ash_agent_runtime"},
    {"packages/ash_agent_web", "ash_agent_web", "ash_agent_resources"}
  ]

  @changelog """
  # Changelog

  ## [Unreleased]

  ## [1.2.3] - 2026-01-02

  ### Changed

  - **(Breaking)** A name.

  ### Upgrading

  - Write the other name.
  """

  # A repository in which a version is ready to be tagged.
  setup %{tmp_dir: dir} do
    for {folder, app, below} <- @packages do
      needed = if below, do: ~s({:#{below}, "~> 1.2", path: ".."}), else: ""

      put(dir, "#{folder}/mix.exs", """
      app: :#{app}
        @version "1.2.3"
        @source_url "https://github.com/someone/something"
      #{needed}
      """)

      put(dir, "#{folder}/CHANGELOG.md", @changelog)
    end

    for folder <- [".", "packages/ash_agent_runtime/native/ash_agent_sqlite"],
        do: put(dir, "#{folder}/Cargo.toml", ~s(version = "1.2.3"\n))

    put(dir, "test/corpus/v1.2.3.json", "{}")
    put(dir, ".gitignore", "checksum-*.exs\n")
    for file <- ["bin/release", "native/precompiled.exs"], do: put(dir, file, File.read!(file))
    git(dir, ~w(init --quiet))
    commit(dir)
    :ok
  end

  defp put(dir, file, text) do
    path = Path.join(dir, file)
    File.mkdir_p!(Path.dirname(path))
    File.write!(path, text)
  end

  defp change(dir, file, old, new) do
    text = File.read!(Path.join(dir, file))
    assert text =~ old
    put(dir, file, String.replace(text, old, new))
    commit(dir)
  end

  # Whatever whoever runs this has configured.
  defp git(dir, args) do
    identity = ~w(-c user.name=a -c user.email=a@example.com -c commit.gpgsign=false)
    env = [{"GIT_CONFIG_GLOBAL", "/dev/null"}, {"GIT_DIR", nil}, {"GIT_WORK_TREE", nil}]
    {_, 0} = System.cmd("git", identity ++ args, cd: dir, env: env, stderr_to_stdout: true)
  end

  defp commit(dir) do
    git(dir, ~w(add --all))
    git(dir, ~w(commit --quiet --allow-empty --message change))
  end

  defp release(dir, args \\ []) do
    System.cmd("bash", ["bin/release" | args],
      cd: dir,
      stderr_to_stdout: true,
      env: [{"GIT_DIR", nil}, {"GIT_WORK_TREE", nil}]
    )
  end

  defp assert_missing(dir, words, args \\ []) do
    {list, status} = release(dir, args)
    assert status == 1
    assert list =~ "Not ready."
    assert [missing] = Regex.scan(~r/^  MISSING  .*$/m, list)
    assert hd(missing) =~ words
    list
  end

  test "says that a version is ready, and how to tag it", %{tmp_dir: dir} do
    assert {list, 0} = release(dir)
    assert list =~ "Ready: 'git tag v1.2.3'"
  end

  for {what, file, old, new, words} <- [
        {"another version of a package", "packages/ash_agent_resources/mix.exs", ~s("1.2.3"),
         ~s("1.2.2"), "the same version in mix.exs"},
        {"another version of a crate",
         "packages/ash_agent_runtime/native/ash_agent_sqlite/Cargo.toml", "1.2.3", "1.2.2",
         "both Cargo.toml"},
        {"an old requirement", "packages/ash_agent_runtime/mix.exs", "~> 1.2", "~> 1.1",
         ~s(each other with "~> 1.2")},
        {"no address", "packages/ash_agent_runtime/mix.exs",
         ~s("https://github.com/someone/something"), "nil", "@source_url"},
        {"a changelog without the version", "CHANGELOG.md", "[1.2.3]", "[1.2.2]",
         "each CHANGELOG.md has"},
        {"changes that belong to no version", "packages/ash_agent_runtime/CHANGELOG.md",
         "## [Unreleased]", "## [Unreleased]\n\n- A change.", "each CHANGELOG.md has"},
        {"a breaking change without notes", "CHANGELOG.md", "### Upgrading", "### Fixed",
         "### Upgrading"}
      ] do
    test "finds #{what}", %{tmp_dir: dir} do
      change(dir, unquote(file), unquote(old), unquote(new))
      assert_missing(dir, unquote(words))
    end
  end

  test "finds a corpus without the version, a taken tag and what is not committed",
       %{tmp_dir: dir} do
    git(dir, ~w(mv test/corpus/v1.2.3.json test/corpus/v1.2.2.json))
    commit(dir)
    assert_missing(dir, "test/corpus/v1.2.3.json")

    git(dir, ~w(mv test/corpus/v1.2.2.json test/corpus/v1.2.3.json))
    put(dir, "README.md", "words")
    assert_missing(dir, "not committed")

    commit(dir)
    git(dir, ~w(tag v1.2.3))
    assert_missing(dir, "no tag v1.2.3 yet")
  end

  test "asks for a checksum of each library before packages are published", %{tmp_dir: dir} do
    assert_missing_tag_and_sums = fn ->
      {list, 1} = release(dir, ["--packages"])
      assert list =~ "MISSING  the tag v1.2.3 is on this commit"
      assert list =~ "32 of 32 are missing"
      assert list =~ "8 of 8 are missing"
    end

    assert_missing_tag_and_sums.()
    git(dir, ~w(tag v1.2.3))

    put_sums(
      dir,
      "checksum-Elixir.AshAgent.Context.Native.exs",
      "ash_agent_context_nif",
      [[], [:exact_tokens], [:otlp], [:exact_tokens, :otlp]]
    )

    sqlite = "packages/ash_agent_runtime/checksum-Elixir.AshAgent.Store.SQLite.Native.exs"
    put_sums(dir, sqlite, "ash_agent_sqlite", [[], [:sqlite]])
    assert assert_missing(dir, "a checksum for each", ["--packages"]) =~ "has others"

    put_sums(dir, sqlite, "ash_agent_sqlite", [[]])
    assert {list, 0} = release(dir, ["--packages"])
    assert list =~ "mix hex.publish"
  end

  test "the workflow builds each target that packages ask for" do
    workflow = File.read!(".github/workflows/release.yml")
    built = for [_, target] <- Regex.scan(~r/\{ target: ([\w-]+),/, workflow), do: target
    assert Enum.sort(built) == AshAgentContext.Precompiled.targets()
  end

  defp put_sums(dir, file, crate, choices) do
    alias AshAgentContext.Precompiled

    sums =
      for target <- Precompiled.targets(),
          features <- choices,
          into: %{},
          do:
            {Precompiled.archive_name(
               %{crate: crate, version: "1.2.3", features: features},
               target
             ), "sha256:00"}

    put(dir, file, inspect(sums, limit: :infinity, printable_limit: :infinity))
  end
end
