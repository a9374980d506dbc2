defmodule AshAgent.Web.Markdown do
  @moduledoc """
  Turns Markdown that a model wrote into HTML that is safe to show.

      iex> "**Closed.** See [the ticket](https://example.com/7)." |> AshAgent.Web.Markdown.to_html() |> IO.iodata_to_binary()
      ~s(<p dir="auto"><strong>Closed.</strong> See <a href="https://example.com/7" rel="noopener noreferrer nofollow" target="_blank">the ticket</a>.</p>)

  It knows paragraphs, headings, lists, task lists, quotes, tables, rules, code, emphasis and links.

  A text becomes only the elements of this module, and all of it is escaped for its place, so HTML in it is shown as text. Links lead to
  `http:`, `https:` and `mailto:` addresses. An image becomes a link: a browser that loaded it would tell somebody else what was said.

  The beginning of a text can be shown while the rest is on its way. What is not closed yet, such as a code block, reaches to the end.
  """

  @typedoc "HTML, for `Phoenix.HTML.raw/1`."
  @type html :: iodata()

  # Lists in quotes in lists: what is deeper is shown as it is.
  @depth 5

  @doc """
  Returns the HTML of a text. Costs O(n).

  ## Examples

      iex> "<script>" |> AshAgent.Web.Markdown.to_html() |> IO.iodata_to_binary()
      ~s(<p dir="auto">&lt;script&gt;</p>)
  """
  @doc since: "0.1.0"
  @spec to_html(String.t()) :: html()
  def to_html(text) when is_binary(text), do: text |> blocks() |> Enum.map(&html(&1, @depth))

  @doc """
  Returns the HTML of each block of a text. Of a text that grows, little but the last one changes.

  ## Examples

      iex> "One\\n\\nTw" |> AshAgent.Web.Markdown.to_blocks() |> Enum.map(&IO.iodata_to_binary/1)
      [~s(<p dir="auto">One</p>), ~s(<p dir="auto">Tw</p>)]
  """
  @doc since: "0.1.0"
  @spec to_blocks(String.t()) :: [html()]
  def to_blocks(text) when is_binary(text),
    do: for(block <- blocks(text), do: html(block, @depth))

  @doc """
  Returns a text escaped for an element or an attribute.

  ## Examples

      iex> AshAgent.Web.Markdown.escape(~s(<a href="x">))
      "&lt;a href=&quot;x&quot;&gt;"
  """
  @doc since: "0.1.0"
  @spec escape(String.t()) :: String.t()
  def escape(text) when is_binary(text) do
    String.replace(text, ["&", "<", ">", "\"", "'"], fn
      "&" -> "&amp;"
      "<" -> "&lt;"
      ">" -> "&gt;"
      "\"" -> "&quot;"
      "'" -> "&#39;"
    end)
  end

  ## Blocks: {kind, facts, lines}, of which the last one can take more lines

  defp blocks(text) do
    blocks = text |> String.split(["\r\n", "\n"]) |> Enum.reduce([], &add_line/2)
    for {kind, facts, lines} <- Enum.reverse(blocks), do: {kind, facts, Enum.reverse(lines)}
  end

  defp add_line(line, [{:code, {fence, _language} = facts, lines} | blocks]) do
    if closes?(line, fence),
      do: [:gap, {:code, facts, lines} | blocks],
      else: [{:code, facts, [line | lines]} | blocks]
  end

  defp add_line(line, blocks) do
    case {kind(line), blocks} do
      {:blank, [{:list, facts, lines} | rest]} -> [{:list, facts, ["" | lines]} | rest]
      {:blank, [:gap | _rest]} -> blocks
      {:blank, _blocks} -> [:gap | blocks]
      {{:code, facts}, _blocks} -> [{:code, facts, []} | blocks]
      {{:list, kind}, [{:list, kind, lines} | rest]} -> [{:list, kind, [line | lines]} | rest]
      {{:quote, _}, [{:quote, facts, lines} | rest]} -> [{:quote, facts, [line | lines]} | rest]
      {{:table, _}, [{:table, facts, lines} | rest]} -> [{:table, facts, [line | lines]} | rest]
      {other, [{:list, facts, lines} | rest]} -> add_to_list(line, other, facts, lines, rest)
      {{:text, _}, [{:text, facts, lines} | rest]} -> [{:text, facts, [line | lines]} | rest]
      {{:text, _}, [{:quote, facts, lines} | rest]} -> [{:quote, facts, [line | lines]} | rest]
      {{kind, facts}, _blocks} -> [{kind, facts, [line]} | blocks]
    end
  end

  # An indented line belongs to the item before it, and so does a text without a blank line between them.
  defp add_to_list(line, {kind, own}, facts, lines, rest) do
    if line =~ ~r/\A(  |\t)/ or (kind == :text and hd(lines) != ""),
      do: [{:list, facts, [line | lines]} | rest],
      else: [{kind, own, [line]}, {:list, facts, lines} | rest]
  end

  defp kind(line) do
    cond do
      line =~ ~r/\A\s*\z/ ->
        :blank

      found = Regex.run(~r/\A {0,3}(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^`]*\z/, line) ->
        {:code, {Enum.at(found, 1), Enum.at(found, 2)}}

      Regex.run(~r/\A {0,3}(\#{1,6})[ \t]/, line) ->
        {:heading, nil}

      line =~ ~r/\A {0,3}([-*_])[ \t]*(\1[ \t]*){2,}\z/ ->
        {:rule, nil}

      line =~ ~r/\A {0,3}[-*+][ \t]/ ->
        {:list, :bullets}

      line =~ ~r/\A {0,3}\d{1,9}[.)][ \t]/ ->
        {:list, :numbers}

      line =~ ~r/\A {0,3}>/ ->
        {:quote, nil}

      line =~ ~r/\A {0,3}\|/ ->
        {:table, nil}

      true ->
        {:text, nil}
    end
  end

  defp closes?(line, fence) do
    line = String.trim(line)
    String.starts_with?(line, fence) and String.trim(line, String.first(fence)) == ""
  end

  ## HTML

  defp html({_kind, _facts, lines}, 0), do: element("p", lines |> Enum.join("\n") |> escape())
  defp html({:rule, _facts, _lines}, _depth), do: "<hr>"

  defp html({:code, {_fence, language}, lines}, _depth) do
    [
      "<pre tabindex=\"0\" data-language=\"",
      escape(language),
      "\"><code>",
      lines |> Enum.join("\n") |> escape(),
      "</code></pre>"
    ]
  end

  # No heading of the page: a model's would be out of their order.
  defp html({:heading, _facts, [line]}, _depth) do
    line = line |> String.trim() |> String.trim_leading("#") |> String.trim()
    ["<p class=\"heading\" dir=\"auto\">", inline(line, @depth), "</p>"]
  end

  defp html({:quote, _facts, lines}, depth) do
    inner = Enum.map_join(lines, "\n", &String.replace(&1, ~r/\A {0,3}> ?/, ""))
    ["<blockquote>", inner |> blocks() |> Enum.map(&html(&1, depth - 1)), "</blockquote>"]
  end

  defp html({:list, kind, lines}, depth) do
    items = items(lines)

    {open, close} =
      if kind == :bullets,
        do: {"<ul>", "</ul>"},
        else: {["<ol start=\"", number(hd(lines)), "\">"], "</ol>"}

    [open, Enum.map(items, &item(&1, depth - 1)), close]
  end

  defp html({:table, _facts, [head, rule | rows] = lines}, depth) do
    if rule =~ ~r/\A[\s|:-]+\z/ do
      row = fn name, line ->
        ["<tr>", for(cell <- cells(line), do: element(name, inline(cell, @depth))), "</tr>"]
      end

      [
        "<div class=\"table\" tabindex=\"0\"><table><thead>",
        row.("th", head),
        "</thead><tbody>",
        Enum.map(rows, &row.("td", &1)),
        "</tbody></table></div>"
      ]
    else
      html({:text, nil, lines}, depth)
    end
  end

  defp html({_text, _facts, lines}, _depth) do
    element("p", lines |> Enum.map(&String.trim_leading/1) |> Enum.join("\n") |> inline(@depth))
  end

  defp element(name, inner), do: ["<", name, " dir=\"auto\">", inner, "</", name, ">"]

  defp cells(line) do
    line
    |> String.trim()
    |> String.replace(~r/\A\||(?<!\\)\|\z/, "")
    |> String.split(~r/(?<!\\)\|/)
    |> Enum.map(&(&1 |> String.trim() |> String.replace("\\|", "|")))
  end

  # An item is its first line without the mark, and the lines that belong to it without their indentation. A mark that is further in than
  # the first one is of a list within.
  defp items([first | _rest] = lines) do
    [inset] = Regex.run(~r/\A */, first)

    lines
    |> Enum.reduce([], &add_item(&1, &2, byte_size(inset) + 1))
    |> Enum.map(&Enum.reverse/1)
    |> Enum.reverse()
  end

  defp add_item(line, items, most) do
    case {Regex.run(~r/\A( *)(?:[-*+]|\d{1,9}[.)])[ \t]+/, line), items} do
      {[mark, inset], _items} when byte_size(inset) <= most ->
        [[binary_part(line, byte_size(mark), byte_size(line) - byte_size(mark))] | items]

      {_text, [item | rest]} ->
        [[String.replace(line, ~r/\A(\t| {1,4})/, "") | item] | rest]
    end
  end

  defp item(lines, depth) do
    {task, lines} = task(lines)

    inner =
      case lines |> Enum.join("\n") |> String.trim_trailing() |> blocks() do
        # A line of its own needs no paragraph.
        [{:text, _facts, text} | rest] ->
          [text |> Enum.join("\n") |> inline(@depth) | Enum.map(rest, &html(&1, depth))]

        blocks ->
          Enum.map(blocks, &html(&1, depth))
      end

    ["<li dir=\"auto\">", task, inner, "</li>"]
  end

  defp task(["[" <> <<mark, "] ", line::binary>> | lines]) when mark in [?\s, ?x, ?X],
    do: {if(mark == ?\s, do: "☐ ", else: "☑ "), [line | lines]}

  defp task(lines), do: {"", lines}

  defp number(line) do
    [number] = Regex.run(~r/\d+/, line)
    number
  end

  ## Within a line

  # What is marked is at most so long that a mark which nothing closes costs no more than that.
  defp inline(text, depth, linked? \\ false)
  defp inline(text, 0, _linked?), do: escape(text)

  defp inline(text, depth, linked?) do
    marked = ~r/
      (?<!`)(`{1,3})(?!`)[^\n]{1,1000}?(?<!`)\1(?!`)
      | \\[\\`*_{}\[\]()\#+.!|~<>-]
      | !?\[[^\[\]\n]{1,500}\]\([^\s()<>]{1,2000}(?:[ ]"[^"\n]{0,300}")?\)
      | \bhttps?:\/\/[^\s<>"'`\])]{1,2000}
      | \*\*(?=\S).{1,1000}?(?<=\S)\*\* | (?<!\w)__(?=\S).{1,1000}?(?<=\S)__(?!\w)
      | ~~(?=\S).{1,1000}?(?<=\S)~~
      | (?<![\w*])\*(?![\s*]).{1,1000}?(?<![\s*])\*(?![\w*]) | (?<![\w_])_(?![\s_]).{1,1000}?(?<![\s_])_(?![\w_])
    /xsu

    marked
    |> Regex.split(text, include_captures: true)
    |> Enum.with_index(fn
      piece, index when rem(index, 2) == 0 ->
        piece |> escape() |> String.replace(~r/(  |\\)\n/, "<br>\n")

      piece, _index ->
        marked(piece, depth - 1, linked?)
    end)
  end

  defp marked("`" <> _ = piece, _depth, _linked?) do
    [_, inner] = Regex.run(~r/\A`+(.*?)`+\z/s, piece)
    ["<code>", escape(inner), "</code>"]
  end

  defp marked("\\" <> letter, _depth, _linked?), do: escape(letter)
  defp marked("http" <> _ = piece, _depth, true), do: escape(piece)
  defp marked("http" <> _ = piece, _depth, false), do: address(piece)
  defp marked("!" <> piece, depth, linked?), do: marked(piece, depth, linked?)
  # A link in a link is not valid.
  defp marked("[" <> _ = piece, _depth, true), do: escape(piece)

  defp marked("[" <> _ = piece, depth, false) do
    [_, words, target] = Regex.run(~r/\A\[([^\]]*)\]\((\S+?)(?: ".*")?\)\z/s, piece)
    link(target, inline(words, depth, true), piece)
  end

  defp marked("**" <> _ = piece, depth, linked?), do: within("strong", piece, 2, depth, linked?)
  defp marked("__" <> _ = piece, depth, linked?), do: within("strong", piece, 2, depth, linked?)
  defp marked("~~" <> _ = piece, depth, linked?), do: within("s", piece, 2, depth, linked?)
  defp marked(piece, depth, linked?), do: within("em", piece, 1, depth, linked?)

  defp within(name, piece, mark, depth, linked?) do
    inner = binary_part(piece, mark, byte_size(piece) - 2 * mark)
    ["<", name, ">", inline(inner, depth, linked?), "</", name, ">"]
  end

  # The end of a sentence does not belong to an address.
  defp address(piece) do
    [target] = Regex.run(~r/\A.*?(?=[.,;:!?*_]*\z)/s, piece)
    rest = binary_part(piece, byte_size(target), byte_size(piece) - byte_size(target))
    [link(target, escape(target), target), escape(rest)]
  end

  defp link(target, words, piece) do
    if target =~ ~r/\A(https?:\/\/|mailto:)/i,
      do: [
        "<a href=\"",
        escape(target),
        "\" rel=\"noopener noreferrer nofollow\" target=\"_blank\">",
        words,
        "</a>"
      ],
      else: escape(piece)
  end
end
