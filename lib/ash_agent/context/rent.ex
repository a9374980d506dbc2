defmodule AshAgent.Context.Rent do
  @moduledoc """
  Clearing old tool results when it pays off.

  Most of an agent's tokens are old tool results. Keeping them means reading them from the provider's cache with each
  request. Clearing them is not free either: the request changes from the first of them on, so everything after it
  is written to the cache again, at a higher price. So clearing before every request makes runs more expensive, not cheaper.

  `clear_when_due/2` pays rent until buying is cheaper. The rent is the price of reading what could have been cleared, for each
  request since the last clearing. The price of clearing is the difference between writing and reading a token, times the tokens after the
  first of the old results that stay. When the rent reaches it, all old results are cleared at once, and the rent starts again at zero.
  In a conversation in which something was cleared before, less is enough: half of the price, or what of it the newest results
  alone cost, if that is less, but at least a quarter. The tokens before them are written again only once, whenever results are cleared. With the option
  `:share`, it is this share of the price each time.

  It clears at once when that costs nothing:

    * the provider's cache is cold. Anthropic and Bedrock keep it for five minutes, or an hour where that was asked for; of other
      providers the time is not known
    * the next request begins differently anyway: with other tools, another model, another form of the answer, or other hidden
      iterations or blocks than the last one

  It also clears when the request would be longer than the model's window.

  ## How far from the best it can be

  No forecast is needed. Call the time between two clearings a phase, R its rent, P the price of the clearing at its end, and x the share
  of it that had to be paid: 1 at first, and 1/4 to 1/2 later. The rule pays R + P, and cleared when R had reached x * P. Whoever knows the future and
  clears the same results either does not clear in this phase, and pays at least R, since at its beginning no more could be cleared; or
  clears in it, and pays at least the price at that time, if g is how many times as large the largest price in the phase is as the
  smallest. The rent of the last request aside, the rule so pays at most 1 + 1/x times as much in the first case, which is 2 at first and never more
  than 5, and (1 + x) * g times as much in the second. That is about the costs that depend on clearing; tokens that are sent either
  way cost the same.

  The guide [How far from the best can clearing be?](rent.html) has the proof, and [My bill doubled](costs.html) what recorded runs cost.

  Compared with sending everything, the first clearing costs at most the rent that was paid before it, which sending everything pays as well.
  So a run that ends right after a clearing costs more than one that never clears. `bench/policies.exs` measures both on recorded
  runs.
  """

  use AshAgent.Arguments

  alias AshAgent.Context
  alias AshAgent.Context.{Native, Options, Reply}

  @typedoc """
  Why results were cleared: the rent is paid, the cache is cold, the request begins otherwise anyway, or it would be too long.
  """
  @type due :: :paid | :cold | :broken | :window

  @doc """
  Clears all but the last tool results of the view if that is due, and returns the context and the reason, or `nil` if it was not due.

  The rent is computed from the answers in the log, one for each request, so calling it twice changes nothing, and neither does a failed
  request. Tokens are estimated. Cleared results stay cleared. Costs O(n) in what follows the first result that is not cleared.

  ## Options

  #{Options.docs(:clear_when_due)}

  ## Examples

      iex> alias AshAgent.Context
      iex> read = fn number, context ->
      ...>   context
      ...>   |> Context.add_assistant_message(nil, [%{id: "call_\#{number}", name: :read}])
      ...>   |> Context.add_tool_results([{"call_\#{number}", {:ok, String.duplicate("text ", 1_000)}}])
      ...> end
      iex> context = Enum.reduce(1..3, Context.new("Read all."), read)
      iex> {_same, nil} = Context.Rent.clear_when_due(context, keep: 1)
      iex> {shorter, :paid} = Enum.reduce(4..8, context, read) |> Context.Rent.clear_when_due(keep: 1)
      iex> Context.View.view(shorter).cleared
      %{iteration: 7, calls: 1, placeholder: "[Old tool result cleared]"}
  """
  @doc since: "0.1.0"
  @spec clear_when_due(Context.t(), keyword()) :: {Context.t(), due() | nil}
  def clear_when_due(%Context{ref: ref} = context, opts \\ []) do
    opts = Options.validate!(opts, :clear_when_due)
    rent = Options.rent(opts, opts[:share] && round(opts[:share] * 1_000))

    case Native.context_clear_when_due(ref, rent, opts[:at]) do
      {:ok, {nil, nil}} -> {context, nil}
      {:ok, {next, due}} -> {Reply.put!({:ok, next}, context), due}
      {:error, _reason} = error -> Reply.put!(error, context)
    end
  end
end
