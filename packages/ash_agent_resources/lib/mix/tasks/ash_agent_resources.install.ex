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
      * `mix.exs`: `simple_sat`, unless there is a SAT solver, which policies need
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

      igniter
      |> install(facts)
      |> Igniter.add_notice(
        "Choose the model, the tools and the policies of #{facts.module}, then run mix ash.codegen add_conversations"
      )
    end

    @doc false
    # What `mix ash_agent.gen.chat` does as well, with more in the resource.
    def install(igniter, facts) do
      [module, iterations, domain, repo] =
        for name <- [facts.module, facts.iterations, facts.domain, facts.repo],
            do: Project.Module.parse(name)

      igniter
      |> add_solver()
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
    end

    # Policies need one.
    defp add_solver(igniter) do
      if Enum.any?([:picosat_elixir, :simple_sat], &Project.Deps.has_dep?(igniter, &1)),
        do: igniter,
        else: add_dep(igniter, {:simple_sat, "~> 0.1"})
    end

    @doc false
    def add_dep(igniter, dep),
      do: igniter |> Project.Deps.add_dep(dep) |> Igniter.add_task("deps.get")

    @doc false
    def facts(igniter, opts) do
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

    # A file that is there stays, unless it is as this task wrote it and `mix ash_agent.gen.chat` has more for it.
    defp create_resources(igniter, facts) do
      plain =
        Conversation.files(%{
          facts
          | llm: Conversation.llm(),
            owner: nil,
            endpoint: nil,
            title?: false,
            functions: ""
        })

      for {path, text} <- Conversation.files(facts), reduce: igniter do
        igniter ->
          igniter =
            Igniter.create_new_file(igniter, path, IO.iodata_to_binary(text), on_exists: :skip)

          there = igniter.rewrite |> Rewrite.source!(path) |> Rewrite.Source.get(:content)
          written = IO.iodata_to_binary(text)

          cond do
            tree(there) == tree(written) ->
              igniter

            tree(there) == tree(plain[path]) ->
              Igniter.create_new_file(igniter, path, written, on_exists: :overwrite)

            facts.endpoint == nil or there =~ "pub_sub" ->
              igniter

            true ->
              Igniter.add_warning(
                igniter,
                "#{path} is there already and stays as it is; the page needs this in it:\n\n#{written}"
              )
          end
      end
    end

    # Without places and comments, which formatters change.
    defp tree(text) do
      text
      |> IO.iodata_to_binary()
      |> Code.string_to_quoted!()
      |> Macro.prewalk(&Macro.update_meta(&1, fn _meta -> [] end))
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
