defmodule AshAgent.LLM.Transport.HTTP1.Parser do
  @moduledoc false

  # Reads an HTTP/1.1 response from bytes in any cut. It holds at most one head, one line or nothing: data goes out as it
  # comes in. No number of the server's is ever used to allocate.

  @max_head_bytes 65_536
  @max_line_bytes 1_024
  # Longer ones overflow the lengths of other programs on the way.
  @max_digits 15

  @enforce_keys [:max]
  defstruct [:max, :status] ++
              [state: :status, buffer: "", size: 0, have: 0, headers: [], keep?: true]

  @doc "Begins a response whose body may have `max` bytes."
  def new(max), do: %__MODULE__{max: max}

  @doc "Reads on. Of one call all data come as one message."
  def feed(%{state: :done} = parser, more),
    do: {:ok, %{parser | keep?: parser.keep? and more == ""}, []}

  def feed(%{buffer: ""} = parser, more), do: parser |> step(more, []) |> result()

  def feed(parser, more),
    do: %{parser | buffer: ""} |> step(parser.buffer <> more, []) |> result()

  @doc "The server has closed the connection: some bodies end with that, all others are cut."
  def close(%{state: state}) when state in [:done, :until_close], do: :ok

  def close(%{state: :status, buffer: buffer}) when buffer != "",
    do: if(http?(buffer), do: {:error, {:connection, :closed}}, else: no_status())

  def close(_parser), do: {:error, {:connection, :closed}}

  @doc "Returns whether the response is complete."
  def done?(parser), do: parser.state == :done

  @doc "Returns whether the connection can be used again after a complete response."
  def keep?(parser), do: parser.state == :done and parser.keep?

  @doc "Returns whether anything has come."
  def begun?(parser), do: parser.state != :status or parser.buffer != "" or parser.size > 0

  defp result({:error, reason, messages}), do: {:error, reason, join(messages)}
  defp result({parser, messages}), do: {:ok, parser, join(messages)}

  defp join([_one] = messages), do: messages

  # The head, if there is one, is the first message.
  defp join(messages) do
    {heads, data} = messages |> Enum.reverse() |> Enum.split_with(&match?({:head, _, _}, &1))

    case data do
      [] -> heads
      [data] -> heads ++ [data]
      many -> heads ++ [{:data, IO.iodata_to_binary(Enum.map(many, &elem(&1, 1)))}]
    end
  end

  defp step(%{state: :status} = parser, bytes, messages) do
    case :erlang.decode_packet(:http_bin, bytes, []) do
      {:ok, {:http_response, version, status, _phrase}, rest} when status in 100..999 ->
        begun = %{state: :headers, status: status, headers: [], keep?: version == {1, 1}}
        parser |> grow(bytes, rest) |> Map.merge(begun) |> step(rest, messages)

      {:more, _} when byte_size(bytes) < @max_head_bytes ->
        if http?(bytes),
          do: {%{parser | buffer: bytes}, messages},
          else: {:error, elem(no_status(), 1), messages}

      _ ->
        {:error, elem(no_status(), 1), messages}
    end
  end

  defp step(%{state: state, size: size}, _bytes, messages)
       when state in [:headers, :trailers] and size > @max_head_bytes,
       do:
         {:error, {:invalid_response, "headers of more than #{@max_head_bytes} bytes"}, messages}

  defp step(%{state: state} = parser, bytes, messages) when state in [:headers, :trailers] do
    case :erlang.decode_packet(:httph_bin, bytes, []) do
      {:ok, {:http_header, _, name, _, value}, rest} ->
        header = {name |> to_string() |> String.downcase(:ascii), value}
        parser = grow(parser, bytes, rest)
        # Nobody needs trailers.
        headers = if state == :headers, do: [header | parser.headers], else: parser.headers
        step(%{parser | headers: headers}, rest, messages)

      {:ok, :http_eoh, rest} ->
        headers_end(grow(parser, bytes, rest), rest, messages)

      {:more, _} when byte_size(bytes) < @max_head_bytes ->
        {%{parser | buffer: bytes}, messages}

      _ ->
        {:error, {:invalid_response, "no HTTP headers"}, messages}
    end
  end

  defp step(%{state: :until_close} = parser, bytes, messages),
    do: data(parser, bytes, "", messages)

  defp step(%{state: {:length, 0}} = parser, bytes, messages), do: finish(parser, bytes, messages)
  defp step(parser, "", messages), do: {parser, messages}

  defp step(%{state: {kind, left}} = parser, bytes, messages)
       when kind in [:length, :chunk] and left > 0 do
    size = min(left, byte_size(bytes))
    <<piece::binary-size(size), rest::binary>> = bytes
    data(%{parser | state: {kind, left - size}}, piece, rest, messages)
  end

  defp step(%{state: {:chunk, 0}} = parser, bytes, messages) do
    case bytes do
      "\r\n" <> rest -> step(%{parser | state: :chunk_size}, rest, messages)
      "\r" -> {%{parser | buffer: bytes}, messages}
      _ -> {:error, {:invalid_response, "broken chunk"}, messages}
    end
  end

  defp step(%{state: :chunk_size} = parser, bytes, messages) do
    with [line, rest] <- :binary.split(bytes, "\r\n"),
         {:ok, size} <- line |> :binary.split(";") |> hd() |> String.trim() |> number(16) do
      cond do
        size == 0 -> step(%{parser | state: :trailers, size: 0}, rest, messages)
        parser.have + size > parser.max -> {:error, {:response_too_large, parser.max}, messages}
        true -> step(%{parser | state: {:chunk, size}}, rest, messages)
      end
    else
      [_] when byte_size(bytes) <= @max_line_bytes -> {%{parser | buffer: bytes}, messages}
      _ -> {:error, {:invalid_response, "broken chunk"}, messages}
    end
  end

  defp headers_end(%{state: :trailers} = parser, rest, messages),
    do: finish(parser, rest, messages)

  defp headers_end(%{status: 101}, _rest, messages),
    do: {:error, {:invalid_response, "a change of protocol nobody asked for"}, messages}

  # 100 Continue and its like: the response proper follows. All of them count as one head, so that there is an end.
  defp headers_end(%{status: status} = parser, rest, messages) when status in 100..199,
    do: step(%{parser | state: :status}, rest, messages)

  defp headers_end(parser, rest, messages) do
    headers = Enum.reverse(parser.headers)
    messages = [{:head, parser.status, headers} | messages]

    with {:ok, state} <- body(parser.status, headers, parser.max) do
      closes? = "close" in values(headers, "connection")
      keep? = parser.keep? and state != :until_close and not closes?
      step(%{parser | state: state, keep?: keep?, headers: []}, rest, messages)
    else
      {:error, reason} -> {:error, reason, messages}
    end
  end

  # RFC 9112, section 6.3.
  defp body(status, headers, max) do
    case {values(headers, "transfer-encoding"), Enum.uniq(values(headers, "content-length"))} do
      _ when status in [204, 304] -> {:ok, {:length, 0}}
      {[], []} -> {:ok, :until_close}
      {[], [length]} -> length(length, max)
      {[], _different} -> invalid("more than one content-length")
      {["chunked"], []} -> {:ok, :chunk_size}
      {["chunked"], _} -> invalid("both content-length and transfer-encoding")
      _ -> invalid("unknown transfer encoding")
    end
  end

  defp invalid(words), do: {:error, {:invalid_response, words}}

  defp length(text, max) do
    case number(text, 10) do
      {:ok, length} when length > max -> {:error, {:response_too_large, max}}
      {:ok, length} -> {:ok, {:length, length}}
      :error -> invalid("content-length is not a number")
    end
  end

  # Integer.parse/2 takes signs, too.
  defp number(<<sign, _::binary>>, _base) when sign in [?+, ?-], do: :error

  defp number(text, base) when byte_size(text) <= @max_digits do
    case Integer.parse(text, base) do
      {number, ""} -> {:ok, number}
      _ -> :error
    end
  end

  defp number(_text, _base), do: :error

  defp values(headers, name) do
    for {^name, value} <- headers,
        value <- String.split(value, ","),
        do: value |> String.trim() |> String.downcase()
  end

  defp data(parser, "", rest, messages), do: step_after_data(parser, rest, messages)

  defp data(parser, piece, rest, messages) do
    have = parser.have + byte_size(piece)

    if have > parser.max,
      do: {:error, {:response_too_large, parser.max}, messages},
      else: step_after_data(%{parser | have: have}, rest, [{:data, piece} | messages])
  end

  defp step_after_data(%{state: {:length, 0}} = parser, rest, messages),
    do: finish(parser, rest, messages)

  defp step_after_data(parser, "", messages), do: {parser, messages}
  defp step_after_data(parser, rest, messages), do: step(parser, rest, messages)

  defp finish(parser, rest, messages),
    do: {%{parser | state: :done, keep?: parser.keep? and rest == ""}, messages}

  defp grow(parser, bytes, rest),
    do: %{parser | size: parser.size + byte_size(bytes) - byte_size(rest)}

  # Garbage that ends before its first line does is garbage, not a cut connection.
  defp http?(bytes),
    do: String.starts_with?("HTTP/", binary_part(bytes, 0, min(byte_size(bytes), 5)))

  defp no_status, do: invalid("no HTTP status line")
end
