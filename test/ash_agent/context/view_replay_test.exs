defmodule AshAgent.Context.ViewReplayTest do
  # Operations on views, with what became of each in the core, whose model judges them (`tests/view_replay.rs`): the functions
  # of the package do the same to the byte.
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions, only: [assert_stored: 1]

  alias AshAgent.Context
  alias AshAgent.Context.JSON

  @methods [:auto, :estimate, :cl100k_base]
  @ids ~w(a b c)

  defp at(second), do: DateTime.from_unix!(second * 1_000_000, :microsecond)
  defp words(length), do: "word and " |> String.duplicate(50) |> binary_part(0, length)
  defp result(id, length), do: {id, {:ok, words(length)}}

  defp conversations do
    for text <- "test/fixtures/view_operations.jsonl" |> File.read!() |> String.split("\n\n"),
        text = String.trim(text),
        text != "",
        do: for(line <- String.split(text, "\n"), do: JSON.decode!(line))
  end

  test "the functions do to views what the core's model does" do
    conversations = conversations()
    assert length(conversations) == 16

    for lines <- conversations do
      context = Context.new("Hi", id: "c", system_prompt: "S", at: at(0))

      last =
        Enum.reduce(lines, context, fn [second, operation, refused, expected], context ->
          {next, reason} = apply_to(operation, context, second)
          assert {operation, reason} == {operation, refused}
          assert {operation, state(next)} == {operation, expected}
          next
        end)

      assert_stored(last)
    end
  end

  defp state(context) do
    view = Context.view(context)

    %{
      "snapshot" => context |> Context.to_snapshot() |> :erlang.crc32(),
      "prompt" => context |> Context.to_prompt() |> :erlang.crc32(),
      "messages" => Context.count_messages(context),
      "tokens" => for(method <- @methods, do: Context.count_tokens(context, method: method)),
      "hidden" => Enum.flat_map(view.hidden, & &1),
      "summarised" => Enum.flat_map(view.summaries, & &1)
    }
  end

  # The context and the reason why it is the same as before, if it was refused.
  defp apply_to(operation, context, second) do
    case run(operation, context, second, at: at(second)) do
      {:ok, next} -> {next, nil}
      {:error, error} -> {context, reason(error)}
      next -> {next, nil}
    end
  rescue
    error in Context.Error -> {context, reason(error)}
  end

  defp reason(%{reason: {:pending_tool_calls, _ids}}), do: ["pending_tool_calls"]
  defp reason(%{reason: :no_assistant_message}), do: ["no_assistant_message"]

  defp reason(%{reason: {:unknown_iteration, number, _range}}),
    do: ["unknown_iteration", number]

  defp reason(%{reason: {:cannot_fit, least}}), do: ["cannot_fit", least]

  defp reason(%{reason: {:not_compactable, range, _allowed}}),
    do: ["not_compactable", range.first, range.last]

  defp reason(%{reason: {:summary_too_long, tokens, replaced}}),
    do: ["summary_too_long", tokens, replaced]

  defp run(["user", length], context, _second, at),
    do: Context.add_user_message(context, words(length), at)

  defp run(["assistant", length], context, _second, at),
    do: Context.add_assistant_message(context, words(length), [], at)

  defp run(["tool", count, length], context, _second, at) do
    ids = Enum.take(@ids, count)
    calls = for id <- ids, do: %{id: id, name: "read"}
    asked = Context.add_assistant_message(context, nil, calls, at)

    if length,
      do: Context.add_tool_results(asked, Enum.map(ids, &result(&1, length)), at),
      else: asked
  end

  defp run(["answer", length], context, _second, at) do
    pending = Context.pending_tool_calls(context)
    %{id: id} = if rem(length, 2) == 1, do: List.last(pending), else: hd(pending)
    Context.add_tool_results(context, [result(id, length)], at)
  end

  defp run(["interrupt"], context, _second, at), do: Context.interrupt(context, "stop", at)

  defp run(["usage", tokens], context, _second, at),
    do: Context.add_token_usage(context, %{input_tokens: tokens, output_tokens: 7}, at)

  defp run(["keep_last", count], context, _second, at),
    do: Context.keep_last_iterations(context, count, at)

  defp run(["remove_old", seconds], context, second, at),
    do: Context.hide_old_iterations(context, min(seconds, second), at)

  defp run(["range", first, last], context, _second, at),
    do: Context.keep_iteration_range(context, first, last, at)

  defp run(["hide", first, last], context, _second, at),
    do: Context.hide_iterations(context, first..last//1, at)

  defp run(["fit", [percent, reserve], [first, last], step, how], context, _second, at) do
    method = Enum.at(@methods, how)
    budget = div(Context.count_tokens(context, method: method) * percent, 100) + reserve
    keep = [reserve: reserve, keep_first: first, keep_last: last]

    with {:ok, next, hidden} <-
           Context.fit(context, budget, keep ++ [step: step, method: method] ++ at) do
      numbers = next |> Context.view() |> Map.fetch!(:hidden) |> Enum.flat_map(& &1)
      assert hidden == if(numbers != [], do: Range.new(hd(numbers), List.last(numbers)))
      {:ok, next}
    end
  end

  defp run(["drop", first, last], context, _second, at) do
    keep = [range: first..last//1, keep_first: 0, keep_last: 0]
    with {:ok, next, _info} <- Context.compact(context, :drop, keep ++ at), do: {:ok, next}
  end

  defp run(["summarize", first, last, length], context, _second, at),
    do: Context.mark_as_summarized(context, first..last//1, "s" <> words(length), at)

  defp run(["expand", first, last], context, _second, at),
    do: Context.expand(context, first..last//1, at)

  defp run(["clear", keep], context, _second, at),
    do: Context.clear_tool_results(context, [keep: keep, placeholder: "-"] ++ at)

  defp run(["most", most], context, _second, at),
    do: Context.put_max_result_bytes(context, most, at)

  defp run(["mask", on?], context, _second, at),
    do: Context.put_masks(context, if(on?, do: [{"and ", ""}], else: []), at)

  defp run(["block", on?], context, _second, at),
    do: Context.put_prompt_block(context, "b", if(on?, do: "block"), at)

  defp run(["rewind", to], context, _second, _at), do: Context.rewind(context, to: to)

  defp run(["count", how], context, _second, _at) do
    Context.count_tokens(context, method: Enum.at(@methods, how))
    context
  end

  defp run(["store"], context, _second, _at),
    do: context |> Context.to_snapshot() |> Context.from_snapshot!()
end
