defmodule AshAgent.Door.ResumeTest do
  # The model of these scenes waits under a name.
  use ExUnit.Case, async: false

  import AshAgent.Door.{Asks, Clients}

  alias AshAgent.{Context, Door, Sessions}
  alias AshAgent.Door.{Feed, Mark, Play}

  @moduletag :capture_log
  @moduletag timeout: 60_000

  setup context do
    name = Play.name(context)
    {:ok, _} = Play.sessions(name)
    %{name: name, door: Play.door(name, port(), context[:door] || [])}
  end

  # What a client reads: `{id, chunk}` for each event.
  defp ids(door, request) do
    {200, _headers, {:stream, bytes}} = Door.call(door, request)
    bytes |> Enum.to_list() |> IO.iodata_to_binary() |> events()
  end

  # An answer of many events: text, thinking, calls whose arguments come in pieces, failures, and text.
  defp long do
    calls =
      for n <- 0..3, do: {"c#{n}", if(n == 2, do: "fail", else: "look"), ~s({"place":"#{n}"})}

    texts = for n <- 1..60, do: {:text, "w#{n} "}

    script = [
      [{:thinking, "Hm. "}, {:thinking, "So."}] ++ texts ++ [calls: calls],
      texts,
      texts
    ]

    "script " <> Base.encode64(:erlang.term_to_binary(script))
  end

  for protocol <- [:ai_sdk, :ag_ui] do
    @tag door: [protocol: protocol]
    test "whoever comes back at an event gets what comes behind it: #{protocol}", %{door: door} do
      all = ids(door, ask(unquote(protocol), "ada-1", long()))
      assert length(all) > 70
      # What a stream begins with is its client's own.
      assert [{nil, _} | told] = all
      named = for {id, _} <- told, do: id
      refute nil in Enum.drop(named, 1)
      assert named == Enum.uniq(named)

      for {{id, _}, index} <- Enum.with_index(told), id != nil, index < length(told) - 1 do
        rest = ids(door, back(id))

        assert rest |> Enum.map(&without_run/1) ==
                 told |> Enum.drop(index + 1) |> Enum.map(&without_run/1)
      end

      {last, _} = List.last(told)
      assert {204, _, _} = Door.call(door, back(last))
    end
  end

  defp without_run({id, chunk}), do: {id, Map.delete(chunk, "runId")}

  test "while the turn runs, too, and all clients have the same ids", %{door: door} do
    first = reader(door, say("ada-1", "wait"))
    until(first, "two")
    second = reader(door, request("GET", ["ada-1", "stream"]))
    until(second, "two")
    {id, _} = List.last(events(read_so_far(first)))
    third = reader(door, back(id))
    send(await_model(), :go)
    [one, two, three] = for client <- [first, second, third], do: events(rest(client))
    assert one == two
    assert three == Enum.drop_while(one, &(elem(&1, 0) != id)) |> Enum.drop(1)
    assert three |> Enum.map(&elem(&1, 1)) |> text() == "three four"
  end

  test "messages say where they end, so that a turn which ends before the stream is asked for is not lost",
       %{door: door} do
    messages = request("GET", ["ada-1", "messages"])
    mark = fn headers -> headers |> Map.new() |> Map.fetch!("last-event-id") end
    first = reader(door, say("ada-1", "wait"))
    until(first, "two")
    {200, during, body} = Door.call(door, messages)
    assert [%{"role" => "user"}] = Context.JSON.decode!(body)
    running = reader(door, back(mark.(during)))
    until(running, "two")
    send(await_model(), :go)
    whole = first |> rest() |> events() |> Enum.map(&elem(&1, 1))
    assert running |> rest() |> events() |> Enum.map(&elem(&1, 1)) == whole
    assert door |> ids(back(mark.(during))) |> Enum.map(&elem(&1, 1)) == whole

    # All was told.
    {200, after_, body} = Door.call(door, messages)
    assert [%{"role" => "user"}, %{"role" => "assistant"}] = Context.JSON.decode!(body)
    assert {204, _, _} = Door.call(door, back(mark.(after_)))

    # Another turn came and went.
    ids(door, say("ada-1", "hello", "m2"))
    assert [_ | _] = ids(door, back(mark.(after_)))
  end

  test "an event that nobody knows any more brings the turn as a whole, never silence and never another's",
       %{door: door} do
    told = ids(door, say("ada-1", "hello"))
    ids(door, say("eve-1", "hello") |> as("eve"))
    {id, _} = Enum.at(told, 4)
    {{life, turn, number, tag}, place} = Mark.parse(id)

    for unknown <- [
          {"0123456789", turn, number, tag},
          {life, turn, number + 1_000_000, tag},
          {life, turn, number, "0123456789"}
        ] do
      whole = ids(door, back(Mark.id(unknown, place)))
      assert Enum.map(whole, &elem(&1, 1)) == Enum.map(told, &elem(&1, 1))
    end

    # No turn, or no id at all: nothing runs.
    for id <- [
          Mark.id({life, 77, number, tag}, place),
          "",
          "7",
          "a.b.c.d",
          String.duplicate("1", 500)
        ],
        do: assert({204, _, _} = Door.call(door, back(id)))

    # Of another's conversation, the id is not known, and the conversation is not there.
    assert [{nil, %{"type" => "start"}} | _] =
             ids(door, back(id, ["eve-1", "stream"], name: "eve"))

    assert refused(door, back(id, ["ada-1", "stream"], name: "eve")) == {404, "not_found"}
  end

  defp as(%{headers: headers} = request, name) do
    headers = List.keyreplace(headers, "authorization", 0, {"authorization", "Bearer #{name}"})
    %{request | headers: headers}
  end

  test "a turn before the last one is gone on with where its client was", %{door: door} do
    told = ids(door, say("ada-1", "hello"))
    ids(door, say("ada-1", "hello", "m2"))
    {id, _} = Enum.at(told, 3)
    assert ids(door, back(id)) == Enum.drop(told, 4)
  end

  test "of a turn that was taken back, what was said in its place comes", %{
    door: door,
    name: name
  } do
    told = ids(door, say("ada-1", "hello"))
    {id, _} = Enum.at(told, 3)
    :ok = Sessions.rewind(name, "ada-1", 0)
    {:ok, _} = Sessions.prompt(name, "ada-1", "think", runtime_context: %{name: "ada"})
    assert door |> ids(back(id)) |> Enum.map(&elem(&1, 1)) |> text() == "I have seen it."
    assert text(chunks(door, say("ada-1", "hello", "m2"))) == "Hello, Ada!"
  end

  test "a client of an earlier life gets the turn as a whole, with what is kept", %{
    door: door,
    name: name
  } do
    client = reader(door, say("ada-1", "wait"))
    until(client, "two")
    {id, _} = List.last(events(read_so_far(client)))
    {:ok, session} = Sessions.fetch_session(name, "ada-1")
    Process.unlink(client)
    Process.exit(client, :kill)
    ref = Process.monitor(session)
    Process.exit(session, :kill)
    assert_receive {:DOWN, ^ref, _, _, _}
    # The feed of this node knows both lives.
    again = ids(door, back(id)) |> Enum.map(&elem(&1, 1))
    assert %{"type" => type} = List.last(again)
    assert type in ["finish", "error"]
    # Another node's does not.
    for {_, feed, _, _} <- Supervisor.which_children(Feed.Supervisor),
        do: Process.exit(feed, :kill)

    [{nil, %{"type" => "start"}} | whole] = ids(door, back(id))
    assert {_, %{"type" => ^type}} = List.last(whole)
  end

  describe "a client that falls behind" do
    test "is told, gets the rest, and each word once", %{door: door} do
      script = for(n <- 1..9_000, do: {:text, "w#{n} "})
      scene = "script " <> Base.encode64(:erlang.term_to_binary([script]))
      {200, _, {:stream, bytes}} = Door.call(door, say("ada-1", scene))

      sent =
        bytes
        |> Enum.map(fn bytes ->
          # It reads a little, and then nothing until the turn is over.
          if Process.get(:read, 0) == 3, do: fast(door)
          Process.put(:read, Process.get(:read, 0) + 1)
          bytes
        end)
        |> IO.iodata_to_binary()

      assert sent =~ ": behind\n\n"
      assert text(read(sent)) == Enum.map_join(1..9_000, &"w#{&1} ")
      assert {id, %{"type" => "finish"}} = List.last(events(sent))
      assert {204, _, _} = Door.call(door, back(id))
    end

    # Meanwhile, another one hears everything, and comes late.
    defp fast(door) do
      task = Task.async(fn -> ids(door, request("GET", ["ada-1", "stream"])) end)
      all = Task.await(task, 30_000)
      assert all |> Enum.map(&elem(&1, 1)) |> text() == Enum.map_join(1..9_000, &"w#{&1} ")
    end
  end

  defmodule Counting do
    # The protocol of the AI SDK, with somebody who counts.
    alias AshAgent.Door.AISDK

    defdelegate shape, to: AISDK
    defdelegate own?(event), to: AISDK
    defdelegate record(chunk, seq, id), to: AISDK
    defdelegate begin(turn, opts), to: AISDK
    defdelegate last, to: AISDK
    defdelegate headers, to: AISDK
    defdelegate read(body, limits), to: AISDK

    def chunks(event, opts) do
      :counters.add(:persistent_term.get(__MODULE__), 1, 1)
      AISDK.chunks(event, opts)
    end
  end

  test "clients that come at once, and some when all is said, get everything", %{door: door} do
    for n <- 1..20 do
      name = "ada-#{n}"
      first = reader(door, say(name, "script " <> script(for m <- 1..200, do: {:text, "w#{m} "})))
      until(first, "text-start")

      come = fn ->
        Process.sleep(:rand.uniform(20))

        case Door.call(door, request("GET", [name, "stream"])) do
          {200, _headers, {:stream, bytes}} -> bytes |> Enum.to_list() |> IO.iodata_to_binary()
          {204, _headers, _nothing} -> nil
        end
      end

      others = for _ <- 1..10, do: Task.async(come)
      one = rest(first)

      for other <- Task.await_many(others, 30_000),
          other != nil,
          do: assert(other |> read() |> text() == one |> read() |> text())

      assert one |> read() |> text() == Enum.map_join(1..200, &"w#{&1} ")
    end
  end

  defp script(steps), do: [steps] |> :erlang.term_to_binary() |> Base.encode64()

  test "an event is written once for all clients", %{door: door} do
    :persistent_term.put(Counting, :counters.new(1, []))
    door = %{door | protocol: Counting}
    first = reader(door, say("ada-1", "wait"))
    until(first, "two")
    others = for _ <- 1..20, do: reader(door, request("GET", ["ada-1", "stream"]))
    for other <- others, do: until(other, "two")
    send(await_model(), :go)
    all = for client <- [first | others], do: events(rest(client))
    assert Enum.uniq(all) == [hd(all)]
    # The beginning is no event, and the pieces of the text have a template.
    assert :counters.get(:persistent_term.get(Counting), 1) == length(hd(all)) - 1 + 1
  end

  test "what goes wrong in a feed ends its streams with an error, and shows nothing", %{
    door: door
  } do
    log =
      ExUnit.CaptureLog.capture_log(fn ->
        client = reader(door, say("ada-1", "wait"))
        until(client, "two")
        pids = for {_, pid, _, _} <- Supervisor.which_children(Feed.Supervisor), do: pid
        # Of a session that is subscribed to, but nonsense.
        {:ok, session} = Sessions.fetch_session(door.opts[:sessions], "ada-1")
        %{subscribers: subscribers} = :sys.get_state(session)
        [ref] = for {ref, %{pid: pid}} <- subscribers, pid in pids, do: ref
        for pid <- pids, do: send(pid, {AshAgent.Session, ref, 1_000_000, {:delta, :secret}})

        assert {_, %{"type" => "error", "errorText" => "unavailable" <> _}} =
                 List.last(events(rest(client)))

        send(await_model(), :go)
      end)

    assert log =~ "a process that streams a turn ended: "
    refute log =~ "secret"
    refute log =~ "one two"
  end
end
