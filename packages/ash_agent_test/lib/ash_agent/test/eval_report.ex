defmodule AshAgent.Test.EvalReport do
  @moduledoc false

  # The results of an evaluation: figures by case, as a table and as JSON, and the cases that turned since the run before.

  alias AshAgent.Context.JSON
  alias AshAgent.Trace.Stored

  @version 1

  @doc "Returns a row for each case, and one for all."
  def summarize(attempts) do
    rows = attempts |> Enum.map(& &1.case) |> Enum.uniq() |> Enum.map(&row(&1, attempts))
    {rows, total(rows)}
  end

  defp row(id, attempts) do
    all = Enum.filter(attempts, &(&1.case == id))
    # An outage is no score, but it has its costs.
    of_case = Enum.reject(all, & &1[:outage])
    count = length(of_case)
    passed = Enum.count(of_case, & &1.passed)

    %{
      case: id,
      attempts: count,
      outages: length(all) - count,
      passed: passed,
      score: mean(of_case, & &1.score),
      pass: for(k <- 1..count//1, do: all_pass(passed, count, k)),
      tokens: sum(all, :tokens),
      cost: sum(all, :cost),
      ms: sum(all, :ms),
      words: Enum.find_value(all, &(not &1.passed and (&1.words || "the score is #{&1.score}")))
    }
  end

  # The share of all choices of k attempts in which each passed.
  defp all_pass(passed, count, k) when k <= passed,
    do:
      Enum.reduce(0..(k - 1), 1.0, fn taken, share ->
        share * (passed - taken) / (count - taken)
      end)

  defp all_pass(_passed, _count, _k), do: 0.0

  # If the value of one is unknown, so is the sum.
  defp sum(rows, key) do
    values = Enum.map(rows, &Map.fetch!(&1, key))
    if Enum.all?(values, &is_integer/1), do: Enum.sum(values)
  end

  defp total([]), do: nil

  defp total(rows) do
    scored = Enum.filter(rows, &(&1.attempts > 0))
    fewest = scored |> Enum.map(& &1.attempts) |> Enum.min(fn -> 0 end)

    %{
      case: "all",
      attempts: rows |> Enum.map(& &1.attempts) |> Enum.sum(),
      outages: rows |> Enum.map(& &1.outages) |> Enum.sum(),
      passed: rows |> Enum.map(& &1.passed) |> Enum.sum(),
      score: mean(scored, & &1.score),
      pass: for(k <- 1..fewest//1, do: mean(scored, &Enum.at(&1.pass, k - 1))),
      tokens: sum(rows, :tokens),
      cost: sum(rows, :cost),
      ms: sum(rows, :ms),
      words: nil
    }
  end

  defp mean([], _fun), do: nil
  defp mean(rows, fun), do: (rows |> Enum.map(fun) |> Enum.sum()) / length(rows)

  @doc "Returns the cases that passed before and do not now, and those that pass now and did not."
  def compare(rows, before) do
    # A case with nothing but outages has neither passed nor failed.
    scored = &(&1.attempts > 0)

    earlier =
      for row <- before, scored.(row), into: %{}, do: {row.case, row.passed == row.attempts}

    turned = Enum.filter(rows, &(scored.(&1) and earlier[&1.case] == &1.passed < &1.attempts))
    {worse, better} = Enum.split_with(turned, &earlier[&1.case])
    %{worse: Enum.map(worse, & &1.case), better: Enum.map(better, & &1.case)}
  end

  ## The table

  @doc "Returns the table as text."
  def table({rows, total}, before) do
    k = rows |> Enum.map(& &1.attempts) |> Enum.max(fn -> 1 end)

    repeated = if k > 1, do: ["pass^#{k}"], else: []
    names = ["case", "passed", "pass^1"] ++ repeated ++ ["tokens", "cost", "time", ""]

    turned = if before, do: compare(rows, before), else: %{worse: [], better: []}
    lines = [names | Enum.map(rows ++ List.wrap(total), &cells(&1, k, turned))]

    widths =
      lines
      |> Enum.zip_with(& &1)
      |> Enum.map(fn column -> column |> Enum.map(&String.length/1) |> Enum.max() end)

    table = Enum.map_join(lines, "\n", &line(&1, widths))
    failed = for %{words: words} = row when words != nil <- rows, do: "\n#{row.case}: #{words}"
    IO.iodata_to_binary([table, "\n", failed, if(failed == [], do: "", else: "\n")])
  end

  defp cells(row, k, turned) do
    repeated = if k > 1, do: [rate(Enum.at(row.pass, k - 1))], else: []
    rates = [rate(List.first(row.pass)) | repeated]
    spent = [to_string(row.tokens), money(row.cost), "#{Float.round(row.ms / 1_000, 1)} s"]
    [row.case, "#{row.passed}/#{row.attempts}"] ++ rates ++ spent ++ [note(row, turned)]
  end

  defp note(%{case: id, outages: outages}, %{worse: worse, better: better}) do
    notes = [{id in worse, "passed before"}, {id in better, "failed before"}]

    Enum.map_join(notes ++ [{outages > 0, "outages: #{outages}"}], fn {true?, words} ->
      if true?, do: words, else: ""
    end)
  end

  defp rate(nil), do: "-"
  defp rate(rate), do: :erlang.float_to_binary(rate * 1.0, decimals: 2)

  defp money(nil), do: "-"
  defp money(cost), do: Stored.format_cost(cost)

  defp line([first | cells], [width | widths]) do
    cells = Enum.zip_with(cells, widths, &String.pad_leading/2)
    [String.pad_trailing(first, width) | cells] |> Enum.join("  ") |> String.trim_trailing()
  end

  ## JSON

  @doc "Returns the results as JSON text."
  def encode(name, {rows, total}, attempts) do
    results = %{"cases" => rows, "all" => total, "attempts" => attempts}
    JSON.encode(Map.merge(results, %{"version" => @version, "name" => name})) <> "\n"
  end

  @doc "Returns `{:ok, rows}` of results as `encode/3` writes them, or `{:error, words}`."
  def decode(text) do
    case JSON.decode(text) do
      {:ok, %{"version" => @version, "cases" => cases}} when is_list(cases) ->
        {:ok,
         for(
           %{"case" => id, "passed" => passed, "attempts" => count} <- cases,
           do: %{case: id, passed: passed, attempts: count}
         )}

      _other ->
        {:error, "it does not have the results of an evaluation"}
    end
  end
end
