defmodule AshAgent.Tools.Action do
  @moduledoc false

  # An action as a tool.

  alias AshAgent.Collect
  alias AshAgent.Resource.Output
  alias AshAgent.Runtime.{Paused, Result}
  alias AshAgent.Tools.{Failure, Inputs, Query, Schema, Shown}

  @doc "The definition of the tool, as `AshAgent.Runtime.Tool.new/1` takes it."
  def tool(resource, domain, action, opts) do
    keyed? = action.type in [:update, :destroy]
    inputs = inputs!(resource, action)
    key = if keyed?, do: key!(resource, action, inputs), else: []
    limit = opts.limit

    tool = %{
      resource: resource,
      domain: domain,
      action: action,
      label: "#{inspect(resource)}.#{action.name}",
      inputs: Enum.map(inputs, & &1.name),
      names: Map.new(inputs ++ key, &{to_string(&1.name), &1}),
      key: Enum.map(key, & &1.name),
      keyed?: keyed?,
      bulk: opts.bulk,
      query: if(action.type == :read, do: Query.new!(resource, action, opts)),
      shape: shape!(resource, action, opts, limit),
      absent: absent(resource, action)
    }

    %{
      name: opts[:name] || name(resource, action),
      description: opts[:description] || description(resource, action),
      parameters: parameters(tool, key ++ inputs),
      repeat: opts[:repeat] || if(action.type == :read, do: :safe, else: :never),
      timeout: opts[:timeout],
      check: &check(tool, &1),
      function: fn arguments, tool_context -> call(tool, arguments, tool_context) end
    }
  end

  ## The tool

  defp name(resource, action) do
    name = "#{Ash.Resource.Info.short_name(resource)}_#{action.name}"
    String.replace(name, ~r/[^a-zA-Z0-9_-]/, "")
  end

  defp description(resource, action) do
    words = "The #{action.type} action #{action.name} of #{noun(resource)}."

    action.description ||
      Enum.join([words | List.wrap(Ash.Resource.Info.description(resource))], " ")
  end

  defp noun(resource),
    do: resource |> Ash.Resource.Info.short_name() |> to_string() |> String.replace("_", " ")

  defp absent(resource, %{type: :read}),
    do: "there is no such #{noun(resource)}, or it may not be seen"

  defp absent(resource, action),
    do: "there is no #{noun(resource)} with this key for which #{action.name} is possible"

  # An input that the model cannot write is left out, unless the action needs it.
  defp inputs!(resource, action) do
    public = Inputs.public(resource, action)

    for input <- Inputs.all(resource, action),
        Inputs.required?(action, input),
        input not in public do
      raise ArgumentError,
            "the action #{inspect(action.name)} of #{inspect(resource)} requires #{inspect(input.name)}, which is not public; " <>
              "give it a default, or make it public? true"
    end

    Enum.flat_map(public, fn %{name: name, type: type, constraints: constraints} = input ->
      required? = Inputs.required?(action, input)

      case Schema.of(type, constraints) do
        {:ok, schema} ->
          known = %{name: name, type: type, constraints: constraints, required?: required?}
          [Map.put(known, :schema, Schema.put_description(schema, input))]

        {:error, :unwritable} ->
          if required?, do: unwritable!(resource, action, input), else: []

        {:error, :makes_atoms} ->
          raise ArgumentError,
                "#{inspect(input.name)} of the action #{inspect(action.name)} of #{inspect(resource)} would make atoms of what a " <>
                  "model writes; take unsafe_to_atom? from its constraints"
      end
    end)
  end

  defp unwritable!(resource, action, input) do
    raise ArgumentError,
          "no model can write #{inspect(input.name)} of the type #{inspect(input.type)}, which the action " <>
            "#{inspect(action.name)} of #{inspect(resource)} requires; give it a default"
  end

  defp key!(resource, action, inputs) do
    Ash.Resource.Info.primary_action(resource, :read) ||
      raise ArgumentError,
            "#{inspect(resource)} has no primary read action, which the tool of #{inspect(action.name)} finds its records with; define one"

    taken = Enum.map(inputs, & &1.name)

    for name <- Ash.Resource.Info.primary_key(resource) do
      if name in taken do
        raise ArgumentError,
              "the action #{inspect(action.name)} of #{inspect(resource)} takes #{inspect(name)}, which is the name of the key " <>
                "that finds its record; rename the argument, or do not accept the attribute"
      end

      %{type: type, constraints: constraints} = Ash.Resource.Info.attribute(resource, name)
      {:ok, schema} = Schema.of(type, constraints)
      %{name: name, type: type, constraints: constraints, schema: schema, required?: true}
    end
  end

  defp shape!(_resource, %{type: :action}, _opts, _limit), do: nil

  defp shape!(resource, _action, opts, limit),
    do: Shown.shape!(resource, opts[:fields], opts.load, limit)

  defp parameters(%{bulk: most} = tool, inputs) do
    properties = Enum.map(inputs, &{&1.name, &1.schema, &1.required?})
    schema = Schema.object(properties ++ choices(tool))
    records = %{"type" => "array", "items" => schema, "minItems" => 1, "maxItems" => most}
    if most > 1, do: Schema.object([{"records", records, true}]), else: schema
  end

  defp choices(%{query: nil}), do: []
  defp choices(%{query: query}), do: Query.properties(query)

  ## A call

  defp call(tool, arguments, tool_context) do
    case parse_calls(tool, arguments) do
      {:ok, call} when is_map(call) -> run(tool, call, tool_context)
      {:ok, calls} -> {:ok, %{"results" => Enum.map(calls, &one_of_many(tool, &1, tool_context))}}
      error -> error
    end
  end

  # All records are checked before anything is done.
  defp parse_calls(%{bulk: 1} = tool, arguments), do: parse(tool, arguments)

  defp parse_calls(tool, arguments),
    do: with({:ok, records} <- records(tool, arguments), do: parse_all(tool, records))

  # Before anybody is asked whether the call may run. What is within others, and what depends on the actor or the record, comes later.
  defp check(tool, arguments) do
    with {:ok, calls} <- parse_calls(tool, arguments) do
      wrong =
        for %{input: input} <- List.wrap(calls),
            {name, value} <- input,
            not is_map(value) and not is_list(value),
            not match?({:ok, _value}, cast(tool, name, value)),
            uniq: true,
            do: name

      if wrong == [], do: :ok, else: {:error, Enum.map_join(wrong, "; ", &"#{&1}: is invalid")}
    end
  end

  defp cast(tool, name, value) do
    %{type: type, constraints: constraints} = tool.names[to_string(name)]
    Ash.Type.cast_input(type, value, constraints)
  end

  defp one_of_many(tool, call, tool_context) do
    case run(tool, call, tool_context) do
      {:ok, shown} -> %{"ok" => shown}
      {:error, words} -> %{"error" => words}
    end
  end

  defp records(%{bulk: most}, %{"records" => [_ | _] = records} = arguments)
       when map_size(arguments) == 1 do
    if length(records) <= most,
      do: {:ok, records},
      else: {:error, "records may have at most #{most} elements; nothing was done"}
  end

  defp records(_tool, _arguments),
    do: {:error, "expected records, a list with one object for each record, and nothing else"}

  defp parse_all(tool, records) do
    records
    |> Enum.with_index()
    |> Collect.map(fn {record, index} ->
      with {:error, words} <- parse(tool, record),
           do: {:error, "records[#{index}]: #{words}; nothing was done"}
    end)
  end

  # Keys of a call may be atoms where the application made it.
  defp parse(tool, %{} = arguments) do
    arguments = Map.new(arguments, fn {key, value} -> {name_of(key), value} end)
    known = tool.names

    offered = Map.keys(known) ++ Enum.map(choices(tool), &elem(&1, 0))

    with :ok <- check_known(Map.keys(arguments), offered),
         :ok <- small(arguments, known),
         {:ok, key} <- key(tool, arguments),
         {:ok, chosen} <- Query.parse(tool.query, arguments) do
      input =
        for {name, value} <- arguments,
            %{name: atom} <- [known[name]],
            atom not in tool.key,
            into: %{},
            do: {atom, value}

      {:ok, %{input: input, key: key, chosen: chosen}}
    end
  end

  defp parse(_tool, _other), do: {:error, "expected an object"}

  defp name_of(key) when is_binary(key), do: key
  defp name_of(key) when is_atom(key), do: Atom.to_string(key)
  defp name_of(_other), do: "?"

  @doc false
  # Checks that all names of arguments are those of a tool, in words for the model.
  def check_known(given, offered) do
    case given -- offered do
      [] ->
        :ok

      unknown ->
        {:error,
         "unknown arguments: #{Enum.map_join(unknown, ", ", &inspect(&1, printable_limit: 50))}; known are: #{Enum.join(offered, ", ")}"}
    end
  end

  defp small(arguments, known) do
    Enum.find_value(arguments, :ok, fn {name, value} ->
      with %{type: type} <- known[name], true <- Schema.huge?(value, type) do
        {:error, "#{name} is not a number of a usual size"}
      else
        _other -> nil
      end
    end)
  end

  defp key(tool, arguments) do
    with {:ok, key} <- Collect.map(tool.key, &key_value(tool, &1, arguments)),
         do: {:ok, Map.new(key)}
  end

  defp key_value(tool, name, arguments) do
    case cast(tool, name, arguments[to_string(name)]) do
      {:ok, value} when value != nil -> {:ok, {name, value}}
      _other -> {:error, "#{name} is missing or invalid"}
    end
  end

  ## Running

  defp run(tool, call, tool_context) do
    if tenant?(tool, tool_context) do
      call = put_tenant(call, tool, tool_context[:tenant])

      case perform(tool.action.type, tool, call, options(tool, tool_context)) do
        {:ok, shown} -> {:ok, shown}
        {:error, error} -> {:error, Failure.words(error, tool)}
      end
    else
      {:error, "this needs a tenant, which the application has not given"}
    end
  catch
    kind, reason -> {:error, Failure.describe_raised(kind, reason, __STACKTRACE__, tool)}
  end

  # Without a tenant, resources that are global as well would show those of all.
  defp tenant?(tool, tool_context),
    do:
      tool_context[:tenant] != nil or
        Ash.Resource.Info.multitenancy_strategy(tool.resource) == nil

  # An action that accepts the tenant's attribute may require it.
  defp put_tenant(call, %{resource: resource, action: action}, tenant) do
    attribute = Ash.Resource.Info.multitenancy_attribute(resource)

    if attribute != nil and attribute in List.wrap(Map.get(action, :accept)) do
      {module, function, args} = Ash.Resource.Info.multitenancy_parse_attribute(resource)
      value = apply(module, function, [Ash.ToTenant.to_tenant(tenant, resource) | args])
      put_in(call.input[attribute], value)
    else
      call
    end
  end

  defp options(tool, tool_context) do
    given = Map.take(tool_context, [:agent, :idempotency_key])
    shared = if tool_context[:shared] in [nil, %{}], do: %{}, else: %{shared: tool_context.shared}

    [
      domain: tool.domain,
      actor: tool_context[:actor],
      tenant: tool_context[:tenant],
      authorize?: true,
      context: Map.put(shared, :ash_agent, given)
    ]
  end

  # Options that the query or changeset has already.
  defp rest(opts), do: Keyword.take(opts, [:domain, :actor, :tenant, :authorize?])

  defp perform(:read, tool, call, opts) do
    query = Ash.Query.for_read(tool.resource, tool.action.name, call.input, opts)
    Query.read(tool.query, query, call.chosen, tool.shape, rest(opts))
  end

  defp perform(:create, tool, call, opts) do
    changeset = Ash.Changeset.for_create(tool.resource, tool.action.name, call.input, opts)
    with {:ok, record} <- Ash.create(changeset, rest(opts)), do: {:ok, show(record, tool, opts)}
  end

  defp perform(:update, tool, call, opts) do
    with {:ok, record} <- find(tool, call.key, opts),
         changeset = Ash.Changeset.for_update(record, tool.action.name, call.input, opts),
         {:ok, record} <- Ash.update(changeset, rest(opts)),
         do: {:ok, show(record, tool, opts)}
  end

  defp perform(:destroy, tool, call, opts) do
    with {:ok, record} <- find(tool, call.key, opts),
         changeset = Ash.Changeset.for_destroy(record, tool.action.name, call.input, opts),
         :ok <- Ash.destroy(changeset, rest(opts)),
         do: {:ok, "done"}
  end

  defp perform(:action, tool, call, opts) do
    input = Ash.ActionInput.for_action(tool.resource, tool.action.name, call.input, opts)

    case Ash.run_action(input, rest(opts)) do
      :ok ->
        {:ok, "done"}

      # An agent gives the model its answer.
      {:ok, %Result{output: output}} ->
        {:ok, answer(output, tool.resource)}

      {:ok, %Paused{}} ->
        {:error, "the agent waits for a decision about its own calls, which nobody can make here"}

      {:ok, value} ->
        {:ok, Shown.value(value, tool.action.returns, tool.action.constraints || [])}

      {:error, error} ->
        {:error, error}
    end
  end

  defp answer(output, resource) do
    case Output.shape(resource) do
      {:ok, %{type: type, constraints: constraints}} -> Shown.value(output, type, constraints)
      _text -> Shown.value(output, nil, [])
    end
  end

  # A hidden record is not found.
  defp find(tool, key, opts), do: Ash.get(tool.resource, key, rest(opts))

  # The work is done: a load that fails does not fail the call.
  defp show(record, %{shape: %{loaded: []} = shape}, _opts), do: Shown.record(record, shape)

  defp show(record, %{shape: shape}, opts) do
    case Ash.load(record, Shown.load(shape), rest(opts)) do
      {:ok, record} -> Shown.record(record, shape)
      {:error, _error} -> Shown.record(record, %{shape | loaded: []})
    end
  end
end
