defmodule AshAgent.Context.Tokens do
  @moduledoc """
  The tokens of a conversation: counted in its view, compared with a budget, and as providers reported them.
  """

  use AshAgent.Arguments

  alias AshAgent.Context
  alias AshAgent.Context.{Native, Options, Reply}

  # Integers up to this are sure to fit into a float.
  @countless Integer.pow(2, 1000)

  @typedoc """
  How to count tokens:

    * `:auto` - the last report recorded by `AshAgent.Context.Tokens.add_token_usage/3`, plus an estimate of everything after it; without a
      report, an estimate of everything
    * `:estimate` - from the text alone
    * `:o200k_base`, `:cl100k_base` - exactly as OpenAI's models with these encodings count text. Without the library's feature
      `:exact_tokens`, an `AshAgent.Context.Error` with the reason `{:feature_missing, "exact_tokens"}` is raised.

  The default build leaves the encodings out. To include them, configure

      config :ash_agent_context, features: [:exact_tokens]
  """
  @type token_method :: :auto | :estimate | :o200k_base | :cl100k_base

  @typedoc "The tokens of a view by purpose."
  @type breakdown :: %{
          system: non_neg_integer(),
          user: non_neg_integer(),
          assistant: non_neg_integer(),
          thinking: non_neg_integer(),
          tool_calls: non_neg_integer(),
          tool_results: non_neg_integer(),
          media: non_neg_integer(),
          summaries: non_neg_integer()
        }

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
  Returns the number of tokens in the view.

  Text, tool calls, results, the system prompt, thinking, images and files all count. Each message adds four tokens, and
  each call and each result eight. Images count by their pixels, not by their bytes. Every message is counted once, so
  counting takes constant time on an unchanged context, and after an append the time for the new messages.

  `:auto` assumes that the report was about a request with this context's view: if a smaller view was sent, use
  `:estimate`. If parts of the view were hidden or shortened after the report, it counts by the share that an estimate has left. Reasoning that a report counts
  but the message does not contain is not sent again and not counted.

  An estimate is one pass over the text at about 500 MB/s. On real conversations, compared with `:o200k_base`, its error
  is at most 5 % for half of the texts and 15 % for nine of ten; for JSON of tools 8 % and 22 %, for European languages 10
  % and 22 %, for Chinese, Japanese, Korean, Hindi and Arabic 7 % and 21 %. `:cl100k_base` has up to four times as many
  tokens for scripts other than Latin. The exact encodings read 20 to 40 MB/s. Their tables are built on first use, once
  per VM, which takes a second and 85 MB for `:o200k_base` and half of that for `:cl100k_base`.

  An image counts its pixels divided by 750 after it is scaled to 1,568 pixels on its longer side, as Anthropic states,
  and at most 1,600, which is also the figure for images whose size is unknown, such as those given by URL. A PDF counts
  2,250 per page, a text file its text, any other file 2,250.

  ## Options

  #{Options.docs(:count_tokens)}

  ## Examples

      iex> context = AshAgent.Context.new("Hello, world!")
      iex> AshAgent.Context.Tokens.count_tokens(context, method: :o200k_base)
      8
      iex> context = context |> AshAgent.Context.add_assistant_message("Hi!") |> AshAgent.Context.Tokens.add_token_usage(%{input_tokens: 11, output_tokens: 3})
      iex> AshAgent.Context.Tokens.count_tokens(context)
      14
  """
  @doc since: "0.1.0"
  @spec count_tokens(Context.t(), method: token_method()) :: non_neg_integer()
  def count_tokens(%Context{ref: ref}, opts \\ []),
    do: ref |> Native.context_count_tokens(method(opts)) |> Reply.ok!()

  @doc """
  Returns the tokens of the view by purpose.

  Takes the option of `count_tokens/2`; here `:auto` is `:estimate`, since reports do not have these parts.

  ## Examples

      iex> context = AshAgent.Context.new("Hello, world!", system_prompt: "Be brief.")
      iex> AshAgent.Context.Tokens.token_breakdown(context, method: :o200k_base)
      %{system: 7, user: 8, assistant: 0, thinking: 0, tool_calls: 0, tool_results: 0, media: 0, summaries: 0}
  """
  @doc since: "0.1.0"
  @spec token_breakdown(Context.t(), method: token_method()) :: breakdown()
  def token_breakdown(%Context{ref: ref}, opts \\ []),
    do: ref |> Native.context_token_breakdown(method(opts)) |> Reply.ok!()

  @doc """
  Returns how much of a budget the view takes. Takes the option of `count_tokens/2`.

    * `tokens` - of the view
    * `remaining` - how many tokens the view leaves free, or 0
    * `share` - of the budget: 1.0 for all of it, more if the view exceeds it
    * `exceeded?` - whether the view has more tokens than the budget

  ## Examples

      iex> AshAgent.Context.new("Hello, world!") |> AshAgent.Context.Tokens.budget(80, method: :o200k_base)
      %{tokens: 8, remaining: 72, share: 0.1, exceeded?: false}
  """
  @doc since: "0.1.0"
  @spec budget(Context.t(), pos_integer(), method: token_method()) :: %{
          tokens: non_neg_integer(),
          remaining: non_neg_integer(),
          share: float(),
          exceeded?: boolean()
        }
  def budget(%Context{} = context, budget, opts \\ []) when is_integer(budget) and budget > 0 do
    tokens = count_tokens(context, opts)

    %{
      tokens: tokens,
      remaining: max(budget - tokens, 0),
      share: tokens / min(budget, @countless),
      exceeded?: tokens > budget
    }
  end

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
      iex> context = AshAgent.Context.Tokens.add_token_usage(context, %{"prompt_tokens" => 9, "completion_tokens" => 2})
      iex> AshAgent.Context.Tokens.get_cumulative_tokens(context)
      %{input_tokens: 9, output_tokens: 2, total_tokens: 11, cached_tokens: 0, cache_write_tokens: 0, reasoning_tokens: 0}
  """
  @doc since: "0.1.0"
  @spec add_token_usage(Context.t(), map(), keyword()) :: Context.t()
  def add_token_usage(%Context{ref: ref} = context, usage, opts \\ []) when is_map(usage),
    do: ref |> Native.context_add_usage(usage, Options.time!(opts)) |> Reply.put!(context)

  @doc """
  Returns the tokens that providers reported in all iterations together, in constant time.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.Tokens.get_cumulative_tokens()
      %{input_tokens: 0, output_tokens: 0, total_tokens: 0, cached_tokens: 0, cache_write_tokens: 0, reasoning_tokens: 0}
  """
  @doc since: "0.1.0"
  @spec get_cumulative_tokens(Context.t()) :: usage()
  def get_cumulative_tokens(%Context{ref: ref}), do: Native.context_usage(ref)

  @doc """
  Returns the tokens that providers reported in the iteration with this number, or `nil` if there is no such iteration.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.Tokens.get_iteration_tokens(2)
      nil
  """
  @doc since: "0.1.0"
  @spec get_iteration_tokens(Context.t(), integer()) :: usage() | nil
  def get_iteration_tokens(%Context{ref: ref}, number) when is_integer(number),
    do: Native.context_iteration_usage(ref, number)

  defp method(opts), do: Options.validate!(opts, :count_tokens)[:method]
end
