defmodule AshAgent.HistoryGuideTest do
  use ExUnit.Case, async: true

  alias AshAgent.Context
  alias AshAgent.Context.Import
  alias AshAgent.TestSupport.Guide

  test "the examples of the guide give what they say" do
    assert Guide.run(File.read!("guides/history.md")) >= 7
  end

  test "what a context's own messages say goes through an import: hints, too" do
    parts = [
      %{type: :text, text: "a", cache: true},
      %{type: :text, text: "b", cache: %{ttl: "1h"}},
      %{type: :text, text: "c"}
    ]

    context = Context.new(parts)
    messages = Context.to_messages(context)
    assert messages |> Import.from_messages!() |> Context.to_messages() == messages
  end

  test "the names under which providers' fields are kept are atoms of this VM" do
    facts = File.read!("native/ash_agent_context_core/src/provider/openai_responses/facts.rs")

    [known] =
      Regex.run(
        ~r/rustler::atoms! \{.*?\n    \}/s,
        File.read!("native/ash_agent_context_nif/src/lib.rs")
      )

    kept =
      for [list] <- Regex.scan(~r/kept: &\[(.*?)\]/, facts, capture: :all_but_first),
          [name] <- Regex.scan(~r/\w+/, list),
          uniq: true,
          do: name

    assert length(kept) > 5
    for name <- kept, do: assert(known =~ ~r/[ "]#{name}[",]/, name)
  end
end
