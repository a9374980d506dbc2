defmodule AshAgent.Trace.Otlp do
  @moduledoc false

  # Conversations as OTLP: the options, and the way into the core.

  alias AshAgent.{ChatContext, Context, Prices, ToolDefinition}
  alias AshAgent.Context.{Native, Printed, Reply}

  @attributes [
    type: {:custom, &__MODULE__.attributes?/1},
    type_doc: "a map of names to strings, numbers, booleans or lists of them"
  ]

  # The options of an exporter, which has one format and knows which turns are over.
  @shared AshAgent.Options.schema([
            {:agent, :string, [default: "ash_agent"], "the agent's name."},
            {:version, {:or, [:string, nil]}, [default: nil], "the agent's version."},
            {:messages, :boolean, [default: false],
             "whether to write what was said: messages, system prompts, definitions of tools, arguments and results. " <>
               "Names, ids, times, numbers of tokens and kinds of failures are always written."},
            {:conventions, {:in, [:v1_41, :next]}, [default: :v1_41],
             "the version of the semantic conventions: 1.41, or what has been changed in them since and has no release yet. " <>
               "Only `:next` has `gen_ai.conversation.compacted`, and summaries as parts of the type `compaction`."},
            {:tools, :any, [type_doc: "tools, as `AshAgent.Runtime.run/2` takes them"],
             "the tools that the agent had. Defaults to no tools."},
            {:resource,
             @attributes ++
               [
                 default: %{},
                 doc:
                   "attributes of the resource, such as `%{\"deployment.environment.name\" => \"production\"}`. Unless it has " <>
                     "`service.name`, that is the agent's name."
               ]},
            {:attributes,
             @attributes ++
               [
                 default: %{},
                 doc:
                   "further attributes of the spans of turns, such as `%{\"user.id\" => \"42\"}`; those of sub-agents do not get them."
               ]}
          ]) ++ Prices.schema()

  @own AshAgent.Options.schema([
         {:format, {:in, [:protobuf, :json]}, [default: :protobuf],
          "`:json` is for files; most receivers take only `:protobuf`."},
         {:turn, {:custom, &__MODULE__.turn?/1},
          [type_doc: "a number, a range of numbers, `:last` or `nil`", default: nil],
          "the number of an iteration, for the turn that it belongs to, or a range of them, or `:last`. With `nil`, all turns are " <>
            "written."}
       ])

  def options, do: @own ++ @shared
  def shared_options, do: @shared

  @doc """
  Encodes what was checked. `how` is what a conversation does not tell: why the last turn failed (`:error`), that it goes on (`:open?`), and the
  ids of the trace and the span of who asked (`:caller`).
  """
  def encode(shown, opts, how \\ []) do
    children = Enum.map(opts[:children], &read_conversation(&1, false))
    write([read_conversation(shown, true) | children], opts, how)
  end

  defp write(told, opts, how) do
    given = %{
      agent: opts[:agent],
      version: opts[:version],
      error: how[:error],
      open: how[:open?] == true,
      caller: how[:caller],
      prices: Prices.terms(opts[:prices]),
      json: opts[:format] == :json,
      next: opts[:conventions] == :next,
      messages: opts[:messages],
      turns: turns(opts[:turn]),
      tools: opts[:tools] && ToolDefinition.to_maps(opts[:tools]),
      resource: Map.merge(%{"service.name" => opts[:agent]}, stringify_keys(opts[:resource])),
      attributes: stringify_keys(opts[:attributes])
    }

    told |> Native.trace_otlp(opts[:masked], given) |> Reply.ok!()
  end

  @doc "Raises if the library was built without the feature."
  def available! do
    write([], AshAgent.Options.validate!([], options()) ++ [masked: true], [])
    :ok
  end

  defp read_conversation(%Context{} = context, active?), do: Printed.describe(context, active?)

  defp read_conversation(%ChatContext{} = chat, active?) do
    branch = ChatContext.active(chat)
    {branch.name, chat.id, chat.parent_id, nil, active?, branch.context.ref}
  end

  defp turns(nil), do: nil
  defp turns(:last), do: {0, 0}
  defp turns(first..last//_), do: {first, last}
  defp turns(number), do: {number, number}

  defp stringify_keys(map), do: Map.new(map, fn {name, value} -> {to_string(name), value} end)

  @doc false
  def turn?(first..last//1) when first in 1..last//1, do: true
  def turn?(number), do: number in [nil, :last] or (is_integer(number) and number > 0)

  @doc false
  def attributes?(map) when is_map(map) and not is_struct(map),
    do: Enum.all?(map, fn {name, value} -> name?(name) and value?(value) end)

  def attributes?(_other), do: false

  defp name?(name) when is_atom(name), do: name != nil
  defp name?(name), do: is_binary(name) and name != "" and String.valid?(name)

  defp value?(values) when is_list(values),
    do: not List.improper?(values) and Enum.all?(values, &scalar?/1)

  defp value?(value), do: scalar?(value)

  defp scalar?(text) when is_binary(text), do: String.valid?(text)

  defp scalar?(number) when is_integer(number),
    do: number in -0x8000000000000000..0x7FFFFFFFFFFFFFFF

  defp scalar?(value), do: is_float(value) or is_boolean(value)
end
