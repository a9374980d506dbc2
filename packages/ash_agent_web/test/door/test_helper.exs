alias AshAgent.TestSupport.Integrations

Integrations.start([plug: Plug.Test], [])
