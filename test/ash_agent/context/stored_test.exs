defmodule AshAgent.Context.StoredTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Generators, only: [check_all: 3]

  alias AshAgent.Context
  alias AshAgent.Context.{JSON, Stored}
  alias AshAgent.TestSupport.ContextGenerators

  describe "to_attributes/1 and from_attributes/1" do
    test "lose nothing, also through JSON" do
      check_all("attributes", [runs: 60, max_size: 10], fn size ->
        context =
          ContextGenerators.script(size)
          |> ContextGenerators.build()
          |> Context.put_metadata(:size, size)

        attributes = Stored.to_attributes(context)
        assert %{iterations: iterations, current_iteration: number} = attributes
        assert map_size(attributes) == 2
        assert number == context.current_iteration
        assert length(iterations) == Context.count_iterations(context)
        assert {:ok, copy} = Stored.from_attributes(attributes)
        assert Context.equal?(context, copy)

        iterations = iterations |> JSON.encode() |> JSON.decode!()
        assert {:ok, copy} = Stored.from_attributes(%{attributes | iterations: iterations})
        assert Context.equal?(context, copy)
      end)
    end

    test "take iterations as to_map/1 gives them" do
      context = Context.new("hi", system_prompt: "Be brief.")
      attributes = Map.take(Context.to_map(context), [:iterations, :current_iteration])
      assert {:ok, copy} = Stored.from_attributes(attributes)
      assert Context.iterations(copy) == Context.iterations(context)

      assert {:ok, %{current_iteration: 1}} =
               Stored.from_attributes(%{iterations: [], current_iteration: 1})
    end

    test "can open the next iteration" do
      context = Context.new("hi") |> Context.add_assistant_message("hello")
      attributes = %{Stored.to_attributes(context) | current_iteration: 2}
      assert {:ok, %{current_iteration: 2}} = Stored.from_attributes(attributes)
      assert {:error, _} = Stored.from_attributes(%{attributes | current_iteration: 7})
    end
  end
end
