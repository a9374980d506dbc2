defmodule AshAgent.Demo.Terminal do
  @moduledoc false

  # Words, columns and times for a person at a terminal.

  alias AshAgent.Context

  def headline(text),
    do: IO.puts("\n" <> bright(text) <> "\n" <> String.duplicate("─", String.length(text)))

  # Each column is as wide as its widest cell, the last one as long as it likes. Numbers stand to the right.
  def table(header, rows) do
    widths =
      Enum.zip_with([header | rows], fn cells ->
        cells |> Enum.map(&String.length/1) |> Enum.max()
      end)

    IO.puts(bright(line(header, widths)))
    Enum.each(rows, &IO.puts(line(&1, widths)))
  end

  defp line(cells, widths) do
    {columns, [{last, _width}]} = cells |> Enum.zip(widths) |> Enum.split(-1)
    String.trim_trailing(Enum.map_join(columns, &("  " <> pad(&1))) <> "  " <> last)
  end

  defp pad({cell, width}) do
    if cell =~ ~r/^\d/,
      do: String.pad_leading(cell, width),
      else: String.pad_trailing(cell, width)
  end

  def show_message(%{content: [%{type: :tool_result} | _] = results}) do
    for result <- results do
      line = clip("#{result.tool_use_id}: #{text(result.content)}", 17)
      IO.puts(label("tool result") <> if(result.is_error, do: red(line), else: line))
    end
  end

  def show_message(message) do
    if text(message.content) != "",
      do: IO.puts(label(message.role) <> clip(text(message.content), 17))

    for call <- Map.get(message, :tool_calls, []) do
      IO.puts(label("calls") <> clip("#{call.id}: #{call.name} #{json(call.arguments)}", 17))
    end
  end

  def text(nil), do: ""
  def text(text) when is_binary(text), do: text
  def text(parts), do: Enum.map_join(parts, " ", &part/1)

  defp part(%{type: :thinking, text: text}), do: "(thinks: #{text})"
  defp part(%{type: :tool_result, content: content}), do: text(content)
  defp part(part), do: Map.get(part, :text, "[#{part.type}]")

  defp json(text) when is_binary(text), do: text
  defp json(term), do: term |> Context.JSON.encode() |> IO.iodata_to_binary()

  # One line of the terminal, after `used` columns.
  def clip(text, used) do
    text = String.replace(text, ~r/\s+/, " ")
    room = width() - used
    if String.length(text) > room, do: String.slice(text, 0, room - 1) <> "…", else: text
  end

  defp width do
    case :io.columns() do
      {:ok, columns} -> max(columns, 60)
      _ -> 120
    end
  end

  def label(role), do: bright(String.pad_trailing("  #{role}", 17))

  def time(us) when us < 10, do: "#{:erlang.float_to_binary(us / 1, decimals: 1)} µs"
  def time(us) when us < 1000, do: "#{round(us)} µs"
  def time(us), do: "#{:erlang.float_to_binary(us / 1000, decimals: 1)} ms"

  def bytes(number), do: "#{grouped(number)} bytes"

  def counted(1, noun), do: "1 #{noun}"
  def counted(number, noun), do: "#{number} #{noun}s"

  # 12345 is 12,345.
  def grouped(number) do
    number
    |> Integer.digits()
    |> Enum.reverse()
    |> Enum.chunk_every(3)
    |> Enum.map_join(",", &Enum.join/1)
    |> String.reverse()
  end

  def bright(text), do: paint(text, [:bright])
  def red(text), do: paint(text, [:red])
  defp paint(text, codes), do: IO.iodata_to_binary(IO.ANSI.format([codes, text]))

  # ---- measuring, in microseconds

  def timed(fun) do
    started = System.monotonic_time()
    result = fun.()
    {microseconds(System.monotonic_time() - started), result}
  end

  def microseconds(native), do: System.convert_time_unit(native, :native, :nanosecond) / 1000

  def often(fun), do: time(median(for _ <- 1..1_000, do: elem(timed(fun), 0)))

  def median(times), do: times |> Enum.sort() |> Enum.at(div(length(times), 2))

  def stop(message) do
    IO.puts(:stderr, message)
    System.halt(1)
  end
end
