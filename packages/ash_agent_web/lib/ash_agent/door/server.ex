defmodule AshAgent.Door.Server do
  @moduledoc """
  A server on loopback with a door, for demos and tests: without TLS, and for nobody but this machine.

      {:ok, server} = AshAgent.Door.Server.start_link(door: AshAgent.Door.new(sessions: MyApp.Sessions, identify: identify, hosts: ["127.0.0.1:4010"]), port: 4010)

  The door is below `/api/chat`. `:files` are what else is served, such as `%{"/" => {"text/html", html}}`. Port `0` takes a free one, see `port/1`.
  In production, take `AshAgent.Door.Plug`.
  """

  use GenServer

  alias AshAgent.Door

  @schema AshAgent.Options.schema([
            {:door, :any,
             [
               required: true,
               type_doc: "an `AshAgent.Door`, or a function of the port that returns it"
             ], "what answers below `/api/chat`."},
            {:port, :non_neg_integer, [default: 0], "the port."},
            {:files, :map, [default: %{}], "by path: the type and the bytes."}
          ])

  # How long a line of a head, and how many of them, and how long to wait for any.
  @line 16_384
  @lines 100
  @patience 15_000
  @unread 60_000

  @doc """
  Starts the server.

  ## Options

  #{AshAgent.Options.docs(@schema)}
  """
  @doc since: "0.1.0"
  @spec start_link(keyword()) :: GenServer.on_start()
  def start_link(opts),
    do: GenServer.start_link(__MODULE__, AshAgent.Options.validate!(opts, @schema))

  @doc "Returns the port of a server."
  @doc since: "0.1.0"
  @spec port(GenServer.server()) :: :inet.port_number()
  def port(server), do: GenServer.call(server, :port)

  @impl true
  def init(opts) do
    options = [:binary, ip: {127, 0, 0, 1}, active: false, packet: :http_bin, reuseaddr: true]
    options = options ++ [packet_size: @line, nodelay: true, backlog: 100]
    # A client that reads nothing at all is let go.
    options = options ++ [send_timeout: @unread, send_timeout_close: true]

    with {:ok, listener} <- :gen_tcp.listen(opts[:port], options),
         {:ok, port} <- :inet.port(listener) do
      door = if is_function(opts[:door]), do: opts[:door].(port), else: opts[:door]
      config = %{door: door, files: opts[:files]}
      spawn_link(fn -> accept(listener, config) end)
      {:ok, %{listener: listener, port: port}}
    else
      {:error, reason} -> {:stop, reason}
    end
  end

  @impl true
  def handle_call(:port, _from, state), do: {:reply, state.port, state}

  # A connection that fails is nobody else's matter.
  defp accept(listener, config) do
    with {:error, :closed} <- accept_one(listener, config),
         do: :ok,
         else: (_ -> accept(listener, config))
  end

  defp accept_one(listener, config) do
    with {:ok, socket} <- :gen_tcp.accept(listener) do
      pid =
        spawn(fn ->
          receive do: (:yours -> serve(socket, config))
          :gen_tcp.close(socket)
        end)

      with :ok <- :gen_tcp.controlling_process(socket, pid), do: send(pid, :yours)
    end
  end

  defp serve(socket, config) do
    with {:ok, {:http_request, method, {:abs_path, target}, _}} <- receive_next(socket),
         {:ok, headers} <- headers(socket, []),
         {:ok, body} <- body(socket, headers, Door.max_bytes(config.door)) do
      %{path: path} = URI.parse(target)
      request = %{method: to_string(method), headers: headers, body: body}
      write(socket, respond(config, path || "/", request))
    end
  end

  defp respond(%{door: door}, "/api/chat" <> rest, request)
       when rest == "" or binary_part(rest, 0, 1) == "/" do
    path = rest |> String.split("/", trim: true) |> Enum.map(&URI.decode/1)
    Door.call(door, Map.put(request, :path, path))
  end

  defp respond(%{files: files}, path, _request) do
    case files do
      %{^path => {type, bytes}} -> {200, [{"content-type", type}], bytes}
      _none -> {404, [], ""}
    end
  end

  defp receive_next(socket), do: :gen_tcp.recv(socket, 0, @patience)

  defp headers(_socket, headers) when length(headers) > @lines, do: :error

  defp headers(socket, headers) do
    case receive_next(socket) do
      {:ok, {:http_header, _, name, _, value}} ->
        headers(socket, [{name |> to_string() |> String.downcase(), value} | headers])

      {:ok, :http_eoh} ->
        {:ok, headers}

      _other ->
        :error
    end
  end

  # Of a body that is too long, enough is read for the door to refuse it.
  defp body(socket, headers, max) do
    :ok = :inet.setopts(socket, packet: :raw)

    case List.keyfind(headers, "content-length", 0, {nil, "0"}) |> elem(1) |> Integer.parse() do
      {0, ""} -> {:ok, ""}
      {length, ""} when length > 0 -> :gen_tcp.recv(socket, min(length, max + 1), @patience)
      _wrong -> :error
    end
  end

  defp write(socket, {status, headers, {:stream, bytes}}) do
    head(socket, status, headers ++ [{"transfer-encoding", "chunked"}])

    closed? =
      Enum.reduce_while(bytes, false, fn bytes, _closed? ->
        size = IO.iodata_length(bytes)
        chunk = [Integer.to_string(size, 16), "\r\n", bytes, "\r\n"]

        case if(size == 0, do: :ok, else: :gen_tcp.send(socket, chunk)) do
          :ok -> {:cont, false}
          {:error, _reason} -> {:halt, true}
        end
      end)

    unless closed?, do: :gen_tcp.send(socket, "0\r\n\r\n")
  end

  defp write(socket, {status, headers, body}) do
    head(socket, status, headers ++ [{"content-length", "#{IO.iodata_length(body)}"}])
    :gen_tcp.send(socket, body)
  end

  defp head(socket, status, headers) do
    lines = for {name, value} <- headers, do: [name, ": ", value, "\r\n"]
    :gen_tcp.send(socket, ["HTTP/1.1 #{status} .\r\n", lines, "connection: close\r\n\r\n"])
  end
end
