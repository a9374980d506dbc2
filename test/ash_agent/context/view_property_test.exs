defmodule AshAgent.Context.ViewPropertyTest do
  @moduledoc """
  Random operations on views, compared after each with a plain list of iterations.

  `VIEW_CASES` is the number of conversations, 300 when it is not set.
  """

  # Not async: it keeps a core busy, and other tests have deadlines.
  use ExUnit.Case, async: false

  @moduletag :slow

  import AshAgent.TestSupport.Generators

  alias AshAgent.Context
  alias AshAgent.TestSupport.{ContextGenerators, ViewModel}

  @cases String.to_integer(System.get_env("VIEW_CASES", "300"))
  @start ~U[2026-01-01 10:00:00.000000Z]

  defp started(size), do: ContextGenerators.build(ContextGenerators.script(size), @start)

  # Usage and longer texts, so that budgets and summaries have something to do.
  defp grow(context, number) do
    at = DateTime.add(@start, 100 + number)
    context = ContextGenerators.continue(context, ContextGenerators.steps(1), at)

    if chance(20) and
         Enum.any?(Context.to_messages(context, view: :log), &(&1.role == :assistant)) do
      report = %{input_tokens: between(0, 500), output_tokens: between(0, 50)}
      Context.add_token_usage(context, report, at: at)
    else
      context
    end
  end

  defp step({context, model}, number) do
    if chance(35) do
      context = grow(context, number)
      {context, ViewModel.follow(model, context)}
    else
      ViewModel.run({context, model}, ViewModel.operation(context))
    end
  end

  @tag timeout: :infinity
  test "a view is what a list of iterations with flags says, after any operations" do
    check_all("views", [runs: @cases, max_size: 30], fn size ->
      context = started(size)
      pair = {context, ViewModel.new(context)}
      ViewModel.assert_view(pair)

      Enum.reduce(1..size, pair, fn number, pair ->
        pair = step(pair, number)
        ViewModel.assert_view(pair)
        pair
      end)
    end)
  end

  @tag timeout: :infinity
  test "any view survives storage with its counts, and no operation changes the contexts before" do
    check_all("stored views", [runs: div(@cases, 3) + 1, max_size: 20], fn size ->
      context = started(size)

      {contexts, _} =
        Enum.map_reduce(1..size, {context, ViewModel.new(context)}, fn number, pair ->
          {context, _} = pair = step(pair, number)
          # Counted now and then, so that later counts go on from some.
          if chance(50), do: Context.count_tokens(context, method: one_of([:auto, :o200k_base]))
          {{context, Context.to_snapshot(context)}, pair}
        end)

      seen = for {context, snapshot} <- contexts, do: {context, snapshot, ViewModel.all(context)}

      for {context, snapshot, all} <- Enum.reverse(seen) do
        ViewModel.assert_stored(context)
        assert Context.to_snapshot(context) == snapshot
        assert ViewModel.all(context) == all
      end
    end)
  end

  @tag timeout: :infinity
  test "views of one conversation do not touch each other" do
    check_all("forked views", [runs: div(@cases, 3) + 1, max_size: 12], fn size ->
      context = started(size)
      before = ViewModel.all(context)
      model = ViewModel.new(context)

      forks = many(4, fn -> Enum.reduce(1..size, {context, model}, &step(&2, &1)) end)

      for fork <- forks, do: ViewModel.assert_view(fork)
      assert ViewModel.all(context) == before
    end)
  end

  @tag timeout: :infinity
  test "expanding everything shows the log again" do
    check_all("expanded views", [runs: div(@cases, 3) + 1, max_size: 15], fn size ->
      context = started(size)
      operations = many(size, fn -> ViewModel.operation(context) end)
      covers = Enum.filter(operations, &cover?/1)

      {covered, _} =
        Enum.reduce(covers, {context, ViewModel.new(context)}, &ViewModel.run(&2, &1))

      expanded = Context.expand(covered, :all, at: context[:updated_at])

      assert Context.equal?(expanded, context)
      assert Context.to_messages(expanded) == Context.to_messages(context, view: :log)
    end)
  end

  defp cover?(operation) when is_tuple(operation),
    do: elem(operation, 0) in [:keep_last, :remove_old, :range, :fit, :drop, :summarize, :mark]

  defp cover?(_operation), do: false
end
