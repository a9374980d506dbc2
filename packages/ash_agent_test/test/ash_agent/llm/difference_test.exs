defmodule AshAgent.LLM.DifferenceTest do
  # Random conversations with one thing changed, as the clients render them for each provider: the change is found and named.
  use ExUnit.Case, async: true

  alias AshAgent.Context
  alias AshAgent.LLM.Difference
  alias AshAgent.TestSupport.Clients

  doctest AshAgent.LLM.Difference

  @providers [:anthropic, :openai_chat, :openai_responses, :gemini, :bedrock, :ollama, :mistral]
  @clients Clients.modules()

  # A conversation as data: a system prompt, turns of a question, calls with results and an answer, tools, and options.
  defp random_conversation do
    %{
      system: "You are helper #{:rand.uniform(100)}.",
      turns: for(turn <- 1..(1 + :rand.uniform(4)), do: random_turn(turn)),
      tools: for(n <- 1..(1 + :rand.uniform(3)), do: random_tool(n)),
      options: %{"temperature" => :rand.uniform(10), "top_p" => :rand.uniform(10)}
    }
  end

  defp random_turn(turn) do
    calls =
      for n <- 1..:rand.uniform(3) do
        arguments = %{"q" => word(), "n" => :rand.uniform(9)}
        %{id: "call_#{turn}_#{n}", name: "tool_1", arguments: arguments, result: word()}
      end

    %{question: word(), calls: calls, answer: word()}
  end

  defp random_tool(n) do
    properties =
      for p <- 1..(1 + :rand.uniform(3)),
          into: %{},
          do: {"p#{p}", %{"type" => "string", "description" => word()}}

    parameters = %{"type" => "object", "properties" => properties}
    %{name: "tool_#{n}", description: word(), parameters: parameters}
  end

  defp word,
    do:
      Enum.map_join(1..6, " ", fn _ -> Enum.random(~w(Oslo Rom Grüße rain sun tea 日本 a b c d)) end) <>
        " #{:rand.uniform(1_000_000)}"

  defp context(conversation) do
    Enum.reduce(
      conversation.turns,
      Context.new("Start", system_prompt: conversation.system),
      fn turn, context ->
        context = Context.add_user_message(context, turn.question)

        calls = Enum.map(turn.calls, &Map.delete(&1, :result))
        context = Context.add_assistant_message(context, nil, calls)
        results = for call <- turn.calls, do: {call.id, {:ok, call.result}}
        context |> Context.add_tool_results(results) |> Context.add_assistant_message(turn.answer)
      end
    )
    |> Context.add_user_message("Go on")
  end

  defp render(conversation, provider) do
    opts = [model: "m", max_tokens: 100]
    %{body: body} = @clients[provider].call(opts, conversation.tools, :chat)
    own = [body: Map.merge(body, conversation.options)]
    {:ok, json} = conversation |> context() |> Context.encode_request(provider, own)
    json |> IO.iodata_to_binary() |> Context.JSON.decode!()
  end

  # Each change, with what its difference has to say.
  defp change(conversation) do
    turn = :rand.uniform(length(conversation.turns)) - 1
    at = [:turns, Access.at(turn)]
    call = :rand.uniform(length(get_in(conversation, at ++ [:calls]))) - 1
    id = get_in(conversation, at ++ [:calls, Access.at(call), :id])
    tool = :rand.uniform(length(conversation.tools)) - 1
    name = "tool_#{tool + 1}"
    properties = [:tools, Access.at(tool), :parameters, "properties"]
    alter = &change_text/1

    Enum.random([
      {:system, nil, "the system prompt", fn -> update_in(conversation, [:system], alter) end},
      {:message, nil, "text", fn -> update_in(conversation, at ++ [:question], alter) end},
      {:message, nil, "text", fn -> update_in(conversation, at ++ [:answer], alter) end},
      {:message, id, "tool result of",
       fn -> update_in(conversation, at ++ [:calls, Access.at(call), :result], alter) end},
      {:message, id, "call",
       fn -> update_in(conversation, at ++ [:calls, Access.at(call), :arguments, "q"], alter) end},
      {:field, "temperature", "the field temperature",
       fn -> update_in(conversation, [:options, "temperature"], &(&1 + 1)) end},
      {:field, "seed", "the field seed", fn -> put_in(conversation, [:options, "seed"], 1) end},
      {:tools, name, "the tool `#{name}`, description",
       fn -> update_in(conversation, [:tools, Access.at(tool), :description], alter) end},
      {:tools, name, "the tool `#{name}`, parameter `p1`, description",
       fn -> update_in(conversation, properties ++ ["p1", "description"], alter) end},
      {:tools, name, "the tool `#{name}` has a new parameter `x`",
       fn -> put_in(conversation, properties ++ ["x"], %{"type" => "string"}) end},
      {:tools, name, "the tool `#{name}` is gone",
       fn -> update_in(conversation, [:tools], &List.delete_at(&1, tool)) end}
    ])
  end

  # A letter is put in, left out or replaced.
  defp change_text(text) do
    {left, right} = String.split_at(text, :rand.uniform(String.length(text)) - 1)

    Enum.random([
      left <> "X" <> right,
      left <> String.slice(right, 1..-1//1) <> "Y",
      left <> "Z" <> String.slice(right, 1..-1//1)
    ])
  end

  defp messages(body), do: body["messages"] || body["contents"] || body["input"]

  # Counted without what the code under test counts with.
  defp first_changed(was, now) do
    system? = &(is_map(&1) and &1["role"] in ["system", "developer"])
    was = was |> messages() |> Enum.reject(system?)
    now = now |> messages() |> Enum.reject(system?)
    Enum.find(1..length(was), &(Enum.at(was, &1 - 1) != Enum.at(now, &1 - 1)))
  end

  test "1,000 random changes are found and named, each at its place, and nothing where nothing changed" do
    for seed <- 1..1_000 do
      :rand.seed(:exsss, {seed, 33, 2})
      provider = Enum.random(@providers)
      conversation = random_conversation()
      was = render(conversation, provider)
      assert Difference.between(was, render(conversation, provider)) == []

      {cause, name, words, changed} = change(conversation)
      now = render(changed.(), provider)
      assert [difference] = Difference.between(was, now), "#{provider}, seed #{seed}"

      context =
        "#{provider}, seed #{seed}: #{difference}, expected #{inspect({cause, name, words})}"

      assert difference.cause == cause, context
      assert difference.where =~ words, context

      if cause == :message do
        assert difference.message == first_changed(was, now), context
        # Ollama has names instead of ids, and Mistral ids of its own.
        if name && provider not in [:ollama, :mistral],
          do: assert(difference.where =~ name or difference.name == name, context)
      else
        assert difference.name == name, context
      end
    end
  end

  test "the excerpt begins shortly before the first difference, also within a letter" do
    text = String.duplicate("ä", 100)
    body = &%{"messages" => [%{"role" => "user", "content" => &1}]}
    [difference] = Difference.between(body.(text <> "ö" <> text), body.(text <> "ü" <> text))

    assert difference.was ==
             "…" <> String.duplicate("ä", 20) <> "ö" <> String.duplicate("ä", 59) <> "…"

    assert difference.is =~ "ü"
  end

  test "a message that was put between others or taken away is one difference" do
    body = fn words ->
      %{"messages" => for(word <- words, do: %{"role" => "user", "content" => word})}
    end

    assert [added] = Difference.between(body.(~w(a b c)), body.(~w(a x b c)))
    assert to_string(added) == ~s(message 2 (user\) is new: is "x", was not there)
    assert [gone] = Difference.between(body.(~w(a b c)), body.(~w(a c)))
    assert to_string(gone) == ~s(message 2 (user\) is gone: was "b", is not there)

    assert [%{where: "message 4 (user) is new"}] =
             Difference.between(body.(~w(a b c)), body.(~w(a b c d)))
  end

  test "cache marks, thinking and choices of tools are named" do
    message = %{"role" => "user", "content" => [%{"type" => "text", "text" => "a"}]}
    marked = put_in(message, ["content", Access.at(0), "cache_control"], %{"type" => "ephemeral"})

    assert [%{where: "message 1 (user), cache mark"}] =
             Difference.between(%{"messages" => [message]}, %{"messages" => [marked]})

    thought = &[%{"type" => "thinking", "thinking" => &1}]
    thinking = &%{"messages" => [%{"role" => "assistant", "content" => thought.(&1)}]}

    assert [%{where: "message 1 (assistant), thinking"}] =
             Difference.between(thinking.("a"), thinking.("b"))

    choice = &%{"toolConfig" => %{"tools" => [], "toolChoice" => %{&1 => %{}}}}

    assert [%{cause: :tools, where: "the tools, toolConfig.toolChoice." <> _}] =
             Difference.between(choice.("any"), choice.("auto"))
  end
end
