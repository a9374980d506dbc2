defmodule AshAgent.Freeze.Table do
  @moduledoc false

  # The operations of operations.txt, compiled.

  import AshAgent.Freeze.{Form, Helpers}, warn: false
  import AshAgent.TestSupport.Generators, only: [between: 2]

  alias AshAgent.Freeze.Old
  alias AshAgent.Freeze.Old.{ChatContext, Context, Output, Prices, Response, Trace}, warn: false

  @compile {:no_warn_undefined, Old.modules()}

  # [{"context", [{"terms", [{text, expression}]}]}]
  @groups "operations.txt"
          |> Path.expand(__DIR__)
          |> File.read!()
          |> String.replace(~r/^#.*\n/m, "")
          |> String.split(~r/^= /m)
          |> tl()
          |> Enum.map(fn group ->
            [name | sections] = String.split(group, ~r/\n(?=\S)/)

            {name,
             for section <- sections do
               [operation | lines] = String.split(section, "\n", trim: true)
               {operation, Enum.map(lines, &{String.trim(&1), Code.string_to_quoted!(&1)})}
             end}
          end)

  # What an expression is done for each of, by the variable that it has.
  @each [n: quote(do: numbers(var!(c))), id: quote(do: ids(var!(c))), x: quote(do: var!(xs))]

  @doc "The operations on what a group is about."
  # Of one that is too long for everything.
  def operations("long context"),
    do: for(operation <- ["shown", "numbers", "recall", "request p"], do: {"context", operation})

  def operations("kept"), do: operations("context") ++ operations("damaged")

  def operations(group) do
    {_group, sections} = List.keyfind(@groups, group, 0)
    for {operation, _lines} <- sections, do: {group, operation}
  end

  for {group, sections} <- @groups, {operation, lines} <- sections do
    outcomes =
      for {text, expression} <- lines do
        outcome =
          quote do
            attempt(fn ->
              result = unquote(expression)
              {result, seen(result)}
            end)
          end

        {_, names} =
          Macro.prewalk(expression, [], fn
            {name, _, nil} = ast, names -> {ast, [name | names]}
            ast, names -> {ast, names}
          end)

        for {name, all} <- @each, name in names, reduce: {text, outcome} do
          {text, outcome} ->
            each = quote(do: unquote(Macro.var(name, nil)) <- unquote(all))
            {text, quote(do: for(unquote(each), do: unquote(outcome)))}
        end
      end

    variables = for name <- [:c, :chat, :o, :p, :xs], do: {name, Macro.var(name, nil)}

    def perform({unquote(group), unquote(operation)}, given) do
      %{unquote_splicing(variables)} = given
      {var!(own), var!(sent)} = {[at: at()], [pending: :interrupt]}
      _ = {unquote_splicing(Keyword.values(variables)), var!(own), var!(sent)}
      unquote(outcomes)
    end
  end

  # The first call of each function of contexts, with its arguments.
  @calls for {"context", sections} <- @groups,
             {_, lines} <- sections,
             {_, {{:., _, [{:__aliases__, _, [:Context]}, name]}, _, args}} <- lines,
             uniq: true,
             do: {name, args}

  def calls, do: unquote(Keyword.keys(@calls) |> Enum.uniq())

  for {name, args} <- Enum.uniq_by(@calls, &elem(&1, 0)) do
    def args(unquote(name), var!(c)) do
      {var!(own), var!(sent)} = {[at: at()], [pending: :interrupt]}
      {var!(n), var!(id), var!(p)} = {1, "none", :anthropic}
      _ = {var!(c), var!(own), var!(sent), var!(n), var!(id), var!(p)}
      unquote(args)
    end
  end
end
