defmodule AshAgent.Runtime.Spent do
  @moduledoc false

  # What a run has spent with its sub-agents since its last write, for whoever adds up the stored conversations: the note of the next
  # write has `spent`, a map with the number of the `:iteration`, the tokens, the `:cost` in 10^-12 US dollars with the digest of its
  # `:prices`, and how many answers have no known price, `:unpriced`.
  #
  # Answers are counted as they come, in the table of `AshAgent.Runtime.Underway`, so those of sub-agents and of what is killed
  # are in the sum. A log loses what a rewind takes back and has in a fork what another conversation paid. Notes do neither.

  alias AshAgent.{Prices, Store}
  alias AshAgent.Runtime.Ended

  @tokens ~w(input_tokens output_tokens cached_tokens cache_write_tokens reasoning_tokens)a
  @counts [:cost, :priced, :unpriced | @tokens]
  @columns Enum.with_index(@counts, 2)
  @nothing List.to_tuple([:spent | Enum.map(@counts, fn _count -> 0 end)])

  @doc "Counts an answer. Its usage and cost are `nil` if they are not known."
  def add(table, usage, cost) do
    known = if usage && cost, do: %{cost: cost, priced: 1}, else: %{unpriced: 1}
    change(table, Map.merge(usage || %{}, known), & &1)
  end

  @doc "The same for an answer of a run. Nobody reads the sum of one that is in no session, has no store and is within no other."
  def add_answer(%{outermost?: true, watch: nil, journal: nil}, _usage, _cost), do: false
  def add_answer(run, usage, cost), do: add(run.underway, usage, cost)

  # The owner of the table may have ended just now.
  defp change(table, counts, by) do
    steps = for {count, at} <- @columns, number = counts[count], do: {at, by.(number)}
    :ets.update_counter(table, :spent, steps, @nothing)
  rescue
    _ in ArgumentError -> false
  end

  @doc "Returns the part of a note on what is not written yet, or `%{}`."
  def note(table, iteration, prices) do
    with [row] when row != @nothing <- :ets.lookup(table, :spent) do
      [:spent | counted] = Tuple.to_list(row)

      counts =
        for {name, count} when count > 0 <- Enum.zip(@counts, counted),
            into: %{},
            do: {name, count}

      %{spent: counts |> put_cost(prices) |> Map.put(:iteration, iteration)}
    else
      _nothing -> %{}
    end
  end

  defp put_cost(%{priced: _} = counts, prices),
    do: Map.merge(counts, %{cost: counts[:cost] || 0, prices: Prices.digest(prices)})

  defp put_cost(counts, _prices), do: counts

  @doc "Takes what a note has that is written by now out of what is not."
  def subtract(table, %{spent: spent}), do: change(table, spent, &(-&1))
  def subtract(_table, _nothing), do: false

  @doc """
  Returns the sums of the writes of a conversation: `:cost`, `:unpriced` and the tokens, and the digest of the last `:prices`. What nothing
  is known of is `nil`. Writes of earlier releases have no cost, but the tokens of their answers.
  """
  def sum(writes) do
    spent = for %{note: note} <- writes, one = of(note), is_map(one), do: one
    sums = for count <- [:cost, :unpriced | @tokens], into: %{}, do: {count, sum(spent, count)}
    Map.put(sums, :prices, spent |> Enum.reverse() |> Enum.find_value(& &1[:prices]))
  end

  # Writes that are read at once.
  @page 1_000

  @doc """
  Returns `{:ok, sums, outcome}` of a stored conversation, as `sum/1` and `AshAgent.Runtime.Ended` have them, or an error. Costs O(n) in its
  writes.
  """
  def fetch(store, id, seen \\ [], since \\ 0) do
    with {:ok, writes} <- Store.history(store, id, after: since, limit: @page) do
      seen = seen ++ Enum.filter(writes, &(is_map(of(&1.note)) or is_map_key(&1.note, :ended)))
      ended = Ended.find(seen)

      if length(writes) < @page,
        do: {:ok, sum(seen), ended && ended.outcome},
        else: fetch(store, id, seen, List.last(writes).revision)
    end
  end

  defp of(%{spent: spent}), do: spent
  defp of(%{usage: %{} = usage}), do: Map.put(usage, :unpriced, 1)
  defp of(_note), do: nil

  defp sum(spent, count) do
    counts = for %{^count => number} when is_integer(number) <- spent, do: number
    if counts != [], do: Enum.sum(counts)
  end
end
