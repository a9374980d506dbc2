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
    table = @page |> String.split("## Dependencies") |> List.last()
    listed = for [name] <- Regex.scan(~r/[\w-]+/, table), do: name
    assert crates -- ["ash_agent_context_core" | listed] == []
  end
end
