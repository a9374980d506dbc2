defmodule AshAgent.MCP.Tasks do
  @moduledoc false

  # Tasks of servers, the extension of the new era: calls whose results come later.
  #
  # All that is needed to ask a server about a task is the note in its waiting call's `:for`, so whoever has the server and the store goes on with
  # it. The process looks for calls that wait, asks about each in a worker of its own, and delivers what comes under the arrival key.
  # Several nodes may ask about one task: its first result counts. The task of a call that waits no longer is cancelled.

  use GenServer

  alias AshAgent.{MCP, Sessions, Store}
  alias AshAgent.MCP.{Listing, Questions, Remote}
  alias AshAgent.Runtime.{Journal, Sealed, ToolExecutor}

  @look 5_000
  @look_again 1_000
  @soon 100
  @pauses 100..300_000
  @first_pause 1_000
  @longest_pause 60_000
  @at_once 16
  @most_answers 100
  @patience 600_000
  @most_open 100
  @unstorable {:error, "the result cannot be stored"}
  @most 10_000
  @id_bytes 1_000
  @lives 1_000..2_592_000_000

  @doc "Starts it with a function that returns the `:sessions` or the store, the `:names` of the servers, and the `:questions` as `AshAgent.MCP` takes them."
  def start_link(sealed), do: GenServer.start_link(__MODULE__, sealed)

  @doc "Tells it that a call waits soon."
  def look(pid), do: if(is_pid(pid), do: send(pid, :soon))

  @doc "The questions of tasks that nobody has answered: their conversation's `:id`, their `:key`, the `:server`, the `:question` and the `:form`."
  def questions(pid), do: Sealed.call(pid, :questions, {__MODULE__, :questions})

  @doc """
  Answers the question of a task, by its key, with what fits its form, or with `:decline`, and returns `:ok` when the server has it. Raises
  `AshAgent.Context.Error` for another answer.
  """
  def answer(pid, key, answer) do
    with {:ok, task, supervisor} <- Sealed.call(pid, {:find, key}, {__MODULE__, :answer}) do
      case give(supervisor || pid, task, Questions.check!(task.question, answer)) do
        {:ok, _taken} ->
          send(pid, {:answered, key, task.question[:ids] || []})
          :ok

        {_kind, words} ->
          {:error, %MCP.Error{reason: {:unavailable, %{task.server => words}}}}
      end
    end
  catch
    # It is started again, and finds the question again.
    :exit, _reason -> {:error, %MCP.Error{reason: :no_question}}
  end

  @doc "Asks somebody while a call of the old era is open, for ten minutes at most. Returns the answer, or `:decline`."
  def ask(pid, asked) when is_pid(pid) do
    Sealed.call(pid, {:ask, asked}, {__MODULE__, :ask}, @patience)
  catch
    :exit, _reason -> :decline
  end

  def ask(_restarting, _asked), do: :decline

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

  ## The process. `tasks` are those that calls wait for, by arrival keys, each with its open `question` and the ids of what is `answered`; `jobs` are what
  ## is done about them, by the monitors of workers; and `open` are the questions of calls that are open, by keys of their own

  @impl true
  def init(sealed) do
    [supervisor | _] = Process.get(:"$ancestors")
    send(self(), :look)
    own = %{supervisor: supervisor, tasks: %{}, jobs: %{}, open: %{}, looks?: false}
    {:ok, Map.merge(sealed.(), own)}
  end

  @impl true
  def handle_call({:ask, asked}, {caller, _tag} = from, state),
    do: Sealed.run(fn -> {:noreply, add_open(state, asked, from, caller)} end)

  def handle_call(request, _from, state),
    do: Sealed.run(fn -> {:reply, find(request, state), state} end)

  defp find(:questions, state) do
    for {key, %{question: %{} = question} = task} <- state.tasks do
      shown = %{question: question.words, form: question.form}
      Map.merge(shown, %{id: task.id, key: key, server: task.server})
    end ++
      for {key, %{question: question, server: server}} <- state.open do
        %{id: nil, key: key, server: server, question: question.words, form: question.form}
      end
  end

  defp find({:find, key}, state) do
    case {state.tasks, state.open} do
      {%{^key => %{question: %{}} = task}, _open} -> {:ok, task, state.supervisor}
      {_tasks, %{^key => open}} -> {:ok, open, nil}
      _none -> {:error, %MCP.Error{reason: :no_question}}
    end
  end

  # Gone with the call, or with the connection.
  defp add_open(%{open: open} = state, asked, from, caller) when map_size(open) < @most_open do
    key = Base.url_encode64(:crypto.strong_rand_bytes(16), padding: false)
    monitors = for pid <- [caller, asked.connection], do: Process.monitor(pid)
    asked = Map.merge(asked, %{from: from, key: key, monitors: monitors})
    put_in(state.open[key], asked)
  end

  defp add_open(state, _asked, from, _caller) do
    GenServer.reply(from, :decline)
    state
  end

  defp close(state, key, answer) do
    {%{from: from, monitors: monitors}, open} = Map.pop!(state.open, key)
    for monitor <- monitors, do: Process.demonitor(monitor, [:flush])
    GenServer.reply(from, answer)
    %{state | open: open}
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
      config = Map.take(state, [:sessions, :supervisor, :questions])
      start(state, {:poll, key}, fn -> poll(config, tasks[key]) end)
    else
      poll_later(key, @soon)
      state
    end
  end

  # A server that takes a moment to know its answers is not asked for them twice.
  defp handle_message({:answered, key, ids}, %{tasks: tasks} = state) when is_map_key(tasks, key),
    do: update_in(state.tasks[key], &%{&1 | question: nil, answered: ids ++ &1.answered})

  defp handle_message({:close, key, answer}, %{open: open} = state) when is_map_key(open, key),
    do: close(state, key, answer)

  defp handle_message({:DOWN, ref, :process, _pid, reason}, %{jobs: jobs} = state)
       when is_map_key(jobs, ref) do
    {job, jobs} = Map.pop!(jobs, ref)
    outcome = with {:done, {:returned, outcome}} <- reason, do: outcome, else: (_ -> :failed)
    finish(job, outcome, %{state | jobs: jobs})
  end

  defp handle_message({:DOWN, ref, :process, _pid, _reason}, state) do
    found = Enum.find(state.open, fn {_key, %{monitors: monitors}} -> ref in monitors end)
    with {key, _open} <- found, do: close(state, key, :decline), else: (nil -> state)
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
    task = tasks[key]
    longer = min(2 * task.pause, @longest_pause)

    {pause, task} =
      case outcome do
        {:again, every} -> {every || longer, %{task | question: nil}}
        {:asks, question, every} -> {every || longer, %{task | question: open(question, task)}}
        {:answered, ids, every} -> {every || longer, %{task | answered: ids ++ task.answered}}
        _failed -> {longer, task}
      end

    poll_later(key, pause)
    put_in(state.tasks[key], %{task | pause: max(pause, @first_pause)})
  end

  defp finish(_cancel_or_gone, _outcome, state), do: state

  # Somebody may have answered while the server was asked.
  defp open(question, %{answered: answered}),
    do: if(Enum.any?(question.ids, &(&1 in answered)), do: nil, else: question)

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
          task = %{id: call.id, key: call.key, server: name, note: note, question: nil}
          pause = note.every || div(@first_pause, 2)
          {call.key, Map.merge(task, %{pause: pause, answered: []})}
        end

      if next != nil and map_size(found) < @most,
        do: list(sessions, name, [after: next], found),
        else: {:ok, found}
    end
  end

  defp poll(config, task) do
    case read(ask(config.supervisor, task, "get"), about(task)) do
      {:end, outcome} -> deliver(config.sessions, task, outcome)
      {:asks, requests, every} -> take_question(config, task, requests, every)
      other -> other
    end
  end

  defp take_question(config, task, requests, every) do
    open = if is_map(requests), do: Map.drop(requests, task.answered), else: requests

    case Questions.read(%{"inputRequests" => open}) do
      _none when open == %{} ->
        {:again, every}

      {:ok, question} when config.questions == :ask and length(task.answered) < @most_answers ->
        {:asks, question, every}

      {:ok, question}
      when is_function(config.questions) and length(task.answered) < @most_answers ->
        answer = Questions.ask(config.questions, task.server, question)
        task = %{task | question: question}

        with {:ok, _} <- give(config.supervisor, task, answer),
             do: {:answered, question.ids, every}

      _refused ->
        ask(config.supervisor, task, "cancel")
        {:error, words} = Questions.refuse()
        deliver(config.sessions, task, {:error, about(task) <> words})
    end
  end

  defp give(pid, %{from: _waits, key: key}, answer), do: {:ok, send(pid, {:close, key, answer})}

  defp give(supervisor, %{question: question} = task, answer),
    do: ask(supervisor, task, "update", Questions.answers(question, answer))

  defp about(task), do: "the MCP server #{inspect(task.server)} "

  defp ask(supervisor, %{server: server, note: note}, method, more \\ %{}) do
    with {:ok, pid} <- MCP.find_client(supervisor, server, note.who),
         do: Remote.task(pid, method, Map.put(more, "taskId", note.task))
  end

  defp read({:ok, %{"status" => "completed", "result" => {_status, _term} = result}}, _about),
    do: {:end, result}

  defp read({:ok, %{"status" => "failed", "error" => %{"message" => words}}}, about)
       when is_binary(words),
       do: {:end, {:error, about <> "answered with an error: " <> Listing.shorten(words)}}

  defp read({:ok, %{"status" => "cancelled"}}, about),
    do: {:end, {:error, about <> "cancelled the task"}}

  defp read({:ok, %{"status" => "input_required"} = answer}, _about),
    do: {:asks, answer["inputRequests"], every(answer)}

  defp read({:ok, %{"status" => _goes_on} = answer}, _about), do: {:again, every(answer)}

  defp read({:gone, words}, about),
    do: {:end, {:unknown, about <> words <> ", and whether it did its work is not known"}}

  defp read(_failed, _about), do: :failed

  defp deliver(sessions, task, outcome) do
    case arrive(sessions, task, outcome) do
      {:ok, _kept_or_again} ->
        :done

      {:error, {:store_error, reason}} when is_atom(reason) ->
        :done

      {:error, {:store_error, %AshAgent.Context.Error{}}} when outcome != @unstorable ->
        deliver(sessions, task, @unstorable)

      {:error, _reason} ->
        :failed
    end
  end

  defp arrive(sessions, %{id: id, key: key} = task, outcome) do
    opts = [from: tag(task.server)]

    Journal.ask(fn ->
      if is_atom(sessions) and match?({:ok, _}, Sessions.Node.config(sessions)),
        do: Sessions.arrive(sessions, id, key, outcome, opts),
        else: Store.arrive(sessions, id, key, outcome, opts)
    end)
  end
end
