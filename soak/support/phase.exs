defmodule AshAgent.Soak.Phase do
  @moduledoc "Workers at once, for a time: with the package or as the control."

  alias AshAgent.Soak.{Call, Schedules, Worker}

  @doc "Runs the workers of these numbers for `ms` and returns steps, seconds, long schedules and how busy schedulers were."
  def run(options, env, crew, ms) do
    started = System.monotonic_time(:millisecond)

    {steps, events, busy} =
      Schedules.watch(fn ->
        parallel(crew, env, &Worker.run(options, &2, &1, started + ms))
      end)

    %{
      steps: steps |> Enum.filter(&is_integer/1) |> Enum.sum(),
      seconds: (System.monotonic_time(:millisecond) - started) / 1000,
      held: length(events),
      longest: events |> Enum.sort(:desc) |> Enum.take(5),
      busy: busy
    }
  end

  @doc "What `fun` answers for each worker's number, each in a process of its own that counts for long schedules."
  def parallel(crew, env, fun) do
    parent = self()

    for worker <- crew do
      env = Map.put(env, :place, "round #{env.round}, worker #{worker}")

      spawn_monitor(fn ->
        Schedules.track(self())
        send(parent, {self(), fun.(worker, env)})
      end)
    end
    |> Enum.map(&answer/1)
  end

  # A worker that fails is a logged error.
  defp answer({pid, monitor}) do
    receive do
      {:DOWN, ^monitor, _, _, _reason} -> :ok
    end

    receive do
      {^pid, answer} -> answer
    after
      0 -> :failed
    end
  end

  @doc "A process of the calling worker's, with an environment like the worker's and a seed from it."
  def spawn(fun) do
    env = Call.env()
    seed = :rand.uniform(1_000_000_000)

    Kernel.spawn(fn ->
      Schedules.track(self())
      Call.enter(%{env | place: "a process of #{env.place}"})
      :rand.seed(:exsss, seed)
      fun.()
    end)
  end
end
