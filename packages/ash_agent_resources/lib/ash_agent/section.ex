defmodule AshAgent.Section do
  @moduledoc false

  # Shares what the sections `conversation` and `agent` have in common: errors at compile time, and options of a run.

  alias AshAgent.{LLM, Options}
  alias Spark.Dsl.Verifier
  alias Spark.Error.DslError

  # The run belongs to the action that begins it.
  @decided [:store, :kept, :runtime_context, :supervisor]

  @doc "The error of a verifier, with the place in the resource."
  @spec error(map(), [atom()], String.t()) :: {:error, Exception.t()}
  def error(dsl, path, message) do
    {:error,
     DslError.exception(
       module: Verifier.get_persisted(dsl, :module),
       path: path,
       message: message
     )}
  end

  @doc "Whether a value can be a model. Functions and modules are checked when they are called, since they may not be compiled yet."
  @spec model?(term()) :: boolean()
  def model?(llm) when is_function(llm), do: true
  def model?({module, opts}), do: is_atom(module) and is_list(opts)
  def model?(module), do: is_atom(module) and module not in [nil, true, false]

  @doc """
  Checks options of a run that a section has: those with a place of their own and those that are decided elsewhere are
  refused. `given` are the section's own, which are checked with them.
  """
  @spec verify_options(map(), [atom()], keyword(),
          own: [atom()],
          decided: [atom()],
          given: keyword()
        ) ::
          :ok | {:error, Exception.t()}
  def verify_options(dsl, [section | _] = path, options, about) do
    names = Keyword.keys(options)
    named = Enum.filter(names, &(&1 in about[:own]))
    decided = Enum.filter(names, &(&1 in (@decided ++ about[:decided])))

    cond do
      named != [] ->
        error(dsl, path, "#{inspect(named)} have a place of their own in the section")

      decided != [] ->
        error(dsl, path, "#{inspect(decided)} are set by the #{section} itself")

      true ->
        Options.validate!(
          [llm: LLM] ++ about[:given] ++ options,
          AshAgent.Runtime.Options.schema()
        )

        :ok
    end
  rescue
    error in ArgumentError -> error(dsl, path, Exception.message(error))
  end

  @doc "Calls the application's function for the events of a run, of whichever arity."
  @spec tell((... -> term()) | nil, [atom()], map(), map()) :: term()
  def tell(nil, _event, _measurements, _metadata), do: :ok

  def tell(function, event, measurements, metadata) when is_function(function, 3),
    do: function.(event, measurements, metadata)

  def tell(function, event, measurements, metadata),
    do: function.(%{event: event, measurements: measurements, metadata: metadata})
end
