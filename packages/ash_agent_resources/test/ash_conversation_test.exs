alias AshAgent.Integration.{MemoryChat, SchemaChat, TableChat}

# In memory beside SQLite, and in PostgreSQL with tenants by attribute and by schema.
for {resource, moduletags, integrations} <- [
      {MemoryChat, [:ash], ["Ash"]},
      {TableChat, [:ash, :postgres], ["Ash", "AshPostgres", "Postgrex", "PostgreSQL"]},
      {SchemaChat, [:ash, :postgres], ["Ash", "AshPostgres", "Postgrex", "PostgreSQL"]}
    ],
    Code.ensure_loaded?(resource) do
  defmodule Module.concat(
              AshAgent.Integration.ConversationTest,
              resource |> Module.split() |> List.last()
            ) do
    use ExUnit.Case, async: false

    import AshAgent.TestSupport.Wait, only: [until: 1]

    alias AshAgent.{Context, Conversation, LLM, Store}
    alias AshAgent.Integration.{Chats, Repo}
    alias AshAgent.Runtime.{Paused, Result}

    for tag <- moduletags, do: @moduletag(tag)
    @moduletag :capture_log
    @moduletag integrations: integrations

    @resource resource
    @ann %{id: "a1", name: "ann", role: :agent}
    @bob %{id: "b1", name: "bob", role: :agent}
    @mia %{id: "m1", name: "mia", role: :manager}

    setup_all do
      if @resource == MemoryChat,
        do: start_supervised!({Store.SQLite, name: Chats.store(nil), path: ":memory:"})

      Chats.tables(@resource)
    end

    setup do
      on_exit(fn ->
        for key <- [:llm, :listener, :tools],
            do: Application.delete_env(:ash_agent_resources, key)
      end)
    end

    defp llm(llm), do: Application.put_env(:ash_agent_resources, :llm, llm)
    defp answers(list), do: llm(LLM.Scripted.new(list))

    # Says back what it was told last, after the test lets it.
    defp echo do
      llm(fn context -> {:ok, %{content: "You said: " <> last_text(context)}} end)
    end

    defp last_text(context) do
      %{content: text} = context |> Context.to_messages() |> List.last()
      text
    end

    # A model that tells the test that it was asked, and waits for its word.
    defp waiting do
      test = self()

      llm(fn context ->
        send(test, {:asked, self(), last_text(context)})
        receive do: ({:answer, text} -> {:ok, %{content: text}})
      end)
    end

    defp opts(opts \\ []), do: Keyword.merge([actor: @ann, tenant: "acme"], opts)
    defp start(input \\ %{}, opts \\ []), do: @resource.start!(input, opts(opts))

    defp show(record, name, opts \\ []),
      do: record |> Ash.load!(name, opts(opts)) |> Map.fetch!(name)

    defp texts(record) do
      for %{content: content} <- Context.to_messages(show(record, :context)),
          is_binary(content),
          do: content
    end

    defp reason({:error, %{errors: [%Conversation.Error{reason: reason}]}}), do: reason

    defp key(record), do: Conversation.Info.key(record)
    defp store(tenant \\ "acme"), do: Conversation.Info.store(@resource, tenant)

    defp delete_call(id \\ "1"),
      do: %{tool_calls: [%{id: id, name: "delete", arguments: %{"path" => "/tmp/x"}}]}

    test "starts empty, or with a message that is answered" do
      echo()
      empty = start(%{title: "tickets"})
      assert texts(empty) == ["You talk about tickets."]
      assert show(empty, :status) == :idle

      chat = start(%{input: "Hi", metadata: %{"from" => "web"}})
      assert texts(chat) == ["You talk about anything.", "Hi", "You said: Hi"]
      assert %Result{output: "You said: Hi"} = chat.__metadata__.run

      fields = ~w(last_message message_count current_iteration total_tokens context revision)a
      chat = Ash.load!(chat, fields, opts())
      assert %{role: :assistant, content: "You said: Hi"} = chat.last_message
      assert {chat.message_count, chat.current_iteration, chat.total_tokens} == {3, 1, 0}
      assert chat.context[:id] == key(chat)
      assert is_integer(chat.revision)
    end

    test "how a turn ended can be read after it, in lists and filters" do
      echo()
      half = %{content: "Half", finish_reason: :length}
      filtered = %{content: "", finish_reason: :content_filter}

      overloaded = %LLM.Error{
        reason: {:status, 529},
        kind: :overloaded,
        provider_message: "SECRET"
      }

      ends = [
        {start(), fn _context -> raise "SECRET" end, nil, nil},
        {start(%{title: "one"}), LLM.Scripted.new(["Good."]), :answered, nil},
        {start(), LLM.Scripted.new([half]), :length, nil},
        {start(), LLM.Scripted.new([filtered]), :filtered, nil},
        {start(), fn _context -> {:error, overloaded} end, :failed, "overloaded"},
        {start(), fn _context -> raise "SECRET" end, :failed, "llm_exception"}
      ]

      for {chat, llm, outcome, kind} <- ends do
        if outcome,
          do: @resource.say(chat, "Hi", opts(context: %{ash_agent: %{options: [llm: llm]}}))

        chat =
          @resource
          |> Ash.get!(chat.id, opts())
          |> Ash.load!([:last_outcome, :last_error, :status], opts())

        assert {chat.status, chat.last_outcome, chat.last_error["kind"]} == {:idle, outcome, kind}
        refute inspect(chat.last_error) =~ "SECRET"
        if kind, do: assert(chat.last_error["words"] =~ "model")

        marks =
          for %{role: :assistant} = message <- show(chat, :transcript), do: message[:outcome]

        assert marks ==
                 (case outcome do
                    :answered -> [nil]
                    outcome when outcome in [:length, :filtered] -> [outcome]
                    _none -> []
                  end)
      end

      if Conversation.Info.tables?(@resource) do
        ids = for {chat, _, outcome, _} <- ends, outcome == :failed, do: chat.id

        query =
          @resource
          |> Ash.Query.do_filter(last_outcome: :failed, id: [in: Enum.map(ends, &elem(&1, 0).id)])

        assert query |> Ash.read!(opts()) |> Enum.map(& &1.id) |> Enum.sort() == Enum.sort(ids)
      end
    end

    test "a turn that was cancelled says so, once" do
      answers([delete_call()])
      chat = start(%{input: "Delete"})
      assert show(chat, :last_outcome) == nil
      assert show(@resource.cancel!(chat, opts()), :last_outcome) == :cancelled
      echo()
      chat = @resource.say!(chat, "Hi", opts())
      assert show(chat, :last_outcome) == :answered
      assert show(@resource.cancel!(chat, opts()), :last_outcome) == :answered
    end

    test "a status is an enum" do
      %{type: type} = Ash.Resource.Info.calculation(@resource, :status)
      assert type == Conversation.Status
      assert type.graphql_type([]) == :conversation_status
      assert type.values() == Store.Conversation.statuses()
    end

    test "says, in text and in parts, a row an iteration" do
      echo()
      chat = start(%{input: "One"})
      chat = @resource.say!(chat, "Two", opts())
      llm(fn _context -> {:ok, %{content: "A picture."}} end)

      image = %{"type" => "image", "url" => "https://a.b/c.png"}
      parts = [%{"type" => "text", "text" => "Look"}, image]
      chat = @resource.say!(chat, nil, %{parts: parts}, opts())
      assert [_, "One", _, "Two", "You said: Two", "A picture."] = texts(chat)
      assert {:ok, history} = Store.history(store(), key(chat))
      assert length(history) >= 3
      iterations = show(chat, :current_iteration)
      assert iterations == 3

      if @resource in [TableChat, SchemaChat] do
        prefix = if @resource == SchemaChat, do: "acme.", else: ""

        count = "SELECT count(*) FROM #{prefix}ash_agent_iterations WHERE conversation_id = $1"
        assert %{rows: [[^iterations]]} = Repo.query!(count, [key(chat)])
      end
    end

    test "a message is wanted, once, and one that can be kept" do
      echo()
      chat = start()
      said = fn input, more -> reason(@resource.say(chat, input, more, opts())) end
      assert said.(nil, %{}) == :no_message
      assert said.("a", %{parts: [%{"type" => "text", "text" => "b"}]}) == :no_message
      assert %Context.Error{} = said.(nil, %{parts: [%{"type" => "dance"}]})
      assert show(chat, :message_count) == 1
    end

    test "many say something at once, and nothing is lost" do
      echo()
      chat = start()

      1..12
      |> Task.async_stream(fn n -> @resource.say!(chat, "n#{n}", opts()) end,
        max_concurrency: 12,
        timeout: :infinity
      )
      |> Enum.each(fn {:ok, said} -> assert %Result{} = said.__metadata__.run end)

      said = texts(chat)
      for n <- 1..12, do: assert(Enum.count(said, &(&1 == "n#{n}")) == 1)

      # Each was answered before the next one came.
      for [said, answer] <- Enum.chunk_every(tl(said), 2),
          do: assert(answer == "You said: " <> said)

      assert Store.waiting(store(), key(chat)) == {:ok, []}
    end

    test "tools get the actor and the tenant of whoever spoke" do
      test = self()

      llm(fn context ->
        case Context.to_messages(context) |> List.last() do
          %{role: :user, content: text} when is_binary(text) ->
            send(test, {:asked, self()})
            receive do: (:go -> :ok)
            {:ok, %{tool_calls: [%{id: "w", name: "whoami"}]}}

          %{content: [%{type: :tool_result, content: json}]} ->
            {:ok, %{content: json}}
        end
      end)

      chat = start()
      ann = Task.async(fn -> @resource.say!(chat, "Who am I?", opts()) end)
      assert_receive {:asked, first}
      mia = Task.async(fn -> @resource.say!(chat, "And I?", opts(actor: @mia)) end)
      send(first, :go)
      assert_receive {:asked, second}
      send(second, :go)

      for {task, name} <- [{ann, "ann"}, {mia, "mia"}] do
        output = Task.await(task, :infinity).__metadata__.run.output

        known = %{"name" => name, "org" => "acme", "id" => chat.id}
        assert Context.JSON.decode!(output) == known
      end
    end

    test "waits for decisions, and resumes with what was approved" do
      answers([delete_call(), "Deleted."])
      chat = start(%{input: "Delete it"})
      assert %Paused{} = chat.__metadata__.run
      assert show(chat, :status) == :paused

      assert [%{id: "1", name: "delete", arguments: %{"path" => "/tmp/x"}}] =
               show(chat, :pending_tool_calls)

      assert reason(@resource.say(chat, "Well?", opts())) == :paused
      assert {:error, %Ash.Error.Forbidden{}} = @resource.approve(chat, "1", opts())

      assert %Context.Error{reason: {:unknown_tool_call, "2", _}} =
               reason(@resource.approve(chat, "2", opts(actor: @mia)))

      chat = @resource.approve!(chat, "1", opts(actor: @mia))
      assert show(chat, :status) == :paused
      chat = @resource.resume!(chat, opts())
      assert chat.__metadata__.run.output == "Deleted."

      context = show(chat, :context)
      assert [%{result: {:ok, %{"by" => "ann"}}}] = Context.get_iteration(context, 1).tool_calls
      assert %{by: "m1"} = Context.Calls.tool_call_decision(context, "1")
    end

    test "an approval is for the arguments that were shown" do
      answers([delete_call()])
      chat = start(%{input: "Delete it"})
      approve = &@resource.approve(chat, "1", %{arguments: &1}, opts(actor: @mia))

      for other <- [%{"path" => "/etc"}, %{}, %{"path" => "/tmp/x", "deep" => true}] do
        assert {:error, %{errors: [error]}} = approve.(other)
        assert %Context.Error{reason: {:other_arguments, "1", [_ | _]}} = error.reason
        assert AshAgent.Conversation.Error.field(error) == :arguments
        assert [%{id: "1"}] = show(chat, :pending_tool_calls)

        assert {:error, %{errors: [error]}} =
                 @resource.deny(chat, "1", "no", %{arguments: other}, opts(actor: @mia))

        assert %Context.Error{reason: {:other_arguments, "1", [_ | _]}} = error.reason
      end

      assert {:ok, _chat} = approve.(%{"path" => "/tmp/x"})
      assert Context.Calls.tool_call_approved?(show(chat, :context), "1", %{"path" => "/tmp/x"})
    end

    test "an approval of a call that was asked about anew is for the attempt that was shown" do
      answers([delete_call(), "Deleted."])
      chat = start(%{input: "Delete it"})
      {:ok, stored} = Store.fetch(store(), key(chat))
      noted = AshAgent.Runtime.Repeat.note_anew(stored.value, "1", 1)
      {:ok, _} = Store.append(store(), stored, noted, status: :paused)
      assert [%{id: "1", attempt: 2}] = show(chat, :pending_tool_calls)

      for decide <- [
            &@resource.approve(chat, "1", &1, opts(actor: @mia)),
            &@resource.approve(chat, "1", Map.put(&1, :edited, %{}), opts(actor: @mia)),
            &@resource.deny(chat, "1", "no", &1, opts(actor: @mia)),
            &@resource.answer(chat, "1", Map.put(&1, :answer, "yes"), opts(actor: @mia))
          ] do
        assert {:error, %{errors: [error]}} = decide.(%{attempt: 1})
        assert %Context.Error{reason: {:other_attempt, "1", 2}} = error.reason
        assert AshAgent.Conversation.Error.field(error) == :attempt
      end

      assert {:error, %Ash.Error.Invalid{}} =
               @resource.approve(chat, "1", %{attempt: 0}, opts(actor: @mia))

      chat = @resource.approve!(chat, "1", %{attempt: 2}, opts(actor: @mia))
      assert @resource.resume!(chat, opts()).__metadata__.run.output == "Deleted."
    end

    test "an approval with other arguments runs with these" do
      answers([delete_call(), "Deleted."])
      chat = start(%{input: "Delete it"})
      shown = %{arguments: %{"path" => "/tmp/x"}}
      edit = &@resource.approve(chat, "1", Map.put(shown, :edited, &1), opts(actor: @mia))

      parameters = %{"type" => "object", "properties" => %{"path" => %{"type" => "string"}}}
      delete = %{function: fn %{"path" => path} -> {:ok, path} end, parameters: parameters}
      Application.put_env(:ash_agent_resources, :tools, fn -> %{delete: delete} end)
      revision = show(chat, :revision)
      assert {:error, %{errors: [error]}} = edit.(%{"path" => 5})
      assert AshAgent.Conversation.Error.field(error) == :edited
      assert Exception.message(error) =~ "/path: expected a string"
      Application.put_env(:ash_agent_resources, :tools, fn -> raise "SECRET" end)
      assert {:error, %{errors: [error]}} = edit.(%{"path" => "/tmp/y"})
      refute Exception.message(error) =~ "SECRET"
      assert show(chat, :revision) == revision

      Application.put_env(:ash_agent_resources, :tools, fn -> %{delete: delete} end)

      assert {:error, %Ash.Error.Forbidden{}} =
               @resource.approve(chat, "1", %{edited: %{}}, opts())

      assert {:ok, chat} = edit.(%{"path" => "/tmp/y"})
      chat = @resource.resume!(chat, opts())
      context = show(chat, :context)
      assert [call] = Context.get_iteration(context, 1).tool_calls
      assert call.arguments == %{"path" => "/tmp/x"} and call.result == {:ok, "/tmp/y"}

      assert %{by: "m1", edited: %{"path" => "/tmp/y"}} =
               Context.Calls.tool_call_decision(context, "1")

      [_system, _user, _call, %{content: [told]} | _] = Context.to_messages(context)
      assert told.content =~ ~s(changed the arguments of this call to: {"path":"/tmp/y"})
    end

    test "a conversation that is begun again with the same key is the first one" do
      key = Ash.UUID.generate()
      answers(["Hello!", "Never"])
      chat = start(%{input: "Hi", key: key})
      assert chat.__metadata__.run.output == "Hello!"
      again = start(%{input: "Another", key: key})
      assert again.id == chat.id and again.__metadata__.begun
      refute is_map_key(again.__metadata__, :run)
      assert show(chat, :message_count) == show(again, :message_count)

      assert [%{content: "Hi"}] =
               for(%{role: :user} = said <- Context.to_messages(show(chat, :context)), do: said)

      # Without a message, and in a transaction's way, too.
      empty = start(%{key: key <> "2"})
      assert start(%{key: key <> "2"}).id == empty.id

      # Others, who see nothing of it, and other keys begin their own.
      answers(["Hello!", "Hello!", "Hello!"])

      for other <- [
            start(%{input: "Hi", key: key}, actor: @mia),
            start(%{input: "Hi", key: key <> "3"}),
            start(%{input: "Hi"})
          ] do
        assert other.id != chat.id
        refute is_map_key(other.__metadata__, :begun)
      end

      # Once it is gone, it is begun again.
      Ash.destroy!(chat, opts())
      refute is_map_key(start(%{key: key}).__metadata__, :begun)
    end

    if @resource != MemoryChat do
      test "several that begin it with the same key at the same time get the first one, which is answered once" do
        test = self()

        llm(fn context ->
          send(test, :asked)
          {:ok, %{content: "You said: " <> last_text(context)}}
        end)

        # In transactions of their callers, and with a message or without.
        for n <- 1..30,
            key = Ash.UUID.generate(),
            input = if(rem(n, 3) > 0, do: %{input: "Hi"}, else: %{}) do
          start = fn ->
            receive do: (:go -> :ok)

            if rem(n, 2) == 0,
              do: transaction(Map.put(input, :key, key)),
              else: start(Map.put(input, :key, key))
          end

          tasks = for _ <- 1..(2 + rem(n, 3)), do: Task.async(start)
          for task <- tasks, do: send(task.pid, :go)
          assert [chat | _] = chats = Task.await_many(tasks, 60_000)
          assert [id] = chats |> Enum.map(& &1.id) |> Enum.uniq()
          first = Enum.reject(chats, &is_map_key(&1.__metadata__, :begun))
          assert length(first) == 1

          if input != %{} do
            assert until(fn ->
                     show(chat, :message_count) == 3 and show(chat, :status) == :idle
                   end)

            assert_receive :asked
          end

          refute_received :asked
          assert id == chat.id
        end
      end

      # The turn begins after the commit.
      defp transaction(input) do
        {:ok, {chat, notifications}} =
          Repo.transaction(fn ->
            opts = opts(return_notifications?: true)
            {:ok, chat, notifications} = @resource.start(input, opts)
            {chat, notifications}
          end)

        Ash.Notifier.notify(notifications)
        chat
      end
    end

    test "a question of the agent is answered, and the turn goes on with the answer" do
      form = %{"type" => "object", "properties" => %{"seats" => %{"type" => "integer"}}}
      form = Map.put(form, "required", ["seats"])
      seats = AshAgent.Tools.ask_user(name: "seats", form: form)
      tools = [AshAgent.Tools.ask_user(), seats, {"delete", fn _ -> {:ok, "deleted"} end}]
      Application.put_env(:ash_agent_resources, :tools, fn -> tools end)
      question = %{"question" => "Which?", "choices" => ["window", " aisle"]}
      asked = %{id: "q", name: "ask_user", arguments: question}
      [delete] = delete_call().tool_calls
      seats = %{id: "s", name: "seats", arguments: %{"question" => "How many?"}}
      answers([%{tool_calls: [asked, delete, seats]}, "Booked."])
      chat = start(%{input: "Book"})
      assert show(chat, :status) == :paused
      assert [%{id: "q", question: true}, _, %{id: "s"}] = show(chat, :pending_tool_calls)
      answer = &@resource.answer(chat, &1, &2, &3)

      assert {:error, %Ash.Error.Forbidden{}} = answer.("q", %{answer: "window"}, opts())
      manager = opts(actor: @mia)

      refused = [
        {"q", %{}, :answer, "expected either answer or form"},
        {"q", %{answer: "window", form: %{}}, :answer, "expected either answer or form"},
        {"q", %{answer: "aisle"}, :answer, "one of the choices"},
        {"s", %{form: %{"seats" => "many"}}, :answer, "/seats: expected an integer"},
        {"s", %{answer: "two"}, :answer, "what the form asks for"},
        {"q", %{answer: "window", arguments: %{"question" => "Whom?"}}, :arguments, "arguments"},
        {delete.id, %{answer: "deleted"}, :input, "is no question"}
      ]

      revision = show(chat, :revision)

      for {id, input, field, words} <- refused do
        assert {:error, %{errors: [error]}} = answer.(id, input, manager)

        assert {AshAgent.Conversation.Error.field(error), Exception.message(error) =~ words} ==
                 {field, true}
      end

      assert {:error, %{errors: [error]}} = @resource.approve(chat, "q", manager)
      assert Exception.message(error) =~ "is a question"
      assert show(chat, :revision) == revision

      assert {:ok, _} = answer.("q", %{answer: " aisle", arguments: question}, manager)
      assert {:ok, _} = answer.("s", %{form: %{"seats" => "2"}}, manager)
      assert {:error, %{errors: [again]}} = answer.("q", %{answer: "window"}, manager)
      assert %Context.Error{reason: {:illegal_status, "q", :ok, :answered}} = again.reason
      @resource.approve!(chat, delete.id, manager)
      chat = @resource.resume!(chat, opts())
      assert chat.__metadata__.run.output == "Booked."
      context = show(chat, :context)
      results = for %{result: result} <- Context.get_iteration(context, 1).tool_calls, do: result
      assert results == [{:ok, " aisle"}, {:ok, "deleted"}, {:ok, %{"seats" => 2}}]
      assert %{decision: :answered, by: "m1"} = Context.Calls.tool_call_decision(context, "q")
    end

    test "a message steers the turn that runs, if that is the same person's" do
      test = self()

      llm(fn context ->
        send(test, {:asked, self(), last_text(context), length(Context.to_messages(context))})
        receive do: ({:answer, answer} -> {:ok, answer})
      end)

      chat = start()
      same = %{shared: %{locale: "de"}}
      ann = Task.async(fn -> @resource.say!(chat, "Think", opts(context: same)) end)
      assert_receive {:asked, model, "Think", 2}

      steered = @resource.say!(chat, "Shorter!", %{steer: true, key: "k1"}, opts(context: same))
      assert steered.__metadata__.steered

      again =
        @resource.say!(
          chat,
          "Shorter!",
          %{steer: true, key: "k1", wait: false},
          opts(context: same)
        )

      refute again.__metadata__[:steered]

      # Neither another person nor another scope has these rights.
      others = [
        {"By mia", opts(actor: @mia, context: same)},
        {"Elsewhere", opts(context: %{shared: %{locale: "fr"}})},
        {"Bare", opts()}
      ]

      for {text, opts} <- others do
        said = @resource.say!(chat, text, %{steer: true, wait: false}, opts)
        refute said.__metadata__[:steered]
      end

      assert {:error, %Ash.Error.Forbidden{}} =
               @resource.say(chat, "Me too", %{steer: true}, opts(actor: @bob))

      send(model, {:answer, %{tool_calls: [%{id: "w", name: "whoami"}]}})
      assert_receive {:asked, model, "Shorter!", 5}
      send(model, {:answer, %{content: "Short."}})
      assert Task.await(ann, :infinity).__metadata__.run.output == "Short."

      for _other <- others do
        assert_receive {:asked, model, text, _count}
        assert text in Enum.map(others, &elem(&1, 0))
        send(model, {:answer, %{tool_calls: [%{id: "w", name: "whoami"}]}})
        assert_receive {:asked, model, [%{content: json}], _count}
        assert Context.JSON.decode!(json)["name"] == if(text == "By mia", do: "mia", else: "ann")
        send(model, {:answer, %{content: "Done."}})
      end

      until(fn -> show(chat, :status) == :idle end)
      assert Store.waiting(store(), key(chat)) == {:ok, []}
      assert Enum.count(texts(chat), &(&1 == "Shorter!")) == 1
      refute inspect(show(chat, :transcript)) =~ "k1"

      # Nothing runs: it is a message like any other.
      echo()
      chat = @resource.say!(chat, "Hi", %{steer: true}, opts())
      assert chat.__metadata__.run.output == "You said: Hi"
    end

    test "a message that comes again while its turn waits returns as the first time" do
      answers([delete_call(), "Deleted.", delete_call("2")])
      chat = start()
      say = &@resource.say(chat, &1, %{key: &2}, opts())
      assert {:ok, first} = say.("Delete it", "k1")
      assert {:ok, again} = say.("Delete it", "k1")

      assert %Paused{calls: [%{id: "1"}] = calls} = again.__metadata__.run
      assert calls == first.__metadata__.run.calls
      assert reason(say.("And that", "k2")) == :paused

      assert {:ok, %{}} =
               @resource.say(chat, "Delete it", %{key: "k1", wait: false, steer: true}, opts())

      @resource.approve!(chat, "1", opts(actor: @mia))
      @resource.resume!(chat, opts())
      assert {:ok, %{}} = say.("And that", "k2")
      assert {:ok, earlier} = say.("Delete it", "k1")
      refute earlier.__metadata__[:run]
      assert Enum.count(texts(chat), &(&1 == "Delete it")) == 1
      assert Store.waiting(store(), key(chat)) == {:ok, []}
    end

    test "a denial is read by the model" do
      answers([delete_call(), "Then not."])
      chat = start(%{input: "Delete it"})
      chat = @resource.deny!(chat, "1", "not on Fridays", opts(actor: @mia))
      chat = @resource.resume!(chat, opts())
      assert chat.__metadata__.run.output == "Then not."
    end

    test "cancels a running turn, and gives up pending calls" do
      waiting()
      chat = start()
      task = Task.async(fn -> @resource.say(chat, "Think", opts()) end)
      assert_receive {:asked, _model, "Think"}
      assert show(chat, :status) == :running
      assert reason(@resource.rewind(chat, 1, opts())) == :busy
      @resource.cancel!(chat, opts())
      assert reason(Task.await(task, :infinity)) == {:run, :cancelled}
      assert show(chat, :status) == :idle

      answers([delete_call()])
      chat = start(%{input: "Delete it"})
      @resource.cancel!(chat, opts())
      assert show(chat, :status) == :idle
      assert show(chat, :pending_tool_calls) == []
    end

    test "drops what waits when a turn is cancelled" do
      waiting()
      chat = start()
      first = Task.async(fn -> @resource.say(chat, "Think", opts()) end)
      assert_receive {:asked, _model, "Think"}
      second = Task.async(fn -> @resource.say(chat, "And then?", opts()) end)
      until(fn -> match?({:ok, [_]}, Store.waiting(store(), key(chat))) end)
      # It is in the session's queue as soon as that has been asked.
      Process.sleep(100)
      @resource.cancel!(chat, opts())
      assert reason(Task.await(first, :infinity)) == {:run, :cancelled}
      assert reason(Task.await(second, :infinity)) == {:run, :dropped}
      assert show(chat, :status) == :idle
      assert Store.waiting(store(), key(chat)) == {:ok, []}
      refute_receive {:asked, _model, _text}, 50
    end

    test "drops what waits when pending calls are given up" do
      answers([delete_call()])
      chat = start(%{input: "Delete it"})
      {:ok, _id} = Store.enqueue(store(), key(chat), "And then?")
      @resource.cancel!(chat, opts())
      assert show(chat, :status) == :idle
      assert Store.waiting(store(), key(chat)) == {:ok, []}
    end

    test "tells of a call that was started before a crash that nobody knows its outcome" do
      for action <- [:cancel, :deny] do
        answers([delete_call()])
        chat = start(%{input: "Delete it"})
        claim = until(fn -> claimed(key(chat)) end)
        started = %{key: Store.call_key(claim.value, "1"), call: %{id: "1", name: "delete"}}
        {:ok, claim, [_key]} = Store.start(store(), claim, [started])
        {:ok, _} = Store.release(store(), claim, status: :running)

        if action == :cancel,
          do: @resource.cancel!(chat, opts()),
          else: @resource.deny!(chat, "1", "it is gone", opts(actor: @mia))

        context = show(chat, :context)
        assert Context.Calls.tool_call_status(context, "1") == :unknown
        assert [%{result: {:error, words}}] = Context.get_iteration(context, 1).tool_calls
        assert words =~ "may have been carried out"
        if action == :cancel, do: assert(show(chat, :status) == :idle)
      end
    end

    test "a function of the tools that fails is kept with the turn, which is resumed" do
      answers(["Hello!"])
      Application.put_env(:ash_agent_resources, :tools, fn -> raise "a secret" end)
      chat = start()
      failed = @resource.say(chat, "Hi", opts())
      assert {:run, {:tools_exception, :error, _}} = reason(failed)

      assert [%{part: "tools", code: "RuntimeError"} = failure] =
               Context.Audit.failures(show(chat, :context))

      refute inspect(failure) =~ "secret"

      Application.delete_env(:ash_agent_resources, :tools)
      assert @resource.resume!(chat, opts()).__metadata__.run.output == "Hello!"
    end

    test "a failed run keeps the message, and is resumed" do
      llm(fn _context -> {:error, :overloaded} end)
      chat = start()
      assert {:error, error} = @resource.say(chat, "SECRET-message", opts())
      assert reason({:error, error}) == {:run, {:llm_error, :overloaded}}
      refute inspect(error, limit: :infinity, printable_limit: :infinity) =~ "SECRET-message"

      answers(["Here I am."])
      assert @resource.resume!(chat, opts()).__metadata__.run.output == "Here I am."
      assert List.last(texts(chat)) == "Here I am."
    end

    test "a turn does not end with the caller, and goes on after its own process died" do
      waiting()
      chat = start()
      caller = spawn(fn -> @resource.say(chat, "One", opts()) end)
      assert_receive {:asked, model, "One"}
      Process.exit(caller, :kill)
      send(model, {:answer, "Two"})
      other = Task.async(fn -> @resource.say(chat, "Three", opts()) end)
      assert_receive {:asked, model, "Three"}
      monitor = Process.monitor(model)

      for {_, session, _, _} <- DynamicSupervisor.which_children(Conversation.Sessions),
          do: Process.exit(session, :kill)

      assert reason(Task.await(other, :infinity)) == :interrupted
      assert_receive {:DOWN, ^monitor, :process, ^model, _}

      answers(["Four"])
      assert @resource.resume!(chat, opts()).__metadata__.run.output == "Four"
      assert ["One", "Two", "Three", "Four"] = tl(texts(chat))
    end

    test "what was cut short can be changed when its claim is over" do
      echo()
      chat = start(%{input: "One"})
      {:ok, _} = until(fn -> with({:error, _} <- claim(key(chat), 1), do: nil) end)
      assert until(fn -> match?({:ok, _}, @resource.rewind(chat, 1, opts())) end)
      assert @resource.say!(chat, "Two", opts()).__metadata__.run.output == "You said: Two"
    end

    defp claim(id, lease),
      do: Store.claim(store(), id, owner: "dead", lease: lease, status: :running)

    test "messages that wait for nobody are answered by whoever resumes" do
      echo()
      chat = start(%{input: "One"})
      {:ok, _} = Store.enqueue(store(), key(chat), "Two")
      {:ok, _} = Store.enqueue(store(), key(chat), "Three")
      @resource.resume!(chat, opts())
      assert ["One", _, "Two", _, "Three", "You said: Three"] = tl(texts(chat))
    end

    test "what was said and waits is answered as whoever said it, or not at all" do
      echo()
      chat = start(%{input: "One"})
      claim = until(fn -> claimed(key(chat)) end)
      chat = @resource.say!(chat, "Two", opts())
      {:ok, _} = Store.release(store(), claim, status: :idle)

      # A session that knows nothing of the action.
      test = self()
      llm = fn _context -> send(test, :asked_as_nobody) && {:ok, %{content: "as nobody"}} end
      own = [store: store(), id: key(chat), llm: llm]
      session = start_supervised!({AshAgent.Session, own}, id: :own, restart: :temporary)
      assert until(fn -> AshAgent.Session.status(session) == :parked end)
      refute_received :asked_as_nobody
      :ok = stop_supervised(:own)

      @resource.resume!(chat, opts())
      assert ["Two", "You said: Two"] = Enum.take(texts(chat), -2)
    end

    test "keeps what is said while somebody out of reach runs the conversation" do
      echo()
      chat = start(%{input: "One"})
      # The session of the start may just be ending.
      claim = until(fn -> claimed(key(chat)) end)
      chat = @resource.say!(chat, "Two", opts())
      refute Map.has_key?(chat.__metadata__, :run)
      assert {:ok, [%{input: "Two"}]} = Store.waiting(store(), key(chat))

      for action <- [:resume, :cancel],
          do: assert(reason(apply(@resource, action, [chat, opts()])) == :busy)

      {:ok, _} = Store.release(store(), claim, status: :idle)
      @resource.resume!(chat, opts())
      assert ["One", _, "Two", "You said: Two"] = tl(texts(chat))
    end

    defp claimed(id) do
      case Store.claim(store(), id, owner: "another cluster", status: :running) do
        {:ok, claim} -> claim
        {:error, {:owned, _owner}} -> nil
      end
    end

    test "returns at once if asked to" do
      waiting()
      Application.put_env(:ash_agent_resources, :listener, self())
      chat = start()
      id = chat.id
      chat = @resource.say!(chat, "Later", %{wait: false}, opts())
      refute Map.has_key?(chat.__metadata__, :run)
      assert_receive {:asked, model, "Later"}
      send(model, {:answer, "Now"})
      assert_receive {:heard, :delta, ^id, %{ended: :answered}}
      assert List.last(texts(chat)) == "Now"
      # The caller's mailbox is its own.
      refute_received {AshAgent.Session, _ref, _message}
    end

    test "rewinds, at the revision that was seen" do
      echo()
      chat = start(%{input: "One"})
      old = show(chat, :revision)
      chat = @resource.say!(chat, "Two", opts())
      assert reason(@resource.rewind(chat, 1, %{revision: old}, opts())) == :changed
      assert %Context.Error{} = reason(@resource.rewind(chat, 9, opts()))
      chat = @resource.rewind!(chat, 1, %{revision: show(chat, :revision)}, opts())
      assert ["One", "You said: One"] = tl(texts(chat))
      chat = @resource.say!(chat, "Three", opts())
      assert ["One", _, "Three", _] = tl(texts(chat))
    end

    test "forks what the actor may read" do
      echo()
      chat = start(%{input: "One"})
      @resource.say!(chat, "Two", opts())
      fork = @resource.fork!(chat.id, %{title: "copy", iteration: 1}, opts())
      assert fork.id != chat.id and fork.title == "copy"
      assert ["One", _] = tl(texts(fork))
      @resource.say!(fork, "Other", opts())
      assert ["One", _, "Two", _] = tl(texts(chat))
      assert show(fork, :context)[:origin].id == key(chat)

      assert {:error, _} = @resource.fork(chat.id, %{}, opts(actor: @bob))
      assert {:error, _} = @resource.fork(chat.id, %{}, opts(tenant: "other"))
      assert {:error, _} = @resource.fork(Ash.UUID.generate(), %{}, opts())
    end

    test "destroying deletes the messages" do
      echo()
      chat = start(%{input: "One"})
      Ash.destroy!(chat, opts())
      assert Store.fetch(store(), key(chat)) == {:error, :not_found}
    end

    test "policies decide, and tenants are apart" do
      echo()
      chat = start(%{input: "One"})
      bob = opts(actor: @bob)
      assert {:error, %Ash.Error.Forbidden{}} = @resource.say(chat, "Two", bob)

      for action <- [:cancel, :resume],
          do: assert({:error, %Ash.Error.Forbidden{}} = apply(@resource, action, [chat, bob]))

      assert {:error, %Ash.Error.Forbidden{}} = @resource.rewind(chat, 1, bob)
      assert {:error, _} = Ash.load(chat, :transcript, bob)
      # Of other tests, there may be some in a table of ETS, which lives as long as the VM.
      for theirs <- [bob, opts(tenant: "other")],
          do: refute(chat.id in Enum.map(Ash.read!(@resource, theirs), & &1.id))

      assert show(chat, :message_count) == 3

      if @resource == SchemaChat,
        do: assert(Store.fetch(store("other"), key(chat)) == {:error, :not_found})
    end

    test "notifies of the pieces of an answer, and of the end" do
      Application.put_env(:ash_agent_resources, :listener, self())
      answers(["Hello there!"])
      chat = start()
      id = chat.id
      assert_receive {:heard, :start, ^id, _}
      @resource.say!(chat, "Hi", opts())
      assert_receive {:heard, :say, ^id, _}
      assert deltas(id) == "Hello there! answered"
    end

    defp deltas(id) do
      receive do
        {:heard, :delta, ^id, %{events: events}} ->
          Enum.join(for {:text, _part, text} <- events, do: text) <> deltas(id)

        {:heard, :delta, ^id, %{ended: how}} ->
          " #{how}" <> deltas(id)
      after
        0 -> ""
      end
    end

    test "the action of the deltas does nothing" do
      echo()
      chat = start()
      changeset = Ash.Changeset.for_update(chat, :delta, %{}, opts())
      assert {:error, %Ash.Error.Invalid{}} = Ash.update(changeset)
    end

    test "the view of one call is applied before each request and stored, for the turns after it" do
      model = LLM.Scripted.new(["Done.", "Again."])
      view = [{AshAgent.Context.Enhancer.Redact, patterns: [:email]}]
      llm(model)
      # So are all other options of one call.
      context = %{ash_agent: %{options: [view: view]}}
      chat = @resource.say!(start(), "Mail ann@example.com", opts(context: context))
      stored = @resource |> Ash.get!(chat.id, opts()) |> show(:context)
      assert [{_email, "[redacted]"}] = Context.View.view(stored).masks
      assert Enum.at(Context.to_messages(stored), 1).content == "Mail [redacted]"
      assert Enum.at(Context.to_messages(stored, view: :log), 1).content == "Mail ann@example.com"

      # A turn without the option keeps the view.
      @resource.say!(chat, "And bob@example.com", opts())
      seen = for %{context: seen} <- LLM.Scripted.requests(model), do: last_text(seen)
      assert seen == ["Mail [redacted]", "And [redacted]"]
      refute Enum.any?(texts(chat), &(&1 =~ "@"))
    end
  end
end
