defmodule AshAgent.Arguments do
  @moduledoc false

  # Arguments that a public function does not take raise an `ArgumentError`, which names the argument, the values that are
  # taken, and the kind of the given one. The kinds are those of the function's `@spec`.
  #
  #     use AshAgent.Arguments
  #
  # gives each function of a module that has a spec, and whose clauses do not take everything, one more clause, which raises.
  # Elixir allows further clauses only after a head of their own for defaults, and so `def` writes that head. Kinds of types that
  # other modules have are given by the names of the types: `use AshAgent.Arguments, provider: {:in, [..]}`.

  import Kernel, except: [def: 2]

  alias AshAgent.Arguments.{Kinds, Words}

  @doc "Returns true if a term can name a process."
  defguard is_server(term) when is_pid(term) or (is_atom(term) and term != nil) or is_tuple(term)

  defmacro __using__(kinds) do
    quote do
      @argument_kinds unquote(kinds)
      import Kernel, except: [def: 2]
      import AshAgent.Arguments, only: [def: 2, is_server: 1], warn: false
      @before_compile AshAgent.Arguments
      Module.register_attribute(__MODULE__, :public_functions, persist: true)
      @public_functions true
    end
  end

  defmacro def(call, body) do
    {name, meta, args} = with {:when, _, [head, _guards]} <- call, do: head

    if is_atom(name) and Enum.any?(List.wrap(args), &match?({:\\, _, _}, &1)) do
      quote do
        Kernel.def(unquote({name, meta, head_args(args)}))
        Kernel.def(unquote(without_defaults(call)), unquote(body))
      end
    else
      quote(do: Kernel.def(unquote(call), unquote(body)))
    end
  end

  defp without_defaults({:when, meta, [head, guards]}),
    do: {:when, meta, [without_defaults(head), guards]}

  defp without_defaults({name, meta, args}), do: {name, meta, Enum.map(args, &bare/1)}

  defp bare({:\\, _meta, [arg, _default]}), do: arg
  defp bare(arg), do: arg

  # The head shows in the documentation, with a name for each argument.
  defp head_args(args) do
    for {arg, position} <- Enum.with_index(args, 1) do
      variable = {Words.name(bare(arg)) || :"argument_#{position}", [], nil}

      case arg do
        {:\\, meta, [_arg, default]} -> {:\\, meta, [variable, default]}
        _arg -> variable
      end
    end
  end

  defmacro __before_compile__(env) do
    specs = Kinds.specs(env)

    for {name, arity} = function <- Module.definitions_in(env.module, :def),
        types = specs[function],
        {:v1, :def, meta, [_ | _] = clauses} <- [Module.get_definition(env.module, function)],
        not super?(clauses) and not Enum.any?(clauses, &total?/1) do
      vars = Macro.generate_arguments(arity, __MODULE__)
      title = "#{inspect(env.module)}.#{name}/#{arity}"

      quote generated: true, line: meta[:line] do
        Kernel.def unquote(name)(unquote_splicing(vars)) do
          raise ArgumentError,
                AshAgent.Arguments.Words.explain(
                  unquote(title),
                  unquote(Macro.escape(Enum.zip(names(clauses), types))),
                  unquote(vars)
                )
        end
      end
    end
  end

  # Clauses that fill in a default.
  defp super?([{_, _, _, {:super, _, _}} | _clauses]), do: true
  defp super?(_clauses), do: false

  defp total?({_meta, args, guards, _body}),
    do:
      guards == [] and
        Enum.all?(args, &match?({name, _, context} when is_atom(name) and is_atom(context), &1))

  defp names([{_meta, args, _guards, _body} | _] = clauses) do
    for position <- 0..(length(args) - 1) do
      Enum.find_value(clauses, fn {_, args, _, _} -> args |> Enum.at(position) |> Words.name() end) ||
        :"argument #{position + 1}"
    end
  end
end
