defmodule AshAgent.Conversation.Iteration.Verifier do
  @moduledoc false

  # Iterations are in the tables of a conversation's resource, and nobody but the store writes them.

  use Spark.Dsl.Verifier

  alias AshAgent.Conversation.Info
  alias AshAgent.Section
  alias Spark.Dsl.Verifier

  @impl true
  def verify(dsl) do
    checks = [{[:actions], &writes/1}, {[:iteration, :conversation], &conversation/1}]
    Section.verify(dsl, checks)
  end

  defp writes(dsl) do
    written =
      for %{type: type, name: name} <- Verifier.get_entities(dsl, [:actions]),
          type in [:create, :update, :destroy],
          do: name

    if written != [],
      do: "#{inspect(written)} write iterations, which only the store may: remove them"
  end

  defp conversation(dsl) do
    conversation = Info.conversation(dsl)

    cond do
      not Info.conversation?(conversation) ->
        "#{inspect(conversation)} has not the extension AshAgent.Conversation"

      Info.option(conversation, :iterations) != Verifier.get_persisted(dsl, :module) ->
        "#{inspect(conversation)} has to name this resource as its iterations"

      true ->
        nil
    end
  end
end
