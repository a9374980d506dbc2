alias AshAgent.TestSupport.Integrations

Integrations.start([], [])
