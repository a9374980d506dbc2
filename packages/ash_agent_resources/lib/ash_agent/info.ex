defmodule AshAgent.Info do
  @moduledoc """
  Reads the sections `agent` and `tools` of a resource with `AshAgent.Resource`, and the tools of a domain with `AshAgent.Domain`.
  """

  use AshAgent.Arguments

  alias AshAgent.SparkModule
  alias Spark.Dsl.Extension

  # Spark knows the defaults of a section only where it is written.
  @tool_config [max_iterations: 10, timeout: 30_000, on_error: :continue]

  @doc """
  Returns an option of the section `agent`, or its default.

      AshAgent.Info.option(MyApp.Assistant, :hooks)
  """
  @doc since: "0.1.0"
  @spec option(module() | map(), atom()) :: term()
  def option(resource, name) when is_atom(name),
    do: resource |> agent!() |> Extension.get_opt([:agent], name)

  @doc """
  Returns the tools that an agent or a domain declares.

  Each is a struct with its `name` and `description`. One of an agent has an `action` or a `function`, and `parameters`; one of a domain
  has a `resource`, an `action`, and the options of the tool.
  """
  @doc since: "0.1.0"
  @spec tools(module() | map()) :: [struct()]
  def tools(resource) do
    resource
    |> SparkModule.check!(
      "an Ash resource with AshAgent.Resource, or an Ash domain with AshAgent.Domain"
    )
    |> Extension.get_entities([:tools])
  end

  @doc "Returns the domains whose tools an agent has, each a domain or `{domain, names}`."
  @doc since: "0.1.0"
  @spec domains(module() | map()) :: [module() | {module(), [atom()]}]
  def domains(resource), do: resource |> agent!() |> Extension.get_opt([:tools], :domains, [])

  @doc "Returns `max_iterations`, `timeout` and `on_error` of the section `tools`, or their defaults."
  @doc since: "0.1.0"
  @spec tool_config(module() | map()) :: %{
          max_iterations: pos_integer(),
          timeout: pos_integer(),
          on_error: :continue | :halt
        }
  def tool_config(resource) do
    agent!(resource)

    Map.new(@tool_config, fn {name, default} ->
      {name, Extension.get_opt(resource, [:tools], name, default)}
    end)
  end

  @doc "Returns the tokens that a call may use, or `nil`."
  @doc since: "0.1.0"
  @spec token_budget(module() | map()) :: pos_integer() | nil
  def token_budget(resource), do: option(resource, :token_budget)

  @doc "Returns whether a call that uses more tokens than its budget ends (`:halt`) or is only reported (`:warn`)."
  @doc since: "0.1.0"
  @spec budget_strategy(module() | map()) :: :halt | :warn
  def budget_strategy(resource), do: option(resource, :budget_strategy)

  defp agent!(resource),
    do: SparkModule.check!(resource, "an Ash resource with AshAgent.Resource")
end
