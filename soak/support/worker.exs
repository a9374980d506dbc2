defmodule AshAgent.Soak.Worker do
  @moduledoc "A process that does random things to its conversations until its time is over."

  import AshAgent.TestSupport.Generators, only: [weighted: 1]

  alias AshAgent.Soak.{
    Call,
    Growing,
    Hostile,
    Pool,
    Reading,
    Sharing,
    Storing,
    Viewing,
    Witnesses
  }

  # How often, and what comes of it: a session that goes on, or nothing.
  @operations [
    {300, :session, &Growing.step/1},
    {30, :session, &Growing.metadata/1},
    {20, :session, &Growing.usage/1},
    {5, :session, &Growing.system_prompt/1},
    {5, :session, &Growing.rewind/1},
    {20, :session, &Viewing.fit/1},
    {15, :session, &Viewing.compact/1},
    {20, :session, &Viewing.expand/1},
    {5, :session, &Viewing.keep_last/1},
    {5, :session, &Viewing.clear/1},
    {5, :session, &Viewing.shorten/1},
    {5, :session, &Viewing.mask/1},
    {5, :session, &Viewing.block/1},
    {100, :nothing, &Reading.encode/1},
    {20, :nothing, &Reading.request/1},
    {20, :nothing, &Reading.report/1},
    {10, :nothing, &Reading.checked/1},
    {40, :nothing, &Reading.messages/1},
    {40, :nothing, &Reading.iteration/1},
    {10, :nothing, &Reading.iterations/1},
    {30, :nothing, &Reading.tokens/1},
    {10, :nothing, &Reading.breakdown/1},
    {10, :nothing, &Reading.prompt/1},
    {20, :nothing, &Reading.small/1},
    {15, :session, &Storing.dump/1},
    {15, :session, &Storing.snapshot/1},
    {10, :nothing, &Storing.map/1},
    {10, :session, &Storing.delta/1},
    {10, :nothing, &Storing.diff/1},
    {10, :nothing, &Storing.import/1},
    {10, :nothing, &Hostile.stored/1},
    {10, :nothing, &Hostile.imported/1},
    {10, :nothing, &Hostile.terms/1},
    {10, :nothing, &Hostile.texts/1},
    {20, :nothing, &Hostile.arguments/1},
    {20, :nothing, &Sharing.fork/1},
    {40, :session, &Sharing.hand_over/1},
    {2, :nothing, &Sharing.cut_off/1},
    {4, :nothing, &Witnesses.keep/1}
  ]

  @doc "Works until `deadline`, in milliseconds of the monotonic clock."
  def run(options, env, worker, deadline) do
    Call.enter(env)
    :rand.seed(:exsss, {options.seed, env.round, worker})
    Sharing.start()
    steps(options, worker, deadline, 1)
  end

  defp steps(options, worker, deadline, number) do
    Process.put(:step, number)
    session = Pool.pick(options, worker)
    {kind, fun} = weighted(for {weight, kind, fun} <- @operations, do: {weight, {kind, fun}})
    result = fun.(session)
    if kind == :session and Call.native?(), do: Pool.put(result)
    if rem(number, 50) == 0, do: Witnesses.recheck()
    if rem(number, 500) == 0, do: Sharing.replace_holder()

    if System.monotonic_time(:millisecond) < deadline,
      do: steps(options, worker, deadline, number + 1),
      else: number
  end
end
