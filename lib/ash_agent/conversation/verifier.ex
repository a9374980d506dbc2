if Code.ensure_loaded?(Ash.Resource) do
  defmodule AshAgent.Conversation.Verifier do
    @moduledoc false

    # What cannot work, said at compile time.

    use Spark.Dsl.Verifier

    import AshAgent.Section, only: [error: 3]

    alias AshAgent.{Conversation, Section}
    alias Spark.Dsl.Verifier

    @impl true
    def verify(dsl) do
      with :ok <- key(dsl), :ok <- store(dsl), :ok <- llm(dsl), do: options(dsl)
    end

    defp key(dsl) do
      case Ash.Resource.Info.primary_key(dsl) do
        [_one] -> :ok
        _other -> error(dsl, [:attributes], "a conversation needs a primary key of one attribute")
      end
    end

    defp store(dsl) do
      if Conversation.Info.option(dsl, :store) != nil or
           Verifier.get_persisted(dsl, :data_layer) == AshPostgres.DataLayer do
        :ok
      else
        error(
          dsl,
          [:conversation, :store],
          "a conversation without AshPostgres needs a store: name one with `store`, such as the name of an " <>
            "AshAgent.Store.SQLite in your supervision tree"
        )
      end
    end

    defp llm(dsl) do
      if Section.model?(Conversation.Info.option(dsl, :llm)),
        do: :ok,
        else: error(dsl, [:conversation, :llm], "expected a model, see AshAgent.LLM.t()")
    end

    @own [
      :llm,
      :tools,
      :approval,
      :permission_rules,
      :allowed_tools,
      :max_iterations,
      :max_total_tokens
    ]

    defp options(dsl) do
      Section.verify_options(
        dsl,
        [:conversation, :options],
        Conversation.Info.option(dsl, :options),
        own: @own,
        decided: [:on_change],
        given: [permission_rules: Conversation.Info.option(dsl, :permission_rules)]
      )
    end
  end
end
