defmodule AshAgent.Conversation.Iteration.Content do
  @moduledoc false

  # Reads an iteration from its document.

  use Ash.Resource.Calculation

  alias AshAgent.{Collect, Context, Store}
  alias AshAgent.Conversation.{Asker, Info}

  @impl true
  def load(_query, _opts, _context), do: [:document, :number]

  @impl true
  def calculate(records, _opts, context) do
    with {:ok, contents} <- read(records), do: {:ok, hide(contents, records, context)}
  end

  # The words of a transcript that a field policy hides are here as well.
  defp hide(contents, [%resource{} | _] = records, %{authorize?: true} = context) do
    conversation = Info.conversation(resource)

    if Info.hides_transcript?(conversation) do
      shown = read_shown(conversation, records, context)

      for {content, record} <- Enum.zip(contents, records) do
        if record.conversation_id in shown,
          do: content,
          else: %Ash.ForbiddenField{field: :content, type: :calculation}
      end
    else
      contents
    end
  end

  defp hide(contents, _records, _context), do: contents

  defp read_shown(conversation, records, context) do
    key = Info.primary_key(conversation)
    ids = records |> Enum.map(& &1.conversation_id) |> Enum.uniq()
    opts = [actor: context.actor, tenant: context.tenant, authorize?: true, page: false]

    conversation
    |> Ash.Query.do_filter([{key, [in: ids]}])
    |> Ash.Query.load(:transcript)
    |> Ash.read!(opts)
    |> Enum.reject(&is_struct(&1.transcript, Ash.ForbiddenField))
    |> Enum.map(&Info.id/1)
  end

  defp read(records) do
    head = "" |> Context.new(id: "-") |> Context.dump()

    Collect.map(records, fn record ->
      case Context.load(%{head | "iterations" => [record.document]}) do
        {:ok, context} ->
          iteration = Context.get_iteration(context, record.number)
          {:ok, Map.update!(iteration, :messages, &Asker.hide/1)}

        {:error, _error} ->
          reason = %Store.Error{reason: {:corrupt, "what the table holds is not an iteration"}}
          {:error, AshAgent.Conversation.Error.exception(reason: reason)}
      end
    end)
  end
end
