defmodule AshAgent.Context.Embedded.Domain do
  @moduledoc false
  # The code interface needs a domain; an embedded resource belongs to none of the application's.

  use Ash.Domain, validate_config_inclusion?: false

  resources do
    allow_unregistered?(true)
  end
end

defmodule AshAgent.Context.Embedded do
  @moduledoc """
  A context as an embedded Ash resource with the attributes `iterations` and `current_iteration`.

      attribute :context, AshAgent.Context.Embedded

  `from_context/1` and `to_context/1` lose nothing: the first iteration also holds the parts of the conversation that are not
  iterations. The actions `:create` and `:update` take iterations in that form, and as `AshAgent.Context.to_map/1` returns them.
  They refuse anything that is not a conversation. Conversations from parameters lose their approvals of tool calls and their
  structs.

  Two embedded resources with equal conversations are equal, so setting the same conversation again is not a change. `inspect/1`
  shows the number of the current iteration and no messages.

  For new resources, `AshAgent.Context.AshType` is the simpler choice.
  """

  use Ash.Resource,
    data_layer: :embedded,
    domain: AshAgent.Context.Embedded.Domain,
    validate_domain_inclusion?: false

  alias AshAgent.{Context, Options}
  alias AshAgent.Context.Stored

  attributes do
    # Ash does not show sensitive attributes.
    attribute(:iterations, {:array, :map},
      allow_nil?: false,
      default: [],
      public?: true,
      sensitive?: true
    )

    attribute(:current_iteration, :integer, allow_nil?: false, default: 1, public?: true)
    create_timestamp(:created_at)
    update_timestamp(:updated_at)
  end

  actions do
    defaults([:read, :destroy])

    create :create do
      primary?(true)
      accept([:iterations, :current_iteration])
      change(&__MODULE__.put_conversation/2)
    end

    update :update do
      primary?(true)
      require_atomic?(false)
      accept([:iterations, :current_iteration])
      change(&__MODULE__.put_conversation/2)
    end
  end

  code_interface do
    define(:create)
    define(:update)
  end

  @doc "Makes an embedded resource from a context."
  @doc since: "0.1.0"
  @spec from_context(Context.t()) :: struct()
  def from_context(%Context{} = context) do
    fields = Stored.to_attributes(context)
    times = %{created_at: context[:created_at], updated_at: context[:updated_at]}
    struct!(__MODULE__, Map.merge(fields, times))
  end

  def from_context(other),
    do: raise(ArgumentError, "expected an AshAgent.Context, got: #{Options.kind(other)}")

  @doc """
  Makes a context from the embedded resource, and returns `{:ok, context}` or `{:error, error}` with an
  `AshAgent.Context.Error`.
  """
  @doc since: "0.1.0"
  @spec to_context(struct()) :: {:ok, Context.t()} | {:error, Context.Error.t()}
  def to_context(%{__struct__: __MODULE__} = embedded), do: Stored.from_attributes(embedded)

  def to_context(other),
    do: raise(ArgumentError, "expected an AshAgent.Context.Embedded, got: #{Options.kind(other)}")

  # Ash would compare all fields, the times as well.
  defoverridable equal?: 2

  @doc false
  def equal?(%{__struct__: __MODULE__} = a, %{__struct__: __MODULE__} = b) do
    take_fields(a) == take_fields(b) or
      with {:ok, one} <- to_context(a), {:ok, other} <- to_context(b) do
        Context.equal?(one, other)
      else
        _ -> false
      end
  end

  def equal?(a, b), do: a == b

  defp take_fields(embedded), do: Map.take(embedded, [:iterations, :current_iteration])

  # Stored in the form of `from_context/1` only, so that a conversation has one id.
  @doc false
  def put_conversation(%{action_type: type} = changeset, _context) do
    given = take_given(changeset)

    if type != :create and given == %{} do
      changeset
    else
      old = if type == :create, do: {:ok, nil}, else: to_context(changeset.data)
      put(with({:ok, old} <- old, do: Stored.cast_attributes(given, old)), changeset)
    end
  end

  # Only attributes that somebody set: the number of the current iteration follows from the iterations.
  defp take_given(changeset) do
    changeset.attributes
    |> Map.take([:iterations, :current_iteration])
    |> Map.drop(changeset.defaults)
  end

  defp put({:ok, attributes}, changeset),
    do: Ash.Changeset.force_change_attributes(changeset, attributes)

  defp put({:error, error}, changeset) do
    Ash.Changeset.add_error(changeset, field: :iterations, message: Exception.message(error))
  end
end
