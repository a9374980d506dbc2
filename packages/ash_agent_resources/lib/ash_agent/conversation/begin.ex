defmodule AshAgent.Conversation.Begin do
  @moduledoc false

  # Begins turns whose action was called in a transaction. Ash sends notifications after the commit, and drops them with a
  # rollback: this notifier passes them to this module only.

  use Ash.Notifier

  @doc "The notification that begins a turn with the function `begin`."
  def later(changeset, record, begin) do
    %Ash.Notifier.Notification{
      resource: changeset.resource,
      domain: changeset.domain,
      action: changeset.action,
      data: record,
      changeset: changeset,
      for: [__MODULE__],
      metadata: %{begin: begin}
    }
  end

  @impl true
  def notify(%{metadata: %{begin: begin}}) do
    begin.()
    :ok
  end
end
