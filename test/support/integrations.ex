defmodule AshAgent.TestSupport.Integrations do
  @moduledoc false

  # Writes to a file with which libraries tests passed: those that a test names under the tag `integrations`, with the
  # versions they have. A formatter, since only these see how tests end.

  use GenServer

  @file_variable "INTEGRATIONS_RAN"

  @doc """
  Starts ExUnit without the tests that need something which is not here: a library, by one of its modules, or another
  program. The repositories are for the tests with the tag `:postgres`.
  """
  def start(libraries, programs, repos \\ []) do
    missing = for {tag, library} <- libraries, not Code.ensure_loaded?(library), do: tag
    missing = missing ++ for {tag, found} <- programs, !found, do: tag
    postgres = if start_repos(repos), do: [], else: [:postgres]

    # What takes most of the time is left to bin/test, and to `mix test --include slow`.
    exclude = [:slow | missing ++ postgres]

    # Generous, because the property tests keep both cores of a small machine busy beside the others.
    options = [assert_receive_timeout: 20_000, timeout: 300_000, exclude: exclude]
    ExUnit.start(options ++ formatters())
  end

  # The server is the one that bin/test or bin/integration has started.
  defp start_repos(repos) do
    repos = Enum.filter(repos, &Code.ensure_loaded?/1)

    if repos != [] and System.get_env("ASH_AGENT_CONTEXT_PGPORT") != nil do
      for repo <- repos, do: {:ok, _} = apply(repo, :start_link, [[log: false]])
      %{rows: [[version]]} = apply(hd(repos), :query!, ["SHOW server_version"])
      version |> String.split() |> hd() |> put_postgresql()
    end
  end

  defp formatters do
    if System.get_env(@file_variable),
      do: [formatters: [ExUnit.CLIFormatter, __MODULE__]],
      else: []
  end

  @impl true
  def init(_opts), do: {:ok, MapSet.new()}

  @impl true
  def handle_cast({:test_finished, %{state: nil, tags: %{integrations: names}}}, ran),
    do: {:noreply, MapSet.union(ran, MapSet.new(names))}

  def handle_cast({:suite_finished, _times}, ran) do
    lines = Enum.map(ran, &"#{&1} #{version(&1)}\n")
    @file_variable |> System.fetch_env!() |> File.write!(lines, [:append])
    {:noreply, ran}
  end

  def handle_cast(_event, ran), do: {:noreply, ran}

  defp version(name) do
    case :persistent_term.get({__MODULE__, name}, nil) do
      nil -> known_version(name)
      version when is_function(version) -> version.()
      version -> version
    end
  end

  defp known_version("JSON"), do: "of Elixir " <> System.version()
  defp known_version("LangChain"), do: Application.spec(:langchain, :vsn)
  defp known_version("JidoAI"), do: Application.spec(:jido_ai, :vsn)

  # The tutorial's application runs in a VM of its own.
  defp known_version("LiveView") do
    _ = Application.load(:phoenix_live_view)
    Application.spec(:phoenix_live_view, :vsn)
  end

  defp known_version("OpenTelemetry"), do: Application.spec(:opentelemetry_api, :vsn)

  defp known_version(name),
    do: name |> Macro.underscore() |> String.to_existing_atom() |> Application.spec(:vsn)

  @doc "Notes the version of the server that tests talk to."
  def put_postgresql(version), do: put_version("PostgreSQL", version)

  @doc "Notes a version, or the function that finds it."
  def put_version(name, version), do: :persistent_term.put({__MODULE__, name}, version)
end
