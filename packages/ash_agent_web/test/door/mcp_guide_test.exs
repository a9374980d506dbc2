defmodule AshAgent.MCP.GuideApp.Tokens do
  @moduledoc false
  def fetch("ada"), do: {:ok, %{principal: "user-17", by: "ann@example.com"}}
  def fetch(_other), do: {:error, :unauthenticated}
end

defmodule AshAgent.MCP.GuideApp.Shop do
  @moduledoc false
  def refund(%{"order" => order}), do: {:ok, "refunded #{order}"}
end

defmodule AshAgent.MCP.GuideTest do
  # The examples of guides/mcp-server.md, in an application of another name.
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.McpAsks, except: [identify: 1]

  alias AshAgent.{LLM, MCP, Sessions, Store}

  @moduletag :ex_mcp
  @moduletag :capture_log
  @moduletag integrations: ["ex_mcp"]

  @guide Path.expand("../../guides/mcp-server.md", __DIR__)
  @app "AshAgent.MCP.GuideApp"

  setup_all do
    guide = File.read!(@guide)

    [module, _router, children] =
      Regex.scan(~r/^```elixir\n(.*?)^```/ms, guide, capture: :all_but_first)

    own = fn [code] -> String.replace(code, "MyApp", @app) end
    System.put_env("MCP_SECRET", String.duplicate("s", 32))
    [{app, _code}] = Code.compile_string(own.(module))
    store = Module.concat(@app, "Conversations")
    start_supervised!({Store.SQLite, name: store, path: ":memory:"})
    {children, _bindings} = Code.eval_string(own.(children))
    for child <- children, do: start_supervised!(child)
    llm = LLM.Scripted.new(["Hello, Ada!"])
    start_supervised!({Sessions, name: Module.concat(@app, "Sessions"), store: store, llm: llm})
    %{app: app, guide: guide}
  end

  test "an agent and a set of tools are served as it says", %{app: app} do
    at = [headers: [{"host", "app.example.com"}]]
    result = call(app.mcp_server(), "ask_agent", %{"message" => "I am Ada."}, at)
    assert %{"answer" => "Hello, Ada!"} = result["structuredContent"]
    assert post(MCP.Plug.init(app.options()), "tools/list", %{}, at).status == 200
    assert post(app.mcp_server(), "tools/list", %{}, [as: "eve"] ++ at).status == 401

    options =
      app.options()
      |> Keyword.delete(:sessions)
      |> Keyword.put(:tools, Module.concat(@app, "Offered"))

    asked =
      call(
        MCP.Server.new(options),
        "refund",
        %{"order" => "7"},
        [caps: %{"elicitation" => %{}}] ++ at
      )

    assert %{"resultType" => "input_required"} = asked
  end

  test "its figures are those of the tests of the suite", %{guide: guide} do
    tests = File.read!(Path.join(__DIR__, "mcp_suite_test.exs"))

    for [passed, failed] <-
          Regex.scan(~r/"\d{4}-\d\d-\d\d", \d+, (\d+), (\d+)}/, tests, capture: :all_but_first) do
      all = String.to_integer(passed) + String.to_integer(failed)
      assert guide =~ "#{passed} of #{all}"
    end
  end
end
