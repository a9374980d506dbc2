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
    [key] = Info.primary_key(conversation)

    if query.tenant == nil and Info.multitenancy_strategy(conversation) == :attribute and
         not Info.multitenancy_global?(conversation) do
      required = Ash.Error.Invalid.TenantRequired.exception(resource: resource)
      Ash.Query.add_error(query, required)
    else
      Ash.Query.do_filter(query, expr(exists(conversation, not is_nil(^ref(key)))))
    end
  end
end
