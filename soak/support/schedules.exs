defmodule AshAgent.Soak.Schedules do
  @moduledoc """
  Times that a process held a normal scheduler for 1 ms or longer, and how busy schedulers were.

  The operating system may take the processor from a scheduler at any time, which is reported just the same, and the VM
  itself takes long to make terms of many binaries, which the control does. So the counts mean something only beside
  those of the control, and on a busy machine only much more is seen to be more. Which function it is, and a rare one,
  `bench/schedulers.exs` finds.
  """

  @long_ms 1

  @doc "Starts watching, for as long as the VM lives."
  def start do
    :ets.new(__MODULE__, [:public, :named_table, write_concurrency: true])
    collector = spawn(fn -> collect([]) end)
    :persistent_term.put(__MODULE__, collector)
    :erlang.system_monitor(collector, [{:long_schedule, @long_ms}])
    :erlang.system_flag(:scheduler_wall_time, true)
  end

  @doc "From now on the process counts."
  def track(pid), do: :ets.insert(__MODULE__, {pid})

  @doc "What `fun` answers, the long schedules `{ms, where}` meanwhile, and how many seconds schedulers were busy."
  def watch(fun) do
    forget()
    before = busy()
    answer = fun.()
    busy = Map.new(busy(), fn {kind, seconds} -> {kind, seconds - before[kind]} end)
    {answer, forget(), busy}
  end

  # The events of processes that counted until now.
  defp forget do
    Process.sleep(50)
    events = take()
    :ets.delete_all_objects(__MODULE__)
    events
  end

  defp take do
    send(:persistent_term.get(__MODULE__), {:take, self()})

    receive do
      {:events, events} -> events
    end
  end

  defp collect(events) do
    receive do
      {:monitor, pid, :long_schedule, info} ->
        if :ets.member(__MODULE__, pid),
          do: collect([{info[:timeout], info[:out]} | events]),
          else: collect(events)

      {:take, from} ->
        send(from, {:events, events})
        collect([])
    end
  end

  defp busy do
    normal = :erlang.system_info(:schedulers)
    dirty = normal + :erlang.system_info(:dirty_cpu_schedulers)

    for {number, active, _total} <- :erlang.statistics(:scheduler_wall_time_all),
        number <= dirty,
        reduce: %{normal: 0.0, dirty: 0.0} do
      busy ->
        kind = if number <= normal, do: :normal, else: :dirty
        Map.update!(busy, kind, &(&1 + active / 1.0e9))
    end
  end

  @doc """
  Runs `fun` with an atomic that is 1 while dirty schedulers have been busy for less than a part of the time: the control
  is to have as much on them as what it is compared with, since they take processors from the others.
  """
  def with_dirty(part, fun) do
    idle = :atomics.new(1, [])
    steering = spawn_link(fn -> steer(idle, part, busy().dirty, System.monotonic_time()) end)
    answer = fun.(idle)
    Process.unlink(steering)
    Process.exit(steering, :kill)
    answer
  end

  defp steer(idle, part, before, since) do
    Process.sleep(20)
    elapsed = System.convert_time_unit(System.monotonic_time() - since, :native, :millisecond)
    less? = busy().dirty - before < part * elapsed / 1000
    :atomics.put(idle, 1, if(less?, do: 1, else: 0))
    steer(idle, part, before, since)
  end

  @doc """
  By how many a minute `{events, seconds}` exceed those of the control, round by round, and how many may be
  chance: three standard errors, of the differences between the rounds or of counts, whichever is more.
  """
  def excess(work, control) do
    differences = for {work, control} <- Enum.zip(work, control), do: rate(work) - rate(control)
    rounds = length(differences)
    mean = Enum.sum(differences) / rounds
    squares = for difference <- differences, do: (difference - mean) ** 2
    between = :math.sqrt(Enum.sum(squares) / max(rounds - 1, 1) / rounds)
    counting = :math.sqrt(variance(work) + variance(control))
    %{excess: mean, chance: 3 * max(between, counting)}
  end

  defp rate({events, seconds}), do: 60 * events / seconds

  # Of the rate of all rounds together, when events do not depend on each other.
  defp variance(counts) do
    {events, seconds} = Enum.unzip(counts)
    3600 * Enum.sum(events) / Enum.sum(seconds) ** 2
  end
end
