defmodule AshAgent.Integration.PeerBodies do
  @moduledoc false

  # The bodies that other libraries send, and the differences between theirs and ours.

  @compile {:no_warn_undefined,
            [
              Jason,
              LangChain.ChatModels.ChatAnthropic,
              LangChain.ChatModels.ChatGoogleAI,
              LangChain.ChatModels.ChatOpenAI,
              LangChain.ChatModels.ChatOpenAIResponses,
              ReqLLM
            ]}

  @models %{
    anthropic: %{provider: :anthropic, id: "claude-sonnet-4-5"},
    openai_chat: %{provider: :groq, id: "some-model"},
    openai_responses: %{
      provider: :openai,
      id: "gpt-4o-mini",
      extra: %{wire: %{protocol: "openai_responses"}}
    },
    gemini: %{provider: :google, id: "gemini-2.5-flash"}
  }

  @doc "The body that ReqLLM sends: the request goes no further than its adapter."
  def req_llm(provider, context) do
    adapter = fn request -> throw({__MODULE__, request.body}) end
    model = ReqLLM.model!(@models[provider])
    ReqLLM.generate_text(model, context, api_key: "key", req_http_options: [adapter: adapter])
  catch
    {__MODULE__, body} -> body |> IO.iodata_to_binary() |> Jason.decode!()
  end

  @doc "The body that LangChain sends."
  def langchain(provider, messages) do
    module =
      Map.fetch!(
        %{
          anthropic: LangChain.ChatModels.ChatAnthropic,
          openai_chat: LangChain.ChatModels.ChatOpenAI,
          openai_responses: LangChain.ChatModels.ChatOpenAIResponses,
          gemini: LangChain.ChatModels.ChatGoogleAI
        },
        provider
      )

    %{model: "some-model"}
    |> module.new!()
    |> module.for_api(messages, [])
    |> Jason.encode!()
    |> Jason.decode!()
  end

  @fields %{
    anthropic: ["system", "messages"],
    openai_chat: ["messages"],
    openai_responses: ["instructions", "input"],
    gemini: ["systemInstruction", "system_instruction", "contents"]
  }

  @doc """
  The conversation of a body in one form for both: what stands here are all differences, each with its reason.
  """
  def normal(library, provider, whose, body),
    do: body |> Map.take(@fields[provider]) |> form(provider) |> rule(library, provider, whose)

  ## Two ways to say the same

  # A text alone, and a list of one text.
  defp form(body, :anthropic) do
    said = &update(&1, "content", fn said -> texts(said, "text") end)

    body
    |> Map.update("system", nil, &texts(&1, "text"))
    |> each("messages", fn message -> message |> said.() |> each("content", said) end)
  end

  # No content, and an empty text.
  defp form(body, :openai_chat) do
    each(body, "messages", fn message ->
      Map.update(message, "content", [], &texts(&1 || "", "text"))
    end)
  end

  # The system prompt in its own field, and as the first item; items with and without their default type.
  defp form(body, :openai_responses) do
    {prompt, body} = Map.pop(body, "instructions")
    prompt = if prompt, do: [%{"role" => "system", "content" => prompt}], else: []

    body
    |> Map.update!("input", &(prompt ++ &1))
    |> each("input", fn item ->
      kind = if item["role"] == "assistant", do: "output_text", else: "input_text"

      item
      |> update("content", &texts(&1, kind))
      |> Map.reject(&(&1 == {"type", "message"}))
    end)
  end

  # Google reads both spellings of names.
  defp form(body, :gemini) do
    part = fn
      %{"inline_data" => %{"mime_type" => type, "data" => data}} ->
        %{"inlineData" => %{"mimeType" => type, "data" => data}}

      part ->
        part
    end

    case Map.pop(body, "system_instruction") do
      {nil, body} -> body
      {prompt, body} -> Map.put(body, "systemInstruction", prompt)
    end
    |> each("contents", &each(&1, "parts", part))
  end

  ## Differences

  # They have no place for a file's name, which is optional.
  defp rule(body, library, :anthropic, :ours) do
    each_block(body, fn block ->
      block = if block["type"] == "document", do: Map.delete(block, "title"), else: block
      # ReqLLM 1.9 does not tell Anthropic which results are errors; 1.16 does.
      if library == :req_llm and old?(), do: Map.delete(block, "is_error"), else: block
    end)
  end

  # The default.
  defp rule(body, :langchain, :anthropic, :theirs),
    do: each_block(body, &Map.reject(&1, fn field -> field == {"is_error", false} end))

  # The types of tool messages have neither a name nor metadata.
  defp rule(body, :req_llm, :openai_chat, :theirs),
    do: each(body, "messages", &Map.drop(&1, ["name", "metadata"]))

  # ReqLLM 1.9 leaves out what the model said beside its calls.
  defp rule(body, :req_llm, :openai_responses, :ours) do
    body = without(body, "detail")
    if old?(), do: Map.update!(body, "input", &without_text_of_calls/1), else: body
  end

  # Required by OpenAI's types, though its server has a default.
  defp rule(body, :langchain, :openai_responses, :ours), do: without(body, "detail")

  # Optional in requests.
  defp rule(body, :langchain, :openai_responses, :theirs) do
    body
    |> each("input", &Map.delete(&1, "status"))
    |> without("annotations")
  end

  # They send no ids, so that results count by their order. Signatures for calls that have none are needed for the first
  # call of an answer alone.
  defp rule(body, _library, :gemini, :ours) do
    each_part(body, fn
      %{"functionCall" => call} = part ->
        [unsigned(%{part | "functionCall" => Map.delete(call, "id")})]

      %{"functionResponse" => result} ->
        [%{"functionResponse" => Map.delete(result, "id")}]

      part ->
        [part]
    end)
  end

  # Their results have other keys than the documented "output", and with LangChain the role of the model, where Google
  # documents the user's. ReqLLM also sends empty texts, and each result twice: as a text, too.
  defp rule(body, _library, :gemini, :theirs) do
    body
    |> each("contents", fn %{"parts" => parts} = content ->
      results? = Enum.any?(parts, &is_map_key(&1, "functionResponse"))
      role = if results?, do: "user", else: content["role"]
      %{"role" => role, "parts" => Enum.reject(parts, &(results? and is_map_key(&1, "text")))}
    end)
    |> each_part(fn
      %{"text" => ""} ->
        []

      %{"functionCall" => _call} = part ->
        [unsigned(part)]

      %{"functionResponse" => %{"name" => name, "response" => %{"content" => said}}} ->
        said = if is_map(said), do: said["result"], else: said
        [%{"functionResponse" => %{"name" => name, "response" => %{"output" => said}}}]

      part ->
        [part]
    end)
  end

  defp rule(body, _library, _provider, _whose), do: body

  defp old?, do: :req_llm |> Application.spec(:vsn) |> to_string() |> Version.match?("< 1.16.0")

  # "skip_thought_signature_validator" in base64.
  @stand_in "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="

  defp unsigned(part), do: Map.reject(part, &(&1 == {"thoughtSignature", @stand_in}))

  defp without(body, key) do
    each(body, "input", fn
      %{"content" => parts} = item ->
        %{item | "content" => Enum.map(parts, &Map.delete(&1, key))}

      item ->
        item
    end)
  end

  defp without_text_of_calls([
         %{"role" => "assistant"},
         %{"type" => "function_call"} = call | rest
       ]),
       do: without_text_of_calls([call | rest])

  defp without_text_of_calls([item | rest]), do: [item | without_text_of_calls(rest)]
  defp without_text_of_calls([]), do: []

  ## Walking a body

  defp texts("", _kind), do: []
  defp texts(text, kind) when is_binary(text), do: [%{"type" => kind, "text" => text}]
  defp texts(parts, _kind), do: parts

  defp update(map, key, fun),
    do: if(is_map_key(map, key), do: Map.update!(map, key, fun), else: map)

  defp each(map, key, fun), do: Map.update!(map, key, &Enum.map(&1, fun))

  defp each_block(body, fun), do: each(body, "messages", &each(&1, "content", fun))

  defp each_part(body, fun),
    do:
      each(body, "contents", &Map.update!(&1, "parts", fn parts -> Enum.flat_map(parts, fun) end))
end
