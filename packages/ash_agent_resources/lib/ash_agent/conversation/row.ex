defmodule AshAgent.Conversation.Row do
  @moduledoc false

  # Calculations that the database makes of the stored row, so that lists can be filtered and sorted by them; among them,
  # which turns are due, as `Info.due?/1` decides for other stores.

  use Ash.Resource.Calculation

  import Ash.Expr

  alias AshAgent.Conversation.Info

  # A message with results of its tool calls is followed by one that has them.
  @messages """
  (select coalesce(sum(case when jsonb_path_exists(m, '$.tool_calls[*].result') then 2 else 1 end), 0)
    from {iterations} as i, jsonb_array_elements(i.document -> 'messages') as m where i.conversation_id = c.id)
  + (select count(*) from {branches} as b
    where b.conversation_id = c.id and coalesce(jsonb_typeof(b.document -> 'system'), 'null') <> 'null')
  """

  # Nobody runs it, and there is something to do. Of a message that has just been stored, the turn is about to begin.
  @due """
  (c.owner is null or c.lease_until < statement_timestamp()) and (c.status = 'running' or c.status not in ('paused', 'parked') and exists (
    select 1 from {prompts} as p where p.conversation_id = c.id and p.revision is null and p.kind = 'prompt'
      and p.at < statement_timestamp() - interval '10 seconds'))
  """

  # The write that ended a turn has a note, see `AshAgent.Runtime.Ended`.
  @ended """
  (select h.document -> ':ended' from {history} as h
    where h.conversation_id = c.id and jsonb_exists(h.document, ':ended') order by h.revision desc limit 1)
  """

  @columns [
    status: "c.status",
    last_outcome: "#{@ended} ->> 'outcome'",
    last_error: "#{@ended} -> 'error'",
    revision: "c.revision",
    last_activity_at: "c.updated_at",
    message_count: @messages,
    due: @due
  ]

  @doc "The names of these calculations."
  def list_shown, do: Keyword.keys(@columns)

  @impl true
  def expression([show: name, conversation: resource], %{tenant: tenant}) do
    # Ash looks at expressions before it knows their tenant. Only one that becomes SQL is refused.
    if tenant == nil and Info.schemas?(resource),
      do: call(:lazy, [{Info, :schema, [resource, nil]}]),
      else: select(name, resource, Info.schema(resource, tenant))
  end

  defp select(name, resource, schema) do
    row = "(select #{@columns[name]} from {conversations} as c where c.id = ? || cast(? as text))"

    # In a fragment, everything but the question marks is text.
    select =
      Map.get(%{status: "coalesce(#{row}, 'idle')"}, name, row)
      |> String.replace(~r/\{(\w+)\}/, fn table ->
        name = String.trim(table, "{") |> String.trim("}")
        String.replace("#{schema}ash_agent_#{name}", "?", "\\?")
      end)

    key = ref(Info.primary_key(resource))
    prefix = expr(type(^Info.prefix(resource), :string))
    call(:fragment, [select, prefix, key])
  end

  defp call(name, args), do: %Ash.Query.Call{name: name, args: args, operator?: false}
end
