defmodule AshAgentWeb.MixProject do
  use Mix.Project

  @version "0.1.0"

  # See mix.exs of ash_agent_context.
  @source_url nil

  def project do
    [
      app: :ash_agent_web,
      version: @version,
      elixir: "~> 1.14",
      # In the repository all packages are built into one folder.
      build_path: "../../_build",
      deps_path: "../../deps",
      lockfile: "../../mix.lock",
      elixirc_paths: elixirc_paths(Mix.env()),
      test_paths: if(whole?(), do: ["test"], else: ["test/door"]),
      start_permanent: Mix.env() == :prod,
      prune_code_paths: Mix.env() != :integration,
      deps: deps(),
      name: "AshAgent Web",
      description: description(),
      package: package(),
      docs: &docs/0
    ]
  end

  def application do
    [mod: {AshAgent.Door.Application, []}, extra_applications: [:logger] ++ libraries()]
  end

  # Doors need neither Phoenix nor Ash. In a checkout where Hex is missing, and no application has these, they are all there is.
  defp whole?, do: Code.ensure_loaded?(Hex) or Mix.env() not in [:dev, :test]

  defp elixirc_paths(:test) do
    if whole?(),
      do: ["lib", "test/support", "test/door/support"],
      else: ["lib", "test/door/support"]
  end

  defp elixirc_paths(:integration), do: ["lib", "test/support", "test/door/support"]
  defp elixirc_paths(_env), do: ["lib"]

  # Where Hex is missing, Phoenix comes from the application that bin/integration is given.
  @libraries [:ex_mcp, :phoenix, :phoenix_html, :phoenix_live_view, :plug]

  defp libraries do
    libraries = Mix.env() == :integration && System.get_env("ERL_LIBS")
    for app <- @libraries, libraries && File.dir?(Path.join(libraries, "#{app}")), do: app
  end

  defp deps do
    below =
      if whole?(),
        do: {:ash_agent_resources, "~> 0.1", folder("ash_agent_resources")},
        else: {:ash_agent_runtime, "~> 0.1", folder("ash_agent_runtime")}

    [below] ++
      if Code.ensure_loaded?(Hex) and Mix.env() != :integration do
        [
          {:phoenix_live_view, "~> 1.0", optional: true},
          {:plug, "~> 1.14", optional: true},
          {:bandit, "~> 1.0", only: :test},
          {:floki, "~> 0.36", only: :test},
          {:lazy_html, "~> 0.1", only: :test},
          {:ex_doc, "~> 0.31", only: :dev, runtime: false}
        ]
      else
        []
      end
  end

  # See mix.exs of ash_agent_runtime.
  defp folder(app) do
    if File.exists?(Path.expand("../#{app}/mix.exs", __DIR__)),
      do: [path: "../#{app}", hex: false, env: Mix.env()],
      else: []
  end

  defp description do
    "Front ends for conversations with an agent: a page of Phoenix LiveView and its components, and the protocols of the AI SDK's useChat, AG-UI and OpenAI's Responses."
  end

  defp package do
    [
      licenses: ["Apache-2.0"],
      links: links(),
      files: ~w(lib guides mix.exs .formatter.exs README.md CHANGELOG.md LICENSE usage-rules.md)
    ]
  end

  defp links do
    for {name, url} <- [
          {"Changelog", "https://hexdocs.pm/ash_agent_web/changelog.html"},
          {"GitHub", @source_url}
        ],
        url,
        into: %{},
        do: {name, url}
  end

  defp source_url(nil), do: nil
  defp source_url(url), do: "#{url}/blob/v#{@version}/packages/ash_agent_web/%{path}#L%{line}"

  defp docs do
    # Packages come without this file: this function is called for documentation alone.
    Code.require_file("../../doc_links.exs", __DIR__)

    [
      main: "readme",
      markdown_processor: AshAgent.DocLinks,
      filter_modules: Function.capture(AshAgent.DocLinks, :library?, 2),
      # Where the sources are is known when they are published.
      source_url_pattern: source_url(System.get_env("ASH_AGENT_SOURCE_URL") || @source_url),
      source_ref: "v#{@version}",
      extras:
        ~w(README.md guides/react.md guides/what-clients-show.md guides/gateway.md guides/mcp-server.md CHANGELOG.md LICENSE),
      groups_for_extras: ["The project": ~r"(CHANGELOG|LICENSE)"]
    ]
  end
end
