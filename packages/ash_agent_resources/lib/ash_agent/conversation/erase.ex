defmodule AshAgent.Conversation.Erase do
  @moduledoc false

  # The action `:erase`: deletes the records of a filter for good, archived ones included, with their conversations and the
  # forks of these, and returns a receipt. It goes past all preparations, which may hide records.

  use Ash.Resource.Actions.Implementation

  alias AshAgent.{Conversation, Store}
  alias AshAgent.Conversation.Info

  @impl true
  def run(%{resource: resource, arguments: %{filter: filter}} = input, _opts, context) do
    with :ok <- check_filter(filter),
         query = Ash.Query.filter_input(resource, filter),
         {:ok, records} <- read(query, input.domain, context.tenant),
         {:ok, receipt} <- erase(Info.store(resource, context.tenant), records),
         {:ok, forks} <- forks(resource, receipt.ids, records, input.domain, context.tenant),
         {:ok, count} <- destroy(records ++ forks, input.domain, context.tenant),
         do: {:ok, Map.put(receipt, :records, count)}
  end

  defp check_filter(filter) when filter == %{},
    do: {:error, Ash.Error.Action.InvalidArgument.exception(field: :filter, message: "is empty")}

  defp check_filter(_filter), do: :ok

  defp read(%{valid?: false} = query, _domain, _tenant), do: {:error, query.errors}

  defp read(%{resource: resource} = query, domain, tenant) do
    strategy = Ash.Resource.Info.multitenancy_strategy(resource)
    query = query |> in_tenant(strategy, tenant) |> Ash.Query.set_tenant(tenant)

    with {:ok, query} <- Ash.Query.data_layer_query(%{query | domain: domain}),
         do: Ash.DataLayer.run_query(query, resource)
  end

  defp in_tenant(%{resource: resource} = query, :attribute, tenant) do
    attribute = Ash.Resource.Info.multitenancy_attribute(resource)
    {module, function, args} = Ash.Resource.Info.multitenancy_parse_attribute(resource)
    value = apply(module, function, [Ash.ToTenant.to_tenant(tenant, resource) | args])
    Ash.Query.do_filter(query, [{attribute, value}])
  end

  defp in_tenant(query, _strategy, _tenant), do: query

  defp erase(store, records) do
    case Store.erase(store, ids: Enum.map(records, &Info.key/1)) do
      {:ok, receipt} -> {:ok, receipt}
      {:error, reason} -> {:error, Conversation.Error.exception(reason: reason)}
    end
  end

  # Their conversations are gone.
  defp forks(resource, keys, records, domain, tenant) do
    prefix = Info.prefix(resource)

    own =
      for key <- keys,
          String.starts_with?(key, prefix),
          do: String.replace_prefix(key, prefix, "")

    case own -- Enum.map(records, &Info.id/1) do
      [] ->
        {:ok, []}

      ids ->
        resource
        |> Ash.Query.do_filter([{Info.primary_key(resource), [in: ids]}])
        |> read(domain, tenant)
    end
  end

  # Not the destroy actions, which may archive.
  defp destroy(records, domain, tenant) do
    Enum.reduce_while(records, {:ok, 0}, fn %resource{} = record, {:ok, count} ->
      changeset = record |> Ash.Changeset.new() |> Ash.Changeset.set_tenant(tenant)
      changeset = %{changeset | domain: domain, action_type: :destroy}

      case Ash.DataLayer.destroy(resource, changeset) do
        :ok -> {:cont, {:ok, count + 1}}
        {:error, error} -> {:halt, {:error, error}}
      end
    end)
  end
end
