defmodule AshAgent.Runtime.Keeper do
  @moduledoc false

  # Starts the tasks of a run that is in no session, and ends them with the run, however that ends.
  #
  # A `Task.Supervisor` would have to be asked for each of them, which costs more than a short call of a tool does. Here the run starts
  # them itself. Their pids are in a table of the run's, which another process inherits and clears when the run's is killed.

  @enforce_keys [:table, :heir]
  defstruct @enforce_keys

  # In the table of a run that starts nothing any more.
  @closed :closed

  @doc "Gives `fun` a keeper. Nothing of what it started is alive when this returns."
  def with_keeper(fun) do
    heir = spawn(&await_end/0)
    table = :ets.new(__MODULE__, [:public, {:heir, heir, nil}])

    try do
      fun.(%__MODULE__{table: table, heir: heir})
    after
      :ets.insert(table, {@closed})
      kill_all(table)
      :ets.delete(table)
      send(heir, :over)
    end
  end

  defp await_end do
    receive do
      :over -> :ok
      {:"ETS-TRANSFER", table, _run, nil} -> kill_all(table)
    end
  end

  defp kill_all(table) do
    monitors =
      for {pid} when is_pid(pid) <- :ets.tab2list(table) do
        monitor = Process.monitor(pid)
        Process.exit(pid, :kill)
        monitor
      end

    for monitor <- monitors, do: receive(do: ({:DOWN, ^monitor, _, _, _} -> :ok))
  end

  @doc "Starts a task, as `Task.Supervisor.async_nolink/3` does."
  def start_task(%__MODULE__{table: table}, fun) do
    run = self()

    {:ok, pid} = Task.start(__MODULE__, :begin, [table, run])
    ref = :erlang.monitor(:process, pid, alias: :demonitor)
    send(pid, {__MODULE__, ref, fun})
    %Task{mfa: {:erlang, :apply, 2}, owner: run, pid: pid, ref: ref}
  end

  @doc false
  # The run may have ended before this, and does not know of the task then.
  def begin(table, run) do
    if enter(table) and Process.alive?(run) do
      receive do
        {__MODULE__, ref, fun} -> send(ref, {ref, fun.()})
      end

      leave(table)
    end
  end

  defp enter(table) do
    :ets.insert(table, {self()}) and not :ets.member(table, @closed)
  rescue
    _no_table in ArgumentError -> false
  end

  defp leave(table) do
    :ets.delete(table, self())
  rescue
    _no_table in ArgumentError -> true
  end
end
