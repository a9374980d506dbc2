defmodule AshAgent.Context.Stored.AshType do
  @moduledoc false

  # The callbacks of an `Ash.Type` for a kind of value, with the options of `AshAgent.Context.Stored` as constraints.

  alias AshAgent.{ChatContext, Context}
  alias AshAgent.Context.Stored

  defmacro __using__(of: kind) do
    kind = Macro.expand(kind, __CALLER__)
    comparable = Module.concat([Comparable, Type, kind, To, kind])

    quote do
      use Ash.Type

      alias AshAgent.Context.Stored

      @kind unquote(kind)

      @impl true
      def constraints, do: Stored.schema(@kind)

      @impl true
      def storage_type(constraints),
        do: if(constraints[:storage] == :text, do: :string, else: :map)

      @impl true
      def matches_type?(value, _constraints), do: is_struct(value, @kind)

      @impl true
      def cast_input(input, constraints),
        do: @kind |> Stored.cast(input, constraints) |> Stored.AshType.explain()

      # Ash also passes values that it has read already.
      @impl true
      def cast_stored(%@kind{} = value, _constraints), do: {:ok, value}

      def cast_stored(stored, _constraints),
        do: @kind |> Stored.load(stored) |> Stored.AshType.explain()

      @impl true
      def dump_to_native(value, constraints),
        do: Stored.dump(@kind, value, constraints[:storage] || :map)

      @impl true
      def dump_to_embedded(value, _constraints), do: Stored.dump_map(@kind, value)

      @impl true
      def equal?(a, b), do: Stored.equal?(@kind, a, b)

      @impl true
      def describe(constraints), do: Stored.AshType.describe(@kind, constraints)

      @impl true
      def generator(constraints), do: Stored.AshType.generator(@kind, constraints)

      @doc "Returns the GraphQL type for AshGraphql, its type for JSON."
      @doc since: "0.1.0"
      @spec graphql_type(keyword()) :: atom()
      def graphql_type(_constraints), do: Stored.AshType.graphql_type()

      @doc "Returns the GraphQL type of inputs for AshGraphql, its type for JSON."
      @doc since: "0.1.0"
      @spec graphql_input_type(keyword()) :: atom()
      def graphql_input_type(_constraints), do: Stored.AshType.graphql_type()

      @doc "Returns the JSON schema of a dump, for AshJsonApi."
      @doc since: "0.1.0"
      @spec json_schema(keyword()) :: map()
      def json_schema(constraints), do: Stored.AshType.json_schema(@kind, constraints)

      # Comp compares handles unless a module of this name is loaded.
      @doc false
      def comparable, do: unquote(comparable)
    end
  end

  @doc "An error as Ash takes it."
  def explain({:error, error}), do: {:error, message: Exception.message(error)}
  def explain(ok), do: ok

  @doc "The type in words."
  def describe(kind, constraints) do
    accepted =
      with [_ | _] = forms <- constraints[:accept] || [],
           do: ["takes #{Enum.map_join(forms, " and ", &inspect/1)} from parameters"]

    limits =
      for {limit, unit} <- [max_bytes: "bytes of JSON text", max_iterations: "iterations"],
          max = constraints[limit],
          do: "at most #{max} #{unit}"

    Enum.join(["#{article(kind)} #{inspect(kind)}" | accepted ++ limits], ", ")
  end

  defp article(Context), do: "a conversation as an"
  defp article(ChatContext), do: "a chat with its branches as an"

  @doc "The name of AshGraphql's type for JSON."
  def graphql_type, do: Application.get_env(:ash_graphql, :json_type, :json_string)

  @doc "The JSON schema of a dump. Other fields of a document are kept."
  def json_schema(kind, constraints) do
    kind
    |> schema(constraints)
    |> Map.put("type", "object")
    |> Map.put("description", describe(kind, constraints))
  end

  @number %{"type" => "integer", "minimum" => 1}
  @string %{"type" => "string"}

  defp schema(Context, constraints) do
    iterations = array(object(%{"number" => @number}, ["messages"]))
    max = constraints[:max_iterations]
    iterations = if max, do: Map.put(iterations, "maxItems", max), else: iterations

    object(
      %{"version" => @number, "id" => @string, "iterations" => iterations},
      ["created_at", "updated_at"]
    )
  end

  defp schema(ChatContext, _constraints) do
    branches = array(object(%{"name" => @string}, ["context"]))
    head = %{"version" => @number, "id" => @string, "active_branch" => @string}
    object(Map.put(head, "branches", branches), [])
  end

  defp array(items), do: %{"type" => "array", "minItems" => 1, "items" => items}

  defp object(properties, also_required) do
    %{
      "type" => "object",
      "properties" => properties,
      "required" => Map.keys(properties) ++ also_required,
      "additionalProperties" => true
    }
  end

  @doc "A generator of values within the constraints, for StreamData."
  def generator(kind, constraints) do
    most = min(constraints[:max_iterations] || 5, 5)

    StreamData.map(
      StreamData.list_of(turn(), min_length: 1, max_length: most),
      &within(kind, &1, constraints[:max_bytes])
    )
  end

  defp turn do
    text = StreamData.string(:printable, min_length: 1)
    StreamData.tuple({text, StreamData.one_of([nil, text])})
  end

  # The longest beginning that is short enough.
  defp within(kind, turns, max_bytes) do
    value = value(kind, turns)

    cond do
      is_nil(max_bytes) or byte_size(kind.to_snapshot(value)) <= max_bytes ->
        value

      match?([_, _ | _], turns) ->
        within(kind, Enum.drop(turns, -1), max_bytes)

      turns != [{"a", nil}] ->
        within(kind, [{"a", nil}], max_bytes)

      true ->
        raise ArgumentError,
              "no #{Stored.noun(kind)} has at most #{max_bytes} bytes; raise max_bytes"
    end
  end

  defp value(Context, [{input, answer} | turns]),
    do: Enum.reduce(turns, add_answer(Context.new(input), answer), &turn/2)

  defp value(ChatContext, turns), do: ChatContext.new(context: value(Context, turns))

  # Without an answer, another message joins the one before.
  defp turn({input, answer}, context),
    do: context |> Context.add_user_message(input) |> add_answer(answer)

  defp add_answer(context, nil), do: context
  defp add_answer(context, answer), do: Context.add_assistant_message(context, answer)
end
