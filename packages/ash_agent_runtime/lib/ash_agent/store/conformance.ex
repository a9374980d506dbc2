defmodule AshAgent.Store.Conformance do
  @moduledoc """
  Tests for stores: conversations load back equal, there is one writer, and calls and prompts happen once.

      defmodule MyApp.StoreTest do
        use ExUnit.Case, async: true
        use AshAgent.Store.Conformance, store: MyApp.Store.for_tests()
      end

  `:store` is an expression that returns a store; it is evaluated before each test. `chats: false` is for a store that takes only contexts. Put tags for all tests between the two lines. The
  tests use their own ids and delete nothing else. They take some seconds; to repeat a random test that failed, use ExUnit's seed.
  """

  @doc false
  defmacro __using__(opts) do
    opts = Keyword.validate!(opts, [:store, chats: true])

    quote do
      import AshAgent.Store.Conformance.Random
      alias AshAgent.{ChatContext, Context, Store}
      alias AshAgent.Store.Conversation

      setup do
        {:ok, store: unquote(Keyword.fetch!(opts, :store))}
      end

      unquote(helpers())
      unquote(conversations())
      unquote(chats(opts[:chats]))
      unquote(writers())
      unquote(claims())
      unquote(journal())
      unquote(prompts())
      unquote(finding())
      unquote(hostile())
      unquote(model())
    end
  end

  defp helpers do
    quote location: :keep do
      defp new_id, do: "conformance-" <> Base.encode16(:crypto.strong_rand_bytes(8))

      defp talk(id \\ new_id()),
        do: Context.new("Hello!", id: id) |> Context.add_assistant_message("Hi!")

      defp create!(store, value, opts \\ []) do
        assert {:ok, %Conversation{revision: 1} = kept} = Store.create(store, value, opts)
        kept
      end

      # What is written comes back, from the value that the writer has and from the store.
      defp append!(store, kept, value, opts \\ []) do
        assert {:ok, %Conversation{} = next} = Store.append(store, kept, value, opts)
        assert next.revision == kept.revision + 1
        assert_kept(store, value)
        next
      end

      defp assert_kept(store, %module{} = value) do
        id = if module == Context, do: value[:id], else: value.id
        assert {:ok, fetched} = Store.fetch(store, id)
        assert module.equal?(fetched.value, value)
        fetched
      end

      defp at_once(count, function) do
        1..count
        |> Enum.map(fn number ->
          Task.async(fn ->
            receive do: (:go -> function.(number))
          end)
        end)
        |> Enum.map(fn task -> send(task.pid, :go) && task end)
        |> Enum.map(&Task.await(&1, 60_000))
      end

      # A lease that is over.
      defp lapse, do: Process.sleep(15)
    end
  end

  defp conversations do
    quote location: :keep do
      describe "what is kept" do
        test "comes back equal, with every kind of term", %{store: store} do
          metadata = %{
            "text" => "\u{0}ü\u{10FFFF}",
            bytes: <<255, 0>>,
            big: 1_000_000_000_000_000_000_000_000,
            float: -0.0,
            huge: 1.0e300,
            day: ~D[2026-02-28],
            tuple: {:ok, nil, [true]},
            nested: %{1 => %{"$atom" => ":x"}}
          }

          context =
            Context.new("\u{0}" <> <<255>>,
              id: new_id(),
              metadata: metadata,
              system_prompt: "'; drop table x; --"
            )

          kept = create!(store, context)
          assert kept.kind == :context
          assert kept.metadata == metadata

          assert %{metadata: ^metadata, status: :idle, owner: nil, epoch: 0} =
                   assert_kept(store, context)

          assert {:error, :exists} = Store.create(store, context)
        end

        test "comes back equal after any operations", %{store: store} do
          each_case("conversations", 12, fn ->
            context = Context.new("0", id: new_id())
            kept = create!(store, context)

            Enum.reduce(1..25, {kept, [context]}, fn _step, {kept, states} ->
              # Mostly from the newest state, sometimes from one that was left.
              from = if chance?(85), do: hd(states), else: one_of(states)
              context = change(from)
              # The writer may have loaded it again meanwhile.
              kept = if chance?(20), do: elem(Store.fetch(store, kept.id), 1), else: kept
              {append!(store, kept, context), [context | states]}
            end)
          end)
        end

        test "is a fork's own, with its origin", %{store: store} do
          context = talk()
          kept = create!(store, context)
          fork = Context.fork(context, id: new_id())
          forked = create!(store, fork)
          assert forked.parent_id == kept.id
          append!(store, forked, Context.add_user_message(fork, "Other"))
          assert_kept(store, context)
          assert {:ok, %{value: value}} = Store.fetch(store, fork[:id])
          assert value[:origin] == %{id: context[:id], iteration: context.current_iteration}
          assert_raise ArgumentError, fn -> Store.append(store, kept, fork) end
        end
      end
    end
  end

  defp chats(false), do: nil

  defp chats(true) do
    quote location: :keep do
      describe "a chat that is kept" do
        test "comes back equal with all branches", %{store: store} do
          each_case("chats", 12, fn ->
            chat =
              ChatContext.new(id: new_id(), input: "0", system_prompt: "S", config: [mode: :plan])

            turn = &(&1 |> Context.add_assistant_message("a") |> Context.add_user_message("u"))

            chat =
              ChatContext.update_context(chat, fn context ->
                Enum.reduce(1..5, context, fn _, c -> turn.(c) end)
              end)

            kept = create!(store, chat)
            assert kept.kind == :chat

            Enum.reduce(1..30, {kept, chat}, fn _step, {kept, chat} ->
              chat = change_chat(chat)
              kept = append!(store, kept, chat)

              if chance?(25) do
                {:ok, kept} = Store.fetch(store, kept.id)
                {kept, kept.value}
              else
                {kept, chat}
              end
            end)
          end)
        end

        test "of a branch stays when the one that it left changes", %{store: store} do
          turn = &(&1 |> Context.add_assistant_message("a") |> Context.add_user_message("u"))

          turns = fn context ->
            Enum.reduce(1..6, context, fn _, context -> turn.(context) end)
          end

          for change <- [
                &ChatContext.update_context(
                  &1,
                  fn c -> Context.put_iteration_metadata(c, 2, :a, 1) end,
                  branch: "main"
                ),
                &ChatContext.update_context(&1, fn c -> Context.rewind(c, to: 2) end,
                  branch: "main"
                ),
                &ChatContext.delete_branch(&1, "main"),
                &ChatContext.rename_branch(&1, "main", "trunk"),
                &ChatContext.update_context(&1, fn c -> Context.rewind(c, to: 3) end,
                  branch: "idea"
                )
              ] do
            chat = ChatContext.new(id: new_id(), input: "x") |> ChatContext.update_context(turns)
            kept = create!(store, chat)

            chat =
              chat
              |> ChatContext.branch("idea", iteration: 5)
              |> ChatContext.update_context(turn, branch: "idea")

            chat =
              chat
              |> ChatContext.branch("later", from: "idea", iteration: 6)
              |> ChatContext.switch("idea")

            kept = append!(store, kept, chat)
            changed = change.(chat)
            kept = append!(store, kept, changed)
            append!(store, kept, ChatContext.update_context(changed, turn, branch: "later"))
          end
        end

        test "is the child's, with its parent", %{store: store} do
          chat = ChatContext.new(id: new_id(), input: "One")
          create!(store, chat)
          child = ChatContext.spawn_child(chat, id: new_id(), input: "Part")
          assert create!(store, child).parent_id == chat.id
          assert {:ok, %{conversations: [%{id: id}]}} = Store.list(store, parent_id: chat.id)
          assert id == child.id
        end
      end
    end
  end

  defp writers do
    quote location: :keep do
      describe "two writers" do
        test "do not mix: the second is stale, and nothing of it is kept", %{store: store} do
          kept = create!(store, talk())
          one = Context.add_user_message(kept.value, "one")

          two =
            kept.value |> Context.add_user_message("two") |> Context.add_assistant_message("2")

          append!(store, kept, one)

          assert {:error, :stale} =
                   Store.append(store, kept, two,
                     status: :running,
                     taken: ["x"],
                     finished: [%{key: "k", state: :ok}]
                   )

          fetched = assert_kept(store, one)
          assert fetched.status == :idle
          assert {:ok, []} = Store.calls(store, kept.id)
          assert {:ok, [_, _]} = Store.history(store, kept.id)
        end

        test "at once: exactly one writes", %{store: store} do
          kept = create!(store, talk())

          answers =
            at_once(12, fn number ->
              value =
                Enum.reduce(
                  1..number,
                  kept.value,
                  &(&2
                    |> Context.add_user_message("#{number}")
                    |> Context.add_assistant_message("#{&1}"))
                )

              {Store.append(store, kept, value), value}
            end)

          assert [{{:ok, _}, winner}] = for({{:ok, _}, _} = answer <- answers, do: answer)
          assert Enum.count(answers, &match?({{:error, :stale}, _}, &1)) == 11
          assert_kept(store, winner)
        end

        test "that each try again lose nothing", %{store: store} do
          kept = create!(store, Context.new("0", id: new_id()))

          at_once(4, fn writer ->
            for number <- 1..8, do: say_until_kept(store, kept.id, "#{writer}.#{number}")
          end)

          assert {:ok, %{value: context}} = Store.fetch(store, kept.id)
          said = for %{role: :user, content: text} <- Context.to_messages(context), do: text

          assert Enum.sort(List.flatten(said |> Enum.map(&String.split(&1, "\n", trim: true))))
                 |> length() == 33

          for writer <- 1..4,
              number <- 1..8,
              do: assert(Enum.any?(said, &(&1 =~ "#{writer}.#{number}")))
        end

        defp say_until_kept(store, id, text) do
          {:ok, kept} = Store.fetch(store, id)

          context =
            kept.value |> Context.add_user_message(text) |> Context.add_assistant_message("ok")

          case Store.append(store, kept, context) do
            {:ok, _} -> :ok
            {:error, :stale} -> say_until_kept(store, id, text)
          end
        end

        test "a claim keeps those out who have none", %{store: store} do
          kept = create!(store, talk())
          assert {:ok, claim} = Store.claim(store, kept.id, owner: "a")
          value = Context.add_user_message(kept.value, "x")
          assert {:error, {:owned, "a"}} = Store.append(store, kept, value)
          {:ok, fetched} = Store.fetch(store, kept.id)
          refute fetched.claimed?
          assert {:error, {:owned, "a"}} = Store.append(store, fetched, value)
          assert {:error, {:owned, "a"}} = Store.start(store, fetched, [%{key: "k"}])
          append!(store, claim, value)
        end
      end
    end
  end

  defp claims do
    quote location: :keep do
      describe "a claim" do
        test "is one owner's, until it is released", %{store: store} do
          kept = create!(store, talk())

          assert {:ok, %{claimed?: true, owner: "a", epoch: 1} = claim} =
                   Store.claim(store, kept.id, owner: "a", status: :running)

          assert claim.status == :running
          assert Context.equal?(claim.value, kept.value)
          assert {:error, {:owned, "a"}} = Store.claim(store, kept.id, owner: "b")
          assert {:error, {:owned, "a"}} = Store.claim(store, kept.id, owner: "a")
          claim = append!(store, claim, Context.add_user_message(claim.value, "x"))
          assert {:ok, released} = Store.release(store, claim, status: :paused)
          assert %{claimed?: false, owner: nil, status: :paused} = released
          assert {:error, :stale} = Store.append(store, claim, claim.value)
          assert {:ok, %{epoch: 2}} = Store.claim(store, kept.id, owner: "b")
        end

        test "passes at the end of its lease, and the old owner writes no more", %{store: store} do
          kept = create!(store, talk(), owner: "a", lease: 5)
          assert %{claimed?: true, epoch: 1} = kept
          lapse()
          assert {:ok, other} = Store.claim(store, kept.id, owner: "b")
          value = Context.add_user_message(kept.value, "late")
          assert {:error, {:owned, "b"}} = Store.append(store, kept, value)
          assert {:error, {:owned, "b"}} = Store.start(store, kept, [%{key: "k"}])
          assert {:error, {:owned, "b"}} = Store.renew(store, kept)
          assert {:error, {:owned, "b"}} = Store.release(store, kept)
          assert {:error, {:owned, "b"}} = Store.fetch(store, kept)
          assert {:ok, []} = Store.calls(store, kept.id)
          append!(store, other, Context.add_user_message(other.value, "mine"))
        end

        test "is renewed by renewing and by writing", %{store: store} do
          kept = create!(store, talk(), owner: "a", lease: 2_000)
          assert {:ok, renewed} = Store.renew(store, kept)
          assert DateTime.compare(renewed.lease_until, kept.lease_until) in [:gt, :eq]
          Process.sleep(5)
          written = append!(store, renewed, Context.add_user_message(kept.value, "x"))
          assert DateTime.compare(written.lease_until, renewed.lease_until) == :gt
          Process.sleep(5)
          assert {:ok, started, _keys} = Store.start(store, written, [])
          assert DateTime.compare(started.lease_until, written.lease_until) == :gt
          assert {:ok, again} = Store.fetch(store, started)
          assert again.claimed? and again.epoch == kept.epoch
        end

        test "is taken again by its owner's next process", %{store: store} do
          kept = create!(store, talk(), owner: "a")
          assert {:ok, %{epoch: 2}} = Store.claim(store, kept.id, owner: "a", reclaim: true)
          assert {:error, :stale} = Store.append(store, kept, kept.value)
          assert {:error, {:owned, "a"}} = Store.claim(store, kept.id, owner: "b", reclaim: true)
        end

        test "is handed from one owner to another, and to nobody else", %{store: store} do
          kept = create!(store, talk(), owner: "a")
          assert {:error, {:owned, "a"}} = Store.claim(store, kept.id, owner: "b", from: "c")
          assert {:ok, %{owner: "b"} = taken} = Store.claim(store, kept.id, owner: "b", from: "a")
          assert {:error, {:owned, "b"}} = Store.append(store, kept, kept.value)
          assert {:error, {:owned, "b"}} = Store.claim(store, kept.id, owner: "c", from: "a")
          append!(store, taken, Context.add_user_message(taken.value, "mine"))
        end

        test "goes to one of those who want it at once", %{store: store} do
          kept = create!(store, talk())
          answers = at_once(10, &Store.claim(store, kept.id, owner: "owner #{&1}"))
          assert [%{owner: owner}] = for({:ok, claim} <- answers, do: claim)
          assert Enum.count(answers, &(&1 == {:error, {:owned, owner}})) == 9
        end

        test "that is over is taken in batches, each by one", %{store: store} do
          owner = new_id()

          ids =
            for _ <- 1..12,
                do: create!(store, talk(), owner: owner, lease: 5, status: :running).id

          idle = create!(store, talk(), owner: owner, lease: 5, status: :idle).id
          alive = create!(store, talk(), owner: owner, lease: 60_000, status: :running).id
          lapse()

          taken =
            at_once(4, fn number ->
              Stream.repeatedly(fn ->
                Store.expired(store, owner: "#{owner} #{number}", limit: 2)
              end)
              |> Stream.map(fn {:ok, claims} -> claims end)
              |> Enum.take_while(&(&1 != []))
              |> List.flatten()
            end)
            |> List.flatten()
            |> Enum.filter(&(&1.id in [idle, alive | ids]))

          assert Enum.sort(Enum.map(taken, & &1.id)) == Enum.sort(ids)
          assert Enum.all?(taken, &(&1.claimed? and &1.epoch == 2 and &1.value == nil))
          assert {:ok, %{claimed?: true} = claim} = Store.fetch(store, hd(taken))
          append!(store, claim, Context.add_user_message(claim.value, "on"))
          assert_raise ArgumentError, fn -> Store.append(store, hd(taken), claim.value) end

          assert {:ok, claims} =
                   Store.expired(store, owner: owner, status: [:idle, :paused], limit: 10_000)

          assert idle in Enum.map(claims, & &1.id)
        end
      end
    end
  end

  defp journal do
    quote location: :keep do
      describe "the journal" do
        setup %{store: store} do
          calls = [
            %{id: "call_1", name: :pay, arguments: %{}},
            %{id: "call_2", name: :pay, arguments: %{}}
          ]

          context = Context.new("Pay", id: new_id()) |> Context.add_assistant_message(nil, calls)
          kept = create!(store, context, owner: "a", status: :running)
          {:ok, kept: kept, keys: Enum.map(["call_1", "call_2"], &Store.call_key(context, &1))}
        end

        test "starts each attempt once, and knows those without an outcome", %{
          store: store,
          kept: kept,
          keys: [one, two]
        } do
          facts = %{id: "call_1", name: :pay, at: {1, "\u{0}"}}
          assert {:ok, kept, [^one]} = Store.start(store, kept, [%{key: one, call: facts}])
          assert {:ok, kept, started} = Store.start(store, kept, [%{key: one}, %{key: two}])
          assert started == [two]
          assert {:ok, kept, []} = Store.start(store, kept, [%{key: one}, %{key: two}])
          assert {:ok, [_, _]} = Store.calls(store, kept.id)
          assert {:ok, [first]} = Store.calls(store, kept.id, keys: [one])

          assert %{key: ^one, attempt: 1, epoch: 1, state: :started, call: ^facts, ended_at: nil} =
                   first

          context = Context.add_tool_results(kept.value, [{"call_1", {:ok, 1}}])
          kept = append!(store, kept, context, finished: [%{key: one, state: :ok}])
          assert {:ok, [%{key: ^two}]} = Store.calls(store, kept.id, state: :started)

          assert {:ok, [%{key: ^one, state: :ok, call: ^facts} = done]} =
                   Store.calls(store, kept.id, keys: [one])

          assert DateTime.compare(done.ended_at, done.started_at) in [:gt, :eq]
        end

        test "keeps the first word about an attempt", %{
          store: store,
          kept: kept,
          keys: [one, two]
        } do
          {:ok, kept, _} = Store.start(store, kept, [%{key: one}])
          kept = append!(store, kept, kept.value, finished: [%{key: one, state: :unknown}])

          kept =
            append!(store, kept, kept.value,
              finished: [%{key: one, state: :ok}, %{key: two, state: :denied}]
            )

          assert {:ok, kept, []} = Store.start(store, kept, [%{key: one}, %{key: two}])
          assert {:ok, _, [^one]} = Store.start(store, kept, [%{key: one, attempt: 2}])

          assert {:ok, calls} =
                   Store.calls(store, kept.id, keys: [one, two], state: [:unknown, :denied, :ok])

          assert Enum.sort(Enum.map(calls, & &1.state)) == [:denied, :unknown]
        end

        test "gives an attempt to one of those who resume at once", %{
          store: store,
          kept: kept,
          keys: [one, two]
        } do
          answers = at_once(10, fn _ -> Store.start(store, kept, [%{key: one}, %{key: two}]) end)
          assert Enum.all?(answers, &match?({:ok, _, _}, &1))
          assert answers |> Enum.flat_map(&elem(&1, 2)) |> Enum.sort() == Enum.sort([one, two])
        end

        test "gives an approved call to one claim, and not again to the next", %{
          store: store,
          kept: kept,
          keys: [one, _]
        } do
          kept = append!(store, kept, Context.approve_tool_call(kept.value, "call_1", by: "ann"))
          {:ok, kept, [^one]} = Store.start(store, kept, [%{key: one}])
          assert {:ok, next} = Store.claim(store, kept.id, owner: "a", reclaim: true)
          assert Context.tool_call_status(next.value, "call_1") == :approved
          assert Store.call_key(next.value, "call_1") == one
          assert {:ok, next, []} = Store.start(store, next, [%{key: one}])
          assert {:ok, [%{epoch: 1, state: :started}]} = Store.calls(store, next.id)
          assert {:error, :stale} = Store.start(store, kept, [%{key: "other"}])
        end

        test "has a key of its own for a call after a rewind, in a fork, in a branch", %{
          store: store,
          kept: kept,
          keys: [one, _]
        } do
          context = kept.value |> Context.interrupt() |> Context.add_user_message("Again")

          again = fn context ->
            Context.add_assistant_message(context, nil, [
              %{id: "call_9", name: :pay, arguments: %{}}
            ])
          end

          before = again.(context)
          Process.sleep(1)

          after_it =
            kept.value
            |> Context.interrupt()
            |> Context.rewind(to: 1)
            |> Context.add_user_message("Again")
            |> again.()

          assert before.current_iteration == after_it.current_iteration

          keys = [
            one
            | for(
                context <- [before, after_it, Context.fork(before)],
                do: Store.call_key(context, "call_9")
              )
          ]

          keys = [Store.call_key(before, "call_9", branch: "idea") | keys]
          assert Enum.uniq(keys) == keys

          # An application may set times.
          at = ~U[2026-01-01 10:00:00Z]

          keys =
            for words <- ["Pay Ann", "Pay Bob", [%{type: :text, text: "Pay Cid"}]] do
              before
              |> Context.rewind(to: 1)
              |> Context.interrupt("stopped", at: at)
              |> Context.add_user_message(words, at: at)
              |> Context.add_assistant_message(nil, [%{id: "call_1", name: :pay}], at: at)
              |> Context.add_tool_results([{"call_1", {:ok, 1}}], at: at)
              |> Context.add_assistant_message(nil, [%{id: "call_9", name: :pay}], at: at)
              |> Store.call_key("call_9")
            end

          assert Enum.uniq(keys) == keys
        end
      end
    end
  end

  defp prompts do
    quote location: :keep do
      describe "prompts" do
        test "are kept in their order, each once, and taken with the message", %{store: store} do
          kept = create!(store, talk(), owner: "a")
          assert {:ok, first} = Store.enqueue(store, kept.id, "one", metadata: %{by: {:user, 7}})
          parts = [%{type: :text, text: "\u{0}"}]
          assert {:ok, "p2"} = Store.enqueue(store, kept.id, parts, id: "p2", kind: :steer)
          assert {:ok, "p2"} = Store.enqueue(store, kept.id, "again", id: "p2")

          assert {:ok,
                  [
                    %{id: ^first, input: "one", kind: :prompt, metadata: metadata},
                    %{id: "p2", input: ^parts, kind: :steer}
                  ]} = Store.waiting(store, kept.id)

          assert metadata == %{by: {:user, 7}}

          kept = append!(store, kept, Context.add_user_message(kept.value, "one"), taken: [first])
          assert {:ok, [%{id: "p2"}]} = Store.waiting(store, kept.id)
          append!(store, kept, kept.value, taken: ["p2"])
          assert {:ok, "p2"} = Store.enqueue(store, kept.id, "too late", id: "p2")
          assert {:ok, []} = Store.waiting(store, kept.id)
          assert {:error, :not_found} = Store.enqueue(store, new_id(), "x")
          assert {:error, %Context.Error{}} = Store.enqueue(store, kept.id, [%{type: :nonsense}])
        end

        test "is taken from an owner only while it is the owner", %{store: store} do
          kept = create!(store, talk(), owner: "a")
          assert {:ok, "p1"} = Store.enqueue(store, kept, "one", id: "p1")
          {:ok, _} = Store.claim(store, kept.id, owner: "a", reclaim: true)
          assert {:error, :stale} = Store.enqueue(store, kept, "two")
          {:ok, next} = Store.claim(store, kept.id, owner: "b", from: "a")
          assert {:error, {:owned, "b"}} = Store.enqueue(store, kept, "two")
          assert {:ok, [%{id: "p1"}]} = Store.waiting(store, kept.id)
          :ok = Store.delete(store, kept.id)
          assert {:error, :not_found} = Store.enqueue(store, next, "two")
        end

        test "of many at once are all there, and none twice", %{store: store} do
          kept = create!(store, talk(), owner: "a")

          at_once(8, fn number ->
            for at <- 1..5,
                do:
                  {:ok, _} =
                    Store.enqueue(store, kept.id, "#{number}.#{at}", id: "#{number}.#{at}")
          end)

          assert {:ok, waiting} = Store.waiting(store, kept.id)
          texts = Enum.map(waiting, & &1.input)

          assert Enum.sort(texts) ==
                   Enum.sort(for number <- 1..8, at <- 1..5, do: "#{number}.#{at}")

          # Each sender's are in its order.
          for number <- 1..8,
              do:
                assert(
                  Enum.filter(texts, &String.starts_with?(&1, "#{number}.")) ==
                    for(at <- 1..5, do: "#{number}.#{at}")
                )

          # The owner's claim and revision are as they were.
          append!(store, kept, kept.value, taken: Enum.map(waiting, & &1.id))
        end
      end
    end
  end

  defp finding do
    quote location: :keep do
      describe "finding" do
        test "by status and metadata, in pages without gaps", %{store: store} do
          mark = new_id()

          create = fn number ->
            create!(
              store,
              Context.new("x", id: new_id(), metadata: %{:mark => mark, "n" => rem(number, 3)}),
              status: one_of([:running, :paused])
            )
          end

          kept = Enum.map(1..11, create)
          filter = [metadata: %{mark: mark}]

          pages = fn opts ->
            {:ok, page} = Store.list(store, filter ++ opts)

            Stream.unfold(page, fn
              nil ->
                nil

              %{next: nil} = page ->
                {page.conversations, nil}

              page ->
                {page.conversations,
                 page.next && elem(Store.list(store, filter ++ opts ++ [after: page.next]), 1)}
            end)
            |> Enum.to_list()
          end

          for order <- [:asc, :desc], by <- [:created_at, :updated_at] do
            found = pages.(limit: 3, order: order, by: by) |> List.flatten()
            assert Enum.sort(Enum.map(found, & &1.id)) == Enum.sort(Enum.map(kept, & &1.id))
            times = Enum.map(found, &{DateTime.to_unix(Map.fetch!(&1, by), :microsecond), &1.id})
            assert times == Enum.sort(times, order)
          end

          assert Enum.all?(pages.(limit: 2), &(length(&1) <= 2))

          for status <- [:running, :paused] do
            found = pages.(status: status) |> List.flatten()

            assert Enum.sort(Enum.map(found, & &1.id)) ==
                     Enum.sort(for %{status: ^status, id: id} <- kept, do: id)
          end

          assert {:ok, %{conversations: []}} = Store.list(store, filter ++ [status: :waiting])

          assert {:ok, %{conversations: two}} =
                   Store.list(store, metadata: %{:mark => mark, "n" => 2})

          assert length(two) == 4 - 0
          assert {:ok, %{conversations: []}} = Store.list(store, metadata: %{mark: "'\"\u{0}$.*"})

          assert {:ok, %{conversations: []}} =
                   Store.list(store, metadata: %{:mark => mark, "n" => "2"})

          assert {:ok, %{conversations: []}} =
                   Store.list(store, filter ++ [until: ~U[2020-01-01 00:00:00Z]])

          assert {:ok, %{conversations: [_ | _]}} =
                   Store.list(store, filter ++ [since: ~U[2020-01-01 00:00:00Z]])

          assert_raise ArgumentError, fn -> Store.list(store, metadata: %{a: %{}}) end
        end

        test "by what the metadata are now", %{store: store} do
          mark = new_id()
          kept = create!(store, talk())
          append!(store, kept, Context.put_metadata(kept.value, :mark, mark))
          assert {:ok, %{conversations: [found]}} = Store.list(store, metadata: %{mark: mark})
          assert %{value: nil, metadata: %{mark: ^mark}, claimed?: false} = found
        end

        test "of what was written, and of nothing once it is deleted", %{store: store} do
          kept = create!(store, talk(), note: %{model: {:a, "\u{0}"}})
          kept = append!(store, kept, kept.value, note: %{n: 2})
          {:ok, claim} = Store.claim(store, kept.id, owner: "a")
          {:ok, claim, _} = Store.start(store, claim, [%{key: "k"}])
          claim = append!(store, claim, claim.value)
          {:ok, _} = Store.enqueue(store, kept.id, "x")
          assert {:ok, [first, second, third]} = Store.history(store, kept.id)
          assert %{revision: 1, epoch: 0, owner: nil, note: %{model: {:a, "\u{0}"}}} = first
          assert {%{n: 2}, %{epoch: 1, owner: "a", note: note}} = {second.note, third}
          assert note == %{}
          assert {:ok, [^third]} = Store.history(store, kept.id, after: 2)
          assert {:ok, [^first]} = Store.history(store, kept.id, limit: 1)

          assert :ok = Store.delete(store, kept.id)
          assert {:error, :not_found} = Store.delete(store, kept.id)
          assert {:error, :not_found} = Store.fetch(store, kept.id)
          assert {:error, :not_found} = Store.append(store, claim, claim.value)
          assert {:error, :not_found} = Store.renew(store, claim)
          assert {:error, :not_found} = Store.claim(store, kept.id, owner: "b")

          for read <- [&Store.history/2, &Store.calls/2, &Store.waiting/2],
              do: assert({:ok, []} = read.(store, kept.id))

          create!(store, talk(kept.id))
        end
      end
    end
  end

  defp hostile do
    quote location: :keep do
      describe "hostile data" do
        test "in ids is refused or found nowhere", %{store: store} do
          for id <- [
                "\u{0}",
                "a\u{0}b",
                <<255>>,
                <<0xED, 0xA0, 0x80>>,
                String.duplicate("x", 1_000_000)
              ] do
            assert {:error, :not_found} = Store.fetch(store, id)
            assert {:error, :not_found} = Store.claim(store, id, owner: "a")
            assert {:error, :not_found} = Store.delete(store, id)
            assert {:error, :not_found} = Store.enqueue(store, id, "x")
            assert {:ok, []} = Store.waiting(store, id)

            if String.valid?(id),
              do: assert_raise(ArgumentError, fn -> Store.create(store, talk(id)) end)

            assert_raise ArgumentError, fn -> Store.claim(store, new_id(), owner: id) end
          end

          for id <- [
                "'; drop table ash_agent_conversations; --",
                "$1",
                "{conversations}",
                "\\u0000 \\",
                "%_",
                ~s("),
                "ü\u{10FFFF}\u{FFFE}\n\t\u{7f}"
              ] do
            id = new_id() <> id
            kept = create!(store, talk(id))
            append!(store, kept, Context.add_user_message(kept.value, id), note: %{id => id})
          end
        end

        test "in calls, metadata and texts is kept", %{store: store} do
          big = String.duplicate("\u{0}'\"\\", 20_000)

          calls = [
            %{id: big, name: "n\u{0}", arguments: %{big => [big, <<255>>]}},
            %{id: "\u{0}", name: "x", arguments: %{}}
          ]

          context =
            Context.new("x", id: new_id(), metadata: %{big => big})
            |> Context.add_assistant_message(nil, calls)

          kept = create!(store, context, owner: "a")
          keys = Enum.map(calls, &Store.call_key(context, &1.id))

          assert {:ok, kept, ^keys} =
                   Store.start(
                     store,
                     kept,
                     for({key, call} <- Enum.zip(keys, calls), do: %{key: key, call: call})
                   )

          kept =
            append!(
              store,
              kept,
              Context.add_tool_results(context, for(call <- calls, do: {call.id, {:ok, big}}))
            )

          assert {:ok, stored} = Store.calls(store, kept.id)
          assert Enum.sort(Enum.map(stored, & &1.call)) == Enum.sort(calls)
        end

        test "as deep as a conversation may be is kept", %{store: store} do
          deep = Enum.reduce(1..80, 1, fn _, deep -> %{{deep} => 1} end)
          kept = create!(store, Context.new("x", id: new_id(), metadata: %{deep: deep}))
          append!(store, kept, Context.put_iteration_metadata(kept.value, 1, :deep, deep))
        end
      end
    end
  end

  defp model do
    quote location: :keep do
      test "any order of two writers' claims, writes, starts, renewals and lapses is as in a model",
           %{store: store} do
        each_case("writers", 12, fn ->
          id = new_id()
          kept = create!(store, Context.new("0", id: id))
          # What the row is, and for each writer what it holds.
          model = %{
            epoch: 0,
            revision: 1,
            owner: nil,
            over?: false,
            value: kept.value,
            started: MapSet.new()
          }

          Enum.reduce(1..60, {model, %{1 => kept, 2 => kept}}, fn step, {model, held} ->
            writer = one_of([1, 2])

            operation =
              one_of([
                :claim,
                :claim_short,
                :append,
                :append,
                :append,
                :start,
                :renew,
                :release,
                :fetch,
                :expired
              ])

            {model, mine} = step(store, operation, "writer #{writer}", step, model, held[writer])
            {model, Map.put(held, writer, mine)}
          end)
        end)
      end

      defp step(store, claim, writer, _step, model, mine) when claim in [:claim, :claim_short] do
        free? = model.owner == nil or model.over?

        answer =
          Store.claim(store, mine.id,
            owner: writer,
            lease: if(claim == :claim, do: 60_000, else: 1)
          )

        if claim == :claim_short, do: lapse()

        if free? do
          assert {:ok, kept} = answer
          assert kept.epoch == model.epoch + 1 and kept.revision == model.revision
          assert Context.equal?(kept.value, model.value)
          {%{model | owner: writer, epoch: kept.epoch, over?: claim == :claim_short}, kept}
        else
          assert {:error, {:owned, owner}} = answer
          assert owner == model.owner
          {model, mine}
        end
      end

      defp step(store, :append, _writer, step, model, mine) do
        value = mine.value |> Context.put_metadata(:step, step) |> change()

        case Store.append(store, mine, value) do
          {:ok, kept} ->
            assert may_write?(model, mine)
            assert kept.revision == model.revision + 1
            assert_kept(store, value)
            # A write renews the lease, for as long as the claim's was.
            if model.owner != nil and kept.lease == 1, do: lapse()

            {%{
               model
               | revision: kept.revision,
                 value: value,
                 over?: model.owner != nil and kept.lease == 1
             }, kept}

          {:error, reason} ->
            assert_refused(reason, model, mine)
            assert_kept(store, model.value)
            {model, mine}
        end
      end

      defp step(store, :start, _writer, step, model, mine) do
        key = "key #{div(step, 4)}"

        case Store.start(store, mine, [%{key: key}]) do
          {:ok, kept, keys} ->
            assert may_write?(model, mine)
            assert keys == if(key in model.started, do: [], else: [key])
            if model.owner != nil and kept.lease == 1, do: lapse()

            {%{
               model
               | started: MapSet.put(model.started, key),
                 over?: model.owner != nil and kept.lease == 1
             }, kept}

          {:error, reason} ->
            assert_refused(reason, model, mine)
            {model, mine}
        end
      end

      defp step(store, operation, _writer, _step, model, %{claimed?: true} = mine)
           when operation in [:renew, :release] do
        holds? = model.epoch == mine.epoch and model.owner == mine.owner

        case apply(Store, operation, [store, mine]) do
          {:ok, kept} ->
            assert holds?

            if operation == :release,
              do: {%{model | owner: nil, over?: false}, kept},
              else: {renewed(model, kept), kept}

          {:error, reason} ->
            refute holds?
            assert reason in [:stale, {:owned, model.owner}]
            {model, mine}
        end
      end

      defp step(store, :expired, writer, _step, model, mine) do
        overdue = [owner: writer, status: [:idle], lease: 60_000, limit: 10_000]
        assert {:ok, claims} = Store.expired(store, overdue)

        case Enum.find(claims, &(&1.id == mine.id)) do
          nil ->
            refute model.owner != nil and model.over?
            {model, mine}

          claim ->
            assert model.owner != nil and model.over?
            assert claim.epoch == model.epoch + 1
            assert {:ok, kept} = Store.fetch(store, claim)
            {%{model | owner: writer, epoch: claim.epoch, over?: false}, kept}
        end
      end

      defp step(store, _fetch, _writer, _step, model, mine) do
        kept = assert_kept(store, model.value)

        assert {kept.epoch, kept.revision, kept.owner} ==
                 {model.epoch, model.revision, model.owner}

        # A writer without a claim goes on from here; one with a claim keeps it.
        {model, if(mine.claimed?, do: mine, else: kept)}
      end

      defp renewed(model, kept) do
        if kept.lease == 1, do: lapse()
        %{model | over?: kept.lease == 1}
      end

      defp may_write?(model, mine) do
        owner = if mine.claimed?, do: mine.owner
        {model.epoch, model.revision, model.owner} == {mine.epoch, mine.revision, owner}
      end

      defp assert_refused(reason, model, mine) do
        refute may_write?(model, mine)
        own = if mine.claimed?, do: mine.owner

        expected =
          if model.owner != nil and model.owner != own, do: {:owned, model.owner}, else: :stale

        assert reason == expected
      end
    end
  end

  defmodule Random do
    @moduledoc false
    # Seeded changes of conversations, for the tests above.

    alias AshAgent.{ChatContext, Context}

    def each_case(name, count, function) do
      seed = ExUnit.configuration()[:seed]

      for number <- 1..count do
        :rand.seed(:exsss, {seed, :erlang.phash2(name), number})
        function.()
      end
    end

    def one_of(list), do: Enum.at(list, :rand.uniform(length(list)) - 1)
    def chance?(percent), do: :rand.uniform(100) <= percent

    @doc "Another state of a context; what the context does not allow is another change instead."
    def change(context) do
      change(context, :rand.uniform(18))
    rescue
      Context.Error -> Context.put_metadata(context, :again, :rand.uniform(1000))
    end

    defp change(context, at) when at <= 4 do
      if Context.pending_tool_calls(context) == [],
        do: Context.add_user_message(context, text()),
        else: answer(context)
    end

    defp change(context, at) when at <= 6, do: Context.add_assistant_message(context, text())

    defp change(context, at) when at <= 8 do
      calls =
        for number <- 1..:rand.uniform(3),
            do: %{
              id: "call_#{number}_#{:rand.uniform(9999)}",
              name: :pay,
              arguments: %{"n" => number}
            }

      Context.add_assistant_message(context, nil, calls)
    end

    defp change(context, 9),
      do: Context.rewind(context, to: :rand.uniform(context.current_iteration))

    defp change(context, 10),
      do:
        Context.put_iteration_metadata(
          context,
          :rand.uniform(context.current_iteration),
          :note,
          :rand.uniform(99)
        )

    defp change(context, 11),
      do: Context.add_token_usage(context, %{input_tokens: :rand.uniform(99), output_tokens: 3})

    defp change(context, 12), do: Context.put_metadata(context, one_of([:a, "b"]), text())
    defp change(context, 13), do: Context.keep_last_iterations(context, :rand.uniform(3))

    defp change(context, 14) do
      [%{id: id} | _] = Context.pending_tool_calls(context) ++ [%{id: "none"}]

      if chance?(50),
        do: Context.approve_tool_call(context, id, by: "ann"),
        else: Context.deny_tool_call(context, id, "no")
    end

    defp change(context, 15), do: Context.interrupt(context, text())
    defp change(context, 16), do: Context.put_system_prompt(context, text())

    defp change(context, 17),
      do:
        context
        |> Context.clear_tool_results()
        |> Context.put_prompt_block("now", "#{:rand.uniform(99)}")

    defp change(context, _), do: Context.put_masks(context, [{"fox", "***"}])

    defp answer(context) do
      answers =
        for call <- Context.pending_tool_calls(context), chance?(60), do: {call.id, {:ok, text()}}

      if answers == [],
        do: Context.interrupt(context),
        else: Context.add_tool_results(context, answers)
    end

    defp text,
      do:
        one_of(["fox", "\u{0}", "'quoted'", <<255>>, "ü", String.duplicate("long ", 50)]) <>
          Integer.to_string(:rand.uniform(9999))

    @doc "Another state of a chat."
    def change_chat(chat) do
      names = chat |> ChatContext.branches() |> Enum.map(& &1.name)
      change_chat(chat, :rand.uniform(12), names)
    rescue
      Context.Error -> ChatContext.put_config(chat, max_turns: :rand.uniform(1000))
    end

    defp change_chat(chat, at, names) when at <= 6,
      do: ChatContext.update_context(chat, &change/1, branch: one_of(names))

    defp change_chat(chat, at, names) when at <= 8 do
      branch = chat.branches[one_of(names)]
      number = :rand.uniform(branch.context.current_iteration)

      ChatContext.branch(chat, "branch #{:rand.uniform(9999)}",
        from: branch.name,
        iteration: number
      )
    end

    defp change_chat(chat, 9, names), do: ChatContext.switch(chat, one_of(names))
    defp change_chat(chat, 10, names), do: ChatContext.delete_branch(chat, one_of(names))

    defp change_chat(chat, 11, names),
      do: ChatContext.rename_branch(chat, one_of(names), "name \u{0} #{:rand.uniform(9999)}")

    defp change_chat(chat, _at, _names),
      do: ChatContext.put_config(chat, max_turns: :rand.uniform(9))
  end
end
