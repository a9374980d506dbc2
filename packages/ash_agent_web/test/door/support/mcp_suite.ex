defmodule AshAgent.TestSupport.McpSuite do
  @moduledoc false

  # Our server as the official suite tests it: with the tools that it asks for, as tools of an application.

  require Logger

  @compile {:no_warn_undefined, [Plug.Cowboy, AshAgent.TestSupport.McpServers]}
  @behaviour AshAgent.LLM

  alias AshAgent.{MCP, Sessions, Store}
  alias AshAgent.MCP.Server.Calls
  alias AshAgent.Runtime.{AskUser, Tool}
  alias AshAgent.TestSupport.McpServers

  @png "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
  @wav "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="

  @doc "Serves the suite's tools on a port of loopback, which it returns."
  def serve(name) do
    sessions(name)
    port = McpServers.free_port()
    hosts = ["127.0.0.1:#{port}", "localhost:#{port}"]
    server = server(tools: name, hosts: hosts, origins: Enum.map(hosts, &("http://" <> &1)))
    opts = [port: port, ip: {127, 0, 0, 1}, ref: name]
    {:ok, _} = Plug.Cowboy.http(__MODULE__.Router, server, opts)
    port
  end

  defp sessions(name) do
    {:ok, store} = Store.SQLite.open(":memory:")
    {:ok, _} = Sessions.start_link(name: name, store: store, tools: tools(), llm: __MODULE__)
  end

  defp server(opts) do
    identify = fn _request -> {:ok, %{principal: "the suite", by: "the suite"}} end
    secrets = [{"k1", :crypto.strong_rand_bytes(32)}]
    own = [identify: identify, secrets: secrets, task_after: 300, poll: 100]
    MCP.Server.new(own ++ opts)
  end

  def stop(name), do: Plug.Cowboy.shutdown(name)

  defmodule Router do
    @moduledoc false
    def init(server), do: server
    def call(conn, server), do: MCP.Plug.call(conn, server)
  end

  @doc "The same tools over stdio, as an application would have them that prints and logs."
  def mcp_server do
    sessions(__MODULE__)
    server(tools: __MODULE__)
  end

  @doc "The folder of npm with the official client, if it is there."
  def modules do
    folder = Path.expand("../../../../../_build/mcp/node_modules", __DIR__)
    sdk? = File.dir?(Path.join(folder, "@modelcontextprotocol/sdk/dist/esm"))
    if sdk? and System.find_executable("node"), do: folder
  end

  @doc "Runs scenarios, and returns what the suite says and its exit code."
  def run(port, args) do
    {node, main} = McpServers.conformance()
    url = "http://127.0.0.1:#{port}/mcp"
    System.cmd(node, main ++ ["server", "--url", url] ++ args, stderr_to_stdout: true)
  end

  # One of the suite's tools asks two things at once, and one breaks.
  @impl true
  def chat(context, opts) do
    with {:ok, %{tool_calls: [%{name: name}]}} = answer <- Calls.chat(context, opts) do
      case name do
        "multi_input" ->
          {:ok, %{tool_calls: for(n <- 1..2, do: %{id: "call#{n}", name: name, arguments: %{}})}}

        "protocol_error_job" ->
          Process.sleep(1_000)
          {:error, :broken}

        _other ->
          answer
      end
    end
  end

  ## The suite's tools

  defp tools do
    confirm = form("confirm", "boolean")

    plain =
      for name <- ~w(elicitation multi_round request_state tampered_state capabilities),
          do: "test_input_required_result_" <> name

    asks =
      for name <- plain do
        AskUser.tool(name: name, parameters: %{}, form: form("name", "string"))
      end

    asks ++
      [
        AskUser.tool(name: "multi_input", parameters: %{}, form: confirm),
        AskUser.tool(
          name: "confirm_delete",
          parameters: %{"properties" => %{"filename" => %{"type" => "string"}}},
          form: confirm
        ),
        %Tool{name: "test_tool_with_progress", description: "Of the suite", run: &progress/3},
        tool("json_schema_2020_12_tool", fn _ -> {:ok, "done"} end, schema()),
        tool(
          "test_custom_header_validation",
          fn %{"routed_value" => value} -> {:ok, value} end,
          %{
            "type" => "object",
            "properties" => %{
              "routed_value" => %{"type" => "string", "x-mcp-header" => "Routed-Value"}
            },
            "required" => ["routed_value"]
          }
        )
      ] ++
      for {name, fun} <- functions(), do: tool(name, fun, %{"type" => "object"})
  end

  defp tool(name, fun, parameters),
    do: %{name: name, function: fun, parameters: parameters, description: "Of the suite"}

  defp functions do
    %{
      "greet" => fn %{"name" => name} ->
        IO.puts("printed")
        Logger.warning("logged")
        {:ok, "Hello, #{name}!"}
      end,
      "slow_compute" => fn %{"seconds" => seconds} ->
        Process.sleep(round(seconds * 1_000))
        {:ok, "computed"}
      end,
      "failing_job" => fn _ ->
        Process.sleep(1_000)
        {:error, "this job fails"}
      end,
      "protocol_error_job" => fn _ -> {:ok, "never"} end,
      "test_simple_text" => fn _ -> {:ok, "This is a simple text response for testing."} end,
      "test_image_content" => fn _ -> {:ok, [image()]} end,
      "test_audio_content" => fn _ ->
        {:ok, [%{type: :audio, media_type: "audio/wav", data: @wav}]}
      end,
      "test_embedded_resource" => fn _ ->
        {:ok, [file("This is an embedded resource content.")]}
      end,
      "test_multiple_content_types" => fn _ ->
        {:ok, [%{type: :text, text: "Multiple content types test:"}, image(), file("{}")]}
      end,
      "test_error_handling" => fn _ ->
        {:error, "This tool intentionally returns an error for testing"}
      end
    }
  end

  defp image, do: %{type: :image, media_type: "image/png", data: @png}
  defp file(text), do: %{type: :file, media_type: "text/plain", data: Base.encode64(text)}

  defp form(name, type),
    do: %{
      "type" => "object",
      "properties" => %{name => %{"type" => type}},
      "required" => [name]
    }

  # Reports that follow each other too fast are left out.
  defp progress(_arguments, _context, scope) do
    for done <- [0, 50, 100] do
      scope.progress.(done, 100)
      Process.sleep(60)
    end

    {:ok, "done"}
  end

  defp schema do
    %{
      "$schema" => "https://json-schema.org/draft/2020-12/schema",
      "type" => "object",
      "$defs" => %{
        "address" => %{
          "$anchor" => "addressDef",
          "type" => "object",
          "properties" => %{"street" => %{"type" => "string"}, "city" => %{"type" => "string"}}
        }
      },
      "properties" => %{
        "name" => %{"type" => "string"},
        "address" => %{"$ref" => "#/$defs/address"},
        "contactMethod" => %{"type" => "string", "enum" => ["phone", "email"]},
        "phone" => %{"type" => "string"},
        "email" => %{"type" => "string"}
      },
      "allOf" => [%{"anyOf" => [%{"required" => ["phone"]}, %{"required" => ["email"]}]}],
      "if" => %{
        "properties" => %{"contactMethod" => %{"const" => "phone"}},
        "required" => ["contactMethod"]
      },
      "then" => %{"required" => ["phone"]},
      "else" => %{"required" => ["email"]},
      "additionalProperties" => false
    }
  end
end
