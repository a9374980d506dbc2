defmodule AshAgent.Conversation.Calculation do
  @moduledoc false

  # Calculates the public values of a conversation. `stored` reads it, and the others are made from that.

  use Ash.Resource.Calculation

  alias AshAgent.{Collect, Context, Conversation, Store}

  @impl true
  def load(_query, opts, _context), do: if(opts[:show] == :stored, do: [], else: [:stored])

  @impl true
  def calculate([], _opts, _context), do: []

  def calculate([%resource{} | _] = records, [show: :stored], context) do
    store = Conversation.Info.store(resource, context.tenant)
    ids = Enum.map(records, &Conversation.Info.id/1)
    keys = Enum.map(records, &Conversation.Info.key/1)
    with :ok <- readable(resource, ids, context), do: fetch_all(store, keys)
  end

  def calculate(records, [show: name], _context),
    do: {:ok, Enum.map(records, &(&1.stored && show(name, &1.stored)))}

  # A caller may have the record from somebody else, and Ash checks no policy for calculations like these.
  defp readable(resource, ids, %{authorize?: true} = context) do
    [key] = Ash.Resource.Info.primary_key(resource)
    opts = [actor: context.actor, tenant: context.tenant, authorize?: true]

    with {:ok, seen} <-
           resource
           |> Ash.Query.select([key])
           |> Ash.Query.do_filter([{key, [in: ids]}])
           |> Ash.read([page: false] ++ opts) do
      if length(seen) == length(Enum.uniq(ids)),
        do: :ok,
        else: {:error, Ash.Error.Forbidden.exception([])}
    end
  end

  defp readable(_resource, _ids, _context), do: :ok

  defp fetch_all(store, keys) do
    Collect.map(keys, fn key ->
      case Store.fetch(store, key) do
        {:ok, stored} -> {:ok, stored}
        {:error, :not_found} -> {:ok, nil}
        {:error, reason} -> {:error, Conversation.Error.exception(reason: reason)}
      end
    end)
  end

  defp show(:context, stored), do: stored.value
  defp show(:transcript, stored), do: transcript(stored)
  defp show(:last_message, stored), do: stored |> transcript() |> List.last()
  defp show(:message_count, stored), do: Context.count_messages(stored.value)
  defp show(:current_iteration, stored), do: stored.value.current_iteration
  defp show(:pending_tool_calls, stored), do: Context.Calls.undecided_tool_calls(stored.value)

  defp show(:total_tokens, stored),
    do: Context.Tokens.get_cumulative_tokens(stored.value).total_tokens

  defp show(:status, stored), do: stored.status
  defp show(:revision, stored), do: stored.revision
  defp show(:last_activity_at, stored), do: stored.updated_at
  defp show(:due, stored), do: Conversation.Info.due?(stored)

  # The system prompt is the application's.
  defp transcript(stored) do
    stored.value
    |> Context.to_messages()
    |> Enum.reject(&(&1.role == :system))
    |> Conversation.Asker.hide()
  end
end
