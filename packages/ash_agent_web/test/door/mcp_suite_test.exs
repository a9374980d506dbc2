defmodule AshAgent.MCP.SuiteTest do
  # The official suite against our server, of both eras.
  use ExUnit.Case, async: true

  alias AshAgent.TestSupport.McpSuite

  @moduletag :ex_mcp
  @moduletag :mcp_conformance
  @moduletag :capture_log
  @moduletag integrations: ["ex_mcp", "MCP conformance"]
  @moduletag timeout: 600_000

  # How many checks passed and failed, also of extensions, and how many scenarios; support/mcp_suite.*.yml have the reasons.
  for {revision, scenarios, passed, failed} <- [
        {"2026-07-28", 50, 154, 28},
        {"2025-11-25", 33, 53, 19}
      ] do
    test "of #{revision}, #{passed} checks pass and #{failed} fail, with reasons" do
      name = Module.concat(__MODULE__, unquote("R" <> revision))
      port = McpSuite.serve(name)
      known = Path.expand("support/mcp_suite.#{unquote(revision)}.yml", __DIR__)
      args = ["--requirements", unquote(revision), "--expected-failures", known]
      {said, code} = McpSuite.run(port, args)
      McpSuite.stop(name)
      [_, summary] = String.split(said, "=== SUMMARY ===")
      assert {code, summary} == {0, summary}
      assert length(Regex.scan(~r/^[✓✗] /mu, summary)) == unquote(scenarios)
      assert summary =~ "Total: #{unquote(passed)} passed, #{unquote(failed)} failed"
    end
  end
end
