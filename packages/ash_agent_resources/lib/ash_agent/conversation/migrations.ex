defmodule AshAgent.Conversation.Migrations do
  @moduledoc """
  Ties the table of a resource to its conversations in the same database. `mix ash.codegen` writes the migrations that call it.

      def up do
        AshAgent.Store.Postgres.Migrations.up(version: 5)
        AshAgent.Conversation.Migrations.up(version: 1, table: "conversations", key: "id", name: "conversations")
      end

  Version 1 creates triggers that delete the conversation of each row that the database deletes, by any statement, including cascades. `TRUNCATE` deletes all
  conversations of the resource. Inside a transaction, the deletion takes effect when it commits.

  For stores that are elsewhere, see `AshAgent.Conversation.Upkeep`.
  """

  use AshAgent.Arguments

  alias AshAgent.{Options, Store}

  @latest 1

  @schema Options.schema([
            {:version, :pos_integer, [required: true], "the version to reach."},
            {:table, :string, [required: true], "the resource's table."},
            {:key, :string, [default: "id"], "the column of the primary key."},
            {:name, :string, [required: true],
             "the name of the resource, see `AshAgent.Conversation.Info.name/1`."},
            {:prefix, :string, "the schema of the tables. Defaults to the `search_path`."}
          ])

  @doc """
  Returns the latest version.

      iex> AshAgent.Conversation.Migrations.latest()
      1
  """
  @doc since: "0.1.0"
  @spec latest() :: pos_integer()
  def latest, do: @latest

  @doc """
  Ties a table to its conversations, within an Ecto migration. The tables of the store come first.

  ## Options

  #{Options.docs(@schema)}
  """
  @doc since: "0.1.0"
  @spec up(keyword()) :: :ok
  def up(opts) do
    opts = validate!(opts)
    Enum.each(sql(opts), &migration(:execute, [&1]))
  end

  @doc "Removes the triggers, within an Ecto migration. Takes the options of `up/1`."
  @doc since: "0.1.0"
  @spec down(keyword()) :: :ok
  def down(opts) do
    opts = validate!(opts)
    migration(:execute, ["drop function if exists #{function(opts)} cascade"])
    :ok
  end

  # Called by name: Ecto may be missing when this is compiled.
  defp migration(function, args), do: apply(Ecto.Migration, function, args)

  defp validate!(opts) do
    opts = Options.validate!(opts, @schema)

    if opts[:version] in 1..@latest,
      do: opts,
      else: AshAgent.Caller.refuse!("expected a version from 1 to #{@latest}")
  end

  @doc false
  # The statements of the triggers.
  def sql(opts) do
    conversations = "#{schema(opts)}ash_agent_conversations"
    name = literal(opts[:name] <> ":")
    table = table(opts)

    [
      """
      create or replace function #{function(opts)} returns trigger language plpgsql as $ash_agent$
      begin
        if tg_op = 'TRUNCATE' then
          delete from #{conversations} where left(id, #{String.length(opts[:name]) + 1}) = #{name};
        else
          delete from #{conversations} where id = #{name} || cast(old.#{quote_name(opts[:key])} as text);
        end if;
        return null;
      end
      $ash_agent$
      """,
      "drop trigger if exists ash_agent_delete on #{table}",
      "create trigger ash_agent_delete after delete on #{table} for each row execute function #{function(opts)}",
      "drop trigger if exists ash_agent_truncate on #{table}",
      "create trigger ash_agent_truncate after truncate on #{table} for each statement execute function #{function(opts)}"
    ]
  end

  defp table(opts), do: schema(opts) <> quote_name(opts[:table])

  # The names of functions are cut off at 63 bytes, and tables are not.
  defp function(opts) do
    digest = :md5 |> :crypto.hash(opts[:table]) |> Base.encode16(case: :lower)
    schema(opts) <> quote_name("ash_agent_delete_" <> digest) <> "()"
  end

  defp schema(opts), do: Store.Postgres.quote_prefix(opts[:prefix])
  defp quote_name(name), do: ~s("#{String.replace(name, ~s("), ~s(""))}")
  defp literal(text), do: "'#{String.replace(text, "'", "''")}'"
end
