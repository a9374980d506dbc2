defmodule AshAgent.LLM.Transport.HTTP1 do
  @schema AshAgent.Options.schema([
            {:keep_alive, {:or, [:pos_integer, {:in, [false]}]}, [default: 30_000],
             "milliseconds to keep an idle connection for the next request, or `false` to use a new connection for each request."}
          ])

  @moduledoc """
  The default transport: HTTP/1.1 over OTP's own sockets, without further dependencies.

  It streams, keeps connections alive, uses the machine's CA certificates and verifies the server's name, with IPv4 and
  IPv6. While a response comes in, the socket belongs to the calling process: it is read only as fast as the response is
  consumed, and closes with its process. After a complete response, the connection is kept for the next request to the
  same server with the same `:ssl` options. If the server has closed it in the meantime, the request is sent over a new
  one.

  It supports neither proxies nor HTTP/2: use `AshAgent.LLM.Transport.Req` or `AshAgent.LLM.Transport.Finch` for those.

  ## Options

  #{AshAgent.Options.docs(@schema)}

      AshAgent.LLM.Anthropic.new(model: "...", transport: {AshAgent.LLM.Transport.HTTP1, keep_alive: false})
  """

  # OTP's :httpc is not used: on a 503 with a short Retry-After it repeats the request itself, endlessly, past the request's
  # own timeout and after its cancellation (OTP 25), so that answers are paid for which nobody reads. It also reads error
  # bodies of any size, and continues when the calling process has been killed.

  @behaviour AshAgent.LLM.Transport

  alias AshAgent.Deadline
  alias AshAgent.LLM.Transport.{Clock, Request}
  alias AshAgent.LLM.Transport.HTTP1.{Parser, Pool, Socket}

  @impl true
  def prepare(opts), do: AshAgent.Options.validate!(opts, @schema)

  @impl true
  def stream(%Request{} = request, acc, fun, opts) when is_function(fun, 2) do
    keep = if opts[:keep_alive], do: {Pool.key(request), opts[:keep_alive]}
    clock = Clock.new(request)

    case keep && take(elem(keep, 0)) do
      {:ok, socket} ->
        # A connection that was cut while it rested has not brought the request to anybody.
        with :stale <- exchange(socket, request, acc, fun, clock, keep, :reused),
             do: over_new_connection(request, acc, fun, clock, keep)

      _ ->
        over_new_connection(request, acc, fun, clock, keep)
    end
  end

  ## Connections between requests: in the pool, or with a process that asks again soon

  @doc false
  # Handing a connection to the pool and back costs a third of a short request.
  def hold_connection, do: Process.put(__MODULE__, nil)

  @doc false
  # Gives the connection that this process holds to the pool.
  def release_connection do
    with {key, socket, until} <- Process.delete(__MODULE__) do
      case Deadline.left(until) do
        0 -> Socket.close(socket)
        left -> Pool.put(key, socket, left)
      end
    end
  end

  defp take(key) do
    with {held, socket, until} <- Process.get(__MODULE__) do
      Process.put(__MODULE__, nil)

      cond do
        Deadline.left(until) == 0 or not Socket.quiet?(socket) ->
          Socket.close(socket)
          Pool.take(key)

        held == key ->
          {:ok, socket}

        true ->
          Pool.put(held, socket, Deadline.left(until))
          Pool.take(key)
      end
    else
      nil -> Pool.take(key)
    end
  end

  defp put({key, milliseconds}, socket) do
    if Process.get(__MODULE__, :pool) == nil,
      do: Process.put(__MODULE__, {key, socket, Deadline.new(milliseconds)}),
      else: Pool.put(key, socket, milliseconds)
  end

  defp over_new_connection(request, acc, fun, clock, keep) do
    case Socket.connect(request, Clock.start(clock, :connect, request.connect_timeout)) do
      {:ok, socket} -> exchange(socket, request, acc, fun, clock, keep, :new)
      {:error, reason} -> {:error, reason, acc}
    end
  end

  defp exchange(socket, request, acc, fun, clock, keep, origin) do
    clock = Clock.start(clock, :first_byte, request.first_byte_timeout)

    # A server may refuse before it has read everything, so there may be an answer to a failed send.
    sent = Socket.send(socket, [head(request, keep), request.body], clock)
    reader = %{socket: socket, fun: fun, sent: sent, origin: origin}

    case read(reader, Parser.new(request.max_bytes), acc, clock) do
      {:done, parser, acc} ->
        if keep && sent == :ok && Parser.keep?(parser) do
          put(keep, socket)
        else
          if sent == :ok, do: Socket.close(socket), else: Socket.abort(socket)
        end

        {:ok, acc}

      {:halt, acc} ->
        Socket.abort(socket)
        {:ok, acc}

      other ->
        Socket.abort(socket)
        other
    end
  catch
    kind, reason ->
      Socket.abort(socket)
      :erlang.raise(kind, reason, __STACKTRACE__)
  end

  defp read(reader, parser, acc, clock) do
    clock = Clock.again(clock)

    case Socket.recv(reader.socket, clock) do
      {:ok, bytes} ->
        case Parser.feed(parser, bytes) do
          {:ok, parser, messages} ->
            clock =
              if Enum.any?(messages, &match?({:data, _}, &1)),
                do: Clock.between(clock),
                else: clock

            with {:cont, acc} <- tell(messages, reader.fun, acc),
                 do: read_on(reader, parser, acc, clock)

          {:error, reason, messages} ->
            with {:cont, acc} <- tell(messages, reader.fun, acc), do: {:error, reason, acc}
        end

      {:error, {:connection, _} = reason} ->
        handle_end(reader, parser, acc, reason)

      {:error, reason} ->
        {:error, reason, acc}
    end
  end

  defp read_on(reader, parser, acc, clock) do
    if Parser.done?(parser), do: {:done, parser, acc}, else: read(reader, parser, acc, clock)
  end

  defp handle_end(reader, parser, acc, reason) do
    cond do
      reader.origin == :reused and not Parser.begun?(parser) -> :stale
      Parser.begun?(parser) and reason == {:connection, :closed} -> handle_closed(parser, acc)
      match?({:error, _}, reader.sent) -> {:error, elem(reader.sent, 1), acc}
      true -> {:error, reason, acc}
    end
  end

  defp handle_closed(parser, acc) do
    case Parser.close(parser) do
      :ok -> {:done, parser, acc}
      {:error, reason} -> {:error, reason, acc}
    end
  end

  defp tell([], _fun, acc), do: {:cont, acc}

  defp tell([message | messages], fun, acc) do
    case fun.(message, acc) do
      {:cont, acc} -> tell(messages, fun, acc)
      {:halt, acc} -> {:halt, acc}
    end
  end

  defp head(%Request{uri: uri} = request, keep) do
    path = if uri.path in [nil, ""], do: "/", else: uri.path
    target = if uri.query, do: [path, ??, uri.query], else: path
    given = Request.headers(request)
    names = Enum.map(given, &(&1 |> elem(0) |> String.downcase(:ascii)))

    own =
      [
        {"host", Request.host(uri)},
        {"content-length", request.body |> IO.iodata_length() |> Integer.to_string()},
        {"accept-encoding", "identity"},
        {"connection", if(keep, do: "keep-alive", else: "close")}
      ]
      |> Enum.reject(fn {name, _} -> name in names end)

    lines = for {name, value} <- own ++ given, do: [name, ": ", value, "\r\n"]
    [request.method, ?\s, target, " HTTP/1.1\r\n", lines, "\r\n"]
  end
end
