defmodule AshAgent.Test.Server.Wire do
  @moduledoc false

  # HTTP on loopback, byte by byte: connections, requests, and the bytes of responses. It belongs to the process that starts it.

  defstruct [:transport, :socket, :number, :owner]

  @doc """
  Starts a server that calls `handle` with each connection, in a process of its own, and closes it then.

  Options: `:family`, `:host` (the name in the URL), `:tls` (options of a server), `:sndbuf`.
  """
  def start(handle, opts \\ []) when is_function(handle, 1) do
    owner = self()
    family = Keyword.get(opts, :family, :inet)
    ip = if family == :inet6, do: {0, 0, 0, 0, 0, 0, 0, 1}, else: {127, 0, 0, 1}

    options =
      [family, :binary, ip: ip, active: false] ++ [reuseaddr: true, backlog: 300, nodelay: true]

    {:ok, listener} = :gen_tcp.listen(0, options ++ Keyword.take(opts, [:sndbuf]))
    {:ok, port} = :inet.port(listener)
    give(listener, fn -> accept(listener, owner, handle, 1, opts[:tls]) end)

    host = opts[:host] || if(family == :inet6, do: "[::1]", else: "127.0.0.1")
    scheme = if opts[:tls], do: "https", else: "http"
    %{url: "#{scheme}://#{host}:#{port}/v1", port: port}
  end

  defp accept(listener, owner, handle, number, tls) do
    {:ok, socket} = :gen_tcp.accept(listener)
    connection = %__MODULE__{transport: :gen_tcp, socket: socket, number: number, owner: owner}
    give(socket, fn -> serve(connection, handle, tls) end)
    accept(listener, owner, handle, number + 1, tls)
  end

  # Runs in a process of its own, which owns the socket by then.
  defp give(socket, fun) do
    pid = spawn_link(fn -> receive do: (:go -> fun.()) end)
    :ok = :gen_tcp.controlling_process(socket, pid)
    send(pid, :go)
  end

  defp serve(connection, handle, nil) do
    handle.(connection)
    close(connection)
  end

  defp serve(%{number: number} = connection, handle, tls) do
    case :ssl.handshake(connection.socket, tls, 30_000) do
      {:ok, socket} -> serve(%{connection | transport: :ssl, socket: socket}, handle, nil)
      {:error, _} -> tell(connection, {:handshake_failed, number})
    end
  end

  @doc "Reads a request: `{:ok, %{method:, path:, headers:, body:, rest:}}`, or `:closed`."
  def read_request(connection, buffer \\ "") do
    with [head, body] <- :binary.split(buffer, "\r\n\r\n"),
         [first | lines] = String.split(head, "\r\n"),
         headers = Map.new(lines, &header/1),
         length = String.to_integer(headers["content-length"] || "0"),
         true <- byte_size(body) >= length do
      [method, path, _version] = String.split(first, " ")
      <<body::binary-size(length), rest::binary>> = body
      {:ok, %{method: method, path: path, headers: headers, body: body, rest: rest}}
    else
      _ ->
        case connection.transport.recv(connection.socket, 0) do
          {:ok, more} -> read_request(connection, buffer <> more)
          {:error, _} -> :closed
        end
    end
  end

  defp header(line) do
    [name, value] = String.split(line, ": ", parts: 2)
    {String.downcase(name), value}
  end

  @doc "Sends bytes: `:ok` or `{:error, reason}`."
  def write(connection, bytes), do: connection.transport.send(connection.socket, bytes)

  @doc "Sends one chunk of a chunked body."
  def write_chunk(connection, data), do: write(connection, chunk(data))

  @doc "A chunk's bytes."
  def chunk(data), do: [Integer.to_string(IO.iodata_length(data), 16), "\r\n", data, "\r\n"]

  @doc "The head of a stream in chunks."
  def stream_head(type \\ "text/event-stream"),
    do: "HTTP/1.1 200 OK\r\ncontent-type: #{type}\r\ntransfer-encoding: chunked\r\n\r\n"

  @doc "A whole response with a length."
  def response(status, body, headers \\ []) do
    lines = for {name, value} <- headers, do: [name, ": ", value, "\r\n"]

    [
      ["HTTP/1.1 ", Integer.to_string(status), " Whatever\r\n", lines, "content-length: "],
      [body |> IO.iodata_length() |> Integer.to_string(), "\r\n\r\n", body]
    ]
  end

  @doc "Closes the connection."
  def close(connection), do: connection.transport.close(connection.socket)

  @doc "Waits until the client has closed the connection, and tells the owner: `{:closed, number}`."
  def await_close(connection) do
    case connection.transport.recv(connection.socket, 0) do
      {:ok, _} -> await_close(connection)
      {:error, _} -> tell(connection, {:closed, connection.number})
    end
  end

  @doc "Sends the owner a message."
  def tell(connection, message), do: send(connection.owner, message)
end
