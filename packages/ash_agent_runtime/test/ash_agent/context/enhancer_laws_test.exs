defmodule AshAgent.Context.EnhancerLawsTest do
  # What holds for all enhancers that come with the package, in any order and with any options.
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Generators,
    only: [between: 2, chance: 1, check_all: 3, list_of: 2, one_of: 1]

  alias AshAgent.Context
  alias AshAgent.Context.Enhancer.{Budget, Memory, Redact}
  alias AshAgent.Context.Error
  alias AshAgent.TestSupport.ContextGenerators

  defp block(name, text),
    do: fn context, _needs -> {:ok, Context.View.put_prompt_block(context, name, text)} end

  test "wrong options of an enhancer raise, also when failures are skipped" do
    for bad <- [Budget, {Budget, budget: 0}, Redact, {Memory, recal: & &1}] do
      assert_raise ArgumentError, fn ->
        Context.Enhancer.run(Context.new("Hello!"), [bad], on_error: :skip)
      end
    end
  end

  describe "laws" do
    @describetag :capture_log

    test "the log never changes" do
      check_all("logs", [runs: 300, max_size: 30], fn size ->
        context = ContextGenerators.build(ContextGenerators.script(size))
        opts = [needs: needs(), on_error: one_of([:skip, :stop])]

        case Context.Enhancer.run(context, list_of(5, &enhancer/0), opts) do
          {:ok, enhanced, _report} ->
            assert log(enhanced) == log(context)
            assert log_messages(enhanced) == log_messages(context)

          {:error, %Error{reason: {:enhancer_failed, _, _}}} ->
            assert opts[:on_error] == :stop
        end
      end)
    end

    test "a second run changes nothing" do
      check_all("second runs", [runs: 300, max_size: 30], fn size ->
        context = ContextGenerators.build(ContextGenerators.script(size))

        enhancers =
          list_of(2, &redact/0) ++
            Enum.shuffle([memory(:memory), memory("other"), function()]) ++ [budget()]

        opts = [needs: needs(), on_error: :skip]

        {:ok, once, report} = Context.Enhancer.run(context, enhancers, opts)
        {:ok, twice, again} = Context.Enhancer.run(once, enhancers, opts)
        assert names(again) == names(report)
        assert Context.View.view(twice) == Context.View.view(once)
        assert Context.to_messages(twice) == Context.to_messages(once)
      end)
    end

    test "after Budget alone the view is within the budget, or it says what is needed" do
      check_all("budgets", [runs: 300, max_size: 30], fn size ->
        context = ContextGenerators.build(ContextGenerators.script(size))
        {Budget, opts} = budget = budget()
        limit = opts[:budget] - Keyword.get(opts, :reserve, 0)

        case Context.Enhancer.run(context, [budget]) do
          {:ok, fitted, _report} ->
            assert Context.Tokens.count_tokens(fitted, method: opts[:method]) <= limit

          {:error,
           %Error{reason: {:enhancer_failed, Budget, %Error{reason: {:cannot_fit, least}}}}} ->
            assert least > limit
        end
      end)
    end
  end

  defp log(context), do: context |> Context.dump() |> Map.drop(["view", "updated_at"])
  defp log_messages(context), do: Context.to_messages(context, view: :log)
  defp names(report), do: Enum.map(report.skipped, & &1.enhancer)

  defp needs do
    [:recall, :pending_tasks, :profile, :summaries, :outcomes]
    |> Enum.take_random(between(0, 5))
    |> Enum.map(&one_of([&1, {&1, "x"}]))
  end

  defp enhancer, do: one_of([&budget/0, fn -> memory(:memory) end, &redact/0, &function/0]).()

  defp budget do
    budget = between(1, 2_000)

    {Budget,
     budget: budget,
     reserve: between(0, div(budget - 1, 2)),
     threshold: one_of([1, 1.0, 0.8, 0.3]),
     clear_results: one_of([nil, 0, 1, 3]),
     strategy: one_of([:fit, :fit, :drop, {:summarize, fn _ -> "All went well." end}]),
     keep_first: one_of([0, 0, 1, 2]),
     keep_last: one_of([0, 1, 1, 3]),
     step: one_of([1, 5]),
     method: one_of([:auto, :estimate, :o200k_base])}
  end

  defp memory(name) do
    loaders =
      for block <- [:recall, :profile, :outcomes], chance(70) do
        {block,
         one_of([
           fn _ -> "Text" end,
           fn _ -> ["a", "b"] end,
           fn _ -> nil end,
           fn _ -> {:error, :down} end
         ])}
      end

    {Memory, loaders ++ [name: name]}
  end

  defp redact do
    patterns = [:email, :ipv4, "a+", {"[0-9]+", "#"}, {:email, "[email]"}, ~r/the/]
    {Redact, patterns: Enum.take_random(patterns, between(0, 4))}
  end

  defp function do
    one_of([
      block("block", "text"),
      fn _, _ -> raise "no" end,
      fn _, _ -> :nonsense end,
      fn context, _ -> {:ok, Context.put_metadata(context, :a, 1)} end,
      fn context, _ -> {:ok, Context.View.put_max_result_bytes(context, 100)} end
    ])
  end
end
