if Code.ensure_loaded?(Igniter.Test) do
  defmodule AshAgent.Integration.InstallerTest do
    # The files that the installer writes and edits in an application.
    use ExUnit.Case, async: true

    @moduletag :ash
    @moduletag integrations: ["Ash", "AshPostgres", "Igniter"]

    import Igniter.Test

    @repo """
    defmodule MyApp.Repo do
      use AshPostgres.Repo, otp_app: :my_app

      def installed_extensions do
        ["citext"]
      end
    end
    """

    @application """
    defmodule MyApp.Application do
      use Application

      def start(_type, _args) do
        children = [MyApp.Repo]
        Supervisor.start_link(children, strategy: :one_for_one)
      end
    end
    """

    @mix """
    defmodule MyApp.MixProject do
      use Mix.Project

      def project, do: [app: :my_app, version: "0.1.0", deps: []]
      def application, do: [mod: {MyApp.Application, []}]
    end
    """

    defp project do
      test_project(
        app_name: :my_app,
        files: %{
          "mix.exs" => @mix,
          "lib/my_app/repo.ex" => @repo,
          "lib/my_app/application.ex" => @application
        }
      )
    end

    defp install(igniter, args \\ []),
      do: Igniter.compose_task(igniter, "ash_agent_resources.install", args)

    defp text(igniter, path),
      do: igniter.rewrite |> Rewrite.source!(path) |> Rewrite.Source.get(:content)

    test "it writes the resources, and edits the domain, the configuration, the repository and the formatter" do
      igniter = install(project())

      assert text(igniter, "lib/my_app/chat/conversation.ex") =~
               "extensions: [AshAgent.Conversation]"

      assert text(igniter, "lib/my_app/chat/iteration.ex") =~
               ~r/conversation.?MyApp.Chat.Conversation/

      domain = text(igniter, "lib/my_app/chat.ex")
      assert domain =~ ~r/resource\(?.?MyApp.Chat.Conversation/
      assert domain =~ ~r/resource\(?.?MyApp.Chat.Iteration/
      assert text(igniter, "config/config.exs") =~ "ash_domains: [MyApp.Chat]"
      assert text(igniter, "config/test.exs") =~ "missed_notifications: :ignore"
      assert text(igniter, ".formatter.exs") =~ ":ash_agent_resources"
      assert text(igniter, "lib/my_app/repo.ex") =~ ~s(["citext", "ash-functions"])

      assert text(igniter, "lib/my_app/application.ex") =~
               ~r/MyApp.Repo,\s+\{AshAgent.Conversation.Sweeper/
    end

    test "a second time, it changes nothing" do
      project() |> install() |> apply_igniter!() |> install() |> assert_unchanged()
    end

    test "it takes names, and refuses what is none" do
      igniter = install(project(), ["--conversation", "MyApp.Talk.Thread", "--table", "threads"])
      assert text(igniter, "lib/my_app/talk/thread.ex") =~ ~r/table.?"threads"/
      assert text(igniter, "lib/my_app/talk.ex") =~ "MyApp.Talk.Thread"
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
