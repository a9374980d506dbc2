alias AshAgent.TestSupport.{Browser, Integrations, McpServers, PgSQL}

libraries = [
  ecto: Ecto.Schema,
  finch: Finch,
  mcp: ExMCP.Client,
  opentelemetry: :otel_ctx,
  plug: Plug.Test,
  req: Req,
  req_llm: ReqLLM.Context
]

programs = [
  chromium: Browser.executable(),
  mcp_conformance: McpServers.conformance(),
  mcp_npm: McpServers.npm("everything"),
  mcp_python: McpServers.python(),
  p1_pgsql: PgSQL.ready?(),
  phoenix: AshAgent.TestSupport.Phoenix.executable()
]

Integrations.put_version("Chromium", fn ->
  String.replace(Browser.version(), "Chromium ", "")
end)

Integrations.put_version("MCP servers", fn -> Enum.join(McpServers.versions(), " and ") end)
Integrations.put_version("MCP conformance", &McpServers.conformance_version/0)
Integrations.put_version("Phoenix", &AshAgent.TestSupport.Phoenix.version/0)
Integrations.start(libraries, programs, [MyApp.Repo])
