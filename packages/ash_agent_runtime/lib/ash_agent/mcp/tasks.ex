defmodule AshAgent.MCP.Tasks do
  @moduledoc false

  # Tasks of servers, the extension of the new era: calls whose results come later.
  #
  # All that is needed to ask a server about a task is the note in its waiting call's `:for`, so whoever has the server and the store goes on with
  # it. The process looks for calls that wait, asks about each in a worker of its own, and delivers what comes under the arrival key.
  # Several nodes may ask about one task: its first result counts. The task of a call that waits no longer is cancelled.

  use GenServer

  alias AshAgent.{MCP, Sessions, Store}
  alias AshAgent.MCP.{Listing, Remote}
  alias AshAgent.Runtime.{Journal, Sealed, ToolExecutor}

  @look 5_000
  @look_again 1_000
  @soon 100
  @pauses 100..300_000
  @first_pause 1_000
  @longest_pause 60_000
  @at_once 16
  @most 10_000
  @id_bytes 1_000
  @lives 1_000..2_592_000_000

  @doc "Starts it with a function that returns the `:sessions` or the store, and the `:names` of the servers."
  def start_link(sealed), do: GenServer.start_link(__MODULE__, sealed)

  @doc "Tells it that a call waits soon."
  def look(pid), do: if(is_pid(pid), do: send(pid, :soon))

  @doc "What a call waits for that was answered with a task: options of `{:later, opts}`, or `:error`."
  def wait(server, who, %{"taskId" => task} = answer)
      when is_binary(task) and byte_size(task) in 1..@id_bytes do
    if String.valid?(task) do
      note = %{for: tag(server), task: task, every: every(answer), who: name(who)}
      life = with life when not is_integer(life) <- answer["ttlMs"], do: @lives.last
      {:ok, for: note, deadline: clamp(life, @lives)}
    else
      :error
    end
  end

  def wait(_server, _who, _answer), do: :error

  @doc "Returns whether somebody can be kept with a task: by ids, and by nothing that may be secret."
  def nameable?(who), do: name(who) != :error

  # As AshAgent.Runtime.Authority knows people, so that a client of theirs is found.
  defp name(who) do
    named = for {key, term} <- who, into: %{}, do: {key, name_one(term)}
    if nil in Map.values(named), do: :error, else: named
  end

  defp name_one(%kind{id: id}) when is_binary(id) or is_integer(id), do: {kind, id}
  defp name_one(%{id: id}) when is_binary(id) or is_integer(id), do: id
  defp name_one(id) when is_binary(id) or is_integer(id) or is_atom(id), do: id
  defp name_one(_other), do: nil

  defp tag(server), do: "mcp:" <> server
  defp every(%{"pollIntervalMs" => every}) when is_integer(every), do: clamp(every, @pauses)
  defp every(_none), do: nil
  defp clamp(number, first..last//_), do: number |> max(first) |> min(last)

  ## The process. `tasks` are those that calls wait for, by arrival keys, and `jobs` what is done about them, by the monitors of workers

  @impl true
  def init(sealed) do
    [supervisor | _] = Process.get(:"$ancestors")
    send(self(), :look)
    own = %{supervisor: supervisor, tasks: %{}, jobs: %{}, looks?: false}
    {:ok, Map.merge(sealed.(), own)}
  end

  @impl true
  def handle_info(message, state),
    do: Sealed.run(fn -> {:noreply, handle_message(message, state)} end)

  # GenServer calls it on OTP 25 and later.
  if {:format_status, 1} in GenServer.behaviour_info(:callbacks), do: @impl(true)

  def format_status(status), do: Sealed.format_status(status, &map_size(&1.tasks))

  defp handle_message(:look, %{looks?: false} = state), do: look_now(state, :look)

  defp handle_message(:look, state) do
    Process.send_after(self(), :look, @soon)
    state
  end

  # The call has to be stored first.
  defp handle_message(:soon, state) do
    Process.send_after(self(), :look_once, @soon)
    state
  end

  defp handle_message(:look_once, %{looks?: false} = state), do: look_now(state, :look_once)

  defp handle_message({:poll, key}, %{tasks: tasks} = state) when is_map_key(tasks, key) do
    if map_size(state.jobs) < @at_once do
      config = Map.take(state, [:sessions, :supervisor])
      start(state, {:poll, key}, fn -> poll(config, tasks[key]) end)
    else
      poll_later(key, @soon)
      state
    end
  end

  defp handle_message({:DOWN, ref, :process, _pid, reason}, %{jobs: jobs} = state)
       when is_map_key(jobs, ref) do
    {job, jobs} = Map.pop!(jobs, ref)
    outcome = with {:done, {:returned, outcome}} <- reason, do: outcome, else: (_ -> :failed)
    finish(job, outcome, %{state | jobs: jobs})
  end

  defp handle_message(_other, state), do: state

  defp start(state, job, fun) do
    {_pid, ref} = spawn_monitor(fn -> exit({:done, ToolExecutor.call_guarded(fun)}) end)
    put_in(state.jobs[ref], job)
  end

  defp poll_later(key, pause), do: Process.send_after(self(), {:poll, key}, pause)

  defp look_now(%{sessions: sessions, names: names} = state, kind),
    do: start(%{state | looks?: true}, kind, fn -> list(sessions, names) end)

  # The application may start the store after the servers.
  defp finish(look, outcome, state) when look in [:look, :look_once] do
    pause = if outcome == :failed, do: @look_again, else: @look
    if look == :look, do: Process.send_after(self(), :look, pause)
    state = %{state | looks?: false}
    with {:ok, found} <- outcome, do: take(found, state), else: (_failed -> state)
  end

  defp finish({:poll, key}, :done, state), do: %{state | tasks: Map.delete(state.tasks, key)}

  defp finish({:poll, key}, outcome, %{tasks: tasks} = state) when is_map_key(tasks, key) do
    longer = min(2 * tasks[key].pause, @longest_pause)

    pause =
      case outcome do
        {:again, every} when every != nil -> every
        _unsaid_or_failed -> longer
      end

    poll_later(key, pause)
    put_in(state.tasks[key].pause, max(pause, @first_pause))
  end

  defp finish(_cancel_or_gone, _outcome, state), do: state

  defp take(found, state) do
    known = Map.keys(state.tasks)
    more = Map.drop(found, known)
    for {key, _task} <- more, do: poll_later(key, @soon)

    # Nobody waits for these any more.
    gone = if map_size(found) < @most, do: Map.drop(state.tasks, Map.keys(found)), else: %{}
    state = %{state | tasks: state.tasks |> Map.merge(more) |> Map.drop(Map.keys(gone))}
    supervisor = state.supervisor

    Enum.reduce(gone, state, fn {_key, task}, state ->
      start(state, :cancel, fn -> ask(supervisor, task, "cancel") end)
    end)
  end

  ## In workers

  defp list(sessions, names) do
    Enum.reduce_while(names, {:ok, %{}}, fn name, {:ok, found} ->
      case list(sessions, name, [], found) do
        {:ok, found} -> {:cont, {:ok, found}}
        _failed -> {:halt, :failed}
      end
    end)
  end

  defp list(sessions, name, page, found) do
    with {:ok, %{calls: calls, next: next}} <-
           Journal.ask(fn -> Sessions.waiting(sessions, [for: tag(name)] ++ page) end) do
      found =
        for %{for: %{task: _} = note} = call <- calls, into: found do
          task = %{id: call.id, key: call.key, server: name, note: note}
          {call.key, Map.put(task, :pause, note.every || div(@first_pause, 2))}
        end

      if next != nil and map_size(found) < @most,
        do: list(sessions, name, [after: next], found),
        else: {:ok, found}
    end
  end

  defp poll(config, task) do
    case read(ask(config.supervisor, task, "get"), about(task)) do
      {:end, outcome} -> deliver(config.sessions, task, outcome)
      other -> other
    end
  end

  defp about(task), do: "the MCP server #{inspect(task.server)} "

  defp ask(supervisor, %{server: server, note: note}, method) do
    with {:ok, pid} <- MCP.find_client(supervisor, server, note.who),
         do: Remote.task(pid, method, %{"taskId" => note.task})
  end

  defp read({:ok, %{"status" => "completed", "result" => {_status, _term} = result}}, _about),
    do: {:end, result}

  defp read({:ok, %{"status" => "failed", "error" => %{"message" => words}}}, about)
       when is_binary(words),
       do: {:end, {:error, about <> "answered with an error: " <> Listing.shorten(words)}}

  defp read({:ok, %{"status" => "cancelled"}}, about),
    do: {:end, {:error, about <> "cancelled the task"}}

  defp read({:ok, %{"status" => _goes_on} = answer}, _about), do: {:again, every(answer)}

  defp read({:gone, words}, about),
    do: {:end, {:unknown, about <> words <> ", and whether it did its work is not known"}}

  defp read(_failed, _about), do: :failed

  defp deliver(sessions, task, outcome) do
    case arrive(sessions, task, outcome) do
      {:ok, _kept_or_again} -> :done
      {:error, {:store_error, reason}} when is_atom(reason) -> :done
      {:error, {:store_error, %AshAgent.Context.Error{}}} -> deliver(sessions, task, unstorable())
      {:error, _reason} -> :failed
    end
  end

  defp unstorable, do: {:error, "the result cannot be stored"}

  defp arrive(sessions, %{id: id, key: key} = task, outcome) do
    opts = [from: tag(task.server)]

    Journal.ask(fn ->
      if is_atom(sessions) and match?({:ok, _}, Sessions.Node.config(sessions)),
        do: Sessions.arrive(sessions, id, key, outcome, opts),
        else: Store.arrive(sessions, id, key, outcome, opts)
    end)
  end
end
