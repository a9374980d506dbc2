defmodule AshAgent.Context.Recall do
  @moduledoc """
  Reads what the view does not show, searches it for words, and counts what is lost.

  A view forgets: it hides iterations, summarises them, clears results and cuts them. The log keeps everything. With
  `put_recall/3`, whatever the view leaves out has a **handle** that stands in its place, and `recall/3` reads what it stands
  for:

      iex> alias AshAgent.Context
      iex> context = Context.new("Read it.") |> Context.add_assistant_message(nil, [%{id: "a", name: :read_file, arguments: %{path: "lib/a.ex"}}])
      iex> context = Context.add_tool_results(context, [{"a", {:ok, String.duplicate("def a, do: :ok\\n", 100)}}])
      iex> context = context |> Context.Recall.put_recall(true) |> Context.View.clear_tool_results(keep: 0)
      iex> [%{content: [%{content: text}]}] = context |> Context.to_messages() |> Enum.take(-1)
      iex> text
      "[2 KB read_file lib/a.ex: def a, do: :ok def, recall 1.1-316]"
      iex> Context.Recall.recall(context, "1.1-316", lines: 2)
      {:ok, "def a, do: :ok\\ndef a, do: :ok\\n[lines 1 to 2 of 100]"}

  `AshAgent.Runtime.Recall.tool/1` of the package `ash_agent_runtime` is the tool that lets a model do this. A run with the
  tool turns handles on.

  ## Handles

  | handle | stands for | is shown |
  |---|---|---|
  | `17.2-431` | the result of the second call of iteration 17 | instead of a cleared result, and where a result was cut |
  | `17-431` | iteration 17 | in hits of a search |
  | `3..17-431` | iterations 3 to 17 | as a user message instead of a hidden range, and in the first line of a summary |

  The note says what is there: which kinds of facts a result has most of, and its first words, as in
  `[3 KB run mix test: 12 paths, 2 errors, Compiling 4 files, recall 4.1-512]`. It has at most about 20 tokens of `:o200k_base`, and one more for each 256 bytes
  of the result, up to 12; the tool's name and the argument are shortened to fit, and so is the rest. Facts are counted once for a result, as
  far as its first 64 KB: `40+ paths` says that more may follow. The note of hidden iterations counts those of their results, and the note in a
  result that is cut to at least 1,000 bytes counts those of all of it. A result that is shorter than its note is not cleared. The three digits are a checksum of the
  content. Handles survive storage and forks; after a rewind, once other iterations have the same numbers, they are gone.

  The view's masks apply here too: masked text is neither read nor found.

  ## Receipts

  A view forgets so that requests stay short, and the log keeps everything. If the view no longer shows a fact where it was said, the **receipt** says
  whether the model still sees it elsewhere, can `recall` it, or has lost it:

      iex> alias AshAgent.Context
      iex> context = Context.new("Fix it") |> Context.add_assistant_message(nil, [%{id: "a", name: :run, arguments: %{cmd: "mix test"}}])
      iex> context = Context.add_tool_results(context, [{"a", {:ok, "test/a_test.exs failed\\n3 tests, exit code 2"}}])
      iex> context = context |> Context.Recall.put_recall(true) |> Context.add_assistant_message("Fixed.") |> Context.add_user_message("Next") |> Context.View.hide({:all_but_last, 1})
      iex> receipt = Context.Recall.receipt(context)
      iex> receipt.counts
      %{visible: 0, recall: 5, masked: 0, gone: 0}
      iex> [%{kind: :path, text: "test/a_test.exs", state: :recall, iteration: 1} | _] = receipt.facts

  A fact is something that a model cannot make up. Facts are found by their shape, in time linear in the size of the text:

  | kind | is |
  |---|---|
  | `:path` | a path, or the name of a file with a common ending |
  | `:address` | a URL, or the address of a person |
  | `:id` | a word of letters and digits, of at least 4 |
  | `:number` | a number with the word next to it; a single digit is not one |
  | `:error` | a line that reports an error, and the first line of a result that is one |
  | `:exit_code` | the exit code of a program |
  | `:name` | any other word that a later call used as an argument, or as part of one if it looks like a name |
  | `:decision` | the first line of a user's message, and what a person decided about a call |

  | state | means |
  |---|---|
  | `:visible` | the view shows it elsewhere |
  | `:recall` | the view has handles, see `AshAgent.Context.Recall.put_recall/3`, and one `recall` shows it |
  | `:masked` | the view masks it. Such facts are counted, but not listed |
  | `:gone` | only the log has it |

  With handles, nothing is ever gone.
  """

  use AshAgent.Arguments

  alias AshAgent.Context
  alias AshAgent.Context.{Error, Native, Options, Reply}

  @typedoc "A hit of `search/3`: the handle of what was found, a piece of its text, and how well it fits."
  @type hit :: %{handle: String.t(), text: String.t(), score: float()}

  @typedoc "The number of facts by their state."
  @type counts :: %{
          visible: non_neg_integer(),
          recall: non_neg_integer(),
          masked: non_neg_integer(),
          gone: non_neg_integer()
        }

  @typedoc "The kinds of facts."
  @type kind :: :path | :address | :id | :number | :error | :exit_code | :name | :decision

  @typedoc "A fact: its words, its handle, the last iteration that says it, and how many calls used it."
  @type fact :: %{
          kind: kind(),
          state: :recall | :gone,
          text: String.t(),
          handle: String.t() | nil,
          iteration: pos_integer(),
          uses: non_neg_integer()
        }

  @typedoc "A receipt: counts of all facts and of each kind that there is, and the facts that are not visible."
  @type receipt :: %{counts: counts(), kinds: %{optional(kind()) => counts()}, facts: [fact()]}

  @typedoc "Something that one view shows less of than another. `call` is the id of the call whose result it is."
  @type unseen :: %{
          look: :shortened | :cleared | :summarized | :hidden,
          was: :whole | :shortened | :cleared | :summarized,
          iterations: Range.t(),
          call: String.t() | nil,
          handle: String.t()
        }

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
      iex> context |> Context.View.hide({:all_but_last, 1}) |> Context.Recall.put_recall(true) |> Context.to_messages()
      [
        %{role: :user, content: "[Iteration 1 is hidden, recall 1-808]", metadata: %{hidden: %{first: 1, last: 1}}},
        %{role: :user, content: "Two"}
      ]
  """
  @doc since: "0.1.0"
  @spec put_recall(Context.t(), boolean(), keyword()) :: Context.t()
  def put_recall(%Context{ref: ref} = context, recall, opts \\ []) when is_boolean(recall) do
    opts = Options.validate!(opts, :put_recall)

    ref
    |> Native.context_put_recall(recall, opts[:at])
    |> Reply.put!(context)
    |> put_index(opts[:index], opts[:user_bytes], opts[:at])
  end

  defp put_index(context, nil, nil, _at), do: context

  defp put_index(%Context{ref: ref} = context, share, bytes, at),
    do:
      ref
      |> Native.context_put_index(share && round(share * 1_000), bytes, at)
      |> Reply.put!(context)

  @doc """
  Returns whether what the view leaves out has handles, see `put_recall/3`.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.Recall.recall?()
      false
  """
  @doc since: "0.1.0"
  @spec recall?(Context.t()) :: boolean()
  def recall?(%Context{ref: ref}), do: ref |> Native.context_has_recall() |> Reply.ok!()

  @doc """
  Reads what a handle stands for, and returns `{:ok, text}` or `{:error, error}`.

  The text of a result is what models read. The text of iterations has each message, call and result on its own lines.
  If the text is cut, a last line says which lines it has. A line of more than 1,000 bytes counts as several. From 4,000 `:max_bytes` on,
  and without `:lines`, the contents of the rest stand before that line: where each part begins, which facts it has most of, and its first
  words. So whoever knows no word to search for reads any line of a megabyte within four calls.

      [from 121: 7 path, 3 number, 1 error, defmodule Shop.Order do use Ecto.Schema]
      [lines 1 to 120 of 900]

  The error's reason is `{:unknown_handle, text}`, `{:handle_gone, handle}`, or `{:invalid_pattern, pattern, problem}`.
  Costs O(size of what is read).

  ## Options

  #{Options.docs(:recall)}

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new("Look it up: 17") |> Context.add_assistant_message("Seventeen.\\nA prime.")
      iex> [%{handle: handle}] = context |> Context.add_user_message("Thanks") |> Context.View.hide({:all_but_last, 1}) |> Context.Recall.search("prime")
      iex> Context.Recall.recall(context, handle, pattern: "(?i)prime")
      {:ok, "3: A prime.\\n"}
      iex> {:error, error} = Context.Recall.recall(context, "1-999")
      iex> error.reason
      {:handle_gone, "1-999"}
  """
  @doc since: "0.1.0"
  @spec recall(Context.t(), String.t(), keyword()) :: {:ok, String.t()} | {:error, Error.t()}
  def recall(%Context{ref: ref}, handle, opts \\ []) when is_binary(handle) do
    opts = Options.validate!(opts, :recall)
    asked = Map.new([:from, :lines, :pattern, :max_bytes], &{&1, opts[&1]})
    ref |> Native.context_recall(handle, asked) |> Reply.to_result()
  end

  @doc """
  Searches everything that the view does not show in full for words, and returns hits, the best first.

  Texts are ranked by BM25, ignoring case; those that contain the words exactly as given, even within longer words, come first. Where
  no text has a word, those that contain it, or are written nearly the same, are searched for as well. Answers of the tool `recall`
  itself are not searched. Costs O(size of the log): a megabyte takes a few milliseconds.

  ## Options

  #{Options.docs(:search)}

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new("My dog is called Rex.") |> Context.add_assistant_message("Hello, Rex!") |> Context.add_user_message("Bye")
      iex> context |> Context.View.hide({:all_but_last, 1}) |> Context.Recall.search("dog", limit: 1) |> Enum.map(& &1.text)
      ["My dog is called Rex."]
      iex> Context.Recall.search(context, "dog")
      []
  """
  @doc since: "0.1.0"
  @spec search(Context.t(), String.t(), keyword()) :: [hit()]
  def search(%Context{ref: ref}, words, opts \\ []) when is_binary(words) do
    opts = Options.validate!(opts, :search)
    ref |> Native.context_search(words, opts[:limit]) |> Reply.ok!()
  end

  @doc """
  Counts the facts that the view does not show where they were said, and returns the receipt.

  Its `facts` are those that are not visible, the most likely to be needed again first: used by calls, named by users,
  new. With the option `:iteration`, the receipt is that of a request made earlier, or `nil` if it is not known which view
  that request was made from. Costs O(size of the log) the first time. What was found is kept, in about as much memory as the texts take, so the
  next receipt, of this context or of one that goes on from it, costs O(what is new, and what is shown in full behind the last text that is not).
  If the view shows earlier iterations in another way than before, it reads all again.

  ## Options

  #{Options.docs(:receipt)}

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new("Order 4711 is late.") |> Context.add_assistant_message("I see.") |> Context.add_user_message("Well?")
      iex> Context.Recall.receipt(context).counts
      %{visible: 0, recall: 0, masked: 0, gone: 0}
      iex> receipt = context |> Context.View.hide({:all_but_last, 1}) |> Context.Recall.receipt()
      iex> receipt.kinds.number
      %{visible: 0, recall: 0, masked: 0, gone: 1}
      iex> for fact <- receipt.facts, do: {fact.kind, fact.text, fact.handle}
      [{:number, "Order 4711", nil}, {:decision, "Order 4711 is late.", nil}]
      iex> Context.Recall.receipt(context, iteration: 1)
      nil
  """
  @doc since: "0.1.0"
  @spec receipt(Context.t(), keyword()) :: receipt() | nil
  def receipt(%Context{ref: ref}, opts \\ []) do
    opts = Options.validate!(opts, :receipt)
    ref |> Native.context_receipt(opts[:iteration], opts[:limit]) |> Reply.ok!()
  end

  @doc """
  Compares the view with another one of the same conversation, and returns what the model no longer sees.

  `other` is a context, such as an earlier one, or the number of an iteration, which stands for the request made for it.
  Then the result is `nil` if it is not known which view that request was made from.

  `no_longer` is what the view shows less of than the other one, oldest first, and `again` what it shows more of. Only
  iterations that both have are compared. `look` is how something looks, from `:whole` over `:shortened`, `:cleared` and
  `:summarized` to `:hidden`, and `was` how it looks in the view that shows more. The handle reads it, see
  `AshAgent.Context.Recall.recall/3`. Costs O(size of the log).

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new("One") |> Context.add_assistant_message("1") |> Context.add_user_message("Two")
      iex> Context.Recall.diff_views(Context.View.hide(context, {:all_but_last, 1}), context)
      %{no_longer: [%{look: :hidden, was: :whole, iterations: 1..1, call: nil, handle: "1-808"}], again: []}
  """
  @doc since: "0.1.0"
  @spec diff_views(Context.t(), Context.t() | pos_integer()) ::
          %{no_longer: [unseen()], again: [unseen()]} | nil
  def diff_views(%Context{ref: ref}, %Context{ref: other} = _other),
    do: diff(ref, other, nil)

  def diff_views(%Context{ref: ref}, number) when is_integer(number) and number > 0,
    do: diff(ref, ref, number)

  defp diff(ref, other, number) do
    case ref |> Native.context_diff_views(other, number) |> Reply.ok!() do
      nil -> nil
      {no_longer, again} -> %{no_longer: no_longer, again: again}
    end
  end
end
