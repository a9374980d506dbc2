defmodule AshAgent.Test.EvalTest do
  use ExUnit.Case, async: true

  alias AshAgent.{Context, LLM, Runtime}
  alias AshAgent.Test.{Eval, EvalReport}

  doctest AshAgent.Test.Eval

  defp say(text), do: Context.new("Hi") |> Context.add_assistant_message(text)

  defp run(evaluation, opts \\ []) do
    {state, attempts} = Eval.run(evaluation, opts)
    {state, for(attempt <- attempts, do: {attempt.case, attempt.score, attempt.words})}
  end

  test "scores are booleans and numbers, with words or without; anything else has failed" do
    given = [true, false, 0.5, {1, "fine"}, {false, :no}, 2, nil]
    scores = Map.new(Enum.zip(~w(a b c d e f g), given))
    cases = for id <- Map.keys(scores), do: %{id: id}
    score = fn _outcome, one -> scores[one["id"]] end
    assert {:ok, scored} = run(cases: cases, run: fn _ -> say("Hi") end, score: score)

    {fine, [{"f", 0, words}, {"g", 0, words2}]} = Enum.split(scored, 5)

    assert fine == [
             {"a", 1, nil},
             {"b", 0, nil},
             {"c", 0.5, nil},
             {"d", 1, "fine"},
             {"e", 0, "no"}
           ]

    assert words =~ "expected a score" and words2 =~ "expected a score"
  end

  test "without a scorer, a case says what it expects" do
    call = fn name, arguments -> %{id: name, name: name, arguments: arguments} end

    run = fn one ->
      Context.new("Hi")
      |> Context.add_assistant_message(nil, [call.("look", %{q: "Oslo", limit: 3})])
      |> Context.add_tool_results([{"look", {:ok, 1}}])
      |> Context.add_assistant_message(one["input"])
    end

    cases = [
      %{"input" => " 4\n", "expected" => "4"},
      %{"input" => "5", "expected" => "4"},
      %{"input" => "4", "expected" => "4", "calls" => [%{"look" => %{"q" => "Oslo"}}]},
      %{"input" => "4", "calls" => [%{"look" => %{"q" => "Rome"}}]},
      %{"input" => "4", "calls" => ["look", "pay"]},
      %{"input" => "4"}
    ]

    assert {:ok,
            [
              {"1", 1, nil},
              {"2", 0, ~s(answered "5")},
              {"3", 1, nil},
              {"4", 0, differs},
              {"5", 0, missing},
              {"6", 0, neither}
            ]} = run(cases: cases, run: run)

    assert differs =~ "call 1 differs" and missing =~ "call 2 is missing" and neither =~ "neither"
  end

  test "attempts run in parallel within the limit" do
    # How many run, how many have begun, and the most that ran at a time.
    counters = :counters.new(3, [])

    run = fn _one ->
      :counters.add(counters, 1, 1)
      running = :counters.get(counters, 1)
      if running > :counters.get(counters, 3), do: :counters.put(counters, 3, running)
      :counters.add(counters, 2, 1)
      # The first waits for the second, which only comes if they run at the same time.
      await(fn -> :counters.get(counters, 2) > 1 end)
      :counters.sub(counters, 1, 1)
      say("Hi")
    end

    cases = for id <- 1..20, do: %{"id" => id, "expected" => "Hi"}
    assert {:ok, scored} = run(cases: cases, run: run, concurrency: 2)
    assert Enum.all?(scored, &match?({_id, 1, nil}, &1)) and length(scored) == 20
    assert :counters.get(counters, 3) == 2
  end

  defp await(done?) do
    unless done?.() do
      receive do
      after
        1 -> await(done?)
      end
    end
  end

  test "one that exits or never ends has failed" do
    run = fn
      %{"id" => "exit"} -> exit(:oh)
      %{"id" => "kill"} -> Process.exit(self(), :kill)
      %{"id" => "stuck"} -> receive(do: (:never -> :ok))
    end

    cases = &for(id <- &1, do: %{"id" => id, "expected" => "Hi"})

    assert {:ok, [{"exit", 0, "exit: :oh"}, {"kill", 0, killed}]} =
             run(cases: cases.(["exit", "kill"]), run: run)

    assert killed =~ "exited: :killed"

    assert {:ok, [{"stuck", 0, "took longer than 50 ms"}]} =
             run(cases: cases.(["stuck"]), run: run, timeout: 50)
  end

  describe "an outage" do
    # What a run of the attempt returns, and whether that says nothing about the agent.
    defp outcomes do
      error = &{:error, %Runtime.Error{reason: &1, context: Context.new("Hi")}}
      model = &error.({:llm_error, %LLM.Error{reason: :test, kind: &1}})

      down =
        ~w(rate_limited quota overloaded server_error unauthorized timeout closed unreachable invalid_response)a

      own = ~w(context_overflow invalid_request refused)a
      failed = &(Context.new("Hi") |> Context.Audit.add_failure(%{kind: &1}))

      for(kind <- down, do: {kind, model.(kind), true}) ++
        for(kind <- down, do: {{kind, :context}, failed.(kind), true}) ++
        for(kind <- own, do: {kind, model.(kind), false}) ++
        for(kind <- own, do: {{kind, :context}, failed.(kind), false}) ++
        [
          {:atom, error.({:llm_error, :overloaded}), true},
          {:own_atom, error.({:llm_error, :context_overflow}), false},
          {:no_answer, error.({:llm_timeout, 5}), true},
          {:raised, error.({:llm_exception, :error, %RuntimeError{}}), true},
          {:tools, error.({:tools_exception, :error, %RuntimeError{}}), true},
          {:store, error.({:store_error, :stale}), true},
          {:drained, error.(:drained), true},
          {:iterations, error.({:max_iterations_exceeded, 1}), false},
          {:slow, error.({:timeout, 5}), false},
          {:type, error.({:invalid_output, %AshAgent.Output.Error{reason: :invalid, lines: []}}),
           false},
          {:answered_after_all, failed.(:overloaded) |> Context.add_assistant_message("no"),
           false},
          {:model, {:error, %LLM.Error{reason: {:status, 529}, kind: :overloaded}}, true},
          {:own_model, {:error, %LLM.Error{reason: :test, kind: :refused}}, false},
          {:store_alone,
           {:error, AshAgent.Store.Error.exception(reason: {:unavailable, :closed})}, true},
          {:wrong, say("no"), false}
        ]
    end

    test "is no score, however the attempt tells of it" do
      for {name, outcome, outage?} <- outcomes(),
          how <- [:returned, :matched, :case] do
        run = fn _one ->
          case how do
            :returned -> outcome
            :matched -> {:ok, _answer} = outcome
            :case -> case outcome, do: ({:ok, answer} -> answer)
          end
        end

        score = fn _outcome, _one -> send(self(), :scored) && false end
        {:ok, [attempt]} = Eval.run(cases: [%{}], run: run, score: score)
        assert {name, how, attempt.outage} == {name, how, outage?}
        assert {attempt.score, attempt.passed} == {if(outage?, do: nil, else: 0), false}
        if outage?, do: assert(attempt.words =~ "outage: the")
      end
    end

    test "is made again, with the others kept, and its money is counted" do
      {:ok, down?} = Agent.start_link(fn -> true end)

      run = fn %{"id" => id} ->
        send_to = Process.whereis(:eval_outage_test)
        send(send_to, {:ran, id})
        down? = id == "b" and Agent.get(down?, & &1)

        if down?,
          do:
            {:error,
             %Runtime.Error{reason: {:llm_error, :overloaded}, context: say("x"), cost: 7}},
          else: say("Hi")
      end

      Process.register(self(), :eval_outage_test)
      cases = for id <- ~w(a b), do: %{"id" => id, "expected" => "Hi"}

      {:ok, [%{passed: true}, %{outage: true, cost: 7}] = first} =
        Eval.run(cases: cases, run: run)

      for id <- ~w(a b), do: assert_received({:ran, ^id})
      assert {:stopped, [_a]} = Eval.run([cases: cases, run: run, max_cost: 7], earlier: first)
      refute_received {:ran, _}

      Agent.update(down?, fn _ -> false end)
      {:ok, again} = Eval.run([cases: cases, run: run], earlier: first)
      assert Enum.all?(again, &(&1.passed and not &1.outage))
      assert_received {:ran, "b"}
      refute_received {:ran, "a"}

      # Attempts of earlier releases have no such mark.
      older = Enum.map(again, &Map.delete(&1, :outage))
      assert {:ok, ^again} = Eval.run([cases: cases, run: run], earlier: older)
      refute_received {:ran, _}
    end

    test "of a judge, or of any scorer that says so, is no score either" do
      judge = fn kind ->
        Eval.judge(fn _ -> {:error, %LLM.Error{reason: :test, kind: kind}} end, "Fine.")
      end

      for {score, outage?} <- [
            {judge.(:overloaded), true},
            {judge.(:invalid_request), false},
            {fn _, _ -> {:outage, :quota} end, true}
          ] do
        {:ok, [attempt]} = Eval.run(cases: [%{}], run: fn _ -> say("Hi") end, score: score)
        assert {attempt.outage, attempt.score} == {outage?, if(outage?, do: nil, else: 0)}
      end
    end

    test "counts in no rate" do
      attempt = %{
        repetition: 1,
        passed: true,
        score: 1,
        outage: false,
        words: nil,
        tokens: 1,
        cost: 1,
        ms: 1
      }

      outage = %{attempt | passed: false, score: nil, outage: true, words: "outage: down"}

      scores = [
        {"a", attempt},
        {"a", outage},
        {"b", outage},
        {"c", %{attempt | passed: false, score: 0.5}}
      ]

      {rows, total} =
        scores |> Enum.map(fn {id, one} -> Map.put(one, :case, id) end) |> EvalReport.summarize()

      assert for(row <- rows, do: {row.attempts, row.passed, row.outages, row.score, row.pass}) ==
               [{1, 1, 1, 1.0, [1.0]}, {0, 0, 1, nil, []}, {1, 0, 0, 0.5, [0.0]}]

      assert {total.attempts, total.outages, total.score, total.pass, total.cost} ==
               {2, 2, 0.75, [0.5], 4}

      table = EvalReport.table({rows, total}, [%{case: "b", passed: 1, attempts: 1}])
      assert table =~ ~r/b +0\/0 +- .*outages: 1/
      refute table =~ "before"

      {rows, total} = EvalReport.summarize([Map.put(outage, :case, "b")])
      assert {total.score, total.pass} == {nil, []}
      assert EvalReport.table({rows, total}, nil) =~ "b: outage: down"
      assert EvalReport.encode("x", {rows, total}, []) =~ ~s("outages":1)
    end
  end

  test "stops at the money, and goes on from the attempts there are" do
    run = fn _ ->
      {:ok, %Runtime.Result{status: :answered, context: say("Hi"), output: "Hi", cost: 10}}
    end

    cases = for id <- 1..5, do: %{"id" => id, "expected" => "Hi"}
    opts = [cases: cases, run: run, max_cost: 25, concurrency: 1]

    kept = fn attempt, %Context{} -> send(self(), {:kept, attempt}) end
    {:stopped, attempts} = Eval.run(opts, on_attempt: kept)

    # With one at a time, the next begins when the last is counted, or one before that.
    assert length(attempts) in 3..4
    assert_received {:kept, %{cost: 10}}

    new = fn _, _ -> send(self(), :new) end
    opts = Keyword.put(opts, :max_cost, 1_000)
    {:ok, all} = Eval.run(opts, earlier: attempts, on_attempt: new)

    assert Enum.map(all, & &1.case) == ~w(1 2 3 4 5)
    new = 5 - length(attempts)
    for _ <- 1..new, do: assert_received(:new)
    refute_received :new
  end

  test "pass^k is the share of all choices of k attempts that only have such as passed" do
    for count <- 1..6, passed <- 0..count do
      one = %{case: "a", score: 1, words: nil, tokens: 1, cost: nil, ms: 1}
      attempts = for n <- 1..count, do: Map.merge(one, %{repetition: n, passed: n <= passed})
      {[row], total} = EvalReport.summarize(attempts)

      for k <- 1..count do
        choices = choices(Enum.to_list(1..count), k)

        good = Enum.count(choices, fn choice -> Enum.all?(choice, &(&1 <= passed)) end)
        share = good / length(choices)
        assert_in_delta Enum.at(row.pass, k - 1), share, 1.0e-9
      end

      assert {row.tokens, row.cost, total.passed} == {count, nil, passed}
    end
  end

  defp choices(_list, 0), do: [[]]
  defp choices([], _k), do: []

  defp choices([head | tail], k),
    do: for(rest <- choices(tail, k - 1), do: [head | rest]) ++ choices(tail, k)

  test "a judge's verdict has a type, and without one nothing passes" do
    verdict = fn arguments ->
      LLM.Scripted.new([%{tool_calls: [%{name: "verdict", arguments: arguments}]}])
    end

    for {llm, score} <- [
          {verdict.(%{"passed" => true, "reason" => "ok"}), {true, "ok"}},
          {verdict.(%{"passed" => "yes", "reason" => "ok"}),
           {false, "the judge gave no verdict"}},
          {LLM.Scripted.new(["It is fine."]), {false, "the judge gave no verdict"}}
        ],
        do: assert(Eval.judge(llm, "It is fine.").(say("Hi"), %{}) == score)

    llm = verdict.(%{"passed" => true, "reason" => "ok"})
    Eval.judge(llm, "It is kind.").(say("What is 1 + 1?"), %{})
    [%{context: context}] = LLM.Scripted.requests(llm)

    assert Context.to_prompt(context) =~ "It is kind." and
             Context.to_prompt(context) =~ "What is 1 + 1?"
  end

  test "cases are maps with different ids" do
    for {cases, words} <- [
          {[5], ~r/case 1 is not a map/},
          {[%{id: "a"}, %{"id" => :a}], ~r/two cases/}
        ] do
      assert_raise ArgumentError, words, fn -> Eval.run(cases: cases, run: fn _ -> nil end) end
    end
  end
end
