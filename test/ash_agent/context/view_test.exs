defmodule AshAgent.Context.ViewTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions
  import AshAgent.TestSupport.Generators, only: [check_all: 3, between: 2, one_of: 1, many: 2]

  alias AshAgent.Context
  alias AshAgent.Context.{Error, View}
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
    test "tells what it is made of" do
      context =
        turns(9, @long)
        |> tool("a", "r")
        |> View.hide({:all_but_last, 8})
        |> View.mark_as_summarized(3..4, "s")
        |> View.clear_tool_results(keep: 0, placeholder: "-")
        |> View.put_max_result_bytes(200)
        |> View.put_masks([{~r/a+/, "b"}, {"c", ""}])
        |> View.put_prompt_block(:memory, "m")

      assert %{
               hidden: [1..1],
               summaries: [3..4],
               cleared: %{iteration: 9, calls: 1, placeholder: "-"},
               max_result_bytes: 200,
               masks: [{"a+", "b"}, {"c", ""}],
               blocks: [{"memory", "m"}]
             } = View.view(context)

      assert inspect(context) =~ "messages in view"
    end

    test "does not show in the log" do
      context = turns(5, @long) |> tool("a", "result")
      log = Context.to_messages(context, view: :log)
      iterations = Context.iterations(context)

      for view <- [
            View.hide(context, {:all_but_last, 1}),
            View.mark_as_summarized(context, 1..3, "s"),
            View.clear_tool_results(context, keep: 0),
            View.put_masks(context, [{"[a-z]", ""}]),
            View.put_prompt_block(context, :a, "b"),
            View.put_max_result_bytes(context, 100)
          ] do
        assert Context.to_messages(view, view: :log) == log
        assert Context.iterations(view) == iterations
        assert Enum.to_list(view) == iterations
        assert view[:iterations] == iterations
        assert Context.to_map(view).iterations == iterations
        assert Context.count_iterations(view) == 6
        assert Context.fetch_message(view, {1, 1}) == Context.fetch_message(context, {1, 1})
        assert Context.extract_tool_calls(view) == Context.extract_tool_calls(context)
        assert Context.Calls.tool_call_status(view, "a") == :ok
        assert Context.diff(view, context).last_common == 6
      end
    end

    test "refuses to be asked otherwise" do
      for wrong <- [[view: :all], [view: nil], [log: true]],
          do: assert_caller_bug(fn -> Context.to_messages(turns(1), wrong) end)
    end
  end

  test "each function refuses arguments that it does not take" do
    invalid = <<255>>
    summarize = &View.mark_as_summarized/3
    masks = &View.put_masks/2
    hide = &View.hide/2
    block = &View.put_prompt_block/3
    fit = &View.fit/3
    compact = &View.compact/3

    for {function, arguments} <- [
          {hide, for(last <- [0, -1, nil, 1.0, :all], do: [{:all_but_last, last}])},
          {hide, for(seconds <- [-1, nil, 1.0], do: [{:older_than, seconds}])},
          {hide, for(range <- [0..1, 2..1//-1, -1..1, nil], do: [{:all_but, range}])},
          {hide, [[0], [2..1//-1], [nil], [1.0]]},
          {&View.expand/2, [[0], [-1], [nil], ["1"], [0..2], [3..1//1]]},
          {fit, [[-1, []], [1.5, []], [nil, []]]},
          {fit, for(option <- [step: 0, step: nil, reserve: -1, at: 1, x: 1], do: [1, [option]])},
          {fit, for(option <- [keep_first: -1, keep_last: nil, method: :x], do: [1, [option]])},
          {compact, for(strategy <- [nil, :summarize, {:drop, 1}, "drop"], do: [strategy, []])},
          {compact, [[{:summarize, nil}, []], [{:summarize, fn -> "" end}, []]]},
          {compact, for(range <- [1, {1, 2}, 1..5//2], do: [:drop, [range: range]])},
          {compact, for(opt <- [keep_last: -1, keep_first: nil, x: 1], do: [:drop, [opt]])},
          {summarize, [[0, "s"], [:all, "s"], [0..1, "s"]]},
          {summarize, for(text <- ["", " ", invalid, nil], do: [1, text])},
          {&View.clear_tool_results/2, [[[keep: -1]], [[keep: nil]], [[x: 1]]]},
          {&View.clear_tool_results/2,
           for(text <- ["", " ", invalid, nil], do: [[placeholder: text]])},
          {&View.put_max_result_bytes/2, for(wrong <- [99, 0, 1.5, "100", :all], do: [wrong])},
          {&Context.request/3, [[:anthropic, [max_result_bytes: 99]]]},
          {masks,
           [[nil], ["a"], [["a"]], [[a: 1]], [[{~r/a/i, ""}]], [[{:a, ""}]], [[{"a", nil}]]]},
          {masks, [[[{invalid, ""}]], [[{"a", invalid}]]]},
          {&Context.put_system_prompt/2, [[7], [:a], [%{}]]},
          {block, [[:a, 7], [1, "a"], [:a, invalid], [invalid, "a"]]}
        ],
        wrong <- arguments do
      assert {function, wrong, assert_caller_bug(fn -> apply(function, [turns(3) | wrong]) end)}
    end
  end

  test "what is hidden stays hidden when the conversation goes on, until it is expanded" do
    # Iteration n began at second n.
    for {what, left} <- [
          {{:all_but_last, 2}, [4, 5]},
          {{:all_but, 2..4}, [2, 3, 4]},
          {2..3, [1, 4, 5]},
          {5, [1, 2, 3, 4]},
          {6..9, [1, 2, 3, 4, 5]},
          {{:older_than, 0}, [5]},
          {{:older_than, 1}, [4, 5]},
          {{:older_than, @big}, [1, 2, 3, 4, 5]}
        ] do
      context = View.hide(turns(5), what, at(5)) |> sound()
      assert {what, numbers(context)} == {what, left}
      next = Context.add_user_message(context, "question 6") |> sound()
      assert {what, next.current_iteration, numbers(next)} == {what, 6, left ++ [6]}

      assert {what, numbers(View.expand(context, 3..6))} ==
               {what, Enum.uniq(Enum.sort(left ++ [3, 4, 5]))}
    end

    # An age counts from now, and at the ends of the calendar as it says.
    hide = &(turns(3) |> View.hide({:older_than, 60}, &1) |> numbers())

    assert {hide.([]), numbers(View.hide(Context.new("question 1"), {:older_than, 60}))} ==
             {[3], [1]}

    assert hide.(at: ~U[0000-01-01 00:00:00Z]) == [1, 2, 3]
    assert hide.(at: ~U[9999-12-31 23:59:59Z]) == [3]
  end

  test "fit keeps the whole turn, the system prompt and calls that wait" do
    context =
      turns(5)
      |> Context.add_user_message("question 6")
      |> tool("a", "1")
      |> tool("b", "2")
      |> asked()

    assert {:error, %Error{reason: {:cannot_fit, least}}} = View.fit(context, 0)
    assert {:ok, next, 1..5} = View.fit(context, least)
    assert ["Be brief.", "question 6"] = texts(next)
    assert results(next) == ["1", "2"]
    assert [%{id: "p"}] = Context.pending_tool_calls(next)
    sound(next)
  end

  describe "compact" do
    test "drops a range" do
      {:ok, next, info} = View.compact(turns(6), :drop, range: 2..3)
      assert info == %{range: 2..3, strategy: :drop, reason: nil, verdict: nil}
      assert numbers(sound(next)) == [1, 4, 5, 6]

      {:ok, next, %{range: 1..5}} = View.compact(turns(6), :drop)
      assert numbers(sound(next)) == [6]
    end

    test "puts a summary where the iterations were" do
      me = self()

      {:ok, next, info} =
        View.compact(
          turns(6, @long),
          {:summarize, fn messages -> send(me, messages) && {:ok, "They talked."} end},
          range: 2..4,
          check: nil
        )

      assert %{range: 2..4, strategy: :summarize, reason: nil, verdict: verdict} = info
      assert %{facts: 6, kept: 0, wrong: [], appended: 0} = verdict
      assert View.verdict(next, 3) == verdict
      assert_received given
      assert given == turns(6, @long) |> Context.to_messages() |> Enum.slice(3, 6)

      assert %{
               role: :user,
               content: "[Summary of iterations 2 to 4 of this conversation]\nThey talked.",
               metadata: %{summary: %{first: 2, last: 4}}
             } == next |> Context.to_messages() |> Enum.at(3)

      assert for(n <- 1..6, do: View.summary(next, n)) == [
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
        assert {:ok, next, info} = View.compact(turns(5), {:summarize, fun})
        assert info == %{range: 1..4, strategy: :drop, reason: reason, verdict: nil}
        assert numbers(next) == [5]
      end

      {:ok, _, info} = View.compact(turns(5), {:summarize, fn _ -> raise "boom" end})
      assert %{strategy: :drop, reason: %RuntimeError{message: "boom"}} = info

      {:ok, _, info} = View.compact(turns(5), {:summarize, fn _ -> :erlang.error(:odd) end})

      assert %{strategy: :drop, reason: %ErlangError{original: :odd}} = info
    end

    test "takes no summary that is larger than half of what it stands for" do
      for text <- [String.duplicate("x ", 100), String.duplicate("word ", 2_000_000)] do
        assert {:ok, next, %{reason: {:summary_too_long, tokens, replaced}, strategy: :drop}} =
                 View.compact(turns(5), {:summarize, fn _ -> text end})

        assert 2 * tokens > replaced
        assert numbers(next) == [5]
        assert_refused(fn -> View.mark_as_summarized(turns(5), 1..4, text) end)
      end

      context =
        turns(2)
        |> tool("a", String.duplicate("long ", 100))
        |> Context.add_assistant_message("ok")

      context = Context.add_user_message(context, "next")

      assert {:ok, next, %{reason: :down, strategy: :clear}} =
               View.compact(context, {:summarize, fn _ -> {:error, :down} end})

      assert View.view(next).hidden == []
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

      compact = &View.compact(context, {:summarize, fn _ -> "Wrote 4712 bytes." end}, check: &1)

      assert {:ok, next, %{strategy: :summarize, verdict: %{wrong: ["4712"], appended: more}}} =
               compact.(:append)

      assert more > 0
      assert View.summary(next, 1) =~ "Not in the conversation: 4712\nAlso: lib/used.ex"

      assert {:ok, ^next, %{range: nil, reason: nil}} =
               View.compact(next, {:summarize, fn _ -> flunk() end})

      assert {:ok, next,
              %{strategy: :clear, reason: :summary_refused, verdict: %{wrong: ["4712"]}}} =
               compact.(:refuse)

      assert %{summaries: [], hidden: [], cleared: %{}} = View.view(next)
      assert {:ok, next, %{strategy: :drop, reason: :summary_refused}} = compact.(:hide)
      assert %{summaries: [], hidden: [_]} = View.view(next)
    end

    test "of nothing is nothing" do
      never = fn _ -> flunk("asked for a summary of nothing") end

      for context <- [
            Context.new("Hi"),
            asked(Context.new("Hi")),
            turns(1),
            turns(5) |> View.hide({:all_but_last, 1})
          ] do
        assert {:ok, same, %{range: nil, strategy: :drop, reason: nil}} =
                 View.compact(context, :drop)

        assert Context.equal?(same, context)

        assert {:ok, same, %{range: nil, strategy: :summarize, reason: nil}} =
                 View.compact(context, {:summarize, never})

        assert Context.equal?(same, context)
      end
    end

    test "again works on the view" do
      {:ok, once, _} =
        View.compact(turns(4, @long), {:summarize, fn _ -> "They talked of Elixir." end})

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
        View.compact(
          more,
          {:summarize, fn messages -> send(me, messages) && "They talked more." end}
        )

      assert_received [
        %{content: "[Summary of iterations 1 to 3" <> _, metadata: %{summary: _}} | _
      ]

      assert View.view(twice).summaries == [1..5]
      refute Enum.any?(texts(twice), &(&1 =~ "of Elixir.\n"))
      assert numbers(sound(twice)) == [6]
    end
  end

  describe "clear_tool_results" do
    defp read(count),
      do: Enum.reduce(1..count, Context.new("Hi", id: "c"), &tool(&2, "id#{&1}", "result #{&1}"))

    test "blanks all but the last three, by default" do
      context = View.clear_tool_results(read(5)) |> sound()
      gone = "[Old tool result cleared]"
      assert results(context) == [gone, gone, "result 3", "result 4", "result 5"]
      kept = View.clear_tool_results(read(3), keep: @big)
      assert results(kept) == ["result 1", "result 2", "result 3"]
    end

    test "of errors and parts blanks them, too" do
      context =
        Context.new("Hi")
        |> asked(["a", "b"])
        |> Context.add_tool_results([
          {"a", {:error, "bad"}},
          {"b", {:ok, [%{type: :image, media_type: "image/png", data: "AAAA"}]}}
        ])

      cleared = View.clear_tool_results(context, keep: 0, placeholder: "-") |> sound()

      assert [%{content: "-", is_error: true}, %{content: "-", is_error: false}] =
               List.last(Context.to_messages(cleared)).content

      for provider <- @providers, do: refute(body(cleared, provider) =~ "AAAA")
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
        [shown] = context |> View.put_max_result_bytes(limit) |> results()
        assert_shortened(before, shown, limit)
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
          |> View.put_max_result_bytes(100)

        assert [text] = results(context)
        assert byte_size(text) <= 100
        assert [text] = context |> View.put_masks([{"a", "[masked]"}]) |> results()
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

      assert [^long, "short"] = context |> View.put_max_result_bytes(nil) |> results()
    end

    test "may be of one request" do
      context = Context.new("Hi") |> tool("a", String.duplicate("x", 5_000))

      for provider <- @providers do
        assert body(context, provider, max_result_bytes: 200) ==
                 body(View.put_max_result_bytes(context, 200), provider)

        assert body(context, provider) =~ String.duplicate("x", 5_000)
        # The smaller one holds.
        strict = View.put_max_result_bytes(context, 100)

        assert byte_size(body(strict, provider, max_result_bytes: 200)) <=
                 byte_size(body(context, provider, max_result_bytes: 200))

        assert [%{change: :shortened_result, from: "a", iteration: 1} | _] =
                 Context.request_report(context, provider, max_result_bytes: 200)
                 |> Enum.filter(&(&1.change == :shortened_result))
      end
    end
  end

  describe "masks" do
    @secret "4111111111111111"
    @masks [{"4\\d{15}", "[card]"}]

    # Everywhere but what the application chose: names of tools, ids, further keys, metadata.
    defp places do
      file = &%{type: :file, media_type: &1, data: Base.encode64(&2), filename: &3}
      seen = %{provider: :anthropic, signature: "s"}
      thinking = %{type: :thinking, text: @secret, provider_metadata: seen}
      data = %{"type" => "x", @secret => [4_111_111_111_111_111, @secret]}
      text = %{type: :text, text: @secret}

      [
        text: {:user, "my card #{@secret}"},
        parts: {:user, [text]},
        file_name: {:user, [file.("application/pdf", "a", "#{@secret}.pdf")]},
        url: {:user, [%{type: :image, url: "https://example.com/#{@secret}.png"}]},
        text_file: {:user, [file.("text/plain", "card " <> @secret, "a.txt")]},
        block: {:user, [%{type: :provider_block, provider: :anthropic, data: data}]},
        answer: {:assistant, @secret, []},
        thinking: {:assistant, [thinking, %{type: :text, text: "a"}], []},
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
        result_parts: {:result, {:ok, [text]}},
        result_file: {:result, {:ok, [file.("text/csv", @secret, "#{@secret}.csv")]}},
        error: {:result, {:error, {:bad, @secret}}},
        charlist: {:result, {:ok, [card: ~c"4111111111111111"]}}
      ]
    end

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

    test "leave nothing of what they match in any place" do
      for {name, place} <- places() do
        context = put(place)
        masked = context |> View.put_masks(@masks) |> sound()
        refute everything(masked) =~ @secret, "#{name}"
        # Other views of it do not lead back to it.
        shortened = View.put_max_result_bytes(masked, 100)
        refute everything(shortened) =~ @secret, "#{name}"
        # The log has it, and it comes back.
        assert Context.iterations(masked) == Context.iterations(context)
        plain = View.put_masks(masked, [])
        assert Context.to_messages(plain) == Context.to_messages(context)
      end
    end

    test "hold for the system prompt, blocks and summaries" do
      context =
        turns(6, @long)
        |> Context.put_system_prompt("system #{@secret}")
        |> View.put_prompt_block(:a, "block #{@secret}")
        |> View.mark_as_summarized(1..2, "summary #{@secret}")
        |> tool("a", "r")
        |> View.clear_tool_results(keep: 0, placeholder: "gone")
        |> View.put_masks(@masks)
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

        imported = context |> Context.request!(provider) |> Context.Import.from_request!(provider)
        assert everything(imported) =~ @secret
        refute imported |> View.put_masks(@masks) |> sound() |> everything() =~ @secret

        assert imported
               |> View.put_masks(@masks)
               |> View.put_masks([])
               |> body(provider) ==
                 body(imported, provider)
      end
    end

    test "come one after the other, and their replacements are taken as they are" do
      context = Context.new("one two")

      assert texts(View.put_masks(context, [{"one", "two"}, {"two", "$0 \\1"}])) == [
               "$0 \\1 $0 \\1"
             ]

      assert texts(View.put_masks(context, [{"(?i)ONE", ""}])) == [" two"]
      assert texts(View.put_masks(context, [{~r/t(w)o/, "$1"}])) == ["one $1"]
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
      refute context |> View.put_masks(@masks) |> body(:anthropic) =~ "sig"

      assert context |> View.put_masks([{"nothing like it", ""}]) |> body(:anthropic) =~
               "sig"
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
        masked = context |> View.put_masks(masks) |> sound()
        assert is_binary(Context.to_prompt(masked))
        assert Context.iterations(masked) == Context.iterations(context)
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
                 reason_of(fn -> View.put_masks(turns(1), [{"a", ""}, {pattern, ""}]) end)

        assert is_binary(problem)
      end

      # Too large to compile.
      huge = "(?:(?:(?:a{100}){100}){100}){100}"

      assert {:invalid_pattern, ^huge, _} =
               reason_of(fn -> View.put_masks(turns(1), [{huge, ""}]) end)

      deep = String.duplicate("(", 100_000) <> String.duplicate(")", 100_000)

      assert {:invalid_pattern, ^deep, _} =
               reason_of(fn -> View.put_masks(turns(1), [{deep, ""}]) end)
    end

    test "a hundred of them are well, and more are refused" do
      masks = for n <- 1..100, do: {"secret#{n}\\b", "[#{n}]"}
      context = Context.new("secret7 and secret99") |> View.put_masks(masks) |> sound()
      assert texts(context) == ["[7] and [99]"]

      assert {:invalid_pattern, "one more", "there are 100 patterns already"} =
               reason_of(fn -> View.put_masks(context, masks ++ [{"one more", ""}]) end)
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

    test "has blocks behind it, in the order of their names" do
      context =
        turns(1)
        |> View.put_prompt_block(:b, "B")
        |> View.put_prompt_block("a", "A")
        |> sound()

      assert hd(texts(context)) == "Be brief.\n\nB\n\nA"
      assert Context.system_prompt(context) == "Be brief."

      assert hd(texts(View.put_prompt_block(context, "b", "B2"))) ==
               "Be brief.\n\nB2\n\nA"

      assert hd(texts(View.put_prompt_block(context, :b, nil))) == "Be brief.\n\nA"

      again =
        context
        |> View.put_prompt_block(:b, nil)
        |> View.put_prompt_block(:b, "B")

      assert hd(texts(again)) == "Be brief.\n\nA\n\nB"
      assert View.put_prompt_block(turns(1), :none, nil) |> texts() == texts(turns(1))
      for provider <- @providers, do: assert(body(context, provider) =~ "Be brief.\\n\\nB\\n\\nA")
    end

    test "may be blocks alone, or parts with blocks" do
      context = Context.new("Hi") |> View.put_prompt_block(:a, "A") |> sound()

      assert Context.to_messages(context) == [
               %{role: :system, content: "A"},
               %{role: :user, content: "Hi"}
             ]

      assert {Context.count_messages(context), Context.system_prompt(context)} == {2, nil}
      assert Context.to_messages(context, view: :log) == [%{role: :user, content: "Hi"}]

      context =
        Context.new("Hi", system_prompt: [%{type: :text, text: "P"}])
        |> View.put_prompt_block(:a, "A")
        |> sound()

      for provider <- @providers, do: assert(body(context, provider) =~ "A")
    end
  end

  describe "to_prompt" do
    test "has the view" do
      context = turns(3) |> View.hide({:all_but_last, 1})

      assert Context.to_prompt(context) ==
               "[System]\nBe brief.\n\n[User]\nquestion 3\n\n[Assistant]\nanswer 3"

      summarised = turns(3, @long) |> View.mark_as_summarized(1..2, "They talked.")

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
      assert turns(2) |> View.hide({:all_but, 7..9}) |> Context.validate_for_request() ==
               {:error, [:no_messages]}

      context = turns(2, @long) |> Context.add_user_message("x") |> View.hide({:all_but, 1..2})

      assert Context.validate_for_request(context) == {:error, [:last_message_from_assistant]}
    end
  end

  describe "request_report" do
    test "names what the view changed" do
      context =
        turns(9, @long)
        |> View.compact(:drop, range: 1..2)
        |> elem(1)
        |> View.mark_as_summarized(3..4, "They talked.")
        |> Context.add_user_message("x")
        |> tool("a", "first")
        |> View.clear_tool_results(keep: 0)
        |> tool("b", String.duplicate("y", 500))
        |> View.put_max_result_bytes(100)
        |> View.put_masks([{"question 9", "[q]"}])

      for provider <- @providers do
        report = Context.request_report(context, provider)
        assert %{from: "1..2", to: nil} = Enum.find(report, &(&1.change == :hidden_iterations))
        assert %{from: "3..4"} = Enum.find(report, &(&1.change == :summarized_iterations))
        assert %{from: "a", iteration: 10} = Enum.find(report, &(&1.change == :cleared_result))
        assert %{from: "b", iteration: 11} = Enum.find(report, &(&1.change == :shortened_result))
        assert %{iteration: 9, position: 0} = Enum.find(report, &(&1.change == :masked_text))
      end
    end
  end

  describe "requests" do
    test "with an unchanged view keep their bytes in front of what is added" do
      views = [
        &View.hide(&1, {:all_but_last, 3}),
        &View.mark_as_summarized(&1, 1..3, "s"),
        &View.clear_tool_results(&1, keep: 0),
        &View.put_max_result_bytes(&1, 100),
        &View.put_masks(&1, [{"question", "q"}]),
        &View.put_prompt_block(&1, :a, "b")
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
      context = turns(6, @long) |> View.mark_as_summarized(1..3, "They talked.")

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
        |> View.put_masks(masks)

      for to <- @providers do
        body = Context.request!(context, to)
        assert {to, masks, []} == {to, masks, RequestChecker.validate_request(body, to)}
      end
    end
  end

  # A result is as it was, or has the beginning and the end of it in `most` bytes.
  defp assert_shortened(before, result, most) when byte_size(before) <= most,
    do: assert(result == before)

  defp assert_shortened(before, result, most) do
    assert byte_size(result) <= most
    assert String.valid?(result)

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
