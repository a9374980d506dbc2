defmodule AshAgent.Resource.Shape do
  @moduledoc false

  # Translates between Ash types and the JSON of models: the schema, and the value of an answer.

  alias Ash.Error.Changes.InvalidArgument
  alias AshAgent.Tools.{Failure, Schema}

  @enforce_keys [:type, :constraints, :schema]
  defstruct @enforce_keys

  @invalid "the arguments are invalid"

  @doc "The shape of an object of a type, or words that say why no model can write it."
  def new(type, constraints) do
    case new_of_any(type, constraints) do
      {:ok, %{schema: %{"type" => "object"}}} = object -> object
      {:ok, _other} -> {:error, "its values are not objects"}
      {:error, words} -> {:error, words}
    end
  end

  @doc "The shape of a type, whose values need not be objects."
  def new_of_any(type, constraints) do
    type = Ash.Type.get_type(type)

    with {:type, true} <- {:type, Ash.Type.ash_type?(type)},
         {:ok, constraints} <- Ash.Type.init(type, constraints),
         {:ok, schema} <- Schema.of(type, constraints) do
      {:ok, %__MODULE__{type: type, constraints: constraints, schema: schema}}
    else
      {:type, false} -> {:error, "#{AshAgent.Options.kind(type)} is not an Ash type"}
      {:error, :makes_atoms} -> {:error, "it would make atoms of what a model writes"}
      {:error, :unwritable} -> {:error, "no model can write all of its values"}
      {:error, _constraints} -> {:error, "its constraints are not valid"}
    end
  end

  @doc "The value of JSON data, or what is wrong with it, in words for the model."
  def cast(%__MODULE__{schema: %{"type" => "object"}}, other) when not is_map(other),
    do: {:error, "expected an object"}

  def cast(%__MODULE__{type: type, constraints: constraints} = shape, data) do
    with {:ok, value} <- Ash.Type.cast_input(type, data, constraints),
         {:ok, value} when value != nil <- Ash.Type.apply_constraints(type, value, constraints) do
      {:ok, value}
    else
      {:error, errors} -> {:error, words(errors, shape)}
      _other -> {:error, @invalid}
    end
  rescue
    # Typed structs raise for lists, among others.
    _error -> {:error, @invalid}
  end

  @doc "As much of the value as came: a map with the fields by their names where it will be a struct."
  def cast_partial(%__MODULE__{type: type, constraints: constraints, schema: schema}, data),
    do: cast_part({type, constraints}, schema, data)

  defp cast_part({{:array, type}, constraints}, %{"items" => schema}, items)
       when is_list(items) do
    of = {Ash.Type.get_type(type), constraints[:items] || []}
    Enum.map(items, &cast_part(of, schema, &1))
  end

  defp cast_part({type, constraints}, %{"properties" => schemas}, %{} = data) do
    fields = Schema.fields(type, constraints)

    Map.new(data, fn {name, value} ->
      case fields do
        %{^name => {key, of}} -> {key, cast_part(of, schemas[name] || %{}, value)}
        %{} -> {name, value}
      end
    end)
  end

  # A text without a format may go on.
  defp cast_part({type, constraints}, schema, value)
       when is_number(value) or is_boolean(value) or
              (is_binary(value) and (is_map_key(schema, "enum") or is_map_key(schema, "format"))) do
    case Ash.Type.cast_input(type, value, constraints) do
      {:ok, value} -> value
      _not_yet -> value
    end
  end

  defp cast_part(_type, _schema, value), do: value

  defp words(errors, %{constraints: constraints}) do
    errors
    |> flat()
    |> Enum.map(&exception/1)
    |> Failure.words(%{
      inputs: Keyword.keys(constraints[:fields] || []),
      absent: @invalid,
      label: "a shape"
    })
  end

  # Types return texts, keyword lists, exceptions, and lists of these.
  defp flat(errors) do
    cond do
      not is_list(errors) -> [errors]
      Keyword.keyword?(errors) -> [errors]
      true -> Enum.flat_map(errors, &flat/1)
    end
  end

  defp exception(error) when is_exception(error), do: error

  defp exception([{_key, _value} | _] = error) do
    {known, vars} = Keyword.split(error, [:field, :path, :message])
    InvalidArgument.exception([vars: vars] ++ known)
  end

  defp exception(_text), do: InvalidArgument.exception(message: "is invalid")
end
