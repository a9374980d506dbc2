defmodule AshAgent.Conversation.Column do
  @moduledoc false

  # A store in three attributes of a resource's records: `kept` is the context, `kept_state` everything else that a store knows, and
  # `kept_version` its optimistic lock. Each write reads them, changes them and writes them whole, if nobody else has written since.

  @behaviour AshAgent.Store

  alias Ash.{Changeset, DataLayer, Query}
  alias Ash.Error.Changes.StaleRecord
  alias Ash.Resource.Info
  alias AshAgent.Context
  alias AshAgent.Context.JSON
  alias AshAgent.Store.{Conversation, Error}

  @derive {Inspect, only: [:resource]}
  @enforce_keys [:resource, :domain, :tenant]
  defstruct @enforce_keys

  @tries 200

  ## Writing

  @impl true
  def create(store, %Context{} = context, opts) do
    write(store, context[:id], fn
      nil ->
        state = %{
          "status" => to_string(opts[:status]),
          "revision" => 0,
          "epoch" => if(opts[:owner], do: 1, else: 0),
          "owner" => opts[:owner],
          "parent_id" => parent(context[:origin]),
          "created_at" => now(),
          "calls" => [],
          "prompts" => [],
          "history" => []
        }

        {:ok, state |> renewed(opts[:lease]) |> written(context, opts[:note]), context}

      _state ->
        {:error, :exists}
    end)
    |> answer(context[:id], &hold(&1, context, opts[:owner], opts[:lease]))
  end

  @impl true
  def append(store, %Conversation{} = kept, context, opts) do
    guarded(
      store,
      kept,
      &fenced/2,
      fn state ->
        state
        |> Map.update!("status", &to_string(opts[:status] || &1))
        |> renewed(kept.lease)
        |> Map.update!("prompts", &taken(&1, opts[:taken]))
        |> written(context, opts[:note])
        |> finished(opts[:finished])
      end,
      if(Context.Changes.same?(context, kept.value), do: nil, else: context)
    )
    |> answer(kept.id, &hold(&1, context, claim(kept), kept.lease))
  end

  @impl true
  def start(store, %Conversation{} = kept, calls) do
    calls = Enum.uniq_by(calls, &{&1.key, Map.get(&1, :attempt, 1)})

    write(store, kept.id, fn state ->
      with :ok <- fenced(state, kept) do
        new = Enum.reject(calls, fn call -> Enum.any?(state["calls"], &same?(&1, call)) end)
        new = Enum.map(new, &entry(&1, state, "started", "started_at"))
        state = state |> renewed(kept.lease) |> Map.update!("calls", &(&1 ++ new))
        {:ok, state, nil, Enum.map(new, & &1["key"])}
      end
    end)
    |> case do
      {:ok, state, keys} ->
        {:ok, kept.id |> summary(state) |> hold(kept.value, claim(kept), kept.lease), keys}

      error ->
        error
    end
  end

  @impl true
  def claim(store, id, opts) do
    from = if opts[:reclaim], do: opts[:owner], else: opts[:from]

    guarded(
      store,
      %Conversation{id: id},
      fn state, _kept -> free(state, from) end,
      &claimed(&1, opts),
      nil
    )
    |> case do
      {:ok, state} ->
        fetch(store, id |> summary(state) |> hold(nil, opts[:owner], opts[:lease]))

      error ->
        error
    end
  end

  @impl true
  def renew(store, %Conversation{} = kept) do
    guarded(store, kept, &held/2, &renewed(&1, kept.lease), nil)
    |> answer(kept.id, &hold(&1, kept.value, kept.owner, kept.lease))
  end

  @impl true
  def release(store, %Conversation{} = kept, opts) do
    guarded(
      store,
      kept,
      &held/2,
      fn state ->
        status = to_string(opts[:status] || state["status"])

        %{
          state
          | "owner" => nil,
            "lease_until" => nil,
            "status" => status,
            "updated_at" => now()
        }
      end,
      nil
    )
    |> answer(kept.id, &hold(&1, kept.value, nil, kept.lease))
  end

  @impl true
  def expired(store, opts) do
    statuses = opts[:status] |> List.wrap() |> Enum.map(&to_string/1)
    due? = &(over?(&1) and &1["status"] in statuses)

    with {:ok, rows} <- all(store) do
      rows
      |> Enum.filter(fn {_id, state} -> due?.(state) end)
      |> Enum.sort_by(fn {_id, state} -> state["lease_until"] end)
      |> Stream.map(fn {id, _state} ->
        guarded(
          store,
          %Conversation{id: id},
          fn state, _ -> if due?.(state), do: :ok, else: {:error, :stale} end,
          &claimed(&1, opts),
          nil
        )
        |> answer(id, &hold(&1, nil, opts[:owner], opts[:lease]))
      end)
      |> Stream.filter(&match?({:ok, _}, &1))
      |> Enum.take(opts[:limit])
      |> then(&{:ok, for({:ok, claim} <- &1, do: claim)})
    end
  end

  @impl true
  def delete(store, id) do
    case write(store, id, fn
           nil -> {:error, :not_found}
           _state -> {:ok, nil, :none}
         end) do
      {:ok, nil} -> :ok
      error -> error
    end
  end

  @impl true
  def enqueue(store, id_or_claim, %Context{} = message, opts) do
    {kept, guard} =
      if is_binary(id_or_claim),
        do: {%Conversation{id: id_or_claim}, fn _state, _kept -> :ok end},
        else: {id_or_claim, &held/2}

    guarded(
      store,
      kept,
      guard,
      fn state ->
        if Enum.any?(state["prompts"], &(&1["id"] == opts[:id])) do
          state
        else
          prompt = %{
            "id" => opts[:id],
            "kind" => to_string(opts[:kind]),
            "at" => now(),
            "document" => Context.to_snapshot(message)
          }

          Map.update!(state, "prompts", &(&1 ++ [prompt]))
        end
      end,
      nil
    )
    |> answer(kept.id, fn _kept -> opts[:id] end)
  end

  ## Reading

  @impl true
  def fetch(store, id_or_kept) do
    id = if is_binary(id_or_kept), do: id_or_kept, else: id_or_kept.id

    case read(store, id, [:kept]) do
      {:ok, %{kept_state: state, kept: context}} when state != nil ->
        id |> summary(state) |> Map.put(:value, context) |> Conversation.renew(id_or_kept)

      {:ok, _nothing} ->
        {:error, :not_found}

      error ->
        error
    end
  end

  @impl true
  def waiting(store, id) do
    listed(store, id, fn state ->
      for %{"document" => document} = prompt when document != nil <- state["prompts"] do
        message = Context.from_snapshot!(document)
        [%{content: content}] = Context.get_iteration_messages(message, 1)

        %{
          id: prompt["id"],
          kind: Conversation.word(prompt["kind"], [:prompt, :steer]),
          input: content,
          metadata: Context.metadata(message),
          at: Conversation.time(prompt["at"])
        }
      end
    end)
  end

  @impl true
  def calls(store, id, opts) do
    states = opts[:state] && opts[:state] |> List.wrap() |> Enum.map(&to_string/1)

    listed(store, id, fn state ->
      for call <- state["calls"],
          states == nil or call["state"] in states,
          opts[:keys] == nil or call["key"] in opts[:keys] do
        %{
          key: call["key"],
          attempt: call["attempt"],
          epoch: call["epoch"],
          state: Conversation.word(call["state"], AshAgent.Store.Options.call_states()),
          started_at: Conversation.time(call["started_at"]),
          ended_at: Conversation.time(call["ended_at"]),
          call: terms(call["call"])
        }
      end
    end)
  end

  @impl true
  def history(store, id, opts) do
    listed(store, id, fn state ->
      state["history"]
      |> Enum.filter(&(&1["revision"] > opts[:after]))
      |> Enum.take(opts[:limit])
      |> Enum.map(fn write ->
        %{
          revision: write["revision"],
          epoch: write["epoch"],
          owner: write["owner"],
          at: Conversation.time(write["at"]),
          note: terms(write["note"])
        }
      end)
    end)
  end

  @impl true
  def list(store, opts) do
    statuses = opts[:status] && List.wrap(opts[:status])
    wanted = (opts[:metadata] || %{}) |> Context.Terms.encode!() |> JSON.decode!()
    place = &{DateTime.to_unix(Map.fetch!(&1, opts[:by]), :microsecond), &1.id}
    after_it = with {time, id} <- opts[:after], do: {DateTime.to_unix(time, :microsecond), id}

    with {:ok, rows} <- all(store) do
      rows
      |> Enum.filter(fn {_id, state} ->
        %{"metadata" => metadata} = JSON.decode!(state["metadata"])
        Enum.all?(wanted, fn {key, value} -> metadata[key] === value end)
      end)
      |> Enum.map(fn {id, state} -> summary(id, state) end)
      |> Enum.filter(fn kept ->
        time = Map.fetch!(kept, opts[:by])

        (statuses == nil or kept.status in statuses) and
          opts[:parent_id] in [nil, kept.parent_id] and
          (opts[:since] == nil or DateTime.compare(time, opts[:since]) != :lt) and
          (opts[:until] == nil or DateTime.compare(time, opts[:until]) == :lt)
      end)
      |> Enum.sort_by(place, opts[:order])
      |> Enum.drop_while(&(after_it != nil and not later?(place.(&1), after_it, opts[:order])))
      |> page(opts)
    end
  end

  defp later?(place, other, :asc), do: place > other
  defp later?(place, other, :desc), do: place < other

  defp page(found, opts) do
    {page, rest} = Enum.split(found, opts[:limit])
    last = List.last(page)

    {:ok,
     %{conversations: page, next: if(rest != [], do: {Map.fetch!(last, opts[:by]), last.id})}}
  end

  ## What a writer has to be

  defp fenced(nil, _kept), do: {:error, :not_found}

  defp fenced(state, kept) do
    if {state["epoch"], state["revision"], state["owner"]} ==
         {kept.epoch, kept.revision, claim(kept)},
       do: :ok,
       else: refused(state, claim(kept))
  end

  defp held(state, kept) do
    if {state["epoch"], state["owner"]} == {kept.epoch, kept.owner},
      do: :ok,
      else: refused(state, claim(kept))
  end

  defp free(state, from) do
    if state["owner"] in [nil, from] or over?(state), do: :ok, else: refused(state, nil)
  end

  defp refused(%{"owner" => owner}, own) when owner != nil and owner != own,
    do: {:error, {:owned, owner}}

  defp refused(_state, _own), do: {:error, :stale}

  # ISO 8601 in one form is in the order of time.
  defp over?(state), do: state["lease_until"] != nil and state["lease_until"] < now()

  defp claim(%Conversation{claimed?: true, owner: owner}), do: owner
  defp claim(%Conversation{}), do: nil

  ## Changes of the state

  defp claimed(state, opts) do
    status =
      if opts[:status] in [nil] or is_list(opts[:status]),
        do: state["status"],
        else: to_string(opts[:status])

    renewed(
      %{state | "owner" => opts[:owner], "epoch" => state["epoch"] + 1, "status" => status},
      opts[:lease]
    )
  end

  defp renewed(%{"owner" => nil} = state, _lease), do: Map.put(state, "lease_until", nil)

  defp renewed(state, lease),
    do: Map.put(state, "lease_until", iso(DateTime.add(DateTime.utc_now(), lease, :millisecond)))

  defp written(state, context, note) do
    state = Map.update!(state, "revision", &(&1 + 1))

    write = %{
      "revision" => state["revision"],
      "epoch" => state["epoch"],
      "owner" => state["owner"],
      "at" => now(),
      "note" => text(note)
    }

    Map.merge(state, %{
      "metadata" => text(Context.metadata(context)),
      "updated_at" => write["at"],
      "history" => state["history"] ++ [write]
    })
  end

  # It is remembered, so that it is not taken again.
  defp taken(prompts, ids),
    do: Enum.map(prompts, &if(&1["id"] in ids, do: %{&1 | "document" => nil}, else: &1))

  # A final state is final.
  defp finished(state, calls) do
    Enum.reduce(calls, state, fn call, state ->
      ended = entry(call, state, to_string(call.state), "ended_at")

      case Enum.find_index(state["calls"], &same?(&1, call)) do
        nil ->
          Map.update!(state, "calls", &(&1 ++ [ended]))

        at ->
          Map.update!(
            state,
            "calls",
            &List.update_at(&1, at, fn known -> ended(known, ended) end)
          )
      end
    end)
  end

  defp ended(%{"state" => "started"} = known, ended),
    do: %{
      known
      | "state" => ended["state"],
        "ended_at" => ended["ended_at"],
        "call" => ended["call"] || known["call"]
    }

  defp ended(known, _ended), do: known

  defp entry(call, state, word, time) do
    entry = %{
      "key" => call.key,
      "attempt" => Map.get(call, :attempt, 1),
      "epoch" => state["epoch"],
      "state" => word
    }

    Map.merge(entry, %{
      "started_at" => nil,
      "ended_at" => nil,
      "call" => call[:call] && text(call.call),
      time => now()
    })
  end

  defp same?(known, call),
    do: known["key"] == call.key and known["attempt"] == Map.get(call, :attempt, 1)

  defp parent(%{id: id}), do: if(AshAgent.Store.Options.id?(id), do: id)
  defp parent(nil), do: nil

  # Any terms as text: an empty conversation carries them.
  defp text(terms), do: "" |> Context.new(id: "-", metadata: terms) |> Context.to_snapshot()

  defp terms(nil), do: %{}
  defp terms(text), do: text |> Context.from_snapshot!() |> Context.metadata()

  defp now, do: iso(DateTime.utc_now())
  defp iso(time), do: DateTime.to_iso8601(time)

  ## What is returned

  defp summary(id, state) do
    fields = ~w(status revision epoch owner lease_until created_at updated_at)
    row = [id, "context", state["parent_id"], "{}" | Enum.map(fields, &state[&1])]
    %{Conversation.from_row(row) | metadata: terms(state["metadata"])}
  end

  defp hold(kept, value, owner, lease),
    do: %{kept | value: value, claimed?: owner != nil, lease: lease}

  defp answer({:ok, state}, id, fun), do: {:ok, id |> summary(state) |> fun.()}
  defp answer(error, _id, _fun), do: error

  defp listed(store, id, fun) do
    case read(store, id, []) do
      {:ok, %{kept_state: state}} when state != nil -> {:ok, fun.(state)}
      {:ok, _nothing} -> {:ok, []}
      {:error, :not_found} -> {:ok, []}
      error -> error
    end
  end

  ## The records

  defp guarded(store, kept, guard, change, context) do
    write(store, kept.id, fn
      nil -> {:error, :not_found}
      state -> with :ok <- guard.(state, kept), do: {:ok, change.(state), context}
    end)
  end

  # `change` returns the new state, and the new context or nil if that stays. Of writers at once, one wins each time.
  defp write(store, id, change, tries \\ @tries)

  defp write(_store, _id, _change, 0),
    do: {:error, %Error{reason: {:unavailable, "others wrote all the time"}}}

  defp write(store, id, change, tries) do
    case alone(store, id, fn -> try_to_write(store, id, change) end) do
      :again -> write(store, id, change, tries - 1)
      answer -> answer
    end
  end

  defp try_to_write(store, id, change) do
    with {:ok, record} <- read(store, id, []),
         {:ok, state, context, extra} <- changed(change.(record.kept_state)) do
      case put(store, record, state, context) do
        {:ok, _record} -> List.to_tuple([:ok, state | extra])
        {:error, %StaleRecord{}} -> :again
        {:error, :no_rollback, error} -> unavailable(error)
        {:error, error} -> unavailable(error)
      end
    end
  end

  defp changed({:ok, state, context}), do: {:ok, state, context, []}
  defp changed({:ok, state, context, extra}), do: {:ok, state, context, [extra]}
  defp changed(error), do: error

  # The data layer itself: changes that an application makes in all actions are not for these writes.
  defp put(store, record, state, context) do
    changes = if context, do: [kept: if(context == :none, do: nil, else: context)], else: []
    version = record.kept_version

    changeset =
      record
      |> Changeset.new()
      |> Map.merge(%{domain: store.domain, action_type: :update, action_select: [:kept_version]})
      |> Changeset.set_tenant(store.tenant)
      |> Changeset.force_change_attributes(
        [kept_state: state && encoded(state), kept_version: version + 1] ++ changes
      )
      |> Changeset.filter(kept_version: version)

    DataLayer.update(store.resource, changeset)
  end

  # A data layer without transactions compares and writes in two steps.
  defp alone(store, id, fun) do
    if DataLayer.data_layer_can?(store.resource, :transact),
      do: fun.(),
      else: :global.trans({{__MODULE__, store.resource, store.tenant, id}, self()}, fun)
  end

  defp read(store, id, more) do
    [key] = Info.primary_key(store.resource)
    %{type: type, constraints: constraints} = Info.attribute(store.resource, key)

    with {:ok, id} when id != nil <- Ash.Type.cast_input(type, id, constraints),
         {:ok, [record]} <-
           store |> query([key | more]) |> Query.do_filter([{key, id}]) |> run() do
      {:ok, record}
    else
      {:error, %Error{}} = error -> error
      _nothing -> {:error, :not_found}
    end
  end

  defp all(store) do
    [key] = Info.primary_key(store.resource)

    with {:ok, records} <- store |> query([key]) |> run(),
         do:
           {:ok,
            for(
              %{kept_state: state} = record <- records,
              state != nil,
              do: {to_string(Map.fetch!(record, key)), state}
            )}
  end

  defp query(store, fields) do
    store.resource
    |> Query.for_read(:kept, %{}, authorize?: false, domain: store.domain, tenant: store.tenant)
    |> Query.select([:kept_state, :kept_version | fields])
  end

  defp run(query) do
    case Ash.read(query, authorize?: false) do
      {:ok, records} -> {:ok, Enum.map(records, &decoded/1)}
      {:error, error} -> unavailable(error)
    end
  rescue
    _error in Context.Error ->
      {:error, %Error{reason: {:corrupt, "what the record holds is not a store's"}}}
  end

  # Text, since data layers may log the beginning of what they write.
  defp encoded(state), do: state |> JSON.encode() |> IO.iodata_to_binary()

  defp decoded(%{kept_state: nil} = record), do: record
  defp decoded(record), do: Map.update!(record, :kept_state, &JSON.decode!/1)

  # Whatever an error of the data layer shows stays here.
  defp unavailable(%module{}), do: {:error, %Error{reason: {:unavailable, inspect(module)}}}

  defp unavailable(_error),
    do: {:error, %Error{reason: {:unavailable, "an error of the data layer"}}}
end
