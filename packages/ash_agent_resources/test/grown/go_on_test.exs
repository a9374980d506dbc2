if Code.ensure_loaded?(MyApp.DataCase) do
  defmodule MyApp.GoOnTest do
    # A turn that was cut short goes on. The store in memory has one name for all tests.
    use MyApp.DataCase, async: false

    alias AshAgent.Store
    alias AshAgent.Conversation.{Info, Sweeper, Upkeep}
    alias AshAgent.TestSupport.Wait
    alias MyApp.Chat.{Case, Conversation, Memory, Note, Repo}

    @call %{id: "1", name: "note_write", arguments: %{"text" => "x"}}

    setup do
      start_supervised!({Store.SQLite, name: MyApp.Chat.MemoryStore, path: ":memory:"})
      %{ann: [actor: user("ann"), tenant: "acme"]}
    end

    defp texts(record, opts),
      do: for(%{content: text} <- Ash.load!(record, :transcript, opts).transcript, do: text)

    defp store(record), do: Info.store(record.__struct__, Map.get(record, :org))

    defp waiting(record) do
      {:ok, waiting} = Store.waiting(store(record), Info.key(record))
      for %{input: text} <- waiting, do: text
    end

    # A turn whose process died, and whose lease is over.
    defp cut_short(record, input, opts) do
      test = self()

      llm = fn _context ->
        send(test, :asked)
        Process.sleep(:infinity)
      end

      context = %{ash_agent: %{options: [llm: llm, lease: 50]}, shared: %{locale: "de"}}
      opts = Keyword.put(opts, :context, context)

      Ash.update!(record, %{input: input, wait: false}, [action: :say] ++ opts)
      assert_receive :asked
      {:ok, %{owner: owner}} = Store.fetch(store(record), Info.key(record))

      for {_, session, _, _} <- DynamicSupervisor.which_children(AshAgent.Conversation.Sessions),
          owner =~ inspect(session) |> String.replace("#PID", "") do
        monitor = Process.monitor(session)
        Process.exit(session, :kill)
        assert_receive {:DOWN, ^monitor, :process, ^session, _reason}
      end

      Wait.until(fn -> due?(record) end)
      record
    end

    defp due?(record),
      do: Ash.load!(record, :due, authorize?: false, tenant: Map.get(record, :org)).due

    describe "in a transaction" do
      test "Ash has nothing to warn of", %{ann: ann} do
        chat = Conversation.start!(%{}, ann)

        said =
          ExUnit.CaptureLog.capture_log(fn ->
            Ash.transaction(Conversation, fn -> Conversation.say!(chat, "Hi", ann) end)
          end)

        refute said =~ "transaction"
      end

      test "a message is written with it, and its turn begins after the commit", %{ann: ann} do
        chat = Conversation.start!(%{}, ann)
        MyApp.Heard.listen(chat.id)

        {:ok, said} =
          Ash.transaction(Conversation, fn ->
            said = Conversation.say!(chat, "Hi", ann)

            Conversation
            |> Ash.get!(chat.id, ann)
            |> Ash.update!(%{title: "new"}, [action: :rename] ++ ann)

            assert waiting(chat) == ["Hi"]
            refute_received {:heard, :delta, _}
            said
          end)

        refute Map.has_key?(said.__metadata__, :run)
        assert_receive {:heard, :delta, %{ended: :answered}}
        assert texts(chat, ann) == ["Hi", "You said: Hi"]
        assert Ash.get!(Conversation, chat.id, ann).title == "new"
      end

      test "a rollback leaves nothing", %{ann: ann} do
        chat = Conversation.start!(%{}, ann)
        MyApp.Heard.listen(chat.id)

        for wait? <- [true, false] do
          assert {:error, _} =
                   Ash.transaction(Conversation, fn ->
                     Conversation.say!(chat, "Hi", %{wait: wait?}, ann)
                     Conversation.start!(%{input: "Hi", wait: wait?}, ann)
                     Repo.rollback(:over)
                   end)
        end

        assert waiting(chat) == []
        assert [_] = Ash.read!(Conversation, ann)
        assert texts(chat, ann) == []
        refute_received {:heard, :delta, _}
      end

      test "of another action, or of the repository, it begins with the notifications", %{
        ann: ann
      } do
        chat = Case.start!()

        Ash.Seed.seed!(MyApp.Chat.Project, %{name: "p"})
        |> Ash.Changeset.for_update(:rename, %{name: "q"})
        |> Ash.Changeset.after_action(fn _changeset, project ->
          Case.say!(chat, "Renamed")
          assert waiting(chat) == ["Renamed"]
          {:ok, project}
        end)
        |> Ash.update!()

        assert Wait.until(fn -> texts(chat, []) == ["Renamed", "You said: Renamed"] end)

        chat = Conversation.start!(%{}, ann)

        {:ok, notifications} =
          Repo.transaction(fn ->
            opts = [return_notifications?: true] ++ ann
            {:ok, _chat, notifications} = Conversation.say(chat, "Hi", opts)
            notifications
          end)

        assert texts(chat, ann) == []
        assert Ash.Notifier.notify(notifications) == []
        assert Wait.until(fn -> texts(chat, ann) == ["Hi", "You said: Hi"] end)
      end
    end

    describe "without Oban" do
      test "it goes on as who asked, once its lease is over", %{ann: ann} do
        chat = Conversation.start!(%{}, ann)
        cut_short(chat, "Hi", ann)
        # Somebody else's tenant.
        assert Upkeep.resume_due(Conversation, tenant: "other") == {:ok, 0}
        assert Upkeep.resume_due(Conversation, tenant: "acme") == {:ok, 1}
        assert Wait.until(fn -> texts(chat, ann) == ["Hi", "You said: Hi"] end)
        assert Upkeep.resume_due(Conversation, tenant: "acme") == {:ok, 0}
      end

      test "a sweeper does it by itself, in any store", %{ann: ann} do
        chats = [Conversation.start!(%{}, ann), Memory.start!(%{id: 1}), Case.start!()]
        for chat <- chats, do: cut_short(chat, "Hi", ann)

        # Who the tenants are, it finds by itself.
        opts = [resources: [Conversation, Memory], every: 20]
        sweeper = start_supervised!({Sweeper, opts})
        Ecto.Adapters.SQL.Sandbox.allow(Repo, self(), sweeper)

        for {chat, opts} <- Enum.zip(chats, [ann, [], []]) |> Enum.take(2),
            do: assert(Wait.until(fn -> texts(chat, opts) == ["Hi", "You said: Hi"] end))

        # Nobody was asked to look after those.
        assert due?(List.last(chats))
        stop_supervised!(Sweeper)
      end

      test "the tenants of due turns are known", %{ann: ann} do
        assert Upkeep.due_tenants(Conversation) == []
        assert Upkeep.due_tenants(Memory) == [nil]
        other = Keyword.put(ann, :tenant, "other")
        for opts <- [ann, ann, other], do: Conversation.start!(%{}, opts) |> cut_short("Hi", opts)
        Conversation.start!(%{}, Keyword.put(ann, :tenant, "third"))
        assert Conversation |> Upkeep.due_tenants() |> Enum.sort() == ["acme", "other"]
      end

      test "a message of somebody else lets it go on first, as who asked", %{ann: ann} do
        mia = [actor: user("mia", :manager), tenant: "acme"]
        chat = Conversation.start!(%{}, ann) |> cut_short("Hi", ann)
        answers = [%{tool_calls: [@call]}, "Noted.", %{tool_calls: [@call]}, "Noted as well."]
        context = update_in(answers(answers).ash_agent.options, &(&1 ++ [approval: :auto]))
        Conversation.say!(chat, "And me?", [context: context] ++ mia)

        assert texts(chat, ann) |> Enum.filter(&is_binary/1) ==
                 ["Hi", "Noted.", "And me?", "Noted as well."]

        notes = Ash.read!(Note, tenant: "acme", authorize?: false)
        ids = Enum.map([ann, mia], & &1[:actor].id)
        assert notes |> Enum.map(& &1.author_id) |> Enum.sort() == Enum.sort(ids)
        assert Enum.find(notes, &(&1.author_id == ann[:actor].id)).locale == "de"
      end

      test "a message waits where who asked cannot be found" do
        someone = [actor: %{id: "s1"}]
        other = [actor: %{id: "s2"}]
        chat = Case.start!(%{}, someone) |> cut_short("Hi", someone)
        assert {:error, %{errors: [%{reason: :no_actor}]}} = Case.say(chat, "And me?", other)
        assert waiting(chat) == ["And me?"]
        assert texts(chat, []) == ["Hi"]
      end

      test "so does a message whose turn has not begun", %{ann: ann} do
        chat = Conversation.start!(%{}, ann)
        {:ok, _} = Store.enqueue(store(chat), Info.key(chat), "Hi")
        # The turn of one that was just stored is about to begin.
        refute due?(chat)
        Repo.query!("UPDATE ash_agent_prompts SET at = at - interval '11 seconds'")
        assert due?(chat)
        assert Upkeep.resume_due(Conversation, tenant: "acme") == {:ok, 1}
        assert Wait.until(fn -> texts(chat, ann) == ["Hi", "You said: Hi"] end)
      end

      test "neither what waits for a decision, nor what was archived, nor what is over", %{
        ann: ann
      } do
        opts = [context: answers([%{tool_calls: [@call]}])] ++ ann
        paused = Conversation.start!(%{input: "Write"}, opts)
        over = Conversation.start!(%{input: "Hi"}, ann)
        assert {due?(paused), due?(over)} == {false, false}
        archived = Conversation.start!(%{}, ann) |> cut_short("Hi", ann)
        Ash.destroy!(archived, ann)
        assert Upkeep.resume_due(Conversation, tenant: "acme") == {:ok, 0}
      end

      test "an asker who cannot be found is left to themselves" do
        someone = [actor: %{id: "s1"}]
        chat = Case.start!(%{}, someone) |> cut_short("Hi", someone)
        assert Upkeep.resume_due(Case) == {:ok, 0}
        assert due?(chat)
        Case.resume!(chat, someone)
        assert texts(chat, []) == ["Hi", "You said: Hi"]
      end
    end

    if Code.ensure_loaded?(AshOban) do
      alias MyApp.Chat.Errand

      describe "with Oban" do
        setup do
          start_supervised!(
            {Oban, repo: Repo, testing: :manual, queues: [conversations: 5], log: false}
          )

          :ok
        end

        defp run_jobs,
          do: AshOban.schedule_and_run_triggers({Errand, :go_on}, drain_queues?: true)

        test "a trigger goes on as who asked, in their tenant and language", %{ann: ann} do
          bob = [actor: user("bob"), tenant: "other"]

          for opts <- [ann, bob],
              do: %{} |> Errand.start!(opts) |> cut_short("Write it down", opts)

          assert %{success: 3, failure: 0} = run_jobs()

          for opts <- [ann, bob] do
            assert [chat] = Ash.read!(Errand, opts)
            assert List.last(texts(chat, opts)) == "Noted."
            assert [note] = Ash.read!(Note, tenant: opts[:tenant])
            assert {note.author_id, note.locale} == {opts[:actor].id, "de"}
          end

          # Nothing is left to do, but to look.
          assert %{success: 1} = run_jobs()
        end

        test "an actor that is no record is found by the persister" do
          agent = [actor: %{id: Ash.UUID.generate(), name: "agent"}, tenant: "acme"]
          %{} |> Errand.start!(agent) |> cut_short("Write", agent)
          assert %{success: 2, failure: 0} = run_jobs()
          assert [%{author_id: id}] = Ash.read!(Note, tenant: "acme")
          assert id == agent[:actor].id
        end

        test "a job that is written with the message begins its turn", %{ann: ann} do
          chat = Errand.start!(%{}, ann)

          {:ok, {_chat, _notifications}} =
            Repo.transaction(fn ->
              opts = [return_notifications?: true] ++ ann
              {:ok, chat, notifications} = Errand.say(chat, "Write", opts)
              AshOban.run_trigger(chat, :go_on, tenant: "acme")
              {chat, notifications}
            end)

          # Nobody has told of the commit.
          Repo.query!("UPDATE ash_agent_prompts SET at = at - interval '11 seconds'")
          assert %{success: 1} = Oban.drain_queue(queue: :conversations)
          assert List.last(texts(chat, ann)) == "Noted."
        end
      end
    end
  end
end

if Code.ensure_loaded?(MyApp.Chat.Nodes) do
  defmodule MyApp.KilledTest do
    # What is stored here is seen by other nodes, and taken away at the end.
    use MyApp.DataCase, async: false

    alias AshAgent.TestSupport.{Nodes, Wait}
    alias MyApp.Chat.{Errand, Note, Repo}

    @moduletag timeout: 300_000

    setup do
      on_exit(fn ->
        Ecto.Adapters.SQL.Sandbox.unboxed_run(Repo, fn ->
          Repo.query!("TRUNCATE errands, notes, users, oban_jobs CASCADE")
        end)
      end)
    end

    defp jobs do
      sql = "SELECT count(*) FROM oban_jobs WHERE state IN ('available', 'executing')"
      %{rows: [[count]]} = unboxed(fn -> Repo.query!(sql, [], log: false) end)
      count
    end

    defp unboxed(fun), do: Ecto.Adapters.SQL.Sandbox.unboxed_run(Repo, fun)

    test "after a kill -9 of its node, Oban goes on with it on another one, as who asked" do
      Nodes.group([:a, :b], fn call, %{b: b} ->
        at = &call.(&1, {MyApp.Chat.Nodes, &2, &3})
        for name <- [:a, :b], do: at.(name, :start, [])
        at.(:b, :start_oban, [])
        ann = unboxed(fn -> user("ann") end)
        id = at.(:a, :hold, [ann, "Write"])
        opts = [actor: ann, tenant: "acme"]
        status = fn -> unboxed(fn -> Ash.get!(Errand, id, [load: :status] ++ opts).status end) end
        assert Wait.until(fn -> status.() == :running end)
        Nodes.kill(at.(:a, :os_pid, []))

        # What the cron plugin does once a minute, each time after all jobs.
        look = fn ->
          if jobs() == 0, do: at.(:b, :schedule, [])
          status.() == :idle
        end

        assert Wait.until(look, 60_000)
        assert [note] = unboxed(fn -> Ash.read!(Note, tenant: "acme") end)
        assert {note.author_id, note.text} == {ann.id, "Write on #{b}"}
      end)
    end
  end
end
