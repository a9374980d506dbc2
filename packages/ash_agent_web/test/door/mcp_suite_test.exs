defmodule AshAgent.MCP.SuiteTest do
  # The official suite against our server, of both eras.
  use ExUnit.Case, async: true

  alias AshAgent.Context.JSON
  alias AshAgent.TestSupport.McpSuite

  @moduletag :ex_mcp
  @moduletag :capture_log
  @moduletag integrations: ["ex_mcp", "MCP conformance"]
  @moduletag timeout: 600_000

  # How many checks passed and failed, also of extensions, and how many scenarios; support/mcp_suite.*.yml have the reasons.
  for {revision, scenarios, passed, failed} <- [
        {"2026-07-28", 50, 154, 28},
        {"2025-11-25", 33, 53, 19}
      ] do
    @tag :mcp_conformance
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

  # With `npm install --prefix _build/mcp @modelcontextprotocol/sdk@1` in the folder of the repository.
  @tag :mcp_sdk
  test "the official client of the old era calls tools side by side" do
    name = Module.concat(__MODULE__, SDK)
    port = McpSuite.serve(name)
    script = Path.expand("support/mcp_client.mjs", __DIR__)
    url = "http://127.0.0.1:#{port}/mcp"
    {said, 0} = System.cmd(System.find_executable("node"), [script, McpSuite.modules(), url])
    McpSuite.stop(name)
    got = said |> String.split("\n", trim: true) |> List.last() |> JSON.decode!()

    assert %{"version" => "2025-11-25", "tools" => 20, "failed" => true, "unknown" => -32_602} =
             got

    assert ["Hello, Ada!", "computed", "computed", "computed", "this job fails", words] =
             got["texts"]

    assert words =~ "a person's decision"
    assert got["took"] < 2_500
  end
end
