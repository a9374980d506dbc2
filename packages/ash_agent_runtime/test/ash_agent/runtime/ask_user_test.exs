defmodule AshAgent.Runtime.AskUserTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.StoredSessions, only: [sqlite: 0]

  alias AshAgent.{Context, Runtime, Session, Sessions, Store}
  alias AshAgent.LLM.Scripted
  alias AshAgent.Runtime.{AskUser, Paused, SubAgent, Tool, ToolExecutor}

  doctest AskUser

  @question %{"question" => "Which seat?", "choices" => ["window", "aisle"]}
  @form %{
    "type" => "object",
    "properties" => %{"seats" => %{"type" => "integer"}},
    "required" => ["seats"]
  }

  defp call(id, arguments \\ @question, name \\ "ask_user"),
    do: %{id: id, name: name, arguments: arguments}

  defp llm(calls), do: Scripted.new([%{tool_calls: calls}, "Done."])

  defp opts(calls, more \\ []),
    do: Keyword.merge([llm: llm(calls), tools: [AskUser.tool()]], more)

  defp pause(calls, more \\ []) do
    {:paused, paused} = Runtime.run(Context.new("Book"), opts(calls, more))
    paused
  end

  defp reload(context), do: context |> Context.to_snapshot() |> Context.load!()
  defp reason({:error, %Context.Error{reason: reason}}), do: reason

  defp result(context, id) do
    calls =
      for n <- 1..context.current_iteration, do: Context.get_iteration(context, n).tool_calls

    calls |> Enum.concat() |> Enum.find(&(&1.id == id)) |> Map.get(:result)
  end

  # Each kind of conversation with one session, as `{name, session, reopen}`.
  defp sessions(opts) do
    store = sqlite()
    name = :"asking#{System.unique_integer([:positive])}"
    start_supervised!({Sessions, [name: name, store: store] ++ opts})
    start = &start_supervised!({Session, &1 ++ opts}, id: make_ref())

    [
      {:memory, start.([]), fn session -> start.(context: reload(Session.context(session))) end},
      {:stored, start.(store: store, id: "a"),
       fn session ->
         GenServer.stop(session)
         start.(store: store, id: "a")
       end},
      {:sessions, {name, "b"},
       fn {name, id} = named ->
         {:ok, session} = Sessions.fetch_session(name, id)
         GenServer.stop(session)
         named
       end}
    ]
  end

  defp ask(session, function, arguments \\ [])
  defp ask({name, id}, function, arguments), do: apply(Sessions, function, [name, id | arguments])
  defp ask(session, function, arguments), do: apply(Session, function, [session | arguments])

  describe "in every kind of session, fresh and loaded" do
    test "a question waits for its answer, which goes on once" do
      test = self()
      note = &send(test, {:decided, &1, &2})

      on_event = fn
        [_, _, :tool, :decision], _measured, %{decision: decision, by: by} -> note.(decision, by)
        _name, _measured, _metadata -> :ok
      end

      for reopen? <- [false, true],
          approval <- [:auto, fn _call, _context -> :approve end, fn _, _ -> {:deny, "no"} end],
          opts = opts([call("q")], approval: approval, on_event: on_event),
          opts = Keyword.put(opts, :llm, fn context -> answer_of(context, [call("q")]) end),
          {kind, session, reopen} <- sessions(opts) do
        assert {:paused, %Paused{calls: [asked]}} = ask(session, :prompt, ["Book"])
        assert asked == Map.put(call("q"), :question, true)
        assert_receive {:decided, :ask, :approval}

        session = if reopen?, do: reopen.(session), else: session
        assert ask(session, :status) == {:paused, [asked]}, inspect(kind)
        assert ask(session, :prompt, ["Hello?"]) == {:error, :paused}
        # Going on without an answer asks again.
        assert {:paused, %Paused{calls: [^asked]}} = ask(session, :resume)

        assert {:is_a_question, "q"} = reason(ask(session, :approve, ["q"]))
        assert {:invalid, [:answer], _} = reason(ask(session, :answer, ["q", "roof"]))
        assert {:unknown_tool_call, "x", _} = reason(ask(session, :answer, ["x", "aisle"]))
        others = [arguments: %{@question | "question" => "Whom?"}]
        assert {:other_arguments, "q", _} = reason(ask(session, :answer, ["q", "aisle", others]))
        refute_received {:decided, :answered, _}

        opts = [by: "ann", arguments: @question]
        assert ask(session, :answer, ["q", "aisle", opts]) == :ok
        assert_receive {:decided, :answered, :session}

        assert {:illegal_status, "q", :ok, :answered} =
                 reason(ask(session, :answer, ["q", "aisle"]))

        assert ask(session, :status) == {:paused, []}

        session = if reopen?, do: reopen.(session), else: session
        assert {:ok, %{output: "You said aisle."} = done} = ask(session, :resume)
        assert result(done.context, "q") == {:ok, "aisle"}

        assert %{decision: :answered, by: "ann", at: %DateTime{}} =
                 Context.Calls.tool_call_decision(done.context, "q")
      end
    end

    test "a cancelled question takes no answer, and a denied one tells the model why" do
      opts = [llm: fn context -> answer_of(context, [call("q")]) end, tools: [AskUser.tool()]]

      for {_kind, session, _reopen} <- sessions(opts) do
        {:paused, _} = ask(session, :prompt, ["Book"])
        assert ask(session, :cancel) == :ok
        answered = ask(session, :answer, ["q", "aisle"])
        assert {:illegal_status, "q", :cancelled, :answered} = reason(answered)
      end

      for {_kind, session, _reopen} <- sessions(opts) do
        {:paused, _} = ask(session, :prompt, ["Book"])
        assert ask(session, :deny, ["q", "ask me later"]) == :ok
        assert {:illegal_status, "q", :denied, _} = reason(ask(session, :answer, ["q", "aisle"]))
        assert {:ok, %{output: "You said denied: ask me later."}} = ask(session, :resume)
      end
    end
  end

  # Asks, and says what it was told.
  defp answer_of(context, calls) do
    case List.last(Context.to_messages(context)) do
      %{content: [%{type: :tool_result, content: told} | _]} ->
        {:ok, %{content: "You said #{told}."}}

      _asked ->
        {:ok, %{tool_calls: calls}}
    end
  end

  test "no answer stands in for what another tool would have returned" do
    test = self()
    pay = fn _ -> send(test, :paid) && {:ok, "paid"} end
    ask = fn _call, _context -> :ask end
    calls = [call("q"), call("p", @question, "pay")]
    opts = opts(calls, tools: [AskUser.tool(), {"pay", pay}], approval: ask)
    {:paused, paused} = Runtime.run(Context.new("Book"), opts)

    for context <- [paused.context, reload(paused.context)] do
      session = start_supervised!({Session, [context: context] ++ opts}, id: make_ref())
      assert {:not_a_question, "p"} = reason(Session.answer(session, "p", "paid"))
      assert :ok = Session.answer(session, "q", "aisle")
      assert {:not_a_question, "p"} = reason(Session.answer(session, "p", "paid"))
      assert {:paused, [%{id: "p"}]} = Session.status(session)
      refute_received :paid
    end
  end

  test "what the tool adds is shown, bound and checked, whatever becomes of the tool" do
    seats = AskUser.tool(name: "seats", form: @form)
    calls = [call("s", %{"question" => "How many?"}, "seats")]
    paused = pause(calls, tools: [seats])
    assert [%{arguments: %{"form" => form} = shown, question: true}] = paused.calls
    assert form["properties"]["seats"]["type"] == "integer"

    for context <- [paused.context, reload(paused.context)],
        wrong <- ["2", %{}, %{"seats" => "x"}] do
      assert_raise Context.Error, fn -> Context.Calls.answer_tool_call(context, "s", wrong) end
    end

    # A page sends texts.
    context =
      Context.Calls.answer_tool_call(reload(paused.context), "s", %{"seats" => "2"},
        arguments: shown
      )

    assert result(context, "s") == {:ok, %{"seats" => 2}}
    assert {:ok, %{output: "Done."}} = Runtime.resume(context, llm: Scripted.new(["Done."]))

    # With another form, the question is asked anew.
    other = AskUser.tool(name: "seats", choices: ["1", "2"])
    {:paused, again} = Runtime.resume(paused.context, llm: llm([]), tools: [other])
    assert [%{arguments: %{"choices" => ["1", "2"]} = now}] = again.calls
    refute is_map_key(now, "form")
  end

  test "rules, hooks and the schema may refuse a question" do
    refusals = [
      [permission_rules: [{:deny, "ask_*"}]],
      [before_tool: fn _call, _context -> {:deny, "not now"} end]
    ]

    for more <- refusals do
      assert {:ok, %{output: "Done."} = done} =
               Runtime.run(Context.new("Book"), opts([call("q")], more))

      assert {:error, "denied: " <> _} = result(done.context, "q")
    end

    for arguments <- [%{}, %{"question" => ""}, Map.put(@question, "form", @form)] do
      assert {:ok, done} = Runtime.run(Context.new("Book"), opts([call("q", arguments)]))
      assert {:error, "the " <> _} = result(done.context, "q")
    end
  end

  test "a sub-agent asks nobody" do
    within =
      SubAgent.tool(
        name: "clerk",
        description: "",
        llm: llm([call("q")]),
        tools: [AskUser.tool()]
      )

    calls = [%{id: "s", name: "clerk", arguments: %{"task" => "Book"}}]
    {:ok, done} = Runtime.run(Context.new("Book"), llm: llm(calls), tools: [within])
    assert [sub_agent] = done.sub_agents
    assert {:error, "denied: a sub-agent cannot ask" <> _} = result(sub_agent, "q")

    assert [%{result: {:error, _}}] =
             ToolExecutor.execute_tools([call("q")], [AskUser.tool()], %{})
  end

  test "a question and its answer are on the page, in the trace and in a stored conversation" do
    store = sqlite()
    session = start_supervised!({Session, [store: store, id: "c"] ++ opts([call("q")])})
    {:paused, _} = Session.prompt(session, "Book")
    {:ok, stored} = Store.fetch(store, "c")
    assert stored.status == :paused

    assert stored.value |> AshAgent.Trace.to_html() |> IO.iodata_to_binary() =~
             ~s("question":true)

    :ok = Session.answer(session, "q", "aisle", by: "ann")
    {:ok, stored} = Store.fetch(store, "c")
    assert Context.Calls.tool_call_decision(stored.value, "q").decision == :answered

    assert stored.value |> AshAgent.Trace.to_html() |> IO.iodata_to_binary() =~
             ~s("answered":true)
  end

  test "two questions, and a tool beside them" do
    calls = [call("a"), call("w", %{}, "weather"), call("b", %{"question" => "When?"})]
    paused = pause(calls, tools: [AskUser.tool(), {"weather", fn _ -> {:ok, "sunny"} end}])
    assert ["a", "b"] = Enum.map(paused.calls, & &1.id)
    assert result(paused.context, "w") == {:ok, "sunny"}
    context = Context.Calls.answer_tool_call(paused.context, "b", "On Friday")
    opts = [llm: Scripted.new(["Done."]), tools: [AskUser.tool()]]
    {:paused, %{calls: [%{id: "a"}]} = paused} = Runtime.resume(reload(context), opts)
    context = Context.Calls.answer_tool_call(paused.context, "a", "window")
    assert {:ok, %{output: "Done."}} = Runtime.resume(context, opts)
  end

  test "a fork is answered by itself" do
    paused = pause([call("q")])
    fork = Context.fork(paused.context, id: "f")

    for {context, answer} <- [{fork, "aisle"}, {paused.context, "window"}] do
      context = Context.Calls.answer_tool_call(context, "q", answer)
      assert result(context, "q") == {:ok, answer}
    end
  end

  test "what the tool cannot be made of is refused" do
    for opts <- [[form: %{"type" => "string"}], [form: %{"type" => "nothing"}], [choices: "a"]] do
      assert_raise ArgumentError, fn -> AskUser.tool(opts) end
    end

    assert %Tool{asks?: true, parameters: %{"properties" => properties}} = AskUser.tool()
    assert Map.keys(properties) == ["choices", "question"]
  end

  test "a tool of a page has its own parameters, and says nothing of what may be answered" do
    place = %{"properties" => %{"place" => %{"type" => "string"}}}

    assert %Tool{asks?: true, parameters: parameters} =
             AskUser.tool(name: "map", parameters: place)

    assert %{"type" => "object", "properties" => %{"place" => _}} = parameters

    for name <- ["choices", "form"] do
      own = %{"properties" => %{name => %{"type" => "string"}}}
      assert_raise ArgumentError, ~r/:parameters/, fn -> AskUser.tool(parameters: own) end
    end

    assert_raise ArgumentError, fn -> AskUser.tool(parameters: %{"properties" => []}) end

    assert %Tool{agent?: true} =
             AshAgent.Runtime.SubAgent.tool(name: "a", llm: fn _ -> {:ok, %{}} end)
  end
end
