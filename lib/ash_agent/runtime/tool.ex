defmodule AshAgent.Runtime.Tool do
  @moduledoc """
  A tool as the runtime uses it: what the model is told, and what is called.

  ## Definitions

  Wherever tools are given (`AshAgent.Runtime.run/2`, `AshAgent.Session.start_link/1`,
  `AshAgent.Runtime.ToolExecutor.execute_tools/3`), they are a map of names (atoms or text) or a list. A definition is

    * a function of one argument, the call's arguments, or of two, with the tool context
    * `{module, function}`, of one of these arities
    * a map or struct with `:function` (one of the above), `:description` and `:parameters`, a JSON schema
    * an `AshAgent.Toolbox`

  In a list, each element is `{name, definition}`, or a map, struct or toolbox with a `:name`.

      iex> [tool] = AshAgent.Runtime.Tool.new(%{
      ...>   weather: %{
      ...>     function: fn %{"city" => city} -> {:ok, "Sunny in " <> city} end,
      ...>     description: "The weather of a city",
      ...>     parameters: %{type: :object, properties: %{city: %{type: :string}}, required: [:city]}
      ...>   }
      ...> })
      iex> {tool.name, tool.description}
      {"weather", "The weather of a city"}
  """

  alias AshAgent.Toolbox

  @enforce_keys [:name, :run]
  defstruct [
    :name,
    :run,
    description: nil,
    parameters: %{"type" => "object"},
    timeout: nil,
    grace: 0
  ]

  # `run` also gets what it needs to know of the run, when it has three arguments. `timeout` is in place of the run's
  # `:tool_timeout`; for as long as `grace` behind it, the tool may end by itself before it is killed.
  @typedoc "A tool. `run`, `timeout` and `grace` are private."
  @type t :: %__MODULE__{
          name: String.t(),
          description: String.t() | nil,
          parameters: map(),
          run: (map(), map() -> term()) | (map(), map(), map() -> term()),
          timeout: timeout() | nil,
          grace: non_neg_integer()
        }

  @type callable ::
          (map() -> term()) | (map(), map() -> term()) | {module(), function :: atom()}
  @type definition ::
          callable()
          | Toolbox.t()
          | %{
              required(:function) => callable(),
              optional(:description) => String.t() | nil,
              optional(:parameters) => map() | nil,
              optional(atom()) => term()
            }
  @type definitions ::
          %{optional(atom() | String.t()) => definition()}
          | [{atom() | String.t(), definition()} | map()]

  @doc """
  Makes the list of tools that definitions describe; a map's in the order of the names.

  Raises `ArgumentError` for what is no definition and for two tools of one name.

  ## Examples

      iex> AshAgent.Runtime.Tool.new(%{add: fn _, _, _ -> 0 end})
      ** (ArgumentError) the tool "add" must be a function of arity 1 or 2, {module, function}, a map or struct with such a :function, or a toolbox
  """
  @doc since: "0.1.0"
  @spec new(definitions()) :: [t()]
  def new(%{__struct__: _} = struct), do: new([struct])

  def new(definitions) when is_map(definitions) do
    definitions
    |> Enum.map(fn {name, definition} -> tool(name, definition) end)
    |> Enum.sort_by(& &1.name)
    |> unique()
  end

  def new(definitions) when is_list(definitions) do
    definitions
    |> Enum.map(fn
      %__MODULE__{} = tool ->
        tool

      {name, definition} when is_atom(name) or is_binary(name) ->
        tool(name, definition)

      %{name: name} = definition when is_atom(name) or is_binary(name) ->
        tool(name, definition)

      _other ->
        raise ArgumentError,
              "expected each tool of a list to be {name, definition} or to have a :name"
    end)
    |> unique()
  end

  def new(_other),
    do: raise(ArgumentError, "expected tools to be a map of names to definitions, or a list")

  defp unique(tools) do
    case tools -- Enum.uniq_by(tools, & &1.name) do
      [] -> tools
      [%{name: name} | _] -> raise ArgumentError, "two tools have the name #{inspect(name)}"
    end
  end

  defp tool(name, _definition) when name in [nil, ""] or not (is_atom(name) or is_binary(name)),
    do:
      raise(
        ArgumentError,
        "expected the name of a tool to be an atom or non-empty text, got: #{inspect(name)}"
      )

  defp tool(name, %__MODULE__{} = tool), do: %{tool | name: to_string(name)}

  defp tool(name, %Toolbox{} = toolbox) do
    # The executor's timeout kills the process that runs it, and the program with it.
    run = fn arguments, _tool_context -> Toolbox.run(toolbox, arguments, timeout: :infinity) end
    described(%__MODULE__{name: to_string(name), run: run}, toolbox)
  end

  defp tool(name, %{function: function} = definition),
    do: described(%__MODULE__{name: to_string(name), run: run(function, name)}, definition)

  defp tool(name, function), do: %__MODULE__{name: to_string(name), run: run(function, name)}

  defp described(tool, definition) do
    description = Map.get(definition, :description)
    parameters = Map.get(definition, :parameters) || tool.parameters

    unless description == nil or is_binary(description),
      do:
        raise(
          ArgumentError,
          "expected the description of the tool #{inspect(tool.name)} to be text"
        )

    unless is_map(parameters) and not is_struct(parameters),
      do:
        raise(
          ArgumentError,
          "expected the parameters of the tool #{inspect(tool.name)} to be a JSON schema as a map"
        )

    %{tool | description: description, parameters: parameters}
  end

  defp run(function, _name) when is_function(function, 2), do: function

  defp run(function, _name) when is_function(function, 1),
    do: fn arguments, _ -> function.(arguments) end

  defp run({module, function}, name) when is_atom(module) and is_atom(function) do
    cond do
      not Code.ensure_loaded?(module) ->
        raise ArgumentError,
              "the module #{inspect(module)} of the tool #{inspect(to_string(name))} is not there"

      function_exported?(module, function, 2) ->
        fn arguments, tool_context -> apply(module, function, [arguments, tool_context]) end

      function_exported?(module, function, 1) ->
        fn arguments, _ -> apply(module, function, [arguments]) end

      true ->
        raise ArgumentError,
              "#{inspect(module)} has no function #{function}/1 or #{function}/2 for the tool #{inspect(to_string(name))}"
    end
  end

  defp run(_other, name) do
    raise ArgumentError,
          "the tool #{inspect(to_string(name))} must be a function of arity 1 or 2, {module, function}, " <>
            "a map or struct with such a :function, or a toolbox"
  end

  @doc """
  Returns the names of the required parameters that arguments lack, by the tool's schema; names and keys may be atoms
  or text.

  ## Examples

      iex> [tool] = AshAgent.Runtime.Tool.new(%{add: %{function: fn _ -> 0 end, parameters: %{"required" => ["a", "b"]}}})
      iex> AshAgent.Runtime.Tool.missing(tool, %{a: 1})
      ["b"]
  """
  @doc since: "0.1.0"
  @spec missing(t(), map()) :: [String.t()]
  def missing(%__MODULE__{parameters: parameters}, arguments) when is_map(arguments) do
    required = Map.get(parameters, "required") || Map.get(parameters, :required)

    if is_list(required) do
      given = for key <- Map.keys(arguments), is_atom(key) or is_binary(key), do: to_string(key)

      for name <- required,
          is_atom(name) or is_binary(name),
          to_string(name) not in given,
          do: to_string(name)
    else
      []
    end
  end

  @doc false
  # The function that the tool's process runs.
  def function(%__MODULE__{run: run}, arguments, tool_context, scope) when is_function(run, 3),
    do: fn -> run.(arguments, tool_context, scope) end

  def function(%__MODULE__{run: run}, arguments, tool_context, _scope),
    do: fn -> run.(arguments, tool_context) end

  @doc false
  # A field of a call, whose keys may be atoms or text.
  def field(call, key) when is_map(call) do
    with :error <- Map.fetch(call, key),
         :error <- Map.fetch(call, Atom.to_string(key)) do
      nil
    else
      {:ok, value} -> value
    end
  end

  @doc false
  # The text of a name as a call has it.
  def name(name) when is_atom(name), do: Atom.to_string(name)
  def name(name) when is_binary(name), do: name
  # An atom of another node's, see AshAgent.Context.UnknownAtom.
  def name(%{name: name}) when is_binary(name), do: name
  def name(other), do: inspect(other)

  @doc false
  # The arguments of a call as a map.
  def arguments(nil), do: {:ok, %{}}
  def arguments(arguments) when is_map(arguments), do: {:ok, arguments}

  def arguments(text) when is_binary(text) do
    case if(String.trim(text) == "", do: {:ok, %{}}, else: AshAgent.Context.JSON.decode(text)) do
      {:ok, %{} = arguments} -> {:ok, arguments}
      _ -> {:error, "the arguments are not a JSON object"}
    end
  end

  def arguments(_other), do: {:error, "the arguments are not a JSON object"}

  @doc false
  # How a function of the application failed, in words that tell nothing of its data.
  def failure(:error, reason),
    do: "raised " <> inspect(Exception.normalize(:error, reason).__struct__)

  def failure(:throw, _value), do: "threw a value that nobody caught"
  def failure(:exit, _reason), do: "exited"
end
