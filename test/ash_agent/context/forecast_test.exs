defmodule AshAgent.Context.ForecastTest do
  use ExUnit.Case, async: true

  alias AshAgent.{Context, Response}

  @start ~U[2026-01-01 10:00:00.000000Z]
  @providers [:anthropic, :openai_chat, :openai_responses, :gemini, :bedrock, :ollama, :mistral]
  @prices [%{model: :any, input: 100, cache_read: 10, cache_write: 125, output: 500}]

  defp answer(context, read, written, opts \\ []) do
    usage = %{
      input_tokens: opts[:input] || 10,
      output_tokens: 1,
      cache_read_input_tokens: read,
      cache_creation_input_tokens: written
    }

    calls =
      for id <- opts[:calls] || [], do: %{type: "tool_use", id: id, name: "look", input: %{}}

    content = [%{type: "text", text: "Yes"} | calls]

    {:ok, response} =
      Response.decode(:anthropic, %{
        type: "message",
        model: "claude",
        content: content,
        usage: usage
      })

    at = opts[:at] || @start
    {:ok, context} = Context.add_response(context, response, requested_at: at, at: at)
    results = for id <- opts[:calls] || [], do: {id, {:ok, String.duplicate("text ", 300)}}

    if results == [],
      do: Context.add_user_message(context, "And?", at: @start),
      else: Context.add_tool_results(context, results, at: @start)
  end

  defp forecast(context, opts \\ []) do
    opts = Keyword.merge([cache: :auto, at: DateTime.add(@start, 60)], opts)
    {:ok, forecast} = Context.Audit.forecast(context, :anthropic, opts)
    forecast
  end

  defp start, do: Context.new("Hi", system_prompt: "S", at: @start)
  defp causes(forecast), do: Enum.map(forecast.breaks, & &1.cause)

  defp tool(name, words),
    do: %{name: name, description: String.duplicate("word ", words), parameters: %{}}

  test "a request costs what its own tools cost, as well" do
    few = [tool("look", 10)]
    many = few ++ [tool("find", 2_000)]
    asked = fn context, tools, keep -> Context.Audit.put_request(context, %{}, tools, keep) end

    for keep <- [[], [keep: :hashes]] do
      context = start() |> asked.(few, keep) |> answer(0, 4_000)
      same = forecast(context, tools: few, prices: @prices)
      assert same.tokens == forecast(context, prices: @prices).tokens
      more = forecast(context, tools: many, prices: @prices)
      assert :tools in causes(more)
      assert (more.tokens - same.tokens) in 1_200..2_200
      assert more.cost - same.cost > 1_200 * 100
      stored = context |> Context.to_snapshot() |> Context.load!()
      assert forecast(stored, tools: many).tokens == more.tokens
    end

    # Fewer are as many fewer.
    context = start() |> asked.(many, []) |> answer(0, 4_000)
    all = forecast(context, tools: many).tokens
    assert (all - forecast(context, tools: few).tokens) in 1_200..2_200
    assert forecast(context, tools: []).tokens < forecast(context, tools: few).tokens

    # Before the first report all of them are new. Which ones a report of others counts, nobody knows.
    assert (forecast(start(), tools: many).tokens - forecast(start()).tokens) in 1_200..2_200
    foreign = answer(start(), 0, 4_000)
    assert forecast(foreign, tools: many).tokens == forecast(foreign).tokens
  end

  # The bytes of what a provider gets of the system prompt and messages, by the request itself.
  defp body(context, provider) do
    context
    |> Context.encode_request!(provider, body: %{})
    |> IO.iodata_to_binary()
  end

  defp common(a, b), do: :binary.longest_common_prefix([a, b])

  test "a first request is all new, and written where it is marked" do
    assert %{read: 0, written: 0, same_bytes: 0, breaks: [], cost: nil} = forecast(start())
    long = Context.new(String.duplicate("word ", 3_000), at: @start)
    assert %{read: 0, written: tokens, new: 0, tokens: tokens} = forecast(long)
    assert %{read: 0, written: 0, new: ^tokens} = forecast(long, cache: false)
    assert %{cost: cost} = forecast(long, prices: @prices)
    assert cost == tokens * 125
  end

  test "a request that goes on reads what the one before it read and wrote, and shares its bytes, for each provider" do
    before = Context.add_user_message(start(), "And who are you?", at: @start)
    next = answer(before, 0, 4_000)
    assert %{read: 4_000, breaks: [], tokens: tokens, written: written} = forecast(next)
    assert written == tokens - 4_000 and written > 0

    for provider <- @providers do
      {:ok, forecast} = Context.Audit.forecast(next, provider, at: @start)

      # All of the last body but its end: the fields before the list stand in front of it in one of them.
      {old, new} = {body(before, provider), body(next, provider)}
      assert abs(common(old, new) - forecast.same_bytes) < 64, "#{provider}"
      assert forecast.bytes <= byte_size(new)
      unless provider == :anthropic, do: assert(:model in causes(forecast))
    end
  end

  test "each change is told with its place and with the tokens that it costs" do
    context =
      start()
      |> answer(0, 4_000, calls: ["a"])
      |> answer(4_000, 500, calls: ["b"])
      |> answer(4_500, 500)

    assert %{read: 5_000, breaks: []} = forecast(context)

    assert %{read: 0, breaks: [%{cause: :system_prompt, iteration: nil, tokens: 5_000}]} =
             context |> Context.put_system_prompt("T", at: @start) |> forecast()

    assert %{read: 0, breaks: [%{cause: :block, iteration: nil, tokens: 5_000}]} =
             context |> Context.View.put_prompt_block(:b, "B") |> forecast()

    cleared = context |> Context.View.clear_tool_results(keep: 1) |> forecast()
    assert [%{cause: :cleared, tokens: lost}] = cleared.breaks

    # Results were most of the text, so a report of the rest has fewer tokens than are left in the cache.
    assert cleared.read == min(5_000 - lost, cleared.tokens) and lost > 0
    assert cleared.same_bytes < forecast(context).same_bytes

    hidden = context |> Context.View.hide({:all_but_last, 2}) |> forecast()
    assert [%{cause: :hidden, iteration: 1}] = hidden.breaks
    assert hidden.same_bytes < cleared.same_bytes

    assert context |> Context.View.put_max_result_bytes(100) |> forecast() |> causes() == [
             :shortened
           ]

    # Masks are compared to the byte, also when they are gone from the view.
    masked = Context.View.put_masks(context, [{"Hi", "Ho"}])
    assert %{breaks: [%{cause: :masked, tokens: lost}], read: read} = forecast(masked)
    assert lost > 0 and read == 5_000 - lost

    assert %{breaks: []} =
             context |> Context.View.put_masks([{"never there", "Ho"}]) |> forecast()

    later = answer(masked, 0, 5_100)
    assert %{breaks: []} = forecast(later)
    unmasked = Context.View.put_masks(later, [])
    assert [:masked] = unmasked |> forecast() |> causes()
    stored = unmasked |> Context.to_snapshot() |> Context.load!()
    assert forecast(stored) == forecast(unmasked)
    # Earlier releases stored a digest alone.
    older = unmasked |> Context.dump() |> Map.delete("asked_masks") |> Context.load!()
    assert %{read: 0, breaks: [%{cause: :masked, tokens: 5_100}]} = forecast(older)
    # A change of the view that changes no byte breaks nothing.
    assert %{read: 5_000, breaks: []} =
             context |> Context.View.put_max_result_bytes(100_000) |> forecast()
  end

  test "a stored conversation is forecast as the one that it was stored from" do
    context =
      start()
      |> answer(0, 4_000, calls: ["a"])
      |> answer(4_000, 500, calls: ["b"])
      |> Context.View.clear_tool_results(keep: 1)

    context = context |> answer(3_000, 500) |> Context.View.put_prompt_block(:b, "B")
    stored = context |> Context.to_snapshot() |> Context.load!()
    assert forecast(stored) == forecast(context)
    # What was cleared before the last request breaks nothing now.
    assert causes(forecast(context)) == [:block]
  end

  test "calls that wait are an error, unless they are interrupted" do
    context =
      Context.add_assistant_message(answer(start(), 0, 4_000), nil, [%{id: "a", name: :look}])

    assert {:error, %{reason: {:pending_tool_calls, ["a"]}}} =
             Context.Audit.forecast(context, :anthropic)

    assert {:ok, %{read: _}} = Context.Audit.forecast(context, :anthropic, pending: :interrupt)
    assert_raise ArgumentError, fn -> Context.Audit.forecast(context, :anthropic, prices: 1) end
  end

  test "the account predicts what the forecast said" do
    context = start() |> answer(0, 4_000)
    assert %{read: read} = forecast(context)
    assert [_, %{predicted: ^read}] = Context.Audit.account(answer(context, 0, 10)).requests
  end
end
