defmodule AshAgent.Resource.Action do
  @moduledoc false

  # The actions `:call`, `:run`, `:stream` and `:resume`.

  use Ash.Resource.Actions.Implementation

  alias AshAgent.Resource.{Error, Output, Stream, Turn}
  alias AshAgent.Runtime.{Paused, Result}

  @impl true
  def run(input, [does: :run], context),
    do: with({:ok, turn} <- Turn.new(input, context), do: Turn.run(turn))

  # The action has a type, so that everything else is an error.
  def run(input, [does: :call], context) do
    case run(input, [does: :run], context) do
      {:ok, %Result{output: output, context: ended}} ->
        if Output.typed?(input.resource, output),
          do: {:ok, output},
          else:
            {:error, error({:invalid_output, "a tool ended the call with something else"}, ended)}

      {:ok, %Paused{context: paused}} ->
        {:error, error(:paused, paused)}

      error ->
        error
    end
  end

  def run(input, [does: :stream], context),
    do: with({:ok, turn} <- Turn.new(input, context), do: {:ok, Stream.new(turn)})

  def run(input, [does: :resume], context), do: input |> Turn.resume(context) |> Turn.run()

  defp error(reason, context), do: Error.exception(reason: reason, context: context)
end
