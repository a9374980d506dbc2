defmodule AshAgent.Runtime.Progress do
  @moduledoc false

  # Reports of progress from a tool's process to the run's process. The run forgets a call with `close/1`; later reports, from
  # whichever process, do not get into its mailbox. Reports that follow each other too fast are left out, since they may come
  # from outside.

  alias AshAgent.Deadline

  @pause 50

  @doc "A channel to this process: what it is told by, and the function that reports. Both numbers; `total` may be `nil`."
  def open do
    alias = :erlang.alias()
    next = :atomics.new(1, [])
    :atomics.put(next, 1, Deadline.now())
    {alias, &report(alias, next, &1, &2)}
  end

  defp report(alias, next, progress, total) when is_number(progress) do
    due = :atomics.get(next, 1)
    now = Deadline.now()

    # Of several processes, one gets through.
    if now >= due and :atomics.compare_exchange(next, 1, due, now + @pause) == :ok,
      do: send(alias, {alias, :tool_progress, measure(progress, total)})

    :ok
  end

  defp report(_alias, _next, _progress, _total), do: :ok

  defp measure(progress, total) when is_number(total), do: %{progress: progress, total: total}
  defp measure(progress, _total), do: %{progress: progress}

  @doc "Ends a channel, and drops what came through it. A tool that cannot report has none."
  def close(nil), do: :ok

  def close(alias) do
    :erlang.unalias(alias)
    flush(alias)
  end

  defp flush(alias) do
    receive do
      {^alias, :tool_progress, _measured} -> flush(alias)
    after
      0 -> :ok
    end
  end
end
