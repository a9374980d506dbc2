alias AshAgent.TestSupport.{Browser, Integrations}

Integrations.put_version("Chromium", fn ->
  String.replace(Browser.version(), "Chromium ", "")
end)

Integrations.start([], chromium: Browser.executable(), axe: Browser.axe())
