defmodule AshAgent.LLM.Recorded.Scrub do
  @moduledoc false

  # Replaces secrets by as many asterisks, so that cuts and lengths stay, and leaves out fields that a comparison ignores.

  # Keys of providers, clouds and code hosts, tokens, and the names of organisations and projects.
  @patterns [
    ~r/\b(?:sk|rk|gsk|xai|pplx|nvapi|hf|r8)[-_][A-Za-z0-9_-]{16,}/,
    ~r/\b(?:AKIA|ASIA)[0-9A-Z]{16}\b/,
    ~r/\bAIza[0-9A-Za-z_-]{30,}/,
    ~r/\bgh[pousr]_[A-Za-z0-9]{20,}/,
    ~r/\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}/,
    ~r/\bBearer [A-Za-z0-9._~+\/-]{16,}/,
    ~r/\b(?:org-|proj_)[A-Za-z0-9]{12,}/
  ]

  # Fields of bodies that name the person whom the request was made for.
  @users ~w(user safety_identifier user_id)

  @kept_headers ~w(content-type retry-after retry-after-ms)

  @doc "Returns what of a recording may be written down."
  def scrub(recording, patterns, secrets) do
    secrets = for secret <- secrets, byte_size(secret) >= 8, do: secret

    %{
      recording
      | path: mask(recording.path, patterns, secrets),
        body: scrub_body(recording.body, patterns, secrets),
        headers:
          for({name, value} <- recording.headers, name in @kept_headers, do: {name, value}),
        pieces: scrub_pieces(recording, patterns, secrets)
    }
  end

  @doc "Returns a body as it would have been written down."
  def scrub_body(body, patterns, secrets \\ []) do
    body
    |> map_texts(&mask(&1, patterns, secrets))
    |> mask_users()
  end

  defp mask(text, patterns, secrets) do
    text =
      Enum.reduce(@patterns ++ patterns, text, fn pattern, text ->
        Regex.replace(pattern, text, &stars/1)
      end)

    if secrets == [], do: text, else: String.replace(text, secrets, &stars/1)
  end

  defp stars(text), do: String.duplicate("*", byte_size(text))

  defp mask_users(%{} = body) do
    body = Map.new(body, &mask_user/1)

    case body do
      %{"metadata" => %{} = metadata} -> %{body | "metadata" => Map.new(metadata, &mask_user/1)}
      body -> body
    end
  end

  defp mask_user({name, value}) when name in @users and is_binary(value), do: {name, stars(value)}
  defp mask_user(field), do: field

  # A secret may be in two pieces, so they are looked through together and cut again where they were.
  defp scrub_pieces(%{pieces: pieces, headers: headers}, patterns, secrets) do
    bytes = for {_at, piece} <- pieces, into: "", do: piece
    frames? = frames?(headers)
    texts = if frames?, do: payloads(bytes, 0, []), else: [{0, byte_size(bytes)}]

    masked =
      bytes
      |> mask_bytes(secrets)
      |> replace(texts, &mask_text(&1, patterns, secrets))
      |> mask_across(texts, patterns, secrets)

    cond do
      masked == bytes -> pieces
      frames? -> masked |> mend_frames([]) |> cut_again(pieces)
      true -> cut_again(masked, pieces)
    end
  end

  defp mask_bytes(bytes, []), do: bytes
  defp mask_bytes(bytes, secrets), do: String.replace(bytes, secrets, &stars/1)

  # Regexes for letters do not read bytes that are not text.
  defp mask_text(text, patterns, secrets) do
    if String.valid?(text), do: mask(text, patterns, secrets), else: mask(text, [], secrets)
  end

  # The events of a stream have a secret in parts, as the model says it. So the texts under one key are looked through as if they
  # were one.
  @values ~r/"((?:[^"\\]++|\\.)*+)"\s*+:\s*+"((?:[^"\\]++|\\.)*+)"/s

  defp mask_across(bytes, texts, patterns, secrets) do
    values =
      for {start, size} <- texts,
          text = binary_part(bytes, start, size),
          [_pair, {key, key_size}, {at, value_size}] <- Regex.scan(@values, text, return: :index),
          do: {binary_part(text, key, key_size), {start + at, value_size}}

    values
    |> Enum.group_by(&elem(&1, 0), &elem(&1, 1))
    |> Enum.flat_map(fn {_key, ranges} -> mask_joined(bytes, ranges, patterns, secrets) end)
    |> Enum.sort()
    |> then(&replace_each(bytes, &1, 0, []))
  end

  defp mask_joined(bytes, ranges, patterns, secrets) do
    joined = for {start, size} <- ranges, into: "", do: binary_part(bytes, start, size)

    case mask_text(joined, patterns, secrets) do
      ^joined ->
        []

      masked ->
        {parts, ""} =
          Enum.map_reduce(ranges, masked, fn {start, size}, masked ->
            <<part::binary-size(size), masked::binary>> = masked
            {{start, part}, masked}
          end)

        parts
    end
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

  defp cut_again(bytes, pieces) do
    {pieces, ""} =
      Enum.map_reduce(pieces, bytes, fn {at, piece}, bytes ->
        size = byte_size(piece)
        <<masked::binary-size(size), rest::binary>> = bytes
        {{at, masked}, rest}
      end)

    pieces
  end

  # AWS sends frames: two lengths with their sum, headers, a payload, and a sum of all of it.
  @prelude 12
  @sum 4

  defp frames?(headers) do
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

  def ignore(body, ignored) do
    body =
      if :dates in ignored, do: map_texts(body, &Regex.replace(@dates, &1, "(date)")), else: body

    body = body |> drop_keys(Enum.filter(ignored, &is_binary/1))
    if :ids in ignored, do: body |> number_ids(%{}) |> elem(0), else: body
  end

  defp map_texts(text, fun) when is_binary(text), do: fun.(text)
  defp map_texts(list, fun) when is_list(list), do: Enum.map(list, &map_texts(&1, fun))

  defp map_texts(%{} = map, fun),
    do: Map.new(map, fn {key, value} -> {key, map_texts(value, fun)} end)

  defp map_texts(other, _fun), do: other

  defp drop_keys(value, []), do: value
  defp drop_keys(list, keys) when is_list(list), do: Enum.map(list, &drop_keys(&1, keys))

  defp drop_keys(%{} = map, keys) do
    for {key, value} <- map, key not in keys, into: %{}, do: {key, drop_keys(value, keys)}
  end

  defp drop_keys(other, _keys), do: other

  # The first id becomes 1, wherever it is, and so on: results stay those of their calls.
  defp number_ids(list, seen) when is_list(list), do: Enum.map_reduce(list, seen, &number_ids/2)

  defp number_ids(%{} = map, seen) do
    {fields, seen} =
      map
      |> Enum.sort()
      |> Enum.map_reduce(seen, fn
        {key, id}, seen when key in @ids and is_binary(id) ->
          seen = Map.put_new(seen, id, "id #{map_size(seen) + 1}")
          {{key, seen[id]}, seen}

        {key, value}, seen ->
          {value, seen} = number_ids(value, seen)
          {{key, value}, seen}
      end)

    {Map.new(fields), seen}
  end

  defp number_ids(other, seen), do: {other, seen}
end
