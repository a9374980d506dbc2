defmodule AshAgent.MCP.Anubis do
  @moduledoc false

  # Servers through `anubis_mcp`, which the application brings. Its modules are looked for when a server is started.

  @behaviour AshAgent.MCP.Client
  @compile {:no_warn_undefined, [Anubis.Client, Finch, :telemetry]}

  alias AshAgent.Context.JSON
  alias AshAgent.MCP.Listing

  @registry AshAgent.MCP.Registry

  # A call takes as long as its run allows. A day is longer than any of them.
  @longest 86_400_000
  @patience 5_000

  # In words: 256 MB. An output schema that refers to itself makes the client grow without end when it reads it.
  @max_heap 32_000_000

  # A fixed text: nothing is ever inserted into it.
  #
  # A port inherits the whole environment of the VM. Every variable but those in $1 is removed when the program starts, without
  # showing a value to anybody who lists processes. A line that continues a value of several lines names nothing, or nothing
  # that matters, since variables that are kept are never removed.
  #
  # The BEAM only closes the input of a program that is not wanted any more, or when it ends itself. A server should end then. If
  # it does not, its process group, of which $$ is the leader, is told to end and then killed, as it is when the server has ended
  # and left children.
  @wrapper ~S"""
  keep=$1
  shift
  while IFS= read -r line; do
    name=${line%%=*}
    case $line in
      ?*=*) case " $keep " in *" $name "*) ;; *) set -- -u "$name" "$@" ;; esac ;;
    esac
  done <<END
  $(env)
  END
  trap '' TERM
  { cat; exec >&-; sleep 2; kill -s TERM -- "-$$"; sleep 2; kill -s KILL -- "-$$"; } 2>/dev/null |
    { ( trap - TERM; exec env "$@" ); kill -s KILL -- "-$$"; }
  """

  @impl true
  def available(server) do
    cond do
      not Code.ensure_loaded?(Anubis.Client) ->
        {:error,
         "the MCP server #{inspect(server.name)} needs a client: add {:anubis_mcp, \"~> 2.0\"} to the deps in mix.exs " <>
           "(it needs Elixir 1.18), and run mix deps.get"}

      is_map_key(server, :url) and Process.whereis(Anubis.Finch) == nil ->
        {:error,
         "the MCP server #{inspect(server.name)} is reached by HTTP: add {Finch, name: Anubis.Finch} to the children of your " <>
           "supervisor, before AshAgent.MCP"}

      true ->
        :ok
    end
  end

  @impl true
  def start_link(server, tell) do
    quiet()
    {:ok, _registry} = start_registry()

    with {:ok, transport} <- transport(server) do
      [client, transport_name] = for part <- [:client, :transport], do: name(make_ref(), part)
      told = "ash_agent_context-#{slot()}"
      listen(told, tell)

      {:ok, supervisor} =
        Anubis.Client.start_link(
          name: client,
          transport_name: transport_name,
          transport: transport,
          client_info: %{"name" => told, "version" => version()},
          capabilities: %{}
        )

      held = %{
        supervisor: supervisor,
        client: GenServer.whereis(client),
        transport: GenServer.whereis(transport_name),
        told: told,
        concurrent?: is_map_key(server, :command)
      }

      put({:tell, held.client}, tell)
      put({:transport, held.transport}, nil)

      # It may have ended already.
      if held.client do
        {:ok, held.client, held}
      else
        stop(held)
        {:error, "has ended"}
      end
    end
  end

  # With the first server: few applications have one, and the modules of a registry take as long to load as the rest of a start.
  defp start_registry do
    registry = {Registry, keys: :unique, name: @registry}

    with {:error, {:already_started, registry}} <-
           Supervisor.start_child(AshAgent.Runtime.Supervisor, registry),
         do: {:ok, registry}
  end

  defp name(id, part), do: {:via, Registry, {@registry, {id, part}}}

  # At the level :debug it logs headers, arguments and results, unless the application decides otherwise.
  defp quiet do
    with :error <- Application.fetch_env(:anubis_mcp, :log),
         do: Application.put_env(:anubis_mcp, :log, false)
  end

  # The client makes an atom of its name, and two that live at the same time must not have the same one.
  defp slot(number \\ 1) do
    case Registry.register(@registry, {:slot, number}, nil) do
      {:ok, _} -> number
      {:error, {:already_registered, pid}} when pid == self() -> number
      {:error, _other} -> slot(number + 1)
    end
  end

  defp version, do: to_string(Application.spec(:ash_agent_runtime, :vsn) || "0")

  defp transport(%{url: url} = server) do
    uri = URI.parse(url)

    if uri.scheme in ["http", "https"] and uri.host not in [nil, ""] do
      address = [base_url: URI.to_string(%{uri | path: nil}), mcp_path: uri.path || "/"]
      {:ok, {:streamable_http, address ++ [headers: server.headers, enable_sse: true]}}
    else
      {:error, "has a :url that is not an address with http:// or https://"}
    end
  end

  defp transport(%{command: command} = server) do
    keep = AshAgent.ProgramEnv.list_kept(server[:inherit_env] || [], server.env)
    program = server.env["PATH"] || System.find_executable(command)

    if program do
      args = ["-c", @wrapper, "mcp", Enum.join(keep, " "), command | server.args]
      options = [command: "sh", args: args, env: server.env]
      {:ok, {:stdio, if(server[:cwd], do: options ++ [cwd: server.cwd], else: options)}}
    else
      {:error, "cannot be started: #{inspect(command)} does not exist or is not executable"}
    end
  end

  # The client reports changes and the reason of its end by telemetry alone, from its own process. Finch does the same with
  # each request of a transport.
  defp listen(told, tell) do
    put({:tell, told}, tell)
    events = for name <- [:notification, :terminate], do: [:anubis_mcp, :client, name]
    events = [[:finch, :request, :start] | events]
    :telemetry.attach_many(__MODULE__, events, &__MODULE__.handle_telemetry/4, nil)
  end

  defp put(key, value) do
    Registry.unregister(@registry, key)
    {:ok, _} = Registry.register(@registry, key, value)
  end

  @doc false
  def handle_telemetry([:finch | _], _measured, %{name: Anubis.Finch} = metadata, _config) do
    if Registry.lookup(@registry, {:transport, self()}) != [],
      do: put({:request, self()}, metadata.request)
  end

  def handle_telemetry(_event, _measurements, %{method: "tools/list_changed"}, _config),
    do: tell(self(), :changed)

  def handle_telemetry([_, _, :terminate], _measured, %{client_name: told, reason: why}, _config),
    do: tell(told, {:ended, describe_end(why)})

  def handle_telemetry(_event, _measurements, _metadata, _config), do: :ok

  defp tell(key, message),
    do: for({_pid, tell} <- Registry.lookup(@registry, {:tell, key}), do: tell.(message))

  # A client that cannot connect ends with that reason.
  defp describe_end({:error, _} = error), do: error |> failure() |> elem(1)
  defp describe_end(_reason), do: "has ended"

  @impl true
  def concurrent?(held), do: held.concurrent?

  @impl true
  def list_tools(%{client: client}, cursor, timeout) do
    call_connected(fn ->
      with :ok <- Anubis.Client.await_ready(client, timeout: timeout) do
        limit_heap(client, timeout)
        opts = if cursor, do: [cursor: cursor, timeout: timeout], else: [timeout: timeout]

        case Anubis.Client.list_tools(client, opts) do
          {:ok, response} -> {:ok, response.result}
          {:error, %{reason: :method_not_found}} -> {:ok, %{"tools" => []}}
          error -> failure(error)
        end
      else
        error -> failure(error)
      end
    end)
  end

  # Whatever the client does with a message must not take all memory.
  defp limit_heap(client, timeout) do
    bounded = fn state ->
      Process.flag(:max_heap_size, %{size: @max_heap, kill: true, error_logger: true})
      state
    end

    :sys.replace_state(client, bounded, timeout)
  end

  @impl true
  def call_tool(%{client: client}, name, arguments, progress) do
    call_connected(fn ->
      token = Base.encode16(:crypto.strong_rand_bytes(8))
      report = fn _token, done, total -> progress.(done, total) end
      opts = [timeout: @longest, progress: [token: token, callback: report]]
      answer = Anubis.Client.call_tool(client, name, arguments, opts)
      # The client keeps it otherwise.
      call_connected(fn -> Anubis.Client.unregister_progress_callback(client, token) end)

      with {:ok, response} <- answer, do: {:ok, response.result}, else: (error -> failure(error))
    end)
  end

  # The client does not tell callers the ids of their requests, which are needed to cancel them. Over HTTP it is busy until the
  # response is complete, so the cancellation goes past it, in the same session.
  @impl true
  def cancel(%{concurrent?: false, transport: transport}, _caller) do
    with [{_pid, %{body: sent} = request}] when is_binary(sent) <-
           Registry.lookup(@registry, {:request, transport}),
         {:ok, %{"method" => "tools/call", "id" => id}} <- JSON.decode(sent) do
      params = %{"requestId" => id, "reason" => "cancelled"}
      body = %{"jsonrpc" => "2.0", "method" => "notifications/cancelled", "params" => params}

      Finch.request(%{request | body: JSON.encode(body)}, Anubis.Finch, receive_timeout: @patience)
    end

    :ok
  end

  def cancel(%{client: client}, caller) do
    call_connected(fn ->
      %{pending_requests: requests} = :sys.get_state(client, @patience)

      for {id, %{from: {^caller, _tag}}} <- requests,
          do: Anubis.Client.cancel_request(client, id, "cancelled", timeout: @patience)

      :ok
    end)
  end

  @impl true
  def stop(%{supervisor: supervisor} = held) do
    for key <- [tell: held.client, tell: held.told, transport: held.transport],
        do: Registry.unregister(@registry, key)

    Supervisor.stop(supervisor, :shutdown, @patience)
  catch
    :exit, _reason -> Process.exit(supervisor, :kill)
  end

  # The reasons of exits contain requests and headers.
  defp call_connected(fun) do
    fun.()
  catch
    :exit, _reason -> {:lost, "has ended or does not respond"}
  end

  ## Failures in words, without addresses, headers and bodies

  defp failure({:error, %{reason: :send_failure, data: %{original_reason: reason}}}),
    do: {:lost, unsent(reason)}

  defp failure({:error, %{reason: :request_timeout}}), do: {:error, "did not respond in time"}
  defp failure({:error, %{reason: :request_cancelled}}), do: {:error, "cancelled the call"}

  defp failure({:error, %{data: %{errors: _}}}),
    do: {:error, "returned a structured content that does not fit the tool's output schema"}

  defp failure({:error, %{message: words}}) when is_binary(words) and words != "" do
    words = words |> binary_part(0, min(byte_size(words), 2_000)) |> Listing.readable()
    {:error, "answered with an error: " <> words}
  end

  defp failure(_other), do: {:error, "did not take the request"}

  defp unsent({:http_error, status, _body}), do: "answered with HTTP status #{status}"
  defp unsent(:session_expired), do: "has forgotten the session; another one is started"
  defp unsent({:unsupported_content_type, _type}), do: "did not answer as MCP says"

  defp unsent(%{reason: reason}) when reason in [:econnrefused, :nxdomain, :ehostunreach],
    do: "cannot be reached (#{reason})"

  defp unsent(_other),
    do: "broke the connection off, and whether the call did its work is not known"
end
