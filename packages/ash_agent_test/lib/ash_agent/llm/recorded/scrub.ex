defmodule AshAgent.LLM.Recorded.Scrub do
  @moduledoc false

  # Replaces secrets by as many asterisks, so that cuts and lengths stay, and leaves out fields that a comparison ignores.

  alias AshAgent.Context.JSON
  alias AshAgent.SecretForms

  # The names of organisations and projects.
  @organisations ~r/\b(?:org-|proj_)[A-Za-z0-9]{12,}/

  # Fields of bodies that name the person or the conversation that the request was made for, and those that have texts of the application.
  @users ~w(user safety_identifier user_id prompt_cache_key)
  @labels ~w(metadata requestMetadata)

  @kept_headers ~w(content-type retry-after retry-after-ms)

  @doc "Returns what of a recording may be written down."
  def scrub(recording, patterns, secrets) do
    secrets = for secret <- secrets, byte_size(secret) >= 8, do: secret
    mask = &mask(&1, patterns, secrets)

    %{
      recording
      | path: mask.(recording.path),
        body: recording.body |> map_texts(mask) |> mask_users(),
        headers: Enum.filter(recording.headers, fn {name, _value} -> name in @kept_headers end),
        pieces: scrub_pieces(recording, secrets, mask)
    }
  end

  # Regexes of the application for letters do not read bytes that are not text.
  defp mask(text, patterns, secrets) do
    patterns = if String.valid?(text), do: [@organisations | patterns], else: [@organisations]

    patterns
    |> Enum.reduce(SecretForms.replace(text, &stars/1), &star(&2, &1))
    |> hide(secrets)
  end

  defp star(text, pattern, stars \\ &stars/1),
    do: Regex.replace(pattern, text, fn found -> stars.(found) end)

  defp hide(bytes, []), do: bytes
  defp hide(bytes, secrets), do: String.replace(bytes, secrets, &stars/1)

  defp stars(text), do: String.duplicate("*", byte_size(text))
  defp quoted_stars(text), do: ~s("#{String.duplicate("*", byte_size(text) - 2)}")

  defp mask_users(body) do
    Map.new(body, fn
      {name, value} when name in @users and is_binary(value) -> {name, stars(value)}
      {name, value} when name in @labels -> {name, map_texts(value, &stars/1)}
      {"additionalModelRequestFields" = name, %{} = fields} -> {name, mask_users(fields)}
      field -> field
    end)
  end

  # An answer may repeat these fields.
  defp find_users(body) do
    Enum.flat_map(body, fn
      {name, value} when name in @users and is_binary(value) ->
        [{name, value}]

      {name, %{} = labels} when name in @labels ->
        for {_, v} = label <- labels, is_binary(v), do: label

      {"additionalModelRequestFields", %{} = fields} ->
        find_users(fields)

      _field ->
        []
    end)
  end

  defp mask_echoes(text, users) do
    Enum.reduce(users, text, fn {name, value}, text ->
      [name, value] = for of <- [name, value], do: of |> JSON.encode() |> Regex.escape()
      star(text, Regex.compile!("#{name}\\s*+:\\s*+\\K#{value}"), &quoted_stars/1)
    end)
  end

  # A secret may be in two pieces, so they are looked through together and cut again where they were.
  defp scrub_pieces(%{pieces: pieces, headers: headers, body: body}, secrets, mask) do
    bytes = for {_at, piece} <- pieces, into: "", do: piece
    frames? = frames?(headers)
    texts = if frames?, do: payloads(bytes, 0, []), else: [{0, byte_size(bytes)}]
    users = find_users(body)
    mask_text = &(&1 |> mask.() |> mask_echoes(users))
    masked = bytes |> hide(secrets) |> replace(texts, mask_text) |> mask_across(texts, mask)

    if masked == bytes,
      do: pieces,
      else:
        if(frames?, do: mend_frames(masked, []), else: masked)
        |> cut(for {at, piece} <- pieces, do: {at, byte_size(piece)})
  end

  # The events of a stream have a secret in parts, as the model says it. So the texts under one key are looked through as if they
  # were one.
  @values ~r/"((?:[^"\\]++|\\.)*+)"\s*+:\s*+"((?:[^"\\]++|\\.)*+)"/s

  defp mask_across(bytes, texts, mask) do
    values =
      for {start, size} <- texts,
          text = binary_part(bytes, start, size),
          [_pair, {key, key_size}, {at, value_size}] <- Regex.scan(@values, text, return: :index),
          do: {binary_part(text, key, key_size), {start + at, value_size}}

    values
    |> Enum.group_by(&elem(&1, 0), &elem(&1, 1))
    |> Enum.flat_map(fn {_key, ranges} -> mask_joined(bytes, ranges, mask) end)
    |> Enum.sort()
    |> then(&replace_each(bytes, &1, 0, []))
  end

  defp mask_joined(bytes, ranges, mask) do
    joined = for {start, size} <- ranges, into: "", do: binary_part(bytes, start, size)
    masked = mask.(joined)
    if masked == joined, do: [], else: cut(masked, ranges)
  end

  defp replace(bytes, ranges, fun) do
    parts = for {start, size} <- ranges, do: {start, fun.(binary_part(bytes, start, size))}
    replace_each(bytes, parts, 0, [])
  end

  # A replacement has the length of the original.
  defp replace_each(bytes, [], at, done),
    do: IO.iodata_to_binary([done | binary_part(bytes, at, byte_size(bytes) - at)])

  defp replace_each(bytes, [{start, part} | parts], at, done) do
    done = [done, binary_part(bytes, at, start - at) | part]
    replace_each(bytes, parts, start + byte_size(part), done)
  end

  # Pieces of these sizes, each with its place.
  defp cut(bytes, sizes) do
    {pieces, ""} =
      Enum.map_reduce(sizes, bytes, fn {at, size}, bytes ->
        <<piece::binary-size(size), rest::binary>> = bytes
        {{at, piece}, rest}
      end)

    pieces
  end

  # AWS sends frames: two lengths with their sum, headers, a payload, and a sum of all of it.
  @prelude 12
  @sum 4

  @doc "Returns whether an answer with these headers comes in frames."
  def frames?(headers) do
    Enum.any?(headers, fn {name, value} ->
      name == "content-type" and value =~ "vnd.amazon.eventstream"
    end)
  end

  # Returns the places of the payloads. A frame that was cut off has none.
  defp payloads(bytes, at, found) do
    case bytes do
      <<_read::binary-size(at), total::32, headers::32, _::binary>>
      when total >= @prelude + headers + @sum and at + total <= byte_size(bytes) ->
        range = {at + @prelude + headers, total - @prelude - headers - @sum}
        payloads(bytes, at + total, [range | found])

      _end ->
        Enum.reverse(found)
    end
  end

  defp mend_frames(<<total::32, _::binary>> = bytes, mended)
       when total >= @prelude + @sum and total <= byte_size(bytes) do
    content = total - @sum
    <<frame::binary-size(content), _sum::32, rest::binary>> = bytes
    mend_frames(rest, [mended | [frame, <<:erlang.crc32(frame)::32>>]])
  end

  defp mend_frames(bytes, mended), do: IO.iodata_to_binary([mended | bytes])

  ## Comparing

  @dates ~r/\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?/
  @ids ~w(id tool_use_id tool_call_id call_id toolUseId)

  @doc "Returns a body without what does not count."
  def ignore(body, []), do: body
  def ignore(body, ignored), do: body |> ignore(ignored, %{}) |> elem(0)

  # The first id becomes 1, wherever it is, and so on: results stay those of their calls.
  defp ignore(text, ignored, seen) when is_binary(text),
    do: {if(:dates in ignored, do: Regex.replace(@dates, text, "(date)"), else: text), seen}

  defp ignore(list, ignored, seen) when is_list(list),
    do: Enum.map_reduce(list, seen, &ignore(&1, ignored, &2))

  defp ignore(%{} = map, ignored, seen) do
    {fields, seen} =
      map
      |> Map.drop(ignored)
      |> Enum.sort()
      |> Enum.map_reduce(seen, fn {key, value}, seen ->
        {value, seen} = ignore(value, ignored, seen)
        id? = :ids in ignored and key in @ids and is_binary(value)
        seen = if id?, do: Map.put_new(seen, value, "id #{map_size(seen) + 1}"), else: seen
        {{key, if(id?, do: seen[value], else: value)}, seen}
      end)

    {Map.new(fields), seen}
  end

  defp ignore(other, _ignored, seen), do: {other, seen}

  defp map_texts(text, fun) when is_binary(text), do: fun.(text)
  defp map_texts(list, fun) when is_list(list), do: Enum.map(list, &map_texts(&1, fun))

  defp map_texts(%{} = map, fun),
    do: Map.new(map, fn {key, value} -> {key, map_texts(value, fun)} end)

  defp map_texts(other, _fun), do: other
end
