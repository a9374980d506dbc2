if Code.ensure_loaded?(Ecto.Schema) do
  defmodule AshAgent.Integration.OutputEctoTest do
    # Schemas of Ecto as types of answers: their fields for the model, their changesets for the values.
    use ExUnit.Case, async: true

    alias AshAgent.Context.JSON
    alias AshAgent.Output

    @moduletag :ecto
    @moduletag integrations: ["Ecto"]

    defmodule Line do
      use Ecto.Schema

      @primary_key false
      embedded_schema do
        field(:product, :string)
        field(:count, :integer)
      end
    end

    defmodule Order do
      use Ecto.Schema

      import Ecto.Changeset

      @primary_key {:id, :binary_id, autogenerate: true}
      embedded_schema do
        field(:customer, :string)
        field(:state, Ecto.Enum, values: [:new, :done])
        field(:due, :date)
        field(:price, :decimal)
        field(:tags, {:array, :string})
        embeds_many(:lines, Line)
        timestamps()
      end

      def changeset(order, params) do
        order
        |> cast(params, [:customer, :state, :due, :price, :tags])
        |> cast_embed(:lines, with: &cast(&1, &2, [:product, :count]))
        |> validate_required([:customer, :state])
        |> validate_length(:customer, min: 2)
      end
    end

    test "a schema has the fields of its changeset, without keys and timestamps" do
      schema = Output.new(Order).schema
      assert schema["required"] == ["customer", "state"] |> Enum.sort()
      assert Map.keys(schema["properties"]) == ~w(customer due lines price state tags)
      assert schema["properties"]["state"] == %{"enum" => ["new", "done"]}
      assert schema["properties"]["lines"]["items"]["required"] == ["product", "count"]
      refute schema["additionalProperties"]
    end

    test "a valid answer is its struct, and the changeset refuses in its own words" do
      output = Output.new(Order)

      data = %{
        customer: "Ann",
        state: "done",
        due: "2026-01-31",
        price: "9.50",
        tags: ["a"],
        lines: [%{product: "Tea", count: 2}]
      }

      assert {:ok, order, []} = Output.read(output, JSON.encode(data))

      assert %Order{
               customer: "Ann",
               state: :done,
               due: ~D[2026-01-31],
               tags: ["a"],
               lines: [%Line{product: "Tea", count: 2}]
             } = order

      assert Decimal.equal?(order.price, Decimal.new("9.50"))

      # Models write a number.
      assert {:ok, %Order{price: price}, [%{kind: :text_from_number, path: ["price"]}]} =
               Output.read(output, JSON.encode(%{data | price: 9.5}))

      assert Decimal.equal?(price, order.price)

      assert {:error, error} = Output.read(output, JSON.encode(%{data | customer: "A"}))
      assert error.lines == ["/customer: should be at least 2 character(s)"]
    end

    test "a part of an answer has the fields that came" do
      begun = ~s({"state": "done", "due": "2026-01-31", "lines": [{"count": 2, "product": "Te)

      assert Output.read_partial(Output.new(Order), begun) ==
               {:ok, %{state: :done, due: ~D[2026-01-31], lines: [%{count: 2, product: "Te"}]}}
    end

    test "a schema without a changeset needs all of its fields" do
      assert {:ok, %Line{product: "Tea", count: 2}, []} =
               Output.read(Output.new(Line), ~s({"product": "Tea", "count": 2}))

      assert {:error, _error} = Output.read(Output.new(Line), ~s({"product": "Tea"}))
    end

    test "types of a schemaless changeset" do
      output = Output.new({%{}, %{name: :string, born: :date}})

      assert {:ok, %{name: "Ann", born: ~D[2000-01-01]}, []} =
               Output.read(output, ~s({"name": "Ann", "born": "2000-01-01"}))
    end
  end
end
