defmodule AshAgent.Integration.Heard do
  @moduledoc false
  # Sends notifications to the process that the test has named.
  use Ash.Notifier

  @impl true
  def notify(%{action: action, data: data, metadata: metadata}) do
    listener = Application.get_env(:ash_agent_resources, :listener)
    if listener, do: send(listener, {:heard, action.name, data.id, metadata})
    :ok
  end
end

defmodule AshAgent.Integration.Chats do
  @moduledoc false

  # Conversations as resources. The model, and the process that tools report to, are those of the test.

  alias AshAgent.Store

  def llm, do: Application.fetch_env!(:ash_agent_resources, :llm)

  def tools(_record),
    do: Application.get_env(:ash_agent_resources, :tools, &default_tools/0).()

  defp default_tools do
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

  @doc "Makes the tables of a resource, without anything in them."
  def tables(AshAgent.Integration.TableChat) do
    query!("DROP TABLE IF EXISTS chats")
    query!(table())
    migrate([])
  end

  def tables(AshAgent.Integration.SchemaChat) do
    for schema <- ~w(acme other) do
      query!("DROP SCHEMA IF EXISTS #{schema} CASCADE")
      query!("CREATE SCHEMA #{schema}")
      query!(table("#{schema}."))
      migrate(prefix: schema)
    end

    :ok
  end

  def tables(_no_tables), do: :ok

  defp query!(statement), do: AshAgent.Integration.Repo.query!(statement)

  defp migrate(opts) do
    store = Store.Postgres.new(AshAgent.Integration.Repo, opts)
    {:ok, _} = Store.Postgres.Migrations.migrate(store)
    :ok
  end

  defp table(prefix \\ "") do
    "CREATE TABLE #{prefix}chats (id uuid PRIMARY KEY, title text, owner text, org text, " <>
      "inserted_at timestamp NOT NULL, updated_at timestamp NOT NULL)"
  end

  defmacro __using__(opts) do
    # Spark reads the list, not what it comes to.
    opts =
      [
        domain: AshAgent.Integration.Talk,
        authorizers: [Ash.Policy.Authorizer],
        notifiers: [AshAgent.Integration.Heard],
        extensions: [AshAgent.Conversation]
      ] ++ opts

    quote do
      use Ash.Resource, unquote(opts)

      conversation do
        llm(&AshAgent.Integration.Chats.llm/0)
        tools(&AshAgent.Integration.Chats.tools/1)
        system_prompt(&AshAgent.Integration.Chats.system_prompt/1)
        approval(&AshAgent.Integration.Chats.approval/2)
      end

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
        policy action([:approve, :deny, :answer, :arrive]) do
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
  use AshAgent.Integration.Chats, data_layer: Ash.DataLayer.Ets

  multitenancy do
    strategy(:attribute)
    attribute(:org)
  end

  conversation do
    store(&AshAgent.Integration.Chats.store/1)
  end
end

if Code.ensure_loaded?(AshPostgres.DataLayer) do
  defmodule AshAgent.Integration.TableChat do
    @moduledoc false
    use AshAgent.Integration.Chats, data_layer: AshPostgres.DataLayer

    postgres do
      table("chats")
      repo(AshAgent.Integration.Repo)
    end

    multitenancy do
      strategy(:attribute)
      attribute(:org)
    end

    aggregates do
      count(:iteration_count, :iterations)
    end

    conversation do
      iterations(AshAgent.Integration.TableIteration)
    end
  end

  defmodule AshAgent.Integration.SchemaChat do
    @moduledoc false
    use AshAgent.Integration.Chats, data_layer: AshPostgres.DataLayer

    postgres do
      table("chats")
      repo(AshAgent.Integration.Repo)
    end

    multitenancy do
      strategy(:context)
    end

    aggregates do
      count(:iteration_count, :iterations)
    end

    conversation do
      iterations(AshAgent.Integration.SchemaIteration)
    end
  end

  defmodule AshAgent.Integration.Iterations do
    @moduledoc false

    defmacro __using__(of: chat) do
      quote do
        use Ash.Resource,
          domain: AshAgent.Integration.Talk,
          data_layer: AshPostgres.DataLayer,
          authorizers: [Ash.Policy.Authorizer],
          extensions: [AshAgent.Conversation.Iteration]

        iteration do
          conversation(unquote(chat))
        end

        policies do
          bypass actor_attribute_equals(:role, :auditor) do
            authorize_if(always())
          end

          policy always() do
            forbid_if(actor_attribute_equals(:role, :guest))
            authorize_if(always())
          end
        end
      end
    end
  end

  defmodule AshAgent.Integration.TableIteration do
    @moduledoc false
    use AshAgent.Integration.Iterations, of: AshAgent.Integration.TableChat
  end

  defmodule AshAgent.Integration.SchemaIteration do
    @moduledoc false
    use AshAgent.Integration.Iterations, of: AshAgent.Integration.SchemaChat
  end
end

defmodule AshAgent.Integration.ParsedChat do
  @moduledoc false
  # Its tenants are not what its records have.
  use Ash.Resource,
    domain: AshAgent.Integration.Open,
    data_layer: Ash.DataLayer.Ets,
    extensions: [AshAgent.Conversation]

  multitenancy do
    strategy(:attribute)
    attribute(:org)
    parse_attribute({String, :trim_leading, ["org_"]})
  end

  attributes do
    uuid_primary_key(:id)
    attribute(:org, :string)
  end

  conversation do
    store(:s)
    llm(AshAgent.LLM.Ollama)
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
      resource(AshAgent.Integration.TableIteration)
      resource(AshAgent.Integration.SchemaIteration)
    end
  end
end
