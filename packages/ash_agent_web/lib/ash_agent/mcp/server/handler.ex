defmodule AshAgent.MCP.Server.Handler do
  @moduledoc false

  # The handler of `ex_mcp` for one request: a process that gets the messages of `ExMCP.Server.Handler`. It is not made with that module's macro,
  # so that it is the same whether `ex_mcp` is there when this is compiled. Nothing raises out of it: `ex_mcp` would log what was asked.

  use GenServer

  alias AshAgent.Context.JSON
  alias AshAgent.Door
  alias AshAgent.MCP.Server
  alias AshAgent.MCP.Server.{Calls, Turn}

  @compile {:no_warn_undefined, [ExMCP.Error, ExMCP.Server.Context, ExMCP.Tasks.Extension]}

  @method_not_found -32_601
  @invalid_params -32_602
  @internal -32_603

  # So many milliseconds between two notes of progress.
  @pace 200

  @words %{
    not_found: "unknown conversation",
    unknown_conversation: "unknown conversation",
    paused: "the conversation waits for a decision about a call of an earlier turn",
    busy: "the conversation has too much to do; try again later",
    invalid_messages: "the message cannot be taken",
    not_waiting: "this is not waiting for an answer",
    invalid_answer: "the answer does not fit the question",
    no_actor: "who asked is not known any more",
    unavailable: "not available now; try again"
  }

  # By these, `ex_mcp` knows that requests may come with their context, and that there are tasks.
  def __task_store_options__, do: []
  def __task_store_enabled__, do: true

  @impl true
  def init(given), do: {:ok, given}

  @impl true
  def handle_call({:mcp_context, context, request}, _from, given) do
    answer = ExMCP.Server.Context.with_context(context, fn -> guard(request, context, given) end)
    {:reply, answer, given}
  end

  def handle_call(request, _from, given), do: {:reply, guard(request, nil, given), given}

  @impl true
  def handle_info(_late, given), do: {:noreply, given}

  defp guard(request, context, given) do
    handle(request, context, given.())
  catch
    _kind, _reason -> error(@internal, "internal error (#{Door.report(:mcp)})")
  end

  ## Requests

  defp handle({:initialize, _params}, _context, {server, _identity, _request}) do
    info = %{"name" => server.name, "version" => server.version}
    {:ok, %{"serverInfo" => info, "capabilities" => %{"tools" => %{}}}}
  end

  defp handle({:list_tools, _cursor}, _context, {server, _identity, _request}),
    do: {:ok, listed(server), nil}

  defp handle({:call_tool, name, arguments}, context, {server, identity, request}) do
    arguments = Map.delete(arguments, "_meta")

    case {context.input_responses, context.request_state} do
      {nil, nil} ->
        begin(server, identity, name, arguments, context)

      # One that nobody has sealed here is not taken.
      {%{} = responses, %{"turn" => id}} when context.mrtr_jti != nil ->
        go_on(server, request, id, responses, context)

      _other ->
        error(
          @invalid_params,
          "inputResponses need the requestState that came with the questions"
        )
    end
  end

  defp handle({:task_get, id}, %{era: :modern} = context, {server, identity, _request}) do
    with {:ok, turn} <- find(server, identity, id),
         state when state not in [:gone, :unavailable] <- Turn.look(turn) do
      {:ok, task(turn, state, context)}
    else
      :unavailable -> error(@internal, @words.unavailable)
      :gone -> unknown()
      refused -> refused
    end
  end

  defp handle({:task_update, id, responses}, %{era: :modern}, {server, identity, _request}) do
    with {:ok, turn} <- find(server, identity, id),
         :ok <-
           if(is_map(responses), do: Turn.decide(turn, responses), else: {:error, :invalid_answer}) do
      {:ok, %{}}
    else
      {:error, kind} when is_atom(kind) -> error(@invalid_params, words(kind))
      refused -> refused
    end
  end

  defp handle({:task_cancel, id}, %{era: :modern}, {server, identity, _request}) do
    with {:ok, turn} <- find(server, identity, id),
         :ok <- Turn.cancel(turn) do
      {:ok, %{}}
    else
      {:error, kind} when is_atom(kind) -> error(@internal, words(kind))
      refused -> refused
    end
  end

  defp handle({:request, method, _params}, _context, _given),
    do: {:error, {:unknown_method, method}}

  defp handle(_other, _context, _given), do: error(@method_not_found, "Method not found")

  ## Calls

  defp begin(server, identity, name, arguments, context) do
    with {:ok, identity, asks, text} <- prompt(server, identity, name, arguments),
         {:ok, turn} <- Turn.begin(server, identity, asks, text) do
      wait = if tasks?(context), do: server.task_after, else: server.wait
      answer(turn, follow(turn, wait, context), context)
    else
      {:error, kind} when is_atom(kind) -> {:ok, Turn.error(words(kind))}
      refused -> refused
    end
  end

  # Who answers is asked about once more, for the conversation that the state names.
  defp go_on(server, request, id, responses, context) do
    with {:ok, identity} <- Server.identify(server, request, Turn.asks(server, id)),
         {:ok, turn} <- find(server, identity, id),
         :ok <- Turn.decide(turn, responses) do
      answer(turn, follow(turn, server.wait, context), context)
    else
      {:error, kind} when is_atom(kind) -> {:ok, Turn.error(words(kind))}
      refused -> refused
    end
  end

  defp prompt(%{mode: :tools} = server, identity, name, arguments) do
    if Enum.any?(Server.tools(server), &(&1.name == name)) do
      identity = Map.put(Map.drop(identity, [:start]), :conversation, new_id())
      {:ok, identity, nil, Calls.prompt(name, arguments)}
    else
      unknown_tool()
    end
  end

  defp prompt(%{name: name} = server, identity, name, arguments) do
    case arguments do
      %{"message" => text} when is_binary(text) and text != "" ->
        with {:ok, identity, asks} <- place(server, identity, arguments["conversation"]),
             do: {:ok, identity, asks, text}

      _other ->
        error(@invalid_params, "expected \"message\" to be a text")
    end
  end

  defp prompt(_server, _identity, _name, _arguments), do: unknown_tool()

  defp place(_server, %{conversation: id} = identity, asks) when asks == nil or is_binary(asks),
    do: {:ok, identity, asks || id}

  defp place(_server, %{start: _} = identity, nil), do: {:ok, identity, nil}

  defp place(%{door: %{source: Door.Source.Sessions}}, identity, nil),
    do: {:ok, Map.put(identity, :conversation, new_id()), nil}

  defp place(server, identity, asks) do
    case Turn.conversation(server, identity, asks) do
      {:ok, id} -> {:ok, Map.put(identity, :conversation, id), nil}
      :error -> {:error, :unknown_conversation}
    end
  end

  defp new_id, do: "mcp-" <> Base.encode16(:crypto.strong_rand_bytes(16), case: :lower)

  defp follow(turn, wait, context) do
    until = System.monotonic_time(:millisecond) + wait
    tell = if context.progress_token, do: &tell(turn, &1), else: fn _change -> :ok end
    Turn.follow(turn, until, tell)
  end

  # A tool's own progress, or that the agent is at work: a number that grows.
  defp tell(
         %{server: %{mode: :tools}},
         {:event, [:tool, :progress], %{progress: progress} = measured, _call}
       ),
       do: report(progress, measured[:total])

  defp tell(%{server: %{mode: :agent}}, _change) do
    {count, at} = Process.get(__MODULE__, {0, 0})
    now = System.monotonic_time(:millisecond)

    if count == 0 or now - at >= @pace do
      Process.put(__MODULE__, {count + 1, now})
      report(count + 1, nil)
    end
  end

  defp tell(_turn, _change), do: :ok

  defp report(progress, total), do: ExMCP.Server.Context.report_progress(progress, total)

  defp answer(_turn, {:done, result}, _context), do: {:ok, result}

  defp answer(_turn, {ended, words}, _context) when ended in [:failed, :cancelled],
    do: {:ok, Turn.error(words)}

  defp answer(_turn, :gone, _context), do: {:ok, Turn.error(@words.not_found)}
  defp answer(_turn, :unavailable, _context), do: {:ok, Turn.error(@words.unavailable)}

  defp answer(turn, state, context) do
    cond do
      tasks?(context) ->
        task = Map.delete(task(turn, state, context), "inputRequests")
        {:ok, Map.put(task, "resultType", "task")}

      questions = ask(turn, state, context) ->
        {:input_required, questions, %{"turn" => Turn.id(turn)}}

      true ->
        {:ok, come_back(turn, state)}
    end
  end

  # In words, for a client that has neither tasks nor questions.
  defp come_back(%{server: %{mode: :tools}}, {:asks, _asked}),
    do: Turn.error("this call waits for a person's decision, which cannot be given here")

  defp come_back(%{server: %{mode: :tools}}, _working),
    do: Turn.error("this call takes longer than this client can wait. It was not stopped.")

  defp come_back(turn, state) do
    words =
      if match?({:asks, _}, state),
        do:
          "The agent waits for a person's decision, which cannot be given here. When it is given, ask again",
        else: "The agent is still at work. Ask again later"

    Turn.error(words <> " with the conversation #{Turn.name(turn)}")
  end

  ## Tasks

  defp find(server, identity, id) do
    with :error <- Turn.find(server, identity, id), do: unknown()
  end

  defp unknown, do: error(@invalid_params, "unknown task")

  defp task(turn, state, context) do
    created = turn.created |> DateTime.from_unix!(:millisecond) |> DateTime.to_iso8601()

    Map.merge(
      %{
        "taskId" => Turn.id(turn),
        "createdAt" => created,
        "lastUpdatedAt" => DateTime.to_iso8601(DateTime.utc_now()),
        "ttlMs" => turn.server.ttl,
        "pollIntervalMs" => turn.server.poll
      },
      status(turn, state, context)
    )
  end

  defp status(_turn, {:done, result}, _context),
    do: %{"status" => "completed", "result" => result}

  defp status(_turn, {:cancelled, words}, _context),
    do: %{"status" => "cancelled", "statusMessage" => words}

  defp status(_turn, {:failed, words}, _context),
    do: %{"status" => "failed", "error" => %{"code" => @internal, "message" => words}}

  defp status(turn, {:asks, _asked} = state, context) do
    case ask(turn, state, context) do
      nil ->
        %{
          "status" => "working",
          "statusMessage" => "waits for a person's decision, which cannot be given here"
        }

      questions ->
        %{"status" => "input_required", "inputRequests" => questions}
    end
  end

  defp status(_turn, _working, _context), do: %{"status" => "working"}

  # The questions of a turn, if this client may answer them and can show them.
  defp ask(turn, {:asks, asked}, %{
         era: :modern,
         client_capabilities: %{"elicitation" => %{} = forms}
       })
       when forms == %{} or is_map_key(forms, "form") do
    with :elsewhere <- Turn.questions(turn, asked), do: nil
  end

  defp ask(_turn, _state, _context), do: nil

  defp tasks?(%{era: :modern, client_capabilities: capabilities}),
    do: ExMCP.Tasks.Extension.declared?(capabilities)

  defp tasks?(_context), do: false

  ## Tools

  defp listed(%{mode: :tools} = server) do
    for tool <- Server.tools(server) do
      schema = Map.put_new(tool.parameters, "type", "object")
      listed = %{"name" => tool.name, "inputSchema" => JSON.decode!(JSON.encode(schema))}
      if tool.description, do: Map.put(listed, "description", tool.description), else: listed
    end
  end

  defp listed(server) do
    conversation = %{
      "type" => "string",
      "description" => "the conversation of an earlier result, to go on with it"
    }

    message = %{"type" => "string", "minLength" => 1}

    [
      %{
        "name" => server.name,
        "description" => server.description,
        "inputSchema" =>
          object(%{"message" => message, "conversation" => conversation}, ["message"]),
        "outputSchema" =>
          object(%{"answer" => %{"type" => "string"}, "conversation" => %{"type" => "string"}}, [
            "answer",
            "conversation"
          ])
      }
    ]
  end

  defp object(properties, required) do
    %{
      "type" => "object",
      "properties" => properties,
      "required" => required,
      "additionalProperties" => false
    }
  end

  defp unknown_tool, do: error(@invalid_params, "unknown tool")
  defp words(kind), do: @words[kind] || "the call failed (#{Door.report(kind)})"
  defp error(code, words), do: {:error, ExMCP.Error.protocol_error(code, words)}
end
