defmodule AshAgent.Context.Audit do
  @moduledoc """
  The requests of a conversation: what each asked for, whether it hit the provider's prompt cache, how it failed, and what it cost.

  `AshAgent.Runtime` records each request: provider and model, the fields of the body, the tools, and a digest of what was sent. Parts
  that are the same as in the request before take no room. Pages show how a request differs from the one before it, and traces have
  the parameters. `replay/1` tells whether the requests that are made again from the log are those that were sent. All of this is stored
  with the conversation and forked with it, and models never see it.

  ## The account

  A request that begins like the one before it should read from the cache whatever that one read and wrote. `account/2` compares
  this prediction with what the provider reported, request by request, and says why less was read:

    * `:first` - there was nothing to read
    * `:hit` - nine tenths of the prediction or more were read
    * `{:broken, cause}` - the request did not begin like the one before it, see `t:cause/0`
    * `:expired` - the cache's lifetime was over. Only Anthropic and Bedrock say how long it is
    * `:compacted` - a summary has replaced earlier messages, or the provider has replaced them by its own
    * `:cleared` - a policy has cleared results, such as `AshAgent.Context.Rent`; nothing of it counts as avoidable
    * `:hidden` - a policy has hidden iterations, such as `AshAgent.Context.View.fit/3` or `compact/3`, or a request was too long; nothing of it
      counts as avoidable. What `AshAgent.Context.View.hide/3` hides is `{:broken, :hidden}`
    * `:unasked` - nothing was marked, and the provider keeps nothing else
    * `:provider` - the request surely began as the whole one before it: both are known to be what was sent, see
      `put_sent/3`, and tools, fields and system prompt are the same
    * `:unexplained` - nothing is known that would explain it. The system prompt, the tools, the fields and the view are
      known of requests that `AshAgent.Runtime` made; of others only what was noted

  `forecast/3` says before a request how much it will read, what breaks the cache, and what that costs.

  ## Failures

  `AshAgent.Runtime` records each failed request, each attempt after which it waited, and each stream that broke off, in the
  iteration that the answer would have been in, and each tool that raised, with its place in the code. A failure contains neither a key nor any part of the request; the server's message is cut
  to 500 characters, and the masks of `AshAgent.Context.View.put_masks/3` apply to it.

  An iteration keeps 16 separate failures. Later ones are only counted, in the `:count` of the last one of their kind.
  """

  use AshAgent.Arguments, provider: {:in, AshAgent.Context.Requests.providers()}

  alias AshAgent.{Context, Prices}

  alias AshAgent.Context.{
    Enhancer,
    Error,
    Native,
    Options,
    PreparedRequest,
    Rent,
    Reply,
    Requests
  }

  import AshAgent.Context.Requests, only: [is_provider: 1]

  @typedoc "The note of an iteration's request, see `get_request/2`."
  @type note :: %{fields: map() | nil, tools: [map()] | nil, sent: String.t() | nil}

  @typedoc """
  A request that was made again, see `replay/1`.

    * `iteration` - the number of its iteration
    * `outcome` - `:same`; `:different`; `:follows`, if it differs as an earlier one does and in nothing else that is known; `:other_prompt`
      or `:other_masks`, if its system prompt or its masks are not the conversation's any more, and so not known; or `:unnoted`, if it is not known what was sent
    * `cause` - of a difference: `:log` if a message or result is not the one that was sent, `:view` if the view is not, and
      `{:version, version}` if that version of the package made it
    * `place` - the first message or result that differs: the number of its iteration, its position there, and the id of a result's call, or `nil`;
      `nil` if it is nothing that the request had for the first time
    * `change` - what is there: `:dropped_message` if one that was sent is gone, `:added_message` if there is one that was not sent, and `:other`
  """
  @type replayed :: %{
          required(:iteration) => pos_integer(),
          required(:outcome) =>
            :same | :different | :follows | :other_prompt | :other_masks | :unnoted,
          optional(:cause) => :log | :view | {:version, String.t()},
          optional(:place) => {pos_integer(), non_neg_integer(), String.t() | nil} | nil,
          optional(:change) => :dropped_message | :added_message | :other
        }

  @typedoc """
  The change since the request before: the model or provider, the tools, the form of the answer, the system prompt, a prompt
  block, fields that Anthropic's cache depends on, hidden iterations, a summary, cleared results, the length of results, or masks. Of forecasts also
  `:other`, such as options of the request; `:look_back`, 20 positions or more since the last request, further than Anthropic and Bedrock look back
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
          :first
          | :hit
          | {:broken, cause()}
          | :expired
          | :compacted
          | :cleared
          | :hidden
          | :unasked
          | :provider
          | :unexplained

  @typedoc """
  A request whose tokens were reported.

    * `iteration` - the number of its iteration
    * `provider`, `model` - who answered
    * `requested_at` - when it was sent, if that is known
    * `idle` - milliseconds since the answer before it
    * `usage` - its tokens, as in `AshAgent.Context.Tokens.get_iteration_tokens/2`
    * `predicted` - the tokens that should have been read from the cache. Each model has a cache of its own: after another model it is what the
      last request to this one left there
    * `verdict` - see above
    * `diagnosis` - what the provider itself says, where it was asked (the option `:cache_diagnostics` of `AshAgent.LLM.Anthropic` and
      `AshAgent.LLM.OpenAIResponses`), otherwise `nil`: its word for what is not the same, such as `"tools_changed"`, `"cache_hit"` where it found no
      difference or `"pending"` where it did not know yet, and the tokens that this cost, if it says them
    * `cost` - what it cost, in 10^-12 US dollars; `nil` without a price
    * `avoidable` - how much less it would have cost if the predicted tokens had been read; of an `:unasked` one, if it and the request before
      had been marked
  """
  @type request :: %{
          iteration: pos_integer(),
          provider: atom() | nil,
          model: String.t() | nil,
          requested_at: DateTime.t() | nil,
          idle: integer() | nil,
          usage: Context.Tokens.usage(),
          predicted: non_neg_integer(),
          verdict: verdict(),
          diagnosis: %{reason: String.t(), tokens: non_neg_integer() | nil} | nil,
          cost: non_neg_integer() | nil,
          avoidable: non_neg_integer() | nil
        }

  @typedoc """
  The requests, and their sums. `verdicts` says how many requests have each verdict; `cost` and `avoidable` are `nil` if a request has no price.
  """
  @type account :: %{
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
    * `dropped_thinking` - the tokens of thinking that the last request or its answer had, and that this one has to leave out, since the
      model takes its thinking only behind what that was made on, see [Thinking that is checked](thinking.html#thinking-that-is-checked)
    * `cost` - what the request costs without its answer, in 10^-12 US dollars; `nil` without a price
    * `most_cost` - what it costs with the longest answer, if `put_request/4` noted a limit on that, such as `max_tokens`; missing otherwise
  """
  @type forecast :: %{
          required(:bytes) => non_neg_integer(),
          required(:same_bytes) => non_neg_integer(),
          required(:tokens) => non_neg_integer(),
          required(:read) => non_neg_integer(),
          required(:written) => non_neg_integer(),
          required(:new) => non_neg_integer(),
          required(:breaks) => [
            %{cause: cause(), iteration: pos_integer() | nil, tokens: non_neg_integer()}
          ],
          required(:dropped_thinking) => non_neg_integer(),
          required(:cost) => non_neg_integer() | nil,
          optional(:most_cost) => non_neg_integer()
        }

  @typedoc """
  A failed request.

    * `:kind` - what kind of failure it was, see `t:AshAgent.Response.Error.kind/0`
    * `:iteration` - the number of its iteration
    * `:at` - when it had failed; of several that are counted, the last one
    * `:requested_at` - when it was sent
    * `:count` - how many failures it stands for, mostly 1
    * `:provider`, `:model` - who was asked
    * `:status` - the HTTP status
    * `:code` - the provider's name for the error
    * `:request_id` - the provider's id of the request
    * `:timeout` - which limit was reached: `"connect"`, `"first_byte"`, `"idle"` or `"whole"`
    * `:part` - `"stream"` where a part of the answer came; `"tool"` if it is no request but a tool whose function failed, and `"tools"` if it
      is the function that lists the tools. Their `:code` is the exception's module and their `:message` the place in the code, which no
      model reads
    * `:attempt` - the number of the attempt, from 1
    * `:wait` - milliseconds until the next attempt, if there was one
    * `:message` - the server's words

  Keys of unknown facts are not there.
  """
  @type failure :: %{
          required(:kind) => AshAgent.Response.Error.kind(),
          required(:iteration) => pos_integer(),
          required(:at) => DateTime.t(),
          required(:count) => pos_integer(),
          optional(atom()) => term()
        }

  @doc """
  Records what the request of the current iteration asks for, and returns the new context.

  `asked` is a map with `"model"`, `"provider"`, `"server"`, `"port"` and the `"body"` without messages and tools, as far as they
  are known, and `tools` a list of maps; `nil` keeps the earlier record. Put neither keys nor tokens in it.

  ## Options

  #{Options.docs(:put_request)}

  ## Examples

      iex> context = AshAgent.Context.new("Hi") |> AshAgent.Context.Audit.put_request(%{"model" => "m"}, [%{"name" => "look"}])
      iex> {:ok, response} = AshAgent.Response.decode(:ollama, %{message: %{content: "Hello!"}, done: true})
      iex> {:ok, context} = AshAgent.Context.add_response(context, response, requested_at: ~U[2026-01-01 10:00:00Z])
      iex> AshAgent.Context.Audit.get_request(context, 1)
      %{fields: %{"model" => "m"}, tools: [%{"name" => "look"}], sent: nil}
  """
  @doc since: "0.1.0"
  @spec put_request(Context.t(), map() | nil, [map()] | nil, keyword()) :: Context.t()
  def put_request(%Context{ref: ref} = context, asked, tools, opts \\ [])
      when (is_map(asked) or is_nil(asked)) and (is_list(tools) or is_nil(tools)) do
    hashed? = Options.validate!(opts, :put_request)[:keep] == :hashes
    ref |> Native.context_note_request(asked, tools, hashed?) |> Reply.put!(context)
  end

  @doc """
  Returns what the request of an iteration asked for. Fields are `nil` if they were not recorded, or if no request is known.

  `sent` is the digest of `put_sent/3`: the length in bytes and 16 hexadecimal digits.

  ## Examples

      iex> AshAgent.Context.new("Hi") |> AshAgent.Context.Audit.get_request(1)
      %{fields: nil, tools: nil, sent: nil}
  """
  @doc since: "0.1.0"
  @spec get_request(Context.t(), integer()) :: note()
  def get_request(%Context{ref: ref}, number) when is_integer(number) do
    {fields, tools, sent} = ref |> Native.context_request_note(number) |> Reply.ok!()
    %{fields: fields, tools: tools, sent: sent}
  end

  @doc """
  Records the length and digests of 61 bits of the next request, and returns `{:ok, context}`, or `{:error, error}` as
  `AshAgent.Context.request/3` does.

  One is of the system prompt and the messages as they are encoded under the options, without marks for the cache; then there is one for each message and
  result that the request before had not, one of the view, and the version of the package. So it is known later whether
  a request that is made again from the log is the one that was sent, see `replay/1`, and `AshAgent.Context.Audit.account/2` blames the provider for an unread
  cache only then.
  `AshAgent.Runtime` does this for the package's clients. Takes the options of `AshAgent.Context.request/3`, or an
  `AshAgent.Context.PreparedRequest` with them in the place of the provider. If everything is encoded, it costs O(1) for each piece.

  ## Examples

      iex> {:ok, context} = AshAgent.Context.new("Hi") |> AshAgent.Context.Audit.put_sent(:anthropic)
      iex> [%{"sent" => sent}] = AshAgent.Context.dump(context)["iterations"]
      iex> sent =~ ~r/^[0-9]+-[0-9a-f]{16} [0-9.]+ -( [0-9a-f]{16})+$/
      true
  """
  @doc since: "0.1.0"
  @spec put_sent(Context.t(), Context.provider() | PreparedRequest.t(), keyword()) ::
          {:ok, Context.t()} | {:error, Error.t()}
  def put_sent(context, provider, opts \\ [])

  def put_sent(%Context{} = context, provider, opts) when is_provider(provider),
    do: note_sent(context, Requests.checked_options(provider, opts))

  def put_sent(%Context{} = context, %PreparedRequest{options: options}, []),
    do: note_sent(context, options)

  defp note_sent(%Context{ref: ref} = context, options),
    do: ref |> Native.context_note_sent(options) |> Reply.put(context)

  @doc """
  Returns `{:ok, context}`, the conversation as it was when the last request of an iteration was made, or `:error` if no request is known.

  It has the view of that time, under the current system prompt, and under the current masks if the old ones are no longer known. Encoded the same way,
  it is the request that the provider got; the digest of `put_sent/3` says whether it really is. Costs O(log n), or O(n) if current masks
  apply to notes and summaries that were made under others.

  ## Examples

      iex> alias AshAgent.{Context, Response}
      iex> {:ok, response} = Response.decode(:anthropic, %{type: "message", content: [%{type: "text", text: "Hello!"}]})
      iex> {:ok, context} = Context.new("Hi") |> Context.add_response(response, requested_at: DateTime.utc_now())
      iex> {:ok, asked} = Context.Audit.fetch_asked(context, 1)
      iex> Context.to_messages(asked)
      [%{role: :user, content: "Hi"}]
      iex> Context.Audit.fetch_asked(asked, 1)
      :error
  """
  @doc since: "0.1.0"
  @spec fetch_asked(Context.t(), integer()) :: {:ok, Context.t()} | :error
  def fetch_asked(%Context{ref: ref} = context, number) when is_integer(number),
    do: ref |> Native.context_as_asked(number) |> put_asked(context)

  defp put_asked({:ok, nil}, _context), do: :error

  defp put_asked(reply, context),
    do: {:ok, reply |> Reply.ok!() |> then(&Reply.put!({:ok, &1}, context))}

  @doc false
  # Like `fetch_asked/2`, but with the view of the request before.
  def fetch_asked_before(%Context{ref: ref} = context, number),
    do: ref |> Native.context_as_asked_before(number) |> put_asked(context)

  @doc false
  # The reasons why two views of a conversation differ, as in `t:cause/0`, each with the first iteration.
  def view_changes(%Context{ref: ref}, %Context{ref: other}),
    do: ref |> Native.context_view_changes(other) |> Reply.ok!()

  @doc """
  Rebuilds each request that was answered, and compares it with what was sent, by the digests of `put_sent/3`.

  Each is rebuilt from the log as it was then, with the view and the options that it had, by this version of the package. Nothing is sent. The options are
  those that `put_request/3` noted under `"model"`, `"provider"` and `"request"`, which `AshAgent.Runtime` does for the package's clients. Costs O(n) for
  encoding, and O(n) for each request in pieces that are encoded.

  ## Examples

      iex> alias AshAgent.{Context, Response}
      iex> {:ok, context} = Context.new("Hi") |> Context.Audit.put_sent(:ollama)
      iex> {:ok, response} = Response.decode(:ollama, %{message: %{content: "Hello!"}, done: true})
      iex> {:ok, context} = Context.add_response(context, response, requested_at: ~U[2026-01-01 10:00:00Z])
      iex> Context.Audit.replay(context)
      [%{iteration: 1, outcome: :same}]
      iex> edited = context |> Context.to_snapshot() |> String.replace("Hi", "Ho") |> Context.load!()
      iex> Context.Audit.replay(edited)
      [%{iteration: 1, outcome: :different, cause: :log, place: {1, 0, nil}, change: :other}]
  """
  @doc since: "0.1.0"
  @spec replay(Context.t()) :: [replayed()]
  def replay(%Context{ref: ref}), do: ref |> Native.context_replay() |> Reply.ok!()

  @doc """
  Returns how much the next request will read from the provider's cache and write to it, compared with the last request of this conversation.

  The common prefix is counted exactly, in bytes; tokens are estimated from earlier reports. The last request is rebuilt from the log,
  with the view that it had, under the current masks and system prompt and the given options. If a rewind took back part of it, the rest is
  compared, message by message if `AshAgent.Context.Audit.put_sent/3` recorded the requests. If it had another view, or other tools, fields, system prompt or masks
  than the rest of the conversation, the last request that is left is compared instead. Reading follows each provider's rules: Anthropic and
  Bedrock read what they wrote, with a mark, within its lifetime, within 20 positions before a mark (at Anthropic a run of calls or of results is one), and from 512 to 4,096 tokens on, by the model;
  OpenAI reads blocks of 128 tokens from 1,024 on, or what it wrote where it says so; of the others no more is
  expected than they read before. Tools and fields are compared where `AshAgent.Context.Audit.put_request/4` noted both; then the tokens of other tools count in place of
  those of the last request.

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
      iex> {:ok, forecast} = Context.Audit.forecast(context, :anthropic, cache: :auto)
      iex> {forecast.read, forecast.breaks}
      {4_000, []}
      iex> {:ok, forecast} = context |> Context.View.put_prompt_block(:b, "Be brief.") |> Context.Audit.forecast(:anthropic, cache: :auto)
      iex> [%{cause: :block, iteration: nil, tokens: 4_000}] = forecast.breaks
  """
  @doc since: "0.1.0"
  @spec forecast(Context.t(), Context.provider(), keyword()) ::
          {:ok, forecast()} | {:error, Error.t()}
  def forecast(%Context{} = context, provider, opts \\ []) when is_provider(provider) do
    opts = Options.validate!(opts, :forecast)
    {own, request} = Keyword.split(opts, [:prices, :at, :view, :tools])
    prices = Prices.terms_or_nil(own[:prices])
    options = Requests.request_options(provider, request)

    with {:ok, context} <- show(context, own[:view], Keyword.take(opts, [:prices, :model])) do
      context = if own[:tools], do: put_request(context, nil, own[:tools]), else: context
      context.ref |> Native.context_forecast(options, prices, own[:at]) |> Reply.to_result()
    end
  end

  defp show(context, nil, _known), do: {:ok, context}
  defp show(context, :auto, known), do: {:ok, context |> Rent.clear_when_due(known) |> elem(0)}
  defp show(context, {enhancers, opts}, _known), do: show_by(context, enhancers, opts)

  defp show(context, enhancers, known),
    do: show_by(context, enhancers, needs: known)

  defp show_by(context, enhancers, opts) do
    with {:ok, context, _report} <- Enhancer.run(context, enhancers, opts), do: {:ok, context}
  end

  @doc """
  Returns whether a model is known to keep in its provider's cache what is marked there, as `cache: :auto` does.

  Of the others, some need no marks, and some refuse them. The name of an inference profile does not say which model runs behind it.

  ## Examples

      iex> AshAgent.Context.Audit.caches?(:anthropic, "claude-sonnet-4-5")
      true
      iex> AshAgent.Context.Audit.caches?(:bedrock, "meta.llama3-1-70b-instruct-v1:0")
      false
  """
  @doc since: "0.1.0"
  @spec caches?(Context.provider(), String.t()) :: boolean()
  def caches?(provider, model) when is_provider(provider) and is_binary(model),
    do: Native.provider_caches(provider, model)

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
      iex> account = Context.Audit.account(context)
      iex> Enum.map(account.requests, &{&1.predicted, &1.usage.cached_tokens, &1.verdict})
      [{0, 0, :first}, {2_000, 2_000, :hit}, {2_050, 0, {:broken, :system_prompt}}]
  """
  @doc since: "0.1.0"
  @spec account(Context.t(), keyword()) :: account()
  def account(%Context{ref: ref}, opts \\ []) do
    opts = Options.validate!(opts, :account)
    prices = Prices.terms_or_nil(opts[:prices])
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

  @doc """
  Returns what the model's answers cost, `{:ok, cost}` with an integer of 10^-12 US dollars, or `{:error, error}` with the reason
  `{:no_price, model}`, if tokens of a model without a price were reported.

  Answers without a report cost nothing. The costs of sub-agents are not included. Costs O(n) from the first iteration that counts.

  ## Options

  #{Options.docs(:fetch_cost)}

  Raises `ArgumentError` for wrong options.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!") |> AshAgent.Context.add_assistant_message("Hi!")
      iex> context = AshAgent.Context.Tokens.add_token_usage(context, %{input_tokens: 9, output_tokens: 2})
      iex> AshAgent.Context.Audit.fetch_cost(context, prices: [%{model: :any, input: 3_000_000, output: 15_000_000}])
      {:ok, 57_000_000}
      iex> {:error, error} = AshAgent.Context.Audit.fetch_cost(context, prices: [%{model: "m", input: 3_000_000, output: 15_000_000}])
      iex> error.reason
      {:no_price, nil}
  """
  @doc since: "0.1.0"
  @spec fetch_cost(Context.t(), keyword()) :: {:ok, non_neg_integer()} | {:error, Error.t()}
  def fetch_cost(%Context{} = context, opts) when is_list(opts) do
    opts = Options.validate!(opts, :fetch_cost)
    Prices.sum_spending(context, Prices.terms(opts[:prices]), nil, opts[:since])
  end

  @doc """
  Records a failed request in the current iteration, and returns the new context.

  `failure` is a map with `:kind` and whatever else is known, see `t:failure/0`, with atoms or strings for keys. `:at` is now if it is not
  given. Raises `AshAgent.Context.Error` with `{:invalid, path, expected}` for anything else. Takes the option `:at`, when the context changes, as
  `AshAgent.Context.put_metadata/4` does.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!") |> AshAgent.Context.Audit.add_failure(%{kind: :overloaded, status: 529})
      iex> [%{kind: :overloaded, status: 529, iteration: 1, count: 1}] = AshAgent.Context.Audit.failures(context)
      iex> AshAgent.Context.count_messages(context)
      1
  """
  @doc since: "0.1.0"
  @spec add_failure(Context.t(), map(), keyword()) :: Context.t()
  def add_failure(%Context{ref: ref} = context, failure, opts \\ []) when is_map(failure),
    do: ref |> Native.context_add_failure(failure, Options.time!(opts)) |> Reply.put!(context)

  @doc """
  Returns the requests and the tools that failed, oldest first. Costs O(n) in the iterations.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.Audit.failures()
      []
  """
  @doc since: "0.1.0"
  @spec failures(Context.t()) :: [failure()]
  def failures(%Context{ref: ref}), do: ref |> Native.context_failures() |> Reply.ok!()

  @doc """
  Returns the id that its provider gave the newest answer of a model, or `nil`.

  ## Examples

      iex> AshAgent.Context.new("Hi") |> AshAgent.Context.Audit.get_response_id()
      nil
  """
  @doc since: "0.1.0"
  @spec get_response_id(Context.t()) :: String.t() | nil
  def get_response_id(%Context{ref: ref}),
    do: ref |> Native.context_response_id() |> Reply.ok!()
end
