if Code.ensure_loaded?(MyApp.DataCase) do
  defmodule MyApp.AuthorityTest do
    # Authority does not move with the button.
    use MyApp.DataCase, async: true

    alias AshAgent.{Context, Conversation.Error, Conversation.Info, Store}
    alias AshAgent.TestSupport.Wait
    alias MyApp.Chat.{Case, Conversation, Note, Phone, PhoneIteration}

    @call %{id: "1", name: "note_write", arguments: %{"text" => "x"}}

    setup do
      ann = user("ann")
      mia = user("mia", :manager)
      %{ann: [actor: ann, tenant: "acme"], mia: [actor: mia, tenant: "acme"]}
    end

    defp with_model(opts, answers, shared \\ %{}),
      do: [context: Map.put(answers(answers), :shared, shared)] ++ opts

    defp reason({:error, %{errors: [%Error{reason: reason}]}}), do: reason

    test "tools run as who asked, whoever approves and resumes", %{ann: ann, mia: mia} do
      asked = with_model(ann, [%{tool_calls: [@call]}], %{locale: "de"})
      chat = Conversation.start!(%{input: "Write it down"}, asked)
      assert {:error, %Ash.Error.Forbidden{}} = Conversation.approve(chat, "1", ann)
      chat = Conversation.approve!(chat, "1", mia)
      chat = Conversation.resume!(chat, with_model(mia, ["Done."], %{locale: "fr"}))
      assert chat.__metadata__.run.output == "Done."

      assert [note] = Ash.read!(Note, tenant: "acme", authorize?: false)
      assert {note.author_id, note.locale} == {ann[:actor].id, "de"}

      context = Ash.load!(chat, :context, ann).context
      assert Context.Calls.tool_call_decision(context, "1").by == "user:#{mia[:actor].id}"

      # Who went on with it, and nothing of whose rights it had.
      assert [%{"by" => first}, %{"by" => second}] =
               Context.get_iteration(context, 1).metadata["runtime_context"]

      assert {first, second} == {"user:#{ann[:actor].id}", "user:#{mia[:actor].id}"}
    end

    # The session's part.
    if Code.ensure_loaded?(AshAgent.Session) and
         function_exported?(AshAgent.Session, :take_arrivals, 1) do
      test "so do those of a turn that a late result wakes, whoever brings it", %{
        ann: ann,
        mia: mia
      } do
        asked = with_model(ann, ["I start it."], %{locale: "de"})
        chat = Conversation.start!(%{input: "Build it"}, asked)
        store = Info.store(Conversation, "acme")
        key = Info.key(chat)

        free? = fn status ->
          {:ok, kept} = Store.fetch(store, key)
          {kept.owner, kept.status} == {nil, status}
        end

        assert Wait.until(fn -> free?.(:idle) end)
        {:ok, kept} = Store.fetch(store, key)

        context =
          kept.value
          |> Context.add_assistant_message(nil, [%{id: "b", name: :build}])
          |> Context.add_tool_results([{"b", {:waiting, %{handle: "build #{chat.id}"}}}])
          |> Context.add_assistant_message("It runs.")

        {:ok, _} = Store.append(store, kept, context)
        brought = with_model(mia, [%{tool_calls: [@call]}], %{locale: "fr"})
        Conversation.arrive!(chat, "build #{chat.id}", %{text: "green"}, brought)
        assert Wait.until(fn -> free?.(:paused) end)
        chat = Conversation.approve!(chat, "1", mia)
        Conversation.resume!(chat, with_model(mia, ["Done."], %{locale: "fr"}))
        assert [note] = Ash.read!(Note, tenant: "acme", authorize?: false)
        assert {note.author_id, note.locale} == {ann[:actor].id, "de"}
      end
    end

    test "so do those of a turn whose model was asked again for a typed answer", %{
      ann: ann,
      mia: mia
    } do
      typed = fn opts, answers ->
        model = [output: [n: :integer], output_mode: :text]
        update_in(with_model(opts, answers)[:context].ash_agent.options, &(&1 ++ model))
      end

      asked = typed.(ann, ["none", %{tool_calls: [@call]}])
      chat = Conversation.start!(%{input: "Write it down"}, asked)
      chat = Conversation.approve!(chat, "1", mia)
      chat = Conversation.resume!(chat, typed.(mia, [~s({"n": 1})]))
      assert chat.__metadata__.run.output == %{n: 1}
      assert [%{author_id: author}] = Ash.read!(Note, tenant: "acme", authorize?: false)
      assert author == ann[:actor].id
    end

    test "so do those of a turn that was asked for beside a message without an answer", %{
      ann: ann,
      mia: mia
    } do
      assert {:error, _} = Conversation.start(%{input: "Hi"}, with_model(ann, []))
      [chat] = Ash.read!(Conversation, ann)
      chat = Conversation.say!(chat, "Write it down", with_model(mia, [%{tool_calls: [@call]}]))
      chat = Conversation.approve!(chat, "1", mia)
      Conversation.resume!(chat, with_model(ann, ["Done."]))
      assert [%{author_id: author}] = Ash.read!(Note, tenant: "acme", authorize?: false)
      assert author == mia[:actor].id
    end

    test "so do messages that waited", %{ann: ann, mia: mia} do
      chat = Conversation.start!(%{}, ann)
      store = Info.store(Conversation, "acme")

      {:ok, claim} =
        Store.claim(store, Info.key(chat), owner: "another cluster", status: :running)

      Conversation.say!(chat, "Write it down", with_model(ann, [], %{locale: "de"}))
      {:ok, _} = Store.release(store, claim, status: :idle)

      model = [
        approval: :auto,
        llm: AshAgent.LLM.Scripted.new([%{tool_calls: [@call]}, "Done."])
      ]

      Conversation.resume!(chat, [context: %{ash_agent: %{options: model}}] ++ mia)
      assert [%{locale: "de"} = note] = Ash.read!(Note, tenant: "acme", authorize?: false)
      assert note.author_id == ann[:actor].id
    end

    test "an actor that cannot be found again can resume, and nobody else as them" do
      model = fn answers ->
        [
          llm: AshAgent.LLM.Scripted.new(answers),
          tools: %{pay: fn _arguments, context -> {:ok, context.actor.name} end},
          approval: fn _call, _context -> :ask end
        ]
      end

      opts = &[actor: &1, context: %{ash_agent: %{options: model.(&2)}}]
      someone = %{id: "s1", name: "someone"}
      call = %{tool_calls: [%{id: "1", name: "pay"}]}
      chat = Case.start!(%{input: "Pay"}, opts.(someone, [call]))
      chat = Case.approve!(chat, "1", actor: %{id: "m1"})
      other = opts.(%{id: "m1", name: "other"}, ["Paid."])
      assert reason(Case.resume(chat, other)) == :no_actor
      assert reason(Case.resume(chat, opts.(nil, ["Paid."]))) == :no_actor
      assert {:ok, chat} = Case.resume(chat, opts.(%{someone | name: "new name"}, ["Paid."]))
      context = Ash.load!(chat, :context).context
      assert [%{result: {:ok, "new name"}}] = Context.get_iteration(context, 1).tool_calls
    end

    test "who asked is shown nowhere, and the transcript has no system prompt", %{ann: ann} do
      chat = Conversation.start!(%{input: "Hi", metadata: %{"from" => "web"}}, ann)
      chat = Ash.load!(chat, [:transcript, iterations: :content], ann)

      assert [%{role: :user, metadata: %{"from" => "web"} = metadata}, %{role: :assistant}] =
               chat.transcript

      assert map_size(metadata) == 1
      assert [%{content: %{messages: messages}}] = chat.iterations
      refute inspect(messages, limit: :infinity) =~ ann[:actor].id
    end

    test "a field policy on the transcript covers the same words in iterations", %{ann: ann} do
      ann = [actor: ann[:actor]]
      chat = Phone.start!(%{input: "SECRET"}, ann)
      desk = [actor: user("desk", :desk)]

      seen =
        Ash.get!(Phone, chat.id, [load: [:transcript, :status, iterations: :content]] ++ desk)

      assert %Ash.ForbiddenField{} = seen.transcript
      assert seen.status == :idle
      assert [%{content: %Ash.ForbiddenField{}}] = seen.iterations

      assert [%{content: %Ash.ForbiddenField{}}] =
               Ash.read!(PhoneIteration, [load: :content] ++ desk)

      assert [%{content: %{messages: [_ | _]}}] =
               Ash.read!(PhoneIteration, [load: :content] ++ ann)
    end

    test "deny works with options only", %{ann: ann, mia: mia} do
      start = fn ->
        Conversation.start!(%{input: "Write"}, with_model(ann, [%{tool_calls: [@call]}]))
      end

      assert {:ok, _} = Conversation.deny(start.(), "1", mia)
      assert {:ok, chat} = Conversation.deny(start.(), "1", "no", mia)

      assert %{reason: "no"} =
               Context.Calls.tool_call_decision(Ash.load!(chat, :context, ann).context, "1")

      assert {:error, %Ash.Error.Forbidden{}} = Conversation.deny(start.(), "1", ann)
      refute Conversation.can_deny?(ann[:actor], start.(), "1", tenant: "acme")
    end

    test "others hear of a message when it is stored, and not when the model is done", %{ann: ann} do
      chat = Conversation.start!(%{}, ann)
      test = self()

      llm = fn _context ->
        send(test, {:asked, self()})
        receive do: (:go -> {:ok, %{content: "Hello."}})
      end

      MyApp.Heard.listen(chat.id)
      opts = [context: %{ash_agent: %{options: [llm: llm]}}] ++ ann
      task = Task.async(fn -> Conversation.say!(chat, "Hi", opts) end)
      assert_receive {:asked, model}
      assert_received {:heard, :delta, %{said: id}} when is_binary(id)
      send(model, :go)
      Task.await(task)
      assert_received {:heard, :delta, %{ended: :answered}}
    end

    test "a page that comes later follows the turn from what has come so far", %{ann: ann} do
      chat = Conversation.start!(%{}, ann)
      subscribe = fn -> AshAgent.Conversation.subscribe(chat, tenant: "acme") end
      assert subscribe.() == :idle
      test = self()

      llm = fn _context ->
        send(test, {:asked, self()})
        receive do: (:go -> {:ok, %{content: "Hello."}})
      end

      opts = [context: %{ash_agent: %{options: [llm: llm]}}] ++ ann
      task = Task.async(fn -> Conversation.say!(chat, "Hi", opts) end)
      assert_receive {:asked, model}
      assert {:ok, ref, %{context: context}} = subscribe.()
      # A conversation of this name in another tenant is another one.
      assert AshAgent.Conversation.subscribe(chat, tenant: "other") == :idle
      assert [%{role: :user, content: "Hi"}] = Enum.take(Context.to_messages(context), -1)
      send(model, :go)
      assert_receive {AshAgent.Session, ^ref, _number, {:context, context}}

      assert [%{role: :assistant, content: "Hello."}] =
               Enum.take(Context.to_messages(context), -1)

      Task.await(task)
      assert_receive {:DOWN, ^ref, :process, _session, _reason}
      assert subscribe.() == :idle
    end

    test "errors belong to a field or to the form", %{ann: ann} do
      chat = Conversation.start!(%{input: "Write"}, with_model(ann, [%{tool_calls: [@call]}]))

      for {answer, field} <- [
            {Conversation.say(chat, "", ann), :input},
            {Conversation.say(chat, nil, %{parts: [%{"type" => "dance"}]}, ann), :input},
            {Conversation.say(chat, "Well?", ann), :_form}
          ] do
        assert {:error, %{errors: [error]}} = answer
        assert Error.field(error) == field
        assert {^field, words, []} = Error.to_form_error(error)
        assert words == "write something" or Exception.message(error) =~ words

        if Code.ensure_loaded?(AshPhoenix.FormData.Error) do
          assert {field, words, []} == apply(AshPhoenix.FormData.Error, :to_form_error, [error])
        end
      end
    end
  end
end
