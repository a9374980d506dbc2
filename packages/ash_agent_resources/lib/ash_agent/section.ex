defmodule AshAgent.Section do
  @moduledoc false

  # The common part of the sections `conversation` and `agent`: errors at compile time, and options of a run.

  alias AshAgent.{LLM, Options}
  alias Spark.Dsl.Verifier
  alias Spark.Error.DslError

  # The run belongs to the action that begins it.
  @decided [:store, :kept, :runtime_context, :supervisor]

  @doc """
  Verifies a resource: `checks` are functions of it, each with the place that it is about, which return words for what cannot
  work, or a place of their own with words. The first of them is the error.
  """
  def verify(dsl, checks) do
    Enum.find_value(checks, :ok, fn {path, check} ->
      case check.(dsl) do
        nil -> nil
        {path, words} -> error(dsl, path, words)
        words -> error(dsl, path, words)
      end
    end)
  end

  @doc "The words with which a function refuses its arguments, or `nil`."
  def refusal(fun) do
    fun.()
    nil
  rescue
    error in ArgumentError -> Exception.message(error)
  end

  defp error(dsl, path, words) do
    module = Verifier.get_persisted(dsl, :module)
    {:error, DslError.exception(module: module, path: path, message: words)}
  end

  @doc "Returns true if a value can be a model. Functions and modules are checked when they are called, since they may not be compiled yet."
  def model?(llm) when is_function(llm), do: true
  def model?({module, opts}), do: is_atom(module) and is_list(opts)
  def model?(module), do: is_atom(module) and module not in [nil, true, false]

  @doc """
  Returns what is wrong with options of a run that a section has: those with a place of their own and those that are decided
  elsewhere are refused. `given` are the section's own, which are checked with them.
  """
  def refuse_options(section, options, about) do
    names = Keyword.keys(options)
    named = Enum.filter(names, &(&1 in about[:own]))
    decided = Enum.filter(names, &(&1 in (@decided ++ about[:decided])))
    all = [llm: LLM] ++ about[:given] ++ options

    cond do
      named != [] -> "#{inspect(named)} have a place of their own in the section"
      decided != [] -> "#{inspect(decided)} are set by the #{section} itself"
      true -> refusal(fn -> Options.validate!(all, AshAgent.Runtime.Options.schema()) end)
    end
  end

  @doc "Calls the application's function for the events of a run, of whichever arity."
  def tell(nil, _event, _measurements, _metadata), do: :ok

  def tell(function, event, measurements, metadata) when is_function(function, 3),
    do: function.(event, measurements, metadata)

  def tell(function, event, measurements, metadata),
    do: function.(%{event: event, measurements: measurements, metadata: metadata})
end
