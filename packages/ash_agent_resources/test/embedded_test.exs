defmodule AshAgent.Integration.EmbeddedTest do
  use ExUnit.Case, async: true

  alias AshAgent.Context
  alias AshAgent.Context.Embedded

  @moduletag :ash
  @moduletag integrations: ["Ash"]

  @message %{"role" => "user", "content" => "hi"}

  defp context do
    Context.new("Weather?", system_prompt: "Be brief.", id: "c1")
    |> Context.add_assistant_message(nil, [
      %{id: "a", name: :get_weather, arguments: %{city: "NYC"}}
    ])
  end

  test "from_context/1 and to_context/1 lose nothing" do
    open = context()
    answered = Context.add_tool_results(open, [{"a", {:ok, {:temp, 72}}}])

    for {context, count} <- [{open, 1}, {answered, 2}] do
      embedded = Embedded.from_context(context)
      assert embedded.current_iteration == count
      assert length(embedded.iterations) == count
      assert {:ok, %Context{} = copy} = Embedded.to_context(embedded)
      assert Context.equal?(copy, context)
    end
  end

  test "the code interface makes conversations" do
    embedded = Embedded.create!(%{iterations: [], current_iteration: 1})
    assert {:ok, %Context{current_iteration: 1}} = Embedded.to_context(embedded)
    embedded = Embedded.update!(embedded, %{iterations: [%{"messages" => [@message]}]})
    assert {:ok, context} = Embedded.to_context(embedded)
    assert Context.to_messages(context) == [%{role: :user, content: "hi"}]
    assert {:ok, %Context{current_iteration: 1}} = Embedded.to_context(Embedded.create!(%{}))
  end

  test "a conversation keeps its id, its metadata and its beginning" do
    embedded = Embedded.create!(%{iterations: [%{"messages" => [@message]}]})
    assert {:ok, one} = Embedded.to_context(embedded)
    assert {:ok, two} = Embedded.to_context(embedded)
    assert Context.equal?(one, two)

    embedded = Embedded.from_context(Context.put_metadata(context(), :user, 7))
    updated = Embedded.update!(embedded, %{iterations: [%{"messages" => [@message]}]})
    assert {:ok, context} = Embedded.to_context(updated)
    assert context[:id] == "c1"
    assert Context.metadata(context) == %{user: 7}
    assert Context.to_messages(context) == [%{role: :user, content: "hi"}]
  end

  test "the next iteration can be opened" do
    context = Context.new("hi") |> Context.add_assistant_message("Hello!")
    embedded = Embedded.update!(Embedded.from_context(context), %{current_iteration: 2})
    assert {:ok, %Context{current_iteration: 2}} = Embedded.to_context(embedded)

    assert {:error, _} = Embedded.update(Embedded.from_context(context), %{current_iteration: 7})
  end

  test "garbage is refused, with what is wrong" do
    for iterations <- [
          [%{"a" => 1}],
          [%{"messages" => 7}],
          [%{"messages" => [%{"role" => "robot"}]}],
          [%{"conversation" => %{}}]
        ] do
      assert {:error, %Ash.Error.Invalid{errors: [error]}} =
               Embedded.create(%{iterations: iterations})

      assert %{field: :iterations, message: "expected " <> _} = error

      assert {:error, _} =
               Embedded.update(Embedded.from_context(context()), %{iterations: iterations})
    end

    assert {:error, _} =
             Embedded.create(%{iterations: [%{"messages" => [@message]}], current_iteration: 5})

    assert {:error, _} = Embedded.create(%{iterations: 7})

    broken = %{Embedded.from_context(context()) | iterations: [%{"a" => 1}]}
    assert {:error, %Context.Error{}} = Embedded.to_context(broken)
    refute Embedded.equal?(broken, Embedded.from_context(context()))
    assert Embedded.equal?(broken, broken)
  end

  test "parameters approve nothing and bring no structs" do
    context =
      context()
      |> Context.Calls.approve_tool_call("a", by: "the boss")
      |> Context.put_metadata(:file, %File.Stream{path: "/"})

    trusted = Embedded.from_context(context)
    given = Map.take(trusted, [:iterations, :current_iteration])

    for embedded <- [Embedded.create!(given), Embedded.update!(Embedded.create!(%{}), given)] do
      assert {:ok, read} = Embedded.to_context(embedded)
      assert Context.Calls.tool_call_status(read, "a") == :pending
      refute is_struct(Context.metadata(read).file)
    end

    assert {:ok, read} = Embedded.to_context(trusted)
    assert Context.Calls.tool_call_status(read, "a") == :approved
    assert Context.equal?(read, context)
  end

  test "equal conversations are equal" do
    context = context()
    one = Embedded.from_context(context)
    assert Embedded.equal?(one, Embedded.from_context(Context.load!(Context.dump(context))))
    refute Embedded.equal?(one, Embedded.from_context(Context.put_metadata(context, :a, 1)))
    refute Embedded.equal?(one, nil)
    assert Embedded.equal?(nil, nil)
  end
end
