defmodule AshAgent.Session.Claim do
  @moduledoc false

  # A session's claim on its conversation in a store, and all of the session's calls of the store. A session without a store
  # has `nil` for a claim: then nothing is stored, and nothing fails.

  alias AshAgent.{Context, Store}
  alias AshAgent.Runtime.{Authority, Journal, Late}
  alias AshAgent.Session.{Owner, Parked, Renewer}
  alias AshAgent.Store.Conversation

  #   * `kept` - the newest stored conversation that the session has heard of
  #   * `renewer` - the process that renews the claim, and its monitor
  #   * `renewed_at` - the time of the last renewal, for another process in its place
  #   * `lease` - milliseconds until others may have the conversation if nobody renews the claim
  #   * `stale?` - a run was ended from outside, so that there may be a newer stored conversation
  #   * `taken` - the ids of stored messages that the conversation in memory has, for the next write
  @enforce_keys [:store, :kept, :lease, :renewer, :renewed_at]
  defstruct @enforce_keys ++ [stale?: false, taken: []]

  @doc """
  Claims a conversation for the calling process, or creates it with the context that `initial` returns. The options are
  those of a claim: `:lease`, and `:from` for a conversation that this owner holds for it; and `:max_resumes`.

  Returns `{:ok, claim}` or `{:error, reason}`.
  """
  def open(store, id, opts, initial) do
    with {:ok, kept} <- claim_or_create(store, id, opts, initial),
         :ok <- check_kind(store, kept),
         {:ok, kept} <- load(store, kept, opts[:max_resumes]) do
      known = %{store: store, kept: kept, lease: opts[:lease], renewed_at: Renewer.note_renewal()}
      {:ok, restart_renewer(struct(__MODULE__, known))}
    end
  end

  defp claim_or_create(store, id, opts, initial) do
    own = [owner: Owner.name(self(), opts[:lease]), lease: opts[:lease], load: false]

    case Journal.ask(fn -> Store.claim(store, id, own ++ Keyword.take(opts, [:from])) end) do
      {:error, {:store_error, :not_found}} ->
        with {:ok, context} <- initial.(), do: create(store, context, own, id)

      {:error, {:store_error, {:owned, owner}}} = error ->
        if needless?(store, id, owner),
          do: Journal.ask(fn -> Store.claim(store, id, own ++ [from: owner]) end),
          else: error

      answer ->
        answer
    end
  end

  # A process that is gone will not need its claim again.
  defp needless?(store, id, owner),
    do: Owner.locate(owner) == :gone or distrusted?(store, id, owner)

  # A session that has the claim by now has another name.
  defp distrusted?(store, id, owner) do
    with true <- Store.Named.local_clock?(store),
         {:ok, %{owner: ^owner} = kept} <- Journal.ask(fn -> Store.fetch(store, id) end),
         do: Owner.distrusted?(owner, kept.lease_until),
         else: (_another_or_error -> false)
  end

  defp create(store, context, own, id) do
    if context[:id] == id,
      do: Journal.ask(fn -> Store.create(store, context, Keyword.delete(own, :load)) end),
      else: {:error, :other_id}
  end

  defp check_kind(_store, %Conversation{kind: :context}), do: :ok

  defp check_kind(store, kept) do
    Journal.ask(fn -> Store.release(store, kept) end)
    {:error, :no_context}
  end

  # A store that ignores `:load` has loaded it.
  defp load(_store, %Conversation{value: value} = kept, _max) when value != nil, do: {:ok, kept}

  defp load(store, kept, max) do
    with {:error, reason} = error <- Journal.ask(fn -> Store.fetch(store, kept) end) do
      let_go(store, kept, reason, max)
      error
    end
  end

  # Somebody else tries again, but not for ever where it is the conversation that cannot be read.
  defp let_go(store, kept, {:store_error, reason}, max) do
    cond do
      not unfinished?(store, kept) -> Journal.ask(fn -> Store.release(store, kept) end)
      damaged?(reason) -> count_failure(store, kept, reason, max)
      true -> leave(store, kept)
    end
  end

  # Whoever looks for what is left to do finds it, and not at once: while a deployment lasts, others can read what this one cannot.
  defp leave(store, kept),
    do: Journal.ask(fn -> Store.renew(store, %{kept | lease: max(div(kept.lease, 3), 1)}) end)

  defp damaged?(%Context.Error{}), do: true
  defp damaged?(%Store.Error{reason: {kind, _detail}}), do: kind == :corrupt
  defp damaged?(_refusal), do: false

  # An atom is greater than any number.
  defp count_failure(store, kept, error, max) do
    with {:ok, count} when count + 1 >= max <- count_resumes(store, kept),
         words = Exception.message(error),
         reason = %{reason: :cannot_be_loaded, resumes: count + 1, error: words},
         {:ok, kept} <- note(store, kept, status: :parked, note: %{parked: reason}) do
      Parked.log(kept.id, reason)
      Journal.ask(fn -> Store.release(store, kept) end)
    else
      {:ok, count} ->
        with {:ok, kept} <- note(store, kept, note: %{resumed: count + 1}), do: leave(store, kept)

      {:error, _reason} ->
        leave(store, kept)
    end
  end

  defp note(store, kept, opts),
    do: Journal.ask(fn -> Store.Named.call(store, :note, [kept, opts]) end)

  @doc "Returns true if a stored conversation has a turn that was cut short, or messages that wait."
  def unfinished?(_store, %{status: :running}), do: true
  def unfinished?(_store, %{status: status}) when status in [:paused, :parked], do: false

  def unfinished?(store, kept) do
    Journal.ask(fn -> Store.waiting(store, kept.id) end) != {:ok, []} or
      match?({:ok, [_ | _]}, Journal.fetch_arrivals(store, kept.id))
  end

  @doc "Starts another renewer in the place of one that died."
  def restart_renewer(%__MODULE__{} = claim),
    do: %{claim | renewer: Renewer.start(claim.store, claim.kept, claim.lease, claim.renewed_at)}

  @doc "Ends the claim."
  def release(%__MODULE__{} = claim) do
    with {:ok, _} <- Journal.ask(fn -> Store.release(claim.store, claim.kept) end),
         do: Renewer.stop(claim.renewer)
  end

  @doc "Lets the claim's lease end now, for somebody else to do what is left."
  def hand_over(%__MODULE__{} = claim), do: Renewer.hand_over(claim.store, claim.kept)

  @doc "Returns `{:ok, opts}` with the options that let a run write to the store, or an error."
  def run_options(nil), do: {:ok, []}

  def run_options(%__MODULE__{} = claim) do
    with {:ok, claim} <- refresh(claim), do: {:ok, [store: claim.store, kept: claim.kept]}
  end

  @doc "Fetches the conversation, if there may be a newer one than the session has heard of. Returns `{:ok, claim}` or an error."
  def refresh(%__MODULE__{stale?: false} = claim), do: {:ok, claim}

  def refresh(%__MODULE__{} = claim) do
    with {:ok, kept} <- Journal.ask(fn -> Store.fetch(claim.store, claim.kept) end),
         do: {:ok, %{claim | kept: kept, stale?: false}}
  end

  @doc """
  Writes a context, and of calls how they ended, as the context has it: of all that were started by default. Returns `{:ok, claim}` or
  an error.
  """
  def write(claim, context, status, calls \\ :started, note \\ %{})
  def write(nil, _context, _status, _calls, _note), do: {:ok, nil}

  def write(%__MODULE__{} = claim, context, status, calls, note) do
    with {:ok, claim} <- refresh(claim),
         {:ok, calls} <-
           if(calls == :started, do: fetch_started(claim), else: {:ok, calls}) do
      finished = for call <- calls, do: encode_end(call, context)
      opts = [finished: finished, taken: claim.taken, status: status, note: note]
      closed = Late.closed_waits(claim.kept.value, context)
      append(claim, context, if(closed == [], do: opts, else: [arrived: closed] ++ opts))
    end
  end

  @ended [:ok, :error, :cancelled, :interrupted]

  defp encode_end(%{call: noted} = call, context) do
    status = noted[:id] && Context.Calls.tool_call_status(context, noted.id)
    state = if status in @ended, do: status, else: :unknown
    ended = call |> Map.take([:key, :attempt]) |> Map.put(:state, state)

    # With the person who settled it, if there is one.
    with %{settled: settled} <- call,
         do: Map.put(ended, :call, Map.put(call.call, :settled, settled)),
         else: (_unsettled -> ended)
  end

  @doc """
  Counts how many sessions in a row have gone on with the turn, or could not load it, and ended before they could write anything:
  `{:ok, count}` or an error.
  """
  def count_resumes(store, kept) do
    last = [after: kept.revision - 1]

    with {:ok, writes} <- Journal.ask(fn -> Store.history(store, kept.id, last) end) do
      case List.last(writes) do
        %{note: %{resumed: count}} when is_integer(count) -> {:ok, count}
        _progress -> {:ok, 0}
      end
    end
  end

  @doc "Notes in the history that one more session goes on with the turn. Returns `{:ok, claim}` or an error."
  def note_resume(claim, count), do: append(claim, claim.kept.value, note: %{resumed: count})

  @doc "Gives up a turn: the conversation waits until somebody resumes it. The history says why. Returns `{:ok, claim}` or an error."
  def park(nil, _context, _reason), do: {:ok, nil}

  def park(%__MODULE__{} = claim, context, reason) do
    with {:ok, claim} <- refresh(claim),
         do: append(claim, context, status: :parked, taken: claim.taken, note: %{parked: reason})
  end

  @doc "Stores that the conversation waits for decisions. Returns `{:ok, claim}` or an error."
  def pause(claim), do: append(claim, claim.kept.value, status: :paused)

  defp append(%__MODULE__{kept: kept} = claim, context, opts) do
    taken = if opts[:taken], do: [], else: claim.taken

    with {:ok, kept} <- Journal.ask(fn -> Store.append(claim.store, kept, context, opts) end),
         do: {:ok, %{claim | kept: kept, taken: taken}}
  end

  @doc "Changes the stored conversation, and nothing else. Returns `{:ok, claim}` or an error."
  def change(%__MODULE__{} = claim, fun, note \\ %{}) do
    with {:ok, claim} <- refresh(claim), do: append(claim, fun.(claim.kept.value), note: note)
  end

  @doc "Takes messages out of those that wait. Returns `{:ok, claim}` or an error."
  def forget(claim, []), do: {:ok, claim}

  def forget(%__MODULE__{} = claim, ids) do
    with {:ok, claim} <- refresh(claim), do: append(claim, claim.kept.value, taken: ids)
  end

  @doc "Returns `{:ok, arrivals}` with the late results that nobody has taken, or an error."
  def fetch_arrivals(claim), do: Journal.fetch_arrivals(claim.store, claim.kept.id)

  @doc "Stores a late result. Returns what `AshAgent.Store.arrive/5` returns."
  def arrive(claim, key, outcome, opts),
    do: Store.arrive(claim.store, claim.kept.id, key, outcome, opts)

  @doc "Takes late results out of those that wait, with a context that says so. Returns `{:ok, claim}` or an error."
  def drop_arrivals(%__MODULE__{} = claim, context, keys) do
    with {:ok, claim} <- refresh(claim), do: append(claim, context, arrived: keys)
  end

  @doc "Returns `{:ok, attempts}` with those of a pending call that were started and have not ended, or an error."
  def fetch_attempts(nil, _context, _id), do: {:ok, []}

  def fetch_attempts(%__MODULE__{} = claim, context, id) do
    key = context |> Journal.keys([%{id: id}]) |> Map.fetch!(id)

    with {:ok, started} <- fetch_started(claim),
         do: {:ok, Enum.filter(started, &(&1.key == key))}
  end

  @doc "Returns the ids of the pending calls that were started and have not ended, while none runs: `{:ok, ids}` or an error."
  def fetch_unknown(nil, _context), do: {:ok, []}

  def fetch_unknown(%__MODULE__{} = claim, context) do
    Journal.fetch_unknown(claim.store, claim.kept.id, context)
  end

  defp fetch_started(claim),
    do: Journal.ask(fn -> Store.calls(claim.store, claim.kept.id, state: :started) end)

  @doc """
  Stores a message for later, where the next owner finds it as well, but not the runtime context that it came with. Returns
  `{:ok, id}` or an error.
  """
  def enqueue(nil, _kind, _input, _metadata, _authority), do: {:ok, nil}

  def enqueue(%__MODULE__{} = claim, kind, input, metadata, authority) do
    opts = [kind: kind, metadata: Authority.mark(metadata, authority)]
    Journal.ask(fn -> Store.enqueue(claim.store, claim.kept, input, opts) end)
  end

  @doc "Returns `{:ok, {steers, prompts}}` with the messages that wait, or an error."
  def fetch_waiting(%__MODULE__{} = claim) do
    with {:ok, messages} <- Journal.ask(fn -> Store.waiting(claim.store, claim.kept.id) end) do
      messages = Enum.map(messages, &Authority.unmark/1)
      {:ok, Enum.split_with(messages, &(&1.kind == :steer))}
    end
  end

  @doc "Returns whether a message is in the store after an error: `false`, or `:unknown`."
  def tell_stored({:store_error, %Store.Error{reason: {kind, _}}})
      when kind in [:unavailable, :io],
      do: :unknown

  def tell_stored(_reason), do: false

  @doc "Returns true if an error means that the conversation is another's now."
  def lost?({:store_error, reason}),
    do: reason in [:stale, :not_found] or match?({:owned, _}, reason)

  def lost?(_reason), do: false
end
