defmodule AshAgent.MCP.Connection do
  @moduledoc false

  # A connection to a server: starts the client of ex_mcp, in the newest era that the server knows, and passes it the messages that come
  # in. It sees them first, since the client drops the progress and the changes of the old era.
  #
  # The client, and the processes that carry messages, are linked to it or watched by a guard, so that all of them end with it. Its table has
  # `{{:progress, token}, caller, function, offers}`, `{{:post, id}, pid}`, and what is known of the server: `:era`, `:version`, `:session`, whether it has `:tasks`,
  # `:tool_headers`, those of the tools `:listed` last, the last `:fault`, why it was `:refused`, and how many `:answers` to its requests are under way.

  use GenServer
  @compile {:no_warn_undefined, [ExMCP.Client, {Logger, :put_process_level, 2}]}

  alias AshAgent.Context.JSON
  alias AshAgent.MCP.{Elicitation, HTTP, Program}
  alias AshAgent.Runtime.{Sealed, ToolExecutor}

  # In words: 256 MB. Whatever a server sends must not take all memory.
  @max_heap 32_000_000
  @patience 5_000

  @events "io.modelcontextprotocol/subscriptionId"
  @offers "io.modelcontextprotocol/clientCapabilities"
  @tasks "io.modelcontextprotocol/tasks"

  @doc "Starts it with a function that returns the server, with the limits `:timeout` and `:max_result_bytes`, and the function to tell."
  def start_link(sealed), do: GenServer.start_link(__MODULE__, sealed)

  @doc "Waits for the connection. Returns a function that returns its link, and the client."
  def client(pid, timeout), do: Sealed.call(pid, :client, {__MODULE__, :client}, timeout)

  ## For transports. A link has the `holder`, its `table`, the `server` and its limits, and a `mark` that no server can guess

  @doc "The link of a client that is started with these options. To be called in its process, which then logs nothing and stays small."
  def enter(opts) do
    link = opts[:link].()
    # Reasons of failures, which it would log, contain headers, arguments and results.
    Logger.put_process_level(self(), :none)
    limit_heap()
    send(link.guard, {:client, self()})
    link
  end

  @doc "Keeps why the connection could not be made."
  def put_fault(link, words), do: put(link, :fault, words)

  def put(link, key, value), do: :ets.insert(link.table, {key, value})

  def get(link, key, default \\ nil) do
    case :ets.lookup(link.table, key) do
      [{^key, value}] -> value
      [] -> default
    end
  end

  def era(link), do: get(link, :era)

  @doc "An answer to a request that has none, whose failure is known here."
  def answer_fault(link, id, kind, words) do
    error = %{"code" => -32_000, "message" => "failed", "data" => [link.mark, kind, words]}
    %{"jsonrpc" => "2.0", "id" => id, "error" => error}
  end

  @doc "The failure of such an answer, by its data, or nil."
  def fault(%{mark: mark}, [mark, kind, words]), do: {kind, words}
  def fault(_link, _data), do: nil

  @doc "What runs when the connection has ended."
  def at_end(link, fun), do: send(link.guard, {:at_end, fun})

  ## Calls

  @doc "The token of a call: by that its progress is known, and what the client offers to do for it: `:tasks`, `:questions`."
  def expect_progress(link, progress, offers \\ []) do
    token = Base.encode16(:crypto.strong_rand_bytes(8))
    :ets.insert(link.table, {{:progress, token}, self(), progress, offers})
    token
  end

  def forget_progress(link, caller),
    do: :ets.match_delete(link.table, {{:progress, :_}, caller, :_, :_})

  @doc "A message as it goes out. The client offers the same with each, but not every call has somebody who waits."
  def announce(body, %{"params" => %{"_meta" => %{@offers => _}}} = message, link) do
    offered = offered(message, link)

    if offered == capabilities([:tasks, :questions]),
      do: body,
      else: JSON.encode(put_in(message, ["params", "_meta", @offers], offered))
  end

  # The extension is one of the new era. The old one has tasks of another kind.
  def announce(_body, %{"method" => "initialize"} = message, link) do
    offers = if link.server[:questions], do: [:questions], else: []
    JSON.encode(put_in(message, ["params", "capabilities"], capabilities(offers)))
  end

  def announce(body, _message, _link), do: body

  defp offered(%{"method" => "tasks/" <> _}, link),
    do: capabilities(if link.server[:questions], do: [:tasks, :questions], else: [:tasks])

  defp offered(%{"method" => "tools/call", "params" => %{"_meta" => meta}}, link) do
    case :ets.lookup(link.table, {:progress, meta["progressToken"]}) do
      [{_token, _caller, _progress, offers}] -> capabilities(offers)
      [] -> %{}
    end
  end

  defp offered(_message, _link), do: %{}

  defp capabilities(offers) do
    for {offer, capability} <- [
          tasks: {"extensions", %{@tasks => %{}}},
          questions: {"elicitation", %{"form" => %{}}}
        ],
        offer in offers,
        into: %{},
        do: capability
  end

  ## The process

  @impl true
  def init(sealed) do
    Process.flag(:trap_exit, true)
    limit_heap()
    {server, tell} = sealed.()
    holder = self()

    link = %{
      holder: holder,
      guard: spawn(fn -> guard(holder) end),
      table: :ets.new(__MODULE__, [:public]),
      server: server,
      mark: Base.encode16(:crypto.strong_rand_bytes(16)),
      timeout: Map.get(server, :timeout, 30_000),
      # Text has more bytes on the wire than in memory.
      max_bytes: 2 * Map.get(server, :max_result_bytes, 10_000_000) + 1_000_000
    }

    {:ok, %{link: link, tell: tell, client: nil}, {:continue, :connect}}
  end

  defp guard(holder) do
    limit_heap()
    guard(Process.monitor(holder), nil, fn -> :ok end)
  end

  # The client may wait for the server while it is told to end.
  defp guard(monitor, client, at_end) do
    receive do
      {:client, client} ->
        guard(monitor, client, at_end)

      {:at_end, at_end} ->
        guard(monitor, client, at_end)

      {:DOWN, ^monitor, :process, _holder, _reason} ->
        if client, do: Process.exit(client, :kill)
        ToolExecutor.call_guarded(at_end)
    end
  end

  @doc "Whatever reads what a server sends ends when that takes too much memory."
  def limit_heap,
    do: Process.flag(:max_heap_size, %{size: @max_heap, kill: true, error_logger: false})

  @impl true
  def handle_continue(:connect, state), do: Sealed.run(fn -> connect(state) end)

  @impl true
  def handle_call(:client, _from, %{link: link, client: client} = state),
    do: {:reply, {fn -> link end, client}, state}

  @impl true
  def handle_info(message, state), do: Sealed.run(fn -> handle_message(message, state) end)

  # GenServer calls it on OTP 25 and later.
  if {:format_status, 1} in GenServer.behaviour_info(:callbacks), do: @impl(true)

  def format_status(status), do: Sealed.format_status(status, fn _state -> :not_shown end)

  ## Connecting

  # A server of the old era may end or be silent when it is asked in the new one, and one that was changed may not be what it was.
  defp connect(state) do
    case connect(state.link, [[], [protocol_mode: :legacy_only, reset_era_cache: true]]) do
      {:ok, client} ->
        learn(client, state.link)
        {:noreply, %{state | client: client}}

      {:error, words} ->
        close(words, state)
    end
  end

  defp connect(link, [opts | others]) do
    case ExMCP.Client.start_link(opts ++ options(link)) do
      {:ok, client} -> {:ok, client}
      {:error, _reason} -> connect_otherwise(link, get(link, :refused), others)
    end
  end

  defp connect_otherwise(link, nil, [_ | _] = others), do: connect(link, others)

  defp connect_otherwise(link, refused, _others),
    do: {:error, refused || get(link, :fault, "did not answer as MCP says")}

  # What a client may do is what it announces, see `announce/3`. So servers may ask neither for models nor for folders.
  defp options(link) do
    [
      transport: if(link.server[:url], do: HTTP, else: Program),
      link: fn -> link end,
      capabilities: capabilities([:tasks, :questions]),
      handler: {Elicitation, [link: fn -> link end]},
      protocol_mode: :prefer_modern,
      era_cache_key: :erlang.phash2({link.server.name, link.server[:url], link.server[:command]}),
      era_probe_timeout: div(link.timeout, 3),
      handshake_timeout: link.timeout,
      timeout: link.timeout,
      reconnect: false,
      retry_policy: [],
      health_check_interval: nil
    ]
  end

  # In the old era, servers say unasked what changes.
  defp learn(client, link) do
    holder = self()

    with {:ok, %{server_capabilities: %{} = server} = status} <- ExMCP.Client.get_status(client),
         true <- is_binary(status.protocol_version) and status.protocol_version >= "2026-07-28",
         put(link, :tasks, match?(%{"extensions" => %{@tasks => %{}}}, server)),
         %{"tools" => %{"listChanged" => true}} <- server do
      # The answer comes through this process.
      spawn_link(fn ->
        ExMCP.Client.listen(client, %{"toolsListChanged" => true},
          subscriber: holder,
          timeout: @patience
        )
      end)
    end
  catch
    :exit, _reason -> :ok
  end

  ## Messages

  defp handle_message({:transport_event, message}, state), do: take(message, state)

  defp handle_message({:transport_closed, :frame_too_large}, state),
    do: close("sent a message that is too large", state)

  defp handle_message({:transport_closed, _reason}, state), do: close("has ended", state)

  defp handle_message({:ex_mcp_subscription, _, "notifications/tools/list_changed", _}, state),
    do: changed(state)

  defp handle_message({:EXIT, client, _reason}, %{client: client} = state),
    do: close("has ended", state)

  # A process that carried a message. It is gone with it, and nobody would answer.
  defp handle_message({:EXIT, _pid, :killed}, state), do: close("sent more than it may", state)

  defp handle_message(_other, state), do: {:noreply, state}

  defp take(%{"method" => "notifications/progress", "params" => %{} = params}, state) do
    case :ets.lookup(state.link.table, {:progress, params["progressToken"]}) do
      [{_token, _caller, progress, _offers}] -> progress.(params["progress"], params["total"])
      [] -> :ok
    end

    {:noreply, state}
  end

  defp take(%{"method" => "notifications/" <> kind} = message, state) do
    cond do
      match?(%{"params" => %{"_meta" => %{@events => _id}}}, message) -> pass(message, state)
      kind == "tools/list_changed" -> changed(state)
      kind == "cancelled" -> pass(message, state)
      true -> {:noreply, state}
    end
  end

  defp take(%{"jsonrpc" => "2.0"} = message, state),
    do: message |> correct(state.link) |> pass(state)

  defp take(messages, state) when is_list(messages), do: pass(messages, state)
  # A line of a log, say.
  defp take(_other, state), do: {:noreply, state}

  # The client drops an answer that is not as JSON-RPC says, and its call would wait for ever.
  defp correct(message, _link) when is_map_key(message, "method"), do: message

  defp correct(%{"result" => nil, "error" => %{}} = message, link),
    do: message |> Map.delete("result") |> correct(link)

  defp correct(%{"result" => _, "error" => nil} = message, _link),
    do: Map.delete(message, "error")

  defp correct(%{"error" => %{"code" => code, "message" => words}} = message, _link)
       when is_integer(code) and is_binary(words) and not is_map_key(message, "result"),
       do: message

  defp correct(%{"id" => id, "error" => _} = _wrong, link),
    do: answer_fault(link, id, :error, "did not answer as MCP says")

  # The client would answer it itself.
  defp correct(%{"id" => id, "result" => %{"resultType" => "input_required"} = result}, link),
    do: answer_fault(link, id, :asks, result)

  defp correct(message, _link), do: message

  defp pass(message, state) do
    send(state.client, {:transport_event, message})
    {:noreply, state}
  end

  defp changed(state) do
    state.tell.(:changed)
    {:noreply, state}
  end

  defp close(words, state) do
    state.tell.({:ended, words})
    {:stop, {:shutdown, :ended}, state}
  end
end
