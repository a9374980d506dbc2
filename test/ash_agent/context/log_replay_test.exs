defmodule AshAgent.Context.LogReplayTest do
  # Operations on conversations, with what became of each in the core, whose model judges them (`tests/model.rs`): the functions of
  # the package do the same to the byte, and never change an older context.
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions

  alias AshAgent.Context
  alias AshAgent.Context.{Error, JSON}

  @start 1_767_225_600_000_000

  defp conversations do
    for text <- "test/fixtures/log_operations.jsonl" |> File.read!() |> String.split("\n\n"),
        text = String.trim(text),
        text != "",
        do: for(line <- String.split(text, "\n"), do: JSON.decode!(line))
  end

  test "the functions do to conversations what the core's model does, and never change an older one" do
    conversations = conversations()
    assert length(conversations) == 16

    for [empty | lines] <- conversations do
      {last, history} = Enum.reduce(lines, start(empty), &replay/2)
      assert_stored(last)

      for {context, snapshot} <- history do
        assert {context, Context.to_snapshot(context)} == {context, snapshot}
      end
    end
  end

  test "the same operations in many processes at once lead to equal contexts" do
    for [empty | lines] <- conversations() do
      {first, _history} = start = start(empty)
      before = Context.to_map(first)

      [one | others] =
        1..4
        |> Enum.map(fn _ ->
          Task.async(fn -> lines |> Enum.reduce(start, &replay/2) |> elem(0) end)
        end)
        |> Task.await_many(:infinity)

      for other <- others do
        assert Context.equal?(one, other)
        assert_same(Context.to_map(one), Context.to_map(other))
      end

      refute Context.equal?(one, Context.put_metadata(one, :one_more, 1))
      assert_same(before, Context.to_map(first))
    end
  end

  defp start(empty) do
    snapshot = Base.decode64!(empty)
    context = Context.from_snapshot!(snapshot)
    {context, [{context, snapshot}]}
  end

  # The context that is gone on from, and all before it, the newest first.
  defp replay([_now, "fork", index], {_context, history}) do
    {context, _snapshot} = history |> Enum.reverse() |> Enum.at(index)
    {context, history}
  end

  defp replay([now, function, terms, refused, expected], {context, history}) do
    arguments = terms |> Base.decode64!() |> :erlang.binary_to_term()
    at = DateTime.from_unix!(@start + now, :microsecond)
    {next, reason} = run(function, context, arguments, at)
    call = {function, arguments}
    assert {call, reason} == {call, refused}
    assert {call, state(next)} == {call, expected}

    if reason do
      {context, history}
    else
      compare_reads(next)
      {next, [{next, Context.to_snapshot(next)} | history]}
    end
  end

  defp run(function, context, arguments, at) do
    {apply_to(function, context, arguments, at), nil}
  rescue
    error in Error -> {context, name(error.reason)}
  end

  defp name(reason) when is_tuple(reason), do: reason |> elem(0) |> name()
  defp name(reason), do: Atom.to_string(reason)

  defp apply_to("rewind", context, [to], _at), do: Context.rewind(context, to: to)

  defp apply_to("reload", context, [], _at),
    do: context |> Context.to_snapshot() |> Context.from_snapshot!()

  defp apply_to("interrupt", context, [reason], at),
    do: Context.interrupt(context, reason, at: at)

  defp apply_to("approve_tool_call", context, [id, by], at),
    do: Context.approve_tool_call(context, id, by: by, at: at)

  defp apply_to("deny_tool_call", context, [id, reason], at),
    do: Context.deny_tool_call(context, id, reason, at: at)

  defp apply_to("put_system_prompt", context, [prompt], at),
    do: Context.put_system_prompt(context, prompt, at: at)

  defp apply_to("put_metadata", context, [key, value], at),
    do: Context.put_metadata(context, key, value, at: at)

  defp apply_to("put_iteration_metadata", context, [number, key, value], at),
    do: Context.put_iteration_metadata(context, number, key, value, at: at)

  defp apply_to("add_user_message", context, [input, note], at),
    do: Context.add_user_message(context, input, stamp(note, at))

  defp apply_to("add_assistant_message", context, [content, calls, note], at),
    do: Context.add_assistant_message(context, content, calls, stamp(note, at))

  defp apply_to("add_tool_results", context, [results, note], at),
    do: Context.add_tool_results(context, results, stamp(note, at))

  defp stamp(nil, at), do: [at: at]
  defp stamp(note, at), do: [at: at, metadata: note]

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
