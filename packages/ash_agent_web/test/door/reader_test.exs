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
end
