defmodule AshAgent.Store.Archive do
  @moduledoc """
  Searches, exports, renames and deletes stored conversations, many at once or one that nobody is using.

  Call these as functions of `AshAgent.Store`.
  """

  use AshAgent.Arguments

  alias AshAgent.Store
  alias AshAgent.Store.{Error, Named, Options}

  @typedoc "What `erase/2` and `prune/2` have deleted: the ids of the conversations, and counts of what was stored with them."
  @type receipt :: %{
          ids: [Store.id()],
          conversations: non_neg_integer(),
          iterations: non_neg_integer(),
          calls: non_neg_integer(),
          prompts: non_neg_integer(),
          writes: non_neg_integer(),
          blobs: non_neg_integer()
        }

  @typedoc """
  An iteration that `search/3` has found.

    * `:id` - the conversation's id
    * `:branch` - the name of the branch that has it, or `nil` for a context
    * `:iteration` - its number
    * `:at` - when it was written last
    * `:snippet` - the text around the first word
  """
  @type result :: %{
          id: Store.id(),
          branch: String.t() | nil,
          iteration: pos_integer(),
          at: DateTime.t(),
          snippet: String.t()
        }

  @doc """
  Deletes all conversations that a filter finds, with their forks and children, whoever owns them. Returns `{:ok, receipt}`.

  Forks and children are deleted before their origins, one batch per transaction. So after an error, call it again: it finds what
  is left. A run of a deleted conversation gets `{:error, :not_found}` at its next write. The deletion takes linear time, memory
  for the ids, and looks at all partitions.

  Give `:ids` or at least one other filter; several filters must all fit. A store of your own supports it with a function `erase/2`.

  ## Options

  #{Options.docs(:erase)}

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> context = AshAgent.Context.new("Hello!", id: "c1", metadata: %{user: 7})
      iex> {:ok, _} = AshAgent.Store.create(store, context)
      iex> {:ok, _} = AshAgent.Store.create(store, AshAgent.Context.fork(context, id: "c2"))
      iex> {:ok, receipt} = AshAgent.Store.erase(store, metadata: %{user: 7})
      iex> {Enum.sort(receipt.ids), receipt.conversations, receipt.iterations, receipt.writes}
      {["c1", "c2"], 2, 2, 2}
  """
  @doc since: "0.1.0"
  @spec erase(Store.t(), keyword()) :: {:ok, receipt()} | {:error, Error.t()}
  def erase(store, opts) do
    opts = Options.validate!(opts, :erase)

    names = Keyword.keys(opts) -- [:batch, :on_batch]

    if names == [] or (:ids in names and names != [:ids]),
      do: AshAgent.Caller.refuse!("expected :ids alone or a filter, got: #{inspect(names)}")

    Named.call(store, :erase, [opts])
  end

  @doc """
  Deletes conversations that nobody has written for some time, oldest first, and returns `{:ok, receipt}` as `erase/2` does.

  It skips owned conversations, even if their lease has ended, and by default those that are not `:idle`. Forks and children are
  separate conversations, which stay until they are old themselves. A batch is one transaction; several processes may prune at
  once. Looks at all partitions. A store of your own supports it with a function `prune/2`.

  ## Options

  #{Options.docs(:prune)}

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Store.create(store, AshAgent.Context.new("Hello!", id: "c1"))
      iex> {:ok, receipt} = AshAgent.Store.prune(store, older_than: 30 * 24 * 3600)
      iex> receipt.conversations
      0
  """
  @doc since: "0.1.0"
  @spec prune(Store.t(), keyword()) :: {:ok, receipt()} | {:error, Error.t()}
  def prune(store, opts), do: Named.call(store, :prune, [Options.validate!(opts, :prune)])

  @doc """
  Gives a conversation another id, and returns `:ok`.

  Everything stored with it moves along. The context itself keeps its original id, since the keys of its
  calls derive from that. Returns `{:error, :not_found}`, `{:error, :exists}` if there is a conversation with the new id, and
  `{:error, {:owned, owner}}` if it is claimed. A store of your own supports it with a function `rename/3`.

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Store.create(store, AshAgent.Context.new("Hello!", id: "7"))
      iex> AshAgent.Store.rename(store, "7", "conversations:7")
      :ok
      iex> {:ok, kept} = AshAgent.Store.fetch(store, "conversations:7")
      iex> {kept.id, kept.value[:id], AshAgent.Store.fetch(store, "7")}
      {"conversations:7", "7", {:error, :not_found}}
  """
  @doc since: "0.1.0"
  @spec rename(Store.t(), Store.id(), Store.id()) ::
          :ok | {:error, :exists | Store.refusal() | Error.t()}
  def rename(store, from, to) when is_binary(from) and is_binary(to) do
    Options.check_id!(to)
    if Options.id?(from), do: Named.call(store, :rename, [from, to]), else: {:error, :not_found}
  end

  @doc """
  Finds iterations whose messages contain all words of a query, most recently written first, and returns `{:ok, %{results: results, next: cursor}}`.

  It reads what users and models said, the names, arguments and results of calls, and the first 100,000 characters of an iteration. Words
  are runs of letters and digits: `ann@example.org` is three. Case does not matter, order and punctuation do not either, and there are no
  operators. Pass `next` as the option `:after` to get the next page.

  A conversation's current masks apply: text that they hide is neither found nor shown. Reads the index and the iterations that have
  the words, in all partitions unless `:id` is given. A store of your own supports it with a function `search/3`.

  ## Options

  #{Options.docs(:search)}

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Store.create(store, AshAgent.Context.new("Where is my parcel?", id: "c1", metadata: %{user: 7}))
      iex> {:ok, %{results: [found], next: nil}} = AshAgent.Store.search(store, "my PARCEL", metadata: %{user: 7})
      iex> {found.id, found.iteration, found.snippet}
      {"c1", 1, "Where is my parcel?"}
  """
  @doc since: "0.1.0"
  @spec search(Store.t(), String.t(), keyword()) ::
          {:ok, %{results: [result()], next: tuple() | nil}} | {:error, Error.t()}
  def search(store, query, opts \\ []) when is_binary(query),
    do: Named.call(store, :search, [query, Options.validate!(opts, :search)])

  @doc """
  Returns a stored conversation as a document, as `AshAgent.Context.dump/2` or `AshAgent.ChatContext.dump/1` makes it: `{:ok, document}`.

  Images and files of #{div(2_048 * 3, 4)} bytes or more are kept beside the conversation: their `data` is `{"$blob": "sha256:..."}`. With `inline: true`, they
  are in the document, which can then be loaded. A store of your own supports it with a function `dump/3`.

  ## Options

  #{Options.docs(:dump)}

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> context = AshAgent.Context.new("Hello!", id: "c1")
      iex> {:ok, _} = AshAgent.Store.create(store, context)
      iex> {:ok, document} = AshAgent.Store.dump(store, "c1", inline: true)
      iex> document == AshAgent.Context.dump(context)
      true
  """
  @doc since: "0.1.0"
  @spec dump(Store.t(), Store.id(), keyword()) :: {:ok, map()} | {:error, :not_found | Error.t()}
  def dump(store, id, opts \\ []) when is_binary(id) do
    opts = Options.validate!(opts, :dump)
    if Options.id?(id), do: Named.call(store, :dump, [id, opts]), else: {:error, :not_found}
  end
end
