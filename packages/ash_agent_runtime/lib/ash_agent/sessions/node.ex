defmodule AshAgent.Sessions.Node do
  @moduledoc false

  # The part of `AshAgent.Sessions` on one node: its sessions, the search for expired claims, and draining.

  use GenServer

  require Logger

  alias AshAgent.Deadline
  alias AshAgent.Runtime.{Events, Journal, Sealed}
  alias AshAgent.Session
  alias AshAgent.Session.{Claim, Owner, Renewer}
  alias AshAgent.Sessions.{Arrivals, Error}
  alias AshAgent.Store
  alias AshAgent.Store.Conversation

  # Starting a session means claiming and loading, which a supervisor waits for. So there are many supervisors.
  @partitions 64

  # A session that has to stop at once may wait so long for the store.
  @store_patience 5_000

  @doc "Returns what the supervisor of a node starts, in this order. The last one stops first, and drains."
  def children(config) do
    names = for {Registry, name} <- [config.registry], do: {Registry, keys: :unique, name: name}
    sessions = [child_spec: DynamicSupervisor, name: partitions(config), partitions: @partitions]
    patience = config.drain + 2 * @store_patience

    own = %{
      id: __MODULE__,
      start: {__MODULE__, :start_link, [fn -> config end]},
      shutdown: patience
    }

    Supervisor.init(names ++ [{PartitionSupervisor, sessions}, own], strategy: :rest_for_one)
  end

  def start_link(config), do: GenServer.start_link(__MODULE__, config.())

  defp partitions(config), do: Module.concat(config.name, Partitions)

  ## Read by every process

  def config(name) do
    case :persistent_term.get({__MODULE__, name}, nil) do
      nil -> :error
      config -> {:ok, config}
    end
  end

  def config!(name) do
    words =
      "AshAgent.Sessions is not running under the name #{inspect(name)}; start it under a supervisor"

    with :error <- config(name),
         do: AshAgent.Caller.refuse!(words),
         else: ({:ok, config} -> config)
  end

  def ready?(%{ready: ready}), do: :atomics.get(ready, 1) == 1

  @doc """
  Finds the session of a conversation on this node, and starts it if nobody has claimed it. `:create` makes a conversation
  that does not exist.

  Returns `{:ok, pid}`, `{:owned, owner}`, `{:again, reason}` or `{:error, :draining | error}`.
  """
  def find(config, id, mode) do
    case GenServer.whereis(via(config, id)) do
      nil -> if ready?(config), do: start(config, id, mode), else: find_owner(config, id)
      session -> {:ok, session}
    end
  end

  # For another node, which has found this one's name in a claim.
  def serve(name, id, owner) do
    case {Owner.locate(owner), config(name)} do
      {{:here, pid}, _config} -> {:ok, pid}
      {place, {:ok, config}} when place != :unknown -> find(config, id, :find)
      _other -> {:error, :unknown}
    end
  end

  # A draining node only needs to know which process has a conversation.
  defp find_owner(config, id) do
    case Journal.ask(fn -> Store.fetch(config.store, id) end) do
      {:ok, %{owner: owner}} when owner != nil ->
        if Owner.locate(owner) in [:gone, :reserved],
          do: {:error, :draining},
          else: {:owned, owner}

      _free_or_unknown ->
        {:error, :draining}
    end
  end

  defp via(%{registry: {module, registry}}, id), do: {:via, module, {registry, id}}

  defp start(config, id, mode) do
    opts = options(config, id, mode)

    start = {__MODULE__, :start_session, [fn -> {config, opts} end]}
    spec = %{id: Session, start: start, restart: :temporary}

    supervisor = {:via, PartitionSupervisor, {partitions(config), id}}

    case DynamicSupervisor.start_child(supervisor, spec) do
      {:ok, session} -> {:ok, session}
      {:error, {:already_started, session}} -> {:ok, session}
      {:error, reason} -> explain_failure(reason)
    end
  end

  # In the supervisor, so that draining, which asks it for its children, misses none.
  def start_session(fun) do
    {config, opts} = fun.()

    if ready?(config),
      do: Session.start_sealed(fn -> opts end, Owner.reserve()),
      else: {:error, :draining}
  end

  defp options(config, id, mode) do
    own = if config.options, do: config.options.(id), else: []

    found = if mode == :find, do: [context: fn -> {:error, :not_found} end], else: []

    config.session
    |> Keyword.merge(own)
    |> Keyword.merge(id: id, store: config.store, lease: config.lease, idle: config.idle)
    |> Keyword.merge([name: via(config, id)] ++ found)
  end

  defp explain_failure({:shutdown, reason}), do: explain_failure(reason)
  defp explain_failure(:draining), do: {:error, :draining}
  defp explain_failure({:store_error, {:owned, owner}}), do: {:owned, owner}
  # Created or changed by another node in the meantime.
  defp explain_failure({:store_error, reason}) when reason in [:exists, :stale],
    do: {:again, {:store_error, reason}}

  defp explain_failure({:store_error, _} = reason), do: {:error, %Error{reason: reason}}
  defp explain_failure(:not_found), do: {:error, %Error{reason: :not_found}}
  defp explain_failure(reason), do: {:error, %Error{reason: {:start_error, reason}}}

  ## Draining

  @doc "Stops all sessions of this node, those that run within `timeout` milliseconds at their next step."
  def drain(config, timeout) do
    :atomics.put(config.ready, 1, 0)
    stop(config, :soon, timeout)
    stop(config, :now, @store_patience)
    # A store that does not answer keeps them from stopping.
    for pid <- list_sessions(config), do: Process.exit(pid, :kill)
    :ok
  end

  defp stop(config, how, timeout) do
    monitors =
      for pid <- list_sessions(config), into: %{} do
        GenServer.cast(pid, {:drain, how})
        {Process.monitor(pid), pid}
      end

    await(monitors, Deadline.new(timeout))
  end

  @doc "Returns the sessions of this node."
  def list_sessions(config) do
    for {_partition, supervisor, _type, _modules} <-
          PartitionSupervisor.which_children(partitions(config)),
        is_pid(supervisor),
        {_id, pid, _type, _modules} when is_pid(pid) <-
          DynamicSupervisor.which_children(supervisor),
        do: pid
  end

  defp await(monitors, _deadline) when monitors == %{}, do: :ok

  defp await(monitors, deadline) do
    receive do
      {:DOWN, monitor, :process, _pid, _reason} when is_map_key(monitors, monitor) ->
        await(Map.delete(monitors, monitor), deadline)
    after
      Deadline.left(deadline) ->
        for {monitor, _pid} <- monitors, do: Process.demonitor(monitor, [:flush])
        :late
    end
  end

  ## The process that looks for expired claims

  @impl true
  def init(config) do
    # It drains when it is stopped.
    Process.flag(:trap_exit, true)
    :persistent_term.put({__MODULE__, config.name}, config)
    :atomics.put(config.ready, 1, 1)
    {:ok, look_first(%{config: config, looking: nil})}
  end

  # The leases of this machine's earlier programs and VMs are over at once.
  defp look_first(%{config: config} = state) do
    if config.recover != :infinity and Store.Named.local_clock?(config.store) do
      send(self(), :look)
      state
    else
      look_later(state)
    end
  end

  @impl true
  def handle_info(:look, %{config: config} = state) do
    work = fn ->
      if Store.Named.local_clock?(config.store), do: take_over(config, nil)
      recover(config)
      if ready?(config), do: Arrivals.look(config, &report/2)
    end

    {_pid, monitor} = spawn_monitor(fn -> Sealed.run(work) end)
    {:noreply, %{state | looking: monitor}}
  end

  def handle_info({:DOWN, monitor, :process, _pid, _reason}, %{looking: monitor} = state),
    do: {:noreply, look_later(%{state | looking: nil})}

  def handle_info(_message, state), do: {:noreply, state}

  @impl true
  def terminate(reason, %{config: config}) do
    if reason in [:normal, :shutdown] or match?({:shutdown, _}, reason) do
      drain(config, config.drain)
      :persistent_term.erase({__MODULE__, config.name})
    end
  end

  # As in `AshAgent.Session`: the configuration holds keys.
  if {:format_status, 1} in GenServer.behaviour_info(:callbacks), do: @impl(true)

  def format_status(status),
    do: Sealed.format_status(status, &Map.take(&1.config, [:name, :lease, :idle]))

  # The nodes do not look all at the same time.
  defp look_later(%{config: %{recover: :infinity}} = state), do: state

  defp look_later(%{config: %{recover: recover}} = state) do
    Process.send_after(self(), :look, div(recover, 2) + :rand.uniform(recover))
    state
  end

  defp recover(config) do
    search = [owner: Owner.reserve(), status: Conversation.statuses()]
    search = search ++ [lease: config.lease, limit: config.batch]

    with true <- ready?(config),
         {:ok, claims} <- Journal.ask(fn -> Store.expired(config.store, search) end) do
      claims
      |> Task.async_stream(&continue(config, &1), max_concurrency: @partitions, timeout: :infinity)
      |> Stream.run()

      if length(claims) == config.batch, do: recover(config)
    end
  end

  # A file's conversations belong to the programs of its machine.
  defp take_over(config, cursor) do
    page = [limit: config.batch, after: cursor]

    list = fn -> Store.Named.call(config.store, :list_claimed, [page]) end

    with {:ok, %{conversations: found, next: next}} <- Journal.ask(list) do
      for %{owner: owner} = kept when owner != nil <- found,
          ready?(config),
          Owner.locate(owner) == :gone or Owner.distrusted?(owner, kept.lease_until),
          do: take_over_from(config, kept)

      if next, do: take_over(config, next)
    end
  end

  defp take_over_from(config, %{id: id, owner: owner}) do
    opts = [owner: Owner.reserve(), lease: config.lease, from: owner, load: false]

    with {:ok, kept} <- Journal.ask(fn -> Store.claim(config.store, id, opts) end),
         do: continue(config, kept)
  end

  # Conversations with work left get a session, and the others are free.
  defp continue(config, kept) do
    if Claim.unfinished?(config.store, kept),
      do: config |> start(kept.id, :find) |> handle_start(config, kept),
      else: Journal.ask(fn -> Store.release(config.store, kept) end)
  catch
    kind, reason -> report({:error, Events.label(kind, reason)}, kept.id)
  end

  # Another node goes on with it at once, instead of after the lease.
  defp handle_start({:error, :draining}, config, kept),
    do: Renewer.hand_over(config.store, kept)

  defp handle_start(reply, _config, kept), do: report(reply, kept.id)

  defp report({:error, %Error{} = error}, id), do: report({:error, Exception.message(error)}, id)

  defp report({:error, words}, id) do
    Logger.error(
      "the conversation #{inspect(id)}, whose claim had expired or for which there is a late result, could not be continued: #{words}"
    )
  end

  defp report(_started_or_taken, _id), do: :ok
end
