defmodule AshAgent.TestSupport.RequestChecker.Mistral do
  @moduledoc "The rules of Mistral's chat API."

  import AshAgent.TestSupport.RequestChecker.Shape

  alias AshAgent.TestSupport.RequestChecker.Pairing

  @id ~r/\A[a-zA-Z0-9]{9}\z/
  @name ~r/\A[a-zA-Z0-9_-]{1,64}\z/
  @roles ["system", "user", "assistant", "tool"]
  @parts ["text", "image_url", "document_url", "file", "reference", "input_audio", "thinking"]

  @spec check(map(), keyword()) :: [map()]
  def check(body, _opts) do
    messages = body["messages"]

    case filled_list(messages, ["messages"], :empty_messages, &message/2) do
      findings when not is_list(messages) or messages == [] ->
        findings

      findings ->
        findings ++
          first(messages) ++
          order(messages) ++
          last(messages) ++
          Pairing.check_messages(messages, &Pairing.tool_calls/2, &result/2)
    end
  end

  defp result(message, path),
    do: %{id: message["tool_call_id"], name: message["name"], path: path}

  ## Messages

  defp message(%{"role" => "system"} = message, path) do
    object(message, path, %{
      "role" => &any/2,
      "content" => text_or(only(["text"]))
    })
  end

  defp message(%{"role" => "user"} = message, path) do
    parts = only(@parts -- ["thinking"])
    object(message, path, %{"role" => &any/2, "content" => text_or(parts)})
  end

  defp message(%{"role" => "assistant"} = message, path) do
    parts = only(["text", "thinking", "reference"])

    object(message, path, %{"role" => &any/2}, %{
      "content" => optional(text_or(parts)),
      "tool_calls" => optional(list_of(&call/2)),
      "prefix" => &boolean/2
    }) ++ missing_content(message, path)
  end

  defp message(%{"role" => "tool"} = message, path) do
    object(message, path, %{
      "role" => &any/2,
      "tool_call_id" => matching(@id, :bad_id),
      "name" => matching(@name, :bad_name),
      "content" => text_or(only(["text"]))
    })
  end

  defp message(%{"role" => role}, path), do: one_of(@roles, :bad_role).(role, path ++ ["role"])
  defp message(message, path), do: object(message, path, %{"role" => &any/2, "content" => &any/2})

  defp missing_content(%{"content" => content}, _path) when content != nil, do: []
  defp missing_content(%{"tool_calls" => [_ | _]}, _path), do: []

  defp missing_content(_message, path),
    do: [finding(:missing_content, path, "neither content nor tool_calls")]

  defp call(call, path) do
    function =
      object_of(%{
        "name" => matching(@name, :bad_name),
        "arguments" => &call_arguments/2
      })

    object(call, path, %{"id" => matching(@id, :bad_id), "function" => function}, %{
      "type" => one_of(["function"]),
      "index" => &count/2
    })
  end

  defp call_arguments(value, path) when is_binary(value), do: arguments_text(value, path)
  defp call_arguments(value, path), do: arguments(value, path)

  ## Parts

  defp only(types), do: only(types, @parts, &part/2)

  defp part(%{"type" => "text"} = part, path),
    do: object(part, path, %{"type" => &any/2, "text" => &text/2})

  defp part(%{"type" => "image_url"} = part, path) do
    image = fn
      url, at when is_map(url) ->
        object(url, at, %{"url" => &url_or_data/2}, %{
          "detail" => optional(one_of(["auto", "low", "high"]))
        })

      url, at ->
        url_or_data(url, at)
    end

    object(part, path, %{"type" => &any/2, "image_url" => image})
  end

  defp part(%{"type" => "document_url"} = part, path) do
    object(part, path, %{"type" => &any/2, "document_url" => &url_or_data/2}, %{
      "document_name" => optional(&string/2)
    })
  end

  defp part(%{"type" => "file"} = part, path),
    do: object(part, path, %{"type" => &any/2, "file_id" => &text/2})

  defp part(%{"type" => "reference"} = part, path) do
    object(part, path, %{"type" => &any/2, "reference_ids" => list_of(&any/2)})
  end

  defp part(%{"type" => "input_audio"} = part, path),
    do: object(part, path, %{"type" => &any/2, "input_audio" => &any/2})

  defp part(%{"type" => "thinking"} = part, path) do
    pieces = fn
      %{"type" => "text"} = piece, at ->
        object(piece, at, %{"type" => &any/2, "text" => &string/2})

      piece, at ->
        only(["text", "reference"]).(piece, at)
    end

    object(
      part,
      path,
      %{"type" => &any/2, "thinking" => filled(:empty_content, pieces)},
      %{"signature" => optional(&opaque/2), "closed" => &boolean/2}
    )
  end

  ## The whole

  # After the system prompt the model cannot begin with a call.
  defp first(messages) do
    index = Enum.find_index(messages, &(not match?(%{"role" => "system"}, &1)))

    case index && Enum.at(messages, index) do
      %{"role" => "assistant", "tool_calls" => [_ | _]} ->
        [finding(:call_first, ["messages", index], "a call with no message of the user before")]

      _ ->
        []
    end
  end

  defp order(messages) do
    messages
    |> Enum.zip(tl(messages))
    |> Enum.with_index(1)
    |> Enum.flat_map(fn
      {{%{"role" => before}, %{"role" => "system"}}, index}
      when before in ["assistant", "tool"] ->
        [finding(:system_position, ["messages", index], "a system message behind #{before}")]

      _ ->
        []
    end)
  end

  defp last(messages) do
    path = ["messages", length(messages) - 1]

    prefixes =
      for {%{"prefix" => true}, index} <- Enum.with_index(Enum.drop(messages, -1)),
          do: finding(:prefix_not_last, ["messages", index], "prefix on the last message only")

    case List.last(messages) do
      %{"role" => "assistant", "prefix" => true} ->
        prefixes

      %{"role" => role} when role in ["user", "tool"] ->
        prefixes

      _ ->
        prefixes ++ [finding(:last_not_user, path, "the last message is the user's or a tool's")]
    end
  end
end
