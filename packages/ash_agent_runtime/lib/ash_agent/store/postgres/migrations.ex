defmodule AshAgent.Store.Postgres.Migrations do
  @moduledoc """
  Creates the tables of `AshAgent.Store.Postgres`, and brings older ones up to date.

  With Ecto, name the version in a migration of your application, so that each upgrade is another migration:

      defmodule MyApp.Repo.Migrations.AddAshAgentStore do
        use Ecto.Migration

        def up, do: AshAgent.Store.Postgres.Migrations.up(version: 5)
        def down, do: AshAgent.Store.Postgres.Migrations.down(version: 1)
      end

  Without Ecto, use `migrate/2` on a store, or `sql/3` to get the statements for other tools:

      {:ok, 5} = AshAgent.Store.Postgres.Migrations.migrate(AshAgent.Store.Postgres.new({Postgrex, connection}))

  A database's version is in the comment of the table `ash_agent_conversations`.
  """

  use AshAgent.Arguments

  alias AshAgent.Options
  alias AshAgent.Store.{Error, Postgres, Schema, SQL}

  @lock 4_270_061_216

  @schema Options.schema([
            {:version, :pos_integer, "the version to reach. Defaults to the latest one."},
            {:prefix, :string,
             "the schema of the tables, which must exist. Defaults to PostgreSQL's `search_path`."},
            {:partitions, :pos_integer,
             "creates the tables partitioned by a hash of the conversation's id, in so many partitions each. Name it in the migrations " <>
               "of later versions as well. Defaults to tables that are not partitioned."}
          ])

  @doc """
  Returns the latest version.

  ## Examples

      iex> AshAgent.Store.Postgres.Migrations.latest()
      5
  """
  @doc since: "0.1.0"
  @spec latest() :: pos_integer()
  def latest, do: Schema.latest(:postgres)

  @doc """
  Creates the tables up to a version, within an Ecto migration.

  ## Options

  #{Options.docs(@schema)}

  ## Examples

      def up, do: AshAgent.Store.Postgres.Migrations.up(version: 5)
  """
  @doc since: "0.1.0"
  @spec up(keyword()) :: :ok
  def up(opts \\ []) do
    migrate_to(opts, latest(), &max/2)
  end

  @doc """
  Removes this version and the later ones with all their data, within an Ecto migration.

  Takes the options of `up/1`; `:version` defaults to `1`.
  """
  @doc since: "0.1.0"
  @spec down(keyword()) :: :ok
  def down(opts \\ []) do
    migrate_to(opts, 1, &min(&1, &2 - 1))
  end

  defp migrate_to(opts, version, reach) do
    opts = Options.validate!(opts, @schema)
    version = check_known!(opts[:version] || version)
    opts = quote_prefix(opts)
    installed = check_installed!(opts[:prefix])

    for statement <- statements(installed, reach.(installed, version), opts),
        do: apply(Ecto.Migration, :execute, [statement])

    :ok
  end

  defp quote_prefix(opts),
    do: [prefix: Postgres.quote_prefix(opts[:prefix]), partitions: opts[:partitions] || 0]

  # Ecto's modules may be missing when this is compiled.

  # Statements of the migration have not run yet, so this is the version before it.
  defp check_installed!(prefix) do
    store = %{Postgres.new(apply(Ecto.Migration, :repo, [])) | prefix: prefix}

    case version(store) do
      {:ok, version} -> version
      {:error, error} -> raise error
    end
  end

  @doc """
  Returns the statements that bring a database from one version to another. 0 means no tables: `sql(0, 5)` creates them, `sql(5, 0)`
  drops them.

  Run them in one transaction. Takes the options `:prefix` and `:partitions` of `up/1`.

  ## Examples

      iex> AshAgent.Store.Postgres.Migrations.sql(1, 1)
      []
      iex> List.last(AshAgent.Store.Postgres.Migrations.sql(0, 5))
      "comment on table ash_agent_conversations is '5'"
  """
  @doc since: "0.1.0"
  @spec sql(non_neg_integer(), non_neg_integer(), keyword()) :: [String.t()]
  def sql(from, to, opts \\ []) when is_integer(from) and is_integer(to) do
    opts = Options.validate!(opts, Keyword.take(@schema, [:prefix, :partitions]))
    statements(check_known!(from), check_known!(to), quote_prefix(opts))
  end

  defp statements(same, same, _opts), do: []

  defp statements(from, to, opts) do
    changes =
      if to > from,
        do: Enum.flat_map((from + 1)..to, &Schema.up(:postgres, &1, opts[:partitions])),
        else: Enum.flat_map(from..(to + 1)//-1, &Schema.down(:postgres, &1))

    noted = if to > 0, do: ["comment on table {conversations} is '#{to}'"], else: []

    for statement <- changes ++ noted,
        do: statement |> String.trim() |> SQL.name_tables(opts[:prefix])
  end

  defp check_known!(version) do
    if version in 0..latest(),
      do: version,
      else: AshAgent.Caller.refuse!("expected a version from 0 to #{latest()}, got: #{version}")
  end

  @doc """
  Creates the tables of a store or brings them up to date, in one transaction, and returns `{:ok, version}` or `{:error, error}`.

  Several processes may call it at once. Takes the options `:version` and `:partitions` of `up/1`; tables of a later version are left as they are.
  """
  @doc since: "0.1.0"
  @spec migrate(Postgres.t(), keyword()) :: {:ok, pos_integer()} | {:error, Error.t()}
  def migrate(%Postgres{} = store, opts \\ []) do
    opts = Options.validate!(opts, Keyword.take(@schema, [:version, :partitions]))
    version = check_known!(opts[:version] || latest())

    Postgres.transaction(store, fn ->
      lock = "select cast(pg_advisory_xact_lock(#{@lock}) as text)"
      [_row] = check_done!(Postgres.query(store, lock, []))
      from = check_done!(version(store))
      reached = max(from, version)
      opts = [prefix: store.prefix, partitions: opts[:partitions] || 0]

      for statement <- statements(from, reached, opts),
          do: check_done!(Postgres.query(store, statement, []))

      reached
    end)
  end

  # Whatever the driver makes of it, the transaction ends.
  defp check_done!({:ok, answer}), do: answer
  defp check_done!({:error, error}), do: throw({Postgres, error})

  @doc """
  Returns `:ok` if a store has the tables that this release needs, or `{:error, error}` that says what to do.

  ## Examples

      :ok = AshAgent.Store.Postgres.Migrations.check(store)
  """
  @doc since: "0.1.0"
  @spec check(Postgres.t()) :: :ok | {:error, Error.t()}
  def check(%Postgres{} = store) do
    latest = latest()

    case version(store) do
      {:ok, ^latest} -> :ok
      {:ok, version} -> {:error, %Error{reason: {:schema, version, latest}}}
      {:error, error} -> {:error, error}
    end
  end

  defp version(store) do
    table = String.replace("#{store.prefix}ash_agent_conversations", "'", "''")

    query = "select obj_description(to_regclass('#{table}'), 'pg_class')"

    with {:ok, [[comment]]} <- Postgres.query(store, query, []) do
      case Integer.parse(comment || "0") do
        {version, ""} -> {:ok, version}
        _other -> {:ok, 0}
      end
    end
  end
end
