defmodule AshAgent.Prices do
  @moduledoc """
  Prices of models, for `:prices` of `AshAgent.Runtime.run/2`, `AshAgent.Context.Audit.fetch_cost/2` and `AshAgent.Trace`.

  They are a file that `read/2` has read, or a list of maps. All amounts are integers of 10^-12 US dollars, so that sums are exact:
  3 dollars for a million tokens are `3_000_000` for one.

      [
        %{model: "claude-sonnet-4-5", input: 3_000_000, cache_read: 300_000, cache_write: 3_750_000, output: 15_000_000},
        %{model: "gpt-4o", input: 2_500_000, cache_read: 1_250_000, output: 10_000_000, valid_from: ~D[2024-10-01]}
      ]

    * `:model` - the model's name, or `:any` for each model that has no price of its own. Required
    * `:provider` - whose price it is, such as `:bedrock`: Bedrock's Claude costs more than Anthropic's. Defaults to everyone's
    * `:input`, `:output` - the price of a token of the request and of the answer. Required
    * `:cache_read`, `:cache_write` - the price of a token of the request that the provider read from its cache, or wrote to it.
      Default to `:input`
    * `:cache_write_1h` - the price of a token that is written to stay for an hour. Defaults to `:cache_write`
    * `:reasoning` - the price of a token that the model thought. Defaults to `:output`
    * `:input_audio`, `:input_image`, `:input_video`, `:cache_read_audio`, `:cache_read_image`, `:cache_read_video`, `:output_audio`,
      `:output_image`, `:output_video` - prices of tokens of such parts. Each defaults to what it is a part of
    * `:search`, `:request` - fees for a search in the web and for a request. Default to nothing
    * `:steps` - what longer requests cost, a list of maps: `[%{above: 200_000, input: 6_000_000, output: 22_500_000}]`. A step
      prices the whole request, not only the tokens above it
    * `:factors` - by how much a word that the provider reports changes the price of tokens:
      `%{service_tier: %{"batch" => {1, 2}}, speed: %{"fast" => {6, 1}}, inference_geo: %{"us" => {11, 10}}}`
    * `:valid_from` - a `Date` or `DateTime`. Of several prices of a model, the newest that was valid when it was asked counts.
      Defaults to a price that was always valid
    * `:context_window` - the tokens that a request of the model and its answer may have together
    * `:cache_minimum` - the tokens of the shortest request that the model caches, for forecasts. Defaults to what is known of the model

  An answer costs what the model costs that it names. Providers often add a date to the name that was asked for: without a
  price for `"gpt-4o-2024-08-06"`, that for `"gpt-4o"` counts. Only what the provider reported counts, see
  `t:AshAgent.Context.Tokens.usage/0`; the parts of an answer that Anthropic bills apart (`iterations`) cost what each of them costs.
  """

  use AshAgent.Arguments

  alias AshAgent.Context.{Error, Native}

  @enforce_keys [:ref]
  defstruct [:ref, :sha256, models: 0, skipped: [], rounded: []]

  @typedoc """
  A file of prices.

    * `sha256` - of the file, to keep with sums: prices age
    * `models` - how many models have a price
    * `skipped` - the models without one, since the file says something of them that is not understood, such as prices by time of day:
      `{provider, model, what}`
    * `rounded` - the prices that were rounded to a whole number of 10^-12 dollars: `{provider, model, which}`
  """
  @type t :: %__MODULE__{
          ref: reference(),
          sha256: String.t(),
          models: non_neg_integer(),
          skipped: [{String.t(), String.t(), String.t()}],
          rounded: [{String.t(), String.t(), String.t()}]
        }

  @typedoc "An amount of 10^-12 US dollars, at most a dollar."
  @type amount :: non_neg_integer()

  @typedoc "A price of a model."
  @type price :: %{
          required(:model) => String.t() | :any,
          required(:input) => amount(),
          required(:output) => amount(),
          optional(:provider) => atom() | String.t() | nil,
          optional(:steps) => [
            %{required(:above) => non_neg_integer(), optional(atom()) => amount()}
          ],
          optional(:factors) => %{
            optional(atom()) => %{optional(String.t()) => {non_neg_integer(), pos_integer()}}
          },
          optional(:valid_from) => Date.t() | DateTime.t() | nil,
          optional(:context_window) => pos_integer() | nil,
          optional(:cache_minimum) => pos_integer() | nil,
          optional(atom()) => amount()
        }

  @read_options [provider: [type: :string, doc: "whose prices count."]]

  @doc """
  Reads prices in the format of [genai-prices](https://github.com/pydantic/genai-prices) (`prices/data.json` there), of which
  this package ships none: prices age. `file` is its path.

  Returns `{:ok, prices}`, or `{:error, error}` for a file that cannot be read or has another format. Models whose prices are not
  understood are listed in `skipped`, and never guessed. Names of models match as the file says. Costs O(n); a file of 1,300 models takes some milliseconds.

  ## Options

    * `:provider` - whose prices count, such as `"azure"` or `"openrouter"`, by the file's names. Defaults to the provider that
      answered, and then to the one whose models have such names

  ## Examples

      iex> file = Path.join(System.tmp_dir!(), "prices.json")
      iex> File.write!(file, ~s([{"id": "openai", "models": [{"id": "gpt-4o", "match": {"equals": "gpt-4o"},
      ...>   "prices": {"input_mtok": 2.5, "output_mtok": 10}}]}]))
      iex> {:ok, prices} = AshAgent.Prices.read(file)
      iex> prices.models
      1
      iex> context = AshAgent.Context.new("Hello!") |> AshAgent.Context.add_assistant_message("Hi!")
      iex> context = AshAgent.Context.Tokens.add_token_usage(context, %{input_tokens: 9, output_tokens: 2})
      iex> {:error, error} = AshAgent.Context.Audit.fetch_cost(context, prices: prices)
      iex> error.reason
      {:no_price, nil}
  """
  @doc since: "0.1.0"
  @spec read(Path.t(), keyword()) :: {:ok, t()} | {:error, Error.t() | Exception.t()}
  def read(file, opts \\ []) when is_binary(file) do
    opts = AshAgent.Options.validate!(opts, @read_options)

    with {:ok, text} <- File.read(file),
         {:ok, {ref, sha256, models, skipped, rounded}} <-
           Native.prices_file(text, opts[:provider]) do
      prices = %__MODULE__{ref: ref, sha256: sha256, models: models}
      {:ok, %{prices | skipped: skipped, rounded: rounded}}
    else
      {:error, reason} when is_atom(reason) ->
        {:error, %File.Error{reason: reason, action: "read prices from", path: file}}

      {:error, reason} ->
        {:error, %Error{reason: reason}}
    end
  end

  @doc """
  Returns the digest of prices, in hexadecimal digits: the SHA-256 of a file, the MD5 of a list, `nil` for an empty one.

  Stored conversations keep it with what their turns cost, so that it is known later which prices counted. The same list has the same digest
  on every node of one Erlang/OTP release.

  ## Examples

      iex> prices = [%{model: "m", input: 3_000_000, output: 15_000_000}]
      iex> AshAgent.Prices.digest(prices) == AshAgent.Prices.digest([%{output: 15_000_000, input: 3_000_000, model: "m"}])
      true
      iex> String.length(AshAgent.Prices.digest(prices))
      32
  """
  @doc since: "0.1.0"
  @spec digest(t() | [price()]) :: String.t() | nil
  def digest(%__MODULE__{sha256: sha256}), do: sha256
  def digest([]), do: nil

  def digest(list) when is_list(list),
    do:
      list
      |> :erlang.term_to_binary([:deterministic])
      |> :erlang.md5()
      |> Base.encode16(case: :lower)

  @doc false
  def schema do
    AshAgent.Options.schema([
      {:prices, {:custom, &__MODULE__.prices?/1}, [type_doc: "a list of prices", default: []],
       "what models cost: a file that `AshAgent.Prices.read/2` has read, or a list, see there."}
    ])
  end

  @doc false
  def prices?(given) when given == [] or is_struct(given, __MODULE__), do: true

  def prices?(list),
    do: is_list(list) and not List.improper?(list) and match?({:ok, _ref}, compile(list))

  @doc false
  # The handle, for the core.
  def terms(%__MODULE__{ref: ref}), do: ref
  def terms(list), do: list |> compile() |> elem(1)

  @doc false
  # For functions that go on without prices.
  def terms_or_nil([]), do: nil
  def terms_or_nil(prices), do: terms(prices)

  @doc false
  # Returns the price of the answers from an iteration on. `asked` is the model that was asked for, where an answer names none
  # or one without a price.
  def sum_spending(%{ref: ref}, terms, asked, since) do
    with {:error, reason} <- Native.context_spent(ref, terms, asked, since),
         do: {:error, %Error{reason: reason}}
  end

  @doc false
  # Returns true if a model has a price now; `nil` is a model without a name.
  def known?(nil, _model), do: false

  def known?(terms, model) do
    {:ok, known?} = Native.price_known(terms, model)
    known?
  end

  defp compile(list), do: list |> Enum.map(&put_time/1) |> Native.prices_list()

  defp put_time(%{valid_from: %Date{calendar: Calendar.ISO} = date} = price),
    do: %{price | valid_from: DateTime.new!(date, ~T[00:00:00])}

  defp put_time(price), do: price

  defimpl Inspect do
    def inspect(prices, _opts) do
      sha256 = String.slice(prices.sha256 || "", 0, 8)
      counts = "#{prices.models} models, #{length(prices.skipped)} skipped"
      "#AshAgent.Prices<#{counts}, sha256 #{sha256}>"
    end
  end
end
