defmodule AshAgent.Runtime.HooksTest do
  use ExUnit.Case, async: true

  alias AshAgent.{Context, Runtime}
  alias AshAgent.LLM.Scripted
  alias AshAgent.Runtime.Result

  defp call(id, name, arguments \\ %{}), do: %{id: id, name: name, arguments: arguments}

  defp run(calls, opts) do
    test = self()
    llm = Scripted.new([%{tool_calls: calls}, "Done"])
    echo = fn arguments -> send(test, {:ran, arguments}) && {:ok, arguments} end
    opts = Keyword.update(opts, :tools, %{"echo" => echo}, &Map.put_new(&1, "echo", echo))
    Runtime.run(Context.new("Hi"), [llm: llm] ++ opts)
  end

  defp results({:ok, result}), do: results(result)
  defp results({:error, error}), do: results(error)

  defp results(%{context: context}),
    do: for(%{result: result} <- Context.get_iteration(context, 1).tool_calls, do: result)

  describe "before_tool" do
    test "changes what the tool gets, and the context keeps what the model wrote" do
      hooks = [
        fn call, _ -> {:ok, put_in(call.arguments["a"], 2)} end,
        fn %{arguments: %{"a" => 2}} = call, _ -> {:ok, put_in(call.arguments["b"], 3)} end,
        fn %{arguments: %{"a" => 2, "b" => 3}}, %{actor: "ada"} -> :ok end
      ]

      reply =
        run([call("x", "echo", %{"a" => 1})],
          before_tool: hooks,
          runtime_context: %{actor: "ada"}
        )

      assert results(reply) == [ok: %{"a" => 2, "b" => 3}]
      {:ok, %{context: context}} = reply
      assert [%{arguments: %{"a" => 1}}] = Context.get_iteration(context, 1).tool_calls
    end

    test "shows the approval function what the tool will get" do
      test = self()
      approval = fn call, _ -> send(test, {:asked, call.arguments}) && :approve end
      hook = fn call, _ -> {:ok, %{call | arguments: %{"safe" => true}}} end
      run([call("x", "echo", %{"safe" => false})], before_tool: hook, approval: approval)
      assert_received {:asked, %{"safe" => true}}
      assert_received {:ran, %{"safe" => true}}
    end

    test "gives required arguments that the model left out" do
      tools = %{
        "echo" => %{function: &{:ok, &1}, parameters: %{"required" => ["tenant"]}}
      }

      hook = fn call, _ -> {:ok, put_in(call.arguments["tenant"], 1)} end

      assert results(run([call("x", "echo")], tools: tools, before_tool: hook)) == [
               ok: %{"tenant" => 1}
             ]
    end

    test "cannot lead a call around the rules" do
      hook = fn call, _ -> {:ok, %{call | arguments: %{"path" => "/etc/passwd"}}} end
      rules = [{:deny, "*", &(&1["path"] == "/etc/passwd")}]

      reply =
        run([call("x", "echo", %{"path" => "ok"})], before_tool: hook, permission_rules: rules)

      assert [error: "denied: the tool \"echo\" is denied by the rule " <> _] = results(reply)
      refute_received {:ran, _}
    end

    test "denies, and later hooks and the approval function hear nothing" do
      hooks = [fn _, _ -> {:deny, "closed"} end, fn _, _ -> flunk("asked") end]

      reply =
        run([call("x", "echo")], before_tool: hooks, approval: fn _, _ -> flunk("asked") end)

      assert results(reply) == [error: "denied: closed"]
      {:ok, %{context: context}} = reply

      assert %{by: :before_tool, reason: "closed"} =
               Context.Calls.tool_call_decision(context, "x")
    end

    test "comes behind the rules, and hears nothing of what these deny" do
      reply =
        run([call("x", "echo")],
          before_tool: fn _, _ -> flunk("asked") end,
          permission_rules: [{:deny, "echo"}]
        )

      assert [error: "denied: the tool" <> _] = results(reply)
    end

    test "hears nothing of what no tool can take" do
      calls = [call("x", "nothing"), call("y", "echo", "[1]")]
      reply = run(calls, before_tool: fn _, _ -> flunk("asked") end)

      assert [error: "unknown tool" <> _, error: "the arguments are not a JSON object"] =
               results(reply)
    end
  end

  describe "after_tool" do
    test "changes the result, one hook behind the other" do
      hooks = [
        fn %{id: "x"}, {:ok, %{"a" => 1}}, %{actor: nil} -> {:ok, {:ok, "one"}} end,
        fn _, {:ok, "one"}, _ -> :ok end,
        fn _, {:ok, "one"}, _ -> {:ok, {:error, "two"}} end
      ]

      assert results(run([call("x", "echo", %{"a" => 1})], after_tool: hooks)) == [error: "two"]
    end

    test "sees the arguments that the tool got" do
      test = self()

      run([call("x", "echo", %{"a" => 1})],
        before_tool: fn call, _ -> {:ok, put_in(call.arguments["a"], 2)} end,
        after_tool: fn call, _, _ -> send(test, {:after, call.arguments}) && :ok end
      )

      assert_received {:after, %{"a" => 2}}
    end

    test "hears of failures and timeouts, and not of what was denied or never ran" do
      test = self()

      tools = %{
        "boom" => fn _ -> raise "boom" end,
        "hang" => fn _ -> Process.sleep(:infinity) end
      }

      calls = [call("a", "boom"), call("b", "hang"), call("c", "nothing"), call("d", "echo")]

      reply =
        run(calls,
          tools: tools,
          tool_timeout: 300,
          permission_rules: [{:deny, "echo"}],
          after_tool: fn call, result, _ -> send(test, {:after, call.id, result}) && :ok end
        )

      assert_received {:after, "a", {:error, "the tool raised RuntimeError"}}
      assert_received {:after, "b", {:error, "timed out after 300 ms"}}
      refute_received {:after, _, _}
      assert [error: _, error: _, error: _, error: _] = results(reply)
    end

    test "may return what cannot be kept, which becomes an error" do
      hook = fn _, _, _ -> {:ok, {:ok, [1 | 2]}} end

      assert [error: "the tool returned a term that cannot be stored" <> _] =
               results(run([call("x", "echo")], after_tool: hook))
    end

    test "changes what a tool halted with, and an error keeps the run going" do
      tools = %{"stop" => fn _ -> {:halt, 1} end}
      calls = [call("x", "stop")]
      hook = fn _, {:ok, 1}, _ -> {:ok, {:ok, 2}} end

      assert {:ok, %Result{status: :halted, output: 2}} =
               run(calls, tools: tools, after_tool: hook)

      hook = fn _, {:ok, 1}, _ -> {:ok, {:error, "not yet"}} end

      assert {:ok, %Result{status: :answered, output: "Done"}} =
               run(calls, tools: tools, after_tool: hook)
    end
  end

  describe "a function of the application that fails" do
    @failing [
      on_change: 1,
      on_event: 1,
      before_tool: 2,
      after_tool: 3,
      approval: 2
    ]

    defp failing(1), do: fn _ -> raise "SECRET" end
    defp failing(2), do: fn _, _ -> raise "SECRET" end
    defp failing(3), do: fn _, _, _ -> raise "SECRET" end

    # The lines that name a function, and how many of them have the id and no more of it.
    defp failed_lines(log, name) do
      refute log =~ "SECRET"
      for line <- String.split(log, "\n"), line =~ ":#{name} failed", do: line
    end

    test "is logged with the conversation's id, in runs, sub-agents and sessions" do
      for {name, arity} <- @failing, where <- [:run, :sub_agent, :session] do
        id = "#{name}-#{where}-#{System.unique_integer([:positive])}"
        own = [{name, failing(arity)}, tools: %{"echo" => &{:ok, &1}}]
        llm = Scripted.new([%{tool_calls: [call("x", "echo")]}, "Done"])

        log =
          ExUnit.CaptureLog.capture_log([metadata: [:context_id]], fn ->
            case where do
              :run ->
                Runtime.run(Context.new("Hi", id: id), [llm: llm] ++ own)

              :sub_agent ->
                child = Runtime.SubAgent.tool([name: "child", description: "x", llm: llm] ++ own)

                outer =
                  Scripted.new([%{tool_calls: [call("y", "child", %{"task" => "Go"})]}, "Ok"])

                Runtime.run(Context.new("Hi", id: id), llm: outer, tools: [child])

              :session ->
                opts = [llm: llm, context: Context.new("Hi", id: id)] ++ own
                {:ok, session} = AshAgent.Session.start_link(opts)
                AshAgent.Session.resume(session)
            end
          end)

        lines = failed_lines(log, name)
        assert lines != [], id

        if where == :sub_agent,
          do: assert(Enum.all?(lines, &(&1 =~ ~r/ in the conversation "[^"]+"/))),
          else: assert(Enum.any?(lines, &(&1 =~ ~s(in the conversation "#{id}"))))
      end

      assert Logger.metadata()[:context_id] == nil
    end
  end

  test "nothing of hooks is left in the mailbox or running" do
    before = Process.info(self(), :links)
    run([call("x", "echo")], before_tool: fn _, _ -> :ok end, after_tool: fn _, _, _ -> :ok end)
    assert_received {:ran, _}
    assert Process.info(self(), :messages) == {:messages, []}
    # The script is linked, nothing else.
    {:links, links} = Process.info(self(), :links)
    assert length(links) == length(elem(before, 1)) + 1
  end
end
