defmodule AshAgent.MCP.Remote do
  @moduledoc false

  # One MCP server: owns its client, keeps the list of its tools, and makes calls for the processes of tools.
  #
  # Calls, listings and cancellations may take time, so each runs in a worker, whose outcome is the reason of its end. When a caller ends, its call is cancelled. When the client ends, its calls fail and another one is started, later
  # each time that it fails.

  use GenServer

  # The first five are the settings. `connection` is the client's, `entries` are the tools of its last listing, and `waiting`
  # are the callers that want them before there are any. `jobs` are those of the workers, by their monitors, and `queue` the
  # next ones. `stale?` is true if the tools have changed, and `failures` counts failures of the client in a row.
  @enforce_keys [:client, :server, :prefix, :timeout, :max_result_bytes]
  defstruct @enforce_keys ++
              [:connection, :entries, status: :connecting, waiting: [], jobs: %{}] ++
              [queue: :queue.new(), stale?: false, failures: 0]

  alias AshAgent.Deadline
  alias AshAgent.MCP.{Content, Listing}
  alias AshAgent.Runtime.{Events, Sealed, ToolExecutor}

  require Logger

  @max_pages 50
  @patience 5_000
  @first_pause 100
  @longest_pause 30_000
  @settled 10_000

  @ended "ended during the call, and whether the call did its work is not known"

  @doc "Starts it with settings that no report shows: `:server`, `:prefix`, `:client`, `:timeout` and `:max_result_bytes`."
  def start_link(sealed) when is_function(sealed, 0), do: GenServer.start_link(__MODULE__, sealed)

  @doc "`{:ok, entries}` as `AshAgent.MCP.Listing` has them, or `{:error, words}`; waits for the first listing."
  def tools(pid), do: Sealed.call(pid, :tools, {__MODULE__, :tools})

  @doc "Ends it, and returns true, unless it has something to do."
  def rest(pid, timeout), do: Sealed.call(pid, :rest, {__MODULE__, :rest}, timeout)

  @doc """
  Makes a call of a tool as `tools/1` returned it, and returns its result, `{:unknown, words}`, `{:task, task}` or `{:asks, questions}`. A tool that is
  another one by now is not called. `opts` are those of the client.
  """
  def call(pid, entry, arguments, progress, opts) do
    Sealed.call(pid, {:call, entry, {arguments, progress, opts}}, {__MODULE__, :call})
  catch
    :exit, {reason, _call} when reason in [:noproc, :normal, :shutdown] ->
      {:error, "the MCP server was stopped"}

    :exit, _reason ->
      {:unknown, "the MCP server " <> @ended}
  end

  @doc "Asks about a task: `{:ok, result}`, `{:gone, words}` or `{:error, words}`."
  def task(pid, method, params) do
    Sealed.call(pid, {:task, method, params}, {__MODULE__, :task})
  catch
    :exit, _reason -> {:error, "the MCP server was stopped"}
  end

  @impl true
  def init(sealed) do
    Process.flag(:trap_exit, true)

    {:ok, struct!(__MODULE__, sealed.()), {:continue, :connect}}
  end

  @impl true
  def handle_continue(:connect, state), do: Sealed.run(fn -> {:noreply, connect(state)} end)

  @impl true
  def handle_call(request, from, state),
    do: Sealed.run(fn -> handle_request(request, from, state) end)

  @impl true
  def handle_info(message, state),
    do: Sealed.run(fn -> {:noreply, handle_message(message, state)} end)

  @impl true
  def terminate(_reason, state), do: Sealed.run(fn -> disconnect(state) end)

  # GenServer calls it on OTP 25 and later.
  if {:format_status, 1} in GenServer.behaviour_info(:callbacks), do: @impl(true)

  def format_status(status), do: Sealed.format_status(status, &show/1)

  defp show(%{status: {:down, _words}} = state), do: show(%{state | status: :down})
  defp show(state), do: Map.take(state, [:status, :failures])

  ## Requests

  defp handle_request(:tools, from, %{entries: nil} = state) do
    case state.status do
      {:down, words} -> {:reply, {:error, words}, state}
      _connecting -> {:noreply, %{state | waiting: [from | state.waiting]}}
    end
  end

  defp handle_request(:tools, _from, state), do: {:reply, {:ok, state.entries}, state}

  defp handle_request(:rest, _from, state) do
    if state.jobs == %{} and :queue.is_empty(state.queue) and state.waiting == [],
      do: {:stop, :normal, true, state},
      else: {:reply, false, state}
  end

  defp handle_request({_call_or_task, _, _}, _from, %{status: {:down, words}} = state) do
    {:reply, {:error, about(state, words <> "; try again later")}, state}
  end

  # Jobs have no part of the state: it has the jobs, and all of it would be copied to each worker.
  defp handle_request({:call, entry, {arguments, progress, opts}}, from, state) do
    %{client: client, max_result_bytes: max} = state

    run = fn held ->
      case client.call_tool(held, entry.remote, arguments, progress, opts) do
        {:ok, result} -> {:ok, Content.result(result, max)}
        {kind, more} when kind in [:task, :asks] -> {:ok, {kind, more}}
        failure -> failure
      end
    end

    {:noreply, add_job(state, from, %{kind: :call, entry: entry, run: run})}
  end

  # Its result is read here, since it is as large as that of a call.
  defp handle_request({:task, method, params}, from, state) do
    %{client: client, max_result_bytes: max, timeout: timeout} = state

    run = fn held ->
      with {:ok, %{"result" => %{} = result} = task} <-
             client.task(held, method, params, timeout),
           do: {:ok, %{task | "result" => Content.result(result, max)}}
    end

    {:noreply, add_job(state, from, %{kind: :task, run: run})}
  end

  defp add_job(state, {caller, _tag} = from, job) do
    job = Map.merge(job, %{from: from, caller: Process.monitor(caller)})
    go_on(%{state | queue: :queue.in(job, state.queue)})
  end

  ## Messages

  defp handle_message({:DOWN, monitor, :process, _pid, reason}, state) do
    cond do
      match?(%{monitor: ^monitor}, state.connection) ->
        down(state, state.connection.end || "has ended")

      is_map_key(state.jobs, monitor) ->
        state |> handle_end(monitor, reason) |> go_on()

      true ->
        state |> drop_caller(monitor) |> go_on()
    end
  end

  defp handle_message({:late, monitor}, state) when is_map_key(state.jobs, monitor) do
    {job, jobs} = Map.pop!(state.jobs, monitor)
    Process.demonitor(monitor, [:flush])
    Process.exit(job.pid, :kill)
    words = "did not respond within #{limit(job.kind, state)} ms"
    go_on(finish(job, {:error, words}, %{state | jobs: jobs}))
  end

  defp handle_message({id, {:ended, words}}, %{connection: %{id: id}} = state),
    do: put_in(state.connection.end, words)

  defp handle_message({id, :changed}, %{connection: %{id: id}} = state) do
    if not state.stale?, do: Process.send_after(self(), {:list, id}, @first_pause)
    %{state | stale?: true}
  end

  # A listing that waits will know the change; one under way may have missed it.
  defp handle_message({:list, id}, %{connection: %{id: id}} = state) do
    cond do
      :queue.any(&listing?/1, state.queue) ->
        %{state | stale?: false}

      Enum.any?(state.jobs, fn {_monitor, job} -> listing?(job) end) ->
        Process.send_after(self(), {:list, id}, @first_pause)
        state

      true ->
        go_on(list(%{state | stale?: false}, :changed))
    end
  end

  defp handle_message(:connect, %{connection: nil} = state), do: connect(state)

  # Late messages of earlier connections, and the ends of linked processes, which monitors report.
  defp handle_message(_other, state), do: state

  ## The connection

  defp connect(state) do
    {id, me} = {make_ref(), self()}
    server = Map.merge(state.server, Map.take(state, [:timeout, :max_result_bytes]))
    start = fn -> state.client.start_link(server, &send(me, {id, &1})) end

    case ToolExecutor.call_guarded(start) do
      {:returned, {:ok, pid, held}} ->
        monitor = Process.monitor(pid)
        connection = %{id: id, held: held, monitor: monitor, since: Deadline.now(), end: nil}
        go_on(list(%{state | connection: connection, status: :connecting, stale?: false}, :first))

      {:returned, {:error, words}} ->
        down(state, words)

      {:raised, kind, reason, _} ->
        down(state, "could not be started (#{inspect(Events.label(kind, reason))})")
    end
  end

  # The first listing ends the connecting, and goes before everything that waits.
  defp list(state, reason) do
    settings = Map.take(state, [:client, :server, :prefix, :timeout])
    job = %{kind: {:list, reason}, from: nil, caller: nil, run: &pages(settings, &1, nil, [])}
    put = if reason == :first, do: &:queue.in_r/2, else: &:queue.in/2
    %{state | queue: put.(job, state.queue)}
  end

  defp listing?(job), do: match?({:list, _reason}, job.kind)

  # Reads them here and not in the server's process, since it takes time.
  defp pages(settings, held, cursor, pages) do
    case settings.client.list_tools(held, cursor, settings.timeout) do
      {:ok, %{"tools" => tools} = page} when is_list(tools) ->
        pages = [tools | pages]
        next = page["nextCursor"]

        # A server that lists tools without end must not take all memory.
        enough? = length(pages) >= @max_pages or Listing.too_many?(pages)

        if is_binary(next) and next not in [cursor, ""] and not enough?,
          do: pages(settings, held, next, pages),
          else: read(settings, pages, page[:tasks?] == true)

      {:ok, _other} ->
        {:error, "did not list its tools as MCP says"}

      failure ->
        failure
    end
  end

  defp read(settings, pages, tasks?) do
    trust? = settings.server[:trust_annotations] == true
    listed = pages |> Enum.reverse() |> Enum.concat()
    {entries, refused} = Listing.read(listed, settings.prefix, trust?)
    tasks? = tasks? and settings.server[:tasks?] == true
    own = %{tasks?: tasks?, questions: settings.server[:questions]}
    {:ok, {Enum.map(entries, &Map.merge(&1, own)), refused}}
  end

  defp down(state, words) do
    # A client that has worked for a while has not failed before.
    settled? = state.connection != nil and Deadline.now() - state.connection.since > @settled
    failures = if settled?, do: 0, else: state.failures
    pause = min(@first_pause * Integer.pow(2, min(failures, 20)), @longest_pause)
    Process.send_after(self(), :connect, pause)
    # The words may be the server's own, with its arguments in them.
    told = "is not available; it is started again. AshAgent.MCP.tools/2 says why"
    Logger.warning(about(state, told))
    state = disconnect(state)
    for from <- state.waiting, do: GenServer.reply(from, {:error, words})
    for job <- :queue.to_list(state.queue), do: answer(state, job, {:error, words})
    state = %{state | status: {:down, words}, failures: failures + 1}
    %{state | waiting: [], queue: :queue.new()}
  end

  defp disconnect(%{connection: nil} = state), do: state

  defp disconnect(%{connection: connection} = state) do
    Process.demonitor(connection.monitor, [:flush])
    for {monitor, job} <- state.jobs, do: answer(state, job, settle(monitor, job.pid))
    ToolExecutor.call_guarded(fn -> state.client.stop(connection.held) end)
    %{state | connection: nil, jobs: %{}}
  end

  # A result that has come in time counts.
  defp settle(monitor, pid) do
    Process.exit(pid, :kill)

    receive do
      {:DOWN, ^monitor, :process, _pid, {:done, {:returned, {:ok, _} = result}}} -> result
      {:DOWN, ^monitor, :process, _pid, _reason} -> {:unknown, @ended}
    end
  end

  ## Jobs

  defp go_on(%{connection: nil} = state), do: state

  defp go_on(state) do
    with true <- may_start?(state),
         {{:value, job}, queue} <- :queue.out(state.queue) do
      go_on(start_as_shown(%{state | queue: queue}, job))
    else
      _ -> state
    end
  end

  # Whoever allowed the call has seen that tool, and no other one.
  defp start_as_shown(state, %{kind: :call, entry: entry} = job) do
    if entry in state.entries do
      start(state, Map.delete(job, :entry))
    else
      answer(
        state,
        job,
        {:error, "has changed or removed this tool since it was shown; the call was not made"}
      )

      state
    end
  end

  defp start_as_shown(state, job), do: start(state, job)

  # Until the first listing is there, nothing else starts.
  defp may_start?(%{jobs: jobs}) when map_size(jobs) == 0, do: true
  defp may_start?(%{status: :connecting}), do: false

  defp may_start?(%{connection: connection} = state),
    do: state.client.concurrent?(connection.held)

  defp start(%{connection: %{held: held}} = state, job) do
    {pid, monitor} =
      spawn_monitor(fn -> exit({:done, ToolExecutor.call_guarded(fn -> job.run.(held) end)}) end)

    limit = limit(job.kind, state)
    if limit, do: Process.send_after(self(), {:late, monitor}, limit)
    %{state | jobs: Map.put(state.jobs, monitor, Map.put(job, :pid, pid))}
  end

  # Calls have the time that their run gives them.
  defp limit(:call, _state), do: nil
  defp limit(:cancel, _state), do: @patience
  defp limit(_list_or_task, state), do: state.timeout

  defp handle_end(state, monitor, reason) do
    {job, jobs} = Map.pop!(state.jobs, monitor)
    finish(job, outcome(reason), %{state | jobs: jobs})
  end

  defp outcome({:done, {:returned, {:ok, _} = result}}), do: result
  defp outcome({:done, {:returned, :ok}}), do: :ok

  defp outcome({:done, {:returned, {kind, words}}}) when kind in [:error, :unknown, :lost, :gone],
    do: {kind, words}

  defp outcome({:done, {:raised, kind, reason, _}}),
    do: {:error, "failed (#{inspect(Events.label(kind, reason))})"}

  defp outcome(_killed), do: {:unknown, @ended}

  # Nothing is lost for a task but an answer, so it does not end the calls beside it.
  defp finish(%{kind: :task} = job, {:lost, words}, %{jobs: jobs} = state) when jobs != %{} do
    answer(state, job, {:error, words})
    state
  end

  defp finish(%{kind: kind} = job, {:lost, words}, state) when kind in [:call, :task] do
    answer(state, job, {:error, words})
    down(state, words)
  end

  defp finish(%{kind: kind} = job, outcome, state) when kind in [:call, :task] do
    answer(state, job, outcome)
    %{state | failures: 0}
  end

  defp finish(%{kind: {:list, _}}, {:ok, {entries, refused}}, state) do
    if refused != [], do: warn(state, refused)
    for from <- state.waiting, do: GenServer.reply(from, {:ok, entries})
    %{state | status: :ready, entries: entries, waiting: []}
  end

  # The tools that were there may still be. A client that makes one request at a time may still be at this one.
  defp finish(%{kind: {:list, :changed}}, {kind, words}, state) when kind != :lost do
    if state.client.concurrent?(state.connection.held), do: state, else: down(state, words)
  end

  defp finish(%{kind: {:list, _}}, {_, words}, state),
    do: down(state, state.connection.end || words)

  # The cancelled call's worker ends by itself, or is not needed any more. A client that makes one call at a time is still at it.
  defp finish(%{kind: :cancel, cancelled: pid}, :ok, state) do
    Process.exit(pid, :kill)
    running? = Enum.any?(state.jobs, fn {_monitor, job} -> job.pid == pid end)

    if running? and not state.client.concurrent?(state.connection.held),
      do: state |> disconnect() |> connect(),
      else: state
  end

  defp finish(%{kind: :cancel}, {_, words}, state), do: down(state, words)

  defp warn(state, refused) do
    reasons =
      Enum.map_join(Enum.frequencies(refused), ", ", fn {reason, n} -> "#{reason} (#{n})" end)

    Logger.warning(about(state, "lists tools that are left out: " <> reasons))
  end

  # A caller that ended: its call is not needed any more.
  defp drop_caller(state, caller) do
    case Enum.find(state.jobs, fn {_monitor, job} -> job.caller == caller end) do
      {_monitor, %{pid: pid}} ->
        %{client: client} = state
        run = &client.cancel(&1, pid)
        start(state, %{kind: :cancel, cancelled: pid, from: nil, caller: nil, run: run})

      nil ->
        %{state | queue: :queue.filter(&(&1.caller != caller), state.queue)}
    end
  end

  defp answer(_state, %{from: nil}, _outcome), do: :ok

  defp answer(_state, %{kind: :task} = job, {kind, term}) do
    Process.demonitor(job.caller, [:flush])
    GenServer.reply(job.from, {if(kind in [:ok, :gone], do: kind, else: :error), term})
  end

  defp answer(state, job, outcome) do
    Process.demonitor(job.caller, [:flush])

    result =
      case outcome do
        {:ok, result} -> result
        {:unknown, words} -> {:unknown, about(state, words)}
        {_error_or_lost, words} -> {:error, about(state, words)}
      end

    GenServer.reply(job.from, result)
  end

  defp about(state, words), do: "the MCP server #{inspect(state.server.name)} #{words}"
end
