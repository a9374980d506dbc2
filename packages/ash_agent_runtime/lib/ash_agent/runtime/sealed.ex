defmodule AshAgent.Runtime.Sealed do
  @moduledoc false

  # Processes that hold conversations crash without disclosing them.
  #
  # A crash report contains the waiting messages and the reason, in which a function that did not match has its arguments.
  # Here those are prompts, keys and actors. A sealed process only reports the kind of failure, and its place.

  alias AshAgent.Runtime.Events
  alias AshAgent.Trace.Caller

  @doc "Runs `fun`. If it raises, throws or exits, exits with `{:failed, label}` and a stacktrace without arguments."
  def run(fun) do
    fun.()
  catch
    kind, reason -> fail(Events.label(kind, reason), Events.prune(__STACKTRACE__))
  end

  @doc "The same in a task. Returns `{:ok, reply}`, `{:exit, reason}`, or `nil` if it takes longer."
  def run_task(supervisor, fun, timeout) do
    task = Caller.task(supervisor, fn -> run(fun) end)
    Task.yield(task, timeout) || Task.shutdown(task, :brutal_kill)
  end

  @doc "Returns the status of a GenServer that may be shown: `show` returns the visible part of its state."
  def format_status(status, show) do
    Map.new(status, fn
      {:state, state} -> {:state, show.(state)}
      {:message, _message} -> {:message, :not_shown}
      {:log, _events} -> {:log, []}
      other -> other
    end)
  end

  # The mailbox of a sensitive process is not reported.
  defp fail(label, stacktrace) do
    Process.flag(:sensitive, true)
    :erlang.raise(:exit, {:failed, label}, stacktrace)
  end

  @doc """
  Calls a server as `GenServer.call/3` does. If that exits, the reason has `{module, function, [server]}` instead of the call with
  its message.
  """
  def call(server, message, {module, function}, timeout \\ :infinity) do
    GenServer.call(server, message, timeout)
  catch
    :exit, {reason, {GenServer, :call, _message}} -> exit({reason, {module, function, [server]}})
  end
end
