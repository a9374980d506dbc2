defmodule AshAgent.TestSupport.RequestChecker.Ollama do
  @moduledoc """
  The rules of Ollama's chat API.

  The server itself checks little more than the types; pairs and the place of the system message are what its models'
  templates expect.
  """

  import AshAgent.TestSupport.RequestChecker.Shape

  alias AshAgent.TestSupport.RequestChecker.Pairing

  @roles ["system", "user", "assistant", "tool"]

  @spec check(map(), keyword()) :: [map()]
  def check(body, _opts) do
    messages = body["messages"]

    case filled_list(messages, ["messages"], :empty_messages, &message/2) do
      findings when not is_list(messages) ->
        findings

      findings ->
        findings ++
          systems(messages) ++
          Pairing.check_messages(positioned(messages), &calls/2, &result/2)
    end
  end

  ## Messages

  defp message(%{"role" => "system"} = message, path),
    do: object(message, path, %{"role" => &any/2, "content" => &text/2})

  defp message(%{"role" => "user"} = message, path) do
    content = if filled?(message["images"]), do: &string/2, else: &text/2

    object(message, path, %{"role" => &any/2, "content" => content}, %{
      "images" => filled(:empty_content, &base64/2)
    })
  end

  defp message(%{"role" => "assistant"} = message, path) do
    content =
      if filled?(message["tool_calls"]) or is_binary(message["thinking"]),
        do: &empty_or_text/2,
        else: &text/2

    object(message, path, %{"role" => &any/2, "content" => content}, %{
      "thinking" => &text/2,
      "tool_calls" => filled(:empty_tool_calls, &call/2),
      "images" => &image_not_allowed/2
    })
  end

  defp message(%{"role" => "tool"} = message, path) do
    object(
      message,
      path,
      %{"role" => &any/2, "content" => &text/2, "tool_name" => &name/2},
      %{"tool_call_id" => &id/2, "images" => &image_not_allowed/2}
    )
  end

  defp message(%{"role" => role}, path), do: one_of(@roles, :bad_role).(role, path ++ ["role"])
  defp message(message, path), do: object(message, path, %{"role" => &any/2, "content" => &any/2})

  defp filled?(list), do: is_list(list) and list != []

  defp empty_or_text("", _path), do: []
  defp empty_or_text(value, path), do: text(value, path)

  defp image_not_allowed(_images, path),
    do: [finding(:block_not_allowed, path, "images in user messages only")]

  defp call(call, path) do
    function =
      object_of(%{"name" => &name/2, "arguments" => &arguments/2}, %{"index" => &count/2})

    object(call, path, %{"function" => function}, %{"id" => &id/2})
  end

  defp name(value, path) when is_binary(value) do
    if blank?(value), do: [finding(:bad_name, path, "an empty name")], else: []
  end

  defp name(value, path), do: string(value, path)

  defp id(value, path), do: sized(1..1_000_000, :bad_id).(value, path)

  ## The whole

  defp systems(messages) do
    for {%{"role" => "system"}, index} <- Enum.with_index(messages), index > 0 do
      finding(:system_position, ["messages", index], "one system message, in front of all others")
    end
  end

  # Calls without an id are answered in their order: both sides get the position as their key.
  defp positioned(messages) do
    {messages, _free} =
      Enum.map_reduce(messages, [], fn
        %{"role" => "assistant", "tool_calls" => calls} = message, _free when is_list(calls) ->
          calls = calls |> Enum.with_index() |> Enum.map(&with_position/1)
          free = for %{"id" => "(call " <> _ = id} <- calls, do: id
          {%{message | "tool_calls" => calls}, free}

        %{"role" => "tool"} = message, free when not is_map_key(message, "tool_call_id") ->
          {key, free} = List.pop_at(free, 0, "(no id)")
          {Map.put(message, "tool_call_id", key), free}

        message, free ->
          {message, free}
      end)

    messages
  end

  defp with_position({call, index}) when is_map(call),
    do: Map.put_new(call, "id", "(call #{index + 1})")

  defp with_position({call, _index}), do: call

  defp calls(message, path), do: Pairing.tool_calls(message, path)

  defp result(message, path),
    do: %{id: message["tool_call_id"], name: message["tool_name"], path: path}
end
