defmodule AshAgent.TestSupport.PiSession do
  @moduledoc false

  # Coding sessions that pi recorded, with the tokens and the costs that were reported, where they are beside the checkout.

  alias AshAgent.{Context, Response}
  alias AshAgent.Context.JSON

  @doc "Where they are, or `nil`."
  def folder do
    folders = for up <- ["..", "../.."], do: Path.expand("#{up}/shared/trajectories")
    Enum.find(folders, &File.exists?(Path.join(&1, "pi-1.jsonl")))
  end

  @doc "The conversation, whose times are those of the session, and what each of its answers cost, in 10^-12 US dollars."
  def read(path) do
    lines = for line <- File.stream!(path), do: JSON.decode!(line)
    state = %{context: nil, thinking: "off", costs: []}
    state = Enum.reduce(lines, state, &step/2)
    {state.context, Enum.reverse(state.costs)}
  end

  defp step(%{"type" => "thinking_level_change", "thinkingLevel" => level}, state),
    do: %{state | thinking: level}

  defp step(%{"type" => "compaction", "timestamp" => at}, state) do
    opts = [check: nil, at: time(at)]
    {:ok, context, _} = Context.View.compact(state.context, {:summarize, fn _ -> "S" end}, opts)
    %{state | context: context}
  end

  defp step(%{"type" => "message", "timestamp" => at, "message" => message}, state),
    do: message(message, time(at), state)

  defp step(_other, state), do: state

  defp time(text) do
    {:ok, at, 0} = DateTime.from_iso8601(text)
    at
  end

  defp message(%{"role" => "user"} = message, at, %{context: nil} = state),
    do: %{state | context: Context.new(text(message), id: "pi", at: at)}

  defp message(%{"role" => "user"} = message, at, state) do
    context = Context.interrupt(state.context, "interrupted", at: at)
    %{state | context: Context.add_user_message(context, text(message), at: at)}
  end

  defp message(%{"role" => "toolResult"} = message, at, state) do
    pending = for %{id: id} <- Context.pending_tool_calls(state.context), do: id

    if message["toolCallId"] in pending do
      result = {message["toolCallId"], {:ok, text(message)}}
      %{state | context: Context.add_tool_results(state.context, [result], at: at)}
    else
      state
    end
  end

  defp message(%{"role" => "assistant", "usage" => usage} = message, at, state) do
    if usage["input"] + usage["cacheRead"] + usage["cacheWrite"] == 0 do
      state
    else
      content = for part <- message["content"], said = part(part), do: said

      {:ok, response} =
        Response.decode(:anthropic, %{
          type: "message",
          model: message["model"],
          stop_reason: "end_turn",
          content: content,
          usage: %{
            input_tokens: usage["input"],
            output_tokens: usage["output"],
            cache_read_input_tokens: usage["cacheRead"],
            cache_creation_input_tokens: usage["cacheWrite"]
          }
        })

      {:ok, asked} = DateTime.from_unix(message["timestamp"], :millisecond)
      fields = %{"model" => message["model"], "body" => %{"thinking" => state.thinking}}

      {:ok, context} =
        state.context
        |> Context.interrupt("interrupted", at: at)
        |> Context.Audit.put_request(fields, nil)
        |> Context.add_response(response, requested_at: asked, at: at)

      %{state | context: context, costs: [round(usage["cost"]["total"] * 1.0e12) | state.costs]}
    end
  end

  # What the person did beside it.
  defp message(%{"role" => "bashExecution"}, _at, state), do: state

  defp part(%{"type" => "text", "text" => text}) when text != "",
    do: %{type: "text", text: text}

  defp part(%{"type" => "toolCall"} = call),
    do: %{type: "tool_use", id: call["id"], name: call["name"], input: call["arguments"]}

  defp part(_other), do: nil

  defp text(%{"content" => text}) when is_binary(text), do: text

  defp text(%{"content" => parts}),
    do: for(%{"type" => "text", "text" => text} <- parts, into: "", do: text)
end
