defmodule AshAgent.TestSupport.RequestChecker.Bedrock do
  @moduledoc """
  The rules of Bedrock's Converse, in its JSON form.

  From the notes of the service model alone (`observed: true`): a message with a document has a text as well, and a
  document's name is made of letters, digits, single spaces, hyphens, parentheses and brackets. From reports of users alone, under the
  same option: no two documents have one name, and no cache point follows a document that is no PDF.
  """

  import AshAgent.TestSupport.RequestChecker.Shape

  alias AshAgent.TestSupport.RequestChecker.Pairing

  @id ~r/\A[a-zA-Z0-9_.:-]{1,64}\z/
  @name ~r/\A[a-zA-Z0-9_-]{1,64}\z/
  @s3 ~r/\As3:\/\/[a-z0-9][.\-a-z0-9]{1,61}[a-z0-9](\/.*)?\z/
  @document_name ~r/\A(?!.*\s\s)[a-zA-Z0-9\s\-()\[\]]{1,200}\z/
  @image_formats ["png", "jpeg", "gif", "webp"]
  @document_formats ["pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"]

  @user_only ["image", "document", "video", "audio", "toolResult", "guardContent", "searchResult"]
  @assistant_only ["toolUse", "reasoningContent", "citationsContent"]

  @spec check(map(), keyword()) :: [map()]
  def check(body, opts) do
    system(body["system"]) ++
      messages(body["messages"], opts) ++
      breakpoints(body) ++
      tool_config(body, opts)
  end

  ## System

  defp system(nil), do: []

  defp system(blocks) do
    block =
      union_of(%{
        "text" => &text/2,
        "cachePoint" => &cache_point/2,
        "guardContent" => &map/2
      })

    list(blocks, ["system"], block) ++ leading_cache_point(blocks, ["system"])
  end

  ## Messages

  defp messages(messages, opts) do
    case filled_list(messages, ["messages"], :empty_messages, &message(&1, &2, opts)) do
      findings when not is_list(messages) or messages == [] ->
        findings

      findings ->
        messages = Enum.with_index(messages)

        findings ++
          first(messages) ++
          alternation(messages) ++
          Enum.flat_map(messages, &order/1) ++
          document_names(messages, opts) ++
          points_behind_documents(messages, opts) ++
          pairs(messages) ++
          served(messages)
    end
  end

  defp message(message, path, opts) do
    role = if is_map(message), do: message["role"]

    content = fn blocks, path ->
      filled_list(blocks, path, :empty_content, fn block, path ->
        block(block, path, opts) ++ allowed(block, path, role)
      end) ++ leading_cache_point(blocks, path) ++ document_text(blocks, path, opts)
    end

    object(message, path, %{
      "role" => one_of(["user", "assistant"], :bad_role),
      "content" => content
    })
  end

  defp allowed(block, path, role) when is_map(block) do
    foreign = if role == "assistant", do: @user_only, else: @assistant_only

    for key <- Map.keys(block),
        key in foreign,
        role != "assistant" or not served?(block),
        do: finding(:block_not_allowed, path, "no #{key} in a message of #{inspect(role)}")
  end

  defp allowed(_block, _path, _role), do: []

  ## Blocks

  defp block(block, path, opts) do
    union(block, path, %{
      "text" => &text/2,
      "image" => &image/2,
      "document" => &document(&1, &2, opts),
      "video" => &map/2,
      "audio" => &map/2,
      "toolUse" => &tool_use/2,
      "toolResult" => &tool_result(&1, &2, opts),
      "reasoningContent" => &reasoning/2,
      "cachePoint" => &cache_point/2,
      "guardContent" => &map/2,
      "citationsContent" => &map/2,
      "searchResult" => &map/2
    })
  end

  defp image(image, path) do
    object(image, path, %{
      "format" => one_of(@image_formats, :bad_media_type),
      "source" => union_of(%{"bytes" => &base64/2, "s3Location" => s3()})
    })
  end

  defp document(document, path, opts) do
    name =
      if Keyword.get(opts, :observed, true),
        do: matching(@document_name, :bad_document_name),
        else: sized(1..200, :bad_document_name)

    source = %{
      "bytes" => &base64/2,
      "s3Location" => s3(),
      "text" => &text/2,
      "content" => list_of(union_of(%{"text" => &text/2}))
    }

    object(
      document,
      path,
      %{"name" => name, "source" => union_of(source)},
      %{
        "format" => one_of(@document_formats, :bad_media_type),
        "context" => &string/2,
        "citations" => &map/2
      }
    )
  end

  defp s3 do
    object_of(%{"uri" => matching(@s3, :bad_url)}, %{
      "bucketOwner" => matching(~r/\A[0-9]{12}\z/, :bad_value)
    })
  end

  defp tool_use(call, path) do
    object(
      call,
      path,
      %{
        "toolUseId" => matching(@id, :bad_id),
        "name" => matching(@name, :bad_name),
        "input" => &arguments/2
      },
      %{"type" => one_of(["server_tool_use"])}
    )
  end

  defp tool_result(result, path, opts) do
    content =
      filled(
        :empty_content,
        union_of(%{
          "text" => &text/2,
          "json" => &json_object/2,
          "image" => &image/2,
          "document" => &document(&1, &2, opts),
          "video" => &map/2,
          "searchResult" => &map/2
        })
      )

    object(
      result,
      path,
      %{"toolUseId" => matching(@id, :bad_id), "content" => content},
      %{"status" => status(opts[:model]), "type" => &string/2}
    )
  end

  defp json_object(value, _path) when is_map(value), do: []

  defp json_object(value, path),
    do: [finding(:json_not_object, path, "an object, not #{show(value)}")]

  # Only Claude and Nova know it.
  defp status(model) do
    if model == nil or model =~ ~r/claude|nova/i,
      do: one_of(["success", "error"]),
      else: fn _value, path ->
        [finding(:status_not_allowed, path, "#{model} takes no status")]
      end
  end

  defp reasoning(content, path) do
    union(content, path, %{
      "reasoningText" => object_of(%{"text" => &string/2}, %{"signature" => &opaque/2}),
      "redactedContent" => &base64/2
    })
  end

  defp cache_point(point, path) do
    case object(point, path, %{"type" => one_of(["default"])}, %{"ttl" => one_of(["5m", "1h"])}) do
      [] -> []
      [%{detail: detail} | _] -> [finding(:bad_cache_control, path, detail)]
    end
  end

  defp leading_cache_point([%{"cachePoint" => _} | _], path),
    do: [finding(:cache_point_first, path ++ [0], "a cache point with nothing in front of it")]

  defp leading_cache_point(_blocks, _path), do: []

  # Over all messages, those in results included.
  defp document_names(messages, opts) do
    names =
      for {%{"content" => blocks}, _} when is_list(blocks) <- messages,
          block <- blocks,
          %{"document" => %{"name" => name}} <- [block | nested_blocks(block)],
          do: name

    if Keyword.get(opts, :observed, true) and Enum.uniq(names) != names,
      do: [finding(:same_document_name, ["messages"], "documents have names of their own")],
      else: []
  end

  defp nested_blocks(%{"toolResult" => %{"content" => blocks}}) when is_list(blocks), do: blocks
  defp nested_blocks(_block), do: []

  defp points_behind_documents(messages, opts) do
    for {%{"content" => blocks}, index} when is_list(blocks) <- messages,
        Keyword.get(opts, :observed, true),
        [%{"document" => %{"format" => format}}, %{"cachePoint" => _}] when format != "pdf" <-
          Enum.chunk_every(blocks, 2, 1, :discard),
        do:
          finding(
            :point_behind_document,
            ["messages", index, "content"],
            "no cache point follows a document that is no PDF"
          )
  end

  defp document_text(blocks, path, opts) when is_list(blocks) do
    if Keyword.get(opts, :observed, true) and Enum.any?(blocks, &match?(%{"document" => _}, &1)) and
         not Enum.any?(blocks, &match?(%{"text" => _}, &1)),
       do: [finding(:document_without_text, path, "a document needs a text beside it")],
       else: []
  end

  defp document_text(_blocks, _path, _opts), do: []

  ## The whole

  defp first([{%{"role" => "user"}, _} | _]), do: []

  defp first(_messages),
    do: [finding(:first_not_user, ["messages", 0], "the first message is the user's")]

  defp alternation(messages) do
    for {{%{"role" => role}, _}, {%{"role" => role}, index}} <- Enum.zip(messages, tl(messages)),
        do: finding(:not_alternating, ["messages", index], "a second message of #{inspect(role)}")
  end

  # Reasoning stands where the model had it. Up to the next reasoning, calls come last: with a text behind it, a call
  # counts as unanswered, or the message as the beginning of an answer.
  defp order({%{"role" => "assistant", "content" => [_ | _] = blocks}, index}) do
    path = ["messages", index, "content"]

    {findings, _} =
      blocks
      |> Enum.with_index()
      |> Enum.flat_map_reduce(false, fn {block, position}, called? ->
        case block do
          %{"reasoningContent" => _} -> {[], false}
          %{"toolUse" => _} -> {behind(block, path ++ [position], called?), call?(block, called?)}
          _ -> {behind(block, path ++ [position], called?), called?}
        end
      end)

    case List.last(blocks) do
      %{"reasoningContent" => _} ->
        findings ++ [finding(:thinking_last, path, "a message ends with reasoning")]

      _ ->
        findings
    end
  end

  defp order({%{"role" => "user", "content" => blocks}, index}) when is_list(blocks) do
    blocks
    |> Enum.with_index()
    |> Enum.drop_while(fn {block, _} -> match?(%{"toolResult" => _}, block) end)
    |> Enum.flat_map(fn {block, position} ->
      case block do
        %{"toolResult" => _} ->
          path = ["messages", index, "content", position]
          [finding(:result_not_first, path, "a result behind something else")]

        _ ->
          []
      end
    end)
  end

  defp order(_message), do: []

  defp call?(block, called?), do: called? or not served?(block)

  defp behind(%{"cachePoint" => _}, _path, _called?), do: []
  defp behind(_block, _path, false), do: []

  defp behind(block, path, true) do
    if match?(%{"toolUse" => _}, block) and not served?(block),
      do: [],
      else: [finding(:call_not_last, path, "something else behind a call")]
  end

  defp pairs(messages) do
    edges = [nil] ++ messages ++ [nil]

    edges
    |> Enum.zip(tl(edges))
    |> Enum.flat_map(fn {message, next} ->
      Pairing.check(
        entries(message, "assistant", "toolUse"),
        entries(next, "user", "toolResult")
      )
    end)
  end

  # What the service answers itself stands in messages of the model, as the service model's types say.
  defp served?(%{"toolUse" => %{"type" => "server_tool_use"}}), do: true
  defp served?(%{"toolResult" => %{"type" => _}}), do: true
  defp served?(_block), do: false

  defp served(messages) do
    blocks =
      for {%{"role" => "assistant", "content" => [_ | _] = blocks}, index} <- messages,
          {block, position} <- Enum.with_index(blocks),
          served?(block),
          do: {block, ["messages", index, "content", position]}

    {findings, _uses} =
      Enum.reduce(blocks, {[], MapSet.new()}, fn
        {%{"toolUse" => %{"toolUseId" => id}}, path}, {findings, uses} ->
          if id in uses,
            do:
              {[finding(:duplicate_call_id, path, "a second use #{inspect(id)}") | findings],
               uses},
            else: {findings, MapSet.put(uses, id)}

        {%{"toolResult" => %{"toolUseId" => id}}, path}, {findings, uses} ->
          if id in uses,
            do: {findings, uses},
            else: {[finding(:orphan_result, path, "no use #{inspect(id)}") | findings], uses}
      end)

    Enum.reverse(findings)
  end

  defp entries({%{"role" => role, "content" => blocks}, index}, role, key) when is_list(blocks) do
    for {%{^key => %{} = entry} = block, position} <- Enum.with_index(blocks),
        role == "user" or not served?(block) do
      %{id: entry["toolUseId"], name: nil, path: ["messages", index, "content", position]}
    end
  end

  defp entries(_message, _role, _key), do: []

  defp breakpoints(body) do
    tools = if is_map(body["toolConfig"]), do: listed(body["toolConfig"]["tools"]), else: []
    contents = for %{} = message <- listed(body["messages"]), do: listed(message["content"])

    case Enum.count(
           Enum.concat([listed(body["system"]), tools | contents]),
           &match?(%{"cachePoint" => _}, &1)
         ) do
      count when count > 4 ->
        [finding(:too_many_breakpoints, [], "at most 4 cachePoint, not #{count}")]

      _ ->
        []
    end
  end

  defp tool_config(body, opts) do
    blocks =
      for %{} = message <- listed(body["messages"]),
          block <- listed(message["content"]),
          do: block

    if Keyword.get(opts, :tool_config, false) and not is_map_key(body, "toolConfig") and
         Enum.any?(blocks, &(match?(%{"toolUse" => _}, &1) or match?(%{"toolResult" => _}, &1))),
       do: [finding(:tool_config_missing, [], "tool blocks without toolConfig")],
       else: []
  end

  defp listed(list) when is_list(list), do: list
  defp listed(_other), do: []
end
