defmodule AshAgent.Context.Enhancer.Budget do
  @moduledoc """
  An enhancer that keeps the view within a number of tokens.

      iex> alias AshAgent.Context
      iex> turn = fn number, context -> context |> Context.add_assistant_message("ok") |> Context.add_user_message("\#{number}") end
      iex> context = Enum.reduce(1..4, Context.new("0"), turn)
      iex> budget = {Context.Enhancer.Budget, budget: 16, step: 1, method: :o200k_base}
      iex> {:ok, context, _report} = Context.enhance(context, [budget])
      iex> Context.to_messages(context)
      [%{role: :user, content: "3"}, %{role: :assistant, content: "ok"}, %{role: :user, content: "4"}]

  Nothing happens while the view takes no more than the threshold. Beyond it, old tool results are blanked, if
  `:clear_results` says so; if that is not enough, the strategy is used. In the end the view is within the budget, or the
  enhancer fails with an `AshAgent.Context.Error` of the reason `{:cannot_fit, least}`.

  Put it last: what enhancers behind it add is not counted.

  ## Options

    * `:budget` - tokens that the view and the answer may take. Required.
    * `:reserve` - tokens of it to keep free for the answer. Defaults to `0`.
    * `:threshold` - the share of the budget without the reserve from which something is done, more than 0 and at most 1.
      Defaults to `1.0`.
    * `:clear_results` - how many of the last tool results stay when old ones are blanked. What is blanked stays so.
      Defaults to `nil`, none is blanked.
    * `:strategy` - what is done with old iterations:
      * `:fit` - the oldest are hidden, as many as needed to come down to the threshold, or where that cannot be, to the
        budget; see `AshAgent.Context.fit/3`. The default.
      * `:drop` - all in front of the current turn are hidden, but for `:keep_first` and `:keep_last`
      * `{:summarize, fun}` - a summary is put in their place, see `AshAgent.Context.compact/3`

      What is then still beyond the budget is brought down to it as with `:fit`.
    * `:keep_first` - iterations at the beginning that stay. Defaults to `0`.
    * `:keep_last` - iterations at the end that stay. Defaults to `1`.
    * `:step` - see `AshAgent.Context.fit/3`. Defaults to `5`.
    * `:method` - how tokens are counted, see `t:AshAgent.Context.token_method/0`. Defaults to `:estimate`.

  `:auto` is more exact, but right only where the context that this made is the one that is kept and gets the reports of
  tokens. Where each request is enhanced anew, the reports are about less than the context holds, and `:auto` would take it
  for smaller than it is. Estimates and encodings do not count the tools that are offered to the model: keep a `:reserve` for
  them, too.

  ## Summaries

  The summariser is called when something new is to be summarised, with the messages as the view has them: masked, when
  `AshAgent.Context.Enhancer.Redact` came before. When it fails, or what it gives is longer than what it stands for, a warning
  is logged (without any text), and the oldest iterations are hidden instead, as many as needed.

  A summary is made once when the context with it is kept. Where each request is enhanced anew from a context without it, it
  is made each time.
  """

  @behaviour AshAgent.Context.Enhancer

  require Logger

  alias AshAgent.Context
  alias AshAgent.Runtime.Options

  @options [
    :budget,
    reserve: 0,
    threshold: 1.0,
    clear_results: nil,
    strategy: :fit,
    keep_first: 0,
    keep_last: 1,
    step: 5,
    method: :estimate
  ]

  @impl true
  def prepare(opts) do
    opts = Options.validate!(opts, @options)
    Enum.each([:budget | Keyword.keys(opts)], &check!(&1, opts[&1]))

    unless opts[:reserve] < opts[:budget],
      do: raise(ArgumentError, "expected :reserve to be less than :budget, #{opts[:budget]}")

    opts
  end

  defp check!(option, value) do
    unless valid?(option, value),
      do: raise(ArgumentError, "invalid value for option #{inspect(option)}: #{inspect(value)}")
  end

  defp valid?(option, value) when option in [:budget, :step], do: is_integer(value) and value > 0
  defp valid?(:threshold, value), do: is_number(value) and value > 0 and value <= 1
  defp valid?(:clear_results, nil), do: true
  defp valid?(:strategy, {:summarize, fun}), do: is_function(fun, 1)
  defp valid?(:strategy, value), do: value in [:fit, :drop]
  defp valid?(:method, value), do: value in [:auto, :estimate, :o200k_base, :cl100k_base]
  defp valid?(_count, value), do: is_integer(value) and value >= 0

  @impl true
  def enhance(%Context{} = context, _needs, opts) do
    limit = opts[:budget] - opts[:reserve]
    threshold = floor(limit * opts[:threshold])

    with {:beyond, context} <- within(context, threshold, opts),
         {:beyond, context} <- context |> clear(opts[:clear_results]) |> within(threshold, opts),
         do: trim(context, opts[:strategy], threshold, limit, opts)
  end

  defp within(context, threshold, opts) do
    if Context.count_tokens(context, method: opts[:method]) > threshold,
      do: {:beyond, context},
      else: {:ok, context}
  end

  # With iterations hidden, the last results of the view reach further back: what is blanked is not shown again.
  defp clear(context, nil), do: context

  defp clear(context, keep) do
    cleared = Context.view(context).cleared
    same = if cleared, do: [placeholder: cleared.placeholder], else: []
    next = Context.clear_tool_results(context, [keep: keep] ++ same)
    if place(Context.view(next).cleared) > place(cleared), do: next, else: context
  end

  defp place(nil), do: {0, 0}
  defp place(%{iteration: iteration, calls: calls}), do: {iteration, calls}

  defp trim(context, :fit, threshold, limit, opts) do
    with {:error, _cannot_fit} <- fit(context, threshold, opts), do: fit(context, limit, opts)
  end

  defp trim(context, strategy, _threshold, limit, opts),
    do: context |> compact(strategy, opts) |> fit(limit, opts)

  defp fit(context, limit, opts) do
    how = Keyword.take(opts, [:keep_first, :keep_last, :step, :method])

    with {:beyond, context} <- within(context, limit, opts),
         {:ok, context, _hidden} <- Context.fit(context, limit, how),
         do: {:ok, context}
  end

  defp compact(context, strategy, opts) do
    case Context.compact(context, if_new(strategy), Keyword.take(opts, [:keep_first, :keep_last])) do
      {:ok, compacted, %{reason: nil}} -> compacted
      {:ok, _dropped, %{reason: :nothing_new}} -> context
      {:ok, _dropped, %{reason: reason}} -> unsummarized(context, reason)
      {:error, error} -> unsummarized(context, error.reason)
    end
  end

  # One summary and nothing else: it would be summarised again in each run.
  defp if_new(:drop), do: :drop

  defp if_new({:summarize, fun}) do
    {:summarize,
     fn
       [%{metadata: %{summary: %{first: _, last: _}}}] -> {:error, :nothing_new}
       messages -> fun.(messages)
     end}
  end

  defp unsummarized(context, reason) do
    Logger.warning(
      "no summary of the older iterations (#{inspect(label(reason))}): the oldest are hidden instead, as many as needed"
    )

    context
  end

  # What happened, without words that could be a user's.
  defp label(%module{}), do: module
  defp label(reason) when is_tuple(reason) and tuple_size(reason) > 0, do: label(elem(reason, 0))
  defp label(reason) when is_atom(reason), do: reason
  defp label(_reason), do: :other
end
