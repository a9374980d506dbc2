defmodule AshAgent.Runtime.Repeat do
  @moduledoc false

  # Decides about a call that was started before and has no result: whether it was carried out is unknown.

  alias AshAgent.{Context, Deadline}
  alias AshAgent.Runtime.{Sealed, ToolExecutor}

  @unknown "the outcome is unknown: the call was started and the machine stopped before its result came. It may have been " <>
             "carried out. Find out before calling again"

  @doc "The result of such a call that a person has denied: nobody knows whether it was carried out."
  def make_unknown(reason) do
    words =
      case reason do
        nil -> @unknown
        reason when is_binary(reason) -> @unknown <> ". It is not run again: " <> reason
        _other -> @unknown <> ". It is not run again"
      end

    {:unknown, words}
  end

  @doc """
  Decides about a call whose newest attempt is given: `:again`, `{:result, result, state}`, or `:pause`, when a person
  has to decide.
  """
  # A call that crashes its machine each time would do so for ever.
  def decide(%{max_attempts: most}, gate, context, call, %{attempt: attempt} = newest)
      when attempt >= most,
      do: unknown(gate, context, call, newest)

  def decide(execution, gate, context, call, attempt) do
    case repeat(execution, call) do
      :safe ->
        :again

      :never ->
        unknown(gate, context, call, attempt)

      {:ask, function} ->
        execution |> ask(function, call, attempt) |> handle_answer(gate, context, call, attempt)
    end
  end

  defp repeat(execution, call) do
    case ToolExecutor.find(execution.tools, call.name) do
      {:ok, tool} -> tool.repeat
      {:error, _words} -> :never
    end
  end

  # In a process of its own, like a tool. A failure leaves the outcome unknown.
  defp ask(execution, function, call, attempt) do
    call = %{call | arguments: Map.get(attempt.call, :arguments, call.arguments)}
    work = fn -> function.(call, attempt.key) end

    limit = min(execution.timeout, Deadline.left(execution.deadline))

    case Sealed.run_task(execution.supervisor, work, limit) do
      {:ok, answer} -> answer
      _failed -> :unknown
    end
  end

  defp handle_answer({:done, {:ok, _} = result}, _gate, _context, _call, _attempt),
    do: {:result, result, :ok}

  defp handle_answer({:done, {:error, _} = result}, _gate, _context, _call, _attempt),
    do: {:result, result, :error}

  defp handle_answer(:not_done, _gate, _context, _call, _attempt), do: :again

  defp handle_answer(_unknown, gate, context, call, attempt),
    do: unknown(gate, context, call, attempt)

  defp unknown(%{approval: :auto}, _context, _call, _attempt),
    do: {:result, {:unknown, @unknown}, :unknown}

  # An approval lets one attempt start. Another one is for another attempt.
  defp unknown(_gate, context, call, attempt) do
    decided_at = decided_at(context, call.id)

    if decided_at != nil and decided_at != Map.get(attempt.call, :decided_at),
      do: :again,
      else: :pause
  end

  @doc "Returns the time at which a call was approved, as text, or `nil`."
  def decided_at(context, id) do
    case Context.Calls.tool_call_status(context, id) == :approved &&
           Context.Calls.tool_call_decision(context, id) do
      %{at: at} -> DateTime.to_iso8601(at)
      _undecided -> nil
    end
  end
end
