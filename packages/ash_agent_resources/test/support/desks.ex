if Code.ensure_loaded?(AshPostgres.DataLayer) do
  defmodule AshAgent.Integration.Desks do
    @moduledoc false
    # A desk has the conversations of its name. It looks at what the database makes of their rows, everywhere that Ash has expressions.

    defmacro __using__(chat: chat, tenants: tenants) do
      code =
        quote do
          use Ash.Resource,
            domain: AshAgent.Integration.Open,
            data_layer: AshPostgres.DataLayer,
            authorizers: [Ash.Policy.Authorizer]

          postgres do
            table("desks")
            repo(AshAgent.Integration.Repo)
          end

          unquote(tenants)

          attributes do
            uuid_primary_key(:id)
            attribute(:name, :string, public?: true)
            attribute(:org, :string)
          end

          relationships do
            has_many :chats, unquote(chat) do
              source_attribute(:name)
              destination_attribute(:title)
            end
          end

          aggregates do
            count :paused, :chats do
              filter(expr(status == :paused))
            end

            list(:statuses, :chats, :status)
            max(:messages, :chats, :message_count)
            sum(:spent, :chats, :cost)
            sum(:spent_tokens, :chats, :input_tokens)
            sum(:spent_iterations, [:chats, :iterations], :cost)
          end

          calculations do
            calculate(:waits?, :boolean, expr(exists(chats, status == :paused)))
            calculate(:busy?, :boolean, expr(exists(chats, due or status == :running)))
            calculate(:revised?, :boolean, expr(exists(chats, revision > 0)))
          end

          actions do
            defaults([:read, create: [:name, :org]])
            read(:open)
          end

          policies do
            policy action(:open) do
              authorize_if(expr(exists(chats, status == :idle)))
            end

            policy always() do
              authorize_if(always())
            end
          end
        end

      # Fields are known by their names alone.
      Macro.prewalk(code, fn
        {name, meta, context} when is_atom(context) -> {name, meta, nil}
        other -> other
      end)
    end
  end

  defmodule AshAgent.Integration.TableDesk do
    @moduledoc false
    use AshAgent.Integration.Desks,
      chat: AshAgent.Integration.TableChat,
      tenants:
        (multitenancy do
           strategy(:attribute)
           attribute(:org)
         end)
  end

  defmodule AshAgent.Integration.SchemaDesk do
    @moduledoc false
    use AshAgent.Integration.Desks,
      chat: AshAgent.Integration.SchemaChat,
      tenants:
        (multitenancy do
           strategy(:context)
         end)
  end

  defmodule AshAgent.Integration.SharedDesk do
    @moduledoc false
    # Of all tenants, with conversations of one.
    use AshAgent.Integration.Desks, chat: AshAgent.Integration.SchemaChat, tenants: nil
  end
end
