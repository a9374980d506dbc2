# What the built-in transport and a client cost, over loopback:
#
#     cd packages/ash_agent_runtime && MIX_ENV=prod mix run ../../bench/clients.exs
#
# Requests over one connection that is kept, and over a new one each; a stream of many small pieces through the transport
# alone, and through a client that reads them and delivers their events. The server is a process of the same VM.

alias AshAgent.{Context, LLM}
alias AshAgent.LLM.Transport.{HTTP1, Request}

defmodule AshAgent.Bench.Server do
  @moduledoc false

  def start(answer, tls \\ nil) do
    options = [:binary, ip: {127, 0, 0, 1}, active: false, nodelay: true, backlog: 100]
    {:ok, listener} = :gen_tcp.listen(0, options)
    {:ok, port} = :inet.port(listener)
    pid = spawn_link(fn -> receive(do: (:go -> accept(listener, answer, tls))) end)
    :ok = :gen_tcp.controlling_process(listener, pid)
    send(pid, :go)
    port
  end

  defp accept(listener, answer, tls) do
    {:ok, socket} = :gen_tcp.accept(listener)
    pid = spawn_link(fn -> receive(do: (:go -> serve(socket, answer, tls))) end)
    :ok = :gen_tcp.controlling_process(socket, pid)
    send(pid, :go)
    accept(listener, answer, tls)
  end

  defp serve(socket, answer, nil), do: answer_all({:gen_tcp, socket}, "", answer)

  defp serve(socket, answer, tls) do
    {:ok, socket} = :ssl.handshake(socket, tls)
    answer_all({:ssl, socket}, "", answer)
  end

  defp answer_all({transport, socket} = connection, buffer, answer) do
    case transport.recv(socket, 0) do
      {:ok, more} ->
        if String.ends_with?(buffer <> more, "}") do
          transport.send(socket, answer)
          answer_all(connection, "", answer)
        else
          answer_all(connection, buffer <> more, answer)
        end

      {:error, _} ->
        :ok
    end
  end
end

defmodule AshAgent.Bench.Clients do
  @moduledoc false

  alias AshAgent.Bench.Server

  def per_second(name, n, fun) do
    fun.()
    rates = for _ <- 1..5, do: rate(n, fun)
    rate = rates |> Enum.sort() |> Enum.at(2)
    IO.puts("#{String.pad_trailing(name, 58)} #{round(rate)}/s")
  end

  defp rate(n, fun) do
    {time, _} = :timer.tc(fn -> for _ <- 1..n, do: fun.() end)
    n * 1_000_000 / time
  end

  def throughput(name, bytes, pieces, fun) do
    fun.()
    time = for(_ <- 1..5, do: fun |> :timer.tc() |> elem(0)) |> Enum.sort() |> Enum.at(2)

    IO.puts(
      "#{String.pad_trailing(name, 58)} #{Float.round(bytes / time, 1)} MB/s, #{Float.round(time / pieces, 2)} us a piece"
    )
  end

  def tls do
    name = {:Extension, {2, 5, 29, 17}, false, [dNSName: ~c"localhost"]}
    key = [key: {:namedCurve, :secp256r1}, digest: :sha256]

    %{server_config: server, client_config: client} =
      :public_key.pkix_test_data(%{
        server_chain: %{root: key, intermediates: [], peer: key ++ [extensions: [name]]},
        client_chain: %{root: key, intermediates: [], peer: key}
      })

    {server, [cacerts: client[:cacerts]]}
  end

  defdelegate start(answer, tls \\ nil), to: Server
end

alias AshAgent.Bench.Clients

small = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
ignore = fn _message, acc -> {:cont, acc} end

ask = fn request, transport_opts ->
  {:ok, nil} = HTTP1.stream(request, nil, ignore, transport_opts)
end

port = Clients.start(small)
request = %Request{method: "POST", uri: URI.parse("http://127.0.0.1:#{port}/"), body: "{}"}

Clients.per_second("requests, connection kept", 2_000, fn -> ask.(request, keep_alive: 30_000) end)

Clients.per_second("requests, a new connection each", 1_000, fn ->
  ask.(request, keep_alive: false)
end)

{server, trusted} = Clients.tls()
port = Clients.start(small, server)
request = %{request | uri: URI.parse("https://localhost:#{port}/"), ssl: trusted}

Clients.per_second("requests over TLS, connection kept", 1_000, fn ->
  ask.(request, keep_alive: 30_000)
end)

Clients.per_second("requests over TLS, a new connection each", 50, fn ->
  ask.(request, keep_alive: false)
end)

pieces = 20_000
event = fn delta -> ~s(data: {"id":"c","choices":[{"index":0,"delta":#{delta}}]}\n\n) end
events = for n <- 1..pieces, do: event.(~s({"content":"token #{n} "}))
last = ~s(data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n)
chunk = fn data -> [Integer.to_string(byte_size(data), 16), "\r\n", data, "\r\n"] end

stream =
  IO.iodata_to_binary([
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
    Enum.map(events ++ [last], chunk),
    "0\r\n\r\n"
  ])

port = Clients.start(stream)
request = %Request{method: "POST", uri: URI.parse("http://127.0.0.1:#{port}/"), body: "{}"}
bytes = byte_size(stream)

Clients.throughput("a stream of #{pieces} pieces, transport", bytes, pieces, fn ->
  ask.(request, keep_alive: 30_000)
end)

llm = LLM.OpenAICompatible.new(model: "m", base_url: "http://127.0.0.1:#{port}", api_key: nil)
context = Context.new("Hi")

Clients.throughput("a stream of #{pieces} pieces, client with events", bytes, pieces, fn ->
  {:ok, %{state: :complete}} = LLM.stream(llm, context, fn _event -> :ok end)
end)
