defmodule AshAgent.Resource.Action do
  @moduledoc false

  # The actions `:call`, `:stream` and `:resume`.

  use Ash.Resource.Actions.Implementation

  alias AshAgent.Resource.{Stream, Turn}

  @impl true
  def run(input, [does: :call], context),
    do: with({:ok, turn} <- Turn.new(input, context), do: Turn.run(turn))

  def run(input, [does: :stream], context),
    do: with({:ok, turn} <- Turn.new(input, context), do: {:ok, Stream.new(turn)})

  def run(input, [does: :resume], context), do: input |> Turn.resume(context) |> Turn.run()
end
