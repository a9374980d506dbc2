defmodule AshAgent.Conversation.Iteration.Readable do
  @moduledoc false

  # A policy: iterations of the conversations that the actor can read.

  use Ash.Policy.FilterCheck

  alias AshAgent.Conversation.Info

  @can [
    run_queries?: false,
    pre_flight?: false,
    alter_source?: true,
    no_check?: true,
    maybe_is: false
  ]

  @impl true
  def describe(_opts), do: "the conversation may be read"

  @impl true
  def filter(actor, authorizer, _opts) do
    conversation = Info.conversation(authorizer.resource)
    read = Ash.Resource.Info.primary_action!(conversation, :read).name

    conversation
    |> Ash.Query.for_read(read, %{}, actor: actor, tenant: authorizer.subject.tenant)
    |> Ash.Query.select([])
    |> allow(actor)
  end

  defp allow(%{valid?: true} = query, actor) do
    case Ash.can(query, actor, @can) do
      {:ok, true, %{filter: nil}} -> true
      {:ok, true, %{filter: filter}} -> expr(exists(conversation, ^filter.expression))
      _forbidden -> false
    end
  end

  defp allow(_invalid, _actor), do: false
end
