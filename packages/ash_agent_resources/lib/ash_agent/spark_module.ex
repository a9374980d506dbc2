defmodule AshAgent.SparkModule do
  @moduledoc false

  # Errors of public functions for a value that is not a resource or a domain. A map is a resource that Spark is compiling.

  alias AshAgent.{Caller, Options}

  @doc "Returns the module if Spark made it and the function, if there is one, returns `true` for it; or raises an `ArgumentError` that names what is expected."
  def check!(value, expected, right? \\ fn _module -> true end)

  def check!(%{persist: _} = dsl, _expected, _right?) when not is_struct(dsl), do: dsl

  def check!(module, expected, right?) do
    if spark?(module) and right?.(module),
      do: module,
      else: Caller.refuse!("expected #{expected}, got: #{Options.kind(module)}")
  end

  defp spark?(module) when is_atom(module),
    do: Code.ensure_loaded?(module) and function_exported?(module, :spark_dsl_config, 0)

  defp spark?(_value), do: false
end
