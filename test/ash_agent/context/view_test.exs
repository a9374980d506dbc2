defmodule AshAgent.Context.ViewTest do
  # Not async: it measures time.
  use ExUnit.Case, async: false

  import AshAgent.TestSupport.Assertions
  import AshAgent.TestSupport.Generators, only: [check_all: 3, between: 2, one_of: 1, many: 2]

  alias AshAgent.Context
  alias AshAgent.Context.Error
  alias AshAgent.TestSupport.RequestChecker

  @at ~U[2026-01-01 10:00:00.000000Z]
  @big Bitwise.bsl(1, 80)
  @providers RequestChecker.providers()

  @long String.duplicate("Tell me of Elixir. ", 20)

  defp at(seconds), do: [at: DateTime.add(@at, seconds)]

  # Iterations 1 to `count`, each with a question and an answer.
  defp turns(count, text \\ "") do
    start = Context.new("question 1#{text}", [system_prompt: "Be brief.", id: "c"] ++ at(1))

    Enum.reduce(1..count, start, fn n, context ->
      context =
        if n == 1,
          do: context,
          else: Context.add_user_message(context, "question #{n}#{text}", at(n))

      Context.add_assistant_message(context, "answer #{n}#{text}", [], at(n))
    end)
  end

  defp tool(context, id, result, name \\ "read") do
    context
    |> Context.add_assistant_message(nil, [%{id: id, name: name, arguments: %{}}], at(0))
    |> Context.add_tool_results([{id, {:ok, result}}], at(0))
  end

  defp asked(context, ids \\ ["p"]),
    do:
      Context.add_assistant_message(
        context,
        nil,
        Enum.map(ids, &%{id: &1, name: "read", arguments: %{}})
      )

  defp texts(context),
    do: for(%{content: text} when is_binary(text) <- Context.to_messages(context), do: text)

  defp results(context) do
    for %{content: [%{type: :tool_result} | _] = parts} <- Context.to_messages(context),
        part <- parts,
        do: part.content
  end

  defp numbers(context) do
    for text <- texts(context),
        [_, n] <- [Regex.run(~r/\Aquestion (\d+)/, text)],
        do: String.to_integer(n)
  end

  defp body(context, provider, opts \\ []),
    do: context |> Context.encode_request!(provider, opts) |> IO.iodata_to_binary()

  # Sound in itself, and from storage.
  defp sound(context) do
    assert Context.count_messages(context) == length(Context.to_messages(context))
    assert_stored(context)

    for provider <- @providers do
      body = Context.request!(context, provider, pending: :interrupt)
      assert {provider, []} == {provider, RequestChecker.validate_request(body, provider)}
    end

    context
  end

  describe "a view" do
    test "is the log at first" do
      context = turns(3)

      assert Context.view(context) ==
               %{
                 hidden: [],
                 summaries: [],
                 cleared: nil,
                 max_result_bytes: nil,
                 masks: [],
                 blocks: []
               }

      assert Context.to_messages(context, view: :log) == Context.to_messages(context)
      assert inspect(context) =~ "7 messages,"
    end

    test "tells what it is made of" do
      context =
        turns(9, @long)
        |> tool("a", "r")
        |> Context.keep_last_iterations(8)
        |> Context.mark_as_summarized(3..4, "s")
        |> Context.clear_tool_results(keep: 0, placeholder: "-")
        |> Context.put_max_result_bytes(200)
        |> Context.put_masks([{~r/a+/, "b"}, {"c", ""}])
        |> Context.put_prompt_block(:memory, "m")

      assert %{
               hidden: [1..1],
               summaries: [3..4],
               cleared: %{iteration: 9, calls: 1, placeholder: "-"},
               max_result_bytes: 200,
               masks: [{"a+", "b"}, {"c", ""}],
               blocks: [{"memory", "m"}]
             } = Context.view(context)

      assert inspect(context) =~ "messages in view"
    end

    test "is the log again when all is taken back" do
      context = turns(5, @long)

      again =
        context
        |> Context.mark_as_summarized(1..2, "s", at(9))
        |> Context.put_max_result_bytes(200, at(9))
        |> Context.put_masks([{"a", "b"}], at(9))
        |> Context.put_prompt_block(:a, "b", at(9))
        |> Context.expand(:all, at(9))
        |> Context.put_max_result_bytes(nil, at(9))
        |> Context.put_masks([], at(9))
        |> Context.put_prompt_block(:a, nil, at: context[:updated_at])

      assert Context.equal?(again, context)
    end

    test "does not show in the log" do
      context = turns(5, @long) |> tool("a", "result")
      log = Context.to_messages(context, view: :log)
      iterations = Context.iterations(context)

      for view <- [
            Context.keep_last_iterations(context, 1),
            Context.mark_as_summarized(context, 1..3, "s"),
            Context.clear_tool_results(context, keep: 0),
            Context.put_masks(context, [{"[a-z]", ""}]),
            Context.put_prompt_block(context, :a, "b"),
            Context.put_max_result_bytes(context, 100)
          ] do
        assert Context.to_messages(view, view: :log) == log
        assert Context.iterations(view) == iterations
        assert Enum.to_list(view) == iterations
        assert view[:iterations] == iterations
        assert Context.to_map(view).iterations == iterations
        assert Context.count_iterations(view) == 6
        assert Context.fetch_message(view, {1, 1}) == Context.fetch_message(context, {1, 1})
        assert Context.extract_tool_calls(view) == Context.extract_tool_calls(context)
        assert Context.tool_call_status(view, "a") == :ok
        assert Context.diff(view, context).last_common == 6
      end
    end

    test "refuses to be asked otherwise" do
      for wrong <- [[view: :all], [view: nil], [log: true]],
          do: assert_caller_bug(fn -> Context.to_messages(turns(1), wrong) end)
    end

    test "survives deltas" do
      stored = turns(6, @long)

      context =
        stored
        |> Context.mark_as_summarized(1..2, "s")
        |> Context.compact(:drop, range: 3..3)
        |> elem(1)
        |> Context.put_masks([{"a", "b"}])
        |> Context.add_user_message("next")

      loaded = Context.load!(stored, Context.dump(context, since: 6))
      assert Context.equal?(loaded, context)
      assert read_all(loaded) == read_all(context)

      # A delta without a view takes one away.
      plain = Context.expand(context, :all) |> Context.put_masks([])
      assert Context.equal?(Context.load!(loaded, Context.dump(plain, since: 6)), plain)
    end
  end

  describe "keep_last_iterations" do
    test "hides all but the last, with absolute numbers" do
      context = turns(5) |> Context.keep_last_iterations(2) |> sound()
      assert numbers(context) == [4, 5]
      assert hd(texts(context)) == "Be brief."
      assert context.current_iteration == 5
      assert Context.view(context).hidden == [1..3]
      assert %{number: 1} = Context.get_iteration(context, 1)

      next = Context.add_user_message(context, "question 6") |> sound()
      assert next.current_iteration == 6
      assert numbers(next) == [4, 5, 6]
    end

    test "of more than there are hides none" do
      for count <- [5, 6, @big],
          do: assert(numbers(Context.keep_last_iterations(turns(5), count)) == [1, 2, 3, 4, 5])
    end

    test "keeps calls that wait" do
      context =
        turns(3)
        |> Context.add_user_message("x")
        |> asked()
        |> Context.keep_last_iterations(1)
        |> sound()

      assert [%{id: "p"}] = Context.pending_tool_calls(context)
      assert [_, _, %{tool_calls: [%{id: "p"}]}] = Context.to_messages(context)

      assert Context.add_tool_results(context, [{"p", {:ok, "r"}}]) |> sound() |> results() == [
               "r"
             ]
    end

    test "never leaves nothing" do
      context =
        Context.new("Hi")
        |> tool("a", "1")
        |> tool("b", "2")
        |> Context.keep_last_iterations(1)
        |> sound()

      assert results(context) == ["2"]
    end

    test "takes counts only" do
      for wrong <- [0, -1, nil, 1.0, :all],
          do: assert_caller_bug(fn -> Context.keep_last_iterations(turns(2), wrong) end)
    end
  end

  describe "hide_old_iterations" do
    test "hides what began before" do
      # Iteration n began at second n.
      for {seconds, left} <- [
            {0, [5]},
            {1, [4, 5]},
            {3, [2, 3, 4, 5]},
            {100, [1, 2, 3, 4, 5]},
            {@big, [1, 2, 3, 4, 5]}
          ] do
        context = Context.hide_old_iterations(turns(5), seconds, at(5)) |> sound()
        assert {seconds, numbers(context)} == {seconds, left}
      end
    end

    test "counts from now" do
      assert numbers(Context.hide_old_iterations(turns(5), 60)) == [5]
      assert numbers(Context.new("question 1") |> Context.hide_old_iterations(60)) == [1]
    end

    test "at the ends of the calendar hides what it says" do
      assert numbers(Context.hide_old_iterations(turns(3), 10, at: ~U[0000-01-01 00:00:00Z])) ==
               [1, 2, 3]

      assert numbers(Context.hide_old_iterations(turns(3), 10, at: ~U[9999-12-31 23:59:59Z])) ==
               [3]
    end

    test "takes counts only" do
      for wrong <- [-1, nil, 1.0],
          do: assert_caller_bug(fn -> Context.hide_old_iterations(turns(2), wrong) end)
    end
  end

  describe "keep_iteration_range" do
    test "shows a range, and what comes later" do
      context = Context.keep_iteration_range(turns(6), 2, 4) |> sound()
      assert numbers(context) == [2, 3, 4]
      next = Context.add_user_message(context, "question 7") |> sound()
      assert {next.current_iteration, numbers(next)} == {7, [2, 3, 4, 7]}
    end

    test "beyond the end shows the system prompt alone" do
      for {first, last} <- [{7, 9}, {@big, @big}, {7, @big}] do
        context = Context.keep_iteration_range(turns(6), first, last) |> sound()
        assert texts(context) == ["Be brief."]
        assert Context.validate_for_request(context) == {:error, [:no_messages]}
        assert numbers(Context.add_user_message(context, "question 7")) == [7]
        assert texts(Context.add_assistant_message(context, "more")) == ["Be brief.", "more"]
      end

      assert numbers(Context.keep_iteration_range(turns(6), 5, @big)) == [5, 6]
    end

    test "shows what joins an iteration that it left out" do
      context =
        turns(2) |> Context.add_user_message("question 3") |> Context.keep_iteration_range(1, 1)

      assert numbers(Context.add_user_message(context, "question 4") |> sound()) == [1, 4]
      assert List.last(texts(Context.add_assistant_message(context, "Yes.") |> sound())) == "Yes."
    end

    test "does not leave out calls that wait" do
      context = turns(3) |> asked(["p", "q"])

      assert reason_of(fn -> Context.keep_iteration_range(context, 1, 2) end) ==
               {:pending_tool_calls, ["p", "q"]}

      assert numbers(Context.keep_iteration_range(context, 2, 3) |> sound()) == [2, 3]
    end

    test "takes ranges only" do
      for {first, last} <- [{0, 1}, {2, 1}, {-1, 1}, {1.0, 2}, {nil, 2}],
          do: assert_caller_bug(fn -> Context.keep_iteration_range(turns(2), first, last) end)
    end
  end

  describe "hide_iterations" do
    test "hides a range or one, also of the current turn, until it is expanded" do
      context = Context.hide_iterations(turns(6), 2..3) |> sound()
      assert numbers(context) == [1, 4, 5, 6]
      context = Context.hide_iterations(context, 6) |> sound()
      assert numbers(context) == [1, 4, 5]
      assert numbers(Context.expand(context, 3..6)) == [1, 3, 4, 5, 6]
      assert numbers(Context.hide_iterations(turns(2), 3..9)) == [1, 2]
    end

    test "does not hide calls that wait" do
      context = turns(3) |> asked(["p"])
      hide = fn range -> Context.hide_iterations(context, range) end
      assert reason_of(fn -> hide.(2..3) end) == {:pending_tool_calls, ["p"]}
      assert numbers(hide.(1..2) |> sound()) == [3]
      for wrong <- [0, 2..1, nil, 1.0], do: assert_caller_bug(fn -> hide.(wrong) end)
    end
  end

  describe "fit" do
    test "hides the oldest until it fits" do
      context = turns(10)

      for method <- [:estimate, :o200k_base, :cl100k_base, :auto], budget <- 15..120//7 do
        case Context.fit(context, budget, method: method, step: 1) do
          {:ok, next, hidden} ->
            assert Context.count_tokens(next, method: method) <= budget
            assert Context.view(next).hidden == List.wrap(hidden)
            sound(next)

          {:error, %Error{reason: {:cannot_fit, least}}} ->
            assert least > budget
            assert {:ok, next, 1..9} = Context.fit(context, least, method: method, step: 1)
            assert Context.count_tokens(next, method: method) == least
        end
      end
    end

    test "that fits changes nothing" do
      context = turns(3)
      assert {:ok, same, nil} = Context.fit(context, 10_000)
      assert Context.equal?(same, context)
      assert {:ok, same, nil} = Context.fit(context, @big)
      assert Context.equal?(same, context)

      hidden = Context.keep_last_iterations(context, 1)
      assert {:ok, _, 1..2} = Context.fit(hidden, 10_000)
    end

    test "keeps the whole turn, the system prompt and calls that wait" do
      context =
        turns(5)
        |> Context.add_user_message("question 6")
        |> tool("a", "1")
        |> tool("b", "2")
        |> asked()

      assert {:error, %Error{reason: {:cannot_fit, least}}} = Context.fit(context, 0)
      assert {:ok, next, 1..5} = Context.fit(context, least)
      assert ["Be brief.", "question 6"] = texts(next)
      assert results(next) == ["1", "2"]
      assert [%{id: "p"}] = Context.pending_tool_calls(next)
      sound(next)
    end

    test "of a budget without room is an error that tells what is needed" do
      for {budget, opts} <- [{0, []}, {5, []}, {100, [reserve: 100]}, {100, [reserve: @big]}] do
        assert {:error, %Error{reason: {:cannot_fit, least}} = error} =
                 Context.fit(turns(10), budget, opts)

        assert least > 0
        assert Exception.message(error) =~ "#{least}"
      end
    end

    test "leaves what is reserved" do
      {:ok, next, _} = Context.fit(turns(10), 200, reserve: 150, step: 1)
      assert Context.count_tokens(next) <= 50
    end

    test "ends at multiples of the step, so that some turns change nothing" do
      for step <- [1, 2, 3, 5, 7, 10, @big] do
        case Context.fit(turns(20), 120, step: step) do
          {:ok, _, 1..last//_} -> assert rem(last, step) == 0 or last == 19
        end
      end

      # The boundary stays where it is until the budget is full again.
      {_, boundaries} =
        Enum.reduce(11..60, {turns(10), []}, fn n, {context, boundaries} ->
          context =
            context
            |> Context.add_user_message("question #{n}")
            |> Context.add_assistant_message("answer #{n}")

          {:ok, context, hidden} = Context.fit(context, 150, step: 5)
          {context, [if(hidden, do: hidden.last, else: 0) | boundaries]}
        end)

      boundaries = Enum.reverse(boundaries)
      assert boundaries == Enum.sort(boundaries)
      assert Enum.all?(boundaries, &(rem(&1, 5) == 0))
      assert length(Enum.dedup(boundaries)) < 15
    end

    test "keeps the first and the last that are named" do
      {:ok, next, 3..8} = Context.fit(turns(10), 70, keep_first: 2, keep_last: 2, step: 10)
      assert numbers(next) == [1, 2, 9, 10]
      sound(next)

      for opts <- [
            [keep_first: @big],
            [keep_last: @big],
            [keep_first: 10],
            [keep_first: 5, keep_last: 5]
          ] do
        assert {:error, %Error{reason: {:cannot_fit, least}}} = Context.fit(turns(10), 20, opts)
        assert least == Context.count_tokens(turns(10))
      end
    end

    test "keeps summaries while the rest suffices" do
      context = turns(10, @long) |> Context.mark_as_summarized(1..4, "They talked.")
      tokens = Context.count_tokens(context)

      {:ok, next, 5..5} = Context.fit(context, tokens - 1, step: 1)
      assert Context.view(next).summaries == [1..4]
      sound(next)

      {:error, %Error{reason: {:cannot_fit, least}}} = Context.fit(context, 1)
      {:ok, next, 1..9} = Context.fit(context, least, step: 1)
      assert Context.view(next).summaries == []
      sound(next)
    end

    test "leaves summaries that reach out of what may go" do
      for {range, opts} <- [
            {2..5, [keep_last: 6]},
            {1..5, [keep_first: 1]},
            {1..5, [keep_first: 1, keep_last: 6]},
            {3..8, [keep_first: 4, keep_last: 4]}
          ] do
        context =
          turns(10, @long) |> Context.mark_as_summarized(range, String.duplicate("s ", 50))

        tokens = Context.count_tokens(context)

        for percent <- 5..95//10 do
          case Context.fit(context, div(tokens * percent, 100), [step: 1] ++ opts) do
            {:ok, next, _} ->
              assert Context.count_tokens(next) <= div(tokens * percent, 100)
              assert Context.view(next).summaries == [range]
              sound(next)

            {:error, %Error{reason: {:cannot_fit, least}}} ->
              assert least > div(tokens * percent, 100)
          end
        end
      end
    end

    test "takes numbers only" do
      for {budget, opts} <- [
            {-1, []},
            {1.5, []},
            {nil, []},
            {1, [step: 0]},
            {1, [step: nil]},
            {1, [reserve: -1]},
            {1, [keep_first: -1]},
            {1, [keep_last: nil]},
            {1, [method: :x]},
            {1, [x: 1]},
            {1, [at: 1]}
          ],
          do: assert_caller_bug(fn -> Context.fit(turns(2), budget, opts) end)
    end
  end

  describe "compact" do
    test "drops a range" do
      {:ok, next, info} = Context.compact(turns(6), :drop, range: 2..3)
      assert info == %{range: 2..3, strategy: :drop, reason: nil, verdict: nil}
      assert numbers(sound(next)) == [1, 4, 5, 6]

      {:ok, next, %{range: 1..5}} = Context.compact(turns(6), :drop)
      assert numbers(sound(next)) == [6]
    end

    test "puts a summary where the iterations were" do
      me = self()

      {:ok, next, info} =
        Context.compact(
          turns(6, @long),
          {:summarize, fn messages -> send(me, messages) && {:ok, "They talked."} end},
          range: 2..4,
          check: nil
        )

      assert %{range: 2..4, strategy: :summarize, reason: nil, verdict: verdict} = info
      assert %{facts: 6, kept: 0, wrong: [], appended: 0} = verdict
      assert Context.verdict(next, 3) == verdict
      assert_received given
      assert given == turns(6, @long) |> Context.to_messages() |> Enum.slice(3, 6)

      assert %{
               role: :user,
               content: "[Summary of iterations 2 to 4 of this conversation]\nThey talked.",
               metadata: %{summary: %{first: 2, last: 4}}
             } == next |> Context.to_messages() |> Enum.at(3)

      assert for(n <- 1..6, do: Context.summary(next, n)) == [
               nil,
               "They talked.",
               "They talked.",
               "They talked.",
               nil,
               nil
             ]

      assert numbers(sound(next)) == [1, 5, 6]

      for provider <- @providers, do: assert(body(next, provider) =~ "They talked.")
    end

    test "falls back to clearing, or to dropping where there is nothing to clear, and says so" do
      for {fun, reason} <- [
            {fn _ -> {:error, :down} end, :down},
            {fn _ -> {:error, nil} end, nil},
            {fn _ -> throw(:up) end, {:throw, :up}},
            {fn _ -> exit(:gone) end, {:exit, :gone}},
            {fn _ -> nil end, :no_text},
            {fn _ -> :ok end, :no_text},
            {fn _ -> {:ok, 7} end, :no_text},
            {fn _ -> [?a] end, :no_text},
            {fn _ -> "" end, :no_text},
            {fn _ -> " \n\t" end, :no_text},
            {fn _ -> <<255, 254>> end, :no_text}
          ] do
        assert {:ok, next, info} = Context.compact(turns(5), {:summarize, fun})
        assert info == %{range: 1..4, strategy: :drop, reason: reason, verdict: nil}
        assert numbers(next) == [5]
      end

      {:ok, _, info} = Context.compact(turns(5), {:summarize, fn _ -> raise "boom" end})
      assert %{strategy: :drop, reason: %RuntimeError{message: "boom"}} = info
      {:ok, _, info} = Context.compact(turns(5), {:summarize, fn _ -> :erlang.error(:odd) end})
      assert %{strategy: :drop, reason: %ErlangError{original: :odd}} = info
    end

    test "takes no summary that is larger than half of what it stands for" do
      for text <- [String.duplicate("x ", 100), String.duplicate("word ", 2_000_000)] do
        assert {:ok, next, %{reason: {:summary_too_long, tokens, replaced}, strategy: :drop}} =
                 Context.compact(turns(5), {:summarize, fn _ -> text end})

        assert 2 * tokens > replaced
        assert numbers(next) == [5]
        assert_refused(fn -> Context.mark_as_summarized(turns(5), 1..4, text) end)
      end

      context =
        turns(2)
        |> tool("a", String.duplicate("long ", 100))
        |> Context.add_assistant_message("ok")

      context = Context.add_user_message(context, "next")

      assert {:ok, next, %{reason: :down, strategy: :clear}} =
               Context.compact(context, {:summarize, fn _ -> {:error, :down} end})

      assert Context.view(next).hidden == []
      assert inspect(Context.to_messages(next)) =~ "[Old tool result cleared]"
    end

    test "checks summaries, and completes, refuses or throws away what lacks facts or makes some up" do
      result = "wrote lib/used.ex, 4711 bytes. " <> String.duplicate("And more. ", 100)

      context =
        turns(1)
        |> tool("a", result)
        |> tool("b", "lib/used.ex")
        |> Context.add_assistant_message("ok")

      context = Context.add_user_message(context, "next")

      compact =
        &Context.compact(context, {:summarize, fn _ -> "Wrote 4712 bytes." end}, check: &1)

      assert {:ok, next, %{strategy: :summarize, verdict: %{wrong: ["4712"], appended: more}}} =
               compact.(:append)

      assert more > 0
      assert Context.summary(next, 1) =~ "Not in the conversation: 4712\nAlso: lib/used.ex"

      assert {:ok, ^next, %{range: nil, reason: nil}} =
               Context.compact(next, {:summarize, fn _ -> flunk() end})

      assert {:ok, next,
              %{strategy: :clear, reason: :summary_refused, verdict: %{wrong: ["4712"]}}} =
               compact.(:refuse)

      assert %{summaries: [], hidden: [], cleared: %{}} = Context.view(next)
      assert {:ok, next, %{strategy: :drop, reason: :summary_refused}} = compact.(:hide)
      assert %{summaries: [], hidden: [_]} = Context.view(next)
    end

    test "leaves the current turn and calls that wait" do
      context = turns(3) |> Context.add_user_message("question 4") |> tool("a", "1") |> asked()

      for keep <- [0, 1] do
        assert {:ok, next, %{range: 1..3}} = Context.compact(context, :drop, keep_last: keep)
        assert numbers(sound(next)) == [4]
      end

      for range <- [4..4, 3..4, 1..5, 5..5, 6..9, 0..1, -2..1, 1..@big, @big..@big] do
        assert {:error, %Error{reason: {:not_compactable, ^range, 1..3}} = error} =
                 Context.compact(context, :drop, range: range)

        assert is_binary(Exception.message(error))

        if range.first > 0,
          do:
            assert(
              {:not_compactable, ^range, 1..3} =
                reason_of(fn -> Context.mark_as_summarized(context, range, "s") end)
            )
      end
    end

    test "of nothing is nothing" do
      never = fn _ -> flunk("asked for a summary of nothing") end

      for context <- [
            Context.new("Hi"),
            asked(Context.new("Hi")),
            turns(1),
            turns(5) |> Context.keep_last_iterations(1)
          ] do
        assert {:ok, same, %{range: nil, strategy: :drop, reason: nil}} =
                 Context.compact(context, :drop)

        assert Context.equal?(same, context)

        assert {:ok, same, %{range: nil, strategy: :summarize, reason: nil}} =
                 Context.compact(context, {:summarize, never})

        assert Context.equal?(same, context)
      end
    end

    test "again works on the view" do
      {:ok, once, _} =
        Context.compact(turns(4, @long), {:summarize, fn _ -> "They talked of Elixir." end})

      more =
        Enum.reduce(
          5..6,
          once,
          &(&2
            |> Context.add_user_message("question #{&1}#{@long}")
            |> Context.add_assistant_message("a"))
        )

      me = self()

      {:ok, twice, %{range: 1..5}} =
        Context.compact(
          more,
          {:summarize, fn messages -> send(me, messages) && "They talked more." end}
        )

      assert_received [
        %{content: "[Summary of iterations 1 to 3" <> _, metadata: %{summary: _}} | _
      ]

      assert Context.view(twice).summaries == [1..5]
      refute Enum.any?(texts(twice), &(&1 =~ "of Elixir.\n"))
      assert numbers(sound(twice)) == [6]
    end

    test "takes a summary as a whole, and claims no iterations that were hidden" do
      context = turns(9, @long) |> Context.mark_as_summarized(2..4, "They talked.")

      {:ok, next, %{range: 2..6}} =
        Context.compact(context, {:summarize, fn _ -> "More." end}, range: 4..6)

      assert Context.view(sound(next)).summaries == [2..6]

      hidden = Context.keep_last_iterations(turns(9, @long), 6)
      next = Context.mark_as_summarized(hidden, 3..5, "They talked.") |> sound()
      assert %{summaries: [3..5], hidden: [1..2]} = Context.view(next)
    end

    test "never covers the turn by what was hidden" do
      context =
        turns(5, @long)
        |> Context.keep_iteration_range(1, 3)
        |> Context.mark_as_summarized(2..3, "s")
        |> sound()

      assert %{summaries: [2..3], hidden: [4..5]} = Context.view(context)
    end

    test "comes back by expanding, and a fork from before has all" do
      context = turns(6, @long)
      compacted = Context.mark_as_summarized(context, 1..4, "s")

      for range <- [:all, 2, 4, 1..1, 4..9, 1..@big] do
        assert numbers(Context.expand(compacted, range) |> sound()) == [1, 2, 3, 4, 5, 6]
      end

      assert numbers(Context.expand(compacted, 5..9)) == [5, 6]
      assert numbers(context) == [1, 2, 3, 4, 5, 6]
      assert Context.to_messages(compacted, view: :log) == Context.to_messages(context)
    end

    test "takes strategies and ranges only" do
      for strategy <- [
            nil,
            :summarize,
            {:summarize, nil},
            {:summarize, fn -> "" end},
            {:drop, 1},
            "drop"
          ],
          do: assert_caller_bug(fn -> Context.compact(turns(2), strategy) end)

      for opts <- [
            [range: 1],
            [range: {1, 2}],
            [range: 1..5//2],
            [keep_last: -1],
            [keep_first: nil],
            [at: nil, x: 1]
          ],
          do: assert_caller_bug(fn -> Context.compact(turns(2), :drop, opts) end)

      for {range, text} <- [
            {0, "s"},
            {1, ""},
            {1, " "},
            {1, <<255>>},
            {1, nil},
            {:all, "s"},
            {0..1, "s"}
          ],
          do: assert_caller_bug(fn -> Context.mark_as_summarized(turns(3), range, text) end)
    end
  end

  describe "expand" do
    test "brings back those of the range" do
      hidden = Context.keep_last_iterations(turns(9), 1)
      assert numbers(Context.expand(hidden, 3..4) |> sound()) == [3, 4, 9]
      assert numbers(Context.expand(hidden, 8) |> sound()) == [8, 9]
      assert Context.view(Context.expand(hidden, 3..4)).hidden == [1..2, 5..8]
      assert Context.view(Context.expand(hidden, @big..@big)).hidden == [1..8]
    end

    test "of nothing changes nothing" do
      context = turns(3)
      assert Context.equal?(Context.expand(context, :all, at: context[:updated_at]), context)

      for wrong <- [0, -1, nil, "1", 0..2, 3..1//1],
          do: assert_caller_bug(fn -> Context.expand(context, wrong) end)
    end
  end

  describe "clear_tool_results" do
    defp read(count),
      do: Enum.reduce(1..count, Context.new("Hi", id: "c"), &tool(&2, "id#{&1}", "result #{&1}"))

    test "blanks all but the last" do
      context = Context.clear_tool_results(read(5)) |> sound()
      gone = "[Old tool result cleared]"
      assert results(context) == [gone, gone, "result 3", "result 4", "result 5"]

      assert results(Context.clear_tool_results(read(3), keep: 0, placeholder: "-")) == [
               "-",
               "-",
               "-"
             ]

      assert results(Context.clear_tool_results(read(3), keep: 9)) == [
               "result 1",
               "result 2",
               "result 3"
             ]

      assert results(Context.clear_tool_results(read(3), keep: @big)) == [
               "result 1",
               "result 2",
               "result 3"
             ]

      assert Context.clear_tool_results(Context.new("Hi"), keep: 0) |> Context.view() ==
               Context.view(Context.new("Hi"))
    end

    test "leaves the calls" do
      context = read(3)

      calls = fn context ->
        for %{tool_calls: calls} <- Context.to_messages(context), do: calls
      end

      assert calls.(Context.clear_tool_results(context, keep: 0)) == calls.(context)
    end

    test "leaves the results that come later, until it is called again" do
      context =
        read(2) |> Context.clear_tool_results(keep: 0, placeholder: "-") |> tool("new", "later")

      assert results(context) == ["-", "-", "later"]

      assert results(Context.clear_tool_results(context, keep: 0, placeholder: "+")) == [
               "+",
               "+",
               "+"
             ]

      assert results(Context.clear_tool_results(context, keep: 2)) == [
               "[Old tool result cleared]",
               "result 2",
               "later"
             ]
    end

    test "leaves a result that comes later to a call in front of others" do
      context =
        Context.new("Hi")
        |> asked(["a", "b", "c"])
        |> Context.add_tool_results([{"b", {:ok, "B"}}])
        |> Context.clear_tool_results(keep: 0, placeholder: "-")
        |> Context.add_tool_results([{"a", {:ok, "A"}}, {"c", {:ok, "C"}}])
        |> sound()

      assert "A" in results(context) and "C" in results(context)

      assert results(Context.clear_tool_results(context, keep: 0, placeholder: "+")) == [
               "+",
               "+",
               "+"
             ]
    end

    test "keeps the last that are in the view" do
      context =
        tool(Context.new("Hi"), "a", "1")
        |> Context.add_assistant_message("ok")
        |> Context.add_user_message("More")
        |> tool("b", "2")
        |> tool("c", "3")

      {:ok, hidden, %{range: 1..2}} = Context.compact(context, :drop)

      assert hidden |> Context.clear_tool_results(keep: 2) |> Context.expand(:all) |> results() ==
               ["1", "2", "3"]

      cleared = Context.clear_tool_results(hidden, keep: 1, placeholder: "-")
      assert results(cleared) == ["-", "3"]
      assert cleared |> Context.expand(:all) |> results() == ["-", "-", "3"]
    end

    test "of errors and parts blanks them, too" do
      context =
        Context.new("Hi")
        |> asked(["a", "b"])
        |> Context.add_tool_results([
          {"a", {:error, "bad"}},
          {"b", {:ok, [%{type: :image, media_type: "image/png", data: "AAAA"}]}}
        ])

      cleared = Context.clear_tool_results(context, keep: 0, placeholder: "-") |> sound()

      assert [%{content: "-", is_error: true}, %{content: "-", is_error: false}] =
               List.last(Context.to_messages(cleared)).content

      for provider <- @providers, do: refute(body(cleared, provider) =~ "AAAA")
    end

    test "takes a text that says something" do
      for wrong <- [
            [keep: -1],
            [keep: nil],
            [placeholder: ""],
            [placeholder: " "],
            [placeholder: <<255>>],
            [placeholder: nil],
            [x: 1]
          ],
          do: assert_caller_bug(fn -> Context.clear_tool_results(read(1), wrong) end)
    end
  end

  describe "max_result_bytes" do
    test "keeps head and tail on character boundaries, within the limit" do
      check_all("shortened", [runs: 300, max_size: 30], fn size ->
        limit = one_of([100, 101, 128, 150, 999, 5000])

        piece = fn ->
          one_of(["a", "\n", "é", "日", "👩‍👩‍👧", "\u0301", "0", <<255>>, <<0xE2, 0x82>>, "\0"])
        end

        bytes = many(between(0, size * 20), piece) |> IO.iodata_to_binary()
        context = Context.new("Hi") |> tool("a", bytes)
        [before] = results(context)
        [shown] = context |> Context.put_max_result_bytes(limit) |> results()
        assert_shortened(before, shown, limit)
      end)
    end

    test "of parts is for their texts together" do
      check_all("shortened parts", [runs: 200, max_size: 30], fn size ->
        limit = one_of([100, 150, 999])

        text = fn ->
          %{
            type: :text,
            text: String.duplicate(one_of(["x", "日", <<255>>]), between(0, size * 10))
          }
        end

        image = %{type: :image, media_type: "image/png", data: "AAAA"}
        parts = many(between(1, size), fn -> one_of([text.(), image]) end)
        context = Context.new("Hi") |> tool("a", parts)
        [before] = results(context)
        [shown] = context |> Context.put_max_result_bytes(limit) |> results()
        if is_list(before), do: assert_shortened(before, shown, limit)

        for provider <- @providers,
            do:
              assert(
                [] ==
                  RequestChecker.validate_request(
                    Context.request!(Context.put_max_result_bytes(context, limit), provider),
                    provider
                  )
              )
      end)
    end

    test "holds for errors, values and what masks make longer" do
      for result <- [
            {:error, String.duplicate("a", 500)},
            {:error, {:bad, String.duplicate("a", 500)}},
            {:ok, Enum.to_list(1..500)},
            {:ok, %{"a" => String.duplicate("a", 90)}},
            {:ok, String.duplicate("a", 90)}
          ] do
        context =
          Context.new("Hi")
          |> asked(["a"])
          |> Context.add_tool_results([{"a", result}])
          |> Context.put_max_result_bytes(100)

        assert [text] = results(context)
        assert byte_size(text) <= 100
        assert [text] = context |> Context.put_masks([{"a", "[masked]"}]) |> results()
        assert byte_size(text) <= 100 and String.valid?(text)
      end
    end

    test "leaves the log, and what is short" do
      long = String.duplicate("x", 5_000)

      context =
        Context.new("Hi", max_result_bytes: 100)
        |> tool("a", long)
        |> tool("b", "short")
        |> sound()

      assert [_, "short"] = results(context)
      assert [%{result: {:ok, ^long}}] = Context.get_iteration(context, 1).tool_calls

      assert [_, _, %{content: [%{content: ^long}]} | _] =
               Context.to_messages(context, view: :log)

      assert [^long, "short"] = context |> Context.put_max_result_bytes(nil) |> results()
    end

    test "may be of one request" do
      context = Context.new("Hi") |> tool("a", String.duplicate("x", 5_000))

      for provider <- @providers do
        assert body(context, provider, max_result_bytes: 200) ==
                 body(Context.put_max_result_bytes(context, 200), provider)

        assert body(context, provider) =~ String.duplicate("x", 5_000)
        # The smaller one holds.
        strict = Context.put_max_result_bytes(context, 100)

        assert byte_size(body(strict, provider, max_result_bytes: 200)) <=
                 byte_size(body(context, provider, max_result_bytes: 200))

        assert [%{change: :shortened_result, from: "a", iteration: 1} | _] =
                 Context.request_report(context, provider, max_result_bytes: 200)
                 |> Enum.filter(&(&1.change == :shortened_result))
      end
    end

    test "is at least 100" do
      for wrong <- [99, 0, -1, 1.5, "100", :all] do
        assert_caller_bug(fn -> Context.put_max_result_bytes(turns(1), wrong) end)
        assert_caller_bug(fn -> Context.new("Hi", max_result_bytes: wrong) end)

        assert_caller_bug(fn ->
          Context.request(turns(1), :anthropic, max_result_bytes: wrong)
        end)
      end

      assert [_] = Context.new("Hi", max_result_bytes: @big) |> tool("a", "x") |> results()
    end
  end

  describe "masks" do
    @secret "4111111111111111"
    @masks [{"4\\d{15}", "[card]"}]

    # Everywhere but what the application chose: names of tools, ids, further keys, metadata.
    @places [
      text: {:user, "my card #{@secret}"},
      parts: {:user, [%{type: :text, text: @secret}]},
      file_name:
        {:user,
         [%{type: :file, media_type: "application/pdf", data: "AAAA", filename: "#{@secret}.pdf"}]},
      url: {:user, [%{type: :image, url: "https://example.com/#{@secret}.png"}]},
      text_file:
        {:user,
         [
           %{
             type: :file,
             media_type: "text/plain",
             data: Base.encode64("card " <> @secret),
             filename: "a.txt"
           }
         ]},
      block:
        {:user,
         [
           %{
             type: :provider_block,
             provider: :anthropic,
             data: %{"type" => "x", @secret => [4_111_111_111_111_111, @secret]}
           }
         ]},
      answer: {:assistant, @secret, []},
      thinking:
        {:assistant,
         [
           %{
             type: :thinking,
             text: @secret,
             provider_metadata: %{provider: :anthropic, signature: "s"}
           },
           %{type: :text, text: "a"}
         ], []},
      arguments: {:assistant, nil, [%{card: @secret}]},
      argument_keys: {:assistant, nil, [%{@secret => 1}]},
      argument_numbers: {:assistant, nil, [%{card: 4_111_111_111_111_111}]},
      argument_atoms: {:assistant, nil, [%{card: :"4111111111111111"}]},
      argument_floats: {:assistant, nil, [%{card: 4_111_111_111_111_111.0}]},
      argument_depth: {:assistant, nil, [%{a: [%{b: {1, [@secret]}}]}]},
      json: {:assistant, nil, [~s({"card": 4111111111111111, "b": "#{@secret}"})]},
      broken_json: {:assistant, nil, [~s({"card": 4111111111111111)]},
      result: {:result, {:ok, @secret}},
      result_value: {:result, {:ok, %{card: 4_111_111_111_111_111}}},
      result_keys: {:result, {:ok, %{@secret => 1}}},
      result_parts: {:result, {:ok, [%{type: :text, text: @secret}]}},
      result_file:
        {:result,
         {:ok,
          [
            %{
              type: :file,
              media_type: "text/csv",
              data: Base.encode64(@secret),
              filename: "#{@secret}.csv"
            }
          ]}},
      error: {:result, {:error, {:bad, @secret}}},
      charlist: {:result, {:ok, [card: ~c"4111111111111111"]}}
    ]

    defp put({:user, input}), do: Context.new(input, system_prompt: "s")

    defp put({:assistant, content, arguments}) do
      calls =
        for {arguments, n} <- Enum.with_index(arguments),
            do: %{id: "a#{n}", name: "t", arguments: arguments}

      Context.new("Hi") |> Context.add_assistant_message(content, calls)
    end

    defp put({:result, result}),
      do: Context.new("Hi") |> asked(["a"]) |> Context.add_tool_results([{"a", result}])

    defp everything(context) do
      bodies =
        for provider <- @providers,
            thinking <- [:drop, :text],
            do: body(context, provider, pending: :interrupt, thinking: thinking)

      reports =
        for provider <- @providers,
            do: Context.request_report(context, provider, pending: :interrupt, thinking: :text)

      prompts =
        for mode <- [:full, :continuation, :message], do: Context.to_prompt(context, mode: mode)

      inspect({Context.to_messages(context), bodies, reports, prompts},
        limit: :infinity,
        printable_limit: :infinity,
        charlists: :as_lists
      )
    end

    for {name, _} <- @places do
      test "leave nothing of what they match in #{name}" do
        context = @places |> Keyword.fetch!(unquote(name)) |> put()
        masked = context |> Context.put_masks(@masks) |> sound()
        refute everything(masked) =~ @secret
        # Other views of it do not lead back to it.
        refute masked |> Context.put_max_result_bytes(100) |> everything() =~ @secret
        # The log has it, and it comes back.
        assert Context.iterations(masked) == Context.iterations(context)

        assert masked |> Context.put_masks([]) |> Context.to_messages() ==
                 Context.to_messages(context)
      end
    end

    test "hold for the system prompt, blocks and summaries" do
      context =
        turns(6, @long)
        |> Context.put_system_prompt("system #{@secret}")
        |> Context.put_prompt_block(:a, "block #{@secret}")
        |> Context.mark_as_summarized(1..2, "summary #{@secret}")
        |> tool("a", "r")
        |> Context.clear_tool_results(keep: 0, placeholder: "gone")
        |> Context.put_masks(@masks)
        |> sound()

      refute everything(context) =~ @secret
      assert everything(context) =~ "summary [card]"
    end

    test "hold for what is imported" do
      for provider <- @providers do
        context =
          Context.new("u #{@secret}", system_prompt: "s #{@secret}")
          |> Context.add_assistant_message("a #{@secret}", [
            %{
              id: "abcDEF123",
              name: "t",
              arguments: %{"card" => @secret, "n" => 4_111_111_111_111_111}
            }
          ])
          |> Context.add_tool_results([{"abcDEF123", {:ok, "r #{@secret}"}}])
          |> Context.add_assistant_message("b #{@secret}")
          |> Context.add_user_message("c #{@secret}")

        imported = context |> Context.request!(provider) |> Context.from_request!(provider)
        assert everything(imported) =~ @secret
        refute imported |> Context.put_masks(@masks) |> sound() |> everything() =~ @secret

        assert imported |> Context.put_masks(@masks) |> Context.put_masks([]) |> body(provider) ==
                 body(imported, provider)
      end
    end

    test "hold for what is added later, and for forks and storage" do
      context =
        Context.new("Hi")
        |> Context.put_masks(@masks)
        |> Context.add_assistant_message("is it #{@secret}?")

      refute everything(context) =~ @secret
      refute Context.load!(Context.dump(context)) |> everything() =~ @secret

      refute Context.rewind(Context.add_user_message(context, "x"), to: 1) |> everything() =~
               @secret
    end

    test "come one after the other, and their replacements are taken as they are" do
      context = Context.new("one two")

      assert texts(Context.put_masks(context, [{"one", "two"}, {"two", "$0 \\1"}])) == [
               "$0 \\1 $0 \\1"
             ]

      assert texts(Context.put_masks(context, [{"(?i)ONE", ""}])) == [" two"]
      assert texts(Context.put_masks(context, [{~r/t(w)o/, "$1"}])) == ["one $1"]
    end

    test "of thinking lose its signature" do
      thinking = %{
        type: :thinking,
        text: "card #{@secret}",
        provider_metadata: %{provider: :anthropic, signature: "sig"}
      }

      context =
        Context.new("Hi")
        |> Context.add_assistant_message([thinking, %{type: :text, text: "a"}])
        |> Context.add_user_message("b")

      assert body(context, :anthropic) =~ "sig"
      refute context |> Context.put_masks(@masks) |> body(:anthropic) =~ "sig"
      assert context |> Context.put_masks([{"nothing like it", ""}]) |> body(:anthropic) =~ "sig"
    end

    test "that match everything or nothing make requests that are valid" do
      context =
        turns(2, @long)
        |> Context.put_system_prompt("s")
        |> Context.add_user_message("x")
        |> Context.add_assistant_message("y", [
          %{id: "a", name: "t", arguments: %{"a" => 1, "b" => [true, nil]}}
        ])
        |> Context.add_tool_results([{"a", {:ok, %{x: 1}}}])

      for masks <- [
            [{"", "x"}],
            [{"", ""}],
            [{".*", ""}],
            [{"(?s).*", ""}],
            [{"(?s).+", "[x]"}],
            [{"[^z]", ""}],
            [{"\\b", "-"}],
            [{"$", "\0"}],
            [{"\"", ""}],
            [{"[{}]", ""}]
          ] do
        masked = context |> Context.put_masks(masks) |> sound()
        assert is_binary(Context.to_prompt(masked))
        assert Context.iterations(masked) == Context.iterations(context)
      end
    end

    # More than linear work, or waiting, takes longer than this.
    @tag timeout: 60_000
    test "take linear time, whatever the pattern" do
      text = String.duplicate("a", 100_000) <> "!"
      context = Context.new(text)

      for pattern <- ["(a+)+$", "(a|a)*b", "(a|aa)+$", "(.*)*x", "^(([a-z])+.)+[A-Z]([a-z])+$"] do
        assert [_] = context |> Context.put_masks([{pattern, ""}]) |> Context.to_messages()
      end
    end

    test "that are no patterns are refused, with the pattern" do
      for pattern <- [
            "(",
            "[",
            "*",
            "a{2,1}",
            "\\1",
            "(?=a)",
            "(?<!a)b",
            "(?P<n>a)(?P<n>b)",
            "\\p{Nothing}"
          ] do
        assert {:invalid_pattern, ^pattern, problem} =
                 reason_of(fn -> Context.put_masks(turns(1), [{"a", ""}, {pattern, ""}]) end)

        assert is_binary(problem)
      end

      # Too large to compile.
      huge = "(?:(?:(?:a{100}){100}){100}){100}"

      assert {:invalid_pattern, ^huge, _} =
               reason_of(fn -> Context.put_masks(turns(1), [{huge, ""}]) end)

      deep = String.duplicate("(", 100_000) <> String.duplicate(")", 100_000)

      assert {:invalid_pattern, ^deep, _} =
               reason_of(fn -> Context.put_masks(turns(1), [{deep, ""}]) end)
    end

    test "are texts" do
      for wrong <- [
            [{~r/a/i, ""}],
            [{<<255>>, ""}],
            [{"a", <<255>>}],
            [{:a, ""}],
            [{"a", nil}],
            ["a"],
            nil,
            "a",
            [a: 1]
          ],
          do: assert_caller_bug(fn -> Context.put_masks(turns(1), wrong) end)
    end

    test "a hundred of them are well, and more are refused" do
      masks = for n <- 1..100, do: {"secret#{n}\\b", "[#{n}]"}
      context = Context.new("secret7 and secret99") |> Context.put_masks(masks) |> sound()
      assert texts(context) == ["[7] and [99]"]

      assert {:invalid_pattern, "one more", "there are 100 patterns already"} =
               reason_of(fn -> Context.put_masks(context, masks ++ [{"one more", ""}]) end)
    end
  end

  describe "the system prompt" do
    test "is put, taken away and told" do
      context = turns(2)
      assert Context.system_prompt(context) == "Be brief."
      assert hd(texts(Context.put_system_prompt(context, "Be kind."))) == "Be kind."
      none = Context.put_system_prompt(context, nil) |> sound()
      assert {Context.system_prompt(none), hd(texts(none))} == {nil, "question 1"}
      parts = [%{type: :text, text: "a"}]
      assert context |> Context.put_system_prompt(parts) |> Context.system_prompt() == parts
      assert Context.count_messages(none) == Context.count_messages(context) - 1
    end

    test "is text" do
      for wrong <- [7, :a, %{}],
          do: assert_caller_bug(fn -> Context.put_system_prompt(turns(1), wrong) end)

      assert {:invalid_part, 0, :type} =
               reason_of(fn ->
                 Context.put_system_prompt(turns(1), [%{type: :image, url: "https://e.com/a.png"}])
               end)
    end

    test "has blocks behind it, in the order of their names" do
      context =
        turns(1)
        |> Context.put_prompt_block(:b, "B")
        |> Context.put_prompt_block("a", "A")
        |> sound()

      assert hd(texts(context)) == "Be brief.\n\nB\n\nA"
      assert Context.system_prompt(context) == "Be brief."
      assert hd(texts(Context.put_prompt_block(context, "b", "B2"))) == "Be brief.\n\nB2\n\nA"
      assert hd(texts(Context.put_prompt_block(context, :b, nil))) == "Be brief.\n\nA"
      again = context |> Context.put_prompt_block(:b, nil) |> Context.put_prompt_block(:b, "B")
      assert hd(texts(again)) == "Be brief.\n\nA\n\nB"
      assert Context.put_prompt_block(turns(1), :none, nil) |> texts() == texts(turns(1))
      for provider <- @providers, do: assert(body(context, provider) =~ "Be brief.\\n\\nB\\n\\nA")
    end

    test "may be blocks alone, or parts with blocks" do
      context = Context.new("Hi") |> Context.put_prompt_block(:a, "A") |> sound()

      assert Context.to_messages(context) == [
               %{role: :system, content: "A"},
               %{role: :user, content: "Hi"}
             ]

      assert {Context.count_messages(context), Context.system_prompt(context)} == {2, nil}
      assert Context.to_messages(context, view: :log) == [%{role: :user, content: "Hi"}]

      context =
        Context.new("Hi", system_prompt: [%{type: :text, text: "P"}])
        |> Context.put_prompt_block(:a, "A")
        |> sound()

      for provider <- @providers, do: assert(body(context, provider) =~ "A")
    end

    test "blocks are texts" do
      for {name, text} <- [{:a, 7}, {1, "a"}, {:a, <<255>>}, {<<255>>, "a"}],
          do: assert_caller_bug(fn -> Context.put_prompt_block(turns(1), name, text) end)
    end
  end

  describe "to_prompt" do
    test "has the view" do
      context = turns(3) |> Context.keep_last_iterations(1)

      assert Context.to_prompt(context) ==
               "[System]\nBe brief.\n\n[User]\nquestion 3\n\n[Assistant]\nanswer 3"

      summarised = turns(3, @long) |> Context.mark_as_summarized(1..2, "They talked.")

      assert Context.to_prompt(summarised) =~
               "[User]\n[Summary of iterations 1 to 2 of this conversation]\nThey talked."
    end

    test "may go on where the model's side holds the session" do
      context = turns(2) |> Context.add_user_message("And?")

      assert Context.to_prompt(context, mode: :continuation) ==
               "[System]\nBe brief.\n\n[User]\nAnd?"

      assert Context.to_prompt(context, mode: :message) == "And?"

      context = Context.new("Hi") |> tool("a", "It is 7.", "get")
      assert Context.to_prompt(context) =~ "[Tool get]\nIt is 7."
      assert Context.to_prompt(context, mode: :continuation) == "[Tool get]\nIt is 7."
      assert_caller_bug(fn -> Context.to_prompt(context, mode: :all) end)
      assert_caller_bug(fn -> Context.to_prompt(context, mode: nil) end)
    end
  end

  describe "validate_for_request" do
    test "tells what is missing" do
      assert Context.validate_for_request(Context.new("Hi")) == :ok
      assert Context.validate_for_request(Context.create!(%{})) == {:error, [:no_messages]}
      assert Context.validate_for_request(turns(2)) == {:error, [:last_message_from_assistant]}

      assert Context.validate_for_request(asked(Context.new("Hi"), ["a", "b"])) ==
               {:error, [{:pending_tool_calls, ["a", "b"]}]}

      assert Context.validate_for_request(tool(Context.new("Hi"), "a", "r")) == :ok
    end

    test "goes by the view" do
      assert turns(2) |> Context.keep_iteration_range(7, 9) |> Context.validate_for_request() ==
               {:error, [:no_messages]}

      context =
        turns(2, @long) |> Context.add_user_message("x") |> Context.keep_iteration_range(1, 2)

      assert Context.validate_for_request(context) == {:error, [:last_message_from_assistant]}
    end
  end

  describe "request_report" do
    test "names what the view changed" do
      context =
        turns(9, @long)
        |> Context.compact(:drop, range: 1..2)
        |> elem(1)
        |> Context.mark_as_summarized(3..4, "They talked.")
        |> Context.add_user_message("x")
        |> tool("a", "first")
        |> Context.clear_tool_results(keep: 0)
        |> tool("b", String.duplicate("y", 500))
        |> Context.put_max_result_bytes(100)
        |> Context.put_masks([{"question 9", "[q]"}])

      for provider <- @providers do
        report = Context.request_report(context, provider)
        assert %{from: "1..2", to: nil} = Enum.find(report, &(&1.change == :hidden_iterations))
        assert %{from: "3..4"} = Enum.find(report, &(&1.change == :summarized_iterations))
        assert %{from: "a", iteration: 10} = Enum.find(report, &(&1.change == :cleared_result))
        assert %{from: "b", iteration: 11} = Enum.find(report, &(&1.change == :shortened_result))
        assert %{iteration: 9, position: 0} = Enum.find(report, &(&1.change == :masked_text))
      end
    end

    test "is silent where the view is the log" do
      kinds = [
        :hidden_iterations,
        :summarized_iterations,
        :cleared_result,
        :shortened_result,
        :masked_text
      ]

      for provider <- @providers,
          do: refute(Enum.any?(Context.request_report(turns(3), provider), &(&1.change in kinds)))
    end
  end

  describe "requests" do
    test "with an unchanged view keep their bytes in front of what is added" do
      views = [
        &Context.keep_last_iterations(&1, 3),
        &Context.mark_as_summarized(&1, 1..3, "s"),
        &Context.clear_tool_results(&1, keep: 0),
        &Context.put_max_result_bytes(&1, 100),
        &Context.put_masks(&1, [{"question", "q"}]),
        &Context.put_prompt_block(&1, :a, "b")
      ]

      for view <- views, provider <- @providers do
        context =
          turns(5, @long)
          |> Context.add_user_message("more")
          |> tool("a", String.duplicate("z", 300))
          |> view.()

        before = body(context, provider)

        later =
          context
          |> Context.add_assistant_message("yes")
          |> Context.add_user_message("next")
          |> body(provider)

        # All but the end of the last element.
        assert :binary.longest_common_prefix([before, later]) >= byte_size(before) - 40
        assert body(context, provider) == before
      end
    end

    test "with :since go by absolute numbers, also behind what is hidden" do
      context = turns(6, @long) |> Context.mark_as_summarized(1..3, "They talked.")

      for provider <- @providers do
        assert body(context, provider, since: 5) == body(turns(6, @long), provider, since: 5)
        assert body(context, provider, since: 1) == body(context, provider)

        assert RequestChecker.validate_request(
                 Context.request!(context, provider, since: 2),
                 provider
               ) == []
      end
    end
  end

  describe "a view of what was imported" do
    test "is whole where a gap is followed by a message of the same role" do
      context =
        Context.new("Hi")
        |> tool("a", "1")
        |> tool("b", "2")
        |> Context.add_assistant_message("three")
        |> Context.add_user_message("more")
        |> Context.add_assistant_message("four")

      for provider <- @providers do
        imported = context |> Context.request!(provider) |> Context.from_request!(provider)

        for number <- 1..imported.current_iteration,
            view <- [
              Context.keep_iteration_range(imported, 1, number),
              Context.keep_last_iterations(imported, number),
              elem(Context.compact(imported, :drop, keep_last: 0), 1)
            ] do
          sound(view)
          view |> Context.rewind(to: number) |> sound()
          view |> Context.add_user_message("next") |> sound()
        end
      end
    end

    test "keeps calls and results together, whatever their ids are" do
      context =
        Context.new("Hi")
        |> asked(["a/b", "a_b", "a b"])
        |> Context.add_tool_results(
          for id <- ["a/b", "a_b", "a b"], do: {id, {:ok, String.duplicate("z", 300)}}
        )

      for provider <- @providers do
        imported = context |> Context.request!(provider) |> Context.from_request!(provider)
        imported |> Context.clear_tool_results(keep: 0) |> sound()
        imported |> Context.clear_tool_results(keep: 1) |> sound()
        imported |> Context.put_max_result_bytes(100) |> sound()
        imported |> Context.put_masks([{"z+", "y"}]) |> sound()
      end
    end
  end

  test "a mask that meets a provider's own block leaves it out, and a file without text" do
    for provider <- @providers -- [:ollama],
        masks <- [[{".*", ""}], [{"", "x"}], [{"[0-9]+", "#"}], [{"text", "x"}]] do
      block = %{
        type: :provider_block,
        provider: provider,
        data: %{"type" => "text", "text" => "card 1", "id" => "id_1"}
      }

      file = %{
        type: :file,
        media_type: "text/plain",
        data: Base.encode64("text 1"),
        filename: "a.txt"
      }

      image = %{type: :image, url: "data:image/png;base64,AAA1"}

      context =
        Context.new([%{type: :text, text: "Look"}, block, file, image])
        |> Context.put_masks(masks)

      for to <- @providers do
        body = Context.request!(context, to)
        assert {to, masks, []} == {to, masks, RequestChecker.validate_request(body, to)}
      end
    end
  end

  describe "stored views from anywhere" do
    defp load(view), do: turns(5) |> Context.dump() |> Map.put("view", view) |> Context.load()

    defp accepted?(view) do
      case load(view) do
        {:ok, context} ->
          sound(context)
          Context.expand(context, :all) |> sound()
          Context.rewind(context, to: 2) |> sound()
          Context.add_user_message(context, "next") |> sound()
          true

        {:error, %Error{reason: {:invalid, ["view" | _], _}} = error} ->
          assert is_binary(Exception.message(error))
          false
      end
    end

    @max 0xFFFFFFFFFFFFFFFF
    @summary %{
      "role" => "user",
      "content" => "[Summary of iterations 1 to 2 of this conversation]\ns"
    }

    test "with covers that overlap, are turned around or lie outside are refused" do
      cover = fn first, last -> %{"first" => first, "last" => last} end

      for covers <- [
            [cover.(1, 3), cover.(2, 4)],
            [cover.(1, 3), cover.(3, 4)],
            [cover.(1, 3), cover.(1, 3)],
            [cover.(3, 4), cover.(1, 2)],
            [cover.(3, 2)],
            [cover.(0, 2)],
            [cover.(-1, 2)],
            [cover.(1, 6)],
            [cover.(1, @max)],
            [cover.(@max, @max)],
            [cover.(6, 7)],
            [cover.(1, @big)],
            [cover.(1.0, 2)],
            [cover.("1", 2)],
            [cover.(nil, 2)],
            [%{"first" => 1}],
            [%{}],
            [nil],
            [[1, 2]],
            %{},
            "1..2",
            7
          ] do
        refute accepted?(%{"covers" => covers}), inspect(covers)
      end

      assert accepted?(%{"covers" => [cover.(1, 2), cover.(3, 4)]})
      assert accepted?(%{"covers" => [Map.put(cover.(1, 2), "summary", @summary)]})
    end

    test "with covers over calls that wait are refused" do
      context = turns(3) |> asked()

      document =
        context
        |> Context.dump()
        |> Map.put("view", %{"covers" => [%{"first" => 2, "last" => 3}]})

      assert {:error, %Error{reason: {:invalid, ["view", "covers" | _], _}}} =
               Context.load(document)
    end

    test "with summaries that are none are refused, or are shown as they are" do
      for summary <- [
            nil,
            "text",
            7,
            [],
            %{},
            %{"role" => "user"},
            %{"role" => "robot", "content" => "x"},
            %{"role" => "assistant", "content" => "x"},
            %{"role" => "system", "content" => "x"},
            %{"role" => "user", "content" => nil},
            %{"role" => "user", "content" => ""},
            %{"role" => "user", "content" => "no first line"},
            %{"role" => "user", "content" => [%{"type" => "text", "text" => "x"}]},
            %{
              "role" => "user",
              "content" => "x",
              "tool_calls" => [%{"id" => "a", "name" => "b"}]
            },
            @summary
          ] do
        accepted?(%{"covers" => [%{"first" => 1, "last" => 2, "summary" => summary}]})
      end

      refute accepted?(%{
               "covers" => [
                 %{
                   "first" => 1,
                   "last" => 2,
                   "summary" => %{"role" => "assistant", "content" => "x"}
                 }
               ]
             })

      refute accepted?(%{
               "covers" => [
                 %{
                   "first" => 1,
                   "last" => 2,
                   "summary" => %{
                     "role" => "user",
                     "content" => "x",
                     "tool_calls" => [%{"id" => "a", "name" => "b", "status" => "pending"}]
                   }
                 }
               ]
             })
    end

    test "with other fields of any kind are refused or sound" do
      junk = [
        nil,
        true,
        0,
        -1,
        1.5,
        @max,
        @big,
        "",
        "x",
        "(",
        [],
        [nil],
        [[]],
        [%{}],
        %{},
        %{"a" => 1}
      ]

      for value <- junk,
          key <- ["covers", "cleared", "max_result_bytes", "masks", "blocks", "unknown"],
          do: accepted?(%{key => value})

      for value <- junk,
          key <- ["iteration", "calls", "placeholder"],
          do:
            accepted?(%{
              "cleared" =>
                Map.put(%{"iteration" => 2, "calls" => 1, "placeholder" => "-"}, key, value)
            })

      for value <- junk,
          key <- ["pattern", "replacement"],
          do:
            accepted?(%{
              "masks" => [Map.put(%{"pattern" => "a", "replacement" => "b"}, key, value)]
            })

      for value <- junk,
          key <- ["name", "text"],
          do: accepted?(%{"blocks" => [Map.put(%{"name" => "a", "text" => "b"}, key, value)]})

      for view <- [nil, 7, "x", [], true], do: accepted?(view)
      refute accepted?(%{"masks" => [%{"pattern" => "(", "replacement" => ""}]})

      assert accepted?(%{"cleared" => %{"iteration" => @max, "calls" => 9, "placeholder" => "-"}}) in [
               true,
               false
             ]

      assert accepted?(%{"max_result_bytes" => 1}) in [true, false]
    end

    # More than linear work, or waiting, takes longer than this.
    @tag timeout: 60_000
    test "with a million covers take linear time" do
      document = turns(5) |> Context.dump()
      covers = List.duplicate(%{"first" => 1, "last" => 1}, 300_000)

      assert {:error, _} = Context.load(Map.put(document, "view", %{"covers" => covers}))
    end
  end

  # A result is as it was, or has the beginning and the end of it in `most` bytes.
  defp assert_shortened(before, result, nil), do: assert(result == before)

  defp assert_shortened(before, result, most) when is_binary(before) do
    assert byte_size(result) <= max(most, 0)
    assert String.valid?(result)

    if byte_size(before) <= most do
      assert result == before
    else
      assert [head, left_out, tail] =
               Regex.run(~r/\A(.*)\n\[\.\.\. (\d+) bytes left out \.\.\.\]\n(.*)\z/s, result,
                 capture: :all_but_first
               )

      assert String.starts_with?(before, head) and String.ends_with?(before, tail)
      assert byte_size(before) == byte_size(head) + byte_size(tail) + String.to_integer(left_out)
      # A character has four bytes at most.
      assert byte_size(result) > most - 10
    end
  end

  defp assert_shortened(before, result, most) when is_list(before) do
    text = &Enum.filter(&1, fn part -> part.type == :text end)
    bytes = fn parts -> parts |> Enum.map(&byte_size(Map.get(&1, :text, ""))) |> Enum.sum() end
    assert is_list(result)

    if bytes.(before) <= most do
      assert result == before
    else
      assert bytes.(result) <= most

      # What was cut is text; the rest is as it was.
      assert Enum.all?(text.(result), &(&1 in before or String.valid?(&1.text)))
      others = &Enum.reject(&1, fn part -> part.type == :text end)
      assert others.(result) == others.(before)
    end
  end
end
