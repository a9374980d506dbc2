defmodule AshAgent.Conversation.Iteration.Transformer do
  @moduledoc false

  # The table of the store as a resource: its place, and the attributes that are read from its documents.

  use Spark.Dsl.Transformer

  import Ash.Expr

  alias Ash.Resource.Builder
  alias AshAgent.Conversation.{Info, Row}
  alias AshAgent.Conversation.Iteration.{Content, Key, Known, Readable}
  alias Spark.Dsl.Transformer

  @impl true
  def before?(_transformer), do: true

  @impl true
  def transform(dsl) do
    conversation = Code.ensure_compiled!(Info.conversation(dsl))

    with :ok <- policies(dsl, conversation),
         {:ok, dsl} <- attributes(place(dsl, conversation), Info.prefix(conversation)),
         {:ok, dsl} <- relationship(dsl, conversation),
         {:ok, dsl} <- Builder.add_new_action(dsl, :read, :read, primary?: true),
         {:ok, dsl} <- Builder.add_preparation(dsl, Known),
         {:ok, dsl} <- calculations(spent(dsl, conversation)),
         do: {:ok, policy(dsl)}
  end

  # A verifier would not do: its errors do not stop the compiler.
  defp policies(dsl, conversation) do
    if policies?(conversation) and not policies?(dsl) do
      {:error,
       Spark.Error.DslError.exception(
         module: Transformer.get_persisted(dsl, :module),
         path: [:iteration],
         message:
           "#{inspect(conversation)} has policies, which its iterations follow: add authorizers: [Ash.Policy.Authorizer]"
       )}
    else
      :ok
    end
  end

  defp policies?(resource), do: Ash.Policy.Authorizer in Ash.Resource.Info.authorizers(resource)

  # Called by name: AshPostgres may be missing when this is compiled.
  defp place(dsl, conversation) do
    info = AshPostgres.DataLayer.Info

    dsl =
      dsl
      |> Transformer.set_option([:postgres], :table, "ash_agent_iterations")
      |> Transformer.set_option([:postgres], :repo, apply(info, :repo, [conversation, :mutate]))
      |> Transformer.set_option([:postgres], :schema, apply(info, :schema, [conversation]))
      |> Transformer.set_option([:postgres], :migrate?, false)

    if Ash.Resource.Info.multitenancy_strategy(conversation) == :context,
      do: Transformer.set_option(dsl, [:multitenancy], :strategy, :context),
      else: dsl
  end

  defp attributes(dsl, prefix) do
    key = [primary_key?: true, allow_nil?: false, public?: true]

    {:ok, dsl}
    |> Builder.add_attribute(:conversation_id, Key, [constraints: [prefix: prefix]] ++ key)
    |> Builder.add_attribute(:number, :integer, key)
    |> Builder.add_attribute(:document, :map, select_by_default?: false, sensitive?: true)
  end

  defp relationship(dsl, conversation) do
    key = Info.primary_key(conversation)
    attribute = Ash.Resource.Info.attribute(conversation, key)
    type = Ash.Type.storage_type(attribute.type, attribute.constraints)

    Builder.add_new_relationship(dsl, :has_one, :conversation, conversation,
      no_attributes?: true,
      validate_destination_attribute?: false,
      filters: [filter(:has_one, same(type, key, Info.prefix(conversation)))],
      public?: true
    )
  end

  # The store's keys are text, and some may be of conversations without a record. A UUID is
  # compared as one, since the key's index is of those.
  defp same(:uuid, key, prefix) do
    prefix = expr(type(^prefix, :string))

    expr(
      ^ref(key) ==
        fragment(
          "(case when left(?, length(?)) = ? and substr(?, length(?) + 1) ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then cast(substr(?, length(?) + 1) as uuid) end)",
          parent(conversation_id),
          ^prefix,
          ^prefix,
          parent(conversation_id),
          ^prefix,
          parent(conversation_id),
          ^prefix
        )
    )
  end

  defp same(_other, key, prefix), do: match_key(ref(key), expr(parent(conversation_id)), prefix)

  @doc "Returns a condition: a record's key is that of a conversation in the store."
  def match_key(id, key, prefix),
    do: expr(fragment("(? || cast(? as text) = ?)", type(^prefix, :string), ^id, ^key))

  @doc "A filter of a relationship."
  def filter(type, filter) do
    {:ok, filter} =
      Transformer.build_entity(Ash.Resource.Dsl, [:relationships, type], :filter, filter: filter)

    filter
  end

  # The documents' form is described in guides/snapshot-format.md of ash_agent_context.
  defp calculations(state) do
    state
    |> calculation(:status, :atom, expr(if(is_nil(completed_at), do: :open, else: :completed)))
    |> calculation(:started_at, :utc_datetime_usec, time("started_at"))
    |> calculation(:completed_at, :utc_datetime_usec, time("completed_at"))
    |> calculation(:total_tokens, :integer, tokens())
    |> calculation(:content, :map, Content)
  end

  # A fork has iterations of another conversation, which has paid for them.
  defp spent(dsl, conversation) do
    for {name, type} <- Row.list_spent(), reduce: {:ok, dsl} do
      state -> calculation(state, name, type, {Row, show: name, iterations_of: conversation})
    end
  end

  # After the policies of the resource, so that a bypass of it is one.
  defp policy(dsl) do
    if policies?(dsl) do
      entity = &Transformer.build_entity!(Ash.Policy.Authorizer, &1, &2, &3)
      check = entity.([:policies, :policy], :authorize_if, check: {Readable, []})
      always = [{Ash.Policy.Check.Static, result: true}]
      policy = entity.([:policies], :policy, condition: always, policies: [check])
      Transformer.add_entity(dsl, [:policies], policy, type: :append)
    else
      dsl
    end
  end

  defp calculation(state, name, type, calculation),
    do: Builder.add_new_calculation(state, name, type, calculation, public?: true)

  defp time(field), do: expr(fragment("cast(? ->> ? as timestamptz)", document, ^field))

  defp tokens do
    expr(
      fragment(
        "(select coalesce(sum(cast(m #>> '{usage,sum,total_tokens}' as bigint)), 0) from jsonb_array_elements(? -> 'messages') m)",
        document
      )
    )
  end
end
