defmodule AshAgent.TestSupport.RequestChecker.OpenAIChat do
  @moduledoc "The rules of OpenAI's Chat Completions API."

  import AshAgent.TestSupport.RequestChecker.Shape

  alias AshAgent.TestSupport.RequestChecker.Pairing

  @name ~r/\A[a-zA-Z0-9_-]{1,64}\z/
  @roles ["system", "developer", "user", "assistant", "tool"]
  @parts ["text", "image_url", "input_audio", "file", "refusal"]

  @spec check(map(), keyword()) :: [map()]
  def check(body, opts) do
    messages = body["messages"]

    case filled_list(messages, ["messages"], :empty_messages, &message(&1, &2, opts)) do
      findings when not is_list(messages) -> findings
      findings -> findings ++ Pairing.check_messages(messages, &Pairing.tool_calls/2, &result/2)
    end
  end

  defp result(message, path), do: %{id: message["tool_call_id"], name: nil, path: path}

  ## Messages

  defp message(%{"role" => role} = message, path, _opts) when role in ["system", "developer"] do
    object(
      message,
      path,
      %{"role" => &any/2, "content" => text_or(only(["text"]))},
      %{"name" => &text/2}
    )
  end

  defp message(%{"role" => "user"} = message, path, _opts) do
    parts = only(["text", "image_url", "input_audio", "file"])

    object(
      message,
      path,
      %{"role" => &any/2, "content" => text_or(parts)},
      %{"name" => &text/2}
    )
  end

  defp message(%{"role" => "assistant"} = message, path, opts) do
    content = text_or(only(["text", "refusal"]))

    object(
      message,
      path,
      %{"role" => &any/2},
      %{
        "content" => optional(content),
        "tool_calls" => filled(:empty_tool_calls, &call(&1, &2, opts)),
        "refusal" => optional(&string/2),
        "audio" => optional(object_of(%{"id" => &text/2})),
        "name" => &text/2
      }
      |> Map.merge(beside(opts[:dialect]))
    ) ++
      missing_content(message, path) ++ missing_reasoning(message, path, opts[:dialect])
  end

  defp message(%{"role" => "tool"} = message, path, opts) do
    object(message, path, %{
      "role" => &any/2,
      "tool_call_id" => id(opts),
      "content" => text_or(only(["text"]))
    })
  end

  defp message(%{"role" => role}, path, _opts),
    do: one_of(@roles, :bad_role).(role, path ++ ["role"])

  defp message(message, path, _opts),
    do: object(message, path, %{"role" => &any/2, "content" => &any/2})

  defp missing_content(%{"content" => content}, _path) when content != nil, do: []
  defp missing_content(%{"tool_calls" => _}, _path), do: []
  defp missing_content(%{"audio" => _}, _path), do: []
  defp missing_content(%{"images" => _}, _path), do: []
  # OpenAI's SDK sends an answer that is a refusal back with `content: null`.
  defp missing_content(%{"refusal" => refusal}, _path) when is_binary(refusal), do: []

  defp missing_content(_message, path),
    do: [finding(:missing_content, path, "neither content nor tool_calls")]

  # What servers have beside OpenAI's own fields.
  defp beside(:deepseek), do: %{"reasoning_content" => &string/2}
  defp beside(:vllm), do: %{"reasoning" => &text/2}

  defp beside(:openrouter) do
    %{
      "reasoning" => &text/2,
      "reasoning_details" => filled(:empty_content, &map/2),
      "images" =>
        filled(
          :empty_content,
          object_of(%{"type" => one_of(["image_url"]), "image_url" => &map/2})
        ),
      "annotations" => filled(:empty_content, &map/2)
    }
  end

  defp beside(_openai), do: %{}

  # DeepSeek's documentation wants it with calls; where tools are declared, the server wants it everywhere.
  defp missing_reasoning(message, path, :deepseek) do
    if is_map_key(message, "reasoning_content"),
      do: [],
      else: [finding(:missing_reasoning, path, "no reasoning_content")]
  end

  defp missing_reasoning(_message, _path, _dialect), do: []

  ## Calls

  defp call(%{"type" => "custom"} = call, path, opts) do
    custom = object_of(%{"name" => matching(@name, :bad_name), "input" => &string/2})

    object(call, path, %{"type" => &any/2, "id" => id(opts), "custom" => custom})
  end

  defp call(call, path, opts) do
    function =
      object_of(%{
        "name" => matching(@name, :bad_name),
        "arguments" => &arguments_text/2
      })

    object(call, path, %{
      "type" => one_of(["function"]),
      "id" => id(opts),
      "function" => function
    })
  end

  defp id(opts), do: sized(1..Keyword.get(opts, :max_id_length, 40), :bad_id)

  ## Parts

  defp only(types), do: only(types, @parts, &part/2)

  defp part(%{"type" => "text"} = part, path),
    do: object(part, path, %{"type" => &any/2, "text" => &text/2}, breakpoint())

  defp part(%{"type" => "refusal"} = part, path),
    do: object(part, path, %{"type" => &any/2, "refusal" => &text/2})

  defp part(%{"type" => "image_url"} = part, path) do
    image =
      object_of(%{"url" => &url_or_data/2}, %{
        "detail" => one_of(["auto", "low", "high", "original"])
      })

    object(part, path, %{"type" => &any/2, "image_url" => image}, breakpoint())
  end

  defp part(%{"type" => "input_audio"} = part, path) do
    audio = object_of(%{"data" => &base64/2, "format" => one_of(["wav", "mp3"])})

    object(part, path, %{"type" => &any/2, "input_audio" => audio}, breakpoint())
  end

  defp part(%{"type" => "file"} = part, path) do
    object(part, path, %{"type" => &any/2, "file" => &file/2}, breakpoint())
  end

  defp file(file, path) do
    object(file, path, %{}, %{
      "file_data" => &file_data/2,
      "file_id" => &text/2,
      "filename" => &text/2
    }) ++
      if is_map(file) and not is_map_key(file, "file_data") and not is_map_key(file, "file_id"),
        do: [finding(:missing_key, path, "neither file_data nor file_id")],
        else: []
  end

  # The type says base64, the vendor's guide shows a data URL; either is taken.
  defp file_data("data:" <> _ = value, path), do: data_url(value, path)
  defp file_data(value, path), do: base64(value, path)

  defp breakpoint do
    %{
      "prompt_cache_breakpoint" =>
        object_of(%{"mode" => one_of(["explicit"])}, %{"ttl" => one_of(["30m", "12h"])})
    }
  end
end
