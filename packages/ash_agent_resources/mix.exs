defmodule AshAgentResources.MixProject do
  use Mix.Project

  @version "0.1.0"

  # See mix.exs of ash_agent_context.
  @source_url nil

  def project do
    [
      app: :ash_agent_resources,
      version: @version,
      elixir: "~> 1.14",
      # In the repository all packages are built into one folder.
      build_path: "../../_build",
      deps_path: "../../deps",
      lockfile: "../../mix.lock",
      elixirc_paths: elixirc_paths(Mix.env()),
      start_permanent: Mix.env() == :prod,
      prune_code_paths: Mix.env() != :integration,
      deps: deps(),
      aliases: aliases(),
      name: "AshAgent Resources",
      description: description(),
      package: package(),
      docs: &docs/0
    ]
  end

  def application do
    [
      mod: {AshAgent.Conversation.Application, []},
      extra_applications: [:logger] ++ libraries()
    ]
  end

  # Where Hex is missing, Ash comes from the application that bin/integration is given.
  @libraries [:ash, :ash_archival, :ash_oban, :ash_postgres, :oban, :spark, :splode]

  defp libraries do
    libraries = Mix.env() == :integration && System.get_env("ERL_LIBS")
    for app <- @libraries, libraries && File.dir?(Path.join(libraries, "#{app}")), do: app
  end

  defp elixirc_paths(env) when env in [:test, :integration],
    do: ["lib", "test/support", "test/grown/lib"]

  defp elixirc_paths(_env), do: ["lib"]

  defp deps do
    [{:ash_agent_runtime, "~> 0.1", runtime()}] ++
      if Code.ensure_loaded?(Hex) and Mix.env() != :integration do
        [
          {:ash, "~> 3.0"},
          {:spark, "~> 2.2"},
          {:splode, "~> 0.2"},
          {:ash_postgres, "~> 2.0", optional: true},
          {:ash_phoenix, "~> 2.3", optional: true},
          {:ash_graphql, "~> 1.10", optional: true},
          {:ash_json_api, "~> 1.5", optional: true},
          {:igniter, "~> 0.6", optional: true},
          {:ash_archival, "~> 2.0", only: :test},
          {:ash_oban, "~> 0.5", only: :test},
          # The tests have policies.
          {:simple_sat, "~> 0.1", only: :test},
          {:ex_doc, "~> 0.31", only: :dev, runtime: false}
        ]
      else
        []
      end
  end

  # See mix.exs of ash_agent_runtime.
  defp runtime do
    if File.exists?(Path.expand("../ash_agent_runtime/mix.exs", __DIR__)),
      do: [path: "../ash_agent_runtime", hex: false, env: Mix.env()],
      else: []
  end

  # `mix spark.cheat_sheets` needs Igniter. Without it, bin/cheat-sheets writes the same pages.
  @extensions ~w(AshAgent.Conversation AshAgent.Conversation.Iteration AshAgent.Domain AshAgent.Resource)

  defp aliases,
    do: ["spark.cheat_sheets": "spark.cheat_sheets --extensions #{Enum.join(@extensions, ",")}"]

  defp description do
    "Conversations and agents as Ash resources, Ash actions as an agent's tools, and Ash types for AshAgent.Context."
  end

  defp package do
    [
      licenses: ["Apache-2.0"],
      links: links(),
      files:
        ~w(lib mix.exs .formatter.exs README.md CHANGELOG.md LICENSE usage-rules.md guides/*.md documentation/dsls/*.md)
    ]
  end

  defp links do
    for {name, url} <- [
          {"Changelog", "https://hexdocs.pm/ash_agent_resources/changelog.html"},
          {"GitHub", @source_url}
        ],
        url,
        into: %{},
        do: {name, url}
  end

  defp source_url(nil), do: nil

  defp source_url(url),
    do: "#{url}/blob/v#{@version}/packages/ash_agent_resources/%{path}#L%{line}"

  defp docs do
    # Packages come without this file: this function is called for documentation alone.
    Code.require_file("../../doc_links.exs", __DIR__)

    [
      main: "readme",
      markdown_processor: AshAgent.DocLinks,
      filter_modules: Function.capture(AshAgent.DocLinks, :library?, 2),
      # Modules of the reader, and functions of the package ash_agent that this one replaces.
      skip_code_autolink_to: &(&1 =~ ~r/^(MyApp\.|Agent\.context|AshAgent\.Info\.provider)/),
      # Where the sources are is known when they are published.
      source_url_pattern: source_url(System.get_env("ASH_AGENT_SOURCE_URL") || @source_url),
      source_ref: "v#{@version}",
      extras:
        ["README.md" | guides()] ++
          Enum.sort_by(Path.wildcard("documentation/dsls/*.md"), &Path.rootname/1) ++
          ~w(CHANGELOG.md LICENSE),
      groups_for_extras: [
        Guides: ~r"guides/",
        "Cheat sheets": ~r"documentation/dsls/",
        "The project": ~r"(CHANGELOG|LICENSE)"
      ],
      groups_for_modules: [
        Conversations: ~r"^AshAgent\.Conversation",
        Agents: ~r"^AshAgent\.(Domain|Resource|Info|Sigils)",
        Tools: ~r"^AshAgent\.Tools",
        Types: ~r"(AshType|Embedded)"
      ]
    ]
  end

  # A path: in the order in which they are read.
  @path ~w(ash ash_tutorial liveview coming-from-ash-ai coming-from-ash-agent coming-from-ash-agent-context oban archival apis testing)

  defp guides do
    path = for name <- @path, do: "guides/#{name}.md"
    path ++ (Path.wildcard("guides/*.md") -- path)
  end
end
