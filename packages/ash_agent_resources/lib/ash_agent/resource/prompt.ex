defmodule AshAgent.Resource.Prompt do
  @moduledoc false

  # Prompts with the arguments of a call in them. Templates only have `{{ name }}`: a function does everything else.

  alias AshAgent.Context

  @name ~r/\{\{\s*([a-z_][a-zA-Z0-9_]*[?!]?)\s*\}\}/

  @doc "Checks a template, and returns the names in it."
  def names(template) do
    rest = Regex.replace(@name, template, "")

    if rest =~ ~r/\{\{|\{%/ do
      {:error,
       "a prompt has {{ name }} for an argument, and nothing else of Liquid; for more, give a function of the arguments"}
    else
      {:ok, for([_all, name] <- Regex.scan(@name, template), do: name)}
    end
  end

  @doc "The text for these arguments, or `nil` without a prompt."
  def render(nil, _arguments, ""), do: nil
  def render(nil, _arguments, output_format), do: output_format

  def render(prompt, arguments, output_format) when is_function(prompt, 1),
    do: with_format(prompt.(arguments), output_format)

  def render(template, arguments, output_format) do
    texts = Map.new(arguments, fn {name, value} -> {to_string(name), value} end)

    text =
      Regex.replace(@name, template, fn
        _all, "output_format" -> output_format
        _all, name -> text(texts[name])
      end)

    if template =~ ~r/\{\{\s*output_format\s*\}\}/,
      do: text,
      else: with_format(text, output_format)
  end

  defp with_format(text, ""), do: text

  defp with_format(text, output_format),
    do: String.trim_trailing(text) <> "\n\n" <> output_format

  defp text(nil), do: ""
  defp text(value) when is_binary(value), do: value
  defp text(value) when is_atom(value) or is_number(value), do: to_string(value)
  defp text(value), do: Context.JSON.encode(value)
end
