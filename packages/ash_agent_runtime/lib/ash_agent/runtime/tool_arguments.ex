defmodule AshAgent.Runtime.ToolArguments do
  @moduledoc false

  # Checks the arguments of calls against the schemas of their tools, and makes the repairs that leave them as they were meant. A
  # schema is compiled once for each tool. One that cannot be read checks nothing but the required names. Tools that cast their
  # arguments themselves, as Ash does, have a function for it.

  alias AshAgent.{Context, Memo}
  alias AshAgent.Response.Schema
  alias AshAgent.Runtime.{Sealed, Tool, ToolExecutor}

  require Logger

  # The application may list its tools for so many milliseconds.
  @patience 5_000

  @doc "Returns the tool with its schema, ready for its calls."
  def compile(%Tool{recall?: true} = tool), do: tool
  def compile(%Tool{schema: cast} = tool) when is_function(cast, 1), do: tool

  # An application may have given a tool other parameters.
  def compile(%Tool{parameters: parameters, schema: {parameters, _read}} = tool), do: tool

  def compile(%Tool{parameters: parameters} = tool),
    do: %{tool | schema: {parameters, read(tool.name, parameters)}}

  defp read(name, parameters) do
    with [_ | _] <- Map.keys(parameters) -- ["type", :type],
         {:ok, schema} <- Schema.compile(parameters) do
      schema
    else
      [] -> nil
      {:error, reason} -> warn(name, reason)
    end
  end

  defp warn(name, reason) do
    Memo.fetch({__MODULE__, name}, fn ->
      words = Exception.message(%Context.Error{reason: reason})

      Logger.warning(
        "the arguments of the tool #{inspect(name)} are not checked, since its schema cannot be read: " <>
          words
      )
    end)

    nil
  end

  @doc "Returns `{:ok, call}`, with `:repairs` if there were any, or `{:error, words}` for the model."
  def fit(%Tool{schema: schema} = tool, %{arguments: given} = call) do
    with {:ok, arguments} <- Tool.arguments(given),
         :ok <- check_required(tool, arguments),
         {:ok, arguments, [_ | _] = repairs} <- check(schema, arguments) do
      {:ok, Map.merge(call, %{arguments: arguments, repairs: repairs})}
    else
      {:ok, _arguments, []} -> {:ok, call}
      error -> error
    end
  end

  @doc """
  Approves a pending call. Arguments that a person wrote have to fit the schema of its tool, which the options of the run have. Raises
  `AshAgent.Context.Error`.
  """
  def approve(context, id, opts, run_opts) do
    edited = opts[:edited]
    call = edited && Enum.find(Context.pending_tool_calls(context), &(&1.id == id))
    approved = Context.Calls.approve_tool_call(context, id, opts)

    with %{} <- call,
         {:error, words} <- check_edited(%{call | arguments: edited}, run_opts) do
      raise Context.Error,
        reason: {:invalid, [:edited], "arguments that the tool takes: " <> words}
    else
      _fits -> approved
    end
  end

  # The application's function lists the tools, and its schemas may check.
  defp check_edited(call, opts) do
    check = fn ->
      tools = opts[:tools] || %{}
      tools = Tool.new(if is_function(tools, 0), do: tools.(), else: tools)
      tools = ToolExecutor.by_name(tools, Keyword.get(opts, :check_arguments, true))
      with {:ok, tool} <- ToolExecutor.find(tools, call.name), do: fit(tool, call)
    end

    # A session does not wait for long, nor fail.
    supervisor = opts[:supervisor]

    case if(supervisor, do: Sealed.run_task(supervisor, check, @patience), else: attempt(check)) do
      {:ok, checked} -> checked
      _failed -> {:error, "they could not be checked"}
    end
  end

  defp attempt(check) do
    {:ok, check.()}
  rescue
    _error -> :failed
  end

  defp check_required(tool, arguments) do
    case Tool.missing(tool, arguments) do
      [] ->
        :ok

      [name] ->
        {:error, "the required argument #{inspect(name)} is missing"}

      names ->
        {:error, "the required arguments #{Enum.map_join(names, ", ", &inspect/1)} are missing"}
    end
  end

  defp check({_parameters, schema}, arguments) when schema != nil do
    case Schema.check_arguments(schema, arguments) do
      {:ok, {:fits, _value, _issues, mends}} when mends == [] ->
        {:ok, arguments, []}

      {:ok, {:fits, value, _issues, mends}} ->
        {:ok, put_repaired(arguments, value), AshAgent.Output.to_repairs(mends)}

      {:ok, {:misfits, _value, issues, _mends}} ->
        words = Enum.map_join(issues, "; ", &describe/1)
        {:error, "the arguments do not fit the tool's schema: " <> words}

      {:error, reason} ->
        words = Exception.message(%Context.Error{reason: reason})
        {:error, "the arguments could not be checked: " <> words}
    end
  end

  defp check(cast, arguments) when is_function(cast, 1) do
    with :ok <- cast.(arguments), do: {:ok, arguments, []}
  rescue
    _error -> {:error, "the arguments could not be checked"}
  end

  defp check(_unchecked, arguments), do: {:ok, arguments, []}

  defp describe({[], words, _line}), do: "the arguments: " <> words
  defp describe({_path, _words, line}), do: line

  # The checked value is JSON. Keys that are atoms, and terms that JSON writes as a text, stay what they are.
  defp put_repaired(%{} = given, %{} = value) when not is_struct(given) do
    for {key, part} <- given,
        {:ok, repaired} <- [fetch(value, key, part)],
        into: %{},
        do: {key, put_repaired(part, repaired)}
  end

  defp put_repaired(given, value) when is_list(given) and is_list(value),
    do: Enum.zip_with(given, value, &put_repaired/2)

  defp put_repaired(given, value) when is_binary(given) or is_number(given), do: value
  defp put_repaired(given, _value), do: given

  defp fetch(value, key, _part) when is_atom(key) or is_binary(key),
    do: Map.fetch(value, to_string(key))

  defp fetch(_value, _key, part), do: {:ok, part}
end
