if Code.ensure_loaded?(AshPostgres.DataLayer) do
  alias AshAgent.Integration.{SchemaChat, SchemaIteration, TableChat, TableIteration}

  # The iterations of conversations as a resource, with tenants by attribute and by schema.
  for {chat, iteration} <- [{TableChat, TableIteration}, {SchemaChat, SchemaIteration}] do
    defmodule Module.concat(
                AshAgent.Integration.IterationsTest,
                chat |> Module.split() |> List.last()
              ) do
      use ExUnit.Case, async: false

      require Ash.Query

      alias AshAgent.{Context, Store}
      alias AshAgent.Integration.{Chats, Repo}

      @moduletag :ash
      @moduletag :postgres
      @moduletag :capture_log
      @moduletag integrations: ["Ash", "AshPostgres", "Postgrex", "PostgreSQL"]

      @chat chat
      @iteration iteration
      @ann %{id: "a1", name: "ann", role: :agent}
      @bob %{id: "b1", name: "bob", role: :agent}

      setup_all do
        Chats.tables(@chat)
      end

      setup do
        on_exit(fn -> Application.delete_env(:ash_agent_resources, :llm) end)

        Application.put_env(:ash_agent_resources, :llm, fn context ->
          if Context.count_messages(context) == 4,
            do: {:ok, %{tool_calls: [%{id: "w", name: "whoami"}], usage: usage()}},
            else: {:ok, %{content: "Good.", usage: usage()}}
        end)

        chat = @chat.start!(%{input: "One"}, opts())
        %{chat: @chat.say!(chat, "Two", opts())}
      end

      defp usage, do: %{input_tokens: 10, output_tokens: 3}
      defp opts(opts \\ []), do: Keyword.merge([actor: @ann, tenant: "acme"], opts)
      defp read(query, opts \\ []), do: Ash.read!(query, opts(opts))

      test "are loaded with their conversation, in order", %{chat: chat} do
        fields = [:status, :started_at, :completed_at, :total_tokens, :content]
        chat = Ash.load!(chat, [:context, iterations: fields], opts())
        assert Enum.map(chat.iterations, & &1.number) == [1, 2, 3]

        for iteration <- chat.iterations do
          content = Context.get_iteration(chat.context, iteration.number)
          # The system prompt is the conversation's, and so is who asked.
          messages = for m <- content.messages, m.role != :system, do: Map.delete(m, :metadata)
          assert iteration.content == %{content | messages: messages}
          assert iteration.conversation_id == chat.id
          assert iteration.started_at == content.started_at
          assert iteration.completed_at == content.completed_at
          assert iteration.total_tokens == 13
        end

        assert Enum.map(chat.iterations, & &1.status) == [:completed, :completed, :open]
      end

      test "are filtered, sorted and counted by the database", %{chat: chat} do
        query = Ash.Query.filter(@iteration, conversation_id == ^chat.id)
        assert [%{number: 3}] = read(Ash.Query.filter(query, status == :open))
        assert [%{number: 2}] = read(Ash.Query.filter(query, number > 1 and status == :completed))
        assert [%{number: 3} | _] = read(Ash.Query.sort(query, started_at: :desc))
        assert Ash.sum!(query, :total_tokens, opts()) == 39
        assert Ash.count!(query, opts()) == 3

        assert Ash.load!(chat, :iteration_count, opts()).iteration_count == 3
        long = Ash.Query.filter(@chat, iteration_count > 2)
        assert chat.id in Enum.map(read(long), & &1.id)

        found = Ash.Query.filter(@chat, exists(iterations, number == 3 and status == :open))
        assert chat.id in Enum.map(read(found), & &1.id)

        other = Ash.Query.filter(@iteration, conversation.title == "none")
        assert read(other) == []
      end

      test "come without their documents", %{chat: chat} do
        assert [%{document: %Ash.NotLoaded{}} | _] = read(@iteration)
        query = Ash.Query.filter(@iteration, conversation_id == ^chat.id and number == 1)

        assert [%{document: %{"number" => 1}}] =
                 query |> Ash.Query.ensure_selected(:document) |> read()

        refute Ash.Resource.Info.attribute(@iteration, :document).public?
      end

      test "follow a rewind, and go with their conversation", %{chat: chat} do
        query = Ash.Query.filter(@iteration, conversation_id == ^chat.id)
        @chat.rewind!(chat, 1, opts())
        assert [%{number: 1}] = read(query)
        Ash.destroy!(chat, opts())
        assert read(query) == []
      end

      test "are those of conversations that the actor may read", %{chat: chat} do
        query = Ash.Query.filter(@iteration, conversation_id == ^chat.id)
        bob = [actor: @bob]
        assert read(query, bob) == []
        assert Ash.count!(query, opts(bob)) == 0
        assert Ash.load!(chat, :iterations, opts(bob)).iterations == []

        assert {:error, _} =
                 Ash.get(@iteration, %{conversation_id: chat.id, number: 1}, opts(bob))

        # In the other tenant, and in none.
        assert read(query, tenant: "other") == []
        assert read(query, tenant: "other", authorize?: false) == []
        assert {:error, %Ash.Error.Invalid{}} = Ash.read(query, opts(tenant: nil))
        assert {:error, %Ash.Error.Invalid{}} = Ash.read(query, tenant: nil, authorize?: false)
        assert length(read(query, actor: nil, authorize?: false)) == 3
      end

      test "have policies of their own besides", %{chat: chat} do
        query = Ash.Query.filter(@iteration, conversation_id == ^chat.id)
        guest = [actor: %{@ann | role: :guest}]
        assert {:error, %Ash.Error.Forbidden{}} = Ash.read(query, opts(guest))
        auditor = [actor: %{@bob | role: :auditor}]
        assert length(read(query, auditor)) == 3
        assert read(query, auditor ++ [tenant: "other"]) == []
      end

      test "of other conversations in the store are not there" do
        store = AshAgent.Conversation.Info.store(@chat, "acme")

        for id <- [Ash.UUID.generate(), Ash.UUID.generate() <> "x", "'", "7"],
            do: Store.create(store, Context.new("Hi", id: id))

        ids = @chat |> read(authorize?: false) |> Enum.map(& &1.id)
        assert Enum.all?(read(@iteration, authorize?: false), &(&1.conversation_id in ids))
      end

      test "are written by nobody but the store, nor generated by migrations" do
        assert Enum.map(Ash.Resource.Info.actions(@iteration), & &1.name) == [:read]
        refute AshPostgres.DataLayer.Info.migrate?(@iteration)
      end

      test "of a damaged table is an error that shows nothing", %{chat: chat} do
        prefix = if @chat == SchemaChat, do: "acme.", else: ""

        Repo.query!(
          "UPDATE #{prefix}ash_agent_iterations SET document = '{\"SECRET\": 1}' WHERE conversation_id = $1 AND number = 1",
          [AshAgent.Conversation.Info.key(chat)]
        )

        query = Ash.Query.filter(@iteration, conversation_id == ^chat.id)
        assert {:error, error} = query |> Ash.Query.load(:content) |> Ash.read(opts())
        refute inspect(error, limit: :infinity) =~ "SECRET"
      end
    end
  end
end
