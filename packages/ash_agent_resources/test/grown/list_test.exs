if Code.ensure_loaded?(MyApp.DataCase) do
  defmodule MyApp.ListTest do
    # A page of conversations, with filters and sorts.
    use MyApp.DataCase, async: true

    require Ash.Query

    import AshAgent.TestSupport.Runs, only: [drain: 1]

    alias AshAgent.Context
    alias AshAgent.Conversation.Info
    alias AshAgent.Store
    alias MyApp.Chat.{Conversation, Repo}

    setup do
      ann = user("ann")
      %{opts: [actor: ann, tenant: "acme"], bob: [actor: user("bob"), tenant: "acme"]}
    end

    defp titles(query, opts) do
      case Ash.read!(query, opts) do
        %{results: results} -> Enum.map(results, & &1.title)
        results -> Enum.map(results, & &1.title)
      end
    end

    test "can be filtered and sorted by the stored row", %{opts: opts, bob: bob} do
      one = Conversation.start!(%{title: "one", input: "Hi"}, opts)
      Conversation.start!(%{title: "two"}, opts)
      call = %{id: "1", name: "note_write", arguments: %{"text" => "x"}}
      context = answers([%{tool_calls: [call]}, "Done."])
      three = Conversation.start!(%{title: "three", input: "Write"}, [context: context] ++ opts)
      Conversation.start!(%{title: "bob's", input: "Hi"}, bob)

      for {query, found} <- [
            {Ash.Query.filter(Conversation, status == :paused), ~w(three)},
            {Ash.Query.filter(Conversation, message_count > 2 and status == :idle), ~w(one)},
            {Ash.Query.sort(Conversation, message_count: :desc, title: :asc), ~w(one three two)},
            {Ash.Query.sort(Conversation, last_activity_at: :desc), ~w(three two one)},
            # From outside.
            {Ash.Query.filter_input(Conversation, %{status: "paused"}), ~w(three)},
            {Ash.Query.sort_input(Conversation, "-last_activity_at"), ~w(three two one)}
          ],
          do: assert(titles(query, opts) == found)

      by_revision = Ash.Query.sort(Conversation, revision: :desc, title: :asc)
      assert by_revision |> titles(opts) |> List.last() == "two"

      assert {:error, %Ash.Error.Invalid{}} =
               Conversation |> Ash.Query.filter_input(%{total_tokens: 1}) |> Ash.read(opts)

      # What the database counts is what the context has.
      manager = [actor: user("mia", :manager), tenant: "acme"]

      paused =
        Conversation.approve!(three, "1", manager)
        |> Conversation.resume!([context: context] ++ opts)

      late = wait(Conversation.start!(%{title: "four"}, opts))

      for record <- [one, paused, late] do
        record = Ash.load!(record, [:message_count, :context, :last_activity_at, :status], opts)
        assert record.message_count == Context.count_messages(record.context)
        assert %DateTime{} = record.last_activity_at
        assert record.status == :idle
      end
    end

    test "has pages by keyset and offset", %{opts: opts} do
      for n <- 1..5, do: Conversation.start!(%{title: "#{n}"}, opts)
      query = Ash.Query.sort(Conversation, last_activity_at: :desc)
      page = Ash.read!(query, [page: [limit: 2, count: true]] ++ opts)
      assert {Enum.map(page.results, & &1.title), page.count} == {["5", "4"], 5}
      assert Enum.map(Ash.page!(page, :next).results, & &1.title) == ["3", "2"]
      page = Ash.read!(query, [page: [limit: 2, offset: 4]] ++ opts)
      assert Enum.map(page.results, & &1.title) == ["1"]
    end

    test "can be sorted by aggregates of iterations, in its tenant", %{opts: opts} do
      one = Conversation.start!(%{title: "one", input: "Hi"}, opts)
      Conversation.start!(%{title: "two", input: "Hi"}, opts)
      Conversation.say!(one, "Again", opts)
      other = Keyword.put(opts, :tenant, "other")
      Conversation.start!(%{title: "other", input: "Hi"}, other)
      query = Ash.Query.sort(Conversation, iteration_count: :desc)
      assert titles(query, opts) == ["one", "two"]

      loaded = Ash.Query.load(query, [:iteration_count, :tokens])
      assert titles(loaded, opts) == ["one", "two"]
      assert titles(query, other) == ["other"]
    end

    test "updated_at moves with say", %{opts: opts} do
      chat = Conversation.start!(%{}, opts)
      said = Conversation.say!(chat, "Hi", opts)
      assert DateTime.compare(said.updated_at, chat.updated_at) == :gt
    end

    test "20 with their status are at most two statements", %{opts: opts} do
      for n <- 1..20, do: long(Conversation.start!(%{title: "#{n}"}, opts))
      loads = [:status, :revision, :last_activity_at]
      query = Ash.Query.load(Conversation, loads)
      assert length(statements(fn -> assert length(Ash.read!(query, opts)) == 20 end)) <= 2

      # A row of the store for each, with the versions that its transaction has made of it, and no messages.
      {plain, _query} = blocks(fn -> Ash.read!(Conversation, opts) end)

      {with_status, query} =
        blocks(fn -> Ash.read!(Ash.Query.load(Conversation, :status), opts) end)

      assert with_status <= plain + 20 * 20
      assert query =~ "ash_agent_conversations"
      refute query =~ "ash_agent_iterations"
    end

    # A call whose result was late.
    defp wait(chat) do
      store = Info.store(Conversation, "acme")
      {:ok, kept} = Store.fetch(store, Info.key(chat))

      context =
        kept.value
        |> Context.add_user_message("Build it")
        |> Context.add_assistant_message(nil, [%{id: "a", name: "build"}])
        |> Context.add_tool_results([{"a", {:waiting, %{}}}])
        |> Context.add_assistant_message("It runs.")

      {:ok, context} = Context.Calls.arrive(context, "a", {:ok, "green"})
      {:ok, _} = Store.append(store, kept, Context.Calls.place_arrivals(context), status: :idle)
      chat
    end

    # 100 turns of 4 KB.
    defp long(chat) do
      store = Info.store(Conversation, "acme")
      {:ok, kept} = Store.fetch(store, Info.key(chat))
      text = String.duplicate("x", 2_000)

      context =
        Enum.reduce(1..100, kept.value, fn _n, context ->
          context |> Context.add_user_message(text) |> Context.add_assistant_message(text)
        end)

      {:ok, _} = Store.append(store, kept, context)
    end

    # How many blocks PostgreSQL looks at for the statement, and the statement.
    defp blocks(fun) do
      assert [%{query: query, params: params}] = statements(fun)
      %{rows: rows} = Repo.query!("EXPLAIN (ANALYZE, BUFFERS) " <> query, params)

      [line | _] = for [line] <- rows, line =~ "Buffers: shared", do: line

      counts =
        for [_, count] <- Regex.scan(~r/(?:hit|read)=(\d+)/, line), do: String.to_integer(count)

      {Enum.sum(counts), query}
    end

    defp statements(fun) do
      test = self()
      id = {__MODULE__, make_ref()}
      event = Repo.config()[:telemetry_prefix] ++ [:query]
      tell = fn _, _, asked, _ -> if self() == test, do: send(test, {id, asked}) end
      :telemetry.attach(id, event, tell, nil)
      fun.()
      :telemetry.detach(id)
      drain(do: ({^id, asked} -> asked))
    end
  end
end
