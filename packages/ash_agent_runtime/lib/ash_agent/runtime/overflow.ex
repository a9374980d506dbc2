defmodule AshAgent.Runtime.Overflow do
  @moduledoc false

  # A request that is longer than the model's window is made again from a shorter view, if the model can recall what the view
  # leaves out. Each step leaves the log as it is, stands in the context's view, and follows the failure that is its cause in
  # the iteration's list of failures. `Context.expand/2` undoes the last one.

  alias AshAgent.{Context, LLM}

  @index 0.03

  @doc "Returns whether a request failed because it was too long, and the view may be shortened."
  def overflow?(context, {:llm_error, %LLM.Error{kind: :context_overflow}}),
    do: Context.recall?(context)

  def overflow?(_context, _reason), do: false

  @doc """
  Takes the next step: clears all results but three, all but one, or hides everything before the turn with an index of it.

  Returns `{:ok, context}`, or `:error` if nothing is left to leave out.
  """
  def shorten(context) do
    steps = [&clear(&1, 3), &clear(&1, 1), &hide/1]
    tokens = Context.count_tokens(context, method: :estimate)

    Enum.find_value(steps, :error, fn step ->
      next = step.(context)
      if Context.count_tokens(next, method: :estimate) < tokens, do: {:ok, next}
    end)
  end

  # The results of the view that are cleared already stay so.
  defp clear(context, keep) do
    next = Context.clear_tool_results(context, keep: keep)
    if place(next) > place(context), do: next, else: context
  end

  defp place(context) do
    case Context.view(context).cleared do
      nil -> {0, 0}
      %{iteration: iteration, calls: calls} -> {iteration, calls}
    end
  end

  defp hide(context) do
    {:ok, next, _info} =
      context |> Context.put_recall(true, index: @index) |> Context.compact(:drop)

    next
  end
end
