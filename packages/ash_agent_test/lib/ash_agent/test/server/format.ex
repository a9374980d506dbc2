defmodule AshAgent.Test.Server.Format do
  @moduledoc false

  # Writes an answer as each provider sends it, whole or as the events of a stream.
  #
  # An event is `{:open | :content | :close, bytes}`: what stands before the first words, words and calls, and what stands after them.

  import AshAgent.Test.Server.Parts

  alias AshAgent.Context.JSON
  alias AshAgent.LLM.Scripted
  alias AshAgent.Response

  @type event :: {:open | :content | :close, binary()}

  @doc "Returns the provider of a request, by its path, and whether it asks for a stream."
  def read_path(path, body) do
    path = path |> String.split("?") |> hd()

    cond do
      path =~ ~r{:streamGenerateContent$} ->
        {:ok, :gemini, :stream}

      path =~ ~r{:generateContent$} ->
        {:ok, :gemini, :chat}

      path =~ ~r{/converse-stream$} ->
        {:ok, :bedrock, :stream}

      path =~ ~r{/converse$} ->
        {:ok, :bedrock, :chat}

      path =~ ~r{/api/chat$} ->
        {:ok, :ollama, if(body["stream"] == false, do: :chat, else: :stream)}

      path =~ ~r{/messages$} ->
        {:ok, :anthropic, mode(body)}

      path =~ ~r{/chat/completions$} ->
        {:ok, :openai_chat, mode(body)}

      path =~ ~r{/responses$} ->
        {:ok, :openai_responses, mode(body)}

      true ->
        :error
    end
  end

  defp mode(%{"stream" => true}), do: :stream
  defp mode(_body), do: :chat

  @doc "Returns the content type of an answer."
  def content_type(_provider, :chat), do: "application/json"
  def content_type(:bedrock, :stream), do: "application/vnd.amazon.eventstream"
  def content_type(:ollama, :stream), do: "application/x-ndjson"
  def content_type(_provider, :stream), do: "text/event-stream; charset=utf-8"

  @doc "Writes a whole answer. Raises `ArgumentError` for an answer that the provider has no form for."
  def encode(provider, response), do: provider |> body(read(response)) |> JSON.encode()

  @doc "Writes the events of a stream."
  @spec events(atom(), Response.t()) :: [event()]
  def events(:anthropic, response) do
    for piece <- Scripted.Stream.pieces(response) do
      [_, name] = Regex.run(~r/\Aevent: (\w+)/, piece)

      kind =
        case name do
          "message_start" -> :open
          "content_" <> _ -> :content
          _end -> :close
        end

      {kind, piece}
    end
    |> join_starts([])
  end

  def events(provider, response) do
    for {kind, event} <- provider |> stream(read(response)) |> List.flatten(),
        do: {kind, frame(provider, event)}
  end

  # The start of a block says nothing yet, so it comes with what follows.
  defp join_starts([{:content, start}, {:content, next} | rest], joined) do
    if start =~ ~r/\Aevent: content_block_start/,
      do: join_starts([{:content, start <> next} | rest], joined),
      else: join_starts([{:content, next} | rest], [{:content, start} | joined])
  end

  defp join_starts([event | rest], joined), do: join_starts(rest, [event | joined])
  defp join_starts([], joined), do: Enum.reverse(joined)

  ## Whole answers

  defp body(:anthropic, answer) do
    content =
      Enum.map(answer.parts, &anthropic_part/1) ++
        for {call, index} <- answer.calls do
          %{
            type: "tool_use",
            id: id(call, index),
            name: to_string(call.name),
            input: object(call, :anthropic)
          }
        end

    words = %{"stop" => "end_turn", "length" => "max_tokens", "tool_calls" => "tool_use"}

    %{
      type: "message",
      role: "assistant",
      id: "msg_scripted",
      model: answer.model,
      content: content,
      stop_reason: Map.get(words, answer.word, answer.word)
    }
    |> put(:usage, anthropic_usage(answer.usage))
  end

  defp body(provider, answer) when provider in [:openai_chat, :mistral] do
    check(answer, provider, [:text, :thinking])
    calls = for {call, index} <- answer.calls, do: chat_call(call, index)

    message =
      Map.put(chat_content(provider, answer), :role, "assistant")
      |> put(:tool_calls, if(calls != [], do: calls))

    %{
      id: "chatcmpl-scripted",
      object: "chat.completion",
      model: answer.model,
      choices: [%{index: 0, message: message, finish_reason: answer.word}]
    }
    |> put(:usage, chat_usage(answer.usage))
  end

  defp body(:openai_responses, answer), do: answer |> items() |> responses_body(answer)

  defp body(:gemini, answer) do
    check(answer, :gemini, [:text, :thinking])

    parts =
      Enum.map(answer.parts, &gemini_part/1) ++
        for {call, index} <- answer.calls, do: gemini_call(call, index)

    gemini_body(parts, answer)
  end

  defp body(:bedrock, answer) do
    check(answer, :bedrock, [:text, :thinking])

    content =
      for part <- answer.parts do
        case part do
          %{type: :text, text: text} ->
            %{text: text}

          %{text: text} ->
            %{reasoningContent: %{reasoningText: put(%{text: text}, :signature, signature(part))}}
        end
      end

    calls =
      for {call, index} <- answer.calls do
        %{
          toolUse: %{
            toolUseId: id(call, index),
            name: to_string(call.name),
            input: object(call, :bedrock)
          }
        }
      end

    %{
      output: %{message: %{role: "assistant", content: content ++ calls}},
      stopReason: bedrock_word(answer.word)
    }
    |> put(:usage, bedrock_usage(answer.usage))
  end

  defp body(:ollama, answer) do
    check(answer, :ollama, [:text, :thinking])

    message =
      %{role: "assistant", content: joined(answer, :text)}
      |> put(:thinking, if(texts(answer, :thinking) != [], do: joined(answer, :thinking)))
      |> put(:tool_calls, ollama_calls(answer))

    ollama_end(answer, message)
  end

  ## Streams

  defp stream(provider, answer) when provider in [:openai_chat, :mistral] do
    check(answer, provider, [:text, :thinking])

    chunk = fn delta, more ->
      choice = Map.merge(%{index: 0, delta: delta}, more)

      %{
        id: "chatcmpl-scripted",
        object: "chat.completion.chunk",
        model: answer.model,
        choices: [choice]
      }
    end

    said =
      for part <- answer.parts, word <- words(part.text) do
        {:content, chunk.(chat_content(provider, %{parts: [%{part | text: word}]}), %{})}
      end

    called =
      for {call, index} <- answer.calls do
        start = put_in(chat_call(call, index), [:function, :arguments], "")

        [{:content, chunk.(%{tool_calls: [Map.put(start, :index, index)]}, %{})}] ++
          for piece <- cut(json_text(call)) do
            {:content,
             chunk.(%{tool_calls: [%{index: index, function: %{arguments: piece}}]}, %{})}
          end
      end

    usage =
      if answer.usage,
        do: [{:close, %{id: "chatcmpl-scripted", choices: [], usage: chat_usage(answer.usage)}}],
        else: []

    [{:open, chunk.(%{role: "assistant", content: ""}, %{})}, said, called] ++
      [{:close, chunk.(%{}, %{finish_reason: answer.word})}, usage, {:close, :done}]
  end

  defp stream(:openai_responses, answer) do
    items = items(answer)

    events =
      for {item, index} <- Enum.with_index(items) do
        [
          {:content,
           %{type: "response.output_item.added", output_index: index, item: empty(item)}}
        ] ++
          deltas(item, index) ++
          [{:content, %{type: "response.output_item.done", output_index: index, item: item}}]
      end

    body = responses_body(items, answer)
    start = %{id: body.id, model: body.model, status: "in_progress", output: []}

    [{:open, %{type: "response.created", response: start}}, events] ++
      [{:close, %{type: "response.#{body.status}", response: body}}]
  end

  defp stream(:gemini, answer) do
    check(answer, :gemini, [:text, :thinking])

    said =
      for part <- answer.parts,
          {word, signed} <- signed_last(words(part.text), signature(part)) do
        {:content,
         %{
           candidates: [
             %{
               content: %{
                 role: "model",
                 parts: [
                   gemini_part(%{part | text: word} |> Map.delete(:provider_metadata))
                   |> put(:thoughtSignature, signed)
                 ]
               }
             }
           ],
           modelVersion: answer.model
         }}
      end

    called =
      for {call, index} <- answer.calls,
          do:
            {:content,
             %{
               candidates: [%{content: %{role: "model", parts: [gemini_call(call, index)]}}],
               modelVersion: answer.model
             }}

    [said, called, {:close, gemini_body([], answer)}]
  end

  defp stream(:bedrock, answer) do
    check(answer, :bedrock, [:text, :thinking])
    count = length(answer.parts)

    said =
      for {part, index} <- Enum.with_index(answer.parts) do
        deltas =
          if part.type == :text,
            do: for(word <- words(part.text), do: %{text: word}),
            else:
              for(word <- words(part.text), do: %{reasoningContent: %{text: word}}) ++
                bedrock_signature(part)

        for(
          delta <- deltas,
          do: {:content, %{contentBlockDelta: %{contentBlockIndex: index, delta: delta}}}
        ) ++
          [{:content, %{contentBlockStop: %{contentBlockIndex: index}}}]
      end

    called =
      for {call, at} <- answer.calls do
        start = %{toolUse: %{toolUseId: id(call, at), name: to_string(call.name)}}
        index = count + at

        [{:content, %{contentBlockStart: %{contentBlockIndex: index, start: start}}}] ++
          for(
            piece <- cut(json_text(call)),
            do:
              {:content,
               %{
                 contentBlockDelta: %{
                   contentBlockIndex: index,
                   delta: %{toolUse: %{input: piece}}
                 }
               }}
          ) ++
          [{:content, %{contentBlockStop: %{contentBlockIndex: index}}}]
      end

    usage =
      if answer.usage,
        do: [{:close, %{metadata: %{usage: bedrock_usage(answer.usage)}}}],
        else: []

    [{:open, %{messageStart: %{role: "assistant"}}}, said, called] ++
      [{:close, %{messageStop: %{stopReason: bedrock_word(answer.word)}}}, usage]
  end

  defp stream(:ollama, answer) do
    check(answer, :ollama, [:text, :thinking])

    said =
      for part <- answer.parts, word <- words(part.text) do
        fields = if part.type == :text, do: %{content: word}, else: %{content: "", thinking: word}

        {:content,
         %{model: answer.model, message: Map.put(fields, :role, "assistant"), done: false}}
      end

    called =
      with [_ | _] = calls <- ollama_calls(answer) || [],
           do: [
             {:content,
              %{
                model: answer.model,
                message: %{role: "assistant", content: "", tool_calls: calls},
                done: false
              }}
           ]

    [said, called, {:close, ollama_end(answer, %{role: "assistant", content: ""})}]
  end

  ## Frames

  defp frame(_provider, :done), do: "data: [DONE]\n\n"
  defp frame(:ollama, event), do: JSON.encode(event) <> "\n"

  defp frame(:openai_responses, event),
    do: "event: #{event.type}\ndata: #{JSON.encode(event)}\n\n"

  defp frame(:bedrock, event) do
    [{type, payload}] = Map.to_list(event)

    aws_frame(
      [
        {":event-type", to_string(type)},
        {":content-type", "application/json"},
        {":message-type", "event"}
      ],
      JSON.encode(payload)
    )
  end

  defp frame(_provider, event), do: "data: #{JSON.encode(event)}\n\n"

  @doc "Writes a frame of AWS: https://smithy.io/2.0/aws/amazon-eventstream.html"
  def aws_frame(headers, payload) do
    headers =
      for {name, value} <- headers,
          into: "",
          do: <<byte_size(name), name::binary, 7, byte_size(value)::16, value::binary>>

    prelude = <<byte_size(headers) + byte_size(payload) + 16::32, byte_size(headers)::32>>
    message = <<prelude::binary, :erlang.crc32(prelude)::32, headers::binary, payload::binary>>
    <<message::binary, :erlang.crc32(message)::32>>
  end
end
