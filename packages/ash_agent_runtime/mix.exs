defmodule AshAgentRuntime.MixProject do
  use Mix.Project

  @version "0.1.0"

  # See mix.exs of ash_agent_context.
  @source_url nil

  def project do
    [
      app: :ash_agent_runtime,
      version: @version,
      elixir: "~> 1.14",
      # In the repository all packages are built into one folder.
      build_path: "../../_build",
      deps_path: "../../deps",
      lockfile: "../../mix.lock",
      compilers: [:cargo] ++ Mix.compilers(),
      cargo: [
        crate: "ash_agent_sqlite",
        module: "AshAgent.Store.SQLite.Native",
        workspace: "native/ash_agent_sqlite",
        sources: ["native/ash_agent_sqlite"],
        features: [],
        built_with: :sqlite,
        base_url: @source_url && "#{@source_url}/releases/download/v#{@version}"
      ],
      aliases: ["compile.cargo": &compile_cargo/1],
      elixirc_paths: elixirc_paths(Mix.env()),
      start_permanent: Mix.env() == :prod,
      prune_code_paths: Mix.env() != :integration,
      deps: deps(),
      name: "AshAgent Runtime",
      description: description(),
      package: package(),
      docs: &docs/0
    ]
  end

  def application do
    [
      mod: {AshAgent.Runtime.Application, []},
      extra_applications: [:logger, :crypto, :ssl] ++ integrations()
    ]
  end

  # Of the libraries that bin/integration puts on the code path, those that the package and its tests name.
  @integrations [:ex_mcp, :finch, :opentelemetry_api, :plug, :req, :stream_data]

  defp integrations do
    libraries = Mix.env() == :integration && System.get_env("ERL_LIBS")
    for app <- @integrations, libraries && File.dir?(Path.join(libraries, "#{app}")), do: app
  end

  # The package's own tests need ash_agent_test, which depends on it: Mix refuses a dependency in both directions.
  defp elixirc_paths(env) when env in [:test, :integration],
    do: ["lib", "test/support", Path.expand("../ash_agent_test/lib", __DIR__)]

  defp elixirc_paths(_env), do: ["lib"]

  # The compiler is the one of ash_agent_context, in its mix.exs. Mix has loaded that file already, except where Hex told it
  # what the package depends on.
  defp compile_cargo(args) do
    Mix.Project.in_project(:ash_agent_context, context_path(), fn _module -> :ok end)
    Mix.Task.run("compile.cargo", args)
  end

  defp context_path do
    case Mix.Project.deps_paths() do
      %{ash_agent_context: path} ->
        path

      _ ->
        Mix.raise(
          "ash_agent_runtime is compiled with ash_agent_context, which Mix did not find: run 'mix deps.get'."
        )
    end
  end

  # All but the context are optional: where Hex is out of reach, everything but the integrations works without them.
  defp deps do
    [{:ash_agent_context, "~> 0.1", context()}] ++
      if Code.ensure_loaded?(Hex) and Mix.env() != :integration do
        [
          {:finch, "~> 0.18", optional: true},
          {:opentelemetry_api, "~> 1.0", optional: true},
          {:req, "~> 0.5", optional: true},
          {:telemetry, "~> 1.0", optional: true},
          {:ex_doc, "~> 0.31", only: :dev, runtime: false}
        ]
      else
        []
      end
  end

  # In the repository, also as a dependency by path or from git, this is the context of the same commit. The package from Hex has no
  # repository around it and asks Hex. With `hex: false`, `mix hex.build` writes the requirement into the package. With a name there,
  # Hex would look in its registry for what the folder depends on.
  defp context do
    if File.exists?(Path.expand("../../lib/ash_agent/context.ex", __DIR__)),
      do: [path: "../..", hex: false, env: Mix.env()],
      else: []
  end

  defp description do
    "The agent loop on AshAgent.Context: models, tools, approvals, sessions that survive crashes, stores, MCP and traces."
  end

  defp package do
    [
      licenses: ["Apache-2.0"],
      links: links(),
      files:
        ~w(lib mix.exs checksum-*.exs .formatter.exs README.md CHANGELOG.md LICENSE usage-rules.md guides/*.md) ++
          ~w(native/ash_agent_sqlite/{src,Cargo.toml,Cargo.lock})
    ]
  end

  defp links do
    for {name, url} <- [
          {"Changelog", "https://hexdocs.pm/ash_agent_runtime/changelog.html"},
          {"GitHub", @source_url}
        ],
        url,
        into: %{},
        do: {name, url}
  end

  defp source_url(nil), do: nil
  defp source_url(url), do: "#{url}/blob/v#{@version}/packages/ash_agent_runtime/%{path}#L%{line}"

  defp docs do
    # Packages come without this file: this function is called for documentation alone.
    Code.require_file("../../doc_links.exs", __DIR__)

    [
      main: "readme",
      markdown_processor: AshAgent.DocLinks,
      filter_modules: Function.capture(AshAgent.DocLinks, :library?, 2),
      # The default client for MCP is named, and not for use by applications.
      # Those of ash_agent_test are compiled in :integration, and are documented there.
      skip_code_autolink_to:
        ~w(AshAgent.MCP.ExMCPClient AshAgent.Store.Conformance AshAgent.Test),
      # Where the sources are is known when they are published.
      source_url_pattern: source_url(System.get_env("ASH_AGENT_SOURCE_URL") || @source_url),
      source_ref: "v#{@version}",
      extras: ["README.md" | guides()] ++ ~w(CHANGELOG.md LICENSE),
      groups_for_extras: [
        Reference: ~r"guides/(limits|tables)",
        Guides: ~r"guides/",
        "The project": ~r"(CHANGELOG|LICENSE)"
      ],
      groups_for_modules: [
        "Agent loop": ~r"^AshAgent\.(Runtime|Sessions?|Toolbox|MCP)",
        "Typed answers": ~r"^AshAgent\.Output",
        Enhancers: ~r"^AshAgent\.Context\.Enhancer",
        Stores: ~r"^AshAgent\.Store",
        Models: ~r"^AshAgent\.LLM",
        Looking: ~r"^AshAgent\.Trace"
      ]
    ]
  end

  # A path: in the order in which they are read.
  @path ~w(runtime approval sub-agents answers partial-answers clients mcp sessions stores late-results after-a-crash effects) ++
          ~w(production nodes deploy watching erase backups limits tables)

  defp guides do
    path = for name <- @path, do: "guides/#{name}.md"
    path ++ (Path.wildcard("guides/*.md") -- path)
  end
end
