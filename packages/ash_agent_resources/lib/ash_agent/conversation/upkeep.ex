defmodule AshAgent.Conversation.Upkeep do
  @moduledoc """
  Maintains conversations: continues turns that were cut short, and deletes conversations without a record.

  With AshPostgres and its own store, the migrations of `mix ash.codegen` do what `sweep/2` does for other stores, see
  `AshAgent.Conversation.Migrations`.
  """

  use AshAgent.Arguments

  alias AshAgent.Conversation.Info
  alias AshAgent.{Options, Store}

  @page 1_000

  @sweep Options.schema([
           {:tenant, :any, "the tenant whose store is swept. Defaults to `nil`."},
           {:older_than, :non_neg_integer, [default: 3_600],
            "seconds. Younger conversations stay, since their record may be in a transaction that is not over."}
         ])

  @resume Options.schema([
            {:tenant, :any, "the tenant whose conversations go on. Defaults to `nil`."},
            {:limit, :pos_integer, [default: 100], "how many to begin at most."}
          ])

  @doc """
  Continues the turns of a resource that were cut short, and returns `{:ok, count}` as soon as they have started, or `{:error, error}`.

  A conversation is due if nobody runs its turn any more, because its node died or its lease has ended, or if a late result has come for one of its
  calls; with AshPostgres also if a message has waited for ten seconds. Deadlines of calls that wait are results once they have passed. Each turn continues as the user who asked, through the action `:resume`, for which no policies apply here; if that
  user cannot be found, or late results have begun as many turns as they may in an hour, the conversation stays due and is not counted. Conversations that the primary read action does not find, such as archived ones, stay
  as they are. `AshAgent.Conversation.Sweeper` calls this from time to time.

  ## Options

  #{Options.docs(@resume)}

  ## Examples

      AshAgent.Conversation.Upkeep.resume_due(MyApp.Chat.Conversation)
      #=> {:ok, 3}
  """
  @doc since: "0.1.0"
  @spec resume_due(module(), keyword()) :: {:ok, non_neg_integer()} | {:error, Exception.t()}
  def resume_due(resource, opts \\ []) do
    Info.check!(resource)
    opts = Options.validate!(opts, @resume)
    own = [tenant: opts[:tenant], authorize?: false]

    # Without a tenant there is no schema, which the query says.
    if opts[:tenant] != nil or not Info.schemas?(resource),
      do: expire(Info.store(resource, opts[:tenant]))

    # Some of those that are due may wait for their askers, or for the next hour.
    with {:ok, records} <- due(resource, opts[:limit] + @page, own) do
      {:ok, Enum.reduce_while(records, 0, &begin(&1, &2, opts[:limit], own))}
    end
  end

  defp begin(_record, limit, limit, _own), do: {:halt, limit}

  defp begin(record, count, _limit, own) do
    begun? = match?({:ok, _}, resume(record, own))
    {:cont, if(begun?, do: count + 1, else: count)}
  end

  # Deadlines that have passed are late results. Somebody else expires those that this one does not.
  defp expire(store) do
    if Store.Named.late?(store), do: Store.expire_waiting(store, limit: @page)
  end

  defp resume(record, own),
    do: record |> Ash.Changeset.for_update(:resume, %{wait: false}, own) |> Ash.update()

  @doc """
  Returns the tenants that `AshAgent.Conversation.Sweeper` goes over, or `[nil]` for a resource without multitenancy.

  With attribute multitenancy, these are the values of the attribute in the records whose turns are due, or in all records if the store is not that of
  AshPostgres. If the resource has a `parse_attribute`, those values are not its tenants: name them with the option `tenants` of
  the sweeper. With schema multitenancy, these are the `all_tenants/0` of the repository.

  ## Examples

      AshAgent.Conversation.Upkeep.due_tenants(MyApp.Chat.Conversation)
      #=> ["acme", "other"]
  """
  @doc since: "0.1.0"
  @spec due_tenants(module()) :: [term()]
  def due_tenants(resource) do
    case check_tenants!(resource) do
      nil -> [nil]
      :attribute -> attribute_tenants(resource)
      :context -> repo(resource).all_tenants()
    end
  end

  @doc false
  # Returns how a resource tells its tenants apart, or raises if they cannot be listed.
  def check_tenants!(resource) do
    strategy = Ash.Resource.Info.multitenancy_strategy(Info.check!(resource))
    parse = Ash.Resource.Info.multitenancy_parse_attribute(resource)
    postgres? = Ash.DataLayer.data_layer(resource) == AshPostgres.DataLayer

    if (strategy == :attribute and not match?({_, :identity, []}, parse)) or
         (strategy == :context and not postgres?) do
      AshAgent.Caller.refuse!(
        "expected the tenants of #{inspect(resource)}, which its records do not tell: name them with the option tenants of " <>
          "AshAgent.Conversation.Sweeper"
      )
    end

    strategy
  end

  # Called by name: AshPostgres may be missing when this is compiled.
  defp repo(resource), do: apply(AshPostgres.DataLayer.Info, :repo, [resource, :mutate])

  # Past the check that there is a tenant.
  defp attribute_tenants(resource) do
    if Info.tables?(resource), do: expire(Info.store(resource, nil))
    filter = if Info.tables?(resource), do: Ash.Filter.parse!(resource, due: true)
    query = Ash.DataLayer.resource_to_query(resource, Ash.Resource.Info.domain(resource))
    {:ok, query} = Ash.DataLayer.set_context(resource, query, %{})
    {:ok, query} = Ash.DataLayer.filter(query, filter, resource)
    {:ok, records} = Ash.DataLayer.run_query(query, resource)
    attribute = Ash.Resource.Info.multitenancy_attribute(resource)
    for %{^attribute => tenant} when tenant != nil <- records, uniq: true, do: tenant
  end

  defp due(resource, limit, own) do
    query = Ash.Query.limit(resource, limit)

    if Info.tables?(resource) do
      query |> Ash.Query.do_filter(due: true) |> Ash.read([page: false] ++ own)
    else
      with {:ok, ids} <- due_ids(resource, own[:tenant], limit),
           key = Info.primary_key(resource),
           do: query |> Ash.Query.do_filter([{key, [in: ids]}]) |> Ash.read([page: false] ++ own)
    end
  end

  defp due_ids(resource, tenant, limit) do
    prefix = Info.prefix(resource)
    store = Info.store(resource, tenant)
    running = [status: :running, order: :asc, limit: @page]
    cut = &for(%{id: id} = kept <- &1.conversations, Info.due?(kept), do: id)

    with {:ok, cut} <- page_through(&Store.list(store, &1), cut, prefix, limit, running),
         {:ok, late} <- late_ids(store, prefix, limit) do
      due = for id <- Enum.uniq(cut ++ late), do: String.replace_prefix(id, prefix, "")
      {:ok, Enum.take(due, limit)}
    end
  end

  defp late_ids(store, prefix, limit) do
    if Store.Named.late?(store),
      do: page_through(&Store.arrived(store, &1), & &1.ids, prefix, limit, limit: @page),
      else: {:ok, []}
  end

  # Those of other resources may be on all pages before.
  defp page_through(read, ids, prefix, limit, opts, found \\ []) do
    with {:ok, page} <- read.(opts) do
      found = Enum.uniq(found ++ Enum.filter(ids.(page), &String.starts_with?(&1, prefix)))

      if page.next == nil or length(found) >= limit,
        do: {:ok, found},
        else: page_through(read, ids, prefix, limit, Keyword.put(opts, :after, page.next), found)
    end
  end

  @doc """
  Deletes the conversations of a resource whose records are gone, however those were deleted, and returns `{:ok, count}` or
  `{:error, error}`.

  Archived records count as existing, whatever the resource's read actions and its base filter show. Call it from a daily
  job, for instance. It reads the keys of all records.

  ## Options

  #{Options.docs(@sweep)}

  ## Examples

      AshAgent.Conversation.Upkeep.sweep(MyApp.Chat.Conversation, tenant: "acme")
      #=> {:ok, 2}
  """
  @doc since: "0.1.0"
  @spec sweep(module(), keyword()) :: {:ok, non_neg_integer()} | {:error, Exception.t()}
  def sweep(resource, opts \\ []) do
    opts = Options.validate!(opts, @sweep)
    store = Info.store(resource, opts[:tenant])
    until = DateTime.add(DateTime.utc_now(), -opts[:older_than], :second)
    # The store is read first, so that a record made in between is among the records.
    with {:ok, stored} <-
           list_stored(store, Info.prefix(resource), by: :created_at, until: until),
         {:ok, ids} <- ids(resource, opts[:tenant]) do
      gone = stored -- Enum.map(ids, &Info.key(resource, &1))

      Enum.reduce_while(gone, {:ok, 0}, fn key, {:ok, count} ->
        case Store.delete(store, key) do
          :ok -> {:cont, {:ok, count + 1}}
          {:error, :not_found} -> {:cont, {:ok, count}}
          {:error, error} -> {:halt, {:error, error}}
        end
      end)
    end
  end

  defp list_stored(store, prefix, opts, found \\ []) do
    with {:ok, page} <- Store.list(store, [limit: @page] ++ opts) do
      found =
        found ++ for %{id: id} <- page.conversations, String.starts_with?(id, prefix), do: id

      if page.next,
        do: list_stored(store, prefix, Keyword.put(opts, :after, page.next), found),
        else: {:ok, found}
    end
  end

  defp ids(resource, tenant) do
    # Past all preparations: those of AshArchival would hide records that are there.
    query = Ash.DataLayer.resource_to_query(resource, Ash.Resource.Info.domain(resource))

    with {:ok, query} <- in_tenant(query, resource, tenant),
         {:ok, records} <- Ash.DataLayer.run_query(query, resource),
         do: {:ok, Enum.map(records, &Info.id/1)}
  end

  defp in_tenant(query, resource, tenant) do
    if Ash.Resource.Info.multitenancy_strategy(resource) == :context,
      do: Ash.DataLayer.set_tenant(resource, query, Ash.ToTenant.to_tenant(tenant, resource)),
      else: {:ok, query}
  end
end
