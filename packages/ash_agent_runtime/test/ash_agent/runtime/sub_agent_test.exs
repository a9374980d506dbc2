defmodule AshAgent.Runtime.SubAgentTest do
  use ExUnit.Case, async: true

  # Tools that fail are logged.
  @moduletag :capture_log

  import AshAgent.TestSupport.Runs, only: [drain: 1, hanging: 1, prompt: 2, results: 1, say: 1]

  import ExUnit.CaptureLog

  alias AshAgent.{Context, Runtime}
  alias AshAgent.Context.View
  alias AshAgent.LLM.Scripted
  alias AshAgent.Runtime.{Error, SubAgent, Tool, ToolExecutor}
  alias AshAgent.TestSupport.Linked

  doctest AshAgent.Runtime.SubAgent

  defp call(id, name, arguments \\ %{"task" => "Do it"}),
    do: %{id: id, name: name, arguments: arguments}

  defp calling(calls), do: Scripted.new([%{tool_calls: calls}, "Done"])

  defp agent(opts), do: SubAgent.tool(Keyword.merge([name: "agent", llm: say("Child")], opts))

  defp run(agents, opts \\ []) do
    agents = List.wrap(agents)
    calls = for %{name: name} <- agents, do: call("call_" <> name, name)
    prompt("Hi", [llm: calling(calls), tools: agents] ++ opts)
  end

  defp result(reply) do
    {_, %{context: context}} = reply
    [result | _] = results(context)
    result
  end

  defp noted({_, %{context: context}}),
    do: (context |> Context.get_iteration_messages(1) |> List.last()).metadata.sub_agents

  # A child that calls these tools and then answers with what it read.
  defp child_calling(calls) do
    Scripted.new(fn context ->
      case context |> Context.to_messages() |> List.last() do
        %{content: [%{type: :tool_result} | _] = results} ->
          Enum.map_join(results, ", ", & &1.content)

        _ ->
          %{tool_calls: calls}
      end
    end)
  end

  describe "tool/1" do
    test "refuses wrong options at once" do
      for opts <- [
            [llm: nil],
            [name: nil],
            [name: ""],
            [tools: 5],
            [tools: fn _ -> [] end],
            [max_iterations: 0],
            [max_depth: 0],
            [timeout: 0],
            [timeout: "1"],
            [input: fn -> "x" end],
            [on_child: :store],
            [inherit: [:llm]],
            [inherit: :all],
            [permission_rules: [:x]],
            [approval: :ask],
            [parameters: "x"],
            [unknown: 1]
          ] do
        assert_raise ArgumentError, fn -> agent(opts) end
      end

      assert_raise ArgumentError, fn -> SubAgent.tool(name: "x") end
      assert_raise ArgumentError, fn -> SubAgent.tool(llm: fn _ -> {:ok, %{}} end) end
    end

    test "is a tool like any other" do
      tool = agent(description: "Helps")
      assert %Tool{name: "agent", description: "Helps"} = tool
      assert [%Tool{name: "helper"}] = Tool.new(%{helper: tool})

      assert [%{id: "1", result: {:ok, "Child"}}] =
               ToolExecutor.execute_tools([call("1", "agent")], [tool], %{})
    end
  end

  describe "a call" do
    test "is a conversation of its own, and each knows the other" do
      test = self()
      llm = Scripted.new([%{content: "Child", usage: %{input_tokens: 7, output_tokens: 1}}])
      agent = agent(llm: llm, system_prompt: "Be brief.", on_child: &send(test, {:child, &1}))
      reply = {:ok, %{context: parent}} = run(agent)

      assert result(reply) == {:ok, "Child"}
      assert_received {:child, child}

      assert [%{role: :system, content: "Be brief."}, %{content: "Do it"}, %{content: "Child"}] =
               Context.to_messages(child)

      assert Context.metadata(child) == %{parent_id: parent[:id], tool_call_id: "call_agent"}
      assert Context.Tokens.get_cumulative_tokens(child).total_tokens == 8
      assert Context.Tokens.get_cumulative_tokens(parent).total_tokens == 0

      none = %{cached_tokens: 0, cache_write_tokens: 0, reasoning_tokens: 0}
      usage = Map.merge(none, %{input_tokens: 7, output_tokens: 1, total_tokens: 8})
      note = %{id: child[:id], status: :answered, iterations: 1, usage: usage}
      assert noted(reply) == %{"call_agent" => note}

      # What is noted is no part of what models are sent.
      refute parent |> Context.encode_request!(:anthropic) |> IO.iodata_to_binary() =~ child[:id]

      assert {:ok, loaded} = parent |> Context.dump() |> Context.load()
      assert noted({:ok, %{context: loaded}}) == noted(reply)
    end

    test "of several at once are all noted" do
      agents = for n <- 1..4, do: agent(name: "agent_#{n}", llm: say("#{n}"))

      plain = Tool.new(%{plain: fn _ -> :ok end})
      reply = {:ok, %{context: context}} = run(agents ++ plain)

      assert results(context) ==
               [ok: "1", ok: "2", ok: "3", ok: "4", ok: :ok]

      assert reply |> noted() |> Map.keys() |> Enum.sort() ==
               for(n <- 1..4, do: "call_agent_#{n}")
    end

    test "gets tools, and the tool context of the parent" do
      test = self()
      tools = %{who: fn _, tool_context -> send(test, {:who, tool_context}) && {:ok, "me"} end}
      agent = agent(llm: child_calling([call("1", "who", %{})]), tools: tools)
      assert result(run(agent, runtime_context: %{actor: "ada", extra: 1})) == {:ok, "me"}
      assert_received {:who, %{actor: "ada", tenant: nil, extra: 1}}
    end

    test "reads under the masks of the parent" do
      masked = View.put_masks(Context.new("Hi"), [{"QX[0-9]", "[id]"}])
      echo = Scripted.new(&(&1 |> Context.to_messages() |> List.last() |> Map.get(:content)))
      llm = calling([call("call_agent", "agent", %{"task" => "Look up QX7"})])
      reply = Runtime.run(masked, llm: llm, tools: [agent(llm: echo)])
      assert result(reply) == {:ok, "Look up [id]"}
    end

    test "takes its input from the arguments" do
      echo = fn child -> {:ok, %{content: hd(Context.to_messages(child)).content}} end

      for arguments <- [%{"task" => "T"}, %{task: "T"}] do
        llm = calling([call("1", "agent", arguments)])
        assert result(prompt("Hi", llm: llm, tools: [agent(llm: echo)])) == {:ok, "T"}
      end

      input = fn %{"a" => a, "b" => b} -> "#{a} and #{b}" end
      agent = agent(llm: echo, input: input, parameters: %{"type" => "object"})
      llm = calling([call("1", "agent", %{"a" => 1, "b" => 2})])
      assert result(prompt("Hi", llm: llm, tools: [agent])) == {:ok, "1 and 2"}
    end

    test "with arguments that are no task is an error" do
      for arguments <- [%{"task" => ""}, %{"task" => 5}, %{"task" => nil}, %{"other" => "x"}] do
        llm = calling([call("1", "agent", arguments)])

        reply = prompt("Hi", llm: llm, tools: [agent(llm: fn _ -> flunk("ran") end)])

        assert {:error, words} = result(reply)
        assert words =~ "task"
      end
    end

    test "that halts gives what it halted with" do
      stop = %{stop: fn _ -> {:halt, 42} end}
      agent = agent(llm: child_calling([call("1", "stop", %{})]), tools: stop)
      reply = run(agent)
      assert result(reply) == {:ok, 42}
      assert %{"call_agent" => %{status: :halted}} = noted(reply)
      # The child halted, not the parent.
      assert {:ok, %{status: :answered, output: "Done"}} = reply
    end
  end

  describe "a child's failure" do
    test "is an error that the parent's model reads" do
      forever = fn _ -> {:ok, %{tool_calls: [%{name: "t"}]}} end

      for {opts, words} <- [
            {[llm: fn _ -> {:error, "secret"} end], "the sub-agent's model failed"},
            {[llm: fn _ -> raise "secret" end], "the sub-agent's model raised RuntimeError"},
            {[llm: fn _ -> throw("secret") end],
             "the sub-agent's model threw a value that nobody caught"},
            {[llm: fn _ -> Process.exit(self(), :kill) end], "the sub-agent's model exited"},
            {[llm: fn _ -> :nonsense end], "the sub-agent's model did not return a valid answer"},
            {[on_change: fn _ -> {:error, "secret"} end],
             "the sub-agent's conversation could not be stored"},
            {[llm: fn _ -> Process.sleep(:infinity) end, llm_timeout: 30],
             "the sub-agent's model took longer than 30 ms"},
            {[llm: fn _ -> Process.sleep(:infinity) end, timeout: 30],
             "the sub-agent took longer than 30 ms"},
            {[llm: forever, tools: %{t: fn _ -> 1 end}, max_iterations: 2],
             "the sub-agent had no answer after 2 iterations"}
          ] do
        test = self()
        reply = run(agent([on_child: &send(test, {:child, &1})] ++ opts))
        assert {:ok, %{output: "Done"}} = reply
        assert result(reply) == {:error, words}
        assert %{"call_agent" => %{status: :error, id: id}} = noted(reply)
        assert_received {:child, child}
        assert child[:id] == id
        assert Context.pending_tool_calls(child) == []
      end
    end

    test "to give what can be kept is noted all the same" do
      stop = %{stop: fn _ -> {:halt, [1 | 2]} end}
      agent = agent(llm: child_calling([call("1", "stop", %{})]), tools: stop)
      reply = run(agent)
      assert {:error, words} = result(reply)
      assert words =~ "cannot be stored"
      assert %{"call_agent" => %{id: _}} = noted(reply)
    end

    test "in :input, :tools or :on_child stays with the call" do
      for {opts, raised} <- [
            {[input: fn _ -> raise "x" end], "RuntimeError"},
            {[tools: fn -> raise "x" end], ""},
            {[tools: fn -> 5 end], "ArgumentError"},
            {[input: fn _ -> 5 end], ""}
          ] do
        assert {:error, words} = result(run(agent(opts)))
        assert words =~ "the tool raised " <> raised
      end

      assert capture_log(fn ->
               assert result(run(agent(on_child: fn _ -> raise "x" end))) == {:ok, "Child"}
             end) =~ ":on_child failed"
    end
  end

  describe "limits" do
    test "the run's tool timeout holds for a child, which says so itself" do
      agent = agent(llm: fn _ -> Process.sleep(:infinity) end)
      reply = run(agent, tool_timeout: 40)
      assert result(reply) == {:error, "the sub-agent took longer than 40 ms"}
      assert %{"call_agent" => %{status: :error}} = noted(reply)
    end

    test "its own timeout is in the place of the run's" do
      llm = fn _ ->
        Process.sleep(60)
        {:ok, %{content: "Slow"}}
      end

      assert result(run(agent(llm: llm, timeout: 5_000), tool_timeout: 20)) == {:ok, "Slow"}
    end

    @tag :capture_log
    test "the end of the parent's time is that of the child" do
      llm = hanging(:child)

      reply = run(agent(llm: llm, timeout: :infinity), timeout: 400)
      assert {:error, %Error{reason: {:timeout, 400}}} = reply
      assert_received {:child, child}
      monitor = Process.monitor(child)
      assert_receive {:DOWN, ^monitor, _, _, _}
    end

    @tag :capture_log
    test "a child and its tools, at every depth, end with the parent's run" do
      hang = hanging(:deepest)

      inner =
        agent(name: "inner", llm: child_calling([call("1", "hang", %{})]), tools: %{hang: hang})

      outer = agent(name: "outer", llm: child_calling([call("1", "inner")]), tools: [inner])
      calls = [call("1", "outer")]

      opts = [llm: fn _ -> {:ok, %{tool_calls: calls}} end, tools: [outer]]
      runner = spawn(fn -> prompt("Hi", opts) end)
      assert_receive {:deepest, pid}
      Linked.kill(runner)
      refute Process.alive?(pid)
    end

    test "sub-agents that call themselves come to an end" do
      for depth <- 1..4 do
        test = self()
        reply = run(endless(test, depth))
        assert {:ok, %{output: "Done"}} = reply
        assert {:ok, words} = result(reply)
        assert words == "sub-agents may be nested #{depth} deep at most; do it without one"
        assert length(asked()) == 2 * depth
      end
    end

    defp endless(test, depth) do
      llm = child_calling([call("1", "agent")])

      counted = fn context ->
        send(test, :asked)
        AshAgent.LLM.chat(llm, context)
      end

      agent(llm: counted, tools: fn -> [endless(test, depth)] end, max_depth: depth)
    end

    defp asked, do: drain(do: (:asked -> :asked))
  end

  describe "the bounds of a run" do
    # An agent that calls itself twice in every answer, and never has enough.
    defp greedy(test) do
      llm = fn _ ->
        send(test, :asked)
        calls = for id <- ["1", "2"], do: call(id, "agent")
        {:ok, %{tool_calls: calls, usage: %{input_tokens: 10, output_tokens: 5}}}
      end

      agent(llm: llm, tools: fn -> [greedy(test)] end, max_concurrency: 1)
    end

    defp greedily(opts) do
      test = self()

      llm = fn _ ->
        send(test, :asked)
        {:ok, %{tool_calls: for(id <- ["1", "2"], do: call(id, "agent"))}}
      end

      reply = prompt("Hi", [llm: llm, tools: [greedy(test)]] ++ opts)
      {reply, length(asked())}
    end

    test "hold for all its sub-agents together, by default" do
      assert {{:error, %Error{} = error}, 200} = greedily([])
      assert error.reason == {:max_calls_exceeded, 200}
      assert Exception.message(error) =~ "200 model calls"
      assert Exception.message(error) =~ ":max_calls"
      assert Context.pending_tool_calls(error.context) == []
    end

    test "count every call of a model, and no more are made" do
      for max <- [1, 2, 3, 17] do
        assert {{:error, %Error{reason: {:max_calls_exceeded, ^max}}}, ^max} =
                 greedily(max_calls: max)
      end

      reply = run(agent([]), max_calls: 3)
      assert {:ok, %{output: "Done"}} = reply

      assert {:error, %Error{reason: {:max_calls_exceeded, 2}}} =
               reply = run(agent([]), max_calls: 2)

      assert result(reply) == {:ok, "Child"}
    end

    test "tell the parent's model what its sub-agent ran into" do
      llm = calling([call("1", "agent")])
      agent = agent(llm: child_calling([call("1", "t", %{})]), tools: %{t: fn _ -> :ok end})
      {:error, error} = prompt("Hi", llm: llm, tools: [agent], max_calls: 2)
      assert error.reason == {:max_calls_exceeded, 2}

      assert [{:error, "the run has made all of its 2 model calls" <> _}] = results(error.context)
    end

    test "are one turn's iterations at least, when more of these are wanted" do
      forever = fn _ -> {:ok, %{tool_calls: [%{name: "t"}]}} end
      opts = [llm: forever, tools: %{t: fn _ -> 1 end}, max_iterations: 230]
      assert {:error, error} = prompt("Hi", opts)
      assert error.reason == {:max_iterations_exceeded, 230}
    end

    test "sum up what all models report" do
      {{:error, error}, asked} = greedily(max_total_tokens: 100, max_concurrency: 1)
      assert error.reason == {:max_total_tokens_exceeded, 100}
      assert Exception.message(error) =~ "100 tokens"
      # The parent's model reports nothing, each other one 15.
      assert asked == 1 + 7

      huge = fn _ ->
        {:ok, %{tool_calls: [%{name: "t"}], usage: %{input_tokens: 0xFFFFFFFFFFFF}}}
      end

      opts = [llm: huge, tools: %{t: fn _ -> 1 end}]

      assert {:error, %Error{reason: {:max_total_tokens_exceeded, _}}} = prompt("Hi", opts)

      opts = opts ++ [max_total_tokens: :infinity, max_iterations: 3]

      assert {:error, %Error{reason: {:max_iterations_exceeded, 3}}} = prompt("Hi", opts)
    end

    test "refuse a sub-agent too many, in words for the model" do
      test = self()
      agent = agent(llm: fn _ -> send(test, :asked) && {:ok, %{content: "Child"}} end)
      llm = calling(for n <- 1..5, do: call("#{n}", "agent"))

      {:ok, %{context: context}} = prompt("Hi", llm: llm, tools: [agent], max_sub_agents: 3)

      results = results(context)
      assert Enum.count(results, &(&1 == {:ok, "Child"})) == 3

      assert Enum.count(
               results,
               &(&1 == {:error, "the run has started all of its 3 sub-agents; do it without one"})
             ) == 2

      assert length(asked()) == 3
    end

    test "are those of the outermost run, and checked" do
      for option <- [:max_calls, :max_total_tokens, :max_sub_agents] do
        assert_raise ArgumentError, fn -> run(agent([]), [{option, -1}]) end
        assert_raise ArgumentError, fn -> run(agent([]), [{option, "1"}]) end
        assert_raise ArgumentError, fn -> agent([{option, 1}]) end
        assert {:ok, _} = run(agent([]), [{option, :infinity}])
      end

      assert {:error, "the run has started all of its 0 sub-agents" <> _} =
               result(run(agent([]), max_sub_agents: 0))
    end

    test "begin anew with the next run" do
      {:error, %Error{context: context}} = run(agent([]), max_calls: 1)
      assert {:ok, _} = Runtime.run(context, llm: Scripted.new(["Done"]), tools: [], max_calls: 1)
    end
  end

  describe "the parent's rules" do
    setup do
      test = self()
      tools = %{"delete" => fn _ -> send(test, :deleted) && {:ok, "gone"} end}
      {:ok, opts: [llm: child_calling([call("1", "delete", %{"x" => 1})]), tools: tools]}
    end

    test "hold for the child", %{opts: opts} do
      reply = run(agent(opts), permission_rules: [{:deny, "delete"}])
      assert {:ok, "denied: the tool \"delete\" is denied by" <> _} = result(reply)

      hook = fn call, _ -> if call.name == "delete", do: {:deny, "no"}, else: :ok end
      assert {:ok, "denied: no"} = result(run(agent(opts), before_tool: hook))

      approval = fn call, _ ->
        if call.name == "delete", do: {:deny, "ask ann"}, else: :approve
      end

      assert {:ok, "denied: ask ann"} = result(run(agent(opts), approval: approval))
      refute_received :deleted

      hook = fn call, _, _ -> if call.name == "delete", do: {:ok, {:ok, "seen"}}, else: :ok end
      assert {:ok, "seen"} = result(run(agent(opts), after_tool: hook))
    end

    test "are never widened by its own", %{opts: opts} do
      own = [permission_rules: [{:allow, "delete"}], allowed_tools: ["delete"], inherit: []]

      for {parent, words} <- [
            {[permission_rules: [{:allow, "agent"}]], "no rule allows the tool \"delete\""},
            {[permission_rules: [{:deny, "del*"}]], "the tool \"delete\" is denied by the rule"},
            {[permission_rules: [{:deny, "*", &is_map_key(&1, "x")}]],
             "the tool \"delete\" is denied by"},
            {[allowed_tools: ["agent"]], "the tool \"delete\" is not among the allowed ones"}
          ] do
        assert {:ok, "denied: " <> told} = result(run(agent(opts ++ own), parent))
        assert String.starts_with?(told, words)
      end

      refute_received :deleted
    end

    test "come before its own", %{opts: opts} do
      test = self()
      asked = fn who -> fn _ -> send(test, {:rule, who}) && false end end
      own = [permission_rules: [{:deny, "delete", asked.(:child)}]]
      run(agent(opts ++ own), permission_rules: [{:deny, "delete", asked.(:parent)}])

      assert {:messages, [{:rule, :parent}, {:rule, :child}, :deleted]} =
               Process.info(test, :messages)
    end

    test "leave hooks and approval behind when that is wanted", %{opts: opts} do
      no = fn call -> if call.name == "delete", do: {:deny, "no"} end
      approval = fn call, _ -> no.(call) || :approve end
      before_tool = fn call, _ -> no.(call) || :ok end
      agent = agent(opts ++ [inherit: []])
      assert {:ok, "gone"} = result(run(agent, approval: approval, before_tool: before_tool))
      assert_received :deleted
      assert_raise ArgumentError, ~r/always apply/, fn -> agent(inherit: [:permission_rules]) end
    end

    test "hold at every depth, each the narrower for those above", %{opts: opts} do
      names = ~w(outer inner delete)

      for {at, option} <- [
            {0, [allowed_tools: ["outer", "inner"]]},
            {1, [allowed_tools: ["inner"]]},
            {2, [allowed_tools: []]},
            {0, [permission_rules: [{:allow, "outer"}, {:allow, "inner"}]]},
            {1, [permission_rules: [{:deny, "delete"}]]},
            {2, [permission_rules: [{:deny, "*"}]]},
            {nil, []}
          ] do
        wide = [allowed_tools: names, permission_rules: [{:allow, "*"}]]

        [top, outer, inner] =
          for depth <- 0..2, do: Keyword.merge(wide, if(depth == at, do: option, else: []))

        inner = agent([name: "inner"] ++ opts ++ inner)

        outer =
          agent(
            [name: "outer", llm: child_calling([call("1", "inner")]), tools: [inner]] ++ outer
          )

        assert {:ok, words} = result(run(outer, top))

        if at do
          assert words =~ "denied: "
          refute_received :deleted
        else
          assert words == "gone"
          assert_received :deleted
        end
      end
    end

    test "are those of what the child's model is told of its tools", %{opts: opts} do
      test = self()
      tools = Map.put(opts[:tools], "read", fn _ -> :ok end)

      llm = fn _context, opts ->
        send(test, {:offered, Enum.map(opts[:tools], & &1.name)})
        {:ok, %{content: "Child"}}
      end

      run(agent(llm: llm, tools: tools), allowed_tools: ["agent", "read"])
      assert_received {:offered, ["read"]}
    end

    test "that need a person are denied in a child, which nobody can wait for", %{opts: opts} do
      approval = fn call, _ -> if call.name == "delete", do: :ask, else: :approve end
      reply = run(agent(opts), approval: approval)
      assert {:ok, "denied: it needs a person's decision" <> _} = result(reply)
      refute_received :deleted
    end

    test "ask about the sub-agent itself as about any tool", %{opts: opts} do
      approval = fn call, _ -> if call.name == "agent", do: :ask, else: :approve end

      assert {:paused, %{context: context, calls: [%{name: "agent"}]}} =
               run(agent(opts), approval: approval)

      refute_received :deleted

      {:ok, result} =
        context
        |> Context.Calls.approve_tool_call("call_agent")
        |> Runtime.resume(llm: Scripted.new(["Done"]), tools: [agent(opts)], approval: approval)

      assert result({:ok, result}) == {:ok, "gone"}
    end
  end
end
