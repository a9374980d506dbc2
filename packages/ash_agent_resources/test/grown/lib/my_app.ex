if Code.ensure_loaded?(AshPostgres.DataLayer) do
  defmodule MyApp.Chat.Repo do
    @moduledoc false
    # A database of its own: everything in it is made by the migrations of `mix ash.codegen`.
    use AshPostgres.Repo, otp_app: :ash_agent_resources

    @impl true
    def installed_extensions, do: ["ash-functions"]

    @impl true
    def min_pg_version, do: %Version{major: 13, minor: 0, patch: 0}

    @impl true
    def init(kind, config) do
      with {:ok, config} <- MyApp.Repo.init(kind, config) do
        {:ok,
         config
         |> Keyword.merge(database: "ash_agent_grown", pool_size: 5)
         |> Keyword.put_new(:pool, Ecto.Adapters.SQL.Sandbox)}
      end
    end
  end

  if Code.ensure_loaded?(Oban.Migration) do
    defmodule MyApp.Chat.Repo.AddOban do
      @moduledoc false
      use Ecto.Migration

      def up, do: Oban.Migration.up()
    end
  end

  defmodule MyApp.Heard do
    @moduledoc false
    # Tells whoever listens to a record of its notifications.
    use Ash.Notifier

    def listen(id), do: :global.register_name({__MODULE__, id}, self())

    @impl true
    def notify(%{action: action, data: data, metadata: metadata}) do
      listener = :global.whereis_name({__MODULE__, data.id})
      if is_pid(listener), do: send(listener, {:heard, action.name, metadata})
      :ok
    end
  end

  defmodule MyApp.Table do
    @moduledoc false
    # `use MyApp.Table, "notes"` is a resource of the chat in that table, with the options of `use Ash.Resource` that follow.

    defmacro __using__({table, opts}), do: table(table, opts)
    defmacro __using__(table), do: table(table, [])

    defp table(table, opts) do
      # Spark reads the list, not what it comes to.
      opts = Keyword.merge([domain: MyApp.Chat, data_layer: AshPostgres.DataLayer], opts)

      quote do
        use Ash.Resource, unquote(opts)

        postgres do
          table(unquote(table))
          repo(MyApp.Chat.Repo)
        end
      end
    end
  end

  defmodule MyApp.Tenants do
    @moduledoc false

    defmacro __using__(_opts) do
      quote do
        multitenancy do
          strategy(:attribute)
          attribute(:org)
        end

        attributes do
          attribute(:org, :string, allow_nil?: false)
        end
      end
    end
  end

  defmodule MyApp.OpenIterations do
    @moduledoc false

    defmacro __using__(of: conversation) do
      quote do
        use Ash.Resource,
          domain: MyApp.Chat,
          data_layer: AshPostgres.DataLayer,
          authorizers: [Ash.Policy.Authorizer],
          extensions: [AshAgent.Conversation.Iteration]

        iteration do
          conversation(unquote(conversation))
        end

        policies do
          policy always() do
            authorize_if(always())
          end
        end
      end
    end
  end

  defmodule MyApp.Accounts do
    @moduledoc false
    use Ash.Domain, validate_config_inclusion?: false

    resources do
      resource(MyApp.Accounts.User)
    end
  end

  defmodule MyApp.Accounts.User do
    @moduledoc false
    use MyApp.Table, {"users", domain: MyApp.Accounts}

    attributes do
      uuid_primary_key(:id)
      attribute(:name, :string, public?: true, allow_nil?: false)
      attribute(:role, :atom, public?: true, default: :member)
    end

    actions do
      defaults([:read, create: [:name, :role]])
    end
  end

  defmodule MyApp.Chat do
    @moduledoc false
    use Ash.Domain, validate_config_inclusion?: false

    resources do
      resource(MyApp.Chat.Conversation)
      resource(MyApp.Chat.Iteration)
      resource(MyApp.Chat.Case)
      resource(MyApp.Chat.Phone)
      resource(MyApp.Chat.PhoneIteration)
      resource(MyApp.Chat.Project)
      resource(MyApp.Chat.Memory)
      resource(MyApp.Chat.Note)
      resource(MyApp.Chat.Adviser)
      if Code.ensure_loaded?(AshOban), do: resource(MyApp.Chat.Errand)
    end

    # Says back what it was told; a test gives another one in the action's context.
    def llm(context) do
      %{content: text} = context |> AshAgent.Context.to_messages() |> List.last()
      {:ok, %{content: "You said: #{text}"}}
    end

    # Gives a typed answer.
    def adviser do
      fn _context ->
        call = %{id: "1", name: "submit_answer", arguments: %{"content" => "Tea.", "score" => 7}}
        {:ok, %{tool_calls: [call]}}
      end
    end

    def tools, do: AshAgent.Tools.actions(MyApp.Chat.Note, [:write])

    def approval(%{name: "note_write"}, _context), do: :ask
    def approval(_call, _context), do: :approve
  end

  defmodule MyApp.Chat.Note do
    @moduledoc false
    # Written by a tool: it has who wrote it, and in which language.
    use MyApp.Table, "notes"
    use MyApp.Tenants

    attributes do
      integer_primary_key(:id)
      attribute(:text, :string, public?: true)
      attribute(:author_id, :uuid)
      attribute(:locale, :string)
    end

    actions do
      defaults([:read])

      create :write do
        accept([:text])
        change(set_attribute(:author_id, actor(:id)))

        change(fn changeset, context ->
          Ash.Changeset.force_change_attribute(
            changeset,
            :locale,
            context.source_context[:shared][:locale]
          )
        end)
      end
    end
  end

  defmodule MyApp.Chat.Conversation do
    @moduledoc false
    # Archived, and not destroyed, by its destroy action.
    use MyApp.Table,
        {"conversations",
         authorizers: [Ash.Policy.Authorizer],
         notifiers: [MyApp.Heard],
         extensions: [AshAgent.Conversation, AshArchival.Resource]}

    use MyApp.Tenants

    archive do
      exclude_destroy_actions([:purge])
    end

    attributes do
      uuid_primary_key(:id)
      attribute(:title, :string, public?: true)
    end

    relationships do
      belongs_to :user, MyApp.Accounts.User do
        attribute_public?(true)
        attribute_writable?(false)
      end
    end

    aggregates do
      count(:iteration_count, :iterations, public?: true)
      sum(:tokens, :iterations, :total_tokens, public?: true)
    end

    changes do
      change(relate_actor(:user), on: [:create])
    end

    actions do
      destroy(:purge)

      update :rename do
        accept([:title])
        validate(string_length(:title, min: 3))
      end
    end

    conversation do
      iterations(MyApp.Chat.Iteration)
      llm(&MyApp.Chat.llm/1)
      tools(&MyApp.Chat.tools/0)
      approval(&MyApp.Chat.approval/2)
      system_prompt("You are brief.")
    end

    policies do
      bypass actor_attribute_equals(:role, :manager) do
        authorize_if(always())
      end

      policy action([:approve, :deny]) do
        forbid_if(always())
      end

      policy action_type(:create) do
        authorize_if(actor_present())
      end

      policy action_type([:read, :update, :destroy]) do
        authorize_if(expr(user_id == ^actor(:id)))
      end
    end
  end

  defmodule MyApp.Chat.Iteration do
    @moduledoc false
    use MyApp.OpenIterations, of: MyApp.Chat.Conversation
  end

  defmodule MyApp.Chat.Phone do
    @moduledoc false
    # A support desk sees that there are conversations, and not their words.
    use MyApp.Table,
        {"phones", authorizers: [Ash.Policy.Authorizer], extensions: [AshAgent.Conversation]}

    conversation do
      iterations(MyApp.Chat.PhoneIteration)
      llm(&MyApp.Chat.llm/1)
    end

    policies do
      policy always() do
        authorize_if(always())
      end
    end

    field_policies do
      field_policy [:transcript, :last_message] do
        forbid_if(actor_attribute_equals(:role, :desk))
        authorize_if(always())
      end

      field_policy :* do
        authorize_if(always())
      end
    end
  end

  defmodule MyApp.Chat.PhoneIteration do
    @moduledoc false
    use MyApp.OpenIterations, of: MyApp.Chat.Phone
  end

  defmodule MyApp.Chat.Adviser do
    @moduledoc false
    use Ash.Resource, domain: MyApp.Chat, extensions: [AshAgent.Resource]

    resource do
      require_primary_key?(false)
    end

    agent do
      client(&MyApp.Chat.adviser/0)
      output(AshAgent.Integration.Reply)

      input do
        argument(:message, :string, allow_nil?: false)
      end
    end
  end

  defmodule MyApp.Chat.Project do
    @moduledoc false
    use MyApp.Table, "projects"

    attributes do
      integer_primary_key(:id)
      attribute(:name, :string, public?: true)
    end

    actions do
      defaults([:read, :destroy, create: [:name]])

      update :rename do
        accept([:name])
        require_atomic?(false)
      end
    end
  end

  defmodule MyApp.Chat.Case do
    @moduledoc false
    # A second resource, with numbers for keys. The database deletes it with its project.
    use MyApp.Table, {"cases", extensions: [AshAgent.Conversation]}

    postgres do
      references do
        reference(:project, on_delete: :delete)
      end
    end

    attributes do
      integer_primary_key(:id)
    end

    relationships do
      belongs_to :project, MyApp.Chat.Project do
        attribute_type(:integer)
        attribute_public?(true)
      end
    end

    conversation do
      llm(&MyApp.Chat.llm/1)
      without_conversation([:import])
    end

    actions do
      defaults([:read, :destroy])

      create :open do
        accept([:project_id])
        argument(:topic, :string, allow_nil?: false)
        argument(:input, :string, public?: false)

        change(fn changeset, _context ->
          topic = Ash.Changeset.get_argument(changeset, :topic)
          Ash.Changeset.force_set_argument(changeset, :input, "About #{topic}")
        end)

        change({AshAgent.Conversation.Change, does: :start})
      end

      update :ask do
        accept([])
        argument(:input, :string, allow_nil?: false)
        require_atomic?(false)
        change({AshAgent.Conversation.Change, does: :say})
      end

      # Rows of an import, without conversations.
      create(:import)
    end
  end

  if Code.ensure_loaded?(AshOban) do
    defmodule MyApp.Chat.Persister do
      @moduledoc false
      # Of agents that are no records.
      use AshOban.ActorPersister

      @impl true
      def store(%{id: id}), do: %{"type" => "agent", "id" => id}

      @impl true
      def lookup(%{"type" => "agent", "id" => id}), do: {:ok, %{id: id, name: "agent"}}
      def lookup(nil), do: {:ok, nil}
    end

    defmodule MyApp.Chat.Errand do
      @moduledoc false
      # Oban goes on with its turns, which write a note and end.
      use MyApp.Table,
          {"errands",
           authorizers: [Ash.Policy.Authorizer], extensions: [AshAgent.Conversation, AshOban]}

      use MyApp.Tenants

      attributes do
        uuid_primary_key(:id)
        attribute(:user_id, :uuid)
      end

      changes do
        change(set_attribute(:user_id, actor(:id)), on: [:create])
      end

      conversation do
        llm(&__MODULE__.llm/0)
        tools(&MyApp.Chat.tools/0)
        actor_persister(MyApp.Chat.Persister)
      end

      oban do
        triggers do
          trigger :go_on do
            action(:resume)
            where(expr(due))
            queue(:conversations)
            scheduler_queue(:conversations)
            lock_for_update?(false)
            worker_module_name(MyApp.Chat.Errand.GoOn.Worker)
            scheduler_module_name(MyApp.Chat.Errand.GoOn.Scheduler)
            list_tenants(["acme", "other"])
          end
        end
      end

      policies do
        bypass AshOban.Checks.AshObanInteraction do
          authorize_if(always())
        end

        policy action_type(:create) do
          authorize_if(actor_present())
        end

        policy action_type([:read, :update, :destroy]) do
          authorize_if(expr(user_id == ^actor(:id)))
        end
      end

      def llm do
        fn context ->
          case context |> AshAgent.Context.to_messages() |> List.last() do
            %{role: :user, content: text} when is_binary(text) ->
              arguments = %{"text" => "#{text} on #{node()}"}
              {:ok, %{tool_calls: [%{id: "1", name: "note_write", arguments: arguments}]}}

            _results ->
              {:ok, %{content: "Noted."}}
          end
        end
      end
    end
  end

  defmodule MyApp.Chat.Memory do
    @moduledoc false
    # The same in memory.
    use Ash.Resource,
      domain: MyApp.Chat,
      data_layer: Ash.DataLayer.Ets,
      primary_read_warning?: false,
      extensions: [AshAgent.Conversation]

    attributes do
      integer_primary_key(:id, generated?: false, writable?: true, public?: true)
      attribute(:archived_at, :utc_datetime_usec)
    end

    conversation do
      name("memory")
      without_conversation([:import])
      store(MyApp.Chat.MemoryStore)
      llm(&MyApp.Chat.llm/1)
    end

    actions do
      read :read do
        primary?(true)
        filter(expr(is_nil(archived_at)))
      end

      create(:import, accept: [:id])

      destroy :archive do
        soft?(true)
        require_atomic?(false)
        change(set_attribute(:archived_at, &DateTime.utc_now/0))
      end
    end
  end

  if Code.ensure_loaded?(AshOban) do
    defmodule MyApp.Chat.Nodes do
      @moduledoc false

      # The application on one of several nodes. Each function runs where the test calls it.

      alias AshAgent.TestSupport.Nodes
      alias MyApp.Chat.{Errand, Repo}

      # The lease of a node that was killed is over soon.
      @options [lease: 2_000]

      def start do
        for app <- [:ash_agent_resources, :ash_postgres, :ecto_sql, :postgrex, :oban],
            do: {:ok, _} = Application.ensure_all_started(app)

        Logger.configure(level: :none)
        Nodes.outlive(fn -> Repo.start_link(log: false, pool: DBConnection.ConnectionPool) end)
      end

      def start_oban do
        Nodes.outlive(fn ->
          Oban.start_link(repo: Repo, queues: [conversations: 5], log: false)
        end)
      end

      def schedule, do: AshOban.schedule(Errand, :go_on) && :ok

      def os_pid, do: System.pid()

      @doc "Begins an errand whose model does not answer."
      def hold(user, text) do
        options = [llm: fn _context -> Process.sleep(:infinity) end] ++ @options
        opts = [actor: user, tenant: "acme", context: %{ash_agent: %{options: options}}]
        Errand.start!(%{input: text, wait: false}, opts).id
      end
    end
  end

  defmodule MyApp.DataCase do
    @moduledoc false
    use ExUnit.CaseTemplate

    alias Ecto.Adapters.SQL.Sandbox
    alias MyApp.Chat.Repo

    using do
      quote do
        import MyApp.DataCase

        @moduletag :ash
        @moduletag :postgres
        @moduletag :capture_log
        @moduletag integrations: ["Ash", "AshPostgres", "AshArchival", "Postgrex", "PostgreSQL"]
      end
    end

    setup_all do
      migrated()
      :ok
    end

    setup tags do
      owner = Sandbox.start_owner!(Repo, shared: not tags[:async])
      test = self()

      on_exit(fn ->
        AshAgent.Conversation.await_turns(test)
        Sandbox.stop_owner(owner)
      end)

      :ok
    end

    @doc "A user, as an actor."
    def user(name, role \\ :member),
      do: Ash.create!(MyApp.Accounts.User, %{name: name, role: role}, authorize?: false)

    @doc "The context of an action whose model gives these answers."
    def answers(list), do: %{ash_agent: %{options: [llm: AshAgent.LLM.Scripted.new(list)]}}

    @doc "The folder of the migrations. The first test makes them, and the database."
    def migrated do
      :global.trans({__MODULE__, self()}, fn ->
        with nil <- :persistent_term.get(__MODULE__, nil) do
          folder = Path.join(System.tmp_dir!(), "ash_agent_grown_#{System.pid()}")
          File.rm_rf!(folder)
          codegen(folder, ["initial"])
          database(folder)
          :persistent_term.put(__MODULE__, folder)
          folder
        end
      end)
    end

    defp database(folder) do
      {:ok, config} = Repo.init(:supervisor, [])
      config = Keyword.delete(config, :pool)
      _ = Ecto.Adapters.Postgres.storage_down(config)
      :ok = Ecto.Adapters.Postgres.storage_up(config)
      # It outlives the process of the first test.
      AshAgent.TestSupport.Nodes.outlive(fn -> Repo.start_link(log: false) end)
      Sandbox.mode(Repo, :auto)
      Ecto.Migrator.run(Repo, Path.join(folder, "migrations"), :up, all: true, log: false)

      if Code.ensure_loaded?(Oban.Migration),
        do: Ecto.Migrator.up(Repo, 99_990_101_000_000, MyApp.Chat.Repo.AddOban, log: false)

      Sandbox.mode(Repo, :manual)
    end

    @doc "`mix ash.codegen` with the folders of the application, and what it says."
    def codegen(folder, args) do
      shell = Mix.shell()
      Mix.shell(Mix.Shell.Process)

      paths =
        for {option, name} <- [
              migration: "migrations",
              tenant_migration: "tenant_migrations",
              snapshot: "snapshots"
            ],
            arg <- ["--#{option}-path" |> String.replace("_", "-"), Path.join(folder, name)],
            do: arg

      try do
        run(args ++ ["--domains", "MyApp.Accounts,MyApp.Chat" | paths])
        AshAgent.TestSupport.MixTask.said(:info)
      after
        Mix.shell(shell)
      end
    end

    # The task finds extensions with a function of Elixir 1.15. Before that, they are called as it calls them.
    if function_exported?(Code, :ensure_all_loaded, 1) do
      defp run(argv) do
        Mix.Task.reenable("ash.codegen")
        Mix.Task.run("ash.codegen", argv)
      end
    else
      defp run(argv) do
        {name, argv} = if hd(argv) =~ ~r/^-/, do: {nil, argv}, else: {hd(argv), tl(argv)}

        for extension <- [AshAgent.Conversation, AshPostgres.DataLayer],
            do: extension.codegen(argv ++ ["--name", name])
      rescue
        error in Ash.Error.Framework.PendingCodegen -> Mix.raise(Exception.message(error))
      end
    end
  end
end
