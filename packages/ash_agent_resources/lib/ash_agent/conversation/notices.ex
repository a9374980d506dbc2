defmodule AshAgent.Conversation.Notices do
  @moduledoc false

  # Notifies notifiers of a resource of a turn: of pieces of an answer, and of its end. They are notifications of the action
  # `:delta`, since Ash knows only those of actions.

  alias Ash.Notifier.Notification
  alias AshAgent.Conversation.Info
  alias AshAgent.Section

  @doc "The function of a run that passes on the pieces of an answer, and events to the one that was given."
  def watch(turn, own) do
    if heard?(turn) do
      pieces = :counters.new(1, [])

      fn event, measurements, metadata ->
        pass_on(turn, pieces, event, metadata)
        Section.tell(own, event, measurements, metadata)
      end
    else
      own
    end
  end

  @doc "Says that a message is stored, before the model is asked."
  def notify_said(turn, id), do: if(heard?(turn), do: notify(turn, %{said: id}))

  @doc "Says that a turn is over: `:answered`, `:paused` or `:failed`."
  def notify_ended(turn, how), do: if(heard?(turn), do: notify(turn, %{ended: how}))

  @doc "Says that the model has written a title."
  def notify_titled(turn, title), do: if(heard?(turn), do: notify(turn, %{titled: title}))

  defp heard?(%{resource: resource}),
    do: Info.option(resource, :deltas) and Ash.Resource.Info.notifiers(resource) != []

  # On their way to other nodes, pieces may pass each other.
  defp pass_on(turn, pieces, [_, _, :llm, :delta], %{events: events, iteration: iteration}) do
    :counters.add(pieces, 1, 1)
    number = :counters.get(pieces, 1)
    notify(turn, %{events: events, iteration: iteration, number: number})
  end

  defp pass_on(_turn, _pieces, _event, _metadata), do: :ok

  defp notify(%{record: record, resource: resource} = turn, metadata) do
    changeset =
      record |> Ash.Changeset.new() |> Ash.Changeset.set_tenant(turn.runtime_context.tenant)

    Ash.Notifier.notify(%Notification{
      resource: resource,
      domain: turn.domain,
      action: Ash.Resource.Info.action(resource, :delta),
      data: record,
      changeset: changeset,
      metadata: metadata
    })
  end
end
