defmodule AshAgent.LLM.Transport.HTTP1.Pool do
  @moduledoc false

  # The connections that are idle. A process that takes one owns its socket, so that it closes with its process; the pool owns
  # idle ones, listens, and drops each one that the server closes, that sends anything, or that is idle too long. Where the
  # pool does not run, every request has a connection of its own.

  use GenServer

  alias AshAgent.LLM.Transport.HTTP1.Socket

  @most_per_host 64
  @most 512

  # The tags of a socket's messages.
  @closed [:tcp_closed, :ssl_closed]
  @others [:tcp, :ssl, :tcp_error, :ssl_error]

  @doc "Starts the pool under its name."
  def start_link(opts \\ []),
    do: GenServer.start_link(__MODULE__, nil, Keyword.put_new(opts, :name, __MODULE__))

  @doc "Returns the properties that a connection must share with a request. Options of TLS decide whom one trusts; they may hold keys."
  def key(%{uri: uri, ssl: ssl}), do: {uri.scheme, uri.host, uri.port, digest(ssl)}

  defp digest([]), do: nil
  defp digest(ssl), do: :crypto.hash(:sha256, :erlang.term_to_binary(ssl))

  @doc "Takes the connection that was used last."
  def take(key, pool \\ __MODULE__) do
    GenServer.call(pool, {:take, key})
  catch
    :exit, _no_pool -> :none
  end

  @doc "Gives the caller's connection to the pool, which keeps it for `milliseconds`."
  def put(key, socket, milliseconds, pool \\ __MODULE__) do
    case GenServer.whereis(pool) do
      nil ->
        Socket.close(socket)

      pid ->
        # The pool has to know of a socket before it owns it: its giver may be killed in between.
        GenServer.cast(pid, {:coming, self(), socket})
        _ = Socket.give(socket, pid)
        GenServer.cast(pid, {:put, self(), key, socket, milliseconds})
    end

    :ok
  end

  @doc "Returns the number of idle connections for a key."
  def count(key, pool \\ __MODULE__), do: GenServer.call(pool, {:count, key})

  # resting: key => [socket], the last used first. known: socket => {key, timer}. coming: monitor of the giver => socket.
  @impl true
  def init(nil), do: {:ok, %{resting: %{}, known: %{}, coming: %{}}}

  @impl true
  def handle_call({:take, key}, {pid, _tag}, state) do
    {reply, state} = take_first(state.resting[key] || [], key, pid, state)
    {:reply, reply, state}
  end

  def handle_call({:count, key}, _from, state),
    do: {:reply, length(state.resting[key] || []), state}

  @impl true
  def handle_cast({:coming, giver, socket}, state),
    do: {:noreply, put_in(state.coming[Process.monitor(giver)], {giver, socket})}

  def handle_cast({:put, giver, key, socket, milliseconds}, state) do
    {monitor, _} = Enum.find(state.coming, fn {_, coming} -> coming == {giver, socket} end)
    Process.demonitor(monitor, [:flush])
    state = %{state | coming: Map.delete(state.coming, monitor)}

    if room?(state, key) and Socket.setopts(socket, active: :once) == :ok do
      {:noreply, rest(state, key, socket, milliseconds)}
    else
      Socket.close(socket)
      {:noreply, state}
    end
  end

  @impl true
  def handle_info({:DOWN, monitor, :process, _, _}, state) do
    {{_giver, socket}, coming} = Map.pop!(state.coming, monitor)
    Socket.close(socket)
    {:noreply, %{state | coming: coming}}
  end

  def handle_info({:expired, socket}, state), do: {:noreply, drop(state, socket)}

  # Closed, broken, or bytes that nobody asked for.
  def handle_info({tag, socket}, state) when tag in @closed,
    do: {:noreply, drop(state, tag_socket(tag, socket))}

  def handle_info({tag, socket, _}, state) when tag in @others,
    do: {:noreply, drop(state, tag_socket(tag, socket))}

  def handle_info(_other, state), do: {:noreply, state}

  defp tag_socket(tag, socket) when tag in [:tcp, :tcp_closed, :tcp_error], do: {:gen_tcp, socket}
  defp tag_socket(_tag, socket), do: {:ssl, socket}

  defp room?(state, key),
    do: map_size(state.known) < @most and length(state.resting[key] || []) < @most_per_host

  defp rest(state, key, socket, milliseconds) do
    timer = Process.send_after(self(), {:expired, socket}, milliseconds)

    %{
      state
      | resting: Map.update(state.resting, key, [socket], &[socket | &1]),
        known: Map.put(state.known, socket, {key, timer})
    }
  end

  defp take_first([], _key, _pid, state), do: {:none, state}

  defp take_first([socket | rest], key, pid, state) do
    state = forget(state, socket)

    if quiet?(socket) and Socket.give(socket, pid) == :ok do
      {{:ok, socket}, state}
    else
      Socket.close(socket)
      take_first(rest, key, pid, state)
    end
  end

  # Messages of the socket wait in the mailbox while this process is busy.
  defp quiet?({_transport, raw} = socket) do
    if Socket.setopts(socket, active: false) == :ok do
      receive do
        {tag, ^raw} when tag in @closed -> false
        {tag, ^raw, _} when tag in @others -> false
      after
        0 -> true
      end
    else
      false
    end
  end

  defp drop(state, socket) do
    if Map.has_key?(state.known, socket), do: Socket.close(socket)
    forget(state, socket)
  end

  defp forget(state, socket) do
    case Map.pop(state.known, socket) do
      {nil, _} ->
        state

      {{key, timer}, known} ->
        Process.cancel_timer(timer)
        left = List.delete(state.resting[key], socket)

        resting = Map.delete(state.resting, key)
        resting = if left == [], do: resting, else: Map.put(resting, key, left)
        %{state | known: known, resting: resting}
    end
  end
end
