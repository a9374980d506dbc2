defmodule AshAgent.Runtime.BoundsTest do
  use ExUnit.Case, async: true

  alias AshAgent.Context
  alias AshAgent.Runtime.Bounds

  @prices [%{model: "m", input: 3, output: 15}]

  defp bounds(opts), do: Bounds.new([max_iterations: 10, prices: @prices] ++ opts)

  # An answer of so many tokens, at 3 each.
  defp answer(context, tokens) do
    context
    |> Context.add_assistant_message("Yes")
    |> Context.Tokens.add_token_usage(%{input_tokens: tokens})
  end

  test "the turn's earlier answers count in the outermost run alone" do
    answered = "Hi" |> Context.new() |> answer(10)

    for {outermost?, max, expected} <- [
          {true, 31, :ok},
          {true, 30, {:error, {:max_cost_exceeded, 30}}},
          {false, 1, :ok}
        ] do
      bounds = bounds(max_cost: max)
      assert Bounds.begin(bounds, answered, "m", outermost?) == :ok
      assert Bounds.ask(bounds) == expected
    end
  end

  test "a sub-agent whose cost is not known counts nothing" do
    noted = %{sub_agents: %{"a" => %{cost: 20}, "b" => %{cost: nil}, "c" => %{}}}
    context = "Hi" |> Context.new() |> Context.add_assistant_message("Yes", [], metadata: noted)

    for {max, expected} <- [{21, :ok}, {20, {:error, {:max_cost_exceeded, 20}}}] do
      bounds = bounds(max_cost: max)
      assert Bounds.begin(bounds, context, "m", true) == :ok
      assert Bounds.ask(bounds) == expected
    end
  end

  test "only what an answer adds is counted, and the limit is reached with the last token" do
    first = "Hi" |> Context.new() |> answer(10)
    both = answer(first, 5)

    for {max, expected} <- [{16, :ok}, {15, {:error, {:max_total_tokens_exceeded, 15}}}] do
      bounds = bounds(max_total_tokens: max)
      assert Bounds.report(bounds, count(first), Context.new("Hi"), first, "m") == 30
      assert Bounds.report(bounds, count(both) - count(first), first, both, "m") == 15
      assert Bounds.ask(bounds) == expected
    end
  end

  defp count(context), do: Context.Tokens.get_cumulative_tokens(context).total_tokens
end
