defmodule AshAgent.Context.Responses do
  @moduledoc """
  Adds providers' responses to a conversation, with the tokens they report and what these cost.

  Call these as functions of `AshAgent.Context`, which checks their arguments. Here they take anything with the context's `:ref`.
  """

  alias AshAgent.Context.{Error, Native, Options, Reply}
  alias AshAgent.Prices

  @typedoc """
  Tokens that providers reported. `total_tokens` is the provider's total, or else the sum of input and output.

  The usage of a single answer (`AshAgent.Response.usage/1`) also has what is billed by itself, where there is any: tokens written to the
  cache for an hour, tokens of sound, images and films, searches, and the words on which prices depend where they are not the
  plain ones. Sums over answers have the first six.
  """
  @type usage :: %{
          required(:input_tokens) => non_neg_integer(),
          required(:output_tokens) => non_neg_integer(),
          required(:total_tokens) => non_neg_integer(),
          required(:cached_tokens) => non_neg_integer(),
          required(:cache_write_tokens) => non_neg_integer(),
          required(:reasoning_tokens) => non_neg_integer(),
          optional(:cache_write_1h_tokens | :searches) => pos_integer(),
          optional(:input_audio_tokens | :input_image_tokens | :input_video_tokens) =>
            pos_integer(),
          optional(:cached_audio_tokens | :cached_image_tokens | :cached_video_tokens) =>
            pos_integer(),
          optional(:output_audio_tokens | :output_image_tokens | :output_video_tokens) =>
            pos_integer(),
          optional(:service_tier | :speed | :inference_geo) => String.t()
        }

  @doc """
  Adds a provider's response to the current iteration, and returns `{:ok, context}` or `{:error, error}`.

  The message contains everything in the response: text, thinking with its signatures, calls and the provider's own
  blocks. The context also records the reported tokens (`get_cumulative_tokens/1`) and the model, id and finish reason
  (`AshAgent.Context.fetch_message/2`). The next request to the same provider contains exactly what its own SDK would send back.

  An interrupted response is kept with all its text and `state: :interrupted`. None of its calls is pending: each is
  answered with an error that says so. The same happens to a call that was cut off in an otherwise complete response, for
  instance by `max_tokens`, and to all calls of one that was refused, filtered or malformed. If no call is left to run, the
  iteration is complete.

  The error is an `AshAgent.Response.Error` if the response failed, is queued or is still open; it says whether a retry may
  help. It is an `AshAgent.Context.Error` with `{:pending_tool_calls, ids}` while earlier calls wait for their results.
  Costs O(size of the message).

  ## Options

  #{Options.docs(:add_response)}

  ## Examples

      iex> {:ok, response} =
      ...>   AshAgent.Response.decode(:ollama, %{
      ...>     model: "m1",
      ...>     message: %{content: "", tool_calls: [%{function: %{name: "add", arguments: %{a: 1}}}]},
      ...>     done: true,
      ...>     done_reason: "stop"
      ...>   })
      iex> {:ok, context} = "1 + 1?" |> AshAgent.Context.new() |> AshAgent.Context.add_response(response)
      iex> AshAgent.Context.pending_tool_calls(context)
      [%{id: "call_1_1_0", name: "add", arguments: %{"a" => 1}}]

      iex> response = AshAgent.Response.new(:anthropic)
      iex> {:error, error} = "Hi" |> AshAgent.Context.new() |> AshAgent.Context.add_response(response)
      iex> error.reason
      :open

      iex> {:ok, response} = AshAgent.Response.decode(:ollama, %{message: %{content: "Hello!"}, done: true})
      iex> context = "Hi" |> AshAgent.Context.new() |> AshAgent.Context.add_response!(response)
      iex> AshAgent.Context.count_messages(context)
      2
  """
  @doc since: "0.1.0"
  @spec add_response(context, AshAgent.Response.t(), keyword()) ::
          {:ok, context} | {:error, AshAgent.Response.Error.t() | Error.t()}
        when context: Reply.handle()
  def add_response(%{ref: _} = context, %{ref: _} = response, opts \\ []) do
    opts = Options.validate!(opts, :add_response)
    times = {opts[:requested_at], opts[:first_chunk_at]}
    put_response(context, response, times, opts[:metadata], opts[:at])
  end

  @doc """
  Adds a response as `add_response/3` does, without checking options: for loops, which add many.

  `times` are when the response was requested and when its first piece came, `nil` where that is not known.

  ## Examples

      iex> {:ok, response} = AshAgent.Response.from_message(%{content: "Hello!"})
      iex> {:ok, context} = "Hi" |> AshAgent.Context.new() |> AshAgent.Context.Responses.put_response(response, {nil, nil})
      iex> AshAgent.Context.count_messages(context)
      2
  """
  @doc since: "0.1.0"
  @spec put_response(
          context,
          AshAgent.Response.t(),
          {DateTime.t() | integer() | nil, DateTime.t() | integer() | nil},
          map() | nil,
          DateTime.t() | nil
        ) :: {:ok, context} | {:error, AshAgent.Response.Error.t() | Error.t()}
        when context: Reply.handle()
  def put_response(%{ref: ref} = context, %{ref: response}, times, metadata \\ nil, at \\ nil) do
    case Native.context_add_response(ref, response, metadata, times, at) do
      {:error, {:response, fault}} -> {:error, AshAgent.Response.Error.new(fault)}
      reply -> Reply.put_at(reply, context)
    end
  end

  @doc """
  Returns the id that its provider gave the newest answer of a model, or `nil`.

  ## Examples

      iex> AshAgent.Context.new("Hi") |> AshAgent.Context.get_response_id()
      nil
  """
  @doc since: "0.1.0"
  @spec get_response_id(Reply.handle()) :: String.t() | nil
  def get_response_id(%{ref: ref} = _context),
    do: ref |> Native.context_response_id() |> Reply.ok!()

  @doc """
  Records the tokens that a provider reported with the model's last message, and returns the new context.

  `usage` is the report of OpenAI (Chat Completions, Responses), Anthropic, Gemini, Bedrock, Ollama or Mistral as it came,
  with atom or string keys, or a map such as `get_cumulative_tokens/1` returns. A figure reported twice is counted once.
  Input includes tokens from the provider's cache, even if the provider counts them separately (Anthropic, Bedrock);
  output includes reasoning. Several reports on one message add up. A report belongs to the iteration of its message, so a
  report recorded after the tool results is in a `AshAgent.Context.dump/2` since that iteration, not since the current one.

  Raises `AshAgent.Context.Error` with `{:invalid_usage, key}` or `:no_assistant_message`. Takes the option `:at` as
  `AshAgent.Context.put_metadata/4` does.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!") |> AshAgent.Context.add_assistant_message("Hi!")
      iex> context = AshAgent.Context.add_token_usage(context, %{"prompt_tokens" => 9, "completion_tokens" => 2})
      iex> AshAgent.Context.get_cumulative_tokens(context)
      %{input_tokens: 9, output_tokens: 2, total_tokens: 11, cached_tokens: 0, cache_write_tokens: 0, reasoning_tokens: 0}
  """
  @doc since: "0.1.0"
  @spec add_token_usage(context, map(), keyword()) :: context when context: Reply.handle()
  def add_token_usage(%{ref: ref} = context, usage, opts \\ []),
    do: ref |> Native.context_add_usage(usage, Options.time!(opts)) |> Reply.put!(context)

  @doc """
  Returns the tokens that providers reported in all iterations together, in constant time.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.get_cumulative_tokens()
      %{input_tokens: 0, output_tokens: 0, total_tokens: 0, cached_tokens: 0, cache_write_tokens: 0, reasoning_tokens: 0}
  """
  @doc since: "0.1.0"
  @spec get_cumulative_tokens(Reply.handle()) :: usage()
  def get_cumulative_tokens(%{ref: ref} = _context), do: Native.context_usage(ref)

  @doc """
  Returns the tokens that providers reported in the iteration with this number, or `nil` if there is no such iteration.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.get_iteration_tokens(2)
      nil
  """
  @doc since: "0.1.0"
  @spec get_iteration_tokens(Reply.handle(), integer()) :: usage() | nil
  def get_iteration_tokens(%{ref: ref} = _context, number),
    do: Native.context_iteration_usage(ref, number)

  @doc """
  Returns what the model's answers cost, `{:ok, cost}` with an integer of 10^-12 US dollars, or `{:error, error}` with the reason
  `{:no_price, model}`, if tokens of a model without a price were reported.

  Answers without a report cost nothing. The costs of sub-agents are not included. Costs O(n) from the first iteration that counts.

  ## Options

  #{Options.docs(:fetch_cost)}

  Raises `ArgumentError` for wrong options.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!") |> AshAgent.Context.add_assistant_message("Hi!")
      iex> context = AshAgent.Context.add_token_usage(context, %{input_tokens: 9, output_tokens: 2})
      iex> AshAgent.Context.fetch_cost(context, prices: [%{model: :any, input: 3_000_000, output: 15_000_000}])
      {:ok, 57_000_000}
      iex> {:error, error} = AshAgent.Context.fetch_cost(context, prices: [%{model: "m", input: 3_000_000, output: 15_000_000}])
      iex> error.reason
      {:no_price, nil}
  """
  @doc since: "0.1.0"
  @spec fetch_cost(Reply.handle(), keyword()) :: {:ok, non_neg_integer()} | {:error, Error.t()}
  def fetch_cost(context, opts) do
    opts = Options.validate!(opts, :fetch_cost)
    Prices.sum_spending(context, Prices.terms(opts[:prices]), nil, opts[:since])
  end
end
