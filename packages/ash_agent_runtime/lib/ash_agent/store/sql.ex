defmodule AshAgent.Store.SQL do
  @moduledoc false

  # The statements of the stores, and with them their rules: who may write, what a claim is, what happens once. Both
  # databases run the same text, but for the few words of `AshAgent.Store.Dialect` in which they differ.
  #
  # An operation is a **guard**, a statement that gives a row when it may happen, and **effects**, which happen with it or
  # not at all. All read their data from one parameter, a JSON text (`input.it`), since every driver can send text, and
  # refer to the row of the conversation as `guard`. PostgreSQL runs an operation as one statement whose parts are common
  # table expressions, which is one round trip and needs no transaction of its own; SQLite runs the parts one after the
  # other in a transaction of its writer.
  #
  # In PostgreSQL the guard waits for a writer before it and then looks at the row as that one left it, while the effects see
  # the other tables as they were when the statement began. That is the same, because whoever changes them changes the
  # revision or the epoch of the row, and the guard compares both.

  import AshAgent.Store.Dialect

  alias AshAgent.Store.Dialect

  @key Dialect.key()
  @old_key Dialect.old_key()

  # An operation is a map with its `guard`, its `effects`, `answer`, the effect whose rows are joined to the guard's, and for SQLite
  # `over`, the guard's conversations, without which it is the one of the input's id.

  @doc "Differs where the statements may differ: those of a release before an upgrade take other parameters."
  def version, do: Dialect.module_info(:md5) <> __MODULE__.module_info(:md5)

  @doc "The columns that tell of a conversation, in the order of `AshAgent.Store.Conversation.from_row/1`."
  def summary(dialect, prefix \\ "") do
    "#{prefix}id, #{prefix}kind, #{prefix}parent_id, cast(#{prefix}metadata as text) as metadata_text, #{prefix}status, " <>
      "#{prefix}revision, #{prefix}epoch, #{prefix}owner, #{iso(dialect, prefix <> "lease_until")} as lease_text, " <>
      "#{iso(dialect, prefix <> "created_at")} as created_text, #{iso(dialect, prefix <> "updated_at")} as updated_text"
  end

  # The state that a writer needs: the row as this one knows it, and claimed by this one or by nobody.
  defp fence do
    "c.id = #{@key} and c.epoch = #{number("epoch")} and c.revision = #{number("revision")} and " <>
      "c.owner is not distinct from #{field("owner")}"
  end

  # A write shows that the owner is alive.
  defp renew_lease(d),
    do: "case when c.owner is null then null else #{later(d, field("lease"))} end"

  defp metadata(d) do
    "(select r.value -> 'document' -> 'metadata' from #{each(d, "branches")} " <>
      "where #{number_of("number")} = #{number("active")})"
  end

  defp operation(guard, effects \\ []), do: %{guard: guard, effects: effects, answer: nil}

  @doc "A new conversation."
  def create(d, sections) do
    guard = """
    insert into {conversations} as c (id, kind, parent_id, document, metadata, active, status, revision, epoch, queued,
      owner, lease_until, created_at, updated_at)
    select #{@key}, #{field("kind")}, #{field("parent_id")}, input.it -> 'document', #{metadata(d)},
      #{number("active")}, #{field("status")}, 1, case when #{field("owner")} is null then 0 else 1 end, 0, #{field("owner")},
      case when #{field("owner")} is null then null else #{later(d, field("lease"))} end, #{now(d)}, #{now(d)}
    from input where true
    on conflict (id) do nothing
    returning #{summary(d)}
    """

    operation(guard, effects(d, sections))
  end

  @doc "Another state of a conversation, and what happened with it."
  def append(d, sections) do
    guard = """
    update {conversations} as c set revision = c.revision + 1, status = coalesce(#{field("status")}, c.status),
      parent_id = case when input.it -> 'document' is null then c.parent_id else #{field("parent_id")} end,
      document = coalesce(input.it -> 'document', c.document), metadata = coalesce(#{metadata(d)}, c.metadata),
      active = coalesce(#{number("active")}, c.active), updated_at = #{now(d)}, lease_until = #{renew_lease(d)}
    from input where #{fence()}
    returning #{summary(d)}
    """

    operation(guard, effects(d, sections))
  end

  # An append of one iteration has the first three, whatever the length of the conversation.
  defp effects(d, sections), do: Enum.flat_map(sections, &List.wrap(effect(d, &1)))

  defp effect(d, :branches) do
    """
    insert into {branches} (conversation_id, number, base, since, updated_at, label, document)
    select guard.id, #{number_of("number")}, #{number_of("base")}, #{number_of("since")}, #{of("updated_at")},
      r.value -> 'label', r.value -> 'document'
    from guard, input, #{each(d, "branches")} where true
    on conflict (conversation_id, number) do update set base = excluded.base, since = excluded.since,
      updated_at = excluded.updated_at, label = coalesce(excluded.label, {branches}.label),
      document = coalesce(excluded.document, {branches}.document)
    """
  end

  defp effect(d, :iterations) do
    rows = "from guard, input, #{each(d, "iterations")} where true"
    key = "guard.id, #{number_of("branch")}, #{number_of("number")}"

    write = """
    insert into {iterations} (conversation_id, branch, number, document)
    select #{key}, #{long_document(d)} #{rows}
    on conflict (conversation_id, branch, number) do update set document = excluded.document
    """

    [write | index_texts(d, key, rows)]
  end

  defp effect(d, :blobs) do
    """
    insert into {blobs} (conversation_id, id, place, data)
    select guard.id, #{of("id")}, #{of("place")}, #{long_text(d, "data")} from guard, input, #{each(d, "blobs")} where true
    on conflict (conversation_id, id) do nothing
    """
  end

  defp effect(d, :history) do
    """
    insert into {history} (conversation_id, revision, epoch, owner, at, document)
    select guard.id, guard.revision, guard.epoch, guard.owner, #{now(d)}, input.it -> 'history' from guard, input
    """
  end

  # Deletes the rows that a rewind cuts off.
  defp effect(d, :cuts) do
    rows = fn table ->
      """
      conversation_id = #{@key} and exists (select 1 from guard) and exists (
        select 1 from input, #{each(d, "cuts")} where #{number_of("branch")} = {#{table}}.branch
          and ({#{table}}.number < #{number_of("first")} or {#{table}}.number > #{number_of("last")}))
      """
    end

    cut_texts(d, "delete from {iterations} where #{rows.("iterations")}", rows.("texts"))
  end

  defp effect(d, :gone) do
    """
    delete from {branches} where conversation_id = #{@key} and exists (select 1 from guard) and exists (
      select 1 from input, #{each(d, "gone")} where #{number_of("branch")} = {branches}.number)
    """
  end

  defp effect(d, :lost) do
    """
    delete from {blobs} where conversation_id = #{@key} and exists (select 1 from guard)
      and #{among_many(d, "{blobs}.id", "lost")}
    """
  end

  # A final state is final.
  defp effect(d, :finished) do
    """
    insert into {calls} (conversation_id, key, attempt, epoch, state, started_at, ended_at, document)
    select guard.id, #{of("key")}, #{number_of("attempt")}, guard.epoch, #{of("state")}, null, #{now(d)}, r.value -> 'call'
    from guard, input, #{each(d, "finished")} where true
    on conflict (conversation_id, key, attempt) do update set state = excluded.state, ended_at = excluded.ended_at,
      document = coalesce(excluded.document, {calls}.document)
      where {calls}.state = 'started'
    """
  end

  # The conversation has the message now.
  defp effect(d, :taken) do
    """
    update {prompts} set document = null, revision = guard.revision
    from guard
    where {prompts}.conversation_id = #{@key} and {prompts}.revision is null
      and #{among_many(d, "{prompts}.id", "taken")}
    """
  end

  # Calls that wait from now on. The journal knows them by the key and the attempt, those that it has.
  defp effect(d, :waits) do
    [
      """
      insert into {waits} (conversation_id, key, since, deadline, whom, document)
      select guard.id, #{of("arrival")}, #{now(d)}, #{time(d, of("deadline"))}, #{of("whom")}, r.value -> 'document'
      from guard, input, #{each(d, "waits")} where true
      on conflict (conversation_id, key) do nothing
      """,
      journal(d, "waits", "'waiting'", "")
    ]
  end

  # Calls that wait no longer. What arrives for one of them from now on finds that it has its result.
  defp effect(d, :closed) do
    [
      """
      delete from {waits} where conversation_id = #{@key} and exists (select 1 from guard) and exists (
        select 1 from input, #{each(d, "closed")} where #{of("arrival")} = {waits}.key)
      """,
      """
      insert into {arrivals} (conversation_id, key, number, kind, at, digest, revision, document)
      select guard.id, #{of("arrival")}, 0, #{of("state")}, #{now(d)}, '', guard.revision, null
      from guard, input, #{each(d, "closed")} where true
      on conflict (conversation_id, key) do update set document = null,
        revision = coalesce({arrivals}.revision, excluded.revision),
        kind = case when excluded.kind = 'rewound' then excluded.kind else {arrivals}.kind end
      """,
      journal(d, "closed", "r.state", ", ended_at = #{now(d)}")
    ]
  end

  defp journal(d, list, state, more) do
    rows =
      "select #{of("key")} as key, #{number_of("attempt")} as attempt, #{of("state")} as state from input, #{each(d, list)}"

    """
    update {calls} set state = #{state}#{more} from guard, (#{rows}) as r
    where {calls}.conversation_id = #{@key} and {calls}.key = r.key and {calls}.attempt = r.attempt
      and {calls}.state in ('started', 'unknown', 'waiting')
    """
  end

  @doc "A result that arrives late. The revision is that of the conversation in which the call was looked up."
  def arrive(d) do
    guard = """
    update {conversations} as c set queued = c.queued + 1 from input
    where c.id = #{@key} and c.revision = #{number("revision")}
    returning #{summary(d)}, queued
    """

    effect = """
    insert into {arrivals} (conversation_id, key, number, kind, at, digest, revision, document)
    select guard.id, #{field("arrival")}, guard.queued, #{field("kind")}, #{now(d)}, #{field("digest")}, null, input.it -> 'document'
    from guard, input where true
    on conflict (conversation_id, key) do nothing
    returning key as arrived_key
    """

    %{guard: guard, effects: [effect], answer: 0}
  end

  @doc "Deadlines that have passed arrive as results, as many as `limit`. Looks at all partitions."
  def expire(d) do
    operation("""
    insert into {arrivals} (conversation_id, key, number, kind, at, digest, revision, document)
    select w.conversation_id, w.key, 0, 'deadline', #{now(d)}, #{field("digest")}, null, input.it -> 'document'
    from input, {waits} as w where w.deadline <= #{now(d)} and #{unanswered("w.conversation_id")}
    order by w.deadline limit (select #{number("limit")} from input)
    on conflict (conversation_id, key) do nothing
    returning conversation_id, key
    """)
  end

  defp unanswered(key) do
    "not exists (select 1 from {arrivals} as a where a.conversation_id = #{key} and a.key = w.key)"
  end

  @doc "Notes that calls are started, each attempt once."
  def start(d) do
    guard = """
    update {conversations} as c set lease_until = #{renew_lease(d)} from input where #{fence()} returning #{summary(d)}
    """

    effect = """
    insert into {calls} (conversation_id, key, attempt, epoch, state, started_at, ended_at, document)
    select guard.id, #{of("key")}, #{number_of("attempt")}, guard.epoch, 'started', #{now(d)}, null, r.value -> 'call'
    from guard, input, #{each(d, "started")} where true
    on conflict (conversation_id, key, attempt) do nothing
    returning key as started_key
    """

    %{guard: guard, effects: [effect], answer: 0}
  end

  @doc "Takes a conversation that is free, or whose owner has not been heard of."
  def claim(d) do
    operation("""
    update {conversations} as c set owner = #{field("owner")}, epoch = c.epoch + 1,
      status = coalesce(#{field("status")}, c.status), lease_until = #{later(d, field("lease"))}
    from input where c.id = #{@key} and (c.owner is null or c.lease_until < #{now(d)} or
      c.owner = #{field("from")})
    returning #{summary(d)}
    """)
  end

  @doc "A longer lease, or the end of the claim."
  def renew(d), do: guard_claim(d, "lease_until = #{later(d, field("lease"))}")

  @doc "Longer leases of many claims. Looks at all partitions."
  def renew_all(d) do
    operation("""
    update {conversations} as c set lease_until = #{later(d, of("lease"))} from input, #{each(d, "claims")}
    where c.id = #{of("id")} and c.epoch = #{number_of("epoch")} and c.owner = #{of("owner")}
    returning #{summary(d)}
    """)
  end

  def release(d) do
    status = "status = coalesce(#{field("status")}, c.status)"
    guard_claim(d, "owner = null, lease_until = null, #{status}, updated_at = #{now(d)}")
  end

  defp guard_claim(d, change) do
    operation("""
    update {conversations} as c set #{change} from input
    where c.id = #{@key} and c.epoch = #{number("epoch")} and c.owner = #{field("owner")}
    returning #{summary(d)}
    """)
  end

  @doc "Takes some of those whose lease is over."
  def expired(d) do
    {from, match} =
      choose(d, "c.id", """
      select e.id as chosen from input, {conversations} as e
      where e.lease_until < #{now(d)} and #{among(d, "e.status", "statuses")}
      order by e.lease_until limit (select #{number("limit")} from input) #{lock_rows(d, "e", "skip locked")}
      """)

    operation("""
    update {conversations} as c set owner = #{field("owner")}, epoch = c.epoch + 1, lease_until = #{later(d, field("lease"))}
    from input#{from} where #{match}
    returning #{summary(d)}
    """)
  end

  @doc "A message that waits for its turn: from anybody, or from an owner only while that is the owner."
  def enqueue(d) do
    guard = """
    update {conversations} as c set queued = c.queued + 1 from input where c.id = #{@key} and
      (#{field("owner")} is null or (c.owner = #{field("owner")} and c.epoch = #{number("epoch")}))
    returning #{summary(d)}, queued
    """

    effect = """
    insert into {prompts} (conversation_id, id, number, kind, at, revision, document)
    select guard.id, #{field("prompt")}, guard.queued, #{field("kind")}, #{now(d)}, null, input.it -> 'document'
    from guard, input where true
    on conflict (conversation_id, id) do nothing
    """

    operation(guard, [effect])
  end

  def delete(d) do
    which = "id = #{@key} and exists (select 1 from guard)"
    erase_rows(d, @key, which, "c.id = #{@key} #{lock_rows(d, "c", "")}")
  end

  @guarded "id in (select guard.id from guard)"

  @doc "Deletes the conversations of a list, or with filters those that are old and nobody's, and counts what goes with them."
  def erase(d, :listed) do
    erase_rows(d, "c.id", @guarded, "#{among(d, "c.id", "ids")} #{lock_rows(d, "c", "")}")
  end

  def erase(d, filters) do
    conditions = for filter <- filters, do: " and " <> filter(d, filter, nil, nil)

    erase_rows(d, "c.id", @guarded, """
    c.owner is null#{conditions} order by c.updated_at, c.id limit (select #{number("limit")} from input)
    #{lock_rows(d, "c", "skip locked")}
    """)
  end

  defp erase_rows(d, key, which, condition) do
    over = "select c.id from input, {conversations} as c where #{condition}"

    counts =
      for table <- ~w(iterations calls prompts history blobs arrivals),
          do:
            ", (select count(*) from {#{table}} as r where r.conversation_id = #{key}) as #{table}"

    effect = "delete from {conversations} where #{which}"

    places =
      "(select #{array(d, place_of(d))} from {blobs} as b where b.conversation_id = #{key} and b.place is not null) as places"

    guard = "select c.id#{counts}, #{places} from (#{over}) as c"
    texts = "conversation_id in (select guard.id from guard)"
    %{guard: guard, effects: cut_texts(d, effect, texts), answer: nil, over: over}
  end

  @doc "The forks and children of the conversations of a list that were created before a time."
  def children(d) do
    "select c.id from input, {conversations} as c where #{among(d, "c.parent_id", "ids")} and " <>
      filter(d, :until, "created_at", nil)
  end

  @doc "The time of a millisecond later, since no clock of a store has more than these."
  def soon(d), do: "select #{iso(d, "(" <> later(d, "1") <> ")")} as soon_text from input"

  # The tables of a conversation, in the order of foreign keys.
  @columns [
    branches: "number, base, since, updated_at, label, document",
    iterations: "branch, number, document",
    texts: "branch, number, at, words",
    calls: "key, attempt, epoch, state, started_at, ended_at, document",
    prompts: "id, number, kind, at, revision, document",
    history: "revision, epoch, owner, at, document",
    blobs: "id, place, data",
    waits: "key, since, deadline, whom, document",
    arrivals: "key, number, kind, at, digest, revision, document"
  ]

  @doc "Another id for a conversation that nobody has claimed. Its context keeps the id that it knows, which the keys of its calls have."
  def rename(d) do
    guard = """
    insert into {conversations} as c (id, kind, parent_id, document, metadata, active, status, revision, epoch, queued,
      owner, lease_until, created_at, updated_at)
    select #{@key}, o.kind, o.parent_id, o.document, o.metadata, o.active, o.status, o.revision, o.epoch + 1,
      o.queued, null, null, o.created_at, o.updated_at
    from input, {conversations} as o where o.id = #{@old_key} and (o.owner is null or o.lease_until < #{now(d)})
    on conflict (id) do nothing
    returning #{summary(d)}
    """

    # Its rows are copied, since they may belong into other partitions. The old ones go with the old conversation.
    copied =
      for {table, columns} <- @columns, table != :texts or d == :postgres do
        """
        insert into {#{table}} (conversation_id, #{columns}) select guard.id, o.#{String.replace(columns, ", ", ", o.")}
        from guard, {#{table}} as o where o.conversation_id = #{@old_key}
        """
      end

    forks = """
    update {conversations} set parent_id = guard.id from guard, input where {conversations}.parent_id = #{@old_key}
    """

    old = """
    delete from {conversations} where id = #{@old_key} and exists (select 1 from guard)
    """

    operation(guard, copied ++ [forks, old])
  end

  ## Reading

  @doc "The statement that finds out why a guard returned no row."
  def state(d),
    do: "select #{summary(d, "c.")} from input, {conversations} as c where c.id = #{@key}"

  @doc "The whole conversation: a row for each branch."
  def fetch(d) do
    """
    select #{summary(d, "c.")}, cast(c.document as text) as document_text, c.active, b.number, b.base, b.since,
      b.updated_at as branch_updated_at, cast(b.label as text) as label_text, cast(b.document as text) as head_text,
      (select string_agg(cast(i.document as text), ',' order by i.number) from {iterations} as i
        where i.conversation_id = #{@key} and i.branch = b.number) as iterations_text
    from input, {conversations} as c join {branches} as b on b.conversation_id = c.id
    where c.id = #{@key} order by b.number
    """
  end

  @doc "A page of conversations. `filters` are those that are given."
  def list(d, filters, by, order) do
    column = to_string(by)
    {sign, order} = if order == :asc, do: {">", "asc"}, else: {"<", "desc"}
    after_it = "(c.#{column}, c.id) #{sign} (#{time(d, field("after"))}, #{field("after_id")})"
    conditions = for filter <- filters, do: filter(d, filter, column, after_it)

    fix_input("""
    select #{summary(d, "c.")} from input, {conversations} as c where #{Enum.join(["true" | conditions], " and ")}
    order by c.#{column} #{order}, c.id #{order} limit (select #{number("limit")} from input)
    """)
  end

  @doc "A page of those that are claimed and run or have late results, those first whose lease ends first."
  def list_claimed(d, filters) do
    after_it = "(c.lease_until, c.id) > (#{time(d, field("after"))}, #{field("after_id")})"
    conditions = for filter <- filters, do: " and " <> filter(d, filter, nil, after_it)

    fix_input("""
    select #{summary(d, "c.")} from input, {conversations} as c
    where c.lease_until is not null and (c.status = 'running' or exists (
      select 1 from {arrivals} as a where a.conversation_id = c.id and a.revision is null))#{conditions}
    order by c.lease_until, c.id limit (select #{number("limit")} from input)
    """)
  end

  defp filter(d, :statuses, _by, _after),
    do: among(d, "c.status", "statuses")

  defp filter(d, :metadata, _by, _after), do: contains(d)
  defp filter(_d, :id, _by, _after), do: "c.id = #{@key} and t.conversation_id = #{@key}"
  defp filter(_d, :parent_id, _by, _after), do: "c.parent_id = #{field("parent_id")}"
  defp filter(d, :since, by, _after), do: "c.#{by} >= #{time(d, field("since"))}"
  defp filter(d, :until, by, _after), do: "c.#{by} < #{time(d, field("until"))}"
  defp filter(_d, :after, _by, after_it), do: after_it

  # Neither written since, nor waiting for a message, or for a result that may still come.
  defp filter(d, :age, _by, _after) do
    since = time(d, field("age"))

    new =
      for table <- ~w(prompts arrivals) do
        "and not exists (select 1 from {#{table}} as p where p.conversation_id = c.id and p.revision is null and p.at >= #{since})"
      end

    """
    c.updated_at < #{since} #{Enum.join(new, " ")}
      and not exists (select 1 from {waits} as w where w.conversation_id = c.id and w.deadline > #{now(d)})
    """
  end

  defp filter(_d, :waits_of, _by, _after), do: "w.conversation_id = #{@key}"
  defp filter(_d, :whom, _by, _after), do: "w.whom = #{field("whom")}"
  defp filter(d, :deadline, _by, _after), do: "w.deadline < #{time(d, field("deadline"))}"

  @doc "What is known of the call that a result arrives for, and of the result that it has."
  def late_call(_d) do
    """
    select c.revision, a.kind, a.digest,
      (select 1 from {waits} as w where w.conversation_id = #{@key} and w.key = #{field("arrival")}) as waits,
      (select j.state from {calls} as j where j.conversation_id = #{@key} and j.key = #{field("key")}
        and j.attempt = #{number("attempt")}) as journal_state
    from input cross join {conversations} as c
      left join {arrivals} as a on a.conversation_id = #{@key} and a.key = #{field("arrival")}
    where c.id = #{@key}
    """
  end

  @doc "Results that have arrived and that the conversation does not have yet."
  def arrivals(d) do
    """
    select a.key, #{iso(d, "a.at")} as at_text, cast(a.document as text) as document_text
    from input, {arrivals} as a where a.conversation_id = #{@key} and a.revision is null order by a.at, a.number, a.key
    """
  end

  @doc "A page of the calls that wait, those first that have waited longest, with the masks of their conversations."
  def waits(d, filters) do
    after_it =
      "(w.since, w.conversation_id, w.key) > (#{time(d, field("after"))}, #{field("after_id")}, #{field("after_key")})"

    conditions = for filter <- filters, do: " and " <> filter(d, filter, nil, after_it)
    key = if :waits_of in filters, do: @key, else: "w.conversation_id"

    fix_input("""
    select w.conversation_id, w.key, #{iso(d, "w.since")} as since_text, #{iso(d, "w.deadline")} as deadline_text,
      (select #{array(d, part(d, "m.document", ~w(view masks)))} from {branches} as m
        where m.conversation_id = #{key}) as masks,
      cast(w.document as text) as document_text
    from input, {waits} as w where w.whom <> '' and #{unanswered(key)}#{conditions}
    order by w.since, w.conversation_id, w.key limit (select #{number("limit")} from input)
    """)
  end

  @doc "A page of the results that no conversation has taken, of those that nobody has claimed, those first that have waited longest."
  def arrived(d, filters) do
    after_it =
      "(a.at, a.conversation_id, a.key) > (#{time(d, field("after"))}, #{field("after_id")}, #{field("after_key")})"

    conditions = for filter <- filters, do: " and " <> filter(d, filter, nil, after_it)

    fix_input("""
    select a.conversation_id, a.key, #{iso(d, "a.at")} as at_text
    from input, {arrivals} as a join {conversations} as c on c.id = a.conversation_id
    where a.revision is null and c.status in ('idle', 'waiting')
      and (c.owner is null or c.lease_until < #{now(d)})#{conditions}
    order by a.at, a.conversation_id, a.key limit (select #{number("limit")} from input)
    """)
  end

  @doc "Iterations that have all words of a query, those written last first, with the masks of their conversation."
  def search(d, filters) do
    {from, match, own} = match_words(d)
    place = "t.at, t.conversation_id, t.branch, i.number"
    key = if :id in filters, do: @key, else: "t.conversation_id"

    after_it =
      "(#{place}) < (#{time(d, field("after"))}, #{field("after_id")}, #{number("branch")}, #{number("number")})"

    conditions = for filter <- filters, do: " and " <> filter(d, filter, nil, after_it)

    """
    select t.conversation_id, t.branch, i.number, #{iso(d, "t.at")} as at_text, cast(b.label as text) as label_text,
      (select #{array(d, part(d, "m.document", ~w(view masks)))} from {branches} as m
        where m.conversation_id = #{key}) as masks,
      cast(i.document as text) as document_text
    from input, #{from}
      join {conversations} as c on c.id = t.conversation_id
      join {branches} as b on b.conversation_id = t.conversation_id and b.number = t.branch
      join {iterations} as i on i.conversation_id = t.conversation_id and i.branch = t.branch and #{own}
    where #{match}#{conditions}
    order by t.at desc, t.conversation_id desc, t.branch desc, i.number desc limit (select #{number("limit")} from input)
    """
  end

  @doc "The number of iterations that the index does not have yet."
  def count_unindexed(:postgres), do: "select 0"
  # Along the key, as all rows are found.
  def count_unindexed(:sqlite), do: "select count(*) from {unindexed} where conversation_id >= ''"

  # Iterations of one row of the index.
  @group 64

  @doc "Statements for one transaction that index some of them."
  def index_some(most) do
    some = "from {unindexed} order by conversation_id, branch, number limit #{most}"
    key = "conversation_id, branch, number"

    # The last one of a branch is the one that changes, so it is alone.
    [
      """
      insert into {groups} (conversation_id, branch, first, number, at, found)
      select conversation_id, branch, first, number, at,
        (select index_of(i.number - t.first, i.document) from {iterations} as i
          where i.conversation_id = t.conversation_id and i.branch = t.branch and i.number between t.first and t.number)
      from (select conversation_id, branch, min(number) as first, max(number) as number, at
        from (select *, row_number() over (partition by conversation_id, branch, at order by number desc) as place
          from (select * #{some}))
        group by conversation_id, branch, at, number + place, (place + #{@group - 2}) / #{@group}
        order by conversation_id, branch, max(number)) as t
      returning 1
      """,
      "delete from {unindexed} where (#{key}) in (select #{key} #{some})"
    ]
  end

  @doc "The media of a conversation."
  def blobs(_d) do
    "select b.id, b.place, b.data from input, {blobs} as b where b.conversation_id = #{@key}"
  end

  def history(d) do
    fix_input("""
    select h.revision, h.epoch, h.owner, #{iso(d, "h.at")} as at_text, cast(h.document as text) as document_text
    from input, {history} as h where h.conversation_id = #{@key} and h.revision > #{number("after")}
    order by h.revision limit (select #{number("limit")} from input)
    """)
  end

  def calls(d, filters) do
    {calls, known} =
      if :keys in filters, do: with_keys(d, "calls", "key", "keys"), else: {"{calls}", "true"}

    states = if :states in filters, do: among(d, "j.state", "states"), else: "true"

    """
    select j.key, j.attempt, j.epoch, j.state, #{iso(d, "j.started_at")} as started_text,
      #{iso(d, "j.ended_at")} as ended_text, cast(j.document as text) as document_text
    from input, #{calls} as j where j.conversation_id = #{@key} and #{known} and #{states}
    order by coalesce(j.started_at, j.ended_at), j.key, j.attempt
    """
  end

  def waiting(d) do
    """
    select p.id, p.kind, #{iso(d, "p.at")} as at_text, cast(p.document as text) as document_text
    from input, {prompts} as p where p.conversation_id = #{@key} and p.revision is null order by p.number
    """
  end

  ## Texts for a database

  @doc "An operation as one statement."
  def one(%{guard: guard, effects: effects, answer: answer}) do
    parts = for {effect, at} <- Enum.with_index(effects), do: ",\neffect#{at} as (#{effect})"
    join = if answer, do: " left join effect#{answer} on true", else: ""
    "with #{input(:postgres)},\nguard as (#{guard})#{parts}\nselect * from guard#{join}"
  end

  @doc "An operation as statements for one transaction, the guard first."
  def many(%{guard: guard, effects: effects} = operation) do
    over = operation[:over] || "select * from {conversations} where id = #{@key}"

    with_guard = "with #{input(:sqlite)}, guard as (#{over})\n"

    ["with #{input(:sqlite)}\n" <> guard | Enum.map(effects, &(with_guard <> &1))]
  end

  @doc "A query that only reads."
  def read(d, query), do: "with #{input(d)}\n" <> query

  @doc "Puts the tables' names into a text."
  def name_tables(text, prefix),
    # A function, since a backslash in a replacement text would be an escape.
    do: Regex.replace(~r/\{(\w+)\}/, text, fn _whole, table -> "#{prefix}ash_agent_#{table}" end)
end
