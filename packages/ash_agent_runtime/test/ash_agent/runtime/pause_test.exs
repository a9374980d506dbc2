defmodule AshAgent.Runtime.PauseTest do
  # A pause is in the conversation: wherever it was stored, and whoever goes on with it, its undecided calls do not run without
  # somebody to ask.
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Runs, only: [results: 2]
  import AshAgent.TestSupport.StoredSessions, only: [sqlite: 0]
  import AshAgent.TestSupport.Wait, only: [until: 1]

  alias AshAgent.{ChatContext, Context, Runtime, Session, Sessions, Store}
  alias AshAgent.LLM.Scripted
  alias AshAgent.Runtime.{Error, Paused, SubAgent}
  alias AshAgent.TestSupport.PgSQL

  defp call(id, name \\ "wipe"), do: %{id: id, name: name, arguments: %{"disk" => id}}

  defp tools do
    test = self()

    for name <- ~w(wipe look), into: %{} do
      {name, fn %{"disk" => disk} -> send(test, {:ran, disk}) && {:ok, "done"} end}
    end
  end

  defp asking, do: fn _call, _tool_context -> :ask end
  defp silent, do: fn _context -> flunk("the model was asked") end
  defp opts(more \\ []), do: Keyword.merge([llm: silent(), tools: tools()], more)

  # A second turn, so that there is something to rewind to.
  defp paused(calls \\ [call("a")], more \\ []) do
    llm = Scripted.new(["Hello", %{tool_calls: calls}])
    opts = Keyword.merge(opts(llm: llm, approval: asking()), more)
    {:ok, %{context: context}} = Runtime.run(Context.new("Hi", id: "p"), opts)
    context = Context.add_user_message(context, "Clean up")
    assert {:paused, %Paused{context: paused}} = Runtime.run(context, opts)
    paused
  end

  defp asked(context), do: for(%{id: id} <- Context.Calls.asked_tool_calls(context), do: id)

  defp refuse(context, run) do
    before = Context.to_snapshot(context)
    assert {:error, %Error{reason: {:missing_option, :approval}} = error} = run.(context)
    assert Exception.message(error) =~ "Pass :approval"
    assert Context.to_snapshot(error.context) == before
    refute_received {:ran, _}
  end

  # The ways in which a conversation gets from one place to another, and which of them stay with its decisions.
  @ways ~w(same snapshot dump map delta fork stranger chat branch sqlite other_sqlite)a

  defp take(context, :same), do: context

  defp take(context, :snapshot),
    do: context |> Context.to_snapshot() |> Context.load!()

  defp take(context, :dump), do: context |> Context.dump() |> Context.load!()

  defp take(context, :map), do: context |> Context.to_map() |> Context.create!()

  # What was stored before the pause, and what is new.
  defp take(context, :delta) do
    delta = Context.dump(context, since: 1)
    context |> Context.rewind(to: 1) |> take(:dump) |> Context.load!(delta)
  end

  defp take(context, :fork), do: Context.fork(context)

  defp take(context, :stranger) do
    {:ok, cast} = Context.EctoType.cast(Context.dump(context))
    cast
  end

  defp take(context, :chat) do
    text = ChatContext.to_snapshot(ChatContext.new(context: context))
    ChatContext.active(ChatContext.from_snapshot!(text)).context
  end

  defp take(context, :branch) do
    chat = [context: context] |> ChatContext.new() |> ChatContext.branch("other")
    {:ok, %{context: context}} = ChatContext.fetch_branch(chat, "other")
    context
  end

  defp take(context, :sqlite), do: context |> keep(sqlite()) |> fetch()

  # One conversation is written twice: before the pause, and with it.
  defp take(context, :other_sqlite) do
    store = sqlite()
    {:ok, kept} = Store.create(store, Context.rewind(context, to: 1))
    {:ok, _} = Store.append(store, kept, context)
    fetch({store, kept})
  end

  defp keep(context, store) do
    {:ok, kept} = Store.create(store, context, owner: "a")
    {store, kept}
  end

  defp released(context) do
    {store, kept} = keep(context, sqlite())
    {:ok, _} = Store.release(store, kept)
    {store, kept}
  end

  defp fetch({store, kept}) do
    {:ok, %{value: context}} = Store.fetch(store, kept.id)
    context
  end

  # Those who go on.
  defp runs do
    [
      run: &Runtime.run(&1, opts()),
      resume: &Runtime.resume(&1, opts()),
      auto: &Runtime.resume(&1, opts(approval: :auto)),
      permitted:
        &Runtime.resume(&1, opts(allowed_tools: ["wipe"], permission_rules: [{:allow, "*"}])),
      hooked: &Runtime.resume(&1, opts(before_tool: fn _, _ -> :ok end)),
      with_store: fn context ->
        {store, kept} = keep(context, sqlite())
        Runtime.run(kept.value, opts(store: store, kept: kept))
      end,
      session: fn context ->
        session = start_supervised!({Session, opts(context: context)}, id: make_ref())
        assert {:paused, [%{id: "a"}]} = Session.status(session)
        assert Session.prompt(session, "More") == {:error, :paused}
        assert {:error, %Error{}} = Session.resume_async(session)
        Session.resume(session)
      end,
      session_with_store: fn context ->
        {store, kept} = released(context)
        own = opts(store: store, id: kept.id)
        session = start_supervised!({Session, own}, id: make_ref())
        assert {:paused, [%{id: "a"}]} = Session.status(session)
        Session.resume(session)
      end,
      sessions: fn context ->
        {store, kept} = released(context)
        name = :"sessions#{System.unique_integer([:positive])}"
        start_supervised!({Sessions, opts(name: name, store: store)}, id: name)
        assert Sessions.prompt(name, kept.id, "More") == {:error, :paused}
        Sessions.resume(name, kept.id)
      end
    ]
  end

  test "is one for whoever goes on without an approval function, wherever the conversation was" do
    paused = paused()

    for way <- @ways, {_name, run} <- runs() do
      context = take(paused, way)
      assert asked(context) == ["a"]
      refuse(context, run)
    end
  end

  @tag :p1_pgsql
  test "is one in PostgreSQL" do
    store = Store.Postgres.new(PgSQL.pool!())
    {:ok, _} = Store.Postgres.Migrations.migrate(store)
    context = Context.fork(paused())
    {:ok, kept} = Store.create(store, Context.rewind(context, to: 1))
    {:ok, _} = Store.append(store, kept, context)
    assert fetch({store, kept}) |> asked() == ["a"]
    refuse(fetch({store, kept}), &Runtime.resume(&1, opts()))
  end

  test "ends with a decision, which somebody else may make anywhere, or with a result" do
    for way <- @ways do
      context = take(paused(), way)

      for {decide, results, ran} <- [
            {&Context.Calls.approve_tool_call(&1, "a", by: "ann"), [{:ok, "done"}], ["a"]},
            {&Context.Calls.deny_tool_call(&1, "a", "no"), [{:error, "denied: no"}], []},
            {&Context.interrupt(&1, "stop"), [{:error, "stop"}], []},
            {&Context.interrupt(&1, "stop", status: :cancelled), [{:error, "stop"}], []},
            {&Context.add_tool_results(&1, [{"a", {:ok, "own"}}]), [{:ok, "own"}], []}
          ] do
        decided = decide.(context)
        assert asked(decided) == []
        assert {:ok, result} = Runtime.resume(decided, opts(llm: Scripted.new(["Done"])))

        assert results(result.context, 2) == results
        for disk <- ran, do: assert_received({:ran, ^disk})
        refute_received {:ran, _}
      end
    end
  end

  test "is asked about again by whoever has an approval function, and changes nothing" do
    for way <- @ways do
      context = take(paused(), way)
      test = self()
      opts = opts(approval: asking(), on_change: &send(test, {:changed, &1}))
      assert {:paused, again} = Runtime.resume(context, opts)
      assert Context.equal?(again.context, context)
      refute_received {:changed, _}
      approve = fn _call, _tool_context -> :approve end

      opts = opts(llm: Scripted.new(["Done"]), approval: approve)
      assert {:ok, _} = Runtime.resume(context, opts)
      assert_received {:ran, "a"}
    end
  end

  test "is gone where the conversation goes back to before it" do
    context = Context.rewind(paused(), to: 1)
    assert asked(context) == []
    context = Context.add_user_message(context, "Thanks")
    assert {:ok, _} = Runtime.run(context, opts(llm: Scripted.new(["Bye"])))
  end

  test "does not come of a crash before anybody was asked" do
    context = Context.new("Clean up") |> Context.add_assistant_message(nil, [call("a")])

    for context <- [context, take(context, :snapshot), Context.fork(context)] do
      assert asked(context) == []
      assert {:ok, _} = Runtime.resume(context, opts(llm: Scripted.new(["Done"])))
      assert_received {:ran, "a"}
    end
  end

  @tag :capture_log
  test "comes of a crash in the middle of the questions" do
    for word <- [:approve, {:deny, "no"}, :ask], way <- [:same, :snapshot, :fork] do
      context = word |> cut_at_second_question() |> take(way)
      refute "b" in asked(context)
      refuse(context, &Runtime.resume(&1, opts()))
      session = start_supervised!({Session, opts(context: context)}, id: make_ref())
      assert {:paused, [_ | _]} = Session.status(session)
      refuse(context, fn _context -> Session.resume(session) end)
      assert {:paused, %{calls: calls}} = Runtime.resume(context, opts(approval: asking()))
      assert "b" in for(call <- calls, do: call.id)
      if word == :approve and way != :fork, do: assert_received({:ran, "a"})
    end
  end

  # What :on_change had when the run was killed, with a word about the first of three calls.
  defp cut_at_second_question(word) do
    test = self()

    {runner, monitor} =
      spawn_monitor(fn ->
        runner = self()

        approval = fn
          %{id: "a"}, _tool_context -> word
          _call, _tool_context -> Process.exit(runner, :kill) && Process.sleep(:infinity)
        end

        llm = Scripted.new([%{tool_calls: Enum.map(~w(a b c), &call/1)}])
        opts = opts(llm: llm, approval: approval, on_change: &send(test, {:stored, &1}))
        Runtime.run(Context.new("Clean up"), opts)
      end)

    assert_receive {:DOWN, ^monitor, :process, ^runner, :killed}, 5_000
    assert_received {:stored, _answered}
    assert_received {:stored, decided}
    decided
  end

  test "is one in a store of an earlier release, whose calls do not say who was asked" do
    store = sqlite()
    context = Context.new("Clean up", id: "p") |> Context.add_assistant_message(nil, [call("a")])
    {:ok, kept} = Store.create(store, context, owner: "a", status: :paused)
    refuse(kept.value, &Runtime.resume(&1, opts(store: store, kept: kept)))
    {:ok, _} = Store.release(store, kept)
    session = start_supervised!({Session, opts(store: store, id: "p")})
    assert {:paused, [%{id: "a"}]} = Session.status(session)
    refuse(kept.value, fn _context -> Session.resume(session) end)
  end

  test "holds for all calls of an answer while one is undecided" do
    context =
      paused([call("a"), call("b")]) |> Context.Calls.approve_tool_call("a") |> take(:snapshot)

    assert asked(context) == ["b"]
    refuse(context, &Runtime.resume(&1, opts()))
    context = Context.Calls.deny_tool_call(context, "b")
    assert {:ok, _} = Runtime.resume(context, opts(llm: Scripted.new(["Done"])))
    assert_received {:ran, "a"}
    refute_received {:ran, _}
  end

  test "is of the calls that were asked about" do
    approval = fn call, _ -> if call.name == "wipe", do: :ask, else: :approve end
    calls = [call("a", "look"), call("b"), call("c", "nobody")]
    context = paused(calls, approval: approval)
    assert_received {:ran, "a"}
    assert asked(context) == ["b"]
  end

  test "keeps the arguments of a hook, and those of a tool that takes text" do
    hook = fn call, _ -> {:ok, put_in(call.arguments["disk"], "z")} end
    context = paused([call("a")], before_tool: hook) |> Context.fork() |> take(:snapshot)
    assert [%{id: "a", arguments: %{"disk" => "z"}}] = Context.Calls.asked_tool_calls(context)
    refuse(context, &Runtime.resume(&1, opts(before_tool: hook)))

    text = %{id: "a", kind: :custom, name: "wipe", arguments: ~s({"disk": "a"})}
    context = Context.new("Hi") |> Context.add_assistant_message(nil, [text])
    assert {:paused, %{context: context}} = Runtime.run(context, opts(approval: asking()))
    context = take(context, :snapshot)
    assert [%{arguments: ~s({"disk": "a"})}] = Context.Calls.asked_tool_calls(context)
    refuse(context, &Runtime.resume(&1, opts()))
  end

  test "is of a call whose outcome nobody knows, too" do
    store = sqlite()
    context = Context.new("Clean up", id: "c") |> Context.add_assistant_message(nil, [call("a")])
    {:ok, kept} = Store.create(store, context, owner: "a", status: :running)
    [key] = Map.values(Runtime.Journal.keys(context, [%{id: "a"}]))
    noted = %{id: "a", name: "wipe", iteration: 1, arguments: %{}, decided_at: nil}
    {:ok, kept, [_]} = Store.start(store, kept, [%{key: key, attempt: 1, call: noted}])

    assert {:paused, %Paused{unknown: ["a"], context: context}} =
             Runtime.resume(context, opts(store: store, kept: kept, approval: asking()))

    assert asked(context) == ["a"]
    refuse(take(context, :snapshot), &Runtime.resume(&1, opts()))
  end

  test "stays one after a session that was to go on with the turn died" do
    store = sqlite()
    # As stored by a run that had begun to go on, for which a message waits.
    {:ok, kept} = Store.create(store, paused(), owner: "gone", lease: 1, status: :running)
    {:ok, _} = Store.enqueue(store, kept, "More", kind: :prompt)
    name = :"sessions#{System.unique_integer([:positive])}"
    start_supervised!({Sessions, opts(name: name, store: store, lease: 60, recover: 20)})
    until(fn -> match?({:ok, %{status: :paused}}, Store.fetch(store, "p")) end)
    assert {:error, %Error{reason: {:missing_option, :approval}}} = Sessions.resume(name, "p")
    assert {:ok, [%{input: "More"}]} = Store.waiting(store, "p")
    refute_received {:ran, _}
  end

  test "is one in a branch of a test" do
    context = paused([call("a"), call("b")]) |> Context.Calls.approve_tool_call("a")

    deny = fn _, _ -> {:deny, "no"} end
    opts = opts(approval: deny, llm: Scripted.new(["Done"]))
    assert {:ok, ran} = Runtime.resume(context, opts)
    assert_received {:ran, "a"}

    {:paused, %{context: context}} = Runtime.resume(context, opts(approval: asking()))
    assert_received {:ran, "a"}
    branch = AshAgent.Test.branch(context, 2, tool_result: {"a", {:error, "gone"}}, run: opts())
    assert {:error, %Error{reason: {:missing_option, :approval}}} = branch.result
    assert asked(branch.context) == ["b"]

    # Where it was decided, there is no pause any more.
    opts = [tool_result: {"a", {:ok, 1}}, run: opts(llm: Scripted.new(["Done"]))]
    branch = AshAgent.Test.branch(ran.context, 2, opts)
    assert {:ok, _} = branch.result
    refute_received {:ran, _}
  end

  test "is not of a sub-agent, which cannot wait, and its parent is not paused" do
    llm = Scripted.new([%{tool_calls: [call("inner")]}, "Denied"])

    child = SubAgent.tool(name: "child", llm: llm, tools: tools(), approval: asking())
    calls = [%{id: "o", name: "child", arguments: %{"task" => "x"}}]
    opts = [llm: Scripted.new([%{tool_calls: calls}, "Done"]), tools: [child]]
    assert {:ok, %{context: context, sub_agents: [inner]}} = Runtime.run(Context.new("Hi"), opts)
    assert asked(context) == [] and asked(inner) == []
    refute_received {:ran, _}
  end
end
