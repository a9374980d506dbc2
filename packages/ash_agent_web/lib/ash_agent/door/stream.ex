defmodule AshAgent.Door.Stream do
  @moduledoc false

  # What one client hears of a turn, as an enumerable of bytes that the connection's process reads: it subscribes to the session, and
  # whatever becomes of that, of its node and of the store, the last thing that comes is the protocol's end.
  #
  # A client that reads slowly is not waited for: the session tells the process once that it fell behind, and it takes a snapshot. A session
  # that ends is looked for again, wherever it is then.

  alias AshAgent.Context.JSON
  alias AshAgent.Session
  alias AshAgent.Door.Reader

  @enforce_keys [:door, :identity, :reader]
  defstruct @enforce_keys ++
              [
                # Where changes come from: the session's pid, the subscription, and its last number.
                :session,
                :ref,
                :number,
                :context,
                # A snapshot that was not told yet, and what the session did right after it.
                :snapshot,
                :status,
                # When a session that ended is given up, in milliseconds of the monotonic time.
                :deadline,
                # What was told of the application's state.
                :state,
                begun?: false,
                done?: false
              ]

  # So many changes may wait, and so many go into one write.
  @limit 1_000
  @gather 64

  # A session that was not found is looked for again after so many milliseconds.
  @again 200
  @soon 25

  # Why a turn ended, in words for everybody. What an application's code names is not among them.
  @kinds ~w(rate_limited quota overloaded server_error context_overflow unauthorized invalid_request refused timeout closed
            unreachable invalid_response max_iterations_exceeded max_calls_exceeded max_total_tokens_exceeded max_cost_exceeded llm_timeout
            invalid_output output_cut missing_option max_resumes_exceeded store_error deleted unavailable interrupted not_taken)a

  @doc """
  Subscribes to the session of a conversation: `{:ok, stream}`, with the session's status, or `{:error, :not_found | :unavailable}`.
  """
  def open(door, identity, reader) do
    stream = %__MODULE__{door: door, identity: identity, reader: reader}
    again(fn -> subscribe(stream) end)
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
    do: %{stream | reader: Reader.skip(reader, snapshot), snapshot: nil}

  @doc "Ends the subscription."
  def close(%__MODULE__{ref: nil}), do: :ok

  def close(%__MODULE__{session: session, ref: ref}) do
    Session.unsubscribe(session, ref)
  catch
    :exit, _gone -> :ok
  end

  @doc "Returns the bytes, to be read by the process that opened it."
  def bytes(%__MODULE__{} = stream), do: Stream.resource(fn -> stream end, &next/1, &close/1)

  @doc "Takes another snapshot, of which what is new is told."
  def reopen(%__MODULE__{} = stream) do
    close(stream)
    again(fn -> subscribe(stream) end)
  end

  ## Subscribing

  defp subscribe(%{door: %{source: source, place: place}, identity: identity} = stream) do
    with {:ok, session, ref, snapshot, status} <- source.open(place, identity, @limit) do
      deadline = if ref, do: nil, else: stream.deadline
      stream = %{stream | session: session, ref: ref, deadline: deadline}
      {:ok, take(stream, snapshot, status)}
    end
  catch
    # It ended meanwhile, or the sessions are just started again.
    _kind, _reason -> {:error, :unavailable}
  end

  defp take(stream, %{number: number, context: context} = snapshot, status),
    do: %{stream | snapshot: snapshot, number: number, context: context, status: status}

  ## Reading

  defp next(%{done?: true} = stream), do: {:halt, stream}

  defp next(%{snapshot: %{} = snapshot} = stream) do
    {bytes, stream} = tell(%{stream | snapshot: nil}, snapshot)
    {more, stream} = follow(stream)
    {bytes ++ more, stream}
  end

  defp next(%{ref: nil} = stream) do
    case subscribe(stream) do
      {:ok, %{ref: nil, status: :running} = stream} -> wait(stream)
      {:ok, stream} -> {[], %{stream | deadline: nil}}
      {:error, :not_found} -> finish(stream, {:failed, :deleted})
      {:error, :unavailable} -> wait(stream)
    end
  end

  defp next(%{ref: ref} = stream) do
    receive do
      {Session, ^ref, _number, _change} = message -> hear(stream, message)
      {:DOWN, ^ref, :process, _pid, _reason} -> {[], lose(stream)}
    after
      stream.door.heartbeat -> {[": still there\n\n"], stream}
    end
  end

  defp wait(%{deadline: deadline, door: %{patience: patience}} = stream) do
    waited = now() - (deadline - patience)

    if waited > patience do
      finish(stream, {:failed, :unavailable})
    else
      waited |> max(@soon) |> min(@again) |> Process.sleep()
      {[": waiting\n\n"], stream}
    end
  end

  # Where nothing runs, all that the session has to say is here.
  defp follow(%{done?: true} = stream), do: {[], stream}
  defp follow(%{status: :running, ref: nil} = stream), do: {[], lose(stream)}
  defp follow(%{status: :running} = stream), do: {[], stream}

  defp follow(%{status: status} = stream) do
    {bytes, stream} = gather(stream, [], :all)

    cond do
      stream.done? or stream.snapshot != nil ->
        {bytes, stream}

      Reader.found?(stream.reader) ->
        bytes |> add(finish(stream, Reader.outcome(stream.context, status)))

      waits?(stream) ->
        close(stream)
        {bytes, lose(stream)}

      true ->
        bytes |> add(finish(stream, {:failed, :not_taken}))
    end
  end

  # What was said, and no session has yet.
  defp waits?(%{reader: %{turn: {:key, key}}, door: door, identity: identity}) do
    door.source.waits?(door.place, identity, key)
  catch
    _kind, _reason -> false
  end

  defp waits?(_stream), do: false

  defp add(bytes, {more, stream}), do: {bytes ++ more, stream}

  # What waits behind a message goes into the same write.
  defp hear(stream, message) do
    {bytes, stream} = one(stream, message)
    gather(stream, bytes, @gather)
  end

  defp gather(%{done?: done?, snapshot: snapshot} = stream, bytes, left)
       when done? or snapshot != nil or left == 0,
       do: {bytes, acknowledge(stream)}

  defp gather(%{ref: ref} = stream, bytes, left) do
    receive do
      {Session, ^ref, _number, _change} = message ->
        {more, stream} = one(stream, message)
        gather(stream, bytes ++ more, if(left == :all, do: :all, else: left - 1))
    after
      0 -> {bytes, acknowledge(stream)}
    end
  end

  # A session on another node cannot look at how many messages wait here.
  defp acknowledge(%{session: session, ref: ref, number: number} = stream) do
    if ref != nil and node(session) != node(), do: Session.acknowledge(session, ref, number)
    stream
  end

  defp one(%{number: known} = stream, {Session, _ref, number, _change}) when number <= known,
    do: {[], stream}

  defp one(%{session: session} = stream, {Session, _ref, _number, :behind}) do
    {[], take(stream, Session.snapshot(session), Session.status(session))}
  catch
    :exit, _gone -> {[], stream}
  end

  defp one(stream, {Session, _ref, number, {:event, [:run, :stop], _measured, metadata}}) do
    stream = %{stream | number: number}

    # The turn of another. Whether this one's message still waits, the session says.
    if Reader.found?(stream.reader),
      do: finish(stream, outcome(metadata)),
      else: follow(%{stream | status: Session.status(stream.session)})
  catch
    :exit, _gone -> {[], stream}
  end

  defp one(stream, {Session, _ref, number, change}), do: tell(%{stream | number: number}, change)

  defp outcome(%{status: status}) when status in [:answered, :halted], do: :answered
  defp outcome(%{status: :paused}), do: :paused
  defp outcome(%{reason: :cancelled}), do: :cancelled
  defp outcome(%{reason: :parked}), do: :parked
  defp outcome(%{failure: kind}), do: {:failed, kind}
  defp outcome(%{reason: reason}), do: {:failed, reason}

  defp tell(%{reader: reader} = stream, change) do
    {events, reader} = Reader.read(reader, change)
    stream = %{stream | reader: reader, context: context(change) || stream.context}
    {state, stream} = if context(change), do: state(stream), else: {[], stream}
    {bytes, stream} = encode(stream, events ++ state)
    # Another turn has begun.
    if Reader.over?(reader), do: add(bytes, finish(stream, :answered)), else: {bytes, stream}
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

  ## Ends

  # A drained or killed session leaves the turn to another.
  defp lose(%{door: door} = stream),
    do: %{stream | ref: nil, deadline: stream.deadline || now() + door.patience}

  # A session that was drained, or has lost its conversation, has not ended the turn.
  defp finish(%{ref: ref} = stream, {:failed, reason})
       when reason in [:drained, :store_error] and ref != nil do
    receive do
      {:DOWN, ^ref, :process, _pid, _reason} -> {[], lose(stream)}
    after
      @again -> finish_now(stream, {:failed, reason})
    end
  end

  defp finish(stream, outcome), do: finish_now(stream, outcome)

  defp finish_now(%{door: door} = stream, outcome) do
    {events, reader} = Reader.finish(stream.reader, name(stream, outcome))
    {bytes, stream} = encode(%{stream | reader: reader}, events)
    {bytes ++ [door.protocol.last()], %{stream | done?: true}}
  end

  # Outside there are a kind and an id.
  defp name(%{door: door}, {:failed, kind}) do
    kind = if kind in @kinds, do: kind, else: :failed
    {:failed, kind, door.report.(kind)}
  end

  defp name(%{reader: reader, context: context}, :paused),
    do: {:paused, Reader.waiting(reader, context)}

  defp name(_stream, outcome), do: outcome

  defp encode(stream, []), do: {[], stream}

  defp encode(%{door: %{protocol: protocol} = door} = stream, events) do
    begin? = not stream.begun? and Reader.found?(stream.reader)
    opts = [context: stream.context] ++ door.opts
    start = if begin?, do: protocol.begin(stream.reader.turn, opts), else: []
    chunks = start ++ Enum.flat_map(events, &protocol.chunks(&1, opts))
    {[protocol.encode(chunks)], %{stream | begun?: true}}
  end

  defp now, do: System.monotonic_time(:millisecond)
end
