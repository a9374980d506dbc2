defmodule AshAgent.Domain.Verifier do
  @moduledoc false

  # A declared tool that cannot be made is an error at compile time.

  use Spark.Dsl.Verifier

  alias AshAgent.{Info, Section, Tools}

  @impl true
  def verify(dsl), do: Section.verify(dsl, [{[:tools], &tools/1}])

  defp tools(dsl) do
    Enum.find_value(Info.tools(dsl), fn %{name: name} = tool ->
      if words = Section.refusal(fn -> Tools.list_declared(tool) end),
        do: {[:tools, :tool, name], "the tool #{inspect(name)}: #{words}"}
    end)
  end
end
