defmodule AshAgent.Integration.AshTypeTest do
  use ExUnit.Case, async: true

  alias AshAgent.{ChatContext, Context}
  alias AshAgent.Integration.LimitedType

  @moduletag :ash
  @moduletag integrations: ["Ash"]

  @kinds [{Context.AshType, Context}, {ChatContext.AshType, ChatContext}]

  defp value(Context), do: Context.new("hi") |> Context.add_assistant_message("Hello!")
  defp value(ChatContext), do: ChatContext.new(context: value(Context))

  test "the types say what they store" do
    for {type, kind} <- @kinds do
      assert Ash.Type.storage_type(type, []) == :map
      assert Ash.Type.storage_type(type, storage: :text) == :string
      assert type.matches_type?(value(kind), [])
      refute type.matches_type?(%{}, [])
      assert Ash.Type.cast_in_query?(type, [])
      refute type.simple_equality?()
    end
  end

  test "the types take back what they gave, and what was loaded already" do
    for {type, kind} <- @kinds, storage <- [:map, :text] do
      value = value(kind)
      assert {:ok, stored} = Ash.Type.dump_to_native(type, value, storage: storage)
      assert {:ok, read} = Ash.Type.cast_stored(type, stored, storage: storage)
      assert kind.equal?(read, value)
      assert {:ok, ^value} = Ash.Type.cast_stored(type, value, storage: storage)

      assert {:ok, %{"version" => 1} = map} =
               Ash.Type.dump_to_embedded(type, value, storage: storage)

      assert {:ok, read} = Ash.Type.cast_stored(type, map, storage: storage)
      assert kind.equal?(read, value)

      for wrong <- [7, "text", %{}, [], %{"version" => 2}],
          do: assert({:error, message: _} = Ash.Type.cast_stored(type, wrong, storage: storage))

      for wrong <- [7, "text", %{}],
          do: assert(Ash.Type.dump_to_native(type, wrong, []) == :error)

      for function <- [:cast_input, :cast_stored, :dump_to_native, :dump_to_embedded],
          do: assert(apply(Ash.Type, function, [type, nil, []]) == {:ok, nil})
    end
  end

  test "a JSON column is written from the core's own text" do
    for {type, kind} <- @kinds do
      value = value(kind)

      assert {:ok, %Context.JSON.Fragment{text: text} = fragment} =
               Ash.Type.dump_to_native(type, value, [])

      assert text == kind.to_snapshot(value)
      assert Jason.encode!(%{here: fragment}) == ~s({"here":) <> text <> "}"
      refute inspect(fragment) =~ "hi"
    end
  end

  test "constraints are checked when they are given" do
    for {type, _kind} <- @kinds do
      assert {:ok, constraints} = Ash.Type.init(type, [])
      assert constraints[:accept] == [] and constraints[:storage] == :map

      for wrong <- [
            [accept: [:all]],
            [accept: :dump],
            [max_bytes: 0],
            [max_iterations: -1],
            [storage: :jsonb],
            [max: 1]
          ],
          do: assert({:error, _} = Ash.Type.init(type, wrong))
    end

    assert {:error, _} = Ash.Type.init(ChatContext.AshType, accept: [:messages])
  end

  test "the types describe themselves" do
    assert Ash.Type.describe(Context.AshType, []) == "a conversation as an AshAgent.Context"

    assert Ash.Type.describe(Context.AshType,
             accept: [:messages, :dump],
             max_bytes: 9,
             max_iterations: 2
           ) ==
             "a conversation as an AshAgent.Context, takes :messages and :dump from parameters, " <>
               "at most 9 bytes of JSON text, at most 2 iterations"

    assert Ash.Type.describe({:array, ChatContext.AshType}, []) =~ "AshAgent.ChatContext[]"
    assert LimitedType.describe(max_iterations: 2) =~ "AshAgent"
  end

  test "the types are JSON in GraphQL, as AshGraphql is set up" do
    for {type, _kind} <- @kinds do
      assert type.graphql_type([]) == :json_string
      assert type.graphql_input_type([]) == :json_string
    end

    Application.put_env(:ash_graphql, :json_type, :json)
    on_exit(fn -> Application.delete_env(:ash_graphql, :json_type) end)
    assert Context.AshType.graphql_type([]) == :json
  end

  test "a dump has what its JSON schema says" do
    for {type, kind} <- @kinds do
      schema = type.json_schema(max_iterations: 3)
      assert schema["description"] == type.describe(max_iterations: 3)
      # JSON data itself.
      assert schema |> Jason.encode!() |> Jason.decode!() == schema
      assert valid?(kind.dump(value(kind)), schema)
      for wrong <- [%{}, [], %{"version" => 1}, "text"], do: refute(valid?(wrong, schema))
    end

    long =
      Enum.reduce(1..4, Context.new("hi"), fn _, context ->
        context |> Context.add_assistant_message("Hello!") |> Context.add_user_message("And?")
      end)

    assert valid?(Context.dump(long), Context.AshType.json_schema([]))
    refute valid?(Context.dump(long), Context.AshType.json_schema(max_iterations: 3))
  end

  # As much of JSON Schema as the types use.
  defp valid?(data, %{"type" => "object"} = schema) do
    is_map(data) and Enum.all?(schema["required"], &is_map_key(data, &1)) and
      Enum.all?(schema["properties"], fn {key, schema} -> valid?(data[key], schema) end)
  end

  defp valid?(data, %{"type" => "array"} = schema) do
    is_list(data) and length(data) >= schema["minItems"] and
      length(data) <= (schema["maxItems"] || 1_000_000) and
      Enum.all?(data, &valid?(&1, schema["items"]))
  end

  defp valid?(data, %{"type" => "integer", "minimum" => least}),
    do: is_integer(data) and data >= least

  defp valid?(data, %{"type" => "string"}), do: is_binary(data)

  test "generators give values within the constraints" do
    for {type, kind} <- @kinds, constraints <- [[], [max_iterations: 1], [max_bytes: 1_000]] do
      {:ok, constraints} = Ash.Type.init(type, constraints)
      values = type |> Ash.Type.generator(constraints) |> Enum.take(50)
      assert values |> Enum.map(&kind.to_snapshot/1) |> Enum.uniq() |> length() > 10

      for value <- values do
        assert {:ok, %^kind{}} = Ash.Type.cast_input(type, value, constraints)
        assert {:ok, stored} = Ash.Type.dump_to_native(type, value, constraints)
        assert {:ok, read} = Ash.Type.cast_stored(type, stored, constraints)
        assert kind.equal?(read, value)
      end
    end

    assert_raise ArgumentError, ~r/raise max_bytes/, fn ->
      Context.AshType |> Ash.Type.generator(max_bytes: 10) |> Enum.take(1)
    end

    assert %{context: %Context{}} =
             AshAgent.Integration.Memo
             |> Ash.Generator.action_input(:create)
             |> Stream.filter(& &1[:context])
             |> Enum.at(0)
  end

  test "the name that comparing looks for is there with the type" do
    for {type, _kind} <- @kinds do
      {:ok, {_, [atoms: atoms]}} = type |> :code.which() |> :beam_lib.chunks([:atoms])
      assert type.comparable() in Enum.map(atoms, &elem(&1, 1))
      assert Comparable.impl_for(struct(type.comparable(), left: 1, right: 2))
    end
  end

  test "the examples of the guide are types" do
    blocks =
      ~r/^```elixir\n(.*?)^```/ms
      |> Regex.scan(File.read!("../../guides/storage.md"), capture: :all_but_first)
      |> List.flatten()

    assert [attribute] =
             for(
               "attribute :context, AshAgent.Context.AshType do" <> _ = code <- blocks,
               do: code
             )

    assert [type] = for("defmodule MyApp.ContextType do" <> _ = code <- blocks, do: code)

    # Protocols are consolidated already, which is told.
    ExUnit.CaptureIO.capture_io(:stderr, fn ->
      Code.compile_string("""
      defmodule AshAgent.Integration.GuideResource do
        use Ash.Resource, data_layer: :embedded

        attributes do
          #{attribute}
        end
      end
      """)
    end)

    assert %{constraints: constraints} =
             Ash.Resource.Info.attribute(AshAgent.Integration.GuideResource, :context)

    assert constraints[:accept] == [:messages] and constraints[:max_iterations] == 200
    assert [{type, _}] = Code.compile_string(type)
    assert type.type() == :string
  end

  test "equal contents compare as equal, others in one order" do
    for {_type, kind} <- @kinds do
      value = value(kind)
      copy = kind.load!(kind.dump(value))
      other = value(kind)
      assert Comp.equal?(value, copy)
      refute Comp.equal?(value, other)
      assert Comp.compare(value, other) != Comp.compare(other, value)
      refute Comp.equal?(value, nil)
      refute Comp.equal?(%{}, value)
    end
  end
end
