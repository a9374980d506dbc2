defmodule AshAgent.ProseTest do
  use ExUnit.Case, async: true

  # Three habits that make English read as translated. Code has none of these words.

  @habits [
    {~r/(?<!there )(?<!it )\b(?:is|are|was|were|be) no (?!longer\b|more\b|less\b)\w+/i,
     "write \"is not\", or \"not valid\""},
    {~r/\bno (?:UTF-8|JSON\b(?! library))/, "write \"not valid UTF-8\", \"not JSON\""},
    {~r/(?<!fell )(?<!fall )(?<!falls )\bbehind (?!a (?:handle|reference|URL|gateway|proxy)\b)\w+/i,
     "write \"after\""},
    {~r/\bin front\b/i, "write \"before\""},
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

  test "pages, documentation and errors are free of three habits" do
    found =
      for page <- pages(),
          text = page |> File.read!() |> prose(),
          {habit, advice} <- @habits,
          [words | _] <- Regex.scan(habit, text),
          do: "#{page}: #{String.slice(words, 0, 90)} (#{advice})"

    assert found == [], Enum.join(found, "\n")
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
