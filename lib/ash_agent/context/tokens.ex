defmodule AshAgent.Context.Tokens do
  @moduledoc """
  Counts the tokens of a conversation's view, and compares them with a budget.

  Call these as functions of `AshAgent.Context`, which checks their arguments. Here they take anything with the context's `:ref`.
  Providers' own reports are in `AshAgent.Context.Responses`.
  """

  alias AshAgent.Context.{Native, Options, Reply}

  # As large as an integer can be that is sure to be a float.
  @countless Integer.pow(2, 1000)

  @typedoc """
  How to count tokens:

    * `:auto` - the last report recorded by `AshAgent.Context.add_token_usage/3`, plus an estimate of everything after it; without a
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

  @doc """
  Returns the number of tokens in the view.

  Text, tool calls, results, the system prompt, thinking, images and files all count. Each message adds four tokens, and
  each call and each result eight. Images count by their pixels, not by their bytes. Every message is counted once, so
  counting takes constant time on an unchanged context, and after an append the time for the new messages.

  `:auto` assumes that the report was about a request with this context's view: if a smaller view was sent, use
  `:estimate`. It subtracts an estimate of everything hidden or shortened after the report. Reasoning that a report counts
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
      iex> AshAgent.Context.count_tokens(context, method: :o200k_base)
      8
      iex> context = context |> AshAgent.Context.add_assistant_message("Hi!") |> AshAgent.Context.add_token_usage(%{input_tokens: 11, output_tokens: 3})
      iex> AshAgent.Context.count_tokens(context)
      14
  """
  @doc since: "0.1.0"
  @spec count_tokens(Reply.handle(), method: token_method()) :: non_neg_integer()
  def count_tokens(%{ref: ref} = _context, opts \\ []),
    do: ref |> Native.context_count_tokens(method(opts)) |> Reply.ok!()

  @doc """
  Returns the tokens of the view by purpose.

  Takes the option of `count_tokens/2`; here `:auto` is `:estimate`, since reports do not have these parts.

  ## Examples

      iex> context = AshAgent.Context.new("Hello, world!", system_prompt: "Be brief.")
      iex> AshAgent.Context.token_breakdown(context, method: :o200k_base)
      %{system: 7, user: 8, assistant: 0, thinking: 0, tool_calls: 0, tool_results: 0, media: 0, summaries: 0}
  """
  @doc since: "0.1.0"
  @spec token_breakdown(Reply.handle(), method: token_method()) :: breakdown()
  def token_breakdown(%{ref: ref} = _context, opts \\ []),
    do: ref |> Native.context_token_breakdown(method(opts)) |> Reply.ok!()

  @doc """
  Returns an estimate of the view's tokens from the text alone; the same as `count_tokens(context, method: :estimate)`.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.estimate_token_count() |> is_integer()
      true
  """
  @doc since: "0.1.0"
  @spec estimate_token_count(Reply.handle()) :: non_neg_integer()
  def estimate_token_count(context), do: count_tokens(context, method: :estimate)

  @doc """
  Returns whether the view has more tokens than `budget`. Takes the option of `count_tokens/2`.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.exceeds_token_budget?(100)
      false
  """
  @doc since: "0.1.0"
  @spec exceeds_token_budget?(Reply.handle(), pos_integer(), method: token_method()) :: boolean()
  def exceeds_token_budget?(context, budget, opts \\ []), do: count_tokens(context, opts) > budget

  @doc """
  Returns how many tokens of `budget` the view leaves free, or 0. Takes the option of `count_tokens/2`.

  ## Examples

      iex> AshAgent.Context.new("Hello, world!") |> AshAgent.Context.tokens_remaining(100, method: :o200k_base)
      92
  """
  @doc since: "0.1.0"
  @spec tokens_remaining(Reply.handle(), pos_integer(), method: token_method()) ::
          non_neg_integer()
  def tokens_remaining(context, budget, opts \\ []),
    do: max(budget - count_tokens(context, opts), 0)

  @doc """
  Returns the share of `budget` that the view takes: 1.0 for all of it, more if it exceeds it. Takes the option of
  `count_tokens/2`.

  ## Examples

      iex> AshAgent.Context.new("Hello, world!") |> AshAgent.Context.budget_utilization(80, method: :o200k_base)
      0.1
  """
  @doc since: "0.1.0"
  @spec budget_utilization(Reply.handle(), pos_integer(), method: token_method()) :: float()
  def budget_utilization(context, budget, opts \\ []),
    do: count_tokens(context, opts) / min(budget, @countless)

  defp method(opts), do: Options.validate!(opts, :count_tokens)[:method]
end
