defmodule AshAgent.Context.RecallTest do
  use ExUnit.Case, async: true

  alias AshAgent.Context

  doctest AshAgent.Context.Pins
  doctest AshAgent.Context.Recall
  doctest AshAgent.Context.Receipt

  defp call(context, id, name, arguments, result) do
    context
    |> Context.add_assistant_message(nil, [%{id: id, name: name, arguments: arguments}])
    |> Context.add_tool_results([{id, {:ok, result}}])
  end

  defp results(context) do
    for %{content: [%{type: :tool_result} | _] = results} <- Context.to_messages(context),
        %{content: text} <- results,
        do: text
  end

  defp file(number), do: Enum.map_join(1..100, "\n", &"line #{&1} of file #{number}")

  defp reading(count) do
    Enum.reduce(1..count, Context.new("Read the files."), fn number, context ->
      call(context, "c#{number}", :read_file, %{path: "lib/f#{number}.ex"}, file(number))
    end)
  end

  defp handle(text) do
    [_, handle] = Regex.run(~r/recall ([0-9.]+-[0-9]{3})/, text)
    handle
  end

  describe "handles" do
    test "tell what was cleared and how to get it back" do
      context = reading(3) |> Context.put_recall(true) |> Context.clear_tool_results(keep: 1)
      assert [first, second, shown] = results(context)
      assert first =~ ~r/^\[2 KB read_file lib\/f1.ex, recall 1.1-[0-9]{3}\]$/
      assert second =~ ~r/^\[2 KB read_file lib\/f2.ex, recall 2.1-[0-9]{3}\]$/
      assert shown == file(3)
      assert Context.recall(context, handle(first)) == {:ok, file(1)}
      assert Context.recall(context, handle(second)) == {:ok, file(2)}
    end

    test "stand only where recall is on" do
      context = reading(2) |> Context.clear_tool_results(keep: 0)
      assert results(context) == List.duplicate("[Old tool result cleared]", 2)
      on = Context.put_recall(context, true)
      assert Enum.all?(results(on), &(&1 =~ "recall"))
      assert Context.recall?(on)
      off = Context.put_recall(on, false)
      assert Context.to_messages(off) == Context.to_messages(context)
      refute Context.recall?(off)
    end

    test "are the same in storage, in forks and whatever else the view does" do
      context = reading(4) |> Context.put_recall(true) |> Context.clear_tool_results(keep: 1)
      {:ok, loaded} = context |> Context.dump() |> Context.load()
      fork = Context.fork(context)
      assert results(loaded) == results(context)
      assert results(fork) == results(context)

      hidden = Context.compact(context, :drop, range: nil)
      assert {:ok, _context, _info} = hidden
      [first | _] = results(context)
      more = context |> call("more", :ls, %{}, "a b") |> Context.put_max_result_bytes(500)
      assert Context.recall(more, handle(first)) == {:ok, file(1)}
      assert Context.to_snapshot(loaded) == Context.to_snapshot(context)
    end

    test "are gone after a rewind, whatever comes to stand in their place" do
      context = reading(4) |> Context.put_recall(true) |> Context.clear_tool_results(keep: 0)
      gone = context |> results() |> List.last() |> handle()
      rewound = Context.rewind(context, to: 2)
      assert {:error, %{reason: {:handle_gone, ^gone}}} = Context.recall(rewound, gone)

      # The same iteration and the same id, and another text.
      other = rewound |> call("c3", :read_file, %{path: "lib/f3.ex"}, file(7))
      other = call(other, "c4", :read_file, %{path: "lib/f4.ex"}, file(8))
      assert {:error, error} = Context.recall(other, gone)
      assert Exception.message(error) =~ "gone"
    end

    test "stand in results that are cut" do
      context = reading(1) |> Context.put_recall(true) |> Context.put_max_result_bytes(300)
      assert [text] = results(context)
      assert byte_size(text) <= 300
      assert text =~ ~r/\n\[... \d+ bytes left out, recall 1.1-[0-9]{3} ...\]\n/
      assert Context.recall(context, handle(text)) == {:ok, file(1)}
    end

    test "stand for hidden and summarised iterations" do
      context =
        Enum.reduce(2..5, Context.new("Question 1?", system_prompt: "Be brief."), fn number,
                                                                                     context ->
          context
          |> Context.add_assistant_message(
            "Answer #{number - 1}. #{String.duplicate("Word. ", 50)}"
          )
          |> Context.add_user_message("Question #{number}?")
        end)
        |> Context.put_recall(true)

      hidden = Context.keep_last_iterations(context, 2)
      assert [_system, note | _] = Context.to_messages(hidden)
      assert %{role: :user, metadata: %{hidden: %{first: 1, last: 3}}} = note

      assert [_, handle] =
               Regex.run(
                 ~r/^\[Iterations 1 to 3 are hidden, recall (1\.\.3-[0-9]{3})\]\nuser: Question 1\?\nuser: Question 2\?\nuser: Question 3\?$/,
                 note.content
               )

      assert {:ok, text} = Context.recall(hidden, handle)
      assert text =~ "user: Question 1?\nassistant: Answer 1."
      assert text =~ "Answer 3."
      refute text =~ "Question 4?"
      assert Context.count_messages(hidden) == length(Context.to_messages(hidden))

      {:ok, summarised, _info} =
        Context.compact(context, {:summarize, fn _ -> "Questions." end}, range: 1..3, check: nil)

      assert [_system, summary | _] = Context.to_messages(summarised)

      assert summary.content ==
               "[Summary of iterations 1 to 3 of this conversation, recall #{handle}]\nQuestions."

      assert Context.summary(summarised, 2) == "Questions."
      assert Context.recall(summarised, handle) == {:ok, text}

      for shown <- [hidden, summarised] do
        {:ok, loaded} = shown |> Context.dump() |> Context.load()
        assert Context.equal?(loaded, shown)
        assert Context.to_messages(loaded) == Context.to_messages(shown)
        assert Context.to_messages(Context.put_recall(shown, false)) |> length() <= 6
      end
    end

    test "have at most 20 tokens, and what is shorter is not cleared" do
      calls = [
        {"read_file",
         %{
           "path" => "packages/ash_agent_runtime/lib/ash_agent/runtime/tool_executor.ex",
           "limit" => 2_000
         }},
        {"bash",
         %{
           "command" =>
             "cd /srv/app && MIX_ENV=test mix test --only integration 2>&1 | tail -200",
           "timeout" => 600
         }},
        {"mcp__github__search_pull_requests",
         %{"query" => "repo:elixir-lang/elixir is:open label:bug"}},
        {"get_reservation_details", %{"reservation_id" => "QX7R2M"}},
        {"fetch",
         %{
           "url" =>
             "https://example.com/a/very/long/path?with=query&and=more#fragment-0c44be7f3a91"
         }},
        {"x", %{"id" => "6f1c2a9e-8b34-4d57-9e0a-51c7f2d8b630"}},
        {"查询", %{"词" => "委员会星期四再次开会讨论新的时间表。"}},
        {"🎉", %{"a" => String.duplicate("👩‍👩‍👧‍👦", 40)}},
        {String.duplicate("read_", 12) <> "it", %{"a" => String.duplicate("Zq9", 500)}},
        {"none", %{}}
      ]

      for {{name, arguments}, number} <- Enum.with_index(calls),
          size <- [700, 12_345, 3_456_789] do
        context =
          Context.new("Go")
          |> call("c#{number}", name, arguments, String.duplicate("x", size))
          |> Context.put_recall(true)
          |> Context.clear_tool_results(keep: 0)

        [note] = results(context)
        count = &Context.count_tokens(Context.new(&1), method: :o200k_base)
        counted = count.(note) - count.("")
        assert counted <= 20, "#{counted} tokens: #{note}"
      end

      short = Context.new("Go") |> call("a", :ls, %{}, "a.ex b.ex") |> Context.put_recall(true)
      assert short |> Context.clear_tool_results(keep: 0) |> results() == ["a.ex b.ex"]
    end

    test "leave requests as they were sent, as more comes" do
      context = reading(40) |> Context.put_recall(true) |> Context.clear_tool_results(keep: 20)

      for provider <- Context.providers() do
        encode = &IO.iodata_to_binary(Context.encode_request!(&1, provider))
        {before, later} = {encode.(context), encode.(call(context, "more", :ls, %{}, "a"))}
        common = :binary.longest_common_prefix([before, later])
        assert common >= byte_size(before) - 200
        {:ok, loaded} = context |> Context.dump() |> Context.load()
        assert encode.(loaded) == before
      end
    end
  end

  describe "recall/3" do
    setup do
      context = reading(2) |> Context.put_recall(true) |> Context.clear_tool_results(keep: 0)
      %{context: context, handle: context |> results() |> hd() |> handle()}
    end

    test "takes a range of lines", %{context: context, handle: handle} do
      assert Context.recall(context, handle, from: 99) ==
               {:ok, "line 99 of file 1\nline 100 of file 1\n[lines 99 to 100 of 100]"}

      assert {:ok, "line 3 of file 1\n[lines 3 to 3 of 100]"} =
               Context.recall(context, handle, from: 3, lines: 1)

      assert Context.recall(context, handle, from: 101) == {:ok, "[there are 100 lines]"}
      assert {:ok, text} = Context.recall(context, handle, max_bytes: 50)
      assert text == "line 1 of file 1\nline 2 of file 1\n[lines 1 to 2 of 100]"
    end

    test "takes a pattern", %{context: context, handle: handle} do
      assert Context.recall(context, handle, pattern: "line 7 ") == {:ok, "7: line 7 of file 1\n"}
      assert {:ok, text} = Context.recall(context, handle, pattern: "line .0 ", lines: 2)
      assert text == "10: line 10 of file 1\n20: line 20 of file 1\n[2 of 9 matching lines]"

      assert Context.recall(context, handle, pattern: "nothing") ==
               {:ok, "[0 of 0 matching lines]"}

      assert {:error, %{reason: {:invalid_pattern, "(", _}}} =
               Context.recall(context, handle, pattern: "(")
    end

    test "reads a long line in pieces, and all of it" do
      long = Enum.map_join(1..2_000, " ", &"word#{&1}")
      context = Context.new("Go") |> call("a", :get, %{}, long) |> Context.put_recall(true)
      [note] = context |> Context.clear_tool_results(keep: 0) |> results()
      assert {:ok, first} = Context.recall(context, handle(note), max_bytes: 2_000)
      assert [_, last, all] = Regex.run(~r/\[lines 1 to (\d+) of (\d+)\]$/, first)

      pieces =
        for from <- 1..String.to_integer(all) do
          {:ok, piece} = Context.recall(context, handle(note), from: from, lines: 1)
          String.replace(piece, ~r/\n\[lines .*\]$/, "")
        end

      assert Enum.join(pieces) == long
      assert String.to_integer(last) < String.to_integer(all)
      assert {:ok, text} = Context.recall(context, handle(note), pattern: "word1234 ")
      assert text =~ "word1234" and byte_size(text) < 500
    end

    test "takes a handle with what models write around it", %{context: context, handle: handle} do
      for written <- [
            "\"#{handle}\"",
            "recall #{handle}",
            "[recall \"#{handle}\"]",
            String.upcase(handle)
          ],
          do: assert({:ok, "line 1 of" <> _} = Context.recall(context, written, lines: 1))
    end

    test "refuses what is no handle", %{context: context} do
      for text <- [
            "",
            "17",
            "17.1",
            "a-123",
            "1.1-aaa",
            "1.1-12",
            "-123",
            "1..-123",
            "99999999999999999999.1-123",
            "1.1-1234"
          ] do
        assert {:error, %{reason: {:unknown_handle, ^text}}} = Context.recall(context, text)
      end

      for text <- [
            "1.99-123",
            "99.1-123",
            "1.0-123",
            "2..1-123",
            "0..9-123",
            "1..18446744073709551615-123"
          ],
          do: assert({:error, %{reason: {:handle_gone, ^text}}} = Context.recall(context, text))
    end
  end

  describe "search/3" do
    test "finds texts that are not shown, the best first" do
      context = reading(30) |> Context.put_recall(true) |> Context.clear_tool_results(keep: 3)

      assert [%{handle: handle, text: text} | rest] =
               Context.search(context, "line 42 of file 17")

      assert handle =~ ~r/^17.1-/
      assert text =~ "line 42 of file 17"
      assert length(rest) == 4
      assert {:ok, whole} = Context.recall(context, handle)
      assert whole == file(17)

      assert Context.search(context, "file 29")
             |> Enum.all?(&(not (&1.handle =~ ~r/^(28|29|30)\./)))

      assert Context.search(context, "LIB/F17.EX") == []
      assert [%{handle: "17.1-" <> _} | _] = Context.search(context, "ne 42 of file 17")
      assert Context.search(context, "zebra") == []
      assert Context.search(context, "  ") == []
      assert length(Context.search(context, "line", limit: 100)) == 27
    end

    test "finds messages and calls of hidden iterations" do
      context =
        Context.new("My booking is QX7R2M, and my dog is called Rex.")
        |> call("a", :lookup, %{reservation: "QX7R2M"}, "one seat to Łódź, 12 €")
        |> Context.add_assistant_message("Done.")
        |> Context.add_user_message("委员会星期四再次开会")
        |> Context.add_assistant_message("Yes.")
        |> Context.add_user_message("Thanks")
        |> Context.put_recall(true)

      assert Context.search(context, "QX7R2M") == []
      hidden = Context.keep_last_iterations(context, 1)
      found = &Enum.map(Context.search(hidden, &1), fn hit -> hit.text end)
      assert "My booking is QX7R2M, and my dog is called Rex." in found.("qx7r2m")
      assert Enum.any?(found.("qx7r2m"), &(&1 =~ "lookup"))
      assert ["one seat to Łódź, 12 €"] = found.("Łódź")
      assert ["委员会星期四再次开会"] = found.("星期四")
      assert ["My booking" <> _] = found.("dog, ")

      for hit <- Context.search(hidden, "QX7R2M booking seat done"),
          do: assert({:ok, _text} = Context.recall(hidden, hit.handle))
    end

    test "does not find the answers of recall" do
      context = reading(2) |> Context.put_recall(true) |> Context.clear_tool_results(keep: 0)
      [%{handle: handle}] = Context.search(context, "line 7 of file 1", limit: 1)
      {:ok, text} = Context.recall(context, handle)

      context =
        context
        |> call("r", "recall", %{"handle" => handle}, text)
        |> Context.clear_tool_results(keep: 0)

      assert [%{handle: ^handle}] = Context.search(context, "line 7 of file 1") |> Enum.take(1)

      refute Enum.any?(
               Context.search(context, "line 7 of file 1"),
               &String.starts_with?(&1.handle, "3.")
             )
    end
  end

  describe "masks" do
    setup do
      context =
        Context.new("Mail ann@example.com about 555-0199.")
        |> call(
          "a",
          :lookup,
          %{mail: "ann@example.com"},
          "phone: 555-0199, mail: ann@example.com\n" <> String.duplicate("more\n", 50)
        )
        |> Context.add_assistant_message("Done.")
        |> Context.add_user_message("Thanks")
        |> Context.put_recall(true)
        |> Context.put_masks([{"[0-9]{3}-[0-9]{4}", "[phone]"}, {"[a-z]+@[a-z.]+", "[mail]"}])

      %{context: context}
    end

    # A secret that nothing gives away once it stands alone, and 2 KB of other words.
    @secret "hunter2horse9"
    @masks [{"password: \\S+", "[x]"}]

    defp secret do
      text = "password: #{@secret}\n" <> String.duplicate("lib/a.ex is fine. ", 120)
      Context.new("Look") |> call("c", :look, %{}, text) |> Context.add_assistant_message("Done.")
    end

    defp hide(context) do
      context |> Context.add_user_message("And?") |> Context.keep_last_iterations(1)
    end

    defp append(context) do
      context = Context.add_user_message(context, "And?")
      summarize = fn _messages -> {:ok, "They looked."} end

      {:ok, context, %{verdict: %{appended: appended}}} =
        Context.compact(context, {:summarize, summarize}, check: :append)

      assert appended > 0
      context
    end

    test "hold for what was cut before they were put" do
      for {name, context} <- [
            index: secret() |> Context.put_recall(true, index: 0.1) |> hide(),
            append: append(secret()),
            pin: secret() |> Context.pin({:fact, @secret}) |> hide(),
            pin_in_summary: secret() |> Context.pin({:fact, @secret}) |> append()
          ] do
        before = Context.to_messages(context)
        assert inspect(before) =~ @secret, "#{name}"
        masked = Context.put_masks(context, @masks)

        for shown <- [masked, masked |> Context.dump() |> Context.load!(), Context.fork(masked)] do
          refute inspect(Context.to_messages(shown)) =~ @secret, "#{name}"
          refute inspect(Context.receipt(shown)) =~ @secret, "#{name}"
          refute inspect(Context.verdict(shown, 1)) =~ @secret, "#{name}"
          refute "#{Context.summary(shown, 1)}" =~ @secret, "#{name}"
          refute AshAgent.Trace.to_html(shown) =~ @secret, "#{name}"
        end

        # Nothing is lost.
        assert masked |> Context.put_masks([]) |> Context.to_messages() == before, "#{name}"
        # A mask that meets nothing changes nothing.
        other = Context.put_masks(context, [{"nowhere", "[x]"}])
        assert Context.to_messages(other) == before, "#{name}"
      end
    end

    test "hold for documents of a version that did not look at what was there" do
      for context <- [
            secret() |> Context.put_recall(true, index: 0.1) |> hide(),
            append(secret())
          ] do
        masks = for {pattern, text} <- @masks, do: %{"pattern" => pattern, "replacement" => text}
        document = context |> Context.dump() |> put_in(["view", "masks"], masks)
        refute document |> Context.load!() |> Context.to_messages() |> inspect() =~ @secret
      end
    end

    test "hold for summaries that are put later" do
      context = secret() |> Context.add_user_message("And?") |> Context.put_masks(@masks)

      for {said, shown} <- [
            {"It is #{@secret} of lib/a.ex.", "It is [masked] of lib/a.ex."},
            {"It is password: #{@secret} of lib/a.ex.", "It is [x] of lib/a.ex."}
          ] do
        summarized = Context.mark_as_summarized(context, 1..2, said)
        assert Context.summary(summarized, 1) == shown
        refute inspect(Context.verdict(summarized, 1)) =~ @secret
        summarize = fn _messages -> {:ok, said} end

        for check <- [nil, :append, :refuse] do
          {:ok, compact, info} = Context.compact(context, {:summarize, summarize}, check: check)

          refute inspect([Context.to_messages(compact), info]) =~ @secret
        end
      end
    end

    test "hold for handles, recall and search", %{context: context} do
      cleared = Context.clear_tool_results(context, keep: 0)
      [note] = results(cleared)
      assert note =~ "lookup [mail], recall"
      assert {:ok, "phone: [phone], mail: [mail]\n" <> _} = Context.recall(cleared, handle(note))

      assert {:ok, "[0 of 0 matching lines]"} =
               Context.recall(cleared, handle(note), pattern: "0199|ann")

      assert Context.search(cleared, "555-0199") == []
      assert Context.search(cleared, "ann") == []

      hidden = Context.keep_last_iterations(context, 1)
      assert Context.search(hidden, "0199") == []
      assert Context.search(hidden, "ann@example.com") |> Enum.all?(&(not (&1.text =~ "ann")))
      [%{handle: handle} | _] = Context.search(hidden, "phone")
      {:ok, text} = Context.recall(hidden, handle)
      refute text =~ "0199"
    end
  end
end
