defmodule AshAgent.OneLine do
  @moduledoc false

  # Inspects structs in one line, without prompts and keys, since this ends up in logs. `structs: false` shows the fields.

  # The width of a line.
  @most 100

  @doc "The line for a struct."
  def describe(%module{}, words) do
    name = "##{inspect(module)}<"
    name <> cut(String.replace(words, ~r/\s+/, " "), @most - String.length(name) - 1) <> ">"
  end

  @doc "The line for an error: what a program matches on, and the words for people."
  def describe_error(error), do: describe(error, "#{tag(error)}#{words(error)}")

  # Where an error has no words for its reason, `Exception.message/1` inspects it.
  defp words(%module{} = error) do
    ": " <> module.message(error)
  rescue
    _error -> ""
  end

  defp tag(%{kind: kind}) when kind != nil, do: kind
  defp tag(%{reason: reason}) when is_atom(reason), do: reason

  defp tag(%{reason: reason}) when is_tuple(reason) and is_atom(elem(reason, 0)),
    do: elem(reason, 0)

  defp tag(_error), do: "error"

  defp cut(words, most) do
    if String.length(words) > most, do: String.slice(words, 0, most - 1) <> "…", else: words
  end
end

defimpl Inspect, for: [AshAgent.Context.Error, AshAgent.Response.Error] do
  def inspect(error, _opts), do: AshAgent.OneLine.describe_error(error)
end

defimpl Inspect, for: AshAgent.Context.UnknownAtom do
  def inspect(atom, _opts), do: AshAgent.OneLine.describe(atom, atom.name)
end
