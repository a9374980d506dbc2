defmodule AshAgent.Late.LoopTest do
  # Not beside tests that capture the log: these conversations are parked, and that is logged.
  use ExUnit.Case, async: false

  import AshAgent.TestSupport.Runs, only: [drain: 1]

  alias AshAgent.{Context, Runtime, Session, Store}
  alias AshAgent.Context.Calls

  setup do
    {:ok, store} = Store.SQLite.open(":memory:")
    %{store: store}
  end

  # A tool that tells the test the key of its call, and returns what it is told.
  defp late(opts \\ []) do
    test = self()

    run = fn arguments, tool_context ->
      send(test, {:started, tool_context.arrival_key, arguments})
      Keyword.get(opts, :return, {:later, deadline: 3_600_000, for: "ci"})
    end

    %{function: run, late: true}
  end

  defp call(name, id, arguments \\ %{}),
    do: %{tool_calls: [%{id: id, name: name, arguments: arguments}]}

  # A model that tells the test what it reads.
  defp model(answers) do
    test = self()
    {:ok, agent} = Agent.start_link(fn -> answers end)

    fn context ->
      send(test, {:asked, Context.to_messages(context)})

      case Agent.get_and_update(agent, &{List.first(&1), Enum.drop(&1, 1)}) do
        nil -> {:ok, %{content: "nothing more"}}
        text when is_binary(text) -> {:ok, %{content: text}}
        answer -> {:ok, answer}
      end
    end
  end

  defp session(store, llm, opts \\ []) do
    opts = Keyword.merge([llm: llm, store: store, id: "c1", tools: %{build: late()}], opts)
    {:ok, session} = Session.start_link(opts)
    session
  end

  defp key do
    assert_receive {:started, key, _arguments}, 5_000
    key
  end

  # The messages of the next request, as one text.
  defp asked do
    assert_receive {:asked, messages}, 5_000
    inspect(messages, limit: :infinity, printable_limit: :infinity)
  end

  defp arrive(store, session, key, outcome, opts \\ [from: "ci"]) do
    answer = Store.arrive(store, "c1", key, outcome, opts)
    :ok = Session.take_arrivals(session)
    answer
  end

  defp await(session, status) do
    Enum.find(1..2_000, fn _ -> Session.status(session) == status || !Process.sleep(5) end) ||
      flunk("never #{inspect(status)}: #{inspect(Session.status(session))}")
  end

  test "the turn goes on, ends, and the result begins another one", %{store: store} do
    session = session(store, model([call("build", "a"), "I started the build.", "It is green."]))
    {:ok, result} = Session.prompt(session, "Build it")
    assert {result.status, result.output} == {:answered, "I started the build."}
    key = key()
    asked()
    assert asked() =~ "still running"
    assert [%{handle: ^key, for: "ci"}] = Calls.late_calls(result.context, :open)
    assert {:ok, [%{state: :waiting}]} = Store.calls(store, "c1")

    assert arrive(store, session, key, {:ok, "green"}) == {:ok, :kept}
    assert asked() =~ "green"
    await(session, :idle)
    context = Session.context(session)
    assert [%{state: :placed, from: "ci"}] = Calls.late_calls(context)
    assert %{content: "It is green."} = List.last(Context.to_messages(context))
    assert {:ok, []} = Store.arrivals(store, "c1")
    assert {:ok, [%{state: :arrived}]} = Store.calls(store, "c1")
    assert arrive(store, session, key, {:ok, "green"}) == {:ok, :again}
    assert arrive(store, session, key, {:ok, "red"}) == {:error, :answered}
    refute_receive {:asked, _}, 50
  end

  test "the model waits", %{store: store} do
    session =
      session(
        store,
        model([call("build", "a"), call("wait_for", "w", %{"calls" => ["a"]}), "It is green."])
      )

    {:ok, result} = Session.prompt(session, "Build it")
    assert result.status == :waiting
    assert Session.status(session) == :waiting
    {:ok, kept} = Store.fetch(store, "c1")
    assert kept.status == :waiting
    key = key()
    for _ <- 1..2, do: asked()
    assert arrive(store, session, key, {:ok, "green"}) == {:ok, :kept}
    text = asked()
    assert text =~ "the result of build has come"
    assert text =~ "green"
    # It stands in front of what wait_for returns, where a provider takes late outputs.
    assert text =~ ~s(awaited_by: "w")
    await(session, :idle)
    assert %{content: "It is green."} = List.last(Context.to_messages(Session.context(session)))

    assert Enum.all?(
             1..Session.context(session).current_iteration,
             &(Runtime.Late.woken(Session.context(session), &1) == nil)
           )
  end

  test "the key of a start has one form", %{store: store} do
    session = session(store, model([call("build", "a"), "Started.", "It is green."]))
    {:ok, _result} = Session.prompt(session, "Build it")
    key = key()

    for digits <- ["+1", "01", "1_0", String.duplicate("9", 30)] do
      other = String.replace_suffix(key, ".1", "." <> digits)
      assert Store.arrive(store, "c1", other, {:ok, "green"}) == {:error, :unknown}
    end

    assert {:ok, []} = Store.arrivals(store, "c1")
    assert Store.arrive(store, "c1", key, {:ok, "green"}) == {:ok, :kept}
  end

  # Store.arrive/5 within the tool.
  defp hasty(store, outcome) do
    late = late()

    run = fn arguments, tool_context ->
      answer = late.function.(arguments, tool_context)
      {:ok, :kept} = Store.arrive(store, "c1", tool_context.arrival_key, outcome, from: "ci")
      answer
    end

    %{late | function: run}
  end

  defp text(session),
    do:
      inspect(Context.to_messages(Session.context(session)),
        limit: :infinity,
        printable_limit: :infinity
      )

  defp last(session), do: List.last(Context.to_messages(Session.context(session))).content

  defp woken(session) do
    context = Session.context(session)
    Enum.count(1..context.current_iteration, &Runtime.Late.woken(context, &1))
  end

  describe "a result that comes before the tool has returned" do
    test "is read at the next step", %{store: store} do
      session =
        session(store, model([call("build", "a"), "It is green."]),
          tools: %{build: hasty(store, {:ok, "green"})}
        )

      {:ok, result} = Session.prompt(session, "Build it")
      assert result.output == "It is green."
      asked()
      assert asked() =~ "green"
      assert woken(session) == 0
      assert {:ok, []} = Store.arrivals(store, "c1")
    end

    test "begins a turn if the turn ends there", %{store: store} do
      opts = [tools: %{build: hasty(store, {:ok, "green"})}, when_late: :end]
      session = session(store, model([call("build", "a"), "It is green."]), opts)
      {:ok, result} = Session.prompt(session, "Build it")
      assert {result.status, result.output} == {:waiting, nil}
      asked()
      assert asked() =~ "green"
      await(session, :idle)
      assert {last(session), woken(session)} == {"It is green.", 1}
    end

    test "is not waited for", %{store: store} do
      opts = [tools: %{build: hasty(store, {:ok, "green"})}, when_late: :wait]
      session = session(store, model([call("build", "a"), "It is green."]), opts)
      {:ok, result} = Session.prompt(session, "Build it")
      assert {result.status, result.output, woken(session)} == {:answered, "It is green.", 0}
    end

    test "is told, and no result, if the tool has another one after it", %{store: store} do
      # The tool's own result is the first in the conversation; what came is noted.
      tool = %{hasty(store, {:ok, "green"}) | late: true}
      failing = %{tool | function: fn a, c -> tool.function.(a, c) && {:error, "no answer"} end}
      session = session(store, model([call("build", "a"), "Failed."]), tools: %{build: failing})
      {:ok, _result} = Session.prompt(session, "Build it")
      assert text(session) =~ "no answer"
      :ok = Session.take_arrivals(session)
      await(session, :idle)
      refute text(session) =~ "green"
      assert {:ok, []} = Store.arrivals(store, "c1")
      assert [%{code: "late_result"}] = Context.Audit.failures(Session.context(session))
    end
  end

  test "the turn ends, or waits until all have come", %{store: store} do
    calls = %{
      tool_calls: [
        %{id: "a", name: "build", arguments: %{}},
        %{id: "b", name: "build", arguments: %{}}
      ]
    }

    session = session(store, model([calls, "Both."]), when_late: :wait)
    {:ok, %{status: :waiting}} = Session.prompt(session, "Build both")
    assert Session.status(session) == :waiting
    keys = [key(), key()]
    asked()
    [one, two] = Enum.map(Calls.late_calls(Session.context(session), :open), & &1.handle)
    assert Enum.sort([one, two]) == Enum.sort(keys)
    {:ok, :kept} = arrive(store, session, one, {:ok, "first"})
    refute_receive {:asked, _}, 50
    assert Session.status(session) == :waiting
    {:ok, :kept} = arrive(store, session, two, {:error, "second"})
    assert asked() =~ ~r/first.*second/s
    await(session, :idle)
    assert {last(session), woken(session)} == {"Both.", 0}
  end

  describe "a model that waits" do
    defp waiting(store, opts \\ []) do
      answers = [call("build", "a"), call("wait_for", "w"), "After it.", "More."]
      session = session(store, model(answers), opts)
      {:ok, %{status: :waiting}} = Session.prompt(session, "Build it")
      for _ <- 1..2, do: asked()
      {session, key()}
    end

    test "reads a prompt at once, and the result later", %{store: store} do
      {session, key} = waiting(store)
      {:ok, %{output: "After it."}} = Session.prompt(session, "stop")
      assert asked() =~ ~r/a message came.*a: build is still running.*stop/s
      assert Session.status(session) == :idle
      {:ok, :kept} = arrive(store, session, key, {:ok, "green"})
      assert asked() =~ "green"
      await(session, :idle)
      assert {last(session), woken(session)} == {"More.", 1}
    end

    test "waits for what the hooks before its call left, also for another session", %{
      store: store
    } do
      {:ok, hooked} = Agent.start_link(fn -> 0 end)

      hook = fn
        %{name: "wait_for"} = call, _ ->
          first? = Agent.get_and_update(hooked, &{&1 == 0, &1 + 1})
          {:ok, %{call | arguments: %{calls: if(first?, do: ["b"], else: ["a"])}}}

        _call, _ ->
          :ok
      end

      both = %{tool_calls: call("build", "a").tool_calls ++ call("build", "b").tool_calls}
      answers = [both, call("wait_for", "w", %{"calls" => ["a"]}), "After it."]
      opts = [before_tool: hook]
      session = session(store, model(answers), opts)
      {:ok, %{status: :waiting}} = Session.prompt(session, "Build both")
      for _ <- 1..2, do: key()
      keys = Map.new(Calls.late_calls(Session.context(session)), &{&1.id, &1.handle})
      for _ <- 1..2, do: asked()
      assert arrive(store, session, keys["a"], {:ok, "green"}) == {:ok, :kept}
      Process.sleep(50)
      assert Session.status(session) == :waiting
      GenServer.stop(session)
      session = session(store, model(["After it."]), opts)
      assert arrive(store, session, keys["b"], {:ok, "blue"}) == {:ok, :kept}
      assert asked() =~ ~r/b: the result of build has come/
      await(session, :idle)
      refute text(session) =~ "a: the result"
    end

    test "reads a message of steer/3 in the same turn", %{store: store} do
      {session, _key} = waiting(store)
      assert Session.steer(session, "stop") == :ok
      assert asked() =~ ~r/a message came.*stop/s
      await(session, :idle)
      assert last(session) == "After it."
    end

    test "is not kept waiting by a prompt that came before it waited", %{store: store} do
      test = self()
      slow = fn _ -> send(test, {:slow, self()}) && receive(do: (:go -> {:ok, "slow"})) end
      both = %{tool_calls: call("slow", "s").tool_calls ++ call("wait_for", "w").tool_calls}

      session =
        session(store, model([call("build", "a"), both, "One.", "Two."]),
          tools: %{build: late(), slow: slow}
        )

      {:ok, one} = Session.prompt_async(session, "Build it")
      assert_receive {:slow, pid}, 5_000
      {:ok, two} = Session.prompt_async(session, "stop")
      send(pid, :go)
      assert_receive {Session, ^one, {:ok, %{output: "One."}}}, 5_000
      assert_receive {Session, ^two, {:ok, %{output: "Two."}}}, 5_000
      assert text(session) =~ "a message came"
    end

    test "does not wait while a person is asked, or when a tool ended the run", %{store: store} do
      for {name, tool, words} <- [
            {"look", fn _ -> {:ok, 1} end, "another call waits for a person"},
            {"stop", fn _ -> {:halt, "over"} end, "another tool ended the run"}
          ] do
        both = %{tool_calls: call(name, "s").tool_calls ++ call("wait_for", "w").tool_calls}
        ask = fn call, _ -> if(call.name == "look", do: :ask, else: :approve) end
        opts = [tools: %{build: late()} |> Map.put(name, tool), approval: ask, id: name]
        session = session(store, model([call("build", "a"), both, "Done."]), opts)
        Session.prompt(session, "Build it")
        assert text(session) =~ words
        ids = for call <- Context.pending_tool_calls(Session.context(session)), do: call.id
        assert ids == if(name == "look", do: ["s"], else: [])
      end
    end

    test "is cancelled", %{store: store} do
      {session, key} = waiting(store)
      assert Session.cancel(session) == :ok
      assert Session.status(session) == :idle
      assert text(session) =~ "cancelled"
      {:ok, :kept} = arrive(store, session, key, {:ok, "green"})
      assert asked() =~ "green"
    end

    test "goes on in another life", %{store: store} do
      for how <- [:before, :after] do
        id = Atom.to_string(how)
        {session, key} = waiting(store, id: id)
        GenServer.stop(session)
        if how == :before, do: {:ok, :kept} = Store.arrive(store, id, key, {:ok, "green"})
        again = session(store, model(["It is green."]), id: id)

        if how == :after do
          assert Session.status(again) == :waiting
          refute_receive {:asked, _}, 50
          {:ok, :kept} = Store.arrive(store, id, key, {:ok, "green"})
          :ok = Session.take_arrivals(again)
        end

        assert asked() =~ "green"
        await(again, :idle)
        assert {last(again), woken(again)} == {"It is green.", 0}
        {:ok, writes} = Store.history(store, id)
        refute Enum.any?(writes, &match?(%{note: %{resumed: _}}, &1))
      end
    end

    test "does not wait for calls without a result to come", %{store: store} do
      answers = [
        call("wait_for", "v", %{"calls" => ["none"]}),
        call("build", "a"),
        call("wait_for", "w", %{"calls" => ["a", "none"]})
      ]

      answers = answers ++ [call("wait_for", "x", %{"calls" => ["a"]}), "Done."]
      session = session(store, model(answers))
      {:ok, %{status: :waiting}} = Session.prompt(session, "Go")
      assert text(session) =~ "none: no call of this id waits"
      key = key()
      {:ok, :kept} = arrive(store, session, key, {:cancelled, "nobody builds"})
      await(session, :idle)
      assert last(session) == "Done."
      assert text(session) =~ "a: it was cancelled"
    end

    # What the schema lets pass in another form, with two calls of which one has its result.
    for arguments <- [
          %{"calls" => ~s(["a", "b"])},
          %{"seconds" => "60"},
          %{"seconds" => 60.0, "calls" => ["a", "b"]}
        ] do
      test "may write #{inspect(arguments)}", %{store: store} do
        builds = call("build", "a").tool_calls ++ call("build", "b").tool_calls
        wait = call("wait_for", "w", unquote(Macro.escape(arguments)))
        session = session(store, model([%{tool_calls: builds}, wait, "One.", "Two."]))
        {:ok, %{status: :waiting}} = Session.prompt(session, "Build it")
        keys = [key(), key()]
        for _ <- 1..2, do: asked()
        {:ok, :kept} = arrive(store, session, hd(keys), {:ok, "first"})
        assert Session.status(session) == :waiting
        {:ok, %{output: "One."}} = Session.prompt(session, "stop")
        assert asked() =~ ~r/a message came.*stop/s
      end
    end

    test "is told of a time that is too long", %{store: store} do
      answers = [call("build", "a"), call("wait_for", "w", %{"seconds" => 10 ** 15}), "Well."]
      session = session(store, model(answers))
      {:ok, %{output: "Well."}} = Session.prompt(session, "Build it")
      assert text(session) =~ "do not fit the tool's schema"
    end

    test "waits no longer than it says", %{store: store} do
      answers = [call("build", "a"), call("wait_for", "w", %{"seconds" => 1}), "Too late."]
      session = session(store, model(answers))
      {:ok, %{status: :waiting}} = Session.prompt(session, "Build it")
      Process.sleep(1_100)
      {:ok, _rows} = Store.expire_waiting(store)
      :ok = Session.take_arrivals(session)
      await(session, :idle)
      assert last(session) == "Too late."
      assert text(session) =~ "the time is over"
      assert [%{state: :open}] = Calls.late_calls(Session.context(session))
      assert {:ok, []} = Store.arrivals(store, "c1")
    end
  end

  test "a call that was called off begins no turn, and the next one reads it", %{store: store} do
    session = session(store, model([call("build", "a"), "Started.", "I see."]))
    {:ok, _} = Session.prompt(session, "Build it")
    key = key()
    {:ok, :kept} = arrive(store, session, key, {:cancelled, "nobody builds"}, from: "ann")
    assert {:ok, []} = Store.arrivals(store, "c1")
    assert arrive(store, session, key, {:ok, "green"}) == {:error, :cancelled}
    for _ <- 1..2, do: asked()
    refute_receive {:asked, _}, 50
    {:ok, %{output: "I see."}} = Session.prompt(session, "And?")
    assert asked() =~ "nobody builds"
    assert Calls.tool_call_status(Session.context(session), "a") == :cancelled
  end

  test "after a rewind to before its place, a result wakes nobody and is read with the next message",
       %{
         store: store
       } do
    session = session(store, model([call("build", "a"), "Started.", "It is green."]))
    {:ok, _} = Session.prompt(session, "Build it")
    {:ok, :kept} = arrive(store, session, key(), {:ok, "green"})
    for _ <- 1..3, do: asked()
    await(session, :idle)
    GenServer.stop(session)
    {:ok, kept} = Store.fetch(store, "c1")
    [%{placed: placed}] = Calls.late_calls(kept.value)
    {:ok, _} = Store.append(store, kept, Context.rewind(kept.value, to: placed - 1))

    again = session(store, model(["Yes."]))
    :ok = Session.take_arrivals(again)
    refute_receive {:asked, _}, 50
    assert [%{state: :arrived}] = Calls.late_calls(Session.context(again))
    {:ok, _} = Session.prompt(again, "Well?")
    assert asked() =~ ~r/green.*Well/s
  end

  test "subscribers and functions hear of it", %{store: store} do
    test = self()

    on_event = fn name, _measured, metadata ->
      send(test, {Enum.take(name, -2), Map.take(metadata, [:status, :tool_call_id])})
    end

    session =
      session(store, model([call("build", "a"), "Started.", "Green."]), on_event: on_event)

    {:ok, ref, _snapshot} = Session.subscribe(session)
    {:ok, _} = Session.prompt(session, "Build it")
    assert_receive {[:tool, :stop], %{status: :waiting, tool_call_id: "a"}}, 5_000
    {:ok, :kept} = arrive(store, session, key(), {:ok, "green"})
    assert_receive {[:tool, :arrival], %{status: :ok, tool_call_id: "a"}}, 5_000
    await(session, :idle)

    assert_receive {Session, ^ref, _number,
                    {:event, [:tool, :arrival], _, %{tool: "build", tool_call_id: "a"}}},
                   5_000
  end

  describe "a question that does not wait" do
    defp asking(store, opts) do
      tool = Runtime.AskUser.tool([late: true, for: "ann"] ++ opts)
      question = %{"question" => "Which seat?"}
      llm = model([call("ask_user", "q", question), "I asked.", "Booked."])
      session = session(store, llm, tools: [tool], approval: fn _, _ -> :ask end)
      {:ok, %{output: "I asked."}} = Session.prompt(session, "Book a seat")
      session
    end

    test "is answered by answer/4, which begins a turn", %{store: store} do
      session = asking(store, choices: ["window", "aisle"])
      assert [%{for: "ann", state: :open}] = Calls.late_calls(Session.context(session))

      assert {:error, %Context.Error{reason: {:invalid, [:answer], _}}} =
               Session.answer(session, "q", "roof")

      assert Session.answer(session, "q", "aisle", by: "ann") == :ok
      await(session, :idle)
      assert [%{result: {:ok, "aisle"}, from: "ann"}] = Calls.late_calls(Session.context(session))
      assert last(session) == "Booked."
      assert {:error, %Context.Error{}} = Session.answer(session, "q", "window")
    end

    test "is listed with what may be answered", %{store: store} do
      asking(store, choices: ["window", "aisle"])
      assert {:ok, %{calls: [%{for: "ann", call: call}]}} = AshAgent.Sessions.waiting(store)
      assert %{name: "ask_user", question: true} = call
      assert call.arguments == %{"question" => "Which seat?", "choices" => ["window", "aisle"]}
    end

    test "takes a form", %{store: store} do
      form = %{
        "type" => "object",
        "properties" => %{"row" => %{"type" => "integer"}},
        "required" => ["row"]
      }

      session = asking(store, form: form)
      assert {:ok, %{calls: [%{call: call}]}} = AshAgent.Sessions.waiting(store)
      assert call.arguments == %{"question" => "Which seat?", "form" => form}
      assert Session.answer(session, "q", %{"row" => "7"}) == :ok
      await(session, :idle)
      assert [%{result: {:ok, %{"row" => 7}}}] = Calls.late_calls(Session.context(session))
    end

    test "and nobody answers another late call", %{store: store} do
      session = session(store, model([call("build", "a"), "Started."]))
      {:ok, _} = Session.prompt(session, "Build it")

      assert {:error, %Context.Error{reason: {:not_a_question, "a"}}} =
               Session.answer(session, "a", "green")

      assert {:ok, []} = Store.arrivals(store, "c1")
    end
  end

  test "a deadline that passes is a result", %{store: store} do
    session =
      session(store, model([call("build", "a"), "Started.", "Nobody came."]),
        tools: %{build: late(return: {:later, deadline: 1})}
      )

    {:ok, _result} = Session.prompt(session, "Build it")
    Process.sleep(10)
    assert {:ok, [_row]} = Store.expire_waiting(store)
    :ok = Session.take_arrivals(session)
    await(session, :idle)
    assert last(session) == "Nobody came."
    assert text(session) =~ "no result came until the deadline"
  end

  describe "who is woken" do
    @ann [runtime_context: %{actor: %{id: "ann"}}, metadata: %{user: "ann"}]
    @bob [runtime_context: %{actor: %{id: "bob"}}, metadata: %{user: "bob"}]

    # Tells as whom it runs.
    defp who do
      test = self()
      fn _arguments, tool_context -> send(test, {:ran_as, tool_context.actor}) && {:ok, "ok"} end
    end

    defp tools, do: %{build: late(), look: who()}

    test "a turn of whoever asked, one for each", %{store: store} do
      answers = [call("build", "a"), "Started.", call("build", "b"), "Started, too."]
      answers = answers ++ [call("look", "c"), "For one.", call("look", "d"), "For the other."]
      session = session(store, model(answers), tools: tools())
      {:ok, _} = Session.prompt(session, "Build it", @ann)
      one = key()
      {:ok, _} = Session.prompt(session, "Build mine", @bob)
      two = key()
      {:ok, :kept} = Store.arrive(store, "c1", two, {:ok, "two"})
      {:ok, :kept} = Store.arrive(store, "c1", one, {:ok, "one"})
      :ok = Session.take_arrivals(session)
      await(session, :idle)
      assert_receive {:ran_as, %{id: "bob"}}
      assert_receive {:ran_as, %{id: "ann"}}
      assert woken(session) == 2
    end

    test "whoever first ran a message that came with the conversation", %{store: store} do
      restore = fn %{"who" => who} -> {:ok, %{actor: who}} end

      message = &Context.add_user_message(&1, &2, metadata: %{"who" => &3})
      context = Context.new("Hi", id: "c1") |> Context.add_assistant_message("Hello!")
      {:ok, _} = Store.create(store, message.(context, "Build it", "ann"))
      opts = [tools: %{build: late(), who: who_tool()}, restore_context: restore, go_on: false]
      one = session(store, model([call("build", "a"), "Started."]), opts)
      {:ok, _} = Session.resume(one, runtime_context: %{actor: "ann"})
      {ann, _} = {key(), GenServer.stop(one)}

      {:ok, kept} = Store.fetch(store, "c1")
      {:ok, _} = Store.append(store, kept, message.(kept.value, "Mine, too", "bob"))
      two = session(store, model([call("build", "b"), "Started."]), opts)
      {:ok, _} = Session.resume(two, runtime_context: %{actor: "bob"})
      {bob, _} = {key(), GenServer.stop(two)}

      for {key, name} <- [{ann, "ann"}, {bob, "bob"}] do
        again = session(store, model([call("who", "w-" <> name), "Done."]), opts)
        {:ok, :kept} = arrive(store, again, key, {:ok, "green"})
        until_woken(again)
        assert text(again) =~ ~s(content: "#{name}")
        GenServer.stop(again)
      end
    end

    defp who_tool, do: fn _, context -> {:ok, context[:actor] || "nobody"} end

    defp until_woken(session) do
      await(session, :idle)
      last(session) == "Done." || flunk("not woken: #{text(session)}")
    end

    test "nobody else's rights, so it waits and says what is missing", %{store: store} do
      session =
        session(store, model([call("build", "a"), "Started.", "An answer."]), tools: tools())

      {:ok, _} = Session.prompt(session, "Build it", @ann)
      key = key()
      {:ok, _} = Session.prompt(session, "Something else", @bob)
      GenServer.stop(session)
      for _ <- 1..3, do: asked()
      again = session(store, model([call("look", "c"), "Green."]), tools: tools())
      {:ok, :kept} = arrive(store, again, key, {:ok, "green"})
      await(again, :parked)
      refute_receive {:asked, _}, 20
      {:ok, kept} = Store.fetch(store, "c1")

      assert {:ok, %{reason: %{reason: :missing_runtime_context}}} =
               Session.Parked.fetch(store, kept)

      assert {:error, %{reason: {:missing_option, :runtime_context}}} = Session.resume(again)
      {:ok, result} = Session.resume(again, Keyword.take(@ann, [:runtime_context]))
      assert result.output == "Green."
      assert_receive {:ran_as, %{id: "ann"}}
    end

    test "is found again by the message that asked", %{store: store} do
      session =
        session(store, model([call("build", "a"), "Started.", "An answer."]), tools: tools())

      {:ok, _} = Session.prompt(session, "Build it", @ann)
      key = key()
      {:ok, _} = Session.prompt(session, "Something else", @bob)
      GenServer.stop(session)
      restore = fn %{user: user} -> {:ok, %{actor: %{id: user}}} end

      again =
        session(store, model([call("look", "c"), "Green."]),
          tools: tools(),
          restore_context: restore
        )

      {:ok, :kept} = arrive(store, again, key, {:ok, "green"})
      assert_receive {:ran_as, %{id: "ann"}}, 5_000
    end

    test "during somebody else's turn it waits for its end", %{store: store} do
      test = self()
      slow = fn _ -> send(test, {:slow, self()}) && receive(do: (:go -> {:ok, "slow"})) end

      answers = [
        call("build", "a"),
        "Started.",
        call("slow", "s"),
        "Slow is done.",
        call("look", "c"),
        "Green."
      ]

      session = session(store, model(answers), tools: Map.put(tools(), :slow, slow))
      {:ok, _} = Session.prompt(session, "Build it", @ann)
      key = key()
      {:ok, _ref} = Session.prompt_async(session, "Slowly", @bob)
      assert_receive {:slow, pid}, 5_000
      {:ok, :kept} = arrive(store, session, key, {:ok, "green"})
      for _ <- 1..3, do: asked()
      send(pid, :go)
      refute asked() =~ "green"
      assert asked() =~ "green"
      assert_receive {:ran_as, %{id: "ann"}}, 5_000
      await(session, :idle)
      assert woken(session) == 1
    end

    test "during a turn of the same person it is read at the next step", %{store: store} do
      test = self()
      slow = fn _ -> send(test, {:slow, self()}) && receive(do: (:go -> {:ok, "slow"})) end
      answers = [call("build", "a"), "Started.", call("slow", "s"), "Both."]
      session = session(store, model(answers), tools: Map.put(tools(), :slow, slow))
      {:ok, _} = Session.prompt(session, "Build it", @ann)
      key = key()
      {:ok, ref} = Session.prompt_async(session, "Slowly", @ann)
      assert_receive {:slow, pid}, 5_000
      {:ok, :kept} = arrive(store, session, key, {:ok, "green"})
      send(pid, :go)
      assert_receive {Session, ^ref, {:ok, %{output: "Both."}}}, 5_000
      assert text(session) =~ "green"
      assert woken(session) == 0
    end

    test "so many times an hour", %{store: store} do
      n = 4

      answers =
        Enum.flat_map(1..n, &[call("build", "a#{&1}"), "Started."]) ++ List.duplicate("Woken.", n)

      session = session(store, model(answers), max_wakes: 2)

      keys =
        for _ <- 1..n do
          {:ok, _} = Session.prompt(session, "Build it")
          key()
        end

      for key <- keys do
        {:ok, :kept} = arrive(store, session, key, {:ok, key})
        await(session, :idle)
      end

      assert woken(session) == 2
      assert {:ok, [_, _]} = Store.arrivals(store, "c1")
      # Whoever writes reads the others.
      {:ok, _} = Session.prompt(session, "And?")
      assert {:ok, []} = Store.arrivals(store, "c1")
    end

    defp costly(answers) do
      for answer <- answers do
        answer = if is_binary(answer), do: %{content: answer}, else: answer
        Map.put(answer, :usage, %{input_tokens: 100, output_tokens: 0})
      end
    end

    defp count_asked, do: length(drain(do: ({:asked, _} -> :asked)))

    # The name, what the session has and what the turn was given, and how often the model is asked then.
    for {name, own, given, asked} <- [
          {:max_calls, nil, 1, 1},
          {:max_calls, 3, 1_000, 3},
          {:max_iterations, 10, 2, 2},
          {:max_iterations, 3, 1_000, 3},
          {:max_total_tokens, nil, 150, 2},
          {:max_total_tokens, 250, 1_000, 3},
          {:max_total_tokens, 250, :infinity, 3}
        ],
        life <- ["the same", "another", "a killed"] do
      test "has the limits of the turn that made the call: #{name}, #{own}, #{given}, in #{life} life",
           %{store: store} do
        [name, own, given, asked, life] = unquote([name, own, given, asked, life])
        looks = for n <- 1..5, do: call("look", "l#{n}")
        llm = model(costly([call("build", "a"), "Started."] ++ looks ++ ["Enough."]))
        ask = fn call, _ -> if call.name == "build", do: :ask, else: :approve end
        test = self()
        stuck = fn _, _ -> send(test, :stuck) && Process.sleep(:infinity) end
        tools = if life == "a killed", do: %{tools() | look: stuck}, else: tools()
        opts = [tools: tools, approval: ask] ++ if(own, do: [{name, own}], else: [])
        session = session(store, llm, opts)
        {:paused, _} = Session.prompt(session, "Build it")
        :ok = Session.approve(session, "a")
        {:ok, %{output: "Started."}} = Session.resume(session, [{name, given}])
        key = key()
        count_asked()

        session =
          case life do
            "the same" -> session
            "another" -> GenServer.stop(session) && session(store, llm, opts)
            "a killed" -> session
          end

        {:ok, :kept} = arrive(store, session, key, {:ok, "green"})

        if life == "a killed" do
          assert_receive :stuck, 5_000
          Process.flag(:trap_exit, true)
          Process.exit(session, :kill)
          assert_receive {:EXIT, ^session, :killed}
          assert count_asked() == 1
          opts = opts |> Keyword.put(:tools, tools()) |> Keyword.delete(:approval)
          # What goes on with the turn asks no more than a run with these limits.
          again = session(store, llm, opts)
          await(again, :idle)
          assert count_asked() <= asked
        else
          await(session, :idle)
          assert count_asked() == asked
          # A message begins another turn.
          {:ok, %{output: "Enough."}} = Session.prompt(session, "Go on", [])
        end
      end
    end

    @cheap [prices: [%{model: :any, input: 1, output: 1}]]

    test "no turn that has cost its limit, so it waits and says so", %{store: store} do
      llm =
        model(costly([call("build", "a"), "Started.", "Green.", call("build", "b"), "Again."]))

      test = self()
      hook = fn call, result, _ -> send(test, {:after, call.id}) && {:ok, result} end
      session = session(store, llm, [max_cost: 200, after_tool: hook] ++ @cheap)
      {:ok, %{output: "Started."}} = Session.prompt(session, "Build it")
      key = key()
      before = Session.context(session)
      count_asked()
      {:ok, :kept} = arrive(store, session, key, {:ok, "green"})
      await(session, :parked)
      refute_received {:after, "a"}

      over_budget = fn ->
        assert count_asked() == 0
        assert Session.context(session) == before
        {:ok, kept} = Store.fetch(store, "c1")
        assert {:ok, [%{key: ^key}]} = Store.arrivals(store, "c1")
        assert {:ok, %{reason: reason}} = Session.Parked.fetch(store, kept)
        assert %{reason: :over_budget, limit: {:max_cost_exceeded, 200}} = reason
        assert Session.Parked.describe(reason) =~ "results came"
        assert {:ok, [%{status: :parked}]} = AshAgent.Sessions.overview(store)
      end

      over_budget.()
      assert {:error, %{reason: {:max_cost_exceeded, 200}}} = Session.resume(session)
      assert Session.status(session) == :parked
      over_budget.()
      assert {:ok, %{output: "Green."}} = Session.resume(session, max_cost: 1_000)
      assert {:ok, []} = Store.arrivals(store, "c1")
      assert_received {:after, "a"}

      # Whoever writes begins another turn, which reads it.
      {:ok, %{output: "Again."}} = Session.prompt(session, "Build it")
      {:ok, :kept} = arrive(store, session, key(), {:ok, "red"})
      await(session, :parked)
      count_asked()
      {:ok, %{output: "nothing more"}} = Session.prompt(session, "And?")
      assert asked() =~ "red"
    end

    test "no turn whose first request would cost too much, or has no price", %{store: store} do
      opts = [view: :auto, max_cost: 4_000] ++ @cheap
      session = session(store, model(costly([call("build", "a"), "Started.", "Green."])), opts)
      {:ok, _} = Session.prompt(session, "Build it")
      {:ok, :kept} = arrive(store, session, key(), {:ok, String.duplicate("green ", 10_000)})
      await(session, :parked)
      assert {:ok, [_]} = Store.arrivals(store, "c1")
      assert woken(session) == 0
      GenServer.stop(session)

      first = session(store, model([call("build", "a"), "Started."]), id: "c2")
      {:ok, _} = Session.prompt(first, "Build it")
      {key, _} = {key(), GenServer.stop(first)}
      count_asked()
      opts = [id: "c2", max_cost: 1_000, prices: [%{model: "one", input: 1, output: 1}]]
      again = session(store, model(["x"]), opts)
      {:ok, :kept} = Store.arrive(store, "c2", key, {:ok, "green"})
      :ok = Session.take_arrivals(again)
      await(again, :parked)
      assert count_asked() == 0
      {:ok, kept} = Store.fetch(store, "c2")
      assert {:ok, %{reason: %{limit: {:no_price, nil}}}} = Session.Parked.fetch(store, kept)
      GenServer.stop(again)

      # The same without a session.
      {:ok, kept} = Store.claim(store, "c2", owner: "me", status: :running)
      opts = Keyword.delete(opts, :id) ++ [llm: model(["x"]), tools: %{build: late()}]
      opts = [store: store, kept: kept] ++ opts
      assert {:error, %{reason: {:no_price, nil}}} = Runtime.run(kept.value, opts)
      assert count_asked() == 0
      assert {:ok, [%{key: ^key}]} = Store.arrivals(store, "c2")
    end

    test "has the type of the turn that made the call, and its approval", %{store: store} do
      typed = [output: [state: :string]]
      answers = [call("build", "a"), ~s({"state": "started"}), ~s({"state": "green"})]
      session = session(store, model(answers), typed ++ [output_mode: :text])
      {:ok, %{output: %{state: "started"}}} = Session.prompt(session, "Build it")
      key = key()
      GenServer.stop(session)
      again = session(store, model(["x"]))
      {:ok, :kept} = arrive(store, again, key, {:ok, "green"})
      await(again, :parked)
      {:ok, kept} = Store.fetch(store, "c1")

      assert {:ok, %{reason: %{reason: :missing_option, option: :output}}} =
               Session.Parked.fetch(store, kept)

      approving =
        session(store, model([call("build", "a"), "Started."]),
          id: "c2",
          approval: fn _, _ -> :approve end
        )

      {:ok, _} = Session.prompt(approving, "Build it")
      key = key()
      GenServer.stop(approving)
      again = session(store, model(["x"]), id: "c2")
      {:ok, :kept} = Store.arrive(store, "c2", key, {:ok, "green"})
      :ok = Session.take_arrivals(again)
      await(again, :parked)
      {:ok, kept} = Store.fetch(store, "c2")

      assert {:ok, %{reason: %{reason: :missing_option, option: :approval}}} =
               Session.Parked.fetch(store, kept)
    end

    test "nobody's message, which has a turn of its own beside the results of one that was cancelled",
         %{store: store} do
      session = session(store, model([call("build", "a"), "Started."]))
      {:ok, _} = Session.prompt(session, "Build it")
      key = key()
      for _ <- 1..2, do: asked()
      GenServer.stop(session)

      test = self()
      hangs = fn context -> send(test, {:asked, context}) && Process.sleep(:infinity) end
      again = session(store, hangs, output: [state: :string], output_mode: :text)
      {:ok, :kept} = arrive(store, again, key, {:ok, "green"})
      assert_receive {:asked, _context}, 5_000
      :ok = Session.cancel(again)

      :ok = Session.put_llm(again, model([~s({"state": "new"})]))
      assert {:ok, %{output: %{state: "new"}}} = Session.prompt(again, "And now?")
      assert woken(again) == 0
      assert [_at] = Runtime.Late.list_woken(Session.context(again), ~U[2000-01-01 00:00:00Z])
    end
  end

  describe "a call that was started when the machine stopped" do
    defp killed(store, opts \\ []) do
      test = self()

      stuck = fn _arguments, context ->
        send(test, {:started, context.arrival_key, self()}) && Process.sleep(:infinity)
      end

      Process.flag(:trap_exit, true)

      session =
        session(
          store,
          model([call("build", "a")]),
          [tools: %{build: %{function: stuck, late: true}}] ++ opts
        )

      {:ok, _ref} = Session.prompt_async(session, "Build it")
      key = key()
      Process.exit(session, :kill)
      assert_receive {:EXIT, ^session, :killed}
      asked()
      key
    end

    test "has the result that came", %{store: store} do
      key = killed(store)
      {:ok, :kept} = Store.arrive(store, "c1", key, {:ok, "green"})
      again = session(store, model(["Green."]))
      assert asked() =~ "green"
      await(again, :idle)
      assert {:ok, []} = Store.arrivals(store, "c1")
      assert {:ok, [%{state: :arrived}]} = Store.calls(store, "c1")
      refute_received {:started, _, _}
    end

    test "waits for one that may come", %{store: store} do
      key = killed(store)
      again = session(store, model(["It may be running.", "Green."]))
      assert asked() =~ "still running"
      await(again, :idle)
      {:ok, :kept} = arrive(store, again, key, {:ok, "green"})
      assert asked() =~ "green"
      await(again, :idle)
      assert last(again) == "Green."
      refute_received {:started, _, _}
    end
  end

  defmodule OldStore do
    # One of an application, from before stores kept late results.
    defstruct [:store]

    for {name, arity} <- Store.behaviour_info(:callbacks) do
      [_ | args] = Macro.generate_arguments(arity, __MODULE__)

      def unquote(name)(%{store: %module{} = store}, unquote_splicing(args)),
        do: apply(module, unquote(name), [store, unquote_splicing(args)])
    end
  end

  test "a store that keeps no late results goes on with calls that wait, and has no late tools",
       %{store: store} do
    old = %OldStore{store: store}

    context =
      Context.new("Build it", id: "c1")
      |> Context.add_assistant_message(nil, [%{id: "a", name: :build}])
      |> Context.add_tool_results([{"a", {:waiting, %{handle: "k"}}}])

    session = session(old, model(["Still building.", "Yes."]), tools: %{}, context: context)
    {:ok, %{output: "Still building."}} = Session.resume(session)
    {:ok, %{output: "Yes."}} = Session.prompt(session, "Still?")
    assert Session.take_arrivals(session) == :ok

    assert_raise ArgumentError, ~r/the store keeps no late results/, fn ->
      session(old, model([]), id: "c2")
    end
  end

  test "a tool of the application may be called wait_for", %{store: store} do
    tools = %{build: late(), wait_for: fn _ -> {:ok, "my own"} end}

    session =
      session(store, model([call("build", "a"), call("wait_for", "w"), "Done."]), tools: tools)

    {:ok, %{output: "Done."}} = Session.prompt(session, "Build it")
    assert text(session) =~ "my own"
  end

  test "a late tool needs a store, and is for no sub-agent", %{store: store} do
    llm = fn _ -> {:ok, %{content: "ok"}} end

    assert_raise ArgumentError, ~r/"build" has :late, which needs the option :store/, fn ->
      Runtime.run(Context.new("Hi"), llm: llm, tools: %{build: late()})
    end

    assert_raise ArgumentError, ~r/"build" has :late, which needs the option :store/, fn ->
      Session.start_link(llm: llm, tools: %{build: late()})
    end

    assert_raise ArgumentError, ~r/"build" has :late, which a sub-agent/, fn ->
      Runtime.SubAgent.tool(name: "sub", llm: llm, tools: %{build: late()})
    end

    tools = fn -> %{build: late()} end

    assert {:error, %{reason: {:tools_exception, :error, _}}} =
             Runtime.run(Context.new("Hi"), llm: llm, tools: tools)

    sub = Runtime.SubAgent.tool(name: "sub", llm: llm, tools: tools)
    session = session(store, model([call("sub", "s", %{"task" => "x"}), "Done."]), tools: [sub])
    assert {:ok, _} = Session.prompt(session, "Go")
    refute_received {:started, _, _}
  end

  test "a run without a session takes what has come", %{store: store} do
    {:ok, kept} = Store.create(store, Context.new("Build it", id: "c1"), owner: "a")
    opts = [store: store, tools: %{build: late()}]

    {:ok, result} =
      Runtime.run(kept.value, [llm: model([call("build", "a"), "Started."]), kept: kept] ++ opts)

    key = key()

    {:ok, result} =
      Runtime.run(result.context, [llm: model(["never"]), kept: result.kept] ++ opts)

    assert result.output == "Started."
    {:ok, :kept} = Store.arrive(store, "c1", key, {:ok, "green"}, from: "ci")

    {:ok, result} =
      Runtime.run(result.context, [llm: model(["It is green."]), kept: result.kept] ++ opts)

    assert result.output == "It is green."
    assert {:ok, []} = Store.arrivals(store, "c1")
  end

  test "hooks and the type of the tool see what comes", %{store: store} do
    hook = fn call, result, _context ->
      if(call.name == "build" and match?({:ok, _}, result),
        do: {:ok, {:ok, "redacted"}},
        else: :ok
      )
    end

    tools = %{build: Map.put(late(), :returns, :integer)}

    session =
      session(
        store,
        model([call("build", "a"), "Started.", "1", call("build", "b"), "Started.", "2"]),
        tools: tools,
        after_tool: hook
      )

    {:ok, _} = Session.prompt(session, "Build it")
    {:ok, :kept} = arrive(store, session, key(), {:ok, 7})
    await(session, :idle)
    assert text(session) =~ "redacted"
    {:ok, _} = Session.prompt(session, "Again")
    {:ok, :kept} = arrive(store, session, key(), {:ok, "not a number"})
    await(session, :idle)
    assert text(session) =~ "does not fit its schema"
    refute text(session) =~ "not a number"
  end

  test "what a tool says of the result has to be right", %{store: store} do
    for return <- [{:later, []}, {:later, for: "x", deadline: ~U[2020-01-01 00:00:00Z]}] do
      id = inspect(return)

      session =
        session(store, model([call("build", "a"), "ok"]),
          id: id,
          tools: %{build: late(return: return)}
        )

      {:ok, _} = Session.prompt(session, "Go")
      assert [%{state: :open, deadline: %DateTime{}}] = Calls.late_calls(Session.context(session))
    end

    for return <- [
          {:later, :soon},
          {:later, deadline: "soon"},
          {:later, deadline: 10 ** 30},
          {:later, when: 1},
          {:later, deadline: -1}
        ] do
      id = inspect(return)

      session =
        session(store, model([call("build", "a"), "ok"]),
          id: id,
          tools: %{build: late(return: return)}
        )

      {:ok, _} = Session.prompt(session, "Go")
      assert text(session) =~ "the tool did not say {:later"
      assert {:ok, [%{state: :error}]} = Store.calls(store, id)
    end
  end
end
