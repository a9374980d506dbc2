defmodule AshAgent.Door.AISDK do
  @moduledoc false

  # The UI message stream of Vercel's AI SDK, version 1, which `useChat` of `ai` 5, 6 and 7 reads. Their client ends a stream at the
  # first type that it does not know, so what is ours is sent as `data-*`. A turn is one message there.

  alias AshAgent.Context.JSON
  alias AshAgent.Door.{Input, Reader}

  @doc "The headers of a stream."
  def headers, do: [{"x-vercel-ai-ui-message-stream", "v1"}]

  @doc "What a stream begins with."
  def begin(turn, _opts), do: [%{type: "start", messageId: Reader.answer_id(turn)}]

  @doc "Returns the chunks for an event. `opts` are those of the door."
  def chunks(event, opts)

  def chunks({:step_started, _step}, _opts), do: [%{type: "start-step"}]
  def chunks({:step_finished, _step}, _opts), do: [%{type: "finish-step"}]

  def chunks({kind, id}, _opts) when kind in [:text_started, :thinking_started],
    do: [%{type: "#{name(kind)}-start", id: id}]

  def chunks({kind, id, text}, _opts) when kind in [:text, :thinking],
    do: [%{type: "#{name(kind)}-delta", id: id, delta: text}]

  def chunks({kind, id}, _opts) when kind in [:text_ended, :thinking_ended],
    do: [%{type: "#{name(kind)}-end", id: id}]

  def chunks({:file, _id, media, data}, _opts),
    do: [%{type: "file", mediaType: media, url: "data:#{media};base64,#{data}"}]

  def chunks({:call_started, id, name}, _opts),
    do: [%{type: "tool-input-start", toolCallId: id, toolName: name, dynamic: true}]

  def chunks({:call_arguments, id, json}, _opts),
    do: [%{type: "tool-input-delta", toolCallId: id, inputTextDelta: json}]

  def chunks({:call, id, name, arguments, _told}, _opts) do
    call = %{type: "tool-input-available", toolCallId: id, toolName: name, input: arguments}
    # The page is not to run it.
    [Map.merge(call, %{dynamic: true, providerExecuted: true})]
  end

  # The part shows the arguments that are decided about, which may not be the model's own.
  def chunks({:asked, id, approval, name, arguments}, opts) do
    request = %{type: "tool-approval-request", toolCallId: id, approvalId: approval}
    chunks({:call, id, name, arguments, :none}, opts) ++ [request]
  end

  # What the page answers itself, with `addToolOutput`. The id of the question comes back with the part.
  def chunks({:question, id, approval, name, arguments}, opts) do
    [call] = chunks({:call, id, name, arguments, :none}, opts)
    own = %{providerExecuted: false, providerMetadata: %{ashAgent: %{question: approval}}}
    [Map.merge(call, own)]
  end

  def chunks({:waits, id}, _opts), do: [%{type: "data-waits", id: id, data: %{call: id}}]

  # A result whose call is in another message would end the stream.
  def chunks({:arrived, id, name, outcome}, _opts) do
    told =
      case outcome do
        {:ok, value} -> %{output: value}
        {:error, words} -> %{errorText: words}
      end

    [%{type: "data-arrived", id: id, data: Map.merge(%{call: id, name: name}, told)}]
  end

  def chunks({:sub_agent_started, id, name}, _opts),
    do: [%{type: "data-sub-agent", id: id, data: %{call: id, name: name, state: "running"}}]

  def chunks({:sub_agent_ended, id, outcome}, _opts),
    do: [
      %{
        type: "data-sub-agent",
        id: id,
        data: %{call: id, state: if(outcome == :ok, do: "done", else: "failed")}
      }
    ]

  def chunks({:state, state}, _opts), do: [%{type: "data-state", id: "state", data: state}]

  def chunks({:result, id, value}, _opts),
    do: [%{type: "tool-output-available", toolCallId: id, output: value}]

  def chunks({:failed, id, words}, _opts),
    do: [%{type: "tool-output-error", toolCallId: id, errorText: words}]

  def chunks({:denied, id, _words}, _opts), do: [%{type: "tool-output-denied", toolCallId: id}]

  def chunks({:progress, id, progress, total}, _opts),
    do: [passing("progress", %{call: id, progress: progress, total: total})]

  def chunks({:value, attempt, value}, _opts),
    do: [%{type: "data-value", id: "value", data: %{attempt: attempt, value: value}}]

  def chunks({:retry, attempt, wait, kind}, _opts),
    do: [passing("retry", %{attempt: attempt, wait: wait, kind: kind})]

  def chunks({:waiting, milliseconds}, _opts),
    do: [passing("waiting", %{milliseconds: milliseconds})]

  def chunks({:said, id, text}, _opts), do: [%{type: "data-said", id: id, data: %{text: text}}]

  def chunks({:broken, {number, ordinal}}, _opts),
    do: [%{type: "data-broken", id: "#{number}.#{ordinal}", data: %{}}]

  # Only 7 can take something back. The page of an earlier one hides these blocks.
  def chunks({:dropped, {number, ordinal}, ids}, opts) do
    taken = if opts[:ai] >= 7, do: [%{type: "reset-step"}], else: []
    taken ++ [%{type: "data-dropped", id: "#{number}.#{ordinal}", data: %{blocks: ids}}]
  end

  def chunks({:end, :answered}, _opts), do: [%{type: "finish", finishReason: "stop"}]

  def chunks({:end, {:paused, _asked}}, _opts),
    do: [%{type: "finish", finishReason: "tool-calls"}]

  def chunks({:end, :parked}, _opts), do: [%{type: "finish", finishReason: "other"}]
  def chunks({:end, :cancelled}, _opts), do: [%{type: "abort", reason: "cancelled"}]

  def chunks({:end, {:failed, kind, id}}, _opts),
    do: [%{type: "error", errorText: "#{kind} (#{id})"}]

  defp passing(name, data), do: %{type: "data-#{name}", data: data, transient: true}

  defp name(kind),
    do: if(kind in [:text, :text_started, :text_ended], do: "text", else: "reasoning")

  @doc "What it has to know of what it has written: nothing."
  def shape, do: nil

  @doc "Whether each client has to write an event itself."
  def own?(_event), do: false

  @doc "Whether the answers are all that a turn waits for: any may come first."
  def answers_all?(_asked, _answers, _opts), do: true

  @doc "Returns the bytes of one of them with its id."
  def record(chunk, _seq, nil), do: ["data: ", JSON.encode(chunk), "\n\n"]
  def record(chunk, seq, id), do: ["id: ", id, "\n" | record(chunk, seq, nil)]

  @doc "What a stream ends with."
  def last, do: "data: [DONE]\n\n"

  ## What a page sends

  @doc """
  Reads the body of a request: `{:ok, conversation, order, run}`, where the order is `{:say, id, input}` with the last message, which is a
  person's, `{:rewind, id, input | :same}` with one that is said again, or `{:decide, answers}` with `{approval, verdict, reason}` for each answer. Nothing else is read: the history is the server's.
  Otherwise `{:error, kind}`.
  """
  def read(%{"id" => id} = body, limits) do
    with {:ok, order} <- order(body, limits), do: {:ok, id, order, %{}}
  end

  def read(_body, _limits), do: {:error, :invalid_body}

  # What was said is the server's.
  defp order(%{"trigger" => "regenerate-message"} = body, limits) do
    case {limits[:rewind], body["messages"]} do
      {true, [_ | _] = messages} -> again(List.last(messages))
      {true, _none} -> {:error, :invalid_messages}
      _not_served -> {:error, :regenerate_not_served}
    end
  end

  defp order(%{"messages" => [_ | _] = messages} = body, limits) do
    case {List.last(messages), body["messageId"]} do
      {%{"role" => "user", "parts" => [_ | _] = parts} = message, nil} ->
        Input.say(message["id"], parts, &part/1, limits)

      {%{"role" => "user", "parts" => [_ | _] = parts} = message, _id} ->
        if limits[:rewind],
          do: edit(Input.say(message["id"], parts, &part/1, limits)),
          else: {:error, :edit_not_served}

      {%{"role" => "assistant", "parts" => [_ | _] = parts}, _id} ->
        decide(parts)

      _other ->
        {:error, :invalid_messages}
    end
  end

  defp order(_body, _limits), do: {:error, :invalid_messages}

  defp again(%{"role" => "user", "id" => id}),
    do: if(Input.id?(id), do: {:ok, {:rewind, id, :same}}, else: {:error, :invalid_message_id})

  defp again(_other), do: {:error, :invalid_messages}

  defp edit({:ok, {:say, id, input}}), do: {:ok, {:rewind, id, input}}
  defp edit(error), do: error

  # Nothing is fetched from elsewhere.
  defp part(%{"type" => "file", "mediaType" => type, "url" => "data:" <> rest} = part)
       when is_binary(type) do
    case String.split(rest, ",", parts: 2) do
      [head, data] when head == type <> ";base64" -> Input.file(type, data, part["filename"])
      _other -> {:error, :invalid_file}
    end
  end

  defp part(%{"type" => "file"}), do: {:error, :file_not_in_message}
  defp part(part), do: Input.text(part)

  # Answers come back as parts of the message that asked. Those to questions stay there, so only the last step has new ones.
  defp decide(parts) do
    step = Enum.reverse(parts) |> Enum.take_while(&(not match?(%{"type" => "step-start"}, &1)))

    answers =
      for(%{"state" => "approval-responded", "approval" => answer} <- parts, do: answer) ++
        for %{"callProviderMetadata" => %{"ashAgent" => %{"question" => _}}} = part <-
              Enum.reverse(step),
            part["state"] in ["output-available", "output-error"],
            do: part

    with true <- answers != [] || {:error, :nothing_to_do},
         {:ok, answers} <- Input.each(answers, &answer/1),
         do: {:ok, {:decide, answers}}
  end

  defp answer(%{"callProviderMetadata" => %{"ashAgent" => %{"question" => id}}} = part) do
    # Who does not want to answer has an error.
    if part["state"] == "output-available",
      do: Input.answered(id, part["output"]),
      else: Input.answer(id, false, part["errorText"])
  end

  defp answer(%{"id" => id, "approved" => approved?} = answer),
    do: Input.answer(id, approved?, answer["reason"])

  defp answer(_other), do: {:error, :invalid_answer}

  ## What a page that is opened gets

  @doc """
  Returns the messages of a conversation, as `useChat` keeps them. The answer of a turn that runs is left out: its stream has it.
  """
  def messages(context, running?, opts) do
    for entry <- Reader.history(context, running?, opts[:max_turns]), do: message(entry, opts)
  end

  defp message({:person, id, message}, _opts),
    do: %{id: id, role: "user", parts: person_parts(message.content)}

  defp message({:answer, first, events}, opts) do
    parts = events |> Enum.flat_map(&chunks(&1, opts)) |> Enum.reduce([], &fold/2)
    %{id: Reader.answer_id(first), role: "assistant", parts: Enum.reverse(parts)}
  end

  defp person_parts(text) when is_binary(text), do: [%{type: "text", text: text}]

  defp person_parts(parts) do
    Enum.flat_map(parts || [], fn
      %{type: :text, text: text} ->
        [%{type: "text", text: text}]

      %{media_type: type, data: data} when is_binary(data) ->
        chunks({:file, nil, type, data}, [])

      _other ->
        []
    end)
  end

  # What the client makes of the chunks of a whole answer, newest part first.
  defp fold(%{type: "start-step"}, parts), do: [%{type: "step-start"} | parts]
  defp fold(%{type: "text-delta", delta: t}, parts), do: [done("text", t) | parts]
  defp fold(%{type: "reasoning-delta", delta: t}, parts), do: [done("reasoning", t) | parts]
  defp fold(%{type: "file"} = file, parts), do: [file | parts]

  defp fold(%{type: "tool-input-available"} = call, parts) do
    part = Map.take(call, [:toolCallId, :toolName, :input, :providerExecuted])
    own = if m = call[:providerMetadata], do: %{callProviderMetadata: m}, else: %{}
    part = part |> Map.merge(own) |> Map.merge(%{type: "dynamic-tool", state: "input-available"})

    if Enum.any?(parts, &(&1[:toolCallId] == call.toolCallId)),
      do: change(parts, call, part),
      else: [part | parts]
  end

  defp fold(%{type: "tool-approval-request", approvalId: id} = chunk, parts),
    do: change(parts, chunk, %{state: "approval-requested", approval: %{id: id}})

  defp fold(%{type: "tool-output-available", output: output} = chunk, parts),
    do: change(parts, chunk, %{state: "output-available", output: output})

  defp fold(%{type: "tool-output-error", errorText: words} = chunk, parts),
    do: change(parts, chunk, %{state: "output-error", errorText: words})

  defp fold(%{type: "tool-output-denied"} = chunk, parts),
    do: change(parts, chunk, %{state: "output-denied", approval: %{id: "", approved: false}})

  # The last of an id counts.
  defp fold(%{type: "data-" <> _ = type, id: id} = chunk, parts),
    do: [chunk | Enum.reject(parts, &(&1.type == type and &1[:id] == id))]

  defp fold(%{type: "data-" <> _} = chunk, parts), do: [chunk | parts]
  defp fold(_other, parts), do: parts

  defp done(type, text), do: %{type: type, text: text, state: "done"}

  defp change(parts, %{toolCallId: id}, more),
    do: Enum.map(parts, &if(&1[:toolCallId] == id, do: Map.merge(&1, more), else: &1))
end
