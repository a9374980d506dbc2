alias AshAgent.Integration.{MemoryChat, SchemaChat, TableChat}

# In memory beside SQLite, and in PostgreSQL with tenants by attribute and by schema.
for {resource, moduletags, integrations} <- [
      {MemoryChat, [:ash], ["Ash"]},
      {TableChat, [:ash, :postgres], ["Ash", "AshPostgres", "Postgrex", "PostgreSQL"]},
      {SchemaChat, [:ash, :postgres], ["Ash", "AshPostgres", "Postgrex", "PostgreSQL"]}
    ],
    Code.ensure_loaded?(resource) do
  defmodule Module.concat(
              AshAgent.Integration.ArrivalsTest,
              resource |> Module.split() |> List.last()
            ) do
    use ExUnit.Case, async: false

    # Calls that wait, in the conversations of a resource: who may answer them, who sees them, and when their turns go on.

    import AshAgent.TestSupport.Wait, only: [until: 1]

    alias AshAgent.{Context, Conversation, Store}
    alias AshAgent.Conversation.Upkeep
    alias AshAgent.Integration.{Chats, Repo}

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
      Application.put_env(:ash_agent_resources, :llm, fn _context ->
        {:ok, %{content: "Hello!"}}
      end)

      on_exit(fn -> Application.delete_env(:ash_agent_resources, :llm) end)
    end

    defp opts(opts \\ []), do: Keyword.merge([actor: @ann, tenant: "acme"], opts)
    defp store(tenant \\ "acme"), do: Conversation.Info.store(@resource, tenant)
    defp key(record), do: Conversation.Info.key(record)
    defp reason({:error, %{errors: [%Conversation.Error{reason: reason}]}}), do: reason

    # A conversation whose turn has made two calls that wait.
    defp waiting!(more \\ [], opts \\ []) do
      chat = @resource.start!(%{input: "Build it"}, opts(opts))
      kept = until(fn -> free(store(opts(opts)[:tenant]), key(chat)) end)
      calls = for id <- ["a", "b"], do: %{id: id, name: :build, arguments: %{"id" => id}}
      context = Context.add_assistant_message(kept.value, nil, calls)

      waits =
        for id <- ["a", "b"], do: {id, {:waiting, Map.new([handle: "#{chat.id}-#{id}"] ++ more)}}

      context =
        context
        |> Context.add_tool_results(waits)
        |> Context.add_assistant_message("I started them.")

      {:ok, _} = Store.append(store(opts(opts)[:tenant]), kept, context)
      chat
    end

    defp free(store, id) do
      {:ok, kept} = Store.fetch(store, id)
      if kept.owner == nil, do: kept
    end

    test "whoever may, gives a result once" do
      chat = waiting!()
      [key, other] = for id <- ["a", "b"], do: "#{chat.id}-#{id}"

      assert {:error, %Ash.Error.Forbidden{}} =
               @resource.arrive(chat, key, %{text: "green"}, opts())

      mia = opts(actor: @mia)
      assert @resource.arrive!(chat, key, %{text: "green"}, mia).__metadata__.arrived == :kept
      assert @resource.arrive!(chat, key, %{text: "green"}, mia).__metadata__.arrived == :again
      assert reason(@resource.arrive(chat, key, %{error: "green"}, mia)) == :answered
      assert reason(@resource.arrive(chat, "none", %{text: "green"}, mia)) == :unknown

      for input <- [%{}, %{text: "x", error: "y"}, %{text: "x", result: %{}}],
          do: assert(reason(@resource.arrive(chat, other, input, mia)) == :no_result)

      @resource.arrive!(chat, other, %{result: %{"state" => "green"}}, mia)
      assert {:ok, context} = fetch_results(chat)
      assert %{{:ok, "green"} => "m1", {:ok, %{"state" => "green"}} => "m1"} = context
      assert {:error, %Ash.Error.Invalid{}} = @resource.arrive(chat, nil, %{text: "x"}, mia)
    end

    # Those that have arrived, taken or not, and from whom.
    defp fetch_results(chat) do
      {:ok, arrivals} = Store.arrivals(store(), key(chat))
      {:ok, %{value: context}} = Store.fetch(store(), key(chat))

      taken =
        for %{result: result, from: from} <- Context.Calls.late_calls(context),
            into: %{},
            do: {result, from}

      {:ok, for(arrival <- arrivals, into: taken, do: {arrival.outcome, arrival.from})}
    end

    test "what waits is listed for those who may read it" do
      whom = "team #{System.unique_integer([:positive])}"
      chat = waiting!(for: whom)
      waiting!([for: whom], actor: @bob)
      waiting!([for: whom], tenant: "other")
      waiting!()
      @resource.start!(%{}, opts())
      list = &@resource.waiting!(%{for: whom}, opts(&1))
      assert [%{id: id, waiting_calls: calls}] = list.([])
      assert id == chat.id

      assert [
               %{key: key, call_id: "a", name: :build, for: ^whom, iteration: 1, deadline: nil},
               %{call_id: "b"}
             ] = calls

      assert length(list.(actor: @mia)) == 2
      assert length(list.(actor: @mia, tenant: "other")) == 1
      assert [_one] = list.(actor: @mia, page: [limit: 1]).results
      assert [] = @resource.waiting!(%{for: "nobody"}, opts())
      assert chat.id in Enum.map(@resource.waiting!(%{}, opts()), & &1.id)

      @resource.arrive!(chat, key, %{text: "green"}, opts(actor: @mia))
      assert [%{call_id: "b"}] = Ash.load!(chat, :waiting_calls, opts()).waiting_calls
      assert {:error, %Ash.Error.Forbidden{}} = Ash.load(chat, :waiting_calls, opts(actor: @bob))
    end

    test "a question is listed with what may be answered" do
      chat = waiting!(question: %{"choices" => ["yes", "no"]})
      assert [question | _] = Ash.load!(chat, :waiting_calls, opts()).waiting_calls
      assert question.question
      assert question.arguments == %{"id" => "a", "choices" => ["yes", "no"]}

      assert [%{question: false} | _] =
               Ash.load!(waiting!(), :waiting_calls, opts()).waiting_calls
    end

    test "a result that only the store has, and a deadline, make a turn due" do
      given = waiting!()
      passed = waiting!(deadline: ~U[2026-01-01 10:00:00Z])
      later = waiting!(deadline: DateTime.add(DateTime.utc_now(), 3_600, :second))
      {:ok, :kept} = Store.arrive(store(), key(given), "#{given.id}-a", {:ok, "green"})
      # With AshPostgres, a result has ten seconds to be taken by itself.
      unless @resource == MemoryChat,
        do: assert({:ok, _} = Upkeep.resume_due(@resource, tenant: "acme"))

      long_ago()
      assert "acme" in Upkeep.due_tenants(@resource) or @resource == SchemaChat

      if @resource != MemoryChat do
        due =
          Ash.read!(
            Ash.Query.filter_input(@resource, %{id: %{in: [given.id, passed.id, later.id]}}),
            opts()
          )

        due = Ash.load!(due, :due, opts())

        assert Enum.sort(for(%{due: true, id: id} <- due, do: id)) ==
                 Enum.sort([given.id, passed.id])
      end

      # Who asked cannot be found, so they stay due.
      assert {:ok, _} = Upkeep.resume_due(@resource, tenant: "acme")
      assert {:ok, %{{:error, :deadline} => "deadline"}} = untaken_or_words(passed)
      assert {:ok, []} = Store.arrivals(store(), key(later))
    end

    # A deadline that was taken has words in the conversation.
    defp untaken_or_words(chat) do
      with {:ok, results} <- fetch_results(chat) do
        {:ok,
         for(
           {{status, _words}, "deadline"} <- results,
           into: %{},
           do: {{status, :deadline}, "deadline"}
         )}
      end
    end

    defp long_ago do
      if @resource != MemoryChat do
        %{prefix: prefix} = store()

        Repo.query!(
          "update #{prefix}ash_agent_arrivals set at = at - interval '1 minute' where revision is null"
        )
      end
    end

    # That whoever asked is found again, and not who brings the result, is in grown/authority_test.exs.
    test "a result waits for who asked, if nobody else can find them" do
      Application.put_env(:ash_agent_resources, :llm, fn context ->
        if Context.Calls.late_calls(context, :placed) == [],
          do: {:ok, %{content: "Hello!"}},
          else: call_or_end(context)
      end)

      chat = waiting!()
      @resource.arrive!(chat, "#{chat.id}-a", %{text: "green"}, opts(actor: @mia))
      assert Ash.load!(chat, :status, opts()).status == :idle
      @resource.resume!(chat, opts())
      assert until(fn -> "I am ann." in texts(chat) end)
      assert until(fn -> free(store(), key(chat)) end).status == :idle
    end

    defp call_or_end(context) do
      case List.last(Context.to_messages(context)) do
        %{role: :user, content: [%{tool_use_id: "who", content: words}]} ->
          {:ok, %{content: "I am #{Context.JSON.decode!(words)["name"]}."}}

        _late ->
          {:ok, %{tool_calls: [%{id: "who", name: "whoami", arguments: %{}}]}}
      end
    end

    # As the runtime knows a turn that was begun for a result.
    defp woken(context, times) do
      for n <- 1..times, reduce: context do
        context ->
          context =
            context |> Context.add_user_message("Woken") |> Context.add_assistant_message("So.")

          note = %{"at" => DateTime.to_iso8601(DateTime.utc_now()), "turn" => n}
          Context.put_iteration_metadata(context, context.current_iteration, "woken", note)
      end
    end

    test "over so many turns an hour, a result waits until a person resumes" do
      chat = waiting!()
      {:ok, kept} = Store.fetch(store(), key(chat))
      {:ok, _} = Store.append(store(), kept, woken(kept.value, 20))
      {:ok, :kept} = Store.arrive(store(), key(chat), "#{chat.id}-a", {:ok, "green"})
      long_ago()

      nobody = [tenant: "acme", authorize?: false]
      assert reason(@resource.resume(chat, %{wait: false}, nobody)) == :max_wakes
      assert {:ok, _} = Upkeep.resume_due(@resource, tenant: "acme")
      assert {:ok, [_result]} = Store.arrivals(store(), key(chat))
      @resource.arrive!(chat, "#{chat.id}-b", %{text: "red"}, opts(actor: @mia))
      assert {:ok, [_, _]} = Store.arrivals(store(), key(chat))

      @resource.resume!(chat, opts())
      assert until(fn -> Store.arrivals(store(), key(chat)) == {:ok, []} end)
    end

    if @resource == MemoryChat do
      test "a page of results for others in the same store leaves none behind" do
        for n <- 1..1_000 do
          context =
            Context.new("Hi", id: "other #{n}")
            |> Context.add_assistant_message(nil, [%{id: "a", name: :x}])
            |> Context.add_tool_results([{"a", {:waiting, %{handle: "other #{n}"}}}])

          {:ok, _} = Store.create(store(), Context.add_assistant_message(context, "It runs."))
          {:ok, :kept} = Store.arrive(store(), "other #{n}", "other #{n}", {:ok, 1})
        end

        # Nobody has to be found for one that nobody asked.
        chat = waiting!([], actor: nil, authorize?: false)
        {:ok, :kept} = Store.arrive(store(), key(chat), "#{chat.id}-a", {:ok, "green"})
        assert {:ok, count} = Upkeep.resume_due(@resource, tenant: "acme", limit: 1_000)
        assert count > 0
        assert until(fn -> Store.arrivals(store(), key(chat)) == {:ok, []} end)
      end
    end

    defp texts(chat) do
      {:ok, %{value: context}} = Store.fetch(store(), key(chat))
      for %{content: text} when is_binary(text) <- Context.to_messages(context), do: text
    end
  end
end
