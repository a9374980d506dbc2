AshAgent.TestSupport.Integrations.start([], [], [])
