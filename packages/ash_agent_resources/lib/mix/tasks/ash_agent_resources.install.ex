if Code.ensure_loaded?(Igniter) do
  defmodule Mix.Tasks.AshAgentResources.Install do
    @shortdoc "Installs conversations in an Ash application: mix igniter.install ash_agent_resources"

    @moduledoc """
    Installs conversations in an Ash application with AshPostgres.

        mix igniter.install ash_agent_resources

    It writes a conversation and its iterations, as `mix ash_agent.gen.conversation` does, and edits

      * `.formatter.exs`: imports the options of the sections, and formats them with `Spark.Formatter`
      * the domain, which it makes if there is none: it has both resources
      * `config/config.exs`: the application has the domain
      * `config/test.exs`: Ash works in the processes of a test, and no sweeper starts
      * the repository: `ash-functions` are installed
      * the supervision tree: an `AshAgent.Conversation.Sweeper` goes on with turns that a deploy cut short

    Files and settings that are there already stay as they are. Afterwards, choose the model, the tools and the policies, which forbid everything, and run
    `mix ash.codegen add_conversations` and `mix ash.migrate`.

    ## Options

      * `--conversation MODULE` - defaults to `MyApp.Chat.Conversation`
      * `--domain MODULE` - defaults to the module that the conversation's is in
      * `--repo MODULE` - defaults to `MyApp.Repo`
      * `--iterations MODULE`, `--table NAME`, `--tenant NAME` - see `mix ash_agent.gen.conversation`
    """

    use Igniter.Mix.Task

    alias Igniter.Project
    alias Mix.Tasks.AshAgent.Gen.Conversation

    @impl true
    def info(_argv, _parent) do
      %Igniter.Mix.Task.Info{
        group: :ash,
        example: "mix igniter.install ash_agent_resources",
        schema: [conversation: :string] ++ Conversation.options()
      }
    end

    @impl true
    def igniter(igniter) do
      facts = facts(igniter, Map.new(igniter.args.options))

      [module, iterations, domain, repo] =
        for name <- [facts.module, facts.iterations, facts.domain, facts.repo],
            do: Project.Module.parse(name)

      igniter
      |> Project.Formatter.import_dep(:ash_agent_resources)
      |> Project.Formatter.add_formatter_plugin(Spark.Formatter)
      |> create_domain(domain)
      |> create_resources(facts)
      |> Ash.Domain.Igniter.add_resource_reference(domain, module)
      |> Ash.Domain.Igniter.add_resource_reference(domain, iterations)
      |> Project.Config.configure("test.exs", :ash, [:disable_async?], true)
      |> Project.Config.configure("test.exs", :ash, [:missed_notifications], :ignore)
      |> Project.Config.configure("test.exs", :ash_agent_resources, [:sweep], false)
      |> install_functions(repo)
      |> Project.Application.add_new_child(
        {AshAgent.Conversation.Sweeper, [resources: [module]]},
        after: [repo]
      )
      |> Igniter.add_notice(
        "Choose the model, the tools and the policies of #{facts.module}, then run mix ash.codegen add_conversations"
      )
    end

    defp facts(igniter, opts) do
      module =
        opts[:conversation] || inspect(Project.Module.module_name(igniter, "Chat.Conversation"))

      repo = inspect(Project.Module.module_name(igniter, "Repo"))
      domain = module |> String.split(".") |> Enum.drop(-1) |> Enum.join(".")
      Conversation.facts(module, Map.merge(%{domain: domain, repo: repo}, opts))
    end

    defp create_domain(igniter, domain) do
      case Project.Module.module_exists(igniter, domain) do
        {true, igniter} -> igniter
        {false, igniter} -> Igniter.compose_task(igniter, "ash.gen.domain", [inspect(domain)])
      end
    end

    defp create_resources(igniter, facts) do
      for {path, text} <- Conversation.files(facts), reduce: igniter do
        igniter ->
          Igniter.create_new_file(igniter, path, IO.iodata_to_binary(text), on_exists: :skip)
      end
    end

    defp install_functions(igniter, repo) do
      {there?, igniter} = Project.Module.module_exists(igniter, repo)

      if there? and Code.ensure_loaded?(AshPostgres.Igniter),
        do: AshPostgres.Igniter.add_postgres_extension(igniter, repo, "ash-functions"),
        else:
          Igniter.add_warning(
            igniter,
            "there is no #{inspect(repo)}: run mix igniter.install ash_postgres, or give --repo"
          )
    end
  end
else
  defmodule Mix.Tasks.AshAgentResources.Install do
    @shortdoc "Installs conversations in an Ash application, with Igniter"

    @moduledoc """
    Needs Igniter: `mix archive.install hex igniter_new`, then `mix igniter.install ash_agent_resources`. Without it, use
    `mix ash_agent.gen.conversation`.
    """

    use Mix.Task

    @impl true
    def run(_args) do
      Mix.raise(
        "ash_agent_resources.install needs Igniter: run mix igniter.install ash_agent_resources, or mix ash_agent.gen.conversation"
      )
    end
  end
end
