defmodule AshAgent.Test.BranchTest do
  use ExUnit.Case, async: true
  use AshAgent.Test

  alias AshAgent.{Context, LLM, Runtime}
  alias AshAgent.Test.Branch

  # Answers with what it was sent last, and with the system prompt.
  defp echo(context) do
    %{content: content} = context |> Context.to_messages() |> List.last()
    words = if is_list(content), do: Enum.map_join(content, ", ", & &1.content), else: content
    {:ok, %{content: "#{Context.system_prompt(context)} heard #{words}"}}
  end

  setup do
    calls = for id <- ["a", "b"], do: %{id: id, name: "look", arguments: %{"at" => id}}

    look = %{content: "Let me see.", tool_calls: calls}
    llm = LLM.Scripted.new(["Hello!", look, "It is fine."])
    opts = [llm: llm, tools: %{look: fn %{"at" => at} -> {:ok, "seen " <> at} end}]
    {:ok, first} = Runtime.run(Context.new("Hi", system_prompt: "A"), opts)
    {:ok, second} = first.context |> Context.add_user_message("Look!") |> Runtime.run(opts)
    %{context: second.context, run: [llm: &echo/1]}
  end

  defp output(branch), do: elem(branch.result, 1).output

  test "a tool's result is replaced, and the model goes on", %{context: context, run: run} do
    branch = branch(context, 2, tool_result: {"b", {:ok, "fog"}}, run: run)
    assert output(branch) == "A heard seen a, fog"
    assert_calls branch, [look(at: "a"), look(at: "b")]
    assert branch.context[:origin].id == context[:id]

    assert Context.get_iteration_messages(branch.context, 1) ==
             Context.get_iteration_messages(context, 1)
  end

  test "a call that waits is one call, and a branch gets no late result" do
    call = %{id: "a", name: "build", arguments: %{}}

    waits =
      Context.new("Build it")
      |> Context.add_assistant_message(nil, [call, %{call | id: "b"}])
      |> Context.add_tool_results([{"a", {:waiting, %{handle: "1"}}}, {"b", {:ok, "built"}}])
      |> Context.add_assistant_message("It runs.")

    {:ok, context} = Context.Calls.arrive(waits, "a", {:ok, "green"})
    context = Context.Calls.place_arrivals(context)
    context = Context.add_assistant_message(context, "Again.", [%{call | id: "c"}])
    context = Context.add_tool_results(context, [{"c", {:ok, "built"}}])
    [call, _b, _c] = assert_calls(context, [build(), build(), build()])
    assert {call.id, call.result, call.place} == {"a", {:ok, "green"}, {1, 0}}

    assert_raise ExUnit.AssertionError, ~r/nobody had approved/, fn ->
      assert_approved(waits, :build)
    end

    run = [llm: fn _ -> {:ok, %{content: "Done."}} end]
    branch = branch(context, 1, tool_result: {"b", {:ok, "other"}}, run: run)
    assert_calls(branch, [build(), build()])
    branch = branch(context, 3, tool_result: {"c", {:ok, "other"}}, run: run)
    assert output(branch) == "Done."
    assert_calls(branch, [build(), build(), build()])
  end

  test "the user's words, in the first iteration too", %{context: context, run: run} do
    assert output(branch(context, 2, user: "Listen!", run: run)) == "A heard Listen!"
    branch = branch(context, 1, user: "Ho", run: run)
    assert output(branch) == "A heard Ho"
    assert Context.count_iterations(branch.context) == 1
  end

  test "the system prompt, and the model alone", %{context: context, run: run} do
    assert output(branch(context, 2, system_prompt: "B", run: run)) == "B heard Look!"
    assert output(branch(context, 1, system_prompt: "B", run: run)) == "B heard Hi"
    assert output(branch(context, 3, run: run)) == "A heard seen a, seen b"
  end

  test "all but the change is the conversation's, from every iteration", %{run: run} do
    says = fn context ->
      {:ok, %{content: inspect(Context.to_messages(context), limit: :infinity)}}
    end

    run = Keyword.put(run, :llm, says)
    own = [id: "c1", system_prompt: "Never tell 4111-2222.", metadata: %{tenant: "t1"}]
    found = "card 4111-2222" <> String.duplicate(" fine", 99)

    context =
      Context.new("My card is 4111-2222.", own)
      |> Context.add_assistant_message("I look.", [%{id: "a", name: "look", arguments: %{}}])
      |> Context.add_tool_results([{"a", {:ok, found}}])
      |> Context.add_assistant_message("Noted.")
      |> Context.add_user_message("And 4111-2222?", metadata: %{"asked_by" => "u1"})
      |> Context.add_assistant_message("No.")
      |> Context.View.put_masks([{"[0-9]{4}-[0-9]{4}", "[card]"}])
      |> Context.View.put_prompt_block(:memory, "The user has card 4111-2222.")
      |> Context.View.put_max_result_bytes(100)
      |> Context.Recall.put_recall(true, index: 0.1)
      |> Context.Pins.pin({:fact, "Noted"})

    rules = &Map.take(Context.View.view(&1), [:masks, :blocks, :max_result_bytes])

    for {number, changes} <- [
          {1, [[], [user: "It is 4111-2222."], [system_prompt: "Tell 4111-2222."]]},
          {1, [[tool_result: {"a", {:ok, "4111-2222" <> String.duplicate(" well", 99)}}]]},
          {3, [[], [user: "So, 4111-2222?"], [system_prompt: "Tell 4111-2222."]]}
        ],
        change <- changes do
      %Branch{context: branch} = made = branch(context, number, change ++ [run: run])
      sent = output(made)
      assert sent =~ "[card]" and sent =~ "The user has card", inspect({number, change})
      refute sent =~ "4111-2222", inspect({number, change})
      assert rules.(branch) == rules.(context)
      assert Context.metadata(branch) == %{tenant: "t1"}
      assert %{id: "c1"} = branch[:origin]
      assert Context.Pins.pins(branch) == [fact: "Noted"]
      assert Context.dump(branch)["view"]["index"] == 100

      prompt = change[:system_prompt] || "Never tell 4111-2222."
      assert Context.system_prompt(branch) == prompt
      [own, asked] = for of <- [branch, context], do: first_user(of, number)
      assert own == if(change[:user], do: %{asked | content: change[:user]}, else: asked)
    end
  end

  test "the number of a first iteration stays", %{context: context, run: run} do
    document = context |> Context.dump() |> Map.update!("iterations", &tl/1)
    branch = document |> Context.load!() |> branch(2, user: "Listen!", run: run)
    assert output(branch) == "A heard Listen!"
    assert branch.context.current_iteration == 2
    assert %{iteration: 2} = branch.context[:origin]
    assert Branch.to_text(branch) =~ "Listen!"
  end

  defp first_user(context, number) do
    messages = Context.get_iteration_messages(context, number)
    Enum.find(messages, &(&1.role == :user))
  end

  test "the original stays, and both are shown side by side", %{context: context, run: run} do
    before = Context.to_snapshot(context)
    branch = branch(context, 2, tool_result: {"b", {:error, "fog"}}, run: run)
    assert Context.to_snapshot(context) == before
    text = Branch.to_text(branch)

    assert text =~
             ~r/^changed: the result of b\noriginal +\| branch\niteration 2 +\| iteration 2\n/

    assert text =~ ~r/tool result +b: seen b +\|   tool result +b: fog/
    assert text =~ ~r/It is fine\. +\|   assistant +A heard seen a, fog/
    refute text =~ "Hello!"
    page = Branch.to_html(branch)
    assert page =~ "It is fine." and page =~ "A heard seen a, fog"
  end

  test "what cannot be changed is refused", %{context: context, run: run} do
    for {number, opts, words} <- [
          {9, [], "there is no iteration 9; they are 1 to 3"},
          {2, [tool_result: {"c", {:ok, 1}}], ~s(has no call "c"; it has ["a", "b"])},
          {3, [user: "Hi"], "does not begin with a user's message"},
          {1, [user: "Hi", system_prompt: "B"], "expected one change"}
        ] do
      error = assert_raise ArgumentError, fn -> branch(context, number, opts ++ [run: run]) end
      assert error.message =~ words
    end
  end
end
