defmodule AshAgent.TestTest do
  use ExUnit.Case, async: true
  use AshAgent.Test

  alias AshAgent.{ChatContext, Context, LLM, Runtime}
  alias ExUnit.AssertionError

  doctest AshAgent.Test

  defp call(id, name, arguments \\ %{}), do: %{id: id, name: name, arguments: arguments}

  # Each list of calls is one answer, whose calls have results.
  defp conversation(answers) do
    Enum.reduce(answers, Context.new("Go", id: "c-1"), fn calls, context ->
      context = Context.add_assistant_message(context, nil, calls)
      results = for %{id: id} <- calls, do: {id, {:ok, "done"}}
      Context.add_tool_results(context, results)
    end)
  end

  defp trip do
    conversation([
      [call("c1", "search", %{"q" => "Oslo weather", "limit" => 3})],
      [
        call("c2", "search", %{q: "Rome weather"}),
        call("c3", "pay", %{"id" => 7, "to" => %{"name" => "Ann"}})
      ],
      [call("c4", "get-time", %{})]
    ])
  end

  defp message(fun), do: Exception.message(assert_raise(AssertionError, fun))

  describe "patterns" do
    test "match text for regexes, atoms for text as keys, and any call by a name alone" do
      assert [%{id: "c1", by: :client}, _, %{result: {:ok, "done"}}, _] =
               assert_calls(trip(), [
                 search(q: ~r/oslo/i),
                 search(%{q: "Rome weather"}),
                 pay(%{to: %{name: ~r/^A/}}),
                 {"get-time", %{}}
               ])

      assert_calls(trip(), [search, search(), _, "get-time"])
      assert_calls(trip(), [:search, search(_), {"pay", _}, {"get-time", []}])
    end

    test "take pins of any expression, and guards" do
      order = %{id: 7, to: %{name: "Ann"}}
      assert_calls(trip(), [pay(%{id: ^order.id, to: ^order.to})], :in_order)
      assert_calls(trip(), [search(limit: limit) when limit in 1..3, pay], :in_order)

      words = message(fn -> assert_calls(trip(), [pay(id: ^(order.id + 1))], :in_order) end)
      assert words =~ "no call matches pay(id: ^(order.id + 1)), with order.id + 1 = 8"
      assert words =~ "the nearest is pay"

      assert_raise AssertionError, fn ->
        assert_calls(trip(), [search(limit: limit) when limit > 3], :in_order)
      end
    end

    test "see structs as they are" do
      context = conversation([[call("a", "book", %{on: ~D[2026-01-02]})]])
      assert_calls(context, [book(on: %Date{year: 2026})])
      assert_calls(context, [book(on: ^~D[2026-01-02])])
    end

    test "that are not calls do not compile" do
      assert_raise ArgumentError, ~r/expected a call such as search.*got: 5/, fn ->
        Code.eval_string("import AshAgent.Test; assert_calls(nil, [5])")
      end
    end
  end

  describe "assert_calls/3" do
    test "compares exactly: the first other, missing or further call fails" do
      assert message(fn -> assert_calls(trip(), [search, pay, search, "get-time"]) end) =~
               "call 2 differs: expected pay, got search"

      assert message(fn -> assert_calls(trip(), [search, search, pay]) end) =~
               "call 4 is one too many: get-time %{} (c4)"

      assert message(fn -> assert_calls(trip(), [search, search, pay, "get-time", pay]) end) =~
               "call 5 is missing: expected pay"

      assert assert_calls(Context.new("Hi"), []) == []
    end

    test "compares in order, with others between" do
      assert_calls(trip(), [search(q: ~r/Oslo/), "get-time"], :in_order)

      assert message(fn -> assert_calls(trip(), [pay, search], :in_order) end) =~
               "no call matches search after pay"
    end

    test "compares in any order, each pattern with a call of its own" do
      assert_calls(trip(), ["get-time", search, pay, search(q: ~r/Oslo/)], mode: :any_order)

      assert_raise AssertionError, fn ->
        assert_calls(trip(), [search, search, search], :any_order)
      end
    end

    test "compares what may be called" do
      assert_calls(trip(), [search, pay, search(q: ~r/Oslo/), delete, "get-time"], :within)

      assert message(fn -> assert_calls(trip(), [search, pay, "get-time"], :within) end) =~
               "search %{\"q\" => \"Rome weather\"} (c2) is none of the calls that may be made"
    end

    test "agrees with trying all assignments" do
      # Calls and patterns are sets of numbers that fit together.
      for seed <- 1..200 do
        :rand.seed(:exsss, {seed, 0, 33})
        calls = for n <- 1..:rand.uniform(5), do: call("c#{n}", "f", %{"n" => :rand.uniform(4)})
        sets = for _ <- 1..:rand.uniform(5), do: Enum.take_random(1..4, :rand.uniform(3))
        context = conversation([calls])
        numbers = Enum.map(calls, & &1.arguments["n"])

        patterns =
          for set <- sets,
              do: %AshAgent.Test.Pattern{name: "f", words: "f", matches?: &(&1["n"] in set)}

        all = AshAgent.Test.Trajectory.calls(context, nil)

        assert AshAgent.Test.Trajectory.compare(:any_order, all, patterns) == :ok ==
                 assignable?(sets, numbers, &(&2 in &1))

        assert AshAgent.Test.Trajectory.compare(:within, all, patterns) == :ok ==
                 assignable?(numbers, sets, &(&1 in &2))
      end
    end

    test "looks at the iterations since one" do
      assert_calls(trip(), ["get-time"], since: 3)
      assert_calls(trip(), [pay, "get-time"], mode: :in_order, since: 2)
    end

    test "counts the calls that the provider answers itself" do
      search = %{"type" => "server_tool_use", "id" => "s1", "name" => "web_search"}
      search = Map.put(search, "input", %{"query" => "Oslo"})
      found = %{"type" => "web_search_tool_result", "tool_use_id" => "s1", "content" => []}

      parts =
        for data <- [search, found],
            do: %{type: :provider_block, provider: :anthropic, data: data}

      parts = parts ++ [%{type: :text, text: "Rain."}]
      context = Context.add_assistant_message(Context.new("Hi"), parts)
      assert [%{by: :provider}] = assert_calls(context, [web_search(query: "Oslo")])
      assert_raise AssertionError, fn -> refute_called(context, web_search) end
    end

    test "takes results, errors, pauses and chats" do
      llm = LLM.Scripted.new([%{tool_calls: [call("a", "pay")]}, "Paid."])
      opts = [llm: llm, tools: %{pay: fn _ -> {:ok, "paid"} end}, approval: fn _, _ -> :ask end]
      {:paused, paused} = run = Runtime.run(Context.new("Pay"), opts)
      for subject <- [run, paused, paused.context], do: assert_calls(subject, [pay])
      assert_calls(ChatContext.new(context: paused.context), [pay])
      assert_raise ArgumentError, ~r/expected a context/, fn -> assert_calls("pay", [pay]) end
    end
  end

  test "a failure shows the conversation with an arrow, and how to see it as a page" do
    words = message(fn -> assert_calls(trip(), [search, search, pay(id: 8), "get-time"]) end)

    lines = words |> String.split("\n") |> Enum.map(&String.trim/1)
    assert "expected :exactly:" in lines and "pay(id: 8)" in lines
    assert [marked] = for("> " <> line <- lines, do: line)
    assert marked =~ ~r/^calls +c3: pay/
    assert [_, file] = Regex.run(~r/mix ash_agent.trace (\S+) --open/, words)
    assert file |> File.read!() |> Context.load!() |> Context.count_iterations() == 4
  end

  describe "refute_called/3" do
    test "passes without such a call, and shows the one there is" do
      refute_called(trip(), pay(id: 8))
      refute_called(trip(), [pay, search], since: 3)

      assert message(fn -> refute_called(trip(), [delete, pay(id: 7)]) end) =~
               "expected no call of pay(id: 7), got pay"
    end
  end

  describe "assert_answer/2" do
    test "compares the text of the last message, and the output of a result" do
      context = Context.new("Hi") |> Context.add_assistant_message("Hello Ann!")
      name = "Hello Ann!"
      assert assert_answer(context, ^name) == name
      assert_raise AssertionError, fn -> assert_answer(context, "Hello") end

      output = %{city: "Oslo", days: [1, 2]}
      result = %Runtime.Result{status: :answered, context: context, output: output}
      assert_answer(result, %{city: ~r/oslo/i, days: [_ | _]})
      assert message(fn -> assert_answer(result, %{city: "Rome"}) end) =~ "the answer differs"
    end

    test "fails without an answer, and says why there is none" do
      assert message(fn -> assert_answer(trip(), _) end) =~ "does not end with an answer"
      {:error, error} = Runtime.run(Context.new("Hi"), llm: fn _ -> {:error, :overloaded} end)
      assert message(fn -> assert_answer(error, _) end) =~ "the model failed: :overloaded"
    end
  end

  describe "assert_within/2" do
    setup do
      usage = %{input_tokens: 90, output_tokens: 10}
      context = Context.Tokens.add_token_usage(conversation([[call("a", "f")]]), usage)
      %{context: Context.add_assistant_message(context, "Done")}
    end

    test "compares calls, iterations, tokens and costs", %{context: context} do
      prices = [%{model: :any, input: 1_000_000, output: 2_000_000}]
      opts = [calls: 1, iterations: 2, tokens: 100, cost: 110_000_000, prices: prices]
      assert assert_within(context, opts) == context

      for {name, budget} <- [calls: 0, iterations: 1, tokens: 99, cost: 109_999_999] do
        words = message(fn -> assert_within(context, [{name, budget}, prices: prices]) end)
        assert words =~ ~r/^#{name}: expected at most #{budget}, used \d+$/m
      end

      assert_within(context, calls: 0, since: 2)
    end

    test "keeps no budget that cannot be checked", %{context: context} do
      for {subject, budget, words} <- [
            {trip(), [tokens: 100], "the models reported no tokens"},
            {context, [cost: 1], "there are no :prices"},
            {context, [cost: 1, prices: [%{model: "x", input: 1, output: 1}]], "no price"}
          ],
          do: assert(message(fn -> assert_within(subject, budget) end) =~ words)

      assert_within(%Runtime.Result{status: :answered, context: context, cost: 5}, cost: 5)
      assert_raise ArgumentError, fn -> assert_within(context, call: 1) end
    end
  end

  describe "assert_approved/3" do
    test "passes if whoever may has approved what ran" do
      for {decide, opts, passes?} <- [
            {&Context.Calls.approve_tool_call(&1, "a", by: "ann"), [], true},
            {&Context.Calls.approve_tool_call(&1, "a", by: "ann"), [by: "ann"], true},
            {&Context.Calls.approve_tool_call(&1, "a", by: "ann"), [by: ["bob", "ann"]], true},
            {&Context.Calls.approve_tool_call(&1, "a", by: "ann"), [by: ~r/^a/], true},
            {&Context.Calls.approve_tool_call(&1, "a", by: "bob"), [by: "ann"], false},
            {& &1, [], false}
          ] do
        context = Context.new("Pay") |> Context.add_assistant_message(nil, [call("a", "pay")])
        assert_approved(context, :pay, opts)
        context = context |> decide.() |> Context.add_tool_results([{"a", {:ok, "paid"}}])

        if passes?,
          do: assert([%{id: "a"}] = assert_approved(context, "pay", opts)),
          else: assert(message(fn -> assert_approved(context, :pay, opts) end) =~ "ran, but")
      end
    end

    test "a denied call has not run, and an id that comes again has its own decision" do
      context = Context.new("Pay") |> Context.add_assistant_message(nil, [call("a", "pay")])
      denied = Context.Calls.deny_tool_call(context, "a", "no", by: "ann")
      assert_approved(denied, :pay, by: "bob")

      context =
        context
        |> Context.add_tool_results([{"a", {:ok, "paid"}}])
        |> Context.add_assistant_message("Paid.")
        |> Context.add_user_message("Again")
        |> Context.add_assistant_message(nil, [call("a", "pay")])
        |> Context.Calls.approve_tool_call("a", by: "ann")

      assert message(fn -> assert_approved(context, :pay) end) =~ "nobody had approved it"
      assert_approved(context, :pay, since: 3)
    end
  end

  defp assignable?([], _others, _fits?), do: true

  defp assignable?([one | ones], others, fits?) do
    Enum.any?(Enum.with_index(others), fn {other, index} ->
      fits?.(one, other) and assignable?(ones, List.delete_at(others, index), fits?)
    end)
  end
end
