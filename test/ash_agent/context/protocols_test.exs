defmodule AshAgent.Context.ProtocolsTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions
  import AshAgent.TestSupport.Generators

  alias AshAgent.Context

  @t0 ~U[2026-01-01 10:00:00.000000Z]

  defp three_iterations do
    Context.new("Hello", system_prompt: "S", at: @t0)
    |> Context.add_assistant_message(nil, [%{id: "a", name: :a}], at: @t0)
    |> Context.add_tool_results([{"a", {:ok, 1}}], at: @t0)
    |> Context.add_assistant_message("One", [], at: @t0)
    |> Context.add_user_message("Two", at: @t0)
  end

  describe "Inspect" do
    test "shows the counts" do
      context =
        Context.new("secret question", system_prompt: "secret prompt")
        |> Context.add_assistant_message("secret thought", [%{id: "a", name: :a}])
        |> Context.add_tool_results([{"a", {:ok, "secret result"}}])
        |> Context.add_assistant_message("six", [%{id: "b", name: :a}])
        |> Context.add_tool_results([{"b", {:ok, "secret result"}}])

      context = Enum.reduce(7..11, context, &Context.add_user_message(&2, "secret #{&1}"))
      context = Context.add_assistant_message(context, nil, [%{id: "c", name: :secret_tool}])

      assert inspect(context) == "#AshAgent.Context<iteration 3, 12 messages, 1 pending>"
    end

    test "never shows texts, names, ids or metadata" do
      check_all("inspect", [runs: 50], fn size ->
        {arguments, _, _} = conversation(size)
        context = apply(Context, :new, arguments)

        assert inspect(context, limit: :infinity, structs: true) =~
                 ~r/\A#AshAgent\.Context<iteration \d+, \d+ messages?(, \d+ pending)?>\z/
      end)
    end

    test "is short whatever the context holds" do
      context = Context.new(:binary.copy("x", 1_000_000), metadata: %{a: Enum.to_list(1..1_000)})
      assert byte_size(inspect(context)) < 100
      assert byte_size(inspect(%{state: [context]})) < 120
    end

    test "does not raise for a handle from another node" do
      for ref <- [make_ref(), nil, self(), "text", 7] do
        text = inspect(%{Context.new("Hello") | ref: ref})
        assert text =~ "AshAgent.Context"
        refute text =~ "Inspect.Error"
      end
    end
  end

  describe "Access" do
    test "gives iterations, current iteration and times" do
      context = three_iterations()
      map = Context.to_map(context)
      assert_same(map.iterations, context[:iterations])
      assert context[:current_iteration] == 3
      assert context[:created_at] == @t0
      assert context[:updated_at] == @t0
      assert {:ok, 3} = Access.fetch(context, :current_iteration)
      assert %{number: 2} = get_in(context, [:iterations, Access.at(1)])
    end

    test "has nothing else" do
      for key <- [:no_such_key, :ref, "iterations", 1, nil, {}] do
        assert {key, :error} == {key, Access.fetch(three_iterations(), key)}
        assert three_iterations()[key] == nil
      end
    end

    test "does not write" do
      context = three_iterations()
      before = Context.to_map(context)

      for write <- [
            fn -> put_in(context[:iterations], []) end,
            fn -> update_in(context[:current_iteration], &(&1 + 1)) end,
            fn -> pop_in(context[:iterations]) end
          ] do
        assert {:raised, _} = attempt(write)
      end

      assert_same(before, Context.to_map(context))
    end

    defp attempt(fun) do
      {:ok, fun.()}
    rescue
      exception -> {:raised, exception}
    end
  end

  describe "Enumerable" do
    test "walks over the iterations, oldest first" do
      context = three_iterations()
      iterations = Context.iterations(context)
      assert_same(iterations, Enum.to_list(context))
      assert Enum.map(context, & &1.number) == [1, 2, 3]
      assert for(%{messages: messages} <- context, do: length(messages)) == [4, 1, 1]
      assert Enum.reduce(context, 0, &(&1.number + &2)) == 6
    end

    test "counts" do
      assert Enum.count(three_iterations()) == 3
      assert Enum.count(three_iterations(), &(&1.completed_at == nil)) == 1
      refute Enum.empty?(three_iterations())
    end

    test "finds members" do
      context = three_iterations()
      [first, second, third] = Context.iterations(context)
      assert Enum.member?(context, second)
      assert first in context
      assert third in context
      refute Enum.member?(context, Map.delete(first, :metadata))
      refute Enum.member?(context, %{first | number: 2})
      refute Enum.member?(context, %{first | number: 0x10000000000000000})
      refute Enum.member?(context, %{number: -1})
      refute Enum.member?(context, %{number: "1"})
      refute Enum.member?(context, 1)
      refute Enum.member?(context, nil)
    end

    test "takes slices" do
      context = three_iterations()
      [first, second, third] = Context.iterations(context)
      assert Enum.at(context, 0) == first
      assert Enum.at(context, -1) == third
      assert Enum.at(context, 3) == nil
      assert Enum.fetch(context, -4) == :error
      assert Enum.slice(context, 1, 10) == [second, third]
      assert Enum.slice(context, 0, 0) == []
      assert Enum.slice(context, 0..-2//1) == [first, second]
      assert Enum.slice(context, 0..2//2) == [first, third]
      assert Enum.take(context, 2) == [first, second]
      assert Enum.take(context, -1) == [third]
      assert Enum.drop(context, 2) == [third]
      assert Enum.reverse(context) == [third, second, first]
      assert Enum.random(context) in [first, second, third]
    end

    test "stops and waits when asked to" do
      context = three_iterations()
      [first, second, third] = Context.iterations(context)
      assert Enum.find(context, &(&1.number == 2)) == second
      assert Enum.reduce_while(context, nil, fn one, _ -> {:halt, one} end) == first
      assert Enum.zip(context, [:a, :b, :c]) == [{first, :a}, {second, :b}, {third, :c}]
      assert context |> Stream.zip(Stream.cycle([1])) |> Enum.to_list() |> length() == 3

      assert {:suspended, [^first], continue} =
               Enumerable.reduce(context, {:cont, []}, fn one, acc -> {:suspend, [one | acc]} end)

      assert {:suspended, [^second, ^first], continue} = continue.({:cont, [first]})
      assert {:halted, [^second]} = continue.({:halt, [second]})
    end

    test "agrees with iterations/1 for any conversation" do
      check_all("enumerable", [runs: 50, max_size: 30], fn size ->
        {arguments, operations, _} = conversation(size)

        context =
          Enum.reduce(operations, apply(Context, :new, arguments), fn
            {:recreate, []}, context -> Context.create!(Context.to_map(context))
            {:update, [attributes]}, context -> Context.update!(context, attributes)
            {function, arguments}, context -> step(context, function, arguments)
          end)

        iterations = Context.iterations(context)
        assert Enum.to_list(context) == iterations
        assert Enum.count(context) == length(iterations)
        count = length(iterations)

        for index <- -(count + 1)..(count + 1) do
          assert Enum.at(context, index) == Enum.at(iterations, index)
          assert Enum.slice(context, index, 2) == Enum.slice(iterations, index, 2)
        end
      end)
    end

    defp step(context, function, arguments) do
      apply(Context, function, [context | arguments])
    rescue
      Context.Error -> context
    end

    test "works on a context whose first iterations are gone" do
      context =
        Context.create!(%{iterations: [%{number: 7, messages: []}, %{number: 8, messages: []}]})

      assert Enum.count(context) == 2
      assert [%{number: 7}, %{number: 8}] = Enum.to_list(context)
      assert %{number: 8} = Enum.at(context, 1)
      assert [%{number: 8}] = Enum.take(context, -1)
    end
  end
end
