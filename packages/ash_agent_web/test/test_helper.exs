alias AshAgent.TestSupport.{Browser, Integrations}

Integrations.put_version("Chromium", fn ->
  String.replace(Browser.version(), "Chromium ", "")
end)

Integrations.start([ex_mcp: ExMCP.HttpPlug], chromium: Browser.executable(), axe: Browser.axe())
