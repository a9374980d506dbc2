defmodule AshAgent.Runtime.SessionApprovalTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Runs, only: [drain: 1, hanging: 1, results: 1]

  import AshAgent.TestSupport.StoredSessions, only: [sqlite: 0]

  alias AshAgent.{Context, Session, Store}
  alias AshAgent.LLM.Scripted
  alias AshAgent.Runtime.{Error, Paused, Result}

  defp call(id, name \\ "ask"), do: %{id: id, name: name, arguments: %{}}

  defp start(opts) do
    test = self()
    tools = %{"ask" => fn _ -> send(test, :ran) && {:ok, "ran"} end}
    opts = Keyword.merge([tools: tools, approval: fn _, _ -> :ask end], opts)
    start_supervised!({Session, opts}, id: make_ref())
  end

  # Calls in every turn, and answers when it has results.
  defp llm(ids) do
    fn context ->
      case context |> Context.to_messages() |> List.last() do
        %{content: [%{type: :tool_result} | _]} -> {:ok, %{content: "Done"}}
        %{content: "plain" <> _ = text} -> {:ok, %{content: text}}
        _ -> {:ok, %{tool_calls: Enum.map(ids, &call/1)}}
      end
    end
  end

  # Answers when the test lets it.
  defp gated do
    test = self()

    fn context ->
      send(test, {:asked, self()})
      receive(do: (:go -> llm(~w(a)).(context)))
    end
  end

  defp go do
    assert_receive {:asked, model}
    send(model, :go)
  end

  defp statuses(session, ids),
    do: for(id <- ids, do: session |> Session.context() |> Context.Calls.tool_call_status(id))

  @tag :capture_log
  test "a turn that fails before somebody has decided still waits" do
    for store <- [nil, sqlite()], failure <- [:tools, :price] do
      away = :counters.new(1, [])
      fail = fn -> if :counters.get(away, 1) == 1, do: raise("a secret") end
      tools = fn -> fail.() || %{look: fn _ -> {:ok, 1} end} end
      calls = for id <- ["a", "b"], do: %{id: id, name: "look", arguments: %{}}

      llm = fn context ->
        if context.current_iteration == 1,
          do: {:ok, %{tool_calls: calls}},
          else: {:ok, %{content: "Done"}}
      end

      stored = if store, do: [store: store, id: "#{failure}"], else: []
      opts = [llm: llm, tools: tools, prices: [%{model: "other", input: 1, output: 1}]]
      session = start(opts ++ stored)
      {:paused, _paused} = Session.prompt(session, "Look")
      :ok = Session.approve(session, "a")
      limits = if failure == :price, do: [max_cost: 1], else: []
      if failure == :tools, do: :counters.put(away, 1, 1)
      assert {:error, %Error{}} = Session.resume(session, limits)
      assert {:paused, [%{id: "b"}]} = Session.status(session)
      assert Session.prompt(session, "And now?") == {:error, :paused}
      if store, do: assert({:ok, %{status: :paused}} = Store.fetch(store, "#{failure}"))

      :counters.put(away, 1, 0)
      :ok = Session.approve(session, "b")
      assert {:ok, %{output: "Done"}} = Session.resume(session)
    end
  end

  describe "a paused session" do
    test "takes decisions and goes on" do
      session = start(llm: llm(~w(a b)))
      assert Session.status(session) == :idle
      assert {:paused, %Paused{calls: [%{id: "a"}, %{id: "b"}]}} = Session.prompt(session, "Hi")
      assert {:paused, [%{id: "a"}, %{id: "b"}]} = Session.status(session)

      assert :ok = Session.approve(session, "a", by: "ann")
      assert {:paused, [%{id: "b"}]} = Session.status(session)
      assert :ok = Session.deny(session, "b", "no", by: "bob")
      assert {:paused, []} = Session.status(session)
      refute_received :ran

      assert {:ok, %Result{output: "Done", context: context}} = Session.resume(session)
      assert_received :ran
      assert Session.status(session) == :idle

      assert [{:ok, "ran"}, {:error, "denied: no"}] = results(context)

      assert %{by: "ann"} = Context.Calls.tool_call_decision(context, "a")
      assert %{by: "bob"} = Context.Calls.tool_call_decision(context, "b")
    end

    test "shows the arguments that would run, and approves these" do
      test = self()
      tools = %{"ask" => fn arguments -> send(test, {:ran, arguments}) && {:ok, "ran"} end}
      hook = fn call, _ -> {:ok, %{call | arguments: %{"path" => "/srv/x"}}} end
      session = start(llm: llm(~w(a b)), tools: tools, before_tool: hook)
      assert {:paused, %Paused{calls: calls}} = Session.prompt(session, "Hi")
      assert Session.status(session) == {:paused, calls}
      assert [%{id: "a", arguments: %{"path" => "/srv/x"} = shown}, _] = calls

      :ok = Session.approve(session, "a", by: "ann", arguments: shown)
      assert_raise ArgumentError, fn -> Session.approve(session, "b", arguments: []) end

      # An old page, or what somebody changed in a form.
      for other <- [%{"path" => "/else"}, %{}, %{path: "/srv/x"}, "{}"],
          decide <- [&Session.approve(&1, &2, &3), &Session.deny(&1, &2, "no", &3)] do
        assert {:error, %Context.Error{reason: {:other_arguments, "b", [_ | _]}} = error} =
                 decide.(session, "b", by: "ann", arguments: other)

        assert Exception.message(error) =~ if(is_map(other), do: "path", else: "differ")
        refute Exception.message(error) =~ "/else"
        assert {:paused, [%{id: "b", arguments: ^shown}]} = Session.status(session)
      end

      :ok = Session.deny(session, "b", "not there", arguments: shown)
      assert {:ok, %{context: context}} = Session.resume(session)
      assert_received {:ran, %{"path" => "/srv/x"}}
      refute_received {:ran, _}

      assert [{:ok, "ran"}, {:error, "denied: not there"}] = results(context)
    end

    test "waits for a slow store, and does not decide what is not kept" do
      test = self()
      {:ok, slow?} = Agent.start_link(fn -> :ok end)

      on_change = fn _ ->
        with :slow <- Agent.get(slow?, & &1) do
          send(test, {:storing, self()})
          receive(do: (:stored -> :ok))
        end
      end

      session = start(llm: llm(~w(a b)), on_change: on_change)
      {:paused, _} = Session.prompt(session, "Hi")

      Agent.update(slow?, fn _ -> {:error, :read_only} end)

      assert {:error, %Error{reason: {:on_change_error, :read_only}}} =
               Session.approve(session, "a")

      assert {:error, %Error{reason: {:on_change_error, :read_only}}} = Session.deny(session, "a")
      assert statuses(session, ~w(a b)) == [:pending, :pending]

      # Longer than the five seconds that a call of a GenServer has by itself.
      Agent.update(slow?, fn _ -> :slow end)
      approval = Task.async(fn -> Session.approve(session, "a") end)
      assert_receive {:storing, pid}
      status = Task.async(fn -> Session.status(session) end)
      refute Task.yield(approval, 5_500)
      Agent.update(slow?, fn _ -> :ok end)
      send(pid, :stored)
      assert Task.await(approval) == :ok
      assert {:paused, [%{id: "b"}]} = Task.await(status)
    end

    test "refuses illegal decisions, and stays as it is" do
      session = start(llm: llm(~w(a b)))
      {:paused, _} = Session.prompt(session, "Hi")
      :ok = Session.approve(session, "a")
      :ok = Session.deny(session, "b")

      for decide <- [&Session.approve/2, &Session.deny/2], id <- ["a", "b", "nobody", ""] do
        assert {:error, %Context.Error{}} = decide.(session, id)
      end

      assert {:error, %Context.Error{}} = Session.deny(session, "a", [1 | 2])
      assert_raise ArgumentError, fn -> Session.approve(session, "a", who: 1) end
      assert_raise ArgumentError, fn -> Session.approve(session, :a) end
      assert statuses(session, ~w(a b)) == [:approved, :denied]
      assert {:ok, %{output: "Done"}} = Session.resume(session)
    end

    test "refuses new prompts, and lets those that waited wait on" do
      session = start(llm: gated())
      {:ok, one} = Session.prompt_async(session, "Hi")
      {:ok, two} = Session.prompt_async(session, "plain 2")
      assert_receive {:asked, model}
      assert Session.status(session) == :running
      assert Session.approve(session, "a") == {:error, :busy}
      send(model, :go)
      assert_receive {Session, ^one, {:paused, %Paused{}}}

      assert Session.prompt(session, "Else") == {:error, :paused}
      assert Session.prompt_async(session, "Else") == {:error, :paused}
      refute_received {:asked, _}

      :ok = Session.approve(session, "a")
      {:ok, three} = Session.resume_async(session)
      go()
      assert_receive {Session, ^three, {:ok, %Result{output: "Done"}}}
      go()
      assert_receive {Session, ^two, {:ok, %Result{output: "plain 2"}}}
    end

    test "gives up the calls when cancelled, and goes on with the queue" do
      test = self()
      session = start(llm: llm(~w(a)), on_change: &send(test, {:changed, &1}))
      {:paused, _} = Session.prompt(session, "Hi")
      assert Session.cancel(session) == :ok
      assert Session.status(session) == :idle
      assert statuses(session, ~w(a)) == [:cancelled]
      context = List.last(drain(do: ({:changed, context} -> context)))
      assert Context.Calls.tool_call_status(context, "a") == :cancelled
      assert {:ok, %{output: "plain"}} = Session.prompt(session, "plain")
      refute_received :ran
    end

    test "that was cancelled starts the prompt that waited if it is told to" do
      session = start(llm: gated(), when_cancelled: :go_on)
      {:ok, one} = Session.prompt_async(session, "Hi")
      {:ok, two} = Session.prompt_async(session, "plain 2")
      go()
      assert_receive {Session, ^one, {:paused, _}}
      :ok = Session.cancel(session)
      go()
      assert_receive {Session, ^two, {:ok, %Result{output: "plain 2"}}}
      assert statuses(session, ~w(a)) == [:cancelled]
    end

    test "without an approval function, starts as idle and lets a prompt go on" do
      context = Context.add_assistant_message(Context.new("Hi"), nil, [call("a")])
      session = start(llm: llm(~w(a)), context: context, approval: :auto)
      assert Session.status(session) == :idle
      assert {:ok, %{output: "plain"}} = Session.prompt(session, "plain")
      assert statuses(session, ~w(a)) == [:interrupted]
    end

    test "tells of its decisions with events" do
      test = self()
      tell = fn name, _, metadata -> send(test, {name, metadata}) end
      session = start(llm: llm(~w(a b)), on_event: tell)
      {:paused, %{context: context}} = Session.prompt(session, "Hi")
      :ok = Session.approve(session, "a")
      :ok = Session.deny(session, "b")
      {:error, _} = Session.deny(session, "b")
      id = context[:id]

      for {call, decision} <- [{"a", :approved}, {"b", :denied}] do
        assert_received {[:ash_agent, :runtime, :tool, :decision], %{by: :session} = told}
        assert %{tool: "ask", tool_call_id: ^call, decision: ^decision, context_id: ^id} = told
      end

      refute_received {[_, _, :tool, :decision], %{by: :session}}
    end
  end

  describe "cancel/1" do
    test "of a run marks its running calls as unknown, and keeps what was approved and denied" do
      hang = hanging(:tool)

      approval = fn call, _ -> if call.id == "b", do: {:deny, "no"}, else: :approve end
      session = start(llm: llm(~w(a b)), tools: %{"ask" => hang}, approval: approval)
      {:ok, ref} = Session.prompt_async(session, "Hi")
      assert_receive {:tool, tool}
      :ok = Session.cancel(session)
      refute Process.alive?(tool)
      assert_receive {Session, ^ref, {:error, %Error{reason: :cancelled}}}
      assert statuses(session, ~w(a b)) == [:unknown, :denied]

      assert %{decision: :approved} =
               session |> Session.context() |> Context.Calls.tool_call_decision("a")
    end

    test "that comes while a run is about to pause ends the turn all the same" do
      session = start(llm: gated())
      {:ok, ref} = Session.prompt_async(session, "Hi")
      assert_receive {:asked, model}
      run = Process.info(model, :dictionary) |> elem(1) |> Keyword.fetch!(:"$callers") |> hd()
      monitor = Process.monitor(run)

      :sys.suspend(session)
      cancel = Task.async(fn -> Session.cancel(session) end)
      assert AshAgent.TestSupport.Wait.until(fn -> waiting?(session) end)
      send(model, :go)
      assert_receive {:DOWN, ^monitor, _, _, _}
      :sys.resume(session)

      assert Task.await(cancel) == :ok
      assert_receive {Session, ^ref, {:error, %Error{reason: :cancelled}}}
      assert statuses(session, ~w(a)) == [:cancelled]
      assert Session.status(session) == :idle
    end

    defp waiting?(session) do
      {:messages, messages} = Process.info(session, :messages)
      Enum.any?(messages, &match?({:"$gen_call", _, :cancel}, &1))
    end

    @tag :capture_log
    test "ends an approval function and a sub-agent that hang" do
      hang = hanging(:hangs)
      agent = AshAgent.Runtime.SubAgent.tool(name: "ask", llm: hang, input: fn _ -> "x" end)

      for opts <- [
            [approval: fn _, _ -> hang.([]) end],
            [approval: :auto, tools: [%{agent | parameters: %{}}]]
          ] do
        session = start([llm: llm(~w(a))] ++ opts)
        {:ok, ref} = Session.prompt_async(session, "Hi")
        assert_receive {:hangs, pid}
        {:dictionary, dictionary} = Process.info(pid, :dictionary)
        [supervisor | above] = dictionary[:"$ancestors"]
        ends = if hd(above) == session, do: [pid], else: [pid, supervisor]
        monitors = Enum.map(ends, &Process.monitor/1)
        :ok = Session.cancel(session)
        for monitor <- monitors, do: assert_receive({:DOWN, ^monitor, _, _, _})
        Logger.flush()
        assert_receive {Session, ^ref, {:error, %Error{reason: :cancelled}}}
        assert {:ok, %{output: "plain"}} = Session.prompt(session, "plain")
      end
    end
  end

  test "options are those of a run, and are checked" do
    for opts <- [[approval: :ask], [permission_rules: [:x]], [allowed_tools: 5], [before_tool: 5]] do
      assert_raise ArgumentError, fn ->
        Session.start_link([llm: fn _ -> {:ok, %{}} end] ++ opts)
      end
    end

    llm = Scripted.new([%{tool_calls: [call("a")]}, "Done"])
    session = start(llm: llm, permission_rules: [{:deny, "ask"}])
    assert {:ok, %{context: context}} = Session.prompt(session, "Hi")
    assert Context.Calls.tool_call_status(context, "a") == :denied
  end
end
