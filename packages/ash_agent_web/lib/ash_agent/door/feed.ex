defmodule AshAgent.Door.Feed do
  @moduledoc false

  # A process that hears a turn for all clients of this node that speak a protocol: it subscribes to the session once, and writes each event
  # once. A client asks for what comes next when it is done with what came before, so nothing waits for a slow one but what all of them
  # share, and that is bounded. Who is behind the bound is told so, and gets what the conversation has more than it was told.
  #
  # What one change of the session became is a batch of chunks. A chunk is `{seq, place, bytes}`, with its number in this feed and its place
  # in what the change became, or `{seq, place, {id, event, context, shape}}` for an event that each client has to write itself.

  require Logger

  alias AshAgent.Door.{Mark, Reader, Stream, Template}
  alias AshAgent.Runtime.Events
  alias AshAgent.Session

  #   * `stream` - what is heard of the session
  #   * `key` - a function from a turn and a context to what clients find it by
  #   * `shape` - what the protocol knows of what it has written, if it wants to
  #   * `template` - the block whose pieces come, and how they are written
  #   * `batches` - `{mark, chunks, reader, shape}` by number, from `low` to `high - 1`, with what was told before it
  #   * `bytes` - of all of them
  #   * `seq` - the number of the next chunk. A protocol's beginning may have up to two.
  #   * `last` - the mark of the last batch, and the next place in it
  #   * `partial?` - whether what the turn had before is not in it
  #   * `clients` - by pid: its monitor, who it is, the number of its next batch, or `{reader, shape}` if that is not kept, and the chunks before it
  #   * `waiting` - the clients that wait for the next batch
  defstruct [
    :stream,
    :key,
    :shape,
    :template,
    :last,
    found?: false,
    seq: 2,
    low: 0,
    high: 0,
    bytes: 0,
    partial?: false,
    batches: %{},
    clients: %{},
    waiting: []
  ]

  # So many changes and bytes of a turn are kept for who comes back, and up to twice as many before the older ones go.
  @kept 2_000
  @bytes 4_000_000

  # So many batches go into one write.
  @gather 64

  # How long the last events of a turn are kept after its end.
  @linger 60_000

  ## In the client

  @doc """
  Starts a process that subscribes a stream, and waits for `activate/3`. Returns what `AshAgent.Door.Stream.subscribe/1` returns there.
  """
  def start(stream) do
    {client, ref} = {self(), make_ref()}
    open = fn -> run(fn -> open(stream, client, ref) end) end
    {:ok, feed} = Task.Supervisor.start_child(__MODULE__.Supervisor, open)
    await(Process.monitor(feed), ref, {:error, :unavailable})
  end

  @doc "Ends a process that was not activated."
  def close(feed), do: send(feed, {:close, self()})

  @doc """
  Lets a process tell what `stream` has, and what it hears from now on, to all who find it by the key that `keys` returns for the turn. Returns `:ok`, or `{:shared, feed}` if others have that turn already.
  """
  def activate(feed, stream, keys) do
    monitor = Process.monitor(feed)
    send(feed, {:activate, self(), monitor, stream, keys})
    await(monitor, monitor, {:error, :unavailable})
  end

  @doc "Finds the feed of a turn by its key: `{:ok, feed}` or `:error`."
  def find(key) do
    case Registry.lookup(__MODULE__.Names, key) do
      [{feed, _}] -> {:ok, feed}
      [] -> :error
    end
  end

  @doc """
  Makes this process a client with an identity, which gets everything, or what comes behind the id `since`. Returns `{:ok, monitor}`, `:nothing` if nothing came and
  comes behind it, `:unknown` if the feed does not know it, or is gone, and `:ended` if the turn `goes_on?` without it.
  """
  def join(feed, identity, since, goes_on?) do
    monitor = Process.monitor(feed)
    send(feed, {:join, {self(), identity}, monitor, since, goes_on?})

    receive do
      {^monitor, :ok} ->
        {:ok, monitor}

      {^monitor, answer} ->
        Process.demonitor(monitor, [:flush])
        answer

      {:DOWN, ^monitor, :process, _pid, _reason} ->
        :unknown
    end
  end

  defp await(monitor, ref, gone) do
    receive do
      {^ref, answer} ->
        Process.demonitor(monitor, [:flush])
        answer

      {:DOWN, ^monitor, :process, _pid, _reason} ->
        gone
    end
  end

  @doc "Asks for what comes next, which is sent as `{AshAgent.Door.Feed, feed, chunks, turn, over?, session}`."
  def take(feed), do: send(feed, {:take, self()})

  @doc "Makes this process no client any more."
  def leave(feed), do: send(feed, {:leave, self()})

  ## The process

  # A crash report would have what people said.
  defp run(fun) do
    fun.()
  catch
    kind, reason ->
      label = Events.label(kind, reason)
      Logger.error("a process that streams a turn ended: #{inspect(label)}")
      exit({:shutdown, label})
  end

  defp open(stream, client, ref) do
    monitor = Process.monitor(client)
    answer = Stream.again(fn -> Stream.subscribe(%{stream | feed: self()}) end)
    send(client, {ref, answer})

    with {:ok, _stream} <- answer, {:ok, feed} <- hold(client, monitor) do
      feed |> tell(&Stream.begin/1) |> loop()
    end
  end

  # What the session sends meanwhile waits.
  defp hold(client, monitor) do
    receive do
      {:activate, ^client, ask, stream, keys} ->
        shape = stream.door.protocol.shape()
        feed = %__MODULE__{stream: stream, key: keys, shape: shape}
        name = Reader.name(stream.reader, stream.context)
        {answer, feed} = register(%{feed | partial?: stream.partial?}, name)
        send(client, {ask, answer})

        if answer == :ok do
          Process.demonitor(monitor, [:flush])
          {:ok, feed}
        else
          # The other one may be gone before the client has joined it.
          hold(client, monitor)
        end

      {:close, ^client} ->
        :closed

      {:DOWN, ^monitor, :process, _pid, _reason} ->
        :closed
    end
  end

  defp register(%{key: keys, stream: stream} = feed, name) do
    feed = %{feed | found?: is_integer(name)}

    case Registry.register(__MODULE__.Names, keys.(name, stream.context), nil) do
      {:ok, _pid} -> {:ok, feed}
      # What only its own client needs, others are not told.
      {:error, {_, _pid}} when feed.partial? -> {:ok, feed}
      {:error, {_, other}} -> {{:shared, other}, feed}
    end
  end

  defp loop(%{stream: %{ref: ref}} = feed) do
    receive do
      {Session, ^ref, _number, _change} = message ->
        feed |> tell(&Stream.hear(&1, message)) |> loop()

      {:take, client} ->
        feed |> serve(client) |> loop()

      {:join, client, ask, since, goes_on?} ->
        {answer, feed} = admit(feed, client, since, goes_on?)
        send(elem(client, 0), {ask, answer})
        loop(feed)

      {:leave, client} ->
        feed |> remove(client) |> loop()

      {:DOWN, ^ref, :process, _session, _reason} when ref != nil ->
        feed |> tell(&Stream.lose/1) |> loop()

      {:DOWN, _monitor, :process, client, _reason} ->
        feed |> remove(client) |> loop()

      :look_again ->
        feed |> tell(&Stream.look_again(&1, identities(feed))) |> loop()

      :over ->
        if feed.clients != %{}, do: feed |> linger() |> loop()

      _late ->
        loop(feed)
    end
  end

  # Whoever it was opened for may have lost the right that others have.
  defp identities(%{clients: clients, stream: %{identity: own}}),
    do: Enum.uniq([own | for({_pid, %{identity: identity}} <- clients, do: identity)])

  defp linger(feed) do
    Process.send_after(self(), :over, @linger)
    feed
  end

  ## What is told

  defp tell(%{stream: %{done?: true}} = feed, _change), do: feed

  defp tell(feed, change) do
    stream = change.(feed.stream)
    feed = stream.told |> Enum.reverse() |> Enum.reduce(%{feed | stream: stream}, &add(&2, &1))
    feed = serve_waiting(name(%{feed | stream: %{stream | told: []}}))

    if stream.done?, do: finish(feed), else: feed
  end

  # Nobody falls behind any more, and what is kept for those who come back is to be small.
  defp finish(%{batches: batches} = feed) do
    batches = Map.new(batches, fn {n, {mark, chunks, _, _}} -> {n, {mark, chunks, nil, nil}} end)
    feed = linger(%{feed | batches: batches, stream: Stream.unsubscribe(feed.stream)})
    :erlang.garbage_collect()
    feed
  end

  # A message that was just said has a turn now.
  defp name(%{found?: false, stream: %{reader: %{turn: turn}}} = feed) when is_integer(turn) do
    {_answer, feed} = register(feed, turn)
    feed
  end

  defp name(feed), do: feed

  # One more piece of a block, as nearly all changes are.
  defp add(feed, {mark, [{kind, id, text}], reader, context}) when kind in [:text, :thinking] do
    %{shape: shape, seq: seq, stream: %{door: %{protocol: protocol, opts: opts}}} = feed
    {_chunks, after_} = shaped(protocol, {kind, id, text}, shape, opts)
    feed = put_template(feed, kind, id, context)
    place = place(feed, mark)
    bytes = Template.fill(elem(feed.template, 1), seq, Mark.id(mark, place), text)
    feed = %{feed | shape: after_, seq: seq + 1}
    put_batch(feed, {mark, place + 1}, {mark, [{seq, place, bytes}], reader, shape})
  end

  defp add(%{shape: shape, seq: seq} = feed, {mark, events, reader, context}) do
    place = place(feed, mark)
    {pieces, shape_after} = write(feed, events, shape, context)
    chunks = number(feed, pieces, &{seq + &1, place + &1, Mark.id(mark, place + &1)})
    feed = %{feed | shape: shape_after, seq: seq + length(chunks), template: nil}
    put_batch(feed, {mark, place + length(chunks)}, {mark, chunks, reader, shape})
  end

  # What came of the same change before is in front of it.
  defp place(%{last: {mark, place}}, mark), do: place
  defp place(_feed, _mark), do: 0

  defp put_template(%{template: {{kind, id}, _template}} = feed, kind, id, _context), do: feed

  defp put_template(%{shape: shape} = feed, kind, id, context) do
    {chunks, _shape} = write(feed, [{kind, id, Template.text()}], shape, context)
    template = Template.new(feed.stream.door.protocol, chunks)
    %{feed | template: {{kind, id}, template}}
  end

  defp put_batch(feed, _last, {_mark, [], _reader, _shape}), do: feed

  defp put_batch(%{high: high} = feed, last, {_mark, chunks, _reader, _shape} = batch) do
    bytes = feed.bytes + size(chunks)
    batches = Map.put(feed.batches, high, batch)
    forget(%{feed | batches: batches, high: high + 1, last: last, bytes: bytes})
  end

  # What the protocol makes of events, and what its client has to write itself.
  defp write(%{stream: %{door: %{protocol: protocol, opts: opts}}}, events, shape, context) do
    opts = [context: context] ++ opts

    Enum.flat_map_reduce(events, shape, fn event, shape ->
      if protocol.own?(event),
        do: {[{:own, event, context, shape}], shape},
        else: shaped(protocol, event, shape, opts)
    end)
  end

  defp number(%{stream: %{door: %{protocol: protocol}}}, pieces, number) do
    for {piece, index} <- Enum.with_index(pieces) do
      {seq, place, id} = number.(index)

      case piece do
        {:own, event, context, shape} -> {seq, place, {id, event, context, shape}}
        chunk -> {seq, place, IO.iodata_to_binary(protocol.record(chunk, seq, id))}
      end
    end
  end

  defp shaped(protocol, event, nil, opts), do: {protocol.chunks(event, opts), nil}
  defp shaped(protocol, event, shape, opts), do: protocol.chunks(event, shape, opts)

  defp size(chunks) do
    Enum.reduce(chunks, 0, fn
      {_seq, _place, bytes}, size when is_binary(bytes) -> size + byte_size(bytes)
      _own, size -> size
    end)
  end

  # The older ones go, all at once: to look for those who still need them takes a while.
  defp forget(%{low: low, high: high, bytes: bytes} = feed)
       when high - low <= 2 * @kept and (bytes <= 2 * @bytes or high - low <= 1),
       do: feed

  defp forget(%{low: low, high: high} = feed) do
    {new, bytes} = keep(feed, high - 1, 0)

    clients =
      Map.new(feed.clients, fn {pid, client} -> {pid, leave_behind(client, feed, new)} end)

    batches = Map.drop(feed.batches, Enum.to_list(low..(new - 1)//1))
    %{feed | low: new, bytes: bytes, batches: batches, clients: clients}
  end

  # The first one that is kept. The last one always is.
  defp keep(%{low: low, high: high} = feed, number, bytes) do
    bytes = bytes + size(chunks(feed, number))
    before = if number > low, do: size(chunks(feed, number - 1)), else: 0

    if number == low or high - number >= @kept or bytes + before > @bytes,
      do: {number, bytes},
      else: keep(feed, number - 1, bytes)
  end

  defp chunks(%{batches: batches}, number), do: elem(batches[number], 1)

  defp leave_behind(%{next: next} = client, feed, new) when is_integer(next) and next < new do
    {_mark, _chunks, reader, shape} = feed.batches[next]
    %{client | next: {reader, shape}, before: client.before ++ [{0, 0, ": behind\n\n"}]}
  end

  defp leave_behind(client, _feed, _new), do: client

  ## Clients

  defp admit(%{stream: %{done?: true}} = feed, _client, nil, true) do
    for key <- Registry.keys(__MODULE__.Names, self()),
        do: Registry.unregister(__MODULE__.Names, key)

    {:ended, feed}
  end

  defp admit(feed, {client, identity}, since, _goes_on?) do
    case find_place(feed, since) do
      {next, before} ->
        known = %{monitor: Process.monitor(client), next: next, before: before}
        known = Map.put(known, :identity, identity)
        {:ok, %{feed | clients: Map.put(feed.clients, client, known)}}

      answer ->
        {answer, feed}
    end
  end

  # The client that it was started for gets what it has.
  defp find_place(_feed, :all), do: {0, []}

  defp find_place(%{partial?: partial?, low: low} = feed, nil) when partial? or low > 0 do
    %{stream: %{reader: %{turn: turn}, context: context, door: door}} = feed
    {{Reader.new({turn, context.current_iteration}), door.protocol.shape()}, []}
  end

  defp find_place(_feed, nil), do: {0, []}
  defp find_place(%{low: 0, partial?: false}, {:seq, seq}) when seq in 0..1, do: {0, []}

  defp find_place(%{low: low, high: high} = feed, since) do
    # Its first chunk was told, or comes right behind what was told.
    known =
      Enum.find((high - 1)..low//-1, &told?(elem(feed.batches[&1], 0), chunks(feed, &1), since))

    behind(feed, known, since)
  end

  defp told?(_mark, [{first, _, _} | _], {:seq, seq}), do: first <= seq + 1

  defp told?({life, _, number, _tag}, _chunks, {{life, _, since, _}, _place}), do: number <= since
  defp told?(_mark, _chunks, _since), do: false

  defp behind(_feed, nil, _since), do: :unknown

  defp behind(%{high: high} = feed, known, {:seq, seq}) do
    if seq >= feed.seq,
      do: :unknown,
      else: left(feed, Enum.filter(chunks(feed, known), &(elem(&1, 0) > seq)), known + 1, high)
  end

  defp behind(
         %{batches: batches, stream: stream} = feed,
         known,
         {{life, _, number, tag} = mark, place}
       ) do
    case batches[known] do
      {^mark, _chunks, _reader, _shape} ->
        # What followed a snapshot may be more than one batch.
        same = Enum.take_while(known..feed.low//-1, &(elem(batches[&1], 0) == mark))
        chunks = same |> Enum.reverse() |> Enum.flat_map(&chunks(feed, &1))
        left(feed, Enum.filter(chunks, &(elem(&1, 1) > place)), known + 1, feed.high)

      # That change became nothing here.
      {{_, _, earlier, _}, _, _, _} when tag == nil and earlier < number ->
        if life != stream.life or number <= stream.number,
          do: left(feed, [], known + 1, feed.high),
          else: :unknown

      _another ->
        :unknown
    end
  end

  defp left(%{stream: %{done?: true}}, [], high, high), do: :nothing
  defp left(_feed, chunks, next, _high), do: {next, chunks}

  defp serve_waiting(%{waiting: []} = feed), do: feed

  defp serve_waiting(%{waiting: waiting} = feed),
    do: Enum.reduce(waiting, %{feed | waiting: []}, &serve(&2, &1))

  defp serve(%{clients: clients, high: high, stream: stream} = feed, pid) do
    case clients do
      %{^pid => %{next: ^high, before: []}} when not stream.done? ->
        wait(feed, pid)

      %{^pid => %{next: next, before: before} = client} when is_integer(next) ->
        until = min(high, next + @gather)
        chunks = before ++ Enum.flat_map(next..(until - 1)//1, &chunks(feed, &1))
        send_chunks(feed, pid, chunks, until == high)
        put_client(feed, pid, %{client | next: until, before: []})

      %{^pid => %{next: {_reader, _shape}}} ->
        serve_rest(tell(feed, &Stream.catch_up/1), pid)

      _gone ->
        feed
    end
  end

  # What the conversation has more than the client was told. What a lost session has, the next one will say.
  defp serve_rest(%{stream: %{ref: nil, done?: false}} = feed, pid), do: wait(feed, pid)

  defp serve_rest(%{stream: stream, seq: seq, last: last} = feed, pid) do
    %{next: {reader, shape}, before: before} = client = feed.clients[pid]
    {pieces, _shape} = write(feed, Stream.rest(stream, reader), shape, stream.context)
    # Only behind the last of them can anybody go on.
    end_ = length(pieces) - 1
    unknown = {unknown(feed), 0, nil}
    known = with {mark, place} <- last, do: {seq - 1, place - 1, Mark.id(mark, place - 1)}
    chunks = number(feed, pieces, &if(&1 == end_ and known != nil, do: known, else: unknown))
    send_chunks(feed, pid, before ++ chunks, true)
    put_client(feed, pid, %{client | next: feed.high, before: []})
  end

  defp unknown(%{low: low, high: low}), do: 0
  defp unknown(%{low: low} = feed), do: (feed |> chunks(low) |> hd() |> elem(0)) - 2

  defp wait(feed, pid), do: %{feed | waiting: [pid | feed.waiting]}

  defp send_chunks(%{stream: stream}, pid, chunks, all?) do
    turn = if Reader.found?(stream.reader), do: stream.reader.turn
    send(pid, {__MODULE__, self(), chunks, turn, all? and stream.done?, stream.session})
  end

  defp put_client(feed, pid, client), do: %{feed | clients: Map.put(feed.clients, pid, client)}

  defp remove(%{clients: clients} = feed, pid) do
    with %{^pid => %{monitor: monitor}} <- clients, do: Process.demonitor(monitor, [:flush])
    %{feed | clients: Map.delete(clients, pid), waiting: List.delete(feed.waiting, pid)}
  end
end
