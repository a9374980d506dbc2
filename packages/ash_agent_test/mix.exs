defmodule AshAgentTest.MixProject do
  use Mix.Project

  @version "0.1.0"

  # See mix.exs of ash_agent_context.
  @source_url nil

  def project do
    [
      app: :ash_agent_test,
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
      name: "AshAgent Test",
      description: description(),
      package: package(),
      docs: &docs/0
    ]
  end

  def application, do: [extra_applications: [:logger, :ex_unit]]

  # The tests of ash_agent_runtime need these modules, and Mix refuses a dependency in both directions: in the repository's tests they
  # are compiled with the runtime, and a second time they would be redefined.
  defp elixirc_paths(env) when env in [:test, :integration], do: []
  defp elixirc_paths(_env), do: ["lib"]

  defp deps do
    [{:ash_agent_runtime, "~> 0.1", runtime()}] ++
      if Code.ensure_loaded?(Hex) and Mix.env() != :integration,
        do: [{:ex_doc, "~> 0.31", only: :dev, runtime: false}],
        else: []
  end

  # See mix.exs of ash_agent_runtime.
  defp runtime do
    if File.exists?(Path.expand("../ash_agent_runtime/mix.exs", __DIR__)),
      do: [path: "../ash_agent_runtime", hex: false, env: Mix.env()],
      else: []
  end

  defp description do
    "Tests of agents: assertions about runs, recorded answers, a server that misbehaves, evaluations, stored conversations " <>
      "against today's code, and the tests that every store has to pass."
  end

  defp package do
    [
      licenses: ["Apache-2.0"],
      links: links(),
      files:
        ~w(lib mix.exs .formatter.exs README.md CHANGELOG.md LICENSE usage-rules.md guides/*.md)
    ]
  end

  defp links do
    for {name, url} <- [
          {"Changelog", "https://hexdocs.pm/ash_agent_test/changelog.html"},
          {"GitHub", @source_url}
        ],
        url,
        into: %{},
        do: {name, url}
  end

  defp source_url(nil), do: nil
  defp source_url(url), do: "#{url}/blob/v#{@version}/packages/ash_agent_test/%{path}#L%{line}"

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
      extras: ~w(README.md guides/testing.md guides/evaluations.md CHANGELOG.md LICENSE),
      groups_for_extras: [Guides: ~r"guides/", "The project": ~r"(CHANGELOG|LICENSE)"]
    ] ++ source_beam(Mix.env())
  end

  # See `elixirc_paths/1`.
  defp source_beam(:integration),
    do: [source_beam: Path.join(Mix.Project.build_path(), "lib/ash_agent_runtime/ebin")]

  defp source_beam(_env), do: []
end
