defmodule AshAgent.LLM.Scripted.Stream do
  @moduledoc false

  # Writes an answer as Anthropic would stream it, whose events have a form for all parts of an answer.

  alias AshAgent.Context.JSON
  alias AshAgent.Response

  @words %{
    "stop" => "end_turn",
    "length" => "max_tokens",
    "tool_calls" => "tool_use",
    "pause" => "pause_turn"
  }

  @doc "The stream's bytes, an event a piece."
  def pieces(response) do
    {message, facts} = Response.read(response)
    blocks = parts(message.content) ++ Enum.map(message[:tool_calls] || [], &call/1)

    [start(facts)] ++
      (blocks |> Enum.with_index() |> Enum.flat_map(&block/1)) ++
      [finish(facts, message), event(%{type: "message_stop"})]
  end

  defp parts(text) when text in [nil, ""], do: []
  defp parts(text) when is_binary(text), do: [part(%{type: :text, text: text})]
  defp parts(parts), do: Enum.map(parts, &part/1)

  # Returns the start of a block, and the rest.
  defp part(%{type: :text, text: text}) do
    {%{type: "text", text: ""}, for(word <- words(text), do: %{type: "text_delta", text: word})}
  end

  defp part(%{type: :thinking, text: text} = part) do
    signed =
      for signature <- List.wrap(signature(part)),
          do: %{type: "signature_delta", signature: signature}

    {%{type: "thinking", thinking: ""},
     for(word <- words(text), do: %{type: "thinking_delta", thinking: word}) ++ signed}
  end

  defp part(%{type: :redacted_thinking, data: data}),
    do: {%{type: "redacted_thinking", data: data}, []}

  defp part(%{type: :provider_block, provider: :anthropic, data: data}), do: {data, []}

  defp part(part) do
    raise ArgumentError,
          "a script cannot stream a part of the type #{inspect(part[:type])}; use AshAgent.LLM.chat/3"
  end

  defp call(call) do
    start = %{type: "tool_use", id: call[:id] || "", name: to_string(call.name), input: %{}}
    pieces = call |> json_text() |> cut()
    {start, for(piece <- pieces, do: %{type: "input_json_delta", partial_json: piece})}
  end

  defp block({{start, deltas}, index}) do
    [event(%{type: "content_block_start", index: index, content_block: start})] ++
      for(delta <- deltas, do: event(%{type: "content_block_delta", index: index, delta: delta})) ++
      [event(%{type: "content_block_stop", index: index})]
  end

  defp start(facts) do
    message = %{
      type: "message",
      role: "assistant",
      id: "msg_scripted",
      model: "scripted",
      content: []
    }

    event(%{type: "message_start", message: Map.merge(message, usage(facts))})
  end

  defp finish(facts, message) do
    called = if message[:tool_calls], do: "tool_use", else: "end_turn"
    word = facts.finish_word || called
    delta = %{stop_reason: Map.get(@words, word, word)}
    event(Map.merge(%{type: "message_delta", delta: delta}, usage(facts)))
  end

  # Anthropic counts tokens from its cache separately.
  defp usage(%{usage: nil}), do: %{}
  defp usage(%{usage: usage}), do: %{usage: count_tokens(usage)}

  ## The pieces of answers, also for the server of ash_agent_test

  @doc "Returns the tokens as Anthropic counts them: those of its cache separately."
  def count_tokens(%{cached_tokens: cached, cache_write_tokens: written} = usage) do
    %{
      input_tokens: usage.input_tokens - cached - written,
      cache_read_input_tokens: cached,
      cache_creation_input_tokens: written,
      output_tokens: usage.output_tokens
    }
  end

  @doc "Returns the signature of a part or a call, or `nil`."
  def signature(part), do: part |> Map.get(:provider_metadata, %{}) |> Map.get(:signature)

  @doc "Cuts a text into words."
  def words(text), do: Regex.scan(~r/\s*\S+\s?|\s+/u, text) |> List.flatten()

  @doc "Returns the arguments of a call as JSON text."
  def json_text(call) do
    arguments = Map.get(call, :arguments) || %{}
    if is_binary(arguments), do: arguments, else: JSON.encode(arguments)
  end

  @doc "Cuts JSON text into pieces as they come in a stream."
  def cut(""), do: []

  def cut(text) do
    {piece, rest} = String.split_at(text, 12)
    [piece | cut(rest)]
  end

  defp event(event), do: "event: #{event.type}\ndata: #{JSON.encode(event)}\n\n"
end
