if Code.ensure_loaded?(MyApp.DataCase) do
  defmodule MyApp.ActionsTest do
    # To extend, not to lose.
    use MyApp.DataCase, async: true

    alias AshAgent.Integration.Compiled
    alias MyApp.Chat.Case

    test "actions of one's own start and say" do
      chat = Ash.create!(Case, %{topic: "tea"}, action: :open)
      assert chat.__metadata__.run.output == "You said: About tea"
      chat = Ash.update!(chat, %{input: "More"}, action: :ask)
      assert chat.__metadata__.run.output == "You said: More"
      assert {:error, %Ash.Error.Invalid{}} = Ash.update(chat, %{}, action: :ask)
    end

    test "a create action without a conversation is a warning that says what to add" do
      compile = fn section ->
        Compiled.said(AshAgent.Conversation, """
        actions do
          create :import
        end

        conversation do
          llm AshAgent.LLM.Ollama
          store :s
          #{section}
        end
        """)
      end

      said = compile.("")
      assert said =~ "the create action :import of"
      assert said =~ "change {AshAgent.Conversation.Change, does: :start}"
      refute compile.("without_conversation [:import]") =~ "create action"
    end

    test "an agent as a tool gives the model its answer" do
      [tool] = AshAgent.Tools.actions(MyApp.Chat.Adviser, [:call])
      assert {:ok, answer} = tool.run.(%{"message" => "What?"}, %{})
      assert %{"content" => "Tea.", "score" => 7} = answer
    end

    test "an agent's answer is of its output type, as an action and as a tool" do
      reply = AshAgent.Integration.Reply
      assert %{returns: ^reply} = action = Ash.Resource.Info.action(MyApp.Chat.Adviser, :answer)
      assert Enum.map(action.arguments, & &1.name) == [:message]
      input = Ash.ActionInput.for_action(MyApp.Chat.Adviser, :answer, %{message: "What?"})
      assert %{__struct__: ^reply, content: "Tea.", score: 7} = Ash.run_action!(input)

      [tool] = AshAgent.Tools.actions(MyApp.Chat.Adviser, [:answer])
      assert {:ok, %{"content" => "Tea.", "score" => 7}} = tool.run.(%{"message" => "What?"}, %{})
    end

    test "an answer that waits for a decision is an error to go on from" do
      call = %{tool_calls: [%{id: "1", name: "pay", arguments: %{}}]}

      options = [
        llm: AshAgent.LLM.Scripted.new([call]),
        tools: %{pay: fn _arguments -> {:ok, 1} end},
        approval: fn _call, _context -> :ask end
      ]

      context = %{ash_agent: %{options: options}}

      input =
        Ash.ActionInput.for_action(MyApp.Chat.Adviser, :answer, %{message: "Pay"},
          context: context
        )

      assert {:error, %{errors: [%{reason: :paused, context: %AshAgent.Context{}}]}} =
               Ash.run_action(input)
    end

    test "a change that does nothing known is refused" do
      body = """
      actions do
        update :sing do
          change {AshAgent.Conversation.Change, does: :sing}
        end
      end

      conversation do
        llm AshAgent.LLM.Ollama
        store :s
      end
      """

      assert Compiled.said(AshAgent.Conversation, body) =~ "expected does: with one of :start"
    end
  end
end
