defmodule AshAgent.TestSupport.McpAsks do
  @moduledoc false

  # Asks a server of MCP as a client of 2026-07-28 does.

  import ExUnit.Assertions

  alias AshAgent.Context.JSON
  alias AshAgent.MCP

  @host "mcp.example.com"
  @meta "io.modelcontextprotocol/"

  def server(opts) do
    own = [identify: &__MODULE__.identify/1, secrets: [{"k1", String.duplicate("s", 32)}]]
    MCP.Server.new(Keyword.merge([hosts: [@host]] ++ own, opts))
  end

  @doc "The header `authorization` names somebody. Bob decides about nothing, and Mallory gets nothing."
  def identify(%{headers: headers}) do
    case List.keyfind(headers, "authorization", 0) do
      {_, "Bearer mallory"} ->
        {:error, :forbidden}

      {_, "Bearer " <> name} ->
        identity = %{principal: name, runtime_context: %{name: name}, metadata: %{name: name}}
        {:ok, if(name == "bob", do: identity, else: Map.put(identity, :by, name))}

      nil ->
        {:error, :unauthenticated}
    end
  end

  def call(server, name, arguments, opts \\ []) do
    answer = ask(server, "tools/call", %{"name" => name, "arguments" => arguments}, opts)
    answer["result"] || flunk("no result: #{inspect(answer)}")
  end

  def get(server, id, opts \\ []) do
    tasks = %{"elicitation" => %{}, "extensions" => %{(@meta <> "tasks") => %{}}}
    ask(server, "tasks/get", %{"taskId" => id}, [caps: tasks] ++ opts)["result"]
  end

  @doc "Waits until a task has ended, or wants something."
  def await(server, id, opts \\ [], times \\ 400) do
    case get(server, id, opts) do
      %{"status" => "working"} when times > 0 ->
        Process.sleep(25)
        await(server, id, opts, times - 1)

      task ->
        task
    end
  end

  def ask(server, method, params, opts \\ []),
    do: server |> post(method, params, opts) |> Map.fetch!(:resp_body) |> JSON.decode!()

  def post(server, method, params, opts) do
    meta = %{
      (@meta <> "protocolVersion") => "2026-07-28",
      (@meta <> "clientInfo") => %{"name" => "test", "version" => "1"},
      (@meta <> "clientCapabilities") => opts[:caps] || %{}
    }

    meta = if token = opts[:progress], do: Map.put(meta, "progressToken", token), else: meta
    params = Map.put(params, "_meta", meta)
    params = if big = opts[:big], do: Map.put(params, "big", big), else: params
    body = JSON.encode(%{"jsonrpc" => "2.0", "id" => 1, "method" => method, "params" => params})
    name = opts[:name] || params["name"] || params["taskId"]

    headers =
      %{
        "host" => opts[:host] || @host,
        "content-type" => "application/json",
        "accept" => "application/json, text/event-stream",
        "mcp-protocol-version" => "2026-07-28",
        "mcp-method" => method
      }
      |> Map.merge(if name, do: %{"mcp-name" => name}, else: %{})
      |> Map.merge(
        if as = Keyword.get(opts, :as, "ada"),
          do: %{"authorization" => "Bearer " <> as},
          else: %{}
      )
      |> Map.merge(Map.new(opts[:headers] || []))

    send_to(server, body, headers)
  end

  @doc "The same as a client of 2025-11-25. A message without params is a notification."
  def old(server, method, params, opts) do
    message = %{"jsonrpc" => "2.0", "method" => method}
    id = System.unique_integer([:positive])
    message = if params, do: Map.merge(message, %{"id" => id, "params" => params}), else: message

    headers =
      Map.merge(
        %{
          "host" => @host,
          "content-type" => "application/json",
          "accept" => "application/json, text/event-stream",
          "authorization" => "Bearer " <> (opts[:as] || "ada")
        },
        Map.new(opts[:headers] || [])
      )

    send_to(server, JSON.encode(message), headers)
  end

  defp send_to(server, body, headers) do
    conn = apply(Plug.Test, :conn, ["POST", "/mcp", body])
    MCP.Plug.call(%{conn | req_headers: Map.to_list(headers)}, server)
  end

  def events(conn) do
    for "data: " <> json <- String.split(conn.resp_body, ~r/\r?\n/), do: JSON.decode!(json)
  end
end
