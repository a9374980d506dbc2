defmodule AshAgent.Options do
  @moduledoc false

  # Checks options by schemas, and writes their documentation from the same schemas. A schema is a keyword list in the
  # form of NimbleOptions (https://hexdocs.pm/nimble_options), of which this is the part that the package needs; the
  # package itself cannot be a dependency, since nothing here may need Hex. `valid?/2` has the types.
  #
  # Two differences: an option can describe its values in words (`:type_doc`), which errors use as well, and an error never
  # shows a value, because options carry prompts, keys and runtime contexts.

  alias AshAgent.Caller

  @doc """
  Makes a schema of a table: a row has the option's name, its type, what else is known of it, and its documentation.

  In the place of a type, a row can have the keyword list that several options share, with the type and its words.
  """
  def schema(rows) do
    Enum.map(rows, fn
      {name, option} -> {name, option}
      {name, kind, doc} when is_list(kind) -> {name, kind ++ [doc: doc]}
      {name, type, doc} -> {name, [type: type, doc: doc]}
      {name, type, option, doc} -> {name, [type: type] ++ option ++ [doc: doc]}
    end)
  end

  @doc """
  Returns the options with defaults filled in.

  Raises `ArgumentError` for unknown, repeated, missing and wrong options. It names what is allowed.
  """
  def validate!(opts, schema) do
    {schema, required, defaults} = if is_list(schema), do: compile(schema), else: schema

    unless right?(opts, schema) and Enum.all?(required, &:lists.keymember(&1, 1, opts)),
      do: explain!(opts, schema)

    fill(defaults, opts, opts)
  end

  @doc "The schema in the form that `validate!/2` reads fastest, for functions that are called often."
  def compile(schema) do
    {schema, for({name, option} <- schema, option[:required], do: name),
     for({name, option} <- schema, {:default, value} <- option, do: {name, value})}
  end

  @doc "Checks one value; the error says what is expected."
  def check(value, option),
    do: if(valid?(type(option), value), do: :ok, else: {:error, describe_expected(option)})

  @doc "The schema's options as a Markdown list, for an `## Options` section."
  def docs(schema) do
    Enum.map_join(schema, "\n", fn {name, option} ->
      text = String.trim(option[:doc] || "")
      text = if Keyword.has_key?(option, :default), do: text <> default(option), else: text
      text = if option[:required], do: text <> " Required.", else: text
      "  * `#{inspect(name)}` (#{type_doc(option)}) - " <> String.replace(text, "\n", "\n    ")
    end)
  end

  # One pass over few options costs much less than explaining their faults.
  defp right?([{name, value} | rest], schema) do
    case :lists.keyfind(name, 1, schema) do
      {_name, option} ->
        valid?(type(option), value) and not :lists.keymember(name, 1, rest) and
          right?(rest, schema)

      false ->
        false
    end
  end

  defp right?(rest, _schema), do: rest == []

  defp fill([], _given, opts), do: opts

  defp fill([{name, _value} = default | defaults], given, opts) do
    if :lists.keymember(name, 1, given),
      do: fill(defaults, given, opts),
      else: fill(defaults, given, [default | opts])
  end

  defp explain!(opts, schema) do
    given = names!(opts, schema)
    Enum.each(opts, fn {name, value} -> check!(name, value, schema[name]) end)

    for {name, option} <- schema, option[:required], name not in given do
      Caller.refuse!(
        "required option #{inspect(name)} not given: expected #{describe_expected(option)}"
      )
    end
  end

  defp names!(opts, schema) do
    unless is_list(opts) and Keyword.keyword?(opts),
      do: Caller.refuse!("expected options to be a keyword list, got: #{kind(opts)}")

    given = Keyword.keys(opts)
    known = Keyword.keys(schema)

    case Enum.uniq(given) -- known do
      [] ->
        :ok

      unknown ->
        Caller.refuse!(
          "unknown options #{inspect(unknown)}, valid options are: #{inspect(known)}"
        )
    end

    case Enum.uniq(given -- Enum.uniq(given)) do
      [] -> given
      repeated -> Caller.refuse!("options #{inspect(repeated)} given more than once")
    end
  end

  defp check!(name, value, option) do
    with {:error, expected} <- check(value, option) do
      Caller.refuse!(
        "invalid value for option #{inspect(name)}: expected #{expected}, got: #{describe_value(type(option), value)}"
      )
    end
  end

  defp type(option) do
    case :lists.keyfind(:type, 1, option) do
      {:type, type} -> type
      false -> :any
    end
  end

  defp valid?(:any, _value), do: true
  defp valid?(nil, value), do: is_nil(value)
  defp valid?(:atom, value), do: is_atom(value)
  defp valid?(:boolean, value), do: is_boolean(value)
  defp valid?(:string, value), do: is_binary(value)
  defp valid?(:integer, value), do: is_integer(value)
  defp valid?(:non_neg_integer, value), do: is_integer(value) and value >= 0
  defp valid?(:pos_integer, value), do: is_integer(value) and value > 0
  defp valid?(:timeout, value), do: value == :infinity or valid?(:non_neg_integer, value)
  # A wait of no time is not one here.
  defp valid?(:milliseconds, value), do: value == :infinity or valid?(:pos_integer, value)
  defp valid?(:list, value), do: is_list(value)
  defp valid?(:map, value), do: is_map(value)
  defp valid?(:keyword_list, value), do: Keyword.keyword?(value)
  defp valid?(:tuple, value), do: is_tuple(value)
  defp valid?(:pid, value), do: is_pid(value)

  defp valid?(:server, value),
    do: is_pid(value) or (is_atom(value) and value != nil) or is_tuple(value)

  defp valid?({:in, values}, value), do: value in values
  defp valid?({:fun, arity}, value), do: is_function(value, arity)
  defp valid?({:struct, module}, value), do: match?(%{__struct__: ^module}, value)

  defp valid?({:list, type}, value),
    do: is_list(value) and List.improper?(value) == false and Enum.all?(value, &valid?(type, &1))

  defp valid?({:or, [type | types]}, value),
    do: valid?(type, value) or valid?({:or, types}, value)

  defp valid?({:or, []}, _value), do: false
  defp valid?({:custom, check}, value), do: check.(value)

  defp describe_expected(option), do: option[:type_doc] || words(type(option))

  defp type_doc(option), do: option[:type_doc] || words(type(option), "`")

  defp words(type, quote \\ "")
  defp words(:any, _quote), do: "any term"
  defp words(nil, quote), do: quote <> "nil" <> quote
  defp words(type, _quote) when type in [:atom, :integer], do: "an #{type}"

  defp words(type, _quote) when type in [:boolean, :string, :list, :map, :tuple, :pid],
    do: "a #{type}"

  defp words(:non_neg_integer, _quote), do: "a non-negative integer"
  defp words(:pos_integer, _quote), do: "a positive integer"
  defp words(:timeout, quote), do: "milliseconds or #{quote}:infinity#{quote}"
  defp words(:milliseconds, _quote), do: "milliseconds or `:infinity`"
  defp words(:keyword_list, _quote), do: "a keyword list"
  defp words(:server, _quote), do: "a pid or the name of a process"

  defp words({:in, values}, quote),
    do: "one of " <> Enum.map_join(values, ", ", &(quote <> inspect(&1) <> quote))

  defp words({:fun, arity}, _quote), do: "a function of arity #{arity}"
  defp words({:struct, module}, quote), do: "a #{quote}%#{inspect(module)}{}#{quote}"
  defp words({:list, type}, quote), do: "a list in which each element is #{words(type, quote)}"
  defp words({:or, types}, quote), do: Enum.map_join(types, " or ", &words(&1, quote))
  defp words({:custom, _check}, _quote), do: "a valid value"

  defp default(option), do: " Defaults to `#{inspect(option[:default])}`."

  # In a list, the wrong element.
  defp describe_value({:list, type}, value) when is_list(value) do
    index = not List.improper?(value) and Enum.find_index(value, &(not valid?(type, &1)))
    if index, do: "#{kind(Enum.at(value, index))} at index #{index}", else: kind(value)
  end

  defp describe_value({:or, types}, value),
    do: types |> Enum.find(:any, &match?({:list, _}, &1)) |> describe_value(value)

  defp describe_value(_type, value), do: kind(value)

  @doc "Returns the kind of a value for an error; only atoms and numbers are shown themselves."
  # Atoms and numbers are shown as they are. Anything else may hold text that must not get into a log.
  def kind(value) when is_atom(value) or is_number(value), do: inspect(value)
  def kind(value) when is_binary(value), do: "a binary of #{byte_size(value)} bytes"
  def kind(value) when is_bitstring(value), do: "a bitstring"
  def kind(value) when is_struct(value), do: "a %#{inspect(value.__struct__)}{}"
  def kind(value) when is_map(value), do: "a map"
  def kind(value) when is_list(value), do: "a list"
  def kind(value) when is_tuple(value), do: "a tuple of #{tuple_size(value)} elements"

  def kind(value) when is_function(value),
    do: value |> Function.info(:arity) |> then(fn {_, n} -> "a function of arity #{n}" end)

  def kind(_value), do: "another term"
end
