if Code.ensure_loaded?(Igniter) do
  defmodule Mix.Tasks.AshAgent.Gen.Chat do
    @shortdoc "Makes a chat with an agent: mix ash_agent.gen.chat MyApp.Chat --live"

    @moduledoc """
    Makes a chat with an agent in an Ash application with AshPostgres.

        mix ash_agent.gen.chat MyApp.Chat --live --provider anthropic

    It does what `mix ash_agent_resources.install` does, for a conversation in the domain `MyApp.Chat`, and

      * the conversation belongs to the user who begins it: nobody else reads or changes it, by policies in its file
      * the model is that of `--provider` and `--model`, and writes the titles
      * the model can ask the person, by `AshAgent.Tools.ask_user/1`, but a small one of Ollama cannot
      * `test/my_app/chat_test.exs` tests it with a scripted model

    With `--live`, it also writes `MyAppWeb.ChatLive`, a page of `AshAgent.Web.Live`, with its routes `/chat` and `/chat/:id`, its test
    if there is a `MyAppWeb.ConnCase` with which a user logs in, and adds `ash_agent_web` from where `ash_agent_resources` comes from. The routes are in a `live_session` that knows the user of AshAuthentication or of
    `mix phx.gen.auth`.

    Files that are there already stay as they are, except for resources that are still as the installer wrote them. A second run changes nothing.
    Afterwards, run `mix ash.codegen add_chat` and `mix ash.migrate`.

    ## Options

      * `--live` - with a page. Needs Phoenix.
      * `--user MODULE` - who owns conversations, an Ash resource or an Ecto schema with the key `id`. Defaults to `MyApp.Accounts.User`. If there is none,
        nobody may do anything, until you write policies.
      * `--provider NAME` - `anthropic`, `gemini`, `mistral`, `ollama` or `openai`. Defaults to `ollama`.
      * `--model NAME` - the provider's name of the model.
      * `--repo MODULE`, `--iterations MODULE`, `--table NAME`, `--tenant NAME` - see `mix ash_agent.gen.conversation`
    """

    use Igniter.Mix.Task

    alias Igniter.Libs.Phoenix
    alias Igniter.Project
    alias Mix.Tasks.AshAgent.Gen.Conversation
    alias Mix.Tasks.AshAgentResources.Install

    @providers %{
      "anthropic" => {"Anthropic", "claude-sonnet-4-5", "ANTHROPIC_API_KEY"},
      "gemini" => {"Gemini", "gemini-2.5-flash", "GEMINI_API_KEY"},
      "mistral" => {"Mistral", "mistral-large-latest", "MISTRAL_API_KEY"},
      "ollama" => {"Ollama", "llama3.2", nil},
      "openai" => {"OpenAIResponses", "gpt-5", "OPENAI_API_KEY"}
    }

    @impl true
    def info(_argv, _parent) do
      names = [user: :string, provider: :string, model: :string, live: :boolean]

      %Igniter.Mix.Task.Info{
        group: :ash,
        example: "mix ash_agent.gen.chat MyApp.Chat --live",
        positional: [:domain],
        schema: names ++ Keyword.delete(Conversation.options(), :domain)
      }
    end

    @impl true
    def igniter(igniter) do
      opts = Map.new(igniter.args.options)
      domain = Conversation.module!(igniter.args.positional.domain)
      {igniter, web} = web(igniter)
      {igniter, owner} = owner(igniter, domain, opts)

      facts =
        igniter
        |> Install.facts(
          Map.merge(opts, %{conversation: domain <> ".Conversation", domain: domain})
        )
        |> Map.merge(%{owner: owner, endpoint: web[:endpoint], title?: true})
        |> Map.merge(llm(igniter, domain, opts))

      igniter
      |> Install.install(facts)
      |> create_persister(facts)
      |> sandbox(facts)
      |> create_test(facts, domain)
      |> page(facts, if(opts[:live], do: web || :none))
      |> Igniter.add_notice("Run mix ash.codegen add_chat and mix ash.migrate")
    end

    ## The model

    defp llm(igniter, domain, opts) do
      provider = opts[:provider] || "ollama"

      {client, model, key} =
        @providers[provider] ||
          Mix.raise(
            "expected --provider #{Enum.join(Map.keys(@providers), ", ")}, got: #{provider}"
          )

      key = if key, do: ", api_key: fn -> System.fetch_env!(#{inspect(key)}) end"

      app = inspect(Project.Application.app_name(igniter))
      tools = if provider == "ollama", do: "[]", else: "[AshAgent.Tools.ask_user()]"

      functions = """
      @doc "The model. Tests set another one."
      def llm do
        Application.get_env(#{app}, __MODULE__)[:llm] ||
          {AshAgent.LLM.#{client}, model: #{inspect(opts[:model] || model)}#{key}}
      end

      @doc "What the agent can do. Tests set something else."
      def tools, do: Application.get_env(#{app}, __MODULE__)[:tools] || #{tools}

      @doc "Whether a call waits for the person: one that cannot be undone does."
      def approval(%{name: "delete_" <> _rest}, _context), do: :ask
      def approval(_call, _context), do: :approve
      """

      %{app: app, llm: "&#{domain}.Conversation.llm/0", functions: functions}
    end

    ## The owner

    defp owner(igniter, domain, opts) do
      name = opts[:user] || inspect(Project.Module.module_name(igniter, "Accounts.User"))

      case Project.Module.find_module(igniter, Project.Module.parse(Conversation.module!(name))) do
        {:ok, {igniter, source, _zipper}} ->
          text = Rewrite.Source.get(source, :content)
          resource? = not (text =~ ~r/\buse\s+Ecto\.Schema\b/)
          owner = %{module: name, resource?: resource?, type: type(text, resource?)}
          # Ash finds its own records again.
          {igniter,
           if(resource?, do: owner, else: Map.put(owner, :persister, domain <> ".Actor"))}

        {:error, igniter} ->
          words =
            "There is no #{name}, so nobody may use the chat: name your users with --user, or write the policies of #{domain}.Conversation"

          {if(opts[:user],
             do: Igniter.add_issue(igniter, words),
             else: Igniter.add_warning(igniter, words)
           ), nil}
      end
    end

    defp type(text, true) do
      cond do
        text =~ ~r/\binteger_primary_key\b/ -> :integer
        text =~ ~r/\buuid_v7_primary_key\b/ -> :uuid_v7
        true -> :uuid
      end
    end

    defp type(text, false),
      do:
        if(text =~ ~r/@primary_key\s*\{:id,\s*(:binary_id|Ecto\.UUID)/, do: :uuid, else: :integer)

    defp create_persister(igniter, %{owner: %{persister: persister} = owner, repo: repo}) do
      create(igniter, persister, """
      # Who asked for a turn that goes on after a restart.
      def store(%#{owner.module}{id: id}), do: %{"id" => id}

      def lookup(%{"id" => id}) do
        case #{repo}.get(#{owner.module}, id) do
          nil -> {:error, :not_found}
          user -> {:ok, user}
        end
      end
      """)
    end

    defp create_persister(igniter, _facts), do: igniter

    # What is there stays, wherever it is.
    defp create(igniter, module, text, path \\ nil) do
      name = Project.Module.parse(module)

      case Project.Module.module_exists(igniter, name) do
        {true, igniter} ->
          igniter

        {false, igniter} ->
          path = path || Project.Module.proper_location(igniter, name)
          Igniter.create_new_file(igniter, path, "defmodule #{module} do\n#{text}\nend\n")
      end
    end

    ## The test

    # Its connections are of the sandbox, which applications with a DataCase have already.
    defp sandbox(igniter, facts) do
      path = [Project.Module.parse(facts.repo), :pool]
      app = Project.Application.app_name(igniter)
      Project.Config.configure_new(igniter, "test.exs", app, path, Ecto.Adapters.SQL.Sandbox)
    end

    defp create_test(igniter, facts, domain) do
      case_name = inspect(Project.Module.module_name(igniter, "DataCase"))
      {case?, igniter} = Project.Module.module_exists(igniter, Project.Module.parse(case_name))

      {fixtures?, igniter} =
        Project.Module.module_exists(igniter, Project.Module.parse(fixtures(facts.owner)))

      text = test(facts, domain, case? && case_name, fixtures?)
      create(igniter, domain <> "Test", text, "test/#{Macro.underscore(domain)}_test.exs")
    end

    defp fixtures(nil), do: "NoFixtures"
    defp fixtures(owner), do: Regex.replace(~r/\.\w+\z/, owner.module, "Fixtures")

    defp test(facts, domain, case_name, fixtures?) do
      """
      #{if case_name, do: "use #{case_name}, async: false", else: "use ExUnit.Case, async: false"}

      alias #{domain}.Conversation

      setup do
        #{unless case_name, do: "owner = Ecto.Adapters.SQL.Sandbox.start_owner!(#{facts.repo}, shared: true)\non_exit(fn -> Ecto.Adapters.SQL.Sandbox.stop_owner(owner) end)"}
        test = self()
        # A turn releases its conversation after it has answered.
        on_exit(fn -> AshAgent.Conversation.await_turns(test) end)
      end

      #{user(facts.owner, fixtures?)}

      # The model says what the script says.
      defp opts(user, answers, more \\\\ []) do
        options = [llm: AshAgent.LLM.Scripted.new(answers)] ++ more
        #{actor(facts)}, context: %{ash_agent: %{options: options}}]
      end

      test "the agent answers" do
        chat = Conversation.start!(%{input: "Hi"}, opts(user(), ["Hello."]))
        assert chat.__metadata__.run.output == "Hello."
      end

      test "a call that needs it runs after it is approved" do
        tools = %{"add" => fn %{"a" => a, "b" => b} -> {:ok, a + b} end}
        call = %{id: "1", name: "add", arguments: %{"a" => 1, "b" => 2}}
        more = [tools: tools, approval: fn _call, _context -> :ask end]
        opts = opts(user(), [%{tool_calls: [call]}, "It is 3."], more)

        chat = Conversation.start!(%{input: "1 + 2?"}, opts)
        assert Ash.load!(chat, :status, opts).status == :paused
        chat = chat |> Conversation.approve!("1", opts) |> Conversation.resume!(opts)
        assert chat.__metadata__.run.output == "It is 3."
      end

      #{stranger(facts)}
      """
    end

    defp user(nil, _fixtures?), do: "defp user, do: nil"

    defp user(%{resource?: true, module: user}, _fixtures?),
      do: "defp user, do: Ash.Generator.seed!(#{user})"

    defp user(owner, true) do
      name = owner.module |> String.split(".") |> List.last() |> Macro.underscore()
      "defp user, do: #{fixtures(owner)}.#{name}_fixture()"
    end

    defp user(owner, false),
      do: "# Write what your users need.\ndefp user, do: raise(\"make a #{owner.module}\")"

    # Without users, the policies forbid everything.
    defp actor(%{owner: nil} = facts), do: "[actor: user, authorize?: false#{tenant(facts)}"
    defp actor(facts), do: "[actor: user#{tenant(facts)}"
    defp tenant(facts), do: if(facts.tenant, do: ~s(, tenant: "test"))

    defp stranger(%{owner: nil} = facts) do
      """
      test "nobody may use it until there are policies" do
        assert {:error, %Ash.Error.Forbidden{}} = Conversation.start(%{input: "Hi"}, actor: %{id: 1}#{tenant(facts)})
      end
      """
    end

    defp stranger(facts) do
      """
      test "nobody else reads or changes it" do
        chat = Conversation.start!(%{input: "Hi"}, opts(user(), ["Hello."]))

        for other <- [user(), nil, %{id: chat.user_id}] do
          opts = opts(other, ["Hello."])
          assert {:error, _error} = Ash.get(Conversation, chat.id, opts)
          assert {:error, _error} = Conversation.say(chat, "Hi", opts)
          assert {:error, _error} = Conversation.fork(chat.id, opts)
          assert {:error, _error} = Ash.destroy(chat, opts)
        end

        assert {:error, _error} = Conversation.start(%{input: "Hi"}, actor: nil#{tenant(facts)})
      end
      """
    end

    ## The page

    # The router and what belongs to it, if there is Phoenix.
    defp web(igniter) do
      {igniter, router} = Phoenix.select_router(igniter)

      {igniter, endpoint} =
        if router, do: Phoenix.select_endpoint(igniter, router), else: {igniter, nil}

      if endpoint do
        web = router |> Module.split() |> Enum.drop(-1) |> Enum.join(".")
        {igniter, %{router: router, endpoint: inspect(endpoint), module: web}}
      else
        {igniter, nil}
      end
    end

    defp page(igniter, _facts, nil), do: igniter

    defp page(igniter, _facts, :none) do
      Igniter.add_warning(
        igniter,
        "There is no Phoenix router with an endpoint, so there are the resources alone: add phoenix, phoenix_live_view, an endpoint and a router, then run " <>
          "this again with --live"
      )
    end

    defp page(igniter, facts, web) do
      {igniter, session} = session(igniter, web)

      igniter
      |> add_web()
      |> create(
        "#{web.module}.ChatLive",
        live(facts, web, session),
        "lib/#{Macro.underscore(web.module)}/live/chat_live.ex"
      )
      |> add_routes(web, session)
      |> create_page_test(facts, web)
    end

    # A test logs in as the application's own tests do.
    defp create_page_test(igniter, facts, web) do
      path = "test/#{Macro.underscore(web.module)}/live/chat_live_test.exs"

      if find(igniter, "#{web.module}.ConnCase") =~ "def register_and_log_in_user(",
        do: create(igniter, "#{web.module}.ChatLiveTest", page_test(facts, web), path),
        else: igniter
    end

    defp page_test(facts, web) do
      """
      use #{web.module}.ConnCase, async: false

      import Phoenix.LiveViewTest

      alias #{facts.module}

      setup :register_and_log_in_user

      setup do
        test = self()
        on_exit(fn -> AshAgent.Conversation.await_turns(test) end)
      end

      # The model says what the script says, and has these tools.
      defp say(conn, text, script, tools \\\\ []) do
        Application.put_env(#{facts.app}, Conversation, llm: AshAgent.LLM.Scripted.new(script), tools: tools)
        on_exit(fn -> Application.delete_env(#{facts.app}, Conversation) end)
        {:ok, view, _html} = live(conn, "/chat")
        view |> form("#agent-composer", say: %{input: text}) |> render_submit()
        assert_patch(view)
        view
      end

      # The turn runs beside the page, and ends or waits.
      defp shows(view, text) do
        assert Enum.any?(1..500, fn _ ->
          page = render(view)
          (page =~ text and not (page =~ "aria-busy")) or Process.sleep(10) != :ok
        end)
      end

      test "a message is answered", %{conn: conn} do
        conn |> say("Hi", ["Hello."]) |> shows("Hello.")
      end

      test "what cannot be undone waits until somebody approves it", %{conn: conn} do
        script = [%{tool_calls: [%{id: "1", name: "delete_note", arguments: %{}}]}, "It is gone."]
        view = say(conn, "Delete it", script, %{"delete_note" => fn _ -> {:ok, "deleted"} end})
        shows(view, "agent-approve-1")
        view |> form("#agent-approve-1") |> render_submit()
        shows(view, "It is gone.")
      end

      test "the agent asks, and goes on with the answer", %{conn: conn} do
        question = %{"question" => "When?", "choices" => ["now", "later"]}
        script = [%{tool_calls: [%{id: "1", name: "ask_user", arguments: question}]}, "Now it is."]
        view = say(conn, "Do it", script, [AshAgent.Tools.ask_user()])
        shows(view, "agent-question-1")
        view |> form("#agent-question-1 form:first-of-type") |> render_submit()
        shows(view, "Now it is.")
      end
      """
    end

    # Who is logged in, as the application has it: options of the session, and where the page finds the user.
    defp session(igniter, web) do
      auth = find(igniter, "#{web.module}.UserAuth")
      live = find(igniter, "#{web.module}.LiveUserAuth")
      routes = find(igniter, inspect(web.router))

      session =
        cond do
          routes =~ "ash_authentication_live_session" and live =~ ":live_user_required" ->
            %{
              routes: {":browser", "ash_authentication_live_session :chat do"},
              on_mount: "on_mount {#{web.module}.LiveUserAuth, :live_user_required}",
              actor: "socket.assigns.current_user"
            }

          name =
              Enum.find(
                ~w(require_authenticated ensure_authenticated),
                &(auth =~ "on_mount(:#{&1}")
              ) ->
            scope? = auth =~ "current_scope"

            %{
              routes:
                {"[:browser, :require_authenticated_user]",
                 "live_session :chat, on_mount: [{#{web.module}.UserAuth, :#{name}}] do"},
              on_mount: "",
              actor:
                if(scope?,
                  do: "socket.assigns.current_scope.user",
                  else: "socket.assigns.current_user"
                )
            }

          true ->
            %{routes: {":browser", nil}, on_mount: "", actor: "socket.assigns[:current_user]"}
        end

      {igniter, session}
    end

    defp find(igniter, module) do
      case Project.Module.find_module(igniter, Project.Module.parse(module)) do
        {:ok, {_igniter, source, _zipper}} -> Rewrite.Source.get(source, :content)
        {:error, _igniter} -> ""
      end
    end

    defp live(facts, web, session) do
      """
      use #{web.module}, :live_view

      alias AshAgent.Web.Live

      #{session.on_mount}

      @impl true
      def mount(_params, _session, socket) do
        {:ok,
         Live.mount(socket,
           resource: #{facts.module},
           actor: #{session.actor},
           endpoint: #{web.endpoint},
           path: "/chat"
         )}
      end

      @impl true
      def handle_params(params, _uri, socket), do: {:noreply, Live.open(socket, params["id"], params)}

      @impl true
      def handle_event(event, params, socket), do: {:noreply, Live.handle_event(event, params, socket)}

      @impl true
      def handle_info(message, socket), do: {:noreply, Live.handle_info(message, socket)}

      @impl true
      def render(assigns), do: Live.page(assigns)
      """
    end

    defp add_routes(igniter, web, %{routes: {pipes, session}}) do
      routes = ~s(live "/chat", ChatLive\nlive "/chat/:id", ChatLive)
      routes = if session, do: "#{session}\n#{routes}\nend", else: routes
      scope = "pipe_through #{pipes}\n\n#{routes}"

      cond do
        find(igniter, inspect(web.router)) =~ "ChatLive" ->
          igniter

        session ->
          add_scope(igniter, web, scope)

        true ->
          igniter
          |> add_scope(web, scope)
          |> Igniter.add_warning(
            "The page takes its user from current_user, which nothing assigns: put its routes into the live_session of your authentication, such as that of " <>
              "mix phx.gen.auth or ash_authentication_phoenix. Until then nobody may use it"
          )
      end
    end

    defp add_scope(igniter, web, scope) do
      Phoenix.add_scope(igniter, "/", scope,
        router: web.router,
        arg2: Project.Module.parse(web.module),
        placement: :after
      )
    end

    # From where the resources come from.
    defp add_web(igniter) do
      live_view = {:phoenix_live_view, "~> 1.0"}

      igniter =
        if dep(igniter, :phoenix_live_view),
          do: igniter,
          else: Install.add_dep(igniter, live_view)

      case {dep(igniter, :ash_agent_web), dep(igniter, :ash_agent_resources)} do
        {nil, nil} -> Install.add_dep(igniter, {:ash_agent_web, "~> 0.1"})
        {nil, resources} -> igniter |> override(resources) |> Install.add_dep(beside(resources))
        {_there, _resources} -> igniter
      end
    end

    defp dep(igniter, name) do
      case Project.Deps.get_dep(igniter, name) do
        {:ok, text} when is_binary(text) -> text |> Code.string_to_quoted!() |> dep()
        _none -> nil
      end
    end

    # Options that are not values, such as a path that is computed, are not known here.
    defp dep({:{}, _meta, [name, version, opts]}), do: {name, version, opts}
    defp dep({name, [_ | _] = opts}), do: {name, nil, opts}
    defp dep({name, version}), do: {name, version, []}

    defp beside({_name, version, opts}) do
      opts =
        for {key, value} <- opts,
            key in [:path, :git, :github, :subdir, :ref, :tag, :branch],
            is_binary(value) do
          {key,
           if(key in [:path, :subdir],
             do: String.replace(value, ~r/ash_agent_resources\z/, "ash_agent_web"),
             else: value
           )}
        end

      case {version, opts} do
        {nil, opts} -> {:ash_agent_web, opts}
        {version, []} -> {:ash_agent_web, version}
        {version, opts} -> {:ash_agent_web, version, opts}
      end
    end

    # Two dependencies on one package from git need it.
    defp override(igniter, {name, _version, opts}) do
      if Keyword.has_key?(opts, :git) or Keyword.has_key?(opts, :github),
        do: Project.Deps.set_dep_option(igniter, name, :override, true),
        else: igniter
    end
  end
else
  defmodule Mix.Tasks.AshAgent.Gen.Chat do
    @shortdoc "Makes a chat with an agent, with Igniter"
    @moduledoc "Needs Igniter: add `{:igniter, \"~> 0.6\", only: [:dev, :test]}` to the dependencies. Without it, use `mix ash_agent.gen.conversation`."

    use Mix.Task

    @impl true
    def run(_args) do
      Mix.raise(
        "ash_agent.gen.chat needs Igniter: add {:igniter, \"~> 0.6\", only: [:dev, :test]} to the dependencies"
      )
    end
  end
end
