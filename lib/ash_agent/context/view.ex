defmodule AshAgent.Context.View do
  @moduledoc """
  The view of a conversation: what models see of its log.

  The log, which is everything that was said, is never changed by these functions. They hide and summarise iterations, clear,
  shorten and mask texts, and add to the system prompt; `AshAgent.Context.to_messages/1`, requests and token counts show the result.
  """

  use AshAgent.Arguments

  alias AshAgent.{Caller, Context}
  alias AshAgent.Context.{Enhancer, Error, Native, Options, Reply, Shortening}
  alias AshAgent.Context.Options.Kinds
  alias AshAgent.Options, as: Check

  defguardp is_positive(number) when is_integer(number) and number > 0

  @least_result_bytes Kinds.least_result_bytes()

  @typedoc "The differences of a view from the log, see `view/1`."
  @type t :: %{
          hidden: [Range.t()],
          summaries: [Range.t()],
          cleared:
            %{iteration: pos_integer(), calls: non_neg_integer(), placeholder: String.t()} | nil,
          max_result_bytes: pos_integer() | nil,
          masks: [{String.t(), String.t()}],
          blocks: [{String.t(), String.t()}]
        }

  @typedoc "The iterations to hide, see `hide/3`."
  @type which ::
          pos_integer()
          | Range.t()
          | {:all_but, Range.t()}
          | {:all_but_last, pos_integer()}
          | {:older_than, non_neg_integer()}

  @typedoc """
  How to compact a range of iterations: `:drop` hides it, `{:summarize, fun}` shows a summary instead.

  The function gets the range's messages as in the view, and returns a string, `{:ok, string}` or `{:error, reason}`.
  """
  @type strategy ::
          :drop
          | {:summarize,
             ([Context.message()] -> String.t() | {:ok, String.t()} | {:error, term()})}

  @typedoc "The outcome of `compact/3`."
  @type compaction :: %{
          range: Range.t() | nil,
          strategy: :drop | :summarize | :clear,
          reason: term() | nil,
          verdict: verdict() | nil
        }

  @typedoc """
  The verdict on a summary: how many facts there are in the iterations, how many of them the summary kept, the likeliest
  to be needed of those that it misses, what it says that is wrong, and how many facts were appended to it.
  """
  @type verdict :: %{
          facts: non_neg_integer(),
          kept: non_neg_integer(),
          missing: [String.t()],
          wrong: [String.t()],
          appended: non_neg_integer()
        }

  @doc """
  Returns how the view differs from the log.

  `hidden` and `summaries` are ranges of iterations, oldest first. `cleared` is the position up to which results are
  cleared. `masks` and `blocks` are those of `put_masks/3` and `put_prompt_block/4`.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.View.view()
      %{hidden: [], summaries: [], cleared: nil, max_result_bytes: nil, masks: [], blocks: []}
  """
  @doc since: "0.1.0"
  @spec view(Context.t()) :: t()
  def view(%Context{ref: ref}), do: ref |> Native.context_view() |> Reply.ok!()

  @doc """
  Hides iterations, also those of the current turn, and returns the new context. `expand/3` shows them again.

  The log keeps them, numbers stay, and the next message goes where it would have gone. `which` says what is hidden:

    * a range of numbers, or one number. A summary that reaches out of the range stays
    * `{:all_but_last, count}` - all but the last iterations that have messages
    * `{:all_but, range}` - all but these, and those added later
    * `{:older_than, seconds}` - those that began so long before `:at`. The last iteration with messages stays

  Takes the option `:at` as `AshAgent.Context.put_metadata/4` does. Raises `AshAgent.Context.Error` with `{:pending_tool_calls, ids}` if a
  range hides the current iteration and calls are pending in it.

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new("One", at: ~U[2026-01-01 10:00:00Z], system_prompt: "Hi") |> Context.add_assistant_message("1")
      iex> context = Context.add_user_message(context, "Two", at: ~U[2026-01-01 12:00:00Z])
      iex> context |> Context.View.hide(1) |> Context.to_messages()
      [%{role: :system, content: "Hi"}, %{role: :user, content: "Two"}]
      iex> context |> Context.View.hide({:all_but_last, 1}) |> Context.to_messages()
      [%{role: :system, content: "Hi"}, %{role: :user, content: "Two"}]
      iex> context |> Context.View.hide({:all_but, 1..1}) |> Context.to_messages()
      [%{role: :system, content: "Hi"}, %{role: :user, content: "One"}, %{role: :assistant, content: "1"}]
      iex> context |> Context.View.hide({:older_than, 3600}, at: ~U[2026-01-01 12:30:00Z]) |> Context.count_messages()
      2
  """
  @doc since: "0.1.0"
  @spec hide(Context.t(), which(), keyword()) :: Context.t()
  def hide(context, which, opts \\ [])

  def hide(%Context{} = context, which, opts) when is_positive(which),
    do: hide(context, which..which, opts)

  def hide(%Context{ref: ref} = context, %Range{first: first, last: last}, opts)
      when is_positive(first) and last >= first,
      do: ref |> Native.context_hide(first, last, Options.time!(opts)) |> Reply.put!(context)

  def hide(%Context{ref: ref} = context, {:all_but, %Range{first: first, last: last}}, opts)
      when is_positive(first) and last >= first,
      do: ref |> Native.context_range(first, last, Options.time!(opts)) |> Reply.put!(context)

  def hide(%Context{ref: ref} = context, {:all_but_last, count}, opts) when is_positive(count),
    do: ref |> Native.context_keep_last(count, Options.time!(opts)) |> Reply.put!(context)

  def hide(%Context{ref: ref} = context, {:older_than, seconds}, opts)
      when is_integer(seconds) and seconds >= 0 do
    at = Options.time!(opts) || DateTime.utc_now()
    # The calendar begins with the year 0: nothing is older.
    most = DateTime.diff(at, ~U[0000-01-01 00:00:00Z])
    before = DateTime.add(at, -min(seconds, most), :second)
    ref |> Native.context_remove_old(before, at) |> Reply.put!(context)
  end

  @doc """
  Shows hidden or summarised iterations in the view again, and returns the new context.

  `range` is a range of numbers, one number, or `:all`. A summary that the range touches is removed as a whole. With a step of
  `AshAgent.Context.Shortening.shortenings/1` it undoes the step: it shows the iterations again that the step hid or summarised, or the results
  that the step and later ones cleared, or the middle of results that it and later ones left out. Takes the option `:at` as `AshAgent.Context.put_metadata/4` does.

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new("One") |> Context.add_assistant_message("1") |> Context.add_user_message("Two")
      iex> context |> Context.View.hide({:all_but_last, 1}) |> Context.View.expand(:all) |> Context.count_messages()
      3
  """
  @doc since: "0.1.0"
  @spec expand(Context.t(), Range.t() | pos_integer() | :all | Shortening.step(), keyword()) ::
          Context.t()
  def expand(context, part, opts \\ [])

  def expand(%Context{ref: ref} = context, :all, opts) do
    last = Native.context_first_iteration(ref) + Native.context_count_iterations(ref)
    expand(context, 1..last, opts)
  end

  def expand(%Context{ref: ref} = context, %{kind: kind, range: %Range{} = range}, opts) do
    reply = Native.context_undo(ref, kind, range.first, range.last, Options.time!(opts))
    Reply.put!(reply, context)
  end

  def expand(%Context{} = context, part, opts) when is_positive(part),
    do: expand(context, part..part, opts)

  def expand(%Context{ref: ref} = context, %Range{first: first, last: last}, opts)
      when first > 0 and last >= first,
      do: ref |> Native.context_expand(first, last, Options.time!(opts)) |> Reply.put!(context)

  def expand(%Context{}, part, _opts)
      when is_integer(part) or is_struct(part, Range) or is_map_key(part, :kind) do
    refuse!(
      ":all, the number of an iteration, a range of them, or a step that shortenings/1 returns"
    )
  end

  @doc """
  Hides the oldest iterations until the view fits into `budget` tokens, and returns `{:ok, context, hidden}` or `{:error,
  error}`.

  `hidden` is the range of all iterations that are then hidden, or `nil`. Iterations are hidden as a whole, so that no
  exchange is cut. These always stay: the system prompt, the current turn (everything from the last user message on) with
  its pending calls, and the iterations that `:keep_first` and `:keep_last` name. Summaries stay if hiding the rest
  suffices. The log keeps everything, and `expand/3` brings it back.

  The error's reason is `{:cannot_fit, least}` with the number of tokens that have to stay. Costs O(iterations hidden).

  ## Options

  #{Options.docs(:fit)}

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Enum.reduce(1..4, Context.new("0"), &(&2 |> Context.add_assistant_message("ok") |> Context.add_user_message(to_string(&1))))
      iex> {:ok, context, hidden} = Context.View.fit(context, 16, step: 1, method: :o200k_base)
      iex> {hidden, Context.to_messages(context)}
      {1..3, [%{role: :user, content: "3"}, %{role: :assistant, content: "ok"}, %{role: :user, content: "4"}]}
      iex> {:error, error} = Context.View.fit(context, 4)
      iex> error.reason
      {:cannot_fit, 5}
  """
  @doc since: "0.1.0"
  @spec fit(Context.t(), non_neg_integer(), keyword()) ::
          {:ok, Context.t(), Range.t() | nil} | {:error, Error.t()}
  def fit(%Context{ref: ref} = context, budget, opts \\ [])
      when is_integer(budget) and budget >= 0 do
    opts = Options.validate!(opts, :fit)

    {at, given} = Keyword.pop(opts, :at)

    case Native.context_fit(ref, Map.new([budget: budget] ++ given), at) do
      {:ok, {handle, hidden}} -> {:ok, Reply.put!({:ok, handle}, context), hidden}
      {:error, _reason} = error -> Reply.put_at(error, context)
    end
  end

  @doc """
  Compacts the view, and returns `{:ok, context, info}` or `{:error, error}`.

  The view shows the summary instead of the iterations, as a user message with `metadata: %{summary: %{first: first, last:
  last}}` and a first line that says so. The log keeps the iterations: `expand/3` brings them back, and `AshAgent.Context.get_iteration/2`
  and dumps include them. The current turn with its pending calls is never compacted. Compacting again works on the view,
  so the summariser gets the earlier summary.

  `info` has the compacted `:range` (`nil` if there was nothing to compact, or nothing but a summary), the `:strategy` that
  was used, and the `:reason` why it is another one than asked for: the summariser returned `{:error, reason}`, raised, or
  did not return text; its summary is larger than half of what it replaces (`{:summary_too_long, tokens, replaced}`, by
  `:estimate`); or the check refused it (`:summary_refused`). Then the results of the range are cleared (`:clear`), or the
  range is hidden if it has none (`:drop`): a summary that fails leaves a way on.

  The error's reason is `{:not_compactable, range, allowed}`. Costs O(size of the log), and the summariser.

  ## Checking

  Each summary is compared by a program with the iterations that it stands for, fact by fact (see
  `AshAgent.Context.Recall`). The verdict is in `info`, is kept with the view, and `verdict/2` returns it. `wrong` has what
  the summary says that the iterations do not: a path, an id or a number that is not there, or that is another one between
  the same words. `:refuse` and `:hide` act if anything is wrong, or if the summary lacks more facts that calls used or
  users named than it has facts.

  ## Options

  #{Options.docs(:compact)}

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new(String.duplicate("Tell me of Elixir. ", 20)) |> Context.add_assistant_message("It is a language.")
      iex> context = Context.add_user_message(context, "Go on")
      iex> {:ok, context, info} = Context.View.compact(context, {:summarize, fn _messages -> "Elixir was explained." end})
      iex> info
      %{range: 1..1, strategy: :summarize, reason: nil, verdict: %{facts: 1, kept: 0, missing: [String.duplicate("Tell me of Elixir. ", 11) |> binary_part(0, 200)], wrong: [], appended: 0}}
      iex> Context.to_messages(context)
      [
        %{
          role: :user,
          content: "[Summary of iteration 1 of this conversation]\\nElixir was explained.",
          metadata: %{summary: %{first: 1, last: 1}}
        },
        %{role: :user, content: "Go on"}
      ]
  """
  @doc since: "0.1.0"
  @spec compact(Context.t(), strategy(), keyword()) ::
          {:ok, Context.t(), compaction()} | {:error, Error.t()}
  def compact(%Context{ref: ref} = context, strategy, opts \\ []) do
    opts = Options.validate!(opts, :compact)
    strategy = strategy!(strategy)
    asked = if range = opts[:range], do: {range.first, range.last}
    {first, last} = {opts[:keep_first], opts[:keep_last]}
    name = elem(strategy, 0)

    case Native.context_compactable(ref, asked, first, last, name == :summarize) do
      {:ok, nil} ->
        {:ok, context, %{range: nil, strategy: name, reason: nil, verdict: nil}}

      {:ok, {first, last}} ->
        compact(context, strategy, first..last, opts)

      {:error, {:not_compactable, _range, allowed}} ->
        {:error, %Error{reason: {:not_compactable, opts[:range], allowed}}}
    end
  end

  defp strategy!(:drop), do: {:drop, nil}
  defp strategy!({:summarize, fun}) when is_function(fun, 1), do: {:summarize, fun}

  defp strategy!(other),
    do: refuse!(":drop or {:summarize, fun} with a function of arity 1", other)

  defp compact(%Context{ref: ref} = context, {:drop, nil}, range, opts) do
    reply = Native.context_drop_range(ref, range.first, range.last, opts[:at])
    {:ok, Reply.put!(reply, context), %{range: range, strategy: :drop, reason: nil, verdict: nil}}
  end

  defp compact(%Context{ref: ref} = context, {:summarize, fun}, range, opts) do
    %{first: first, last: last} = range
    messages = ref |> Native.context_messages_between(first, last) |> Reply.ok!()

    with {:ok, text} <- make_summary(fun, messages),
         check = opts[:check] || :nothing,
         {:ok, {handle, fate, verdict}} <-
           Native.context_summarize(ref, first, last, text, check, opts[:at]) do
      info = %{range: range, strategy: strategy(fate), reason: nil, verdict: verdict}
      info = if fate == :summarized, do: info, else: %{info | reason: :summary_refused}
      {:ok, Reply.put!({:ok, handle}, context), info}
    else
      {:error, reason} -> forget(context, range, reason, opts[:at])
    end
  end

  # Whatever the application's function returns or raises, the conversation goes on.
  defp make_summary(fun, messages) do
    said = with {:ok, text} <- Enhancer.attempt(fn -> fun.(messages) end), do: text

    cond do
      match?({:error, _reason}, said) -> said
      Kinds.words?(said) -> {:ok, said}
      true -> {:error, :no_text}
    end
  end

  defp forget(%Context{ref: ref} = context, range, reason, at) do
    {handle, fate} = ref |> Native.context_forget(range.first, range.last, at) |> Reply.ok!()
    info = %{range: range, strategy: strategy(fate), reason: reason, verdict: nil}
    {:ok, Reply.put!({:ok, handle}, context), info}
  end

  defp strategy(:summarized), do: :summarize
  defp strategy(:cleared), do: :clear
  defp strategy(:hidden), do: :drop

  @doc """
  Shows a summary instead of iterations, given as a number or a range, in the view, and returns the new context.

  It does what `compact/3` does with `check: nil`, with a summary that you already have. Takes the option `:at` as `AshAgent.Context.put_metadata/4` does.
  Raises `AshAgent.Context.Error` with `{:not_compactable, range, allowed}` or `{:summary_too_long, tokens, replaced}`.

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new(String.duplicate("Tell me of Elixir. ", 20)) |> Context.add_assistant_message("It is a language.")
      iex> context = context |> Context.add_user_message("Go on") |> Context.View.mark_as_summarized(1, "Elixir was explained.")
      iex> Context.View.summary(context, 1)
      "Elixir was explained."
  """
  @doc since: "0.1.0"
  @spec mark_as_summarized(Context.t(), pos_integer() | Range.t(), String.t(), keyword()) ::
          Context.t()
  def mark_as_summarized(context, range, summary, opts \\ [])

  def mark_as_summarized(%Context{} = context, range, summary, opts)
      when is_positive(range) and is_binary(summary),
      do: mark_as_summarized(context, range..range, summary, opts)

  def mark_as_summarized(%Context{ref: ref} = context, %Range{} = range, summary, opts)
      when is_positive(range.first) and range.last >= range.first and is_binary(summary) do
    %{first: first, last: last} = range

    unless Kinds.words?(summary), do: refuse!("the summary to be UTF-8 text that is not blank")

    case Native.context_summarize(ref, first, last, summary, :nothing, Options.time!(opts)) do
      {:error, {:not_compactable, _range, allowed}} ->
        raise Error, reason: {:not_compactable, first..last, allowed}

      {:ok, {handle, :summarized, _verdict}} ->
        Reply.put!({:ok, handle}, context)

      {:error, _reason} = error ->
        Reply.put!(error, context)
    end
  end

  @doc """
  Returns the summary that the view shows instead of the iteration with this number, masked as the view is, or `nil`.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.View.summary(1)
      nil
  """
  @doc since: "0.1.0"
  @spec summary(Context.t(), integer()) :: String.t() | nil
  def summary(%Context{ref: ref}, number) when is_integer(number),
    do: ref |> Native.context_summary_of(number) |> Reply.ok!()

  @doc """
  Returns what the check said of the summary that the view shows instead of the iteration with this number, or `nil`.

  See `compact/3`.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.View.verdict(1)
      nil
  """
  @doc since: "0.1.0"
  @spec verdict(Context.t(), integer()) :: verdict() | nil
  def verdict(%Context{ref: ref}, number) when is_integer(number),
    do: ref |> Native.context_verdict(number) |> Reply.ok!()

  @doc """
  Clears old tool results in the view, and returns the new context. The calls stay, and the log keeps the results.

  The last results in the view stay. Later results are shown until you call this again, so that requests keep their
  beginning. Calling it again replaces the earlier call: if it keeps more results than there are, all are shown. Costs
  O(results kept).

  ## Options

  #{Options.docs(:clear_tool_results)}

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new("Hi") |> Context.add_assistant_message(nil, [%{id: "a", name: :read}])
      iex> context = context |> Context.add_tool_results([{"a", {:ok, "a long text"}}]) |> Context.View.clear_tool_results(keep: 0)
      iex> context |> Context.to_messages() |> List.last()
      %{role: :user, content: [%{type: :tool_result, tool_use_id: "a", content: "[Old tool result cleared]", is_error: false}]}
  """
  @doc since: "0.1.0"
  @spec clear_tool_results(Context.t(), keyword()) :: Context.t()
  def clear_tool_results(%Context{ref: ref} = context, opts \\ []) do
    opts = Options.validate!(opts, :clear_tool_results)

    ref
    |> Native.context_clear_results(opts[:keep], opts[:placeholder], opts[:by_policy], opts[:at])
    |> Reply.put!(context)
  end

  @doc """
  Limits the text of each tool result in the view to a number of bytes, at least #{@least_result_bytes}, and returns the
  new context. `nil` shows results whole.

  A longer result is shown with its beginning and its end, cut at characters, and a note between them that says how much
  was left out. The log has it whole. `AshAgent.Context.request/3` takes the same limit as the option `:max_result_bytes`, for a single
  request.

  Takes the option `:at` as `AshAgent.Context.put_metadata/4` does.

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new("Hi") |> Context.add_assistant_message(nil, [%{id: "a", name: :read}])
      iex> context = Context.add_tool_results(context, [{"a", {:ok, String.duplicate("x", 5_000)}}])
      iex> [%{content: [%{content: text}]}] = context |> Context.View.put_max_result_bytes(100) |> Context.to_messages() |> Enum.take(-1)
      iex> {byte_size(text), String.replace(text, "x", "")}
      {100, "\\n[... 4931 bytes left out ...]\\n"}
  """
  @doc since: "0.1.0"
  @spec put_max_result_bytes(Context.t(), pos_integer() | nil, keyword()) :: Context.t()
  def put_max_result_bytes(%Context{ref: ref} = context, bytes, opts \\ []) do
    unless Kinds.result_bytes?(bytes),
      do: refuse!("an integer of at least #{@least_result_bytes}, or nil", bytes)

    ref |> Native.context_max_result_bytes(bytes, Options.time!(opts)) |> Reply.put!(context)
  end

  @doc """
  Adds a named text after the system prompt in the view, and returns the new context. The same name replaces it, and `nil`
  removes it.

  Texts are in the order in which their names were first put, separated by blank lines. The system prompt itself does not
  change. Takes the option `:at` as `AshAgent.Context.put_metadata/4` does.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!", system_prompt: "Be brief.")
      iex> context |> AshAgent.Context.View.put_prompt_block(:memory, "The user is Ann.") |> AshAgent.Context.to_messages() |> hd()
      %{role: :system, content: "Be brief.\\n\\nThe user is Ann."}
  """
  @doc since: "0.1.0"
  @spec put_prompt_block(Context.t(), atom() | String.t(), String.t() | nil, keyword()) ::
          Context.t()
  def put_prompt_block(%Context{ref: ref} = context, name, text, opts \\ [])
      when (is_atom(name) or is_binary(name)) and (is_binary(text) or is_nil(text)) do
    for given <- [to_string(name), text], is_binary(given), not String.valid?(given) do
      refuse!("a UTF-8 string, got: #{Check.kind(given)} that is not valid UTF-8")
    end

    ref
    |> Native.context_prompt_block(to_string(name), text, Options.time!(opts))
    |> Reply.put!(context)
  end

  @doc """
  Masks the matches of patterns in all texts of the view, and returns the new context.

  `masks` is a list of at most 100 tuples `{pattern, replacement}` that replaces all earlier masks; `[]` removes them. A
  pattern is a regular expression, as a string or as a `Regex` without options, in the syntax of Rust's [regex
  crate](https://docs.rs/regex/latest/regex/#syntax), which runs in linear time and has no look-around and no
  backreferences. The classes of Unicode's ages and of its text segmentation, such as `\\p{Age=6.0}`, are not
  supported.

  Masks apply to messages, prompts and requests: to text, the arguments of tool calls with their keys and numbers,
  results, names and addresses of files, and files that are text. The log does not change. A provider's own block that
  matches is left out, thinking that matches loses its signature and so is not sent again, and an image or a file whose
  address matches becomes text. Masks do not apply to what the application chose (names of tools, ids and further keys of
  calls, metadata), nor to the contents of images and other files. Notes in place of hidden iterations are made again from masked
  text. Summaries lose pieces of at least six letters, and facts of at least four, that the conversation has only in masked text, and
  have them back with other masks; `[masked]` stands in their place. If iterations are hidden or summarised, this costs O(n).

  Takes the option `:at` as `AshAgent.Context.put_metadata/4` does. Raises `AshAgent.Context.Error` with `{:invalid_pattern, pattern,
  problem}`.

  ## Examples

      iex> context = AshAgent.Context.new("My card is 4111 1111 1111 1111.")
      iex> context |> AshAgent.Context.View.put_masks([{~r/\\b(\\d{4} ?){4}\\b/, "[card]"}]) |> AshAgent.Context.to_messages()
      [%{role: :user, content: "My card is [card]."}]
  """
  @doc since: "0.1.0"
  @spec put_masks(Context.t(), [{Regex.t() | String.t(), String.t()}], keyword()) :: Context.t()
  def put_masks(%Context{ref: ref} = context, masks, opts \\ []) when is_list(masks) do
    if List.improper?(masks), do: refuse!("masks to be a proper list")
    masks = Enum.map(masks, &mask!/1)
    ref |> Native.context_masks(masks, Options.time!(opts)) |> Reply.put!(context)
  end

  defp mask!({%Regex{} = regex, replacement}) when is_binary(replacement) do
    unless Regex.opts(regex) in ["", []],
      do: refuse!("a regex without options; write them into the pattern itself, as in (?i)")

    mask!({Regex.source(regex), replacement})
  end

  defp mask!({pattern, replacement} = mask) when is_binary(pattern) and is_binary(replacement) do
    if String.valid?(pattern) and String.valid?(replacement),
      do: mask,
      else: refuse!("a mask's pattern and replacement to be valid UTF-8")
  end

  defp mask!(other),
    do: refuse!("a mask to be {pattern, replacement} with a regex or string and a string", other)

  defp refuse!(expected), do: Caller.refuse!("expected " <> expected)
  defp refuse!(expected, got), do: refuse!("#{expected}, got: #{Check.kind(got)}")
end
