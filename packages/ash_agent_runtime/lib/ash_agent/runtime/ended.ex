defmodule AshAgent.Runtime.Ended do
  @moduledoc false

  # How a turn ended, for whoever reads the stored conversation later: the note of the write that ended it has `ended`, a map with the
  # `"outcome"` and, if something went wrong, the `"error"` with its `"kind"` and `"words"`. These are ours: a provider's, a
  # tool's or an exception's may be anybody's secrets.

  alias AshAgent.LLM
  alias AshAgent.Runtime.Error

  @outcomes ~w(answered length refused filtered halted budget max_iterations timeout failed cancelled waiting)a

  # Their messages have no words but ours, with the limits of the application.
  @ours ~w(max_iterations_exceeded max_calls_exceeded max_total_tokens_exceeded max_cost_exceeded unknown_cost no_price)a ++
          ~w(timeout llm_timeout output_cut refused cancelled)a

  @budget ~w(max_calls_exceeded max_total_tokens_exceeded max_cost_exceeded unknown_cost no_price)a

  # Somebody or something goes on with these.
  @open ~w(parked drained missing_option store_error)a

  @doc "The outcomes that a turn can have."
  def outcomes, do: @outcomes

  @doc "Returns the part of a note on the reason for which a run stops, with the finish reason of its last answer."
  def note(reason, finish \\ nil)

  def note({:failed, reason}, _finish) do
    tag = tag(reason)

    if tag in @open do
      %{}
    else
      error = %{"kind" => to_string(kind(reason, tag)), "words" => words(reason, tag)}
      put(outcome(reason, tag), %{"error" => error})
    end
  end

  def note({:halted, _term}, _finish), do: put(:halted, %{})
  def note(:waiting, _finish), do: put(:waiting, %{})
  def note(_answered, finish), do: put(finished(finish), %{})

  defp put(outcome, more),
    do: %{ended: Map.put(more, "outcome", Atom.to_string(outcome))}

  @doc "Returns the outcome of an answer that ended so."
  def finished(:length), do: :length
  def finished(:refusal), do: :refused
  def finished(:content_filter), do: :filtered
  def finished(:error), do: :failed
  def finished(_finish), do: :answered

  @doc "Finds how the last turn ended in the writes of a conversation, as `%{outcome: atom, error: map or nil}`, or `nil`."
  def find(writes) do
    writes
    |> Enum.reverse()
    |> Enum.find_value(fn
      %{note: %{ended: %{"outcome" => name} = ended}} ->
        outcome = Enum.find(@outcomes, &(Atom.to_string(&1) == name))
        %{outcome: outcome, error: ended["error"]}

      _other ->
        nil
    end)
  end

  defp tag(reason) when is_tuple(reason), do: elem(reason, 0)
  defp tag(reason), do: reason

  defp outcome({:llm_error, %LLM.Error{kind: :refused}}, _tag), do: :filtered
  defp outcome(_reason, tag) when tag in @budget, do: :budget
  defp outcome(_reason, :max_iterations_exceeded), do: :max_iterations
  defp outcome(_reason, tag) when tag in [:timeout, :llm_timeout], do: :timeout
  defp outcome(_reason, :output_cut), do: :length
  defp outcome(_reason, tag) when tag in [:refused, :cancelled], do: tag
  defp outcome(_reason, _tag), do: :failed

  defp kind({:llm_error, %LLM.Error{kind: kind}}, _tag) when kind != nil, do: kind
  defp kind(_reason, tag), do: tag

  defp words(reason, tag) when tag in @ours,
    do: Exception.message(%Error{reason: reason, context: nil})

  defp words({:llm_error, %LLM.Error{status: status} = error}, tag) do
    http = if status, do: " (HTTP #{status})", else: ""
    "the request to the model failed: #{kind({:llm_error, error}, tag)}#{http}"
  end

  defp words(_reason, :llm_error), do: "the request to the model failed"
  defp words(_reason, :llm_exception), do: "the function of the model raised or exited"
  defp words(_reason, :tools_exception), do: "the function of :tools failed"
  defp words(_reason, :exit), do: "the process that ran the turn died; resume it to go on"
  defp words(_reason, :invalid_output), do: "the answer is not of the type that was asked for"
  defp words(_reason, _tag), do: "the turn failed"
end
