defmodule AshAgent.Resource.Verifier do
  @moduledoc false

  # Refuses at compile time what cannot work.

  use Spark.Dsl.Verifier

  import AshAgent.Section, only: [error: 3]

  alias AshAgent.{Info, Section, Tools}
  alias AshAgent.Resource.{Client, Output, Prompt, Tool}
  alias Spark.Dsl.Extension

  @impl true
  def verify(dsl) do
    with :ok <- client(dsl),
         :ok <- inputs(dsl),
         :ok <- prompt(dsl),
         :ok <- output(dsl),
         :ok <- hooks(dsl),
         :ok <- tools(dsl),
         :ok <- budget(dsl),
         do: options(dsl)
  end

  # A function is called when the agent is.
  defp client(dsl) do
    client = Info.option(dsl, :client)

    with false <- is_function(client, 0), {:error, words} <- Client.model(client) do
      error(dsl, [:agent, :client], words)
    else
      _fine -> :ok
    end
  end

  defp inputs(dsl) do
    case Enum.find(inputs_of(dsl), &(&1.name == :context)) do
      %{type: type, constraints: constraints} ->
        if type == Ash.Type.Struct and constraints[:instance_of] == AshAgent.Context,
          do: :ok,
          else:
            error(
              dsl,
              [:agent, :input, :context],
              "the argument :context is the conversation to go on with: make it " <>
                ":struct with `constraints instance_of: AshAgent.Context`, or rename it"
            )

      nil ->
        :ok
    end
  end

  defp inputs_of(dsl), do: Extension.get_entities(dsl, [:agent, :input])

  defp prompt(dsl) do
    prompt = Info.option(dsl, :prompt)

    with true <- is_binary(prompt),
         {:ok, names} <- Prompt.names(prompt),
         known = ["output_format" | Enum.map(inputs_of(dsl), &to_string(&1.name))] -- ["context"],
         [unknown | _] <- names -- known do
      error(
        dsl,
        [:agent, :prompt],
        "the prompt has {{ #{unknown} }}, which is not an argument; there are: #{Enum.join(known, ", ")}"
      )
    else
      {:error, words} -> error(dsl, [:agent, :prompt], words)
      _fine -> :ok
    end
  end

  defp output(dsl) do
    case Output.shape(dsl) do
      {:ok, _shape} ->
        :ok

      {:error, words} ->
        error(
          dsl,
          [:agent, :output],
          "expected :string or a type such as an Ash.TypedStruct for the output, but #{words}"
        )
    end
  end

  # Those of ash_agent that are options here would never be called.
  @moved [
    prepare_tool_results: "options after_tool: ...",
    prepare_context: "the argument `context`, or a model that prepares it",
    prepare_messages: "a model that prepares them",
    on_iteration_start: "max_iterations, token_budget or options before_tool: ...",
    on_iteration_complete: "options on_event: ..."
  ]

  defp hooks(dsl) do
    hooks = Info.option(dsl, :hooks)

    case hooks != nil and Code.ensure_loaded?(hooks) and
           Enum.find(@moved, fn {name, _instead} -> function_exported?(hooks, name, 1) end) do
      {name, instead} ->
        error(
          dsl,
          [:agent, :hooks],
          "#{inspect(hooks)}.#{name}/1 would not be called; use #{instead}"
        )

      _none ->
        :ok
    end
  end

  defp budget(dsl) do
    if Info.budget_strategy(dsl) == :halt and Info.token_budget(dsl) == nil,
      do:
        error(
          dsl,
          [:agent, :budget_strategy],
          "there is no budget to halt at; add token_budget"
        ),
      else: :ok
  end

  defp tools(dsl) do
    with :ok <- dsl |> Info.tools() |> Enum.find_value(:ok, &wrong(dsl, &1)), do: domains(dsl)
  end

  defp domains(dsl) do
    _tools = dsl |> Info.domains() |> Tools.list()
    :ok
  rescue
    error in ArgumentError -> error(dsl, [:tools, :domains], Exception.message(error))
  end

  defp wrong(dsl, tool) do
    with :ok <- name(tool),
         :ok <- function(tool),
         {:ok, _definition} <- Tool.definition(tool) do
      nil
    else
      {:error, words} ->
        error(dsl, [:tools, :tool, tool.name], "the tool #{inspect(tool.name)}: #{words}")
    end
  end

  defp name(%{name: name}) do
    if to_string(name) == Output.tool_name(),
      do: {:error, "the name belongs to the tool that takes the answer; choose another one"},
      else: :ok
  end

  defp function(%{function: {module, name, extra}}) do
    arity = length(extra) + 2

    if Code.ensure_loaded?(module) and not function_exported?(module, name, arity),
      do:
        {:error,
         "there is no #{inspect(module)}.#{name}/#{arity}, which gets the arguments, those of the tuple and the tool context"},
      else: :ok
  end

  defp function(_tool), do: :ok

  defp options(dsl) do
    Section.verify_options(dsl, [:agent, :options], Info.option(dsl, :options),
      own: [:llm, :tools, :max_iterations, :tool_timeout, :max_total_tokens],
      decided: [],
      given: []
    )
  end
end
