defmodule AshAgent.Store.Schema do
  @moduledoc false

  # The tables of the stores, by versions: a version is what brings a database from the one before it to itself. A released
  # version is never changed; what is to be different is the next one.

  @latest 1

  def latest, do: @latest

  @spec up(AshAgent.Store.SQL.dialect(), pos_integer()) :: [String.t()]
  def up(dialect, version),
    do: dialect |> statements(version) |> Enum.map(&put_types(dialect, &1))

  @spec down(AshAgent.Store.SQL.dialect(), pos_integer()) :: [String.t()]
  def down(_dialect, 1) do
    for table <- ~w(history prompts calls iterations branches conversations),
        do: "drop table if exists {#{table}}"
  end

  defp statements(dialect, 1) do
    [
      """
      create table {conversations} (
        id text primary key,
        kind text not null,
        parent_id text,
        document json_data,
        metadata json_data not null,
        active bigint not null,
        status text not null,
        revision bigint not null,
        epoch bigint not null,
        queued bigint not null,
        owner text,
        lease_until time_of_day,
        created_at time_of_day not null,
        updated_at time_of_day not null
      )
      """,
      """
      create table {branches} (
        conversation_id text not null references {conversations} (id) on delete cascade,
        number bigint not null,
        base bigint,
        since bigint,
        updated_at text not null,
        label json_data,
        document json_data,
        primary key (conversation_id, number)
      ) clustered
      """,
      """
      create table {iterations} (
        conversation_id text not null,
        branch bigint not null,
        number bigint not null,
        document json_data not null,
        primary key (conversation_id, branch, number),
        foreign key (conversation_id, branch) references {branches} (conversation_id, number) on delete cascade
      )
      """,
      """
      create table {calls} (
        conversation_id text not null references {conversations} (id) on delete cascade,
        key text not null,
        attempt bigint not null,
        epoch bigint not null,
        state text not null,
        started_at time_of_day,
        ended_at time_of_day,
        document json_data,
        primary key (conversation_id, key, attempt)
      ) clustered
      """,
      """
      create table {prompts} (
        conversation_id text not null references {conversations} (id) on delete cascade,
        id text not null,
        number bigint not null,
        kind text not null,
        at time_of_day not null,
        revision bigint,
        document json_data,
        primary key (conversation_id, id)
      ) clustered
      """,
      """
      create table {history} (
        conversation_id text not null references {conversations} (id) on delete cascade,
        revision bigint not null,
        epoch bigint not null,
        owner text,
        at time_of_day not null,
        document json_data not null,
        primary key (conversation_id, revision)
      ) clustered
      """,
      "create index ash_agent_conversations_lease on {on_conversations} (lease_until) where lease_until is not null",
      "create index ash_agent_conversations_updated on {on_conversations} (updated_at, id)",
      "create index ash_agent_conversations_created on {on_conversations} (created_at, id)",
      "create index ash_agent_conversations_parent on {on_conversations} (parent_id) where parent_id is not null",
      "create index ash_agent_prompts_waiting on {on_prompts} (conversation_id, number) where revision is null"
    ] ++ own(dialect, 1)
  end

  # SQLite looks at metadata row by row.
  defp own(:postgres, 1),
    do: [
      "create index ash_agent_conversations_metadata on {on_conversations} using gin (metadata jsonb_path_ops)"
    ]

  defp own(:sqlite, 1), do: []

  defp put_types(dialect, statement) do
    {json, time} = if dialect == :postgres, do: {"jsonb", "timestamptz"}, else: {"text", "text"}

    # What is small is kept with its key: each page that a write touches is a write to the disk.
    clustered = if dialect == :postgres, do: "", else: "without rowid"

    statement
    |> String.replace("clustered", clustered)
    |> String.replace("json_data", json)
    |> String.replace("time_of_day", time)
    |> String.replace("{on_", "{")
  end
end
