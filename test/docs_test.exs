defmodule AshAgent.DocsTest do
  use AshAgent.TestSupport.DocCases, app: :ash_agent_context

  test "all guides are pages of the documentation" do
    docs = Mix.Project.config()[:docs].()
    assert Path.wildcard("guides/*") -- docs[:extras] == []
  end
end
