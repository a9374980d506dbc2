defmodule AshAgent.Conversation.Waiting do
  @moduledoc false

  # The read action `:waiting`: records with calls that wait for a late result, which `waiting_calls` of each lists. With AshPostgres' own store
  # the database finds them, so pages are those of Ash.

  use Ash.Resource.Preparation

  alias Ash.Query
  alias AshAgent.Conversation
  alias AshAgent.Conversation.{Info, Row}
  alias AshAgent.Store

  @page 1_000

  @impl true
  def prepare(query, _opts, _context),
    do: query |> Query.load(:waiting_calls) |> Query.before_action(&filter/1)

  defp filter(%{resource: resource, tenant: tenant} = query) do
    whom =
      case Query.fetch_argument(query, :for) do
        {:ok, whom} when whom != nil -> [for: whom]
        _all -> []
      end

    if Info.tables?(resource) do
      Query.do_filter(query, Row.waiting(resource, tenant, whom))
    else
      case list_ids(Info.store(resource, tenant), Info.prefix(resource), whom) do
        {:ok, ids} -> Query.do_filter(query, [{Info.primary_key(resource), [in: ids]}])
        {:error, error} -> Query.add_error(query, Conversation.Error.exception(reason: error))
      end
    end
  end

  defp list_ids(store, prefix, opts, found \\ MapSet.new()) do
    with {:ok, page} <- Store.waiting_calls(store, [limit: @page] ++ opts) do
      own =
        for %{id: id} <- page.calls,
            String.starts_with?(id, prefix),
            do: String.replace_prefix(id, prefix, "")

      found = Enum.into(own, found)
      opts = Keyword.put(opts, :after, page.next)
      if page.next, do: list_ids(store, prefix, opts, found), else: {:ok, MapSet.to_list(found)}
    end
  end

  @doc "The calls of a conversation that wait, as `waiting_calls` shows them."
  def list(store, key) do
    if Store.Named.late?(store), do: list_all(store, id: key, limit: @page), else: {:ok, []}
  end

  defp list_all(store, opts) do
    with {:ok, page} <- Store.waiting_calls(store, opts),
         calls = Enum.map(page.calls, &show/1),
         {:ok, more} <-
           if(page.next, do: list_all(store, [after: page.next] ++ opts), else: {:ok, []}),
         do: {:ok, calls ++ more}
  end

  defp show(%{call: call} = waiting) do
    waiting
    |> Map.take([:key, :for, :since, :deadline])
    |> Map.merge(Map.take(call, [:name, :arguments, :iteration]))
    |> Map.merge(%{call_id: call[:id], question: call[:question] || false})
  end
end
