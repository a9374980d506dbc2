defmodule AshAgent.Runtime.EnhancerTest do
  # Enhancers within the model's function of a run.
  use ExUnit.Case, async: true

  alias AshAgent.Context
  alias AshAgent.Context.Enhancer.{Memory, Redact}

  test "the model's function may enhance what it is asked" do
    enhancers = [{Redact, patterns: [:email]}, {Memory, profile: fn _ -> "A pilot." end}]
    script = AshAgent.LLM.Scripted.new(["Hello!"])

    llm = fn context, opts ->
      with {:ok, context, _report} <- Context.Enhancer.run(context, enhancers, needs: [:profile]),
           do: AshAgent.LLM.chat(script, context, opts)
    end

    {:ok, result} = "I am a@b.com" |> Context.new() |> AshAgent.Runtime.run(llm: llm)
    assert [%{context: seen}] = AshAgent.LLM.Scripted.requests(script)
    assert [%{role: :system}, %{content: "I am [redacted]"}] = Context.to_messages(seen)

    assert [%{content: "I am a@b.com"}, %{content: "Hello!"}] =
             Context.to_messages(result.context)

    failing = fn context, opts ->
      with {:ok, context, _} <- Context.Enhancer.run(context, [fn _, _ -> {:error, :down} end]),
           do: AshAgent.LLM.chat(script, context, opts)
    end

    assert {:error, %AshAgent.Runtime.Error{}} =
             AshAgent.Runtime.run(Context.new("Hi"), llm: failing)
  end
end
