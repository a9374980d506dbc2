defmodule AshAgent.Conversation.Row do
  @moduledoc false

  # Calculations that the database makes of the stored row, so that lists can be filtered and sorted by them; among them,
  # which turns are due, as `Info.due?/1` decides for other stores.

  use Ash.Resource.Calculation

  import Ash.Expr

  alias AshAgent.Conversation.Info

  # A message with results of its tool calls is followed by one that has them. A late result stands alone.
  @messages """
  (select coalesce(sum(case when jsonb_path_exists(m, '$.tool_calls[*].result') and not jsonb_path_exists(m, '$.arrival')
    then 2 else 1 end), 0)
    from {iterations} as i, jsonb_array_elements(i.document -> 'messages') as m where i.conversation_id = c.id)
  + (select count(*) from {branches} as b
    where b.conversation_id = c.id and coalesce(jsonb_typeof(b.document -> 'system'), 'null') <> 'null')
  """

  # Nobody runs it, and there is something to do. Of a message or a late result that has just been stored, the turn is about to begin.
  @due """
  (c.owner is null or c.lease_until < statement_timestamp()) and (c.status = 'running' or c.status not in ('paused', 'parked') and exists (
    select 1 from {prompts} as p where p.conversation_id = c.id and p.revision is null and p.kind = 'prompt'
      and p.at < statement_timestamp() - interval '10 seconds')
    or c.status in ('idle', 'waiting') and exists (select 1 from {arrivals} as a
      where a.conversation_id = c.id and a.revision is null and a.at < statement_timestamp() - interval '10 seconds'))
  """

  # The write that ended a turn has a note, see `AshAgent.Runtime.Ended`.
  @ended """
  (select h.document -> ':ended' from {history} as h
    where h.conversation_id = c.id and jsonb_exists(h.document, ':ended') order by h.revision desc limit 1)
  """

  # What writes have spent, see `AshAgent.Runtime.Spent`. Those of earlier releases have the tokens of an answer, and not its price.
  @tokens ~w(input_tokens output_tokens cached_tokens cache_write_tokens reasoning_tokens)a
  @spent "h.document -> ':spent'"
  @cost "sum(cast(#{@spent} ->> ':cost' as numeric)) * 0.000000000001"
  @prices "(array_agg(#{@spent} ->> ':prices' order by h.revision desc) filter (where jsonb_exists(#{@spent}, ':prices')))[1]"
  @unpriced "sum(cast(coalesce(#{@spent} ->> ':unpriced', case when not jsonb_exists(h.document, ':spent') then '1' end) as bigint))"

  @sums [cost: @cost, unpriced_answers: @unpriced, prices_digest: @prices] ++
          for(
            name <- @tokens,
            do:
              {name,
               "sum(cast(coalesce(#{@spent}, h.document -> ':usage') ->> ':#{name}' as bigint))"}
          )

  @all "where h.conversation_id = c.id and (jsonb_exists(h.document, ':spent') or jsonb_exists(h.document, ':usage'))"

  # As the index has it.
  @one "where h.conversation_id = ? and cast(#{@spent} ->> ':iteration' as bigint) = ?"

  @columns [
             status: "c.status",
             last_outcome: "#{@ended} ->> 'outcome'",
             last_error: "#{@ended} -> 'error'",
             revision: "c.revision",
             last_activity_at: "c.updated_at",
             message_count: @messages,
             due: @due
           ] ++
             for({name, sum} <- @sums, do: {name, "(select #{sum} from {history} as h #{@all})"})

  # No results have come for them, and they wait for somebody.
  @waiting """
  ? || cast(? as text) in (select w.conversation_id from {waits} as w where w.whom <> '' and not exists (
    select 1 from {arrivals} as a where a.conversation_id = w.conversation_id and a.key = w.key)
  """

  @doc "The filter for conversations with calls that wait: for anything, or `for:` a person or a tag."
  def waiting(resource, tenant, whom) do
    fragment = name_tables(@waiting, Info.schema(resource, tenant))
    prefix = expr(type(^Info.prefix(resource), :string))
    key = [prefix, ref(Info.primary_key(resource))]

    case whom do
      [] ->
        call(:fragment, [fragment <> ")" | key])

      [for: whom] ->
        call(
          :fragment,
          [fragment <> "and w.whom = ?)" | key] ++ [AshAgent.Store.Late.digest(whom)]
        )
    end
  end

  @doc "The names of these calculations."
  def list_shown, do: Keyword.keys(@columns)

  @doc "The names and types of those that sum up what turns have spent."
  def list_spent do
    types = [cost: :decimal, unpriced_answers: :integer, prices_digest: :string]
    for {name, _sum} <- @sums, do: {name, Keyword.get(types, name, :integer)}
  end

  @impl true
  def expression([{:show, name}, {of, resource}], %{tenant: tenant}) do
    # Ash looks at expressions before it knows their tenant. Only one that becomes SQL is refused.
    if tenant == nil and Info.schemas?(resource),
      do: call(:lazy, [{Info, :schema, [resource, nil]}]),
      else: select(of, name, resource, Info.schema(resource, tenant))
  end

  defp select(:iterations_of, name, _resource, schema) do
    sum = "(select #{@sums[name]} from {history} as h #{@one})"
    call(:fragment, [name_tables(sum, schema), ref(:conversation_id), ref(:number)])
  end

  defp select(:conversation, name, resource, schema) do
    row = "(select #{@columns[name]} from {conversations} as c where c.id = ? || cast(? as text))"
    select = name_tables(Map.get(%{status: "coalesce(#{row}, 'idle')"}, name, row), schema)
    prefix = expr(type(^Info.prefix(resource), :string))
    call(:fragment, [select, prefix, ref(Info.primary_key(resource))])
  end

  # In a fragment, everything but the question marks is text.
  defp name_tables(select, schema) do
    String.replace(select, ~r/\{(\w+)\}/, fn table ->
      name = String.trim(table, "{") |> String.trim("}")
      String.replace("#{schema}ash_agent_#{name}", "?", "\\?")
    end)
  end

  defp call(name, args), do: %Ash.Query.Call{name: name, args: args, operator?: false}
end
