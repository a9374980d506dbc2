defmodule AshAgent.Conversation.Iteration.Verifier do
  @moduledoc false

  # Iterations are in the tables of a conversation's resource, and nobody but the store writes them.

  use Spark.Dsl.Verifier

  alias AshAgent.Conversation.Info
  alias Spark.Dsl.Verifier
  alias Spark.Error.DslError

  @impl true
  def verify(dsl) do
    module = Verifier.get_persisted(dsl, :module)
    conversation = Info.conversation(dsl)

    written =
      for %{type: type, name: name} <- Verifier.get_entities(dsl, [:actions]),
          type in [:create, :update, :destroy],
          do: name

    cond do
      written != [] ->
        error(
          module,
          [:actions],
          "#{inspect(written)} write iterations, which only the store may: remove them"
        )

      not Info.conversation?(conversation) ->
        error(
          module,
          [:iteration, :conversation],
          "#{inspect(conversation)} has not the extension AshAgent.Conversation"
        )

      Info.option(conversation, :iterations) != module ->
        error(
          module,
          [:iteration, :conversation],
          "#{inspect(conversation)} has to name this resource as its iterations"
        )

      true ->
        :ok
    end
  end

  defp error(module, path, message),
    do: {:error, DslError.exception(module: module, path: path, message: message)}
end
