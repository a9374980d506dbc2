if Code.ensure_loaded?(ExMCP.Client) do
  defmodule AshAgent.Integration.MCPConformanceTest do
    # The official suite against our client, of both eras.
    use ExUnit.Case, async: true

    alias AshAgent.TestSupport.McpConformance

    @moduletag :mcp_conformance
    @moduletag :capture_log
    @moduletag integrations: ["ex_mcp", "MCP conformance"]
    @moduletag timeout: 1_200_000

    # How many scenarios ran, and which of those that count did not pass; support/mcp_conformance.*.yml have the reasons.
    @revisions [
      {"2026-07-28", 39, ["auth/metadata-var2"]},
      {"2025-11-25", 25, ["auth/metadata-var2"]}
    ]

    for {revision, ran, failed} <- @revisions do
      test "the scenarios of #{revision} pass, but for #{Enum.join(failed, " and ")}" do
        {said, code} = McpConformance.run(unquote(revision))
        [_, summary] = String.split(said, "=== SUITE SUMMARY ===")
        assert {code, summary} == {0, summary}
        assert length(Regex.scan(~r/^[✓✗] /mu, summary)) == unquote(ran)
        known = for [_, name] <- Regex.scan(~r/^  ~ (\S+)/m, summary), do: name
        assert Enum.sort(known) == unquote(failed)
      end
    end
  end
end
