defmodule AshAgent.ChatContext.ChildrenTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions

  alias AshAgent.{ChatContext, Context}
  alias AshAgent.ChatContext.Config

  @at ~U[2026-02-02 10:00:00.000000Z]

  # Iterations 1 to 3: a question, a call with its result, an answer and a question.
  defp parent do
    context =
      Context.new("one", id: "p", system_prompt: "S", metadata: %{a: 1})
      |> Context.add_assistant_message("two")
      |> Context.Tokens.add_token_usage(%{input_tokens: 10, output_tokens: 5})
      |> Context.add_user_message("three")
      |> Context.add_assistant_message(nil, [
        %{id: "call", name: :look, arguments: ~s({"a": 1.0})}
      ])
      |> Context.Tokens.add_token_usage(%{input_tokens: 20, output_tokens: 5})
      |> Context.add_tool_results([{"call", {:ok, "secret 42"}}])
      |> Context.add_assistant_message("four")

    ChatContext.new(
      context: context,
      user_prompt: "U",
      config: [model_id: "m1", allowed_tools: [:read]]
    )
  end

  defp context(chat), do: ChatContext.active(chat).context
  defp contents(chat), do: Enum.map(Context.to_messages(context(chat)), & &1.content)

  describe "spawn_child/2" do
    test "makes a chat of its own" do
      parent = parent()

      child =
        ChatContext.spawn_child(parent,
          input: "task",
          system_prompt: "T",
          at: @at,
          branch: "work"
        )

      assert child.parent_id == parent.id
      assert child.id != parent.id
      assert context(child)[:id] == child.id
      assert context(child)[:created_at] == @at
      assert child.active_branch_name == "work"
      assert child.config == parent.config
      assert contents(child) == ["T", "task"]
      assert %{system_prompt: "T", user_prompt: nil} = ChatContext.active(child)
      assert contents(ChatContext.spawn_child(parent)) == []
      assert ChatContext.spawn_child(parent, id: "c").id == "c"
    end

    test "masks what its parent masks, with a seed and without" do
      parent =
        ChatContext.update_context(
          parent(),
          &Context.View.put_masks(&1, [{"secret [0-9]+", "[x]"}])
        )

      for seed <- [nil, 1..2], input <- ["Use secret 42", nil], at <- [@at, nil] do
        opts = for {key, value} <- [seed: seed, input: input, at: at], value, do: {key, value}
        child = parent |> ChatContext.spawn_child(opts) |> context()
        child = Context.add_user_message(child, "Or secret 43.")
        said = inspect(Context.to_messages(child))
        assert said =~ "Or [x]." and not (said =~ "secret 4")

        if at,
          do:
            assert(
              ChatContext.spawn_child(parent, opts) |> context() |> Access.get(:updated_at) == @at
            )
      end
    end

    test "gives it the settings that are given" do
      child = ChatContext.spawn_child(parent(), config: [mode: :work])
      assert child.config == Config.new(mode: :work)
      config = Config.put(parent().config, max_turns: 1)
      assert ChatContext.spawn_child(parent(), config: config).config == config
    end

    test "seeds it with a copy of iterations, numbered from 1, and with nothing else" do
      child = ChatContext.spawn_child(parent(), seed: 2..3, input: "task", at: @at)
      assert [%{number: 1}, %{number: 2}, %{number: 3}] = iterations = context(child)[:iterations]

      assert [
               ["three", nil, [%{type: :tool_result, tool_use_id: "call"}]],
               ["four"],
               ["task"]
             ] = for(iteration <- iterations, do: Enum.map(iteration.messages, & &1.content))

      assert context(child)[:id] == child.id
      assert Context.metadata(context(child)) == %{}
      assert Context.system_prompt(context(child)) == nil

      assert Context.to_messages(context(child)) ==
               Context.to_messages(context(child), view: :log)

      assert Context.Tokens.get_cumulative_tokens(context(child)).total_tokens == 0
      assert {:ok, _} = Context.encode_request(context(child), :openai_chat)
      # What create/1 would lose.
      assert Context.encode_request!(context(child), :openai_chat) |> IO.iodata_to_binary() =~
               ~S({\"a\": 1.0})
    end

    test "seeds it with one iteration, with all, and of another branch" do
      parent = parent() |> ChatContext.branch("b", iteration: 1)
      assert contents(ChatContext.spawn_child(parent, seed: 1..1)) == ["one", "two"]

      assert ["one", "two", "three", nil, _, "four"] =
               contents(ChatContext.spawn_child(parent, seed: 1..3))

      assert contents(ChatContext.spawn_child(parent, seed: 1..1, from: "b", input: "x")) == [
               "one",
               "two",
               "x"
             ]

      assert reason_of(fn -> ChatContext.spawn_child(parent, seed: 1..2, from: "b") end) ==
               {:unknown_iteration, 2, 1..1}
    end

    test "shows it no more of the text than the parent's view does" do
      parent =
        ChatContext.update_context(
          parent(),
          &(&1
            |> Context.View.put_masks([{"secret \\d+", "[hidden]"}])
            |> Context.View.put_max_result_bytes(500))
        )

      parent = ChatContext.update_context(parent, &Context.View.hide(&1, {:all_but_last, 1}))
      child = ChatContext.spawn_child(parent, seed: 2..3)
      refute inspect(Context.to_messages(context(child))) =~ "secret"
      assert %{hidden: [], blocks: [], max_result_bytes: 500} = Context.View.view(context(child))
      assert length(contents(child)) == 4
    end

    test "leaves the parent as it was, and lives without it" do
      parent = parent()
      before = ChatContext.dump(parent)
      child = ChatContext.spawn_child(parent, seed: 1..3)
      ChatContext.update_context(child, &Context.add_user_message(&1, "more"))
      assert ChatContext.dump(parent) == before
      assert ChatContext.equal?(child, ChatContext.load!(ChatContext.dump(child)))
    end

    test "works where the first iterations are gone" do
      {:ok, late} =
        Context.create(iterations: [%{number: 5, messages: [%{role: :user, content: "five"}]}])

      parent = ChatContext.new(context: late)
      assert contents(ChatContext.spawn_child(parent, seed: 5..5)) == ["five"]

      assert {:unknown_iteration, 4, 5..5} =
               reason_of(fn -> ChatContext.spawn_child(parent, seed: 4..5) end)
    end

    test "is refused while the seed's calls are pending, and for wrong options" do
      parent =
        ChatContext.update_context(
          parent(),
          &Context.add_assistant_message(&1, nil, [%{id: "x", name: :spawn}])
        )

      assert reason_of(fn -> ChatContext.spawn_child(parent, seed: 1..3) end) ==
               {:pending_tool_calls, ["x"]}

      assert [_ | _] = contents(ChatContext.spawn_child(parent, seed: 1..2, input: "task"))

      assert {:unknown_iteration, 4, 1..3} =
               reason_of(fn -> ChatContext.spawn_child(parent, seed: 2..4) end)

      assert {:unknown_branch, "x", _} =
               reason_of(fn -> ChatContext.spawn_child(parent, from: "x") end)

      for opts <- [
            [seed: 0..1],
            [seed: 1..3//2],
            [seed: 3..1//-1],
            [seed: 1],
            [seed: :all],
            [id: parent.id],
            [id: ""],
            [input: 1],
            [input: 1, seed: 1..1],
            [at: 1],
            [at: 1, seed: 1..1],
            [branch: ""],
            [config: 1],
            [system_prompt: 1],
            [context: Context.new("x")]
          ],
          do: assert_caller_bug(fn -> ChatContext.spawn_child(parent, opts) end)
    end
  end

  describe "complete_child/4" do
    defp worked(child) do
      ChatContext.update_context(child, fn context ->
        context
        |> Context.add_assistant_message("done")
        |> Context.Tokens.add_token_usage(%{input_tokens: 7, output_tokens: 2})
      end)
    end

    test "appends one message with the summary, the child's id and its usage" do
      parent = parent()
      child = ChatContext.spawn_child(parent, seed: 1..3, input: "task", id: "c") |> worked()
      done = ChatContext.complete_child(parent, child, "All is well.", at: @at)
      assert Context.count_messages(context(done)) == Context.count_messages(context(parent)) + 1

      assert [
               %{
                 role: :user,
                 content: "All is well.",
                 metadata: %{child: %{id: "c", usage: usage}}
               }
             ] = Context.get_iteration_messages(context(done), 4)

      assert usage == %{
               input_tokens: 7,
               output_tokens: 2,
               total_tokens: 9,
               cached_tokens: 0,
               cache_write_tokens: 0,
               reasoning_tokens: 0
             }

      assert ChatContext.equal?(done, ChatContext.load!(ChatContext.dump(done)))

      assert Context.request!(context(done), :anthropic)["messages"] |> List.last() == %{
               "role" => "user",
               "content" => "All is well."
             }
    end

    test "goes to the branch that is named" do
      parent = ChatContext.branch(parent(), "b")
      child = ChatContext.spawn_child(parent)
      done = ChatContext.complete_child(parent, child, [%{type: :text, text: "ok"}], branch: "b")
      assert contents(done) == contents(parent)

      assert [%{type: :text, text: "ok"}] =
               done.branches["b"].context
               |> Context.to_messages()
               |> List.last()
               |> Map.fetch!(:content)

      assert {:unknown_branch, "x", _} =
               reason_of(fn -> ChatContext.complete_child(parent, child, "ok", branch: "x") end)
    end

    test "works for children of children, and after parent and child were stored" do
      parent = parent()
      child = ChatContext.spawn_child(parent, input: "task")
      grandchild = ChatContext.spawn_child(child, input: "part of it")

      [parent, child, grandchild] =
        for chat <- [parent, child, grandchild], do: ChatContext.load!(ChatContext.dump(chat))

      child = ChatContext.complete_child(child, worked(grandchild), "part done")

      assert reason_of(fn -> ChatContext.complete_child(parent, grandchild, "x") end) ==
               {:not_a_child, grandchild.id, parent.id}

      assert List.last(contents(ChatContext.complete_child(parent, child, "done"))) == "done"
    end

    test "is refused for others' children, for no child, and while calls are pending" do
      parent = parent()
      child = ChatContext.spawn_child(parent)

      for other <- [ChatContext.spawn_child(ChatContext.new(id: "q")), ChatContext.new(), parent] do
        assert reason_of(fn -> ChatContext.complete_child(parent, other, "x") end) ==
                 {:not_a_child, other.id, "p"}
      end

      busy =
        ChatContext.update_context(
          parent,
          &Context.add_assistant_message(&1, nil, [%{id: "x", name: :spawn}])
        )

      assert reason_of(fn -> ChatContext.complete_child(busy, child, "x") end) ==
               {:pending_tool_calls, ["x"]}

      for summary <- [nil, 1, :done, %{}],
          do: assert_caller_bug(fn -> ChatContext.complete_child(parent, child, summary) end)

      assert_caller_bug(fn -> ChatContext.complete_child(parent, child, "x", to: "main") end)
    end
  end
end
