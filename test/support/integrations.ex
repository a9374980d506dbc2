defmodule AshAgent.Test.Integrations do
  @moduledoc false

  # Writes to a file with which libraries tests passed: those that a test names under the tag `integrations`, with the
  # versions they have. A formatter, since only these see how tests end.

  use GenServer

  @file_variable "INTEGRATIONS_RAN"

  @doc "What ExUnit is told of it: nothing, unless somebody asks for the file."
  def options do
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

  defp version("PostgreSQL"), do: :persistent_term.get({__MODULE__, :postgresql})
  defp version("JSON"), do: "of Elixir " <> System.version()
  defp version("ATIF"), do: AshAgent.Test.AtifModels.find() |> elem(1) |> Enum.join(" and ")
  defp version("OTLP"), do: AshAgent.Test.OtlpModels.find() |> elem(1) |> Enum.join(" and ")

  defp version("MCP servers"), do: Enum.join(AshAgent.Test.McpServers.versions(), " and ")
  defp version("LangChain"), do: Application.spec(:langchain, :vsn)
  defp version("JidoAI"), do: Application.spec(:jido_ai, :vsn)

  # The tutorial's application runs in a VM of its own.
  defp version("LiveView") do
    _ = Application.load(:phoenix_live_view)
    Application.spec(:phoenix_live_view, :vsn)
  end

  defp version("OpenTelemetry"), do: Application.spec(:opentelemetry_api, :vsn)
  defp version("Phoenix"), do: AshAgent.Test.Phoenix.version()

  defp version("Chromium"), do: AshAgent.Test.Browser.version() |> String.replace("Chromium ", "")

  defp version(name),
    do: name |> Macro.underscore() |> String.to_existing_atom() |> Application.spec(:vsn)

  @doc "Notes the version of the server that tests talk to."
  def put_postgresql(version), do: :persistent_term.put({__MODULE__, :postgresql}, version)
end
