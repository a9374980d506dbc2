defmodule AshAgent.Context.Summarizer do
  @moduledoc false

  # Calls the application's function that makes a summary. Whatever it returns or raises, the conversation goes on.

  alias AshAgent.Context.Enhancer
  alias AshAgent.Context.Options.Kinds

  @doc "Returns the summary, or why there is none."
  def summarize(fun, messages) do
    said = with {:ok, text} <- Enhancer.attempt(fn -> fun.(messages) end), do: text

    cond do
      match?({:error, _reason}, said) -> said
      Kinds.words?(said) -> {:ok, said}
      true -> {:error, :no_text}
    end
  end
end
