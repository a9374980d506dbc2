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
      start_permanent: Mix.env() == :prod,
      prune_code_paths: Mix.env() != :integration,
      deps: deps(),
      name: "AshAgent Web",
      description: description(),
      package: package(),
      docs: &docs/0
    ]
  end

  def application, do: [extra_applications: [:logger] ++ libraries()]

  defp elixirc_paths(env) when env in [:test, :integration], do: ["lib", "test/support"]
  defp elixirc_paths(_env), do: ["lib"]

  # Where Hex is missing, Phoenix comes from the application that bin/integration is given.
  @libraries [:phoenix, :phoenix_html, :phoenix_live_view]

  defp libraries do
    libraries = Mix.env() == :integration && System.get_env("ERL_LIBS")
    for app <- @libraries, libraries && File.dir?(Path.join(libraries, "#{app}")), do: app
  end

  defp deps do
    [{:ash_agent_resources, "~> 0.1", resources()}] ++
      if Code.ensure_loaded?(Hex) and Mix.env() != :integration do
        [
          {:phoenix_live_view, "~> 1.0"},
          {:bandit, "~> 1.0", only: :test},
          {:floki, "~> 0.36", only: :test},
          {:ex_doc, "~> 0.31", only: :dev, runtime: false}
        ]
      else
        []
      end
  end

  # See mix.exs of ash_agent_runtime.
  defp resources do
    if File.exists?(Path.expand("../ash_agent_resources/mix.exs", __DIR__)),
      do: [path: "../ash_agent_resources", hex: false, env: Mix.env()],
      else: []
  end

  defp description do
    "A page of Phoenix LiveView and its components for conversations with an agent: transcript, approvals, questions, files and traces."
  end

  defp package do
    [
      licenses: ["Apache-2.0"],
      links: links(),
      files: ~w(lib mix.exs .formatter.exs README.md CHANGELOG.md LICENSE usage-rules.md)
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
      extras: ~w(README.md CHANGELOG.md LICENSE),
      groups_for_extras: ["The project": ~r"(CHANGELOG|LICENSE)"]
    ]
  end
end
