defmodule AshAgent.Context.EctoTypeTest do
  use ExUnit.Case, async: true

  alias AshAgent.Context
  alias AshAgent.Context.{EctoType, JSON}

  doctest EctoType

  setup do
    %{context: Context.new("hi", metadata: %{a: :b}) |> Context.add_assistant_message("hello")}
  end

  # What a JSONB column gives back.
  defp through_database(stored), do: stored |> JSON.encode() |> JSON.decode!()

  test "the column is a map, and embedded schemas hold a dump" do
    assert EctoType.type() == :map
    assert EctoType.embed_as(:json) == :dump
  end

  test "load/1 gives what dump/1 stored", %{context: context} do
    assert {:ok, stored} = EctoType.dump(context)
    assert {:ok, loaded} = EctoType.load(through_database(stored))
    assert Context.equal?(context, loaded)
  end

  test "nil stays nil" do
    assert EctoType.cast(nil) == {:ok, nil}
    assert EctoType.load(nil) == {:ok, nil}
    assert EctoType.dump(nil) == {:ok, nil}
  end

  test "cast/1 takes a context, a dump and what to_map/1 gives", %{context: context} do
    assert {:ok, ^context} = EctoType.cast(context)

    for input <- [Context.dump(context), Context.to_map(context)] do
      assert {:ok, cast} = EctoType.cast(input)
      assert Context.equal?(context, cast)
    end

    # With string keys, as parameters of a form are.
    assert {:ok, cast} =
             EctoType.cast(%{
               "iterations" => [%{"messages" => [%{"role" => "user", "content" => "hi"}]}]
             })

    assert Context.to_messages(cast) == [%{role: :user, content: "hi"}]
  end

  test "cast/1 says what is wrong" do
    assert {:error, message: message} = EctoType.cast(%{"version" => 1, "id" => 1})
    assert message == ~s(expected text at ["id"])
    assert {:error, message: _} = EctoType.cast(%{unknown: 1})

    for wrong <- [1, "text", [], :atom, ~D[2026-01-01], {}],
        do: assert({:error, message: _} = EctoType.cast(wrong))
  end

  test "load/1 and dump/1 refuse anything else", %{context: context} do
    for wrong <- [1, "text", [], %{}, %{"version" => 2}, context],
        do: assert(EctoType.load(wrong) == :error)

    for wrong <- [1, "text", [], %{}], do: assert(EctoType.dump(wrong) == :error)
  end

  test "equal?/2 compares contents", %{context: context} do
    copy = Context.load!(Context.dump(context))
    assert EctoType.equal?(context, copy)
    refute EctoType.equal?(context, Context.put_metadata(copy, :a, 1))
    refute EctoType.equal?(context, nil)
    refute EctoType.equal?(nil, context)
    assert EctoType.equal?(nil, nil)
  end
end
