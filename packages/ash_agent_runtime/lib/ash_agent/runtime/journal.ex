defmodule AshAgent.Runtime.Journal do
  @moduledoc false

  # Decides when a run writes to its store and which data: the model's answer before any tool starts, the attempts that start,
  # and the results, those together that come together. A write that fails ends the run before its next step.

  alias AshAgent.{Context, Store}
  alias AshAgent.Runtime.{Late, Repeat, Underway}
  alias AshAgent.Store.Conversation

  # attempts: of the calls that run, by their ids. finished, taken, waiting, arrived: for the next write.
  @enforce_keys [:store, :kept]
  defstruct [:store, :kept, attempts: %{}, finished: [], taken: [], waiting: [], arrived: []]

  @lists [:finished, :taken, :waiting, :arrived]

  @doc "The journal of a run with these options, whose first write takes these messages, or `nil`. Raises `ArgumentError` for wrong ones."
  def new(opts, id, taken) do
    case {opts[:store], opts[:kept]} do
      {nil, nil} ->
        nil

      {store, kept} when store != nil ->
        %__MODULE__{store: store, kept: keep!(kept, id), taken: taken}

      _ ->
        AshAgent.Caller.refuse!("the option :kept needs the option :store")
    end
  end

  defp keep!(%Conversation{kind: :context, value: %Context{} = value} = kept, id) do
    foreign = "expected :kept to be the stored conversation of the given context"
    if value[:id] != id, do: AshAgent.Caller.refuse!(foreign)
    kept
  end

  defp keep!(_other, _id) do
    AshAgent.Caller.refuse!(
      "expected :kept to be a loaded conversation of AshAgent.Store that is a context, as fetch/2 and claim/3 return it"
    )
  end

  @doc """
  Writes the context if there is anything to write, with a status unless that is `nil`.

  Returns `{:ok, journal}` or `{:error, {:store_error, reason}}`.
  """
  def write(%__MODULE__{kept: kept} = journal, context, status, note) do
    if context == kept.value and Enum.all?(@lists, &(Map.fetch!(journal, &1) == [])) and
         status in [nil, kept.status] and not match?(%{ended: %{"error" => _}}, note) and
         not is_map_key(note, :spent) do
      {:ok, journal}
    else
      opts = [finished: Enum.reverse(journal.finished), taken: journal.taken, note: note]
      # A store that takes no late results hears nothing of them.
      late =
        for name <- [:waiting, :arrived],
            [_ | _] = list <- [Map.fetch!(journal, name)],
            do: {name, list}

      opts = if status, do: [status: status] ++ late ++ opts, else: late ++ opts

      with {:ok, kept} <- ask(fn -> Store.append(journal.store, kept, context, opts) end),
           do: {:ok, struct!(%{journal | kept: kept}, Map.new(@lists, &{&1, []}))}
    end
  end

  @doc """
  The newest attempts of these calls, by the calls' ids: `{:ok, journal, map}` or an error. The journal's next write closes older ones, whose
  outcome nobody knows.
  """
  def earlier(journal, context, calls) do
    keys = keys(context, calls)

    with {:ok, attempts} <-
           ask(fn -> Store.calls(journal.store, journal.kept.id, keys: Map.values(keys)) end) do
      newest = attempts |> Enum.sort_by(& &1.attempt) |> Map.new(&{&1.key, &1})

      older = for a <- attempts, a.state == :started, a.attempt < newest[a.key].attempt, do: a
      journal = Enum.reduce(older, journal, &finish_attempt(&2, &1, :unknown))
      {:ok, journal, for({id, key} <- keys, attempt = newest[key], into: %{}, do: {id, attempt})}
    end
  end

  @doc """
  Closes the attempts of calls that wait for no result any more: somebody has settled them, and nobody knows their outcome.

  Returns `{:ok, journal}`, whose next write says so, or an error.
  """
  def close_settled(journal, context) do
    waiting = context |> keys(Context.pending_tool_calls(context)) |> Map.values()

    with {:ok, started} <-
           ask(fn -> Store.calls(journal.store, journal.kept.id, state: :started) end) do
      journal = take_arrivals(journal, Late.closed_waits(journal.kept.value, context))
      settled = Enum.reject(started, &(&1.key in waiting))
      {:ok, Enum.reduce(settled, journal, &finish_attempt(&2, &1, :unknown))}
    end
  end

  @doc """
  Notes that calls start, given as `{call, attempt, decided_at}`.

  Returns `{:ok, journal, ids}` with those that may run, or an error.
  """
  def start(journal, _context, []), do: {:ok, journal, []}

  def start(journal, context, starting) do
    keys = keys(context, for({call, _attempt, _decided_at} <- starting, do: call))

    attempts =
      for {call, attempt, decided_at} <- starting, into: %{} do
        noted = call |> Map.take([:id, :arguments]) |> Map.put(:decided_at, decided_at)

        place = %{
          name: AshAgent.Runtime.Tool.name(call.name),
          iteration: context.current_iteration
        }

        {call.id, %{key: keys[call.id], attempt: attempt, call: Map.merge(noted, place)}}
      end

    with {:ok, kept, started} <-
           ask(fn -> Store.start(journal.store, journal.kept, Map.values(attempts)) end) do
      started = MapSet.new(started)
      mine = for {id, attempt} <- attempts, attempt.key in started, into: %{}, do: {id, attempt}
      attempts = Map.new(mine, fn {id, attempt} -> {id, Map.delete(attempt, :call)} end)
      {:ok, %{journal | kept: kept, attempts: attempts}, Map.keys(mine)}
    end
  end

  @doc "Notes how a call ended, for the next write."
  def finish(journal, id, state) do
    case Map.pop(journal.attempts, id) do
      {nil, _} -> journal
      {attempt, left} -> finish_attempt(%{journal | attempts: left}, attempt, state)
    end
  end

  @doc "The same for all that have no result. Of some of them nobody knows the outcome, the others have not begun."
  def finish_all(nil, _unknown), do: nil

  def finish_all(journal, unknown) do
    state = &if(&1 in unknown, do: :unknown, else: :interrupted)
    Enum.reduce(Map.keys(journal.attempts), journal, &finish(&2, &1, state.(&1)))
  end

  @doc "The same for an attempt as `earlier/3` returns it."
  def finish_attempt(journal, attempt, state) do
    ended = attempt |> Map.take([:key, :attempt]) |> Map.put(:state, state)
    %{journal | finished: [ended | journal.finished]}
  end

  @doc "Forgets a started call whose result comes later: the store reads that from the conversation."
  def leave(journal, id), do: %{journal | attempts: Map.delete(journal.attempts, id)}

  @doc "Notes that a call waits for others until a time, unless that is `nil`."
  def wait(journal, _call, nil), do: journal

  def wait(journal, call, deadline),
    do: %{journal | waiting: [Map.put(call, :deadline, deadline) | journal.waiting]}

  @doc "Returns `{:ok, arrivals}` with the late results in the store that nobody has taken, or an error."
  def arrivals(%{store: store, kept: kept, arrived: taken}) do
    with {:ok, arrivals} <- fetch_arrivals(store, kept.id),
         do: {:ok, Enum.reject(arrivals, &(&1.key in taken))}
  end

  @doc "The same of a conversation that nobody runs. A store that keeps no late results has none."
  def fetch_arrivals(store, id) do
    if Store.Named.late?(store), do: ask(fn -> Store.arrivals(store, id) end), else: {:ok, []}
  end

  @doc "Notes that late results of these keys are in the conversation."
  def take_arrivals(journal, keys), do: %{journal | arrived: journal.arrived ++ keys}

  @doc "Returns the ids of the pending calls that were started and have not ended, while none runs: `{:ok, ids}` or an error."
  def fetch_unknown(store, id, context) do
    keys = keys(context, Context.pending_tool_calls(context))

    with {:ok, started} <- ask(fn -> Store.calls(store, id, state: :started) end) do
      started = MapSet.new(started, & &1.key)
      {:ok, for({id, key} <- keys, key in started, do: id)}
    end
  end

  @doc """
  Gives up the pending calls of a conversation that does not run. Nobody knows how those ended that were started: `started` is what
  `fetch_unknown/3` returned.
  """
  def cancel(context, started) do
    ids = with {:error, _reason} <- started, do: [], else: ({:ok, ids} -> ids)

    context
    |> Repeat.add_unknown(ids, "the user cancelled the turn")
    |> Context.interrupt("cancelled by the user", status: :cancelled)
  end

  @doc """
  Denies a pending call. Of one that was started before, nobody can say that it was denied: it may have been carried out. Then its result says
  that, and who settled it is noted. Raises the errors of a denial.
  """
  def deny(context, id, reason, opts, started?) do
    denied = Context.Calls.deny_tool_call(context, id, reason, opts)

    if started? do
      notes = Underway.add_notes(context, %{settled: %{id => settlement(reason, opts)}})
      Context.add_tool_results(context, [%{id: id, result: Repeat.make_unknown(reason)}], notes)
    else
      denied
    end
  end

  @doc "The person who settled a call whose outcome nobody knows, and the reason."
  def settlement(reason, opts), do: %{by: opts[:by], reason: reason}

  @doc "The keys of calls of the current iteration, by their ids."
  def keys(context, calls) do
    key = Store.CallKey.keys(context)
    Map.new(calls, &{&1.id, key.(&1.id)})
  end

  @doc "Returns whether the store can hold a call with these arguments."
  def storable?(arguments), do: Conversation.storable?(%{arguments: arguments})

  @doc "Asks a store; whatever goes wrong in it is an error."
  def ask(fun) do
    with {:error, reason} <- fun.(), do: {:error, {:store_error, reason}}
  catch
    kind, reason ->
      label = AshAgent.Runtime.Events.label(kind, reason)
      {:error, {:store_error, %Store.Error{reason: {:unavailable, label}}}}
  end
end
