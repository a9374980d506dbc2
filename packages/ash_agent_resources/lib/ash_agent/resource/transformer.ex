defmodule AshAgent.Resource.Transformer do
  @moduledoc false

  # Adds the actions of an agent, unless the resource has its own.

  use Spark.Dsl.Transformer

  alias Ash.Resource.Builder
  alias AshAgent.Info
  alias AshAgent.Resource.Action
  alias Spark.Dsl.Transformer

  @descriptions [
    call: "Calls the agent with a message, and returns its answer.",
    run: "Calls the agent with a message, and returns its answer with the conversation.",
    stream: "Calls the agent with a message, and returns its answer as a stream.",
    resume: "Goes on with a conversation of the agent, without a new message."
  ]

  # Ash's own transformers read the result.
  @impl true
  def before?(_transformer), do: true

  @impl true
  def transform(dsl) do
    given = Transformer.get_entities(dsl, [:agent, :input])

    inputs = if Enum.any?(given, &(&1.name == :context)), do: given, else: given ++ [context([])]

    {:ok, dsl}
    |> add(
      :call,
      Enum.reject(given, &(&1.name == :context)),
      answer_type(Info.option(dsl, :output))
    )
    |> add(:run, inputs)
    |> add(:stream, inputs)
    |> add(:resume, [context(allow_nil?: false)])
  end

  # The verifier reports other faults of a type.
  defp answer_type(type) do
    module = Ash.Type.get_type(type)
    known? = is_atom(module) and match?({:module, _}, Code.ensure_compiled(module))
    if known? and Ash.Type.ash_type?(module), do: module, else: :term
  end

  # A struct: what comes as JSON from outside is never a conversation.
  defp context(opts) do
    {:ok, argument} =
      Builder.build_action_argument(
        :context,
        :struct,
        [
          constraints: [instance_of: AshAgent.Context],
          description: "The conversation to go on with."
        ] ++ opts
      )

    argument
  end

  defp add(state, name, arguments, returns \\ :term) do
    Builder.add_new_action(state, :action, name,
      returns: returns,
      description: @descriptions[name],
      arguments: arguments,
      run: {Action, does: name}
    )
  end
end
