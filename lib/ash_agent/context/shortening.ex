defmodule AshAgent.Context.Shortening do
  @moduledoc """
  Shortens the view of a conversation when a request is too long, by the smallest step that helps.

      iex> alias AshAgent.Context
      iex> read = fn number, context ->
      ...>   context
      ...>   |> Context.add_assistant_message(nil, [%{id: "call_\#{number}", name: :read}])
      ...>   |> Context.add_tool_results([{"call_\#{number}", {:ok, String.duplicate("text ", 1_000)}}])
      ...> end
      iex> context = Enum.reduce(1..6, Context.new("Read all."), read) |> Context.Recall.put_recall(true)
      iex> {shorter, step} = Context.Shortening.shorten(context, :context_overflow)
      iex> step
      %{kind: :cleared, cause: :context_overflow, iteration: 7, range: 1..3}
      iex> {shorter, next} = Context.Shortening.shorten(shorter, :context_overflow)
      iex> Context.Shortening.shortenings(shorter) == [step, next]
      true
      iex> shorter |> Context.View.expand(next) |> Context.Shortening.shortenings()
      [%{kind: :cleared, cause: :context_overflow, iteration: 7, range: 1..3}]

  These are the steps; the next one that makes the view shorter is taken:

    1. all results but the last three are cleared, as `AshAgent.Context.Rent` does when it is due
    2. all results but the last one are cleared
    3. everything before the turn is hidden, with an index of its facts in its place; summaries stay
    4. everything in the turn between its question and the last results is hidden in the same way
    5. long results, the newest as well, lose their middle: none is shown with more than half of the bytes of the longest one, or a
       quarter where the provider has to be asked whether that is short enough, and never less than 2,000. The limit holds from then on
    6. with `:summarize`, a summary takes the place of what was hidden before the turn, if it is shorter still

  The first two leave results that the model has not seen; these are cleared after step 5, if they still are too long.

  A run that has the tool `recall` does this when the provider refuses a request as too long, or when the next one would be longer
  than the model's window, see `AshAgent.Runtime`. In your own loop, give the conversation handles first
  (`AshAgent.Context.Recall.put_recall/3`), or the model cannot get back what is left out.

  Each step is part of the view, with its cause, is stored with it, and can be undone with `AshAgent.Context.View.expand/3`.
  """

  use AshAgent.Arguments

  alias AshAgent.Context
  alias AshAgent.Context.{Native, Options, Reply, Tokens, View}

  @typedoc "The reason why the view was shortened: the provider refused a request, or the next one would not fit into the model's window."
  @type cause :: :context_overflow | :window

  @typedoc "A step that shortened the view: the `:iteration` whose request was too long, and the `:range` of iterations that look otherwise since then."
  @type step :: %{
          kind: :cleared | :hidden | :summarized | :shortened,
          cause: cause(),
          iteration: pos_integer(),
          range: Range.t()
        }

  @doc """
  Takes the next step that makes the view shorter, and returns the context and the step.

  Returns the same context and `nil` if nothing is left to leave out, or if the cause is `:window` and the request fits. Costs O(size of
  the log), and the summariser.

  ## Options

  #{Options.docs(:shorten)}

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new(String.duplicate("Many words. ", 100)) |> Context.add_assistant_message("Yes.") |> Context.add_user_message("Go on")
      iex> {_same, nil} = Context.Shortening.shorten(context, :window, window: 1_000)
      iex> {_shorter, step} = Context.Shortening.shorten(context, :window, window: 100)
      iex> step
      %{kind: :hidden, cause: :window, iteration: 2, range: 1..1}
  """
  @doc since: "0.1.0"
  @spec shorten(Context.t(), cause(), keyword()) :: {Context.t(), step() | nil}
  def shorten(%Context{ref: ref} = context, cause, given \\ [])
      when cause in [:context_overflow, :window] do
    opts = Options.validate!(given, :shorten)

    case Native.context_shorten(ref, cause, Options.rent(opts, 0), opts[:at]) do
      {:ok, nil} -> {context, nil}
      {:ok, :exhausted} -> summarize(context, cause, opts[:summarize], Keyword.take(given, [:at]))
      {:ok, {next, step}} -> {Reply.put!({:ok, next}, context), step}
      {:error, _reason} = error -> Reply.put!(error, context)
    end
  end

  defp summarize(context, _cause, nil, _opts), do: {context, nil}

  # The summariser reads earlier summaries as they are, and hidden iterations in full.
  defp summarize(%Context{ref: ref} = context, cause, fun, opts) do
    at = Options.time!(opts)

    with {:ok, {first, last}} <- Native.context_compactable(ref, nil, 0, 0, false),
         revealed = ref |> Native.context_reveal(first, last, at) |> Reply.put!(context),
         {:ok, shorter, %{strategy: :summarize, range: range}} when range != nil <-
           View.compact(revealed, {:summarize, fun}, opts),
         true <- count_tokens(shorter) < count_tokens(context) do
      reply = Native.context_note_summarized(shorter.ref, range.first, range.last, cause, at)
      next = Reply.put!(reply, context)
      {next, List.last(shortenings(next))}
    else
      _nothing_shorter -> {context, nil}
    end
  end

  defp count_tokens(context), do: Tokens.count_tokens(context, method: :estimate)

  @doc """
  Returns the steps by which the view was shortened, oldest first: the newest 50 of them that are not undone.

  ## Examples

      iex> AshAgent.Context.new("Hi!") |> AshAgent.Context.Shortening.shortenings()
      []
  """
  @doc since: "0.1.0"
  @spec shortenings(Context.t()) :: [step()]
  def shortenings(%Context{ref: ref}), do: ref |> Native.context_shortenings() |> Reply.ok!()
end
