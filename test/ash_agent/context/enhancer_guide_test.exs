defmodule AshAgent.Context.EnhancerGuideTest do
  use ExUnit.Case, async: true

  # Runs the examples of the guide, one after the other, and checks every `#=>` behind an expression. A value goes on in
  # lines that begin with `#   `.
  test "the examples of the guide on budgets give what it says" do
    guide = File.read!("guides/budgets.md")
    examples = Regex.scan(~r/^```elixir\n(.*?)^```/ms, guide, capture: :all_but_first)
    steps = examples |> List.flatten() |> Enum.flat_map(&steps/1)
    values = for [_code, _value] <- steps, do: :checked

    assert length(values) > 20
    assert length(values) == length(Regex.scan(~r/#=> /, guide))
    Enum.reduce(steps, {[], Code.env_for_eval([])}, &run/2)
  end

  # Pieces of code, each with the value that stands behind it.
  defp steps(example) do
    ~r/^#=> .*\n(?:#   .*\n)*/m
    |> Regex.split(example, include_captures: true, trim: true)
    |> Enum.chunk_every(2)
  end

  defp run([code | value], state) do
    {given, bindings, env} = eval(code, state)

    for text <- value do
      {said, _, _} = text |> String.replace(~r/^#(=>)? /m, "") |> eval({bindings, env})
      assert given == said, "#{code}gives #{inspect(given, pretty: true)}"
    end

    {bindings, env}
  end

  defp eval(code, {bindings, env}),
    do: code |> Code.string_to_quoted!() |> Code.eval_quoted_with_env(bindings, env)
end
