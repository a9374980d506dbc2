defmodule AshAgent.Runtime.Bounds do
  @moduledoc false

  # What a run may use up, all its sub-agents together: they share its counters.

  import Bitwise

  alias AshAgent.Context

  @options [:max_calls, :max_total_tokens, :max_sub_agents]

  @calls 1
  @tokens 2
  @sub_agents 3

  @max_calls 200
  @max_total_tokens 10_000_000
  @max_sub_agents 50

  # A model may report any number. So many that the sum is beyond all bounds, and within 64 bits.
  @most_tokens 1 <<< 40

  @enforce_keys [:counters, :calls, :tokens, :sub_agents]
  defstruct [:counters, :calls, :tokens, :sub_agents]

  @doc "The options that `new/1` takes, among others."
  def options, do: @options

  @doc "Counters at zero. Raises `ArgumentError` for wrong options."
  def new(opts) do
    # Whoever wants long turns has said so already.
    calls = opts[:max_calls] || max(@max_calls, opts[:max_iterations])

    %__MODULE__{
      counters: :atomics.new(3, signed: true),
      calls: limit!(calls, :max_calls, 1),
      tokens: limit!(opts[:max_total_tokens] || @max_total_tokens, :max_total_tokens, 1),
      sub_agents: limit!(opts[:max_sub_agents] || @max_sub_agents, :max_sub_agents, 0)
    }
  end

  defp limit!(:infinity, _option, _least), do: :infinity
  defp limit!(number, _option, least) when is_integer(number) and number >= least, do: number

  defp limit!(other, option, least) do
    raise ArgumentError,
          "expected #{inspect(option)} to be #{least} or more, or :infinity, got: #{inspect(other)}"
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

  @doc "Counts the tokens that came with an answer: what the context has more of them than before."
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
