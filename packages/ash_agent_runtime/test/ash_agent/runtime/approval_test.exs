defmodule AshAgent.Runtime.ApprovalTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Runs, only: [drain: 1, hanging: 1, prompt: 2, results: 1]

  alias AshAgent.{Context, Runtime, Session}
  alias AshAgent.LLM.Scripted
  alias AshAgent.Runtime.{Paused, Result}
  alias AshAgent.TestSupport.Linked

  defp call(id, name, arguments \\ %{}), do: %{id: id, name: name, arguments: arguments}

  # A model that calls these once and then answers.
  defp calling(calls), do: Scripted.new([%{tool_calls: calls}, "Done"])

  # Tools that tell the test when they run.
  defp tools do
    test = self()

    for name <- ~w(yes no ask), into: %{} do
      {name, fn arguments -> send(test, {:ran, name, arguments}) && {:ok, name <> "!"} end}
    end
  end

  # What a call's name says.
  defp by_name(%{name: name}, _tool_context) do
    case to_string(name) do
      "yes" -> :approve
      "no" -> {:deny, "no means no"}
      "ask" -> :ask
    end
  end

  defp opts(llm, more \\ []),
    do: Keyword.merge([llm: llm, tools: tools(), approval: &by_name/2], more)

  defp never(_context), do: flunk("the model was asked")

  # Stores the context as text and gives it to another process, as if on another day.
  defp elsewhere(context, fun) do
    text = Context.to_snapshot(context)
    {:ok, dumped} = context |> Context.dump() |> Context.load()
    assert Context.equal?(dumped, Context.load!(text))
    Task.await(Task.async(fn -> text |> Context.load!() |> fun.() end))
  end

  # A hook that makes another path of the one that the model wrote.
  defp below(folder),
    do: fn call, _ -> {:ok, update_in(call.arguments["path"], &(folder <> &1))} end

  describe "the approval function" do
    test "approves: the call runs, and who decided is noted" do
      llm = calling([call("a", "yes", %{"x" => 1})])
      test = self()

      approval = fn call, tool_context ->
        send(test, {:asked, call, tool_context})
        :approve
      end

      opts = opts(llm, approval: approval, runtime_context: %{actor: "ada"})
      {:ok, result} = prompt("Hi", opts)
      assert_received {:asked, %{id: "a", name: "yes", arguments: %{"x" => 1}}, tool_context}
      assert %{actor: "ada", agent: nil, domain: nil, tenant: nil} = tool_context
      assert results(result.context) == [ok: "yes!"]
      assert Context.Calls.tool_call_status(result.context, "a") == :ok

      assert %{decision: :approved, by: :approval} =
               Context.Calls.tool_call_decision(result.context, "a")
    end

    test "denies: the model reads why, and goes on" do
      llm = calling([call("a", "no"), call("b", "yes")])
      {:ok, result} = prompt("Hi", opts(llm))
      assert results(result.context) == [error: "denied: no means no", ok: "yes!"]
      refute_received {:ran, "no", _}

      assert [_, %{context: seen}] = Scripted.requests(llm)

      assert %{content: [%{is_error: true, content: "denied: no means no"}, _]} =
               seen |> Context.to_messages() |> List.last()

      assert %{by: :approval, reason: "no means no"} =
               Context.Calls.tool_call_decision(result.context, "a")
    end

    test "is not there with :auto, which notes nothing" do
      llm = calling([call("a", "ask")])
      {:ok, result} = prompt("Hi", opts(llm, approval: :auto))
      assert results(result.context) == [ok: "ask!"]
      assert Context.Calls.tool_call_decision(result.context, "a") == nil
    end

    test "may deny with any reason, also one that cannot be kept" do
      deep = Enum.reduce(1..300, :x, fn _, inner -> [inner] end)

      for {reason, words} <- [
            {:friday, "denied: friday"},
            {nil, "denied"},
            {[1 | 2], "denied: for a reason that cannot be stored: "},
            {deep, "denied: for a reason that cannot be stored: "},
            {self(), "denied"}
          ] do
        llm = calling([call("a", "yes")])
        approval = fn _, _ -> {:deny, reason} end
        {:ok, result} = prompt("Hi", opts(llm, approval: approval))
        assert [error: text] = results(result.context)
        assert String.starts_with?(text, words)
      end
    end

    test "does not hear of calls that no tool can take" do
      calls = [call("a", "nothing"), call("b", "yes", "{bad"), call("c", "needs")]

      tools = %{
        yes: fn _ -> flunk("ran") end,
        needs: %{function: fn _ -> flunk("ran") end, parameters: %{"required" => ["x"]}}
      }

      opts = opts(calling(calls), tools: tools, approval: fn _, _ -> flunk("asked") end)

      {:ok, result} = prompt("Hi", opts)

      assert [error: unknown, error: no_object, error: missing] = results(result.context)
      assert unknown =~ ~s(unknown tool "nothing")
      assert no_object == "the arguments are not a JSON object"
      assert missing == ~s(the required argument "x" is missing)
    end
  end

  describe "a pause" do
    test "comes when what needed no decision has run" do
      calls = [call("a", "ask"), call("b", "yes"), call("c", "no"), call("d", "ask", %{"n" => 1})]

      assert {:paused, %Paused{} = paused} = prompt("Hi", opts(calling(calls)))

      assert paused.calls == [call("a", "ask"), call("d", "ask", %{"n" => 1})]
      assert paused.calls == Context.pending_tool_calls(paused.context)
      assert results(paused.context) == [nil, {:ok, "yes!"}, {:error, "denied: no means no"}, nil]
      assert paused.iterations == 1

      assert for(id <- ~w(a b c d), do: Context.Calls.tool_call_status(paused.context, id)) ==
               [:pending, :ok, :denied, :pending]

      assert_received {:ran, "yes", _}
      refute_received {:ran, _, _}
    end

    test "is told with its events" do
      test = self()
      calls = [call("a", "ask"), call("b", "yes"), call("c", "no")]
      on_event = fn name, measured, metadata -> send(test, {name, measured, metadata}) end
      {:paused, _} = prompt("Hi", opts(calling(calls), on_event: on_event))

      for {id, decision} <- [{"a", :ask}, {"b", :approved}, {"c", :denied}] do
        assert_received {[:ash_agent, :runtime, :tool, :decision], %{duration: _},
                         %{tool_call_id: ^id, decision: ^decision, by: :approval, iteration: 1}}
      end

      assert_received {[:ash_agent, :runtime, :iteration, :pause], %{tool_calls: 1}, _}
      assert_received {[:ash_agent, :runtime, :iteration, :stop], %{tool_calls: 2}, _}
    end

    test "gives every step to on_change: answer, decisions, questions, results" do
      test = self()
      calls = [call("a", "yes"), call("b", "no"), call("c", "ask")]
      on_change = &send(test, {:changed, &1})

      {:paused, paused} = prompt("Hi", opts(calling(calls), on_change: on_change))

      statuses =
        for _ <- 1..5 do
          assert_received {:changed, context}
          asked = for call <- Context.Calls.asked_tool_calls(context), do: call.id
          status = &Context.Calls.tool_call_status(context, &1)
          for id <- ~w(a b c), do: if(id in asked, do: :asked, else: status.(id))
        end

      assert statuses == [
               [:pending, :pending, :pending],
               [:approved, :pending, :pending],
               [:approved, :denied, :pending],
               [:approved, :denied, :asked],
               [:ok, :denied, :asked]
             ]

      refute_received {:changed, _}
      assert Context.Calls.tool_call_status(paused.context, "c") == :pending
    end

    test "does not come when a tool ends the run" do
      calls = [call("a", "ask"), call("b", "stop")]
      tools = Map.put(tools(), "stop", fn _ -> {:halt, :over} end)
      approval = fn call, _ -> if call.name == "stop", do: :approve, else: :ask end

      opts = opts(calling(calls), tools: tools, approval: approval)
      assert {:ok, %Result{status: :halted, output: :over} = result} = prompt("Hi", opts)

      assert [{:error, "interrupted: another tool ended the run"}, {:ok, :over}] =
               results(result.context)

      assert Context.pending_tool_calls(result.context) == []
    end
  end

  describe "resume/2" do
    setup do
      calls = [call("a", "ask", %{"n" => 1}), call("b", "yes"), call("c", "ask", %{"n" => 2})]
      {:paused, paused} = prompt("Hi", opts(calling(calls)))
      assert_received {:ran, "yes", _}
      {:ok, context: paused.context}
    end

    test "asks about the undecided again, and only about these", %{context: context} do
      test = self()
      approval = fn call, _ -> send(test, {:asked, call.id}) && :approve end
      context = Context.Calls.approve_tool_call(context, "a", by: "ann")
      {:ok, result} = Runtime.run(context, opts(Scripted.new(["Done"]), approval: approval))
      assert_received {:asked, "c"}
      refute_received {:asked, _}
      assert results(result.context) == [ok: "ask!", ok: "yes!", ok: "ask!"]
      assert %{by: "ann"} = Context.Calls.tool_call_decision(result.context, "a")
      assert %{by: :approval} = Context.Calls.tool_call_decision(result.context, "c")
    end

    test "holds an approved call to the rules and hooks of the day", %{context: context} do
      context =
        context |> Context.Calls.approve_tool_call("a") |> Context.Calls.approve_tool_call("c")

      llm = Scripted.new(["Done"])
      deny = fn call, _ -> if call.id == "c", do: {:deny, {:not, "today"}}, else: :ok end
      rules = [{:deny, "ask", &(&1["n"] == 1)}]
      opts = opts(llm, permission_rules: rules, before_tool: deny)
      {:ok, result} = Runtime.resume(context, opts)

      assert [{:error, "denied: the tool \"ask\" is denied by " <> _}, _, {:error, {:denied, _}}] =
               results(result.context)

      refute_received {:ran, _, _}
      assert %{decision: :approved} = Context.Calls.tool_call_decision(result.context, "a")
      assert Context.Calls.tool_call_status(result.context, "a") == :error
    end

    @tag :capture_log
    test "executes approved calls again when the run was killed in their middle", %{
      context: context
    } do
      test = self()

      context =
        context |> Context.Calls.approve_tool_call("a") |> Context.Calls.deny_tool_call("c")

      hang = hanging(:tool)

      opts = opts(&never/1, tools: %{"ask" => hang}, on_change: &send(test, {:changed, &1}))
      runner = spawn(fn -> Runtime.resume(context, opts) end)
      assert_receive {:tool, tool}
      Linked.kill(runner)
      refute Process.alive?(tool)
      refute_received {:changed, _}

      assert Context.Calls.tool_call_status(context, "a") == :approved
      opts = opts(Scripted.new(["Done"]), approval: fn _, _ -> flunk("asked again") end)
      {:ok, result} = elsewhere(context, &Runtime.resume(&1, opts))
      assert results(result.context) == [ok: "ask!", ok: "yes!", error: "denied"]
    end
  end

  describe "what is approved is what runs:" do
    setup do
      opts = opts(calling([call("a", "ask", %{"path" => "x"})]), before_tool: below("/srv/"))
      {:paused, paused} = prompt("Hi", opts)
      {:ok, paused: paused, opts: Keyword.put(opts, :llm, Scripted.new(["Done"]))}
    end

    test "the pause shows the arguments that the tool gets, and these run", %{
      paused: paused,
      opts: opts
    } do
      shown = [call("a", "ask", %{"path" => "/srv/x"})]
      assert paused.calls == shown
      assert Context.Calls.undecided_tool_calls(paused.context) == shown
      assert Context.pending_tool_calls(paused.context) == [call("a", "ask", %{"path" => "x"})]

      {:ok, result} =
        elsewhere(paused.context, fn context ->
          assert Context.Calls.undecided_tool_calls(context) == shown
          context = Context.Calls.approve_tool_call(context, "a", by: "ann")
          elsewhere(context, &Runtime.resume(&1, opts))
        end)

      assert_received {:ran, "ask", %{"path" => "/srv/x"}}
      refute_received {:ran, _, _}

      assert %{by: "ann", arguments: %{"path" => "/srv/x"}} =
               Context.Calls.tool_call_decision(result.context, "a")
    end

    test "what a hook makes of it by then does not run when it is something else", %{
      paused: paused,
      opts: opts
    } do
      test = self()
      opts = Keyword.merge(opts, before_tool: below("/etc/"), on_event: &send(test, {:event, &1}))
      context = Context.Calls.approve_tool_call(paused.context, "a", by: "ann")
      {:ok, result} = elsewhere(context, &Runtime.resume(&1, opts))
      refute_received {:ran, _, _}

      assert [error: "denied: the arguments differ from the approved ones" <> _] =
               results(result.context)

      assert %{decision: :approved, by: "ann"} =
               Context.Calls.tool_call_decision(result.context, "a")

      assert_received {:event, %{event: [_, _, :tool, :decision], metadata: told}}
      assert %{decision: :denied, by: :approval} = told
    end

    test "nor does it with no approval function, or when the hook has gone", %{
      paused: paused,
      opts: opts
    } do
      context = Context.Calls.approve_tool_call(paused.context, "a")

      for opts <- [
            Keyword.merge(opts, before_tool: below("/etc/"), approval: :auto),
            Keyword.delete(opts, :before_tool)
          ] do
        opts = Keyword.put(opts, :llm, Scripted.new(["Done"]))
        {:ok, result} = Runtime.resume(context, opts)
        refute_received {:ran, _, _}

        assert [error: "denied: the arguments differ from the approved" <> _] =
                 results(result.context)
      end
    end

    test "a stored document that was changed after the approval does not run" do
      # Streamed arguments are also kept as the text that came, which has to agree with them.
      opts = opts(calling([call("a", "ask", %{"path" => "x"})]), stream: false)
      {:paused, %{context: context}} = prompt("Hi", opts)
      approved = Context.Calls.approve_tool_call(context, "a", by: "ann")

      for {from, to} <- [{~s("path":"x"), ~s("path":"/")}, {~s("name":"ask"), ~s("name":"yes")}] do
        text = Context.to_snapshot(approved)
        assert text =~ from
        changed = Context.load!(String.replace(text, from, to))
        assert Context.Calls.tool_call_status(changed, "a") == :approved
        {:ok, result} = Runtime.resume(changed, Keyword.put(opts, :llm, Scripted.new(["Done"])))
        refute_received {:ran, _, _}

        assert [error: "denied: the arguments differ from the approved" <> _] =
                 results(result.context)
      end
    end

    test "an approval of a release that kept no digest runs what the model wrote, and nothing else" do
      opts = opts(calling([call("a", "ask", %{"path" => "x"})]))
      {:paused, %{context: context}} = prompt("Hi", opts)
      text = context |> Context.Calls.approve_tool_call("a", by: "ann") |> Context.to_snapshot()
      old = String.replace(text, ~r/,"digest":"[^"]*"/, "")
      assert old != text
      resumed = &Runtime.resume(Context.load!(old), Keyword.merge(opts, &1))

      {:ok, result} = resumed.(llm: Scripted.new(["Done"]), before_tool: below("/etc/"))
      refute_received {:ran, _, _}
      assert [error: "denied: " <> _] = results(result.context)

      {:ok, _result} = resumed.(llm: Scripted.new(["Done"]))
      assert_received {:ran, "ask", %{"path" => "x"}}
    end

    test "who has seen other arguments approves nothing, and may approve what would run by now",
         %{
           paused: paused,
           opts: opts
         } do
      # Somebody has gone on meanwhile, and a hook has made something else of it.
      opts = Keyword.put(opts, :before_tool, below("/etc/"))
      {:paused, later} = Runtime.resume(paused.context, opts)
      [%{id: id, arguments: seen}] = paused.calls
      assert [%{arguments: %{"path" => "/etc/x"} = shown}] = later.calls

      approve = &Context.Calls.approve_tool_call(later.context, id, by: "ann", arguments: &1)
      error = assert_raise Context.Error, fn -> approve.(seen) end
      assert error.reason == {:other_arguments, id, [["path"]]}

      {:ok, _result} =
        Runtime.resume(approve.(shown), Keyword.put(opts, :llm, Scripted.new(["Done"])))

      assert_received {:ran, "ask", ^shown}
    end

    test "a text that is approved runs, in the run and in a session" do
      text = ~s({"path": "x"})
      asked = [%{id: "a", kind: :custom, name: "ask", arguments: text}]
      context = Context.new("Hi") |> Context.add_assistant_message(nil, asked)
      opts = opts(Scripted.new([]))
      assert {:paused, %{calls: [%{arguments: ^text}]} = paused} = Runtime.run(context, opts)
      context = paused.context
      answering = Keyword.put(opts, :llm, Scripted.new(["Done", "Done"]))
      shown = [by: "ann", arguments: text]

      approved = Context.Calls.approve_tool_call(context, "a", shown)
      assert {:ok, _result} = Runtime.resume(approved, answering)
      assert_received {:ran, "ask", %{"path" => "x"}}

      session = start_supervised!({Session, [context: context] ++ answering})
      :ok = Session.approve(session, "a", shown)
      assert {:ok, _result} = Session.resume(session)
      assert_received {:ran, "ask", %{"path" => "x"}}
    end

    test "what the approval function approved is kept with the decision" do
      opts = opts(calling([call("a", "yes", %{"path" => "x"})]), before_tool: below("/srv/"))
      {:ok, result} = prompt("Hi", opts)
      assert_received {:ran, "yes", %{"path" => "/srv/x"}}

      assert %{by: :approval, arguments: %{"path" => "/srv/x"}} =
               Context.Calls.tool_call_decision(result.context, "a")
    end

    test "arguments that cannot be kept cannot be asked about or approved" do
      hook = fn call, _ -> {:ok, put_in(call.arguments["n"], [1 | 2])} end

      for name <- ["ask", "yes"] do
        opts = opts(calling([call("a", name)]), before_tool: hook)
        {:ok, result} = prompt("Hi", opts)

        assert [error: words] = results(result.context)
        assert words =~ "denied: a hook (:before_tool) returned arguments that cannot be stored"
        assert %{by: :before_tool} = Context.Calls.tool_call_decision(result.context, "a")
      end

      # With nobody to ask, nothing is to be kept.
      opts = opts(calling([call("a", "yes")]), before_tool: hook, approval: :auto)
      {:ok, _result} = prompt("Hi", opts)
      assert_received {:ran, "yes", %{"n" => [1 | 2]}}
    end
  end

  describe "any mixture of decisions" do
    test "runs each approved call once, and no other, whatever the order of pauses" do
      seed = {3, 5, System.unique_integer([:positive])}
      :rand.seed(:exsss, seed)

      for _ <- 1..40 do
        wanted = for n <- 1..:rand.uniform(6), do: {"c#{n}", Enum.random(~w(yes no ask))}
        calls = for {id, name} <- wanted, do: call(id, name, %{"id" => id})
        reply = prompt("Hi", opts(calling(calls)))
        {context, approved} = decide(reply, [])
        answered = for {id, "yes"} <- wanted, do: id
        expected = Enum.sort(answered ++ approved)

        assert Enum.sort(ran()) == expected, "seed #{inspect(seed)}"
        assert Context.pending_tool_calls(context) == []

        for {id, _} <- wanted do
          status = Context.Calls.tool_call_status(context, id)
          assert status == if(id in expected, do: :ok, else: :denied), "seed #{inspect(seed)}"
        end
      end
    end

    # Decides about some of what waits, at least one, and goes on until nothing does.
    defp decide({:ok, result}, approved), do: {result.context, approved}

    defp decide({:paused, %{context: context, calls: calls}}, approved) do
      some = Enum.take_random(calls, :rand.uniform(length(calls)))

      {context, approved} =
        Enum.reduce(some, {context, approved}, fn %{id: id}, {context, approved} ->
          if :rand.uniform(2) == 1,
            do: {Context.Calls.approve_tool_call(context, id), [id | approved]},
            else: {Context.Calls.deny_tool_call(context, id), approved}
        end)

      context
      |> Context.to_snapshot()
      |> Context.load!()
      |> Runtime.resume(opts(Scripted.new(["Done"])))
      |> decide(approved)
    end

    defp ran, do: drain(do: ({:ran, _name, %{"id" => id}} -> id))
  end

  describe "usage" do
    test "is noted on the context, with one change for each answer" do
      test = self()

      llm =
        Scripted.new([
          %{tool_calls: [call("a", "yes")], usage: %{input_tokens: 10, output_tokens: 2}},
          %{content: "Done", usage: %{"prompt_tokens" => 20, "completion_tokens" => 3}}
        ])

      opts = opts(llm, approval: :auto, on_change: &send(test, {:changed, &1}))
      {:ok, result} = prompt("Hi", opts)

      assert %{input_tokens: 30, output_tokens: 5, total_tokens: 35} =
               Context.Tokens.get_cumulative_tokens(result.context)

      totals =
        for _ <- 1..3 do
          assert_received {:changed, context}
          Context.Tokens.get_cumulative_tokens(context).total_tokens
        end

      assert totals == [12, 12, 35]
      refute_received {:changed, _}
    end

    test "that the context does not take is left out, and the answer stays" do
      deep = Enum.reduce(1..300, 1, fn _, inner -> [inner] end)
      counts = for count <- [-1, 1.5, "many", [1 | 2], deep], do: %{input_tokens: count}
      maps = [%{}, %{note: "x"}, %{1 => 2}, %{<<255>> => 1}]

      for usage <- counts ++ maps ++ [nil, [], 5, ~D[2026-01-01]] do
        llm = fn _ -> {:ok, %{content: "Hi", usage: usage}} end
        assert {:ok, %Result{output: "Hi"} = result} = prompt("Hi", llm: llm)
        assert Context.Tokens.get_cumulative_tokens(result.context).total_tokens == 0
      end
    end
  end
end
