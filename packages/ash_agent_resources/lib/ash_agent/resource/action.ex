defmodule AshAgent.Resource.Action do
  @moduledoc false

  # The actions `:call`, `:answer`, `:stream` and `:resume`.

  use Ash.Resource.Actions.Implementation

  alias AshAgent.Resource.{Error, Stream, Turn}
  alias AshAgent.Runtime.{Paused, Result}

  @impl true
  def run(input, [does: :call], context),
    do: with({:ok, turn} <- Turn.new(input, context), do: Turn.run(turn))

  def run(input, [does: :answer], context) do
    case run(input, [does: :call], context) do
      {:ok, %Result{output: output}} ->
        {:ok, output}

      {:ok, %Paused{context: paused}} ->
        {:error, Error.exception(reason: :paused, context: paused)}

      error ->
        error
    end
  end

  def run(input, [does: :stream], context),
    do: with({:ok, turn} <- Turn.new(input, context), do: {:ok, Stream.new(turn)})

  def run(input, [does: :resume], context), do: input |> Turn.resume(context) |> Turn.run()
end
