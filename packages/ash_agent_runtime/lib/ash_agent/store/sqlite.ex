defmodule AshAgent.Store.SQLite do
  @moduledoc """
  A store in a file, for one machine: SQLite, embedded in the library.

      {:ok, store} = AshAgent.Store.SQLite.open("conversations.db")

  Under a supervisor, with a name to use instead of the store:

      children = [{AshAgent.Store.SQLite, name: MyApp.Conversations, path: "conversations.db"}]

  SQLite is optional, since compiling its C code takes about a minute. To build it in, configure

      config :ash_agent_runtime, features: [:sqlite]

  The file is in WAL mode, so readers do not wait for the writer. Statements run on two threads of their own and reply with messages,
  so schedulers never wait for the disk, and waiting writes share one commit. Several programs may open the same file, but not on a
  network file system. Deleted contents are overwritten.
  """

  use AshAgent.Store.Relational

  alias AshAgent.{Memo, Options}
  alias AshAgent.Store.{Blobs, Error, Schema, SQL}
  alias AshAgent.Store.SQLite.Native

  # `index` says whether somebody writes the index of the search, and is `nil` where nobody does.
  @enforce_keys [:ref]
  defstruct [:ref, :blobs, :index]

  @type t :: %__MODULE__{
          ref: reference(),
          blobs: {module(), term()} | nil,
          index: reference() | nil
        }

  @page 4096

  @schema Options.schema([
            {:synchronous, {:in, [:full, :normal]}, [default: :full],
             "`:full` returns from a write when it is on the disk. `:normal` is faster, but the last writes may be lost if the machine, " <>
               "and not only the VM, crashes. Neither damages the file."},
            {:busy_timeout, :pos_integer, [default: 5_000],
             "milliseconds to wait while another program writes."},
            {:search, :boolean, [default: true],
             "whether what is written is indexed for `AshAgent.Store.search/3`. What was written without is indexed when the file is " <>
               "opened with it."},
            {:max_bytes, :pos_integer,
             "how large the file may become; beyond it, the disk counts as full. Defaults to no limit."}
          ]) ++ Blobs.option()

  @doc """
  Opens a store, creating the file and its tables if they are missing, and returns `{:ok, store}` or `{:error, %AshAgent.Store.Error{}}`.

  All processes of the node can use the store. It is closed when none of them refers to it any more. `":memory:"` opens a store without
  a file, for tests. Any other path is UTF-8 and names a file; URIs (`file:…`) are refused, since they can open stores that keep nothing.

  ## Options

  #{Options.docs(@schema)}

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> AshAgent.Store.fetch(store, "c1")
      {:error, :not_found}

      iex> {:error, error} = AshAgent.Store.SQLite.open("/no/such/folder/store.db")
      iex> elem(error.reason, 0)
      :cannot_open
  """
  @doc since: "0.1.0"
  @spec open(Path.t(), keyword()) :: {:ok, t()} | {:error, Error.t()}
  def open(path, opts \\ []) when is_binary(path) do
    opts = Options.validate!(opts, @schema)

    # Without a limit, the most that the format allows.
    most = if opts[:max_bytes], do: max(1, div(opts[:max_bytes], @page)), else: 4_294_967_294
    settings = %{in_memory: path == ":memory:", full: opts[:synchronous] == :full}
    settings = Map.merge(settings, %{busy_timeout: opts[:busy_timeout], max_pages: most})

    with {:ok, ref} <- native_open(path, settings),
         {:ok, store} <- migrate(%__MODULE__{ref: ref, blobs: opts[:blobs]}) do
      store = if opts[:search], do: %{store | index: :atomics.new(2, [])}, else: store
      # A VM that was killed may have left some.
      index_later(store)
      {:ok, store}
    end
  end

  # Without a name each connection has a file of its own.
  defp native_open(path, settings) do
    with :ok <- check_path(path), {:ok, ref} <- Native.open(path, settings) do
      {:ok, ref}
    else
      {:error, reason} -> {:error, error(reason)}
    end
  rescue
    error in ErlangError ->
      if error.original == :nif_not_loaded,
        do: {:error, %Error{reason: {:feature_missing, "sqlite"}}},
        else: reraise(error, __STACKTRACE__)
  end

  defp check_path(""), do: {:error, {:cannot_open, "an empty path"}}

  # SQLite would read a URI's parameters, and `mode=memory` keeps nothing.
  defp check_path("file:" <> _),
    do: {:error, {:cannot_open, "a URI instead of the path of a file"}}

  defp check_path(path) do
    if String.valid?(path) and not String.contains?(path, <<0>>),
      do: :ok,
      else: {:error, {:cannot_open, "a path that is not UTF-8, or has NUL"}}
  end

  defp migrate(store) do
    latest = Schema.latest(:sqlite)

    with {:ok, [[[version]]]} <- execute(store, :read, ["pragma user_version"], []) do
      cond do
        version == latest -> {:ok, store}
        version > latest -> {:error, %Error{reason: {:schema, version, latest}}}
        true -> migrate(store, version, latest)
      end
    end
  end

  defp migrate(store, version, latest) do
    steps =
      for to <- (version + 1)..latest,
          step <- Schema.up(:sqlite, to),
          do: SQL.name_tables(step, "")

    steps = ["begin immediate" | steps] ++ ["pragma user_version = #{latest}", "commit"]

    case execute(store, :script, [Enum.join(steps, ";\n")], []) do
      {:ok, _done} -> {:ok, store}
      {:error, error} -> check_migrated(store, latest, error)
    end
  end

  # Another program may have made the tables at the same moment.
  defp check_migrated(store, latest, error) do
    case {execute(store, :read, ["pragma user_version"], []), error.reason} do
      {{:ok, [[[^latest]]]}, _reason} ->
        {:ok, store}

      {{:ok, _other}, {:refused, _code}} ->
        {:error, %Error{reason: {:corrupt, "a database of something else"}}}

      {{:ok, _other}, _reason} ->
        {:error, error}

      {error, _reason} ->
        error
    end
  end

  @doc false
  # Leases in a file are by the clock of this machine.
  def local_clock?, do: true

  @doc false
  @impl AshAgent.Store.Relational
  def dialect, do: :sqlite

  @doc false
  @impl AshAgent.Store.Relational
  def run(store, key, operation, params) do
    {statements, answer} =
      cache(key, fn ->
        operation = operation.()
        {operation |> SQL.many() |> Enum.map(&SQL.name_tables(&1, "")), operation.answer}
      end)

    with {:ok, [guard | effects]} <- execute(store, :write, statements, params) do
      if key_writes?(key), do: index_later(store)
      {:ok, join_rows(guard, effects, answer)}
    end
  end

  defp key_writes?({name, sections}), do: name in [:create, :append] and :iterations in sections
  defp key_writes?(key), do: key == :rename

  ## The index of the search, which is written behind the saves

  # Iterations of one transaction, and of all that a search waits for.
  @batch 512
  @batches 10

  # Milliseconds without a save after which the index is written, so that saves do not wait for it, and how often they may pass.
  @behind 200
  @pauses 10

  defp index_later(%{index: nil}), do: :ok

  defp index_later(%{index: index} = store) do
    :atomics.add(index, 2, 1)

    if :atomics.compare_exchange(index, 1, 0, 1) == :ok do
      spawn(fn ->
        await_pause(index, @pauses)
        # What comes from now on has another process.
        :atomics.put(index, 1, 0)
        index_some(store, :infinity)
      end)
    end

    :ok
  end

  defp await_pause(index, left) do
    saves = :atomics.get(index, 2)
    Process.sleep(@behind)
    if left > 1 and :atomics.get(index, 2) != saves, do: await_pause(index, left - 1)
  end

  # One that fails is tried again after the next save, and before the next search.
  defp index_some(_store, 0), do: :ok

  defp index_some(store, left) do
    statements =
      cache(:index, fn -> Enum.map(SQL.index_some(@batch), &SQL.name_tables(&1, "")) end)

    waiting =
      cache(:waits, fn -> [SQL.name_tables("select exists (select 1 from {unindexed})", "")] end)

    with {:ok, [[[1]]]} <- execute(store, :read, waiting, []),
         {:ok, _rows} <- execute(store, :write, statements, []),
         do: index_some(store, if(left == :infinity, do: left, else: left - 1))
  end

  defp join_rows(guard, _effects, nil), do: guard
  defp join_rows([], _effects, _answer), do: []

  defp join_rows(guard, effects, answer) do
    found = Enum.at(effects, answer)
    for row <- guard, more <- if(found == [], do: [[nil]], else: found), do: row ++ more
  end

  @doc false
  @impl AshAgent.Store.Relational
  def read(store, key, query, params) do
    if match?({:search, _filters}, key) and store.index, do: index_some(store, @batches)
    statements = cache(key, fn -> [SQL.name_tables(query.(), "")] end)
    with {:ok, [rows]} <- execute(store, :read, statements, params), do: {:ok, rows}
  end

  # There are as many as the package has functions and ways to call them.
  defp cache(key, make), do: Memo.fetch({__MODULE__, SQL.version(), key}, make)

  defp execute(%{ref: ref}, mode, statements, params) do
    reference = make_ref()
    :ok = Native.run(ref, {mode, reference}, statements, params)

    receive do
      {:ash_agent_sqlite, ^reference, {:ok, rows}} -> {:ok, rows}
      {:ash_agent_sqlite, ^reference, {:error, reason}} -> {:error, error(reason)}
    end
  end

  defp error({:busy, code}), do: %Error{reason: {:locked, code}}
  defp error({:too_big, code}), do: %Error{reason: {:too_large, code}}
  defp error({:closed, code}), do: %Error{reason: {:unavailable, code}}
  defp error({:sqlite, code}), do: %Error{reason: {:refused, code}}
  defp error({word, code}), do: %Error{reason: {word, code}}

  ## Under a supervisor

  @doc """
  Returns a specification for a supervisor that opens a store under a name. Takes `:name`, `:path` and the options of `open/2`.

  ## Examples

      iex> AshAgent.Store.SQLite.child_spec(name: MyApp.Conversations, path: "store.db").id
      MyApp.Conversations
  """
  @doc since: "0.1.0"
  @spec child_spec(keyword()) :: Supervisor.child_spec()
  def child_spec(opts), do: %{id: opts[:name], start: {__MODULE__.Owner, :start_link, [opts]}}

  defmodule Owner do
    @moduledoc false
    use GenServer

    def start_link(opts), do: GenServer.start_link(__MODULE__, opts)

    @impl true
    def init(opts) do
      {own, opts} = Keyword.split(opts, [:name, :path])

      named = [name: [type: :atom, required: true], path: [type: :string, required: true]]
      own = Options.validate!(own, named)

      case AshAgent.Store.SQLite.open(own[:path], opts) do
        {:ok, store} ->
          Process.flag(:trap_exit, true)
          AshAgent.Store.Named.put(own[:name], store)
          {:ok, own[:name]}

        {:error, error} ->
          {:stop, error}
      end
    end

    @impl true
    def terminate(_reason, name), do: AshAgent.Store.Named.erase(name)
  end
end
