defmodule AshAgent.Context.ShorteningTest do
  use ExUnit.Case, async: true

  alias AshAgent.Context

  doctest AshAgent.Context.Shortening

  @text String.duplicate("line 17 of lib/a.ex has a few words more. ", 30)

  defp read(context, id) do
    context
    |> Context.add_assistant_message("I read.", [%{id: id, name: :read, arguments: %{}}])
    |> Context.add_tool_results([{id, {:ok, @text}}])
  end

  defp turn(context, number) do
    context = Enum.reduce(1..5, context, &read(&2, "#{number}.#{&1}"))
    context = Context.add_assistant_message(context, "Done.")
    Context.add_user_message(context, "Go on. " <> String.duplicate("Many words. ", 40))
  end

  defp context,
    do: Enum.reduce(1..3, Context.new("Go"), &turn(&2, &1)) |> Context.Recall.put_recall(true)

  defp shorten_all(context, opts \\ []) do
    case Context.Shortening.shorten(context, :context_overflow, opts) do
      {context, nil} -> context
      {context, _step} -> shorten_all(context, opts)
    end
  end

  defp tokens(context), do: Context.Tokens.count_tokens(context, method: :estimate)

  test "the last step is a summary, if there is a summariser and the summary is shorter still" do
    plain = shorten_all(context())
    parent = self()

    summarize = fn messages ->
      send(parent, {:messages, messages})
      {:ok, "They read lib/a.ex."}
    end

    shorter = shorten_all(context(), summarize: summarize)
    assert_received {:messages, messages}
    # It reads what was hidden, not only the note about it.
    assert Enum.count(messages, &(&1.role == :assistant)) == 18
    refute_received {:messages, _again}

    assert %{kind: :summarized, cause: :context_overflow, range: 1..18} =
             shorter |> Context.Shortening.shortenings() |> List.last()

    assert Context.View.view(shorter).summaries == [1..18]
    assert Context.View.summary(shorter, 1) =~ "They read lib/a.ex."
    assert tokens(shorter) < tokens(plain)
    assert Context.Recall.receipt(shorter).counts.gone == 0

    for failing <- [fn _ -> {:error, :down} end, fn _ -> raise "down" end, fn _ -> @text end] do
      kept = shorten_all(context(), summarize: failing)
      assert Context.Shortening.shortenings(kept) == Context.Shortening.shortenings(plain)
      assert tokens(kept) == tokens(plain)
    end
  end

  test "expanding undoes steps from the last to the first" do
    original = context()
    shorter = shorten_all(original, summarize: fn _ -> {:ok, "They read."} end)
    steps = Context.Shortening.shortenings(shorter)
    assert length(steps) == 4
    shown = steps |> Enum.reverse() |> Enum.reduce(shorter, &Context.View.expand(&2, &1))
    assert Context.Shortening.shortenings(shown) == []
    assert Context.to_messages(shown) == Context.to_messages(original)
    stored = shorter |> Context.to_snapshot() |> Context.load!()
    assert Context.Shortening.shortenings(stored) == steps
  end

  test "the window of a price counts" do
    # A quarter of the window is left for the answer.
    window = div((tokens(context()) - 1) * 4, 3)
    prices = [%{model: "m", input: 1, output: 1, context_window: window}]
    assert {_context, nil} = Context.Shortening.shorten(context(), :window, prices: prices)

    assert {shorter, step} =
             Context.Shortening.shorten(context(), :window, prices: prices, model: "m")

    assert %{kind: :cleared, cause: :window, iteration: 19} = step

    assert {_context, nil} =
             Context.Shortening.shorten(shorter, :window, prices: prices, model: "m")
  end
end
