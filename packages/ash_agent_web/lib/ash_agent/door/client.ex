defmodule AshAgent.Door.Client do
  @moduledoc false

  # What one client gets of a turn: bytes that the connection's process reads, and that always end with the protocol's end.

  alias AshAgent.{Context, Door}
  alias AshAgent.Door.{Feed, Mark, Reader}

  # What of a request concerns nobody else, and what of who asks says whether they may read.
  @own [:run, :again?, :since, :request]
  @who [:conversation, :actor, :tenant, :context]

  @doc "Returns the bytes of a stream, to be read by the process that opened it."
  def bytes(%Door.Stream{} = stream), do: resource(stream, fn -> share(stream) end, nil)

  @doc """
  Returns the bytes of a turn behind the event that `since` names: `{:ok, bytes}`, or `:nothing` if nothing came and comes behind it, and `:unknown` if
  nobody here knows it.
  """
  def since(%Door.Stream{} = stream, turn, since) do
    with {:ok, feed} <- Feed.find(key(stream, turn, stream.context)),
         true <- numbered?(feed, since, stream.door.opts[:run]),
         {:ok, monitor} <- Feed.join(feed, who(stream), since, false) do
      Door.Stream.close(stream)
      {:ok, resource(stream, fn -> {feed, monitor} end, since)}
    else
      :nothing -> :nothing
      _gone -> :unknown
    end
  end

  # A number is one of the feed whose tag the client has.
  defp numbered?(feed, {:seq, _number}, run), do: run[:tag] == Mark.name(feed)
  defp numbered?(_feed, _id, _run), do: true

  @doc "Lets a stream be heard that nobody reads yet, and returns the feed."
  def follow(%Door.Stream{} = stream) do
    {feed, monitor} = share(stream)
    if monitor, do: Process.demonitor(monitor, [:flush])
    Feed.leave(feed)
    feed
  end

  ## Where it comes from

  # Who comes to a turn that others here are told of is told with them. Whether they may, their own stream was asked when it was opened.
  defp share(%{reader: reader, context: context} = stream) do
    case Feed.find(key(stream, Reader.name(reader, context), context)) do
      {:ok, feed} -> share(stream, feed)
      :error -> begin(stream)
    end
  end

  defp share(%{partial?: partial?, status: status} = stream, feed) do
    case Feed.join(feed, who(stream), nil, status == :running) do
      {:ok, monitor} when not partial? ->
        Door.Stream.close(stream)
        {feed, monitor}

      # This client has been told what the others begin with.
      {:ok, monitor} ->
        Process.demonitor(monitor, [:flush])
        Feed.leave(feed)
        begin(stream)

      _ended_or_gone ->
        begin(stream)
    end
  end

  defp begin(%{feed: feed, door: door} = stream) do
    own = %{stream | door: %{door | opts: Keyword.drop(door.opts, @own)}, identity: who(stream)}

    with :ok <- Feed.activate(feed, own, &key(own, &1, &2)),
         {:ok, monitor} <- Feed.join(feed, own.identity, :all, true) do
      {feed, monitor}
    else
      {:shared, other} -> share(stream, other)
      _gone -> {feed, nil}
    end
  end

  # Where a turn was taken back, another one begins with the same iteration.
  defp key(%{door: %{source: source, opts: opts} = door, identity: identity}, turn, context) do
    began = if is_integer(turn), do: Context.get_iteration(context, turn)
    began = if began, do: began.started_at

    {source, source.name(door.place, identity), door.protocol, opts[:ai], opts[:state], turn,
     began}
  end

  defp who(%{identity: identity}), do: Map.take(identity, @who)

  ## Reading

  defp resource(%{door: door, context: context, session: session} = stream, join, since) do
    start = fn ->
      {feed, monitor} = join.()
      client = %{feed: feed, monitor: monitor, door: door, context: context, since: since}
      client = Map.merge(client, %{identity: who(stream), session: session})
      Map.merge(client, %{begun?: false, asked?: false, over?: monitor == nil})
    end

    Stream.resource(start, &next/1, &Feed.leave(&1.feed))
  end

  defp next(%{over?: true, monitor: nil} = client), do: fail(client, :unavailable)
  defp next(%{over?: true} = client), do: {:halt, client}

  defp next(%{feed: feed, monitor: monitor, asked?: asked?} = client) do
    unless asked?, do: Feed.take(feed)

    receive do
      {Feed, ^feed, chunks, turn, over?, session} ->
        case see(client, session) do
          :ok -> write(%{client | asked?: false, over?: over?, session: session}, chunks, turn)
          {:error, :not_found} -> fail(client, :deleted)
          _unknown -> fail(client, :unavailable)
        end

      {:DOWN, ^monitor, :process, _pid, _reason} ->
        fail(client, :unavailable)
    after
      client.door.heartbeat -> {[": still there\n\n"], %{client | asked?: true}}
    end
  end

  # A subscription is a right until its session ends. Who goes on with another one is asked again.
  defp see(%{session: session}, session), do: :ok

  defp see(%{door: %{source: source, place: place}, identity: identity}, _another) do
    source.see(place, identity)
  catch
    _kind, _reason -> {:error, :unavailable}
  end

  defp write(%{over?: over?} = client, chunks, turn) do
    {begun, client} = begun(client, turn)
    last = if over?, do: [client.door.protocol.last()], else: []
    {begun ++ Enum.map(chunks, &bytes(&1, client)) ++ last, client}
  end

  # Whose feed has died, or who may not go on, gets the end from here.
  defp fail(%{door: door} = client, kind) do
    outcome = {:failed, kind, door.report.(kind)}

    {[
       own({nil, {:end, outcome}, client.context, door.protocol.shape()}, 0, client),
       door.protocol.last()
     ], %{client | over?: true, monitor: :gone}}
  end

  # Who goes on behind an event has had the beginning, of which the first numbers are.
  defp begun(%{begun?: true} = client, _turn), do: {[], client}

  defp begun(%{since: {mark, _place}} = client, _turn) when is_tuple(mark),
    do: {[], %{client | begun?: true}}

  defp begun(client, nil), do: {[], client}

  defp begun(%{door: %{protocol: protocol, opts: opts}} = client, turn) do
    first = with {:seq, seq} <- client.since, do: seq + 1, else: (nil -> 0)
    opts = [context: client.context, tag: Mark.name(client.feed)] ++ opts
    chunks = turn |> protocol.begin(opts) |> Enum.with_index()
    bytes = for {chunk, seq} <- chunks, seq >= first, do: protocol.record(chunk, seq, nil)
    {bytes, %{client | begun?: true}}
  end

  defp bytes({_seq, _place, bytes}, _client) when is_binary(bytes), do: bytes
  defp bytes({seq, _place, own}, client), do: own(own, seq, client)

  # The id comes with the last of its chunks: whoever had no more than the others gets all of them again.
  defp own({id, event, context, shape}, seq, %{door: %{protocol: protocol, opts: opts}} = client) do
    opts = [context: context, tag: Mark.name(client.feed)] ++ opts

    chunks =
      if shape,
        do: event |> protocol.chunks(shape, opts) |> elem(0),
        else: protocol.chunks(event, opts)

    last = length(chunks) - 1

    for {chunk, index} <- Enum.with_index(chunks),
        do: protocol.record(chunk, seq, if(index == last, do: id))
  end
end
