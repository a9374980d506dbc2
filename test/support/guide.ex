defmodule AshAgent.TestSupport.Guide do
  @moduledoc false

  # Runs the Elixir examples of a guide, one after the other, and checks every `#=>` after an expression. A value goes on in
  # lines that begin with `#   `.

  import ExUnit.Assertions

  @doc "Returns how many values were checked."
  def run(guide) do
    steps =
      ~r/^```elixir\n(.*?)^```/ms
      |> Regex.scan(guide, capture: :all_but_first)
      |> List.flatten()
      |> Enum.flat_map(&steps/1)

    Enum.reduce(steps, {[], Code.env_for_eval([])}, &step/2)
    Enum.count(steps, &match?([_code, _value], &1))
  end

  # Pieces of code, each with the value that stands after it.
  defp steps(example) do
    ~r/^#=> .*\n(?:#   .*\n)*/m
    |> Regex.split(example, include_captures: true, trim: true)
    |> Enum.chunk_every(2)
  end

  defp step([code | value], state) do
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
