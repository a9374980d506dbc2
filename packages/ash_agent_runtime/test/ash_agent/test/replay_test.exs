defmodule AshAgent.Test.ReplayTest do
  use ExUnit.Case, async: true

  import AshAgent.Test, only: [replay: 2]

  alias AshAgent.{Context, LLM, Runtime}
  alias AshAgent.Test.Server

  defp tools(properties) do
    schema = %{"type" => "object", "properties" => properties}
    run = fn _ -> flunk("a tool was called") end
    [%{name: "look", description: "Looks.", parameters: schema, function: run}]
  end

  # Nobody listens there: a request would fail.
  defp llm(opts \\ []), do: client(Server.refused_url(), opts)

  defp client(url, opts),
    do: LLM.Anthropic.new(Keyword.merge([model: "m", base_url: url], opts))

  setup do
    script = [%{tool_calls: [%{id: "a", name: "look", arguments: %{}}]}, "It rains."]
    server = start_supervised!({Server, script: script})
    looking = for tool <- tools(%{}), do: %{tool | function: fn _ -> {:ok, "rain"} end}
    opts = [llm: client(Server.base_url(server), []), tools: looking]
    {:ok, result} = Runtime.run(Context.new("Weather?", system_prompt: "Be kind."), opts)
    %{context: result.context |> Context.to_snapshot() |> Context.from_snapshot!()}
  end

  test "nothing differs where nothing changed, and nothing is called", %{context: context} do
    assert replay(context, llm: llm(), tools: tools(%{})) == {:same, 2}
    assert replay(context, llm: llm(), tools: tools(%{}), system_prompt: "Be kind.") == {:same, 2}
  end

  test "each change is named with its cause, in every request", %{context: context} do
    city = %{"city" => %{"type" => "string"}}

    for {opts, cause, where} <- [
          {[llm: llm(), tools: tools(city)], :tools,
           "the tool `look` has a new parameter `city`"},
          {[llm: llm(), tools: []], :tools, "the tool `look` is gone"},
          {[llm: llm(model: "n"), tools: tools(%{})], :field, "the field model"},
          {[llm: llm(max_tokens: 7), tools: tools(%{})], :field, "the field max_tokens"},
          {[llm: llm(body: %{temperature: 0}), tools: tools(%{})], :field,
           "the field temperature"},
          {[llm: llm(), tools: tools(%{}), stream: false], :field, "the field stream"},
          {[llm: llm(), tools: tools(%{}), system_prompt: "Be brief."], :system,
           "the system prompt"}
        ] do
      assert {:different, [%{iteration: 1, differences: [difference]}, %{iteration: 2}]} =
               replay(context, opts)

      assert {difference.cause, difference.where} == {cause, where}
    end
  end

  test "a conversation without notes of its requests is not comparable" do
    context = Context.new("Hi") |> Context.add_assistant_message("Hello!")
    assert replay(context, llm: llm()) == :not_comparable
  end
end
