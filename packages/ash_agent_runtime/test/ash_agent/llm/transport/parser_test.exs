defmodule AshAgent.LLM.Transport.HTTP1.ParserTest do
  use ExUnit.Case, async: true

  alias AshAgent.LLM.Transport.HTTP1.Parser

  @heads [
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 100 Continue\r\nx: y\r\n\r\nHTTP/1.1 200 OK\r\nServer: x\r\nX-Folded: a\r\n  b\r\n"
  ]

  # A response in each of its forms, with the body that it has.
  defp responses do
    body = "data: Grüße\n\n"

    for head <- @heads,
        {framed, ended} <- [
          {"Content-Length: #{byte_size(body)}\r\n\r\n" <> body, :done},
          {"Transfer-Encoding: Chunked\r\n\r\n3;a=b\r\ndat\r\nc \r\n#{binary_part(body, 3, 12)}\r\n0\r\nx-trailer: y\r\n\r\n",
           :done},
          {"\r\n" <> body, :open}
        ],
        do: {head <> framed, body, ended}
  end

  defp feed_all(pieces) do
    Enum.reduce_while(pieces, {:ok, Parser.new(1_000_000), []}, fn piece,
                                                                   {:ok, parser, messages} ->
      case Parser.feed(parser, piece) do
        {:ok, parser, more} -> {:cont, {:ok, parser, messages ++ more}}
        {:error, reason, more} -> {:halt, {:error, reason, messages ++ more}}
      end
    end)
  end

  defp body(messages), do: for({:data, data} <- messages, into: "", do: data)

  test "reads the same from any cut" do
    for {bytes, body, ended} <- responses(), at <- 0..byte_size(bytes) do
      <<one::binary-size(at), two::binary>> = bytes
      assert {:ok, parser, [{:head, 200, _} | messages]} = feed_all([one, two])
      assert body(messages) == body
      assert Parser.done?(parser) == (ended == :done)
      assert Parser.close(parser) == :ok
    end

    for {bytes, body, _} <- responses() do
      assert {:ok, _, [{:head, 200, headers} | messages]} =
               feed_all(for <<byte <- bytes>>, do: <<byte>>)

      assert body(messages) == body
      assert {:ok, _, [{:head, 200, ^headers} | _]} = feed_all([bytes])
    end
  end

  test "counts all bytes of a head, in any cut" do
    head = fn bytes ->
      status = "HTTP/1.1 200 OK\r\n"
      # Lines of 1,024 bytes, and a last one for what is left.
      line = "x: " <> String.duplicate("a", 1_019) <> "\r\n"
      lines = div(bytes - byte_size(status), 1_024) - 1
      last = bytes - byte_size(status) - 1_024 * lines

      status <>
        String.duplicate(line, lines) <> "x: " <> String.duplicate("a", last - 5) <> "\r\n"
    end

    for {before, ends} <- [
          {"", "\r\nbody"},
          {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "\r\n"}
        ],
        cut <- [1, 17, 1_460, 100_000],
        {bytes, fits?} <- [{65_536, true}, {65_537, false}] do
      # Trailers have no status line, and the chunk's size is not part of them.
      lines =
        if before == "",
          do: head.(bytes),
          else: binary_part(head.(bytes + 17), 17, bytes)

      assert byte_size(lines) == bytes
      reply = feed_all(cut(before <> lines <> ends, cut))

      if fits?,
        do: assert({:ok, _, [{:head, 200, _} | _]} = reply),
        else: assert({:error, {:invalid_response, "headers of more than 65536 bytes"}, _} = reply)
    end
  end

  defp cut(bytes, size) when byte_size(bytes) <= size, do: [bytes]

  defp cut(bytes, size) do
    <<piece::binary-size(size), rest::binary>> = bytes
    [piece | cut(rest, size)]
  end

  test "tells a cut response from a complete one" do
    for {bytes, _, :done} <- responses(), at <- 1..(byte_size(bytes) - 1) do
      assert {:ok, parser, _} = feed_all([binary_part(bytes, 0, at)])
      refute Parser.done?(parser)
      refute Parser.keep?(parser)
      assert Parser.close(parser) == {:error, {:connection, :closed}}
      assert Parser.begun?(parser)
    end
  end

  test "keeps no connection that says more than it should" do
    for {bytes, _, :done} <- responses() do
      assert {:ok, parser, _} = feed_all([bytes])
      assert Parser.keep?(parser)
      assert {:ok, parser, _} = feed_all([bytes <> "x"])
      refute Parser.keep?(parser)
      assert {:ok, parser, _} = feed_all([bytes, "x"])
      refute Parser.keep?(parser)
    end
  end

  test "never raises, whatever comes" do
    :rand.seed(:exsss, {1, 2, 3})

    for {bytes, _, _} <- responses(), _ <- 1..300 do
      at = :rand.uniform(byte_size(bytes)) - 1
      <<one::binary-size(at), _, two::binary>> = bytes
      assert elem(feed_all([one <> <<:rand.uniform(256) - 1>>, two]), 0) in [:ok, :error]
    end

    for _ <- 1..500,
        do:
          assert(
            elem(feed_all([:rand.bytes(:rand.uniform(50)) |> then(&("HTTP/1.1 " <> &1))]), 0) in [
              :ok,
              :error
            ]
          )
  end

  test "takes linear time for a body in the smallest chunks" do
    work = fn n ->
      bytes =
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" <>
          String.duplicate("1\r\nx\r\n", n)

      pieces = for <<piece::binary-size(64) <- bytes>>, do: piece
      {:reductions, before} = Process.info(self(), :reductions)
      Enum.reduce(pieces, Parser.new(n * 2), &(&2 |> Parser.feed(&1) |> elem(1)))
      {:reductions, now} = Process.info(self(), :reductions)
      now - before
    end

    assert work.(50_000) < 12 * work.(5_000)
  end
end
