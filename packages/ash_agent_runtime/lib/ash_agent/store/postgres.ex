defmodule AshAgent.Store.Postgres do
  @moduledoc """
  A store in PostgreSQL 12 or newer, for several machines.

      store = AshAgent.Store.Postgres.new(MyApp.Repo)

  It does not depend on a driver. Pass one of these to run its statements:

    * a module with `query/3` and `transaction/2`, such as an Ecto repository
    * `{Postgrex, connection}`: a connection, a pool or their name
    * `{query, transaction}`, two functions: `query.(sql, params)` returns `{:ok, %{rows: rows}}`, `{:ok, rows}` or `{:error, reason}`, and
      `transaction.(function)` calls the function within a transaction and returns `{:ok, value}` or `{:error, reason}`

  Each statement is one round trip and needs no transaction of its own; migrations use one. Within a transaction of the application,
  a write is committed with it. All parameters are strings, and all results are strings or integers.

  The tables are made by `AshAgent.Store.Postgres.Migrations`.

  ## Logs

  Ecto does not log the statements, and errors contain PostgreSQL's code and nothing of the conversation. The server itself
  logs parameters only if it is configured to (`log_statement`, `log_parameter_max_length_on_error`), or if an extension does.
  """

  use AshAgent.Arguments

  use AshAgent.Store.Relational

  alias AshAgent.{Memo, Options}
  alias AshAgent.Store.{Blobs, Error, SQL}

  @enforce_keys [:database, :prefix, :timeout]
  defstruct [:database, :prefix, :timeout, :blobs]

  @typedoc "A database to run statements on."
  @type database ::
          module()
          | {Postgrex, GenServer.server()}
          | {query :: (String.t(), [term()] -> {:ok, term()} | {:error, term()}),
             transaction :: ((... -> term()) -> {:ok, term()} | {:error, term()})}

  @type t :: %__MODULE__{
          database: database(),
          prefix: String.t(),
          timeout: pos_integer(),
          blobs: {module(), term()} | nil
        }

  @schema Options.schema([
            {:prefix, :string,
             "the schema of the tables. Defaults to PostgreSQL's `search_path`."},
            {:timeout, :pos_integer, [default: 15_000],
             "milliseconds that a statement may take, for Ecto and Postgrex."}
          ]) ++ Blobs.option()

  @doc """
  Returns a store in a database. It does not connect yet; `AshAgent.Store.Postgres.Migrations.check/1` checks that the
  tables exist.

  ## Options

  #{Options.docs(@schema)}

  ## Examples

      iex> AshAgent.Store.Postgres.new(MyApp.Repo, prefix: "agents")
      #AshAgent.Store.Postgres<>
  """
  @doc since: "0.1.0"
  @spec new(database(), keyword()) :: t()
  def new(database, opts \\ []) do
    opts = Options.validate!(opts, @schema)

    unless database?(database) do
      AshAgent.Caller.refuse!(
        "expected a repository, {Postgrex, connection}, or {query, transaction} with functions of arity 2 and 1"
      )
    end

    opts = Keyword.update(opts, :prefix, "", &quote_prefix/1)
    struct!(__MODULE__, [database: database] ++ opts)
  end

  defp database?(module) when is_atom(module), do: module not in [nil, true, false]
  defp database?({Postgrex, _connection}), do: true
  defp database?({query, transaction}), do: is_function(query, 2) and is_function(transaction, 1)
  defp database?(_other), do: false

  @doc false
  def quote_prefix(nil), do: ""
  def quote_prefix(prefix), do: ~s("#{String.replace(prefix, ~s("), ~s(""))}".)

  @doc false
  @impl AshAgent.Store.Relational
  def dialect, do: :postgres

  @doc false
  @impl AshAgent.Store.Relational
  def run(store, key, operation, params),
    do: cache(store, key, fn -> SQL.one(operation.()) end, params)

  @doc false
  @impl AshAgent.Store.Relational
  def read(store, key, query, params), do: cache(store, key, query, params)

  # There are as many as the package has functions and ways to call them.
  defp cache(store, key, make, params) do
    name = fn -> SQL.name_tables(make.(), store.prefix) end
    query(store, Memo.fetch({__MODULE__, SQL.version(), store.prefix, key}, name), params)
  end

  @doc false
  def query(store, statement, params) do
    guard(fn ->
      case ask(store, statement, params) do
        {:ok, %{rows: rows}} ->
          {:ok, rows || []}

        {:ok, rows} when is_list(rows) ->
          {:ok, rows}

        {:error, reason} ->
          {:error, error(reason)}

        _other ->
          unavailable("an answer that is neither {:ok, _} nor {:error, _}")
      end
    end)
  end

  @doc false
  def transaction(store, function) do
    guard(fn ->
      case transact(store, function) do
        {:ok, value} -> {:ok, value}
        {:error, reason} -> {:error, error(reason)}
      end
    end)
  end

  # Exceptions, exits and errors of a driver may hold statements and parameters. None of it is passed on.
  defp guard(function) do
    function.()
  rescue
    exception -> {:error, error(exception)}
  catch
    :throw, {__MODULE__, %Error{} = error} -> {:error, error}
    :throw, _value -> unavailable("throw")
    :exit, _reason -> unavailable("exit")
  end

  defp unavailable(words), do: {:error, %Error{reason: {:unavailable, words}}}

  defp ask(%{database: {Postgrex, connection}, timeout: timeout}, statement, params),
    do: apply(Postgrex, :query, [connection, statement, params, [timeout: timeout]])

  defp ask(%{database: {query, _transaction}}, statement, params), do: query.(statement, params)

  defp ask(%{database: repo, timeout: timeout}, statement, params),
    do: repo.query(statement, params, log: false, timeout: timeout)

  defp transact(%{database: {Postgrex, connection}}, function),
    do: apply(Postgrex, :transaction, [connection, fn _connection -> function.() end])

  defp transact(%{database: {_query, transaction}}, function), do: transaction.(function)
  defp transact(%{database: repo}, function), do: repo.transaction(function, log: false)

  ## Errors

  # Postgrex and Ecto give names, the code is what other drivers have.
  defp error(%Error{} = error), do: error
  defp error(%{postgres: %{pg_code: code}}), do: from_code(code)
  defp error(code) when is_binary(code) and byte_size(code) == 5, do: from_code(code)
  defp error(%module{}) when is_atom(module), do: %Error{reason: {:unavailable, inspect(module)}}
  defp error(reason) when is_atom(reason), do: %Error{reason: {:unavailable, reason}}
  defp error(_reason), do: %Error{reason: {:unavailable, "an error of the driver"}}

  defp from_code(code) do
    if code =~ ~r/^[0-9A-Z]{5}$/,
      do: %Error{reason: {kind(code), code}},
      else: %Error{reason: {:unavailable, "an error of the driver"}}
  end

  @classes %{"54" => :too_large, "58" => :io}
  defp kind("53100"), do: :disk_full
  defp kind("25006"), do: :read_only
  defp kind(code) when code in ["XX001", "XX002"], do: :corrupt
  # Connections, resources, an operator's intervention, transactions to be tried again.
  defp kind(<<class::binary-size(2), _::binary>>) when class in ~w(08 53 57 40), do: :unavailable
  defp kind(<<class::binary-size(2), _::binary>>), do: Map.get(@classes, class, :refused)
end
