defmodule AshAgent.TestSupport.RequestChecker.Anthropic do
  @moduledoc """
  The rules of Anthropic's Messages API.

  Observed in error reports only (`observed: true`): a message must not end with thinking, and no text comes before the
  thinking of a message, unless the body has `"thinking": {"type": "adaptive"}`, which is documented to take that.

  Calls stand where the model made them, before texts and thinking as well, which was measured with five models. But what
  the vendor answers itself is refused behind a call, unless thinking stands between them.

  From before the last `fallback` of a message, thinking and uses without their results must be left out
  (beta_fallback_block_param.py and the guide that it names). So must calls; one that was left in and has its result is taken.
  """

  import AshAgent.TestSupport.RequestChecker.Shape

  alias AshAgent.TestSupport.RequestChecker.Pairing

  @id ~r/\A[a-zA-Z0-9_-]+\z/
  @name ~r/\A[a-zA-Z0-9_-]{1,64}\z/
  @image_types ["image/jpeg", "image/png", "image/gif", "image/webp"]

  @user_blocks ["text", "image", "document", "search_result", "tool_result"]
  @assistant_blocks ["text", "thinking", "redacted_thinking", "tool_use"]
  # tool_result_block_param.py. A search for tools of the application's own answers with tool_reference.
  @result_blocks ["text", "image", "document", "search_result", "tool_reference", "browser_state"]
  @result_only ["tool_reference", "browser_state"]
  @thinking ["thinking", "redacted_thinking"]

  @spec check(map(), keyword()) :: [map()]
  def check(body, opts) do
    system(body["system"]) ++
      container(body["container"]) ++
      messages(body["messages"], body, opts) ++
      breakpoints(body)
  end

  ## System

  defp system(nil), do: []
  defp system(text) when is_binary(text), do: text(text, ["system"])

  defp system(blocks),
    do: filled_list(blocks, ["system"], :empty_content, &system_block/2)

  defp system_block(%{"type" => "text"} = block, path), do: block(block, path)

  defp system_block(block, path),
    do: [finding(:block_not_allowed, path, "only text blocks, not #{show(block)}")]

  # A string, or an object with skills: one with the id alone is answered with "container: Input should be a valid string".
  defp container(nil), do: []
  defp container(id) when is_binary(id), do: text(id, ["container"])

  defp container(container) do
    skills = fn skills, path -> filled_list(skills, path, :empty_content, &map/2) end
    object(container, ["container"], %{"skills" => skills}, %{"id" => optional(&text/2)})
  end

  ## Messages

  defp messages(messages, body, opts) do
    path = ["messages"]

    case filled_list(messages, path, :empty_messages, &map/2) do
      [] ->
        last = length(messages) - 1

        shapes =
          messages
          |> Enum.with_index()
          |> Enum.flat_map(fn {message, index} ->
            message(message, path ++ [index], index == last, body, opts)
          end)

        turns = turns(messages)

        shapes ++
          system_messages(messages, opts) ++
          first(turns) ++
          Enum.flat_map(turns, &order/1) ++
          pairs(turns) ++
          served(turns) ++
          unanswered(turns) ++
          last(messages, opts) ++
          thinking_loop(turns, body, opts)

      findings ->
        findings
    end
  end

  defp message(message, path, last?, body, opts) do
    role = message["role"]

    adaptive? =
      not Keyword.get(opts, :observed, true) or
        match?(%{"thinking" => %{"type" => "adaptive"}}, body)

    object(message, path, %{
      "role" => one_of(roles(opts), :bad_role),
      "content" => &content(&1, &2, role, last?)
    }) ++
      thinking_first(message, path, adaptive?) ++
      thinking_last(message, path, opts) ++ declined(message["content"], path)
  end

  defp declined(blocks, path) when is_list(blocks) do
    answered = for %{"tool_use_id" => id} <- blocks, do: id

    before =
      blocks
      |> Enum.with_index()
      |> Enum.reverse()
      |> Enum.drop_while(&(not match?({%{"type" => "fallback"}, _}, &1)))

    for {%{"type" => type} = block, index} <- before,
        thinking?(block) or type == "connector_text" or
          (type in ["server_tool_use", "mcp_tool_use"] and block["id"] not in answered),
        do: finding(:declined, path ++ ["content", index], "#{type} before the last fallback")
  end

  defp declined(_text, _path), do: []

  defp roles(opts) do
    if opts[:mid_conversation_system],
      do: ["user", "assistant", "system"],
      else: ["user", "assistant"]
  end

  # The last assistant message alone may be without content.
  defp content(content, _path, "assistant", true) when content in ["", []], do: []

  defp content(content, path, role, _last?) do
    text_or_parts(content, path, fn block, path ->
      allowed(block, path, role) ++ block(block, path)
    end)
  end

  defp allowed(%{"type" => type}, path, role) do
    {own, foreign} =
      case role do
        "assistant" -> {@assistant_blocks, @user_blocks}
        "system" -> {["text"], @user_blocks ++ @assistant_blocks}
        _ -> {@user_blocks, @assistant_blocks}
      end

    # What the vendor runs itself stands in messages of the model.
    served? = is_binary(type) and type =~ ~r/_tool_(use|result)\z/ and role != "assistant"

    if served? or type in @result_only or (type in foreign and type not in own),
      do: [finding(:block_not_allowed, path, "no #{type} in a message of #{inspect(role)}")],
      else: []
  end

  defp allowed(_block, _path, _role), do: []

  ## Blocks

  defp block(%{"type" => "text"} = block, path) do
    object(
      block,
      path,
      %{"type" => &any/2, "text" => &text/2},
      cached(%{"citations" => &any/2})
    )
  end

  defp block(%{"type" => "image"} = block, path) do
    object(
      block,
      path,
      %{"type" => &any/2, "source" => &image_source/2},
      cached(%{"transformations" => &any/2})
    )
  end

  defp block(%{"type" => "document"} = block, path) do
    object(
      block,
      path,
      %{"type" => &any/2, "source" => &document_source/2},
      cached(%{
        "title" => optional(&string/2),
        "context" => optional(&string/2),
        "citations" => optional(&map/2)
      })
    )
  end

  defp block(%{"type" => "search_result"} = block, path) do
    content = filled(:empty_content, only(["text"]))

    object(
      block,
      path,
      %{"type" => &any/2, "content" => content, "source" => &string/2, "title" => &string/2},
      cached(%{"citations" => optional(&map/2)})
    )
  end

  defp block(%{"type" => "thinking"} = block, path) do
    uncached(block, path) ++
      object(
        Map.delete(block, "cache_control"),
        path,
        %{"type" => &any/2, "thinking" => &string/2, "signature" => &opaque/2}
      )
  end

  defp block(%{"type" => "redacted_thinking"} = block, path) do
    uncached(block, path) ++
      object(
        Map.delete(block, "cache_control"),
        path,
        %{"type" => &any/2, "data" => &opaque/2}
      )
  end

  defp block(%{"type" => "tool_use"} = block, path) do
    object(
      block,
      path,
      %{
        "type" => &any/2,
        "id" => matching(@id, :bad_id),
        "name" => matching(@name, :bad_name),
        "input" => &arguments/2
      },
      cached(%{"caller" => &map/2, "toolset_name" => optional(&string/2)})
    )
  end

  defp block(%{"type" => "tool_reference"} = block, path),
    do: object(block, path, %{"type" => &any/2, "tool_name" => &text/2}, cached(%{}))

  defp block(%{"type" => "tool_result"} = block, path) do
    object(
      block,
      path,
      %{"type" => &any/2, "tool_use_id" => matching(@id, :bad_id)},
      cached(%{
        "content" => text_or(only(@result_blocks)),
        "is_error" => &boolean/2,
        "toolset_name" => optional(&string/2)
      })
    ) ++ error_content(block, path)
  end

  # A vendor's own block, given back as it came.
  defp block(%{"type" => type} = block, path) when is_binary(type) and type != "" do
    case block do
      %{"cache_control" => control} -> cache_control(control, path ++ ["cache_control"])
      _ -> []
    end
  end

  defp block(%{"type" => type}, path), do: text(type, path ++ ["type"])

  defp block(block, path) when is_map(block),
    do: [finding(:missing_key, path, "no \"type\"")]

  defp block(block, path), do: map(block, path)

  defp only(types) do
    fn
      %{"type" => type} = block, path
      when type in @user_blocks or type in @assistant_blocks or type in @result_only ->
        if type in types,
          do: block(block, path),
          else: [finding(:block_not_allowed, path, "no #{type} block here")]

      block, path ->
        block(block, path)
    end
  end

  defp error_content(%{"is_error" => true} = block, path) do
    case block["content"] do
      empty when empty in [nil, "", []] ->
        [finding(:error_content_empty, path, "an error result says nothing")]

      blocks when is_list(blocks) ->
        for {%{"type" => type}, index} <- Enum.with_index(blocks), type != "text" do
          finding(
            :error_content_not_text,
            path ++ ["content", index],
            "an error result with #{show(type)}"
          )
        end

      _ ->
        []
    end
  end

  defp error_content(_block, _path), do: []

  defp image_source(%{"type" => "base64"} = source, path) do
    object(source, path, %{
      "type" => &any/2,
      "media_type" => one_of(@image_types, :bad_media_type),
      "data" => &base64/2
    })
  end

  defp image_source(source, path), do: stored_source(source, path, ["base64", "url", "file"])

  defp document_source(%{"type" => "base64"} = source, path) do
    object(source, path, %{
      "type" => &any/2,
      "media_type" => one_of(["application/pdf"], :bad_media_type),
      "data" => &base64/2
    })
  end

  defp document_source(%{"type" => "text"} = source, path) do
    object(source, path, %{
      "type" => &any/2,
      "media_type" => one_of(["text/plain"], :bad_media_type),
      "data" => &text/2
    })
  end

  defp document_source(%{"type" => "content"} = source, path) do
    object(source, path, %{
      "type" => &any/2,
      "content" => text_or(only(["text", "image"]))
    })
  end

  defp document_source(source, path),
    do: stored_source(source, path, ["base64", "text", "content", "url", "file"])

  defp stored_source(%{"type" => "url"} = source, path, _types),
    do: object(source, path, %{"type" => &any/2, "url" => &url/2})

  defp stored_source(%{"type" => "file"} = source, path, _types),
    do: object(source, path, %{"type" => &any/2, "file_id" => &text/2})

  defp stored_source(%{"type" => type}, path, types),
    do: one_of(types).(type, path ++ ["type"])

  defp stored_source(source, path, _types), do: object(source, path, %{"type" => &any/2})

  ## Cache control

  defp cached(optional), do: Map.put(optional, "cache_control", optional(&cache_control/2))

  defp uncached(%{"cache_control" => _} = block, path) do
    [finding(:cache_control_not_allowed, path, "no cache_control on a #{block["type"]} block")]
  end

  defp uncached(_block, _path), do: []

  defp cache_control(control, path) do
    case object(control, path, %{"type" => one_of(["ephemeral"])}, %{
           "ttl" => one_of(["5m", "1h"])
         }) do
      [] -> []
      [%{detail: detail} | _] -> [finding(:bad_cache_control, path, detail)]
    end
  end

  defp breakpoints(body) do
    blocks =
      listed(body["system"]) ++
        listed(body["tools"]) ++
        for(
          %{} = message <- listed(body["messages"]),
          block <- listed(message["content"]),
          block <- [block | nested(block)],
          do: block
        )

    # The top-level field is the automatic breakpoint, which counts as well.
    case Enum.count([body | blocks], &match?(%{"cache_control" => %{}}, &1)) do
      count when count > 4 ->
        [finding(:too_many_breakpoints, [], "at most 4 cache_control, not #{count}")]

      _ ->
        []
    end
  end

  defp nested(%{"type" => "tool_result", "content" => content}), do: listed(content)
  defp nested(_block), do: []

  defp listed(list) when is_list(list), do: list
  defp listed(_other), do: []

  ## Turns: neighbours of one role are one turn to the vendor

  defp turns(messages) do
    messages
    |> Enum.with_index()
    |> Enum.reject(fn {message, _} -> message["role"] == "system" end)
    |> Enum.chunk_by(fn {message, _} -> message["role"] end)
    |> Enum.map(fn [{first, index} | _] = chunk ->
      %{
        role: first["role"],
        path: ["messages", index],
        blocks: Enum.flat_map(chunk, fn {message, index} -> blocks(message["content"], index) end)
      }
    end)
  end

  defp blocks(text, index) when is_binary(text),
    do: [{%{"type" => "text", "text" => text}, ["messages", index, "content"]}]

  defp blocks(blocks, index) when is_list(blocks) do
    for {%{} = block, position} <- Enum.with_index(blocks),
        do: {block, ["messages", index, "content", position]}
  end

  defp blocks(_content, _index), do: []

  defp first([%{role: "user"} | _]), do: []

  defp first(_turns),
    do: [finding(:first_not_user, ["messages", 0], "the first message is the user's")]

  defp order(%{role: "assistant", blocks: blocks}) do
    blocks
    |> Enum.chunk_while(
      [],
      fn {block, _} = entry, stretch ->
        if thinking?(block),
          do: {:cont, Enum.reverse(stretch), []},
          else: {:cont, [entry | stretch]}
      end,
      &{:cont, Enum.reverse(&1), []}
    )
    |> Enum.flat_map(fn stretch ->
      for {%{"type" => type}, path} <-
            Enum.drop_while(stretch, fn {block, _} -> block["type"] != "tool_use" end),
          served?(type),
          do: finding(:call_not_last, path, "#{type} behind a call")
    end)
  end

  defp order(%{blocks: blocks}) do
    blocks
    |> Enum.drop_while(fn {block, _} -> block["type"] == "tool_result" end)
    |> Enum.filter(fn {block, _} -> block["type"] == "tool_result" end)
    |> Enum.map(fn {_, path} ->
      finding(:result_not_first, path, "a result behind something else")
    end)
  end

  defp pairs(turns) do
    edges = [%{role: nil, blocks: []}] ++ turns ++ [%{role: nil, blocks: []}]

    edges
    |> Enum.zip(tl(edges))
    |> Enum.flat_map(fn {turn, next} ->
      Pairing.check(
        if(turn.role == "assistant", do: entries(turn, "tool_use", "id"), else: []),
        if(next.role == "user", do: entries(next, "tool_result", "tool_use_id"), else: [])
      )
    end)
  end

  defp entries(turn, type, key) do
    for {%{"type" => ^type} = block, path} <- turn.blocks,
        do: %{id: block[key], name: nil, path: path}
  end

  # What the vendor answers itself: each result behind its use, in messages of the model, each id once.
  defp served(turns) do
    blocks = for %{role: "assistant", blocks: blocks} <- turns, block <- blocks, do: block

    {findings, _uses} =
      Enum.reduce(blocks, {[], MapSet.new()}, fn {block, path}, {findings, uses} ->
        type = if is_binary(block["type"]), do: block["type"], else: ""
        used = block["tool_use_id"]

        cond do
          String.ends_with?(type, "_tool_use") and block["id"] in uses ->
            finding = finding(:duplicate_call_id, path, "a second use #{inspect(block["id"])}")
            {[finding | findings], uses}

          String.ends_with?(type, "_tool_use") ->
            {findings, MapSet.put(uses, block["id"])}

          String.ends_with?(type, "_tool_result") and used not in uses ->
            finding = finding(:orphan_result, path, "no server_tool_use #{inspect(used)}")
            {[finding | findings], uses}

          true ->
            {findings, uses}
        end
      end)

    Enum.reverse(findings)
  end

  # A use without its result is taken only while nothing but results follows it, or what its own program calls (recorded:
  # "`web_search` tool use with id ... was found without a corresponding `web_search_tool_result` block").
  defp unanswered(turns) do
    answered = for %{blocks: blocks} <- turns, {%{"tool_use_id" => id}, _} <- blocks, do: id

    for {%{role: "assistant", blocks: blocks}, index} <- Enum.with_index(turns, 1),
        {%{"type" => type, "id" => id}, path} <- blocks,
        type in ["server_tool_use", "mcp_tool_use"] and id not in answered,
        turns |> Enum.drop(index) |> Enum.any?(&goes_on?(&1, id)) do
      finding(:use_without_result, path, "no result of #{inspect(id)}, and the turn is over")
    end
  end

  defp goes_on?(turn, id) do
    not Enum.all?(turn.blocks, fn {block, _} ->
      block["type"] == "tool_result" or match?(%{"caller" => %{"tool_id" => ^id}}, block)
    end)
  end

  ## The end

  defp last(messages, opts) do
    index = length(messages) - 1

    case List.last(messages) do
      %{"role" => "assistant", "content" => content} ->
        blocks = blocks(content, index)

        prefill(opts, index) ++
          trailing_whitespace(Enum.filter(blocks, fn {block, _} -> block["type"] == "text" end))

      _ ->
        []
    end
  end

  defp prefill(opts, index) do
    if Keyword.get(opts, :prefill, true),
      do: [],
      else: [finding(:assistant_last, ["messages", index], "the model takes no prefill")]
  end

  defp trailing_whitespace([]), do: []

  defp trailing_whitespace(texts) do
    {block, path} = List.last(texts)

    if is_binary(block["text"]) and trailing_whitespace?(block["text"]),
      do: [finding(:trailing_whitespace, path, "the final text ends in whitespace")],
      else: []
  end

  defp thinking_last(%{"role" => "assistant", "content" => [_ | _] = blocks}, path, opts) do
    if Keyword.get(opts, :observed, true) and thinking?(List.last(blocks)),
      do: [finding(:thinking_last, path, "the last block of a message is thinking")],
      else: []
  end

  defp thinking_last(_message, _path, _opts), do: []

  defp thinking_first(%{"role" => "assistant", "content" => [_ | _] = blocks}, path, false) do
    case Enum.split_while(blocks, &match?(%{"type" => "text"}, &1)) do
      {[_ | _], [thinking | _]} ->
        if thinking?(thinking),
          do: [finding(:thinking_not_first, path, "texts before the thinking of a message")],
          else: []

      _ ->
        []
    end
  end

  defp thinking_first(_message, _path, _adaptive?), do: []

  defp served?(type) when is_binary(type),
    do: String.ends_with?(type, ["_tool_use", "_tool_result"])

  defp served?(_type), do: false

  defp thinking?(%{"type" => type}), do: type in @thinking
  defp thinking?(_block), do: false

  # With thinking on, the assistant turn whose results come last must start with a thinking block.
  defp thinking_loop(turns, body, opts) do
    on? = Keyword.get(opts, :thinking, match?(%{"thinking" => %{"type" => "enabled"}}, body))

    with true <- on?,
         [%{role: "user"} = results, %{role: "assistant"} = calls | _] <- Enum.reverse(turns),
         true <- Enum.any?(results.blocks, fn {block, _} -> block["type"] == "tool_result" end),
         false <- match?([{%{"type" => type}, _} | _] when type in @thinking, calls.blocks) do
      [finding(:thinking_missing, calls.path, "the running tool loop starts without thinking")]
    else
      _ -> []
    end
  end

  ## System messages between the others

  defp system_messages(messages, opts) do
    if opts[:mid_conversation_system] do
      edges = [nil] ++ Enum.map(messages, & &1["role"]) ++ [nil]

      edges
      |> Enum.chunk_every(3, 1, :discard)
      |> Enum.with_index()
      |> Enum.flat_map(fn
        {["user", "system", next], _} when next in ["assistant", nil] ->
          []

        {[_, "system", _], index} ->
          [
            finding(
              :system_position,
              ["messages", index],
              "a system message stands behind a user's and ahead of an assistant's or the end"
            )
          ]

        _ ->
          []
      end)
    else
      []
    end
  end
end
