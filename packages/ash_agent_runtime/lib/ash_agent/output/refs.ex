defmodule AshAgent.Output.Refs do
  @moduledoc false

  # References of a JSON Schema are from its root. Those of a schema that becomes a part of another one have to keep their meaning, so
  # what they point to moves to the other's `$defs`, where every provider takes it.

  # No key of JSON, so that it is never one of an application's schema.
  @lifted {__MODULE__, :lifted}
  @defs ["$defs", "definitions"]
  @schemas @defs ++ ["properties", "patternProperties", "dependentSchemas"]
  @data ["const", "default", "enum", "examples"]

  @doc "Returns a schema as a part of another one, which `lift/1` makes whole."
  def embed(schema) do
    # The same schema has the same name in each place.
    hash = :crypto.hash(:sha256, :erlang.term_to_binary(schema))
    name = "s" <> Base.encode16(binary_part(hash, 0, 4), case: :lower)

    case rewrite(schema, &move(&1, name)) do
      ^schema ->
        schema

      moved ->
        {defs, rest} = Enum.split_with(moved, fn {key, _value} -> to_string(key) in @defs end)
        rest = Map.new(rest)

        defs =
          for {_key, named} <- defs,
              {key, value} <- named,
              into: %{},
              do: {"#{name}_#{key}", value}

        # A reference to anything but a definition needs the whole schema under a name.
        if rewrite(schema, &if(definition?(&1), do: &1)) == schema,
          do: Map.put(rest, @lifted, defs),
          else: %{"$ref" => "#/$defs/#{name}", @lifted => Map.put(defs, name, rest)}
    end
  end

  @doc "Returns a schema whose parts have their definitions at its root."
  def lift(schema) do
    case lift_each(schema) do
      {schema, defs} when defs == %{} -> schema
      {schema, defs} -> Map.update(schema, "$defs", defs, &Map.merge(&1, defs))
    end
  end

  defp lift_each(%{} = map) when not is_struct(map) do
    {own, map} = Map.pop(map, @lifted, %{})

    Enum.reduce(map, {map, own}, fn {key, value}, {map, defs} ->
      {value, more} = lift_each(value)
      {Map.put(map, key, value), Map.merge(defs, more)}
    end)
  end

  defp lift_each(list) when is_list(list) do
    {list, defs} = list |> Enum.map(&lift_each/1) |> Enum.unzip()
    {list, Enum.reduce(defs, %{}, &Map.merge/2)}
  end

  defp lift_each(value), do: {value, %{}}

  defp rewrite(%{} = schema, fun) when not is_struct(schema) do
    Map.new(schema, fn {key, value} ->
      name = to_string(key)

      cond do
        name == "$ref" and is_binary(value) -> {key, fun.(value)}
        name in @data -> {key, value}
        name in @schemas -> {key, rewrite_each(value, fun)}
        true -> {key, rewrite(value, fun)}
      end
    end)
  end

  defp rewrite(list, fun) when is_list(list), do: Enum.map(list, &rewrite(&1, fun))
  defp rewrite(value, _fun), do: value

  defp rewrite_each(%{} = schemas, fun),
    do: Map.new(schemas, fn {key, schema} -> {key, rewrite(schema, fun)} end)

  defp rewrite_each(other, _fun), do: other

  defp move("#/$defs/" <> rest, name), do: "#/$defs/#{name}_#{rest}"
  defp move("#/definitions/" <> rest, name), do: "#/$defs/#{name}_#{rest}"
  defp move("#" <> rest, name), do: "#/$defs/#{name}#{rest}"
  defp move(other, _name), do: other

  defp definition?("#/$defs/" <> _rest), do: true
  defp definition?("#/definitions/" <> _rest), do: true
  defp definition?("#" <> _rest), do: false
  # Refused where the schema is compiled.
  defp definition?(_other), do: true
end
