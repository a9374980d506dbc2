defmodule AshAgent.Deadline do
  @moduledoc false

  # Deadlines in milliseconds of the VM's monotonic time, or `:infinity`, which is more than any number.

  @doc "The deadline of something that may take so many milliseconds from now on."
  def new(timeout, grace \\ 0)
  def new(:infinity, _grace), do: :infinity
  def new(timeout, grace), do: now() + timeout + grace

  @doc "Returns how many milliseconds are left."
  def left(:infinity), do: :infinity
  def left(deadline), do: max(deadline - now(), 0)

  # System.monotonic_time/1 takes three times as long, and a turn of a run asks twenty times.
  def now, do: :erlang.monotonic_time(:millisecond)
end
