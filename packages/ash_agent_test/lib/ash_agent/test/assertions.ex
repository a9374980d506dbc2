defmodule AshAgent.Test.Assertions do
  @moduledoc false

  # The checks of `AshAgent.Test` as functions: `{:ok, value}`, or `{:error, message}` for an `ExUnit.AssertionError`.

  alias AshAgent.{ChatContext, Context, Options, Response, Runtime}
  alias AshAgent.Test.{Failure, Pattern, Trajectory}

  @since Options.schema([
           {:since, :pos_integer, [type_doc: "the number of an iteration"],
            "looks only at this iteration and those after it. Defaults to the whole conversation."}
         ])
  @calls Options.schema([
           {:mode, {:in, Trajectory.modes()}, [default: :exactly],
            "how the calls are compared, see below."}
         ]) ++ @since
  @within Options.schema([
            {:calls, :non_neg_integer, "tool calls, also those that were denied."},
            {:iterations, :non_neg_integer, "answers of the model."},
            {:tokens, :non_neg_integer, "tokens of input and output together."},
            {:cost, :non_neg_integer,
             "10^-12 US dollars. Needs `:prices`, except for a result or error of a run that had them: its `cost` counts then, " <>
               "with sub-agents."},
            {:prices, :any, [type_doc: "prices"], "what tokens cost, see `AshAgent.Prices`."}
          ]) ++ @since
  @approved Options.schema([
              {:by, :any,
               "who must have decided: a term, a list of which it must be one, or a regex. Defaults to anybody."}
            ]) ++ @since

  def since_options, do: @since
  def calls_options, do: @calls
  def within_options, do: @within
  def approved_options, do: @approved

  @doc "Compares the calls of a conversation with patterns."
  def check_calls(subject, patterns, opts) do
    opts = if is_atom(opts), do: [mode: opts], else: opts
    opts = Options.validate!(opts, @calls)
    context = context!(subject)
    calls = Trajectory.calls(context, opts[:since])

    case Trajectory.compare(opts[:mode], calls, patterns) do
      :ok ->
        {:ok, calls}

      {:error, words, call} ->
        expected = Enum.map_join(patterns, "\n", &("    " <> &1.words))
        expected = if patterns == [], do: "    no calls", else: expected
        words = "#{words}\n\nexpected #{inspect(opts[:mode])}:\n#{expected}"
        fail(context, words, call)
    end
  end

  @doc "Checks that no call matches any of the patterns."
  def check_not_called(subject, patterns, opts) do
    opts = Options.validate!(opts, @since)
    context = context!(subject)

    for(call <- Trajectory.calls(context, opts[:since]), pattern <- patterns, do: {call, pattern})
    |> Enum.find(fn {call, pattern} -> Pattern.match_call?(pattern, call) end)
    |> case do
      nil ->
        {:ok, context}

      {call, pattern} ->
        words = "expected no call of #{pattern.words}, got #{Trajectory.describe(call)}"
        fail(context, words, call)
    end
  end

  @doc "Compares the answer of a run with a pattern."
  def check_answer(subject, pattern) do
    context = context!(subject)

    with {:ok, answer} <- answer(subject, context) do
      if pattern.matches?.(Pattern.normalize(answer)) do
        {:ok, answer}
      else
        got = inspect(answer, limit: 50, printable_limit: 2_000)
        fail(context, "the answer differs: expected #{pattern.words}, got #{got}", nil)
      end
    else
      :error ->
        words =
          "expected the answer #{pattern.words}, but the conversation does not end with an answer"

        fail(context, words <> reason(subject), nil)
    end
  end

  defp answer(%Runtime.Result{output: output}, _context), do: {:ok, output}
  defp answer(%module{}, _context) when module in [Runtime.Error, Runtime.Paused], do: :error

  defp answer(_context_or_chat, context) do
    case context |> Context.get_iteration_messages(context.current_iteration) |> List.last() do
      %{role: :assistant} = message
      when not is_map_key(message, :tool_calls) and not is_map_key(message, :state) ->
        {:ok, Response.text(message)}

      _other ->
        :error
    end
  end

  defp reason(%Runtime.Error{} = error), do: ": " <> Exception.message(error)
  defp reason(_subject), do: ""

  @doc "Compares what a conversation used with its budgets."
  def check_within(subject, opts) do
    opts = Options.validate!(opts, @within)
    context = context!(subject)
    {prices, opts} = Keyword.pop(opts, :prices)
    {since, budgets} = Keyword.pop(opts, :since)

    used =
      for {name, budget} <- budgets,
          do: {name, measure(name, subject, context, prices, since), budget}

    case Enum.reject(used, fn {_name, used, budget} -> is_integer(used) and used <= budget end) do
      [] -> {:ok, context}
      over -> fail(context, Enum.map_join(over, "\n", &describe_excess/1), nil)
    end
  end

  defp describe_excess({name, used, budget}) when is_integer(used),
    do: "#{name}: expected at most #{budget}, used #{used}"

  defp describe_excess({name, why, budget}), do: "#{name}: expected at most #{budget}, but #{why}"

  defp measure(:calls, _subject, context, _prices, since),
    do: context |> Trajectory.calls(since) |> length()

  defp measure(:iterations, _subject, context, _prices, since),
    do: context |> answers(since) |> length()

  # A budget that nobody can check is not kept.
  defp measure(:tokens, _subject, context, _prices, since) do
    reported =
      for number <- Trajectory.numbers(context, since),
          usage = Context.Tokens.get_iteration_tokens(context, number),
          do: usage.total_tokens

    total = Enum.sum(reported)

    if total == 0 and answers(context, since) != [],
      do: "the models reported no tokens",
      else: total
  end

  defp measure(:cost, %{cost: cost}, _context, nil, nil) when is_integer(cost), do: cost
  defp measure(:cost, _subject, _context, nil, _since), do: "there are no :prices"

  defp measure(:cost, _subject, context, prices, since) do
    opts = if since, do: [since: since], else: []

    case Context.Audit.fetch_cost(context, [prices: prices] ++ opts) do
      {:ok, cost} -> cost
      {:error, error} -> Exception.message(error)
    end
  end

  defp answers(context, since) do
    for number <- Trajectory.numbers(context, since),
        %{role: :assistant} = message <- Context.get_iteration_messages(context, number),
        do: message
  end

  # A call with one of these is running or has run.
  @run [:started, :waiting, :ok, :error, :unknown]

  @doc "Checks that no call of a tool ran without an approval."
  def check_approved(subject, name, opts) do
    opts = Options.validate!(opts, @approved)
    context = context!(subject)

    own? = &(&1.by == :client and &1.name == to_string(name))
    calls = context |> Trajectory.calls(opts[:since]) |> Enum.filter(own?)

    Enum.find_value(calls, {:ok, calls}, fn call ->
      # An id may come again in a later turn, and what is asked for is the newest call with it.
      then = Context.rewind(context, to: elem(call.place, 0))
      decision = Context.Calls.tool_call_decision(then, call.id)

      ran? =
        Context.Calls.tool_call_status(then, call.id) in @run or
          Context.Calls.tool_call_times(then, call.id) != nil

      if ran? and not approved?(decision, opts) do
        words = "#{Trajectory.describe(call)} ran, but #{describe_decision(decision, opts)}"
        fail(context, words, call)
      end
    end)
  end

  defp approved?(%{decision: :approved, by: by}, opts) do
    case Keyword.fetch(opts, :by) do
      :error -> true
      {:ok, %Regex{} = regex} -> Regex.match?(regex, to_string(by))
      {:ok, names} when is_list(names) -> by in names
      {:ok, name} -> by == name
    end
  end

  defp approved?(_decision, _opts), do: false

  defp describe_decision(nil, _opts), do: "nobody had approved it"

  defp describe_decision(%{decision: :approved, by: by}, opts),
    do: "it was approved by #{inspect(by)}, not by #{inspect(opts[:by])}"

  defp describe_decision(%{decision: decision, by: by}, _opts),
    do: "it was #{decision} by #{inspect(by)}"

  @doc "Returns the conversation of what an assertion is about."
  def context!(%Context{} = context), do: context
  def context!(%ChatContext{} = chat), do: ChatContext.active(chat).context
  def context!(%{context: %Context{} = context}), do: context
  # The record of a conversation in Ash, as an action that ran a turn returns it.
  def context!(%{__metadata__: %{run: ended}}), do: context!(ended)
  def context!({_tag, %{context: %Context{}} = ended}), do: context!(ended)

  def context!(other) do
    raise ArgumentError,
          "expected a context, a chat, or a result, error or pause of a run, got: #{Options.kind(other)}"
  end

  defp fail(context, words, call),
    do: {:error, Failure.message(context, words, call && call.place)}
end
