defmodule AshAgent.LLM.Recorded.Form do
  @moduledoc false

  # The file of a cassette. A block is a request and its answer; parts that an earlier request has as well are named, not
  # repeated. Keys are sorted, and a message is a line, so that a change is small in a review.

  alias AshAgent.Context.JSON

  @version 1
  @messages ~w(messages contents input)

  ## Writing

  @doc "Returns the text of a cassette with these recordings."
  def write(recordings) do
    {blocks, _earlier} =
      Enum.map_reduce(recordings, [], fn recording, earlier ->
        {block(recording, earlier), [{length(earlier) + 1, recording.body} | earlier]}
      end)

    IO.iodata_to_binary([pretty(%{"cassette_version" => @version, "requests" => blocks}, 0), "\n"])
  end

  defp block(recording, earlier) do
    %{"request" => write_request(recording, earlier), "response" => write_answer(recording)}
  end

  defp write_request(%{path: path, body: body}, earlier) do
    case nearest(body, earlier) do
      nil ->
        %{"path" => path, "body" => body}

      {number, base, key, count} ->
        same =
          for {name, value} <- body, name != key, Map.fetch(base, name) == {:ok, value}, do: name

        rest = Map.update!(Map.drop(body, same), key, &Enum.drop(&1, count))
        as_in = %{"request" => number, "fields" => Enum.sort(same), key => count}
        %{"path" => path, "as_in" => as_in, "body" => rest}
    end
  end

  # The request that this one goes on from; of several, the latest.
  defp nearest(body, earlier) do
    key = Enum.find(@messages, &is_list(body[&1]))

    earlier
    |> Enum.filter(fn {_number, base} -> key != nil and is_list(base[key]) end)
    |> Enum.map(fn {number, base} ->
      {number, base, key, count_common(body[key], base[key], 0)}
    end)
    |> Enum.max_by(&elem(&1, 3), fn -> nil end)
  end

  defp count_common([same | a], [same | b], count), do: count_common(a, b, count + 1)
  defp count_common(_a, _b, count), do: count

  defp write_answer(recording) do
    bytes = for {_at, piece} <- recording.pieces, into: "", do: piece
    cuts = Enum.map_join(recording.pieces, " ", fn {at, piece} -> "#{byte_size(piece)}@#{at}" end)

    %{"status" => recording.status, "headers" => Map.new(recording.headers), "cuts" => cuts}
    |> Map.put("ending", recording.ending)
    |> Map.merge(write_bytes(bytes))
  end

  defp write_bytes(bytes) do
    if String.valid?(bytes),
      do: %{"lines" => String.split(bytes, "\n")},
      else: %{"base64" => Regex.scan(~r/.{1,100}/, Base.encode64(bytes)) |> Enum.concat()}
  end

  # Down to messages and tools, each thing is a line.
  @deepest 5

  defp pretty(map, depth) when is_map(map) and map_size(map) > 0 and depth < @deepest do
    fields =
      for {key, value} <- Enum.sort(map),
          do: [indent(depth + 1), JSON.encode(key), ": ", pretty(value, depth + 1)]

    ["{\n", Enum.intersperse(fields, ",\n"), "\n", indent(depth), "}"]
  end

  defp pretty([_ | _] = list, depth) when depth <= @deepest do
    items = for item <- list, do: [indent(depth + 1), pretty(item, depth + 1)]
    ["[\n", Enum.intersperse(items, ",\n"), "\n", indent(depth), "]"]
  end

  defp pretty(value, _depth), do: compact(value)

  defp compact(map) when is_map(map) do
    fields = for {key, value} <- Enum.sort(map), do: [JSON.encode(key), ":", compact(value)]
    ["{", Enum.intersperse(fields, ","), "}"]
  end

  defp compact(list) when is_list(list),
    do: ["[", list |> Enum.map(&compact/1) |> Enum.intersperse(","), "]"]

  defp compact(value), do: JSON.encode(value)

  defp indent(depth), do: String.duplicate("  ", depth)

  ## Reading

  @doc "Returns `{:ok, recordings}`, or `{:error, words}`."
  def read(text) do
    case JSON.decode(text) do
      {:ok, %{"cassette_version" => @version, "requests" => blocks}} when is_list(blocks) ->
        read_blocks(blocks)

      {:ok, %{"cassette_version" => version}} when is_integer(version) and version > @version ->
        {:error, "it was written by a newer version"}

      {:ok, _other} ->
        {:error, "it is not a cassette"}

      {:error, error} ->
        {:error, Exception.message(error)}
    end
  end

  defp read_blocks(blocks) do
    {:ok,
     blocks
     |> Enum.reduce([], fn block, read -> [read_block(block, read) | read] end)
     |> Enum.reverse()}
  rescue
    # A person has edited it.
    _error -> {:error, "it is not a cassette as AshAgent.LLM.Recorded writes it"}
  end

  defp read_block(%{"request" => request, "response" => answer}, read) do
    pieces = answer |> read_bytes() |> read_cuts(answer["cuts"])

    %{
      path: request["path"],
      body: read_body(request, read),
      status: answer["status"],
      headers: Enum.sort(answer["headers"]),
      pieces: pieces,
      ending: answer["ending"]
    }
  end

  defp read_body(%{"as_in" => as_in, "body" => rest}, read) do
    %{body: base} = Enum.fetch!(read, length(read) - as_in["request"])
    [key] = Map.keys(as_in) -- ["request", "fields"]
    body = base |> Map.take(as_in["fields"]) |> Map.merge(rest)
    Map.update!(body, key, &(Enum.take(base[key], as_in[key]) ++ &1))
  end

  defp read_body(%{"body" => body}, _read), do: body

  defp read_bytes(%{"lines" => lines}), do: Enum.join(lines, "\n")
  defp read_bytes(%{"base64" => lines}), do: lines |> Enum.join() |> Base.decode64!()

  # A person who edits the text of an answer need not count its bytes: it comes in one piece then.
  defp read_cuts(bytes, cuts) do
    cuts =
      for cut <- String.split(cuts) do
        [size, at] = String.split(cut, "@")
        {String.to_integer(size), String.to_integer(at)}
      end

    if cuts |> Enum.map(&elem(&1, 0)) |> Enum.sum() == byte_size(bytes),
      do: cut(bytes, cuts),
      else: [{0, bytes}]
  end

  defp cut("", _cuts), do: []

  defp cut(bytes, [{size, at} | cuts]) do
    <<piece::binary-size(size), rest::binary>> = bytes
    [{at, piece} | cut(rest, cuts)]
  end
end
