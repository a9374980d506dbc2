defmodule AshAgent.TestSupport.Sdk do
  @moduledoc false

  # How our reading of an answer, and what we send back of it, compares with what the vendor's own SDK holds and sends.
  # The SDK's side is data, made by `bin/sdk`.

  alias AshAgent.{Context, Response}
  alias AshAgent.Context.JSON

  @fields ~w(id model finish usage text thinking calls sent)

  @doc """
  What differs from what the SDK gives, `[{path, the SDK's, ours, the reason or nil}]`. Nothing is compared if the SDK cannot read
  the answer, or if there are two in one body, of which we read the first.
  """
  def differences(_provider, %{"error" => _}, _type, _body), do: []
  def differences(_provider, %{"answers" => n}, _type, _body) when n > 1, do: []

  def differences(provider, expected, type, body) do
    for {path, one, other} <- found(provider, expected, type, body),
        do: {path, one, other, reason(provider, expected, {path, one, other})}
  end

  # What is meant to differ: one clause a reason.

  defp reason(:openai_chat, %{"sent" => [%{"function_call" => %{"name" => name}}]}, {path, _, _})
       when name != "" and
              path in ["calls[]", "sent[message].tool_calls", "sent[message].function_call"],
       do: "a call in the deprecated form is a call like any other"

  defp reason(provider, _, {"sent[message].tool_calls[function].index", _, nil})
       when provider in [:openai_chat, :mistral],
       do: "only deltas have an index"

  defp reason(
         :openai_chat,
         %{"sent" => [%{"reasoning_details" => [_ | _]}]},
         {"sent[message].reasoning" <> field, _, nil}
       )
       when field in ["", "_content"],
       do: "OpenRouter takes the details, which say the same"

  defp reason(:openai_chat, %{"calls" => []}, {"sent[message].reasoning" <> field, _, nil})
       when field in ["", "_content"],
       do: "servers that take reasoning back want it beside calls alone"

  defp reason(:openai_chat, _, {"sent[message].tool_calls[function].id", id, _})
       when byte_size(id) > 40,
       do: "OpenAI takes ids of at most 40 bytes"

  defp reason(:openai_chat, _, {"sent[message].tool_calls[function].id", id, _})
       when id in [nil, ""],
       do: "a call without an id has ours"

  defp reason(
         :openai_chat,
         _,
         {"sent[message].tool_calls[function].function.arguments", nil, %{}}
       ),
       do: "a call without arguments has none"

  defp reason(:openai_chat, _, {"sent[message].audio." <> _, _, nil}),
    do: "a request names a spoken answer by its id"

  defp reason(
         :openai_chat,
         %{"sent" => [%{"audio" => %{"transcript" => text}}]},
         {"text", "", text}
       ),
       do: "what is said aloud is text"

  defp reason(:openai_chat, %{"text" => "", "calls" => []}, {"sent[]", ["message"], []}),
    do: "an answer without a word is not sent"

  defp reason(:openai_chat, _, {"usage" <> _, usage, _}) when usage in [nil, 0],
    do: "some servers report tokens elsewhere, such as in x_groq"

  defp reason(:openai_chat, _, {field, none, _})
       when field in ["ended", "finish"] and none in [false, nil],
       do: "[DONE] ends a stream as well"

  defp reason(:openai_responses, %{"store" => false}, {"sent[]", sdk, ours}) do
    if sdk -- ["reasoning"] == ours, do: "reasoning that is neither kept nor encrypted is lost"
  end

  defp reason(:openai_responses, %{"status" => "incomplete"}, {path, _, _})
       when path in [
              "calls[]",
              "sent[function_call].arguments",
              "sent[function_call].id",
              "sent[function_call].status"
            ],
       do: "a call of an answer that was cut is not run"

  defp reason(:openai_responses, %{"stream" => true}, {"sent[reasoning].id", _, id})
       when is_binary(id),
       do: "an id that changes within the stream is that of the item's own event"

  defp reason(:openai_responses, %{"stream" => true}, {path, one, other})
       when is_binary(one) and is_binary(other) do
    if String.ends_with?(path, [".encrypted_content", ".fingerprint"]),
      do: "the last event encrypts anew, and either may go back"
  end

  defp reason(:openai_responses, %{"calls" => calls}, {"calls[]", _, []}) do
    if Enum.all?(calls, &match?(%{"kind" => "custom", "id" => "xs_call_" <> _}, &1)),
      do: "xAI has run its own searches, which come as calls"
  end

  defp reason(:openai_responses, _, {"sent[function_call].status", "in_progress", nil}),
    do: "the program that waits for the call has it, whatever its status"

  defp reason(:openai_responses, _, {"sent[function_call]." <> field, _, nil})
       when field in ["item_id", "output_index"],
       do: "a request has no such field"

  defp reason(:openai_responses, _, {"sent[" <> path, id, nil}) when is_binary(id) do
    if String.ends_with?(path, "].id") and
         not String.starts_with?(id, ["msg_", "fc_", "rs_", "ctc_"]),
       do: "OpenAI refuses ids that begin otherwise"
  end

  defp reason(:anthropic, _, {"sent[text].text", one, other}) when is_binary(other) do
    if String.trim_trailing(one) == other,
      do:
        "a text may be the last, which must not end in white space, and is written once for all requests"
  end

  defp reason(provider, _, {"sent[]", sdk, ours}) when provider in [:anthropic, :bedrock] do
    {calls, others} = Enum.split_with(sdk, &(&1 in ["tool_use", "toolUse"]))
    moved? = calls != [] and Enum.sort(sdk) == Enum.sort(ours) and ours -- calls == others

    cond do
      moved? ->
        "the provider takes a call for unanswered if something of its own follows it"

      ours == sdk -- ["reasoningContent"] ->
        "reasoning without a signature is left out, as Claude refuses it"

      true ->
        nil
    end
  end

  defp reason(:bedrock, _, {"sent[toolUse].toolUse.type", "tool_use", nil}),
    do: "a call without a type is the application's"

  defp reason(:gemini, _, {"sent[]", ["inlineData"], ["text"]}), do: "Gemini takes no raw sound"

  defp reason(:gemini, _, {"sent[text].text", one, other}) when is_binary(one) do
    if String.trim_leading(one) == other, do: "a part of white space alone is left out"
  end

  defp reason(:gemini, %{"pieces" => true}, {path, _, _}) when path in ["calls[]", "sent[]"],
    do: "the SDK does not join arguments that come in pieces"

  defp reason(:gemini, %{"finish" => nil}, {path, _, _}) when path in ["ended", "finish"],
    do: "a blocked prompt has a reason elsewhere, in promptFeedback"

  defp reason(:gemini, _, {"usage", %{"total_tokens" => 0}, nil}), do: "nothing was counted"

  defp reason(:gemini, _, {"sent[functionCall].functionCall.id", nil, "call_" <> _}),
    do: "a call without an id has ours"

  defp reason(:gemini, _, {"sent[functionCall].thoughtSignature", nil, signature}) do
    if Base.decode64(signature) == {:ok, "skip_thought_signature_validator"},
      do: "Gemini 3 refuses a call without a signature, except with this one"
  end

  defp reason(:mistral, _, {"sent[message].prefix", false, nil}), do: "the API's default"

  defp reason(:mistral, _, {"sent[message].tool_calls[function].id", id, _})
       when byte_size(id) != 9,
       do: "Mistral takes ids of nine letters and digits"

  defp reason(:ollama, _, {"sent[message].tool_calls[part].id", nil, _}),
    do: "the SDK has no place for the ids that newer servers give"

  # Strings that a server repeats in every chunk are appended by OpenAI's SDK.
  defp reason(:openai_chat, %{"stream" => true}, {_path, one, other})
       when is_binary(one) and is_binary(other) and other != "" do
    if one == String.duplicate(other, div(byte_size(one), byte_size(other))),
      do: "the SDK appends what each chunk repeats"
  end

  @api ~w(role content refusal audio function_call tool_calls name extra_content)
  defp reason(:openai_chat, _, {"sent[message]." <> field, _, nil}) do
    if field not in @api and not String.contains?(field, [".", "["]),
      do: "a request has no such field"
  end

  defp reason(_provider, _expected, _difference), do: nil

  defp found(provider, expected, type, body) do
    case {expected, ours(provider, expected, type, body)} do
      {%{"ended" => false}, {:error, %{reason: :incomplete}}} ->
        []

      {%{"status" => status}, {:error, _}} when status in ["queued", "in_progress"] ->
        []

      {%{"ended" => false}, {:ok, ours}} ->
        [{"ended", false, true} | compare(provider, expected, ours)]

      {_, {:error, error}} ->
        [{"error", nil, Exception.message(error)}]

      {_, {:ok, ours}} ->
        compare(provider, expected, ours)
    end
  end

  defp compare(provider, expected, ours) do
    expected = %{expected | "sent" => canonical(provider, expected["sent"])}
    Enum.flat_map(@fields, &differ(&1, expected[&1], ours[&1]))
  end

  defp differ(_path, same, same), do: []

  defp differ(path, "md5:" <> _ = digest, text) when is_binary(text) do
    ours = "md5:" <> (text |> :erlang.md5() |> Base.encode16(case: :lower))
    if ours == digest, do: [], else: [{path, digest, text}]
  end

  defp differ(path, %{} = one, %{} = other) do
    for key <- Enum.uniq(Map.keys(one) ++ Map.keys(other)),
        difference <- differ("#{path}.#{key}", one[key], other[key]),
        do: difference
  end

  defp differ(path, one, other) when is_list(one) and is_list(other) do
    if Enum.map(one, &form/1) == Enum.map(other, &form/1) do
      one
      |> Enum.zip(other)
      |> Enum.flat_map(fn {one, other} -> differ("#{path}[#{form(one)}]", one, other) end)
    else
      forms = {Enum.map(one, &form/1), Enum.map(other, &form/1)}
      [{"#{path}[]", elem(forms, 0), elem(forms, 1)} | elsewhere(path, one, other)]
    end
  end

  defp differ(_path, one, other) when is_number(one) and is_number(other) and one == other, do: []
  defp differ(path, one, other), do: [{path, one, other}]

  # In another order, each is compared with its like.
  defp elsewhere(path, one, other) do
    {one, other} = {Enum.sort_by(one, &form/1), Enum.sort_by(other, &form/1)}
    if Enum.map(one, &form/1) == Enum.map(other, &form/1), do: differ(path, one, other), else: []
  end

  @forms ~w(text functionCall functionResponse inlineData executableCode codeExecutionResult toolCall toolResponse
    toolUse toolResult reasoningContent citationsContent)
  defp form(%{"type" => type}) when is_binary(type), do: type
  defp form(%{"role" => _}), do: "message"
  defp form(%{} = part), do: Enum.find(@forms, "part", &is_map_key(part, &1))
  defp form(_other), do: "value"

  # Our side

  defp ours(provider, expected, type, body) do
    with {:ok, response} <- read(provider, expected["stream"], type, body),
         {:ok, context} <- "Hi" |> Context.new() |> Context.add_response(response) do
      message = Response.message(response)

      {:ok,
       %{
         "id" => expected["id"] && (Response.id(response) || ""),
         "model" => expected["model"] && (Response.model(response) || ""),
         "finish" => expected["finish"] && (Response.finish_word(response) || ""),
         "usage" => tokens(Response.usage(response)),
         "text" => Response.text(response) || "",
         "thinking" => thinking(message.content),
         "calls" => calls(message[:tool_calls] || [], expected["calls"] || []),
         "sent" => canonical(provider, sent(provider, context, response, expected["sent"]))
       }}
    end
  end

  defp read(provider, false, _type, body), do: Response.decode(provider, body, model: "m")

  defp read(provider, true, type, body) do
    with {:ok, response, _} <-
           Response.feed(Response.new(provider, model: "m", content_type: type), body),
         {:ok, response, _} <- Response.finish(response),
         do: {:ok, response}
  end

  # What is billed by itself has names of our own, see test/ash_agent/prices_test.exs.
  @tokens ~w(input_tokens output_tokens total_tokens cached_tokens cache_write_tokens reasoning_tokens)a

  defp tokens(nil), do: nil

  defp tokens(usage),
    do: for(key <- @tokens, into: %{}, do: {to_string(key), Map.fetch!(usage, key)})

  defp thinking(parts) when is_list(parts),
    do: Enum.map_join(parts, &if(&1.type == :thinking, do: &1.text, else: ""))

  defp thinking(_text), do: ""

  # What the SDK does not know, an id or the name of a kind that has none, is not compared.
  defp calls(calls, expected) do
    known = expected |> Stream.concat(Stream.cycle([%{}])) |> Enum.take(length(calls))

    for {call, known} <- Enum.zip(calls, known) do
      ours = %{
        "id" => call[:id],
        "name" => to_string(call.name),
        "arguments" => call.arguments,
        "kind" => call[:kind] && to_string(call.kind)
      }

      unknown = for {key, none} when none in [nil, ""] and key != "kind" <- known, do: {key, none}
      Map.merge(ours, Map.new(unknown))
    end
  end

  defp sent(provider, context, response, expected) do
    pending = Context.pending_tool_calls(context)

    context =
      cond do
        pending != [] ->
          Context.add_tool_results(context, Enum.map(pending, &{&1.id, result(&1)}))

        Response.finish_reason(response) == :pause ->
          context

        true ->
          Context.add_user_message(context, "Go on")
      end

    opts = [model: "m"] ++ dialect(provider, expected)

    body =
      context
      |> Context.encode_request!(provider, opts)
      |> IO.iodata_to_binary()
      |> JSON.decode!()

    calls = context |> Context.to_messages() |> Enum.flat_map(&(&1[:tool_calls] || []))
    answer(provider, body, MapSet.new(calls, & &1.id))
  end

  # A server that sent a field of reasoning takes it back under the dialect that has it.
  defp dialect(:openai_chat, [%{"reasoning_details" => [_ | _]}]), do: [dialect: :openrouter]

  defp dialect(:openai_chat, [%{"reasoning_content" => text}]) when is_binary(text),
    do: [dialect: :deepseek]

  defp dialect(:openai_chat, [%{"reasoning" => text}]) when is_binary(text), do: [dialect: :vllm]
  defp dialect(_provider, _sent), do: []

  defp result(%{kind: :mcp_approval}), do: {:ok, true}

  defp result(%{kind: :computer}),
    do: {:ok, [%{type: :image, media_type: "image/png", data: "AA=="}]}

  defp result(%{kind: :tool_search}), do: {:ok, []}
  defp result(_call), do: {:ok, "ok"}

  # The answer's part of the next request, without the results that were added.
  defp answer(provider, %{"messages" => messages}, _ids)
       when provider in [:anthropic, :bedrock] do
    for %{"role" => "assistant", "content" => content} <- messages,
        block <-
          if(is_list(content), do: content, else: [%{"type" => "text", "text" => content}]),
        do: block
  end

  defp answer(_provider, %{"messages" => messages}, _ids),
    do: Enum.filter(messages, &(&1["role"] == "assistant"))

  defp answer(:gemini, %{"contents" => contents}, _ids),
    do: for(%{"role" => "model", "parts" => parts} <- contents, part <- parts, do: part)

  defp answer(:openai_responses, %{"input" => input}, ids) do
    Enum.reject(input, fn item ->
      item["role"] == "user" or
        (String.ends_with?(item["type"] || "", ["_output", "_response"]) and
           (item["call_id"] || item["approval_request_id"] || item["id"]) in ids)
    end)
  end

  # One form for what means the same: absent, null and an empty list; a text and a list of one text.

  defp canonical(:openai_responses, items) do
    items
    |> Enum.map(fn item ->
      case plain(item) do
        %{"role" => _, "content" => text} = item when is_binary(text) ->
          Map.merge(item, %{
            "type" => "message",
            "content" => [%{"type" => "output_text", "text" => text}]
          })

        item ->
          Map.reject(item, &(&1 == {"status", "completed"}))
      end
    end)
    |> paired()
    |> followed()
  end

  defp canonical(:mistral, [%{"content" => [_ | _] = chunks} = message]),
    do: canonical(:ollama, [%{message | "content" => chunks(chunks)}])

  defp canonical(provider, messages) when provider in [:openai_chat, :mistral, :ollama],
    do: Enum.map(messages, &(&1 |> plain() |> said() |> Map.put_new("role", "assistant")))

  defp canonical(:gemini, parts), do: parts |> Enum.map(&plain/1) |> joined()

  # Anthropic and Bedrock refuse texts that are blank.
  defp canonical(_provider, parts),
    do: parts |> Enum.map(&plain/1) |> Enum.reject(&blank?/1) |> paired()

  # OpenAI refuses reasoning that no item follows, and an item without a word is not sent.
  defp followed(items) do
    items
    |> Enum.reject(&match?(%{"type" => "message", "content" => [%{"text" => ""}]}, &1))
    |> Enum.reverse()
    |> Enum.drop_while(&(&1["type"] == "reasoning"))
    |> Enum.reverse()
  end

  defp blank?(%{"text" => text}), do: String.trim(text) == ""
  defp blank?(_part), do: false

  # Mistral's stream has a chunk of thinking for each token.
  defp chunks(chunks) do
    chunks
    |> Enum.map(fn
      %{"type" => "thinking", "thinking" => [_ | _] = texts} = chunk ->
        %{chunk | "thinking" => chunks(texts)}

      chunk ->
        chunk
    end)
    |> Enum.reduce([], fn
      %{"type" => "text", "text" => more}, [%{"type" => "text", "text" => text} = last | rest] ->
        [%{last | "text" => text <> more} | rest]

      chunk, chunks ->
        [chunk | chunks]
    end)
    |> Enum.reverse()
  end

  # As join_gemini in expect.py: a text is one, however it was cut.
  defp joined(parts) do
    parts
    |> Enum.reduce([], fn
      %{"text" => more} = part, [%{"text" => text} = last | rest]
      when not is_map_key(last, "thoughtSignature") ->
        if part["thought"] == last["thought"],
          do: [Map.merge(last, %{part | "text" => text <> more}) | rest],
          else: [part, last | rest]

      part, parts ->
        [part | parts]
    end)
    |> Enum.reject(&(&1 == %{"text" => ""}))
    |> Enum.reverse()
  end

  defp plain(%{} = map) do
    for {key, value} <- map, value not in [nil, []], into: %{} do
      cond do
        key in ["input", "args", "response"] -> {key, value}
        key == "arguments" -> {key, arguments(value)}
        true -> {key, plain(value)}
      end
    end
  end

  defp plain(list) when is_list(list), do: Enum.map(list, &plain/1)
  defp plain(other), do: other

  defp arguments(text) when is_binary(text) do
    case JSON.decode(text) do
      {:ok, value} when value != nil -> value
      _ when text in ["", "null"] -> %{}
      _ -> text
    end
  end

  defp arguments(value), do: value

  # Some servers write each field that a message may have, and leave it empty.
  defp said(%{} = map) do
    for {key, value} <- map,
        value = {if(key == "arguments", do: value, else: said(value))},
        value not in [{""}, {0}, {%{}}, {%{"arguments" => %{}}}] or key == "arguments",
        into: %{},
        do: {key, elem(value, 0)}
  end

  defp said(list) when is_list(list), do: Enum.map(list, &said/1)
  defp said(other), do: other

  # A result of the provider's own tool whose call is in an answer before this one is not sent without it.
  defp paired(parts) do
    {results, others} = Enum.split_with(parts, &result?/1)
    ids = for part <- others, key <- ["id", "call_id"], id = part[key], into: MapSet.new(), do: id
    alone = Enum.reject(results, &((&1["tool_use_id"] || &1["call_id"]) in ids))
    parts -- alone
  end

  defp result?(part),
    do: String.ends_with?(part["type"] || "", ["_tool_result", "program_output"])
end
