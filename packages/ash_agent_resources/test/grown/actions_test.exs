if Code.ensure_loaded?(MyApp.DataCase) do
  defmodule MyApp.ActionsTest do
    # To extend, not to lose.
    use MyApp.DataCase, async: false

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

    test "a record without a conversation is idle, and begins one with its first message" do
      start_supervised!({AshAgent.Store.SQLite, name: MyApp.Chat.MemoryStore, path: ":memory:"})

      for {resource, record} <- [
            {Case, Ash.create!(Case, %{}, action: :import)},
            {MyApp.Chat.Memory, Ash.create!(MyApp.Chat.Memory, %{id: 70}, action: :import)}
          ] do
        assert %{status: :idle, last_outcome: nil} = Ash.load!(record, [:status, :last_outcome])

        if resource == Case,
          do: assert([_] = Ash.read!(Ash.Query.do_filter(Case, status: :idle, id: record.id)))

        record = resource.say!(record, "Hi")
        assert record.__metadata__.run.output == "You said: Hi"
        assert [%{content: "Hi"}, _answer] = Ash.load!(record, :transcript).transcript
      end
    end

    test "what else is done with it says how to go on" do
      bare = Ash.create!(Case, %{}, action: :import)
      assert {:error, error} = Case.resume(bare)
      assert Exception.message(error) =~ "say something to begin one"

      id = Case.start!().id
      opts = [upsert?: true]
      changeset = Ash.Changeset.for_create(Case, :start, %{}, opts)
      changeset = Ash.Changeset.force_change_attribute(changeset, :id, id)
      assert {:error, error} = Ash.create(changeset, opts)
      assert Exception.message(error) =~ "has a conversation already"
    end

    test "what is said twice with a key is said once" do
      chat = Case.start!()
      Case.say!(chat, "Pay", %{key: "form-1"})
      Case.say!(chat, "Pay", %{key: "form-1"})
      texts = for %{content: text} <- Ash.load!(chat, :transcript).transcript, do: text
      assert texts == ["Pay", "You said: Pay"]
      Case.say!(chat, "Pay", %{key: "form-2"})
      assert length(Ash.load!(chat, :transcript).transcript) == 4
    end

    test "an upsert that begins a conversation is refused" do
      for does <- [:start, :fork] do
        body = """
        attributes do
          attribute :email, :string
        end

        identities do
          identity :email, [:email], pre_check_with: AshAgent.Integration.Open
        end

        actions do
          create :open do
            upsert? true
            upsert_identity :email
            change {AshAgent.Conversation.Change, does: #{inspect(does)}}
          end
        end

        conversation do
          llm AshAgent.LLM.Ollama
          store :s
        end
        """

        assert Compiled.said(AshAgent.Conversation, body) =~
                 "[:open] are upserts that begin a conversation"
      end
    end

    test "a list of actions says what :delta is" do
      action = Ash.Resource.Info.action(Case, :delta)
      assert action.description =~ "Do not call it"
      # Newer releases of Ash keep such actions from APIs.
      assert Map.get(action, :public?, false) == false
    end

    # As `AshAdmin.Resource.update_actions/1` reads it.
    defp offered(resource),
      do: Spark.Dsl.Extension.get_opt(resource, [:admin], :update_actions, nil, true)

    test "the pages of AshAdmin offer all update actions but :delta, unless the resource names some" do
      for resource <- [Case, MyApp.Chat.Conversation, MyApp.Chat.Memory] do
        all = for %{type: :update, name: name} <- Ash.Resource.Info.actions(resource), do: name
        assert :delta in all and :say in all
        assert Enum.sort(offered(resource)) == Enum.sort(all -- [:delta])
      end

      assert :rename in offered(MyApp.Chat.Conversation)
      assert offered(MyApp.Chat.Note) == nil
    end

    test "an agent's call is of its output type, as an action and as a tool" do
      reply = AshAgent.Integration.Reply
      assert %{returns: ^reply} = action = Ash.Resource.Info.action(MyApp.Chat.Adviser, :call)
      assert Enum.map(action.arguments, & &1.name) == [:message]
      input = Ash.ActionInput.for_action(MyApp.Chat.Adviser, :call, %{message: "What?"})
      assert %{__struct__: ^reply, content: "Tea.", score: 7} = Ash.run_action!(input)

      for name <- [:call, :run] do
        [tool] = AshAgent.Tools.actions(MyApp.Chat.Adviser, [name])

        assert {:ok, %{"content" => "Tea.", "score" => 7}} =
                 tool.run.(%{"message" => "What?"}, %{})
      end
    end

    test "the result of a run has the conversation, to go on with" do
      input = Ash.ActionInput.for_action(MyApp.Chat.Adviser, :run, %{message: "What?"})
      assert %{output: %{content: "Tea."}, context: context} = Ash.run_action!(input)
      more = %{message: "And then?", context: context}
      result = Ash.run_action!(Ash.ActionInput.for_action(MyApp.Chat.Adviser, :run, more))

      asked =
        for %{role: :user, content: text} when is_binary(text) <-
              AshAgent.Context.to_messages(result.context),
            do: text

      assert asked == ["What?", "And then?"]
    end

    test "a call that a tool ends with something else is an error" do
      tools = %{act: fn _arguments -> {:halt, 7} end}
      assert %{reason: {:invalid_output, _}, context: %AshAgent.Context{}} = failed(tools: tools)
    end

    # What a call of the adviser ends with whose model wants to act.
    defp failed(options) do
      call = %{tool_calls: [%{id: "1", name: "act", arguments: %{}}]}
      options = [llm: AshAgent.LLM.Scripted.new([call])] ++ options
      context = %{ash_agent: %{options: options}}

      assert {:error, %{errors: [error]}} =
               MyApp.Chat.Adviser
               |> Ash.ActionInput.for_action(:call, %{message: "Act"}, context: context)
               |> Ash.run_action()

      error
    end

    test "an answer that waits for a decision is an error to go on from" do
      options = [tools: %{act: fn _ -> {:ok, 1} end}, approval: fn _call, _context -> :ask end]
      assert %{reason: :paused, context: %AshAgent.Context{}} = failed(options)
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
