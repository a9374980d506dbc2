defmodule AshAgent.LLM.Transport.Clock do
  @moduledoc false

  # The timeouts of one request. Each wait ends with the nearest of them, which is named in the error.

  alias AshAgent.Deadline
  alias AshAgent.LLM.Transport.Request

  @enforce_keys [:whole, :idle]
  defstruct [:whole, :idle, phase: {:whole, :infinity}]

  @doc "Starts the clock of a request."
  def new(%Request{} = request),
    do: %__MODULE__{whole: Deadline.new(request.timeout), idle: request.idle_timeout}

  @doc "Begins to wait for a connection or for the first byte."
  def start(clock, name, milliseconds), do: %{clock | phase: {name, Deadline.new(milliseconds)}}

  @doc "Begins to wait for the bytes after the first: from now on only pauses count."
  def between(clock), do: start(clock, :idle, clock.idle)

  @doc "Begins to wait once more. The consumer's own time does not count as a pause of the server."
  def again(%{phase: {:idle, _}} = clock), do: between(clock)
  def again(clock), do: clock

  @doc "Milliseconds to wait at most for the next bytes."
  def wait(clock), do: clock |> next() |> elem(1) |> Deadline.left()

  @doc "The timeout that `wait/1` ended with."
  def name_timeout(clock), do: {:timeout, clock |> next() |> elem(0)}

  # :infinity is greater than any number.
  defp next(%{phase: {_, deadline} = phase, whole: whole}) when deadline < whole, do: phase
  defp next(%{whole: whole}), do: {:whole, whole}
end
