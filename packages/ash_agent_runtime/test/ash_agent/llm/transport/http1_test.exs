defmodule AshAgent.LLM.Transport.HTTP1Test do
  use ExUnit.Case, async: true
  use AshAgent.TestSupport.TransportCases

  alias AshAgent.LLM.Transport
  alias AshAgent.LLM.Transport.HTTP1
  alias AshAgent.LLM.Transport.HTTP1.Pool

  doctest AshAgent.LLM.Transport

  def transport, do: Transport.new(HTTP1)

  describe "options" do
    test "are checked" do
      assert Transport.new({HTTP1, keep_alive: false}) == {HTTP1, keep_alive: false}

      for wrong <- [[keep_alive: 0], [keep_alive: true], [colour: 1]],
          do: assert_raise(ArgumentError, fn -> Transport.new({HTTP1, wrong}) end)

      assert_raise ArgumentError, ~r/Finch was not available/, fn ->
        Transport.new(Transport.Finch)
      end

      assert_raise ArgumentError, fn -> Transport.new("HTTP1") end
    end

    test "of a request are not shown when they hold secrets" do
      request = request(%{url: "http://h"}, headers: fn -> [{"x", "SECRET"}] end, body: "SECRET")
      assert inspect(request) =~ "timeout"
      refute inspect(request) =~ "SECRET"
      refute inspect(%{request | body: ""}, structs: false) =~ "SECRET"
    end
  end

  describe "a response of which Mint makes less" do
    test "follows interim ones" do
      server =
        WireServer.answering([
          "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n",
          WireServer.response(200, "x")
        ])

      assert {:ok, %{status: 200, body: "x"}} = collect(transport(), request(server))
    end

    test "is delivered up to the byte where it was cut" do
      server = WireServer.answering([WireServer.stream_head(), "ff\r\nabc"])

      assert {:error, {:connection, :closed}, %{body: "abc"}} =
               collect(transport(), request(server))
    end
  end

  describe "a connection" do
    test "is new each time without keep_alive, and the server is told" do
      server =
        WireServer.start(fn connection ->
          {:ok, request} = WireServer.read_request(connection)
          WireServer.tell(connection, {:connection, request.headers["connection"]})
          WireServer.write(connection, WireServer.response(200, "x"))
          WireServer.await_close(connection)
        end)

      for n <- 1..3 do
        assert {:ok, _} = collect({HTTP1, keep_alive: false}, request(server))
        assert_receive {:connection, "close"}
        assert_receive {:closed, ^n}
      end
    end

    # The server says on which connection a request came in.
    defp counting(answer) do
      WireServer.start(fn connection -> count(connection, answer) end)
    end

    defp count(connection, answer) do
      with {:ok, _} <- WireServer.read_request(connection),
           :ok <- WireServer.write(connection, answer.(Integer.to_string(connection.number))),
           do: count(connection, answer)
    end

    test "is not kept when the response says or shows that it ends" do
      for answer <- [
            &WireServer.response(200, &1, [{"Connection", "Close"}]),
            &["HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\n", &1],
            &[WireServer.response(200, &1), "more than was announced"]
          ] do
        server = counting(answer)
        for n <- ~w(1 2 3), do: assert({:ok, %{body: ^n}} = collect(transport(), request(server)))
      end
    end

    test "is used by one request at a time, the last one first" do
      server = counting(&WireServer.response(200, &1))
      test = self()

      ask = fn ->
        Task.async(fn ->
          stream(transport(), request(server), fn
            {:head, _, _}, acc ->
              {:cont, acc}

            {:data, n}, _ ->
              send(test, {:asking, self()})
              receive do: (:go_on -> {:cont, n})
          end)
        end)
      end

      tasks = for _ <- 1..5, do: ask.()
      pids = for _ <- 1..5, do: assert_receive({:asking, pid}) && pid
      Enum.each(pids, &send(&1, :go_on))
      assert tasks |> Task.await_many() |> Enum.sort() == for(n <- ~w(1 2 3 4 5), do: {:ok, n})
      key = Pool.key(request(server))
      assert Wait.until(fn -> Pool.count(key) == 5 end)
      for _ <- 1..10, do: assert({:ok, %{body: _}} = collect(transport(), request(server)))
      assert Wait.until(fn -> Pool.count(key) == 5 end)
    end

    test "is forgotten when the server closes it at rest, and when it has rested long enough" do
      server = counting(&WireServer.response(200, &1))
      key = Pool.key(request(server))
      assert {:ok, %{body: "1"}} = collect({HTTP1, keep_alive: 100}, request(server))
      assert Wait.until(fn -> Pool.count(key) == 0 end)
      assert {:ok, %{body: "2"}} = collect({HTTP1, keep_alive: 60_000}, request(server))
      assert Wait.until(fn -> Pool.count(key) == 1 end)

      server = WireServer.answering(WireServer.response(200, "x"))

      assert {:ok, %{body: "x"}} = collect(transport(), request(server))
      assert Wait.until(fn -> Pool.count(Pool.key(request(server))) == 0 end)
    end

    test "that the server closed with the request under way is replaced, without the caller's notice" do
      server =
        WireServer.start(fn connection ->
          {:ok, _} = WireServer.read_request(connection)

          write_number(connection)
          # Takes the second request, and closes without a word.
          if connection.number == 1, do: WireServer.read_request(connection)
        end)

      assert {:ok, %{body: "1"}} = collect(transport(), request(server))
      assert {:ok, %{body: "2"}} = collect(transport(), request(server))
    end

    test "that was cut in the middle of its answer is not replaced" do
      server =
        WireServer.start(fn connection ->
          {:ok, _} = WireServer.read_request(connection)
          WireServer.write(connection, WireServer.response(200, "1"))
          {:ok, _} = WireServer.read_request(connection)
          WireServer.write(connection, "HTTP/1.1 200 OK\r\n")
        end)

      assert {:ok, %{body: "1"}} = collect(transport(), request(server))
      assert {:error, {:connection, :closed}, _} = collect(transport(), request(server))
    end

    test "is shared by requests with the same options of TLS alone" do
      one = request(%{url: "https://h"}, ssl: [verify: :verify_none])
      other = request(%{url: "https://h"})
      assert Pool.key(one) != Pool.key(other)
      assert Pool.key(one) == Pool.key(%{one | body: "x", headers: fn -> [] end})
    end

    test "goes without the pool when that does not run" do
      assert Pool.take(:key, :no_such_pool) == :none
      {:ok, listener} = :gen_tcp.listen(0, [])
      {:ok, port} = :inet.port(listener)
      {:ok, socket} = :gen_tcp.connect({127, 0, 0, 1}, port, [])
      assert Pool.put(:key, {:gen_tcp, socket}, 1_000, :no_such_pool) == :ok
      assert Port.info(socket) == nil
    end
  end

  describe "the pool" do
    setup do
      {:ok, pool} = Pool.start_link(name: nil)

      opts = [:binary, active: false, ip: {127, 0, 0, 1}, backlog: 200]
      {:ok, listener} = :gen_tcp.listen(0, opts)
      {:ok, port} = :inet.port(listener)

      connect = fn ->
        {:ok, socket} = :gen_tcp.connect({127, 0, 0, 1}, port, [:binary, active: false])
        {:ok, peer} = :gen_tcp.accept(listener)
        {{:gen_tcp, socket}, peer}
      end

      %{pool: pool, connect: connect}
    end

    test "owns what rests, and its taker what is taken", %{pool: pool, connect: connect} do
      {{_, port} = socket, _peer} = connect.()
      assert Pool.put(:key, socket, 10_000, pool) == :ok
      assert Pool.count(:key, pool) == 1
      assert Port.info(port, :connected) == {:connected, pool}
      assert Pool.take(:key, pool) == {:ok, socket}
      assert Port.info(port, :connected) == {:connected, self()}
      assert Pool.take(:key, pool) == :none
    end

    test "drops what talks, closes, or breaks at rest", %{pool: pool, connect: connect} do
      {one, _} = connect.()
      {two, talking} = connect.()
      {three, closing} = connect.()
      for socket <- [one, two, three], do: Pool.put(:key, socket, 10_000, pool)
      :gen_tcp.send(talking, "HTTP/1.1 408 Request Timeout\r\n\r\n")
      :gen_tcp.close(closing)
      assert Wait.until(fn -> Pool.count(:key, pool) == 1 end)
      assert Pool.take(:key, pool) == {:ok, one}
    end

    test "keeps no more than it has room for", %{pool: pool, connect: connect} do
      for _ <- 1..70, do: Pool.put(:key, elem(connect.(), 0), 10_000, pool)
      assert Pool.count(:key, pool) == 64
    end

    test "closes what its giver could not hand over", %{pool: pool, connect: connect} do
      {{_, port} = socket, peer} = connect.()
      test = self()

      giver =
        spawn(fn ->
          receive do: (:go -> :ok)
          GenServer.cast(pool, {:coming, self(), socket})
          :gen_tcp.controlling_process(port, pool)
          send(test, :given)
          receive do: (:never -> :ok)
        end)

      :gen_tcp.controlling_process(port, giver)
      send(giver, :go)
      assert_receive :given
      Process.exit(giver, :kill)
      assert {:error, :closed} = :gen_tcp.recv(peer, 0, 10_000)
      assert :sys.get_state(pool).coming == %{}
    end

    test "holds nothing secret", %{pool: pool, connect: connect} do
      key = Pool.key(request(%{url: "https://h"}, ssl: [password: ~c"SECRET"]))
      Pool.put(key, elem(connect.(), 0), 10_000, pool)
      refute inspect(:sys.get_state(pool), limit: :infinity) =~ "SECRET"
    end
  end

  describe "a server that is hostile" do
    defp endless(head, more) do
      WireServer.start(fn connection ->
        {:ok, _} = WireServer.read_request(connection)
        WireServer.write(connection, head)
        pour(connection, more)
      end)
    end

    defp pour(connection, more),
      do: if(WireServer.write(connection, more) == :ok, do: pour(connection, more))

    test "gets no further than its limits" do
      for {head, more, reason} <- [
            {"HTTP/1.1 200 OK\r\n", "x-more: and more\r\n", "headers of more"},
            {"HTTP/1.1 200 OK\r\n", "xxxxxxxxxxxxxxxx", "no HTTP headers"},
            {"HTTP/1.1 200 ", "OK and OK and OK", "no HTTP status line"},
            {"", "HTTP/1.1 100 Continue\r\n\r\n", "headers of more"},
            {"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", "x-more: and more\r\n",
             "headers of more"},
            {"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;", "xxxxxxxxxxxxxxxx",
             "broken chunk"},
            {"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", "00000000", "broken chunk"}
          ] do
        assert {:error, {:invalid_response, words}, _} =
                 collect(transport(), request(endless(head, more)))

        assert words =~ reason
      end

      server = endless("HTTP/1.1 200 OK\r\n\r\n", "xxxxxxxxxxxxxxxx")

      assert {:error, {:response_too_large, 1_000}, _} =
               collect(transport(), request(server, max_bytes: 1_000))
    end

    test "is refused for numbers and heads that are none" do
      chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
      ok = "HTTP/1.1 200 OK\r\n"

      for bytes <- [
            chunked <> "-1\r\n{}\r\n",
            chunked <> "+1\r\n{\r\n",
            chunked <> "0x1\r\n{\r\n",
            chunked <> "\r\n",
            chunked <> "ffffffffffffffffffffffff\r\nx",
            chunked <> "1\r\nxx\r\n",
            ok <> "content-length: -1\r\n\r\n{}",
            ok <> "content-length: +2\r\n\r\n{}",
            ok <> "content-length: 99999999999999999999999\r\n\r\n{}",
            ok <> "content-length: 1\r\ncontent-length: 2\r\n\r\n{}",
            ok <> "content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            ok <> "transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
            "HTTP/1.1 99 Low\r\n\r\n",
            "HTTP/1.1 1000 High\r\n\r\n",
            "<html>",
            <<0, 255>>
          ] do
        server = WireServer.stalling(bytes)

        assert {:error, {:invalid_response, _}, acc} = collect(transport(), request(server))
        assert Map.get(acc, :body, "") in ["", "x"]
        assert_receive {:closed, 1}
      end
    end

    test "announces more than is wanted and is refused before it sends it" do
      for head <- [
            "content-length: 1001\r\n\r\n",
            "transfer-encoding: chunked\r\n\r\nfffffffffff\r\n"
          ] do
        server = WireServer.stalling(["HTTP/1.1 200 OK\r\n", head])

        assert {:error, {:response_too_large, 1_000}, %{status: 200}} =
                 collect(transport(), request(server, max_bytes: 1_000))
      end
    end

    test "may refuse before it has read the request" do
      server =
        WireServer.start(fn connection ->
          {:ok, _} = :gen_tcp.recv(connection.socket, 100)

          refused = WireServer.response(413, "too large", [{"connection", "close"}])
          WireServer.write(connection, refused)
          :gen_tcp.shutdown(connection.socket, :write)
          WireServer.await_close(connection)
        end)

      body = List.duplicate(String.duplicate("x", 1_000_000), 10)

      assert {:ok, %{status: 413, body: "too large"}} =
               collect(transport(), request(server, body: body))
    end

    # More than linear work, or waiting, takes longer than this.
    @tag timeout: 60_000
    test "that does not read the request is waited for no longer than allowed" do
      server = WireServer.start(fn _connection -> receive(do: (:never -> :ok)) end)
      body = List.duplicate(String.duplicate("x", 1_000_000), 20)
      request = request(server, body: body, timeout: 200)
      assert {:error, {:timeout, :whole}, _} = collect(transport(), request)
    end
  end

  defp write_number(connection),
    do: WireServer.write(connection, WireServer.response(200, "#{connection.number}"))

  describe "TLS" do
    setup do: AshAgent.TestSupport.Certificates.make()

    test "keeps connections, and drops those that end", %{tls: tls, trusted: trusted} do
      server =
        WireServer.start(
          fn connection ->
            for _ <- 1..2 do
              {:ok, _} = WireServer.read_request(connection)

              write_number(connection)
            end

            receive do: (:end -> :ok), after: (50 -> :ok)
          end,
          tls: tls,
          host: "localhost"
        )

      request = request(server, ssl: trusted)
      assert {:ok, %{body: "1"}} = collect(transport(), request)
      assert {:ok, %{body: "1"}} = collect(transport(), request)
      assert Wait.until(fn -> Pool.count(Pool.key(request)) == 0 end)
      assert {:ok, %{body: "2"}} = collect(transport(), request)
    end

    test "waits on the server for a slow consumer, and closes with its process", %{
      tls: tls,
      trusted: trusted
    } do
      piece = String.duplicate("x", 65_536)

      server =
        WireServer.start(
          fn connection ->
            {:ok, _} = WireServer.read_request(connection)
            WireServer.write(connection, WireServer.stream_head())
            write_all(connection, piece, 0)
          end,
          tls: tls,
          host: "localhost",
          sndbuf: 65_536
        )

      test = self()

      {pid, monitor} =
        spawn_monitor(fn ->
          block = fn
            {:data, _}, acc ->
              send(test, :blocked)
              receive do: (:go_on -> {:cont, acc})

            _head, acc ->
              {:cont, acc}
          end

          stream(transport(), request(server, ssl: trusted), block)
        end)

      assert_receive :blocked
      written = Wait.settled(fn -> self() |> Process.info(:message_queue_len) |> elem(1) end)
      # 65 MB would be 1,000 pieces.
      assert written < 500
      refute_receive {:closed, _}, 100
      Process.exit(pid, :kill)
      assert_receive {:DOWN, ^monitor, _, _, :killed}
      assert_receive {:closed, 1}
    end

    defp write_all(connection, piece, n) do
      case WireServer.write_chunk(connection, piece) do
        :ok ->
          WireServer.tell(connection, {:written, n})
          write_all(connection, piece, n + 1)

        {:error, _} ->
          WireServer.tell(connection, {:closed, connection.number})
      end
    end

    test "does not wait for a server that does not read", %{tls: tls, trusted: trusted} do
      never = fn _connection -> receive(do: (:never -> :ok)) end
      server = WireServer.start(never, tls: tls, host: "localhost")
      body = List.duplicate(String.duplicate("x", 1_000_000), 20)
      request = request(server, body: body, timeout: 400, ssl: trusted)
      assert {:error, {:timeout, :whole}, _} = collect(transport(), request)
    end

    test "needs a certificate that is trusted, of the right name", %{tls: tls, trusted: trusted} do
      answer = fn connection ->
        {:ok, _} = WireServer.read_request(connection)
        WireServer.write(connection, WireServer.response(200, "x"))
      end

      server = WireServer.start(answer, tls: tls, host: "localhost")
      assert {:ok, %{body: "x"}} = collect(transport(), request(server, ssl: trusted))
      assert {:error, {:connection, {:tls_alert, _}}, _} = collect(transport(), request(server))
      other = WireServer.start(answer, tls: tls, host: "127.0.0.1")

      assert {:error, {:connection, {:tls_alert, _}}, _} =
               collect(transport(), request(other, ssl: trusted))
    end

    test "stalls in the handshake no longer than allowed", %{trusted: trusted} do
      server = WireServer.start(fn _connection -> receive(do: (:never -> :ok)) end)
      url = String.replace(server.url, "http://127.0.0.1", "https://localhost")
      request = request(%{url: url}, ssl: trusted, connect_timeout: 60)
      assert {:error, {:timeout, :connect}, _} = collect(transport(), request)
    end
  end
end
