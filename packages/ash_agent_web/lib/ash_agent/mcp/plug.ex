defmodule AshAgent.MCP.Plug do
  @moduledoc """
  A plug that is an MCP server, see `AshAgent.MCP.Server`, whose options it takes:

      forward "/mcp", AshAgent.MCP.Plug,
        sessions: MyApp.Sessions,
        identify: &MyApp.identify/1,
        secrets: &MyApp.mcp_secrets/0,
        hosts: ["app.example.com"]

  The request that `:identify` gets has the connection's `assigns`. Put it before `Plug.Parsers`, or after: a body that was read is taken from `body_params`.
  """

  alias AshAgent.Context.JSON
  alias AshAgent.Door
  alias AshAgent.MCP.Server

  @compile {:no_warn_undefined, [ExMCP.HttpPlug, Plug.Conn]}

  @header_mismatch -32_020

  @statuses %{
    header: 400,
    unauthenticated: 401,
    origin: 403,
    host: 403,
    refused: 403,
    too_large: 413,
    content_type: 415,
    unavailable: 503
  }

  @words %{
    header: "mcp-name is not the task's id",
    unauthenticated: "sign in",
    origin: "this origin may not ask",
    host: "this host is not served",
    refused: "not allowed",
    too_large: "the message is too long",
    content_type: "expected application/json",
    unavailable: "not available"
  }

  @doc "Checks the options."
  @doc since: "0.1.0"
  @spec init(keyword()) :: Server.t()
  def init(opts), do: Server.new(opts)

  @doc "Answers a request."
  @doc since: "0.1.0"
  @spec call(struct(), Server.t()) :: struct()
  def call(conn, %Server{} = server) do
    {request, conn} = Door.Plug.read(conn, server.max_bytes)

    with {:ok, identity} <- Server.admit(server, request),
         {:ok, opts} <- Server.options(server, identity, request) do
      serve(conn, request.body, opts)
    else
      {:error, kind} -> refuse(conn, kind)
    end
  end

  defp serve(conn, body, opts) do
    conn = Plug.Conn.assign(conn, :raw_body, body)
    ExMCP.HttpPlug.call(conn, ExMCP.HttpPlug.init([mrtr: true] ++ opts))
  end

  defp refuse(conn, {:header, id}), do: refuse(conn, :header, @header_mismatch, id)
  defp refuse(conn, kind), do: refuse(conn, kind, -32_000, nil)

  # The log has the same id where we are the reason.
  defp refuse(conn, kind, code, id) do
    status = Map.fetch!(@statuses, kind)
    words = Map.fetch!(@words, kind)
    words = if status >= 500, do: "#{words} (#{Door.report(kind)})", else: words
    error = %{code: code, message: words}

    conn
    |> Plug.Conn.put_resp_header("content-type", "application/json")
    |> Plug.Conn.put_resp_header("cache-control", "no-store")
    |> Plug.Conn.send_resp(status, JSON.encode(%{jsonrpc: "2.0", id: id, error: error}))
  end
end
