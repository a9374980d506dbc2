defmodule AshAgent.Arguments.Kinds do
  @moduledoc false

  # The types of a module's specs, in the form of `AshAgent.Options`. An unknown type counts as any term.

  # Types that name others are followed this far.
  @depth 5

  @doc "The types of the arguments, by function."
  def specs(%{module: module} = env) do
    given =
      Map.new(Module.get_attribute(module, :argument_kinds), fn {name, kind} ->
        {name, {:kind, kind}}
      end)

    types = Map.merge(types(module), given)

    for {:spec, spec, _location} <- Module.get_attribute(module, :spec) || [],
        {{name, _, args}, variables} <- [split(spec)],
        is_list(args),
        into: %{},
        do:
          {{name, length(args)},
           Enum.map(args, &kind(&1, {env, Map.merge(types, variables)}, @depth))}
  end

  defp types(module) do
    for attribute <- [:type, :typep, :opaque],
        {_, {:"::", _, [{name, _, _args}, definition]}, _} <-
          Module.get_attribute(module, attribute) || [],
        into: %{},
        do: {name, definition}
  end

  defp split({:when, _, [{:"::", _, [call, _result]}, variables]}), do: {call, Map.new(variables)}
  defp split({:"::", _, [call, _result]}), do: {call, %{}}

  defp kind(_type, _scope, 0), do: :any
  defp kind({:kind, kind}, _scope, _depth), do: kind
  defp kind({:"::", _, [_name, type]}, scope, depth), do: kind(type, scope, depth)

  defp kind({:|, _, [one, other]}, scope, depth) do
    kinds = Enum.flat_map([one, other], &flat(kind(&1, scope, depth)))
    {atoms, others} = Enum.split_with(kinds, &match?({:in, _}, &1))

    cond do
      :any in kinds -> :any
      atoms == [] -> {:or, Enum.uniq(others)}
      others == [] -> merge(atoms)
      true -> {:or, Enum.uniq(others) ++ [merge(atoms)]}
    end
  end

  defp kind(nil, _scope, _depth), do: nil
  defp kind(atom, _scope, _depth) when is_atom(atom), do: {:in, [atom]}
  defp kind([{:->, _, [[{:..., _, _}], _result]}], _scope, _depth), do: :any
  defp kind([{:->, _, [args, _result]}], _scope, _depth), do: {:fun, length(args)}
  defp kind(list, _scope, _depth) when is_list(list), do: :list
  defp kind({_one, _other}, _scope, _depth), do: :tuple
  defp kind({:{}, _, _}, _scope, _depth), do: :tuple
  defp kind({:%{}, _, _}, _scope, _depth), do: :map
  defp kind({:.., _, _}, _scope, _depth), do: :integer

  defp kind({:%, _, [module, _fields]}, {env, _types}, _depth),
    do: {:struct, expand(module, env)}

  defp kind({{:., _, [module, name]}, _, _args}, {env, types}, _depth) do
    case types do
      %{^name => {:kind, kind}} -> kind
      _types -> remote(expand(module, env), name)
    end
  end

  defp kind({name, _, args}, {_env, types} = scope, depth) when is_atom(name) do
    case {types, args} do
      {%{^name => definition}, _args} -> kind(definition, scope, depth - 1)
      _basic -> basic(name)
    end
  end

  defp kind(_type, _scope, _depth), do: :any

  # Not by `Macro.expand/2`, for which a type that is only named is a dependency.
  defp expand({:__aliases__, _, [first | rest]}, env) when is_atom(first) do
    first = Module.concat([first])
    {_, module} = List.keyfind(env.aliases, first, 0, {first, first})
    Module.concat([module | rest])
  end

  defp expand({:__MODULE__, _, _}, env), do: env.module
  defp expand(module, _env), do: module

  # Other basic types have the names of their kinds.
  @named ~w(atom boolean integer non_neg_integer pos_integer timeout list map tuple pid)a
  @basic %{
    module: :atom,
    binary: :string,
    iodata: {:or, [:string, :list]},
    nonempty_list: :list,
    keyword: :keyword_list,
    struct: :map,
    mfa: :tuple
  }

  defp basic(name) when name in @named, do: name
  defp basic(name), do: Map.get(@basic, name, :any)

  defp remote(String, :t), do: :string
  defp remote(Keyword, :t), do: :keyword_list
  defp remote(GenServer, name) when name in [:server, :name], do: :server
  # Whether it is a struct is known when all modules are compiled.
  defp remote(module, :t), do: {:remote, module}
  defp remote(_module, _name), do: :any

  defp flat({:or, kinds}), do: kinds
  defp flat(kind), do: [kind]

  defp merge(kinds), do: {:in, Enum.flat_map(kinds, &elem(&1, 1))}
end
