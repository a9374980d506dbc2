defmodule AshAgent.Output.Ecto do
  @moduledoc false

  # Fields of Ecto's schemas and schemaless changesets, and their changesets as casts. This package does not depend on Ecto:
  # an application with a schema has it.

  @same ~w(string integer float boolean date time naive_datetime map any)a
  @other [time_usec: :time, naive_datetime_usec: :naive_datetime, utc_datetime: :datetime] ++
           [utc_datetime_usec: :datetime, binary_id: :uuid]
  @plain Map.new(Enum.map(@same, &{&1, &1}) ++ @other)

  @doc "The fields of an embedded schema or a table, without keys and timestamps, and the cast to its struct."
  def schema(module) do
    changes? = function_exported?(module, :changeset, 2)

    generated = for {names, _} <- module.__schema__(:autogenerate), name <- names, do: name
    skipped = module.__schema__(:primary_key) ++ generated

    embeds = module.__schema__(:embeds)
    names = module.__schema__(:fields) -- skipped

    required =
      if changes?, do: module.changeset(struct(module), %{}).required, else: names -- embeds

    fields =
      for name <- names do
        type = type!(module.__schema__(:type, name), name)
        {name, [type: type, required: name in required]}
      end

    {fields, &cast(module, changes?, names -- embeds, embeds, &1)}
  end

  @doc "The fields of a schemaless changeset, all of them required, and the cast to its data."
  def schemaless(data, types) do
    fields = for {name, type} <- types, do: {name, type!(type, name)}

    {fields,
     fn params ->
       {data, types}
       |> changeset(:cast, [params, Map.keys(types)])
       |> changeset(:validate_required, [Map.keys(types)])
       |> apply_changes()
     end}
  end

  defp cast(module, true, _fields, _embeds, params),
    do: module |> struct() |> module.changeset(params) |> apply_changes()

  defp cast(module, false, fields, embeds, params) do
    changed = module |> struct() |> changeset(:cast, [params, fields])
    embeds |> Enum.reduce(changed, &changeset(&2, :cast_embed, [&1])) |> apply_changes()
  end

  defp changeset(data, function, arguments),
    do: apply(Ecto.Changeset, function, [data | arguments])

  defp apply_changes(changed) do
    with {:error, changed} <- changeset(changed, :apply_action, [:insert]) do
      errors = changeset(changed, :traverse_errors, [&message/1])
      {:error, flatten(errors, [])}
    end
  end

  # The options are those of the validation, never the value.
  defp message({words, options}) do
    Regex.replace(~r/%{(\w+)}/, words, fn whole, name ->
      case Enum.find(options, fn {key, _value} -> Atom.to_string(key) == name end) do
        {_key, value} when is_number(value) or is_atom(value) or is_binary(value) ->
          to_string(value)

        _other ->
          whole
      end
    end)
  end

  defp flatten(%{} = errors, path) do
    Enum.flat_map(errors, fn {name, inner} -> flatten(inner, path ++ [to_string(name)]) end)
  end

  defp flatten(errors, path) when is_list(errors) do
    errors
    |> Enum.with_index()
    |> Enum.flat_map(fn
      {words, _index} when is_binary(words) -> [{path, words}]
      {inner, index} -> flatten(inner, path ++ [index])
    end)
  end

  defp type!(plain, _name) when is_map_key(@plain, plain), do: Map.fetch!(@plain, plain)
  defp type!(:decimal, _name), do: %{"type" => "string", "pattern" => "^-?[0-9]+([.][0-9]+)?$"}
  defp type!({:array, type}, name), do: {:list, type!(type, name)}
  defp type!({:map, _type}, _name), do: :map
  defp type!(Ecto.UUID, _name), do: :uuid
  defp type!({:parameterized, {module, options}}, name), do: parameterized!(module, options, name)
  defp type!({:parameterized, module, options}, name), do: parameterized!(module, options, name)

  defp type!(module, name) when is_atom(module) do
    if Code.ensure_loaded?(module) and function_exported?(module, :type, 0),
      do: type!(module.type(), name),
      else: refuse!(name)
  end

  defp type!(_other, name), do: refuse!(name)

  defp parameterized!(Ecto.Enum, %{mappings: mappings}, _name) do
    choices = Keyword.keys(mappings)
    {:in, Enum.map(choices, &if(is_boolean(&1), do: "#{&1}", else: &1))}
  end

  defp parameterized!(Ecto.Embedded, %{cardinality: cardinality, related: module}, _name) do
    {fields, _cast} = schema(module)
    if cardinality == :many, do: {:list, fields}, else: fields
  end

  defp parameterized!(_module, _options, name), do: refuse!(name)

  defp refuse!(name) do
    raise ArgumentError,
          "the type of the field #{inspect(name)} cannot be written as a JSON Schema"
  end
end
