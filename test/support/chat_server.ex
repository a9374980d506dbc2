defmodule AshAgent.Test.ChatServer do
  @moduledoc false

  # A small HTTP server on loopback that can be told to fail. It belongs to the process that starts it, and sends that
  # process `{:request, request}` for each request and `{:closed, n}` when the n-th connection was closed by the client.

  alias AshAgent.Context.JSON

  @doc """
  Starts a server that meets the n-th connection with the n-th behaviour, and all further ones with the last.

    * `{:json, status, term}`, `{:json, status, term, headers}` - a JSON answer
    * `{:raw, iodata}` - these bytes, then the connection is closed
    * `{:chunked, [iodata]}` - a 200 in these chunks
    * `:stall` - reads the request and never answers
    * `{:half, iodata}` - these bytes, then never anything more
    * `:cut` - closes the connection after the request
    * a function of the request that returns one of these
  """
  def start(behaviours, opts \\ []) do
    owner = self()
    family = Keyword.get(opts, :family, :inet)
    ip = if family == :inet6, do: {0, 0, 0, 0, 0, 0, 0, 1}, else: {127, 0, 0, 1}
    options = [family, :binary, ip: ip, active: false, reuseaddr: true, backlog: 300]

    {:ok, listener} = :gen_tcp.listen(0, options)
    {:ok, port} = :inet.port(listener)

    acceptor =
      spawn_link(fn ->
        receive do
          :go -> accept(listener, owner, behaviours, 1, opts[:tls])
        end
      end)

    :ok = :gen_tcp.controlling_process(listener, acceptor)
    send(acceptor, :go)

    host = opts[:host] || if(family == :inet6, do: "[::1]", else: "127.0.0.1")
    scheme = if opts[:tls], do: "https", else: "http"
    %{url: "#{scheme}://#{host}:#{port}/v1", port: port}
  end

  defp accept(listener, owner, [behaviour | rest] = behaviours, number, tls) do
    {:ok, socket} = :gen_tcp.accept(listener)

    handler =
      spawn_link(fn ->
        receive do
          :go -> serve(socket, owner, behaviour, number, tls)
        end
      end)

    :ok = :gen_tcp.controlling_process(socket, handler)
    send(handler, :go)
    accept(listener, owner, if(rest == [], do: behaviours, else: rest), number + 1, tls)
  end

  defp serve(socket, owner, behaviour, number, nil),
    do: exchange({:gen_tcp, socket}, owner, behaviour, number)

  defp serve(socket, owner, behaviour, number, tls) do
    case :ssl.handshake(socket, tls, 30_000) do
      {:ok, socket} -> exchange({:ssl, socket}, owner, behaviour, number)
      {:error, _} -> send(owner, {:handshake_failed, number})
    end
  end

  defp exchange(connection, owner, behaviour, number) do
    case read(connection, "") do
      {:ok, request} ->
        send(owner, {:request, Map.put(request, :number, number)})
        behaviour = if is_function(behaviour), do: behaviour.(request), else: behaviour
        answer(connection, behaviour, owner, number)

      :closed ->
        send(owner, {:closed, number})
    end
  end

  defp answer(connection, {:json, status, term}, owner, number),
    do: answer(connection, {:json, status, term, []}, owner, number)

  defp answer(connection, {:json, status, term, headers}, owner, number) do
    body = JSON.encode(term)
    headers = for {name, value} <- headers, do: [name, ": ", value, "\r\n"]
    length = Integer.to_string(byte_size(body))

    answer(
      connection,
      {:raw,
       [
         [
           "HTTP/1.1 ",
           Integer.to_string(status),
           " Whatever\r\ncontent-type: application/json\r\n"
         ],
         [headers, "content-length: ", length, "\r\n\r\n", body]
       ]},
      owner,
      number
    )
  end

  defp answer(connection, {:chunked, chunks}, owner, number) do
    chunks =
      for chunk <- chunks do
        [Integer.to_string(IO.iodata_length(chunk), 16), ";x=y\r\n", chunk, "\r\n"]
      end

    head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer(connection, {:raw, [head, chunks, "0\r\n\r\n"]}, owner, number)
  end

  defp answer(connection, {:raw, bytes}, _owner, _number) do
    write(connection, bytes)
    close(connection)
  end

  defp answer(connection, :cut, _owner, _number), do: close(connection)
  defp answer(connection, :stall, owner, number), do: await_close(connection, owner, number)

  defp answer(connection, {:half, bytes}, owner, number) do
    write(connection, bytes)
    await_close(connection, owner, number)
  end

  defp await_close({transport, socket}, owner, number) do
    {:error, _} = transport.recv(socket, 0)
    send(owner, {:closed, number})
  end

  defp read({transport, socket} = connection, buffer) do
    with [head, body] <- :binary.split(buffer, "\r\n\r\n"),
         [first | lines] = String.split(head, "\r\n"),
         headers = Map.new(lines, &header/1),
         true <- byte_size(body) >= String.to_integer(headers["content-length"]) do
      [method, path, _version] = String.split(first, " ")
      {:ok, term} = JSON.decode(body)
      {:ok, %{method: method, path: path, headers: headers, body: term}}
    else
      _ ->
        case transport.recv(socket, 0) do
          {:ok, more} -> read(connection, buffer <> more)
          {:error, _} -> :closed
        end
    end
  end

  defp header(line) do
    [name, value] = String.split(line, ": ", parts: 2)
    {String.downcase(name), value}
  end

  defp write({transport, socket}, bytes), do: transport.send(socket, bytes)
  defp close({transport, socket}), do: transport.close(socket)
end
