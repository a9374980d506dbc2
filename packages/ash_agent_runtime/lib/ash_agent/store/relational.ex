defmodule AshAgent.Store.Relational do
  @moduledoc false

  # The callbacks of `AshAgent.Store` over a database that runs the statements of `AshAgent.Store.SQL`: data in, rows out.

  alias AshAgent.{ChatContext, Context}
  alias AshAgent.Context.{JSON, Terms}
  alias AshAgent.Store.{Changes, Conversation, Dialect, Error, Late, Media, Rows, SQL}

  @type store :: struct()
  @type rows :: [[term()]]

  @doc "The rows of an operation: those of its guard, each beside those of the effect that answers."
  @callback run(store(), key :: term(), (... -> map()), params :: [binary()]) ::
              {:ok, rows()} | {:error, AshAgent.Store.Error.t()}

  @doc "The rows of a query."
  @callback read(store(), key :: term(), (... -> String.t()), params :: [binary()]) ::
              {:ok, rows()} | {:error, AshAgent.Store.Error.t()}

  @doc "Returns the database that the statements are written for."
  @callback dialect() :: :postgres | :sqlite

  defmacro __using__(_opts) do
    quote unquote: false do
      @behaviour AshAgent.Store
      @behaviour AshAgent.Store.Relational

      for {name, arity} <- AshAgent.Store.behaviour_info(:callbacks) do
        args = Macro.generate_arguments(arity, __MODULE__)
        @impl AshAgent.Store
        @doc false
        defdelegate unquote(name)(unquote_splicing(args)), to: AshAgent.Store.Relational
      end

      @doc false
      defdelegate rename(store, from, to), to: AshAgent.Store.Relational
      @doc false
      defdelegate renew_all(store, claims), to: AshAgent.Store.Relational
      @doc false
      defdelegate note(store, kept, opts), to: AshAgent.Store.Relational
      @doc false
      defdelegate list_claimed(store, opts), to: AshAgent.Store.Relational
      @doc false
      defdelegate erase(store, opts), to: AshAgent.Store.Erasure
      @doc false
      defdelegate prune(store, opts), to: AshAgent.Store.Erasure
      @doc false
      defdelegate search(store, query, opts), to: AshAgent.Store.Search
      @doc false
      defdelegate dump(store, id, opts), to: AshAgent.Store.Relational

      for {name, arity} <- [
            arrive: 5,
            arrivals: 2,
            waiting_calls: 2,
            expire_waiting: 2,
            arrived: 2
          ] do
        args = Macro.generate_arguments(arity, __MODULE__)
        @doc false
        defdelegate unquote(name)(unquote_splicing(args)), to: AshAgent.Store.Relational
      end
    end
  end

  ## Writing

  def create(store, value, opts) do
    {changes, lines, {blobs, known}} = Changes.of(value, nil, [])

    fields =
      [id: id(value), kind: kind(value), history: raw_terms(opts[:note])] ++
        Keyword.take(opts, [:status, :owner, :lease]) ++
        origin(value) ++ changes ++ Late.fields(value, [])

    with {:ok, media} <- Media.put(store, blobs) do
      answer(write(store, :create, fields ++ media), fn
        [] ->
          {:error, :exists}

        [row] ->
          kept = keep(row, value, lines, opts[:owner], opts[:lease])
          {:ok, %{kept | blobs: known}}
      end)
    end
  end

  def fetch(store, id_or_kept) do
    answer(read(store, :fetch, &SQL.fetch/1, id: id_of(id_or_kept)), fn
      [] ->
        {:error, :not_found}

      [row | _] = rows ->
        with {:ok, rows, blobs} <- inline(store, rows, id_of(id_or_kept)),
             {:ok, kept} <- row |> Conversation.from_row() |> Rows.load(rows),
             do: Conversation.renew(%{kept | blobs: blobs}, id_or_kept)
    end)
  end

  defp inline(store, rows, id),
    do: Media.inline(store, rows, fn -> read(store, :blobs, &SQL.blobs/1, id: id) end)

  def dump(store, id, opts) do
    answer(read(store, :fetch, &SQL.fetch/1, id: id), fn
      [] ->
        {:error, :not_found}

      [row | _] = rows ->
        with {:ok, rows, _blobs} <-
               if(opts[:inline], do: inline(store, rows, id), else: {:ok, rows, []}) do
          {text, _branches} = Rows.snapshot(Conversation.from_row(row).kind, rows)
          {:ok, JSON.decode!(text)}
        end
    end)
  end

  def append(store, %Conversation{} = kept, value, opts) do
    {changes, lines, {blobs, known}} = Changes.of(value, kept.value, kept.lines, kept.blobs)
    finished = for call <- opts[:finished], do: encode_call(call, state: call.state)

    fields =
      fence(kept) ++
        [status: opts[:status], history: raw_terms(opts[:note])] ++
        if(finished == [], do: [], else: [finished: finished]) ++
        if(opts[:taken] == [], do: [], else: [taken: opts[:taken]]) ++
        changes ++ Late.fields(value, kept.lines, opts)

    with {:ok, media} <- Media.put(store, blobs),
         {:ok, places} <- fetch_places(store, kept.id, changes[:lost]) do
      next = %{kept | value: value, lines: lines, blobs: known}
      written = answer_fenced(write(store, :append, fields ++ media), store, kept, next)
      if match?({:ok, _kept}, written), do: Media.delete_lost(store, kept.id, places)
      written
    end
  end

  # Where the bytes of media are that no row has any more.
  defp fetch_places(%{blobs: where} = store, id, [_ | _] = lost) when where != nil do
    with {:ok, rows} <- read(store, :blobs, &SQL.blobs/1, id: id),
         do: {:ok, for([id, place, _data] <- rows, place != nil and id in lost, do: place)}
  end

  defp fetch_places(_store, _id, _lost), do: {:ok, []}

  def start(store, %Conversation{} = kept, calls) do
    started = for call <- calls, do: encode_call(call, [])

    answer(run(store, :start, &SQL.start/1, fence(kept) ++ [started: started]), fn
      [] ->
        refuse(store, kept)

      [row | _] = rows ->
        {:ok, put_row(kept, row), for(row <- rows, key = List.last(row), do: key)}
    end)
  end

  def claim(store, id, opts) do
    from = if opts[:reclaim], do: opts[:owner], else: opts[:from]

    fields = [id: id, from: from] ++ Keyword.take(opts, [:owner, :lease, :status])

    answer(run(store, :claim, &SQL.claim/1, fields), fn
      # Released in the meantime: once more.
      [] ->
        with {:error, :stale} <- refuse(store, %Conversation{id: id}),
             do: claim(store, id, opts)

      [row] ->
        claim = keep(row, nil, [], opts[:owner], opts[:lease])
        if opts[:load], do: load_claim(store, claim), else: {:ok, claim}
    end)
  end

  defp load_claim(store, claim) do
    with {:error, error} <- fetch(store, claim) do
      release(store, claim, [])
      {:error, error}
    end
  end

  @doc "Writes a status and a note of a claimed conversation, without loading it. `opts` are `:status` and `:note`."
  def note(store, %Conversation{} = kept, opts) do
    fields = fence(kept) ++ [status: opts[:status], history: raw_terms(opts[:note])]
    answer_fenced(write(store, :append, fields), store, kept, kept)
  end

  def renew(store, %Conversation{} = kept), do: run_fenced(store, :renew, &SQL.renew/1, kept, [])

  def renew_all(store, claims) do
    fields = [claims: Enum.map(claims, &(&1 |> fence() |> Changes.object()))]

    answer(run(store, :renew_all, &SQL.renew_all/1, fields), fn rows ->
      found = Map.new(rows, &{hd(&1), &1})
      {:ok, Enum.map(claims, &answer_renewal(store, &1, found[&1.id]))}
    end)
  end

  # The row may be there for another claim of the list.
  defp answer_renewal(store, kept, row) do
    next = row && put_row(kept, row)

    if next && {next.epoch, next.owner} == {kept.epoch, kept.owner},
      do: {:ok, next},
      else: refuse(store, kept)
  end

  def release(store, %Conversation{} = kept, opts) do
    with {:ok, kept} <- run_fenced(store, :release, &SQL.release/1, kept, status: opts[:status]),
         do: {:ok, %{kept | claimed?: false}}
  end

  defp run_fenced(store, name, operation, kept, fields),
    do: answer_fenced(run(store, name, operation, fence(kept) ++ fields), store, kept, kept)

  defp answer_fenced(rows, store, kept, next) do
    answer(rows, fn
      [] -> refuse(store, kept)
      [row] -> {:ok, put_row(next, row)}
    end)
  end

  # A claim stays one, and what was loaded stays loaded.
  defp put_row(kept, row) do
    next = keep(row, kept.value, kept.lines, claim(kept), kept.lease)
    %{next | blobs: kept.blobs}
  end

  def expired(store, opts) do
    fields = Keyword.take(opts, [:owner, :lease, :limit])
    fields = [statuses: List.wrap(opts[:status])] ++ fields

    answer(run(store, :expired, &SQL.expired/1, fields), fn rows ->
      {:ok, Enum.map(rows, &keep(&1, nil, [], opts[:owner], opts[:lease]))}
    end)
  end

  def delete(store, id) do
    with {:ok, rows} <- Media.delete(store, run(store, :delete, &SQL.delete/1, id: id)),
         do: if(rows == [], do: {:error, :not_found}, else: :ok)
  end

  @doc "Deletes the conversations of these ids. Returns a row for each: its id, and how much was stored with it."
  def erase(store, ids),
    do: Media.delete(store, run(store, :erase, &SQL.erase(&1, :listed), ids: ids))

  @doc "The same for as many as `limit` of those that nobody owns, that nobody needed since `until`, and that the filters fit."
  def prune(store, opts, until, limit) do
    given = [age: time(until)] ++ filters(opts)
    names = Keyword.keys(given)
    fields = given ++ [limit: limit]
    Media.delete(store, run(store, {:prune, names}, &SQL.erase(&1, names), fields))
  end

  @doc "Iterations that have all words, as rows of `AshAgent.Store.SQL.search/2`."
  def search(store, words, opts) do
    {cursor, opts} = Keyword.pop(opts, :after)

    after_it =
      with {at, id, branch, number} <- cursor,
           do: [after: time(at), after_id: id, branch: branch, number: number]

    given =
      if(opts[:id], do: [id: opts[:id]], else: []) ++
        filters(opts) ++ Enum.take(after_it || [], 1)

    names = Keyword.keys(given)
    query = Dialect.write_query(store.__struct__.dialect(), words)

    fields = given ++ Enum.drop(after_it || [], 1) ++ [query: query, limit: opts[:limit]]
    read(store, {:search, names}, &SQL.search(&1, names), fields)
  end

  @doc "The number of iterations that a search does not find yet."
  def count_unindexed(store) do
    answer(read(store, :unindexed, &SQL.count_unindexed/1, []), fn [[count]] ->
      {:ok, Conversation.number(count)}
    end)
  end

  @doc "The ids of the forks and children of the conversations of these ids that were created before a time."
  def children(store, ids, until) do
    with {:ok, rows} <- read(store, :children, &SQL.children/1, ids: ids, until: time(until)),
         do: {:ok, List.flatten(rows)}
  end

  @doc "The time just after now, by the store's clock: everything that is stored by now is from before it."
  def soon(store) do
    answer(read(store, :soon, &SQL.soon/1, []), fn [[time]] -> {:ok, Conversation.time(time)} end)
  end

  def rename(store, from, to) do
    answer(run(store, :rename, &SQL.rename/1, id: to, old_id: from), fn
      [_row] -> :ok
      [] -> explain_rename(store, from, to)
    end)
  end

  defp explain_rename(store, from, to) do
    case refuse(store, %Conversation{id: from}) do
      {:error, :stale} -> if(from == to, do: :ok, else: {:error, :exists})
      error -> error
    end
  end

  def enqueue(store, id_or_claim, %Context{} = message, opts) do
    place = if is_binary(id_or_claim), do: [id: id_or_claim], else: fence(id_or_claim)
    document = JSON.raw(Context.to_snapshot(message))
    fields = [prompt: opts[:id], kind: opts[:kind], document: document]

    answer(run(store, :enqueue, &SQL.enqueue/1, place ++ fields), fn
      [] when is_binary(id_or_claim) -> {:error, :not_found}
      [] -> refuse(store, id_or_claim)
      [_row] -> {:ok, opts[:id]}
    end)
  end

  ## Late results

  def arrive(store, id, key, outcome, opts) do
    own = Late.result(outcome, opts)

    answer(read(store, :late_call, &SQL.late_call/1, [id: id] ++ Late.journal_key(key)), fn
      [] ->
        {:error, :not_found}

      [row] ->
        with {:insert, revision} <- Late.decide(row, own[:digest], opts[:until]),
             do:
               insert_arrival(store, [id: id, arrival: key, revision: revision] ++ own, fn ->
                 arrive(store, id, key, outcome, opts)
               end)
    end)
  end

  # The conversation was written meanwhile, or another result came first: once more.
  defp insert_arrival(store, fields, again) do
    answer(run(store, :arrive, &SQL.arrive/1, fields), fn
      [] -> again.()
      [row] -> if(List.last(row), do: {:ok, :kept}, else: again.())
    end)
  end

  def arrivals(store, id) do
    answer(read(store, :arrivals, &SQL.arrivals/1, id: id), fn rows ->
      {:ok, Enum.map(rows, &Late.arrival/1)}
    end)
  end

  def waiting_calls(store, opts) do
    given =
      if(opts[:id], do: [id: opts[:id]], else: []) ++
        if(Keyword.has_key?(opts, :for), do: [whom: Late.digest(opts[:for])], else: []) ++
        if(opts[:deadline_before], do: [deadline: time(opts[:deadline_before])], else: [])

    read_late(store, :waits, given, opts, fn rows ->
      calls = Enum.map(rows, &Late.call/1)
      {%{calls: calls}, Enum.map(calls, &{&1.since, &1.id, &1.key})}
    end)
  end

  def arrived(store, opts) do
    read_late(store, :arrived, [], opts, fn rows ->
      ids = for [id, _key, _at] <- rows, uniq: true, do: id
      {%{ids: ids}, for([id, key, at] <- rows, do: {Conversation.time(at), id, key})}
    end)
  end

  # `show` returns the page and the cursor of each row.
  defp read_late(store, name, given, opts, show) do
    cursor =
      with {at, id, key} <- opts[:after], do: [after: time(at), after_id: id, after_key: key]

    filters = Keyword.keys(given ++ Enum.take(cursor || [], 1))
    filters = Enum.map(filters, &if(&1 == :id, do: :waits_of, else: &1))
    fields = given ++ (cursor || []) ++ [limit: opts[:limit]]

    answer(read(store, {name, filters}, &apply(SQL, name, [&1, filters]), fields), fn rows ->
      {page, cursors} = show.(rows)
      next = if length(rows) == opts[:limit], do: List.last(cursors)
      {:ok, Map.put(page, :next, next)}
    end)
  end

  def expire_waiting(store, opts) do
    answer(run(store, :expire, &SQL.expire/1, Late.passed() ++ [limit: opts[:limit]]), fn rows ->
      {:ok, for([id, key] <- rows, do: %{id: id, key: key})}
    end)
  end

  ## Reading

  def waiting(store, id) do
    answer(read(store, :waiting, &SQL.waiting/1, id: id), fn rows ->
      prompts =
        for [id, kind, at, document] <- rows do
          message = Context.load!(document)
          [%{content: content}] = Context.get_iteration_messages(message, 1)

          %{
            id: id,
            kind: Conversation.word(kind, [:prompt, :steer]),
            input: content,
            metadata: Context.metadata(message),
            at: Conversation.time(at)
          }
        end

      {:ok, prompts}
    end)
  end

  def calls(store, id, opts) do
    given =
      for {name, values} <- [states: opts[:state], keys: opts[:keys]],
          values != nil,
          do: {name, List.wrap(values)}

    names = Keyword.keys(given)

    answer(read(store, {:calls, names}, &SQL.calls(&1, names), [id: id] ++ given), fn rows ->
      notes = rows |> Enum.map(&List.last/1) |> decode_all()
      {calls, _times} = rows |> Enum.zip(notes) |> Enum.map_reduce(%{}, &read_call/2)
      {:ok, calls}
    end)
  end

  # Calls that started or ended together have the same times, which take longer to read than everything else.
  defp read_call({[key, attempt, epoch, state, started, ended, _document], call}, times) do
    read = fn text, times -> Map.put_new_lazy(times, text, fn -> Conversation.time(text) end) end
    times = Enum.reduce([started, ended], times, read)

    call = %{
      key: key,
      attempt: Conversation.number(attempt),
      epoch: Conversation.number(epoch),
      state: Conversation.word(state, AshAgent.Store.Options.call_states()),
      started_at: times[started],
      ended_at: times[ended],
      call: call
    }

    {call, times}
  end

  # Many maps at once, and an empty one where there is none.
  defp decode_all(documents) do
    all = Enum.map(documents, &JSON.raw(&1 || "{}"))
    %{"all" => all} = %{all: all} |> JSON.encode() |> Terms.decode!()
    all
  end

  def list(store, opts),
    do: read_page(store, :list, opts, opts[:by], [opts[:by], opts[:order]])

  @doc "A page of what is claimed, and `:running` or has late results, for whoever looks for owners that are gone. `opts` are `:limit` and `:after`."
  def list_claimed(store, opts) do
    read_page(store, :list_claimed, Keyword.take(opts, [:after, :limit]), :lease_until, [])
  end

  # `how` are the parts of the statement beside the filters, and `by` the time of a row that pages go on from.
  defp read_page(store, name, opts, by, how) do
    given = filters(opts)
    filters = Keyword.keys(given)
    after_id = if opts[:after], do: [after_id: elem(opts[:after], 1)], else: []
    fields = given ++ after_id ++ [limit: opts[:limit]]
    query = &apply(SQL, name, [&1, filters | how])

    key = List.to_tuple([name, filters | how])

    answer(read(store, key, query, fields), fn rows ->
      found = Enum.map(rows, &Conversation.from_row/1)
      last = List.last(found)
      next = if last && length(found) == opts[:limit], do: {Map.fetch!(last, by), last.id}
      {:ok, %{conversations: found, next: next}}
    end)
  end

  defp filters(opts) do
    given = [
      statuses: opts[:status] && List.wrap(opts[:status]),
      metadata: opts[:metadata] && raw_terms(opts[:metadata]),
      parent_id: opts[:parent_id],
      since: opts[:since] && time(opts[:since]),
      until: opts[:until] && time(opts[:until]),
      after: opts[:after] && time(elem(opts[:after], 0))
    ]

    for {key, value} <- given, value != nil, do: {key, value}
  end

  def history(store, id, opts) do
    fields = [id: id] ++ Keyword.take(opts, [:after, :limit])

    answer(read(store, :history, &SQL.history/1, fields), fn rows ->
      entries =
        for [revision, epoch, owner, at, document] <- rows do
          %{
            revision: Conversation.number(revision),
            epoch: Conversation.number(epoch),
            owner: owner,
            at: Conversation.time(at),
            note: Terms.decode!(document)
          }
        end

      {:ok, entries}
    end)
  end

  ## Parameters of the statements

  @sections [:branches, :iterations, :blobs, :cuts, :gone, :lost, :finished, :taken] ++
              [:waits, :closed]

  defp write(store, name, fields) do
    # An effect sees the rows that the ones before it have written only in SQLite: their order is that of foreign keys.
    sections = Enum.filter(@sections, &Keyword.has_key?(fields, &1)) ++ [:history]
    run(store, {name, sections}, &apply(SQL, name, [&1, sections]), fields)
  end

  defp run(%module{} = store, key, operation, fields) do
    dialect = module.dialect()
    params = dialect |> Dialect.put_texts(fields) |> params()
    module.run(store, key, fn -> operation.(dialect) end, params)
  end

  defp read(%module{} = store, key, query, fields) do
    statement = fn -> SQL.read(module.dialect(), query.(module.dialect())) end
    module.read(store, key, statement, params(fields))
  end

  # The ids of the conversation are parameters of their own.
  defp params(fields) do
    {own, fields} = Keyword.split(fields, [:id, :old_id, :texts])
    json = fields |> Changes.object() |> JSON.encode()
    [json | for(name <- [:id, :old_id, :texts], text = own[name], do: text)]
  end

  defp raw_terms(terms), do: terms |> Terms.encode!() |> JSON.raw()

  defp time(time), do: DateTime.to_iso8601(DateTime.shift_zone!(time, "Etc/UTC"))

  defp encode_call(call, fields) do
    own = [key: call.key, attempt: Map.get(call, :attempt, 1)]
    Changes.object(own ++ fields ++ [call: call[:call] && raw_terms(call.call)])
  end

  defp fence(kept),
    do:
      [owner: claim(kept)] ++
        (kept |> Map.take([:id, :epoch, :revision, :lease]) |> Map.to_list())

  defp claim(%Conversation{claimed?: true, owner: owner}), do: owner
  defp claim(%Conversation{}), do: nil

  defp id(%Context{} = context), do: context[:id]
  defp id(%ChatContext{id: id}), do: id

  defp id_of(%Conversation{id: id}), do: id
  defp id_of(id), do: id

  defp kind(%Context{}), do: :context
  defp kind(%ChatContext{}), do: :chat

  # The conversations of sub-agents name their parent in their metadata.
  defp origin(%Context{} = context) do
    parent =
      case context[:origin] do
        %{id: id} -> id
        nil -> Context.metadata(context)[:parent_id]
      end

    if AshAgent.Store.Options.id?(parent), do: [parent_id: parent], else: []
  end

  defp origin(%ChatContext{}), do: []

  ## Rows of the statements

  # Any fault in a damaged table is an error, and shows nothing of it.
  @doc "Reads rows. What no store writes is an error, as the failure of a query is."
  def answer({:ok, rows}, read) do
    read.(rows)
  rescue
    _error in [ArgumentError, Context.Error, FunctionClauseError, MatchError] ->
      {:error, %Error{reason: {:corrupt, "what the tables hold is not a store's"}}}
  end

  def answer({:error, error}, _read), do: {:error, error}

  defp keep(row, value, lines, owner, lease) do
    kept = Conversation.from_row(row)
    %{kept | value: value, lines: lines, claimed?: owner != nil, lease: lease}
  end

  defp refuse(store, kept) do
    answer(read(store, :state, &SQL.state/1, id: kept.id), fn
      [] -> {:error, :not_found}
      [row] -> {:error, reason(Conversation.from_row(row), claim(kept))}
    end)
  end

  defp reason(%{owner: owner}, own) when owner not in [nil, own], do: {:owned, owner}
  # It may be claimed again under the same name.
  defp reason(_row, _own), do: :stale
end
