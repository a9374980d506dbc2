defmodule AshAgent.Integration.PeerConversations do
  @moduledoc false

  # Conversations as plain data, and each library's own structs of them, made with its own constructors.

  import AshAgent.TestSupport.Generators, only: [between: 2, chance: 1, many: 2, one_of: 1]

  @compile {:no_warn_undefined,
            [
              Jason,
              Jido.AI.Context,
              LangChain.Message,
              LangChain.Message.ContentPart,
              LangChain.Message.ToolCall,
              LangChain.Message.ToolResult,
              ReqLLM.Context,
              ReqLLM.Message.ContentPart,
              ReqLLM.ToolCall
            ]}

  @doc """
  Turns of a conversation: what the user says, rounds of calls with their results, and an answer.

  `traits` are `:images`, `:files`, `:thinking` and `:errors`, which not every provider takes.
  """
  def turns(size, traits), do: Enum.map(1..between(1, max(div(size, 4), 1)), &turn(&1, traits))

  defp turn(number, traits) do
    %{
      asked: [{:text, words()} | many(between(0, 2), fn -> part(traits) end)],
      rounds: for(round <- 1..2, chance(50), do: round("#{number}#{round}", traits)),
      thought: thought(traits),
      answer: words()
    }
  end

  defp round(id, traits) do
    calls =
      for n <- 1..between(1, 3) do
        %{
          id: "call_#{id}#{n}",
          name: one_of(~w(look save_it)),
          arguments: one_of([%{}, %{"at" => words()}, %{"n" => 1, "deep" => [%{"x" => nil}]}]),
          result:
            if(:errors in traits and chance(30), do: {:error, words()}, else: {:ok, words()})
        }
      end

    %{thought: thought(traits), said: one_of([nil, words()]), calls: calls}
  end

  defp thought(traits) do
    if :thinking in traits and chance(50),
      do: {words(), Base.encode64("sig#{between(1, 99)}")}
  end

  defp part(traits) do
    one_of(
      [{:text, words()}] ++
        if(:images in traits, do: [{:image, <<between(0, 255), 80>>, "image/png"}], else: []) ++
        if(:urls in traits, do: [{:image_url, "https://a.b/c.png"}], else: []) ++
        if(:files in traits, do: [{:file, "PDF", "a.pdf", "application/pdf"}], else: [])
    )
  end

  defp words,
    do: Enum.join(["x" | many(between(0, 4), fn -> one_of(~w(a\sb " é {} 100% 猫 \n<x>)) end)])

  ## ReqLLM

  @doc "The conversation as a `ReqLLM.Context`. `thinking` is the provider of the reasoning, and its form."
  def req_llm(turns, thinking \\ :anthropic) do
    ReqLLM.Context.new([
      ReqLLM.Context.system("Be brief.") | Enum.flat_map(turns, &req_turn(&1, thinking))
    ])
  end

  defp req_turn(turn, thinking) do
    asked = ReqLLM.Context.user(Enum.map(turn.asked, &req_part/1))
    answer = turn.answer |> ReqLLM.Context.assistant() |> reasoned(turn.thought, thinking)
    [asked | Enum.flat_map(turn.rounds, &req_round(&1, thinking))] ++ [answer]
  end

  defp req_round(round, thinking) do
    calls =
      for call <- round.calls,
          do: ReqLLM.ToolCall.new(call.id, call.name, Jason.encode!(call.arguments))

    said = ReqLLM.Context.assistant(round.said || "", tool_calls: calls)
    results = Enum.map(round.calls, &req_result/1)
    [reasoned(said, round.thought, thinking) | results]
  end

  defp req_result(%{result: {:ok, text}} = call),
    do: ReqLLM.Context.tool_result(call.id, call.name, text)

  defp req_result(%{result: {:error, text}} = call) do
    result = ReqLLM.Context.tool_result(call.id, call.name, text)
    %{result | metadata: %{is_error: true}}
  end

  defp req_part({:text, text}), do: ReqLLM.Message.ContentPart.text(text)
  defp req_part({:image, data, type}), do: ReqLLM.Message.ContentPart.image(data, type)
  defp req_part({:image_url, url}), do: ReqLLM.Message.ContentPart.image_url(url)

  defp req_part({:file, data, name, type}),
    do: ReqLLM.Message.ContentPart.file(data, name, type)

  # As the library's own providers make it.
  defp reasoned(message, nil, _thinking), do: message

  defp reasoned(message, {text, signature}, provider) do
    {format, data} =
      case provider do
        :anthropic -> {"anthropic-thinking-v1", %{"type" => "thinking"}}
        :openai -> {"openai-responses-v1", %{"id" => "rs_" <> signature, "type" => "reasoning"}}
        :google -> {"google-gemini-v1", %{"thought" => true}}
      end

    detail =
      struct!(ReqLLM.Message.ReasoningDetails,
        text: text,
        signature: signature,
        encrypted?: true,
        provider: provider,
        format: format,
        index: 0,
        provider_data: data
      )

    %{message | reasoning_details: [detail]}
  end

  ## LangChain

  @doc "The conversation as messages of LangChain."
  def langchain(turns),
    do: [LangChain.Message.new_system!("Be brief.") | Enum.flat_map(turns, &chain_turn/1)]

  defp chain_turn(turn) do
    asked = LangChain.Message.new_user!(Enum.map(turn.asked, &chain_part/1))
    answer = LangChain.Message.new_assistant!(%{content: chain_said(turn.thought, turn.answer)})
    [asked | Enum.flat_map(turn.rounds, &chain_round/1)] ++ [answer]
  end

  defp chain_round(round) do
    calls =
      for call <- round.calls do
        LangChain.Message.ToolCall.new!(%{
          call_id: call.id,
          name: call.name,
          arguments: call.arguments,
          status: :complete
        })
      end

    results =
      for %{result: {status, text}} = call <- round.calls do
        LangChain.Message.ToolResult.new!(%{
          tool_call_id: call.id,
          name: call.name,
          content: text,
          is_error: status == :error
        })
      end

    content = chain_said(round.thought, round.said)

    [
      LangChain.Message.new_assistant!(%{content: content, tool_calls: calls}),
      LangChain.Message.new_tool_result!(%{tool_results: results})
    ]
  end

  defp chain_said(nil, text), do: text

  defp chain_said({thought, signature}, text) do
    thinking = LangChain.Message.ContentPart.thinking!(thought, signature: signature)
    [thinking | if(text, do: [LangChain.Message.ContentPart.text!(text)], else: [])]
  end

  defp chain_part({:text, text}), do: LangChain.Message.ContentPart.text!(text)

  defp chain_part({:image, data, "image/png"}),
    do: LangChain.Message.ContentPart.image!(Base.encode64(data), media: :png)

  defp chain_part({:image_url, url}), do: LangChain.Message.ContentPart.image_url!(url)

  defp chain_part({:file, data, name, "application/pdf"}) do
    LangChain.Message.ContentPart.file!(Base.encode64(data), media: :pdf, filename: name)
  end

  ## Jido AI

  @doc "The conversation as a `Jido.AI.Context`."
  def jido(turns) do
    Enum.reduce(turns, Jido.AI.Context.new(system_prompt: "Be brief."), fn turn, context ->
      context = Jido.AI.Context.append_user(context, jido_asked(turn.asked), refs: %{at: 1})

      turn.rounds
      |> Enum.reduce(context, &jido_round/2)
      |> Jido.AI.Context.append_assistant(turn.answer, nil, thinking: jido_thought(turn.thought))
    end)
  end

  defp jido_asked([{:text, text}]), do: text
  defp jido_asked(parts), do: Enum.map(parts, &req_part/1)

  defp jido_thought(nil), do: nil
  defp jido_thought({text, _signature}), do: text

  defp jido_round(round, context) do
    calls = Enum.map(round.calls, &Map.take(&1, [:id, :name, :arguments]))

    context =
      Jido.AI.Context.append_assistant(context, round.said, calls,
        thinking: jido_thought(round.thought)
      )

    Enum.reduce(round.calls, context, fn %{result: {_status, text}} = call, context ->
      Jido.AI.Context.append_tool_result(context, call.id, call.name, text)
    end)
  end
end
