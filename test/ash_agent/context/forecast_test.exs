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
    {:ok, forecast} = Context.forecast(context, :anthropic, opts)
    forecast
  end

  defp start, do: Context.new("Hi", system_prompt: "S", at: @start)
  defp causes(forecast), do: Enum.map(forecast.breaks, & &1.cause)

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
      {:ok, forecast} = Context.forecast(next, provider, at: @start)

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
             context |> Context.put_prompt_block(:b, "B") |> forecast()

    cleared = context |> Context.clear_tool_results(keep: 1) |> forecast()
    assert [%{cause: :cleared, tokens: lost}] = cleared.breaks
    assert cleared.read == 5_000 - lost and lost > 0
    assert cleared.same_bytes < forecast(context).same_bytes

    hidden = context |> Context.keep_last_iterations(2) |> forecast()
    assert [%{cause: :hidden, iteration: 1}] = hidden.breaks
    assert hidden.same_bytes < cleared.same_bytes
    assert context |> Context.put_max_result_bytes(100) |> forecast() |> causes() == [:shortened]

    # Masks that are at hand are compared to the byte, and stored ones by their digest.
    masked = Context.put_masks(context, [{"Hi", "Ho"}])
    assert %{breaks: [%{cause: :masked, tokens: lost}], read: read} = forecast(masked)
    assert lost > 0 and read == 5_000 - lost
    assert %{breaks: []} = context |> Context.put_masks([{"never there", "Ho"}]) |> forecast()
    later = answer(masked, 0, 5_100)
    assert %{breaks: []} = forecast(later)
    assert [:masked] = later |> Context.put_masks([]) |> forecast() |> causes()
    stored = later |> Context.put_masks([]) |> Context.to_snapshot() |> Context.from_snapshot!()
    assert %{read: 0, breaks: [%{cause: :masked, tokens: 5_100}]} = forecast(stored)
    # A change of the view that changes no byte breaks nothing.
    assert %{read: 5_000, breaks: []} =
             context |> Context.put_max_result_bytes(100_000) |> forecast()
  end

  test "tools, fields and models are causes where they were noted" do
    note = fn context, body, tools ->
      Context.put_request(context, %{"model" => "m", "body" => body}, tools)
    end

    context = start() |> note.(%{"temperature" => 1}, [%{"name" => "a"}]) |> answer(0, 4_000)

    assert %{breaks: []} =
             context |> note.(%{"temperature" => 0}, [%{"name" => "a"}]) |> forecast()

    assert %{breaks: [%{cause: :tools, tokens: 4_000}], read: 0} =
             context |> note.(%{}, []) |> forecast()

    assert [:output] = context |> note.(%{"output_config" => %{}}, nil) |> forecast() |> causes()
    assert [:fields] = context |> note.(%{"thinking" => "high"}, nil) |> forecast() |> causes()

    assert [:model] =
             context |> Context.put_request(%{"model" => "n"}, nil) |> forecast() |> causes()
  end

  test "no more is read than Anthropic looks back to, and what both requests have marked" do
    start = Context.new(String.duplicate("word ", 6_000), system_prompt: "S", at: @start)
    long = answer(start, 0, 4_000, calls: Enum.map(1..10, &"a#{&1}"))
    # The text of the answer and two blocks for each call.
    assert %{breaks: [%{cause: :look_back, iteration: 1, tokens: lost}], read: 0} = forecast(long)
    assert lost > 3_900
    {:ok, openai} = Context.forecast(long, :openai_chat, at: @start)
    refute :look_back in causes(openai)
    short = answer(start, 0, 4_000, calls: Enum.map(1..9, &"a#{&1}"))
    assert %{breaks: [], read: 4_000} = forecast(short)

    # The fifth iteration has a mark that stays, and the sixth is lost.
    five = Enum.reduce(1..6, start, fn n, context -> answer(context, 4_000, n * 10) end)
    far = answer(five, 4_000, 100, calls: Enum.map(1..12, &"b#{&1}"))
    assert %{breaks: [%{cause: :look_back, tokens: lost}], read: read} = forecast(far)
    assert read > 3_900 and read == 4_100 - lost and lost > 0
  end

  test "requests that are too short for their model are not cached" do
    context = answer(start(), 0, 2_000)

    for model <- ["claude-opus-4-5", "claude-haiku-4-5", "claude-3-5-haiku-latest"],
        do: assert(%{read: 0, written: 0} = forecast(context, model: model))

    for model <- ["claude-sonnet-4-5", "claude-opus-4-1", nil],
        do: assert(%{read: 2_000} = forecast(context, model: model))

    assert %{read: 600} = start() |> answer(0, 600) |> forecast(model: "claude-opus-5")
    assert %{read: 0} = start() |> answer(0, 600) |> forecast(model: "claude-sonnet-4-5")
  end

  describe "a conversation that was rewound" do
    # Each request has 500 tokens more, of which its answer has one and its results have nearly all.
    defp asked(context, count, first \\ 4_000) do
      Enum.reduce(0..(count - 1), context, fn n, context ->
        {:ok, context} = Context.put_sent(context, :anthropic, cache: :auto)
        {read, written} = if n == 0, do: {0, first}, else: {first + 500 * (n - 1), 500}
        answer(context, read, written, calls: ["call_#{n}"], input: 0)
      end)
    end

    defp rewound(context, to), do: Context.rewind(context, to: to)

    test "is compared with the request that was cut off, in tokens and bytes" do
      context = asked(start(), 4)
      rewound = context |> rewound(2) |> Context.add_user_message("Otherwise", at: @start)
      assert %{read: read, breaks: [break]} = forecast = forecast(rewound)
      assert %{cause: :rewound, iteration: 3, tokens: lost} = break
      assert read + lost == 5_500
      # Two requests with 4,500 tokens, and the results of the second.
      assert read == Context.count_tokens(rewound(context, 2)) and read > 4_700
      # All is the same up to what the user says, which is in the element with the results.
      assert forecast.bytes - forecast.same_bytes < byte_size("Otherwise") + 80

      # It says so after a store, in a fork and after another rewind, and forgets it with the next request.
      stored = rewound |> Context.to_snapshot() |> Context.from_snapshot!()
      assert forecast(stored) == forecast
      assert forecast(Context.fork(rewound)) == forecast
      again = rewound |> rewound(1) |> Context.add_user_message("Otherwise", at: @start)
      assert %{read: less, breaks: [%{cause: :rewound, iteration: 2}]} = forecast(again)
      assert less < read
      assert %{breaks: [], read: 4_900} = rewound |> answer(4_800, 100) |> forecast()
    end

    test "loses nothing of what is said again" do
      question = &Context.add_user_message(&1, String.duplicate("why ", 400), at: @start)
      context = start() |> asked(2) |> question.() |> asked(2, 6_000)
      same = context |> rewound(2) |> question.() |> forecast()
      other = context |> rewound(2) |> Context.add_user_message("No.", at: @start) |> forecast()
      assert [%{cause: :rewound, iteration: 3, tokens: lost}] = same.breaks
      assert [%{cause: :rewound, iteration: 3, tokens: more}] = other.breaks
      assert same.read > other.read + 250 and lost < more
    end

    test "names other changes beside it, and a request that is known by nothing else is not compared" do
      context = asked(start(), 4)
      system = context |> rewound(2) |> Context.put_system_prompt("T", at: @start)
      assert %{read: 0, breaks: breaks} = forecast(system)
      assert [:system_prompt, :rewound] = Enum.map(breaks, & &1.cause)

      # The request that was cut off had other tools, so the cache has what is left of the one before.
      tools = fn context, names ->
        Context.put_request(context, %{}, for(name <- names, do: %{"name" => name}))
      end

      other = start() |> tools.([]) |> asked(2) |> tools.(["a"]) |> asked(1) |> rewound(2)
      assert %{breaks: [], read: 4_500} = other |> tools.([]) |> forecast()

      # It read what is left, so that is not cold.
      late = answer(context, 5_500, 100, at: DateTime.add(@start, 290))
      at = DateTime.add(@start, 400)
      assert :rewound in causes(forecast(rewound(late, 2), at: at))
      refute :expired in causes(forecast(rewound(late, 2), at: at))
      assert :expired in causes(forecast(rewound(context, 2), at: at))
    end
  end

  test "a lifetime that is over is told, and nothing is read" do
    context = answer(start(), 0, 4_000)
    assert %{read: 4_000} = forecast(context, at: DateTime.add(@start, 299))

    assert %{read: 0, breaks: [%{cause: :expired, tokens: 4_000}]} =
             forecast(context, at: DateTime.add(@start, 301))
  end

  test "OpenAI reads whole blocks of what is the same" do
    {:ok, response} =
      Response.decode(:openai_chat, %{
        choices: [%{message: %{role: "assistant", content: "Yes"}, finish_reason: "stop"}],
        usage: %{
          prompt_tokens: 1_500,
          completion_tokens: 1,
          prompt_tokens_details: %{cached_tokens: 0}
        }
      })

    {:ok, context} = Context.add_response(start(), response, requested_at: @start)

    {:ok, forecast} =
      context
      |> Context.add_user_message("And?")
      |> Context.forecast(:openai_chat, prices: @prices)

    assert %{read: 1_408, written: 0, new: new, tokens: tokens} = forecast
    assert new == tokens - 1_408
    assert forecast.cost == 1_408 * 10 + new * 100
  end

  test "a stored conversation is forecast as the one that it was stored from" do
    context =
      start()
      |> answer(0, 4_000, calls: ["a"])
      |> answer(4_000, 500, calls: ["b"])
      |> Context.clear_tool_results(keep: 1)

    context = context |> answer(3_000, 500) |> Context.put_prompt_block(:b, "B")
    stored = context |> Context.to_snapshot() |> Context.from_snapshot!()
    assert forecast(stored) == forecast(context)
    # What was cleared before the last request breaks nothing now.
    assert causes(forecast(context)) == [:block]
  end

  test "calls that wait are an error, unless they are interrupted" do
    context =
      Context.add_assistant_message(answer(start(), 0, 4_000), nil, [%{id: "a", name: :look}])

    assert {:error, %{reason: {:pending_tool_calls, ["a"]}}} =
             Context.forecast(context, :anthropic)

    assert {:ok, %{read: _}} = Context.forecast(context, :anthropic, pending: :interrupt)
    assert_raise ArgumentError, fn -> Context.forecast(context, :anthropic, prices: 1) end
  end

  test "the account predicts what the forecast said" do
    context = start() |> answer(0, 4_000)
    assert %{read: read} = forecast(context)
    assert [_, %{predicted: ^read}] = Context.account(answer(context, 0, 10)).requests
  end
end
