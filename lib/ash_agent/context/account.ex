defmodule AshAgent.Context.Account do
  @moduledoc """
  The account of a conversation's requests: which of them hit the provider's prompt cache, why others did not, and what that cost.

  A request that begins like the one before it should read from the cache whatever that one read and wrote. `account/2` compares
  this prediction with what the provider reported, request by request, and says why less was read:

    * `:first` - there was nothing to read
    * `:hit` - nine tenths of the prediction or more were read
    * `{:broken, cause}` - the request did not begin like the one before it, see `t:cause/0`
    * `:expired` - the cache's lifetime was over. Only Anthropic and Bedrock say how long it is
    * `:compacted` - a summary has replaced earlier messages
    * `:provider` - the request surely began as the whole one before it: both are known to be what was sent, see
      `AshAgent.Context.put_sent/3`, and tools, fields and system prompt are the same
    * `:unexplained` - nothing is known that would explain it. The system prompt, the tools, the fields and the view are
      known of requests that `AshAgent.Runtime` made; of others only what was noted

  `forecast/3` says before a request how much it will read, what breaks the cache, and what that costs.

  Call these as functions of `AshAgent.Context`, which checks their arguments. Here they take anything with the context's `:ref`.
  """

  alias AshAgent.Context.{Native, Options, Reply, Requests}
  alias AshAgent.Prices

  @typedoc """
  The change since the request before: the model or provider, the tools, the form of the answer, the system prompt, a prompt
  block, fields that Anthropic's cache depends on, hidden iterations, a summary, cleared results, the length of results, or masks. Of forecasts also
  `:other`, such as options of the request; `:look_back`, more than 20 blocks of content since the last request, further than Anthropic looks back
  from a mark; `:rewound`, something of the last request that `AshAgent.Context.rewind/2` took back; and `:expired`, a lifetime that is over. The account compares requests
  with the one before them that is left.
  """
  @type cause ::
          :model
          | :tools
          | :output
          | :system_prompt
          | :block
          | :fields
          | :hidden
          | :summarized
          | :cleared
          | :shortened
          | :masked
          | :rewound
          | :other
          | :look_back
          | :expired

  @type verdict ::
          :first | :hit | {:broken, cause()} | :expired | :compacted | :provider | :unexplained

  @typedoc """
  A request whose tokens were reported.

    * `iteration` - the number of its iteration
    * `provider`, `model` - who answered
    * `requested_at` - when it was sent, if that is known
    * `idle` - milliseconds since the answer before it
    * `usage` - its tokens, as in `AshAgent.Context.get_iteration_tokens/2`
    * `predicted` - the tokens that should have been read from the cache
    * `verdict` - see above
    * `diagnosis` - what the provider itself says, where it was asked (the option `:cache_diagnostics` of `AshAgent.LLM.Anthropic` and
      `AshAgent.LLM.OpenAIResponses`), otherwise `nil`: its word for what is not the same, such as `"tools_changed"`, `"cache_hit"` where it found no
      difference or `"pending"` where it did not know yet, and the tokens that this cost, if it says them
    * `cost` - what it cost, in 10^-12 US dollars; `nil` without a price
    * `avoidable` - how much less it would have cost if the predicted tokens had been read
  """
  @type request :: %{
          iteration: pos_integer(),
          provider: atom() | nil,
          model: String.t() | nil,
          requested_at: DateTime.t() | nil,
          idle: integer() | nil,
          usage: AshAgent.Context.usage(),
          predicted: non_neg_integer(),
          verdict: verdict(),
          diagnosis: %{reason: String.t(), tokens: non_neg_integer() | nil} | nil,
          cost: non_neg_integer() | nil,
          avoidable: non_neg_integer() | nil
        }

  @typedoc """
  The requests, and their sums. `verdicts` says how many requests have each verdict; `cost` and `avoidable` are `nil` if a request has no price.
  """
  @type t :: %{
          requests: [request()],
          verdicts: %{optional(verdict()) => pos_integer()},
          predicted: non_neg_integer(),
          read: non_neg_integer(),
          cost: non_neg_integer() | nil,
          avoidable: non_neg_integer() | nil
        }

  @typedoc """
  A forecast.

    * `bytes` - of the system prompt and the messages, as they are encoded, without marks for the cache
    * `same_bytes` - how many of them, from the first, are those of the last request
    * `tokens` - of the request, by the last report and an estimate of what came since
    * `read`, `written`, `new` - how many of them will be read from the cache, written to it, and neither
    * `breaks` - why not all that the last request left in the cache is read: the cause, the first iteration that it changes (`nil` before all
      of them), and the tokens that it costs
    * `cost` - what the request costs without its answer, in 10^-12 US dollars; `nil` without a price
  """
  @type forecast :: %{
          bytes: non_neg_integer(),
          same_bytes: non_neg_integer(),
          tokens: non_neg_integer(),
          read: non_neg_integer(),
          written: non_neg_integer(),
          new: non_neg_integer(),
          breaks: [
            %{cause: cause(), iteration: pos_integer() | nil, tokens: non_neg_integer()}
          ],
          cost: non_neg_integer() | nil
        }

  @doc """
  Returns how much the next request will read from the provider's cache and write to it, compared with the last request of this conversation.

  The common prefix is counted exactly, in bytes; tokens are estimated from earlier reports. The last request is rebuilt from the log,
  with the view that it had, under the current masks and system prompt and the given options. If a rewind took back part of it, the rest is
  compared, message by message if `AshAgent.Context.put_sent/3` recorded the requests. If it had another view, or other tools, fields, system prompt or masks
  than the rest of the conversation, the last request that is left is compared instead. Reading follows each provider's rules: Anthropic and
  Bedrock read what they wrote, with a mark, within its lifetime, within 20 blocks of content before a mark, and from 512 to 4,096 tokens on, by the model;
  OpenAI reads blocks of 128 tokens from 1,024 on, or what it wrote where it says so; of the others no more is
  expected than they read before. Tools and fields are compared where `AshAgent.Context.put_request/4` noted both.

  Returns `{:error, error}` as `AshAgent.Context.request/3` does. If both requests are encoded, it costs O(1) for each piece; after loading, once as
  much as encoding the conversation.

  ## Options

  #{Options.docs(:forecast)}

  ## Examples

      iex> alias AshAgent.{Context, Response}
      iex> usage = %{input_tokens: 10, output_tokens: 5, cache_read_input_tokens: 0, cache_creation_input_tokens: 4_000}
      iex> {:ok, response} = Response.decode(:anthropic, %{type: "message", content: [%{type: "text", text: "Yes"}], usage: usage})
      iex> {:ok, context} = Context.new("Hi") |> Context.add_response(response, requested_at: DateTime.utc_now())
      iex> context = Context.add_user_message(context, "And?")
      iex> {:ok, forecast} = Context.forecast(context, :anthropic, cache: :auto)
      iex> {forecast.read, forecast.breaks}
      {4_000, []}
      iex> {:ok, forecast} = context |> Context.put_prompt_block(:b, "Be brief.") |> Context.forecast(:anthropic, cache: :auto)
      iex> [%{cause: :block, iteration: nil, tokens: 4_000}] = forecast.breaks
  """
  @doc since: "0.1.0"
  @spec forecast(Reply.handle(), Requests.provider(), keyword()) ::
          {:ok, forecast()} | {:error, AshAgent.Context.Error.t()}
  def forecast(%{ref: ref} = _context, provider, opts \\ []) do
    opts = Options.validate!(opts, :forecast)
    {own, request} = Keyword.split(opts, [:prices, :at])
    prices = if own[:prices] != [], do: Prices.terms(own[:prices])
    options = Requests.request_options(provider, request)
    ref |> Native.context_forecast(options, prices, own[:at]) |> Reply.to_result()
  end

  @doc """
  Returns a row for each request of the log whose tokens were reported, and the sums. Costs O(n) in the iterations that count.

  ## Options

  #{Options.docs(:account)}

  ## Examples

      iex> alias AshAgent.{Context, Response}
      iex> answer = fn context, read, written ->
      ...>   usage = %{input_tokens: 10, output_tokens: 5, cache_read_input_tokens: read, cache_creation_input_tokens: written}
      ...>   {:ok, response} = Response.decode(:anthropic, %{type: "message", content: [%{type: "text", text: "Yes"}], usage: usage})
      ...>   {:ok, context} = Context.add_response(context, response, requested_at: ~U[2026-01-01 10:00:00Z])
      ...>   Context.add_user_message(context, "And?")
      ...> end
      iex> context = Context.new("Hi") |> answer.(0, 2_000) |> answer.(2_000, 50) |> Context.put_system_prompt("Be brief.") |> answer.(0, 2_100)
      iex> account = Context.account(context)
      iex> Enum.map(account.requests, &{&1.predicted, &1.usage.cached_tokens, &1.verdict})
      [{0, 0, :first}, {2_000, 2_000, :hit}, {2_050, 0, {:broken, :system_prompt}}]
  """
  @doc since: "0.1.0"
  @spec account(Reply.handle(), keyword()) :: t()
  def account(%{ref: ref} = _context, opts \\ []) do
    opts = Options.validate!(opts, :account)
    prices = if opts[:prices] != [], do: Prices.terms(opts[:prices])
    requests = ref |> Native.context_account(prices, opts[:model], opts[:since]) |> Reply.ok!()

    %{
      requests: requests,
      verdicts: Enum.frequencies_by(requests, & &1.verdict),
      predicted: sum(requests, & &1.predicted),
      read: sum(requests, &Map.get(&1.usage, :cached_tokens, 0)),
      cost: sum(requests, & &1.cost),
      avoidable: sum(requests, & &1.avoidable)
    }
  end

  defp sum(requests, number) do
    numbers = Enum.map(requests, number)
    if nil in numbers, do: nil, else: Enum.sum(numbers)
  end
end
