defmodule AshAgent.Runtime.GuardedTest do
  # What becomes of a call when the application's own function about it fails, hangs or returns something else.
  use ExUnit.Case, async: true

  import ExUnit.CaptureLog

  alias AshAgent.{Context, Runtime}
  alias AshAgent.LLM.Scripted
  alias AshAgent.Runtime.Error

  @hang {:hang, "took longer than 300 ms"}
  @other "returned something else"
  @other_call "returned a call with another id or name, or without arguments"

  @places [
    {:approval, 2, "denied: the approval function ", [true, :deny, {:approve, "yes"}, :ok, nil]},
    {:before_tool, 2, "denied: a hook (:before_tool) ", [nil, {:ok, nil}, {:error, "x"}, :deny]},
    {:after_tool, 3, "a hook (:after_tool) ", [nil, {:ok, "text"}, {:ok, {:halt, 1}}, {:ok, 1}]},
    {:permission_rules, 1, "denied: a permission rule ", []}
  ]

  @failing [
    {:raise, "raised RuntimeError"},
    {:throw, "threw a value that nobody caught"},
    {:exit, "exited"},
    {:kill, "was killed"}
  ]

  # That of predicates that fail is told with their rule, see Permissions.
  defp failing(:permission_rules), do: [{:kill, "was killed"}, @hang]
  # A person may take longer than a tool.
  defp failing(:approval), do: @failing
  defp failing(_hook), do: [@hang | @failing]

  defp fail(:raise), do: raise("secret")
  defp fail(:throw), do: throw("secret")
  defp fail(:exit), do: exit("secret")
  defp fail(:kill), do: Process.exit(self(), :kill)
  defp fail(:hang), do: Process.sleep(:infinity)

  defp option(:permission_rules, 1, fun),
    do: {:permission_rules, [{:deny, "echo", fn _ -> fun.() end}]}

  defp option(name, 2, fun), do: {name, fn _, _ -> fun.() end}
  defp option(name, 3, fun), do: {name, fn _, _, _ -> fun.() end}

  # The result of the one call, of a run that may have ended with an error.
  defp run(option, opts) do
    test = self()

    llm =
      Scripted.new([
        %{tool_calls: [%{id: "x", name: "echo", arguments: %{"k" => "hidden"}}]},
        "Done"
      ])

    tools = %{"echo" => fn arguments -> send(test, {:ran, arguments}) && {:ok, arguments} end}
    {status, reply} = Runtime.run(Context.new("Hi"), [option, llm: llm, tools: tools] ++ opts)
    [%{result: result}] = Context.get_iteration(reply.context, 1).tool_calls
    {status, reply, result}
  end

  defp assert_result(option, words) do
    log =
      capture_log(fn ->
        assert {:ok, _reply, {:error, ^words}} = run(option, tool_timeout: 300)
      end)

    refute log =~ ~r/secret|hidden/
  end

  for {name, arity, words, others} <- @places do
    @tag name: name, arity: arity, words: words, others: others
    test "#{name} that fails or returns something else denies or hides, and says so",
         %{name: name, arity: arity, words: words, others: others} do
      for {how, said} <- failing(name),
          do: assert_result(option(name, arity, fn -> fail(how) end), words <> said)

      for other <- others,
          do: assert_result(option(name, arity, fn -> other end), words <> @other)

      if name != :after_tool, do: refute_received({:ran, _})
    end
  end

  test "a hook that returns another call than it was given denies" do
    for change <- [
          &%{&1 | name: "other"},
          &%{&1 | id: "y"},
          &%{&1 | arguments: "{}"},
          fn _call -> %{} end
        ] do
      hook = {:before_tool, fn call, _ -> {:ok, change.(call)} end}
      assert_result(hook, "denied: a hook (:before_tool) " <> @other_call)
    end

    assert_result(
      {:before_tool, fn call, _ -> call end},
      "denied: a hook (:before_tool) " <> @other
    )

    refute_received {:ran, _}
  end

  test "what hangs is ended with the time of the run, and what it had not seen is not kept" do
    for {name, arity, words} <- [
          {:approval, 2, "interrupted"},
          {:before_tool, 2, "interrupted"},
          {:after_tool, 3, "the run timed out before a hook had seen the result"}
        ] do
      option = option(name, arity, fn -> fail(:hang) end)

      assert {:error, %Error{reason: {:timeout, 400}} = error, {:error, said}} =
               run(option, timeout: 400)

      assert String.starts_with?(said, words)
      assert Context.pending_tool_calls(error.context) == []
    end
  end
end
