defmodule AshAgent.Resource.Tool do
  @moduledoc false

  # A tool of the section `tools`.

  alias AshAgent.Resource.Shape
  alias AshAgent.Tools
  alias AshAgent.Tools.Action

  defstruct [
    :name,
    :description,
    :action,
    :function,
    :timeout,
    :__identifier__,
    :__spark_metadata__,
    parameters: []
  ]

  @doc "Checks what the schema of the entity cannot say."
  def check(%{name: name, action: nil, function: nil}),
    do: {:error, "the tool #{inspect(name)} needs an action or a function"}

  def check(%{name: name, action: action, function: function})
      when action != nil and function != nil,
      do: {:error, "the tool #{inspect(name)} has an action and a function; take one of them"}

  def check(%{name: name, action: action, parameters: [_ | _]}) when action != nil do
    {:error,
     "the parameters of the tool #{inspect(name)} are those of its action; remove `parameters`"}
  end

  def check(tool), do: {:ok, tool}

  @doc "The definition for a run, or words that say why there is none."
  def definition(%{function: nil, action: {resource, name}} = tool),
    do: definition(%{tool | action: {resource, name, []}})

  def definition(%{function: nil, action: {resource, name, opts}} = tool) do
    own = [name: to_string(tool.name), description: tool.description]
    own = if tool.timeout, do: [timeout: tool.timeout] ++ own, else: own
    [definition] = Tools.actions(resource, [{name, opts ++ own}])
    {:ok, definition}
  rescue
    error in ArgumentError -> {:error, Exception.message(error)}
  end

  def definition(tool) do
    with {:ok, shape} <- Shape.new(:map, fields: Enum.map(tool.parameters, &field/1)) do
      known = Enum.map(tool.parameters, fn {name, _spec} -> to_string(name) end)

      cast = fn arguments ->
        with :ok <- Action.check_known(Map.keys(arguments), known),
             do: Shape.cast(shape, arguments)
      end

      {:ok,
       %{
         name: tool.name,
         description: tool.description,
         parameters: shape.schema,
         timeout: tool.timeout,
         function: fn arguments, tool_context ->
           with {:ok, arguments} <- cast.(arguments),
                do: call(tool.function, arguments, tool_context)
         end,
         check: fn arguments -> with {:ok, _cast} <- cast.(arguments), do: :ok end
       }}
    end
  end

  defp field({name, spec}) do
    config = [
      type: spec[:type],
      allow_nil?: not spec[:required],
      constraints: spec[:constraints]
    ]

    {name, if(spec[:description], do: [description: spec[:description]] ++ config, else: config)}
  end

  defp call({module, function, extra}, arguments, tool_context),
    do: apply(module, function, [arguments | extra] ++ [tool_context])

  defp call(function, arguments, tool_context) when is_function(function, 2),
    do: function.(arguments, tool_context)

  defp call(function, arguments, _tool_context), do: function.(arguments)
end
