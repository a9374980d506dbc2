defmodule AshAgent.Runtime.EnhancerTest do
  # Enhancers within the model's function of a run.
  use ExUnit.Case, async: true

  alias AshAgent.Context
  alias AshAgent.Context.Enhancer.{Budget, Memory, Redact}

  defp turns(count, context \\ Context.new("Begin")) do
    Enum.reduce(1..count, context, fn number, context ->
      context
      |> Context.add_assistant_message(String.duplicate("word ", 100))
      |> Context.add_user_message("Turn #{number}")
    end)
  end

  test "holds for each request, though reports are about what was sent" do
    me = self()

    llm = fn context ->
      {:ok, context, _report} = Context.enhance(context, [{Budget, budget: 1_000}])
      sent = Context.estimate_token_count(context)
      send(me, {:sent, sent})
      {:ok, %{content: "ok", usage: %{input_tokens: sent, output_tokens: 1}}}
    end

    for _turn <- 1..3, reduce: turns(20) do
      context ->
        {:ok, result} = AshAgent.Runtime.run(context, llm: llm)
        assert_received {:sent, sent} when sent <= 1_000
        Context.add_user_message(result.context, "Go on")
    end
  end

  test "the model's function may enhance what it is asked" do
    enhancers = [{Redact, patterns: [:email]}, {Memory, profile: fn _ -> "A pilot." end}]
    script = AshAgent.LLM.Scripted.new(["Hello!"])

    llm = fn context, opts ->
      with {:ok, context, _report} <- Context.enhance(context, enhancers, needs: [:profile]),
           do: AshAgent.LLM.chat(script, context, opts)
    end

    {:ok, result} = "I am a@b.com" |> Context.new() |> AshAgent.Runtime.run(llm: llm)
    assert [%{context: seen}] = AshAgent.LLM.Scripted.requests(script)
    assert [%{role: :system}, %{content: "I am [redacted]"}] = Context.to_messages(seen)

    assert [%{content: "I am a@b.com"}, %{content: "Hello!"}] =
             Context.to_messages(result.context)

    failing = fn context, opts ->
      with {:ok, context, _} <- Context.enhance(context, [fn _, _ -> {:error, :down} end]),
           do: AshAgent.LLM.chat(script, context, opts)
    end

    assert {:error, %AshAgent.Runtime.Error{}} =
             AshAgent.Runtime.run(Context.new("Hi"), llm: failing)
  end
end
