# The same in memory and in PostgreSQL.
for {resource, moduletags, integrations} <- [
      {AshAgent.Integration.Memo, [:ash], ["Ash"]},
      {AshAgent.Integration.Row, [:ash, :postgres],
       ["Ash", "AshPostgres", "Postgrex", "PostgreSQL"]}
    ],
    Code.ensure_loaded?(resource) do
  defmodule Module.concat(
              AshAgent.Integration.AshTest,
              resource |> Module.split() |> List.last()
            ) do
    use ExUnit.Case, async: false

    require Ash.Query

    alias AshAgent.{ChatContext, Context}
    alias AshAgent.Context.Embedded
    alias AshAgent.Integration.{Repo, Row}

    for tag <- moduletags, do: @moduletag(tag)
    # Ash logs what it does.
    @moduletag :capture_log
    @moduletag integrations: integrations

    @resource resource

    if :postgres in moduletags do
      setup_all do
        Repo.query!("DROP TABLE IF EXISTS rows")
        Repo.query!(Row.table())
        :ok
      end

      setup do
        Repo.query!("TRUNCATE rows")
        :ok
      end
    end

    setup do
      context =
        Context.new("Weather?",
          system_prompt: "Be brief.",
          metadata: %{user_id: 7, at: ~D[2026-01-01]}
        )
        |> Context.add_assistant_message(nil, [
          %{id: "a", name: :get_weather, arguments: %{city: "NYC"}}
        ])
        |> Context.add_tool_results([{"a", {:ok, {:temp, 72}}}])

      %{context: context}
    end

    # A call that waits, approved by somebody.
    defp approved do
      Context.new("Clean up", metadata: %{file: %File.Stream{path: "/etc/hostname"}})
      |> Context.add_assistant_message(nil, [
        %{id: "a", name: "rm", arguments: %{"path" => "/"}}
      ])
      |> Context.Calls.approve_tool_call("a", by: "the boss")
    end

    defp chat(context) do
      ChatContext.new(context: context)
      |> ChatContext.branch("idea", iteration: 1)
      |> ChatContext.update_context(&Context.add_assistant_message(&1, "72."))
    end

    defp create(attributes),
      do: @resource |> Ash.Changeset.for_create(:create, attributes) |> Ash.create!()

    defp update(record, attributes),
      do: record |> Ash.Changeset.for_update(:update, attributes) |> Ash.update!()

    defp read(record), do: Ash.get!(@resource, record.id)

    defp errors(attributes) do
      changeset = Ash.Changeset.for_create(@resource, :create, attributes)
      refute changeset.valid?
      Enum.map(changeset.errors, & &1.message)
    end

    defp parameters(context), do: context |> Context.to_snapshot() |> Context.JSON.decode!()

    test "an attribute is stored and read, and lists of them", %{context: context} do
      record =
        create(%{context: context, text: context, bytes: context, list: [context, context]})

      assert Context.equal?(record.context, context)
      read = read(record)

      for field <- [:context, :text, :bytes],
          do: assert(Context.equal?(Map.fetch!(read, field), context))

      assert [one, two] = read.list
      assert Context.equal?(one, context) and Context.equal?(two, context)
      assert [%{context: %Context{}}] = Ash.read!(@resource)
      assert create(%{}).context == nil
      assert read(create(%{})).text == nil
    end

    test "a chat is stored and read", %{context: context} do
      chat = chat(context)
      read = read(create(%{chat: chat, chat_text: chat}))
      assert ChatContext.equal?(read.chat, chat)
      assert ChatContext.equal?(read.chat_text, chat)
    end

    test "what was stored comes back with approvals and structs" do
      context = approved()

      read =
        read(
          create(%{
            context: context,
            text: context,
            bytes: context,
            chat: ChatContext.new(context: context)
          })
        )

      for read <- [read.context, read.text, read.bytes, ChatContext.active(read.chat).context] do
        assert Context.Calls.tool_call_status(read, "a") == :approved
        assert %File.Stream{} = Context.metadata(read).file
      end
    end

    test "an equal context is no change", %{context: context} do
      record = create(%{context: context, text: context, chat: chat(context)})
      copy = Context.load!(Context.dump(context))

      for record <- [record, read(record)] do
        changeset =
          Ash.Changeset.for_update(record, :update, %{
            context: copy,
            text: copy,
            chat: chat(copy)
          })

        for field <- [:context, :text],
            do: refute(Ash.Changeset.changing_attribute?(changeset, field))
      end

      later = Context.add_user_message(context, "And now?")
      updated = update(record, %{context: later, text: later})
      assert Context.equal?(read(updated).context, later)
      assert Context.equal?(read(updated).text, later)
    end

    test "queries compare contents", %{context: context} do
      record = create(%{context: context, text: context, chat: chat(context)})
      other = Context.add_user_message(context, "And now?")
      create(%{context: other, text: other, chat: ChatContext.new(context: other)})
      copy = Context.load!(Context.dump(context))
      chat = ChatContext.load!(ChatContext.dump(record.chat))

      found = fn query -> query |> Ash.read!() |> Enum.map(& &1.id) end
      assert found.(Ash.Query.filter(@resource, context == ^copy)) == [record.id]
      assert found.(Ash.Query.filter(@resource, text == ^copy)) == [record.id]
      assert found.(Ash.Query.filter(@resource, chat == ^chat)) == [record.id]
      assert found.(Ash.Query.filter(@resource, context in ^[copy])) == [record.id]
      assert length(found.(Ash.Query.filter(@resource, context != ^copy))) == 1
      assert found.(Ash.Query.filter(@resource, is_nil(context))) == []
      assert length(found.(Ash.Query.filter(@resource, not is_nil(context)))) == 2
    end

    test "calculations and bulk actions keep what they are given", %{context: context} do
      chat = chat(context)

      %{status: :success, records: records} =
        Ash.bulk_create(
          [%{context: context, chat: chat}, %{context: context}],
          @resource,
          :create,
          return_records?: true
        )

      assert Enum.all?(records, &Context.equal?(&1.context, context))
      later = Context.add_user_message(context, "And now?")

      assert %{status: :success} =
               @resource
               |> Ash.Query.filter(not is_nil(chat))
               |> Ash.bulk_update(:update, %{context: later}, strategy: [:atomic, :stream])

      assert [one] =
               @resource
               |> Ash.Query.filter(context == ^later)
               |> Ash.Query.load([:copy, :chat_copy])
               |> Ash.read!()

      assert Context.equal?(one.copy, later)
      assert ChatContext.equal?(one.chat_copy, chat)
    end

    test "parameters are contexts, and nothing else", %{context: context} do
      for input <- [
            Context.dump(context),
            Context.to_map(context),
            Context.to_snapshot(context),
            parameters(context),
            [%{"role" => "user", "content" => "hi"}],
            %{},
            %{"version" => 1},
            7
          ] do
        assert [message] = errors(%{context: input})
        assert message =~ "expected a context"
      end

      changeset = Ash.ActionInput.for_action(@resource, :count, %{context: Context.dump(context)})

      refute changeset.valid?
    end

    test "an empty map takes no conversation away, nil does", %{context: context} do
      record = create(%{context: context, given: context, limited: Context.new("hi")})

      for field <- [:context, :given, :limited],
          input <- [%{}, %{iterations: []}, %{"iterations" => []}, []] do
        changeset = Ash.Changeset.for_update(record, :update, %{field => input})
        refute changeset.valid?
      end

      assert Context.equal?(read(record).given, context)
      assert read(update(record, %{given: nil})).given == nil
    end

    test "an attribute that is meant to, takes messages and dumps", %{context: context} do
      for input <- [Context.dump(context), parameters(context), Context.to_snapshot(context)],
          field <- [:given, :text],
          do:
            assert(
              Context.metadata(Map.fetch!(read(create(%{field => input})), field)).user_id == 7
            )

      messages = [
        %{"role" => "user", "content" => "hi"},
        %{"role" => "assistant", "content" => "Hello!"}
      ]

      for input <- [
            messages,
            %{"iterations" => [%{"messages" => messages}]},
            %{iterations: [%{messages: messages}]}
          ] do
        assert [%{content: "hi"}, %{content: "Hello!"}] =
                 Context.to_messages(read(create(%{given: input})).given)
      end

      assert Context.equal?(create(%{given: Context.to_map(context)}).given, context)
      assert [message] = errors(%{given: %{"version" => 1, "id" => 7}})
      assert message =~ ~s(at ["id"])
    end

    test "parameters approve nothing and bring no structs" do
      for input <- [parameters(approved()), Context.to_snapshot(approved())] do
        given = create(%{given: input}).given
        assert Context.Calls.tool_call_status(given, "a") == :pending
        assert Context.Calls.tool_call_decision(given, "a") == nil
        refute is_struct(Context.metadata(given).file)
      end

      chat = ChatContext.to_snapshot(ChatContext.new(context: approved()))
      context = ChatContext.active(create(%{chat_text: chat}).chat_text).context
      assert Context.Calls.tool_call_status(context, "a") == :pending
      refute is_struct(Context.metadata(context).file)
    end

    test "parameters set no settings of a chat" do
      chat = ChatContext.new(input: "hi", config: [allowed_tools: ["rm"]])
      assert [message] = errors(%{chat_text: ChatContext.dump(chat)})
      assert message =~ ~s(without "config")
      assert create(%{chat_text: chat}).chat_text.config.allowed_tools == ["rm"]
    end

    test "limits hold for whatever is given", %{context: context} do
      long = Context.new(String.duplicate("x", 100_000))

      for input <- [long, Context.dump(long), Context.to_snapshot(long)] do
        assert [message] = errors(%{given: input})
        assert message =~ "at most 100000 bytes"
      end

      assert [message] =
               errors(%{
                 limited:
                   Context.add_user_message(Context.add_assistant_message(context, "72."), "?")
               })

      assert message =~ "at most 2 iterations, got 3"
      assert Context.equal?(read(create(%{limited: context})).limited, context)
    end

    test "an action takes one as an argument", %{context: context} do
      count =
        @resource
        |> Ash.ActionInput.for_action(:count, %{context: context})
        |> Ash.run_action!()

      assert count == Context.count_messages(context)
    end

    test "an embedded resource holds one", %{context: context} do
      record = create(%{profile: %{name: "a", context: context}})
      assert Context.equal?(read(record).profile.context, context)
    end

    test "the embedded resource loses nothing", %{context: context} do
      for context <- [context, approved()] do
        stored = read(create(%{embedded: Embedded.from_context(context)})).embedded
        assert {:ok, copy} = Embedded.to_context(stored)
        assert Context.equal?(copy, context)
      end
    end

    test "an unchanged conversation in the embedded resource is no change", %{context: context} do
      record = create(%{embedded: Embedded.from_context(context)})

      for record <- [record, read(record)] do
        copy = Embedded.from_context(Context.load!(Context.dump(context)))
        changeset = Ash.Changeset.for_update(record, :update, %{embedded: copy})
        refute Ash.Changeset.changing_attribute?(changeset, :embedded)
      end

      later = Embedded.from_context(Context.add_assistant_message(context, "72."))
      changeset = Ash.Changeset.for_update(record, :update, %{embedded: later})
      assert Ash.Changeset.changing_attribute?(changeset, :embedded)
    end

    test "a record shows no messages", %{context: context} do
      record =
        read(
          create(%{
            context: context,
            text: context,
            embedded: Embedded.from_context(context),
            chat: chat(context)
          })
        )

      refute inspect(record, limit: :infinity, printable_limit: :infinity) =~ ~r/Weather|brief/
    end
  end
end
