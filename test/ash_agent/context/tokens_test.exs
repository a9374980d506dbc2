defmodule AshAgent.Context.TokensTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions
  import AshAgent.TestSupport.Generators, only: [check_all: 3, one_of: 1, between: 2]

  alias AshAgent.Context
  alias AshAgent.Context.{Tokens, View}
  alias AshAgent.TestSupport.ContextGenerators

  @methods [:auto, :estimate, :o200k_base, :cl100k_base]
  @exact [:o200k_base, :cl100k_base]
  @plain [:estimate | @exact]

  # What stands around a message, and around a call or a result.
  @message 4
  @call 8

  defp count(context, method), do: Tokens.count_tokens(context, method: method)
  defp more(context, other, method), do: count(other, method) - count(context, method)

  @image %{type: :image, media_type: "image/png", data: "iVBORw0KGgo="}

  defp turns(count, text) do
    Enum.reduce(1..count//1, Context.new(text, system_prompt: "Be brief."), fn _, context ->
      context |> Context.add_assistant_message(text) |> Context.add_user_message(text)
    end)
  end

  describe "what counts" do
    test "text, and four tokens around each message" do
      for method <- @exact do
        assert count(Context.new("Hello, world!"), method) == 4 + @message
        assert count(Context.new(""), method) == @message
        context = Context.new("Hello, world!")
        two = Context.add_assistant_message(context, "Hello, world!")
        assert more(context, two, method) == 4 + @message
      end
    end

    test "the system prompt, and the blocks behind it" do
      for method <- @plain do
        bare = Context.new("Hi")
        prompted = Context.new("Hi", system_prompt: "You are a helpful assistant.")
        assert more(bare, prompted, method) > @message

        assert more(
                 prompted,
                 View.put_prompt_block(prompted, :a, "The user is Ann."),
                 method
               ) >
                 0

        assert more(bare, View.put_prompt_block(bare, :a, "The user is Ann."), method) >
                 @message

        assert count(Context.put_system_prompt(prompted, nil), method) == count(bare, method)
      end
    end

    test "calls and results, with eight tokens around each" do
      for method <- @plain do
        context = Context.new("Hi")

        called =
          Context.add_assistant_message(context, nil, [
            %{id: "a", name: "get_weather", arguments: %{}}
          ])

        assert more(context, called, method) > @message + @call
        answered = Context.add_tool_results(called, [{"a", {:ok, "It is sunny in Paris today."}}])
        assert more(called, answered, method) > @call

        longer =
          Context.add_tool_results(called, [{"a", {:ok, String.duplicate("It is sunny. ", 50)}}])

        assert more(answered, longer, method) > 100
      end
    end

    test "thinking" do
      for method <- @plain do
        context = Context.new("Hi")
        said = Context.add_assistant_message(context, [%{type: :text, text: "Yes."}])

        thought = [
          %{type: :thinking, text: String.duplicate("Let me think. ", 20)},
          %{type: :text, text: "Yes."}
        ]

        assert more(said, Context.add_assistant_message(context, thought), method) > 40
      end
    end
  end

  describe "the ways to count" do
    test "are an estimate where there is no report" do
      context = turns(3, "some words")
      assert Tokens.count_tokens(context) == count(context, :estimate)
      assert Tokens.count_tokens(context, method: :estimate) == count(context, :estimate)
    end

    test "take the last report as it is" do
      context = turns(3, "some words") |> Context.add_assistant_message("Yes.")
      used = Tokens.add_token_usage(context, %{input_tokens: 700, output_tokens: 11})
      assert Tokens.count_tokens(used) == 711

      assert Tokens.count_tokens(used, method: :estimate) ==
               Tokens.count_tokens(context, method: :estimate)

      again = Tokens.add_token_usage(used, %{input_tokens: 900, output_tokens: 1})
      assert Tokens.count_tokens(again) == 901
    end

    test "take the report as it is when it comes after the results" do
      context =
        Context.new("Hi")
        |> Context.add_assistant_message(nil, [%{id: "a", name: "x", arguments: %{}}])
        |> Context.add_tool_results([{"a", {:ok, "r"}}])
        |> Tokens.add_token_usage(%{input_tokens: 500, output_tokens: 5})

      assert Tokens.count_tokens(context) >= 505
      next = Context.add_assistant_message(context, "Yes.")

      assert Tokens.count_tokens(next) ==
               Tokens.count_tokens(context) + more(context, next, :estimate)
    end

    test "estimate only what came after the report" do
      used =
        turns(3, "some words")
        |> Context.add_assistant_message("Yes.")
        |> Tokens.add_token_usage(%{input_tokens: 700, output_tokens: 11})

      next = Context.add_user_message(used, "And what of the other things?")
      assert Tokens.count_tokens(next) == 711 + more(used, next, :estimate)

      next = Context.add_assistant_message(next, nil, [%{id: "a", name: "x", arguments: %{}}])
      next = Context.add_tool_results(next, [{"a", {:ok, "a result"}}])
      assert Tokens.count_tokens(next) == 711 + more(used, next, :estimate)
    end

    test "leave as much of a report as the estimate leaves" do
      used =
        turns(5, String.duplicate("some words ", 20))
        |> Context.add_assistant_message("Yes.")
        |> Tokens.add_token_usage(%{input_tokens: 2000, output_tokens: 11})

      hidden = View.hide(used, {:all_but_last, 2})
      [before, left] = for one <- [used, hidden], do: Tokens.count_tokens(one, method: :estimate)
      assert Tokens.count_tokens(hidden) == ceil(2011 * left / before)
      assert hidden |> View.expand(:all) |> Tokens.count_tokens() == 2011
    end

    test "do not count reasoning that is not sent again" do
      context = Context.new("Hi") |> Context.add_assistant_message("Yes.")
      report = %{input_tokens: 100, output_tokens: 50, reasoning_tokens: 40}

      assert context |> Tokens.add_token_usage(report) |> Tokens.count_tokens() ==
               110
    end

    test "never are below nothing" do
      used =
        turns(5, String.duplicate("some words ", 100))
        |> Context.add_assistant_message("Yes.")
        |> Tokens.add_token_usage(%{input_tokens: 1, output_tokens: 1})

      assert used |> View.hide({:all_but_last, 1}) |> Tokens.count_tokens() > 0
    end

    test "are refused when they are none" do
      for wrong <- [[method: :exact], [method: nil], [method: "estimate"], [other: 1], :estimate] do
        assert_caller_bug(fn -> Tokens.count_tokens(Context.new("Hi"), wrong) end)
        assert_caller_bug(fn -> Tokens.token_breakdown(Context.new("Hi"), wrong) end)
        assert_caller_bug(fn -> Tokens.budget(Context.new("Hi"), 5, wrong).exceeded? end)
      end
    end
  end

  describe "a breakdown" do
    test "has each kind in its place" do
      {:ok, context, _} =
        turns(9, String.duplicate("words ", 20))
        |> Context.add_assistant_message(
          [%{type: :thinking, text: "Hmm."}, %{type: :text, text: "Yes."}],
          [
            %{id: "a", name: "x", arguments: %{"q" => "y"}}
          ]
        )
        |> Context.add_tool_results([{"a", {:ok, "r"}}])
        |> Context.add_user_message([@image])
        |> View.compact({:summarize, fn _ -> "They talked." end}, range: 1..5)

      for method <- @methods do
        kinds = Tokens.token_breakdown(context, method: method)

        assert kinds |> Map.keys() |> Enum.sort() == [
                 :assistant,
                 :media,
                 :summaries,
                 :system,
                 :thinking,
                 :tool_calls,
                 :tool_results,
                 :user
               ]

        for {kind, tokens} <- kinds, do: assert({kind, tokens > 0} == {kind, true})
        counted = if method == :auto, do: :estimate, else: method
        assert kinds |> Map.values() |> Enum.sum() == count(context, counted)
      end
    end

    test "sums to the count, for any conversation" do
      check_all("breakdowns", [runs: 200, max_size: 12], fn size ->
        context = ContextGenerators.build(ContextGenerators.script(size))

        for method <- @plain do
          kinds = Tokens.token_breakdown(context, method: method)
          assert kinds |> Map.values() |> Enum.sum() == count(context, method)
        end
      end)
    end
  end

  describe "a count" do
    test "grows by the message that is added, and by nothing else" do
      check_all("appends", [runs: 100, max_size: 12], fn size ->
        steps = ContextGenerators.script(size)
        context = ContextGenerators.build(steps)

        if Context.pending_tool_calls(context) == [] do
          alone = Context.new("more words") |> count(:estimate)
          next = Context.add_user_message(context, "more words")

          for method <- @plain,
              do: assert(more(context, next, method) == count(Context.new("more words"), method))

          assert more(context, next, :estimate) == alone
        end
      end)
    end

    test "is of the view" do
      context = turns(10, "some words in a sentence")

      for method <- @plain do
        rest = count(context, method) - count(Context.put_system_prompt(context, nil), method)
        last = Context.new("some words in a sentence") |> count(method)
        assert context |> View.hide({:all_but_last, 1}) |> count(method) == rest + last

        assert context
               |> View.hide({:all_but_last, 1})
               |> View.expand(:all)
               |> count(method) ==
                 count(context, method)
      end
    end

    test "falls when results are cleared or shortened, and follows masks" do
      context =
        Context.new("Hi")
        |> Context.add_assistant_message(nil, [%{id: "a", name: "x", arguments: %{}}])
        |> Context.add_tool_results([{"a", {:ok, String.duplicate("some words ", 1000)}}])

      for method <- @plain do
        assert context |> View.clear_tool_results(keep: 0) |> count(method) < 100
        assert context |> View.put_max_result_bytes(200) |> count(method) < 200

        assert context |> View.put_masks([{"(some words ?)+", "x"}]) |> count(method) <
                 100

        assert context |> View.put_masks([{"o", "a long word "}]) |> count(method) >
                 count(context, method)

        there_and_back =
          context
          |> View.put_max_result_bytes(200)
          |> View.put_max_result_bytes(nil)

        assert count(there_and_back, method) == count(context, method)
      end
    end
  end

  describe "budgets" do
    test "tell how much is left" do
      context = Context.new("Hello, world!")
      opts = [method: :o200k_base]
      assert Tokens.budget(context, 10, opts).remaining == 2
      assert Tokens.budget(context, 8, opts).remaining == 0
      assert Tokens.budget(context, 1, opts).remaining == 0
      assert Tokens.budget(context, 7, opts).exceeded?
      refute Tokens.budget(context, 8, opts).exceeded?
      assert Tokens.budget(context, 8, opts).share == 1.0
      assert Tokens.budget(context, 4, opts).share == 2.0
    end

    test "of any size" do
      context = Context.new("Hello, world!")
      big = Bitwise.bsl(1, 80)

      assert Tokens.budget(context, big).remaining ==
               big - Tokens.count_tokens(context)

      refute Tokens.budget(context, big).exceeded?
      assert Tokens.budget(context, big).share < 1.0e-20
      assert Tokens.budget(context, Bitwise.bsl(1, 3000)).share < 1.0e-20
    end

    test "agree with the count, for any context and method" do
      check_all("budgets", [runs: 100, max_size: 8], fn size ->
        context = ContextGenerators.build(ContextGenerators.script(size))
        method = one_of(@methods)
        tokens = count(context, method)
        budget = between(1, 2 * tokens + 1)
        opts = [method: method]
        assert Tokens.budget(context, budget, opts).exceeded? == tokens > budget
        assert Tokens.budget(context, budget, opts).remaining == max(budget - tokens, 0)
        assert Tokens.budget(context, budget, opts).share == tokens / budget
      end)
    end

    test "are positive integers" do
      for wrong <- [0, -1, 1.5, nil, :all, "5"],
          do: assert_caller_bug(fn -> Tokens.budget(Context.new("Hi"), wrong) end)
    end
  end

  describe "the tables of an exact method" do
    for method <- [:o200k_base, :cl100k_base] do
      test "of #{method} are never made on a normal scheduler" do
        assert {:ok, {[{:error, :dirty}], 8, {:ok, 8}}} =
                 AshAgent.TestSupport.OtherVM.run(AshAgent.TestSupport.FirstCount, :lanes, [
                   unquote(method)
                 ])
      end
    end
  end
end
