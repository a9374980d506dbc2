defmodule AshAgent.Session.Ending do
  @moduledoc false

  # The process that tells `:on_event` and telemetry the end of a session's run. It begins with the run, so each run has one end,
  # whatever becomes of its task and of the session: if the session dies without a word, that is the end.
  #
  # Nobody waits for a slow `:on_event`, except those who want the answer and, for a while, the next run.

  alias AshAgent.Runtime
  alias AshAgent.Runtime.{Error, Events, Sealed, Underway}
  alias AshAgent.Trace.Caller

  # Milliseconds that the next run waits at most, so that events stay in order.
  @patience 1_000

  @doc """
  Begins with a run of the calling session, of which `before` told the end of the run before, or is `nil`. `about` is the metadata of
  the end's event. Returns the pid.
  """
  def start(before, runtime, context, about, caller) do
    session = self()
    events = Events.new(runtime, %{context_id: context[:id]})
    started = System.monotonic_time()

    {:ok, pid} =
      Task.start(fn ->
        Caller.continue(caller)
        monitor = Process.monitor(session)

        Sealed.run(fn ->
          {reply, more} = await_reply(monitor, runtime[:supervisor], context)
          await_end(before)
          Runtime.report_end(events, started, reply, Map.merge(about, more))
        end)
      end)

    pid
  end

  defp await_reply(monitor, supervisor, context) do
    receive do
      {:end, reply, more} ->
        {reply, more}

      {:DOWN, ^monitor, :process, _session, reason} ->
        # What the run has started ends with the session, and may still tell something.
        await_end(supervisor)
        own = Map.put(inherit(context), :reason, {:exit, reason})
        {{:error, struct!(Error, own)}, %{}}
    end
  end

  # What the run had come to.
  defp inherit(context) do
    receive do
      {:"ETS-TRANSFER", table, _session, nil} ->
        Map.merge(%{context: context}, Underway.facts(table, context[:id]))
    after
      @patience -> %{context: context}
    end
  end

  @doc "Tells the end of the run, with more metadata. Returns a monitor: its message comes when everybody has heard of it."
  def tell(pid, reply, more) do
    send(pid, {:end, reply, more})
    Process.monitor(pid)
  end

  @doc "Waits for the end of a process, such as the one that tells the end of the run before, but not for ever."
  def await_end(nil), do: :ok

  def await_end(pid) do
    monitor = Process.monitor(pid)

    receive do
      {:DOWN, ^monitor, :process, _, _} -> :ok
    after
      @patience -> Process.demonitor(monitor, [:flush])
    end
  end
end
