defmodule AshAgent.Conversation.Admin do
  @moduledoc false

  # AshAdmin offers all update actions of a resource that names none, and `:delta` is never called. It reads this option also of
  # resources without its extension.

  use Spark.Dsl.Transformer

  alias Spark.Dsl.Transformer

  # Ash adds the actions of `defaults`.
  @impl true
  def after?(_transformer), do: true

  @impl true
  def transform(dsl) do
    offered =
      for %{type: :update, name: name} = action when name != :delta <-
            Transformer.get_entities(dsl, [:actions]),
          do: action

    # The first one is what it opens.
    names = offered |> Enum.sort_by(&(not &1.primary?)) |> Enum.map(& &1.name)

    if Transformer.get_option(dsl, [:admin], :update_actions),
      do: {:ok, dsl},
      else: {:ok, Transformer.set_option(dsl, [:admin], :update_actions, names)}
  end
end
