defmodule AshAgent.Sigils do
  @moduledoc """
  The sigil for prompts of `AshAgent.Resource`, which is there in the section `agent` without an import.
  """

  alias AshAgent.Resource.Prompt

  @doc """
  A prompt, checked when it is compiled. It returns the text.

      prompt ~p\"""
      You help customers of {{ company }}.
      \"""
  """
  @doc since: "0.1.0"
  defmacro sigil_p({:<<>>, _meta, [text]}, _modifiers) when is_binary(text) do
    case Prompt.names(text) do
      {:ok, _names} ->
        text

      {:error, words} ->
        raise CompileError, description: words, file: __CALLER__.file, line: __CALLER__.line
    end
  end
end
