if Code.ensure_loaded?(Igniter.Test) do
  defmodule AshAgent.Integration.InstallerTest do
    # The files that the installer and the chat's generator write and edit in an application. Igniter also looks at compiled modules, and there is
    # no Shop. While Igniter formats a file, the VM has the configuration of the application that it edits, and `Spark.Formatter` compiles the
    # project: nothing else may run.
    use ExUnit.Case, async: false

    @moduletag :ash
    @moduletag integrations: ["Ash", "AshPostgres", "Igniter"]

    import Igniter.Test

    @repo """
    defmodule Shop.Repo do
      use AshPostgres.Repo, otp_app: :shop

      def installed_extensions do
        ["citext"]
      end
    end
    """

    @application """
    defmodule Shop.Application do
      use Application

      def start(_type, _args) do
        children = [Shop.Repo]
        Supervisor.start_link(children, strategy: :one_for_one)
      end
    end
    """

    @mix """
    defmodule Shop.MixProject do
      use Mix.Project

      def project do
        [
          app: :shop,
          version: "0.1.0",
          elixirc_paths: elixirc_paths(Mix.env()),
          deps: deps()
        ]
      end

      def application, do: [mod: {Shop.Application, []}]

      defp elixirc_paths(:test), do: ["lib", "test/support"]
      defp elixirc_paths(_env), do: ["lib"]

      defp deps do
        [
          {:ash_agent_resources, git: "https://example.com/a.git", subdir: "packages/ash_agent_resources", tag: "v1"}
        ]
      end
    end
    """

    defp project(files \\ %{}) do
      own = %{
        "mix.exs" => @mix,
        "lib/shop/repo.ex" => @repo,
        "lib/shop/application.ex" => @application
      }

      test_project(app_name: :shop, files: Map.merge(own, files))
    end

    defp install(igniter, args \\ []),
      do: Igniter.compose_task(igniter, "ash_agent_resources.install", args)

    defp text(igniter, path),
      do: igniter.rewrite |> Rewrite.source!(path) |> Rewrite.Source.get(:content)

    test "it writes the resources, and edits the domain, the configuration, the repository and the formatter" do
      igniter = install(project())

      assert text(igniter, "lib/shop/chat/conversation.ex") =~
               "extensions: [AshAgent.Conversation]"

      assert text(igniter, "lib/shop/chat/iteration.ex") =~
               ~r/conversation.?Shop.Chat.Conversation/

      domain = text(igniter, "lib/shop/chat.ex")
      assert domain =~ ~r/resource\(?.?Shop.Chat.Conversation/
      assert domain =~ ~r/resource\(?.?Shop.Chat.Iteration/
      assert text(igniter, "config/config.exs") =~ "ash_domains: [Shop.Chat]"
      assert text(igniter, "config/test.exs") =~ "missed_notifications: :ignore"
      assert text(igniter, ".formatter.exs") =~ ":ash_agent_resources"
      assert text(igniter, "lib/shop/repo.ex") =~ ~s(["citext", "ash-functions"])

      assert text(igniter, "lib/shop/application.ex") =~
               ~r/Shop.Repo,\s+\{AshAgent.Conversation.Sweeper/
    end

    test "a second time, it changes nothing" do
      project() |> install() |> apply_igniter!() |> install() |> assert_unchanged()
    end

    test "it takes names, and refuses what is none" do
      igniter = install(project(), ["--conversation", "Shop.Talk.Thread", "--table", "threads"])
      assert text(igniter, "lib/shop/talk/thread.ex") =~ ~r/table.?"threads"/
      assert text(igniter, "lib/shop/talk.ex") =~ "Shop.Talk.Thread"
      assert_raise Mix.Error, fn -> install(project(), ["--table", "a b"]) end
    end

    test "it adds a SAT solver, unless there is one" do
      assert text(install(project()), "mix.exs") =~ ~s({:simple_sat, "~> 0.1"})

      picosat =
        String.replace(
          @mix,
          "{:ash_agent_resources",
          "{:picosat_elixir, \"~> 0.2\"},\n{:ash_agent_resources"
        )

      refute text(install(project(%{"mix.exs" => picosat})), "mix.exs") =~ "simple_sat"
    end

    describe "mix ash_agent.gen.chat" do
      @router """
      defmodule ShopWeb.Router do
        use ShopWeb, :router

        pipeline :browser do
          plug :accepts, ["html"]
        end

        scope "/", ShopWeb do
          pipe_through :browser
        end
      end
      """

      @endpoint_module """
      defmodule ShopWeb.Endpoint do
        use Phoenix.Endpoint, otp_app: :shop

        plug ShopWeb.Router
      end
      """

      @phoenix %{
        "lib/shop_web/router.ex" => @router,
        "lib/shop_web/endpoint.ex" => @endpoint_module,
        "test/support/data_case.ex" => "defmodule Shop.DataCase do\nend\n"
      }

      @resource "defmodule Shop.Accounts.User do\nuse Ash.Resource, domain: Shop.Accounts\nattributes do\nuuid_primary_key :id\nend\nend\n"
      @schema "defmodule Shop.Accounts.User do\nuse Ecto.Schema\nend\n"

      defp user(text), do: %{"lib/shop/accounts/user.ex" => text}

      defp chat(igniter, args \\ ["--live"]),
        do: Igniter.compose_task(igniter, "ash_agent.gen.chat", ["Shop.Chat" | args])

      # What is written has to be Elixir, and as its formatter writes it.
      defp flat(igniter, path), do: igniter |> text(path) |> String.replace(~r/\s+/, " ")

      # Igniter may write the options of a dependency as a list.
      defp mix(igniter),
        do: Regex.replace(~r/\[((path|git): [^\]]*)\]\}/, flat(igniter, "mix.exs"), "\\1}")

      test "makes the conversation of an owner, the page, its routes, its dependencies and a test" do
        igniter =
          @phoenix
          |> Map.merge(user(@resource))
          |> project()
          |> chat(~w(--live --provider anthropic --model m1))

        conversation = flat(igniter, "lib/shop/chat/conversation.ex")

        assert conversation =~
                 ~r/belongs_to\(?.:user, Shop.Accounts.User, allow_nil\?: false, attribute_type: :uuid/

        assert conversation =~ ~r/authorize_if\(?.expr\(user_id == \^actor\(:id\)\)/
        refute conversation =~ "forbid_if"
        assert conversation =~ ~r/title.:title/
        assert conversation =~ ~r/module.ShopWeb.Endpoint/

        assert conversation =~
                 ~s[{AshAgent.LLM.Anthropic, model: "m1", api_key: fn -> System.fetch_env!("ANTHROPIC_API_KEY") end}]

        assert text(igniter, "lib/shop/chat.ex") =~ "Shop.Chat.Conversation"

        page = flat(igniter, "lib/shop_web/live/chat_live.ex")

        assert page =~
                 "resource: Shop.Chat.Conversation, actor: socket.assigns[:current_user], endpoint: ShopWeb.Endpoint"

        assert flat(igniter, "lib/shop_web/router.ex") =~
                 ~r{scope "/", ShopWeb do pipe_through\(?.:browser\)? live\(?."/chat", ChatLive\)? live\(?."/chat/:id", ChatLive}

        assert_has_warning(igniter, &(&1 =~ "which nothing assigns"))

        mix = mix(igniter)

        assert mix =~
                 ~s({:ash_agent_web, git: "https://example.com/a.git", subdir: "packages/ash_agent_web", tag: "v1"})

        assert mix =~ ~s(subdir: "packages/ash_agent_resources", tag: "v1", override: true})
        assert mix =~ ~s({:phoenix_live_view, "~> 1.0"})
        assert_has_task(igniter, "deps.get", [])

        assert conversation =~ ~r/tools.&Shop.Chat.Conversation.tools\/0/
        assert conversation =~ "|| [AshAgent.Tools.ask_user()]"
        assert flat(igniter, "config/test.exs") =~ "pool: Ecto.Adapters.SQL.Sandbox"

        test = flat(igniter, "test/shop/chat_test.exs")
        assert test =~ "use Shop.DataCase" and test =~ "Ash.Generator.seed!(Shop.Accounts.User)"
        assert test =~ "nobody else reads or changes it"
      end

      test "the page is tested as somebody who logs in, where the application's tests can do that" do
        page = "test/shop_web/live/chat_live_test.exs"
        files = Map.merge(@phoenix, user(@resource))

        for {conn_case, there?} <- [
              {"def register_and_log_in_user(%{conn: conn}), do: %{conn: conn}\n", true},
              {"", false}
            ] do
          conn_case = "defmodule ShopWeb.ConnCase do\n#{conn_case}end\n"

          igniter =
            files |> Map.put("test/support/conn_case.ex", conn_case) |> project() |> chat()

          assert Igniter.exists?(igniter, page) == there?

          if there? do
            test = flat(igniter, page)
            assert test =~ "setup :register_and_log_in_user"
            for name <- ~w(answered approves asks), do: assert(test =~ name)
          end
        end

        # A pool that is set stays.
        config = "import Config\n\nconfig :shop, Shop.Repo, pool: Shop.Pool\n"
        igniter = @phoenix |> Map.put("config/test.exs", config) |> project() |> chat()
        assert flat(igniter, "config/test.exs") =~ "pool: Shop.Pool"
      end

      test "a second time, it changes nothing, also after the installer, whose resource it replaces" do
        for files <- [
              %{},
              @phoenix,
              Map.merge(@phoenix, user(@resource)),
              Map.merge(@phoenix, user(@schema))
            ] do
          igniter =
            files |> project() |> install() |> apply_igniter!() |> chat() |> apply_igniter!()

          assert text(igniter, "lib/shop/chat/conversation.ex") =~ "def llm"
          igniter |> chat() |> assert_unchanged()
          igniter |> install() |> assert_unchanged()
        end
      end

      test "a resource that somebody has changed stays, and it says what is missing" do
        igniter = @phoenix |> project() |> install() |> apply_igniter!()

        igniter =
          Igniter.update_file(
            igniter,
            "lib/shop/chat/conversation.ex",
            &Rewrite.Source.update(&1, :content, fn text ->
              String.replace(text, "helpful", "grumpy")
            end)
          )

        igniter = igniter |> apply_igniter!() |> chat()
        assert text(igniter, "lib/shop/chat/conversation.ex") =~ "grumpy"
        refute text(igniter, "lib/shop/chat/conversation.ex") =~ "def llm"
        assert_has_warning(igniter, &(&1 =~ "stays as it is"))
      end

      test "without users, nobody may do anything, and it says so" do
        igniter = @phoenix |> project() |> chat()
        assert text(igniter, "lib/shop/chat/conversation.ex") =~ ~r/forbid_if.always/

        assert_has_warning(
          igniter,
          &(&1 =~ "There is no Shop.Accounts.User, so nobody may use the chat")
        )

        assert text(igniter, "test/shop/chat_test.exs") =~
                 "nobody may use it until there are policies"

        assert {:error, [words]} =
                 @phoenix |> project() |> chat(~w(--live --user Shop.Person)) |> apply_igniter()

        assert words =~ "There is no Shop.Person"
      end

      test "users of Ecto are found again, and the routes are where mix phx.gen.auth has them" do
        for {name, scope?, actor} <- [
              {"require_authenticated", true, "socket.assigns.current_scope.user"},
              {"ensure_authenticated", false, "socket.assigns.current_user"}
            ] do
          assigned = if scope?, do: ":current_scope", else: ":current_user"

          auth =
            "defmodule ShopWeb.UserAuth do\ndef on_mount(:#{name}, _, _, socket), do: assign(socket, #{assigned}, nil)\nend\n"

          files =
            @phoenix
            |> Map.merge(user(@schema))
            |> Map.merge(%{"lib/shop_web/user_auth.ex" => auth})

          igniter = files |> project() |> chat()

          assert flat(igniter, "lib/shop/chat/conversation.ex") =~
                   ~r/attribute\(?.:user_id, :integer, allow_nil\?: false/

          assert text(igniter, "lib/shop/chat/conversation.ex") =~
                   ~r/actor_persister.Shop.Chat.Actor/

          assert text(igniter, "lib/shop/chat/actor.ex") =~
                   "Shop.Repo.get(Shop.Accounts.User, id)"

          assert text(igniter, "lib/shop_web/live/chat_live.ex") =~ "actor: #{actor}"
          router = flat(igniter, "lib/shop_web/router.ex")
          assert router =~ ":require_authenticated_user"
          assert router =~ "on_mount: [{ShopWeb.UserAuth, :#{name}}]"
        end
      end

      test "the routes are where AshAuthentication has them" do
        router =
          String.replace(
            @router,
            "pipe_through :browser",
            "pipe_through :browser\nash_authentication_live_session :x do\nend"
          )

        auth =
          "defmodule ShopWeb.LiveUserAuth do\ndef on_mount(:live_user_required, _, _, socket), do: socket\nend\n"

        files =
          @phoenix
          |> Map.merge(user(@resource))
          |> Map.merge(%{
            "lib/shop_web/router.ex" => router,
            "lib/shop_web/live_user_auth.ex" => auth
          })

        igniter = files |> project() |> chat()

        assert flat(igniter, "lib/shop_web/router.ex") =~
                 ~r{ash_authentication_live_session\(?.:chat\)? do live}

        assert text(igniter, "lib/shop_web/live/chat_live.ex") =~
                 "{ShopWeb.LiveUserAuth, :live_user_required}"
      end

      test "without Phoenix there are the resources, and it says what to add" do
        igniter = chat(project(user(@resource)))
        assert text(igniter, "lib/shop/chat/conversation.ex") =~ "Shop.Accounts.User"
        refute text(igniter, "lib/shop/chat/conversation.ex") =~ "pub_sub"
        refute text(igniter, "mix.exs") =~ "ash_agent_web"
        assert_has_warning(igniter, &(&1 =~ "There is no Phoenix router"))
        assert igniter.issues == []
      end

      test "ash_agent_web comes from where ash_agent_resources comes from" do
        for {there, web} <- [
              {~s({:ash_agent_resources, "~> 0.1"}), ~s({:ash_agent_web, "~> 0.1"})},
              {~s({:ash_agent_resources, path: "../a/packages/ash_agent_resources"}),
               ~s({:ash_agent_web, path: "../a/packages/ash_agent_web"})},
              {~s({:jason, "~> 1.4"}), ~s({:ash_agent_web, "~> 0.1"})}
            ] do
          mix = Regex.replace(~r/\{:ash_agent_resources.*\}/, @mix, there)
          igniter = @phoenix |> Map.put("mix.exs", mix) |> project() |> chat()
          assert mix(igniter) =~ web
          refute flat(igniter, "mix.exs") =~ "override"
        end
      end

      test "all options end up in code, so others are refused" do
        for args <- [~w(--provider nobody), ~w(--user a;b), ~w(--table a;b)],
            do: assert_raise(Mix.Error, fn -> chat(project(@phoenix), args) end)

        assert_raise Mix.Error, fn ->
          Igniter.compose_task(project(), "ash_agent.gen.chat", ["a;b"])
        end

        hostile = chat(project(@phoenix), ["--model", "a\#{System.halt()}"])
        assert text(hostile, "lib/shop/chat/conversation.ex") =~ ~S[model: "a\#{System.halt()}"]
      end
    end
  end
else
  defmodule AshAgent.Integration.InstallerTest do
    # The installer itself is tested where Igniter is.
    use ExUnit.Case, async: true

    @moduletag :ash
    @moduletag integrations: ["Ash"]

    test "says what it needs" do
      assert_raise Mix.Error, ~r/needs Igniter/, fn ->
        Mix.Tasks.AshAgentResources.Install.run([])
      end

      assert_raise Mix.Error, ~r/needs Igniter/, fn -> Mix.Tasks.AshAgent.Gen.Chat.run([]) end
    end
  end
end
