defmodule AshAgent.MCP.SSE do
  @moduledoc false

  # Reads events of a stream in chunks, however they are cut. Lines that say nothing leave nothing.

  @bom <<0xEF, 0xBB, 0xBF>>
  @empty %{data: "", id: nil, retry: nil}
  @id_bytes 1_024

  # `line` is the beginning of the current line, which has no end yet, and `event` is what the lines before it say. `cr?` is true if the
  # last byte may be half of an end.
  @doc "A reader of events whose data have at most `max` bytes."
  def new(max) do
    ends = :binary.compile_pattern(["\n", "\r"])
    %{max: max, ends: ends, line: "", event: @empty, data?: false, begun?: false, cr?: false}
  end

  @doc "Returns the events that are complete, as maps with `data`, `id` and `retry`, and the reader, or `:too_large` instead of it."
  def feed(%{cr?: true} = reader, "\n" <> chunk), do: feed(%{reader | cr?: false}, chunk)
  def feed(reader, ""), do: {[], reader}

  def feed(%{line: line} = reader, chunk),
    do: split(%{reader | line: "", cr?: false}, line <> chunk, byte_size(line), [])

  @doc "The last event, if the stream ends without the empty line after it."
  def finish(reader), do: reader |> feed("\n\n") |> elem(0)

  defp split(reader, bytes, from, events) do
    case :binary.match(bytes, reader.ends, scope: {from, byte_size(bytes) - from}) do
      _any when byte_size(reader.event.data) > reader.max ->
        {Enum.reverse(events), :too_large}

      {at, 1} ->
        <<line::binary-size(at), ending, rest::binary>> = bytes
        {reader, events} = reader |> begin(line) |> take(events)
        end_line(reader, ending, rest, events)

      :nomatch when byte_size(bytes) + byte_size(reader.event.data) > reader.max ->
        {Enum.reverse(events), :too_large}

      :nomatch ->
        {Enum.reverse(events), %{reader | line: bytes}}
    end
  end

  defp end_line(reader, ?\r, "\n" <> rest, events), do: split(reader, rest, 0, events)
  defp end_line(reader, ?\r, "", events), do: {Enum.reverse(events), %{reader | cr?: true}}
  defp end_line(reader, _ending, rest, events), do: split(reader, rest, 0, events)

  defp begin(%{begun?: false} = reader, line),
    do: {%{reader | begun?: true}, String.replace_prefix(line, @bom, "")}

  defp begin(reader, line), do: {reader, line}

  defp take({%{event: @empty} = reader, ""}, events), do: {%{reader | data?: false}, events}

  defp take({reader, ""}, events),
    do: {%{reader | event: @empty, data?: false}, [reader.event | events]}

  defp take({%{event: event} = reader, line}, events) do
    [name | value] = :binary.split(line, ":")
    value = value |> List.first("") |> String.replace_prefix(" ", "")

    reader =
      case name do
        "data" when reader.data? -> put_in(reader.event.data, event.data <> "\n" <> value)
        "data" -> %{reader | event: %{event | data: value}, data?: true}
        "id" -> if id?(value), do: put_in(reader.event.id, value), else: reader
        "retry" -> put_in(reader.event.retry, retry(value) || event.retry)
        _other -> reader
      end

    {reader, events}
  end

  # It becomes a header.
  defp id?(value), do: byte_size(value) in 1..@id_bytes and not (value =~ ~r/[\x00-\x1f\x7f]/)

  defp retry(value), do: if(value =~ ~r/\A[0-9]{1,9}\z/, do: String.to_integer(value))
end
