alias AshAgent.TestSupport.Integrations

Integrations.start([plug: Plug.Test, ex_mcp: ExMCP.HttpPlug],
  chromium: AshAgent.TestSupport.Browser.executable()
)
