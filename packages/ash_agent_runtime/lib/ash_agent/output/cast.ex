defmodule AshAgent.Output.Cast do
  @moduledoc false

  # Casts JSON data that fits its schema to the values of a type: whole ones, or those of a stream so far.

  @doc "Returns `{:ok, value}`, or `{:error, lines}` with words for the model."
  def cast(type, value) do
    case walk(type, value, []) do
      {:ok, value} -> {:ok, value}
      {:error, issues} -> {:error, Enum.map(issues, &line/1)}
    end
  end

  defp line({[], words}), do: "the answer: " <> words
  defp line({path, words}), do: Enum.map_join(path, &"/#{&1}") <> ": " <> words

  defp walk(:json, value, _path), do: {:ok, value}
  defp walk({:nullable, _type}, nil, _path), do: {:ok, nil}
  defp walk({:nullable, type}, value, path), do: walk(type, value, path)
  defp walk({:wrapped, type}, %{"value" => value}, path), do: walk(type, value, path)
  defp walk(:integer, value, _path) when is_float(value), do: {:ok, trunc(value)}
  defp walk(:integer, value, _path), do: {:ok, value}

  defp walk(:float, value, path) do
    {:ok, value / 1}
  rescue
    ArithmeticError -> {:error, [{path, "expected a number that a float can hold"}]}
  end

  defp walk({:choice, values}, value, _path), do: {:ok, choice(values, value)}

  defp walk({:list, type}, items, path) do
    items
    |> Enum.with_index()
    |> Enum.map(fn {item, index} -> walk(type, item, path ++ [index]) end)
    |> collect()
  end

  defp walk({:object, fields, into}, object, path) do
    results =
      for {name, value} <- object, field = fields[name], field != nil do
        with {:ok, value} <- walk(field.cast, value, path ++ [name]),
             do: {:ok, {field.key, value}}
      end

    with {:ok, entries} <- collect(results) do
      defaults =
        for {name, %{default: {:ok, default}} = field} <- fields,
            not is_map_key(object, name),
            do: {field.key, default}

      {:ok, shape(into, Map.new(defaults ++ entries))}
    end
  end

  defp walk({:one_of, branches}, %{"type" => name, "value" => value}, path) do
    {tag, type} = Map.fetch!(branches, name)
    with {:ok, value} <- walk(type, value, path ++ ["value"]), do: {:ok, tag(tag, value)}
  end

  defp walk({:function, fun, _partial}, value, path) do
    case fun.(value) do
      {:ok, value} ->
        {:ok, value}

      {:error, words} when is_binary(words) ->
        {:error, [{path, words}]}

      {:error, lines} when is_list(lines) ->
        {:error, Enum.map(lines, &issue(&1, path))}

      _other ->
        raise ArgumentError, "the :cast of an output returns {:ok, value} or {:error, words}"
    end
  end

  defp walk(time, text, path) when time in [:date, :time, :datetime, :naive_datetime] do
    case parse(time, text) do
      {:ok, value} -> {:ok, value}
      {:error, _reason} -> {:error, [{path, describe_expected(time)}]}
    end
  end

  defp issue({inner, words}, path) when is_list(inner), do: {path ++ inner, words}
  defp issue(words, path), do: {path, words}

  defp collect(results) do
    case for({:error, issues} <- results, do: issues) do
      [] -> {:ok, for({:ok, value} <- results, do: value)}
      issues -> {:error, Enum.concat(issues)}
    end
  end

  # 1.0 is 1 in JSON.
  defp choice(values, value) do
    with :error <- Map.fetch(values, value),
         nil <- Enum.find(values, fn {known, _choice} -> known == value end) do
      value
    else
      {:ok, choice} -> choice
      {_known, choice} -> choice
    end
  end

  defp tag({:named, name}, value), do: {name, value}
  defp tag(:struct, value), do: value

  defp shape(nil, map), do: map
  defp shape(module, map), do: struct!(module, map)

  defp parse(:date, text), do: Date.from_iso8601(text)

  # The offset of a time of day means nothing without a day.
  defp parse(:time, text),
    do: text |> String.replace(~r/(Z|[+-]\d\d:\d\d)\z/i, "") |> Time.from_iso8601()

  # Providers that hold a model to the format write "Z". Another offset would be lost.
  defp parse(:naive_datetime, text) do
    if text =~ ~r/[+-]\d\d:\d\d\z/, do: {:error, :offset}, else: NaiveDateTime.from_iso8601(text)
  end

  defp parse(:datetime, text) do
    with {:ok, time, _offset} <- DateTime.from_iso8601(text), do: {:ok, time}
  end

  defp describe_expected(:datetime),
    do: "expected a date and time with its offset, such as 2026-01-31T09:30:00Z"

  defp describe_expected(:naive_datetime),
    do: "expected a date and time without an offset, such as 2026-01-31T09:30:00"

  defp describe_expected(kind), do: "expected a #{kind} that exists"

  @doc "Returns a part of a value, with maps for what will be a struct, and without what cannot be cast yet."
  def cast_partial({:nullable, _type}, nil), do: nil

  def cast_partial({:object, fields, _into}, %{} = object) do
    for {name, value} <- object,
        field = fields[name],
        field != nil,
        into: %{},
        do: {field.key, cast_partial(field.cast, value)}
  end

  def cast_partial({:list, type}, items) when is_list(items),
    do: Enum.map(items, &cast_partial(type, &1))

  def cast_partial({:nullable, type}, value), do: cast_partial(type, value)
  def cast_partial({:wrapped, type}, %{"value" => value}), do: cast_partial(type, value)
  def cast_partial({:wrapped, _type}, _nothing), do: nil
  # A function makes whole values.
  def cast_partial({:function, _fun, {:function, partial}}, value), do: partial.(value)
  def cast_partial({:function, _fun, partial}, value), do: cast_partial(partial, value)

  def cast_partial({:one_of, branches}, %{"type" => name, "value" => value})
      when is_map_key(branches, name) do
    {tag, type} = Map.fetch!(branches, name)
    tag(tag, cast_partial(type, value))
  end

  def cast_partial({:one_of, _branches}, _untold), do: nil

  def cast_partial(type, value) do
    case walk(type, value, []) do
      {:ok, value} -> value
      {:error, _issues} -> nil
    end
  end
end
