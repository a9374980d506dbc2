defmodule AshAgent.CheatSheetsTest do
  # The pages with the options of all sections are those that `mix spark.cheat_sheets` makes. bin/cheat-sheets writes them.
  use ExUnit.Case, async: true

  @moduletag :ash
  @moduletag integrations: ["Ash"]

  @folder "documentation/dsls"

  for extension <- [
        AshAgent.Conversation,
        AshAgent.Conversation.Iteration,
        AshAgent.Domain,
        AshAgent.Resource
      ] do
    test "the cheat sheet of #{inspect(extension)} is current" do
      extension = unquote(extension)
      path = Path.join(@folder, "DSL-#{inspect(extension)}.md")
      sheet = Spark.CheatSheet.cheat_sheet(extension)

      if System.get_env("CHEAT_SHEETS") == "write" do
        File.mkdir_p!(@folder)
        File.write!(path, sheet)
      end

      assert {:ok, written} = File.read(path)
      assert lines(written) == lines(sheet), "#{path} is not current: run bin/cheat-sheets"

      # The moduledoc of the extension refers to it.
      page = "dsl-" <> (extension |> inspect() |> String.downcase() |> String.replace(".", "-"))
      assert sheet =~ "(#{page}.html)"
    end
  end

  test "the package makes them all, and has them" do
    [[extensions]] =
      Regex.scan(~r/@extensions ~w\((.*)\)/, File.read!("mix.exs"), capture: :all_but_first)

    names = for path <- Path.wildcard("#{@folder}/DSL-*.md"), do: Path.basename(path, ".md")
    expected = for name <- String.split(extensions), do: "DSL-" <> name
    assert Enum.sort(names) == Enum.sort(expected)

    files = Enum.flat_map(Mix.Project.config()[:package][:files], &Path.wildcard/1)
    for name <- names, do: assert("#{@folder}/#{name}.md" in files)
  end

  # Releases of Spark differ in spaces at the ends of lines, and those of Ash in the options of an argument.
  defp lines(text) do
    for line <- String.split(text, "\n"),
        not String.contains?(line, "#agent-input-argument-"),
        do: String.trim_trailing(line)
  end
end
