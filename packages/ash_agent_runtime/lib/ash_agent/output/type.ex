defmodule AshAgent.Output.Type do
  @moduledoc false

  # Types as applications write them, turned into a JSON Schema and the term that `AshAgent.Output.Cast` casts by.

  alias AshAgent.Output.Ecto, as: EctoTypes
  alias AshAgent.Output.Refs

  @plain %{
    string: {%{"type" => "string"}, :json},
    integer: {%{"type" => "integer"}, :integer},
    pos_integer: {%{"type" => "integer", "minimum" => 1}, :integer},
    non_neg_integer: {%{"type" => "integer", "minimum" => 0}, :integer},
    float: {%{"type" => "number"}, :float},
    number: {%{"type" => "number"}, :json},
    boolean: {%{"type" => "boolean"}, :json},
    date: {%{"type" => "string", "format" => "date"}, :date},
    time: {%{"type" => "string", "format" => "time"}, :time},
    datetime: {%{"type" => "string", "format" => "date-time"}, :datetime},
    naive_datetime: {%{"type" => "string", "format" => "date-time"}, :naive_datetime},
    uuid: {%{"type" => "string", "format" => "uuid"}, :json},
    map: {%{"type" => "object"}, :json},
    any: {%{}, :json}
  }

  # The options of a field that are keywords of JSON Schema.
  @bounds for name <-
                ~w(minimum maximum exclusive_minimum exclusive_maximum multiple_of pattern)a ++
                  ~w(min_length max_length min_items max_items unique_items)a,
              do:
                {name,
                 Regex.replace(~r/_(.)/, "#{name}", fn _whole, letter -> String.upcase(letter) end)}

  @options [:type, :doc, :required, :default] ++ Keyword.keys(@bounds)

  @doc "Returns the schema of a type, and how its values are cast. Raises `ArgumentError`."
  def read!(type) do
    {schema, cast} = type!(type, & &1)
    {Refs.lift(schema), cast}
  end

  defp inside!(type), do: type!(type, &Refs.embed/1)

  # The function places a schema of JSON Schema that the application wrote. The first is an `AshAgent.Output`, which is above this module.
  defp type!(%{ref: ref, schema: schema, type: type, wrapped?: wrapped?}, place)
       when is_reference(ref),
       do: {place.(schema), if(wrapped?, do: {:wrapped, type}, else: type)}

  defp type!(plain, _place) when is_map_key(@plain, plain), do: Map.fetch!(@plain, plain)
  defp type!([{_name, _type} | _] = fields, _place), do: object!(fields, nil)

  defp type!({[_ | _] = fields, [into: module]}, _place) when is_atom(module) do
    unless Code.ensure_loaded?(module) and function_exported?(module, :__struct__, 0),
      do: raise(ArgumentError, "the output's :into has to be a struct, got: #{inspect(module)}")

    known = module.__struct__()
    unknown = Enum.find(fields, fn {name, _type} -> not is_map_key(known, name) end)

    if unknown,
      do: raise(ArgumentError, "#{inspect(module)} has no field #{inspect(elem(unknown, 0))}")

    object!(fields, module)
  end

  defp type!({%{} = schema, [cast: fun]}, place)
       when is_function(fun, 1) and not is_struct(schema),
       do: {place.(schema), {:function, fun, :json}}

  defp type!({%{} = schema, [cast: fun, partial: partial]}, place)
       when is_function(fun, 1) and is_function(partial, 1) and not is_struct(schema),
       do: {place.(schema), {:function, fun, {:function, partial}}}

  defp type!({:list, type}, _place) do
    {schema, cast} = inside!(type)
    {%{"type" => "array", "items" => schema}, {:list, cast}}
  end

  defp type!({:nullable, type}, _place) do
    {schema, cast} = inside!(type)
    {%{"anyOf" => [schema, %{"type" => "null"}]}, {:nullable, cast}}
  end

  defp type!({:in, [_ | _] = choices}, _place) do
    values =
      for choice <- choices do
        cond do
          is_atom(choice) and choice not in [nil, true, false] -> {Atom.to_string(choice), choice}
          is_binary(choice) or is_number(choice) -> {choice, choice}
          true -> raise ArgumentError, "the choices of :in are atoms, strings or numbers"
        end
      end

    {%{"enum" => Enum.map(values, &elem(&1, 0))}, {:choice, Map.new(values)}}
  end

  defp type!({:one_of, [_ | _] = types}, _place) do
    branches =
      for {type, index} <- Enum.with_index(types) do
        {name, tag, type} = branch!(type, index)
        {schema, cast} = inside!(type)

        properties = %{"type" => %{"const" => name}, "value" => schema}
        {name, tag, object(properties, ["type", "value"]), cast}
      end

    if Enum.uniq_by(branches, &elem(&1, 0)) != branches,
      do: raise(ArgumentError, "two types of :one_of have the same name; give them others")

    {%{"anyOf" => for({_name, _tag, schema, _cast} <- branches, do: schema)},
     {:one_of, Map.new(branches, fn {name, tag, _schema, cast} -> {name, {tag, cast}} end)}}
  end

  defp type!({%{} = data, %{} = types}, _place),
    do: data |> EctoTypes.schemaless(types) |> fields()

  defp type!(%{} = schema, place) when not is_struct(schema), do: {place.(schema), :json}

  defp type!(module, place) when is_atom(module) and module not in [nil, true, false] do
    cond do
      not Code.ensure_loaded?(module) -> refuse!(module)
      function_exported?(module, :output, 0) -> type!(module.output(), place)
      function_exported?(module, :ash_type?, 0) -> refuse_ash_type!(module)
      function_exported?(module, :__schema__, 1) -> module |> EctoTypes.schema() |> fields()
      true -> refuse!(module)
    end
  end

  defp type!(other, _place), do: refuse!(other)

  defp refuse_ash_type!(module) do
    raise ArgumentError,
          "#{inspect(module)} is an Ash type: pass AshAgent.Resource.output(#{inspect(module)}) as the output"
  end

  # Words and not the value, which may hold anything.
  defp refuse!(other) do
    got = if is_atom(other), do: inspect(other), else: AshAgent.Options.kind(other)
    raise ArgumentError, "expected a type of an output, see AshAgent.Output, got: #{got}"
  end

  @doc "The schema of an object that has a value as its one field."
  def wrap(schema), do: Refs.lift(object(%{"value" => Refs.embed(schema)}, ["value"]))

  defp object(properties, required) do
    fields = %{"properties" => properties, "required" => required}
    Map.merge(fields, %{"type" => "object", "additionalProperties" => false})
  end

  ## Objects

  defp object!(fields, into) do
    unless Keyword.keyword?(fields) and Keyword.keys(fields) == Enum.uniq(Keyword.keys(fields)),
      do: raise(ArgumentError, "the fields of an output are a keyword list, each of them once")

    fields = for {name, options} <- fields, do: field!(name, options)
    properties = Map.new(fields, &{&1.name, &1.schema})
    required = for %{required?: true, name: name} <- fields, do: name

    {object(properties, required), {:object, Map.new(fields, &{&1.name, &1}), into}}
  end

  defp field!(name, options) do
    check_options!(name, options)
    options = if described?(options), do: options, else: [type: options]
    {schema, cast} = inside!(options[:type])

    words =
      for {key, keyword} <- @bounds, Keyword.has_key?(options, key), do: {keyword, options[key]}

    words = if options[:doc], do: [{"description", options[:doc]} | words], else: words

    %{
      name: Atom.to_string(name),
      key: name,
      schema: Map.merge(schema, Map.new(words)),
      cast: cast,
      required?: Keyword.get(options, :required, not Keyword.has_key?(options, :default)),
      default: Keyword.fetch(options, :default)
    }
  end

  # What is no type cannot be a field's.
  defp check_options!(name, [{_key, _value} | _] = options) do
    no_type? = fn {_key, value} -> is_number(value) or is_binary(value) or is_boolean(value) end
    wrong = Keyword.keyword?(options) and Enum.find(Keyword.drop(options, @options), no_type?)

    if wrong && Keyword.has_key?(options, :type) do
      raise ArgumentError,
            "the field #{inspect(name)} has no option #{inspect(elem(wrong, 0))}; its options are " <>
              Enum.map_join(@options, ", ", &inspect/1)
    end
  end

  defp check_options!(_name, _type), do: :ok

  # A keyword list has an object's fields, or the options of one field.
  defp described?([{:type, _type} | _] = options),
    do: Keyword.keyword?(options) and Keyword.keys(options) -- @options == []

  defp described?([{_name, _type} | _] = options),
    do:
      Keyword.keyword?(options) and Keyword.has_key?(options, :type) and
        Keyword.keys(options) -- @options == []

  defp described?(_type), do: false

  defp branch!({name, type}, _index)
       when is_atom(name) and name not in [:list, :in, :nullable, :one_of],
       do: {Atom.to_string(name), {:named, name}, type}

  defp branch!(module, _index) when is_atom(module) and not is_map_key(@plain, module),
    do: {short_name(module), :struct, module}

  defp branch!({[_ | _], [into: module]} = type, _index), do: {short_name(module), :struct, type}

  defp branch!(_type, index) do
    raise ArgumentError,
          "expected the types of :one_of to be modules or {name, type}, and number #{index + 1} is not"
  end

  defp short_name(module), do: module |> Module.split() |> List.last() |> Macro.underscore()

  # Ecto's types are read like others, and its changesets cast the whole.
  defp fields({fields, cast}) do
    {schema, partial} = object!(fields, nil)
    {schema, {:function, cast, partial}}
  end
end
