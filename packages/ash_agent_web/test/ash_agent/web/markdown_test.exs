defmodule AshAgent.Web.MarkdownTest do
  use ExUnit.Case, async: true

  alias AshAgent.Web.Markdown

  doctest Markdown

  @tags ~w(p hr pre code blockquote ul ol li table thead tbody tr th td div strong em s a br)
  @attributes [
    ~r/\Adir="auto"\z/,
    ~r/\Atabindex="0"\z/,
    ~r/\Aclass="(table|heading)"\z/,
    ~r/\Astart="\d{1,9}"\z/,
    ~r/\Adata-language="[\w+#.-]*"\z/,
    ~r/\Ahref="(https?:\/\/|mailto:)[^"<>\s]*"\z/i,
    ~r/\Arel="noopener noreferrer nofollow"\z/,
    ~r/\Atarget="_blank"\z/
  ]

  defp html(text), do: text |> Markdown.to_html() |> IO.iodata_to_binary()
  defp bare(text), do: text |> html() |> String.replace([~s( dir="auto"), ~s( tabindex="0")], "")

  # What is no tag has neither angle brackets nor quotes, and every tag is one of ours, with our attributes, and closed in its turn.
  defp assert_safe(text) do
    html = html(text)
    shown = inspect({text, html}, printable_limit: 300)

    open =
      for piece <- Regex.split(~r/<[^<>]*>/, html, include_captures: true), reduce: [] do
        open ->
          case Regex.run(~r/\A<(\/?)([a-z0-9]+)((?: [a-z-]+="[^"]*")*)>\z/, piece) do
            nil ->
              refute piece =~ ~r/[<>"']/, shown
              open

            [_, "/", name, ""] ->
              assert [^name | open] = open
              open

            [_, "", name, attributes] ->
              assert name in @tags, shown
              # A link in a link is not valid.
              refute name == "a" and "a" in open, shown

              for [attribute] <- Regex.scan(~r/[a-z-]+="[^"]*"/, attributes),
                  do:
                    assert(
                      Enum.any?(@attributes, &(attribute =~ &1)),
                      shown
                    )

              if name in ~w(hr br), do: open, else: [name | open]
          end
      end

    assert open == [], shown
  end

  @examples [
    {"One\ntwo\n\nthree", "<p>One\ntwo</p><p>three</p>"},
    {"# Title\n#### Deep ##", ~s(<p class="heading">Title</p><p class="heading">Deep ##</p>)},
    {"- a\n- b\n  more\n  - c", "<ul><li>a</li><li>b\nmore<ul><li>c</li></ul></li></ul>"},
    {"3. a\n4. b", ~s(<ol start="3"><li>a</li><li>b</li></ol>)},
    {"- [ ] a\n- [x] b", "<ul><li>☐ a</li><li>☑ b</li></ul>"},
    {"- a\n\n- b\n\nc", "<ul><li>a</li><li>b</li></ul><p>c</p>"},
    {"> a\n> > b", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote>"},
    {"a\n\n---\nb", "<p>a</p><hr><p>b</p>"},
    {"```elixir\na < b\n\n**c**\n```\nd",
     ~s(<pre data-language="elixir"><code>a &lt; b\n\n**c**</code></pre><p>d</p>)},
    {"```\nopen", ~s(<pre data-language=""><code>open</code></pre>)},
    {"| a | b |\n|---|---|\n| `1` | 2 \\| 3 |",
     ~s(<div class="table"><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td><code>1</code></td><td>2 | 3</td></tr></tbody></table></div>)},
    {"**a *b* c** ~~d~~ _e_ `f<g` snake_case_name 2*3*4",
     "<p><strong>a <em>b</em> c</strong> <s>d</s> <em>e</em> <code>f&lt;g</code> snake_case_name 2*3*4</p>"},
    {"\\*a\\*", "<p>*a*</p>"},
    {"a  \nb", "<p>a<br>\nb</p>"},
    {"**open", "<p>**open</p>"},
    {"[x](javascript:alert(1))", "<p>[x](javascript:alert(1))</p>"},
    {"[x](/admin)", "<p>[x](/admin)</p>"},
    {"see https://a.example/b?c=1&d=2.",
     ~s(<p>see <a href="https://a.example/b?c=1&amp;d=2" rel="noopener noreferrer nofollow" target="_blank">https://a.example/b?c=1&amp;d=2</a>.</p>)},
    {"![chart](https://a.example/x.png)",
     ~s(<p><a href="https://a.example/x.png" rel="noopener noreferrer nofollow" target="_blank">chart</a></p>)},
    {"<img src=x onerror=alert(1)>", "<p>&lt;img src=x onerror=alert(1)&gt;</p>"}
  ]

  test "turns Markdown into HTML" do
    for {text, html} <- @examples, do: assert(bare(text) == html)
  end

  test "never makes anything but its own elements" do
    pieces =
      [
        "`",
        "```",
        "*",
        "**",
        "_",
        "__",
        "~~",
        "[",
        "]",
        "](",
        "![",
        "(",
        ")",
        "<",
        ">",
        "\"",
        "'",
        "&",
        "\\",
        "|",
        "|-|",
        "#",
        "# ",
        "- ",
        "1. ",
        "> ",
        " ",
        "  ",
        "\n",
        "\n\n"
      ] ++
        [
          "http://",
          "https://a.b/",
          "mailto:x",
          "javascript:x",
          "HTTPS://",
          " \"t\"",
          "a",
          "é",
          "\u202E",
          "<script>",
          "onerror=",
          "[x] ",
          "data:text/html,"
        ]

    for _ <- 1..3_000 do
      text = for _ <- 1..Enum.random(1..25), into: "", do: Enum.random(pieces)
      assert_safe(text)
    end
  end

  test "shows every beginning of a text" do
    for {text, _html} <- @examples,
        length <- 0..String.length(text),
        do: text |> String.slice(0, length) |> assert_safe()
  end

  test "takes marks that nothing closes, deep lists and long lines" do
    for text <- [
          String.duplicate("**a ", 5_000),
          String.duplicate("`` ` ", 5_000),
          String.duplicate("> ", 5_000),
          Enum.map_join(0..300, "\n", &(String.duplicate("  ", &1) <> "- a")),
          String.duplicate("[", 20_000),
          String.duplicate("- ", 10_000),
          String.duplicate("|", 20_000) <> "\n|-|\n"
        ] do
      assert_safe(text)
    end
  end
end
