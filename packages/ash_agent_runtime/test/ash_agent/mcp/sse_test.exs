defmodule AshAgent.MCP.SSETest do
  use ExUnit.Case, async: true

  alias AshAgent.MCP.SSE

  @stream "\uFEFFid: 1\ndata: a\ndata:b\n\n: c\r\nretry: 250\r\ndata\r\n\r\nevent: x\rdata: é\rid:2\r\r\ndata: {}\n\n"
  @events [
    %{data: "a\nb", id: "1", retry: nil},
    %{data: "", id: nil, retry: 250},
    %{data: "é", id: "2", retry: nil},
    %{data: "{}", id: nil, retry: nil}
  ]

  defp read(chunks, max \\ 1_000_000) do
    Enum.reduce(chunks, {[], SSE.new(max)}, fn chunk, {events, reader} ->
      {more, reader} = SSE.feed(reader, chunk)
      {events ++ more, reader}
    end)
  end

  test "reads the same events however they are cut" do
    assert {@events, _reader} = read([@stream])
    assert {@events, _reader} = read(for <<byte <- @stream>>, do: <<byte>>)

    for at <- 1..(byte_size(@stream) - 1) do
      <<first::binary-size(at), second::binary>> = @stream
      assert {@events, _reader} = read([first, second])
    end
  end

  test "reads the last event without an empty line" do
    for rest <- ["data: x", "data: x\n", "data: x\r", "data: x\r\n"] do
      {[], reader} = read([rest])
      assert SSE.finish(reader) == [%{data: "x", id: nil, retry: nil}]
    end

    {[_event], reader} = read(["data: x\n\n"])
    assert SSE.finish(reader) == []
  end

  test "takes neither a time that is no short number nor an id that is no header" do
    for retry <- ["-1", "+1", "1.5", "", "x", "1 ", String.duplicate("9", 10)],
        id <- ["", "a\0b", "a\tb", String.duplicate("a", 1_025)] do
      assert {[event], _reader} = read(["retry: #{retry}\nid: #{id}\ndata: x\n\n"])
      assert event == %{data: "x", id: nil, retry: nil}
    end
  end

  test "keeps nothing of lines that say nothing" do
    {[], reader} = read(for _ <- 1..1_000, do: String.duplicate("a\n", 500))
    assert :erts_debug.flat_size(reader) < 1_000
  end

  test "bounds an event, but not how many there are" do
    event = "data: #{String.duplicate("a", 90)}\n\n"
    assert {events, %{}} = read(List.duplicate(event, 100), 100)
    assert length(events) == 100

    for line <- ["data: aaaa\n", "data: aa"] do
      assert {[%{data: "x"}], :too_large} =
               SSE.feed(SSE.new(100), "data: x\n\n" <> String.duplicate(line, 40))
    end

    lines = for _ <- 1..40, do: "data: aaaa\n"

    assert Enum.reduce_while(lines, SSE.new(100), fn line, reader ->
             case SSE.feed(reader, line) do
               {[], :too_large} -> {:halt, :too_large}
               {[], reader} -> {:cont, reader}
             end
           end) == :too_large
  end
end
