defmodule AshAgent.Runtime.Sealed do
  @moduledoc false

  # Processes that hold conversations crash without telling them.
  #
  # A crash report has the reason, in which a function that did not match has its arguments, and the messages that wait.
  # Here those are prompts, keys and whoever acts. What is left says which kind of failure it was, and where.

  alias AshAgent.Runtime.Events

  @doc "Runs `fun`. What it raises, throws or exits with becomes an exit with `{:failed, label}` and a trace without arguments."
  def run(fun) do
    fun.()
  catch
    kind, reason -> fail(Events.label(kind, reason), Events.prune(__STACKTRACE__))
  end

  # Nothing is told of the mailbox of a sensitive process.
  defp fail(label, stacktrace) do
    Process.flag(:sensitive, true)
    :erlang.raise(:exit, {:failed, label}, stacktrace)
  end

  @doc """
  Calls a server as `GenServer.call/3` does. When that exits, the reason has `{module, function, [server]}` in place of the
  call with its message.
  """
  def call(server, message, {module, function}, timeout \\ :infinity) do
    GenServer.call(server, message, timeout)
  catch
    :exit, {reason, {GenServer, :call, _message}} -> exit({reason, {module, function, [server]}})
  end
end
