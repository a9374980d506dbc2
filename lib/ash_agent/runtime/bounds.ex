defmodule AshAgent.Runtime.Bounds do
  @moduledoc false

  # The limits of a run together with all its sub-agents: they share its counters.

  import Bitwise

  alias AshAgent.Context

  @calls 1
  @tokens 2
  @sub_agents 3

  @max_calls 200
  @max_total_tokens 10_000_000
  @max_sub_agents 50

  # A model may report any number. So large that the sum exceeds every limit, and fits into 64 bits.
  @most_tokens 1 <<< 40

  @enforce_keys [:counters, :calls, :tokens, :sub_agents]
  defstruct [:counters, :calls, :tokens, :sub_agents]

  @doc "Counters at zero, with the limits of a run's options."
  def new(opts) do
    %__MODULE__{
      counters: :atomics.new(3, signed: true),
      # A greater :max_iterations asks for longer turns.
      calls: opts[:max_calls] || max(@max_calls, opts[:max_iterations]),
      tokens: opts[:max_total_tokens] || @max_total_tokens,
      sub_agents: opts[:max_sub_agents] || @max_sub_agents
    }
  end

  @doc "Counts a call of a model, before it is made."
  def ask(%__MODULE__{} = bounds) do
    cond do
      :atomics.get(bounds.counters, @tokens) >= bounds.tokens ->
        {:error, {:max_total_tokens_exceeded, bounds.tokens}}

      :atomics.add_get(bounds.counters, @calls, 1) > bounds.calls ->
        {:error, {:max_calls_exceeded, bounds.calls}}

      true ->
        :ok
    end
  end

  @doc "Counts the tokens of an answer: those that the context has more than before."
  def report(%__MODULE__{counters: counters}, before, context) do
    tokens = total(context) - total(before)
    :atomics.add(counters, @tokens, tokens |> max(0) |> min(@most_tokens))
  end

  defp total(context), do: Context.get_cumulative_tokens(context).total_tokens

  @doc "Counts a sub-agent, before it starts."
  def start_sub_agent(%__MODULE__{} = bounds) do
    if :atomics.add_get(bounds.counters, @sub_agents, 1) > bounds.sub_agents,
      do: {:error, {:max_sub_agents_exceeded, bounds.sub_agents}},
      else: :ok
  end
end
