defmodule AshAgent.Context.RewindTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions
  import AshAgent.TestSupport.Generators, only: [check_all: 3, between: 2]

  alias AshAgent.Context
  alias AshAgent.TestSupport.{ContextGenerators, RequestChecker}

  @at ~U[2026-01-01 10:00:00.000000Z]

  # What two contexts with the same past have in common: all but when and whether the last iteration ended.
  defp past(context) do
    context
    |> Context.dump()
    |> Map.delete("updated_at")
    |> Map.update!("iterations", fn iterations ->
      List.update_at(iterations, -1, &Map.delete(&1, "completed_at"))
    end)
  end

  defp requests(context) do
    for provider <- RequestChecker.providers(), cache <- [false, :auto] do
      opts = [pending: :interrupt, cache: cache, thinking: :text]

      {context |> Context.encode_request!(provider, opts) |> IO.iodata_to_binary(),
       Context.request_report(context, provider, opts)}
    end
  end

  # Contexts as they were, by the number of their current iteration: the last one of each.
  defp history(size) do
    [first | steps] = ContextGenerators.script(size)
    start = ContextGenerators.build([first], @at)

    {contexts, _} =
      Enum.map_reduce(steps, {start, DateTime.add(@at, 1)}, fn step, {context, at} ->
        next = ContextGenerators.continue(context, [step], at)
        {next, {next, DateTime.add(at, 1)}}
      end)

    [start | contexts]
  end

  defp turns(count) do
    Enum.reduce(1..count//1, Context.new("start", at: @at, id: "c"), fn n, context ->
      context
      |> Context.add_assistant_message("answer #{n}", [], at: @at)
      |> Context.add_user_message("question #{n}", at: @at)
    end)
  end

  test "goes back to the end of an iteration" do
    context = turns(5)
    back = Context.rewind(context, to: 3)

    assert back.current_iteration == 3
    assert Context.count_iterations(back) == 3
    assert Context.get_iteration(back, 3) == Context.get_iteration(context, 3)
    assert Context.get_iteration(back, 4) == nil
    assert Context.to_messages(back) == Enum.take(Context.to_messages(context), 6)
    assert Context.count_messages(back) == 6
  end

  test "refuses iterations that are not there" do
    big = Bitwise.bsl(1, 80)

    for number <- [0, -1, 7, big, -big, 0x7FFFFFFFFFFFFFFF, 0x10000000000000000] do
      assert reason_of(fn -> Context.rewind(turns(5), to: number) end) ==
               {:unknown_iteration, number, 1..6}
    end

    for wrong <- [[to: nil], [to: 1.0], [to: "1"], [], [at: 1], [to: 1, at: @at]] do
      assert_caller_bug(fn -> Context.rewind(turns(2), wrong) end)
    end
  end

  test "gives the past, whatever came later" do
    check_all("rewinds", [runs: 200, max_size: 14], fn size ->
      contexts = history(size)
      last = List.last(contexts)
      document = Context.dump(last)

      for number <- 1..last.current_iteration do
        back = Context.rewind(last, to: number)

        # By the log.
        assert past(back)["iterations"] ==
                 document["iterations"]
                 |> Enum.take(number)
                 |> List.update_at(-1, &Map.delete(&1, "completed_at"))

        kept = %{document | "iterations" => Enum.take(document["iterations"], number)}
        copy = Context.load!(%{kept | "updated_at" => Context.dump(back)["updated_at"]})
        if number < last.current_iteration, do: assert(Context.equal?(copy, back))
        assert Context.to_messages(back) == Context.to_messages(copy)
        assert Context.count_messages(back) == length(Context.to_messages(back))

        assert Context.Tokens.get_cumulative_tokens(back) ==
                 Context.Tokens.get_cumulative_tokens(copy)

        assert requests(back) == requests(copy)

        for method <- [:auto, :estimate, :o200k_base] do
          assert Context.Tokens.count_tokens(back, method: method) ==
                   Context.Tokens.count_tokens(copy, method: method)
        end

        # By the context that there was.
        there = contexts |> Enum.filter(&(&1.current_iteration == number)) |> List.last()

        if Context.pending_tool_calls(there) == [] do
          assert past(back) == past(there)
          assert requests(back) == requests(there)
        end
      end
    end)
  end

  test "what is appended then is what it would have been without what came later" do
    check_all("rewinds and appends", [runs: 200, max_size: 14], fn size ->
      contexts = history(size)
      last = List.last(contexts)
      number = between(1, last.current_iteration)
      more = [{:user, "and now?"} | ContextGenerators.steps(between(1, 4))]
      later = DateTime.add(@at, 10_000)

      back = last |> Context.rewind(to: number) |> ContextGenerators.continue(more, later)

      kept = contexts |> Enum.filter(&(&1.current_iteration == number)) |> List.last()
      spoken? = Enum.any?(Context.get_iteration_messages(kept, number), &(&1.role == :assistant))

      # Appending to an iteration in which nobody has spoken joins it, and a rewound one is complete.
      if Context.pending_tool_calls(kept) == [] and spoken? do
        went_on = ContextGenerators.continue(kept, more, later)

        assert requests(back) == requests(went_on)

        same =
          &(&1
            |> Context.to_map()
            |> Map.update!(:iterations, fn all ->
              Enum.map(all, fn i -> Map.delete(i, :completed_at) end)
            end))

        assert same.(back) == same.(went_on)

        completed = fn context ->
          Map.update!(Context.dump(context), "iterations", fn all ->
            Enum.map(all, &Map.delete(&1, "completed_at"))
          end)
        end

        assert completed.(back) == completed.(went_on)
      end
    end)
  end

  test "is one of several branches" do
    context = turns(6)
    a = context |> Context.rewind(to: 3) |> Context.add_user_message("left", at: @at)
    b = context |> Context.rewind(to: 4) |> Context.add_user_message("right", at: @at)

    assert %{last_common: 3, a: [%{number: 4}], b: [%{number: 4}, %{number: 5}]} =
             Context.diff(a, b)

    assert %{last_common: 3, a: [_, _, _, _], b: [%{number: 4}]} = Context.diff(context, a)
    assert %{last_common: 7, a: [], b: []} = Context.diff(context, context)

    assert %{last_common: nil, a: [_ | _], b: [%{number: 1}]} =
             Context.diff(context, Context.new("else"))

    # Views and system prompts are not compared.
    other = context |> Context.View.hide({:all_but_last, 1}) |> Context.put_system_prompt("New")
    assert %{last_common: 7, a: [], b: []} = Context.diff(context, other)

    # Equal contents are common, wherever they are.
    assert %{last_common: 7} = Context.diff(context, Context.load!(Context.dump(context)))
  end

  test "the system prompt of now stays" do
    context = Context.new("Hi", system_prompt: "old") |> Context.add_assistant_message("a")
    context = context |> Context.add_user_message("b") |> Context.put_system_prompt("new")
    back = Context.rewind(context, to: 1)
    assert Context.system_prompt(back) == "new"
    assert [%{role: :system, content: "new"} | _] = Context.to_messages(back)

    assert back |> Context.put_system_prompt(nil) |> Context.to_messages() |> hd() == %{
             role: :user,
             content: "Hi"
           }
  end
end
