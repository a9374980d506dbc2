if Code.ensure_loaded?(Ash.Resource) do
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

    `from_context/1` and `to_context/1` lose nothing: what a conversation has beside its iterations stands in the first
    of them. The actions `:create` and `:update` also take iterations as `AshAgent.Context.to_map/1` gives them. It is
    compiled when Ash is there; for new resources, `AshAgent.Context.AshType` is the simpler choice.
    """

    use Ash.Resource,
      data_layer: :embedded,
      domain: AshAgent.Context.Embedded.Domain,
      validate_domain_inclusion?: false

    alias AshAgent.Context
    alias AshAgent.Context.Stored

    attributes do
      attribute(:iterations, {:array, :map}, allow_nil?: false, default: [], public?: true)
      attribute(:current_iteration, :integer, allow_nil?: false, default: 1, public?: true)
      create_timestamp(:created_at)
      update_timestamp(:updated_at)
    end

    actions do
      defaults([:read, :destroy])

      create :create do
        primary?(true)
        accept([:iterations, :current_iteration])
      end

      update :update do
        primary?(true)
        require_atomic?(false)
        accept([:iterations, :current_iteration])
      end
    end

    code_interface do
      define(:create)
      define(:update)
    end

    @doc "Makes the embedded resource of a context."
    @spec from_context(Context.t()) :: struct()
    def from_context(%Context{} = context), do: create!(Stored.to_attributes(context))

    @doc "Makes a context of the embedded resource and returns `{:ok, context}` or `{:error, error}`."
    @spec to_context(struct()) :: {:ok, Context.t()} | {:error, Context.Error.t()}
    def to_context(%__MODULE__{} = embedded), do: Stored.from_attributes(embedded)
  end
end
