defmodule AshAgent.Soak.Histogram do
  @moduledoc """
  How long calls took, counted in buckets that are 9 % wide, by name.

  A name gets its row when it is first seen. Any process may count at any time.
  """

  @per_octave 8
  @buckets 40 * @per_octave
  @rows 512

  defstruct [:rows, :counters, :longest]

  def new do
    %__MODULE__{
      rows: :ets.new(:rows, [:public, read_concurrency: true]),
      counters: :counters.new(@rows * (@buckets + 1), [:write_concurrency]),
      longest: :atomics.new(@rows, signed: false)
    }
  end

  @doc "Counts a call of so many nanoseconds, and whether it was refused."
  def add(%__MODULE__{} = histogram, name, nanoseconds, refused?) do
    row = row(histogram, name)
    first = row * (@buckets + 1) + 1
    :counters.add(histogram.counters, first + bucket(nanoseconds), 1)
    if refused?, do: :counters.add(histogram.counters, first + @buckets, 1)
    longest(histogram.longest, row + 1, nanoseconds)
  end

  @doc "Calls in all."
  def count(%__MODULE__{} = histogram),
    do: histogram |> statistics() |> Enum.map(& &1.count) |> Enum.sum()

  @doc "Name, count, refused, and p50, p99 and longest in microseconds, the names in their order."
  def statistics(%__MODULE__{rows: rows} = histogram) do
    for {name, row} <- rows |> :ets.tab2list() |> List.keydelete(:count, 0) |> Enum.sort() do
      first = row * (@buckets + 1) + 1

      counts =
        for bucket <- 0..(@buckets - 1), do: :counters.get(histogram.counters, first + bucket)

      count = Enum.sum(counts)

      %{
        name: name,
        count: count,
        refused: :counters.get(histogram.counters, first + @buckets),
        p50: percentile(counts, count * 0.5),
        p99: percentile(counts, count * 0.99),
        longest: :atomics.get(histogram.longest, row + 1) / 1000
      }
    end
  end

  defp row(%{rows: rows}, name) do
    case :ets.lookup(rows, name) do
      [{_, row}] ->
        row

      [] ->
        row = :ets.update_counter(rows, :count, 1, {:count, -1})
        true = row < @rows
        # Another process may have been quicker; its row counts, this one stays empty.
        :ets.insert_new(rows, {name, row})
        :ets.lookup_element(rows, name, 2)
    end
  end

  defp bucket(nanoseconds),
    do: min(trunc(:math.log2(max(nanoseconds, 1)) * @per_octave), @buckets - 1)

  # The middle of the bucket in which so many have been counted.
  defp percentile(counts, wanted) do
    {bucket, _seen} =
      counts
      |> Enum.with_index()
      |> Enum.reduce_while({0, 0}, fn {count, bucket}, {_, seen} ->
        if seen + count >= wanted,
          do: {:halt, {bucket, seen}},
          else: {:cont, {bucket, seen + count}}
      end)

    :math.pow(2, (bucket + 0.5) / @per_octave) / 1000
  end

  defp longest(atomics, row, value) do
    known = :atomics.get(atomics, row)

    if value > known and :atomics.compare_exchange(atomics, row, known, value) != :ok,
      do: longest(atomics, row, value)
  end
end
