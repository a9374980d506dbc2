alias AshAgent.Test.{Browser, Integrations}

Integrations.start([], [chromium: Browser.executable()], [MyApp.Repo, AshAgent.Integration.Repo])
