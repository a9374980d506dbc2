defmodule Peers do
  @moduledoc "What the contestants of the BEAM share: commands come in lines, and `done` goes back."

  @doc "Does the commands: a run of so many turns, a stream of a model, and more by their names."
  def serve(turns, stream, more \\ %{}) do
    IO.puts("ready")

    for line <- IO.stream(:stdio, :line) do
      [what | numbers] = String.split(line)

      case {what, Enum.map(numbers, &String.to_integer/1)} do
        {"turns", [count]} -> turns.(count)
        {"many", [runs, count]} -> many(fn -> turns.(count) end, runs)
        {what, numbers} when is_map_key(more, what) -> apply(more[what], numbers)
        {what, [pieces]} -> stream.("#{what}-#{pieces}")
      end

      IO.puts("done")
    end
  end

  defp many(run, runs) do
    1..runs
    |> Enum.map(fn _ -> Task.async(run) end)
    |> Task.await_many(:infinity)
  end
end
