defmodule AshAgent.Resource.Output do
  @moduledoc false

  # Turns the type of an agent's answers into that of its runs, see `AshAgent.Output`.

  alias AshAgent.{Info, Output}
  alias AshAgent.Resource.Shape
  alias AshAgent.Runtime.Result

  @format "Give your final answer in the form that was asked for, and only when you are done."

  @doc "The shape of an agent's answers, `nil` if they are text, or words that say why there is none."
  def shape(resource) do
    case Info.option(resource, :output) do
      text when text in [:string, Ash.Type.String] -> {:ok, nil}
      type -> with {:ok, shape} <- Shape.new(type, []), do: check(shape)
    end
  end

  @doc "The type of an answer that is of an Ash type, or words that say why there is none."
  def new(type, constraints) do
    with {:ok, shape} <- Shape.new_of_any(type, constraints), do: {:ok, type(shape)}
  end

  defp check(shape) do
    _output = type(shape)
    {:ok, shape}
  rescue
    error in ArgumentError -> {:error, Exception.message(error)}
  end

  defp type(shape) do
    casts = [cast: &Shape.cast(shape, &1), partial: &Shape.cast_partial(shape, &1)]
    Output.new({shape.schema, casts})
  end

  @doc "Returns true if an answer is of the agent's type: a tool may end a run with anything."
  def typed?(resource, output) do
    case shape(resource) do
      {:ok, nil} -> output == nil or is_binary(output)
      {:ok, shape} -> Ash.Type.matches_type?(shape.type, output, shape.constraints)
    end
  end

  @doc "Returns the description of the type for the prompt."
  def format(nil), do: ""
  def format(_shape), do: @format

  @doc "The options of a run that has it."
  def options(nil), do: []
  def options(shape), do: [output: type(shape)]

  @doc "The result with its output as a value of the type, also where a tool has halted the run with one."
  def read(%Result{status: :halted} = result, shape) when shape != nil do
    # A tool may halt the run with anything.
    case Shape.cast(shape, result.output) do
      {:ok, value} -> %{result | output: value}
      {:error, _words} -> result
    end
  end

  def read(result, _shape), do: result
end
