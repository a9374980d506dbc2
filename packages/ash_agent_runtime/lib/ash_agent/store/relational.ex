defmodule AshAgent.Store.Relational do
  @moduledoc false

  # The callbacks of `AshAgent.Store` over a database that runs the statements of `AshAgent.Store.SQL`: data in, rows out.

  alias AshAgent.{ChatContext, Context}
  alias AshAgent.Context.{JSON, Terms}
  alias AshAgent.Store.{Changes, Conversation, Error, SQL}

  @type store :: struct()
  @type rows :: [[term()]]

  @doc "The rows of an operation: those of its guard, each beside those of the effect that answers."
  @callback run(store(), key :: term(), (... -> SQL.operation()), json :: binary()) ::
              {:ok, rows()} | {:error, AshAgent.Store.Error.t()}

  @doc "The rows of a query."
  @callback read(store(), key :: term(), (... -> String.t()), json :: binary()) ::
              {:ok, rows()} | {:error, AshAgent.Store.Error.t()}

  @doc "Which of the two the statements are written for."
  @callback dialect() :: SQL.dialect()

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
      defdelegate erase(store, opts), to: AshAgent.Store.Erasure
      @doc false
      defdelegate prune(store, opts), to: AshAgent.Store.Erasure
    end
  end

  ## Writing

  def create(store, value, opts) do
    {fields, lines} = Changes.of(value, nil, [])

    fields =
      [
        id: text(id(value)),
        kind: text(kind(value)),
        status: text(opts[:status]),
        owner: opts[:owner] && text(opts[:owner]),
        lease: Integer.to_string(opts[:lease]),
        history: Terms.encode!(opts[:note])
      ] ++ origin(value) ++ fields

    answer(write(store, :create, fields), fn
      [] -> {:error, :exists}
      [row] -> {:ok, keep(row, value, lines, opts[:owner], opts[:lease])}
    end)
  end

  def fetch(store, id_or_kept) do
    answer(read(store, :fetch, &SQL.fetch/1, id: text(id_of(id_or_kept))), fn
      [] ->
        {:error, :not_found}

      [row | _] = rows ->
        with {:ok, kept} <- row |> Conversation.from_row() |> load(rows),
             do: Conversation.renew(kept, id_or_kept)
    end)
  end

  def append(store, %Conversation{} = kept, value, opts) do
    {fields, lines} = Changes.of(value, kept.value, kept.lines)
    finished = for call <- opts[:finished], do: encode_call(call, state: text(call.state))
    taken = for id <- opts[:taken], do: Changes.object(id: text(id))

    fields =
      fence(kept) ++
        [status: opts[:status] && text(opts[:status]), history: Terms.encode!(opts[:note])] ++
        for(
          {key, [_ | _] = items} <- [finished: finished, taken: taken],
          do: {key, Changes.list(items)}
        ) ++ fields

    answer(write(store, :append, fields), fn
      [] -> refuse(store, kept)
      [row] -> {:ok, keep(row, value, lines, claim(kept), kept.lease)}
    end)
  end

  def start(store, %Conversation{} = kept, calls) do
    started = for call <- calls, do: encode_call(call, [])

    answer(
      run(store, :start, &SQL.start/1, fence(kept) ++ [started: Changes.list(started)]),
      fn
        [] ->
          refuse(store, kept)

        [row | _] = rows ->
          keys = for row <- rows, key = List.last(row), do: key
          {:ok, keep(row, kept.value, kept.lines, claim(kept), kept.lease), keys}
      end
    )
  end

  def claim(store, id, opts) do
    from = if opts[:reclaim], do: opts[:owner], else: opts[:from]

    fields = [
      id: text(id),
      owner: text(opts[:owner]),
      lease: Integer.to_string(opts[:lease]),
      status: opts[:status] && text(opts[:status]),
      from: from && text(from)
    ]

    answer(run(store, :claim, &SQL.claim/1, fields), fn
      # Released in the meantime: once more.
      [] ->
        with {:error, :stale} <- refuse(store, %Conversation{id: id}),
             do: claim(store, id, opts)

      [row] ->
        fetch(store, keep(row, nil, [], opts[:owner], opts[:lease]))
    end)
  end

  def renew(store, %Conversation{} = kept), do: run_fenced(store, :renew, &SQL.renew/1, kept, [])

  def release(store, %Conversation{} = kept, opts) do
    status = opts[:status] && text(opts[:status])

    with {:ok, kept} <- run_fenced(store, :release, &SQL.release/1, kept, status: status),
         do: {:ok, %{kept | claimed?: false}}
  end

  defp run_fenced(store, name, operation, kept, fields) do
    answer(run(store, name, operation, fence(kept) ++ fields), fn
      [] -> refuse(store, kept)
      [row] -> {:ok, keep(row, kept.value, kept.lines, kept.owner, kept.lease)}
    end)
  end

  def expired(store, opts) do
    fields = [
      owner: text(opts[:owner]),
      lease: Integer.to_string(opts[:lease]),
      limit: Integer.to_string(opts[:limit]),
      statuses: statuses(opts[:status])
    ]

    answer(run(store, :expired, &SQL.expired/1, fields), fn rows ->
      {:ok, Enum.map(rows, &keep(&1, nil, [], opts[:owner], opts[:lease]))}
    end)
  end

  def delete(store, id) do
    with {:ok, rows} <- run(store, :delete, &SQL.delete/1, id: text(id)),
         do: if(rows == [], do: {:error, :not_found}, else: :ok)
  end

  @doc "Deletes the conversations of these ids. Returns a row for each: its id, and how much was stored with it."
  def erase(store, ids),
    do: run(store, :erase, &SQL.erase(&1, :listed), ids: encode_ids(ids))

  @doc "The same for as many as `limit` of those that nobody owns and that the filters fit."
  def prune(store, opts, limit) do
    given = [age: Integer.to_string(-1000 * opts[:older_than])] ++ filters(opts)
    names = Keyword.keys(given)
    fields = given ++ [limit: Integer.to_string(limit)]
    run(store, {:prune, names}, &SQL.erase(&1, names), fields)
  end

  @doc "The ids of the forks and children of the conversations of these ids."
  def children(store, ids) do
    with {:ok, rows} <- read(store, :children, &SQL.children/1, ids: encode_ids(ids)),
         do: {:ok, List.flatten(rows)}
  end

  defp encode_ids(ids), do: Changes.list(for id <- ids, do: Changes.object(id: text(id)))

  def rename(store, from, to) do
    answer(run(store, :rename, &SQL.rename/1, id: text(to), from: text(from)), fn
      [_row] -> :ok
      [] -> not_renamed(store, from, to)
    end)
  end

  defp not_renamed(store, from, to) do
    case refuse(store, %Conversation{id: from}) do
      {:error, :stale} -> if(from == to, do: :ok, else: {:error, :exists})
      error -> error
    end
  end

  def enqueue(store, id_or_claim, %Context{} = message, opts) do
    place = if is_binary(id_or_claim), do: [id: text(id_or_claim)], else: fence(id_or_claim)

    fields = [
      prompt: text(opts[:id]),
      kind: text(opts[:kind]),
      document: Context.to_snapshot(message)
    ]

    answer(run(store, :enqueue, &SQL.enqueue/1, place ++ fields), fn
      [] when is_binary(id_or_claim) -> {:error, :not_found}
      [] -> refuse(store, id_or_claim)
      [_row] -> {:ok, opts[:id]}
    end)
  end

  ## Reading

  def waiting(store, id) do
    answer(read(store, :waiting, &SQL.waiting/1, id: text(id)), fn rows ->
      prompts =
        for [id, kind, at, document] <- rows do
          message = Context.from_snapshot!(document)
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
    states = for state <- List.wrap(opts[:state]), do: Changes.object(state: text(state))
    keys = for key <- List.wrap(opts[:keys]), do: Changes.object(key: text(key))

    given =
      for {name, value} <- [states: states, keys: keys],
          opts[name(name)] != nil,
          do: {name, Changes.list(value)}

    names = Keyword.keys(given)

    answer(
      read(store, {:calls, names}, &SQL.calls(&1, names), [id: text(id)] ++ given),
      fn rows ->
        calls =
          for [key, attempt, epoch, state, started, ended, document] <- rows do
            %{
              key: key,
              attempt: Conversation.number(attempt),
              epoch: Conversation.number(epoch),
              state: Conversation.word(state, AshAgent.Store.Options.call_states()),
              started_at: Conversation.time(started),
              ended_at: Conversation.time(ended),
              call: if(document, do: Terms.decode!(document), else: %{})
            }
          end

        {:ok, calls}
      end
    )
  end

  defp name(:states), do: :state
  defp name(:keys), do: :keys

  def list(store, opts) do
    by = opts[:by]
    limit = opts[:limit]

    given = filters(opts)
    filters = Keyword.keys(given)
    after_id = if opts[:after], do: [after_id: text(elem(opts[:after], 1))], else: []
    fields = given ++ after_id ++ [limit: Integer.to_string(limit)]
    query = &SQL.list(&1, filters, by, opts[:order])

    answer(read(store, {:list, filters, by, opts[:order]}, query, fields), fn rows ->
      found = Enum.map(rows, &Conversation.from_row/1)
      last = List.last(found)
      next = if last && length(found) == limit, do: {Map.fetch!(last, by), last.id}
      {:ok, %{conversations: found, next: next}}
    end)
  end

  defp filters(opts) do
    given = [
      statuses: opts[:status] && statuses(opts[:status]),
      metadata: opts[:metadata] && Terms.encode!(opts[:metadata]),
      parent_id: opts[:parent_id] && text(opts[:parent_id]),
      since: opts[:since] && time(opts[:since]),
      until: opts[:until] && time(opts[:until]),
      after: opts[:after] && time(elem(opts[:after], 0))
    ]

    for {key, value} <- given, value != nil, do: {key, value}
  end

  def history(store, id, opts) do
    fields = [
      id: text(id),
      after: Integer.to_string(opts[:after]),
      limit: Integer.to_string(opts[:limit])
    ]

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

  ## What the statements get

  @sections [:branches, :iterations, :cuts, :gone, :finished, :taken]

  defp write(store, name, fields) do
    # An effect sees the rows that the ones before it have written only in SQLite: their order is that of foreign keys.
    sections = Enum.filter(@sections, &Keyword.has_key?(fields, &1)) ++ [:history]
    run(store, {name, sections}, &apply(SQL, name, [&1, sections]), fields)
  end

  defp run(%module{} = store, key, operation, fields),
    do: module.run(store, key, fn -> operation.(module.dialect()) end, json(fields))

  defp read(%module{} = store, key, query, fields),
    do:
      module.read(
        store,
        key,
        fn -> SQL.read(module.dialect(), query.(module.dialect())) end,
        json(fields)
      )

  defp json(fields), do: fields |> Changes.object() |> IO.iodata_to_binary()

  defp text(atom) when is_atom(atom), do: text(Atom.to_string(atom))
  defp text(text) when is_binary(text), do: JSON.encode(text)

  defp time(time), do: text(DateTime.to_iso8601(DateTime.shift_zone!(time, "Etc/UTC")))

  defp statuses(statuses),
    do: Changes.list(for status <- List.wrap(statuses), do: Changes.object(status: text(status)))

  defp encode_call(call, fields) do
    fields =
      [key: text(call.key), attempt: Integer.to_string(Map.get(call, :attempt, 1))] ++ fields

    Changes.object(fields ++ if(call[:call], do: [call: Terms.encode!(call.call)], else: []))
  end

  defp fence(kept) do
    owner = claim(kept)

    [
      id: text(kept.id),
      epoch: Integer.to_string(kept.epoch),
      revision: Integer.to_string(kept.revision),
      owner: owner && text(owner),
      lease: Integer.to_string(kept.lease)
    ]
  end

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

    if AshAgent.Store.Options.id?(parent), do: [parent_id: text(parent)], else: []
  end

  defp origin(%ChatContext{}), do: []

  ## What comes back

  # Whatever stands in a damaged table is an error, and shows nothing of it.
  defp answer({:ok, rows}, read) do
    read.(rows)
  rescue
    _error in [ArgumentError, Context.Error, FunctionClauseError, MatchError] ->
      {:error, %Error{reason: {:corrupt, "what the tables hold is not a store's"}}}
  end

  defp answer({:error, error}, _read), do: {:error, error}

  defp keep(row, value, lines, owner, lease) do
    kept = Conversation.from_row(row)
    %{kept | value: value, lines: lines, claimed?: owner != nil, lease: lease}
  end

  defp refuse(store, kept) do
    answer(read(store, :state, &SQL.state/1, id: text(kept.id)), fn
      [] -> {:error, :not_found}
      [row] -> {:error, reason(Conversation.from_row(row), claim(kept))}
    end)
  end

  defp reason(%{owner: owner}, own) when owner != nil and owner != own, do: {:owned, owner}
  # Claimed again under the same name.
  defp reason(%{owner: owner}, nil) when owner != nil, do: {:owned, owner}
  defp reason(_row, _own), do: :stale

  @branch 11

  defp load(%{kind: :context} = kept, [row]) do
    [_document, _active, row, _base, _since, updated_at, _label, head, iterations] =
      Enum.drop(row, @branch)

    with {:ok, context} <- Context.from_snapshot(document(head, updated_at, nil, iterations)) do
      line = %{
        number: 1,
        row: Conversation.number(row),
        origin: nil,
        base: nil,
        since: nil,
        context: context,
        name: nil
      }

      {:ok, %{kept | value: context, lines: [line]}}
    end
  end

  defp load(%{kind: :chat} = kept, rows) do
    branches =
      for row <- rows do
        [_document, _active, row, base, since, updated_at, label, head, iterations] =
          Enum.drop(row, @branch)

        [row, base, since] = Enum.map([row, base, since], &Conversation.number/1)
        %{"name" => name} = JSON.decode!(label)
        context = document(head, updated_at, since, iterations)

        %{
          row: row,
          base: base,
          since: since,
          label: label,
          name: JSON.encode(name),
          context: context
        }
      end

    names = Map.new(branches, &{&1.row, &1.name})
    head = rows |> hd() |> Enum.at(@branch)
    list = branches |> Enum.map(&branch(&1, names)) |> Changes.list()

    with {:ok, chat} <- ChatContext.from_snapshot(join_fields(head, [~s("branches":), list])) do
      lines =
        for {stored, branch} <- Enum.zip(branches, ChatContext.branches(chat)) do
          facts = %{
            number: branch.number,
            origin: branch.origin,
            context: branch.context,
            name: {branch.name, branch.extra}
          }

          stored |> Map.take([:row, :base, :since]) |> Map.merge(facts)
        end

      {:ok, %{kept | value: chat, lines: lines}}
    end
  end

  defp branch(branch, names) do
    base = if branch.base, do: [~s("base":), names[branch.base], ?,], else: []
    join_fields(branch.label, [base, ~s("context":), branch.context])
  end

  defp document(head, updated_at, since, iterations) do
    since = if since, do: [~s("since":), Integer.to_string(since), ?,], else: []

    join_fields(head, [
      since,
      ~s("updated_at":"),
      updated_at,
      ~s(","iterations":[),
      iterations || "",
      ?]
    ])
  end

  # An object's text with more fields; it is never empty.
  defp join_fields(object, fields),
    do: IO.iodata_to_binary([binary_part(object, 0, byte_size(object) - 1), ?,, fields, ?}])
end
