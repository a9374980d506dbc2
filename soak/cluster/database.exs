defmodule AshAgent.Soak.Cluster.Database do
  @moduledoc "The driver's own connection to PostgreSQL: conversations to begin with, and who owns what."

  alias AshAgent.{Context, Store}
  alias AshAgent.TestSupport.PgSQL

  @tables [
    {"conversations",
     "kind, parent_id, document, metadata, active, status, revision, epoch, queued, owner, lease_until, created_at, updated_at"},
    {"branches", "number, base, since, updated_at, label, document"},
    {"iterations", "branch, number, document"},
    {"history", "revision, epoch, owner, at, document"}
  ]

  def open do
    {query, transaction} = PgSQL.connect!()
    store = Store.Postgres.new({query, transaction})
    {:ok, _} = Store.Postgres.Migrations.migrate(store)
    %{query: query, store: store}
  end

  def rows(%{query: query}, sql) do
    {:ok, %{rows: rows}} = query.(sql, [])
    rows
  end

  @doc "One conversation through the store, and copies of its rows."
  def fill(db, from \\ 1, count) do
    if from == 1, do: create(db)

    for {table, columns} <- @tables do
      key = if table == "conversations", do: "id", else: "conversation_id"
      # The line's document has the id, too.
      values =
        if table == "branches",
          do:
            String.replace(
              columns,
              ", document",
              ", jsonb_set(document, '{id}', to_jsonb('c' || n))"
            ),
          else: columns

      rows(db, """
      with made as (insert into ash_agent_#{table} (#{key}, #{columns})
        select 'c' || n, #{values} from ash_agent_#{table}, generate_series(#{from}, #{count}) as n where #{key} = 'c0' returning 1)
      select count(*) from made
      """)
    end

    :ok
  end

  defp create(db) do
    context =
      Enum.reduce(1..5, Context.new("Hello!", id: "c0"), fn number, context ->
        context
        |> Context.add_assistant_message(
          "Answer #{number}. " <> String.duplicate("Some words. ", 20)
        )
        |> Context.add_user_message("Question #{number}?")
      end)
      |> Context.add_assistant_message("Yes.")

    {:ok, _} = Store.create(db.store, context)
  end

  @doc "What a node owns and runs: ids with their epochs."
  def running(db, node) do
    db
    |> rows(
      "select id, epoch from ash_agent_conversations where status = 'running' and owner like '#{node} %'"
    )
    |> Map.new(fn [id, epoch] -> {id, number(epoch)} end)
  end

  @doc "Which of them somebody else has claimed, and which had ended before that."
  def taken(_db, claims) when claims == %{}, do: {[], []}

  def taken(db, claims) do
    ids = claims |> Map.keys() |> Enum.map_join(",", &"'#{&1}'")
    sql = "select id, epoch, status from ash_agent_conversations where id in (#{ids})"

    {taken, same} =
      db |> rows(sql) |> Enum.split_with(fn [id, epoch, _] -> number(epoch) > claims[id] end)

    {Enum.map(taken, &hd/1), for([id, _epoch, status] <- same, status != "running", do: id)}
  end

  @doc "Conversations with something left to do, and calls without an outcome."
  def left(db) do
    [[running]] =
      rows(db, "select count(*) from ash_agent_conversations where status = 'running'")

    [[waiting]] = rows(db, "select count(*) from ash_agent_prompts where revision is null")
    {number(running), number(waiting)}
  end

  @doc "Some of those."
  def what_is_left(db) do
    rows(db, """
    select id, status, revision, epoch, owner, lease_until, (select count(*) from ash_agent_prompts as p
      where p.conversation_id = c.id and p.revision is null) as waiting from ash_agent_conversations as c
    where status = 'running' or exists (select 1 from ash_agent_prompts as p where p.conversation_id = c.id and p.revision is null) limit 20
    """)
  end

  @doc "Writes of an owner after a later one had claimed, which nothing may show."
  def late_writes(db) do
    db
    |> rows("""
    select count(*) from (select epoch, owner, lag(epoch) over w as before, lag(owner) over w as owner_before
      from ash_agent_history window w as (partition by conversation_id order by revision)) as h
    where epoch < before or (epoch = before and owner is distinct from owner_before and owner_before is not null)
    """)
    |> first()
  end

  def unfinished_calls(db),
    do: db |> rows("select count(*) from ash_agent_calls where state = 'started'") |> first()

  @doc "How calls ended, and the keys of those that have a result."
  def calls(db) do
    for [key, state] <- rows(db, "select key, state from ash_agent_calls"), do: {key, state}
  end

  @doc "The conversations that were written since the beginning."
  def touched(db) do
    for [id] <-
          rows(
            db,
            "select id from ash_agent_conversations where revision > 1 and id <> 'c0' order by id"
          ),
        do: id
  end

  @doc "Rows and bytes of each table, with its indexes."
  def sizes(db) do
    for table <- ~w(conversations branches iterations calls prompts history) do
      [[rows, bytes]] =
        rows(
          db,
          "select (select count(*) from ash_agent_#{table}), pg_total_relation_size('ash_agent_#{table}')"
        )

      {table, number(rows), number(bytes)}
    end
  end

  defp first([[value]]), do: number(value)
  defp number(value) when is_integer(value), do: value
  defp number(value), do: String.to_integer(value)
end
