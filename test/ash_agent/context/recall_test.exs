defmodule AshAgent.Context.RecallTest do
  use ExUnit.Case, async: true

  alias AshAgent.Context
  alias AshAgent.Context.{Recall, View}

  doctest AshAgent.Context.Pins
  doctest AshAgent.Context.Recall

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
      context = reading(3) |> Recall.put_recall(true) |> View.clear_tool_results(keep: 1)

      assert [first, second, shown] = results(context)
      assert first =~ ~r/^\[2 KB read_file lib\/f1.ex: line 1 of file, recall 1.1-[0-9]{3}\]$/
      assert second =~ ~r/^\[2 KB read_file lib\/f2.ex: line 1 of file, recall 2.1-[0-9]{3}\]$/
      assert shown == file(3)
      assert Recall.recall(context, handle(first)) == {:ok, file(1)}
      assert Recall.recall(context, handle(second)) == {:ok, file(2)}
    end

    test "stand only where recall is on" do
      context = reading(2) |> View.clear_tool_results(keep: 0)
      assert results(context) == List.duplicate("[Old tool result cleared]", 2)
      on = Recall.put_recall(context, true)
      assert Enum.all?(results(on), &(&1 =~ "recall"))
      assert Recall.recall?(on)
      off = Recall.put_recall(on, false)
      assert Context.to_messages(off) == Context.to_messages(context)
      refute Recall.recall?(off)
    end

    test "are gone after a rewind, whatever comes to stand in their place" do
      context = reading(4) |> Recall.put_recall(true) |> View.clear_tool_results(keep: 0)

      gone = context |> results() |> List.last() |> handle()
      rewound = Context.rewind(context, to: 2)
      assert {:error, %{reason: {:handle_gone, ^gone}}} = Recall.recall(rewound, gone)

      # The same iteration and the same id, and another text.
      other = rewound |> call("c3", :read_file, %{path: "lib/f3.ex"}, file(7))
      other = call(other, "c4", :read_file, %{path: "lib/f4.ex"}, file(8))
      assert {:error, error} = Recall.recall(other, gone)
      assert Exception.message(error) =~ "gone"
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
        |> Recall.put_recall(true)

      hidden = View.hide(context, {:all_but_last, 2})
      assert [_system, note | _] = Context.to_messages(hidden)
      assert %{role: :user, metadata: %{hidden: %{first: 1, last: 3}}} = note

      assert [_, handle] =
               Regex.run(
                 ~r/^\[Iterations 1 to 3 are hidden, recall (1\.\.3-[0-9]{3})\]\nuser: Question 1\?\nuser: Question 2\?\nuser: Question 3\?$/,
                 note.content
               )

      assert {:ok, text} = Recall.recall(hidden, handle)
      assert text =~ "user: Question 1?\nassistant: Answer 1."
      assert text =~ "Answer 3."
      refute text =~ "Question 4?"
      assert Context.count_messages(hidden) == length(Context.to_messages(hidden))

      {:ok, summarised, _info} =
        View.compact(context, {:summarize, fn _ -> "Questions." end},
          range: 1..3,
          check: nil
        )

      assert [_system, summary | _] = Context.to_messages(summarised)

      assert summary.content ==
               "[Summary of iterations 1 to 3 of this conversation, recall #{handle}]\nQuestions."

      assert View.summary(summarised, 2) == "Questions."
      assert Recall.recall(summarised, handle) == {:ok, text}

      for shown <- [hidden, summarised] do
        {:ok, loaded} = shown |> Context.dump() |> Context.load()
        assert Context.equal?(loaded, shown)
        assert Context.to_messages(loaded) == Context.to_messages(shown)
        assert Context.to_messages(Recall.put_recall(shown, false)) |> length() <= 6
      end
    end
  end

  describe "recall/3" do
    setup do
      context = reading(2) |> Recall.put_recall(true) |> View.clear_tool_results(keep: 0)

      %{context: context, handle: context |> results() |> hd() |> handle()}
    end

    test "takes a range of lines", %{context: context, handle: handle} do
      assert Recall.recall(context, handle, from: 99) ==
               {:ok, "line 99 of file 1\nline 100 of file 1\n[lines 99 to 100 of 100]"}

      assert {:ok, "line 3 of file 1\n[lines 3 to 3 of 100]"} =
               Recall.recall(context, handle, from: 3, lines: 1)

      assert Recall.recall(context, handle, from: 101) == {:ok, "[there are 100 lines]"}
      assert {:ok, text} = Recall.recall(context, handle, max_bytes: 50)
      assert text == "line 1 of file 1\nline 2 of file 1\n[lines 1 to 2 of 100]"
    end

    test "takes a pattern", %{context: context, handle: handle} do
      assert Recall.recall(context, handle, pattern: "line 7 ") ==
               {:ok, "7: line 7 of file 1\n"}

      assert {:ok, text} = Recall.recall(context, handle, pattern: "line .0 ", lines: 2)
      assert text == "10: line 10 of file 1\n20: line 20 of file 1\n[2 of 9 matching lines]"

      assert Recall.recall(context, handle, pattern: "nothing") ==
               {:ok, "[0 of 0 matching lines]"}

      assert {:error, %{reason: {:invalid_pattern, "(", _}}} =
               Recall.recall(context, handle, pattern: "(")
    end

    test "reads a long line in pieces, and all of it" do
      long = Enum.map_join(1..2_000, " ", &"word#{&1}")
      context = Context.new("Go") |> call("a", :get, %{}, long) |> Recall.put_recall(true)
      [note] = context |> View.clear_tool_results(keep: 0) |> results()
      assert {:ok, first} = Recall.recall(context, handle(note), max_bytes: 2_000)
      assert [_, last, all] = Regex.run(~r/\[lines 1 to (\d+) of (\d+)\]$/, first)

      pieces =
        for from <- 1..String.to_integer(all) do
          {:ok, piece} = Recall.recall(context, handle(note), from: from, lines: 1)
          String.replace(piece, ~r/\n\[lines .*\]$/, "")
        end

      assert Enum.join(pieces) == long
      assert String.to_integer(last) < String.to_integer(all)
      assert {:ok, text} = Recall.recall(context, handle(note), pattern: "word1234 ")
      assert text =~ "word1234" and byte_size(text) < 500
    end

    test "takes a handle with what models write around it", %{context: context, handle: handle} do
      for written <- [
            "\"#{handle}\"",
            "recall #{handle}",
            "[recall \"#{handle}\"]",
            String.upcase(handle)
          ],
          do: assert({:ok, "line 1 of" <> _} = Recall.recall(context, written, lines: 1))
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
        assert {:error, %{reason: {:unknown_handle, ^text}}} = Recall.recall(context, text)
      end

      for text <- [
            "1.99-123",
            "99.1-123",
            "1.0-123",
            "2..1-123",
            "0..9-123",
            "1..18446744073709551615-123"
          ],
          do: assert({:error, %{reason: {:handle_gone, ^text}}} = Recall.recall(context, text))
    end
  end

  describe "search/3" do
    test "finds texts that are not shown, the best first" do
      context = reading(30) |> Recall.put_recall(true) |> View.clear_tool_results(keep: 3)

      assert [%{handle: handle, text: text} | rest] = Recall.search(context, "line 42 of file 17")

      assert handle =~ ~r/^17.1-/
      assert text =~ "line 42 of file 17"
      assert length(rest) == 4
      assert {:ok, whole} = Recall.recall(context, handle)
      assert whole == file(17)

      assert Recall.search(context, "file 29")
             |> Enum.all?(&(not (&1.handle =~ ~r/^(28|29|30)\./)))

      assert Recall.search(context, "LIB/F17.EX") == []
      assert [%{handle: "17.1-" <> _} | _] = Recall.search(context, "ne 42 of file 17")
      assert Recall.search(context, "zebra") == []
      assert Recall.search(context, "  ") == []
      assert length(Recall.search(context, "line", limit: 100)) == 27
    end

    test "finds messages and calls of hidden iterations" do
      context =
        Context.new("My booking is QX7R2M, and my dog is called Rex.")
        |> call("a", :lookup, %{reservation: "QX7R2M"}, "one seat to Łódź, 12 €")
        |> Context.add_assistant_message("Done.")
        |> Context.add_user_message("委员会星期四再次开会")
        |> Context.add_assistant_message("Yes.")
        |> Context.add_user_message("Thanks")
        |> Recall.put_recall(true)

      assert Recall.search(context, "QX7R2M") == []
      hidden = View.hide(context, {:all_but_last, 1})
      found = &Enum.map(Recall.search(hidden, &1), fn hit -> hit.text end)
      assert "My booking is QX7R2M, and my dog is called Rex." in found.("qx7r2m")
      assert Enum.any?(found.("qx7r2m"), &(&1 =~ "lookup"))
      assert ["one seat to Łódź, 12 €"] = found.("Łódź")
      assert ["委员会星期四再次开会"] = found.("星期四")
      assert ["My booking" <> _] = found.("dog, ")

      for hit <- Recall.search(hidden, "QX7R2M booking seat done"),
          do: assert({:ok, _text} = Recall.recall(hidden, hit.handle))
    end

    test "does not find the answers of recall" do
      context = reading(2) |> Recall.put_recall(true) |> View.clear_tool_results(keep: 0)

      [%{handle: handle}] = Recall.search(context, "line 7 of file 1", limit: 1)
      {:ok, text} = Recall.recall(context, handle)

      context =
        context
        |> call("r", "recall", %{"handle" => handle}, text)
        |> View.clear_tool_results(keep: 0)

      assert [%{handle: ^handle}] = Recall.search(context, "line 7 of file 1") |> Enum.take(1)

      refute Enum.any?(
               Recall.search(context, "line 7 of file 1"),
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
        |> Recall.put_recall(true)
        |> View.put_masks([{"[0-9]{3}-[0-9]{4}", "[phone]"}, {"[a-z]+@[a-z.]+", "[mail]"}])

      %{context: context}
    end

    test "hold for the index of what is hidden" do
      text = "password: hunter2horse9\n" <> String.duplicate("lib/a.ex is fine. ", 120)

      context =
        Context.new("Look")
        |> call("c", :look, %{}, text)
        |> Context.add_assistant_message("Done.")
        |> Recall.put_recall(true, index: 0.1)
        |> Context.add_user_message("And?")
        |> View.hide({:all_but_last, 1})

      assert inspect(Context.to_messages(context)) =~ "hunter2horse9"
      masked = View.put_masks(context, [{"password: \\S+", "[x]"}])
      refute inspect(Context.to_messages(masked)) =~ "hunter2horse9"
    end

    test "hold for handles, recall and search", %{context: context} do
      cleared = View.clear_tool_results(context, keep: 0)
      [note] = results(cleared)
      assert note =~ "lookup [mail], recall"

      assert {:ok, "phone: [phone], mail: [mail]\n" <> _} = Recall.recall(cleared, handle(note))

      assert {:ok, "[0 of 0 matching lines]"} =
               Recall.recall(cleared, handle(note), pattern: "0199|ann")

      assert Recall.search(cleared, "555-0199") == []
      assert Recall.search(cleared, "ann") == []

      hidden = View.hide(context, {:all_but_last, 1})
      assert Recall.search(hidden, "0199") == []

      assert Recall.search(hidden, "ann@example.com")
             |> Enum.all?(&(not (&1.text =~ "ann")))

      [%{handle: handle} | _] = Recall.search(hidden, "phone")
      {:ok, text} = Recall.recall(hidden, handle)
      refute text =~ "0199"
    end
  end
end
