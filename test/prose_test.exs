defmodule AshAgent.ProseTest do
  use ExUnit.Case, async: true

  # Habits that make English read as translated. Code has none of these words.

  @habits [
    {~r/(?<!there )(?<!it )\b(?:is|are|was|were|be) no (?!longer\b|more\b|less\b)\w+/i,
     "write \"is not\", or \"not valid\""},
    {~r/\bno (?:UTF-8|JSON\b(?! library))/, "write \"not valid UTF-8\", \"not JSON\""},
    {~r/(?<!fell )(?<!fall )(?<!falls )\bbehind (?!a (?:handle|reference|URL|gateway|proxy)\b)\w+/i,
     "write \"after\""},
    {~r/\bin front\b/i, "write \"before\""},
    {~r/(?<!not ")\bTells whether\b/, "write \"Returns whether\""},
    {~r/(?:^|\A|[.:;] |" )What (?!if\b)[^?.]*[a-z`)]\./m,
     "name the thing instead of \"What ...\""}
  ]

  defp pages do
    for name <- [
          "{README,ARCHITECTURE,CONTRIBUTING,CHANGELOG}.md",
          "guides/*.{md,cheatmd}",
          "lib/**/*.ex"
        ],
        folder <- ["." | Path.wildcard("packages/*")],
        page <- Path.wildcard(Path.join(folder, name)),
        do: page
  end

  # Sentences go over line ends, and comments begin each line anew.
  defp prose(text) do
    text
    |> String.replace(~r/^\s*# ?/m, "")
    |> String.replace(~r/\n[ \t]*\n\s*/, "\n\n")
    |> String.replace(~r/(?<!\n)\n(?!\n)\s*/, " ")
    |> String.replace("\n\n", "\n")
  end

  test "pages, documentation and errors are free of these habits" do
    found =
      for page <- pages(),
          words <- find(prose(File.read!(page)), @habits),
          do: "#{page}: #{words}"

    assert found == [], Enum.join(found, "\n")
  end

  test "the comments of Rust are free of them" do
    files =
      for folder <- ~w(native packages/*/native),
          file <- Path.wildcard("#{folder}/*/src/**/*.rs"),
          do: file

    assert length(files) > 100

    found =
      for file <- files,
          words <- file |> File.read!() |> comments() |> find(@habits),
          do: "#{file}: #{words}"

    assert found == [], Enum.join(found, "\n")
  end

  defp find(text, habits) do
    for {habit, advice} <- habits,
        [words | _] <- Regex.scan(habit, text),
        do: "#{String.slice(words, 0, 90)} (#{advice})"
  end

  # Each comment as one line.
  defp comments(rust) do
    rust
    |> String.split("\n")
    |> Enum.chunk_by(&(&1 =~ ~r/^\s*\/\//))
    |> Enum.filter(&(hd(&1) =~ ~r/^\s*\/\//))
    |> Enum.map_join("\n", fn lines ->
      Enum.map_join(lines, " ", &String.replace(&1, ~r/^\s*\/\/[\/!]?\s?/, ""))
    end)
  end

  test "finds them" do
    for words <- [
          "bytes that are\n  no UTF-8",
          "What comes\n# later is shown.",
          "the text stands\n  # behind it",
          "in\nfront of it"
        ] do
      assert Enum.any?(@habits, fn {habit, _} -> Regex.match?(habit, prose(words)) end), words
    end
  end
end
