defmodule AshAgent.Door.ReaderTest do
  use ExUnit.Case, async: true

  alias AshAgent.{Context, Session}
  alias AshAgent.Door.{Play, Reader, StrictPage}

  @moduletag :capture_log

  # A session without a store tells the same changes.
  defp session do
    start_supervised!(
      {Session,
       id: make_ref(),
       llm: {Play, []},
       tools: Play.tools(),
       approval: fn call, _ -> if call.name == "clean_up", do: :ask, else: :approve end}
    )
  end

  # Runs a turn, and takes a snapshot whenever something comes.
  defp record(session, text) do
    {:ok, ref, first} = Session.subscribe(session)
    {:ok, _ref} = Session.prompt_async(session, text, key: "k")
    follow(session, ref, [first], [])
  end

  defp follow(session, ref, snapshots, changes) do
    receive do
      {Session, ^ref, number, {:event, [:run, :stop], _, _} = change} ->
        {Enum.reverse(snapshots), Enum.reverse([{number, change} | changes])}

      {Session, ^ref, number, change} ->
        snapshots = [Session.snapshot(session) | snapshots]
        follow(session, ref, snapshots, [{number, change} | changes])
    end
  end

  defp said(text) do
    {:ok, context} = Context.create(%{})
    Context.add_user_message(context, text, metadata: %{idempotency_key: "k"})
  end

  defp later(changes, %{number: number}), do: for({n, change} <- changes, n > number, do: change)

  defp read(reader, changes) do
    {events, reader} = Enum.map_reduce(changes, reader, &Reader.read(&2, &1))
    {List.flatten(events), reader}
  end

  defp whole(reader, inputs) do
    {events, reader} = read(reader, inputs)
    {ended, _reader} = Reader.finish(reader, :over)
    StrictPage.show(events ++ ended)
  end

  defp script(answers), do: "script " <> (answers |> :erlang.term_to_binary() |> Base.encode64())

  defp random_script do
    for _ <- 1..Enum.random(1..3) do
      said =
        for _ <- 0..Enum.random(0..3),
            do: {Enum.random([:text, :thinking]), Enum.random(["one ", "one two ", "ö ß three "])}

      calls = [
        {"a", "look", ~s({"place":"here"})},
        {"b", "fail", "{}"},
        {"c", "look", ~s({"place":1})}
      ]

      said ++
        Enum.random([
          [],
          [],
          [error: :closed],
          [calls: Enum.take(calls, Enum.random(1..3))],
          [sleep: 1]
        ])
    end
  end

  test "whoever comes when, and whoever fell behind, is shown the same, each word once" do
    for _ <- 1..40 do
      script = random_script()
      {[first | _] = snapshots, changes} = record(session(), script(script))
      shown = whole(Reader.new({:key, "k"}), [first | later(changes, first)])

      for snapshot <- snapshots, snapshot.number > first.number do
        rest = later(changes, snapshot)
        assert whole(Reader.new({:key, "k"}), [snapshot | rest]) == shown
        assert whole(Reader.new(:current), [snapshot | rest]) == shown

        last = Enum.random(1..snapshot.number)
        heard = for {n, change} <- changes, n <= last, do: change
        behind = [first | heard] ++ [snapshot | rest]
        assert whole(Reader.new({:key, "k"}), behind) == shown
      end

      # The conversation alone says the same.
      context = List.last(snapshots).context
      assert whole(Reader.new({:key, "k"}), [{:context, context}]) == shown
    end
  end

  test "the text of a turn is what the conversation has" do
    {[first | _], changes} = record(session(), "two calls")
    page = whole(Reader.new({:key, "k"}), [first | later(changes, first)])
    assert [{"1.0.0", :text, "I look."}, {"2.0.0", :text, "Both are done."}] = page.blocks
    assert page.calls["1.0.c0"] == {"look", %{"place" => "here"}, {:result, %{"seen" => "here"}}}
    assert page.calls["1.0.c1"] == {"fail", %{}, {:failed, "there is nothing"}}
  end

  test "arguments come in pieces before the call is whole" do
    {[first | _], changes} = record(session(), "two calls")
    {events, _reader} = read(Reader.new({:key, "k"}), [first | later(changes, first)])

    assert [{_, "1.0.c0", ~s({"place")}, {_, "1.0.c0", ~s(:"here"})}] =
             for({:call_arguments, "1.0.c0", _} = e <- events, do: e)
  end

  test "an answer that another session has to ask for again is taken back, and told anew" do
    context = said("Hi")
    snapshot = &%{number: 0, context: context, message: &1, activity: []}

    {events, reader} =
      read(Reader.new({:key, "k"}), [snapshot.(nil), {:delta, [{:text, 0, "This is lo"}]}])

    page = StrictPage.show(events)

    # It goes on where it was, if it is the same.
    {same, _} = Reader.read(reader, snapshot.(%{role: :assistant, content: "This is longer"}))
    assert same == [{:text, "1.0.0", "nger"}]

    for {message, text} <- [{nil, nil}, {%{role: :assistant, content: "That was"}, "That was"}] do
      {events, reader} = Reader.read(reader, snapshot.(message))
      assert {:dropped, {1, 0}, ["1.0.0"]} in events

      {more, reader} =
        Reader.read(reader, {:context, Context.add_assistant_message(context, "That was it.")})

      {ended, _} = Reader.finish(reader, :answered)
      page = StrictPage.show(page, events ++ more ++ ended)
      assert page.blocks == [{"1.0.0", :text, "That was it."}], inspect(text)
    end
  end

  test "a turn that another one came after is over" do
    context = said("Hi")

    context =
      context |> Context.add_assistant_message("Hello.") |> Context.add_user_message("And?")

    context = Context.add_assistant_message(context, "Nothing.")
    {events, reader} = Reader.read(Reader.new({:key, "k"}), {:context, context})
    assert Reader.over?(reader)
    assert [{:text, "1.0.0", "Hello."}] = for({:text, _, _} = event <- events, do: event)
  end

  test "what is said to a running turn is told" do
    context = said("Hi")
    {_, reader} = Reader.read(Reader.new({:key, "k"}), {:context, context})

    context =
      context |> Context.add_assistant_message("Hello.") |> Context.add_user_message("Shorter!")

    assert {[_ | _] = events, _reader} = Reader.read(reader, {:context, context})
    assert {:said, "2.said.0", "Shorter!"} in events
  end

  test "an approval's id is for one call and its arguments" do
    ask = fn call ->
      Context.new("Hi", id: "c")
      |> Context.add_assistant_message(nil, [call])
      |> Context.Calls.ask_about_tool_call(call.id)
      |> Reader.asked()
      |> Map.keys()
    end

    call = %{id: "a", name: "clean_up", arguments: %{"path" => "/a", "deep" => true}}
    assert [id] = ask.(call)
    assert ask.(%{call | arguments: %{"deep" => true, "path" => "/a"}}) == [id]

    for other <- [%{call | id: "b"}, %{call | name: "look"}, put_in(call.arguments["path"], "/")],
        do: refute(ask.(other) == [id])

    # Nobody decides about a call that nobody was shown.
    context = Context.add_assistant_message(Context.new("Hi"), nil, [call, %{call | id: "b"}])

    assert [%{id: "a"}] =
             context |> Context.Calls.ask_about_tool_call("a") |> Reader.asked() |> Map.values()
  end

  defp events(context, turn \\ {:key, "k"}) do
    {events, _reader} = Reader.read(Reader.new(turn), {:context, context})
    events
  end

  test "files that a model made are told, and nothing that only providers read" do
    parts = [
      %{type: :image, media_type: "image/png", data: "AA=="},
      %{type: :image, url: "https://example.com/a.png"},
      %{type: :redacted_thinking, data: "secret"},
      %{type: :text, text: "There."}
    ]

    events = said("Draw!") |> Context.add_assistant_message(parts) |> events()
    assert {:file, "1.0.0", "image/png", "AA=="} in events
    assert {:text, "1.0.3", "There."} in events
    assert length(events) == 5
  end

  test "how much of a call's arguments was told in pieces" do
    call = %{id: "a", name: "look", arguments: %{"place" => "here"}}
    context = said("Hi")

    for {pieces, told} <- [
          {[], :none},
          {[""], :none},
          {[~s({"place":), ~s("here"})], :whole},
          {[~s({"pl)], :part}
        ] do
      started =
        {:delta,
         [{:tool_call_started, 0, "look"} | for(p <- pieces, do: {:tool_call_arguments, 0, p})]}

      {_, reader} = read(Reader.new({:key, "k"}), [{:context, context}, started])

      {events, _} =
        Reader.read(reader, {:context, Context.add_assistant_message(context, nil, [call])})

      assert {:call, "1.0.c0", "look", %{"place" => "here"}, told} in events
    end

    # What came while a client was behind is missing.
    delta = &{:delta, [{:tool_call_arguments, 0, &1}]}
    started = {:delta, [{:tool_call_started, 0, "look"}]}
    behind = %{number: 0, context: context, message: %{content: nil}, activity: []}
    inputs = [{:context, context}, started, delta.(~s({"pl)), behind, delta.(~s("here"}))]
    {events, reader} = read(Reader.new({:key, "k"}), inputs)

    assert [{:call_arguments, "1.0.c0", ~s({"pl)}] =
             for({:call_arguments, _, _} = e <- events, do: e)

    {events, _} =
      Reader.read(reader, {:context, Context.add_assistant_message(context, nil, [call])})

    assert [:part] = for({:call, _, _, _, told} <- events, do: told)
  end

  test "the history has each turn once, and leaves out what runs" do
    context =
      said("one") |> Context.add_assistant_message("First.") |> Context.add_user_message("two")

    context =
      context |> Context.add_assistant_message(nil, [%{id: "a", name: "look", arguments: %{}}])

    context =
      context
      |> Context.add_tool_results([{"a", {:ok, 1}}])
      |> Context.add_assistant_message("Second.")

    assert [{:person, _, _}, {:answer, 1, one}, {:person, "2.said.0", _}, {:answer, 2, two}] =
             Reader.history(context, false, 10)

    assert ["First."] = for({:text, _, text} <- one, do: text)
    assert ["Second."] = for({:text, _, text} <- two, do: text)
    assert [_, {:answer, 1, ^one}, {:person, _, _}] = Reader.history(context, true, 10)
    assert [{:person, "2.said.0", _}, {:answer, 2, ^two}] = Reader.history(context, false, 1)
    waiting = Context.add_user_message(context, "three")
    assert {:person, "4.said.0", _} = List.last(Reader.history(waiting, false, 10))
  end

  test "a late result is told once, where its call is, whoever comes when" do
    call = %{id: "a", name: "look", arguments: %{}}
    waits = said("one") |> Context.add_assistant_message(nil, [call])
    waits = Context.add_tool_results(waits, [{"a", {:waiting, %{}}}])
    says = Context.add_assistant_message(waits, "It runs.")
    {:ok, arrived} = Context.Calls.arrive(says, "a", {:ok, "green"})
    placed = Context.Calls.place_arrivals(arrived)
    ended = placed |> Context.add_assistant_message("It is green.", [%{call | id: "b"}])
    ended = Context.add_tool_results(ended, [{"b", {:ok, 2}}])
    contexts = for context <- [waits, says, arrived, placed, ended], do: {:context, context}

    for from <- 0..4, inputs = Enum.drop(contexts, from) do
      {events, _reader} = read(Reader.new(:current), inputs)
      assert [{:result, "1.0.c0", "green"}] = for({:result, "1" <> _, _} = r <- events, do: r)
      assert [{:result, "3.0.c0", 2}] = for({:result, "3" <> _, _} = r <- events, do: r)

      assert whole(Reader.new(:current), inputs).calls["1.0.c0"] ==
               {"look", %{}, {:result, "green"}}
    end

    assert [{:person, _, _}, {:answer, 1, events}] = Reader.history(placed, false, 10)
    assert {:result, "1.0.c0", "green"} in events
    assert Reader.outcome(placed, :idle) == :answered
    assert [{:waits, "1.0.c0"}] = for({:waits, _} = waits <- events, do: waits)
    # Another turn has no such call.
    other = says |> Context.add_user_message("two") |> Context.add_assistant_message("Yes?")
    {:ok, other} = Context.Calls.arrive(other, "a", {:ok, "green"})

    placed = Context.Calls.place_arrivals(other)
    {events, reader} = read(Reader.new(:current), [{:context, other}, {:context, placed}])
    assert for({:result, _, _} = result <- events, do: result) == []
    # It is told where it has its place, and once.
    assert [{:arrived, "1.0.c0", "look", {:ok, "green"}}] =
             for({:arrived, _, _, _} = a <- events, do: a)

    assert {[], _} = Reader.read(reader, {:context, placed})
    assert [_, {:answer, 1, one}, _, {:answer, _, two}] = Reader.history(placed, false, 10)
    assert {:result, "1.0.c0", "green"} in one
    assert {:arrived, "1.0.c0", "look", {:ok, "green"}} in two
  end

  test "how a turn ended that nobody heard the end of" do
    answered = Context.add_assistant_message(said("Hi"), "Hello.")
    assert Reader.outcome(answered, :idle) == :answered
    assert Reader.outcome(answered, {:paused, []}) == :paused
    assert Reader.outcome(answered, :parked) == :parked
    assert Reader.outcome(said("Hi"), :idle) == {:failed, :interrupted}
    failed = Context.Audit.add_failure(said("Hi"), %{kind: :rate_limited})
    assert Reader.outcome(failed, :idle) == {:failed, :rate_limited}
    called = Context.add_assistant_message(said("Hi"), "Look:", [%{id: "a", name: "look"}])
    assert Reader.outcome(called, :idle) == {:failed, :interrupted}
  end

  test "steps of a run are told, and nothing of a turn that has not begun" do
    retry = {:event, [:llm, :retry], %{attempt: 1, wait: 5}, %{kind: :timeout}}
    assert {[], reader} = Reader.read(Reader.new({:key, "k"}), retry)
    {_, reader} = Reader.read(reader, {:context, said("Hi")})
    assert {[{:retry, 1, 5, :timeout}], _} = Reader.read(reader, retry)
    unknown = {:event, [:tool, :progress], %{progress: 1}, %{tool_call_id: "of a sub-agent"}}
    assert {[], _} = Reader.read(reader, unknown)
    value = {:event, [:llm, :value], %{}, %{attempt: 1, value: %{"a" => 1}}}
    assert {[{:value, 1, %{"a" => 1}}], _} = Reader.read(reader, value)
  end
end
