defmodule AshAgent.Context.LogReplayTest do
  # Operations on conversations, with what became of each in the core, whose model judges them (`tests/core/model.rs`): the functions of
  # the package do the same to the byte, and never change an older context.
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions

  alias AshAgent.Context
  alias AshAgent.TestSupport.Replayed

  defp conversations, do: Replayed.read("test/fixtures/log_operations.jsonl")

  test "the functions do to conversations what the core's model does, and never change an older one" do
    conversations = conversations()
    assert length(conversations) == 16

    for [start | lines] <- conversations do
      [{first, nil} | steps] = Replayed.play(:log, [start | lines])
      assert Context.to_snapshot(first) == Base.decode64!(start)

      # All of them were made before the first is looked at.
      for {context, %{call: call, reason: reason, expected: {refused, expected}}} <- steps do
        assert {call, reason} == {call, refused}
        assert {call, state(context)} == {call, expected}
        if reason == nil, do: compare_reads(context)
      end

      steps |> List.last() |> elem(0) |> assert_stored()
    end
  end

  test "the same operations in many processes at once lead to equal contexts" do
    for [start | lines] <- conversations() do
      first = start |> Base.decode64!() |> Context.load!()
      before = Context.to_map(first)
      play = fn -> :log |> Replayed.play([start | lines]) |> List.last() |> elem(0) end

      [one | others] =
        1..4 |> Enum.map(fn _ -> Task.async(play) end) |> Task.await_many(:infinity)

      for other <- others do
        assert Context.equal?(one, other)
        assert_same(Context.to_map(one), Context.to_map(other))
      end

      refute Context.equal?(one, Context.put_metadata(one, :one_more, 1))
      assert_same(before, Context.to_map(first))
    end
  end

  defp state(context) do
    [
      context |> Context.to_snapshot() |> :erlang.crc32(),
      context |> Context.to_prompt() |> :erlang.crc32(),
      Context.count_messages(context),
      length(Context.pending_tool_calls(context))
    ]
  end

  # The functions that read a conversation agree on it.
  defp compare_reads(context) do
    map = Context.to_map(context)
    messages = Context.to_messages(context)
    numbers = Enum.map(map.iterations, & &1.number)

    assert_same(messages, Context.get_all_messages(context))
    assert_same(messages, Enum.flat_map(map.iterations, & &1.messages))
    assert_same(map.iterations, Context.iterations(context))
    assert_same(map.metadata, Context.metadata(context))

    calls = Context.extract_tool_calls(context)
    last = Enum.take(List.last(map.iterations).tool_calls, -length(calls))
    assert_same(Enum.map(last, &Map.delete(&1, :result)), calls)
    assert context.current_iteration == map.current_iteration
    assert Context.count_messages(context) == length(messages)
    assert Context.count_iterations(context) == length(numbers)
    assert Enum.count(context) == length(numbers)
    assert Context.exceeded_max_iterations?(context, List.last(numbers))
    refute Context.exceeded_max_iterations?(context, List.last(numbers) + 1)

    for {iteration, number} <- Enum.zip(map.iterations, numbers) do
      assert_same(iteration, Context.get_iteration(context, number))
      assert_same(iteration.messages, Context.get_iteration_messages(context, number))

      for {message, position} <- Enum.with_index(iteration.messages) do
        assert {:ok, found} = Context.fetch_message(context, {number, position})
        assert_same(message, found)
      end

      assert :error == Context.fetch_message(context, {number, length(iteration.messages)})
    end

    assert nil == Context.get_iteration(context, List.last(numbers) + 1)
    assert {:ok, again} = Context.create(map)
    assert_same(map, Context.to_map(again))

    assert inspect(context) =~
             ~r/^#AshAgent.Context<iteration #{List.last(numbers)}, #{length(messages)} messages?/
  end
end
