defmodule AshAgent.Arguments.Words do
  @moduledoc false

  # The words for an argument that a function does not take. They never show a value.

  alias AshAgent.Options

  @doc "The error's message, for arguments with their names and kinds."
  def explain(title, params, values) do
    params = for {name, kind} <- params, do: {name, resolve(kind)}

    wrong =
      for {{name, kind}, value} <- Enum.zip(params, values),
          {:error, expected} <- [Options.check(value, type: kind)],
          do: {name, kind, expected, value}

    case wrong do
      [{name, kind, expected, value} | _] ->
        "#{title}: expected #{name} to be #{expected}, got: #{Options.kind(value)}#{hint(kind, value)}"

      [] ->
        "#{title}: one of the arguments is not what the function takes: " <>
          Enum.map_join(Enum.zip(params, values), ", ", fn {{name, _}, value} ->
            "#{name} is #{Options.kind(value)}"
          end) <>
          ". Its documentation has what each may be"
    end
  end

  @doc "The name of an argument by its pattern, or `nil`."
  def name({:=, _, [left, right]}), do: name(right) || name(left)
  def name({name, _, context}) when is_atom(name) and is_atom(context), do: bare(name)
  def name({:%, _, [{:__MODULE__, _, _}, _fields]}), do: nil
  def name({:%, _, [module, _fields]}) when is_atom(module), do: last(Module.split(module))
  def name({:%, _, [{:__aliases__, _, aliases}, _fields]}), do: last(aliases)
  def name(_pattern), do: nil

  defp last(aliases),
    do: aliases |> List.last() |> to_string() |> Macro.underscore() |> String.to_atom()

  # `_opts` is `opts`, and `_` has no name.
  defp bare(name) do
    case name |> Atom.to_string() |> String.trim_leading("_") do
      "" -> nil
      name -> String.to_atom(name)
    end
  end

  defp resolve({:or, kinds}), do: {:or, Enum.map(kinds, &resolve/1)}
  defp resolve({:remote, module}), do: if(struct?(module), do: {:struct, module}, else: :any)
  defp resolve(kind), do: kind

  defp struct?(module),
    do: Code.ensure_loaded?(module) and function_exported?(module, :__struct__, 0)

  # A hint on how to get the expected value.
  defp hint({:struct, module}, _value) do
    arities = for {:new, arity} <- module.__info__(:functions), do: arity
    if arities == [], do: "", else: ". Make one with #{inspect(module)}.new/#{Enum.max(arities)}"
  end

  defp hint({:in, atoms}, value) when is_atom(value) and not is_nil(value) do
    given = Atom.to_string(value)

    case Enum.filter(atoms, &close?(Atom.to_string(&1), given)) do
      [] -> ""
      close -> ". Did you mean #{Enum.map_join(close, " or ", &inspect/1)}?"
    end
  end

  defp hint({:or, kinds}, value),
    do: Enum.find_value(kinds, "", &with("" <- hint(&1, value), do: nil))

  defp hint(_kind, _value), do: ""

  defp close?(known, given),
    do: String.contains?(known, given) or String.jaro_distance(known, given) > 0.8
end
