defmodule AshAgent.Domain.Verifier do
  @moduledoc false

  # A declared tool that cannot be made is an error at compile time.

  use Spark.Dsl.Verifier

  import AshAgent.Section, only: [error: 3]

  alias AshAgent.{Info, Tools}

  @impl true
  def verify(dsl), do: dsl |> Info.tools() |> Enum.find_value(:ok, &wrong(dsl, &1))

  defp wrong(dsl, tool) do
    [_made] = Tools.list_declared(tool)
    nil
  rescue
    error in ArgumentError ->
      error(
        dsl,
        [:tools, :tool, tool.name],
        "the tool #{inspect(tool.name)}: #{Exception.message(error)}"
      )
  end
end
