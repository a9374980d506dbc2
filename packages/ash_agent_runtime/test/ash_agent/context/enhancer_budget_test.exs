defmodule AshAgent.Context.Enhancer.BudgetTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions
  import ExUnit.CaptureLog

  alias AshAgent.Context
  alias AshAgent.Context.Enhancer.Budget
  alias AshAgent.Context.Error

  doctest AshAgent.Context.Enhancer.Budget

  # Each turn has 100 words, about as many tokens.
  defp turns(count, context \\ Context.new("Begin")) do
    Enum.reduce(1..count, context, fn number, context ->
      context
      |> Context.add_assistant_message(String.duplicate("word ", 100))
      |> Context.add_user_message("Turn #{number}")
    end)
  end

  defp tools(count) do
    Enum.reduce(1..count, Context.new("Begin"), fn number, context ->
      context
      |> Context.add_assistant_message(nil, [%{id: "#{number}", name: :read}])
      |> Context.add_tool_results([{"#{number}", {:ok, String.duplicate("word ", 100)}}])
    end)
  end

  defp run(context, opts) do
    {:ok, context, %{skipped: []}} =
      Context.Enhancer.run(context, [{Budget, Keyword.merge([method: :o200k_base], opts)}])

    context
  end

  defp tokens(context), do: Context.Tokens.count_tokens(context, method: :o200k_base)

  test "holds for each request, though reports are about what was sent" do
    me = self()

    llm = fn context ->
      {:ok, context, _report} = Context.Enhancer.run(context, [{Budget, budget: 1_000}])
      sent = Context.Tokens.count_tokens(context, method: :estimate)
      send(me, {:sent, sent})
      {:ok, %{content: "ok", usage: %{input_tokens: sent, output_tokens: 1}}}
    end

    for _turn <- 1..3, reduce: turns(20) do
      context ->
        {:ok, result} = AshAgent.Runtime.run(context, llm: llm)
        assert_received {:sent, sent} when sent <= 1_000
        Context.add_user_message(result.context, "Go on")
    end
  end

  test "does nothing up to the budget" do
    context = turns(5)
    assert run(context, budget: tokens(context)) == context
    assert run(context, budget: tokens(context) + 50, reserve: 50) == context
    refute run(context, budget: tokens(context) + 49, reserve: 50) == context
  end

  test "hides the oldest iterations beyond it" do
    context = run(turns(5), budget: 250, step: 1)
    assert %{hidden: [1..3], summaries: []} = Context.View.view(context)
    assert tokens(context) <= 250
  end

  test "leaves the reserve free and comes down to the threshold" do
    context = turns(10)
    assert tokens(run(context, budget: 700, reserve: 200, step: 1)) in 400..500
    assert tokens(run(context, budget: 1_000, threshold: 0.5, step: 1)) in 400..500
  end

  test "keeps what :keep_first and :keep_last name" do
    assert %{hidden: [3..7]} =
             Context.View.view(run(turns(10), budget: 650, step: 1, keep_first: 2, keep_last: 4))
  end

  test "fails when the rest is too much" do
    assert {:error,
            %Error{reason: {:enhancer_failed, Budget, %Error{reason: {:cannot_fit, least}}}} =
              error} = Context.Enhancer.run(turns(2), [{Budget, budget: 5}])

    assert least > 5

    assert Exception.message(error) =~
             "the enhancer AshAgent.Context.Enhancer.Budget failed: the system prompt"
  end

  test "blanks old results first, and leaves it at that when it is enough" do
    context = tools(5)
    cleared = run(context, budget: 500, clear_results: 2)
    assert %{cleared: %{iteration: 3, calls: 1}, hidden: []} = Context.View.view(cleared)
    assert tokens(cleared) <= 500
    assert run(cleared, budget: 500, clear_results: 2) == cleared
    assert run(context, budget: 5_000, clear_results: 2) == context
  end

  test "shows no result again that was blanked, and keeps the placeholder" do
    context = Context.View.clear_tool_results(tools(5), keep: 1, placeholder: "gone")
    assert %{cleared: %{iteration: 4}} = Context.View.view(context)
    assert run(context, budget: 300, clear_results: 3) == context

    more = Context.add_assistant_message(context, nil, [%{id: "x", name: :read}])
    more = Context.add_tool_results(more, [{"x", {:ok, String.duplicate("word ", 200)}}])

    assert %{cleared: %{iteration: 5, placeholder: "gone"}} =
             Context.View.view(run(more, budget: 350, clear_results: 1))
  end

  test "drops all in front of the turn" do
    context = run(turns(5), budget: 400, strategy: :drop)
    assert %{hidden: [1..5]} = Context.View.view(context)

    assert run(turns(5), budget: 4_000, strategy: :drop)
           |> Context.View.view()
           |> Map.get(:hidden) ==
             []
  end

  test "puts a summary in their place, once" do
    me = self()
    summarize = fn messages -> send(me, {:asked, length(messages)}) && "They talked." end
    opts = [budget: 400, strategy: {:summarize, summarize}]
    context = run(turns(5), opts)
    assert_received {:asked, 10}
    assert %{summaries: [1..5], hidden: []} = Context.View.view(context)
    assert run(context, opts) == context
    refute_received {:asked, _}
  end

  test "summarises an earlier summary with what is new" do
    me = self()
    summarize = fn messages -> send(me, {:asked, hd(messages).content}) && "They talked." end
    opts = [budget: 400, strategy: {:summarize, summarize}]
    context = 5 |> turns() |> run(opts)
    assert_received {:asked, "Begin"}
    assert %{summaries: [1..10]} = Context.View.view(run(turns(5, context), opts))

    assert_received {:asked,
                     "[Summary of iterations 1 to 5 of this conversation]\nThey talked." <> _}
  end

  test "does not summarise a summary alone, however tight it is" do
    me = self()
    opts = [strategy: {:summarize, fn _ -> send(me, :asked) && "They talked." end}]
    context = turns(3) |> Context.add_assistant_message(String.duplicate("word ", 300))
    once = run(context, [budget: 400, threshold: 0.5] ++ opts)
    assert_received :asked
    assert tokens(once) > 200
    assert run(once, [budget: 400, threshold: 0.5] ++ opts) == once
    refute_received :asked
  end

  test "gives a summary up where there is no room for it" do
    summarize = fn _ -> String.duplicate("word ", 100) end
    opts = [step: 1, keep_last: 3, strategy: {:summarize, summarize}]

    assert %{summaries: [1..8], hidden: []} =
             Context.View.view(run(turns(10), [budget: 450] ++ opts))

    assert %{summaries: [], hidden: [1..8]} =
             Context.View.view(run(turns(10), [budget: 300] ++ opts))
  end

  test "hides instead when there is no summary, and logs no text" do
    for {fun, label} <- [
          {fn _ -> raise "secret" end, "RuntimeError"},
          {fn _ -> {:error, "secret"} end, ":other"},
          {fn _ -> {:error, {:http, "secret"}} end, ":http"},
          {fn _ -> throw("secret") end, ":throw"},
          {fn _ -> :nonsense end, ":no_text"},
          {fn _ -> String.duplicate("secret ", 1_000) end, ":summary_too_long"}
        ] do
      log =
        capture_log(fn ->
          context = run(turns(5), budget: 250, step: 1, strategy: {:summarize, fun})
          assert %{summaries: [], hidden: [1..3]} = Context.View.view(context)
        end)

      assert log =~ "no summary of the older iterations (#{label})"
      refute log =~ "secret"
    end
  end

  test "counts from reports with :auto only" do
    context =
      turns(3)
      |> Context.add_assistant_message("ok")
      |> Context.Tokens.add_token_usage(%{input_tokens: 5_000, output_tokens: 5})

    assert run(context, budget: 5_005, method: :auto) == context
    assert %{hidden: [_]} = Context.View.view(run(context, budget: 4_950, method: :auto))
    assert {:ok, ^context, _report} = Context.Enhancer.run(context, [{Budget, budget: 4_950}])
  end

  test "refuses wrong options" do
    for {option, values} <- [
          budget: [nil, 0, -1, 1.5, "100"],
          reserve: [-1, nil, 100, 1_000],
          threshold: [0, 1.1, -1, nil, :half],
          clear_results: [-1, true, 1.0],
          strategy: [nil, :summarize, {:summarize, nil}, {:summarize, fn -> 1 end}],
          keep_first: [-1, nil],
          keep_last: [-1, nil],
          step: [0, nil],
          method: [:exact, nil]
        ],
        value <- values do
      assert_caller_bug(fn -> Budget.prepare(Keyword.merge([budget: 100], [{option, value}])) end)
    end

    assert_caller_bug(fn -> Budget.prepare([]) end)
    assert_caller_bug(fn -> Budget.prepare(budget: 1, limit: 2) end)
  end

  describe "clear: :rent" do
    defp read(number, context) do
      context
      |> Context.add_assistant_message(nil, [%{id: "call_#{number}", name: :read}])
      |> Context.add_tool_results([{"call_#{number}", {:ok, String.duplicate("text ", 400)}}])
    end

    defp rented(context, opts, needs \\ []) do
      budget = {Budget, Keyword.put(opts, :clear, :rent)}
      {:ok, context, %{skipped: []}} = Context.Enhancer.run(context, [budget], needs: needs)
      context
    end

    test "clears old results without a budget when the rent is paid, and runs again for nothing" do
      context = Enum.reduce(1..6, Context.new("Go"), &read/2)
      assert rented(context, keep: 1) == context
      cleared = read(7, context) |> rented(keep: 1)
      assert %{cleared: %{iteration: 6, calls: 1}} = Context.View.view(cleared)
      assert rented(cleared, keep: 1) == cleared
    end

    test "reckons with the prices that the needs or the options say" do
      context = Enum.reduce(1..2, Context.new("Go"), &read/2)
      assert rented(context, keep: 1) == context

      free = [%{model: "m", input: 10, output: 10}]
      assert Context.View.view(rented(context, keep: 1, prices: free, model: "m")).cleared
      assert rented(context, keep: 1, prices: free, model: "n") == context
      assert Context.View.view(rented(context, [keep: 1], prices: free, model: "m")).cleared
      # The application's own prices count.
      dear = [%{model: "m", input: 10, output: 10, cache_read: 1}]
      assert rented(context, [keep: 1, prices: dear], prices: free, model: "m") == context
    end

    test "keeps within the budget as well" do
      context = Enum.reduce(1..2, Context.new("Go"), &read/2)
      opts = [keep: 1, budget: 600, clear_results: 0]
      assert %{cleared: %{iteration: 2, calls: 1}} = Context.View.view(rented(context, opts))

      assert %{cleared: %{iteration: 1, calls: 1}} =
               Context.View.view(rented(context, keep: 1, window: 500))
    end
  end
end
