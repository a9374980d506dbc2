defmodule AshAgent.Sessions.OverviewTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.StoredSessions, only: [sqlite: 0]
  import ExUnit.CaptureIO

  alias AshAgent.{ChatContext, Context, LLM, Session, Sessions, Store}
  alias AshAgent.Runtime.Error
  alias AshAgent.Sessions.Overview
  alias AshAgent.TestSupport.WatchedStore

  # A model that calls a tool, which waits for the test, and then answers.
  defp opts(more \\ []) do
    test = self()

    wait = fn _, _ ->
      send(test, {:in_tool, self()})
      receive(do: (:go -> {:ok, "a secret"}))
    end

    llm = fn context ->
      asked = context |> Context.to_messages() |> Enum.find(&(&1.role == :user))

      if match?(%{content: [%{type: :tool_result} | _]}, List.last(Context.to_messages(context))) do
        {:ok, %{content: "Done: #{asked.content}", usage: %{input_tokens: 3, output_tokens: 2}}}
      else
        {:ok, %{tool_calls: [%{id: "a", name: "wait", arguments: %{}}]}}
      end
    end

    [llm: llm, tools: %{wait: wait}] ++ more
  end

  defp sessions(store, opts) do
    name = :"overview#{System.unique_integer([:positive])}"
    start_supervised!({Sessions, [name: name, store: store, drain: 50] ++ opts}, id: name)
    name
  end

  defp pause_in_tool(pause) do
    assert_receive {:in_tool, tool}
    :ok = pause.()
    send(tool, :go)
  end

  describe "pause/1" do
    test "ends a turn at its next step, and resume/2 goes on with it, with and without a store" do
      for store <- [nil, sqlite()] do
        stored = if store, do: [store: store, id: "c"], else: []
        {:ok, session} = Session.start_link(opts(stored))
        {:ok, ref, _snapshot} = Session.subscribe(session)
        {:ok, first} = Session.prompt_async(session, "Hi")
        {:ok, second} = Session.prompt_async(session, "And then?")
        pause_in_tool(fn -> Session.pause(session) end)

        assert_receive {Session, ^first, {:error, %Error{reason: :parked} = error}}
        assert Exception.message(error) =~ "paused"

        assert_receive {Session, ^ref, _,
                        {:event, [:run, :stop], _, %{status: :error, reason: :parked}}}

        assert Session.status(session) == if(store, do: :parked, else: :idle)
        # What waits keeps waiting, and the result of the step is there.
        refute_receive {Session, ^second, {:ok, _}}, 50
        assert [%{result: {:ok, "a secret"}}] = Context.get_iteration(error.context, 1).tool_calls

        assert {:ok, %{output: "Done: Hi"}} = Session.resume(session)
        assert_receive {:in_tool, tool}
        send(tool, :go)
        assert_receive {Session, ^second, {:ok, _}}
      end
    end

    test "is taken back by resume/2 before the turn has reached it, and what waits comes later" do
      for store <- [nil, sqlite()] do
        stored = if store, do: [store: store, id: "c"], else: []
        {:ok, session} = Session.start_link(opts(stored))
        {:ok, first} = Session.prompt_async(session, "Hi")
        {:ok, second} = Session.prompt_async(session, "And then?")
        assert_receive {:in_tool, tool}
        :ok = Session.pause(session)
        {:ok, resumed} = Session.resume_async(session)
        send(tool, :go)
        assert_receive {Session, ^first, {:ok, %{output: "Done: Hi"}}}
        assert_receive {Session, ^resumed, {:ok, %{output: "Done: Hi"}}}
        assert_receive {:in_tool, tool}
        send(tool, :go)
        assert_receive {Session, ^second, {:ok, _}}
      end
    end

    test "lets a later prompt come after those that wait" do
      for store <- [nil, sqlite()] do
        stored = if store, do: [store: store, id: "c"], else: []
        {:ok, session} = Session.start_link(opts(stored))
        {:ok, _first} = Session.prompt_async(session, "Hi")
        {:ok, _second} = Session.prompt_async(session, "And then?")
        pause_in_tool(fn -> Session.pause(session) end)
        assert_receive {Session, _first, {:error, %Error{reason: :parked}}}
        third = Task.async(fn -> Session.prompt(session, "And at last?") end)

        for _ <- 1..2 do
          assert_receive {:in_tool, tool}
          send(tool, :go)
        end

        assert {:ok, %{context: context}} = Task.await(third)

        said =
          for %{role: :user, content: text} when is_binary(text) <- Context.to_messages(context),
              do: text

        assert said == ["Hi", "And then?", "And at last?"]
      end
    end

    test "can be cancelled when it was reached: the turn is over, and what waits is dropped" do
      for store <- [nil, sqlite()] do
        stored = if store, do: [store: store, id: "c"], else: []
        {:ok, session} = Session.start_link(opts(stored))
        {:ok, ref, _snapshot} = Session.subscribe(session)
        {:ok, _first} = Session.prompt_async(session, "Hi")
        {:ok, second} = Session.prompt_async(session, "And then?")
        pause_in_tool(fn -> Session.pause(session) end)
        assert_receive {Session, _first, {:error, %Error{reason: :parked}}}
        :ok = Session.cancel(session)
        assert_receive {Session, ^second, {:error, %Error{reason: :dropped}}}

        assert_receive {Session, ^ref, _,
                        {:event, [:run, :stop], _, %{reason: :cancelled} = told}}

        assert [%{kind: :prompt, input: "And then?"}] = told.dropped
        assert Session.status(session) == :idle
        if store, do: assert({:ok, []} = Store.waiting(store, "c"))
        # Nothing is left to cancel.
        :ok = Session.cancel(session)
        refute_receive {Session, ^ref, _, {:event, [:run, :stop], _, %{reason: :cancelled}}}, 50
      end
    end

    test "does not outlive a pause for a person" do
      approval = [approval: fn _, _ -> :ask end, when_cancelled: :go_on]
      test = self()

      llm = fn _context ->
        send(test, {:model, self()})
        receive(do: (:go -> {:ok, %{tool_calls: [%{id: "a", name: "wait", arguments: %{}}]}}))
      end

      {:ok, session} = Session.start_link(opts(approval) |> Keyword.put(:llm, llm))
      {:ok, first} = Session.prompt_async(session, "Hi")
      {:ok, _second} = Session.prompt_async(session, "And then?")
      assert_receive {:model, model}
      :ok = Session.pause(session)
      send(model, :go)
      assert_receive {Session, ^first, {:paused, _}}
      :ok = Session.cancel(session)
      assert_receive {:model, _model}
    end

    test "is where the conversation is: no other session goes on with it" do
      store = sqlite()
      [one, two] = for _ <- 1..2, do: sessions(store, opts(recover: 20))
      {:ok, ref} = Sessions.prompt_async(one, "c", "Hi")
      pause_in_tool(fn -> Sessions.pause(two, "c") end)
      assert_receive {Session, ^ref, {:error, %Error{reason: :parked}}}, 1_000
      :ok = Sessions.drain(one)

      assert Sessions.status(two, "c") == :parked
      assert {:ok, %{status: :parked}} = Store.fetch(store, "c")
      refute_receive {:in_tool, _}, 100
      assert {:ok, [%{id: "c", parked: "paused"}]} = Sessions.overview(two)
      assert {:ok, %{output: "Done: Hi"}} = Sessions.resume(two, "c")
      assert {:ok, []} = Sessions.overview(two)
    end

    test "does nothing where nothing runs, and lets a last answer be the answer" do
      test = self()

      llm = fn _context ->
        send(test, {:model, self()})
        receive(do: (:go -> {:ok, %{content: "Hello!"}}))
      end

      {:ok, session} = Session.start_link(store: sqlite(), id: "c", llm: llm)
      assert Session.pause(session) == :ok
      {:ok, ref} = Session.prompt_async(session, "Hi")
      assert_receive {:model, model}
      :ok = Session.pause(session)
      send(model, :go)
      assert_receive {Session, ^ref, {:ok, %{output: "Hello!"}}}
      assert Session.status(session) == :idle
      # It does not hold for the next turn.
      {:ok, ref} = Session.prompt_async(session, "Hi")
      assert_receive {:model, model}
      send(model, :go)
      assert_receive {Session, ^ref, {:ok, _}}
    end
  end

  test "resume/2 takes greater limits, for its run alone" do
    for {limit, reason} <- [
          max_iterations: :max_iterations_exceeded,
          max_calls: :max_calls_exceeded,
          max_total_tokens: :max_total_tokens_exceeded
        ] do
      usage = %{input_tokens: 1, output_tokens: 1}
      again = &%{tool_calls: [%{id: "c#{&1}", name: "look", arguments: %{}}], usage: usage}
      script = Enum.map(1..4, again) ++ ["Done."]
      tools = %{look: fn _ -> {:ok, 1} end}
      own = [{limit, 2}, llm: LLM.Scripted.new(script), tools: tools]
      {:ok, session} = Session.start_link(own)
      assert {:error, %Error{reason: {^reason, 2}}} = Session.prompt(session, "Look!")
      assert {:ok, %{output: "Done."}} = Session.resume(session, [{limit, 100}])
      assert_raise ArgumentError, fn -> Session.resume(session, [{limit, 0}]) end
    end
  end

  describe "overview/2" do
    test "lists what runs, waits and is parked, and no texts" do
      store = sqlite()
      ask = fn _call, _ -> :ask end
      failing = fn _ -> {:error, %LLM.Error{reason: "the key of the safe", kind: :overloaded}} end

      running = sessions(store, opts())
      {:ok, _} = Sessions.prompt_async(running, "runs", "the secret question")
      assert_receive {:in_tool, _tool}
      {:ok, _} = Sessions.prompt_async(running, "runs", "another")

      asking = sessions(store, opts(approval: ask))
      {:paused, _} = Sessions.prompt(asking, "asks", "the secret question")

      failed = sessions(store, llm: failing)
      {:error, _} = Sessions.prompt(failed, "failed", "the secret question")

      {:ok, _} = Store.create(store, ChatContext.new(id: "chat"), status: :waiting)
      {:ok, empty} = Context.create(%{id: "empty"})
      {:ok, _} = Store.create(store, empty, status: :waiting)

      {:ok, rows} = Sessions.overview(running)
      assert {:ok, same} = Sessions.overview(store)
      assert Enum.map(rows, & &1.id) == Enum.map(same, & &1.id)
      rows = Map.new(rows, &{&1.id, &1})
      assert Enum.sort(Map.keys(rows)) == ["asks", "chat", "empty", "runs"]
      assert %{status: :running, prompts: 1, calls: [], age: age, parked: nil} = rows["runs"]
      assert rows["runs"].owner =~ "#{node()}"
      assert age in 0..60_000
      assert %{status: :paused, calls: ["wait"], prompts: 0} = rows["asks"]

      {:ok, [row]} = Sessions.overview(store, status: :idle)
      assert %{id: "failed", failures: 1, failure: %{kind: :overloaded} = failure} = row
      refute is_map_key(failure, :message)
      prices = [%{model: :any, input: 1_000_000, output: 1_000_000}]
      assert {:ok, [%{cost: 0}]} = Sessions.overview(store, status: :idle, prices: prices)

      printed = capture_io(fn -> :ok = Sessions.print_overview(running) end)
      assert printed =~ ~r/^running  runs  for \ds, messages that wait: 1, iterations: 1, on /m
      assert printed =~ ~r/^paused   asks  .*waits for a decision: wait/m
      refute inspect(rows) =~ "secret"
      refute printed =~ "secret"

      texts = capture_io(fn -> Sessions.print_overview(running, texts: true) end)
      assert texts =~ "the secret question"

      for wrong <- [[status: :gone], [limit: 0], [text: true]],
          do: assert_raise(ArgumentError, fn -> Sessions.overview(store, wrong) end)
    end

    test "shows control characters, and nothing that controls a terminal" do
      hostile = ["\e[2J", "\e[2J\u202E", "\e[2J\n\r\u0007", "\e[2J\u200B\u0085"]
      for hostile <- hostile, do: check_shown(hostile)
    end

    defp check_shown(hostile) do
      store = sqlite()
      call = %{id: "a", name: hostile, arguments: %{}}
      failure = %{kind: :server_error, code: hostile, message: hostile}

      context =
        Context.new(hostile, id: hostile)
        |> Context.add_assistant_message(hostile, [call])
        |> Context.Calls.ask_about_tool_call("a")
        |> Context.Audit.add_failure(failure)

      {:ok, _} = Store.create(store, context, status: :paused)

      for texts <- [true, false] do
        printed = capture_io(fn -> :ok = Sessions.print_overview(store, texts: texts) end)
        assert printed =~ "\\e[2J"
        refute printed =~ ~r/[\e\r\x07\x{202E}\x{200B}\x{85}]/u
        if not texts, do: assert(length(String.split(printed, "\n", trim: true)) == 1)
      end
    end

    test "has a row for what cannot be loaded, and none for what is gone" do
      store = sqlite()
      {:ok, _} = Store.create(store, Context.new("Hi", id: "c"), status: :parked)

      for {reason, shown} <- [
            {%Store.Error{reason: {:unavailable, :test}}, [{"c", :parked, nil}]},
            {:not_found, []}
          ] do
        answer = fn
          :after, :fetch -> {:error, reason}
          _time, _function -> :ok
        end

        {:ok, rows} = Sessions.overview(WatchedStore.new(store, answer))
        assert for(row <- rows, do: {row.id, row.status, row.iterations}) == shown
        for row <- rows, do: assert(Overview.line(row) =~ Exception.message(reason))
      end
    end
  end
end
