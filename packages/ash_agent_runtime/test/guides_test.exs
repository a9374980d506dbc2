defmodule AshAgent.GuidesTest do
  use ExUnit.Case, async: true

  alias AshAgent.TestSupport.Guide

  @results ~r/^#=> /m

  @here Enum.map(
          ~w(budgets tokens recall costs cache masks request-changes untrusted),
          &"../../guides/#{&1}.md"
        ) ++
          Enum.map(~w(answers partial-answers after-a-crash erase), &"guides/#{&1}.md")

  # The tests of these run them with what they need: modules and tables, a view, a server, Ash.
  @elsewhere ~w(../../guides/getting-started.md ../../guides/cheatsheet.cheatmd ../../guides/branches.md ../../guides/history.md) ++
               ~w(../../guides/storage.md guides/sessions.md guides/stores.md guides/mcp.md ../ash_agent_test/guides/testing.md) ++
               ~w(../ash_agent_test/guides/evaluations.md ../ash_agent_resources/guides/coming-from-ash-agent.md) ++
               ~w(../ash_agent_resources/guides/coming-from-ash-agent-context.md ../ash_agent_resources/guides/coming-from-ash-ai.md)

  # These show calls of modules and answers that the reader has.
  @shown ~w(guides/runtime.md guides/clients.md)

  for page <- @here do
    test "the examples of #{page} give what it says" do
      guide = File.read!(unquote(page))
      results = length(Regex.scan(@results, guide))
      assert results > 0
      assert Guide.run(guide) == results
    end
  end

  test "each page that shows results is run by a test" do
    pages =
      for folder <-
            ~w(../../guides guides ../ash_agent_test/guides ../ash_agent_resources/guides),
          page <- Path.wildcard("#{folder}/*.{md,cheatmd}"),
          File.read!(page) =~ @results,
          do: page

    assert (pages -- @here) -- (@elsewhere ++ @shown) == []
  end
end
