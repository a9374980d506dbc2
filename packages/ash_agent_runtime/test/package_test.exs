defmodule AshAgent.Runtime.PackageTest do
  use ExUnit.Case, async: true

  test "the package has what its build needs" do
    files =
      Enum.flat_map(Mix.Project.config()[:package][:files], &Path.wildcard(&1, match_dot: true))

    crate = "native/ash_agent_sqlite"
    for file <- ~w(LICENSE README.md mix.exs), do: assert(file in files)
    for file <- ~w(Cargo.toml Cargo.lock src), do: assert("#{crate}/#{file}" in files)

    # Nothing outside of the package.
    manifest = File.read!("#{crate}/Cargo.toml")
    assert manifest =~ ~r/^\[workspace\]$/m
    refute manifest =~ ~r/workspace = true|\.workspace|path = /
  end
end
