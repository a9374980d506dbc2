defmodule AshAgent.Conversation.Transformer do
  @moduledoc false

  # Adds the parts of a conversation: attributes, actions, functions and calculations, unless the resource has its own.

  use Spark.Dsl.Transformer

  import Ash.Expr

  alias Ash.Resource.Builder
  alias AshAgent.Context
  alias AshAgent.Conversation.{Calculation, Change, Denial, Erase, Info, Iteration, Outcome, Row}
  alias AshAgent.Conversation.{Status, Tenant, Waiting}
  alias Spark.Dsl.Transformer

  @calculations [
    {:context, Context.AshType, [public?: false]},
    {:transcript, {:array, :map}, []},
    {:last_message, :map, []},
    {:message_count, :integer, []},
    {:current_iteration, :integer, []},
    {:pending_tool_calls, {:array, :map}, []},
    {:waiting_calls, {:array, :map}, []},
    {:total_tokens, :integer, []},
    {:status, Status, []},
    {:last_outcome, Outcome, []},
    {:last_error, :map, []},
    {:revision, :integer, []},
    {:last_activity_at, :utc_datetime_usec, []},
    {:due, :boolean, [public?: false]}
    | for({name, type} <- Row.list_spent(), do: {name, type, []})
  ]

  # Lists of actions show it. Older releases of Ash have no private actions.
  @private if Map.has_key?(%Ash.Resource.Actions.Update{}, :public?),
             do: [public?: false],
             else: []
  @delta "Do not call it. It is the action of the notifications that have the pieces of an answer while it comes."

  @interfaces [
    start: [],
    say: [args: [{:optional, :input}]],
    resume: [],
    approve: [args: [:call_id]],
    deny_call: [action: :deny, args: [:call_id]],
    answer: [args: [:call_id]],
    arrive: [args: [:key]],
    waiting: [],
    cancel: [],
    rewind: [args: [:iteration]],
    erase: [args: [:filter]],
    fork: [args: [:source_id]]
  ]

  # The data layer and Ash's own transformers read the result.
  @impl true
  def before?(_transformer), do: true

  @impl true
  def transform(dsl) do
    own = own(dsl)

    with {:ok, dsl} <- attributes({:ok, Info.mark_extended(dsl)}),
         {:ok, dsl} <- actions({:ok, dsl}, own),
         own_deny? = own_interface?(dsl, :deny),
         {:ok, dsl} <- interfaces({:ok, dsl}),
         dsl = if(own_deny? or not interface?(dsl), do: dsl, else: denial(dsl)),
         {:ok, dsl} <- Builder.add_change(dsl, {Change, does: :delete}, on: [:destroy]),
         {:ok, dsl} <- tenants(dsl),
         {:ok, dsl} <- iterations(dsl, Info.option(dsl, :iterations)),
         do: calculations({:ok, dsl})
  end

  # The attributes that a stranger may set in a new conversation.
  defp own(dsl) do
    attributes =
      for %{public?: true, writable?: true, name: name} <-
            Transformer.get_entities(dsl, [:attributes]),
          do: name

    # Ash makes the attributes of relationships after this.
    related =
      for %{type: :belongs_to, define_attribute?: true, attribute_writable?: true} = relationship <-
            Transformer.get_entities(dsl, [:relationships]),
          public?(relationship),
          do: relationship.source_attribute || :"#{relationship.name}_id"

    Enum.uniq(attributes ++ related)
  end

  defp public?(%{attribute_public?: nil, public?: public?}), do: public?
  defp public?(%{attribute_public?: public?}), do: public?

  defp attributes({:ok, dsl} = state) do
    keyed? = Enum.any?(Transformer.get_entities(dsl, [:attributes]), & &1.primary_key?)

    id = [primary_key?: true, allow_nil?: false, writable?: false, public?: true]
    id = id ++ [default: &Ash.UUID.generate/0]
    state = if keyed?, do: state, else: Builder.add_attribute(state, :id, :uuid, id)

    state
    |> Builder.add_new_create_timestamp(:inserted_at)
    |> Builder.add_new_update_timestamp(:updated_at)
  end

  defp actions({:ok, dsl} = state, own) do
    state
    |> add(:read, :read, primary?: true, pagination: pagination())
    |> add(:read, :waiting,
      arguments: [argument(:for, :term)],
      pagination: pagination(),
      preparations: prepares()
    )
    |> add(:destroy, :destroy, primary?: true)
    |> add(:create, :start,
      accept: own,
      arguments: message() ++ begin_key(state) ++ wait(),
      changes: does(:start)
    )
    |> add(:create, :fork,
      accept: own,
      arguments: [source(state), argument(:iteration, :integer), revision()],
      changes: does(:fork)
    )
    |> update(:say, message() ++ [argument(:key, :string), steer()] ++ wait())
    |> update(:resume, wait())
    |> update(:approve, [argument(:edited, :map) | shown()])
    |> update(:deny, [argument(:reason, :string) | shown()])
    |> update(:answer, [words(:answer), argument(:form, :map) | shown()])
    |> update(:arrive, [
      argument(:key, :string, allow_nil?: false),
      words(:text),
      argument(:result, :map),
      words(:error)
    ])
    |> update(:cancel, [])
    |> update(:rewind, [argument(:iteration, :integer, allow_nil?: false), revision()])
    |> update(:delta, [], [description: @delta] ++ @private)
    |> title(Info.option(dsl, :title))
    |> add(:action, :erase,
      returns: :map,
      transaction?: true,
      arguments: [argument(:filter, :map, allow_nil?: false)],
      run: {Erase, []}
    )
  end

  defp title(state, nil), do: state

  defp title(state, name),
    do: add(state, :update, :put_title, accept: [name], require_atomic?: false)

  # Ash makes the actions of `defaults` after this.
  defp add({:ok, dsl} = state, type, name, opts) do
    defaults = Transformer.get_option(dsl, [:actions], :defaults) || []

    if Enum.any?(defaults, &(&1 == name or match?({^name, _accept}, &1))) or
         (name == :read and primary_read?(dsl)),
       do: state,
       else: Builder.add_new_action(state, type, name, opts)
  end

  defp add(error, _type, _name, _opts), do: error

  defp primary_read?(dsl),
    do: Enum.any?(Transformer.get_entities(dsl, [:actions]), &(&1.type == :read and &1.primary?))

  defp update(state, name, arguments, opts \\ []) do
    own = [accept: [], require_atomic?: false, arguments: arguments, changes: does(name)]
    add(state, :update, name, own ++ opts)
  end

  defp pagination do
    opts = [keyset?: true, offset?: true, required?: false, countable: true]
    {:ok, pagination} = Builder.build_pagination(opts)
    pagination
  end

  defp does(name) do
    {:ok, change} = Builder.build_action_change({Change, does: name})
    [change]
  end

  defp prepares do
    {:ok, preparation} = Builder.build_preparation(Waiting)
    [preparation]
  end

  defp message do
    [argument(:input, :string), argument(:parts, {:array, :map}), argument(:metadata, :map)]
  end

  defp steer, do: argument(:steer, :boolean, default: false)
  defp wait, do: [argument(:wait, :boolean, default: true)]

  # An id as the resource has it.
  defp source({:ok, dsl}) do
    %{type: type, constraints: constraints} = key(dsl)
    argument(:source_id, type, allow_nil?: false, constraints: constraints)
  end

  defp source(_error), do: nil

  # Which conversation it is says its id.
  defp begin_key({:ok, dsl}),
    do: if(match?(%{type: Ash.Type.UUID}, key(dsl)), do: [argument(:key, :string)], else: [])

  defp begin_key(_error), do: []

  defp key(dsl),
    do: dsl |> Transformer.get_entities([:attributes]) |> Enum.find(& &1.primary_key?)

  # A call as whoever decides has seen it.
  defp shown do
    attempt = argument(:attempt, :integer, constraints: [min: 1])
    [argument(:call_id, :string, allow_nil?: false), argument(:arguments, :map), attempt]
  end

  # A choice may begin with a space.
  defp words(name),
    do: argument(name, :string, constraints: [trim?: false, allow_empty?: true])

  defp revision, do: argument(:revision, :integer)

  defp argument(name, type, opts \\ []) do
    {:ok, argument} = Builder.build_action_argument(name, type, opts)
    argument
  end

  defp own_interface?(dsl, name),
    do: Enum.any?(Transformer.get_entities(dsl, [:code_interface]), &(&1.name == name))

  # Decided as in Ash.
  defp interface?(dsl) do
    info = Ash.Resource.Info

    info.define_interface?(dsl) and
      (info.code_interface_domain(dsl) || info.domain(dsl)) not in [nil, false]
  end

  defp denial(dsl), do: Transformer.eval(dsl, [], Denial.functions())

  defp interfaces(state) do
    Enum.reduce(@interfaces, state, fn {name, opts}, state ->
      Builder.add_new_interface(state, name, opts)
    end)
  end

  defp tenants(dsl) do
    if Info.tables?(dsl) and Info.schemas?(dsl),
      do: Builder.add_preparation(dsl, Tenant),
      else: {:ok, dsl}
  end

  defp iterations(dsl, nil), do: {:ok, dsl}

  defp iterations(dsl, resource) do
    key = expr(parent(^ref(key(dsl).name)))
    match = Iteration.Transformer.match_key(key, expr(conversation_id), Info.prefix(dsl))

    Builder.add_new_relationship(dsl, :has_many, :iterations, resource,
      no_attributes?: true,
      # The attribute of the iterations has another type.
      validate_destination_attribute?: false,
      filters: [Iteration.Transformer.filter(:has_many, match)],
      sort: [number: :asc],
      public?: true
    )
  end

  # Calculations of the stored row are made by the database, where it has the row. The others are made from `stored`, so that
  # a conversation is read once; they cannot be used in filters.
  defp calculations({:ok, dsl} = state) do
    rows = if Info.tables?(dsl), do: Row.list_shown(), else: []
    resource = Transformer.get_persisted(dsl, :module)

    stored = {Calculation, show: :stored}
    state = Builder.add_new_calculation(state, :stored, :term, stored, forbid_sorting())

    Enum.reduce(@calculations, state, fn {name, type, opts}, state ->
      {calculation, more} =
        if name in rows,
          do: {{Row, show: name, conversation: resource}, []},
          else: {{Calculation, show: name}, forbid_sorting()}

      opts = Keyword.merge([public?: true] ++ more, opts)
      Builder.add_new_calculation(state, name, type, calculation, opts)
    end)
  end

  defp forbid_sorting, do: [filterable?: false, sortable?: false]
end
