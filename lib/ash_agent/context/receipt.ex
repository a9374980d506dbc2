defmodule AshAgent.Context.Receipt do
  @moduledoc """
  Receipts of forgetting: what became of each fact that the view no longer shows.

  A view forgets so that requests stay short, and the log keeps everything. If the view no longer shows a fact where it was said, the **receipt** says
  whether the model still sees it elsewhere, can `recall` it, or has lost it:

      iex> alias AshAgent.Context
      iex> context = Context.new("Fix it") |> Context.add_assistant_message(nil, [%{id: "a", name: :run, arguments: %{cmd: "mix test"}}])
      iex> context = Context.add_tool_results(context, [{"a", {:ok, "test/a_test.exs failed\\n3 tests, exit code 2"}}])
      iex> context = context |> Context.put_recall(true) |> Context.add_assistant_message("Fixed.") |> Context.add_user_message("Next") |> Context.keep_last_iterations(1)
      iex> receipt = Context.receipt(context)
      iex> receipt.counts
      %{visible: 0, recall: 5, masked: 0, gone: 0}
      iex> [%{kind: :path, text: "test/a_test.exs", state: :recall, iteration: 1} | _] = receipt.facts

  ## Facts

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
  | `:recall` | the view has handles, see `AshAgent.Context.put_recall/3`, and one `recall` shows it |
  | `:masked` | the view masks it. Such facts are counted, but not listed |
  | `:gone` | only the log has it |

  With handles, nothing is ever gone.

  Call these functions as those of `AshAgent.Context`, which checks their arguments.
  """

  alias AshAgent.Context.{Native, Options, Reply}

  @typedoc "How many facts there are, by state."
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
  @type t :: %{counts: counts(), kinds: %{optional(kind()) => counts()}, facts: [fact()]}

  @typedoc "Something that one view shows less of than another. `call` is the id of the call whose result it is."
  @type unseen :: %{
          look: :shortened | :cleared | :summarized | :hidden,
          was: :whole | :shortened | :cleared | :summarized,
          iterations: Range.t(),
          call: String.t() | nil,
          handle: String.t()
        }

  @doc """
  Counts the facts that the view does not show where they were said, and returns the receipt.

  Its `facts` are those that are not visible, the most likely to be needed again first: used by calls, named by users,
  new. With the option `:iteration`, the receipt is that of a request made earlier, or `nil` if it is not known which view
  that request was made from. Costs O(size of the log).

  ## Options

  #{Options.docs(:receipt)}

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new("Order 4711 is late.") |> Context.add_assistant_message("I see.") |> Context.add_user_message("Well?")
      iex> Context.receipt(context).counts
      %{visible: 0, recall: 0, masked: 0, gone: 0}
      iex> receipt = context |> Context.keep_last_iterations(1) |> Context.receipt()
      iex> receipt.kinds.number
      %{visible: 0, recall: 0, masked: 0, gone: 1}
      iex> for fact <- receipt.facts, do: {fact.kind, fact.text, fact.handle}
      [{:number, "Order 4711", nil}, {:decision, "Order 4711 is late.", nil}]
      iex> Context.receipt(context, iteration: 1)
      nil
  """
  @doc since: "0.1.0"
  @spec receipt(Reply.handle(), keyword()) :: t() | nil
  def receipt(%{ref: ref} = _context, opts \\ []) do
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
  `AshAgent.Context.recall/3`. Costs O(size of the log).

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new("One") |> Context.add_assistant_message("1") |> Context.add_user_message("Two")
      iex> Context.diff_views(Context.keep_last_iterations(context, 1), context)
      %{no_longer: [%{look: :hidden, was: :whole, iterations: 1..1, call: nil, handle: "1-808"}], again: []}
  """
  @doc since: "0.1.0"
  @spec diff_views(Reply.handle(), Reply.handle() | pos_integer()) ::
          %{no_longer: [unseen()], again: [unseen()]} | nil
  def diff_views(%{ref: ref} = _context, %{ref: other}), do: diff(ref, other, nil)

  def diff_views(%{ref: ref} = _context, number) when is_integer(number),
    do: diff(ref, ref, number)

  defp diff(ref, other, number) do
    case ref |> Native.context_diff_views(other, number) |> Reply.ok!() do
      nil -> nil
      {no_longer, again} -> %{no_longer: no_longer, again: again}
    end
  end
end
