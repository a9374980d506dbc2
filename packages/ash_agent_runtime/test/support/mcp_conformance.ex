defmodule AshAgent.TestSupport.McpConformance do
  @moduledoc false

  # Our client as the official suite tests it: lists the tools of the server that the suite starts for a scenario, and calls each of
  # them, or those that the scenario names. The suite starts a program for it, which passes the scenario to this VM.

  @compile {:no_warn_undefined,
            [
              ExMCP.Authorization.ProtectedResourceMetadata,
              ExMCP.Authorization.Provider.OAuth,
              ExMCP.Testing.SchemaGenerator
            ]}

  alias AshAgent.Context.JSON
  alias AshAgent.MCP
  alias AshAgent.Runtime.ToolExecutor
  alias AshAgent.TestSupport.McpServers
  alias ExMCP.Authorization.{ProtectedResourceMetadata, Provider}

  @limit 240_000

  @doc "Runs the scenarios that a revision requires, and returns what the suite says and its exit code."
  def run(revision) do
    {node, args} = McpServers.conformance()
    options = [:binary, packet: :line, buffer: 1_000_000, active: false, ip: {127, 0, 0, 1}]
    {:ok, listener} = :gen_tcp.listen(0, [backlog: 100] ++ options)
    {:ok, port} = :inet.port(listener)
    {:ok, _pid} = Task.start_link(fn -> accept(listener) end)

    System.cmd(
      node,
      args ++
        ["client", "--requirements", revision, "--timeout", "#{@limit}"] ++
        ["--command", "#{node} #{Path.expand("mcp_conformance.mjs", __DIR__)} #{port}"] ++
        ["--expected-failures", Path.expand("mcp_conformance.#{revision}.yml", __DIR__)],
      stderr_to_stdout: true
    )
  end

  defp accept(listener) do
    with {:ok, socket} <- :gen_tcp.accept(listener) do
      # What goes wrong in a scenario is what the suite notices.
      {:ok, pid} = Task.start(fn -> serve(socket) end)
      :gen_tcp.controlling_process(socket, pid)
      send(pid, :go)
      accept(listener)
    end
  end

  defp serve(socket) do
    receive do: (:go -> :ok)
    {:ok, line} = :gen_tcp.recv(socket, 0)
    %{"url" => url, "env" => env} = JSON.decode!(line)
    said = scenario(url, env["MCP_CONFORMANCE_SCENARIO"] || "", env)
    :gen_tcp.send(socket, inspect(said))
    :gen_tcp.close(socket)
  end

  defp scenario(url, scenario, env) do
    context = read(env["MCP_CONFORMANCE_CONTEXT"] || "")
    auth = if String.starts_with?(scenario, "auth/"), do: auth(url, scenario, context, env)
    opts = [auth: auth, timeout: 60_000, questions: &{:ok, answer(&1.form)}]
    {:ok, mcp} = MCP.start_link([servers: [%{name: "s", url: url}]] ++ opts)
    tools = MCP.tools(mcp, missing: :skip)

    calls =
      for {tool, arguments} <- chosen(tools, context["toolCalls"]),
          do: %{id: tool.name, name: tool.name, arguments: arguments}

    results = ToolExecutor.execute_tools(calls, tools, %{}, timeout: 60_000, max_concurrency: 1)
    Supervisor.stop(mcp)
    # Its farewell to the server.
    Process.sleep(500)
    results
  end

  # What a form suggests, and otherwise anything that fits.
  defp answer(%{"properties" => properties}) do
    for {name, schema} <- properties, into: %{}, do: {name, value(schema)}
  end

  defp value(%{"default" => value}), do: value
  defp value(schema), do: ExMCP.Testing.SchemaGenerator.generate_value(schema)

  defp read(""), do: %{}
  defp read(json), do: JSON.decode!(json)

  defp chosen(tools, nil),
    do:
      for(tool <- tools, do: {tool, ExMCP.Testing.SchemaGenerator.generate_args(tool.parameters)})

  defp chosen(tools, calls) do
    for %{"name" => name} = call <- calls,
        tool <- tools,
        tool.name == MCP.Listing.name("s", name),
        do: {tool, call["arguments"] || %{}}
  end

  # What an application would do, with the parts of ex_mcp. The suite's server signs everybody in at once.
  defp auth(url, scenario, context, env) do
    keys =
      ~w(client_id client_secret private_key idp_id_token idp_issuer idp_token_endpoint idp_client_id)a

    given =
      context
      |> Map.put("private_key", context["private_key_pem"])
      |> then(&for key <- keys, value = &1["#{key}"], into: %{}, do: {key, value})

    given =
      if given[:client_secret], do: Map.put(given, :auth_method, :client_secret), else: given

    given =
      if given[:private_key],
        do: Map.put(given, :signing_algorithm, context["signing_algorithm"] || "RS256"),
        else: given

    {:ok, state} =
      Provider.OAuth.init(
        Map.merge(given, %{
          resource_url: url,
          protocol_version: env["MCP_CONFORMANCE_PROTOCOL_VERSION"] || "2026-07-28",
          application_type: :native,
          redirect_port: free_port(),
          metadata_fetch: [allow_insecure_loopback: true]
        })
        |> Map.merge(registration(scenario, url))
      )

    {:ok, kept} = Agent.start_link(fn -> state end)

    fn
      %{challenge: nil} ->
        {:ok, Agent.get(kept, & &1.access_token)}

      %{challenge: %{status: status, header: header, scopes: scopes}} ->
        answer = if status == 401, do: :handle_unauthorized, else: :handle_forbidden

        case apply(Provider.OAuth, answer, [header, scopes, Agent.get(kept, & &1)]) do
          {:ok, token, state} ->
            Agent.update(kept, fn _ -> state end)
            {:ok, token}

          {:error, _reason, state} ->
            Agent.update(kept, fn _ -> state end)
            {:error, "lets nobody in"}
        end
    end
  end

  # What the suite does not pass.
  defp registration("auth/basic-cimd", _url),
    do: %{client_metadata_url: "https://conformance-test.local/client-metadata.json"}

  defp registration("auth/pre-registration", url) do
    {:ok, %{authorization_servers: [%{issuer: issuer} | _]}} =
      ProtectedResourceMetadata.discover(url, allow_insecure_loopback: true)

    %{credential_issuer: issuer}
  end

  defp registration(_scenario, _url), do: %{}

  # Below those that the system gives to whoever asks for any: the scenarios run at the same time.
  defp free_port do
    number = String.to_integer(System.pid()) * 131 + System.unique_integer([:positive])

    case :gen_tcp.listen(20_000 + rem(number, 10_000), ip: {127, 0, 0, 1}) do
      {:ok, socket} ->
        {:ok, port} = :inet.port(socket)
        :gen_tcp.close(socket)
        port

      {:error, _used} ->
        free_port()
    end
  end
end
