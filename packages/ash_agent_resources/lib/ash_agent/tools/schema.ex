defmodule AshAgent.Tools.Schema do
  @moduledoc false

  # JSON schemas of Ash's types, as far as all providers understand them.

  alias AshAgent.Tools.Inputs

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

  @strings [Ash.Type.Binary, Ash.Type.UrlEncodedBinary, Ash.Type.DurationName]

  @numbers %{
    Ash.Type.Integer => "integer",
    Ash.Type.Float => "number",
    Ash.Type.Decimal => "number"
  }

  @texts [Ash.Type.String, Ash.Type.CiString]
  @fields [Ash.Type.Map, Ash.Type.Struct, Ash.Type.Keyword, Ash.Type.Tuple]
  @unwritable [Ash.Type.Term, Ash.Type.Function, Ash.Type.Module, Ash.Type.File]

  @doc "The schema of a type, or an error if a model cannot write its values."
  def of(type, constraints) do
    {:ok, schema(type, constraints, [])}
  catch
    {__MODULE__, reason} -> {:error, reason}
  end

  @doc "An object with these properties, given as `{name, schema, required?}`."
  def object(properties) do
    %{
      "type" => "object",
      "properties" => Map.new(properties, fn {name, schema, _} -> {to_string(name), schema} end),
      "required" => for({name, _, true} <- properties, do: to_string(name)),
      "additionalProperties" => false
    }
  end

  @doc "Returns whether values of a type have an order, and whether they are texts."
  def ordered?(type) do
    type = base(type)
    is_map_key(@numbers, type) or (is_map_key(@formats, type) and @formats[type] != "uuid")
  end

  def text?(type), do: base(type) in @texts

  @doc """
  Returns true if the text of a number must not be read: comparing a decimal writes its zeros out, and an exponent is quickly written.
  """
  def huge?(value, type) do
    base(type) == Ash.Type.Decimal and is_binary(value) and
      (byte_size(value) > 400 or value =~ ~r/[eE][+-]?\d{4,}/)
  end

  defp base(type), do: type |> plain([]) |> elem(0)

  @doc "Returns the type and the constraints underneath new types."
  def plain(nil, constraints), do: {nil, constraints}

  def plain(type, constraints) do
    type = Ash.Type.get_type(type)
    constraints = constraints || []
    if new_type?(type), do: type |> unwrap(constraints) |> plain(), else: {type, constraints}
  end

  defp plain({type, constraints}), do: plain(type, constraints)

  defp unwrap(type, constraints),
    do: {Ash.Type.NewType.subtype_of(type), Ash.Type.NewType.constraints(type, constraints)}

  defp new_type?({:array, _type}), do: false
  defp new_type?(type), do: Ash.Type.NewType.new_type?(type)

  @doc "The fields of a type's values by the names that a model writes: `{key, {type, constraints}}`."
  def fields(type, constraints) do
    cond do
      match?({:array, _}, type) or custom?(type) ->
        %{}

      new_type?(type) ->
        {type, constraints} = unwrap(type, constraints)
        type |> Ash.Type.get_type() |> fields(constraints)

      Ash.Type.embedded_type?(type) ->
        action = Ash.Resource.Info.primary_action!(type, :create)

        for input <- Inputs.public(type, action),
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
        {type, constraints} = unwrap(type, constraints)
        schema(type, constraints, within)

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
        fields
        |> Enum.map(fn {name, config} ->
          schema = schema(config[:type], config[:constraints], within)
          {name, put(schema, "description", config[:description]), config[:allow_nil?] == false}
        end)
        |> object()

      _none when type == Ash.Type.Map ->
        %{"type" => "object"}

      _none ->
        throw({__MODULE__, :unwritable})
    end
  end

  defp describe_known(type, _constraints, _within) when is_map_key(@formats, type),
    do: %{"type" => "string", "format" => @formats[type]}

  defp describe_known(type, _constraints, _within) when type in @strings,
    do: %{"type" => "string"}

  defp describe_known(Ash.Type.Boolean, _constraints, _within), do: %{"type" => "boolean"}

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

      resource
      |> Inputs.public(action)
      |> Enum.map(fn input ->
        schema = schema(input.type, input.constraints, [resource | within])
        {input.name, put_description(schema, input), Inputs.required?(action, input)}
      end)
      |> object()
    end
  end

  @doc "A schema with the description and the default of an input."
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
