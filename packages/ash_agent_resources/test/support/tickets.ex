defmodule AshAgent.Integration.Severity do
  @moduledoc false
  use Ash.Type.Enum, values: [low: [description: "can wait"], high: [description: "today"]]
end

defmodule AshAgent.Integration.Address do
  @moduledoc false
  use Ash.Resource, data_layer: :embedded

  attributes do
    attribute(:city, :string, public?: true, allow_nil?: false)
    attribute(:zip, :string, public?: true, constraints: [max_length: 10])
    attribute(:door_code, :string, default: "SECRET-door")
  end
end

defmodule AshAgent.Integration.Tickets do
  @moduledoc false

  # Tickets of several organisations, with everything that tools of actions have to deal with. What begins with SECRET- is
  # never to be seen.

  @doc "The work of the generic actions."
  def estimate(input, context) do
    key = get_in(input.context, [:ash_agent, :idempotency_key])

    {:ok,
     %{
       hours: input.arguments.hours * 2,
       actor: context.actor.name,
       key: key,
       internal: "SECRET-estimate"
     }}
  end

  def crash(_input, _context), do: raise("SECRET-crash")

  def guess(_input, _context), do: {:error, "SECRET-error"}

  defmacro __using__(comment: comment) do
    quote do
      attributes do
        uuid_primary_key(:id)

        attribute(:subject, :string,
          public?: true,
          allow_nil?: false,
          description: "what it is about",
          constraints: [min_length: 1, max_length: 100]
        )

        attribute(:status, :atom,
          public?: true,
          default: :open,
          constraints: [one_of: [:open, :closed]]
        )

        attribute(:severity, AshAgent.Integration.Severity, public?: true)
        attribute(:priority, :integer, public?: true, constraints: [min: 1, max: 5])
        attribute(:price, :decimal, public?: true)
        attribute(:due, :date, public?: true)
        attribute(:tags, {:array, :string}, public?: true, constraints: [max_length: 3])
        attribute(:address, AshAgent.Integration.Address, public?: true)

        attribute(:contact, :union,
          public?: true,
          constraints: [
            types: [
              mail: [
                type: :map,
                tag: :kind,
                tag_value: "mail",
                constraints: [
                  fields: [kind: [type: :string], at: [type: :string, allow_nil?: false]]
                ]
              ],
              phone: [type: :string, constraints: [max_length: 20]]
            ]
          ]
        )

        attribute(:owner, :string, public?: true)
        attribute(:ssn, :string, public?: true, sensitive?: true)
        attribute(:note, :string)
        attribute(:extra, :term, public?: true)
        attribute(:org, :string, public?: true, allow_nil?: false)
      end

      multitenancy do
        strategy(:attribute)
        attribute(:org)
      end

      relationships do
        has_many(:comments, unquote(comment),
          destination_attribute: :ticket_id,
          public?: true,
          domain: AshAgent.Integration.Support
        )

        has_many(:hidden_comments, unquote(comment), destination_attribute: :ticket_id)
      end

      calculations do
        calculate(:urgent?, :boolean, expr(^ref(:priority) >= 4), public?: true)
      end

      aggregates do
        count(:comment_count, :comments, public?: true)
      end

      actions do
        defaults([:read, :destroy])

        read :search do
          description("Finds tickets by a word.")
          argument(:word, :string, allow_nil?: false)
          filter(expr(contains(^ref(:subject), ^arg(:word))))
        end

        read(:one, get_by: [:id])

        read :pages do
          pagination(offset?: true, required?: true, max_page_size: 2)
        end

        create :open do
          accept(~w(subject severity priority due tags address contact org ssn extra)a)

          argument(:urgent, :boolean, default: false, description: "raises the priority")
          change(set_attribute(:owner, expr(^actor(:name))))
          change(&AshAgent.Integration.Tickets.urgent/2)
        end

        update :change do
          require_atomic?(false)
          accept([:subject, :status, :priority, :price, :due, :tags, :address, :contact])

          validate(absent(:due),
            where: attribute_equals(:status, :closed),
            message: "a closed ticket is not due"
          )
        end

        update :inspect_note do
          require_atomic?(false)
          accept([:note])
          validate(string_length(:note, min: 5))
        end

        action :estimate, :map do
          constraints(
            fields: [hours: [type: :integer], actor: [type: :string], key: [type: :string]]
          )

          argument(:hours, :integer, allow_nil?: false, constraints: [min: 1, max: 100])
          run(&AshAgent.Integration.Tickets.estimate/2)
        end

        action :crash do
          run(&AshAgent.Integration.Tickets.crash/2)
        end

        action :guess, :string do
          run(&AshAgent.Integration.Tickets.guess/2)
        end

        action :name, :atom do
          argument(:name, :atom, constraints: [unsafe_to_atom?: true])
          run(fn input, _context -> {:ok, input.arguments.name} end)
        end

        action :keep, :string do
          argument(:state, :term, allow_nil?: false)
          run(fn _input, _context -> {:ok, "kept"} end)
        end
      end

      policies do
        bypass actor_attribute_equals(:role, :admin) do
          authorize_if(always())
        end

        policy action_type(:read) do
          authorize_if(expr(^ref(:owner) == ^actor(:name) or ^ref(:subject) == "public"))
        end

        policy action_type(:create) do
          authorize_if(actor_present())
        end

        policy action_type([:update]) do
          authorize_if(expr(^ref(:owner) == ^actor(:name)))
        end

        policy action_type(:destroy) do
          forbid_if(always())
        end

        policy action_type(:action) do
          authorize_if(actor_present())
        end
      end

      field_policies do
        field_policy :ssn do
          authorize_if(actor_attribute_equals(:role, :manager))
        end

        field_policy :* do
          authorize_if(always())
        end
      end
    end
  end

  @doc "The change of :open."
  def urgent(changeset, _context) do
    if Ash.Changeset.get_argument(changeset, :urgent),
      do: Ash.Changeset.force_change_attribute(changeset, :priority, 5),
      else: changeset
  end

  @doc "The statements that make the tables."
  def tables do
    [
      """
      CREATE TABLE tickets (id uuid PRIMARY KEY, subject text NOT NULL, status text, severity text, priority bigint,
        price decimal, due date, tags text[], address jsonb, contact jsonb, owner text, ssn text, note text, extra bytea,
        org text NOT NULL)
      """,
      "CREATE TABLE ticket_comments (id uuid PRIMARY KEY, body text, internal text, ticket_id uuid, org text)"
    ]
  end
end

defmodule AshAgent.Integration.Comments do
  @moduledoc false

  defmacro __using__(_opts) do
    quote do
      attributes do
        uuid_primary_key(:id)
        attribute(:body, :string, public?: true)
        attribute(:internal, :string, default: "SECRET-internal")
        attribute(:ticket_id, :uuid, public?: true)
        attribute(:org, :string)
      end

      multitenancy do
        strategy(:attribute)
        attribute(:org)
      end

      actions do
        defaults([:read, :destroy, create: :*])
      end
    end
  end
end

defmodule AshAgent.Integration.MemoryComment do
  @moduledoc false
  use Ash.Resource, domain: AshAgent.Integration.Support, data_layer: Ash.DataLayer.Ets
  use AshAgent.Integration.Comments
end

defmodule AshAgent.Integration.MemoryTicket do
  @moduledoc false
  use Ash.Resource,
    domain: AshAgent.Integration.Support,
    data_layer: Ash.DataLayer.Ets,
    authorizers: [Ash.Policy.Authorizer]

  resource do
    short_name(:ticket)
  end

  use AshAgent.Integration.Tickets, comment: AshAgent.Integration.MemoryComment
end

if Code.ensure_loaded?(AshPostgres.DataLayer) do
  defmodule AshAgent.Integration.TableComment do
    @moduledoc false
    use Ash.Resource, domain: AshAgent.Integration.Support, data_layer: AshPostgres.DataLayer

    postgres do
      table("ticket_comments")
      repo(AshAgent.Integration.Repo)
    end

    use AshAgent.Integration.Comments
  end

  defmodule AshAgent.Integration.TableTicket do
    @moduledoc false
    use Ash.Resource,
      domain: AshAgent.Integration.Support,
      data_layer: AshPostgres.DataLayer,
      authorizers: [Ash.Policy.Authorizer]

    resource do
      short_name(:ticket)
    end

    postgres do
      table("tickets")
      repo(AshAgent.Integration.Repo)
    end

    use AshAgent.Integration.Tickets, comment: AshAgent.Integration.TableComment
  end
end

defmodule AshAgent.Integration.Support do
  @moduledoc false
  use Ash.Domain, validate_config_inclusion?: false

  resources do
    resource(AshAgent.Integration.MemoryTicket)
    resource(AshAgent.Integration.MemoryComment)

    if Code.ensure_loaded?(AshPostgres.DataLayer) do
      resource(AshAgent.Integration.TableTicket)
      resource(AshAgent.Integration.TableComment)
    end
  end
end
