defmodule AshAgent.Runtime.Bounds do
  @moduledoc false

  # The limits of a run together with all its sub-agents: they share its counters.

  import Bitwise

  alias AshAgent.{Context, LLM, Prices}
  alias AshAgent.Runtime.TypedAnswer

  @calls 1
  @tokens 2
  @sub_agents 3
  @cost 4
  @unreported 5

  @max_calls 200
  @max_total_tokens 10_000_000
  @max_sub_agents 50

  # A model may report any number. This one is so large that the sum exceeds every limit, and fits into 64 bits.
  @most_tokens 1 <<< 40

  # The same for 10^-12 US dollars.
  @most_cost 1 <<< 60

  @enforce_keys [:counters, :calls, :tokens, :sub_agents, :cost, :prices]
  defstruct @enforce_keys

  @doc "Returns the bounds around a run that is within no other one."
  def outermost, do: %{depth: 0, permissions: [], bounds: nil}

  @doc "Counters at zero, with the limits of a run's options."
  def new(opts) do
    %__MODULE__{
      counters: :atomics.new(5, signed: true),
      # A greater :max_iterations asks for longer turns.
      calls: limit(opts, :max_calls),
      tokens: limit(opts, :max_total_tokens),
      sub_agents: opts[:max_sub_agents] || @max_sub_agents,
      cost: limit(opts, :max_cost),
      prices: terms(opts)
    }
  end

  defp limit(opts, :max_calls), do: opts[:max_calls] || max(@max_calls, opts[:max_iterations])
  defp limit(opts, :max_total_tokens), do: opts[:max_total_tokens] || @max_total_tokens
  defp limit(opts, :max_cost), do: opts[:max_cost] || :infinity
  defp limit(opts, :max_iterations), do: opts[:max_iterations]

  @doc "Returns the options of a run with the limits of its turn, of which none allows more than they do. What is no limit allows least."
  def narrow(opts, limits) do
    Enum.reduce(~w(max_calls max_iterations max_total_tokens max_cost)a, opts, fn name, opts ->
      case limits[to_string(name)] do
        nil ->
          opts

        most when is_integer(most) ->
          Keyword.put(opts, name, min(limit(opts, name), max(most, 1)))

        _unknown ->
          Keyword.put(opts, name, 1)
      end
    end)
  end

  @doc """
  Returns whether a model may be asked, of which `nil` is one that tells no name: if costs are bounded, it needs a price.

  In the outermost run, the costs of the turn's earlier runs count as well.
  """
  def begin(%__MODULE__{cost: :infinity}, _context, _model, _outermost?), do: :ok

  def begin(%__MODULE__{} = bounds, context, model, outermost?) do
    with true <- Prices.known?(bounds.prices, model),
         {:ok, cost} <- if(outermost?, do: turn(bounds, context, model), else: {:ok, 0}) do
      add_cost(bounds, cost)
    else
      false -> {:error, {:no_price, model}}
      {:error, %Context.Error{reason: reason}} -> {:error, reason}
    end
  end

  defp turn(bounds, context, model) do
    first = TypedAnswer.turn_start(context)

    with {:ok, own} <- Prices.sum_spending(context, bounds.prices, model, first) do
      children =
        for number <- first..context.current_iteration,
            iteration = Context.get_iteration(context, number),
            noted <- [iteration.metadata["sub_agents"] | list_noted(iteration.messages)],
            is_map(noted),
            {_id, %{cost: cost}} when is_integer(cost) <- noted,
            do: cost

      {:ok, own + Enum.sum(children)}
    end
  end

  @doc "Returns whether a turn that nobody asked for may begin: neither has it cost its limit, nor would its first request be beyond it."
  def begin_turn(%{bounds: bounds} = run) do
    if :atomics.get(bounds.counters, @cost) >= bounds.cost,
      do: {:error, {:max_cost_exceeded, bounds.cost}},
      else: afford(run)
  end

  # With the results, or with the iteration if a drained run left none.
  defp list_noted(messages),
    do: for(%{metadata: %{sub_agents: noted}} <- messages, do: noted)

  @doc "Counts a call of a model, before it is made."
  def ask(%__MODULE__{} = bounds) do
    cond do
      :atomics.get(bounds.counters, @tokens) >= bounds.tokens ->
        {:error, {:max_total_tokens_exceeded, bounds.tokens}}

      :atomics.get(bounds.counters, @cost) >= bounds.cost ->
        {:error, {:max_cost_exceeded, bounds.cost}}

      bounds.cost != :infinity and :atomics.get(bounds.counters, @unreported) > 0 ->
        {:error, :unknown_cost}

      :atomics.add_get(bounds.counters, @calls, 1) > bounds.calls ->
        {:error, {:max_calls_exceeded, bounds.calls}}

      true ->
        :ok
    end
  end

  @doc """
  Returns whether the next request of a run may be sent: with a bound on costs, it and its longest answer must not cost more than what is
  left. A model whose requests nobody here encodes is forecast only in a run that shapes its view, by its tokens.
  """
  def afford(%{bounds: %{cost: :infinity}}), do: :ok

  def afford(%{bounds: bounds} = run) do
    with {provider, opts} <- LLM.encoding(run.llm) || (run.view && {:openai_chat, []}),
         opts = Keyword.merge([model: run.model || "unnamed", prices: run.prices], opts),
         {:ok, %{cost: least} = forecast} when least != nil <-
           Context.Audit.forecast(run.context, provider, opts),
         cost = Map.get(forecast, :most_cost, least),
         true <- :atomics.get(bounds.counters, @cost) + cost > bounds.cost do
      {:error, {:max_cost_exceeded, bounds.cost}}
    else
      _affordable_or_unknown -> :ok
    end
  end

  @doc """
  Counts the tokens of an answer, those that the context has more than before, and what they cost.

  Returns the cost, or `nil` if it is not known.
  """
  def report(%__MODULE__{counters: counters} = bounds, tokens, before, context, model) do
    :atomics.add(counters, @tokens, tokens |> max(0) |> min(@most_tokens))
    cost = compute_cost(bounds.prices, before, context, model)
    if cost, do: add_cost(bounds, cost)
    cost
  end

  @doc "Returns what an answer cost in a run with these options: what the context has of more than `before`; `nil` if it is not known."
  def cost(opts, before, context),
    do: compute_cost(terms(opts), before, context, LLM.model_name(opts[:llm]))

  defp terms(opts), do: if(opts[:prices] != [], do: Prices.terms(opts[:prices]))

  defp compute_cost(nil, _before, _context, _model), do: nil

  defp compute_cost(prices, before, context, model) do
    since = before.current_iteration

    with {:ok, whole} <- Prices.sum_spending(context, prices, model, since),
         {:ok, spent} <- Prices.sum_spending(before, prices, model, since) do
      whole - spent
    else
      {:error, _no_price} -> nil
    end
  end

  defp add_cost(bounds, cost), do: :atomics.add(bounds.counters, @cost, min(cost, @most_cost))

  @doc "Notes that what an answer cost is not known."
  def note_unreported(%__MODULE__{counters: counters}), do: :atomics.put(counters, @unreported, 1)

  @doc "Counts a sub-agent, before it starts."
  def start_sub_agent(%__MODULE__{} = bounds) do
    if :atomics.add_get(bounds.counters, @sub_agents, 1) > bounds.sub_agents,
      do: {:error, {:max_sub_agents_exceeded, bounds.sub_agents}},
      else: :ok
  end
end
