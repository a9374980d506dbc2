defmodule AshAgent.Soak.Memory do
  @moduledoc """
  How much memory there is, and whether it has grown.

  After each round everything is released and collected, the contexts that are alive are counted, and what is resident
  then is looked at. The first third of the rounds is for warming up. The least of the first third of the others is
  compared with the least of the last third: allocators keep some pages, not always the same, but what leaks never goes.
  """

  alias AshAgent.Context
  alias AshAgent.Context.Native
  alias AshAgent.Test.Wait

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
    _large = Context.new(text) |> Context.to_snapshot() |> Context.from_snapshot!()
    :ok
  end

  @doc "By how much a figure has grown in those measurements, and by how much it may: so many MB and a part of it."
  def growth(measured, key, mb, part) do
    values = measured |> Enum.drop(max(div(length(measured), 3), 2)) |> Enum.map(& &1[key])
    some = max(div(length(values), 3), 1)
    first = values |> Enum.take(some) |> Enum.min()
    last = values |> Enum.take(-some) |> Enum.min()

    %{
      first: first,
      last: last,
      growth: last - first,
      allowed: round(mb * 1024 * 1024 + part * first)
    }
  end
end
