alias AshAgent.TestSupport.{Browser, Integrations, McpServers}

Integrations.put_version("Chromium", fn ->
  String.replace(Browser.version(), "Chromium ", "")
end)

Integrations.put_version("MCP conformance", &McpServers.conformance_version/0)

Integrations.start([ex_mcp: ExMCP.HttpPlug],
  chromium: Browser.executable(),
  axe: Browser.axe(),
  mcp_conformance: McpServers.conformance(),
  mcp_sdk: AshAgent.TestSupport.McpSuite.modules()
)
