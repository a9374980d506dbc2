defmodule AshAgent.Soak.Rounds do
  @moduledoc """
  The run: in each round the pool is filled with the same conversations, worked on, the control is run, everything is
  released and what is left is measured. All workers, with dirty schedulers, need more processors than there are, so that
  the system takes them away all the time; therefore few workers work in calm, and it is they that are judged by how
  long they held schedulers, beside a control of theirs. In the first round answers are recorded for the control, so it does not count
  for long schedules.
  """

  alias AshAgent.Context
  alias AshAgent.Soak.{Call, Faults, Histogram, Memory, Phase, Pool, Schedules, Texts, Witnesses}

  @least_rounds 8
  @round_ms 12_000
  # Parts of what is left of a round once the pool is filled: all workers and their control, few workers and theirs.
  @all {0.45, 0.1}
  @few {0.2, 0.2}

  def run(options) do
    IO.puts(
      "Seed #{options.seed}, #{options.workers} workers, #{options.sessions} conversations."
    )

    start()
    ms = round(options.minutes * 60_000)
    rounds = max(@least_rounds, div(ms, @round_ms))
    began = System.monotonic_time(:millisecond)
    start = Memory.now()

    state = %{
      histogram: Histogram.new(),
      control: Histogram.new(),
      filling: Histogram.new(),
      rounds: []
    }

    state =
      Enum.reduce(1..rounds, state, fn number, state ->
        until = began + div(ms * number, rounds)
        state |> round(options, number, until) |> tell(rounds)
      end)

    %{state | rounds: Enum.reverse(state.rounds)}
    |> Map.merge(%{start: start, seconds: (System.monotonic_time(:millisecond) - began) / 1000})
  end

  defp start do
    Faults.start()
    Texts.start()
    Pool.start()
    Witnesses.start()
    Schedules.start()
    :ets.new(:soak_recordings, [:public, :named_table, write_concurrency: true])
    :ets.new(:soak_leak, [:public, :named_table, write_concurrency: true])
    # The first exact count loads its tables, which takes a second.
    for method <- [:o200k_base, :cl100k_base],
        do: Context.Tokens.count_tokens(Context.new("x"), method: method)
  end

  defp round(state, options, number, until) do
    native = env(state, options, number, :native)
    Phase.parallel(all(options), %{native | histogram: state.filling}, &fill(options, &1, &2))
    sizes = Pool.sizes()
    filled = Memory.collected(options.sessions + Witnesses.count())
    left = max(until - System.monotonic_time(:millisecond), 1_000)
    phases = phases(state, options, number, left)
    if options.inject == :change and number == 2, do: Witnesses.mix_up()
    check_witnesses(native)
    empty = release()

    round = Map.merge(phases, %{sizes: sizes, filled: filled, empty: empty})
    %{state | rounds: [round | state.rounds]}
  end

  defp phases(state, options, number, ms) do
    {work, control} = beside_control(state, options, number, all(options), ms, @all)
    worked = Memory.now()
    {calm, calm_control} = beside_control(state, options, number, few(), ms, @few)
    %{work: work, control: control, worked: worked, calm: calm, calm_control: calm_control}
  end

  defp all(options), do: 0..(options.workers - 1)

  # So many that they need not take processors from each other, nor from dirty schedulers.
  defp few, do: 0..(max(div(System.schedulers_online(), 2), 1) - 1)

  defp beside_control(state, options, number, crew, ms, {part, control_part}) do
    work = Phase.run(options, env(state, options, number, :native), crew, round(ms * part))

    control =
      Schedules.with_dirty(work.busy.dirty / work.seconds, fn idle ->
        env = state |> env(options, number, :control) |> Map.put(:idle, idle)
        Phase.run(options, env, crew, round(ms * control_part))
      end)

    {work, control}
  end

  defp env(state, options, number, mode) do
    %{
      mode: mode,
      round: number,
      place: "",
      histogram: if(mode == :native, do: state.histogram, else: state.control),
      recordings: :soak_recordings,
      record?: number == 1 and mode == :native,
      workers: options.workers,
      inject: options.inject,
      context: nil
    }
    |> stand_in()
  end

  # One context, on which nothing is called.
  defp stand_in(%{mode: :native} = env), do: env
  defp stand_in(env), do: %{env | context: %Context{ref: make_ref(), current_iteration: 5}}

  defp fill(options, worker, env) do
    Call.enter(env)
    Pool.fill(options, worker)
  end

  # In a process that has made none of them.
  defp check_witnesses(env) do
    Task.await(
      Task.async(fn ->
        Call.enter(%{env | place: "the last look"})
        Witnesses.recheck_all()
      end),
      :infinity
    )
  end

  defp release do
    Pool.release()
    Witnesses.release()
    empty = Memory.collected(Witnesses.count())
    Map.put(empty, :lost, empty.contexts - Witnesses.count())
  end

  defp tell(%{rounds: [last | _] = rounds} = state, of) do
    IO.puts(
      "Round #{length(rounds)} of #{of}: #{last.work.steps} steps, " <>
        "held #{last.work.held} times (control #{last.control.held}), " <>
        "calm #{last.calm.held} (#{last.calm_control.held}), " <>
        "#{div(last.filled.resident, 1024 * 1024)} MB filled, #{div(last.empty.resident, 1024 * 1024)} MB empty, " <>
        "#{last.empty.lost} contexts lost"
    )

    state
  end
end
