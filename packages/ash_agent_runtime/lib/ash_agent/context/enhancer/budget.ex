defmodule AshAgent.Context.Enhancer.Budget do
  alias AshAgent.Options

  @fit AshAgent.Context.Options.schema(:fit)
  @rent AshAgent.Context.Options.schema(:clear_when_due)

  @schema Options.schema([
            {:budget, {:or, [:pos_integer, nil]}, [type_doc: "a positive integer"],
             "tokens that the view and the answer may take together. Required unless there is `:clear`; then by default no limit."},
            {:clear, {:in, [:rent, nil]}, [type_doc: "`:rent`"],
             "`:rent` clears old tool results, within the budget as well, when it is free or when carrying them has cost as " <>
               "much as clearing would, see `AshAgent.Context.Rent`. By default they are cleared only beyond the threshold."},
            {:keep, :non_neg_integer, [default: 3],
             "how many of the last tool results stay with `clear: :rent`."},
            {:threshold, {:custom, &__MODULE__.share?/1},
             [type_doc: "a number greater than 0 and at most 1", default: 1.0],
             "the share of the budget, less the reserve, above which the enhancer acts."},
            {:clear_results, {:or, [:non_neg_integer, nil]}, [default: nil],
             "how many of the last tool results stay when older ones are cleared. Cleared results stay cleared. With " <>
               "`nil`, none is cleared."},
            {:strategy, {:custom, &__MODULE__.strategy?/1},
             [type_doc: "`:fit`, `:drop` or `{:summarize, fun}`", default: :fit],
             """
             how to treat old iterations:
               * `:fit` hides the oldest, as many as needed to come down to the threshold or, where that is impossible, to \
             the budget; see `AshAgent.Context.View.fit/3`
               * `:drop` hides all before the current turn, except for `:keep_first` and `:keep_last`
               * `{:summarize, fun}` shows a summary instead of them, see `AshAgent.Context.View.compact/3`

             If the view still exceeds the budget, more is hidden, as with `:fit`.
             """},
            {:method, Keyword.put(@fit[:method], :default, :estimate)}
          ]) ++
            Keyword.take(@fit, [:reserve, :keep_first, :keep_last, :step]) ++
            Keyword.take(@rent, [:share, :prices, :model, :window])

  @moduledoc """
  An enhancer that keeps the view within a number of tokens.

      iex> alias AshAgent.Context
      iex> turn = fn number, context -> context |> Context.add_assistant_message("ok") |> Context.add_user_message("\#{number}") end
      iex> context = Enum.reduce(1..4, Context.new("0"), turn)
      iex> budget = {Context.Enhancer.Budget, budget: 16, step: 1, method: :o200k_base}
      iex> {:ok, context, _report} = Context.Enhancer.run(context, [budget])
      iex> Context.to_messages(context)
      [%{role: :user, content: "3"}, %{role: :assistant, content: "ok"}, %{role: :user, content: "4"}]

  Nothing happens as long as the view is within the threshold. Beyond it, old tool results are cleared if `:clear_results` says
  so, and if that is not enough, the strategy is applied. Afterwards the view is within the budget, or the enhancer fails with an
  `AshAgent.Context.Error` whose reason is `{:cannot_fit, least}`.

  Put it last: it does not count text that later enhancers add.

  `{Budget, clear: :rent}` needs no budget: it makes long runs cheaper, whatever the model's window. In the option `:view` of
  `AshAgent.Runtime.run/2` it uses the prices of the run.

  ## Options

  #{Options.docs(@schema)}

  `:auto` is more exact, but only if you keep the enhanced context and record token reports on it, as the option `:view` of
  `AshAgent.Runtime.run/2` does. If you enhance each request separately, reports count less than the context holds, and `:auto`
  underestimates it. Neither estimates nor encodings count the tools offered to the model, so keep a `:reserve` for them too.

  ## Summaries

  The summariser is called when there is something new to summarise, with the messages of the view: masked, if
  `AshAgent.Context.Enhancer.Redact` ran before. Its summary is checked, and missing facts are appended, see
  `AshAgent.Context.View.compact/3`. If it fails, or its summary is larger than half of the iterations it would replace, a
  warning is logged (without any of the text), results are cleared, and as many of the oldest iterations as necessary are
  hidden instead.

  If you keep the enhanced context, a summary is made once. If you enhance each request from a context without the
  summary, it is made each time.
  """

  @behaviour AshAgent.Context.Enhancer

  require Logger

  alias AshAgent.Context
  alias AshAgent.Runtime.Events

  @impl true
  def prepare(opts) do
    opts = Options.validate!(opts, @schema)

    unless opts[:budget] || opts[:clear],
      do: AshAgent.Caller.refuse!("expected the option :budget, or clear: :rent")

    unless opts[:budget] == nil or opts[:reserve] < opts[:budget],
      do: AshAgent.Caller.refuse!("expected :reserve to be less than :budget, #{opts[:budget]}")

    opts
  end

  @doc false
  def share?(share), do: is_number(share) and share > 0 and share <= 1

  @doc false
  def strategy?({:summarize, fun}), do: is_function(fun, 1)
  def strategy?(strategy), do: strategy in [:fit, :drop]

  @impl true
  def enhance(%Context{} = context, needs, opts) do
    context = if opts[:clear] == :rent, do: clear_when_due(context, needs, opts), else: context
    if opts[:budget], do: keep_within_budget(context, opts), else: {:ok, context}
  end

  # The run gives the prices of its model, unless the application has.
  defp clear_when_due(context, needs, opts) do
    opts =
      if opts[:prices] == [], do: Keyword.put(opts, :prices, needs[:prices] || []), else: opts

    opts = Keyword.put(opts, :model, opts[:model] || needs[:model])
    rent = Keyword.take(opts, [:keep, :share, :prices, :model, :window])
    # A request that is made again has its own time.
    rent = if needs[:at], do: [at: needs[:at]] ++ rent, else: rent
    {context, _why} = Context.Rent.clear_when_due(context, rent)
    context
  end

  defp keep_within_budget(context, opts) do
    limit = opts[:budget] - opts[:reserve]
    threshold = floor(limit * opts[:threshold])

    with {:beyond, context} <- within(context, threshold, opts),
         {:beyond, context} <- context |> clear(opts[:clear_results]) |> within(threshold, opts),
         do: trim(context, opts[:strategy], threshold, limit, opts)
  end

  defp within(context, threshold, opts) do
    if Context.Tokens.count_tokens(context, method: opts[:method]) > threshold,
      do: {:beyond, context},
      else: {:ok, context}
  end

  # With iterations hidden, the last results of the view reach further back: a cleared result is not shown again.
  defp clear(context, nil), do: context

  defp clear(context, keep) do
    cleared = Context.View.view(context).cleared
    same = if cleared, do: [placeholder: cleared.placeholder], else: []
    next = Context.View.clear_tool_results(context, [keep: keep, by_policy: true] ++ same)
    if place(Context.View.view(next).cleared) > place(cleared), do: next, else: context
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
         {:ok, context, _hidden} <- Context.View.fit(context, limit, how),
         do: {:ok, context}
  end

  defp compact(context, strategy, opts) do
    case Context.View.compact(context, strategy, Keyword.take(opts, [:keep_first, :keep_last])) do
      {:ok, compacted, %{reason: nil}} -> compacted
      {:ok, cleared, %{strategy: :clear, reason: reason}} -> warn_unsummarized(cleared, reason)
      {:ok, _dropped, %{reason: reason}} -> warn_unsummarized(context, reason)
    end
  end

  defp warn_unsummarized(context, reason) do
    Logger.warning(
      "no summary of the older iterations (#{inspect(Events.label(:exit, reason))}): results are cleared instead, and the oldest iterations hidden, as many as needed"
    )

    context
  end
end
