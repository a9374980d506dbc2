defmodule AshAgent.TestSupport.TransportCases do
  @moduledoc false

  # What every transport has to do: `use AshAgent.TestSupport.TransportCases` in a test with `transport/0`, `{module, options}`.

  import AshAgent.TestSupport.Runs, only: [drain: 1]

  alias AshAgent.LLM.Transport.Request
  alias AshAgent.TestSupport.WireServer

  defmacro __using__(_opts) do
    quote do
      import AshAgent.TestSupport.TransportCases

      alias AshAgent.LLM.Transport.Request
      alias AshAgent.TestSupport.{Wait, WireServer}

      unquote(bodies())
      unquote(flow())
      unquote(ends())
      unquote(time())
      unquote(clients())
    end
  end

  @doc "A request to a server."
  def request(server, opts \\ []) do
    own = [method: "POST", uri: URI.parse(server.url <> "/x?y=%20"), body: ["{", "}"]]
    struct!(Request, own ++ [timeout: 20_000] ++ opts)
  end

  @doc "Sends a request and collects the response."
  def collect(transport, request) do
    collect = fn
      {:head, status, headers}, acc ->
        {:cont, Map.merge(acc, %{status: status, headers: headers})}

      {:data, data}, acc ->
        {:cont, Map.update(acc, :body, data, &(&1 <> data))}
    end

    stream(transport, request, %{}, collect)
  end

  @doc "Sends a request, with `fun` for what comes."
  def stream({module, opts}, request, acc \\ nil, fun), do: module.stream(request, acc, fun, opts)

  @doc "Does nothing with what comes."
  def ignore(_message, acc), do: {:cont, acc}

  @doc "All of a server's messages so far."
  def received, do: drain(do: (message -> message))

  @doc "Clients, each with a stream of its provider."
  def client_streams do
    for {provider, module} <- [
          anthropic: AshAgent.LLM.Anthropic,
          gemini: AshAgent.LLM.Gemini,
          ollama: AshAgent.LLM.Ollama
        ],
        do: {module, AshAgent.TestSupport.Recorded.sample(provider)}
  end

  @doc "A server that sends a recorded stream in small pieces."
  def serve_in_pieces(stream) do
    WireServer.start(fn connection ->
      {:ok, _} = WireServer.read_request(connection)
      pieces = for <<piece::binary-size(7) <- stream.body>>, do: WireServer.chunk(piece)
      last = binary_part(stream.body, byte_size(stream.body), -rem(byte_size(stream.body), 7))
      rest = if last == "", do: "", else: WireServer.chunk(last)

      head = WireServer.stream_head(stream.type)
      WireServer.write(connection, [head, pieces, rest, "0\r\n\r\n"])
    end)
  end

  defp clients do
    quote do
      test "carries the streams of a client" do
        for {module, stream} <- client_streams() do
          url = serve_in_pieces(stream).url
          llm = module.new(model: "m", base_url: url, transport: transport(), timeout: 30_000)
          test = self()
          show = fn event -> with({:text, _, text} <- event, do: send(test, {:text, text})) end
          reply = AshAgent.LLM.stream(llm, AshAgent.Context.new("Hi"), show)
          assert {:ok, %{state: :complete}} = reply
          assert Enum.join(for {:text, text} <- received(), do: text) == "Grüße, Welt!"
        end
      end
    end
  end

  defp bodies do
    quote do
      describe "a response" do
        test "is head and data, however its length is told" do
          hello = ["data: ", "Grüße", "\n\n"]

          chunked = [WireServer.stream_head(), Enum.map(hello, &WireServer.chunk/1)]

          for {bytes, keep?} <- [
                {WireServer.response(200, hello, [{"X-One", "1"}, {"x-two", "2"}]), true},
                {[chunked, "0\r\n\r\n"], true},
                {[chunked, "0\r\nx-t: 1\r\n\r\n"], true},
                {["HTTP/1.0 200 OK\r\n\r\n", hello], false}
              ] do
            server =
              WireServer.start(fn connection ->
                {:ok, request} = WireServer.read_request(connection)
                WireServer.tell(connection, {:request, request})
                WireServer.write(connection, bytes)
                if keep?, do: WireServer.await_close(connection)
              end)

            request = request(server, headers: fn -> [{"x-key", "k"}] end)

            assert {:ok, %{status: 200, body: "data: Grüße\n\n", headers: headers}} =
                     collect(transport(), request)

            assert Enum.all?(headers, fn {name, _} -> name == String.downcase(name) end)

            assert_received {:request, %{method: "POST", body: "{}", headers: sent} = asked}
            assert asked.path == "/v1/x?y=%20"
            assert %{"x-key" => "k", "content-length" => "2"} = sent
            assert sent["host"] == "127.0.0.1:#{server.port}"
          end
        end

        test "has a head also when it has no body" do
          server = WireServer.answering(WireServer.response(429, "", [{"retry-after", "1"}]))

          assert {:ok, %{status: 429, headers: headers} = response} =
                   collect(transport(), request(server))

          assert {"retry-after", "1"} in headers
          refute Map.has_key?(response, :body)
        end

        test "is not followed, repeated or decoded" do
          {:ok, counter} = Agent.start_link(fn -> 0 end)

          for bytes <- [
                WireServer.response(302, "", [{"location", "/y"}]),
                WireServer.response(503, "busy", [{"retry-after", "0"}]),
                WireServer.response(200, "{\"a\":1}", [{"content-type", "application/json"}])
              ] do
            server =
              WireServer.start(fn connection ->
                {:ok, _} = WireServer.read_request(connection)
                Agent.update(counter, &(&1 + 1))
                WireServer.write(connection, bytes)
              end)

            assert {:ok, %{status: _}} = collect(transport(), request(server))
          end

          assert Agent.get(counter, & &1) == 3
        end

        test "that is cut is an error that keeps what came" do
          for bytes <- [
                "HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nabc",
                [WireServer.stream_head(), WireServer.chunk("abc")]
              ] do
            server = WireServer.answering(bytes)

            assert {:error, {:connection, :closed}, %{status: 200, body: "abc"}} =
                     collect(transport(), request(server))
          end
        end

        test "over one connection leaves it to the next" do
          server =
            WireServer.start(fn connection ->
              WireServer.tell(connection, {:connected, connection.number})
              serve_all(connection)
            end)

          for n <- 1..20 do
            text = Integer.to_string(n)
            assert {:ok, %{body: ^text}} = collect(transport(), request(server, body: text))
          end

          assert for({:connected, n} <- received(), do: n) == [1]
        end
      end

      defp serve_all(connection) do
        case WireServer.read_request(connection) do
          {:ok, %{body: body}} ->
            chunked = [WireServer.stream_head(), WireServer.chunk(body), "0\r\n\r\n"]
            whole? = rem(byte_size(body), 2) == 0
            answer = if whole?, do: WireServer.response(200, body), else: chunked
            WireServer.write(connection, answer)
            serve_all(connection)

          :closed ->
            :ok
        end
      end
    end
  end

  defp flow do
    quote do
      describe "a stream" do
        test "is delivered while it comes in" do
          server =
            WireServer.start(fn connection ->
              {:ok, _} = WireServer.read_request(connection)
              WireServer.write(connection, WireServer.stream_head())
              WireServer.tell(connection, {:server, self()})

              for n <- 1..5 do
                WireServer.write_chunk(connection, "piece #{n}")
                receive do: ({:got, ^n} -> :ok)
              end

              WireServer.write(connection, "0\r\n\r\n")
              WireServer.await_close(connection)
            end)

          # The server sends the next piece when the last one has been consumed: nothing is held back.
          consume = fn
            {:head, 200, _}, pieces ->
              {:cont, pieces}

            {:data, "piece " <> n = piece}, pieces ->
              server = Process.get(:server) || receive(do: ({:server, pid} -> pid))
              Process.put(:server, server)
              send(server, {:got, String.to_integer(n)})
              {:cont, [piece | pieces]}
          end

          assert {:ok, pieces} = stream(transport(), request(server), [], consume)
          assert Enum.reverse(pieces) == for(n <- 1..5, do: "piece #{n}")
        end

        test "waits on the server for a slow consumer" do
          piece = String.duplicate("x", 65_536)
          pieces = 1_000

          server =
            WireServer.start(
              fn connection ->
                {:ok, _} = WireServer.read_request(connection)
                WireServer.write(connection, WireServer.stream_head())

                for n <- 1..pieces do
                  WireServer.write_chunk(connection, piece)
                  WireServer.tell(connection, {:written, n})
                end

                WireServer.write(connection, "0\r\n\r\n")
                WireServer.await_close(connection)
              end,
              sndbuf: 65_536
            )

          test = self()

          consumer =
            Task.async(fn ->
              slow = fn
                {:head, _, _}, size ->
                  {:cont, size}

                {:data, data}, size ->
                  if size == 0 do
                    send(test, {:blocked, self()})
                    receive do: (:go_on -> :ok)
                  end

                  {:cont, size + byte_size(data)}
              end

              stream(transport(), request(server, timeout: :infinity), 0, slow)
            end)

          assert_receive {:blocked, pid}
          # What fits into the sockets' buffers has been written, and then no more.
          written = Wait.settled(fn -> self() |> Process.info(:message_queue_len) |> elem(1) end)
          assert written < pieces / 2
          refute Task.yield(consumer, 100)
          assert self() |> Process.info(:message_queue_len) |> elem(1) < pieces / 2
          send(pid, :go_on)
          assert Task.await(consumer, 60_000) == {:ok, pieces * byte_size(piece)}
          assert for({:written, n} <- received(), do: n) == Enum.to_list(1..pieces)
        end
      end
    end
  end

  defp ends do
    quote do
      describe "the connection closes" do
        setup do
          %{server: WireServer.stalling([WireServer.stream_head(), WireServer.chunk("abc")])}
        end

        defp halted({:head, status, _}, _acc), do: {:halt, status}

        test "with the process that asked, however that ends", %{server: server} do
          test = self()

          for {reason, n} <- Enum.with_index([:kill, :shutdown, :normal], 1) do
            pid =
              spawn(fn ->
                block = fn
                  {:data, _}, acc ->
                    send(test, :streaming)
                    receive do: (reason -> exit(reason))
                    {:cont, acc}

                  _head, acc ->
                    {:cont, acc}
                end

                stream(transport(), request(server), block)
              end)

            assert_receive :streaming
            if reason == :kill, do: Process.exit(pid, :kill), else: send(pid, reason)
            assert_receive {:closed, ^n}
          end

          # Also while it waits for more.
          pid = spawn(fn -> stream(transport(), request(server), &ignore/2) end)
          refute_receive {:closed, 4}, 100
          Process.exit(pid, :kill)
          assert_receive {:closed, 4}
        end

        test "when the consumer halts", %{server: server} do
          halt = fn
            {:data, data}, _ -> {:halt, data}
            _head, acc -> {:cont, acc}
          end

          assert {:ok, "abc"} = stream(transport(), request(server), halt)
          assert_receive {:closed, 1}

          assert {:ok, 200} = stream(transport(), request(server), &halted/2)
          assert_receive {:closed, 2}
        end

        test "when the consumer raises, exits or throws", %{server: server} do
          fail = fn fail -> stream(transport(), request(server), fn _, _ -> fail.() end) end
          assert_raise RuntimeError, "mine", fn -> fail.(fn -> raise "mine" end) end
          assert catch_exit(fail.(fn -> exit(:mine) end)) == :mine
          assert catch_throw(fail.(fn -> throw(:mine) end)) == :mine
          for n <- 1..3, do: assert_receive({:closed, ^n})
        end

        test "without a trace in the caller's mailbox", %{server: server} do
          Process.flag(:trap_exit, true)

          assert {:ok, 200} = stream(transport(), request(server), &halted/2)
          assert_receive {:closed, 1}
          request = request(server, idle_timeout: 50)
          assert {:error, {:timeout, :idle}, _} = collect(transport(), request)
          assert_receive {:closed, 2}
          refute_receive _, 50
        end
      end
    end
  end

  defp time do
    quote do
      describe "time" do
        test "to the first byte is limited" do
          for bytes <- ["", "HTTP/1.1 200", WireServer.stream_head()] do
            request =
              request(WireServer.stalling(bytes), first_byte_timeout: 60, connect_timeout: 40)

            Process.send_after(self(), :early, 5)
            assert {:error, {:timeout, :first_byte}, _} = collect(transport(), request)
            assert_received :early
            assert_receive {:closed, 1}
          end
        end

        test "between bytes is limited, the consumer's own time aside" do
          server = WireServer.stalling([WireServer.stream_head(), WireServer.chunk("abc")])
          request = request(server, idle_timeout: 60)

          slow = fn
            {:data, data}, _ -> receive(do: (:never -> :ok), after: (200 -> {:cont, data}))
            _head, acc -> {:cont, acc}
          end

          Process.send_after(self(), :early, 20)
          assert {:error, {:timeout, :idle}, "abc"} = stream(transport(), request, slow)
          assert_received :early
          assert_receive {:closed, 1}
        end

        test "of the whole is limited, although bytes come" do
          server =
            WireServer.start(fn connection ->
              {:ok, _} = WireServer.read_request(connection)
              WireServer.write(connection, WireServer.stream_head())
              drip(connection)
            end)

          request = request(server, timeout: 1_000, idle_timeout: 10_000)
          Process.send_after(self(), :early, 100)

          assert {:error, {:timeout, :whole}, %{status: 200, body: "x" <> _}} =
                   collect(transport(), request)

          assert_received :early
        end

        defp drip(connection) do
          receive do
          after
            10 -> if WireServer.write_chunk(connection, "x") == :ok, do: drip(connection)
          end
        end
      end
    end
  end
end
