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
