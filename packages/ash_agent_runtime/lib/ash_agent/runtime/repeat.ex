defmodule AshAgent.Runtime.Repeat do
  @moduledoc false

  # Decides about a call that was started before and has no result: whether it was carried out is unknown.

  alias AshAgent.{Context, Deadline}
  alias AshAgent.Runtime.{Sealed, ToolExecutor}

  @may_be "It may have been carried out. Find out before calling again"
  @unknown "the outcome is unknown: the call was started and the machine stopped before its result came. " <>
             @may_be

  @doc "The result of such a call that a person has denied: nobody knows whether it was carried out."
  def make_unknown(reason) do
    why = if is_binary(reason), do: ": " <> reason, else: ""
    {:unknown, if(reason == nil, do: @unknown, else: @unknown <> ". It is not run again" <> why)}
  end

  @doc "Adds these results to a context."
  def add_unknown(context, [], _reason), do: context

  def add_unknown(context, ids, reason) do
    results = for id <- ids, do: %{id: id, result: make_unknown(reason)}
    Context.add_tool_results(context, results)
  end

  @doc "The result of a call that was stopped in the middle, for a reason in words."
  def make_stopped(words) do
    why = "the call was started, and stopped before its result came (#{words}). "
    {:unknown, "the outcome is unknown: " <> why <> @may_be}
  end

  @doc """
  Decides about a call whose newest attempt is given: `:again`, `{:result, result, state}`, or `:pause`, when a person
  has to decide.
  """
  # It is known to have done nothing: its tool has asked a person.
  def decide(_execution, _gate, _context, _call, %{state: :interrupted}), do: :again

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
        case ask(execution, function, call, attempt) do
          {:done, {state, _term} = result} when state in [:ok, :error] -> {:result, result, state}
          :not_done -> :again
          _unknown -> unknown(gate, context, call, attempt)
        end
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

  defp unknown(%{approval: :auto}, _context, _call, _attempt),
    do: {:result, {:unknown, @unknown}, :unknown}

  # An approval lets one attempt start. Another one is for another attempt.
  defp unknown(_gate, context, call, attempt) do
    decided_at = decided_at(context, call.id)

    if decided_at != nil and decided_at != Map.get(attempt.call, :decided_at),
      do: :again,
      else: :pause
  end

  # In the metadata of an iteration: by the ids of calls, the attempts whose outcome a person is asked about.
  @anew "asked_anew"

  @doc "Notes that a person has to decide about a call once more, since nobody knows how this attempt ended."
  def note_anew(%{current_iteration: number} = context, id, attempt) do
    noted = asked_anew(context)

    if noted[id] == attempt,
      do: context,
      else: Context.put_iteration_metadata(context, number, @anew, Map.put(noted, id, attempt))
  end

  @doc "Returns these attempts of the current iteration, by the ids of their calls."
  def asked_anew(%{current_iteration: number} = context) do
    with %{metadata: %{@anew => %{} = noted}} <- Context.get_iteration(context, number),
         do: noted,
         else: (_none -> %{})
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
