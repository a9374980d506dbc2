defmodule AshAgent.Runtime.Shape do
  @moduledoc false

  # Shapes the view of a run's context before each request. The view stays with the context, so that it grows with the
  # conversation and is stored with it.

  alias AshAgent.LLM
  alias AshAgent.Context.Enhancer
  alias AshAgent.Runtime.Recall

  @auto [{Enhancer.Budget, clear: :rent}]

  @doc "Raises `ArgumentError` for an option `:view` that holds anything but enhancers, or wrong options."
  def check!(view) do
    {enhancers, opts} = split(view)
    Enhancer.check!(enhancers, opts)
  end

  @doc "Adds the tool that reads what `view: :auto` clears, unless there is one of its name."
  def add_tool(tools, :auto) do
    recall = Recall.tool()
    if Enum.any?(tools, &(&1.name == recall.name)), do: tools, else: tools ++ [recall]
  end

  def add_tool(tools, _view), do: tools

  @doc "The shape that the options of a run ask for. `nil` leaves the view as it is."
  def new(opts) do
    case split(opts[:view]) do
      {[], _opts} ->
        nil

      {enhancers, own} ->
        {enhancers, Keyword.update(own, :needs, take_known(opts), &add(&1, opts))}
    end
  end

  @doc "Shapes a context. `{:ok, context}` has the same handle if nothing changed."
  def apply(nil, context), do: {:ok, context}

  def apply({enhancers, opts}, context) do
    case Enhancer.run(context, enhancers, opts) do
      {:ok, context, _report} -> {:ok, context}
      {:error, error} -> {:error, {:view_error, error}}
    end
  end

  defp split(nil), do: {[], []}
  defp split(:auto), do: {@auto, []}
  defp split({enhancers, opts}), do: {elem(split(enhancers), 0), opts}
  defp split(enhancers), do: {enhancers, []}

  # Enhancers that use prices get those of the run.
  defp take_known(opts) do
    prices = if opts[:prices] in [nil, []], do: [], else: [prices: opts[:prices]]
    [model: LLM.model_name(opts[:llm])] ++ prices
  end

  defp add(needs, opts) when is_list(needs), do: take_known(opts) ++ needs
  defp add(needs, opts), do: take_known(opts) ++ Enum.to_list(needs)
end
