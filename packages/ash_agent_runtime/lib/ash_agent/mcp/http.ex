defmodule AshAgent.MCP.HTTP do
  @moduledoc false

  # Carries messages to an address and back (streamable HTTP, of both eras): a transport of ex_mcp. Until the client is connected, it waits
  # for each answer. After that, each message has a process and a connection of its own, so that calls wait for nothing, none is sent
  # twice, and one that is cancelled ends alone.

  @compile {:no_warn_undefined,
            [ExMCP, ExMCP.Transport.HTTP.RequestHeaders, ExMCP.Transport.HTTP.ToolHeaders]}

  alias AshAgent.Context.JSON
  alias AshAgent.LLM.Transport.{HTTP1, Request}
  alias AshAgent.MCP.{Connection, Listing, SSE}
  alias AshAgent.Runtime.{Events, ToolExecutor}
  alias ExMCP.Transport.HTTP.{RequestHeaders, ToolHeaders}

  defstruct [:link, :uri, live?: false]

  @cancelled "notifications/cancelled"
  @unreached [:econnrefused, :nxdomain, :ehostunreach, :enetunreach]
  @first_pause 1_000
  @shortest_pause 100
  @longest_pause 30_000
  @farewell 2_000
  @sign_ins 3
  @max_tools 256
  @max_answers 100

  @unknown "broke the connection off, and whether the call did its work is not known"

  def connect(opts) do
    link = Connection.enter(opts)
    for key <- [:era, :version, :session], do: Connection.put(link, key, nil)
    {:ok, %__MODULE__{link: link, uri: URI.parse(link.server.url)}}
  end

  def capabilities(_state), do: [:push]
  def connected?(_state), do: true
  def receive_message(_state), do: {:error, :closed}
  def receive_message(_state, _timeout), do: {:error, :closed}
  def close(_state), do: :ok

  @doc "From now on, messages go to the process that sees them first. In the old era, the server may send some unasked."
  def subscribe(_client, %{link: link} = state) do
    if Connection.era(link) == :legacy do
      start(state, nil, fn -> listen(state, @first_pause) end)
      # Its end is polite, and nobody waits for it.
      if Connection.get(link, :session),
        do: Connection.at_end(link, at_end(request(state, "DELETE", "", @farewell), link))
    end

    {:ok, %{state | live?: true}}
  end

  # The table is gone then.
  defp at_end(request, link) do
    headers = Request.headers(request)

    fn ->
      stream(
        %{request | headers: fn -> headers end},
        fn _message, reading -> {:halt, reading} end,
        link
      )
    end
  end

  def send_message(body, state) do
    message = JSON.decode!(body)
    body = Connection.announce(body, message, state.link)

    cond do
      not state.live? ->
        exchange(body, message, state)

      message["method"] == @cancelled ->
        cancel(message["params"]["requestId"], body, state)

      # Answers to what the server asks have its ids.
      is_map_key(message, "method") ->
        start(state, message["id"], fn -> deliver(body, message, state) end)

      true ->
        answer(state, fn -> deliver(body, message, state) end)
    end
  end

  ## Before the client is connected

  defp exchange(body, message, %{link: link} = state) do
    if Connection.get(link, :refused),
      do: {:error, :no_answer},
      else: exchange_once(body, message, state)
  end

  defp exchange_once(body, message, %{link: link} = state) do
    id = message["id"]

    take = fn message, reading ->
      if answer?(message, id),
        do: {:halt, %{reading | answer: message}},
        else: {:cont, reading}
    end

    case stream(request(state, "POST", body, link.timeout), take, link) do
      {:ok, %{status: status, answer: %{} = answer} = reading} when status in 200..299 ->
        settle(message, answer["result"], reading, link)
        {:ok, state, JSON.encode(answer)}

      {:ok, %{status: status}} when status in 200..299 and id == nil ->
        {:ok, state}

      {:ok, %{status: 400, answer: answer}} ->
        Connection.put_fault(link, "answered with HTTP status 400")
        {:error, {:http_error, 400, if(answer, do: JSON.encode(answer), else: "")}}

      # Nobody gets in by asking in another era.
      {:refused, words} ->
        Connection.put(link, :refused, words)
        {:error, :no_answer}

      outcome ->
        {kind, words} = words(outcome)
        Connection.put_fault(link, words)
        # One that is not there is of no era.
        if kind == :lost, do: Connection.put(link, :refused, words)
        {:error, :no_answer}
    end
  end

  defp settle(%{"method" => "initialize"}, %{"protocolVersion" => version}, reading, link)
       when is_binary(version) do
    Connection.put(link, :era, :legacy)
    Connection.put(link, :version, header(version, ~r/\A[\w.-]{1,64}\z/))
    # As MCP says: visible ASCII.
    session = header(reading.headers["mcp-session-id"], ~r/\A[!-~]{1,8192}\z/)
    Connection.put(link, :session, session)
  end

  defp settle(%{"method" => "server/discover"}, %{}, _reading, link),
    do: Connection.put(link, :era, :modern)

  defp settle(_message, _result, _reading, _link), do: :ok

  # What a server says and gets back as a header, unless it could be more than that.
  defp header(value, form), do: if((value || "") =~ form, do: value)

  ## Afterwards

  # Tells a process to begin when it can be cancelled.
  defp start(%{link: link} = state, id, fun) do
    pid =
      spawn(fn ->
        Connection.limit_heap()
        Process.link(link.holder)
        receive do: (:begin -> :ok)

        with {:raised, kind, reason, _} <- ToolExecutor.call_guarded(fun), true <- id != nil do
          words = "could not be asked (#{inspect(Events.label(kind, reason))})"
          send_on(Connection.answer_fault(link, id, :error, words), state)
        end

        # The connection may have ended meanwhile, and its table with it.
        ToolExecutor.call_guarded(fn -> :ets.delete(link.table, {:post, id}) end)
      end)

    if id, do: Connection.put(link, {:post, id}, pid)
    send(pid, :begin)
    {:ok, state}
  end

  # A server that asks without end, and takes no answers, gets as many as this.
  defp answer(%{link: link} = state, fun) do
    if :ets.update_counter(link.table, :answers, 1, {:answers, 0}) <= @max_answers do
      start(state, nil, fn ->
        ToolExecutor.call_guarded(fun)
        :ets.update_counter(link.table, :answers, -1)
      end)
    else
      :ets.update_counter(link.table, :answers, -1)
      {:ok, state}
    end
  end

  # In the new era, a closed stream is the cancellation.
  defp cancel(id, body, %{link: link} = state) do
    pid = Connection.get(link, {:post, id})
    stop = fn -> if pid, do: Process.exit(pid, :shutdown) end
    :ets.delete(link.table, {:post, id})

    if Connection.era(link) == :legacy do
      start(state, nil, fn ->
        stream(
          request(state, "POST", body, link.timeout),
          fn _, reading -> {:halt, reading} end,
          link
        )

        stop.()
      end)
    else
      stop.()
      {:ok, state}
    end
  end

  defp deliver(body, message, %{link: link} = state) do
    # Only a call takes as long as its run allows.
    asks? = is_map_key(message, "method") and is_map_key(message, "id")
    request = request(state, "POST", body, if(asks?, do: :infinity, else: state.link.timeout))

    outcome =
      request |> stream(&take(&1, &2, message, state), state.link) |> go_on(message, state)

    with %{"id" => id, "method" => _} <- message,
         {kind, words} <- undelivered(outcome, link),
         do: send_on(Connection.answer_fault(link, id, kind, words), state)
  end

  defp take(message, reading, request, state) do
    if answer?(message, request["id"]) do
      keep_headers(request, message["result"], state)
      send_on(message, state)
      {:halt, %{reading | answer: message}}
    else
      send_on(message, state)
      {:cont, reading}
    end
  end

  # Parameters that the new era wants as headers.
  defp keep_headers(%{"method" => "tools/list"} = request, %{"tools" => tools}, %{link: link})
       when is_list(tools) do
    if Connection.era(link) == :modern do
      listed =
        tools |> Enum.take(@max_tools) |> Enum.flat_map(&acceptable/1) |> ToolHeaders.cache()

      # Of the pages up to this one. There are no more when they have so many tools.
      next? = get_in(request, ["params", "cursor"]) != nil
      listed = if next?, do: Map.merge(Connection.get(link, :listed, %{}), listed), else: listed
      Connection.put(link, :listed, listed)
      # Those of the last listing are used until all of this one are there.
      all = link |> Connection.get(:tool_headers, %{}) |> Map.merge(listed)
      all = if map_size(all) <= 2 * @max_tools, do: all, else: listed
      Connection.put(link, :tool_headers, all)
    end
  end

  defp keep_headers(_message, _result, _state), do: :ok

  # Only a tool that can be offered is called, and its schema is bounded.
  defp acceptable(%{} = tool) do
    tool = Map.take(tool, ["name", "inputSchema"])
    if match?({[_], _}, Listing.read([tool], "x", false)), do: [tool], else: []
  end

  defp acceptable(_other), do: []

  defp send_on(message, state), do: send(state.link.holder, {:transport_event, message})

  # A server of the old era may close the stream of an answer, and go on with it on another one.
  defp go_on({:ok, %{answer: nil, status: 200, event: event} = reading}, message, state)
       when event != nil do
    if Connection.era(state.link) == :legacy do
      pause = reading.pause || @first_pause
      Process.sleep(pause |> max(@shortest_pause) |> min(@longest_pause))
      request = request(state, "GET", "", :infinity, event)
      request |> stream(&take(&1, &2, message, state), state.link) |> go_on(message, state)
    else
      {:ok, reading}
    end
  end

  defp go_on(outcome, _message, _state), do: outcome

  defp undelivered({:ok, %{answer: %{}}}, _link), do: nil

  defp undelivered({:ok, %{status: status} = reading}, link) when status in [400, 404] do
    forgotten? = status == 404 or IO.iodata_to_binary(reading.body) =~ ~r/session|initiali/i

    if forgotten? and Connection.get(link, :session),
      do: {:lost, "has forgotten the session; another one is started"},
      else: words({:ok, reading})
  end

  defp undelivered(outcome, _link), do: words(outcome)

  defp words({:refused, words}), do: {:error, words}
  defp words({:ok, %{status: 401}}), do: {:error, "wants to know who asks (HTTP status 401)"}
  defp words({:ok, %{status: status}}) when status in 200..299, do: {:unknown, @unknown}
  defp words({:ok, %{status: status}}), do: {:error, "answered with HTTP status #{status}"}
  defp words({:error, {:response_too_large, _}, _}), do: {:error, "sent more than it may"}
  defp words({:error, {:timeout, :connect}, _}), do: {:lost, "cannot be reached (timeout)"}
  defp words({:error, {:timeout, _}, _}), do: {:error, "did not respond in time"}
  defp words({:error, {:invalid_response, _}, _}), do: {:error, "did not answer as HTTP says"}

  defp words({:error, {:connection, reason}, _}) when reason in @unreached,
    do: {:lost, "cannot be reached (#{reason})"}

  defp words(_other), do: {:unknown, @unknown}

  # What servers of the old era send unasked.
  defp listen(state, pause) do
    take = fn message, reading -> send_on(message, state) && {:cont, reading} end

    case stream(request(state, "GET", "", :infinity), take, state.link) do
      {:ok, %{status: status}} when status not in 200..299 ->
        :ok

      outcome ->
        worked? = match?({:ok, %{event: event}} when event != nil, outcome)
        Process.sleep(pause)
        listen(state, if(worked?, do: @first_pause, else: min(2 * pause, @longest_pause)))
    end
  end

  ## Requests

  defp request(%{link: link} = state, method, body, timeout, event \\ nil) do
    %Request{
      method: method,
      uri: state.uri,
      headers: fn -> headers(method, body, event, state) end,
      body: body,
      timeout: timeout,
      # Of all that comes with one answer. A stream of changes is opened again.
      max_bytes: 4 * link.max_bytes
    }
  end

  defp headers(method, body, event, %{link: %{server: server} = link} = state) do
    body
    |> RequestHeaders.build(%{
      headers: Enum.to_list(server.headers),
      protocol_version: Connection.get(link, :version) || ExMCP.protocol_version(),
      session_id: Connection.get(link, :session),
      last_event_id: event,
      tool_headers: Connection.get(link, :tool_headers, %{}),
      origin: nil,
      security: nil
    })
    |> Enum.map(fn {name, value} -> {String.downcase(name), value} end)
    |> Enum.reject(fn {name, _value} ->
      # It is not settled before this message.
      (name == "mcp-protocol-version" and not state.live? and body =~ ~s("initialize")) or
        (name == "content-type" and method != "POST") or name == "accept-encoding"
    end)
    |> Enum.uniq_by(&elem(&1, 0))
  end

  # Gives each message of the response to `take`, which returns `{:cont, reading}` or `{:halt, reading}`. A server that refuses to answer
  # whoever asks has done nothing, so it is asked again with another token.
  defp stream(request, take, %{server: %{auth: auth}} = link) when auth != nil,
    do: stream_as(request, take, link, nil, @sign_ins)

  defp stream(request, take, link), do: stream_once(request, take, link.max_bytes)

  defp stream_as(request, take, link, challenge, left) do
    with {:ok, token} <- token(link.server.auth, challenge) do
      headers = fn -> put_token(Request.headers(request), token) end
      outcome = stream_once(%{request | headers: headers}, take, link.max_bytes)

      case challenge(outcome) do
        %{} = challenge when left > 0 -> stream_as(request, take, link, challenge, left - 1)
        _answered -> outcome
      end
    end
  end

  defp token(auth, challenge) do
    case ToolExecutor.call_guarded(fn -> auth.(challenge) end) do
      {:returned, {:ok, token}} when is_binary(token) or is_nil(token) ->
        {:ok, token}

      {:returned, {:sign_in, address}} when is_binary(address) ->
        {:refused, "wants a sign-in; open " <> address}

      {:returned, {:error, words}} when is_binary(words) ->
        {:refused, words}

      {:returned, _other} ->
        {:refused, "cannot be asked: :auth returned neither a token nor why there is none"}

      {:raised, kind, reason, _} ->
        {:refused, "cannot be asked: :auth failed (#{inspect(Events.label(kind, reason))})"}
    end
  end

  defp put_token(headers, nil), do: headers

  defp put_token(headers, token),
    do: [{"authorization", "Bearer " <> token} | List.keydelete(headers, "authorization", 0)]

  defp challenge({:ok, %{status: status, answer: nil, headers: headers}})
       when status in [401, 403] do
    header = headers["www-authenticate"]
    scopes = header && Regex.run(~r/scope="([^"]*)"/, header, capture: :all_but_first)

    if status == 401 or (header || "") =~ "insufficient_scope",
      do: %{status: status, header: header, scopes: String.split(List.first(scopes || [""]))}
  end

  defp challenge(_outcome), do: nil

  # A connection serves one request: one that was kept may be cut when the server has the request already, and it would be sent again.
  # A message may have `max` bytes.
  defp stream_once(request, take, max) do
    reading = %{
      status: nil,
      headers: %{},
      sse: nil,
      body: [],
      left: max,
      answer: nil,
      event: nil,
      pause: nil
    }

    fun = &read(&1, &2, take)

    case HTTP1.stream(request, reading, fun, HTTP1.prepare(keep_alive: false)) do
      {:ok, %{sse: :too_large, answer: nil} = reading} ->
        {:error, {:response_too_large, max}, reading}

      {:ok, %{sse: nil, answer: nil} = reading} ->
        {:ok, read_whole(reading, take)}

      {:ok, %{answer: nil} = reading} ->
        {:ok, read_last(reading, take)}

      other ->
        other
    end
  end

  defp read({:head, status, headers}, reading, _take) do
    headers = Map.new(headers)
    type = String.downcase(headers["content-type"] || "")
    sse? = status in 200..299 and String.starts_with?(type, "text/event-stream")
    sse = if sse?, do: SSE.new(reading.left)
    {:cont, %{reading | status: status, headers: headers, sse: sse}}
  end

  defp read({:data, data}, %{sse: nil} = reading, _take) do
    case reading.left - byte_size(data) do
      left when left < 0 -> {:halt, %{reading | sse: :too_large, body: []}}
      left -> {:cont, %{reading | body: [reading.body | data], left: left}}
    end
  end

  defp read({:data, data}, reading, take) do
    {events, sse} = SSE.feed(reading.sse, data)

    {kind, reading} = read_events(events, reading, take)
    {if(sse == :too_large, do: :halt, else: kind), %{reading | sse: sse}}
  end

  defp read_events([], reading, _take), do: {:cont, reading}

  defp read_events([event | events], reading, take) do
    reading = %{reading | event: event.id || reading.event, pause: event.retry || reading.pause}

    with {:ok, message} <- message(event.data),
         {:halt, reading} <- take.(message, reading) do
      {:halt, reading}
    else
      {:cont, reading} -> read_events(events, reading, take)
      _not_a_message -> read_events(events, reading, take)
    end
  end

  defp read_whole(reading, take) do
    with {:ok, message} <- reading.body |> IO.iodata_to_binary() |> message(),
         {_cont_or_halt, reading} <- take.(message, reading) do
      reading
    else
      :error -> reading
    end
  end

  # Half an event is none: its id would be that of one that has come.
  defp read_last(reading, take) do
    events = Enum.filter(SSE.finish(reading.sse), &match?({:ok, _}, message(&1.data)))
    events |> read_events(reading, take) |> elem(1)
  end

  defp message(text) do
    case text |> Listing.readable() |> JSON.decode() do
      {:ok, %{"jsonrpc" => "2.0"} = message} -> {:ok, message}
      _not_a_message -> :error
    end
  end

  # What the client takes for an answer. The server may ask with the same id.
  defp answer?(message, id) do
    match?(%{"id" => ^id}, message) and id != nil and not is_map_key(message, "method") and
      (is_map_key(message, "result") or is_map_key(message, "error"))
  end
end
