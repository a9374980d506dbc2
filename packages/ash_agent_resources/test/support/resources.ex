defmodule AshAgent.Integration.LimitedType do
  @moduledoc false
  use Ash.Type.NewType,
    subtype_of: AshAgent.Context.AshType,
    constraints: [max_iterations: 2, accept: [:messages]]
end

defmodule AshAgent.Integration.Profile do
  @moduledoc false
  use Ash.Resource, data_layer: :embedded

  attributes do
    attribute(:name, :string, public?: true)
    attribute(:context, AshAgent.Context.AshType, public?: true)
  end
end

defmodule AshAgent.Integration.Fields do
  @moduledoc false

  # The attributes and actions of a resource that keeps conversations in every way there is.

  @doc "The messages of an argument."
  def count(input, _context),
    do: {:ok, AshAgent.Context.count_messages(input.arguments.context)}

  defmacro __using__(_opts) do
    quote do
      attributes do
        uuid_primary_key(:id)
        attribute(:context, AshAgent.Context.AshType, public?: true)

        attribute(:text, AshAgent.Context.AshType,
          public?: true,
          constraints: [storage: :text, accept: [:messages, :dump]]
        )

        attribute(:bytes, AshAgent.Context.AshType,
          public?: true,
          constraints: [storage: :text]
        )

        attribute(:given, AshAgent.Context.AshType,
          public?: true,
          constraints: [accept: [:messages, :dump], max_bytes: 100_000]
        )

        attribute(:limited, AshAgent.Integration.LimitedType, public?: true)
        attribute(:list, {:array, AshAgent.Context.AshType}, public?: true)
        attribute(:chat, AshAgent.ChatContext.AshType, public?: true)

        attribute(:chat_text, AshAgent.ChatContext.AshType,
          public?: true,
          constraints: [storage: :text, accept: [:dump]]
        )

        attribute(:embedded, AshAgent.Context.Embedded, public?: true)
        attribute(:profile, AshAgent.Integration.Profile, public?: true)
      end

      calculations do
        calculate(:copy, AshAgent.Context.AshType, expr(^ref(:context)))
        calculate(:chat_copy, AshAgent.ChatContext.AshType, expr(^ref(:chat)))
      end

      actions do
        defaults([:read, :destroy, create: :*, update: :*])

        action :count, :integer do
          argument(:context, AshAgent.Context.AshType, allow_nil?: false)

          run(&AshAgent.Integration.Fields.count/2)
        end
      end
    end
  end
end

defmodule AshAgent.Integration.Memo do
  @moduledoc false
  use Ash.Resource, domain: AshAgent.Integration.Domain, data_layer: Ash.DataLayer.Ets

  ets do
    private?(true)
  end

  use AshAgent.Integration.Fields
end

if Code.ensure_loaded?(AshPostgres.DataLayer) do
  defmodule AshAgent.Integration.Row do
    @moduledoc false
    use Ash.Resource, domain: AshAgent.Integration.Domain, data_layer: AshPostgres.DataLayer

    postgres do
      table("rows")
      repo(AshAgent.Integration.Repo)
    end

    use AshAgent.Integration.Fields

    @doc "The statement that makes the table."
    def table do
      """
      CREATE TABLE rows (
        id uuid PRIMARY KEY, context jsonb, text text, bytes bytea, given jsonb, limited jsonb, list jsonb[],
        chat jsonb, chat_text text, embedded jsonb, profile jsonb)
      """
    end
  end
end

defmodule AshAgent.Integration.Domain do
  @moduledoc false
  use Ash.Domain, validate_config_inclusion?: false

  resources do
    resource(AshAgent.Integration.Memo)

    if Code.ensure_loaded?(AshPostgres.DataLayer) do
      resource(AshAgent.Integration.Row)
    end
  end
end
