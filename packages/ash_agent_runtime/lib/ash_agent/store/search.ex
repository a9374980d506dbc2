defmodule AshAgent.Store.Search do
  @moduledoc false

  # Rows that a database finds by their words are checked again as a reader of the conversation would see them: with the masks
  # that it has now. Nothing that these hide is shown or found.

  alias AshAgent.Context
  alias AshAgent.Context.JSON
  alias AshAgent.Store.{Conversation, Relational, Words}

  @leading 60
  @trailing 140
  @longest_pattern 2_500

  # A page costs a database all rows that have the words, so those after a page without enough results are larger.
  @growth 2
  @most_rows 2_000

  def search(store, query, opts) do
    case Words.of_query(query) do
      [] -> {:ok, page([], nil)}
      words -> search(store, {Words.in_index(words), patterns(words)}, opts, opts[:limit], [])
    end
    |> put_behind(store)
  end

  defp put_behind({:ok, page}, store),
    do:
      with(
        {:ok, behind} <- Relational.count_unindexed(store),
        do: {:ok, Map.put(page, :behind, behind)}
      )

  defp put_behind(error, _store), do: error

  # Rows whose words are hidden are not results, so there may be more rows than results to read.
  defp search(store, {words, patterns} = query, opts, left, found) do
    Relational.answer(Relational.search(store, words, opts), fn rows ->
      results = for row <- rows, result = result(row, patterns), do: result
      {results, rest} = Enum.split(results, left)
      found = found ++ results
      left = left - length(results)

      cond do
        left == 0 and (rest != [] or length(rows) == opts[:limit]) ->
          {:ok, page(found, row_cursor(List.last(results).row))}

        length(rows) < opts[:limit] ->
          {:ok, page(found, nil)}

        true ->
          rows_then = max(opts[:limit], min(opts[:limit] * @growth, @most_rows))
          opts = Keyword.merge(opts, after: row_cursor(List.last(rows)), limit: rows_then)
          search(store, query, opts, left, found)
      end
    end)
  end

  defp page(found, next), do: %{results: Enum.map(found, &Map.delete(&1, :row)), next: next}

  # A regular expression has at most 64 KB, so a long word is several.
  defp patterns(words) do
    for word <- words,
        piece <- word |> String.codepoints() |> Enum.chunk_every(@longest_pattern),
        do: piece |> Enum.join() |> Regex.escape() |> Regex.compile!("iu")
  end

  defp row_cursor([id, branch, number, at | _]),
    do: {Conversation.time(at), id, Conversation.number(branch), Conversation.number(number)}

  defp result([id, branch, number, at, label, masks, document], patterns) do
    texts = document |> show_messages(masks) |> Enum.filter(&is_binary/1)

    if Enum.all?(patterns, fn pattern -> Enum.any?(texts, &(&1 =~ pattern)) end) do
      %{
        id: id,
        branch: label && JSON.decode!(label)["name"],
        iteration: Conversation.number(number),
        at: Conversation.time(at),
        snippet: snippet(texts, hd(patterns)),
        row: [id, branch, number, at]
      }
    end
  end

  # A conversation of this iteration alone.
  defp show_messages(document, masks) do
    time = "1970-01-01T00:00:00.000000Z"
    masks = for list <- JSON.decode!(masks), list != nil, mask <- list, do: mask

    document = Context.Changes.put_media_back(document, "AA==")

    head = %{version: 1, id: "-", created_at: time, updated_at: time, metadata: %{}}

    head
    |> Map.merge(%{view: %{covers: [], masks: masks}, iterations: [JSON.raw(document)]})
    |> JSON.encode()
    |> Context.load!()
    |> Context.to_messages()
    |> Enum.flat_map(&texts/1)
  end

  defp texts(message) do
    calls = for call <- message[:tool_calls] || [], do: [name(call.name), strings(call.arguments)]

    parts(message.content) ++ List.flatten(calls)
  end

  # An atom that this VM does not have.
  defp name(%{name: text}), do: text
  defp name(name), do: to_string(name)

  defp parts(text) when is_binary(text), do: [text]

  defp parts(parts) when is_list(parts),
    do: Enum.flat_map(parts, &(parts(&1[:text]) ++ parts(&1[:content])))

  defp parts(_nothing), do: []

  defp strings(text) when is_binary(text), do: [text]

  defp strings(map) when is_map(map) and not is_struct(map),
    do: map |> Map.values() |> Enum.flat_map(&strings/1)

  defp strings(list) when is_list(list),
    do: if(List.improper?(list), do: [], else: Enum.flat_map(list, &strings/1))

  defp strings(_other), do: []

  defp snippet(texts, pattern) do
    text = Enum.find(texts, &(&1 =~ pattern))
    [{at, length}] = Regex.run(pattern, text, return: :index)
    from = max(0, at - @leading)
    to = min(byte_size(text), at + length + @trailing)
    from = whole(text, from)
    to = whole(text, to)
    piece = binary_part(text, from, to - from)

    if(from > 0, do: "…", else: "") <> piece <> if(to < byte_size(text), do: "…", else: "")
  end

  # No character is cut.
  defp whole(text, at) do
    case text do
      <<_::binary-size(at), 2::2, _::bitstring>> -> whole(text, at - 1)
      _boundary -> at
    end
  end
end
