defmodule AshAgent.Store.Late do
  @moduledoc false

  # Late results: which calls wait is read from the conversation itself, so every write keeps their rows, whoever makes it. A key has one
  # row of a result, whatever that is: an answer, a passed deadline, a cancellation, or that the conversation was rewound.

  alias AshAgent.Context
  alias AshAgent.Context.{Calls, JSON, Terms}
  alias AshAgent.Store.{CallKey, Changes, Conversation, Options}

  @open ~w(started unknown waiting)

  ## The rows of a write

  @doc "The fields of a write: calls that wait from now on, and those that do so no longer. `opts` are those of an append."
  def fields(value, lines, opts \\ []) do
    lines = Map.new(lines, &{&1.number, &1.context})
    now = Map.new(Changes.lines(value), &{&1.number, &1.context})
    changes = for {number, context} <- now, do: changes(context, lines[number])
    gone = for {_number, context} <- Map.drop(lines, Map.keys(now)), do: Calls.late_calls(context)
    calls = changes |> Enum.map(&elem(&1, 0)) |> own()
    before = own(gone ++ Enum.map(changes, &elem(&1, 1)))

    waits =
      for {key, %{state: :open} = call} <- calls, not is_map_key(before, key) do
        document = %{for: call.for, call: shown(call)}
        wait(key, call.deadline, digest(whom(call.for)), document)
      end

    # What only a deadline is for waits for nobody.
    more =
      for wait <- opts[:waiting] || [],
          do: wait(wait.key, wait[:deadline], "", %{for: nil, call: wait.call})

    closed =
      for {key, call} <- before, state = state(call, calls[key]), into: %{}, do: {key, state}

    named =
      for state <- [:arrived, :cancelled], key <- opts[state] || [], into: %{}, do: {key, state}

    closed = for {key, state} <- Map.merge(closed, named), do: closed(key, state)
    for {name, [_ | _] = rows} <- [waits: waits ++ more, closed: closed], do: {name, rows}
  end

  # A question has what may be answered, as one does that pauses.
  defp shown(call) do
    shown = Map.take(call, [:id, :name, :arguments, :iteration])

    case call do
      %{question: %{} = question, arguments: %{} = arguments} ->
        Map.merge(shown, %{arguments: Map.merge(arguments, question), question: true})

      _call ->
        shown
    end
  end

  # Those of a line that may have changed, and as they were before.
  defp changes(context, nil), do: {Calls.late_calls(context), []}
  defp changes(context, was), do: Context.Changes.late_calls(context, was)

  # One of a fork or a branch waits elsewhere.
  defp own(lists) do
    for calls <- lists,
        call <- calls,
        call.state != :elsewhere,
        Options.id?(call.handle),
        into: %{},
        do: {call.handle, call}
  end

  defp state(_was, nil), do: :rewound
  defp state(%{state: :open}, %{state: state}) when state != :open, do: :arrived
  defp state(_was, _call), do: nil

  defp wait(key, deadline, whom, document) do
    deadline = deadline && DateTime.to_iso8601(deadline)
    document = document |> Terms.encode!() |> JSON.raw()
    Changes.object([deadline: deadline, whom: whom, document: document] ++ journal_key(key))
  end

  # A map may say more than whom a call waits for.
  defp whom(%{for: whom}), do: whom
  defp whom(whom), do: whom

  defp closed(key, state), do: Changes.object([state: state] ++ journal_key(key))

  @doc "How the tables name the call of a key: by that, and as the journal does if it knows it."
  def journal_key(key) do
    case CallKey.of_arrival(key) do
      {call, attempt} -> [arrival: key, key: call, attempt: attempt]
      nil -> [arrival: key]
    end
  end

  @doc "What terms are found and compared by."
  def digest(term),
    do: :sha256 |> :crypto.hash(Terms.encode!(%{is: term})) |> Base.url_encode64(padding: false)

  ## Results

  @doc "The fields of a result."
  def result(outcome, opts) do
    document = %{outcome: outcome, from: opts[:from], at: opts[:at]}
    kind = if match?({:cancelled, _reason}, outcome), do: :cancelled, else: :arrived
    [kind: kind, digest: digest(outcome), document: document |> Terms.encode!() |> JSON.raw()]
  end

  @doc "The same for a deadline that has passed."
  def passed do
    Keyword.delete(result({:error, :deadline}, from: "deadline"), :kind)
  end

  @doc """
  What becomes of a result, by the row of `AshAgent.Store.SQL.late_call/1`: `{:insert, revision}`, or what whoever delivers it is told.
  """
  def decide(row, own, until \\ nil) do
    with {:insert, _revision} = insert <- decide_of(row, own) do
      if until && DateTime.compare(DateTime.utc_now(), until) == :gt,
        do: {:error, :late},
        else: insert
    end
  end

  defp decide_of([revision, nil, _digest, waits, state], _own)
       when waits != nil or state in @open,
       do: {:insert, Conversation.number(revision)}

  defp decide_of([_revision, nil, _digest, nil, state], _own), do: {:error, refusal(state)}
  defp decide_of([_revision, "rewound", _digest, _waits, _state], _own), do: {:error, :rewound}
  defp decide_of([_revision, _kind, own, _waits, _state], own), do: {:ok, :again}
  defp decide_of([_revision, kind, _digest, _waits, _state], _own), do: {:error, refusal(kind)}

  defp refusal(nil), do: :unknown
  defp refusal("deadline"), do: :late
  defp refusal("rewound"), do: :rewound
  defp refusal(state) when state in ~w(cancelled interrupted denied), do: :cancelled
  defp refusal(_ended), do: :answered

  @doc "A result of a row of `AshAgent.Store.SQL.arrivals/1`."
  def arrival([key, at, document]) do
    %{outcome: outcome, from: from, at: own} = Terms.decode!(document)
    %{key: key, outcome: outcome, from: from, at: own || Conversation.time(at)}
  end

  @doc "A call of a row of `AshAgent.Store.SQL.waits/2`, with what the masks of its conversation leave of it."
  def call([id, key, since, deadline, masks, document]) do
    %{for: whom, call: call} = Terms.decode!(document)
    masks = for list <- JSON.decode!(masks), list != nil, mask <- list, do: mask

    %{
      id: id,
      key: key,
      for: whom,
      since: Conversation.time(since),
      deadline: Conversation.time(deadline),
      call: mask(call, masks)
    }
  end

  defp mask(call, []), do: call

  # The masks of a document, on a conversation of this call alone.
  defp mask(call, masks) do
    # The name may be an atom that this VM does not have.
    shown = call |> Map.take([:id, :name, :arguments]) |> Map.update!(:name, &text/1)
    context = Context.new("-", id: "-") |> Context.add_assistant_message(nil, [shown])
    document = put_in(Context.dump(context), ["view"], %{"covers" => [], "masks" => masks})
    [_user, %{tool_calls: [masked]}] = document |> Context.load!() |> Context.to_messages()
    Map.merge(call, Map.take(masked, [:name, :arguments]))
  end

  defp text(%{name: text}), do: text
  defp text(name), do: name
end
