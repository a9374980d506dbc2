defmodule AshAgent.Runtime.Overflow do
  @moduledoc false

  # A request that is longer than the model's window is made from a shorter view, if the model can recall the texts that the
  # view leaves out, see `AshAgent.Context.Shortening`. A refused one is made again, after the failure in the iteration's
  # list.

  alias AshAgent.{Context, LLM}

  @doc "Returns whether a request failed because it was too long, and the view may be shortened."
  def overflow?(context, {:llm_error, %LLM.Error{kind: :context_overflow}}),
    do: Context.Recall.recall?(context)

  def overflow?(_context, _reason), do: false

  @doc "Takes the next step, and returns the context, or `:error` if nothing is left to leave out."
  def shorten(context, run) do
    case Context.Shortening.shorten(context, :context_overflow, options(run)) do
      {_same, nil} -> :error
      {shorter, _step} -> {:ok, shorter}
    end
  end

  @doc """
  Takes as many steps as the next request needs to fit into the model's window, and returns the context, the same handle if none.
  """
  def stay_within(context, %{prices: []}), do: context

  def stay_within(context, run) do
    if Context.Recall.recall?(context),
      do: shorten_while_beyond(context, options(run)),
      else: context
  end

  defp shorten_while_beyond(context, opts) do
    case Context.Shortening.shorten(context, :window, opts) do
      {same, nil} -> same
      {shorter, _step} -> shorten_while_beyond(shorter, opts)
    end
  end

  defp options(run), do: [prices: run.prices, model: run.model, summarize: run.summarize]
end
