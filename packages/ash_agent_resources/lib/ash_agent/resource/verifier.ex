defmodule AshAgent.Resource.Verifier do
  @moduledoc false

  # Refuses faulty settings at compile time.

  use Spark.Dsl.Verifier

  alias AshAgent.{Info, Section, Tools}
  alias AshAgent.Resource.{Client, Output, Prompt, Tool}
  alias Spark.Dsl.Extension

  @impl true
  def verify(dsl) do
    Section.verify(dsl, [
      {[:agent, :client], &client/1},
      {[:agent, :input, :context], &inputs/1},
      {[:agent, :prompt], &prompt/1},
      {[:agent, :output], &output/1},
      {[:agent, :hooks], &hooks/1},
      {[:tools], &tools/1},
      {[:tools, :domains], &domains/1},
      {[:agent, :budget_strategy], &budget/1},
      {[:agent, :options], &options/1}
    ])
  end

  # A function is not checked here: it is called with the agent.
  defp client(dsl) do
    client = Info.option(dsl, :client)

    with false <- is_function(client, 0), {:error, words} <- Client.model(client) do
      words
    else
      _fine -> nil
    end
  end

  defp inputs(dsl) do
    argument = Enum.find(inputs_of(dsl), &(&1.name == :context))

    if argument != nil and
         {argument.type, argument.constraints[:instance_of]} !=
           {Ash.Type.Struct, AshAgent.Context},
       do:
         "the argument :context is the conversation to go on with: make it " <>
           ":struct with `constraints instance_of: AshAgent.Context`, or rename it"
  end

  defp inputs_of(dsl), do: Extension.get_entities(dsl, [:agent, :input])

  defp prompt(dsl) do
    prompt = Info.option(dsl, :prompt)

    with true <- is_binary(prompt),
         {:ok, names} <- Prompt.names(prompt),
         known = ["output_format" | Enum.map(inputs_of(dsl), &to_string(&1.name))] -- ["context"],
         [unknown | _] <- names -- known do
      "the prompt has {{ #{unknown} }}, which is not an argument; there are: #{Enum.join(known, ", ")}"
    else
      {:error, words} -> words
      _fine -> nil
    end
  end

  defp output(dsl) do
    with {:error, words} <- Output.shape(dsl) do
      "expected :string or a type such as an Ash.TypedStruct for the output, but #{words}"
    else
      _shape -> nil
    end
  end

  # Callbacks of ash_agent that are options here would never be called.
  @moved [
    prepare_tool_results: "options after_tool: ...",
    prepare_context: "the argument `context`, or a model that prepares it",
    prepare_messages: "a model that prepares them",
    on_iteration_start: "max_iterations, token_budget or options before_tool: ...",
    on_iteration_complete: "options on_event: ..."
  ]

  defp hooks(dsl) do
    hooks = Info.option(dsl, :hooks)

    if hooks != nil and Code.ensure_loaded?(hooks) do
      Enum.find_value(@moved, fn {name, instead} ->
        if function_exported?(hooks, name, 1),
          do: "#{inspect(hooks)}.#{name}/1 would not be called; use #{instead}"
      end)
    end
  end

  defp budget(dsl) do
    if Info.budget_strategy(dsl) == :halt and Info.token_budget(dsl) == nil,
      do: "there is no budget to halt at; add token_budget"
  end

  defp tools(dsl), do: Enum.find_value(Info.tools(dsl), &wrong/1)

  defp domains(dsl), do: Section.refusal(fn -> dsl |> Info.domains() |> Tools.list() end)

  defp wrong(tool) do
    with :ok <- name(tool),
         :ok <- function(tool),
         {:ok, _definition} <- Tool.definition(tool) do
      nil
    else
      {:error, words} ->
        {[:tools, :tool, tool.name], "the tool #{inspect(tool.name)}: #{words}"}
    end
  end

  defp name(%{name: name}) do
    if to_string(name) == AshAgent.Output.tool_name(),
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
    Section.refuse_options(:agent, Info.option(dsl, :options),
      own: [:llm, :tools, :max_iterations, :tool_timeout, :max_total_tokens],
      decided: [],
      given: []
    )
  end
end
