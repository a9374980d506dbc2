defmodule AshAgent.TestSupport.RequestCheckerTest do
  # The checkers judge the bodies of other tests. What they must find are faults of a good body of each provider, in
  # `test/fixtures/request_faults.json`: a row says in words what is wrong, the rule that finds it, and the edits that make it.
  use ExUnit.Case, async: true

  alias AshAgent.TestSupport.RequestChecker

  @faults "test/fixtures/request_faults.json" |> File.read!() |> AshAgent.Context.JSON.decode!()

  # Bodies of one provider, which nobody refuses either.
  @small %{
    anthropic: %{"messages" => [%{"role" => "user", "content" => "hi"}]},
    openai_chat: %{"messages" => [%{"role" => "user", "content" => "hi"}]},
    openai_responses: %{"input" => "hi"},
    gemini: %{"contents" => [%{"role" => "user", "parts" => [%{"text" => "hi"}]}]},
    bedrock: %{
      "messages" => [%{"role" => "user", "content" => [%{"text" => "hi"}]}],
      "system" => []
    },
    ollama: %{"messages" => [%{"role" => "user", "content" => "hi"}]},
    mistral: %{"messages" => [%{"role" => "user", "content" => "hi"}]}
  }

  defp faults(provider), do: @faults[Atom.to_string(provider)]
  defp good(provider), do: faults(provider)["good"]

  defp put(body, path, value), do: edit(body, path, fn _ -> value end)
  defp insert(body, path, index, value), do: edit(body, path, &List.insert_at(&1, index, value))
  defp append(body, path, value), do: edit(body, path, &(&1 ++ [value]))

  defp drop(body, path) do
    {path, [key]} = Enum.split(path, -1)

    edit(body, path, fn
      list when is_list(list) -> List.delete_at(list, key)
      map -> Map.delete(map, key)
    end)
  end

  defp swap(body, path, a, b) do
    edit(body, path, fn list ->
      list |> List.replace_at(a, Enum.at(list, b)) |> List.replace_at(b, Enum.at(list, a))
    end)
  end

  defp edit(value, [], fun), do: fun.(value)

  defp edit(list, [index | path], fun) when is_list(list),
    do: List.update_at(list, index, &edit(&1, path, fun))

  defp edit(map, [key | path], fun), do: Map.put(map, key, edit(map[key], path, fun))

  for provider <- RequestChecker.providers(),
      {%{"fact" => fact}, index} <- Enum.with_index(@faults["#{provider}"]["faults"]) do
    test "#{provider}: finds #{fact}" do
      %{"rule" => rule, "edits" => edits} =
        Enum.at(faults(unquote(provider))["faults"], unquote(index))

      good = good(unquote(provider))

      body =
        Enum.reduce(edits, good, fn
          ["put", path, value], body -> put(body, path, value)
          ["insert", path, index, value], body -> insert(body, path, index, value)
          ["drop", path], body -> drop(body, path)
        end)

      assert body != good
      found = rules(body, unquote(provider), [])
      assert rule in Enum.map(found, &Atom.to_string/1), "no #{rule} in #{inspect(found)}"
    end
  end

  test "finds what is not JSON" do
    for {value, rule} <- [{<<255>>, :invalid_utf8}, {:hello, :not_json}] do
      body = put(good(:anthropic), ["messages", 3, "content"], value)
      assert rule in rules(body, :anthropic, [])
    end
  end

  test "finds nothing in good bodies" do
    for provider <- RequestChecker.providers(),
        body <- [@small[provider], good(provider)],
        do: assert_good(body, provider)
  end

  test "anthropic: finds nothing in other good bodies" do
    good = good(:anthropic)

    # The result of a tool that runs at the same time as the application's comes later, and one of a program as well.
    assert_good(drop(good, ["messages", 4, "content", 2]), :anthropic)
    assert_good(put(good, ["container"], "container_1"), :anthropic)
    answered = append(good, ["messages"], %{"role" => "assistant", "content" => "Done."})
    assert_good(answered, :anthropic)
    assert_good(put(answered, ["messages", 6, "content"], ""), :anthropic)
    # A model declined before the text and the calls of another one.
    fallback = %{"type" => "fallback", "from" => %{"model" => "a"}, "to" => %{"model" => "b"}}
    declined = insert(answered, ["messages", 4, "content"], 3, fallback)
    assert_good(drop(declined, ["messages", 4, "content", 0]), :anthropic, thinking: false)
  end

  test "anthropic: its options" do
    good = good(:anthropic)
    answered = append(good, ["messages"], %{"role" => "assistant", "content" => "Done."})
    no_thinking = drop(good, ["messages", 4, "content", 0])
    system = %{"role" => "system", "content" => "From now on in French."}
    within = [mid_conversation_system: true]

    assert_good(no_thinking, :anthropic, thinking: false)
    bare = Map.delete(no_thinking, "thinking")
    assert [:thinking_missing] = rules(bare, :anthropic, thinking: true)
    assert [:assistant_last] = rules(answered, :anthropic, prefill: false)
    assert_good(append(good, ["messages"], system), :anthropic, within)
    assert [:system_position] = rules(append(answered, ["messages"], system), :anthropic, within)
    assert_good(swap(good, ["messages", 1, "content"], 0, 2), :anthropic, observed: false)
  end

  test "openai_chat: its options" do
    id = String.duplicate("i", 64)

    long =
      good(:openai_chat)
      |> put(["messages", 8, "tool_calls", 0, "id"], id)
      |> put(["messages", 9, "tool_call_id"], id)

    assert_good(long, :openai_chat, max_id_length: 64)
  end

  test "openai_responses: finds nothing in what servers took" do
    user = %{"role" => "user", "content" => "hi"}
    reasoning = &%{"type" => "reasoning", "id" => &1, "summary" => [], "encrypted_content" => "e"}

    said = fn id, text ->
      content = [%{"type" => "output_text", "text" => text, "annotations" => []}]
      message = %{"type" => "message", "role" => "assistant", "content" => content}
      Map.merge(message, %{"id" => id, "status" => "completed"})
    end

    for items <- [
          # OpenAI: a list of parts without an id, and a message behind an image.
          [Map.drop(said.("", "hi"), ["type", "id", "status"])],
          [said.("msg_1", "")],
          # An answer that ends with reasoning.
          [said.("msg_1", "hi"), reasoning.("rs_1")],
          # xAI.
          [reasoning.("rs_1"), reasoning.("tco_1"), reasoning.("rs_1"), said.("msg_1", "hi")],
          # DeepSeek.
          [
            reasoning.("84cf774d-60a1")
            |> Map.delete("encrypted_content")
            |> Map.put("content", [%{"type" => "reasoning_text", "text" => "hm"}]),
            said.("75873264-3611", "hi")
          ]
        ],
        do: assert_good(%{"input" => [user | items] ++ [user]}, :openai_responses)
  end

  test "openai_responses: its options" do
    good = good(:openai_responses)
    bare = drop(good, ["input", 2, "encrypted_content"])
    apart = insert(good, ["input"], 6, %{"role" => "user", "content" => "wait"})
    rest = %{"previous_response_id" => "resp_1", "input" => [Enum.at(good["input"], 6)]}

    assert_good(bare, :openai_responses, store: true)
    assert_good(Map.put(bare, "store", true), :openai_responses)
    assert_good(apart, :openai_responses, adjacent: false)
    assert_good(rest, :openai_responses)
  end

  test "gemini: its options" do
    good = good(:gemini)
    unsigned = drop(good, ["contents", 5, "parts", 1, "thoughtSignature"])
    answer = %{"role" => "model", "parts" => [%{"text" => "Done."}]}

    assert_good(drop(good, ["contents", 7]), :gemini)
    assert_good(unsigned, :gemini, signatures: false)
    assert_good(put(good, ["contents", 7], answer), :gemini, model_last: true)
  end

  test "bedrock: its options" do
    good = good(:bedrock)
    assert_good(good, :bedrock, model: "eu.anthropic.claude-sonnet-4-5-20250929-v1:0")
    assert :status_not_allowed in rules(good, :bedrock, model: "meta.llama3-70b-instruct-v1:0")
    assert [:tool_config_missing] = rules(good, :bedrock, tool_config: true)
    assert_good(Map.put(good, "toolConfig", %{"tools" => []}), :bedrock, tool_config: true)
  end

  test "mistral: a prefix may be last" do
    prefixed = %{"role" => "assistant", "content" => "The answer is ", "prefix" => true}
    assert_good(append(good(:mistral), ["messages"], prefixed), :mistral)
  end

  ## Real bodies

  # Beside the repository where it is developed, absent elsewhere.
  conversations = Path.expand("../../../../shared/conversations", __DIR__)

  for {file, provider} <- [
        {"10-anthropic-thinking-tool.json", :anthropic},
        {"13-openai-chat-agents.json", :openai_chat},
        {"15-gemini-signatures.json", :gemini},
        {"18-bedrock-reasoning.json", :bedrock}
      ],
      path = Path.join(conversations, file),
      File.exists?(path) do
    test "#{provider}: finds nothing in the recorded #{file}" do
      %{"body" => body} = unquote(path) |> File.read!() |> AshAgent.Context.JSON.decode!()
      assert_good(body, unquote(provider))
    end
  end

  session = Path.join(conversations, "07-tau-airline-2-1.json")

  if File.exists?(session) do
    test "openai_chat: finds the tool names and the empty results of the recorded session, nothing else" do
      body = unquote(session) |> File.read!() |> AshAgent.Context.JSON.decode!()

      assert [:blank_text, :unknown_key] =
               body |> rules(:openai_chat, []) |> Enum.uniq() |> Enum.sort()

      messages =
        for message <- body["messages"] do
          case message do
            %{"role" => "tool", "content" => ""} ->
              message |> Map.put("content", "(no output)") |> Map.delete("name")

            %{"role" => "tool"} ->
              Map.delete(message, "name")

            _ ->
              message
          end
        end

      assert_good(%{"messages" => messages}, :openai_chat)
    end
  end

  test "refuses what is no object" do
    for provider <- RequestChecker.providers(), body <- [nil, "hi", [], 1, %{messages: []}] do
      assert [_ | _] = RequestChecker.validate_request(body, provider)
    end
  end

  test "never raises, whatever stands in the place of a value" do
    for provider <- RequestChecker.providers(),
        body = good(provider),
        path <- paths(body),
        value <- [nil, true, 7, "", "x", [], [nil], ["x"], [[]], [%{}], %{}, %{"x" => 1}] do
      assert is_list(RequestChecker.validate_request(put(body, path, value), provider))
    end
  end

  test "formats findings for people" do
    findings = RequestChecker.validate_request(%{"messages" => []}, :anthropic)
    assert RequestChecker.format(findings) =~ "empty_messages at messages: an empty list"
  end

  test "knows its options" do
    assert_raise ArgumentError, fn ->
      RequestChecker.validate_request(%{}, :anthropic, unknown: true)
    end
  end

  defp assert_good(body, provider, opts \\ []) do
    findings = RequestChecker.validate_request(body, provider, opts)
    assert findings == [], RequestChecker.format(findings)
  end

  defp rules(body, provider, opts),
    do: body |> RequestChecker.validate_request(provider, opts) |> Enum.map(& &1.rule)

  defp paths(value) do
    children =
      cond do
        is_map(value) -> Map.to_list(value)
        is_list(value) -> value |> Enum.with_index() |> Enum.map(fn {item, i} -> {i, item} end)
        true -> []
      end

    Enum.flat_map(children, fn {key, child} -> [[key] | Enum.map(paths(child), &[key | &1])] end)
  end
end
