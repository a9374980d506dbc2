defmodule AshAgent.Integration.TitledChats do
  @moduledoc false
  use Ash.Domain, validate_config_inclusion?: false

  resources do
    resource(AshAgent.Integration.TitledChat)
  end
end

defmodule AshAgent.Integration.TitledChat do
  @moduledoc false
  use Ash.Resource,
    domain: AshAgent.Integration.TitledChats,
    data_layer: Ash.DataLayer.Ets,
    authorizers: [Ash.Policy.Authorizer],
    notifiers: [AshAgent.Integration.Heard],
    extensions: [AshAgent.Conversation]

  attributes do
    uuid_primary_key(:id)
    attribute(:title, :string, public?: true, constraints: [max_length: 60])
    attribute(:owner, :string)
  end

  changes do
    change(set_attribute(:owner, actor(:name)), on: [:create])
  end

  conversation do
    store(AshAgent.Integration.TitledChatStore)
    llm(fn -> Application.fetch_env!(:ash_agent_resources, :llm) end)
    title(:title)
    title_llm(fn -> Application.fetch_env!(:ash_agent_resources, :title_llm) end)
  end

  policies do
    policy action_type(:create) do
      authorize_if(actor_present())
    end

    policy action_type(:read) do
      authorize_if(expr(owner == ^actor(:name)))
    end

    # People name their conversations with an action of their own.
    policy action(:put_title) do
      forbid_if(always())
    end

    policy action([:say, :resume]) do
      authorize_if(expr(owner == ^actor(:name)))
    end
  end

  actions do
    update :name do
      accept([:title])
    end
  end
end
