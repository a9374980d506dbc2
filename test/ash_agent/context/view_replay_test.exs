defmodule AshAgent.Context.ViewReplayTest do
  # Operations on views, with what became of each in the core, whose model judges them (`tests/core/view_replay.rs`): the functions
  # of the package do the same to the byte.
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions, only: [assert_stored: 1]

  alias AshAgent.Context
  alias AshAgent.TestSupport.Replayed

  test "the functions do to views what the core's model does" do
    conversations = Replayed.read("test/fixtures/view_operations.jsonl")
    assert length(conversations) == 16

    for lines <- conversations do
      [_first | steps] = Replayed.play(:view, lines)

      for {context, %{call: call, reason: reason, expected: {refused, expected}}} <- steps do
        assert {call, reason} == {call, refused}
        assert {call, state(context)} == {call, expected}
      end

      steps |> List.last() |> elem(0) |> assert_stored()
    end
  end

  defp state(context) do
    view = Context.View.view(context)
    methods = Replayed.methods()

    %{
      "snapshot" => context |> Context.to_snapshot() |> :erlang.crc32(),
      "prompt" => context |> Context.to_prompt() |> :erlang.crc32(),
      "messages" => Context.count_messages(context),
      "tokens" =>
        for(method <- methods, do: Context.Tokens.count_tokens(context, method: method)),
      "hidden" => Enum.flat_map(view.hidden, & &1),
      "summarised" => Enum.flat_map(view.summaries, & &1)
    }
  end
end
