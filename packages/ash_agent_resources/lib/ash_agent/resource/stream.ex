defmodule AshAgent.Resource.Stream do
  @moduledoc false

  # A call whose answer is read while it comes. The run has a process of its own, which waits for the reader after each
  # piece, and which ends with the reader.

  alias AshAgent.Resource.{Error, Turn}
  alias AshAgent.Runtime.{Events, Paused, Sealed}
  alias AshAgent.Trace.Caller

  @doc "The stream; the run begins when it is read."
  def new(%Turn{} = turn), do: Stream.resource(fn -> start(turn) end, &next/1, &stop/1)

  defp start(turn) do
    reader = self()
    ref = make_ref()
    callers = [reader | Process.get(:"$callers", [])]
    trace = Caller.current()

    {pid, monitor} =
      spawn_monitor(fn ->
        end_with(reader)
        Process.put(:"$callers", callers)
        Caller.continue(trace)

        Sealed.run(fn ->
          send(reader, {ref, :ended, Turn.run(turn, &pass_on(reader, ref, &1))})
        end)
      end)

    %{pid: pid, monitor: monitor, ref: ref, waits?: false, ended?: false}
  end

  # While it waits for the model, it would not notice by itself.
  defp end_with(reader) do
    run = self()

    spawn(fn ->
      monitor = Process.monitor(reader)
      own = Process.monitor(run)

      receive do
        {:DOWN, ^monitor, :process, _pid, _reason} -> Process.exit(run, :shutdown)
        {:DOWN, ^own, :process, _pid, _reason} -> :ok
      end
    end)
  end

  defp pass_on(reader, ref, events) do
    case Enum.flat_map(events, &element/1) do
      [] ->
        :ok

      elements ->
        send(reader, {ref, :elements, elements})
        receive do: ({^ref, :more} -> :ok)
    end
  end

  defp element({:text, _part, text}), do: [{:content, text}]
  defp element({:thinking, _part, text}), do: [{:thinking, text}]
  defp element({:value, value}), do: [{:partial, value}]
  defp element(_other), do: []

  defp next(%{ended?: true} = state), do: {:halt, state}

  defp next(%{ref: ref, monitor: monitor} = state) do
    if state.waits?, do: send(state.pid, {ref, :more})

    receive do
      {^ref, :elements, elements} ->
        {elements, %{state | waits?: true}}

      {^ref, :ended, reply} ->
        {[last(reply)], %{state | ended?: true}}

      {:DOWN, ^monitor, :process, _pid, reason} ->
        {[last({:error, to_exit_error(reason)})], %{state | ended?: true}}
    end
  end

  defp last({:ok, %Paused{} = paused}), do: {:paused, paused}
  defp last({:ok, result}), do: {:done, result}
  defp last({:error, error}), do: {:error, error}

  # With `Sealed`, the reason only names the kind of failure. The reason of a linked process may have anything in it.
  defp to_exit_error({:failed, kind}) when is_atom(kind), do: exit_error({:failed, kind})
  defp to_exit_error(reason), do: exit_error(Events.label(:exit, reason))

  defp exit_error(reason), do: Error.exception(reason: {:exit, reason}, context: nil)

  # After this, no messages of it come.
  defp stop(%{pid: pid, monitor: monitor, ref: ref}) do
    Process.exit(pid, :shutdown)
    Process.demonitor(monitor, [:flush])
    over = Process.monitor(pid)
    receive do: ({:DOWN, ^over, :process, _pid, _reason} -> flush(ref))
  end

  defp flush(ref) do
    receive do
      {^ref, _kind, _content} -> flush(ref)
    after
      0 -> :ok
    end
  end
end
