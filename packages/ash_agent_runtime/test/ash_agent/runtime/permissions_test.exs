defmodule AshAgent.Runtime.PermissionsTest do
  use ExUnit.Case, async: true

  alias AshAgent.Context
  alias AshAgent.Context.UnknownAtom
  alias AshAgent.Runtime
  alias AshAgent.LLM.Scripted
  alias AshAgent.Runtime.Permissions

  doctest AshAgent.Runtime.Permissions

  defp check(rules, name, arguments \\ %{}),
    do: Permissions.check(Permissions.new(permission_rules: rules), call(name, arguments))

  defp call(name, arguments), do: %{id: "a", name: name, arguments: arguments}

  defp denied?(rules, name, arguments \\ %{}),
    do: match?({:deny, _}, check(rules, name, arguments))

  describe "new/1" do
    test "refuses what is no rule and no name" do
      for rule <- [
            :deny,
            {:deny},
            {:deny, nil},
            {:deny, 1},
            {:deny, true},
            {:maybe, "x"},
            {:deny, "x", fn -> true end},
            {:deny, "x", true},
            {:deny, ~r/x/},
            {:deny, "x", nil},
            {"deny", "x"}
          ] do
        assert_raise ArgumentError, ~r/:permission_rules: expected a list of rules/, fn ->
          Permissions.new(permission_rules: [rule])
        end
      end

      for rules <- [:all, "x", %{}, {:deny, "x"}, nil] do
        assert_raise ArgumentError, ~r/:permission_rules/, fn ->
          Permissions.new(permission_rules: rules)
        end
      end

      for names <- ["search", :search, %{}, [nil], [1], [true], [{"search", 1}]] do
        assert_raise ArgumentError, ~r/:allowed_tools/, fn ->
          Permissions.new(allowed_tools: names)
        end
      end

      assert_raise ArgumentError, ~r/unknown options \[:rules\]/, fn ->
        Permissions.new(rules: [])
      end
    end
  end

  test "what is no call, name or pattern is never let through" do
    all = Permissions.new()

    for ask <- [
          fn -> Permissions.new(:all) end,
          fn -> Permissions.check(all, [:delete]) end,
          fn -> Permissions.offer?(all, 1) end,
          fn -> Permissions.matches?("*", 1) end,
          fn -> Permissions.matches?(1, "1") end
        ] do
      assert_raise ArgumentError, ask
    end
  end

  describe "check/2" do
    test "takes names as atoms and as text, in rules, lists and calls" do
      for pattern <- [:delete_user, "delete_user", :"delete_*", "delete_*"],
          name <- [:delete_user, "delete_user", %UnknownAtom{name: "delete_user"}] do
        assert denied?([{:deny, pattern}], name)
        assert check([{:allow, pattern}], name) == :ok
      end

      for listed <- [:search, "search"], name <- [:search, "search"] do
        permissions = Permissions.new(allowed_tools: [listed])
        assert Permissions.check(permissions, call(name, %{})) == :ok
        assert Permissions.check(permissions, %{"name" => name}) == :ok
      end
    end

    test "gives a predicate the arguments as they are in the call" do
      rules = [{:deny, "rm", &(&1["path"] == "/" or &1[:path] == "/")}]
      assert denied?(rules, "rm", %{"path" => "/"})
      assert denied?(rules, "rm", %{path: "/"})
      assert check(rules, "rm", %{"path" => "/tmp"}) == :ok
      assert denied?(rules, "rm", ~s({"path": "/"}))
      assert denied?([{:deny, "rm", &(&1 == %{})}], "rm", nil)
    end

    test "denies what a predicate leaves undecided, and says so" do
      for kind <- [:deny, :allow],
          {predicate, words} <- [
            {fn _ -> raise "secret" end, "raised RuntimeError"},
            {fn %{"never" => _} -> true end, "raised FunctionClauseError"},
            {fn _ -> throw(:secret) end, "threw a value that nobody caught"},
            {fn _ -> exit(:secret) end, "exited"},
            {fn _ -> :error end, "did not return a boolean"},
            {fn _ -> {:ok, true} end, "did not return a boolean"},
            {fn _ -> 0 end, "did not return a boolean"}
          ] do
        assert check([{kind, "rm*", predicate}], "rm") ==
                 {:deny,
                  "the predicate of the rule {#{inspect(kind)}, \"rm*\", predicate} #{words}"}
      end
    end

    test "denies arguments that a predicate cannot be shown" do
      for arguments <- ["{bad", "[1]", [1], 5, <<255>>], kind <- [:deny, :allow] do
        assert {:deny, words} = check([{kind, "rm", fn _ -> kind == :allow end}], "rm", arguments)
        assert words =~ "not a JSON object"
        assert check([{:allow, "rm"}], "rm", arguments) == :ok
      end
    end

    test "agrees with a plain definition on random rules, in whatever order these are" do
      seed = {7, 11, System.unique_integer([:positive])}
      :rand.seed(:exsss, seed)

      for _ <- 1..1_000 do
        rules = for _ <- 1..:rand.uniform(4), do: random_rule()
        name = random("ab", 4)
        arguments = %{"n" => :rand.uniform(2)}
        matching = for rule <- rules, rule_matches?(rule, name, arguments), do: elem(rule, 0)

        allowed? =
          :deny not in matching and
            (:allow in matching or Enum.all?(rules, &(elem(&1, 0) == :deny)))

        for rules <- [rules, Enum.reverse(rules), Enum.shuffle(rules)] do
          assert check(rules, name, arguments) == :ok == allowed?, "seed #{inspect(seed)}"
        end
      end
    end

    defp random_rule do
      {kind, pattern} = {Enum.random([:allow, :deny]), random("ab*", 3)}
      n = :rand.uniform(2)

      if :rand.uniform(2) == 1,
        do: {kind, pattern, &(&1["n"] == n)},
        else: {kind, pattern}
    end

    defp rule_matches?({_kind, pattern}, name, _arguments),
      do: plain(String.graphemes(pattern), String.graphemes(name))

    defp rule_matches?({kind, pattern, predicate}, name, arguments),
      do: rule_matches?({kind, pattern}, name, arguments) and predicate.(arguments)

    test "takes hostile names as they are" do
      for name <- [
            "",
            "*",
            "**",
            "a*b",
            "delete_x\n",
            "\0",
            <<255, 254>>,
            "dé",
            "{:allow}",
            "../x"
          ] do
        assert {:deny, words} = check([{:allow, "nothing"}], name)
        assert String.valid?(words)
        assert check([{:allow, "*"}], name) == :ok
      end

      # A star in a name is no pattern, and case and ends count.
      for {pattern, name} <- [
            {"delete_x", "delete_*"},
            {"delete", "delete\n"},
            {"delete", "Delete"}
          ] do
        assert check([{:deny, pattern}], name) == :ok
        assert denied?([{:allow, pattern}], name)
      end
    end

    test "takes names that are no names at all" do
      for name <- [nil, 5, ["a"], {:a}, %{}] do
        assert denied?([{:allow, "read"}], name)

        assert {:deny, _} =
                 Permissions.check(Permissions.new(allowed_tools: ["a"]), %{name: name})
      end
    end
  end

  describe "matches?/2" do
    test "agrees with a plain definition on random patterns and names" do
      seed = :rand.seed(:exsss, {1, 2, System.unique_integer([:positive])})

      for _ <- 1..5_000 do
        pattern = random("ab*é.?[|\\", 6)
        name = random("abé.?[|\\", 8)

        assert Permissions.matches?(pattern, name) ==
                 plain(String.graphemes(pattern), String.graphemes(name)),
               "#{inspect({pattern, name})}, seed #{inspect(:rand.export_seed_s(seed))}"
      end
    end

    # More than linear work, or waiting, takes longer than this.
    @tag timeout: 60_000
    test "is quick with many stars" do
      pattern = String.duplicate("*a", 200) <> "*b"
      name = String.duplicate("a", 20_000)
      refute Permissions.matches?(pattern, name)
    end

    defp random(alphabet, length) do
      letters = String.graphemes(alphabet)
      for _ <- 1..:rand.uniform(length)//1, into: "", do: Enum.random(letters)
    end

    defp plain([], name), do: name == []
    defp plain(["*" | rest], []), do: plain(rest, [])
    defp plain(["*" | rest] = all, [_ | more] = name), do: plain(rest, name) or plain(all, more)
    defp plain([letter | rest], [letter | more]), do: plain(rest, more)
    defp plain(_pattern, _name), do: false
  end

  describe "in a run" do
    defp run(calls, opts) do
      test = self()
      llm = Scripted.new([%{tool_calls: calls}, "Done"])

      tools =
        for name <- ~w(read write), into: %{} do
          {name, fn arguments -> send(test, {:ran, name, arguments}) && {:ok, name} end}
        end

      {:ok, result} = Runtime.run(Context.new("Hi"), [llm: llm, tools: tools] ++ opts)
      {Context.get_iteration(result.context, 1).tool_calls, result.context, llm}
    end

    test "what is not allowed is neither offered nor executed" do
      calls = [%{id: "a", name: "write"}, %{id: "b", name: "read"}, %{id: "c", name: :nothing}]
      {calls, context, llm} = run(calls, allowed_tools: [:read, "nothing"])

      assert [
               %{result: {:error, ~S(denied: the tool "write" is not among the allowed ones)}},
               %{result: {:ok, "read"}},
               %{result: {:error, ~S(unknown tool "nothing"; available tools: read)}}
             ] = calls

      assert Context.Calls.tool_call_status(context, "a") == :denied

      assert %{decision: :denied, by: :permissions} =
               Context.Calls.tool_call_decision(context, "a")

      assert Context.Calls.tool_call_decision(context, "b") == nil
      refute_received {:ran, "write", _}
      for request <- Scripted.requests(llm), do: assert([%{name: "read"}] = request.opts[:tools])
    end

    test "a denied call is read by the model, and the others run" do
      calls = [
        %{id: "a", name: "write", arguments: %{"path" => "/etc/passwd"}},
        %{id: "b", name: "write", arguments: %{"path" => "/tmp/x"}}
      ]

      rules = [{:deny, "*", &String.starts_with?(&1["path"], "/etc/")}]
      {_calls, context, _llm} = run(calls, permission_rules: rules)

      assert [%{content: [denied, written]}] =
               context |> Context.get_iteration_messages(1) |> Enum.filter(&is_list(&1.content))

      assert %{tool_use_id: "a", is_error: true, content: "denied: the tool " <> _} = denied
      assert %{tool_use_id: "b", is_error: false, content: "write"} = written
      assert_received {:ran, "write", %{"path" => "/tmp/x"}}
      refute_received {:ran, _, _}
    end
  end
end
