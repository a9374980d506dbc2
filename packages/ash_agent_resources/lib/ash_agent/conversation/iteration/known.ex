defmodule AshAgent.Conversation.Iteration.Known do
  @moduledoc false

  # The store may keep other conversations, and those of other tenants, in the same table.

  use Ash.Resource.Preparation

  import Ash.Expr

  alias Ash.Resource.Info
  alias AshAgent.Conversation.Info, as: Conversation

  @impl true
  def prepare(%{resource: resource} = query, _opts, _context) do
    conversation = Conversation.conversation(resource)
    key = Conversation.primary_key(conversation)

    query
    |> Ash.Query.before_action(&check_tenant(&1, conversation))
    |> Ash.Query.do_filter(expr(exists(conversation, not is_nil(^ref(key)))))
  end

  # Not before: Ash prepares an aggregate to sort conversations by before it gives it their tenant.
  defp check_tenant(%{tenant: nil} = query, conversation) do
    if Info.multitenancy_strategy(conversation) == :attribute and
         not Info.multitenancy_global?(conversation) do
      required = Ash.Error.Invalid.TenantRequired.exception(resource: query.resource)
      Ash.Query.add_error(query, required)
    else
      query
    end
  end

  defp check_tenant(query, _conversation), do: query
end
