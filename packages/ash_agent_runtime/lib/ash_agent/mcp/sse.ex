defmodule AshAgent.MCP.SSE do
  @moduledoc false

  # Reads events of a stream in chunks, however they are cut.

  @ends ["\n\n", "\r\n\r\n", "\r\r"]

  # What is left of the last chunk, and how much of it has no end of an event.
  def new, do: {"", 0}

  @doc "Returns the events that are complete, as maps with `data`, `id` and `retry`, and the reader."
  def feed({rest, seen}, chunk), do: split(rest <> chunk, seen, [])

  defp split(bytes, seen, events) do
    from = max(seen - 3, 0)

    case :binary.match(bytes, @ends, scope: {from, byte_size(bytes) - from}) do
      {at, length} ->
        <<event::binary-size(at), _end::binary-size(length), rest::binary>> = bytes
        split(rest, 0, [read(event) | events])

      :nomatch ->
        {Enum.reverse(events), {bytes, byte_size(bytes)}}
    end
  end

  defp read(event) do
    fields =
      for line <- String.split(event, ["\r\n", "\n", "\r"]),
          [name | value] = String.split(line, ":", parts: 2),
          do: {name, value |> List.first("") |> String.replace_prefix(" ", "")}

    %{
      data: for({"data", value} <- fields, do: value) |> Enum.join("\n"),
      id: List.last(for {"id", value} <- fields, value != "", do: value),
      retry:
        List.last(
          for {"retry", value} <- fields, {n, ""} <- [Integer.parse(value)], n >= 0, do: n
        )
    }
  end
end
