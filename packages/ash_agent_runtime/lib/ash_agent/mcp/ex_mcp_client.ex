defmodule AshAgent.MCP.ExMCPClient do
  @moduledoc false

  # Servers through `ex_mcp`, which the application brings. Its modules are looked for when a server is started. It speaks the protocol
  # of both eras; what carries the messages is ours, see AshAgent.MCP.Program and AshAgent.MCP.HTTP.

  @behaviour AshAgent.MCP.Client
  @compile {:no_warn_undefined, [ExMCP.Client]}

  alias AshAgent.MCP.{Connection, Listing}

  # A call takes as long as its run allows. A day is longer than any of them.
  @longest 86_400_000
  @patience 5_000

  # A call never goes out twice: not after a broken stream, and not after an error.
  @once [format: :map, retry_policy: false, http_stream_retry: :safe_only]

  @method_not_found -32_601
  @no_task [-32_601, -32_602]
  @input_refused [-32_021, -32_601, -32_602]

  @impl true
  def available(server) do
    cond do
      Version.compare(System.version(), "1.17.0") == :lt ->
        {:error,
         "the MCP server #{inspect(server.name)} needs a client, and that needs Elixir 1.17: this is #{System.version()}"}

      not Code.ensure_loaded?(ExMCP.Client) ->
        {:error,
         "the MCP server #{inspect(server.name)} needs a client: add {:ex_mcp, \"~> 1.0\"} to the deps in mix.exs, and run mix deps.get"}

      true ->
        :ok
    end
  end

  @impl true
  def start_link(server, tell) do
    with :ok <- check(server) do
      {:ok, _apps} = Application.ensure_all_started(:ex_mcp)
      {:ok, pid} = Connection.start_link(fn -> {server, tell} end)
      {:ok, pid, pid}
    end
  end

  defp check(%{url: url}) do
    uri = URI.parse(url)

    if uri.scheme in ["http", "https"] and uri.host not in [nil, ""],
      do: :ok,
      else: {:error, "has a :url that is not an address with http:// or https://"}
  end

  defp check(%{command: command} = server) do
    if server.env["PATH"] || System.find_executable(command),
      do: :ok,
      else: {:error, "cannot be started: #{inspect(command)} does not exist or is not executable"}
  end

  # Each request has a process of its own, also over HTTP.
  @impl true
  def concurrent?(_connection), do: true

  @impl true
  def list_tools(connection, cursor, timeout) do
    with_client(connection, timeout, fn link, client ->
      opts = [timeout: timeout] ++ @once ++ if cursor, do: [cursor: cursor], else: []

      case ExMCP.Client.list_tools(client, opts) do
        {:ok, result} -> {:ok, Map.put(result, :tasks?, Connection.get(link, :tasks, false))}
        {:error, %{"code" => @method_not_found}} -> {:ok, %{"tools" => []}}
        {:error, reason} -> failure(reason, link)
      end
    end)
  end

  @impl true
  def call_tool(connection, name, arguments, progress, opts) do
    with_client(connection, @longest, fn link, client ->
      token = Connection.expect_progress(link, progress, opts[:offers] || [])
      answers = opts[:answers] || %{}
      opts = [timeout: @longest, progress_token: token] ++ @once

      case call_tool_once(client, name, arguments, answers, opts) do
        :ended ->
          {:unknown, "ended during the call, and whether the call did its work is not known"}

        answer ->
          Connection.forget_progress(link, self())
          read_answer(answer, link)
      end
    end)
  end

  defp read_answer({:ok, %{"resultType" => "task"} = task}, _link), do: {:task, task}
  defp read_answer({:ok, result}, _link), do: {:ok, result}

  defp read_answer({:error, %{"data" => [_, _, _] = data} = reason}, link) do
    with {:asks, _questions} = asks <- Connection.fault(link, data),
         do: asks,
         else: (_failure -> failure(reason, link))
  end

  defp read_answer({:error, reason}, link), do: failure(reason, link)

  defp call_tool_once(client, name, arguments, answers, opts) do
    if answers == %{} do
      ExMCP.Client.call_tool(client, name, arguments, opts)
    else
      own = %{"name" => name, "arguments" => arguments}
      meta = %{"_meta" => %{"progressToken" => opts[:progress_token]}}
      params = answers |> Map.merge(own) |> Map.merge(meta)
      ExMCP.Client.make_request(client, "tools/call", params, opts, @longest)
    end
  catch
    # It had the call already.
    :exit, {reason, _call} when reason != :noproc -> :ended
  end

  @impl true
  def task(connection, method, params, timeout) do
    with_client(connection, timeout, fn link, client ->
      opts = [timeout: timeout] ++ @once
      ask = &ExMCP.Client.make_request(client, "tasks/" <> &1, params, opts, timeout)

      # A server of both eras that was just being started may be taken for one of the old era.
      case if(Connection.get(link, :tasks) == nil, do: :old, else: ask.(method)) do
        :old ->
          {:lost, "is asked in the old era, which has no such tasks; another connection is made"}

        {:ok, result} ->
          {:ok, result}

        {:error, %{"code" => code}} when code in @no_task ->
          {:gone, "does not know the task"}

        {:error, reason} ->
          failure(reason, link)
      end
    end)
  end

  # The client does not tell callers the ids of their requests.
  @impl true
  def cancel(connection, caller) do
    with_client(connection, @patience, fn link, client ->
      Connection.forget_progress(link, caller)
      %{pending_requests: requests} = :sys.get_state(client, @patience)

      for {id, request} <- requests,
          match?({^caller, _tag}, elem(request, 0)),
          do: ExMCP.Client.send_cancelled(client, id, "cancelled")

      :ok
    end)
  end

  # What belongs to a connection ends with its process, in whatever state it is.
  @impl true
  def stop(connection), do: Process.exit(connection, :kill)

  # The reasons of exits contain requests and headers.
  defp with_client(connection, timeout, fun) do
    {link, client} = Connection.client(connection, timeout)
    fun.(link.(), client)
  rescue
    # Its table is gone.
    _ in ArgumentError -> {:lost, "has ended or does not respond"}
  catch
    :exit, _reason -> {:lost, "has ended or does not respond"}
  end

  ## Failures in words, without addresses, headers and bodies

  defp failure(%{"message" => words} = error, link) when is_binary(words) do
    case Connection.fault(link, error["data"]) do
      {:asks, _questions} ->
        {:error, "did not answer as MCP says"}

      {kind, words} ->
        {kind, words}

      nil ->
        if forgotten?(error["code"], words, link),
          do: {:lost, "has forgotten the session; another one is started"},
          else: {:error, "answered with an error: " <> Listing.shorten(words)}
    end
  end

  defp failure(%{code: code}, _link) when code in @input_refused,
    do: {:error, "asks for something that it does not get here, and has not done the call"}

  defp failure(:cancelled, _link), do: {:error, "cancelled the call"}
  defp failure(:timeout, _link), do: {:error, "did not respond in time"}
  defp failure(:not_connected, _link), do: {:lost, "has ended or does not respond"}
  defp failure(%{type: :protocol_error}, _link), do: {:error, "did not answer as MCP says"}
  defp failure(_other, _link), do: {:error, "did not take the request"}

  # Servers of the old era say it in many ways, some of them with status 200.
  defp forgotten?(code, words, link),
    do:
      code in -32_099..-32_000//1 and Connection.era(link) == :legacy and
        words =~ ~r/not (yet )?(been )?initiali|session/i
end
