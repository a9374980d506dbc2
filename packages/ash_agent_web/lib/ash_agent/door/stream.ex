defmodule AshAgent.Door.Stream do
  @moduledoc false

  # What is heard of a turn: its process subscribes to the session, and whatever becomes of that, of its node and of the store, the last thing
  # that is told is the end. `AshAgent.Door.Feed` is that process, and `AshAgent.Door.Client` gives it to one client.
  #
  # A session does not wait for who hears it slowly: it says once that they fell behind, and they take a snapshot. A session that ends is
  # looked for again, wherever it is then. Where none is within reach, there is what is stored.

  alias AshAgent.Context
  alias AshAgent.Context.JSON
  alias AshAgent.Door.{Client, Feed, Mark, Reader}
  alias AshAgent.Session

  @enforce_keys [:door, :identity, :reader]
  defstruct @enforce_keys ++
              [
                # The process that hears it.
                :feed,
                # Where changes come from: the session's pid, the subscription, and its last number.
                :session,
                :ref,
                :number,
                :context,
                # What the session is called in ids.
                :life,
                # A snapshot that was not told yet, the last one that was, and what the session did right after it.
                :snapshot,
                :seen,
                :status,
                # When a session that ended is given up, in milliseconds of the monotonic time.
                :deadline,
                # How the turn ended.
                :outcome,
                # What was told of the application's state.
                :state,
                # Whether what the turn had before is not told.
                partial?: false,
                # What was told and is not written yet, last first: the mark, the events, the reader before them, and the context.
                told: [],
                done?: false
              ]

  # So many changes may wait.
  @limit 1_000

  # A session on another node cannot look at how many messages wait here, and is told each time after so many.
  @acknowledge 100

  # A session that was not found is looked for again after so many milliseconds, and sooner at first.
  @again 200
  @soon 25

  # Why a turn ended, in words for everybody. What an application's code names is not among them.
  @kinds ~w(rate_limited quota overloaded server_error context_overflow unauthorized invalid_request refused timeout closed
            unreachable invalid_response max_iterations_exceeded max_calls_exceeded max_total_tokens_exceeded max_cost_exceeded llm_timeout
            invalid_output output_cut missing_option max_resumes_exceeded store_error deleted unavailable interrupted not_taken)a

  @doc """
  Subscribes to the session of a conversation: `{:ok, stream}`, with the session's status, or `{:error, :not_found | :unavailable}`. Whoever opens it
  reads or closes it.
  """
  def open(door, identity, reader),
    do: Feed.start(%__MODULE__{door: door, identity: identity, reader: reader})

  @doc "Opens a stream anew, which tells what is new since then."
  def reopen(%__MODULE__{} = stream) do
    close(stream)
    Feed.start(stream)
  end

  @doc "Does something that a session which just ends may make `{:error, :unavailable}`, and that can be done again."
  def again(fun, times \\ 3) do
    case fun.() do
      {:error, :unavailable} when times > 1 ->
        Process.sleep(@again)
        again(fun, times - 1)

      answer ->
        answer
    end
  end

  @doc "Takes what the conversation has for known, so that only what comes is told."
  def skip(%__MODULE__{snapshot: snapshot, reader: reader} = stream),
    do: %{stream | reader: Reader.skip(reader, snapshot), snapshot: nil, partial?: true}

  @doc "Ends a stream that is not read."
  def close(%__MODULE__{feed: feed}) do
    Feed.close(feed)
    :ok
  end

  @doc "Returns the bytes, to be read by the process that opened it."
  defdelegate bytes(stream), to: Client

  @doc "Whether a message was said that no session has yet."
  def waits?(%{reader: %{turn: {:key, key}}, door: door, identity: identity}) do
    door.source.waits?(door.place, identity, key)
  catch
    _kind, _reason -> false
  end

  def waits?(_stream), do: false

  @doc "What went wrong, in words for everybody."
  def kind(kind), do: if(kind in @kinds, do: kind, else: :failed)

  ## In the process that hears it

  @doc "Subscribes this process. Returns what `open/3` does."
  def subscribe(%{door: %{source: source, place: place}, identity: identity} = stream) do
    with {:ok, session, ref, snapshot, status} <- source.open(place, identity, @limit),
         do: {:ok, take(%{stream | session: session, ref: ref}, snapshot, status)}
  catch
    # It ended meanwhile, or the sessions are just started again.
    _kind, _reason -> {:error, :unavailable}
  end

  defp take(stream, %{number: number, context: context} = snapshot, status) do
    life = Mark.name({stream.identity.conversation, stream.session})
    stream = %{stream | snapshot: snapshot, number: number, context: context, status: status}
    begins? = stream.reader.turn == :current and status == :running and not runs?(stream)
    reader = if begins?, do: Reader.new({:after, context.current_iteration}), else: stream.reader
    %{stream | life: life, reader: reader}
  end

  @doc "Whether the last turn of the conversation runs. What is said is not in the conversation before the turn's first write."
  def runs?(%{status: status, context: context}),
    do: status == :running and not Context.outline(context).answered?

  @doc "Ends the subscription."
  def unsubscribe(%{ref: nil} = stream), do: stream

  def unsubscribe(%{session: session, ref: ref} = stream) do
    Session.unsubscribe(session, ref)
    %{stream | ref: nil}
  catch
    :exit, _gone -> %{stream | ref: nil}
  end

  @doc "Tells what there is."
  def begin(%{snapshot: nil} = stream), do: follow(stream)

  def begin(%{snapshot: snapshot} = stream),
    do: %{stream | snapshot: nil, seen: snapshot} |> tell(snapshot) |> follow()

  @doc "Tells what a message of the session says."
  def hear(%{number: known} = stream, {Session, _ref, number, _change}) when number <= known,
    do: stream

  def hear(stream, {Session, _ref, _number, :behind}), do: catch_up(stream)

  def hear(stream, {Session, _ref, number, {:event, [:run, :stop], _measured, metadata}}) do
    stream = %{stream | number: number}

    # The turn of another. Whether this one's message still waits, the session says.
    if Reader.found?(stream.reader),
      do: finish(stream, outcome(metadata), false),
      else: follow(%{stream | status: Session.status(stream.session)})
  catch
    :exit, _gone -> stream
  end

  def hear(%{session: session, ref: ref} = stream, {Session, _ref, number, change}) do
    if node(session) != node() and rem(number, @acknowledge) == 0,
      do: Session.acknowledge(session, ref, number)

    tell(%{stream | number: number}, change)
  end

  @doc "Tells what is known by now, if the session is within reach."
  def catch_up(%{ref: ref, done?: done?} = stream) when ref == nil or done?, do: stream

  def catch_up(%{session: session} = stream) do
    stream |> take(Session.snapshot(session), Session.status(session)) |> begin()
  catch
    :exit, _gone -> stream
  end

  @doc "Returns the events of what is known by now and a reader was not told. They are never those of a session that is lost."
  def rest(%{done?: false, seen: seen} = stream, reader),
    do: (reader |> Reader.read(seen) |> elem(0)) ++ known_state(stream)

  def rest(%{context: context, outcome: outcome} = stream, reader) do
    {events, reader} = Reader.read(reader, %{context: context, message: nil, activity: []})
    {ended, _reader} = Reader.finish(reader, outcome)
    events ++ known_state(stream) ++ ended
  end

  defp known_state(%{state: nil}), do: []
  defp known_state(%{state: state}), do: [{:state, state}]

  # Where nothing runs, all that the session has to say is here.
  defp follow(%{done?: true} = stream), do: stream
  defp follow(%{status: :running, ref: nil} = stream), do: lose(stream)
  defp follow(%{status: :running} = stream), do: %{stream | deadline: nil}

  defp follow(%{status: status} = stream) do
    stream = drain(stream)

    cond do
      stream.done? or stream.status == :running ->
        stream

      Reader.found?(stream.reader) ->
        finish(stream, Reader.outcome(stream.context, status))

      waits?(stream) ->
        stream |> unsubscribe() |> put_deadline() |> wait()

      # No other turn came: the last one was just over.
      match?({:after, _}, stream.reader.turn) ->
        stream = if stream.seen, do: tell_last(stream), else: stream
        finish(stream, Reader.outcome(stream.context, status))

      true ->
        finish(stream, {:failed, :not_taken})
    end
  end

  defp tell_last(stream), do: tell(%{stream | reader: Reader.new(:current)}, stream.seen)

  defp drain(%{ref: nil} = stream), do: stream

  defp drain(%{ref: ref} = stream) do
    receive do
      {Session, ^ref, _number, _change} = message -> stream |> hear(message) |> drain()
    after
      0 -> stream
    end
  end

  defp outcome(%{status: status}) when status in [:answered, :halted], do: :answered
  defp outcome(%{status: :paused}), do: :paused
  # It goes on when late results have come.
  defp outcome(%{status: :waiting}), do: :parked
  defp outcome(%{reason: :cancelled}), do: :cancelled
  defp outcome(%{reason: :parked}), do: :parked
  defp outcome(%{failure: kind}), do: {:failed, kind}
  defp outcome(%{reason: reason}), do: {:failed, reason}

  defp tell(%{reader: reader} = stream, change) do
    {events, next} = Reader.read(reader, change)
    stream = %{stream | reader: next, context: context(change) || stream.context}
    {state, stream} = if context(change), do: state(stream), else: {[], stream}
    stream = put_told(stream, is_map(change), events ++ state, reader)
    # Another turn has begun.
    if Reader.over?(next) and not stream.done?, do: finish(stream, :answered), else: stream
  end

  # The application makes it. Without one there is nothing to tell.
  defp state(%{door: %{opts: opts}, context: context, state: told, reader: reader} = stream) do
    fun = opts[:state]
    state = if fun && Reader.found?(reader), do: fun.(context)
    _json = JSON.encode(state)
    if state in [nil, told], do: {[], stream}, else: {[{:state, state}], %{stream | state: state}}
  catch
    _kind, _reason ->
      stream.door.report.(:state)
      {[], stream}
  end

  defp context(%{context: context}), do: context
  defp context({:context, context}), do: context
  defp context(_other), do: nil

  defp put_told(stream, _snapshot?, [], _reader), do: stream

  # Others have the same mark for a change, but not for a snapshot.
  defp put_told(%{life: life, number: number} = stream, snapshot?, events, reader) do
    turn = if Reader.found?(stream.reader), do: stream.reader.turn, else: 0
    mark = {life, turn, number, if(snapshot?, do: Mark.name(self()))}
    %{stream | told: [{mark, events, reader, stream.context} | stream.told]}
  end

  ## Ends

  @doc "Looks for another session. A drained or killed one leaves the turn to it."
  def lose(stream) do
    send(self(), :look_again)
    put_deadline(%{stream | ref: nil})
  end

  defp put_deadline(%{door: door} = stream),
    do: %{stream | deadline: stream.deadline || now() + door.patience}

  @doc "Subscribes again, or does so soon, as the first of these identities that may."
  def look_again(stream, identities) do
    case subscribe_as(identities, stream) do
      # A turn that has no session yet.
      {:ok, %{ref: nil, status: :running} = stream} -> wait(stream)
      {:ok, stream} -> begin(stream)
      {:error, :not_found} -> finish(stream, {:failed, :deleted})
      {:error, :unavailable} -> wait(stream)
    end
  end

  defp subscribe_as([identity | others], stream) do
    with {:error, :not_found} when others != [] <- subscribe(%{stream | identity: identity}),
         do: subscribe_as(others, stream)
  end

  defp wait(%{deadline: deadline, door: %{patience: patience}} = stream) do
    waited = now() - (deadline - patience)

    if waited > patience do
      finish(stream, {:failed, :unavailable})
    else
      Process.send_after(self(), :look_again, waited |> max(@soon) |> min(@again))
      stream
    end
  end

  # A session that was drained, or has lost its conversation, has not ended the turn.
  defp finish(stream, outcome, snapshot? \\ true)

  defp finish(%{ref: ref} = stream, {:failed, reason} = outcome, snapshot?)
       when reason in [:drained, :store_error] and ref != nil do
    receive do
      {:DOWN, ^ref, :process, _pid, _reason} -> lose(stream)
    after
      @again -> finish_now(stream, outcome, snapshot?)
    end
  end

  defp finish(stream, outcome, snapshot?), do: finish_now(stream, outcome, snapshot?)

  defp finish_now(stream, outcome, snapshot?) do
    outcome = name(stream, outcome)
    {events, reader} = Reader.finish(stream.reader, outcome)
    stream = put_told(%{stream | reader: reader}, snapshot?, events, stream.reader)
    %{stream | done?: true, outcome: outcome}
  end

  # Outside there are a kind and an id.
  defp name(%{door: door}, {:failed, kind}),
    do: {:failed, kind(kind), door.report.(kind(kind))}

  defp name(%{reader: reader, context: context}, :paused),
    do: {:paused, Reader.waiting(reader, context)}

  defp name(_stream, outcome), do: outcome

  defp now, do: System.monotonic_time(:millisecond)
end
