defmodule AshAgent.Store.Schema do
  @moduledoc false

  # The tables of the stores, by versions: a version has the statements that bring a database there from the one before. A
  # released version is never changed; a change is the next one.

  alias AshAgent.Store.Dialect

  # The row of an iteration that is written waits for the index.
  @wait """
  insert into {unindexed} (conversation_id, branch, number, at)
  values (new.conversation_id, new.branch, new.number, #{Dialect.now(:sqlite)})
  on conflict (conversation_id, branch, number) do update set at = excluded.at;
  """

  @keep "on conflict (conversation_id, branch, number) do nothing"

  def latest(:postgres), do: 5
  def latest(:sqlite), do: 6

  def up(dialect, version, partitions \\ 0) do
    dialect
    |> statements(version)
    |> Enum.map(&put_types(dialect, &1))
    |> Enum.flat_map(&partition(&1, partitions))
  end

  # All rows of a conversation are in the partitions of one number.
  defp partition("create table {" <> rest = statement, count) when count > 0 do
    [table, _columns] = String.split(rest, "}", parts: 2)
    key = if table == "conversations", do: "id", else: "conversation_id"

    parts =
      for number <- 0..(count - 1) do
        "create table {#{table}_p#{number}} partition of {#{table}} for values with (modulus #{count}, remainder #{number})"
      end

    [String.trim_trailing(statement) <> " partition by hash (#{key})" | parts]
  end

  defp partition(statement, _count), do: [statement]

  # PostgreSQL's words have no places, and are a column of their rows.
  def down(:postgres, 5), do: []

  def down(_dialect, 4),
    do: for(table <- ~w(arrivals waits), do: "drop table if exists {#{table}}")

  # Version 2 finds these words as well.
  def down(:postgres, 3), do: ["drop index if exists {history_spent}"]

  # The parents that it has filled in stay.
  def down(_dialect, 2), do: for(table <- ~w(texts blobs), do: "drop table if exists {#{table}}")

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

  # Media, and the words that a search finds an iteration by.
  defp statements(dialect, 2) do
    [
      """
      create table {blobs} (
        conversation_id text not null references {conversations} (id) on delete cascade,
        id text not null,
        place text,
        data text,
        primary key (conversation_id, id)
      )
      """,
      """
      create table {texts} (
        #{if dialect == :sqlite, do: "id integer primary key,"}
        conversation_id text not null,
        branch bigint not null,
        number bigint not null,
        at time_of_day not null,
        words #{if dialect == :postgres, do: "tsvector", else: "text"} not null,
        #{if dialect == :postgres, do: "primary key", else: "unique"} (conversation_id, branch, number),
        foreign key (conversation_id, branch, number) references {iterations} (conversation_id, branch, number)
          on delete cascade on update cascade
      )
      """
    ] ++
      own(dialect, 2) ++
      [
        """
        insert into {texts} (conversation_id, branch, number, at, words)
        select i.conversation_id, i.branch, i.number, c.updated_at, #{Dialect.words(dialect, "i.document")}
        from {iterations} as i join {conversations} as c on c.id = i.conversation_id
        """,
        """
        update {conversations} set parent_id = metadata ->> ':parent_id'
        where parent_id is null and kind = 'context' and length(metadata ->> ':parent_id') between 1 and 512
        """
      ]
  end

  # What an iteration cost is found by its number. Words are as SQLite cuts them. A row that is written while this runs has words that are newer than the document that this reads.
  defp statements(:postgres, 3) do
    [
      """
      update {texts} as t set words = #{Dialect.words(:postgres, "i.document")}
      from {texts} as s join {iterations} as i
        on i.conversation_id = s.conversation_id and i.branch = s.branch and i.number = s.number
      where t.conversation_id = s.conversation_id and t.branch = s.branch and t.number = s.number and t.at = s.at
      """,
      """
      create index if not exists ash_agent_history_spent
      on {on_history} (conversation_id, cast(document -> ':spent' ->> ':iteration' as bigint))
      where document -> ':spent' ->> ':iteration' is not null
      """
    ]
  end

  # The index has no copy of the words, and nobody else has: what it has of a row is found again in the row's document. An iteration
  # that is written waits until somebody indexes it; one that is written again is not in the index meanwhile.
  defp statements(:sqlite, 3) do
    dropped = for event <- ~w(insert delete update), do: "drop trigger ash_agent_texts_#{event}"

    dropped ++
      [
        "drop table {words}",
        "alter table {texts} drop column words",
        """
        create table {unindexed} (
          conversation_id text not null,
          branch bigint not null,
          number bigint not null,
          at time_of_day not null,
          primary key (conversation_id, branch, number)
        ) clustered
        """,
        "insert into {unindexed} select conversation_id, branch, number, at from {texts}",
        "delete from {texts}",
        "create trigger ash_agent_iterations_insert after insert on {iterations} begin #{@wait} end"
      ]
  end

  # Calls that wait for a late result, and the results: the first row of a key is the only one.
  defp statements(_dialect, 4) do
    [
      """
      create table {waits} (
        conversation_id text not null references {conversations} (id) on delete cascade,
        key text not null,
        since time_of_day not null,
        deadline time_of_day,
        whom text not null,
        document json_data not null,
        primary key (conversation_id, key)
      ) clustered
      """,
      """
      create table {arrivals} (
        conversation_id text not null references {conversations} (id) on delete cascade,
        key text not null,
        number bigint not null,
        kind text not null,
        at time_of_day not null,
        digest text not null,
        revision bigint,
        document json_data,
        primary key (conversation_id, key)
      ) clustered
      """,
      "create index ash_agent_waits_since on {on_waits} (since, conversation_id, key)",
      "create index ash_agent_waits_whom on {on_waits} (whom, since, conversation_id, key)",
      "create index ash_agent_waits_deadline on {on_waits} (deadline) where deadline is not null",
      "create index ash_agent_arrivals_new on {on_arrivals} (at, conversation_id, key) where revision is null"
    ]
  end

  defp statements(_dialect, 5), do: []

  # A row of the index is a group: iterations that follow each other and were written together, from `first` to `number`. So it has
  # a word once for all of them, and one row of keys. It forgets a group by all of its words, so it does before a row of the group
  # changes; the others wait again. What versions 3 and 5 had for an index is made by this version alone, which replaces it.
  defp statements(:sqlite, 6) do
    groups = """
    {texts} as t join {iterations} as i on i.conversation_id = t.conversation_id and i.branch = t.branch
      and i.number between t.first and t.number where t.id =
    """

    of_old = """
    (select id from (select id, first from {texts} where conversation_id = old.conversation_id and branch = old.branch
      and number >= old.number order by number limit 1) where first <= old.number)
    """

    forget = """
    insert into {words} ({words}, rowid, words)
    select 'delete', t.id, words_of(index_of(i.number - t.first, i.document)) from #{groups} #{of_old} group by t.id;
    insert into {unindexed} select i.conversation_id, i.branch, i.number, t.at from #{groups} #{of_old} #{@keep};
    delete from {texts} where id = #{of_old};
    """

    settled = "delete from {unindexed} where #{same_row("{unindexed}", "old")};"

    insert = """
    insert into {texts} (conversation_id, branch, first, number, at, filters)
    values (new.conversation_id, new.branch, new.first, new.number, new.at, filters_of(new.found));
    insert into {words} (rowid, words) values (last_insert_rowid(), words_of(new.found));
    """

    for(event <- ~w(delete update), do: "drop trigger if exists ash_agent_iterations_#{event}") ++
      [
        "insert into {unindexed} select conversation_id, branch, number, at from {texts} where true #{@keep}",
        "drop table {texts}",
        "drop table if exists {words}",
        """
        create table {texts} (id integer primary key, conversation_id text not null, branch bigint not null,
          first bigint not null, number bigint not null, at time_of_day not null, filters blob not null,
          unique (conversation_id, branch, number))
        """,
        "create virtual table {words} using fts5 (words, content='', detail=none, columnsize=0, tokenize='unicode61 remove_diacritics 0')",
        "insert into {words} ({words}, rank) values ('secure-delete', 1)",
        "create view {groups} as select conversation_id, branch, first, number, at, x'' as found from {texts}",
        "create trigger ash_agent_groups_insert instead of insert on {groups} begin #{insert} end",
        "create trigger ash_agent_iterations_delete before delete on {iterations} begin #{forget} #{settled} end",
        "create trigger ash_agent_iterations_update before update of document on {iterations} begin #{forget} #{@wait} end"
      ]
  end

  defp same_row(one, other) do
    Enum.map_join(~w(conversation_id branch number), " and ", &"#{one}.#{&1} = #{other}.#{&1}")
  end

  # SQLite looks at metadata row by row.
  defp own(:postgres, 1),
    do: [
      "create index ash_agent_conversations_metadata on {on_conversations} using gin (metadata jsonb_path_ops)"
    ]

  defp own(:sqlite, 1), do: []

  defp own(:postgres, 2),
    do: ["create index ash_agent_texts_words on {on_texts} using gin (words)"]

  # The index has no copy of the words, and overwrites what is deleted.
  defp own(:sqlite, 2) do
    delete = "insert into {words} ({words}, rowid, words) values ('delete', old.id, old.words);"

    insert = "insert into {words} (rowid, words) values (new.id, new.words);"

    [
      """
      create virtual table {words} using fts5 (words, content='ash_agent_texts', content_rowid='id',
        tokenize='unicode61 remove_diacritics 0')
      """,
      "insert into {words} ({words}, rank) values ('secure-delete', 1)",
      "create trigger ash_agent_texts_insert after insert on {texts} begin #{insert} end",
      "create trigger ash_agent_texts_delete after delete on {texts} begin #{delete} end",
      "create trigger ash_agent_texts_update after update of words on {texts} begin #{delete} #{insert} end"
    ]
  end

  defp put_types(dialect, statement) do
    {json, time} = if dialect == :postgres, do: {"jsonb", "timestamptz"}, else: {"text", "text"}

    # A small row is kept with its key: each page that a write touches is a write to the disk.
    clustered = if dialect == :postgres, do: "", else: "without rowid"

    statement
    |> String.replace("clustered", clustered)
    |> String.replace("json_data", json)
    |> String.replace("time_of_day", time)
    |> String.replace("{on_", "{")
  end
end
