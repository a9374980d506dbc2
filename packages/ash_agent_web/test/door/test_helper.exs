alias AshAgent.TestSupport.{Integrations, McpServers}

Integrations.put_version("MCP conformance", &McpServers.conformance_version/0)

Integrations.start([plug: Plug.Test, ex_mcp: ExMCP.HttpPlug],
  chromium: AshAgent.TestSupport.Browser.executable(),
  mcp_conformance: McpServers.conformance(),
  mcp_sdk: AshAgent.TestSupport.McpSuite.modules()
)
