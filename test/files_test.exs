defmodule AshAgent.FilesTest do
  use ExUnit.Case, async: true

  # A file that outgrows its noun becomes several. `AshAgent.Context` documents the functions of the whole package.
  @most 600
  @more %{"lib/ash_agent/context.ex" => 900}

  @places ~w(lib native/*/src native/*/build.rs test_support)
  @kinds ~w(ex exs rs js css html)

  defp files do
    for package <- ["" | Enum.map(Path.wildcard("packages/*"), &(&1 <> "/"))],
        place <- @places,
        root <- Path.wildcard(package <> place),
        file <- [root | Path.wildcard("#{root}/**")],
        String.trim_leading(Path.extname(file), ".") in @kinds,
        File.regular?(file),
        do: file
  end

  defp count_lines(file), do: file |> File.stream!() |> Enum.count()

  test "no file of the three packages has more than #{@most} lines" do
    lines = Map.new(files(), &{&1, count_lines(&1)})

    for known <- [
          "lib/ash_agent/context.ex",
          "native/ash_agent_context_core/src/trace/page/page.js",
          "native/ash_agent_context_nif/src/lib.rs",
          "packages/ash_agent_runtime/lib/ash_agent/session.ex",
          "packages/ash_agent_runtime/native/ash_agent_sqlite/src/lib.rs",
          "packages/ash_agent_resources/lib/ash_agent/resource.ex"
        ],
        do: assert(lines[known] > 0, known)

    found =
      for {file, count} <- lines, count > Map.get(@more, file, @most), do: "#{file}: #{count}"

    assert found == [], Enum.join(["divide these files by subject:" | found], "\n")
  end
end
