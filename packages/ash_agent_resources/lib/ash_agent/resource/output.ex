defmodule AshAgent.Resource.Output do
  @moduledoc false

  # Answers of a type. The model gives them as the arguments of a tool, which every provider can do beside other tools, and
  # which ends the run when they are valid. Otherwise the tool says what is wrong, and the model tries again.

  alias AshAgent.{Context, Info}
  alias AshAgent.Resource.Shape
  alias AshAgent.Runtime.Result

  @tool "submit_answer"
  @format "Give your final answer by calling the tool #{@tool}, and only when you are done. Do not answer in text."

  @doc "The tool's name, which no other tool may have."
  def tool_name, do: @tool

  @doc "The shape of an agent's answers, `nil` if they are text, or words that say why there is none."
  @spec shape(module() | map()) :: {:ok, Shape.t() | nil} | {:error, String.t()}
  def shape(resource) do
    case Info.option(resource, :output) do
      text when text in [:string, Ash.Type.String] -> {:ok, nil}
      type -> Shape.new(type, [])
    end
  end

  @doc "Whether an answer is of the agent's type: a tool may end a run with anything."
  @spec typed?(module(), term()) :: boolean()
  def typed?(resource, output) do
    case shape(resource) do
      {:ok, nil} -> output == nil or is_binary(output)
      {:ok, shape} -> Ash.Type.matches_type?(shape.type, output, shape.constraints)
    end
  end

  @doc "What the prompt tells about it."
  @spec format(Shape.t() | nil) :: String.t()
  def format(nil), do: ""
  def format(_shape), do: @format

  @doc "The tools that it needs."
  @spec tools(Shape.t() | nil) :: [map()]
  def tools(nil), do: []

  def tools(shape) do
    [
      %{
        name: @tool,
        description: "Gives the final answer. Call it alone, once, when you are done.",
        parameters: shape.schema,
        function: fn arguments, _tool_context ->
          with {:ok, _value} <- Shape.cast(shape, arguments), do: {:halt, arguments}
        end
      }
    ]
  end

  @doc """
  Options of a run that let the tool run: it is part of the answer, and does nothing that anybody would have to decide about.
  """
  @spec admit(keyword(), Shape.t() | nil) :: keyword()
  def admit(options, nil), do: options

  def admit(options, _shape) do
    options
    |> update(:allowed_tools, &[@tool | &1])
    |> update(:permission_rules, &rules/1)
    |> update(:approval, &approval/1)
  end

  defp update(options, name, fun) do
    case options[name] do
      given when given in [nil, :auto] -> options
      given -> Keyword.put(options, name, fun.(given))
    end
  end

  # The first rule that allows denies all that none allows.
  defp rules(rules) do
    if Enum.any?(rules, &(elem(&1, 0) == :allow)), do: [{:allow, @tool} | rules], else: rules
  end

  defp approval(function) do
    fn
      %{name: @tool}, _tool_context -> :approve
      call, tool_context -> function.(call, tool_context)
    end
  end

  @doc "The result with its output as a value of the type."
  @spec read(Result.t(), Shape.t() | nil) :: {:ok, Result.t()} | {:error, String.t()}
  def read(result, nil), do: {:ok, result}

  # Another tool may halt the run with anything.
  def read(%Result{status: :halted} = result, shape) do
    case Shape.cast(shape, result.output) do
      {:ok, value} -> {:ok, %{result | output: value}}
      {:error, _words} -> {:ok, result}
    end
  end

  # Some models write the answer as text.
  def read(%Result{output: text} = result, shape) do
    with {:ok, object} <- Context.JSON.decode(text || ""),
         {:ok, value} <- Shape.cast(shape, object) do
      {:ok, %{result | output: value}}
    else
      {:error, %Context.Error{}} -> {:error, "the model answered in text"}
      {:error, words} -> {:error, words}
    end
  end
end
