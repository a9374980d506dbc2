defmodule AshAgent.Store do
  @moduledoc """
  Stores conversations, both contexts and chats, turn by turn and with one writer at a time.

      {:ok, store} = AshAgent.Store.SQLite.open("conversations.db")
      {:ok, kept} = AshAgent.Store.create(store, AshAgent.Context.new("Hello!", id: "c1"))
      context = AshAgent.Context.add_assistant_message(kept.value, "Hi!")
      {:ok, kept} = AshAgent.Store.append(store, kept, context)
      {:ok, kept} = AshAgent.Store.fetch(store, "c1")

  There are two stores: `AshAgent.Store.SQLite`, embedded, for one machine, and `AshAgent.Store.Postgres`, for several.
  Both use the same tables, described in the guide [What the store writes](tables.html). To test your own store, use
  `AshAgent.Store.Conformance`, which both pass.

  ## One writer

  Every write is a compare-and-set. `append/3` takes the value that `fetch/2` or the last write returned, and writes only if the
  stored conversation has not changed since. Otherwise it writes nothing and returns `{:error, :stale}`, or `{:error,
  {:owned, owner}}` if somebody else has claimed the conversation. So two writers never mix.

  To run an agent, claim its conversation first: `claim/3` takes one that is free, or whose owner's *lease* has ended.
  From then on, only the holder of the claim can write. Each claim has a higher `epoch`, and every write compares it: an
  owner that was stopped for longer than its lease finds that somebody else owns the conversation, and can no longer
  change anything. `renew/2` and every write of the owner extend the lease, `release/2` ends the claim, and `expired/2`
  claims conversations whose owners have died.

  ## Cost of a write

  A write contains only the iterations that differ from the stored ones, so it costs the same at iteration 10 and at
  iteration 10,000. They are compared with `kept.value`: if you made the new context by adding to it, comparing takes
  constant time; otherwise all iterations are compared. Iterations removed by a rewind are deleted.

  ## The journal

  A run that must not do things twice records each call with `start/3` before it runs it. The store starts each attempt of
  a call once, whoever asks, and returns the calls that you may run. Record how they ended with the option `:finished` of
  `append/4`, in the same write as the context that has their results. After a crash, `calls/3` returns the calls that
  were started and have no outcome.

      key = AshAgent.Store.call_key(kept, context, "call_1")
      {:ok, kept, started} = AshAgent.Store.start(store, kept, [%{key: key}])
      # runs what is in `started`, and nothing else
      {:ok, kept} = AshAgent.Store.append(store, kept, context, finished: [%{key: key, state: :ok}])

  That makes three round trips per iteration: the model's answer (`append/3`), `start/3` for all its calls, and their
  results.

  ## Prompts

  `enqueue/4` stores a message for a conversation, from any process and without a claim. The owner reads waiting messages
  with `waiting/2`, and names them as `:taken` in the `append/4` that adds them to the conversation, so each is taken
  once.

  ## Late results

  A call may wait for a result that comes hours later, see the guide [A tool answers in an
  hour](https://hexdocs.pm/ash_agent_context/late.html). Each write keeps the calls of the conversation that wait and have a handle as rows, which
  `waiting_calls/2` lists over all conversations. The handle is the *arrival key*: whoever has the result gives it to `arrive/5`, on any node and
  without a claim. The first result of a key is the only one. The owner reads the results with `arrivals/2`, takes them into the conversation with
  `AshAgent.Context.Calls.arrive/4`, and the `append/4` that stores it marks them as taken.

      key = AshAgent.Store.arrival_key(AshAgent.Store.call_key(context, "call_1"), 1)
      {:ok, :kept} = AshAgent.Store.arrive(store, "c1", key, {:ok, "green"}, from: "ci")

  ## Trust

  Stores trust their contents, since the application wrote them: approvals and structs are loaded as they were, see
  [Storage](https://hexdocs.pm/ash_agent_context/untrusted.html).
  """

  use AshAgent.Arguments

  alias AshAgent.{ChatContext, Context}
  alias AshAgent.Store.{CallKey, Conversation, Error, Named, Options}

  @typedoc "A store of `AshAgent.Store.SQLite.open/2` or `AshAgent.Store.Postgres.new/2`, or the name of a store that a supervisor has started."
  @type t :: struct() | atom()

  @type id :: String.t()

  @typedoc """
  Why a write did not happen.

    * `:stale` - the conversation was written, claimed or released since it was fetched. Fetch it again.
    * `{:owned, owner}` - somebody else has claimed it, so you cannot write to it
    * `:not_found` - the conversation does not exist, or no longer exists
  """
  @type refusal :: :stale | {:owned, owner :: String.t()} | :not_found

  @typedoc "The result of a write: the stored conversation, or the reason why it was not stored."
  @type written :: {:ok, kept()} | {:error, refusal() | Error.t()}

  @typedoc "The same of a function that loads the conversation."
  @type loaded :: {:ok, kept()} | {:error, refusal() | Error.t() | Context.Error.t()}

  @type value :: Context.t() | ChatContext.t()
  @type kept :: Conversation.t()

  @typedoc """
  The outcome of a call. `:unknown` is for a call that was started, or stopped while it ran, and whose outcome is not known; `:cancelled` and
  `:interrupted` are for one that was to start and did not.
  """
  @type call_state :: :ok | :error | :halt | :unknown | :denied | :cancelled | :interrupted

  @typedoc "The result of a call that waits, see `arrive/5`."
  @type outcome :: {:ok | :error | :unknown | :cancelled, term()}

  @typedoc "Why a late result was not stored, see `arrive/5`."
  @type late_refusal :: :answered | :cancelled | :late | :rewound | :unknown | :not_found

  @typedoc """
  An attempt to run a call.

    * `:key` - the key that `call_key/3` returns
    * `:attempt` - counted from 1. Defaults to `1`.
    * `:call` - a map with anything that readers of the journal should know, such as the call's id, name and iteration. Defaults to
      `%{}`.
  """
  @type attempt :: %{
          required(:key) => String.t(),
          optional(:attempt) => pos_integer(),
          optional(:call) => map()
        }

  @typedoc "The receipt of `erase/2` and `prune/2`: the ids of the deleted conversations, and counts of the rows deleted with them."
  @type receipt :: %{
          ids: [id()],
          conversations: non_neg_integer(),
          iterations: non_neg_integer(),
          calls: non_neg_integer(),
          prompts: non_neg_integer(),
          writes: non_neg_integer(),
          blobs: non_neg_integer(),
          arrivals: non_neg_integer()
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
          id: id(),
          branch: String.t() | nil,
          iteration: pos_integer(),
          at: DateTime.t(),
          snippet: String.t()
        }

  # Options are checked and have their defaults; ids are strings that any database accepts.
  @callback create(struct(), value(), keyword()) :: {:ok, kept()} | {:error, :exists | Error.t()}
  @callback fetch(struct(), id() | kept()) :: loaded()
  @callback append(struct(), kept(), value(), keyword()) :: written()
  @callback start(struct(), kept(), [attempt()]) ::
              {:ok, kept(), [String.t()]} | {:error, refusal() | Error.t()}
  @callback claim(struct(), id(), keyword()) :: loaded()
  @callback renew(struct(), kept()) :: written()
  @callback release(struct(), kept(), keyword()) :: written()
  @callback expired(struct(), keyword()) :: {:ok, [kept()]} | {:error, Error.t()}
  @callback list(struct(), keyword()) :: {:ok, page :: map()} | {:error, Error.t()}
  @callback delete(struct(), id()) :: :ok | {:error, :not_found | Error.t()}
  @callback history(struct(), id(), keyword()) :: {:ok, [map()]} | {:error, Error.t()}
  @callback enqueue(struct(), id() | kept(), message :: Context.t(), keyword()) ::
              {:ok, String.t()} | {:error, refusal() | Error.t()}
  @callback waiting(struct(), id()) :: {:ok, [map()]} | {:error, Error.t()}
  @callback calls(struct(), id(), keyword()) :: {:ok, [map()]} | {:error, Error.t()}

  @doc """
  Stores a new context or chat, and returns `{:ok, kept}`, or `{:error, :exists}` if there is a conversation with its id.

  Raises `ArgumentError` for ids that are not valid UTF-8, contain NUL or have more than #{Options.longest_id()} bytes. Costs
  O(size of the conversation).

  ## Options

  #{Options.docs(:create)}

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> context = AshAgent.Context.new("Hello!", id: "c1")
      iex> {:ok, kept} = AshAgent.Store.create(store, context)
      iex> {kept.id, kept.kind, kept.revision, kept.owner}
      {"c1", :context, 1, nil}
      iex> AshAgent.Store.create(store, context)
      {:error, :exists}
  """
  @doc since: "0.1.0"
  @spec create(t(), value(), keyword()) :: {:ok, kept()} | {:error, :exists | Error.t()}
  def create(store, value, opts \\ []) do
    opts = Options.validate!(opts, :create)
    value |> id_of!() |> Options.check_id!()
    Named.call(store, :create, [value, opts])
  end

  @doc """
  Loads a conversation and returns `{:ok, kept}` or `{:error, :not_found}`.

  Instead of an id, you can pass a claim that another function returned. The loaded conversation is then claimed as well;
  if the claim has ended, the error is `{:error, :stale}` or `{:error, {:owned, owner}}`. A conversation that cannot be
  loaded is `{:error, %AshAgent.Context.Error{}}` with the path to the problem. Costs O(size of the conversation), about
  as much as `AshAgent.Context.load/1`.

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, kept} = AshAgent.Store.create(store, AshAgent.Context.new("Hello!", id: "c1"))
      iex> {:ok, fetched} = AshAgent.Store.fetch(store, "c1")
      iex> AshAgent.Context.equal?(fetched.value, kept.value)
      true
      iex> AshAgent.Store.fetch(store, "c2")
      {:error, :not_found}
  """
  @doc since: "0.1.0"
  @spec fetch(t(), id() | kept()) :: loaded()
  def fetch(store, %Conversation{} = kept), do: Named.call(store, :fetch, [kept])

  def fetch(store, id) when is_binary(id), do: call_known(store, :fetch, id, [])

  @doc """
  Writes the difference between `value` and the stored conversation, and returns `{:ok, kept}`. If the conversation has
  changed or is owned by somebody else, it writes nothing and returns an error, see `t:refusal/0`.

  `value` is any other state of the same conversation: with more messages, rewound, cleared, with decisions. Given
  `kept.value` itself, it only applies the options. The cost depends on the difference, see "Cost of a write".

  Raises `ArgumentError` if `value` has another id or is of another kind, or if `kept` was not loaded.

  ## Options

  #{Options.docs(:append)}

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, kept} = AshAgent.Store.create(store, AshAgent.Context.new("Hello!", id: "c1"))
      iex> context = AshAgent.Context.add_assistant_message(kept.value, "Hi!")
      iex> {:ok, next} = AshAgent.Store.append(store, kept, context, status: :paused)
      iex> {next.revision, next.status}
      {2, :paused}
      iex> AshAgent.Store.append(store, kept, context)
      {:error, :stale}
  """
  @doc since: "0.1.0"
  @spec append(t(), kept(), value(), keyword()) :: written()
  def append(store, %Conversation{} = kept, value, opts \\ []) do
    opts = Options.validate!(opts, :append)

    if kept.value == nil,
      do: AshAgent.Caller.refuse!("the conversation was not loaded: call fetch/2 with it first")

    # The id may differ from the one it is kept under: `rename/3` gives it another one.
    unless is_struct(value, kept.value.__struct__) and id_of!(value) == id_of!(kept.value),
      do:
        AshAgent.Caller.refuse!(
          "expected a state of the given conversation, with the same id; store a fork with create/2"
        )

    Named.call(store, :append, [kept, value, opts])
  end

  @doc """
  Claims a conversation that is free or whose lease has ended, and loads it.

  Returns `{:ok, kept}`, `{:error, {:owned, owner}}` (also if it is the same owner), or `{:error, :not_found}`. A claim
  ends all earlier ones: their holders can no longer write. If the conversation cannot be loaded, it returns why and releases the
  conversation.

  ## Options

  #{Options.docs(:claim)}

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _kept} = AshAgent.Store.create(store, AshAgent.Context.new("Hello!", id: "c1"))
      iex> {:ok, claim} = AshAgent.Store.claim(store, "c1", owner: "a", status: :running)
      iex> {claim.owner, claim.epoch, claim.claimed?}
      {"a", 1, true}
      iex> AshAgent.Store.claim(store, "c1", owner: "b")
      {:error, {:owned, "a"}}
  """
  @doc since: "0.1.0"
  @spec claim(t(), id(), keyword()) :: loaded()
  def claim(store, id, opts) when is_binary(id) do
    call_known(store, :claim, id, [Options.validate!(opts, :claim)])
  end

  @doc """
  Extends the lease of a claim, from now on, and returns `{:ok, kept}`, or an error if the claim has ended.

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, claim} = AshAgent.Store.create(store, AshAgent.Context.new("Hello!"), owner: "a", lease: 1_000)
      iex> {:ok, renewed} = AshAgent.Store.renew(store, claim)
      iex> DateTime.compare(renewed.lease_until, claim.lease_until) in [:gt, :eq]
      true
  """
  @doc since: "0.1.0"
  @spec renew(t(), kept()) :: written()
  def renew(store, %Conversation{} = kept), do: Named.call(store, :renew, [check_claimed!(kept)])

  @doc """
  Extends the leases of many claims in one statement, and returns `{:ok, answers}` with what `renew/2` returns for each, in their order.

  Looks at all partitions of partitioned tables. A store of your own supports it with a function `renew_all/2`.

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, one} = AshAgent.Store.create(store, AshAgent.Context.new("Hello!", id: "c1"), owner: "a")
      iex> {:ok, two} = AshAgent.Store.create(store, AshAgent.Context.new("Hello!", id: "c2"), owner: "a")
      iex> {:ok, _} = AshAgent.Store.claim(store, "c2", owner: "b", from: "a")
      iex> {:ok, [{:ok, renewed}, refused]} = AshAgent.Store.renew_all(store, [one, two])
      iex> {renewed.id, refused}
      {"c1", {:error, {:owned, "b"}}}
  """
  @doc since: "0.1.0"
  @spec renew_all(t(), [kept()]) ::
          {:ok, [{:ok, kept()} | {:error, refusal() | Error.t()}]} | {:error, Error.t()}
  def renew_all(_store, []), do: {:ok, []}

  def renew_all(store, claims) when is_list(claims),
    do: Named.call(store, :renew_all, [Enum.map(claims, &check_claimed!/1)])

  @doc """
  Ends a claim and returns `{:ok, kept}` without a claim, or an error if the claim has already ended.

  ## Options

  #{Options.docs(:release)}

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, claim} = AshAgent.Store.create(store, AshAgent.Context.new("Hello!"), owner: "a")
      iex> {:ok, kept} = AshAgent.Store.release(store, claim, status: :idle)
      iex> {kept.owner, kept.claimed?}
      {nil, false}
  """
  @doc since: "0.1.0"
  @spec release(t(), kept(), keyword()) :: written()
  def release(store, %Conversation{} = kept, opts \\ []),
    do: Named.call(store, :release, [check_claimed!(kept), Options.validate!(opts, :release)])

  @doc """
  Claims conversations whose leases have ended, oldest first, and returns `{:ok, claims}`.

  They are not loaded: pass each to `fetch/2`. Several processes can call this at once without waiting for each other, and
  each gets different conversations. The claims all belong to `:owner`. Looks at all partitions of partitioned tables.

  ## Options

  #{Options.docs(:expired)}

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Store.create(store, AshAgent.Context.new("Hello!", id: "c1"), owner: "a", lease: 1, status: :running)
      iex> Process.sleep(10)
      iex> {:ok, [claim]} = AshAgent.Store.expired(store, owner: "b", limit: 10)
      iex> {claim.id, claim.owner, claim.epoch, claim.value}
      {"c1", "b", 2, nil}
  """
  @doc since: "0.1.0"
  @spec expired(t(), keyword()) :: {:ok, [kept()]} | {:error, Error.t()}
  def expired(store, opts), do: Named.call(store, :expired, [Options.validate!(opts, :expired)])

  @doc """
  Lists conversations without loading them, and returns `{:ok, %{conversations: kept, next: cursor}}`.

  Pass `next` as the option `:after` to get the next page; it is `nil` after the last one. Pages continue from a key, not
  an offset, so a conversation that is written in the meantime never appears twice, except when the write moves it to the
  beginning. Looks at all partitions of partitioned tables.

  ## Options

  #{Options.docs(:list)}

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Store.create(store, AshAgent.Context.new("Hello!", id: "c1", metadata: %{user: 7}))
      iex> {:ok, page} = AshAgent.Store.list(store, metadata: %{user: 7}, status: [:idle, :paused])
      iex> {Enum.map(page.conversations, & &1.id), page.next}
      {["c1"], nil}
  """
  @doc since: "0.1.0"
  @spec list(t(), keyword()) ::
          {:ok, %{conversations: [kept()], next: {DateTime.t(), id()} | nil}}
          | {:error, Error.t()}
  def list(store, opts \\ []), do: Named.call(store, :list, [Options.validate!(opts, :list)])

  @doc """
  Deletes a conversation, whoever owns it, and everything stored with it. Returns `:ok` or `{:error, :not_found}`.

  A run of it gets `{:error, :not_found}` at its next write. Backups and the database's own logs are not deleted.

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Store.create(store, AshAgent.Context.new("Hello!", id: "c1"))
      iex> {AshAgent.Store.delete(store, "c1"), AshAgent.Store.delete(store, "c1")}
      {:ok, {:error, :not_found}}
  """
  @doc since: "0.1.0"
  @spec delete(t(), id()) :: :ok | {:error, :not_found | Error.t()}
  def delete(store, id) when is_binary(id), do: call_known(store, :delete, id, [])

  @doc """
  Deletes all conversations that a filter finds, with their forks and children, whoever owns them. Returns `{:ok, receipt}`.

  Forks and children are deleted before their origins, one batch per transaction. So after an error, call it again: it finds what
  is left. A run of a deleted conversation gets `{:error, :not_found}` at its next write. What is created after the call began stays, except
  forks and children of conversations that were still there: so it ends. The deletion takes linear time, memory for the ids, and looks at
  all partitions.

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
  @spec erase(t(), keyword()) :: {:ok, receipt()} | {:error, Error.t()}
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
  separate conversations, which stay until they are old themselves. The age is that when it began. A batch is one transaction;
  several processes may prune at once. Looks at all partitions. A store of your own supports it with a function `prune/2`.

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
  @spec prune(t(), keyword()) :: {:ok, receipt()} | {:error, Error.t()}
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
  @spec rename(t(), id(), id()) ::
          :ok | {:error, :exists | refusal() | Error.t()}
  def rename(store, from, to) when is_binary(from) and is_binary(to) do
    Options.check_id!(to)
    call_known(store, :rename, from, [to])
  end

  @doc """
  Finds iterations whose messages contain all words of a query, most recently written first, and returns `{:ok, %{results: results, next: cursor, behind: count}}`.

  It reads what users and models said, the names, arguments and results of calls, and the first 100,000 characters of an iteration. Words
  are runs of letters and digits: `ann@example.org` is three. Case does not matter, order and punctuation do not either, and there are no
  operators. Pass `next` as the option `:after` to get the next page.

  `AshAgent.Store.SQLite` writes its index behind the saves: a search first indexes about 5,000 iterations that wait, and `behind` is the number of those that it
  cannot find yet. It is 0 in `AshAgent.Store.Postgres`.

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
  @spec search(t(), String.t(), keyword()) ::
          {:ok,
           %{
             required(:results) => [result()],
             required(:next) => tuple() | nil,
             optional(:behind) => non_neg_integer()
           }}
          | {:error, Error.t()}
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
  @spec dump(t(), id(), keyword()) :: {:ok, map()} | {:error, :not_found | Error.t()}
  def dump(store, id, opts \\ []) when is_binary(id) do
    call_known(store, :dump, id, [Options.validate!(opts, :dump)])
  end

  @doc """
  Returns the writes of a conversation, oldest first: `{:ok, [%{revision:, epoch:, owner:, at:, note:}]}`.

  `note` is the one given to `create/3` or `append/4`. Iterations that a rewind took back are not part of it. For an
  unknown conversation, the list is empty.

  ## Options

  #{Options.docs(:history)}

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Store.create(store, AshAgent.Context.new("Hello!", id: "c1"), note: %{by: :ann})
      iex> {:ok, [write]} = AshAgent.Store.history(store, "c1")
      iex> {write.revision, write.note}
      {1, %{by: :ann}}
  """
  @doc since: "0.1.0"
  @spec history(t(), id(), keyword()) :: {:ok, [map()]} | {:error, Error.t()}
  def history(store, id, opts \\ []) when is_binary(id) do
    call_known(store, :history, id, [Options.validate!(opts, :history)], {:ok, []})
  end

  @doc """
  Records that attempts to run calls are started, and returns `{:ok, kept, keys}` with the keys of the calls that you may
  run now.

  Calls that are not among them were started before, by you or by somebody else: `calls/3` returns by which claim, and how
  they ended. After an error, run none of them. The conversation itself is not written, and keeps its revision.

  ## Examples

      iex> alias AshAgent.{Context, Store}
      iex> {:ok, store} = Store.SQLite.open(":memory:")
      iex> context = Context.new("Pay") |> Context.add_assistant_message(nil, [%{id: "call_1", name: :pay, arguments: %{}}])
      iex> {:ok, kept} = Store.create(store, context, owner: "a")
      iex> key = Store.call_key(context, "call_1")
      iex> {:ok, kept, started} = Store.start(store, kept, [%{key: key}])
      iex> {:ok, _kept, again} = Store.start(store, kept, [%{key: key}])
      iex> {started == [key], again}
      {true, []}
  """
  @doc since: "0.1.0"
  @spec start(t(), kept(), [attempt()]) ::
          {:ok, kept(), [String.t()]} | {:error, refusal() | Error.t()}
  def start(store, %Conversation{} = kept, calls) when is_list(calls) do
    unless Enum.all?(calls, &Options.attempt?/1),
      do:
        AshAgent.Caller.refuse!(
          "expected each attempt to be a map with a :key of call_key/3, and optionally :attempt, an integer from 1, and :call, a map"
        )

    Named.call(store, :start, [kept, calls])
  end

  @doc """
  Reads the journal of a conversation, oldest first: `{:ok, [%{key:, attempt:, epoch:, state:, started_at:, ended_at:, call:}]}`.

  ## Options

  #{Options.docs(:calls)}

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, kept} = AshAgent.Store.create(store, AshAgent.Context.new("Pay", id: "c1"))
      iex> {:ok, _kept, ["key"]} = AshAgent.Store.start(store, kept, [%{key: "key", call: %{name: :pay}}])
      iex> {:ok, [call]} = AshAgent.Store.calls(store, "c1", state: :started)
      iex> {call.key, call.attempt, call.call, call.ended_at}
      {"key", 1, %{name: :pay}, nil}
  """
  @doc since: "0.1.0"
  @spec calls(t(), id(), keyword()) :: {:ok, [map()]} | {:error, Error.t()}
  def calls(store, id, opts \\ []) when is_binary(id) do
    call_known(store, :calls, id, [Options.validate!(opts, :calls)], {:ok, []})
  end

  @doc """
  Returns the key of a call of the current iteration, which identifies its journal entry. A tool can pass it to a service
  as an idempotency key.

  The key is the same after a restart and in each attempt, and differs after a rewind, in a fork and in another branch. It
  is a digest of the conversation, the branch, the iteration with its time, the words of the user that began the turn, and
  the call's id. So if you pass times yourself (`:at`), give what you say again after a rewind another time.

  ## Examples

      iex> alias AshAgent.{Context, Store}
      iex> context = Context.new("Pay", id: "c1", at: ~U[2026-01-01 10:00:00Z]) |> Context.add_assistant_message(nil, [%{id: "call_1", name: :pay}])
      iex> Store.call_key(context, "call_1") == Store.call_key(Context.load!(Context.to_snapshot(context)), "call_1")
      true
      iex> Store.call_key(context, "call_1") == Store.call_key(Context.fork(context), "call_1")
      false
  """
  @doc since: "0.1.0"
  @spec call_key(Context.t(), call_id :: String.t(), keyword()) :: String.t()
  def call_key(%Context{} = context, call_id, opts \\ []) when is_binary(call_id) do
    opts = Options.validate!(opts, :call_key)
    CallKey.keys(context, opts[:branch]).(call_id)
  end

  @doc """
  Stores a message that a conversation will get later, and returns `{:ok, id}` or `{:error, :not_found}`.

  It needs no claim. Instead of an id, you can pass a claim: then the message is stored only if the claim stands, and the
  next owner finds it. Otherwise the error is as in `t:refusal/0`. `input` is as in `AshAgent.Context.add_user_message/3`.

  ## Options

  #{Options.docs(:enqueue)}

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Store.create(store, AshAgent.Context.new("Hello!", id: "c1"))
      iex> AshAgent.Store.enqueue(store, "c1", "And then?", id: "request-17")
      {:ok, "request-17"}
  """
  @doc since: "0.1.0"
  @spec enqueue(t(), id() | kept(), binary() | [Context.part()] | map(), keyword()) ::
          {:ok, String.t()} | {:error, refusal() | Error.t() | Context.Error.t()}
  def enqueue(store, id, input, opts \\ []) when is_binary(id) or is_struct(id, Conversation) do
    opts = Options.validate!(opts, :enqueue)
    message = Context.new(input, metadata: opts[:metadata])
    opts = Keyword.put_new(opts, :id, message[:id])
    id = if is_binary(id), do: id, else: check_claimed!(id)

    if not is_binary(id) or Options.id?(id),
      do: Named.call(store, :enqueue, [id, message, opts]),
      else: {:error, :not_found}
  rescue
    error in Context.Error -> {:error, error}
  end

  @doc """
  Returns the waiting messages, in order: `{:ok, [%{id:, kind:, input:, metadata:, at:}]}`.

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Store.create(store, AshAgent.Context.new("Hello!", id: "c1"))
      iex> {:ok, _} = AshAgent.Store.enqueue(store, "c1", "Shorter!", kind: :steer)
      iex> {:ok, [prompt]} = AshAgent.Store.waiting(store, "c1")
      iex> {prompt.kind, prompt.input}
      {:steer, "Shorter!"}
  """
  @doc since: "0.1.0"
  @spec waiting(t(), id()) :: {:ok, [map()]} | {:error, Error.t()}
  def waiting(store, id) when is_binary(id), do: call_known(store, :waiting, id, [], {:ok, []})

  @doc """
  Returns the key under which the late result of an attempt arrives: a text that can stand in an address. `key` is the one that `call_key/3` returned.

  ## Examples

      iex> AshAgent.Store.arrival_key("k", 1)
      "k.1"
  """
  @doc since: "0.1.0"
  @spec arrival_key(String.t(), pos_integer()) :: String.t()
  def arrival_key(key, attempt) when is_binary(key) and is_integer(attempt) and attempt > 0,
    do: CallKey.arrival(key, attempt)

  @doc """
  Stores the late result of a call, from any process and without a claim. Returns `{:ok, :kept}` when it is stored.

  `key` names the start of the call: the handle of a call that waits, or the `arrival_key/2` of an attempt that the journal has as started, also
  before the conversation says that it waits. `outcome` is `{:ok, term}`, `{:error, reason}`, `{:unknown, reason}`, or to call it off `{:cancelled, reason}`.

  The first result of a key is the only one. The same one again is `{:ok, :again}`. Otherwise the error says what became of the call:

    * `:answered` - it has another result
    * `:cancelled` - it was called off, denied or interrupted
    * `:late` - its deadline has passed, and was stored as its result
    * `:rewound` - the conversation was rewound to before it
    * `:unknown` - no call of this key was started here
    * `:not_found` - the conversation does not exist

  A store of your own supports late results with functions `arrive/5`, `arrivals/2`, `waiting_calls/2`, `expire_waiting/2` and `arrived/2`.

  ## Options

  #{Options.docs(:arrive)}

  ## Examples

      iex> alias AshAgent.{Context, Store}
      iex> {:ok, store} = Store.SQLite.open(":memory:")
      iex> context = Context.new("Build it", id: "c1") |> Context.add_assistant_message(nil, [%{id: "a", name: :build}])
      iex> {:ok, _} = Store.create(store, Context.add_tool_results(context, [{"a", {:waiting, %{handle: "build 7"}}}]))
      iex> Store.arrive(store, "c1", "build 7", {:ok, "green"}, from: "ci")
      {:ok, :kept}
      iex> {Store.arrive(store, "c1", "build 7", {:ok, "green"}), Store.arrive(store, "c1", "build 7", {:ok, "red"})}
      {{:ok, :again}, {:error, :answered}}
  """
  @doc since: "0.1.0"
  @spec arrive(t(), id(), key :: String.t(), outcome(), keyword()) ::
          {:ok, :kept | :again}
          | {:error, late_refusal() | Error.t() | Context.Error.t()}
  def arrive(store, id, key, outcome, opts \\ []) when is_binary(id) and is_binary(key) do
    opts = Options.validate!(opts, :arrive)
    check_outcome!(outcome)

    if Options.id?(key),
      do: store |> check_late!() |> call_known(:arrive, id, [key, outcome, opts]),
      else: {:error, :unknown}
  rescue
    error in Context.Error -> {:error, error}
  end

  defp check_outcome!({kind, _term}) when kind in [:ok, :error, :unknown, :cancelled], do: :ok

  defp check_outcome!(other) do
    AshAgent.Caller.refuse!(
      "expected an outcome {:ok, term}, {:error, reason}, {:unknown, reason} or {:cancelled, reason}, got: #{AshAgent.Options.kind(other)}"
    )
  end

  @doc """
  Returns the late results of a conversation that no write has taken, oldest first: `{:ok, [%{key:, outcome:, at:, from:}]}`.

  A passed deadline is the outcome `{:error, :deadline}`, from `"deadline"`.

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> AshAgent.Store.arrivals(store, "c1")
      {:ok, []}
  """
  @doc since: "0.1.0"
  @spec arrivals(t(), id()) :: {:ok, [map()]} | {:error, Error.t()}
  def arrivals(store, id) when is_binary(id),
    do: store |> check_late!() |> call_known(:arrivals, id, [], {:ok, []})

  @doc """
  Returns calls that wait for a result, over all conversations, those first that have waited longest: `{:ok, %{calls: calls, next: cursor}}`.

  Each is `%{id:, key:, for:, since:, deadline:, call: %{id:, name:, arguments:, iteration:}}`, with what the current masks of its conversation
  leave of the arguments. A question to a person, see `AshAgent.Runtime.AskUser`, has `question: true` in its call, and in the arguments also the
  `"choices"` or the `"form"` of its tool, so that a page can show it without the conversation. Calls whose result has arrived are not among them, nor those
  of forks and of branches, nor those without a handle: no result in a store can be for them. Pass `next` as the option
  `:after` to get the next page. Looks at all partitions unless `:id` is given.

  ## Options

  #{Options.docs(:waiting_calls)}

  ## Examples

      iex> alias AshAgent.{Context, Store}
      iex> {:ok, store} = Store.SQLite.open(":memory:")
      iex> context = Context.new("Build it", id: "c1") |> Context.add_assistant_message(nil, [%{id: "a", name: :build}])
      iex> {:ok, _} = Store.create(store, Context.add_tool_results(context, [{"a", {:waiting, %{for: "ci", handle: "build 7"}}}]))
      iex> {:ok, %{calls: [waiting], next: nil}} = Store.waiting_calls(store, for: "ci")
      iex> {waiting.id, waiting.key, waiting.call.name}
      {"c1", "build 7", :build}
  """
  @doc since: "0.1.0"
  @spec waiting_calls(t(), keyword()) ::
          {:ok, %{calls: [map()], next: tuple() | nil}} | {:error, Error.t()}
  def waiting_calls(store, opts \\ []),
    do:
      store
      |> check_late!()
      |> Named.call(:waiting_calls, [Options.validate!(opts, :waiting_calls)])

  @doc """
  Stores deadlines that have passed as the results of their calls, by the store's clock, and returns `{:ok, [%{id:, key:}]}`.

  Several processes may call it at once. Looks at all partitions.

  ## Options

  #{Options.docs(:expire_waiting)}

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> AshAgent.Store.expire_waiting(store)
      {:ok, []}
  """
  @doc since: "0.1.0"
  @spec expire_waiting(t(), keyword()) ::
          {:ok, [%{id: id(), key: String.t()}]} | {:error, Error.t()}
  def expire_waiting(store, opts \\ []),
    do:
      store
      |> check_late!()
      |> Named.call(:expire_waiting, [Options.validate!(opts, :expire_waiting)])

  @doc """
  Returns conversations that are `:idle` or `:waiting` and that nobody owns, with late results that no write has taken, those first whose result has
  waited longest: `{:ok, %{ids: ids, next: cursor}}`. Looks at all partitions.

  A conversation may be on several pages. Pass `next` as the option `:after` to get the next page.

  ## Options

  #{Options.docs(:arrived)}

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> AshAgent.Store.arrived(store)
      {:ok, %{ids: [], next: nil}}
  """
  @doc since: "0.1.0"
  @spec arrived(t(), keyword()) ::
          {:ok, %{ids: [id()], next: tuple() | nil}} | {:error, Error.t()}
  def arrived(store, opts \\ []),
    do: store |> check_late!() |> Named.call(:arrived, [Options.validate!(opts, :arrived)])

  defp check_late!(store) do
    checked = Named.check!(store)

    unless Named.late?(checked),
      do: AshAgent.Caller.refuse!("the store keeps no late results: its module has no arrive/5")

    store
  end

  # No database has a conversation of another id.
  defp call_known(store, function, id, more, otherwise \\ {:error, :not_found}),
    do: if(Options.id?(id), do: Named.call(store, function, [id | more]), else: otherwise)

  defp id_of!(%Context{} = context), do: context[:id]
  defp id_of!(%ChatContext{id: id}), do: id

  defp id_of!(other) do
    AshAgent.Caller.refuse!(
      "expected a %AshAgent.Context{} or a %AshAgent.ChatContext{} to store, got: #{AshAgent.Options.kind(other)}"
    )
  end

  defp check_claimed!(%Conversation{claimed?: true} = kept), do: kept

  defp check_claimed!(%Conversation{}),
    do:
      AshAgent.Caller.refuse!("expected a claim, as claim/3 or a write of its holder returns it")
end
