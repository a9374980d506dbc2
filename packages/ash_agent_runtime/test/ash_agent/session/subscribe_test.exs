defmodule AshAgent.Session.SubscribeTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Generators, only: [between: 2, chance: 1, check_all: 3, one_of: 1]

  alias AshAgent.{Context, Response, Session}
  alias AshAgent.TestSupport.{Away, Nodes, RequestChecker, StreamModel, Viewer, Wait}

  @pieces ["Once ", "upon ", "a ", "time"]

  defp start(opts), do: start_supervised!({Session, opts}, id: make_ref())

  # A model that streams a piece whenever it is told to.
  defp gated do
    test = self()

    StreamModel.new(fn _context, feed ->
      send(test, {:model, self()})
      feed_on(feed)
    end)
  end

  defp feed_on(feed) do
    receive do
      {:piece, piece} -> feed.(StreamModel.text(piece)) && feed_on(feed)
      :end -> {:ok, feed.(StreamModel.finish())}
      {:fail, fun} -> fun.()
    end
  end

  # A prompt, and the process of its model.
  defp ask(session) do
    {:ok, ref} = Session.prompt_async(session, "Hi")
    assert_receive {:model, model}
    {ref, model}
  end

  defp last(context), do: context |> Context.to_messages() |> List.last()

  defp assert_valid(context) do
    assert Context.pending_tool_calls(context) == []

    for provider <- RequestChecker.providers() do
      {:ok, request} = Context.request(context, provider, model: "m")
      body = request |> Context.JSON.encode() |> Context.JSON.decode!()
      assert RequestChecker.validate_request(body, provider) == []
    end
  end

  describe "subscribe/2" do
    test "sends deltas and contexts, numbered without gaps, and the end of the session" do
      session = start(llm: StreamModel.saying(@pieces))
      {:ok, ref, snapshot} = Session.subscribe(session)
      assert %{number: 0, message: nil, response: nil} = snapshot
      {:ok, result} = Session.prompt(session, "Hi")

      assert_receive {Session, ^ref, 1, {:context, asked}}
      assert last(asked) == %{role: :user, content: "Hi"}

      for {piece, number} <- Enum.with_index(@pieces, 2),
          do: assert_receive({Session, ^ref, ^number, {:delta, [{:text, 0, ^piece}]}})

      assert_receive {Session, ^ref, 6, {:delta, [{:finish, :stop}]}}
      assert_receive {Session, ^ref, 7, {:context, context}}
      assert context == result.context

      assert_receive {Session, ^ref, 8,
                      {:event, [:run, :stop], %{duration: _}, %{status: :answered}}}

      assert %{number: 8, context: ^context, message: nil, activity: []} =
               Session.snapshot(session)

      GenServer.stop(session)
      assert_receive {:DOWN, ^ref, :process, ^session, _}
    end

    test "in the middle of an answer begins with what came of it" do
      session = start(llm: gated())
      {_ref, model} = ask(session)
      early = Viewer.new(session)
      for piece <- ["Once ", "upon "], do: send(model, {:piece, piece})
      early = Viewer.until(early, 3)

      {:ok, ref, snapshot} = Session.subscribe(session)
      assert %{number: 3, message: %{content: "Once upon "}} = snapshot
      assert %Response{state: :open} = snapshot.response
      send(model, {:piece, "a time"})
      assert_receive {Session, ^ref, 4, {:delta, [{:text, 0, "a time"}]}}
      send(model, :end)
      assert_receive {Session, ^ref, 6, {:context, _}}
      assert Viewer.until(early, 6).log[4] == {early.messages, "Once upon a time"}
    end

    test "ends with unsubscribe/2, which leaves nothing in the mailbox" do
      session = start(llm: StreamModel.saying(@pieces))
      {:ok, ref, _} = Session.subscribe(session)
      {:ok, _} = Session.prompt(session, "Hi")
      assert :ok = Session.unsubscribe(session, ref)
      {:ok, _} = Session.prompt(session, "More")
      assert Process.info(self(), :messages) == {:messages, []}
      assert :ok = Session.unsubscribe(session, ref)
      assert :ok = Session.unsubscribe(session, make_ref())
    end

    test "forgets a subscriber that dies, also in the middle of a stream" do
      test = self()
      session = start(llm: gated())

      pids =
        for _ <- 1..3,
            do: spawn(fn -> send(test, Session.subscribe(session)) && receive(do: (:x -> :x)) end)

      for _ <- 1..3, do: assert_receive({:ok, _, _})
      {ref, model} = ask(session)
      send(model, {:piece, "Once "})
      for pid <- pids, do: Process.exit(pid, :kill)
      assert Wait.until(fn -> shown(session).subscribers == 0 end)
      send(model, :end)
      assert_receive {Session, ^ref, {:ok, %{output: "Once "}}}
      assert shown(session).ignored == 0
    end

    defp shown(session) do
      {:status, _, _, [_, _, _, _, misc]} = :sys.get_status(session)
      for({:data, [{~c"State", state}]} <- misc, do: state) |> List.first()
    end

    test "refuses wrong options, and who is not there" do
      session = start(llm: gated())
      assert_raise ArgumentError, ~r/limit/, fn -> Session.subscribe(session, limit: 0) end
      assert {:noproc, {Session, :subscribe, [Nobody]}} = catch_exit(Session.subscribe(Nobody))
    end

    test "ignores what is none of its messages" do
      session = start(llm: gated())
      {:ok, ref, _} = Session.subscribe(session)

      for message <- [
            {:acknowledge, make_ref(), 10},
            {:acknowledge, ref, 1_000_000},
            {:acknowledge, ref, :many},
            {:acknowledge, nil, 1}
          ],
          do: GenServer.cast(session, message)

      assert {:error, :unknown_call} = GenServer.call(session, {:subscribe, :ref, 1})
      assert {:error, :unknown_call} = GenServer.call(session, {:subscribe, ref, nil})
      send(session, {:DOWN, make_ref(), :process, self(), :x})
      assert %{number: 0} = Session.snapshot(session)
    end
  end

  describe "a subscriber that is slow" do
    test "is told so, gets nothing until it takes a snapshot, and everything from there on" do
      pieces = for n <- 1..100, do: "#{n} "
      session = start(llm: StreamModel.saying(pieces))
      {:ok, ref, %{number: 0}} = Session.subscribe(session, limit: 10)
      {:ok, _} = Session.prompt(session, "Hi")

      {:messages, messages} = Process.info(self(), :messages)
      numbers = for {Session, ^ref, number, change} <- messages, change != :behind, do: number
      assert numbers == Enum.to_list(1..length(numbers))
      assert length(numbers) in 10..21
      next = length(numbers) + 1
      assert {Session, ^ref, ^next, :behind} = List.last(messages)

      assert %{number: 104, message: nil} = Session.snapshot(session)
      {:ok, _} = Session.prompt(session, "More")
      assert_receive {Session, ^ref, 105, {:context, _}}
    end

    test "is not one that has many changes behind it and none in front" do
      pieces = for n <- 1..200, do: "#{n} "
      session = start(llm: gated())
      viewer = Viewer.new(session, limit: 5)
      {_ref, model} = ask(session)

      viewer =
        for {piece, number} <- Enum.with_index(pieces, 2), reduce: viewer do
          viewer -> send(model, {:piece, piece}) && Viewer.until(viewer, number)
        end

      assert %{behind: 0, number: 201} = viewer
    end
  end

  describe "an answer that breaks off" do
    test "between two pieces by cancel/1 is kept, and the conversation goes on" do
      test = self()
      keep = fn context -> send(test, {:kept, context}) && :ok end
      session = start(llm: gated(), on_change: keep)
      viewer = Viewer.new(session)
      {ref, model} = ask(session)
      for piece <- ["Once ", "upon "], do: send(model, {:piece, piece})
      viewer = Viewer.until(viewer, 3)
      assert viewer.text == "Once upon "

      :ok = Session.cancel(session)
      assert_receive {Session, ^ref, {:error, %{reason: :cancelled, context: context}}}
      assert %{content: "Once upon ", state: :interrupted} = last(context)
      assert {:ok, %{response: %{reason: :cancelled}}} = Context.fetch_message(context, {1, 1})
      refute Process.alive?(model)
      assert_received {:kept, _asked}
      assert_received {:kept, ^context}
      assert Viewer.until(viewer, 4).messages == Context.to_messages(context)
      assert_valid(context)

      {ref, model} = ask(session)
      send(model, :end)
      assert_receive {Session, ^ref, {:ok, %{context: context}}}
      assert_valid(context)
    end

    @tag :capture_log
    test "when the run is killed, too" do
      test = self()
      tell = fn _ -> send(test, {:run, self()}) end
      session = start(llm: gated(), on_event: tell)
      {:ok, ref} = Session.prompt_async(session, "Hi")
      assert_receive {:run, run}
      assert_receive {:model, model}
      viewer = Viewer.new(session)
      send(model, {:piece, "Once "})
      Viewer.next(viewer)
      Process.exit(run, :kill)
      assert_receive {Session, ^ref, {:error, %{reason: {:exit, :killed}, context: context}}}
      assert %{content: "Once ", state: :interrupted} = last(context)
      assert Wait.until(fn -> not Process.alive?(model) end)
      assert_valid(context)
    end

    @tag :capture_log
    test "because the session is killed was stored before, and it goes on from there" do
      test = self()
      keep = fn context -> send(test, {:kept, Context.to_snapshot(context)}) && :ok end
      opts = [llm: gated(), on_change: keep, on_change_interval: 20]
      session = start(opts)
      {_ref, model} = ask(session)
      send(model, {:piece, "Once "})
      assert_receive {:kept, _asked}
      assert_receive {:kept, stored}
      Process.exit(session, :kill)
      assert Wait.until(fn -> not Process.alive?(model) end)

      session = start(Keyword.put(opts, :context, stored))
      assert %{content: "Once ", state: :interrupted} = last(Session.context(session))
      {:ok, ref} = Session.resume_async(session)
      assert_receive {:model, model}
      send(model, {:piece, "upon"})
      send(model, :end)
      assert_receive {Session, ^ref, {:ok, %{output: "upon", context: context}}}
      assert_valid(context)
    end
  end

  # What late, slow and impatient subscribers make of what they are sent is what the session has, at every number.
  @tag timeout: 300_000
  test "every subscriber shows what the session shows, whenever it came" do
    check_all("subscribers", [runs: 40], fn size ->
      answers =
        for _ <- 1..between(1, 4) do
          {for(n <- 1..between(1, 4 * size), do: "#{n}#{one_of(["ß ", ". ", "\n", "…"])}"),
           one_of([:stop, :stop, :call, :cut, :raise])}
        end

      {:ok, script} = Agent.start_link(fn -> answers end)

      llm =
        StreamModel.new(fn _context, feed ->
          {pieces, ending} =
            Agent.get_and_update(script, fn
              [] -> {{["End"], :stop}, []}
              [next | rest] -> {next, rest}
            end)

          for piece <- pieces, do: feed.(StreamModel.text(piece))
          play(ending, feed)
        end)

      tools = %{t: fn _ -> {:ok, "done"} end}
      {:ok, session} = Session.start_link(llm: llm, tools: tools)
      reference = Viewer.new(session, limit: 1_000_000)
      parent = self()
      seed = :rand.uniform(1_000_000)

      watchers =
        for n <- 1..5 do
          Task.async(fn ->
            :rand.seed(:exsss, {seed, n, 1})
            receive(do: (:never -> :ok), after: (between(0, 5) -> :ok))
            viewer = Viewer.new(session, limit: one_of([1, 2, 5, 50, 1_000]))
            send(parent, :subscribed)
            watch(viewer)
          end)
        end

      ExUnit.CaptureLog.capture_log(fn ->
        for n <- 1..3 do
          {:ok, ref} = Session.prompt_async(session, "#{n}")
          if chance(30), do: Session.cancel(session)
          assert_receive {Session, ^ref, {status, _}} when status in [:ok, :error]
        end
      end)

      for _ <- watchers, do: assert_receive(:subscribed)
      %{number: number, context: context} = Session.snapshot(session)
      reference = Viewer.until(reference, number)
      assert reference.messages == Context.to_messages(context)
      assert {reference.text, reference.behind} == {"", 0}

      for watcher <- watchers do
        send(watcher.pid, {:last, number})
        viewer = Task.await(watcher, 30_000)
        assert viewer.number == number

        for {number, shown} <- viewer.log do
          if Map.fetch!(reference.log, number) != shown,
            do: flunk("shows other things at change #{number} of #{viewer.number}")
        end
      end

      GenServer.stop(session)
    end)
  end

  defp play(:stop, feed), do: {:ok, feed.(StreamModel.finish())}
  defp play(:cut, _feed), do: {:error, :cut}
  defp play(:raise, _feed), do: raise("boom")

  defp play(:call, feed) do
    feed.(StreamModel.call("a", "t", "{}"))
    {:ok, feed.(StreamModel.finish("tool_calls"))}
  end

  # Sometimes sleeps, until it is told what the last change is.
  defp watch(viewer) do
    receive do
      {:last, number} -> Viewer.until(viewer, number)
    after
      one_of([0, 0, 0, 1, 5]) ->
        case Viewer.next(viewer, 1) do
          {:ok, viewer} -> watch(viewer)
          :quiet -> watch(viewer)
        end
    end
  end

  test "subscribers on other nodes get snapshots in the place of contexts" do
    Nodes.pair(fn call, nodes ->
      away = &call.(&1, {Away, &2, &3})
      {session, _holder} = away.(:here, :start, [for(n <- 1..20, do: "#{n} ")])
      assert node(session) == nodes.here

      early = away.(:there, :subscribe, [session, []])
      assert away.(:here, :go, [session, 3])
      assert %{text: "1 2 3 ", messages: [%{content: "Hi"}]} = away.(:there, :shown, [early, 4])

      # In the middle of the answer.
      assert %{number: 4, response: nil, message: %{content: "1 2 3 "}, context: [_]} =
               away.(:there, :snapshot, [session])

      late = away.(:there, :subscribe, [session, []])
      slow = away.(:there, :subscribe, [session, [limit: 2]])
      # The end of the answer comes with up to three changes at once, the 17 before it one by one.
      quick = away.(:there, :subscribe, [session, [limit: 4, acknowledge: true]])

      for number <- 5..21 do
        assert away.(:here, :go, [session, 1])
        away.(:there, :shown, [quick, number])
      end

      assert away.(:here, :go, [session, 1])
      assert Wait.until(fn -> length(away.(:here, :messages, [session])) == 2 end)
      messages = away.(:here, :messages, [session])
      assert [%{content: "Hi"}, %{content: "1 2 3 4 " <> _}] = messages

      for {subscriber, behind?} <- [{early, false}, {late, false}, {slow, true}, {quick, false}] do
        shown = away.(:there, :shown, [subscriber, 23])
        # The last change is the event of the run's end, which may be there by now.
        assert %{messages: ^messages, text: "", number: number} = shown
        assert number in 23..24
        assert shown.behind > 0 == behind?
      end
    end)
  end
end
