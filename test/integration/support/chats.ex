if Code.ensure_loaded?(Ash.Resource) do
  defmodule AshAgent.Integration.Heard do
    @moduledoc false
    # Sends notifications to the process that the test has named.
    use Ash.Notifier

    @impl true
    def notify(%{action: action, data: data, metadata: metadata}) do
      listener = Application.get_env(:ash_agent_context, :listener)
      if listener, do: send(listener, {:heard, action.name, data.id, metadata})
      :ok
    end
  end

  defmodule AshAgent.Integration.Chats do
    @moduledoc false

    # Conversations as resources. The model, and the process that tools report to, are those of the test.

    alias AshAgent.Store

    def llm, do: Application.fetch_env!(:ash_agent_context, :llm)

    def tools(_record) do
      %{
        whoami: %{function: &whoami/2, repeat: :safe},
        delete: fn arguments, context ->
          {:ok, %{"deleted" => arguments["path"], "by" => context.actor.name}}
        end
      }
    end

    defp whoami(_arguments, context) do
      {:ok,
       %{"name" => context.actor.name, "org" => context.tenant, "id" => context.conversation_id}}
    end

    def approval(%{name: "delete"}, _context), do: :ask
    def approval(_call, _context), do: :approve

    def system_prompt(record), do: "You talk about #{record.title || "anything"}."

    @doc "The store of the resource without a database."
    def store(_tenant), do: AshAgent.Integration.Conversations

    @doc "The tables of a tenant."
    def migrate(prefix \\ nil) do
      opts = if prefix, do: [prefix: prefix], else: []

      {:ok, _} =
        Store.Postgres.Migrations.migrate(Store.Postgres.new(AshAgent.Integration.Repo, opts))
    end

    @doc "The statement that makes the table, in a tenant's schema if there is one."
    def table(prefix \\ "") do
      "CREATE TABLE #{prefix}chats (id uuid PRIMARY KEY, title text, owner text, org text, " <>
        "inserted_at timestamp NOT NULL, updated_at timestamp NOT NULL)"
    end

    defmacro __using__(_opts) do
      quote do
        attributes do
          uuid_primary_key(:id)
          attribute(:title, :string, public?: true)
          attribute(:owner, :string)
          attribute(:org, :string, public?: true)
        end

        changes do
          change(set_attribute(:owner, expr(^actor(:name))), on: [:create])
        end

        policies do
          policy action([:approve, :deny]) do
            authorize_if(actor_attribute_equals(:role, :manager))
          end

          policy action_type([:read, :update, :destroy]) do
            authorize_if(expr(^ref(:owner) == ^actor(:name)))
            authorize_if(actor_attribute_equals(:role, :manager))
          end

          policy action_type(:create) do
            authorize_if(actor_present())
          end
        end
      end
    end
  end

  defmodule AshAgent.Integration.MemoryChat do
    @moduledoc false
    use Ash.Resource,
      domain: AshAgent.Integration.Talk,
      data_layer: Ash.DataLayer.Ets,
      authorizers: [Ash.Policy.Authorizer],
      notifiers: [AshAgent.Integration.Heard],
      extensions: [AshAgent.Conversation]

    use AshAgent.Integration.Chats

    multitenancy do
      strategy(:attribute)
      attribute(:org)
    end

    conversation do
      llm(&AshAgent.Integration.Chats.llm/0)
      tools(&AshAgent.Integration.Chats.tools/1)
      system_prompt(&AshAgent.Integration.Chats.system_prompt/1)
      approval(&AshAgent.Integration.Chats.approval/2)
      store(&AshAgent.Integration.Chats.store/1)
    end
  end

  if Code.ensure_loaded?(AshPostgres.DataLayer) do
    defmodule AshAgent.Integration.TableChat do
      @moduledoc false
      use Ash.Resource,
        domain: AshAgent.Integration.Talk,
        data_layer: AshPostgres.DataLayer,
        authorizers: [Ash.Policy.Authorizer],
        notifiers: [AshAgent.Integration.Heard],
        extensions: [AshAgent.Conversation]

      use AshAgent.Integration.Chats

      postgres do
        table("chats")
        repo(AshAgent.Integration.Repo)
      end

      multitenancy do
        strategy(:attribute)
        attribute(:org)
      end

      conversation do
        llm(&AshAgent.Integration.Chats.llm/0)
        tools(&AshAgent.Integration.Chats.tools/1)
        system_prompt(&AshAgent.Integration.Chats.system_prompt/1)
        approval(&AshAgent.Integration.Chats.approval/2)
      end
    end

    defmodule AshAgent.Integration.SchemaChat do
      @moduledoc false
      use Ash.Resource,
        domain: AshAgent.Integration.Talk,
        data_layer: AshPostgres.DataLayer,
        authorizers: [Ash.Policy.Authorizer],
        notifiers: [AshAgent.Integration.Heard],
        extensions: [AshAgent.Conversation]

      use AshAgent.Integration.Chats

      postgres do
        table("chats")
        repo(AshAgent.Integration.Repo)
      end

      multitenancy do
        strategy(:context)
      end

      conversation do
        llm(&AshAgent.Integration.Chats.llm/0)
        tools(&AshAgent.Integration.Chats.tools/1)
        system_prompt(&AshAgent.Integration.Chats.system_prompt/1)
        approval(&AshAgent.Integration.Chats.approval/2)
      end
    end
  end

  defmodule AshAgent.Integration.Open do
    @moduledoc false
    # Of resources that a test makes.
    use Ash.Domain, validate_config_inclusion?: false

    resources do
      allow_unregistered?(true)
    end
  end

  defmodule AshAgent.Integration.Talk do
    @moduledoc false
    use Ash.Domain, validate_config_inclusion?: false

    resources do
      resource(AshAgent.Integration.MemoryChat)

      if Code.ensure_loaded?(AshPostgres.DataLayer) do
        resource(AshAgent.Integration.TableChat)
        resource(AshAgent.Integration.SchemaChat)
      end
    end
  end
end
