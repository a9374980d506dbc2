defmodule AshAgent.Soak.Memory do
  @moduledoc """
  How much memory there is, and whether it has grown.

  When the pool is filled, before a round's work, and when everything is released, after it, all garbage is collected, the
  contexts that are alive are counted, and what is resident is looked at. The first third of the rounds is for warming
  up. Of what comes then, the medians of the first third and of the last are compared: allocators keep some pages, not
  always the same. A short run is no judge of a few MB.
  """

  alias AshAgent.Context
  alias AshAgent.Context.Native
  alias AshAgent.TestSupport.Wait

  def now do
    memory = :erlang.memory()

    %{
      resident: Wait.resident_bytes() || 0,
      beam: memory[:total],
      binaries: memory[:binary],
      processes: memory[:processes],
      atoms: :erlang.system_info(:atom_count),
      running: :erlang.system_info(:process_count),
      contexts: Native.live_contexts()
    }
  end

  @doc "Collects all garbage and waits until `contexts` are alive, or no fewer for ten seconds, and nothing moves."
  def collected(contexts) do
    Wait.collect_garbage()
    stir()
    Wait.collect_garbage()
    Wait.until(fn -> Native.live_contexts() <= contexts end)
    # The thread that drops has no counter; what it frees shows here.
    Wait.settled(fn -> div(Wait.resident_bytes() || 0, 1024 * 1024) end, 3_000)
    now()
  end

  # Threads that have nothing to do keep what others have freed for them.
  defp stir do
    text = String.duplicate("x", 300_000)

    1..(4 * System.schedulers_online())
    |> Enum.map(fn _ -> Task.async(fn -> for _ <- 1..50, do: stir(text) end) end)
    |> Task.await_many(60_000)
  end

  defp stir(text) do
    _small = Context.new("x") |> Context.add_assistant_message("y")
    _large = Context.new(text) |> Context.to_snapshot() |> Context.load!()
    :ok
  end

  # From so many rounds on, allocators have kept what they keep.
  @settled 20

  @doc "By how much a figure has grown in those measurements, and by how much it may."
  def growth(measured, key) do
    rounds = length(measured)
    values = measured |> Enum.drop(max(div(rounds, 3), 2)) |> Enum.map(& &1[key])
    some = max(div(length(values), 3), 1)
    first = values |> Enum.take(some) |> median()
    last = values |> Enum.take(-some) |> median()
    # Of the calls of the run, this part is between the two.
    between = (length(values) - some) / rounds
    %{first: first, last: last, allowed: allowed(key, first, rounds), between: between}
  end

  # Erlang's own count is exact; what is resident depends on what allocators keep.
  defp allowed(:beam, _first, _rounds), do: 1_500_000
  defp allowed(:resident, first, rounds) when rounds < @settled, do: 4_000_000 + first * 0.1
  defp allowed(:resident, first, _rounds), do: 4_000_000 + first * 0.01

  defp median(values), do: values |> Enum.sort() |> Enum.at(div(length(values), 2))
end
