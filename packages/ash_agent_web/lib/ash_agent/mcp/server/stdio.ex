defmodule AshAgent.MCP.Server.Stdio do
  @moduledoc false

  # A server over standard input and output: a message a line. Each request has a process, so a slow one keeps nobody waiting, its progress comes
  # while it runs, and it can be cancelled. What else the VM writes goes to standard error.

  alias AshAgent.Context.JSON
  alias AshAgent.MCP.Server

  @compile {:no_warn_undefined, ExMCP.MessageProcessor}

  # So many requests may run at once.
  @most 100
  @refused -32_000
  @invalid -32_600
  @internal -32_603

  @doc "Keeps standard output for messages. Returns the device."
  def take_over do
    device = Process.group_leader()
    errors = Process.whereis(:standard_error)
    Process.group_leader(self(), errors)
    # What starts from now on has its output from here.
    Process.group_leader(Process.whereis(:application_controller), errors)
    move_logs()
    device
  end

  @doc "Lets what logs to standard output log to standard error, also the handler that starts with Logger."
  def move_logs do
    for id <- :logger.get_handler_ids(), do: move(:logger.get_handler_config(id))

    with own when is_list(own) <- Application.get_env(:logger, :default_handler, []) do
      config = Map.new(own[:config] || [])
      config = if config[:file], do: config, else: Map.put(config, :type, :standard_error)
      Application.put_env(:logger, :default_handler, Keyword.put(own, :config, config))
    end
  end

  defp move({:ok, %{id: id, module: module, config: %{type: :standard_io}} = config}) do
    :ok = :logger.remove_handler(id)
    :ok = :logger.add_handler(id, module, %{config | config: %{type: :standard_error}})
  end

  defp move(_other), do: :ok

  @doc "Serves until the input ends."
  def serve(%Server{} = server, device) do
    {:ok, _apps} = Application.ensure_all_started(:ex_mcp)
    move_logs()
    :io.setopts(device, binary: true, encoding: :unicode)
    main = self()
    reader = spawn_link(fn -> read(device, main) end)
    loop(%{server: server, device: device, reader: reader, requests: %{}})
  end

  defp read(device, main) do
    line = IO.read(device, :line)
    send(main, {:line, line})
    if is_binary(line), do: receive(do: (:next -> read(device, main)))
  end

  defp loop(%{requests: requests} = state) do
    receive do
      {:line, line} when is_binary(line) ->
        state = line |> message(state.server) |> take(state)
        send(state.reader, :next)
        loop(state)

      {:line, _ended} ->
        for {pid, _id} <- requests, do: Process.exit(pid, :kill)
        :ok

      {:ex_mcp_request_notification, sender, ref, notification} ->
        write(state, notification)
        send(sender, {:ex_mcp_request_notification_ack, ref, :ok})
        loop(state)

      {:answer, pid, answer} when is_map_key(requests, pid) ->
        if answer, do: write(state, answer)
        loop(%{state | requests: Map.delete(requests, pid)})

      {:DOWN, _ref, :process, pid, _reason} when is_map_key(requests, pid) ->
        write(state, error(requests[pid], @internal, "internal error"))
        loop(%{state | requests: Map.delete(requests, pid)})

      _other ->
        loop(state)
    end
  end

  defp message(line, %{max_bytes: max}) do
    cond do
      byte_size(line) > max -> :too_long
      String.trim(line) == "" -> :nothing
      true -> JSON.decode(line)
    end
  end

  defp take(:nothing, state), do: state

  defp take(
         {:ok, %{"method" => "notifications/cancelled", "params" => %{"requestId" => id}}},
         state
       ) do
    found = for {pid, ^id} <- state.requests, do: pid
    Enum.each(found, &Process.exit(&1, :kill))
    %{state | requests: Map.drop(state.requests, found)}
  end

  defp take({:ok, %{"method" => _method} = message}, %{requests: requests} = state) do
    {main, server} = {self(), state.server}

    if map_size(requests) < @most do
      {pid, _ref} =
        spawn_monitor(fn -> send(main, {:answer, self(), answer(server, message, main)}) end)

      put_in(state.requests[pid], message["id"])
    else
      write(state, error(message["id"], @refused, "too many requests at once"))
      state
    end
  end

  # The answer to something that was not asked.
  defp take({:ok, %{"id" => _id}}, state), do: state

  defp take(_unreadable, state) do
    write(
      state,
      error(
        nil,
        @invalid,
        "expected a message of JSON-RPC, a line of at most #{state.server.max_bytes} bytes"
      )
    )

    state
  end

  defp answer(server, message, main) do
    request = %{method: "stdio", path: [], headers: [], body: ""}

    with {:ok, identity} <- Server.identify(server, request, Server.asks(server, message)),
         {:ok, opts} <- Server.options(server, identity, request) do
      process(opts, message, main)
    else
      {:error, _kind} -> if message["id"], do: error(message["id"], @refused, "not allowed")
    end
  end

  defp process(opts, message, main) do
    opts = Map.new([endpoint: opts[:path], request_notification_target: main] ++ opts)
    message = ExMCP.MessageProcessor.new(message, transport: :stdio)
    ExMCP.MessageProcessor.process(message, opts).response
  end

  defp error(id, code, words),
    do: %{"jsonrpc" => "2.0", "id" => id, "error" => %{"code" => code, "message" => words}}

  defp write(%{device: device}, message), do: IO.write(device, [JSON.encode(message), "\n"])
end
