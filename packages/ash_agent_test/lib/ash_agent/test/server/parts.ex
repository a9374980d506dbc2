defmodule AshAgent.Test.Server.Parts do
  @moduledoc false

  # The pieces of answers in the form of each provider: texts, thoughts, calls, tokens.

  alias AshAgent.Context.JSON
  alias AshAgent.LLM.Scripted.Stream
  alias AshAgent.Response

  ## The content of an answer

  # Anthropic has forms for further parts.
  def read(response, provider) do
    {message, facts} = Response.read(response)
    called = if message[:tool_calls], do: "tool_calls", else: "stop"

    answer = %{
      parts: parts(message.content),
      calls: Enum.with_index(message[:tool_calls] || []),
      usage: facts.usage,
      word: facts.finish_word || called,
      model: Response.model(response) || "scripted"
    }

    if provider != :anthropic, do: check(answer, provider, [:text, :thinking])
    answer
  end

  def parts(text) when text in [nil, ""], do: []
  def parts(text) when is_binary(text), do: [%{type: :text, text: text}]
  def parts(parts), do: parts

  def texts(answer, type), do: for(%{type: ^type, text: text} <- answer.parts, do: text)
  def joined(answer, type), do: answer |> texts(type) |> Enum.join()

  def check(answer, provider, types) do
    for %{type: type} <- answer.parts, type not in types do
      raise ArgumentError,
            "the server has no form for a part of the type #{inspect(type)} of #{inspect(provider)}"
    end
  end

  defdelegate words(text), to: Stream
  defdelegate signature(part), to: Stream
  defdelegate json_text(call), to: Stream
  defdelegate cut(text), to: Stream

  def id(call, index), do: call[:id] || "call_#{index + 1}"

  # Arguments for forms in which they are an object.
  def object(call, provider) do
    case call |> json_text() |> JSON.decode() do
      {:ok, %{} = arguments} ->
        arguments

      _other ->
        raise ArgumentError,
              "arguments that are not a JSON object have no form of #{inspect(provider)}"
    end
  end

  def put(map, _key, nil), do: map
  def put(map, key, value), do: Map.put(map, key, value)

  ## Differences of providers

  # The words of Anthropic and Bedrock.
  @words %{"stop" => "end_turn", "length" => "max_tokens", "tool_calls" => "tool_use"}
  def stop_reason(%{word: word}), do: Map.get(@words, word, word)

  def usage(_provider, %{usage: nil}), do: nil

  def usage(provider, %{usage: usage}) do
    all = usage.input_tokens + usage.output_tokens
    new = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens

    case provider do
      :anthropic ->
        Stream.count_tokens(usage)

      openai when openai in [:openai_chat, :openai_responses] ->
        {input, output} =
          if openai == :openai_chat, do: {"prompt", "completion"}, else: {"input", "output"}

        %{
          "#{input}_tokens" => usage.input_tokens,
          "#{output}_tokens" => usage.output_tokens,
          "total_tokens" => all,
          "#{input}_tokens_details" => %{cached_tokens: usage.cached_tokens},
          "#{output}_tokens_details" => %{reasoning_tokens: usage.reasoning_tokens}
        }

      :gemini ->
        %{
          promptTokenCount: usage.input_tokens,
          candidatesTokenCount: usage.output_tokens - usage.reasoning_tokens,
          thoughtsTokenCount: usage.reasoning_tokens,
          cachedContentTokenCount: usage.cached_tokens,
          totalTokenCount: all
        }

      :bedrock ->
        %{
          inputTokens: new,
          cacheReadInputTokens: usage.cached_tokens,
          cacheWriteInputTokens: usage.cache_write_tokens,
          outputTokens: usage.output_tokens,
          totalTokens: all
        }
    end
  end

  def anthropic_part(%{type: :text, text: text}), do: %{type: "text", text: text}

  def anthropic_part(%{type: :thinking, text: text} = part),
    do: %{type: "thinking", thinking: text, signature: signature(part) || ""}

  def anthropic_part(%{type: :redacted_thinking, data: data}),
    do: %{type: "redacted_thinking", data: data}

  def anthropic_part(%{type: :provider_block, provider: :anthropic, data: data}), do: data
  def anthropic_part(part), do: check(%{parts: [part]}, :anthropic, [])

  def chat_content(:mistral, %{parts: parts} = answer) do
    if Enum.any?(parts, &(&1.type == :thinking)),
      do: %{content: Enum.map(parts, &mistral_part/1)},
      else: chat_content(:openai_chat, answer)
  end

  def chat_content(:openai_chat, answer) do
    %{content: if(texts(answer, :text) != [], do: joined(answer, :text))}
    |> put(:reasoning_content, if(texts(answer, :thinking) != [], do: joined(answer, :thinking)))
  end

  def mistral_part(%{type: :text, text: text}), do: %{type: "text", text: text}

  def mistral_part(%{text: text}),
    do: %{type: "thinking", thinking: [%{type: "text", text: text}]}

  def chat_call(call, index) do
    function = %{name: to_string(call.name), arguments: json_text(call)}
    %{id: id(call, index), type: "function", function: function}
  end

  def items(answer) do
    said = for {part, index} <- Enum.with_index(answer.parts), do: item(part, index)

    called =
      for {call, index} <- answer.calls do
        said = %{name: to_string(call.name), arguments: json_text(call), status: "completed"}
        Map.merge(said, %{type: "function_call", id: "fc_#{index}", call_id: id(call, index)})
      end

    said ++ called
  end

  defp item(%{type: :text, text: text}, index) do
    content = [%{type: "output_text", text: text, annotations: []}]
    fields = %{id: "msg_#{index}", role: "assistant", status: "completed", content: content}
    Map.put(fields, :type, "message")
  end

  defp item(%{text: text} = part, index) do
    summary = [%{type: "summary_text", text: text}]

    %{type: "reasoning", id: "rs_#{index}", summary: summary}
    |> put(:encrypted_content, signature(part))
  end

  def responses_body(items, answer) do
    reasons = %{"length" => "max_output_tokens", "content_filter" => "content_filter"}
    reason = reasons[answer.word]
    status = if reason, do: "incomplete", else: "completed"

    %{id: "resp_scripted", object: "response", model: answer.model, status: status, output: items}
    |> put(:incomplete_details, if(reason, do: %{reason: reason}))
    |> put(:usage, usage(:openai_responses, answer))
  end

  def empty(%{type: "message"} = item), do: %{item | content: [], status: "in_progress"}

  def empty(%{type: "reasoning"} = item),
    do: %{Map.delete(item, :encrypted_content) | summary: []}

  def empty(item), do: %{item | arguments: "", status: "in_progress"}

  def deltas(%{type: "message", content: [%{text: text}]} = item, index),
    do: deltas("output_text", %{content_index: 0}, words(text), item, index)

  def deltas(%{type: "reasoning", summary: [%{text: text}]} = item, index),
    do: deltas("reasoning_summary_text", %{summary_index: 0}, words(text), item, index)

  def deltas(%{arguments: arguments} = item, index),
    do: deltas("function_call_arguments", %{}, cut(arguments), item, index)

  defp deltas(name, more, pieces, item, index) do
    fields = %{type: "response.#{name}.delta", item_id: item.id, output_index: index}
    for piece <- pieces, do: fields |> Map.merge(more) |> Map.put(:delta, piece)
  end

  def gemini_part(%{type: :text, text: text} = part),
    do: put(%{text: text}, :thoughtSignature, signature(part))

  def gemini_part(%{text: text} = part),
    do: put(%{text: text, thought: true}, :thoughtSignature, signature(part))

  def gemini_call(call, index) do
    fields = %{id: id(call, index), name: to_string(call.name), args: object(call, :gemini)}
    put(%{functionCall: fields}, :thoughtSignature, signature(call))
  end

  def gemini_body(parts, answer) do
    words = %{"stop" => "STOP", "tool_calls" => "STOP", "length" => "MAX_TOKENS"}

    reason = Map.get(words, answer.word, answer.word)
    candidate = %{content: %{role: "model", parts: parts}, finishReason: reason}

    %{candidates: [candidate], modelVersion: answer.model}
    |> put(:usageMetadata, usage(:gemini, answer))
  end

  def signed_last(words, signature) do
    last = length(words) - 1
    for {word, at} <- Enum.with_index(words), do: {word, if(at == last, do: signature)}
  end

  def ollama_calls(%{calls: []}), do: nil

  def ollama_calls(answer) do
    for {call, _index} <- answer.calls,
        do: %{function: %{name: to_string(call.name), arguments: object(call, :ollama)}}
  end

  def ollama_end(answer, message) do
    word = if answer.word == "tool_calls", do: "stop", else: answer.word
    body = %{model: answer.model, message: message, done: true, done_reason: word}

    case answer.usage do
      nil ->
        body

      %{input_tokens: input, output_tokens: output} ->
        Map.merge(body, %{prompt_eval_count: input, eval_count: output})
    end
  end
end
