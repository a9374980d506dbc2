defmodule AshAgent.TestSupport.FirstCount do
  @moduledoc false

  alias AshAgent.Context
  alias AshAgent.Context.Native

  @doc "What a normal scheduler answers in a VM that has never counted by this method, and after it has."
  def lanes(method) do
    context = Context.new("Hello, world!")
    first = for ask <- asks(), do: ask.(context.ref, method)
    counted = Context.Tokens.count_tokens(context, method: method)
    {Enum.uniq(first), counted, Native.context_count_tokens_normal(context.ref, method)}
  end

  defp asks do
    [
      &Native.context_count_tokens_normal/2,
      &Native.context_token_breakdown_normal/2,
      &Native.context_fit_normal(&1, fit(&2), nil)
    ]
  end

  defp fit(method),
    do: %{budget: 10, reserve: 0, keep_first: 0, keep_last: 1, step: 5, method: method}
end
