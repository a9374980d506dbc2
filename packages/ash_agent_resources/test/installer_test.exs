if Code.ensure_loaded?(Igniter.Test) do
  defmodule AshAgent.Integration.InstallerTest do
    # The files that the installer writes and edits in an application. Igniter also looks at compiled modules, and there is no Shop.
    use ExUnit.Case, async: true

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

      def project, do: [app: :shop, version: "0.1.0", deps: []]
      def application, do: [mod: {Shop.Application, []}]
    end
    """

    defp project do
      test_project(
        app_name: :shop,
        files: %{
          "mix.exs" => @mix,
          "lib/shop/repo.ex" => @repo,
          "lib/shop/application.ex" => @application
        }
      )
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
    end
  end
end
