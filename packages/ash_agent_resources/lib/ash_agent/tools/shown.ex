defmodule AshAgent.Tools.Shown do
  @moduledoc false

  # Shows a record to a model: public fields as plain JSON, and loaded ones in the same way.

  alias AshAgent.Tools.Schema

  @doc "The shape of a resource's records. Raises `ArgumentError` for fields that are not public."
  def shape!(resource, fields, load, limit) do
    %{
      resource: resource,
      attributes: attributes!(resource, fields),
      loaded: Enum.map(load, &load!(resource, &1, limit)),
      limit: limit
    }
  end

  defp attributes!(resource, nil),
    do: Enum.reject(Ash.Resource.Info.public_attributes(resource), & &1.sensitive?)

  defp attributes!(resource, names) do
    for name <- names do
      Ash.Resource.Info.public_attribute(resource, name) ||
        not_public!(resource, name, "attribute")
    end
  end

  defp load!(resource, {name, nested}, limit) when is_atom(name) and is_list(nested) do
    case Ash.Resource.Info.public_relationship(resource, name) do
      nil -> not_public!(resource, name, "relationship")
      relationship -> {name, shape!(relationship.destination, nil, nested, limit)}
    end
  end

  defp load!(resource, name, limit) when is_atom(name) do
    case Ash.Resource.Info.public_field(resource, name) do
      %{destination: _destination} ->
        load!(resource, {name, []}, limit)

      %Ash.Resource.Calculation{} = calculation ->
        {name, {calculation.type, calculation.constraints}}

      %Ash.Resource.Aggregate{} ->
        {name, {nil, []}}

      _none ->
        not_public!(resource, name, "relationship, calculation or aggregate")
    end
  end

  defp load!(resource, _other, _limit),
    do:
      raise(
        ArgumentError,
        "expected :load for #{inspect(resource)} to have names, or names with lists of names"
      )

  defp not_public!(resource, name, noun) do
    raise ArgumentError,
          "#{inspect(resource)} has no public #{noun} #{inspect(name)}; make it public? true, or name another one"
  end

  @doc "The names of attributes that a query has to select."
  def select(shape), do: Enum.map(shape.attributes, & &1.name)

  @doc "Returns the fields that Ash has to load."
  def load(shape) do
    for {name, loaded} <- shape.loaded do
      case loaded do
        %{resource: resource} = nested ->
          query =
            resource
            |> Ash.Query.new()
            |> Ash.Query.select(select(nested))
            |> Ash.Query.limit(nested.limit)
            |> Ash.Query.load(load(nested))

          {name, query}

        _value ->
          name
      end
    end
  end

  @doc "A record as a model sees it."
  def record(record, shape) do
    attributes =
      for %{name: name, type: type, constraints: constraints} <- shape.attributes,
          {:ok, value} <- [fetch(record, name)],
          do: {to_string(name), value(value, type, constraints)}

    loaded =
      for {name, loaded} <- shape.loaded,
          {:ok, value} <- [fetch(record, name)],
          do: {to_string(name), show_loaded(value, loaded)}

    Map.new(attributes ++ loaded)
  end

  # Fields that were not loaded, and those that a policy hides, are left out.
  defp fetch(record, name) do
    case record do
      %{^name => %{__struct__: hidden}} when hidden in [Ash.NotLoaded, Ash.ForbiddenField] ->
        :error

      %{^name => value} ->
        {:ok, value}

      _other ->
        :error
    end
  end

  defp show_loaded(nil, _loaded), do: nil

  defp show_loaded(records, %{} = shape) when is_list(records),
    do: Enum.map(records, &record(&1, shape))

  defp show_loaded(record, %{} = shape), do: record(record, shape)
  defp show_loaded(value, {type, constraints}), do: value(value, type, constraints)

  @doc "A value as JSON. Its type says what is in it."
  def value(value, type, constraints) do
    {type, constraints} = Schema.plain(type, constraints || [])
    json(value, type, constraints)
  end

  defp json(value, _type, _constraints)
       when is_nil(value) or is_boolean(value) or is_number(value),
       do: value

  defp json(value, _type, _constraints) when is_atom(value), do: Atom.to_string(value)

  defp json(value, _type, _constraints) when is_binary(value),
    do: if(String.valid?(value), do: value, else: Base.encode64(value))

  defp json(values, {:array, type}, constraints) when is_list(values),
    do: Enum.map(values, &value(&1, type, constraints[:items]))

  defp json(values, Ash.Type.Keyword, constraints) when is_list(values),
    do: fields(values, constraints)

  defp json(values, _type, _constraints) when is_list(values),
    do: Enum.map(values, &value(&1, nil, []))

  defp json(%Ash.Union{type: name, value: value}, _type, constraints) do
    config = constraints[:types][name] || []
    value(value, config[:type], config[:constraints])
  end

  defp json(%Ash.CiString{} = text, _type, _constraints), do: to_string(text)

  defp json(%module{} = struct, type, constraints) do
    cond do
      module in [Date, Time, DateTime, NaiveDateTime, Duration] -> module.to_iso8601(struct)
      module == Decimal -> Decimal.to_string(struct, :normal)
      Ash.Resource.Info.resource?(module) -> record(struct, shape!(module, nil, [], 1))
      constraints[:fields] -> fields(struct, constraints)
      true -> dump(struct, type, constraints)
    end
  end

  defp json(%{} = map, _type, constraints) do
    if constraints[:fields],
      do: fields(map, constraints),
      else: Map.new(map, fn {key, value} -> {key(key), value(value, nil, [])} end)
  end

  defp json(tuple, Ash.Type.Tuple, constraints) when is_tuple(tuple),
    do:
      constraints[:fields]
      |> Keyword.keys()
      |> Enum.zip(Tuple.to_list(tuple))
      |> fields(constraints)

  # Processes, functions and references are of no use to a model.
  defp json(_other, _type, _constraints), do: nil

  # Only a type of the application knows which fields of its structs may be seen.
  defp dump(_struct, type, _constraints)
       when type in [nil, Ash.Type.Struct, Ash.Type.Term, Ash.Type.Map],
       do: nil

  defp dump(struct, type, constraints) do
    case Ash.Type.dump_to_embedded(type, struct, constraints) do
      {:ok, plain} when not is_struct(plain) -> value(plain, nil, [])
      _other -> nil
    end
  end

  defp fields(values, constraints) do
    for {name, config} <- constraints[:fields],
        {:ok, value} <- [field(values, name)],
        into: %{},
        do: {to_string(name), value(value, config[:type], config[:constraints])}
  end

  defp field(values, name) when is_list(values), do: Keyword.fetch(values, name)
  defp field(values, name), do: Map.fetch(values, name)

  defp key(key) when is_binary(key) or is_atom(key) or is_number(key), do: to_string(key)
  defp key(_other), do: "?"
end
