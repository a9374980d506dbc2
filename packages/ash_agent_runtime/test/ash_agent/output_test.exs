defmodule AshAgent.OutputTest do
  # Types of answers: what an application writes, the schema that a model reads, and the values that its answers become.
  use ExUnit.Case, async: true

  alias AshAgent.Context.JSON
  alias AshAgent.Output

  doctest AshAgent.Output

  defmodule City do
    defstruct [:name, people: 0]
  end

  defmodule Named do
    def output, do: [name: :string]
  end

  defp read!(spec, data) do
    assert {:ok, value, []} = Output.read(Output.new(spec), JSON.encode(data))
    value
  end

  # What is inside another type keeps its meaning. Each schema takes the first value and refuses the second.
  @referring [
    {%{
       "type" => "object",
       "properties" => %{"a" => %{"$ref" => "#/$defs/x"}},
       "required" => ["a"],
       "$defs" => %{"x" => %{"type" => "integer"}}
     }, %{"a" => 1}, %{"a" => "b"}},
    {%{
       type: "object",
       properties: %{a: %{"$ref": "#/definitions/x"}, x: %{"$ref": "#/properties/a"}},
       required: ["a"],
       definitions: %{x: %{type: "integer"}}
     }, %{"a" => 1, "x" => 2}, %{"a" => 1, "x" => "b"}},
    {%{
       "type" => "object",
       "properties" => %{"children" => %{"type" => "array", "items" => %{"$ref" => "#"}}},
       "required" => ["children"],
       "additionalProperties" => false
     }, %{"children" => [%{"children" => []}]}, %{"children" => [%{"child" => []}]}},
    {%{"$ref" => "#/$defs/x", "$defs" => %{"x" => %{"type" => "integer"}}}, 1, "b"},
    {%{"properties" => %{"a" => %{"type" => "integer"}}, "required" => ["a"]}, %{"a" => 1},
     %{"a" => "b"}},
    # Data, not references.
    {%{"enum" => [%{"$ref" => "#"}]}, %{"$ref" => "#"}, %{"$ref" => "#/$defs/x"}}
  ]

  defp references(%{"$ref" => reference}) when is_binary(reference), do: [reference]
  defp references(%{} = schema), do: schema |> Map.delete("enum") |> Map.values() |> references()
  defp references(list) when is_list(list), do: Enum.flat_map(list, &references/1)
  defp references(_value), do: []

  test "references of a JSON Schema keep their meaning inside each type" do
    for {schema, right, wrong} <- @referring do
      own = Output.new(schema)

      placements = [
        {schema, & &1},
        {{:list, schema}, &[&1]},
        {{:list, {:list, schema}}, &[[&1]]},
        {[f: schema], &%{"f" => &1}},
        {[f: [type: schema, doc: "d"], g: {:list, schema}], &%{"f" => &1, "g" => [&1]}},
        {{:nullable, schema}, & &1},
        {[f: {:nullable, {:list, schema}}], &%{"f" => [&1]}},
        {{:one_of, [a: schema, b: :string]}, &%{"type" => "a", "value" => &1}},
        {[f: own], &%{"f" => if(own.wrapped?, do: %{"value" => &1}, else: &1)}},
        {{:list, Output.new({:list, schema})}, &[%{"value" => [&1]}]},
        {{schema, cast: &{:ok, &1}}, & &1},
        {[f: {schema, cast: &{:ok, &1}}], &%{"f" => &1}}
      ]

      for {type, data} <- placements, output = Output.new(type), value <- [right, wrong] do
        json = data.(value)
        json = if output.wrapped?, do: %{"value" => json}, else: json
        read = Output.read(output, JSON.encode(json))
        assert {elem(read, 0), type} == {if(value == right, do: :ok, else: :error), type}

        # A provider knows no place of definitions but the root's.
        for reference <- references(output.schema), json != value do
          assert [name] = Regex.run(~r"\A#/\$defs/(\w+)", reference, capture: :all_but_first)
          assert is_map_key(output.schema["$defs"], name)
        end
      end
    end
  end

  test "each type casts its values" do
    table = [
      {:string, "a", "a"},
      {:integer, 3.0, 3},
      {:float, 3, 3.0},
      {:number, 1.5, 1.5},
      {:boolean, true, true},
      {:date, "2026-01-31", ~D[2026-01-31]},
      {:time, "09:30:00Z", ~T[09:30:00]},
      {:datetime, "2026-01-31T09:30:00+01:00", ~U[2026-01-31 08:30:00Z]},
      {:naive_datetime, "2026-01-31T09:30:00", ~N[2026-01-31 09:30:00]},
      {{:in, [:small, :large]}, "large", :large},
      {{:in, [1, "b"]}, 1.0, 1},
      {{:list, {:in, [:a]}}, ["a", "a"], [:a, :a]},
      {{:nullable, :date}, nil, nil},
      {:any, [1, nil], [1, nil]},
      {:map, %{"a" => 1}, %{"a" => 1}},
      {%{type: "array", items: %{type: "integer"}}, [1], [1]},
      {{:one_of, [yes: :boolean, no: {:list, :string}]}, %{"type" => "no", "value" => ["a"]},
       {:no, ["a"]}},
      {{:one_of, [{[name: :string], into: City}, Named]},
       %{"type" => "city", "value" => %{"name" => "Ulm"}}, %City{name: "Ulm"}}
    ]

    for {spec, json, value} <- table do
      wrapped = Map.has_key?(Output.new(spec).schema["properties"] || %{}, "value")
      data = if wrapped, do: %{"value" => json}, else: json
      assert read!(spec, data) === value, inspect(spec)
      # The type of a field casts as a type does.
      assert read!([field: spec], %{field: json}) === %{field: value}, inspect(spec)
    end
  end

  test "fields have descriptions, bounds and defaults" do
    spec = [
      name: [type: :string, doc: "Its name", min_length: 2],
      people: [type: :integer, default: 1, minimum: 1],
      note: [type: :string, required: false]
    ]

    assert Output.new(spec).schema == %{
             "type" => "object",
             "properties" => %{
               "name" => %{"type" => "string", "description" => "Its name", "minLength" => 2},
               "people" => %{"type" => "integer", "minimum" => 1},
               "note" => %{"type" => "string"}
             },
             "required" => ["name"],
             "additionalProperties" => false
           }

    assert read!(spec, %{name: "Ulm"}) == %{name: "Ulm", people: 1}
    assert read!({[name: :string], into: City}, %{name: "Ulm"}) == %City{name: "Ulm", people: 0}
    # A field may be called type.
    assert read!([type: :string, size: :integer], %{type: "a", size: 1}) == %{type: "a", size: 1}
  end

  test "a cast of one's own refuses in its own words" do
    cast = fn %{"n" => n} ->
      if rem(n, 2) == 0,
        do: {:ok, div(n, 2)},
        else: {:error, [{["n"], "expected an even number"}]}
    end

    schema = %{type: "object", properties: %{n: %{type: "integer"}}, required: ["n"]}
    output = Output.new({schema, cast: cast})
    assert {:ok, 2, []} = Output.read(output, ~s({"n": 4}))

    assert {:error, %Output.Error{reason: :invalid, lines: ["/n: expected an even number"]}} =
             Output.read(output, ~s({"n": 3}))
  end

  test "a date that a schema lets pass and nobody can read is told with its place" do
    output = Output.new(at: :datetime)
    assert {:error, error} = Output.read(output, ~s({"at": "2026-01-31T09:30:00"}))

    words = "expected a date and time with its offset, such as 2026-01-31T09:30:00Z"
    assert error.lines == ["/at: " <> words]
    refute inspect(error) =~ "2026"
  end

  describe "what is read in part" do
    @order [
      name: :string,
      note: [type: :string, required: false],
      customer: [type: [name: :string], required: false]
    ]

    test "is never the whole" do
      output = Output.new(@order)
      broken = ~s({“name”: "order 7", "note": "x", "customer": {"name": "Ann"}})
      assert {:error, %{reason: :invalid, lines: [line]}} = Output.read(output, broken)
      assert line =~ "is not valid JSON"
      assert Output.read_partial(output, broken) == :none

      # Prose is prose.
      assert {:ok, %{name: "order 7"}, _repairs} =
               Output.read(output, ~s(if (x\) { return {1} } :-{ {"name": "order 7"}))
    end

    test "is cut if it ends within a second answer" do
      output = Output.new(city: :string)
      text = ~s({"city": "Rome"} Wait: {"city)
      assert {:error, %{reason: :cut, value: %{city: "Rome"}}} = Output.read(output, text)
    end

    test "is no value before anything came" do
      for spec <- [
            [city: :string],
            :integer,
            {:list, :string},
            {:one_of, [a: :string]},
            {[name: :string], into: City},
            {%{type: "object"}, cast: &{:ok, &1}, partial: & &1["n"]}
          ],
          output = Output.new(spec),
          begun <- ["{", ~s({"), ~s({"val), ~s({"value": 12)] do
        assert {:error, %{reason: :cut, lines: ["the answer: ends" <> _]} = error} =
                 Output.read(output, begun)

        assert {error.value, begun, spec} == {shown(output, begun), begun, spec}
      end
    end

    defp shown(output, text) do
      case Output.read_partial(output, text) do
        {:ok, value} -> value
        :none -> nil
      end
    end

    test "is shown where null stands for an object or a list" do
      spec = [city: {:nullable, [name: :string]}, tags: {:nullable, {:list, :string}}, at: :date]
      begun = ~s({"city": null, "tags": null, "at)
      shown = {:ok, %{city: nil, tags: nil}}
      assert Output.read_partial(Output.new(spec), begun) == shown
    end
  end

  test "JSON that came as a text, and a value without its object, are told with their place" do
    output = Output.new(tags: {:list, :string}, city: {:nullable, [name: :string]})
    text = JSON.encode(%{tags: ~s(["red", "blue"]), city: ~s({"name": "Ulm"})})

    assert {:ok, %{tags: ["red", "blue"], city: %{name: "Ulm"}}, repairs} =
             Output.read(output, text)

    assert Enum.sort(repairs) ==
             for(field <- ["city", "tags"], do: %{path: [field], kind: :json_from_text})

    assert {:ok, %{tags: [], city: nil}, _repairs} =
             Output.check(output, %{"tags" => "[]", "city" => "null"})

    assert {:error, %{lines: ["/tags: expected a list, got a string"]}} =
             Output.check(output, %{"tags" => "null", "city" => nil})

    assert {:ok, :high, [%{path: [], kind: :missing_object}]} =
             Output.read(Output.new({:in, [:low, :high]}), ~s("high"))

    assert {:ok, ["a"], [%{path: [], kind: :missing_object}]} =
             Output.read(Output.new({:list, :string}), ~s(["a"]))
  end

  test "numbers and times are exact or refused" do
    for {spec, json, words} <- [
          {:integer, "1234567890123456789.0", "with all of its digits"},
          {:integer, "1e23", "with all of its digits"},
          {:naive_datetime, ~s("2026-01-31T09:30:00+02:00"), "without an offset"}
        ] do
      assert {:error, %{lines: [line]}} = Output.read(Output.new(x: spec), ~s({"x": #{json}}))
      assert line =~ words
    end

    assert {:ok, %{x: ~N[2026-01-31 09:30:00]}, []} =
             Output.read(Output.new(x: :naive_datetime), ~s({"x": "2026-01-31T09:30:00Z"}))
  end

  test "what is not a type is refused without what it holds" do
    secret = "sk-secret"

    for spec <- [
          [],
          nil,
          {:list},
          {:in, []},
          {:in, [nil]},
          secret,
          [a: {secret, 1}],
          {:one_of, [:string]},
          {[nme: :string], into: City},
          NoModule,
          [a: :string, a: :string]
        ] do
      error = assert_raise ArgumentError, fn -> Output.new(spec) end
      refute Exception.message(error) =~ secret
    end
  end

  test "partial values are made by a function of their own, where there is one" do
    schema = %{type: "object", properties: %{"n" => %{type: "string"}}}
    cast = fn json -> {:ok, {:whole, json}} end
    begun = ~s({"n": "a)
    assert Output.read_partial(Output.new({schema, cast: cast}), begun) == {:ok, %{"n" => "a"}}

    output = Output.new({schema, cast: cast, partial: &{:part, &1}})
    assert Output.read_partial(output, begun) == {:ok, {:part, %{"n" => "a"}}}
    assert {:ok, {:whole, %{"n" => "ab"}}, []} = Output.read(output, ~s({"n": "ab"}))
  end

  test "partial values are of the type as far as it goes" do
    output = Output.new({[name: :string, people: :integer], into: City})
    assert Output.read_partial(output, ~s({"name": "Ul)) == {:ok, %{name: "Ul"}}
    list = Output.new({:list, {:in, [:a, :b]}})
    assert Output.read_partial(list, ~s({"value": ["a", "b", ")) == {:ok, [:a, :b]}
    assert Output.read_partial(list, ~s({"val)) == :none
  end

  test "an answer that was cut before its type could be told is an error" do
    for type <- [[city: :string], {:list, [name: :string]}],
        text <- ["[", ~s({"value": [nu), ~s([{"name": "a"), ~s({"city": nu)],
        do: assert({:error, %Output.Error{lines: [_]}} = Output.read(Output.new(type), text))
  end

  test "a stream tells the places of what came" do
    output = Output.new({:list, :string})
    {follow, []} = Output.follow(output, Output.follow(), "Well: {\"value\"")
    {follow, first} = Output.follow(output, follow, ": [\"a")
    {_follow, second} = Output.follow(output, follow, "b\"")
    assert first == [{[], {:value, []}}, {[0], {:text, "a"}}]
    assert second == [{[0], {:text, "b"}}]
  end

  test "bytes that are not UTF-8 are an error, and nothing makes atoms" do
    output = Output.new(name: :string)
    assert {:error, %{reason: :invalid}} = Output.read(output, <<255>>)
    assert Output.read_partial(output, <<255>>) == :none
    assert {:error, %{lines: lines}} = Output.read(output, ~s({"never_an_atom_of_output": 1}))
    assert Enum.any?(lines, &(&1 =~ "is not a field here"))
    assert_raise ArgumentError, fn -> String.to_existing_atom("never_an_atom_of_" <> "output") end
  end

  test "long answers are read on another scheduler" do
    output = Output.new(text: :string)
    text = String.duplicate("word ", 200_000)
    assert {:ok, %{text: ^text}, []} = Output.read(output, JSON.encode(%{text: text}))
    assert {:ok, %{text: ^text}} = Output.read_partial(output, JSON.encode(%{text: text}))
  end
end
