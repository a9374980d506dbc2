defmodule AshAgent.TestSupport.McpHttp do
  @moduledoc false

  # An MCP server at an address that is a function, and may misbehave as it likes. It gets each message with the headers of its request and
  # returns
  #
  #   * `{:result, map}` or `{:error, map}` - of an answer as JSON
  #   * `{:stream, messages}` - of an answer as events; with `:cut` at the end the connection is cut then, and with `:wait` it stays open.
  #     An id may be `:id`
  #   * `{status, headers, text}`
  #   * `:close`
  #
  # `modern/1` and `legacy/1` wrap one that only knows tools.

  alias AshAgent.Context.JSON

  @doc "Starts it, and returns its address."
  def start(answer) do
    listener = listen(0)
    {:ok, port} = :inet.port(listener)
    ExUnit.Callbacks.start_supervised!({Task, fn -> accept(listener, answer) end}, id: make_ref())
    "http://127.0.0.1:#{port}/mcp"
  end

  @doc "Starts it at a port as a process to be killed, with all that it answers."
  def start_at(port, answer) do
    test = self()

    pid =
      spawn(fn ->
        listener = listen(port)
        send(test, {:listens, self()})
        accept(listener, answer)
      end)

    receive do: ({:listens, ^pid} -> pid)
  end

  defp listen(port) do
    options = [:binary, active: false, reuseaddr: true, ip: {127, 0, 0, 1}, packet: :http_bin]
    {:ok, listener} = :gen_tcp.listen(port, [backlog: 100] ++ options)
    listener
  end

  @doc "Of the new era."
  def modern(answer) do
    fn
      %{"method" => "server/discover"} = message, _headers ->
        version = get_in(message, ["params", "_meta", "io.modelcontextprotocol/protocolVersion"])

        {:result,
         %{
           "resultType" => "complete",
           "supportedVersions" => [version],
           "capabilities" => %{"tools" => %{}},
           "serverInfo" => %{"name" => "x", "version" => "1"},
           "ttlMs" => 0,
           "cacheScope" => "private"
         }}

      message, headers ->
        with {:result, result} <- answer.(message, headers) do
          kept = %{"resultType" => "complete", "ttlMs" => 0, "cacheScope" => "private"}

          kept =
            if message["method"] == "tools/list", do: kept, else: Map.take(kept, ["resultType"])

          {:result, Map.merge(kept, result)}
        end
    end
  end

  @doc "Of the old era, with a session, if it has a name."
  def legacy(session \\ nil, answer) do
    fn
      %{"method" => "initialize"} = message, _headers ->
        result = %{
          "protocolVersion" => message["params"]["protocolVersion"],
          "capabilities" => %{"tools" => %{"listChanged" => true}},
          "serverInfo" => %{"name" => "x", "version" => "1"}
        }

        headers = if session, do: [{"mcp-session-id", session}], else: []

        {200, [{"content-type", "application/json"} | headers],
         json(message, %{"result" => result})}

      %{"method" => "server/discover"}, _headers ->
        {:error, %{"code" => -32_601, "message" => "Method not found"}}

      nil, _headers ->
        {405, [], ""}

      %{"id" => _} = message, headers ->
        answer.(message, headers)

      message, headers ->
        answer.(message, headers)
        {202, [], ""}
    end
  end

  defp accept(listener, answer) do
    with {:ok, socket} <- :gen_tcp.accept(listener) do
      pid = spawn_link(fn -> receive do: (:go -> serve(socket, answer)) end)
      :ok = :gen_tcp.controlling_process(socket, pid)
      send(pid, :go)
      accept(listener, answer)
    end
  end

  defp serve(socket, answer) do
    with {headers, message} <- read(socket, %{}),
         do: write(answer.(message, headers), message, socket)

    :gen_tcp.close(socket)
  end

  defp read(socket, headers) do
    case :gen_tcp.recv(socket, 0, 60_000) do
      {:ok, {:http_request, _method, _path, _version}} ->
        read(socket, headers)

      {:ok, {:http_header, _, name, _, value}} ->
        read(socket, Map.put(headers, String.downcase(to_string(name)), value))

      {:ok, :http_eoh} ->
        :inet.setopts(socket, packet: :raw)

        case String.to_integer(headers["content-length"] || "0") do
          0 ->
            {headers, nil}

          length ->
            {headers, socket |> :gen_tcp.recv(length, 60_000) |> elem(1) |> JSON.decode!()}
        end
    end
  end

  defp write({:stream, messages}, message, socket) do
    send!(socket, 200, [{"content-type", "text/event-stream"}], "")

    Enum.each(messages, fn
      :cut -> :inet.setopts(socket, linger: {true, 0})
      :wait -> :gen_tcp.recv(socket, 0)
      fun when is_function(fun) -> fun.()
      text when is_binary(text) -> :gen_tcp.send(socket, text)
      event -> :gen_tcp.send(socket, ["data: ", JSON.encode(fill(event, message)), "\n\n"])
    end)
  end

  defp write(:close, _message, _socket), do: :ok

  defp write({status, headers, text}, _message, socket) when is_integer(status),
    do: send!(socket, status, [{"content-length", byte_size(text)} | headers], text)

  defp write({kind, value}, message, socket) do
    text = json(message, %{"#{kind}" => value})
    headers = [{"content-type", "application/json"}, {"content-length", byte_size(text)}]
    send!(socket, 200, headers, text)
  end

  defp send!(socket, status, headers, text) do
    lines = for {name, value} <- [{"connection", "close"} | headers], do: "#{name}: #{value}\r\n"
    :gen_tcp.send(socket, ["HTTP/1.1 #{status} X\r\n", lines, "\r\n", text])
  end

  defp fill(%{"id" => :id} = event, message), do: fill(%{event | "id" => message["id"]}, message)
  defp fill(event, _message), do: Map.put_new(event, "jsonrpc", "2.0")

  defp json(message, map),
    do: JSON.encode(Map.merge(%{"jsonrpc" => "2.0", "id" => message["id"]}, map))
end
