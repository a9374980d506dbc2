defmodule AshAgent.SecurityTest do
  use ExUnit.Case, async: true

  @page File.read!("SECURITY.md")

  test "each test that the threat model names is there" do
    paths = for [_, path] <- Regex.scan(~r/`([\w\/]+\.(?:exs|rs))`/, @page), do: path
    assert length(paths) > 15
    assert Enum.reject(paths, &File.exists?/1) == []
  end

  test "the table of dependencies has each crate that is named in a Cargo.toml" do
    manifests =
      Path.wildcard("native/ash_agent_context_*/Cargo.toml") ++
        ["packages/ash_agent_runtime/native/ash_agent_sqlite/Cargo.toml"]

    crates =
      for manifest <- manifests,
          [_, section] <-
            Regex.scan(~r/^\[(?:build-)?dependencies\]\n(.*?)(?=^\[|\z)/ms, File.read!(manifest)),
          [_, crate] <- Regex.scan(~r/^([\w-]+) = /m, section),
          uniq: true,
          do: crate

    assert "rustler" in crates
    assert Enum.sort(crates -- ["ash_agent_context_core"]) == Enum.sort(rows(1))
  end

  test "the table of Hex packages has each that a mix.exs names" do
    packages =
      for mix <- ["mix.exs" | Path.wildcard("packages/*/mix.exs")],
          [app, options] <-
            Regex.scan(~r/\{:(\w+), "~> [^"]+"([^}]*)\}/, File.read!(mix), capture: :all_but_first),
          not String.starts_with?(app, "ash_agent_"),
          not (options =~ "only:"),
          uniq: true,
          do: app

    assert "ash" in packages
    assert Enum.sort(packages) == Enum.sort(rows(2))
  end

  # The first words of a table's rows, each of which has a licence, a version and a date.
  defp rows(number) do
    table =
      @page
      |> String.split("## Dependencies")
      |> List.last()
      |> String.split("|---|---|---|---|\n")
      |> Enum.at(number)

    for row <- table |> String.split("\n\n") |> hd() |> String.split("\n"),
        [_, _ | _] = cells <- [String.split(row, " | ")] do
      assert [name, _, licence, last] = cells
      assert licence =~ ~r/MIT|Apache-2.0/
      assert last =~ ~r/^\d+\.\d+\.\d+, 20\d\d-\d\d-\d\d \|$/
      assert [_, name] = Regex.run(~r/^\| ([\w-]+)/, name)
      name
    end
  end
end
