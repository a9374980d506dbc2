defmodule AshAgent.ToolDefinition do
  @moduledoc false

  # Tools as models see them: the forms in which an application may give them, and the names of calls. The runtime runs them,
  # see `AshAgent.Runtime.Tool`.

  alias AshAgent.Caller

  @default_parameters %{"type" => "object"}
  @keywords ~w(type properties required additionalProperties anyOf oneOf allOf not if enum const title description default) ++
              ~w(definitions patternProperties propertyNames minProperties maxProperties unevaluatedProperties examples)
  @keys [:name, :function, :description, :parameters, :returns, :repeat, :timeout, :late]

  # What other libraries call these keys.
  @other_names [
    parameters:
      ~w(schema params parameter_schema parameters_schema input_schema inputSchema json_schema input inputs arguments args),
    function: ~w(fun func fn callback handler run execute call),
    returns: ~w(output output_schema outputSchema result return return_type),
    description: ~w(desc doc docs),
    timeout: ~w(tool_timeout timeout_ms time_limit max_time),
    repeat: ~w(retry retries idempotent),
    late: ~w(async background deferred later)
  ]

  @doc """
  Each tool with what the application gave for it. The tools of a map are sorted by name.

  Raises `ArgumentError` for what is not a definition, and for two tools with the same name.
  """
  def read(%{__struct__: _} = struct), do: read([struct])

  def read(definitions) when is_map(definitions) do
    definitions
    |> Enum.map(fn {name, definition} -> tool(name, definition) end)
    |> Enum.sort_by(fn {tool, _definition} -> tool.name end)
    |> unique()
  end

  def read(definitions) when is_list(definitions) do
    definitions
    |> Enum.map(fn
      {name, tool} when is_atom(name) or is_binary(name) ->
        tool(name, tool)

      %{name: name} = tool when is_atom(name) or is_binary(name) ->
        tool(name, tool)

      _other ->
        Caller.refuse!("expected each tool of a list to be {name, definition} or to have a :name")
    end)
    |> unique()
  end

  def read(_other),
    do: Caller.refuse!("expected tools to be a map of names to definitions, or a list")

  defp unique(tools) do
    names = for {tool, _definition} <- tools, do: tool.name

    with [name | _] <- names -- Enum.uniq(names),
         do: Caller.refuse!("two tools have the name #{inspect(name)}; rename one of them")

    tools
  end

  defp tool(name, _definition) when name in [nil, ""] or not (is_atom(name) or is_binary(name)) do
    got = AshAgent.Options.kind(name)
    Caller.refuse!("expected the name of a tool to be an atom or a non-empty string, got: #{got}")
  end

  defp tool(name, definition) do
    name = to_string(name)
    given = describe(definition, name)
    description = Map.get(given, :description)
    parameters = Map.get(given, :parameters) || @default_parameters

    unless description == nil or is_binary(description),
      do: Caller.refuse!("expected the description of the tool #{inspect(name)} to be a string")

    unless is_map(parameters) and not is_struct(parameters) do
      words = "the parameters of the tool #{inspect(name)} to be a JSON schema as a map"
      Caller.refuse!("expected #{words}")
    end

    check_keywords(name, parameters)
    {%{name: name, description: description, parameters: parameters}, definition}
  end

  # Who writes the parameters themselves, `%{city: :string}`, means their schema. A keyword that we do not know is another thing.
  defp check_keywords(name, parameters) do
    keys = for key <- Map.keys(parameters), is_atom(key) or is_binary(key), do: to_string(key)
    known? = &(&1 in @keywords or String.starts_with?(&1, ["$", "x-"]))

    unless keys == [] or Enum.any?(keys, known?) do
      key = hd(keys)

      Caller.refuse!(
        "expected the parameters of the tool #{inspect(name)} to be a JSON schema, such as " <>
          ~s|%{type: :object, properties: %{"#{key}" => %{type: :string}}}, got a map with the key #{inspect(key)}|
      )
    end
  end

  # A struct may have fields of its own.
  defp describe(%{} = definition, _name) when is_struct(definition), do: definition

  defp describe(%{} = definition, name) do
    # Actions of Ash check their arguments by themselves.
    with [key | _] <- Map.keys(definition) -- [:check | @keys] do
      word = if is_atom(key) or is_binary(key), do: to_string(key), else: ""
      shown = if word == "", do: AshAgent.Options.kind(key), else: inspect(key)
      words = "the definition of the tool #{inspect(name)} has the key #{shown}"
      Caller.refuse!("#{words}, which would be ignored; #{advise(word)}")
    end

    definition
  end

  defp describe(function, _name) when is_function(function), do: %{}
  defp describe({module, name}, _name) when is_atom(module) and is_atom(name), do: %{}
  defp describe(_other, name), do: refuse!(name)

  defp advise(word) do
    likeness = &String.jaro_distance(to_string(&1), word)
    close = @keys |> Enum.filter(&(likeness.(&1) > 0.8)) |> Enum.sort_by(likeness, :desc)
    named = for {key, words} <- @other_names, word in words, do: key

    case named ++ close do
      [key | _] -> "write #{inspect(key)}"
      [] -> "the keys are " <> Enum.map_join(@keys, ", ", &inspect/1)
    end
  end

  @doc "Raises for a tool that nothing can run."
  def refuse!(name) do
    Caller.refuse!(
      "the tool #{inspect(to_string(name))} must be a function of arity 1 or 2, {module, function}, " <>
        "a map or struct with such a :function, or a toolbox"
    )
  end

  @doc "The definitions with string keys, as requests and traces have them."
  def to_maps(definitions) do
    for {tool, _definition} <- read(definitions) do
      map = %{"name" => tool.name, "parameters" => tool.parameters}
      if tool.description, do: Map.put(map, "description", tool.description), else: map
    end
  end

  @doc "The text of a name as a call has it."
  def name(name) when is_atom(name), do: Atom.to_string(name)
  def name(name) when is_binary(name), do: name
  # An atom of another node, see AshAgent.Context.UnknownAtom.
  def name(%{name: name}) when is_binary(name), do: name
  def name(other), do: inspect(other)
end
