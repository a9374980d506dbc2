defmodule AshAgent.Collect do
  @moduledoc false

  @doc "Maps with a function that returns `{:ok, value}`, and returns `{:ok, values}`, or the first that is something else."
  def map(enumerable, fun) do
    enumerable
    |> Enum.reduce_while([], fn element, values ->
      case fun.(element) do
        {:ok, value} -> {:cont, [value | values]}
        other -> {:halt, {:other, other}}
      end
    end)
    |> case do
      {:other, other} -> other
      values -> {:ok, Enum.reverse(values)}
    end
  end
end
