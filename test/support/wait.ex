defmodule AshAgent.TestSupport.Wait do
  @moduledoc false

  @doc "Asks `fun` again and again, for at most `timeout` milliseconds, until it is true; returns its last answer."
  def until(fun, timeout \\ 10_000) do
    until_deadline(fun, System.monotonic_time(:millisecond) + timeout)
  end

  defp until_deadline(fun, deadline) do
    answer = fun.()

    if answer || System.monotonic_time(:millisecond) > deadline do
      answer
    else
      receive do
      after
        10 -> until_deadline(fun, deadline)
      end
    end
  end

  @doc "A number once it has stayed the same for 10 looks in a row (or the last one after `timeout`)."
  def settled(fun, timeout \\ 10_000) do
    deadline = System.monotonic_time(:millisecond) + timeout
    settled(fun, fun.(), 10, deadline)
  end

  defp settled(_fun, value, 0, _deadline), do: value

  defp settled(fun, value, left, deadline) do
    receive do
    after
      10 -> :ok
    end

    cond do
      System.monotonic_time(:millisecond) > deadline -> value
      fun.() == value -> settled(fun, value, left - 1, deadline)
      true -> settled(fun, fun.(), 10, deadline)
    end
  end

  @doc "Resident memory of the VM's process in bytes, as Linux counts it; `nil` elsewhere."
  def resident_bytes do
    with {:ok, status} <- File.read("/proc/self/status"),
         [_, kilobytes] <- Regex.run(~r/VmRSS:\s+(\d+) kB/, status) do
      String.to_integer(kilobytes) * 1024
    else
      _ -> nil
    end
  end

  @doc "Runs `fun` in a process of its own, so that all its handles are garbage when it returns."
  def in_process(fun) do
    Task.await(Task.async(fun), 120_000)
  end

  @doc "Collects the garbage of every process."
  def collect_garbage do
    Enum.each(Process.list(), &:erlang.garbage_collect/1)
  end
end
