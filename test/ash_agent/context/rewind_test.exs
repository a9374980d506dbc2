defmodule AshAgent.Context.RewindTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions
  import AshAgent.TestSupport.Generators, only: [check_all: 3, between: 2, one_of: 1]

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

  test "what comes next opens the next iteration" do
    back = Context.rewind(turns(5), to: 3)
    assert %{current_iteration: 4} = other = Context.add_user_message(back, "else")
    assert Context.get_iteration_messages(other, 4) == [%{role: :user, content: "else"}]
    assert %{current_iteration: 4} = Context.add_assistant_message(back, "more")
  end

  test "to the current iteration changes nothing" do
    check_all("rewinds to now", [runs: 100, max_size: 8], fn size ->
      for context <- history(size) do
        assert Context.equal?(Context.rewind(context, to: context.current_iteration), context)
      end
    end)
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

  test "with calls that wait leaves them behind" do
    context = turns(2) |> Context.add_assistant_message(nil, [%{id: "a", name: :x}])
    back = Context.rewind(context, to: 2)
    assert Context.pending_tool_calls(back) == []
    assert Context.tool_call_status(back, "a") == nil
    assert %{current_iteration: 3} = Context.add_user_message(back, "again")
  end

  test "keeps what was noted on the conversation and on kept iterations" do
    context = turns(4) |> Context.put_metadata(:a, 1) |> Context.put_iteration_metadata(2, :b, 2)
    back = context |> Context.put_iteration_metadata(4, :c, 3) |> Context.rewind(to: 2)
    assert Context.metadata(back) == %{a: 1}
    assert Context.get_iteration(back, 2).metadata == %{b: 2}
    assert Context.system_prompt(context) == Context.system_prompt(back)
  end

  test "takes the reports of later iterations away" do
    used = fn context, n ->
      Context.add_token_usage(context, %{input_tokens: n, output_tokens: 1})
    end

    context =
      Enum.reduce(1..40, Context.new("start"), fn n, context ->
        context |> Context.add_assistant_message("a") |> used.(n) |> Context.add_user_message("q")
      end)

    for n <- [1, 2, 15, 16, 17, 31, 32, 33, 40] do
      sum = div(n * (n + 1), 2)
      back = Context.rewind(context, to: n)
      assert %{input_tokens: ^sum, output_tokens: ^n} = Context.get_cumulative_tokens(back)
      assert Context.count_tokens(back) == n + 1
      assert Context.equal?(Context.load!(Context.dump(back)), back)
    end
  end

  test "of a view leaves what is hidden in front of the turn" do
    back = turns(9) |> Context.keep_last_iterations(2) |> Context.rewind(to: 5)
    assert Context.view(back).hidden == [1..4]
    assert Context.count_messages(back) == 2

    back = turns(9) |> Context.keep_last_iterations(2) |> Context.rewind(to: 1)
    assert Context.view(back).hidden == []
    assert Context.to_messages(back) == Context.to_messages(back, view: :log)
  end

  test "into a summary brings back what it stands for" do
    {:ok, context, %{range: 1..20}} =
      Context.compact(turns(22), {:summarize, fn _ -> "They talked." end}, range: 1..20)

    for to <- [1, 7, 20] do
      back = Context.rewind(context, to: to)
      assert Context.view(back).summaries == []
      assert Context.count_messages(back) == 2 * to
      assert length(Context.to_messages(back)) == 2 * to
    end

    assert Context.view(Context.rewind(context, to: 21)).summaries == [1..20]
  end

  test "shows results that come after it, also where later ones were cleared" do
    tool = fn context, id ->
      context
      |> Context.add_assistant_message(nil, [%{id: id, name: :read}])
      |> Context.add_tool_results([{id, {:ok, "result #{id}"}}])
    end

    context = Enum.reduce(["a", "b", "c"], Context.new("Hi"), &tool.(&2, &1))
    back = context |> Context.clear_tool_results(keep: 0) |> Context.rewind(to: 1) |> tool.("d")

    shown = for %{content: [%{content: text}]} <- Context.to_messages(back), do: text
    assert shown == ["[Old tool result cleared]", "result d"]
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
        assert Context.get_cumulative_tokens(back) == Context.get_cumulative_tokens(copy)
        assert requests(back) == requests(copy)

        for method <- [:auto, :estimate, :o200k_base] do
          assert Context.count_tokens(back, method: method) ==
                   Context.count_tokens(copy, method: method)
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

  test "again and again is as once" do
    check_all("rewinds of rewinds", [runs: 100, max_size: 14], fn size ->
      last = List.last(history(size))

      to =
        Enum.sort([between(1, last.current_iteration), between(1, last.current_iteration)], :desc)

      twice = Enum.reduce(to, last, &Context.rewind(&2, to: &1))
      assert Context.equal?(twice, Context.rewind(last, to: List.last(to)))
      assert requests(twice) == requests(Context.rewind(last, to: List.last(to)))

      # A way there and back leaves nothing.
      there =
        Enum.reduce(1..5, twice, fn _, context ->
          ContextGenerators.continue(context, ContextGenerators.steps(2))
        end)

      if last.current_iteration > 1 do
        assert Context.equal?(Context.rewind(there, to: 1), Context.rewind(last, to: 1))
        assert requests(Context.rewind(there, to: 1)) == requests(Context.rewind(last, to: 1))
      end
    end)
  end

  test "re-used ids get the names that they would have got" do
    call = fn context, id ->
      context
      |> Context.add_assistant_message(nil, [%{id: id, name: :x}], at: @at)
      |> Context.add_tool_results([{id, {:ok, "r"}}], at: @at)
    end

    ids = for n <- 1..60, do: one_of(["a.b", "a_b", "a-b", "call_1_1_0", "n#{n}"])
    all = Enum.reduce(ids, Context.new("Hi", id: "c", at: @at), &call.(&2, &1))

    for to <- [1, 5, 15, 16, 17, 32, 33, 59] do
      fresh =
        ids |> Enum.take(to) |> Enum.reduce(Context.new("Hi", id: "c", at: @at), &call.(&2, &1))

      for id <- ["a.b", "a_b", "new", "call_1_1_0"] do
        a = all |> Context.rewind(to: to) |> call.(id)
        b = call.(fresh, id)
        assert requests(a) == requests(b)
        assert past(a) == past(b)
      end
    end
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
    other = context |> Context.keep_last_iterations(1) |> Context.put_system_prompt("New")
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
