defmodule AshAgent.Session.Decision do
  @moduledoc false

  # A decision about a call of a session that does not run: `{:approved, id, nil}`, `{:denied, id, reason}` or `{:answered, id, answer}`. It
  # is made when it is stored.

  alias AshAgent.Context
  alias AshAgent.Runtime.{Events, Journal, ToolArguments}
  alias AshAgent.Session.{Claim, State}

  @doc "Makes a decision. Returns `{:ok, state}` or `{:error, reason}`; then it is not made."
  def make(%State{context: before, runtime: runtime} = session, decision, opts) do
    started = System.monotonic_time()

    with {:ok, unknown} <- fetch_unknown(session, decision),
         {:ok, context} <- apply_decision(session, decision, unknown, opts),
         :ok <- Events.store(runtime[:on_change], context),
         settlement = Journal.settlement(elem(decision, 2), opts),
         settled = Enum.map(unknown, &Map.put(&1, :settled, settlement)),
         {:ok, claim} <- Claim.write(session.claim, context, :paused, settled) do
      emit(runtime, before, decision, started)
      {:ok, State.put_context(%{session | claim: claim}, context)}
    end
  end

  # The attempts that denying a call settles. An approval lets another one start.
  defp fetch_unknown(%{claim: claim, context: context}, {:denied, id, _reason}) do
    if Enum.any?(Context.pending_tool_calls(context), &(&1.id == id)),
      do: Claim.fetch_attempts(claim, context, id),
      else: {:ok, []}
  end

  defp fetch_unknown(_session, _approved_or_answered), do: {:ok, []}

  defp apply_decision(%{context: context, runtime: runtime}, decision, unknown, opts) do
    case decision do
      {:approved, id, _reason} -> {:ok, ToolArguments.approve(context, id, opts, runtime)}
      {:denied, id, reason} -> {:ok, Journal.deny(context, id, reason, opts, unknown != [])}
      {:answered, id, answer} -> {:ok, Context.Calls.answer_tool_call(context, id, answer, opts)}
    end
  rescue
    error in [Context.Error, ArgumentError, FunctionClauseError] -> {:error, error}
  end

  # The context is the one that the decision was made on.
  defp emit(runtime, context, {verdict, id, _reason}, started) do
    call = context |> Context.pending_tool_calls() |> Enum.find(&(&1.id == id))

    runtime
    |> Events.new(%{context_id: context[:id], iteration: context.current_iteration})
    |> Events.emit_decision(call, verdict, :session, started)
  end
end
