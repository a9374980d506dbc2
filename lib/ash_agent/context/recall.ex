defmodule AshAgent.Context.Recall do
  @moduledoc """
  Reading what the view does not show: by handle, or by searching for words.

  A view forgets: it hides iterations, summarises them, clears results and cuts them. The log keeps everything. With
  `put_recall/3`, whatever the view leaves out has a **handle** that stands in its place, and `recall/3` reads what it stands
  for:

      iex> alias AshAgent.Context
      iex> context = Context.new("Read it.") |> Context.add_assistant_message(nil, [%{id: "a", name: :read_file, arguments: %{path: "lib/a.ex"}}])
      iex> context = Context.add_tool_results(context, [{"a", {:ok, String.duplicate("def a, do: :ok\\n", 100)}}])
      iex> context = context |> Context.put_recall(true) |> Context.clear_tool_results(keep: 0)
      iex> [%{content: [%{content: text}]}] = context |> Context.to_messages() |> Enum.take(-1)
      iex> text
      "[2 KB read_file lib/a.ex, recall 1.1-316]"
      iex> Context.recall(context, "1.1-316", lines: 2)
      {:ok, "def a, do: :ok\\ndef a, do: :ok\\n[lines 1 to 2 of 100]"}

  `AshAgent.Runtime.Recall.tool/1` of the package `ash_agent_runtime` is the tool that lets a model do this. A run with the
  tool turns handles on.

  ## Handles

  | handle | stands for | is shown |
  |---|---|---|
  | `17.2-431` | the result of the second call of iteration 17 | instead of a cleared result, and where a result was cut |
  | `17-431` | iteration 17 | in hits of a search |
  | `3..17-431` | iterations 3 to 17 | as a user message instead of a hidden range, and in the first line of a summary |

  A note has at most about 20 tokens of `:o200k_base`; the tool's name and the argument in it are shortened to fit. A result that is shorter
  than its note is not cleared. The three digits are a checksum of the content. Handles survive
  storage and forks; after a rewind, once other iterations have the same numbers, they are gone.

  The view's masks apply here too: masked text is neither read nor found.

  Call these functions as those of `AshAgent.Context`, which checks their arguments.
  """

  alias AshAgent.Context.{Error, Native, Options, Reply}

  @typedoc "A hit of `search/3`: the handle of what was found, a piece of its text, and how well it fits."
  @type hit :: %{handle: String.t(), text: String.t(), score: float()}

  @doc """
  Sets whether what the view leaves out has handles, and returns the new context. It has none by default.

  Set this when the model has a tool that reads handles: without one, they only cost tokens. Costs O(what is hidden).

  ## Options

  #{Options.docs(:put_recall)}

  With an index, the block that replaces hidden iterations ends with the facts that are most likely to be needed again: those that
  calls used, that the user named, or that are new. It is made when iterations are hidden and stays as it is until more are
  hidden, so that it does not break the prompt cache.

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new("One") |> Context.add_assistant_message("1") |> Context.add_user_message("Two")
      iex> context |> Context.keep_last_iterations(1) |> Context.put_recall(true) |> Context.to_messages()
      [
        %{role: :user, content: "[Iteration 1 is hidden, recall 1-808]", metadata: %{hidden: %{first: 1, last: 1}}},
        %{role: :user, content: "Two"}
      ]
  """
  @doc since: "0.1.0"
  @spec put_recall(context, boolean(), keyword()) :: context when context: Reply.handle()
  def put_recall(%{ref: ref} = context, recall, opts \\ []) do
    opts = Options.validate!(opts, :put_recall)

    ref
    |> Native.context_put_recall(recall, opts[:at])
    |> Reply.put!(context)
    |> put_index(opts[:index], opts[:user_bytes], opts[:at])
  end

  defp put_index(context, nil, nil, _at), do: context

  defp put_index(%{ref: ref} = context, share, bytes, at),
    do:
      ref
      |> Native.context_put_index(share && round(share * 1_000), bytes, at)
      |> Reply.put!(context)

  @doc """
  Returns whether what the view leaves out has handles, see `put_recall/3`.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.recall?()
      false
  """
  @doc since: "0.1.0"
  @spec recall?(Reply.handle()) :: boolean()
  def recall?(%{ref: ref} = _context), do: ref |> Native.context_has_recall() |> Reply.ok!()

  @doc """
  Reads what a handle stands for, and returns `{:ok, text}` or `{:error, error}`.

  The text of a result is what models read. The text of iterations has each message, call and result on its own lines.
  If the text is cut, a last line says which lines it has. A line of more than 1,000 bytes counts as several.

  The error's reason is `{:unknown_handle, text}`, `{:handle_gone, handle}`, or `{:invalid_pattern, pattern, problem}`.
  Costs O(size of what is read).

  ## Options

  #{Options.docs(:recall)}

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new("Look it up: 17") |> Context.add_assistant_message("Seventeen.\\nA prime.")
      iex> [%{handle: handle}] = context |> Context.add_user_message("Thanks") |> Context.keep_last_iterations(1) |> Context.search("prime")
      iex> Context.recall(context, handle, pattern: "(?i)prime")
      {:ok, "3: A prime.\\n"}
      iex> {:error, error} = Context.recall(context, "1-999")
      iex> error.reason
      {:handle_gone, "1-999"}
  """
  @doc since: "0.1.0"
  @spec recall(Reply.handle(), String.t(), keyword()) :: {:ok, String.t()} | {:error, Error.t()}
  def recall(%{ref: ref} = _context, handle, opts \\ []) do
    opts = Options.validate!(opts, :recall)
    asked = Map.new([:from, :lines, :pattern, :max_bytes], &{&1, opts[&1]})
    ref |> Native.context_recall(handle, asked) |> Reply.to_result()
  end

  @doc """
  Searches everything that the view does not show in full for words, and returns hits, the best first.

  Texts are ranked by BM25, ignoring case; those that contain the words exactly as given, even within longer words, come first. Answers of
  the tool `recall` itself are not searched. Costs O(size of the log): a
  megabyte takes a few milliseconds.

  ## Options

  #{Options.docs(:search)}

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new("My dog is called Rex.") |> Context.add_assistant_message("Hello, Rex!") |> Context.add_user_message("Bye")
      iex> context |> Context.keep_last_iterations(1) |> Context.search("dog", limit: 1) |> Enum.map(& &1.text)
      ["My dog is called Rex."]
      iex> Context.search(context, "dog")
      []
  """
  @doc since: "0.1.0"
  @spec search(Reply.handle(), String.t(), keyword()) :: [hit()]
  def search(%{ref: ref} = _context, words, opts \\ []) do
    opts = Options.validate!(opts, :search)
    ref |> Native.context_search(words, opts[:limit]) |> Reply.ok!()
  end
end
