defmodule AshAgent.TestSupport.RequestChecker.OpenAIResponses do
  @moduledoc "The rules of OpenAI's Responses API."

  import AshAgent.TestSupport.RequestChecker.Shape

  alias AshAgent.TestSupport.RequestChecker.Pairing

  @name ~r/\A[a-zA-Z0-9_-]{1,64}\z/
  @roles ["user", "assistant", "system", "developer"]
  @statuses ["in_progress", "completed", "incomplete"]
  @details ["auto", "low", "high", "original"]
  @parts ["input_text", "input_image", "input_file", "output_text", "refusal"]

  @kinds %{
    "function_call" => "function_call_output",
    "custom_tool_call" => "custom_tool_call_output",
    "shell_call" => "shell_call_output",
    "local_shell_call" => "local_shell_call_output",
    "apply_patch_call" => "apply_patch_call_output",
    "computer_call" => "computer_call_output",
    "mcp_approval_request" => "mcp_approval_response",
    "tool_search_call" => "tool_search_output"
  }
  @outputs Map.new(@kinds, fn {call, output} -> {output, call} end)

  @spec check(map(), keyword()) :: [map()]
  def check(body, opts) do
    instructions(body["instructions"]) ++ input(body["input"], body, opts)
  end

  defp instructions(nil), do: []
  defp instructions(text), do: text(text, ["instructions"])

  defp input(text, _body, _opts) when is_binary(text), do: text(text, ["input"])

  defp input(items, body, opts) do
    case filled_list(items, ["input"], :empty_messages, &item(&1, &2, body, opts)) do
      findings when not is_list(items) ->
        findings

      findings ->
        of_servers(findings ++ unique_items(items) ++ followers(items), items) ++
          pairs(items, body, opts)
    end
  end

  # DeepSeek names items by UUIDs, and xAI some of them by what they belong to, also twice in an answer, where it may
  # have several of reasoning in a row (all recorded).
  defp of_servers(findings, items) do
    foreign? = fn
      %{"type" => "reasoning", "id" => id} when is_binary(id) -> id =~ ~r/\A(?!rs)[\w-]+\z/
      _ -> false
    end

    taken = [:bad_item_id, :duplicate_item_id, :reasoning_without_follower]

    if Enum.any?(items, foreign?),
      do: Enum.reject(findings, &(&1.rule in taken)),
      else: findings
  end

  ## Items

  # By the SDK's `response_input_item_param.py`: the fields that an item has besides its type, and those that it may have, with
  # what is in each (`field/1`). A `?` takes null as well.
  @items %{
    "function_call" =>
      {~w(call_id:call name:name arguments:arguments),
       ~w(id:fc_ status:status caller:map? namespace:text async:boolean)},
    "function_call_output" =>
      {~w(call_id:call output:output),
       ~w(id:_? status:status? caller:map? name:text? namespace:text?)},
    "custom_tool_call" =>
      {~w(call_id:call name:name input:string),
       ~w(id:ct_ caller:map? namespace:text async:boolean)},
    "custom_tool_call_output" => {~w(call_id:call output:output), ~w(id:_ caller:map?)},
    "shell_call" =>
      {~w(call_id:call action:map), ~w(id:sh_? status:status? caller:map? environment:map?)},
    "shell_call_output" =>
      {~w(call_id:call output:chunks),
       ~w(id:_? status:status? caller:map? max_output_length:count?)},
    "local_shell_call" => {~w(id:lsh_ call_id:call action:map status:status), []},
    "local_shell_call_output" => {~w(id:call output:text), ~w(status:status?)},
    "apply_patch_call" =>
      {~w(call_id:call operation:map status:in_progress|completed), ~w(id:apc_? caller:map?)},
    "apply_patch_call_output" =>
      {~w(call_id:call status:completed|failed), ~w(id:_? caller:map? output:text?)},
    "computer_call" =>
      {~w(id:cu_ call_id:call status:status pending_safety_checks:maps),
       ~w(action:map actions:maps)},
    "computer_call_output" =>
      {~w(call_id:call output:screenshot),
       ~w(id:_? status:status? acknowledged_safety_checks:maps?)},
    "mcp_approval_request" => {~w(id:mcpr_ name:text server_label:text arguments:arguments), []},
    "mcp_approval_response" =>
      {~w(approval_request_id:mcpr_ approve:boolean), ~w(id:_? reason:text?)},
    "tool_search_call" =>
      {~w(arguments:any), ~w(id:_? call_id:call? execution:server|client status:status?)},
    "tool_search_output" =>
      {~w(tools:tools), ~w(id:_? call_id:call? execution:server|client status:status?)}
  }

  defp item(%{"type" => type} = item, path, _body, _opts) when is_map_key(@items, type) do
    {required, optional} = @items[type]

    object(item, path, Map.put(fields(required), "type", &any/2), fields(optional)) ++
      if(type == "computer_call", do: source(item, path, ["action", "actions"]), else: [])
  end

  defp item(%{"type" => "reasoning"} = item, path, body, opts) do
    object(
      item,
      path,
      %{
        "type" => &any/2,
        "id" => item_id("rs"),
        "summary" => list_of(typed_text("summary_text"))
      },
      %{
        "content" => list_of(typed_text("reasoning_text")),
        "encrypted_content" => optional(&opaque/2),
        "status" => one_of(@statuses)
      }
    ) ++ encrypted(item, path, Keyword.get(opts, :store, body["store"] != false))
  end

  defp item(%{"type" => "message", "role" => _} = item, path, _body, _opts),
    do: message(item, path)

  defp item(%{"type" => "message"} = item, path, _body, _opts),
    do: object(item, path, %{"type" => &any/2, "role" => &any/2, "content" => &any/2})

  # A vendor's own item, given back as it came.
  defp item(%{"type" => type} = item, path, _body, _opts) when is_binary(type) and type != "" do
    if is_map_key(item, "role"),
      do: [
        finding(
          :bad_value,
          path ++ ["type"],
          "an item with a role is a message, not #{show(type)}"
        )
      ],
      else: own_id(item, path)
  end

  defp item(%{"type" => type}, path, _body, _opts), do: text(type, path ++ ["type"])

  # The short form of a message.
  defp item(%{"role" => _} = item, path, _body, _opts), do: message(item, path)

  defp item(item, path, _body, _opts) when is_map(item),
    do: [finding(:missing_key, path, "neither type nor role")]

  defp item(item, path, _body, _opts), do: map(item, path)

  defp fields(fields) do
    Map.new(fields, fn field ->
      [key, check] = String.split(field, ":")
      {bare, optional?} = {String.trim_trailing(check, "?"), String.ends_with?(check, "?")}
      {key, if(optional?, do: optional(field(bare)), else: field(bare))}
    end)
  end

  defp field("call"), do: sized(1..64, :bad_id)
  defp field("name"), do: matching(@name, :bad_name)
  defp field("arguments"), do: &arguments_text/2
  defp field("status"), do: one_of(@statuses)
  defp field("map"), do: &map/2
  defp field("maps"), do: list_of(&map/2)
  defp field("text"), do: &text/2
  defp field("string"), do: &string/2
  defp field("boolean"), do: &boolean/2
  defp field("count"), do: &count/2
  defp field("any"), do: &any/2

  defp field("output"),
    do: text_or(only(["input_text", "input_image", "input_file"], @parts, &content/2))

  defp field("chunks") do
    outcome = fn
      %{"type" => "timeout"} = outcome, at -> object(outcome, at, %{"type" => &any/2})
      outcome, at -> object(outcome, at, %{"type" => one_of(["exit"]), "exit_code" => &integer/2})
    end

    chunk = object_of(%{"stdout" => &string/2, "stderr" => &string/2, "outcome" => outcome})
    filled(:empty_content, chunk)
  end

  defp field("screenshot") do
    fn shot, at ->
      object(shot, at, %{"type" => one_of(["computer_screenshot"])}, %{
        "image_url" => &url_or_data/2,
        "file_id" => &text/2
      }) ++ if(is_map(shot), do: source(shot, at, ["image_url", "file_id"]), else: [])
    end
  end

  defp field("tools"),
    do: list_of(fn tool, at -> object(tool, at, %{"type" => &text/2}, keys(tool)) end)

  # An id that begins so, or one of these words.
  defp field(other) do
    if String.ends_with?(other, "_"),
      do: item_id(String.trim_trailing(other, "_")),
      else: one_of(String.split(other, "|"))
  end

  # Whatever else an object has.
  defp keys(object) when is_map(object), do: Map.new(object, fn {key, _} -> {key, &any/2} end)
  defp keys(_object), do: %{}

  defp integer(value, _path) when is_integer(value), do: []

  defp integer(value, path),
    do: [finding(:not_an_integer, path, "an integer, not #{show(value)}")]

  defp own_id(%{"id" => id}, path) when id != nil, do: item_id("").(id, path ++ ["id"])
  defp own_id(_item, _path), do: []

  defp encrypted(%{"encrypted_content" => content}, _path, _stored?) when content != nil, do: []
  # Open models show what they thought, and take that (recorded of DeepSeek).
  defp encrypted(%{"content" => [_ | _]}, _path, _stored?), do: []
  defp encrypted(_item, _path, true), do: []

  defp encrypted(_item, path, false),
    do: [finding(:missing_encrypted_content, path, "reasoning without its encrypted content")]

  defp item_id(prefix), do: matching(~r/\A(?=#{prefix})[a-zA-Z0-9_-]{1,64}\z/, :bad_item_id)

  defp typed_text(type),
    do: object_of(%{"type" => one_of([type]), "text" => &string/2})

  ## Messages

  defp message(%{"role" => "assistant", "content" => text} = item, path) when is_binary(text) do
    object(
      item,
      path,
      %{"role" => &any/2, "content" => &text/2},
      %{"type" => &any/2, "phase" => &phase/2}
    )
  end

  defp message(%{"role" => "assistant"} = item, path) do
    parts = only(["output_text", "refusal"], @parts, &output/2)
    required = %{"role" => &any/2, "content" => filled(:empty_content, parts)}

    # OpenAI takes such a message without its id too, and then without type and status (recorded).
    named = %{"type" => &any/2, "id" => item_id("msg"), "status" => one_of(@statuses)}
    required = if is_map_key(item, "id"), do: Map.merge(required, named), else: required
    object(item, path, required, %{"phase" => &phase/2})
  end

  defp message(%{"role" => role} = item, path) do
    parts =
      if role == "user", do: ["input_text", "input_image", "input_file"], else: ["input_text"]

    object(
      item,
      path,
      %{
        "role" => one_of(@roles, :bad_role),
        "content" => text_or(only(parts, @parts, &input_part/2))
      },
      %{"type" => &any/2, "status" => one_of(@statuses), "phase" => &phase/2}
    )
  end

  defp phase(value, path), do: optional(one_of(["commentary", "final_answer"])).(value, path)

  ## Parts

  # A message behind an image is empty, and taken so (recorded).
  defp output(%{"type" => "output_text"} = part, path) do
    text = if part["text"] == "", do: &any/2, else: &text/2

    object(
      part,
      path,
      %{"type" => &any/2, "text" => text, "annotations" => list_of(&map/2)},
      %{"logprobs" => list_of(&map/2)}
    )
  end

  defp output(%{"type" => "refusal"} = part, path),
    do: object(part, path, %{"type" => &any/2, "refusal" => &text/2})

  defp input_part(part, path), do: part(part, path, %{"detail" => one_of(@details)}, %{})

  # In an output an image needs no detail.
  defp content(part, path), do: part(part, path, %{}, %{"detail" => optional(one_of(@details))})

  defp part(%{"type" => "input_text"} = part, path, _required, _optional),
    do: object(part, path, %{"type" => &any/2, "text" => &text/2}, breakpoint())

  defp part(%{"type" => "input_image"} = part, path, required, optional) do
    object(
      part,
      path,
      Map.put(required, "type", &any/2),
      Map.merge(optional, %{
        "image_url" => optional(&url_or_data/2),
        "file_id" => optional(&text/2),
        "prompt_cache_breakpoint" => breakpoint()["prompt_cache_breakpoint"]
      })
    ) ++ source(part, path, ["image_url", "file_id"])
  end

  defp part(%{"type" => "input_file"} = part, path, _required, _optional) do
    object(
      part,
      path,
      %{"type" => &any/2},
      Map.merge(breakpoint(), %{
        "file_data" => optional(&file_data/2),
        "file_id" => optional(&text/2),
        "file_url" => optional(&url/2),
        "filename" => optional(&text/2),
        "detail" => one_of(["auto", "low", "high"])
      })
    ) ++ source(part, path, ["file_data", "file_id", "file_url"])
  end

  defp source(part, path, keys) do
    case Enum.count(keys, &(part[&1] != nil)) do
      1 -> []
      count -> [finding(:bad_source, path, "one of #{inspect(keys)}, not #{count}")]
    end
  end

  defp file_data("data:" <> _ = value, path), do: data_url(value, path)
  defp file_data(value, path), do: base64(value, path)

  defp breakpoint do
    %{
      "prompt_cache_breakpoint" =>
        optional(object_of(%{"mode" => one_of(["explicit"])}, %{"ttl" => one_of(["30m", "12h"])}))
    }
  end

  ## The whole

  defp unique_items(items) do
    items
    |> Enum.with_index()
    |> Enum.filter(fn {item, _} -> match?(%{"id" => id} when is_binary(id), item) end)
    |> Enum.group_by(fn {item, _} -> item["id"] end)
    |> Enum.flat_map(fn {id, [_first | more]} ->
      for {_, index} <- more,
          do: finding(:duplicate_item_id, ["input", index], "a second item #{inspect(id)}")
    end)
  end

  # Reasoning stands directly in front of an item of the same answer: a call, or a message with its own id. A second
  # reasoning item is none, although the vendor is known to return such. An answer may end with it, behind a message;
  # where it ends is not seen here.
  defp followers(items) do
    named? = &match?(%{"role" => "assistant", "id" => _}, &1)
    around = Enum.chunk_every([nil | items] ++ [nil], 3, 1, :discard)

    for {[before, %{"type" => "reasoning"}, next], index} <- Enum.with_index(around),
        not follower?(next) and not named?.(before) do
      finding(
        :reasoning_without_follower,
        ["input", index],
        "reasoning is followed by #{show(next)}"
      )
    end
  end

  defp follower?(%{"type" => "function_call"}), do: true
  defp follower?(%{"role" => "assistant", "id" => id}) when is_binary(id), do: true
  defp follower?(%{"role" => _}), do: false

  defp follower?(%{"type" => type}),
    do:
      type not in ["reasoning", "message"] and not String.ends_with?(type, "_output") and
        type != "mcp_approval_response"

  defp follower?(_item), do: false

  defp pairs(items, body, opts) do
    indexed = Enum.with_index(items)

    findings =
      for {call, output} <- @kinds, reduce: [] do
        findings ->
          calls =
            for {%{"type" => ^call} = item, i} <- indexed, not served?(item), do: entry(item, i)

          outputs =
            for {%{"type" => ^output} = item, i} <- indexed, not served?(item), do: entry(item, i)

          outputs = Enum.reject(outputs, &(&1.id in served(indexed)))

          findings ++
            Enum.reject(
              Pairing.check(calls, outputs),
              &(&1.rule == :missing_result and open?(&1.path, items))
            ) ++
            early(calls, outputs)
      end

    findings = findings ++ reused(indexed)

    if body["previous_response_id"] || body["conversation"],
      do: Enum.reject(findings, &(&1.rule in [:missing_result, :orphan_result])),
      else: findings ++ apart(indexed, Keyword.get(opts, :adjacent, true))
  end

  defp entry(item, index) do
    id =
      case item["type"] do
        "mcp_approval_request" -> item["id"]
        "mcp_approval_response" -> item["approval_request_id"]
        "local_shell_call_output" -> item["call_id"] || item["id"]
        _ -> item["call_id"]
      end

    %{id: id, name: nil, path: ["input", index]}
  end

  # Its output may come in any later request.
  defp async?(item), do: item["async"] == true and item["caller"] == nil
  defp open?(["input", index], items), do: items |> Enum.at(index) |> async?()

  # What the vendor answers itself.
  defp served?(%{"type" => "shell_call", "environment" => %{"type" => type}}),
    do: String.starts_with?(type, "container")

  defp served?(%{"type" => type, "execution" => execution})
       when type in ["tool_search_call", "tool_search_output"],
       do: execution == "server"

  defp served?(%{"type" => type} = item)
       when type in ["tool_search_call", "tool_search_output"],
       do: item["call_id"] == nil

  defp served?(_item), do: false

  defp served(indexed), do: for({item, _} <- indexed, served?(item), do: item["call_id"])

  # An id of a call is used once, whatever its kind.
  defp reused(indexed) do
    calls =
      for {%{"type" => type, "call_id" => id}, index} <- indexed,
          is_map_key(@kinds, type),
          do: {id, index}

    for {id, [_first, _ | _] = uses} <- Enum.group_by(calls, &elem(&1, 0), &elem(&1, 1)),
        index <- tl(uses),
        do: finding(:duplicate_call_id, ["input", index], "a second call #{inspect(id)}")
  end

  defp early(calls, outputs) do
    first = calls |> Enum.reverse() |> Map.new(&{&1.id, List.last(&1.path)})

    for %{id: id, path: path} <- outputs, is_map_key(first, id), List.last(path) < first[id] do
      finding(:result_before_call, path, "the output of #{inspect(id)} in front of its call")
    end
  end

  # Clones of this API demand the outputs right behind their calls. What the model says between them is of the answer that
  # has the calls, if no output came yet.
  defp apart(_indexed, false), do: []

  defp apart(indexed, true) do
    {findings, _open, _answered?} =
      Enum.reduce(indexed, {[], MapSet.new(), false}, fn {item, index},
                                                         {findings, open, answered?} ->
        case item do
          %{"type" => type} when is_map_key(@kinds, type) ->
            if served?(item) or async?(item),
              do: {findings, open, answered?},
              else: {findings, MapSet.put(open, entry(item, index).id), answered?}

          %{"type" => type} when is_map_key(@outputs, type) ->
            left = MapSet.delete(open, entry(item, index).id)
            {findings, left, if(left == open, do: answered?, else: not Enum.empty?(left))}

          %{"role" => role} ->
            if Enum.empty?(open) or (role == "assistant" and not answered?) do
              {findings, open, answered?}
            else
              detail = "a message before the outputs of #{inspect(Enum.to_list(open))}"

              {findings ++ [finding(:result_not_adjacent, ["input", index], detail)],
               MapSet.new(), false}
            end

          _ ->
            {findings, open, answered?}
        end
      end)

    findings
  end
end
