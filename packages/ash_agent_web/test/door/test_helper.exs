alias AshAgent.TestSupport.Integrations

Integrations.start([plug: Plug.Test], chromium: AshAgent.TestSupport.Browser.executable())
