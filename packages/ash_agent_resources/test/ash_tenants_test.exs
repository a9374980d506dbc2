if Code.ensure_loaded?(AshPostgres.DataLayer) do
  alias AshAgent.Integration.{SchemaChat, SchemaDesk, SharedDesk, TableChat, TableDesk}

  for {chat, desk} <- [
        {TableChat, TableDesk},
        {SchemaChat, SchemaDesk},
        {SchemaChat, SharedDesk}
      ] do
    defmodule Module.concat(
                AshAgent.Integration.TenantsTest,
                desk |> Module.split() |> List.last()
              ) do
      # What the database calculates of a conversation is of its tenant, wherever the expression stands.
      use ExUnit.Case, async: false

      require Ash.Query

      alias AshAgent.Conversation.{Info, Upkeep}
      alias AshAgent.Integration.{Chats, Repo}
      alias AshAgent.Store

      @moduletag :ash
      @moduletag :postgres
      @moduletag :capture_log
      @moduletag integrations: ["Ash", "AshPostgres", "Postgrex", "PostgreSQL"]

      @chat chat
      @desk desk
      @schemas? chat == SchemaChat
      @opts [actor: %{id: "m", name: "mia", role: :manager}, tenant: "acme"]

      setup_all do
        Chats.tables(@chat)
        schemas = if @desk == SchemaDesk, do: ["acme.", "other."], else: [""]

        for schema <- schemas do
          Repo.query!("DROP TABLE IF EXISTS #{schema}desks")
          Repo.query!("CREATE TABLE #{schema}desks (id uuid PRIMARY KEY, name text, org text)")
        end

        Application.put_env(:ash_agent_resources, :llm, fn _context ->
          {:ok, %{content: "Hi."}}
        end)

        on_exit(fn -> Application.delete_env(:ash_agent_resources, :llm) end)

        for {name, input} <- [{"one", %{input: "Hi"}}, {"two", %{}}] do
          Ash.create!(@desk, %{name: name, org: "acme"}, @opts)
          @chat.start!(Map.put(input, :title, name), @opts)
        end

        # Another tenant has the same names.
        @chat.start!(%{title: "one", input: "Hi"}, Keyword.put(@opts, :tenant, "other"))

        Repo.query!(
          "UPDATE #{prefix()}ash_agent_conversations SET status = 'paused' WHERE id = $1",
          [key("two")]
        )

        if @schemas?, do: unprefixed()
        :ok
      end

      defp prefix, do: if(@schemas?, do: "acme.", else: "")

      defp key(title) do
        [chat] = @chat |> Ash.Query.filter(title == ^title) |> Ash.read!(@opts)
        Info.key(chat)
      end

      # Tables of another resource, with rows of the same keys that say the opposite.
      defp unprefixed do
        {:ok, _} = Store.Postgres.Migrations.migrate(Store.Postgres.new(Repo))
        Repo.query!("DELETE FROM public.ash_agent_conversations")

        Repo.query!(
          "INSERT INTO public.ash_agent_conversations SELECT * FROM acme.ash_agent_conversations"
        )

        Repo.query!(
          "UPDATE public.ash_agent_conversations SET status = case status when 'idle' then 'paused' else 'running' end, revision = 0"
        )
      end

      defp names(query, opts \\ @opts),
        do: query |> Ash.read!(opts) |> Enum.map(& &1.name) |> Enum.sort()

      test "in filters and sorts" do
        paused = Ash.Query.filter(@chat, status == :paused)
        assert [%{title: "two"}] = Ash.read!(paused, @opts)
        assert [%{title: "one"}] = @chat |> Ash.Query.filter(status == :idle) |> Ash.read!(@opts)
        by = Ash.Query.sort(@chat, message_count: :desc)
        assert ["one", "two"] = by |> Ash.read!(@opts) |> Enum.map(& &1.title)
      end

      test "in exists" do
        for {query, found} <- [
              {Ash.Query.filter(@desk, exists(chats, status == :idle)), ~w(one)},
              {Ash.Query.filter(@desk, exists(chats, status == :paused)), ~w(two)},
              {Ash.Query.filter(@desk, exists(chats, status == :running)), []},
              {Ash.Query.filter(@desk, exists(chats, due)), []},
              {Ash.Query.filter(@desk, exists(chats, revision > 0 and message_count > 1)),
               ~w(one)},
              {Ash.Query.filter(@desk, exists(chats, last_activity_at > ago(1, :hour))),
               ~w(one two)},
              {Ash.Query.filter(@desk, not exists(chats, status == :idle)), ~w(two)},
              {Ash.Query.filter(@desk, chats.status == :idle), ~w(one)}
            ],
            do: assert(names(query) == found)
      end

      test "in aggregates" do
        desks = @desk |> Ash.Query.load([:paused, :statuses, :messages]) |> Ash.read!(@opts)

        assert desks |> Enum.map(&{&1.name, &1.paused, &1.statuses, &1.messages}) |> Enum.sort() ==
                 [{"one", 0, [:idle], 3}, {"two", 1, [:paused], 1}]

        assert @desk |> Ash.Query.filter(paused > 0) |> names() == ~w(two)
        sorted = @desk |> Ash.Query.sort(paused: :desc) |> Ash.read!(@opts)
        assert Enum.map(sorted, & &1.name) == ~w(two one)
      end

      test "in calculations" do
        desks = @desk |> Ash.Query.load([:waits?, :busy?, :revised?]) |> Ash.read!(@opts)

        assert desks |> Enum.map(&{&1.name, &1.waits?, &1.busy?, &1.revised?}) |> Enum.sort() ==
                 [{"one", false, false, true}, {"two", true, false, true}]

        assert @desk |> Ash.Query.filter(waits?) |> names() == ~w(two)
      end

      test "in policies" do
        assert @desk |> Ash.Query.for_read(:open) |> names() == ~w(one)
      end

      if @schemas? do
        test "where Ash knows no tenant, nothing is read" do
          query = Ash.Query.filter(@desk, exists(SchemaChat, status == :running))
          error = catch_error(Ash.read!(query, [authorize?: false] ++ @opts))
          assert Exception.message(error) =~ "require a tenant"
        end

        test "without a tenant, nothing is read" do
          none = Keyword.delete(@opts, :tenant)
          assert_raise Ash.Error.Invalid.TenantRequired, fn -> Info.store(@chat, nil) end
          assert {:error, %Ash.Error.Invalid{}} = Upkeep.resume_due(@chat)
          assert_raise Ash.Error.Invalid.TenantRequired, fn -> Upkeep.sweep(@chat) end

          assert Upkeep.due_tenants(@chat) == ["acme", "other"]

          if @desk == SharedDesk do
            for query <- [
                  Ash.Query.filter(@desk, exists(chats, status == :running)),
                  Ash.Query.filter(@desk, paused > 0),
                  Ash.Query.filter(@desk, waits?),
                  Ash.Query.for_read(@desk, :open)
                ],
                do: assert(catch_error(Ash.read!(query, none)))
          end
        end
      end
    end
  end
end
