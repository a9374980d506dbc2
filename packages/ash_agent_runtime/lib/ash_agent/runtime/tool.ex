defmodule AshAgent.Runtime.Tool do
  @moduledoc """
  A tool as the runtime uses it: its description for the model, and the function to call.

  ## Definitions

  `AshAgent.Runtime.run/2`, `AshAgent.Session.start_link/1` and `AshAgent.Runtime.ToolExecutor.execute_tools/3` take tools as a map from
  names (atoms or strings) to definitions, or as a list. A definition is

    * a function that takes the call's arguments, or the arguments and the tool context
    * `{module, function}` with one of these arities
    * a map or struct with a `:function` (one of the above), a `:description`, `:parameters`, a JSON schema, `:timeout`, `:repeat`,
      `:late`, and `:returns`. A map with another key is refused
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

  `:timeout` is the time that one call may take, in milliseconds or `:infinity`. It replaces the `:tool_timeout` of the run.

  `:returns` is a type of `AshAgent.Output`. A result that does not fit it does not reach the model, which reads what is wrong with it instead.

  ## Arguments

  The arguments of a call are checked against `:parameters` before hooks, approval functions and the tool see them. What is as the model
  meant it is repaired: a number, a boolean, a list or an object that was written as a text, an integer with a point, and `null` for a
  parameter that may be left out. The call then has `:repairs`, a list of `t:AshAgent.Output.repair/0`, for the approval function and the
  hooks, and so do the metadata of `[:ash_agent, :runtime, :tool, :start]` and of the message with the result. Anything else that does not
  fit does not reach the tool: the model reads what is wrong, with its path.

      iex> parameters = %{type: :object, properties: %{seats: %{type: :integer}}, required: [:seats]}
      iex> book = %{function: fn %{"seats" => seats} -> {:ok, seats} end, parameters: parameters}
      iex> calls = for {id, seats} <- [{"a", "2"}, {"b", 2.5}], do: %{id: id, name: :book, arguments: %{"seats" => seats}}
      iex> AshAgent.Runtime.ToolExecutor.execute_tools(calls, %{book: book}, %{})
      [
        %{id: "a", result: {:ok, 2}},
        %{id: "b", result: {:error, "the arguments do not fit the tool's schema: /seats: expected an integer, got a number"}}
      ]

  A schema with a keyword that cannot be checked, such as one of an MCP server, lets all arguments pass that have the required parameters; a
  warning in the log says so once. `check_arguments: false` of the run lets all of them pass for all tools.

  ## Calls that may be repeated

  A run with a store knows after a crash which calls were started and have no result. `:repeat` says what happens then:

    * `:safe` - the call runs again, with the same `:idempotency_key` in its tool context. For tools that only read, and for
      those that pass the key to a service which does the work once
    * `:never` - the call does not run again: the model reads that its outcome is unknown, or, with `:approval`, a
      person decides. The default
    * `{:ask, fun}` - `fun.(call, key)` finds out, and returns `{:done, result}` with the call's result (`{:ok, term}` or
      `{:error, reason}`), `:not_done`, so that the call runs, or `:unknown`, which is as `:never`

  ## Results that come late

  With `late: true`, a tool may start a job and return `{:later, deadline: time}`. The call then waits, and the conversation goes on: see
  "A tool answers in an hour" in the guides. Before the tool starts, its tool context gets the `:arrival_key` by which
  `AshAgent.Sessions.arrive/5` takes the result, from any node, even if that is before the tool returns. `:deadline` is a `DateTime` or
  milliseconds from now. If it passes, the model reads that no result came. The default is a day, or the milliseconds that you give as `:late`
  instead of `true`. `{:later, for: term}` also says whom to ask.

  A late tool may return any other result instead. It needs a run with a store, and cannot be a tool of a sub-agent. If the machine stops
  before the tool has returned, the call waits, too, unless `:repeat` says more: its job may have begun.
  """

  use AshAgent.Arguments

  alias AshAgent.Runtime.ToolArguments
  alias AshAgent.{Output, Toolbox, ToolDefinition}

  @enforce_keys [:name, :run]
  defstruct @enforce_keys ++
              [:description, :timeout, parameters: %{"type" => "object"}, grace: 0] ++
              [
                repeat: :never,
                recall?: false,
                asks?: false,
                agent?: false,
                foreign?: false,
                shown: %{},
                schema: nil
              ] ++
              [late: nil, for: nil, waits?: false, returns: nil, answer: nil]

  # With three arguments, `run` also gets the scope of the run. `timeout` replaces the run's `:tool_timeout`; for `grace`
  # milliseconds after it, the tool may end by itself before it is killed. `recall?` marks the tool of
  # AshAgent.Runtime.Recall, which permissions do not restrict, and `asks?` one of AshAgent.Runtime.AskUser, whose calls a person answers;
  # `agent?` one of AshAgent.Runtime.SubAgent. `foreign?` marks one that somebody else describes: an approval holds for the description. `shown` is what its questions are shown with. `late` has the
  # milliseconds that a late result may take, `for` whom to ask, `returns` its type, and `waits?` marks the tool by which a model waits for them, see
  # AshAgent.Runtime.Late. `answer` takes the key of a call that waits and the answer to what whoever works on it has asked. `schema` has the parameters and what they were compiled to, or a function that checks arguments, see AshAgent.Runtime.ToolArguments.
  @typedoc "A tool. `run`, `grace`, `recall?`, `asks?`, `agent?`, `foreign?`, `waits?`, `shown`, `for`, `returns`, `answer` and `schema` are private."
  @type t :: %__MODULE__{
          name: String.t(),
          description: String.t() | nil,
          parameters: map(),
          run: (map(), map() -> term()) | (map(), map(), map() -> term()),
          timeout: timeout() | nil,
          grace: non_neg_integer(),
          repeat: repeat(),
          recall?: boolean(),
          asks?: boolean(),
          agent?: boolean(),
          foreign?: boolean(),
          shown: map(),
          late: pos_integer() | nil,
          for: term(),
          waits?: boolean(),
          returns: AshAgent.Output.t() | nil,
          answer: (String.t(), map() -> :ok | {:error, Exception.t()}) | nil,
          schema: {map(), reference() | nil} | (map() -> :ok | {:error, String.t()}) | nil
        }

  @typedoc "The choices for a call whose outcome is unknown, see above."
  @type repeat ::
          :safe
          | :never
          | {:ask,
             (call :: map(), key :: String.t() ->
                {:done, {:ok, term()} | {:error, term()}} | :not_done | :unknown)}

  @type callable ::
          (map() -> term()) | (map(), map() -> term()) | {module(), function :: atom()}
  @type definition ::
          callable()
          | Toolbox.t()
          | %{
              required(:function) => callable(),
              optional(:description) => String.t() | nil,
              optional(:parameters) => map() | nil,
              optional(:timeout) => timeout() | nil,
              optional(:repeat) => repeat(),
              optional(:late) => boolean() | pos_integer(),
              optional(:returns) => AshAgent.Output.spec()
            }
  @type definitions ::
          %{optional(atom() | String.t()) => definition()}
          | [{atom() | String.t(), definition()} | map()]

  @doc """
  Makes a list of tools from definitions, and returns it. The tools of a map are sorted by name.

  Raises `ArgumentError` for anything that is not a definition, and for two tools with the same name.

  ## Examples

      iex> AshAgent.Runtime.Tool.new(%{add: fn _, _, _ -> 0 end})
      ** (ArgumentError) the tool "add" must be a function of arity 1 or 2, {module, function}, a map or struct with such a :function, or a toolbox
  """
  @doc since: "0.1.0"
  @spec new(definitions()) :: [t()]
  def new(definitions) do
    for {tool, definition} <- ToolDefinition.read(definitions),
        do: tool |> tool(definition) |> ToolArguments.compile()
  end

  defp tool(described, %__MODULE__{} = tool), do: %{tool | name: described.name}

  defp tool(described, %Toolbox{} = toolbox) do
    # The executor's timeout kills the process that runs it, and the program with it.
    run = fn arguments, _tool_context -> Toolbox.run(toolbox, arguments, timeout: :infinity) end
    %{tool(described, run, :never) | timeout: toolbox.timeout}
  end

  defp tool(%{name: name} = described, %{function: function} = definition) do
    repeat = definition |> Map.get(:repeat, :never) |> repeat!(name)
    returns = with type when type != nil <- Map.get(definition, :returns), do: Output.new(type)
    late = definition |> Map.get(:late) |> late!(name)
    run = function |> run(name) |> check_results(returns, late)
    timeout = definition |> Map.get(:timeout) |> timeout!(name)
    own = %{timeout: timeout, schema: Map.get(definition, :check), returns: returns, late: late}
    Map.merge(tool(described, run, repeat), own)
  end

  defp tool(described, function), do: tool(described, run(function, described.name), :never)

  defp tool(described, run, repeat),
    do: struct!(__MODULE__, Map.merge(described, %{run: run, repeat: repeat}))

  defp check_results(run, nil, _late), do: run

  defp check_results(run, output, late) do
    fn arguments, tool_context ->
      case run.(arguments, tool_context) do
        {:later, _opts} = later when late != nil -> later
        result -> check_result(output, result)
      end
    end
  end

  @doc false
  # Returns a result of a tool, or an error if it is not of the type that the tool returns.
  def check_result(nil, result), do: result
  def check_result(_output, {:error, _reason} = failed), do: failed

  def check_result(output, {status, term} = result) when status in [:ok, :halt],
    do: check_term(output, term, result)

  def check_result(output, term), do: check_term(output, term, term)

  # The conversation keeps the term itself. For a single value, the schema is an object with it.
  defp check_term(output, term, result) do
    term = if output.wrapped?, do: %{"value" => term}, else: term

    case Output.check(output, term, strict: true) do
      {:ok, _value, _repairs} ->
        result

      {:error, error} ->
        {:error, "the tool's result does not fit its schema: " <> Enum.join(error.lines, "; ")}
    end
  end

  defp repeat!(repeat, _name) when repeat in [:safe, :never], do: repeat
  defp repeat!({:ask, function} = repeat, _name) when is_function(function, 2), do: repeat

  defp repeat!(_other, name) do
    AshAgent.Caller.refuse!(
      "expected :repeat of the tool #{inspect(name)} to be :safe, :never or {:ask, function of arity 2}"
    )
  end

  # A job that nobody answers is not waited for for ever.
  @day 86_400_000
  @longest 3_650 * @day

  @doc false
  # The milliseconds of an option `:late`, or `nil`.
  def late!(late, _name) when late in [nil, false], do: nil
  def late!(true, _name), do: @day

  def late!(most, name) do
    if late?(most), do: most, else: refuse_late!(name)
  end

  @doc false
  # Whether a result may take so many milliseconds.
  def late?(most), do: most in 1..@longest

  defp refuse_late!(name) do
    AshAgent.Caller.refuse!(
      "expected :late of the tool #{inspect(name)} to be true, or the milliseconds that its result may take, ten years at most"
    )
  end

  defp timeout!(timeout, _name)
       when timeout in [nil, :infinity] or (is_integer(timeout) and timeout > 0),
       do: timeout

  defp timeout!(_other, name) do
    AshAgent.Caller.refuse!(
      "expected :timeout of the tool #{inspect(name)} to be milliseconds or :infinity"
    )
  end

  defp run(function, _name) when is_function(function, 2), do: function

  defp run(function, _name) when is_function(function, 1),
    do: fn arguments, _ -> function.(arguments) end

  defp run({module, function}, name) when is_atom(module) and is_atom(function) do
    cond do
      not Code.ensure_loaded?(module) ->
        AshAgent.Caller.refuse!(
          "the module #{inspect(module)} of the tool #{inspect(to_string(name))} does not exist; check its name"
        )

      function_exported?(module, function, 2) ->
        fn arguments, tool_context -> apply(module, function, [arguments, tool_context]) end

      function_exported?(module, function, 1) ->
        fn arguments, _ -> apply(module, function, [arguments]) end

      true ->
        AshAgent.Caller.refuse!(
          "#{inspect(module)} has no function #{function}/1 or #{function}/2 for the tool #{inspect(to_string(name))}; define one of them"
        )
    end
  end

  defp run(_other, name), do: ToolDefinition.refuse!(name)

  @doc """
  Returns the names of parameters that the tool's schema requires and the arguments lack. Names and keys may be atoms or strings.

  ## Examples

      iex> [tool] = AshAgent.Runtime.Tool.new(%{add: %{function: fn _ -> 0 end, parameters: %{"required" => ["a", "b"]}}})
      iex> AshAgent.Runtime.Tool.missing(tool, %{a: 1})
      ["b"]
  """
  @doc since: "0.1.0"
  @spec missing(t(), map()) :: [String.t()]
  def missing(%__MODULE__{parameters: parameters}, arguments) when is_map(arguments) do
    required = Map.get(parameters, "required") || Map.get(parameters, :required)
    names = names(if(is_list(required), do: required, else: []))

    with [_ | _] = missing <- for(name <- names, not is_map_key(arguments, name), do: name) do
      given = arguments |> Map.keys() |> names()
      for name <- missing, name not in given, do: name
    end
  end

  defp names(keys), do: for(key <- keys, is_atom(key) or is_binary(key), do: to_string(key))

  @doc false
  # The function that the tool's process runs.
  def function(%__MODULE__{run: run}, arguments, tool_context, scope) when is_function(run, 3),
    do: fn -> run.(arguments, tool_context, scope) end

  def function(%__MODULE__{run: run}, arguments, tool_context, _scope),
    do: fn -> run.(arguments, tool_context) end

  @doc false
  # A field of a call, whose keys may be atoms or strings.
  def field(call, key) when is_map(call) do
    with :error <- Map.fetch(call, key),
         :error <- Map.fetch(call, Atom.to_string(key)) do
      nil
    else
      {:ok, value} -> value
    end
  end

  @doc false
  defdelegate name(name), to: ToolDefinition

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
  # The failure of a function of the application, in words without its data.
  def failure(:error, reason),
    do: "raised " <> inspect(Exception.normalize(:error, reason).__struct__)

  def failure(:throw, _value), do: "threw a value that nobody caught"
  def failure(:exit, _reason), do: "exited"
end
