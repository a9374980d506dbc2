defmodule AshAgent.Test.Replay do
  @moduledoc false

  # Compares what requests of a stored conversation asked for with what today's code would ask for. Models are described and tools
  # listed; neither is called.

  alias AshAgent.{Context, LLM, Options, Runtime}
  alias AshAgent.LLM.Difference
  alias AshAgent.Test.{Pattern, Trajectory}

  @schema [
    llm: [type: :any, required: true, type_doc: "a model", doc: "the model of today."],
    tools: [
      type: {:or, [:map, :list, {:fun, 0}]},
      type_doc: "a map, a list, or a function of arity 0",
      default: %{},
      doc: "the tools of today, as `AshAgent.Runtime.run/2` takes them. None is called."
    ],
    system_prompt: [
      type: {:or, [:string, :list]},
      type_doc: "a string or a list of parts",
      doc: "the system prompt of today. Without one, prompts are not compared."
    ],
    stream: [type: :boolean, default: true, doc: "as in `AshAgent.Runtime.run/2`."]
  ]

  @doc "Returns the schema of the options."
  def options, do: @schema

  @doc "Compares, see `AshAgent.Test.replay/2`."
  def run(context, opts) do
    opts = Options.validate!(opts, @schema)

    known =
      for number <- Trajectory.numbers(context, nil),
          note = read_note(context, number),
          do: {number, note}

    now = describe(opts)

    different =
      for {number, note} <- known,
          [_ | _] = differences <- [Difference.between(put_prompt(note, context, opts), now)],
          do: %{iteration: number, differences: differences}

    cond do
      known == [] -> :not_comparable
      different == [] -> {:same, length(known)}
      true -> {:different, different}
    end
  end

  # Notes of an iteration stand for its request, and only an iteration with an answer had one.
  defp read_note(context, number) do
    case Context.get_request(context, number) do
      %{fields: %{} = fields, tools: tools} -> to_body(Pattern.normalize(fields), tools || [])
      _not_noted -> nil
    end
  end

  defp describe(opts) do
    run = Runtime.options(Keyword.take(opts, [:llm, :tools]))
    stream? = opts[:stream] and LLM.streams?(run[:llm])
    fields = LLM.describe(run[:llm], if(stream?, do: :stream, else: :chat))

    tools =
      if is_function(run[:tools], 0), do: Runtime.Tool.new(run[:tools].()), else: run[:tools]

    tools = for tool <- tools, do: Map.take(tool, [:name, :description, :parameters])
    body = to_body(Pattern.normalize(fields), tools)

    if prompt = opts[:system_prompt],
      do: Map.put(body, "system", Pattern.normalize(prompt)),
      else: body
  end

  # Where requests go is not part of them.
  defp to_body(fields, tools) do
    fields
    |> Map.take(["model", "provider"])
    |> Map.merge(fields["body"] || %{})
    |> Map.put("tools", Pattern.normalize(tools))
  end

  defp put_prompt(body, context, opts) do
    if opts[:system_prompt],
      do: Map.put(body, "system", Pattern.normalize(Context.system_prompt(context))),
      else: body
  end
end
