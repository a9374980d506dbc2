defmodule AshAgent.Runtime.DocsTest do
  use AshAgent.TestSupport.DocCases, app: :ash_agent_runtime

  doctest AshAgent.LLM.Transport.Request
end
