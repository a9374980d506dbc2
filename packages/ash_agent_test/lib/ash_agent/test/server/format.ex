defmodule AshAgent.Test.Server.Format do
  @moduledoc false

  # Writes an answer as each provider sends it, whole or as the events of a stream.
  #
  # An event is `{:open | :content | :close, bytes}`: the bytes before the first words, words and calls, and the bytes after
  # them.

  import AshAgent.Test.Server.Parts

  alias AshAgent.Context.JSON
  alias AshAgent.LLM.Scripted

  @paths [
    {~r{:streamGenerateContent$}, :gemini, :stream},
    {~r{:generateContent$}, :gemini, :chat},
    {~r{/converse-stream$}, :bedrock, :stream},
    {~r{/converse$}, :bedrock, :chat},
    {~r{/api/chat$}, :ollama, {:unless, false}},
    {~r{/messages$}, :anthropic, {:if, true}},
    {~r{/chat/completions$}, :openai_chat, {:if, true}},
    {~r{/responses$}, :openai_responses, {:if, true}}
  ]

  @doc "Returns the provider of a request, by its path, and whether it asks for a stream."
  def read_path(path, body) do
    path = path |> String.split("?") |> hd()

    Enum.find_value(@paths, :error, fn {pattern, provider, mode} ->
      if path =~ pattern, do: {:ok, provider, mode(mode, body["stream"])}
    end)
  end

  defp mode({:if, value}, asked), do: if(asked == value, do: :stream, else: :chat)
  defp mode({:unless, value}, asked), do: if(asked == value, do: :chat, else: :stream)
  defp mode(mode, _asked), do: mode

  @doc "Returns the content type of an answer."
  def content_type(_provider, :chat), do: "application/json"
  def content_type(:bedrock, :stream), do: "application/vnd.amazon.eventstream"
  def content_type(:ollama, :stream), do: "application/x-ndjson"
  def content_type(_provider, :stream), do: "text/event-stream; charset=utf-8"

  @doc "Writes a whole answer. Raises `ArgumentError` for an answer that the provider has no form for."
  def encode(provider, response), do: provider |> body(read(response, provider)) |> JSON.encode()

  @doc "Writes the events of a stream."
  def events(:anthropic, response) do
    for piece <- Scripted.Stream.pieces(response) do
      case Regex.run(~r/\Aevent: (\w+)/, piece) do
        [_, "message_start"] -> {:open, piece}
        [_, "content_" <> _] -> {:content, piece}
        _end -> {:close, piece}
      end
    end
    |> join_starts([])
  end

  def events(provider, response) do
    {opening, content, closing} = stream(provider, read(response, provider))

    for {kind, events} <- [open: opening, content: content, close: closing],
        event <- List.flatten(events),
        do: {kind, frame(provider, event)}
  end

  # The start of a block has no words yet, so it comes with the next event.
  defp join_starts([{:content, start}, {:content, next} | rest], joined) do
    if start =~ ~r/\Aevent: content_block_start/,
      do: join_starts([{:content, start <> next} | rest], joined),
      else: join_starts([{:content, next} | rest], [{:content, start} | joined])
  end

  defp join_starts([event | rest], joined), do: join_starts(rest, [event | joined])
  defp join_starts([], joined), do: Enum.reverse(joined)

  ## Whole answers

  defp body(:anthropic, answer) do
    calls =
      for {call, index} <- answer.calls do
        input = object(call, :anthropic)
        %{type: "tool_use", id: id(call, index), name: to_string(call.name), input: input}
      end

    %{
      type: "message",
      role: "assistant",
      id: "msg_scripted",
      model: answer.model,
      content: Enum.map(answer.parts, &anthropic_part/1) ++ calls,
      stop_reason: stop_reason(answer)
    }
    |> put(:usage, usage(:anthropic, answer))
  end

  defp body(provider, answer) when provider in [:openai_chat, :mistral] do
    calls = for {call, index} <- answer.calls, do: chat_call(call, index)

    message =
      Map.put(chat_content(provider, answer), :role, "assistant")
      |> put(:tool_calls, if(calls != [], do: calls))

    answer
    |> chat("chat.completion", %{index: 0, message: message, finish_reason: answer.word})
    |> put(:usage, usage(:openai_chat, answer))
  end

  defp body(:openai_responses, answer), do: answer |> items() |> responses_body(answer)

  defp body(:gemini, answer) do
    calls = for {call, index} <- answer.calls, do: gemini_call(call, index)
    gemini_body(Enum.map(answer.parts, &gemini_part/1) ++ calls, answer)
  end

  defp body(:bedrock, answer) do
    content =
      for part <- answer.parts do
        if part.type == :text,
          do: %{text: part.text},
          else: thought(put(%{text: part.text}, :signature, signature(part)))
      end

    calls =
      for {call, index} <- answer.calls,
          do: %{toolUse: Map.put(tool_use(call, index), :input, object(call, :bedrock))}

    %{
      output: %{message: %{role: "assistant", content: content ++ calls}},
      stopReason: stop_reason(answer)
    }
    |> put(:usage, usage(:bedrock, answer))
  end

  defp body(:ollama, answer) do
    message =
      %{role: "assistant", content: joined(answer, :text)}
      |> put(:thinking, if(texts(answer, :thinking) != [], do: joined(answer, :thinking)))
      |> put(:tool_calls, ollama_calls(answer))

    ollama_end(answer, message)
  end

  defp chat(answer, object, choice),
    do: %{id: "chatcmpl-scripted", object: object, model: answer.model, choices: [choice]}

  defp thought(text), do: %{reasoningContent: %{reasoningText: text}}
  defp tool_use(call, index), do: %{toolUseId: id(call, index), name: to_string(call.name)}

  ## Streams: the events before the first words, words and calls, and the events after them

  defp stream(provider, answer) when provider in [:openai_chat, :mistral] do
    chunk = fn delta, more ->
      chat(answer, "chat.completion.chunk", Map.merge(%{index: 0, delta: delta}, more))
    end

    said =
      for part <- answer.parts,
          word <- words(part.text),
          do: chunk.(chat_content(provider, %{parts: [%{part | text: word}]}), %{})

    called =
      for {call, index} <- answer.calls do
        start = put_in(chat_call(call, index), [:function, :arguments], "")

        for delta <- [
              start | for(piece <- cut(json_text(call)), do: %{function: %{arguments: piece}})
            ],
            do: chunk.(%{tool_calls: [Map.put(delta, :index, index)]}, %{})
      end

    usage =
      for usage <- List.wrap(usage(:openai_chat, answer)),
          do: %{id: "chatcmpl-scripted", choices: [], usage: usage}

    {[chunk.(%{role: "assistant", content: ""}, %{})], [said, called],
     [chunk.(%{}, %{finish_reason: answer.word}), usage, :done]}
  end

  defp stream(:openai_responses, answer) do
    items = items(answer)
    body = responses_body(items, answer)
    start = %{id: body.id, model: body.model, status: "in_progress", output: []}

    events =
      for {item, index} <- Enum.with_index(items) do
        [
          %{type: "response.output_item.added", output_index: index, item: empty(item)},
          deltas(item, index),
          %{type: "response.output_item.done", output_index: index, item: item}
        ]
      end

    {[%{type: "response.created", response: start}], events,
     [%{type: "response.#{body.status}", response: body}]}
  end

  defp stream(:gemini, answer) do
    said =
      for part <- answer.parts,
          {word, signed} <- signed_last(words(part.text), signature(part)),
          part = Map.delete(%{part | text: word}, :provider_metadata),
          do: part |> gemini_part() |> put(:thoughtSignature, signed)

    called = for {call, index} <- answer.calls, do: gemini_call(call, index)

    content =
      for part <- said ++ called,
          candidate = %{content: %{role: "model", parts: [part]}},
          do: %{candidates: [candidate], modelVersion: answer.model}

    {[], content, [gemini_body([], answer)]}
  end

  defp stream(:bedrock, answer) do
    count = length(answer.parts)

    said =
      for {part, index} <- Enum.with_index(answer.parts) do
        texts = for word <- words(part.text), do: %{text: word}
        signed = for signature <- List.wrap(signature(part)), do: %{signature: signature}
        thoughts = for thought <- texts ++ signed, do: %{reasoningContent: thought}
        bedrock_block(index, if(part.type == :text, do: texts, else: thoughts))
      end

    called =
      for {call, at} <- answer.calls do
        start = %{toolUse: tool_use(call, at)}
        pieces = for piece <- cut(json_text(call)), do: %{toolUse: %{input: piece}}
        index = count + at

        [
          %{contentBlockStart: %{contentBlockIndex: index, start: start}},
          bedrock_block(index, pieces)
        ]
      end

    usage = for usage <- List.wrap(usage(:bedrock, answer)), do: %{metadata: %{usage: usage}}

    {[%{messageStart: %{role: "assistant"}}], [said, called],
     [%{messageStop: %{stopReason: stop_reason(answer)}}, usage]}
  end

  defp stream(:ollama, answer) do
    said =
      for part <- answer.parts,
          word <- words(part.text),
          do: if(part.type == :text, do: %{content: word}, else: %{content: "", thinking: word})

    called =
      for calls when calls != nil <- [ollama_calls(answer)], do: %{content: "", tool_calls: calls}

    content =
      for fields <- said ++ called,
          message = Map.put(fields, :role, "assistant"),
          do: %{model: answer.model, message: message, done: false}

    {[], content, [ollama_end(answer, %{role: "assistant", content: ""})]}
  end

  defp bedrock_block(index, deltas) do
    for(delta <- deltas, do: %{contentBlockDelta: %{contentBlockIndex: index, delta: delta}}) ++
      [%{contentBlockStop: %{contentBlockIndex: index}}]
  end

  ## Frames

  defp frame(_provider, :done), do: "data: [DONE]\n\n"
  defp frame(:ollama, event), do: JSON.encode(event) <> "\n"

  defp frame(:openai_responses, event),
    do: "event: #{event.type}\ndata: #{JSON.encode(event)}\n\n"

  defp frame(:bedrock, event) do
    [{type, payload}] = Map.to_list(event)
    headers = [{":event-type", "#{type}"}, {":content-type", "application/json"}]
    aws_frame(headers ++ [{":message-type", "event"}], JSON.encode(payload))
  end

  defp frame(_provider, event), do: "data: #{JSON.encode(event)}\n\n"

  @doc "Writes a frame of AWS: https://smithy.io/2.0/aws/amazon-eventstream.html"
  def aws_frame(headers, payload) do
    headers =
      for {name, value} <- headers,
          into: "",
          do: <<byte_size(name), name::binary, 7, byte_size(value)::16, value::binary>>

    aws_message(headers, payload)
  end

  @doc "Writes a frame of AWS whose headers are written already."
  def aws_message(headers, payload) do
    prelude = <<byte_size(headers) + byte_size(payload) + 16::32, byte_size(headers)::32>>
    message = <<prelude::binary, :erlang.crc32(prelude)::32, headers::binary, payload::binary>>
    <<message::binary, :erlang.crc32(message)::32>>
  end
end
