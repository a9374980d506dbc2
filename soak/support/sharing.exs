defmodule AshAgent.Soak.Sharing do
  @moduledoc """
  Contexts in several processes: holders that keep forks, hand-overs there and back, and processes that are killed in
  the middle of something.
  """

  import AshAgent.Soak.Call, only: [call: 2, native?: 0]
  import AshAgent.TestSupport.Generators, only: [between: 2, one_of: 1]

  alias AshAgent.Context
  alias AshAgent.Soak.{Growing, Phase, Pool, Reading, Storing, Viewing}

  @holders 3
  # Forks that a holder keeps.
  @kept 20

  @doc "Starts this worker's holders, which end with it."
  def start, do: Process.put(:holders, for(_ <- 1..@holders, do: start_holder()))

  defp start_holder do
    owner = self()

    Phase.spawn(fn ->
      Process.monitor(owner)
      hold([])
    end)
  end

  defp hold(forks) do
    receive do
      {:keep, session} -> [session | forks] |> Enum.take(@kept) |> hold()
      {:extend, from, reference, session} -> forks |> extend(from, reference, session) |> hold()
      {:DOWN, _, :process, _, _} -> :ok
    end
  end

  defp extend(forks, from, reference, session) do
    next = Growing.step(session)
    send(from, {reference, next})
    if forks != [], do: forks |> one_of() |> Reading.encode()
    forks
  end

  @doc "A fork that goes on by itself for some steps, and is kept by another process."
  def fork(session) do
    fork = Enum.reduce(1..between(1, 5), session, fn _, fork -> Growing.step(fork) end)
    send(holder(), {:keep, fork})
  end

  @doc "Another process takes the next step."
  def hand_over(session) do
    holder = holder()

    exchange = fn ->
      reference = make_ref()
      send(holder, {:extend, self(), reference, session})

      receive do
        {^reference, {_, context, bytes, _}} -> {context, bytes}
      end
    end

    # The control sends messages, too.
    {context, bytes} = if native?(), do: call(:hand_over, exchange), else: exchange.()
    Pool.continue(session, context, max(bytes - elem(session, 2), 0))
  end

  @doc "A holder is killed with all it has; another takes its place."
  def replace_holder do
    [first | rest] = Process.get(:holders)
    kill(first)
    Process.put(:holders, rest ++ [start_holder()])
  end

  @doc "A process works on a conversation and is killed soon."
  def cut_off(session) do
    victim = Phase.spawn(fn -> work(session) end)

    receive do
    after
      between(0, 3) -> kill(victim)
    end
  end

  defp work(session) do
    one_of([
      fn -> Growing.step(session) end,
      fn -> Reading.encode(session) end,
      fn -> Reading.messages(session) end,
      fn -> Storing.dump(session) end,
      fn -> Storing.snapshot(session) end,
      fn -> Viewing.compact(session) end,
      fn -> call(:load, fn -> Context.load(Context.dump(elem(session, 1))) end) end
    ]).()

    work(session)
  end

  defp kill(pid) do
    monitor = Process.monitor(pid)
    Process.exit(pid, :kill)

    receive do
      {:DOWN, ^monitor, _, _, _} -> :ok
    end
  end

  defp holder, do: one_of(Process.get(:holders))
end
