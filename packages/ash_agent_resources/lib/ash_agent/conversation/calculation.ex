defmodule AshAgent.Conversation.Calculation do
  @moduledoc false

  # Calculates the public values of a conversation. `stored` reads it, and the others are made from that.

  use Ash.Resource.Calculation

  alias AshAgent.{Collect, Context, Conversation, Store}
  alias AshAgent.Conversation.Row
  alias AshAgent.Runtime.{Ended, Spent}

  @spent Keyword.keys(Row.list_spent())

  @impl true
  def load(_query, opts, _context),
    do: if(opts[:show] in [:stored, :waiting_calls], do: [], else: [:stored])

  @impl true
  def calculate([], _opts, _context), do: []

  def calculate([%resource{} | _] = records, [show: :stored], context) do
    store = Conversation.Info.store(resource, context.tenant)
    ids = Enum.map(records, &Conversation.Info.id/1)
    keys = Enum.map(records, &Conversation.Info.key/1)
    with :ok <- readable(resource, ids, context), do: fetch_all(store, keys)
  end

  def calculate([%resource{} | _] = records, [show: :waiting_calls], context) do
    store = Conversation.Info.store(resource, context.tenant)
    ids = Enum.map(records, &Conversation.Info.id/1)

    with :ok <- readable(resource, ids, context) do
      Collect.map(records, fn record ->
        with {:error, reason} <- Conversation.Waiting.list(store, Conversation.Info.key(record)),
             do: {:error, Conversation.Error.exception(reason: reason)}
      end)
    end
  end

  def calculate([%resource{} | _] = records, [show: name], context)
      when name in [:last_outcome, :last_error] do
    store = Conversation.Info.store(resource, context.tenant)

    Collect.map(records, fn record ->
      with {:ok, ended} <- fetch_ended(store, record.stored), do: {:ok, ended && ended[name]}
    end)
  end

  def calculate([%resource{} | _] = records, [show: name], context) when name in @spent do
    store = Conversation.Info.store(resource, context.tenant)
    Collect.map(records, &spent(store, &1.stored, name))
  end

  def calculate(records, [show: name], _context),
    do: {:ok, Enum.map(records, &if(&1.stored, do: show(name, &1.stored), else: unsaid(name)))}

  # A record that seeds or an import made has no conversation before its first message.
  defp unsaid(:status), do: :idle
  defp unsaid(_name), do: nil

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

  # Nearly always, it is one of the last writes.
  @looks [20, 1_000]

  defp fetch_ended(store, stored, looks \\ @looks)
  defp fetch_ended(_store, nil, _looks), do: {:ok, nil}
  defp fetch_ended(_store, _stored, []), do: {:ok, nil}

  defp fetch_ended(store, stored, [look | looks]) do
    opts = [after: max(stored.revision - look, 0), limit: look]

    case Store.history(store, stored.id, opts) do
      {:ok, writes} ->
        case Ended.find(writes) do
          nil -> fetch_ended(store, stored, looks)
          ended -> {:ok, %{last_outcome: ended.outcome, last_error: ended.error}}
        end

      {:error, reason} ->
        {:error, Conversation.Error.exception(reason: reason)}
    end
  end

  defp spent(_store, nil, _name), do: {:ok, nil}

  defp spent(store, stored, name) do
    case Spent.fetch(store, stored.id) do
      {:ok, sums, _outcome} -> {:ok, show_sum(name, sums)}
      {:error, reason} -> {:error, Conversation.Error.exception(reason: reason)}
    end
  end

  defp show_sum(:cost, %{cost: cost}), do: cost && Decimal.new(1, cost, -12)
  defp show_sum(:prices_digest, sums), do: sums.prices
  defp show_sum(:unpriced_answers, sums), do: sums.unpriced
  defp show_sum(name, sums), do: sums[name]

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
    |> mark(answers(stored.value))
    |> Conversation.Asker.hide()
  end

  # The answers of the log, each with how it ended.
  defp answers(context) do
    for number <- 1..context.current_iteration//1,
        {%{role: :assistant} = message, at} <-
          Enum.with_index(Context.get_iteration_messages(context, number)),
        {:ok, %{response: response}} <- [Context.fetch_message(context, {number, at})],
        do: {message, outcome(response)}
  end

  defp outcome(%{state: :interrupted}), do: :interrupted
  defp outcome(response), do: Ended.finished(response[:finish_reason])

  # Whoever reads it sees which answers are half, filtered or failed. A view may show fewer messages than the log has.
  defp mark([%{role: :assistant} = message | messages], answers) do
    case Enum.drop_while(answers, fn {answer, _outcome} -> answer != message end) do
      [{_answer, :answered} | answers] -> [message | mark(messages, answers)]
      [{_, outcome} | answers] -> [Map.put(message, :outcome, outcome) | mark(messages, answers)]
      [] -> [message | mark(messages, answers)]
    end
  end

  defp mark([message | messages], answers), do: [message | mark(messages, answers)]
  defp mark([], _answers), do: []
end
