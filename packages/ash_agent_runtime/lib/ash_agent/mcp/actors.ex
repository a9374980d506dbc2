defmodule AshAgent.MCP.Actors do
  @moduledoc false

  # The clients of servers that know who asks: one for each server, actor and tenant, started when somebody asks, as many as are allowed, and
  # closed when they are idle.

  use GenServer

  alias AshAgent.Deadline
  alias AshAgent.MCP.Remote
  alias AshAgent.Runtime.{Authority, Sealed}

  # One that was given out is used at once.
  @settled 1_000
  @patience 1_000

  @doc "Starts it with a function that returns `:servers`, functions that return a client's settings for an actor and a tenant by name, `:max` and `:idle`."
  def start_link(sealed), do: GenServer.start_link(__MODULE__, sealed)

  @doc "`{:ok, pid}` of a server's client for somebody, or `{:error, words}`."
  def remote(pid, name, who), do: Sealed.call(pid, {:remote, name, who}, {__MODULE__, :remote})

  @impl true
  def init(sealed) do
    # The clients are linked, and end with it.
    Process.flag(:trap_exit, true)
    state = Map.put(sealed.(), :clients, %{})
    sweep_later(state)
    {:ok, state}
  end

  defp sweep_later(state), do: Process.send_after(self(), :sweep, max(div(state.idle, 2), 1))

  @impl true
  def handle_call({:remote, name, who}, _from, state),
    do: Sealed.run(fn -> find(name, who, state) end)

  @impl true
  def handle_info(:sweep, state) do
    sweep_later(state)
    {:noreply, close(state, state.idle)}
  end

  def handle_info({:EXIT, pid, _reason}, state),
    do: {:noreply, forget(state, fn {_key, client} -> client.pid == pid end)}

  def handle_info(_other, state), do: {:noreply, state}

  # GenServer calls it on OTP 25 and later.
  if {:format_status, 1} in GenServer.behaviour_info(:callbacks), do: @impl(true)

  def format_status(status), do: Sealed.format_status(status, &map_size(&1.clients))

  defp find(name, who, state) do
    key = {name, Authority.identify(who)}

    case state.clients do
      %{^key => client} ->
        {:reply, {:ok, client.pid}, put_in(state.clients[key].used, Deadline.now())}

      clients ->
        state = if map_size(clients) < state.max, do: state, else: make_room(state)
        start(key, state.servers[name].(who), state)
    end
  end

  defp start(_key, _settings, %{clients: clients, max: max} = state)
       when map_size(clients) >= max do
    words = "has a client for each actor, and #{max} are in use; try again later"
    {:reply, {:error, words}, state}
  end

  defp start(key, settings, state) do
    {:ok, pid} = Remote.start_link(fn -> settings end)
    {:reply, {:ok, pid}, put_in(state.clients[key], %{pid: pid, used: Deadline.now()})}
  end

  # All that have been idle for so long.
  defp close(state, idle) do
    before = Deadline.now() - idle
    forget(state, fn {_key, client} -> client.used <= before and rest(client.pid) end)
  end

  # The one that has been idle for the longest time.
  defp make_room(state) do
    before = Deadline.now() - @settled

    state.clients
    |> Enum.filter(fn {_key, client} -> client.used <= before end)
    |> Enum.sort_by(fn {_key, client} -> client.used end)
    |> Enum.find(fn {_key, client} -> rest(client.pid) end)
    |> then(fn rested -> forget(state, &(&1 == rested)) end)
  end

  defp rest(pid) do
    Remote.rest(pid, @patience)
  catch
    :exit, _reason -> not Process.alive?(pid)
  end

  defp forget(state, gone?),
    do: %{state | clients: state.clients |> Enum.reject(gone?) |> Map.new()}
end
