defmodule AshAgent.Tools.Schema do
  @moduledoc false

  # JSON schemas of Ash's types, as far as all providers understand them.

  @formats %{
    Ash.Type.Date => "date",
    Ash.Type.Time => "time",
    Ash.Type.TimeUsec => "time",
    Ash.Type.DateTime => "date-time",
    Ash.Type.NaiveDatetime => "date-time",
    Ash.Type.UtcDatetime => "date-time",
    Ash.Type.UtcDatetimeUsec => "date-time",
    Ash.Type.Duration => "duration",
    Ash.Type.UUID => "uuid",
    Ash.Type.UUIDv7 => "uuid"
  }

  @plain %{
    Ash.Type.Boolean => "boolean",
    Ash.Type.Binary => "string",
    Ash.Type.UrlEncodedBinary => "string",
    Ash.Type.DurationName => "string"
  }

  @numbers %{
    Ash.Type.Integer => "integer",
    Ash.Type.Float => "number",
    Ash.Type.Decimal => "number"
  }

  @texts [Ash.Type.String, Ash.Type.CiString]
  @fields [Ash.Type.Map, Ash.Type.Struct, Ash.Type.Keyword, Ash.Type.Tuple]
  @unwritable [Ash.Type.Term, Ash.Type.Function, Ash.Type.Module, Ash.Type.File]

  @doc "The schema of a type, or an error if a model cannot write its values."
  @spec of(term(), keyword()) :: {:ok, map()} | {:error, :unwritable | :makes_atoms}
  def of(type, constraints) do
    {:ok, schema(type, constraints, [])}
  catch
    {__MODULE__, reason} -> {:error, reason}
  end

  @doc "An object with these properties, given as `{name, schema, required?}`."
  @spec object([{atom() | String.t(), map(), boolean()}]) :: map()
  def object(properties) do
    %{
      "type" => "object",
      "properties" => Map.new(properties, fn {name, schema, _} -> {to_string(name), schema} end),
      "required" => for({name, _, true} <- properties, do: to_string(name)),
      "additionalProperties" => false
    }
  end

  @doc "Returns whether values of a type have an order, and whether they are texts."
  @spec ordered?(term()) :: boolean()
  def ordered?(type) do
    type = base(type)
    is_map_key(@numbers, type) or (is_map_key(@formats, type) and @formats[type] != "uuid")
  end

  @spec text?(term()) :: boolean()
  def text?(type), do: base(type) in @texts

  @doc """
  Returns true if the text of a number must not be read: comparing a decimal writes its zeros out, and an exponent is quickly written.
  """
  @spec huge?(term(), Ash.Type.t()) :: boolean()
  def huge?(value, type) do
    base(type) == Ash.Type.Decimal and is_binary(value) and
      (byte_size(value) > 400 or value =~ ~r/[eE][+-]?\d{4,}/)
  end

  @doc "Returns the type underneath new types."
  @spec base(term()) :: term()
  def base(type) do
    type = Ash.Type.get_type(type)
    if new_type?(type), do: type |> Ash.Type.NewType.subtype_of() |> base(), else: type
  end

  defp new_type?({:array, _type}), do: false
  defp new_type?(type), do: Ash.Type.NewType.new_type?(type)

  @doc "The fields of a type's values by the names that a model writes: `{key, {type, constraints}}`."
  @spec fields(Ash.Type.t(), keyword()) :: %{String.t() => {atom(), {Ash.Type.t(), keyword()}}}
  def fields(type, constraints) do
    cond do
      match?({:array, _}, type) or custom?(type) ->
        %{}

      new_type?(type) ->
        type
        |> Ash.Type.NewType.subtype_of()
        |> Ash.Type.get_type()
        |> fields(Ash.Type.NewType.constraints(type, constraints))

      Ash.Type.embedded_type?(type) ->
        action = Ash.Resource.Info.primary_action!(type, :create)

        for input <- AshAgent.Tools.Inputs.public(type, action),
            into: %{},
            do: field(input.name, input.type, input.constraints)

      true ->
        for {name, config} <- constraints[:fields] || [],
            into: %{},
            do: field(name, config[:type], config[:constraints])
    end
  end

  defp field(name, type, constraints),
    do: {to_string(name), {name, {Ash.Type.get_type(type), constraints || []}}}

  # `within` are the embedded resources around this one, of which one may be its own part.
  defp schema(type, constraints, within) do
    type = Ash.Type.get_type(type)
    constraints = constraints || []

    cond do
      match?({:array, _}, type) ->
        array(type, constraints, within)

      type in @unwritable ->
        throw({__MODULE__, :unwritable})

      custom?(type) ->
        type.json_schema(constraints)

      new_type?(type) ->
        schema(
          Ash.Type.NewType.subtype_of(type),
          Ash.Type.NewType.constraints(type, constraints),
          within
        )

      enum?(type) ->
        enum(type)

      Ash.Type.embedded_type?(type) ->
        describe_embedded(type, within)

      true ->
        describe_known(type, constraints, within)
    end
  end

  # Decided as in AshJsonApi.
  defp custom?(type),
    do: Code.ensure_loaded?(type) and function_exported?(type, :json_schema, 1)

  defp enum?(type), do: Spark.implements_behaviour?(type, Ash.Type.Enum)

  defp describe_known(Ash.Type.Atom, constraints, _within) do
    cond do
      values = constraints[:one_of] ->
        %{"type" => "string", "enum" => Enum.map(values, &to_string/1)}

      constraints[:unsafe_to_atom?] ->
        throw({__MODULE__, :makes_atoms})

      true ->
        %{"type" => "string"}
    end
  end

  defp describe_known(Ash.Type.Union, constraints, within) do
    %{"anyOf" => for({_name, config} <- constraints[:types], do: variant(config, within))}
  end

  defp describe_known(Ash.Type.Vector, _constraints, _within),
    do: %{"type" => "array", "items" => %{"type" => "number"}}

  defp describe_known(type, constraints, _within) when type in @texts do
    %{"type" => "string"}
    |> put("minLength", constraints[:min_length])
    |> put("maxLength", constraints[:max_length])
    |> put("pattern", pattern(constraints[:match]))
  end

  defp describe_known(type, constraints, _within) when is_map_key(@numbers, type) do
    %{"type" => @numbers[type]}
    |> put("minimum", number(constraints[:min]))
    |> put("maximum", number(constraints[:max]))
  end

  defp describe_known(type, constraints, within) when type in @fields do
    case constraints[:fields] do
      [_ | _] = fields ->
        object(
          for {name, config} <- fields do
            schema = schema(config[:type], config[:constraints], within)

            {name, put(schema, "description", config[:description]), config[:allow_nil?] == false}
          end
        )

      _none when type == Ash.Type.Map ->
        %{"type" => "object"}

      _none ->
        throw({__MODULE__, :unwritable})
    end
  end

  defp describe_known(type, _constraints, _within) when is_map_key(@formats, type),
    do: %{"type" => "string", "format" => @formats[type]}

  defp describe_known(type, _constraints, _within) when is_map_key(@plain, type),
    do: %{"type" => @plain[type]}

  # A type of the application is described by its storage type.
  defp describe_known(type, constraints, _within) do
    case Ash.Type.storage_type(type, constraints) do
      kind when kind in [:string, :text, :citext, :binary] -> %{"type" => "string"}
      kind when kind in [:integer, :bigint] -> %{"type" => "integer"}
      kind when kind in [:float, :decimal] -> %{"type" => "number"}
      :boolean -> %{"type" => "boolean"}
      :map -> %{"type" => "object"}
      _other -> throw({__MODULE__, :unwritable})
    end
  end

  defp array({:array, type}, constraints, within) do
    %{"type" => "array", "items" => schema(type, constraints[:items], within)}
    |> put("minItems", constraints[:min_length])
    |> put("maxItems", constraints[:max_length])
  end

  defp enum(type) do
    descriptions =
      for value <- type.values(), text = type.description(value), do: "#{value}: #{text}"

    %{"type" => "string", "enum" => Enum.map(type.values(), &to_string/1)}
    |> put("description", if(descriptions != [], do: Enum.join(descriptions, "; ")))
  end

  # A tag tells the variants apart.
  defp variant(config, within) do
    schema = schema(config[:type], config[:constraints], within)

    case {config[:tag], schema} do
      {tag, %{"type" => "object"}} when tag != nil ->
        tag = to_string(tag)
        value = %{"type" => "string", "enum" => [to_string(config[:tag_value])]}

        schema
        |> Map.update("properties", %{tag => value}, &Map.put(&1, tag, value))
        |> Map.update("required", [tag], &Enum.uniq([tag | &1]))

      _untagged ->
        schema
    end
  end

  defp describe_embedded(resource, within) do
    if resource in within do
      %{"type" => "object"}
    else
      action = Ash.Resource.Info.primary_action!(resource, :create)
      object(properties(resource, action, [resource | within]))
    end
  end

  defp properties(resource, action, within) do
    for input <- AshAgent.Tools.Inputs.public(resource, action) do
      {input.name, put_description(schema(input.type, input.constraints, within), input),
       AshAgent.Tools.Inputs.required?(action, input)}
    end
  end

  @doc "A schema with the description and the default of an input."
  @spec put_description(map(), map()) :: map()
  def put_description(schema, input) do
    schema
    |> put("description", join_descriptions(input.description, schema["description"]))
    |> put("default", default(input.default))
  end

  defp join_descriptions(text, more) when is_binary(text) and is_binary(more),
    do: "#{text} (#{more})"

  defp join_descriptions(text, more), do: text || more

  defp default(value) when is_number(value) or is_boolean(value) or is_binary(value), do: value
  defp default(value) when is_atom(value) and value != nil, do: to_string(value)
  defp default(_other), do: nil

  defp put(schema, _key, nil), do: schema
  defp put(schema, key, value), do: Map.put(schema, key, value)

  defp number(value) when is_number(value), do: value
  defp number(%{__struct__: Decimal} = value), do: Decimal.to_float(value)
  defp number(_other), do: nil

  # Flags have no place in a schema.
  defp pattern(%Regex{} = regex), do: if(Regex.opts(regex) in [[], ""], do: Regex.source(regex))
  defp pattern({Spark.Regex, :cache, [source, opts]}) when opts in [[], ""], do: source
  defp pattern(_other), do: nil
end
