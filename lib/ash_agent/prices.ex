defmodule AshAgent.Prices do
  @moduledoc """
  Prices of models, for `:prices` of `AshAgent.Runtime.run/2`, `AshAgent.Context.fetch_cost/2` and `AshAgent.Trace`.

  They are a list of maps. All amounts are integers of 10^-12 US dollars, so that sums are exact: 3 dollars for a million tokens
  are `3_000_000` for one.

      [
        %{model: "claude-sonnet-4-5", input: 3_000_000, cache_read: 300_000, cache_write: 3_750_000, output: 15_000_000},
        %{model: "gpt-4o", input: 2_500_000, cache_read: 1_250_000, output: 10_000_000, valid_from: ~D[2024-10-01]}
      ]

    * `:model` - the model's name, or `:any` for each model that has no price of its own. Required
    * `:input`, `:output` - the price of a token of the request and of the answer, reasoning included. Required
    * `:cache_read`, `:cache_write` - the price of a token of the request that the provider read from its cache, or wrote to it.
      Default to `:input`
    * `:valid_from` - a `Date` or `DateTime`. Of several prices of a model, the newest that was valid when its iteration began counts.
      Defaults to a price that was always valid

  An answer costs what the model costs that it names. Providers often add a date to the name that was asked for: without a
  price for `"gpt-4o-2024-08-06"`, that for `"gpt-4o"` counts. Only tokens count that the provider reported, see
  `t:AshAgent.Context.usage/0`; surcharges, such as those for long requests and for a longer lifetime of the cache, do not.
  """

  alias AshAgent.Context.{Error, Native}

  @typedoc "A price of a model."
  @type price :: %{
          required(:model) => String.t() | :any,
          required(:input) => non_neg_integer(),
          required(:output) => non_neg_integer(),
          optional(:cache_read) => non_neg_integer(),
          optional(:cache_write) => non_neg_integer(),
          optional(:valid_from) => Date.t() | DateTime.t() | nil
        }

  @keys [:model, :valid_from, :input, :cache_read, :cache_write, :output]

  # What fits into 64 bits with a million tokens of it.
  @most 1_000_000_000_000

  @doc false
  def schema do
    [
      prices: [
        type: {:list, {:custom, &__MODULE__.price?/1}},
        type_doc: "a list of prices",
        default: [],
        doc: "what models cost, see `AshAgent.Prices`."
      ]
    ]
  end

  @doc false
  def price?(%{model: model, input: _, output: _} = price) when not is_struct(price) do
    rates = Map.drop(price, [:model, :valid_from])

    Map.keys(price) -- @keys == [] and
      (model == :any or (is_binary(model) and String.valid?(model))) and
      from?(price[:valid_from]) and
      Enum.all?(rates, fn {_of, rate} -> is_integer(rate) and rate in 0..@most end)
  end

  def price?(_other), do: false

  defp from?(nil), do: true
  defp from?(%DateTime{year: year}), do: year in 0..9999
  defp from?(%Date{calendar: Calendar.ISO, year: year}), do: year in 0..9999
  defp from?(_other), do: false

  @doc false
  # For the core: {model | nil, microseconds | nil, {input, cache read, cache write, output}}
  def terms(prices) do
    for %{input: input} = price <- prices do
      model = if price.model != :any, do: price.model
      read = Map.get(price, :cache_read, input)
      write = Map.get(price, :cache_write, input)
      {model, micros(price[:valid_from]), {input, read, write, price.output}}
    end
  end

  @doc false
  # What the answers from an iteration on cost. `asked` is the model that was asked for, where an answer names none or one
  # without a price.
  def spent(%{ref: ref}, terms, asked, since) do
    with {:error, reason} <- Native.context_spent(ref, terms, asked, since),
         do: {:error, %Error{reason: reason}}
  end

  @doc false
  # Whether a model has a price now; `nil` is one that tells no name.
  def known?(terms, model) do
    {:ok, known?} = Native.price_known(terms, model)
    known?
  end

  defp micros(nil), do: nil
  defp micros(%DateTime{} = at), do: DateTime.to_unix(at, :microsecond)
  defp micros(%Date{} = date), do: date |> DateTime.new!(~T[00:00:00]) |> micros()
end
