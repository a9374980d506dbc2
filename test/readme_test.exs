defmodule ReadmeTest do
  use ExUnit.Case, async: true

  # As many as somebody reads before trying it.
  @most_words 1_200

  test "the README's first example gives what it says",
    do: AshAgent.TestSupport.Readme.run("README.md", "The idea")

  test "the README stays short" do
    words = "README.md" |> File.read!() |> String.split() |> length()
    assert words <= @most_words, "#{words} words: move some to a guide"
  end

  test "an agent has fifteen lines" do
    readme = File.read!("README.md")
    [block] = Regex.run(~r/## An agent.*?```elixir\n(.*?)```/s, readme, capture: :all_but_first)
    assert block |> String.split("\n", trim: false) |> Enum.drop(-1) |> length() <= 15
  end

  test "each Elixir block of the README is run by a test, or is the dependency" do
    blocks = Regex.scan(~r/```elixir\n(.*?)\n/, File.read!("README.md"), capture: :all_but_first)

    assert List.flatten(blocks) == [
             "alias AshAgent.Context",
             "alias AshAgent.{Context, LLM, Runtime}",
             "defmodule MyAppWeb.ChatLive do",
             "def deps do"
           ]
  end

  test "each guide begins with what its reader can do afterwards" do
    for pattern <- ~w(guides/*.md packages/*/guides/*.md), page <- Path.wildcard(pattern) do
      [opening | _] = page |> File.read!() |> String.split("\n## ", parts: 2)

      assert opening =~ ~r/\b[Yy]ou (?:can|will|know)\b/,
             "#{page} does not say what its reader can do afterwards"
    end
  end

  # As many as somebody reads to find an answer.
  @most_words_of_a_guide 1_500

  test "each guide is a page that somebody reads to its end" do
    for page <- guides() do
      text = File.read!(page)
      words = text |> String.split() |> length()

      assert words <= @most_words_of_a_guide,
             "#{page} has #{words} words: give a task a page of its own"

      assert text =~ ~r/\A# \S/, "#{page} does not begin with its task"
    end
  end

  # Those that each library has.
  @known_titles ["Cheat sheet", "Getting started", "Upgrading"]

  test "the first line of a guide is what somebody types into a search box, and no other guide's" do
    titles =
      for page <- guides(), do: {page |> File.stream!() |> Enum.at(0) |> String.trim(), page}

    for {"# " <> title, page} <- titles, title not in @known_titles do
      assert length(String.split(title)) >= 3,
             "#{page} begins with a topic: write what its reader wants"
    end

    assert titles |> Enum.map(&elem(&1, 0)) |> Enum.uniq() |> length() == length(titles)
  end

  test "the page of tasks has each guide" do
    tasks = File.read!("guides/tasks.md")

    linked =
      for [link] <- Regex.scan(~r/\]\(([^)#]+)/, tasks, capture: :all_but_first),
          do: Path.expand(link, "guides")

    for page <- guides() -- ["guides/tasks.md"],
        do: assert(Path.expand(page) in linked, "guides/tasks.md does not name #{page}")
  end

  test "each package has rules for those who write code with it" do
    for mix <- ["mix.exs" | Path.wildcard("packages/*/mix.exs")] do
      rules = mix |> Path.dirname() |> Path.join("usage-rules.md")
      assert File.read!(rules) =~ ~r/\A# Rules for \w+\n\n- /

      assert File.read!(mix) =~ ~r/\bLICENSE (NOTICE )?usage-rules.md\b/,
             "#{mix} leaves its rules out of the package"
    end
  end

  test "every link of the pages leads to a file, and to a heading of it" do
    for pattern <- ~w(*.md guides/* packages/*/*.md packages/*/guides/*),
        page <- Path.wildcard(pattern),
        [_, link | anchor] <- Regex.scan(~r/\]\(([^)#:\s]*)(?:#([^)]*))?\)/, File.read!(page)) do
      file = if link == "", do: page, else: Path.expand(link, Path.dirname(page))
      assert File.exists?(file), "#{page} links to #{link}"
      for name <- anchor, do: assert(name in anchors(file), "#{page} links to #{link}##{name}")
    end
  end

  defp guides, do: Enum.flat_map(~w(guides/* packages/*/guides/*), &Path.wildcard/1)

  # As GitHub and ExDoc name headings.
  defp anchors(file) do
    for [heading] <- Regex.scan(~r/^#+ (.*)$/m, File.read!(file), capture: :all_but_first) do
      heading
      |> String.downcase()
      |> String.replace(~r/[^\w\s-]/u, "")
      |> String.replace(" ", "-")
    end
  end
end
