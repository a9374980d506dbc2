if Code.ensure_loaded?(Ash.Resource) do
  defmodule AshAgent.Conversation.Verifier do
    @moduledoc false

    # What cannot work, said at compile time.

    use Spark.Dsl.Verifier

    alias AshAgent.{Conversation, LLM, Options}
    alias Spark.Dsl.Verifier
    alias Spark.Error.DslError

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

    # Functions are checked when they are called, and modules may not be compiled yet.
    defp llm(dsl) do
      case Conversation.Info.option(dsl, :llm) do
        llm when is_function(llm) or (is_atom(llm) and llm not in [nil, true, false]) -> :ok
        {module, opts} when is_atom(module) and is_list(opts) -> :ok
        _other -> error(dsl, [:conversation, :llm], "expected a model, see AshAgent.LLM.t()")
      end
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
    @decided [:store, :kept, :runtime_context, :on_change, :supervisor]

    defp options(dsl) do
      options = Conversation.Info.option(dsl, :options)
      named = Enum.filter(Keyword.keys(options), &(&1 in @own))
      decided = Enum.filter(Keyword.keys(options), &(&1 in @decided))

      cond do
        named != [] ->
          error(
            dsl,
            [:conversation, :options],
            "#{inspect(named)} have a place of their own in the section"
          )

        decided != [] ->
          error(
            dsl,
            [:conversation, :options],
            "#{inspect(decided)} are set by the conversation itself"
          )

        true ->
          checked(dsl, Conversation.Info.option(dsl, :permission_rules), options)
      end
    end

    defp checked(dsl, rules, options) do
      Options.validate!(
        [llm: LLM, permission_rules: rules] ++ options,
        AshAgent.Runtime.Options.schema()
      )

      :ok
    rescue
      error in ArgumentError -> error(dsl, [:conversation, :options], Exception.message(error))
    end

    defp error(dsl, path, message) do
      {:error,
       DslError.exception(
         module: Verifier.get_persisted(dsl, :module),
         path: path,
         message: message
       )}
    end
  end
end
