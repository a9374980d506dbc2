defmodule AshAgent.Conversation.PackageTest do
  use ExUnit.Case, async: true

  test "the package has its pages and its guides" do
    files =
      Enum.flat_map(Mix.Project.config()[:package][:files], &Path.wildcard(&1, match_dot: true))

    for file <- ~w(lib mix.exs .formatter.exs README.md CHANGELOG.md LICENSE guides/ash.md),
        do: assert(file in files)
  end

  # A library that is not listed may be compiled later, and what is made for it would be missing.
  test "lists each library that decides what is compiled" do
    libraries =
      for path <- Path.wildcard("lib/**/*.ex"),
          [library] <-
            Regex.scan(~r/^if Code.ensure_loaded\?\((\w+)/m, File.read!(path),
              capture: :all_but_first
            ),
          uniq: true,
          do: Macro.underscore(library)

    assert "ash_phoenix" in libraries

    for library <- libraries,
        do: assert(File.read!("mix.exs") =~ ~r/\{:#{library}, .*optional: true\}/)
  end

  # A minor version is a sentence of the guide and a requirement.
  test "the guide names the versions that the package asks for" do
    for {name, library} <- [{"AshGraphql", "ash_graphql"}, {"AshJsonApi", "ash_json_api"}] do
      [[version]] =
        Regex.scan(~r/\{:#{library}, "~> ([\d.]+)"/, File.read!("mix.exs"),
          capture: :all_but_first
        )

      for page <- ["guides/apis.md", "README.md"],
          do: assert(File.read!(page) =~ ~r/#{name}\s+#{version}/, "#{page}: #{name} #{version}")
    end
  end
end
