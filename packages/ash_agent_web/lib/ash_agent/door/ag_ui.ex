defmodule AshAgent.Door.AGUI do
  @moduledoc false

  # AG-UI 1.0. Its client takes a stream that was cut for a success, and an optional field that is null for an error.

  alias AshAgent.Context.JSON
  alias AshAgent.Door.{Input, Reader}

  @doc "The headers of a stream."
  def headers, do: []

  @doc "What a stream begins with. Who comes back to a turn gets the messages before it, and then all of it."
  def begin(_turn, opts) do
    started = Map.merge(%{type: "RUN_STARTED", protocolVersion: "1.0"}, ids(opts))
    [started | if(opts[:again?], do: [snapshot(opts, true)], else: [])]
  end

  defp ids(opts), do: %{threadId: opts[:run].thread, runId: opts[:run].run}

  defp snapshot(opts, running?),
    do: %{type: "MESSAGES_SNAPSHOT", messages: messages(opts[:context], running?, opts)}

  @doc "Returns the events for an event of the reader. `opts` are those of the door, with `:run` and `:context`."
  def chunks(event, opts)

  def chunks({:step_started, step}, _opts), do: [%{type: "STEP_STARTED", stepName: name(step)}]
  def chunks({:step_finished, step}, _opts), do: [%{type: "STEP_FINISHED", stepName: name(step)}]

  def chunks({:text_started, id}, _opts),
    do: [%{type: "TEXT_MESSAGE_START", messageId: answer(id), role: "assistant"}]

  def chunks({:text, id, text}, _opts),
    do: [%{type: "TEXT_MESSAGE_CONTENT", messageId: answer(id), delta: text}]

  def chunks({:text_ended, id}, _opts), do: [%{type: "TEXT_MESSAGE_END", messageId: answer(id)}]

  def chunks({:thinking_started, id}, _opts) do
    message = %{type: "REASONING_MESSAGE_START", messageId: id, role: "reasoning"}
    [%{type: "REASONING_START", messageId: id}, message]
  end

  def chunks({:thinking, id, text}, _opts),
    do: [%{type: "REASONING_MESSAGE_CONTENT", messageId: id, delta: text}]

  def chunks({:thinking_ended, id}, _opts),
    do: [%{type: "REASONING_MESSAGE_END", messageId: id}, %{type: "REASONING_END", messageId: id}]

  def chunks({:file, id, media, data}, _opts),
    do: [custom("file", %{id: id, mediaType: media, data: data})]

  def chunks({:call_started, id, name}, _opts) do
    call = %{type: "TOOL_CALL_START", toolCallId: id, toolCallName: name}
    # Text and calls of an answer are one message.
    [Map.put(call, :parentMessageId, answer(id))]
  end

  def chunks({:call_arguments, id, json}, _opts),
    do: [%{type: "TOOL_CALL_ARGS", toolCallId: id, delta: json}]

  def chunks({:call, id, _name, arguments, told}, opts) do
    ended = [%{type: "TOOL_CALL_END", toolCallId: id}]

    case told do
      :none -> chunks({:call_arguments, id, JSON.encode(arguments)}, opts) ++ ended
      :whole -> ended
      # Pieces are missing, which only all messages can mend.
      :part -> ended ++ [snapshot(opts, false)]
    end
  end

  # The end of the run tells.
  def chunks({kind, _id, _approval, _name, _arguments}, _opts) when kind in [:asked, :question],
    do: []

  def chunks({:waits, id}, _opts), do: [custom("waits", %{call: id})]
  def chunks({:arrived, id, _name, {:ok, value}}, _opts), do: [result(id, text(value))]
  def chunks({:arrived, id, _name, {:error, words}}, _opts), do: [result(id, words)]

  def chunks({:sub_agent_started, id, name}, _opts) do
    started = %{type: "SUBAGENT_STARTED", subagentRunId: id <> ".agent", name: name}
    [Map.merge(started, %{parentToolCallId: id, parentMessageId: answer(id)})]
  end

  def chunks({:sub_agent_ended, id, :ok}, _opts),
    do: [%{type: "SUBAGENT_FINISHED", subagentRunId: id <> ".agent", outcome: %{type: "success"}}]

  # What went wrong is in the call's result.
  def chunks({:sub_agent_ended, id, :error}, _opts),
    do: [%{type: "SUBAGENT_ERROR", subagentRunId: id <> ".agent", message: "failed"}]

  def chunks({:state, state}, _opts), do: [%{type: "STATE_SNAPSHOT", snapshot: state}]
  def chunks({:result, id, value}, _opts), do: [result(id, text(value))]
  def chunks({:failed, id, words}, _opts), do: [result(id, words)]
  def chunks({:denied, id, words}, _opts), do: [result(id, words)]

  def chunks({:progress, id, progress, total}, _opts),
    do: [custom("progress", %{call: id, progress: progress, total: total})]

  def chunks({:value, attempt, value}, _opts),
    do: [custom("value", %{attempt: attempt, value: value})]

  def chunks({:retry, attempt, wait, kind}, _opts),
    do: [custom("retry", %{attempt: attempt, wait: wait, kind: kind})]

  def chunks({:waiting, milliseconds}, _opts), do: [custom("waiting", milliseconds)]

  def chunks({:said, id, text}, _opts) do
    [
      %{type: "TEXT_MESSAGE_START", messageId: id, role: "user"},
      %{type: "TEXT_MESSAGE_CONTENT", messageId: id, delta: text},
      %{type: "TEXT_MESSAGE_END", messageId: id}
    ]
  end

  def chunks({:broken, step}, _opts), do: [custom("broken", name(step))]
  def chunks({:dropped, _step, _ids}, opts), do: [snapshot(opts, false)]

  def chunks({:end, {:failed, kind, id}}, _opts),
    do: [%{type: "RUN_ERROR", message: "#{kind} (#{id})", code: kind}]

  # Clients before 1.0 do not know that a run can be cancelled.
  def chunks({:end, :cancelled}, opts) do
    if opts[:run].version,
      do: [finished(opts, %{type: "cancelled"})],
      else: [%{type: "RUN_ERROR", message: "cancelled", code: "cancelled"}]
  end

  # Calls of the page's own tools wait for it when nothing else does.
  def chunks({:end, {:paused, asked}}, opts) do
    case split(asked, opts) do
      {pages, []} ->
        pending = for {_kind, id, _approval, _name, _arguments} <- pages, do: id
        known = if opts[:run].version, do: %{pendingToolCallIds: pending}, else: %{}
        [finished(opts, Map.put(known, :type, "success"))]

      {_pages, asked} ->
        interrupts = Enum.map(asked, &interrupt/1)
        [snapshot(opts, false), finished(opts, %{type: "interrupt", interrupts: interrupts})]
    end
  end

  def chunks({:end, end_}, opts) when end_ in [:answered, :parked],
    do: [finished(opts, %{type: "success"})]

  defp finished(opts, outcome),
    do: Map.merge(%{type: "RUN_FINISHED", outcome: outcome}, ids(opts))

  @answer %{
    type: "object",
    properties: %{
      approved: %{type: "boolean"},
      reason: %{type: "string"},
      editedArgs: %{type: "object"}
    },
    required: ["approved"]
  }

  defp interrupt({:asked, id, approval, name, arguments}) do
    %{
      id: approval,
      reason: "tool_call",
      message: "#{Reader.warning(approval)}May #{name} run?",
      toolCallId: id,
      responseSchema: @answer,
      metadata: %{tool: name, arguments: arguments}
    }
  end

  defp interrupt({:question, id, approval, name, arguments}) do
    %{
      id: approval,
      reason: "input_required",
      message: if(is_binary(arguments["question"]), do: arguments["question"], else: "#{name}?"),
      toolCallId: id,
      responseSchema: %{
        type: "object",
        properties: %{answer: schema(arguments)},
        required: ["answer"]
      },
      metadata: %{tool: name, arguments: arguments}
    }
  end

  defp schema(%{"form" => %{} = form}), do: form
  defp schema(%{"choices" => [_ | _] = choices}), do: %{type: "string", enum: choices}
  defp schema(_arguments), do: %{type: "string", minLength: 1}

  defp split(asked, opts) do
    Enum.split_with(asked, fn {kind, _id, _approval, name, _arguments} ->
      kind == :question and name in opts[:page_tools]
    end)
  end

  @doc "Whether the answers are all that a turn waits for. Nothing else may be said before."
  def answers_all?(asked, answers, opts) do
    given = for {approval, _verdict, _reason} <- answers, do: approval
    {pages, others} = split(asked, opts)
    own = for {_kind, _id, approval, _name, _arguments} <- pages, do: approval
    others = for {_kind, _id, approval, _name, _arguments} <- others, do: approval
    if others == [], do: given -- own == [], else: Enum.sort(given) == Enum.sort(others)
  end

  defp result(id, content) do
    own = %{messageId: id <> ".result", toolCallId: id, role: "tool", content: content}
    Map.put(own, :type, "TOOL_CALL_RESULT")
  end

  defp custom(name, value), do: %{type: "CUSTOM", name: name, value: value}
  defp text(value), do: if(is_binary(value), do: value, else: JSON.encode(value))
  defp name({number, ordinal}), do: "#{number}.#{ordinal}"

  # The message of a block.
  defp answer(id) do
    [number, ordinal | _part] = String.split(id, ".")
    "#{number}.#{ordinal}"
  end

  @doc "What it has to know of what it has written: nothing."
  def shape, do: nil

  @doc "Whether each client has to write an event itself, since what becomes of it has ids of the run, or all messages."
  def own?({:call, _id, _name, _arguments, :part}), do: true
  def own?(event), do: elem(event, 0) in [:end, :dropped]

  @doc "Returns the bytes of one of them with its id."
  def record(chunk, _seq, nil), do: ["data: ", JSON.encode(chunk), "\n\n"]
  def record(chunk, seq, id), do: ["id: ", id, "\n" | record(chunk, seq, nil)]

  @doc "What this side of the protocol does, and what it does not."
  def capabilities(opts) do
    %{
      transport: %{streaming: true, websocket: false, httpBinary: false, resumable: true},
      tools: %{supported: true, parallelCalls: true, clientProvided: opts[:page_tools] != []},
      state: %{snapshots: opts[:state] != nil, deltas: false, memory: true, persistentState: true},
      multiAgent: %{supported: true, delegation: true, handoffs: false},
      reasoning: %{supported: true, streaming: true, encrypted: false},
      humanInTheLoop: %{
        supported: true,
        approvals: true,
        interrupts: true,
        approveWithEdits: true,
        interventions: opts[:when_running] == :steer,
        feedback: false
      }
    }
  end

  @doc "What a stream ends with, besides its last event."
  def last, do: ""

  ## What a page sends

  @doc "Reads the body of a request, as `AshAgent.Door.AISDK.read/2` does."
  def read(%{"threadId" => thread, "runId" => run} = body, limits)
      when is_binary(run) and byte_size(run) in 1..200 do
    version = if is_binary(body["protocolVersion"]), do: body["protocolVersion"]

    with :ok <- check_tools(body["tools"], limits[:page_tools]),
         {:ok, order} <- order(body, limits),
         do: {:ok, thread, order, %{thread: thread, run: run, version: version}}
  end

  def read(_body, _limits), do: {:error, :invalid_body}

  # What they are is the server's: a page may not give the model other ones.
  defp check_tools(tools, known) do
    named = if is_list(tools), do: for(tool <- tools, do: is_map(tool) && tool["name"]), else: []
    if named -- known == [], do: :ok, else: {:error, :tools_of_pages_not_served}
  end

  defp order(%{"resume" => [_ | _] = answers}, _limits) do
    with {:ok, answers} <- Input.each(answers, &resumed/1), do: {:ok, {:decide, answers}}
  end

  defp order(%{"messages" => [_ | _] = messages}, limits) do
    case List.last(messages) do
      %{"role" => "user", "content" => text} = message when is_binary(text) ->
        part = %{"type" => "text", "text" => text}
        Input.say(message["id"], [part], &part/1, limits)

      %{"role" => "user", "content" => parts} = message ->
        Input.say(message["id"], parts, &part/1, limits)

      %{"role" => "tool"} ->
        results(messages)

      _other ->
        {:error, :invalid_messages}
    end
  end

  defp order(_body, _limits), do: {:error, :invalid_messages}

  defp resumed(%{"interruptId" => id, "status" => "cancelled"}),
    do: Input.answer(id, false, nil)

  defp resumed(%{"interruptId" => id, "status" => "resolved", "payload" => %{"answer" => answer}}),
    do: Input.answered(id, answer)

  defp resumed(%{"interruptId" => id, "status" => "resolved", "payload" => %{} = payload}),
    do: Input.answer(id, payload["approved"], payload["reason"], payload["editedArgs"])

  defp resumed(_other), do: {:error, :invalid_answer}

  # What the page's tools returned, for the calls as the page had them. Whether these wait is not its word.
  defp results(messages) do
    results = messages |> Enum.reverse() |> Enum.take_while(&match?(%{"role" => "tool"}, &1))

    calls =
      for %{"role" => "assistant", "toolCalls" => [_ | _] = calls} <- messages,
          %{"id" => id, "function" => %{"name" => name, "arguments" => json}} <- calls,
          is_binary(json),
          {:ok, arguments} <- [JSON.decode(json)],
          into: %{},
          do: {id, {name, arguments}}

    results =
      for %{"toolCallId" => id, "content" => content} <- Enum.reverse(results),
          {name, arguments} <- [calls[id]],
          do: {id, name, arguments, content}

    if results == [], do: {:error, :invalid_messages}, else: {:ok, {:results, results}}
  end

  defp part(%{"source" => %{"type" => "data", "value" => data} = source} = part),
    do: Input.file(source["mimeType"], data, part["filename"])

  defp part(%{"source" => _elsewhere}), do: {:error, :file_not_in_message}
  defp part(part), do: Input.text(part)

  ## What a page has

  @doc "Returns the messages of a conversation. Those of a turn that runs are left out: its stream has them."
  def messages(context, running?, opts) do
    Enum.flat_map(Reader.history(context, running?, opts[:max_turns]), fn
      {:person, id, message} ->
        [%{id: id, role: "user", content: Reader.text(message.content)}]

      {:answer, _first, events} ->
        events
        |> Enum.reject(&(elem(&1, 0) == :said))
        |> Enum.flat_map(&chunks(&1, opts))
        |> fold()
    end)
  end

  defp fold(events), do: events |> Enum.reduce([], &fold/2) |> Enum.reverse()

  defp fold(%{type: "TEXT_MESSAGE_CONTENT", messageId: id, delta: text}, messages),
    do: change(messages, id, "assistant", &Map.update(&1, :content, text, fn t -> t <> text end))

  defp fold(%{type: "REASONING_MESSAGE_CONTENT", messageId: id, delta: text}, messages),
    do: change(messages, id, "reasoning", &Map.put(&1, :content, text))

  defp fold(%{type: "TOOL_CALL_START"} = call, messages) do
    call_of = %{id: call.toolCallId, type: "function", function: %{name: call.toolCallName}}
    add = &Map.update(&1, :toolCalls, [call_of], fn calls -> calls ++ [call_of] end)
    change(messages, call.parentMessageId, "assistant", add)
  end

  defp fold(%{type: "TOOL_CALL_ARGS", toolCallId: id, delta: json}, messages) do
    put = fn calls ->
      Enum.map(calls, &if(&1.id == id, do: put_in(&1.function[:arguments], json), else: &1))
    end

    change(messages, answer(id), "assistant", &Map.update!(&1, :toolCalls, put))
  end

  defp fold(%{type: "TOOL_CALL_RESULT"} = result, messages),
    do: [
      %{
        id: result.messageId,
        role: "tool",
        toolCallId: result.toolCallId,
        content: result.content
      }
      | messages
    ]

  defp fold(_other, messages), do: messages

  defp change(messages, id, role, change) do
    if Enum.any?(messages, &(&1.id == id)),
      do: Enum.map(messages, &if(&1.id == id, do: change.(&1), else: &1)),
      else: [change.(%{id: id, role: role}) | messages]
  end
end
