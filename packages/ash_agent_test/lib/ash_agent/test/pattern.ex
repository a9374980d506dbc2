defmodule AshAgent.Test.Pattern do
  @moduledoc false

  # Patterns of calls and answers: the code in a test becomes a function that returns true if a value matches.
  #
  # They are Elixir's own, with pins and guards. Beyond those, a regex literal stands for text that it matches, and atoms as
  # keys match text as keys, since values of a model have text and a test's own script may have either.

  # name: the tool's, `nil` for any. words: the code, with the values of pins. matches?: of the normalized arguments.
  @enforce_keys [:name, :words, :matches?]
  defstruct @enforce_keys

  @doc "Makes the code of a `%AshAgent.Test.Pattern{}` of a call, such as `pay(%{id: ^id}) when id > 5`."
  def compile_call({:when, _, [call, guard]} = written),
    do: call |> split_call() |> compile(guard, written)

  def compile_call(call), do: call |> split_call() |> compile(true, call)

  @doc "Makes the code of a pattern of any value."
  def compile_value({:when, _, [pattern, guard]} = written),
    do: compile({nil, pattern}, guard, written)

  def compile_value(pattern), do: compile({nil, pattern}, true, pattern)

  @any {:_, [], nil}

  defp split_call({:_, _, context}) when is_atom(context), do: {nil, @any}
  defp split_call({name, _, context}) when is_atom(name) and is_atom(context), do: {name, @any}
  defp split_call({name, _, []}) when is_atom(name), do: {name, @any}

  defp split_call({:{}, _, _} = other), do: refuse(other)

  defp split_call({name, _, [arguments]}) when is_atom(name), do: {name, fields(arguments)}
  defp split_call({name, arguments}) when is_binary(name), do: {name, fields(arguments)}
  defp split_call(name) when is_binary(name) or is_atom(name), do: {name, @any}
  defp split_call(other), do: refuse(other)

  defp refuse(other) do
    AshAgent.Caller.refuse!(
      "expected a call such as search, search(q: ~r/oslo/), pay(%{id: ^id}) when id > 5 or {\"get-time\", %{}}, got: " <>
        Macro.to_string(other)
    )
  end

  # `search(q: "Oslo")` is a call with at least this argument.
  defp fields(fields) when is_list(fields) do
    if Keyword.keyword?(fields), do: {:%{}, [], fields}, else: fields
  end

  defp fields(pattern), do: pattern

  defp compile({name, pattern}, guard, written) do
    {pattern, {pins, regexes}} = Macro.prewalk(pattern, {[], []}, &translate/2)

    checks =
      for {variable, regex} <- regexes,
          do:
            quote(
              do: is_binary(unquote(variable)) and Regex.match?(unquote(regex), unquote(variable))
            )

    check =
      Enum.reduce(checks, true, fn check, all -> quote(do: unquote(check) and unquote(all)) end)

    shown = for {variable, pinned} <- pins, do: {Macro.to_string(pinned), variable}

    quote generated: true do
      unquote_splicing(
        for {variable, pinned} <- Enum.reverse(pins),
            do: quote(do: unquote(variable) = unquote(__MODULE__).normalize(unquote(pinned)))
      )

      %unquote(__MODULE__){
        name: unquote(name && to_string(name)),
        words: unquote(__MODULE__).describe(unquote(Macro.to_string(written)), unquote(shown)),
        matches?: fn
          unquote(pattern) when unquote(guard) -> unquote(check)
          _other -> false
        end
      }
    end
  end

  # Pins are normalized as what they are compared with, so they may be any expression.
  defp translate({:^, meta, [pinned]}, {pins, regexes}) do
    variable = Macro.unique_var(:pinned, __MODULE__)
    {{:^, meta, [variable]}, {[{variable, pinned} | pins], regexes}}
  end

  defp translate({sigil, _, _} = regex, {pins, regexes}) when sigil in [:sigil_r, :sigil_R] do
    variable = Macro.unique_var(:text, __MODULE__)
    {variable, {pins, [{variable, regex} | regexes]}}
  end

  defp translate({:%, meta, [struct, {:%{}, map_meta, fields}]}, found),
    do: {{:%, meta, [struct, {:%{}, [struct: true] ++ map_meta, fields}]}, found}

  defp translate({:%{}, meta, fields}, found) do
    if meta[:struct],
      do: {{:%{}, meta, fields}, found},
      else: {{:%{}, meta, Enum.map(fields, &name_key/1)}, found}
  end

  defp translate(other, found), do: {other, found}

  defp name_key({key, pattern}) when is_atom(key), do: {Atom.to_string(key), pattern}
  defp name_key(field), do: field

  @doc "Returns a term with text for atoms as keys of maps, but not of structs."
  def normalize(%_{} = struct), do: struct

  def normalize(%{} = map) do
    Map.new(map, fn
      {key, value} when is_atom(key) -> {Atom.to_string(key), normalize(value)}
      {key, value} -> {key, normalize(value)}
    end)
  end

  def normalize([head | tail]), do: [normalize(head) | normalize(tail)]

  def normalize(tuple) when is_tuple(tuple),
    do: tuple |> Tuple.to_list() |> normalize() |> List.to_tuple()

  def normalize(other), do: other

  @doc "Returns the pattern as it was written, with the values of its pins."
  def describe(written, []), do: written

  def describe(written, pins) do
    shown =
      Enum.map_join(pins, ", ", fn {name, value} ->
        "#{name} = #{inspect(value, limit: 20, printable_limit: 200)}"
      end)

    "#{written}, with #{shown}"
  end

  @doc "Returns whether a call matches."
  def match_call?(%__MODULE__{name: name} = pattern, call),
    do: name in [nil, call.name] and pattern.matches?.(call.arguments)
end
