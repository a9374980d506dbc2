defmodule AshAgent.Context.UsageTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions
  import AshAgent.TestSupport.Generators, only: [check_all: 3, between: 2, chance: 1]

  alias AshAgent.Context
  alias AshAgent.Context.Tokens
  alias AshAgent.TestSupport.ContextGenerators

  @zero %{
    input_tokens: 0,
    output_tokens: 0,
    total_tokens: 0,
    cached_tokens: 0,
    cache_write_tokens: 0,
    reasoning_tokens: 0
  }

  defp answered, do: Context.new("Hello!") |> Context.add_assistant_message("Hi!")

  defp read(report),
    do:
      answered()
      |> Tokens.add_token_usage(report)
      |> Tokens.get_cumulative_tokens()

  defp usage(input, output, total, cached, reasoning, written \\ 0) do
    %{
      input_tokens: input,
      output_tokens: output,
      total_tokens: total,
      cached_tokens: cached,
      cache_write_tokens: written,
      reasoning_tokens: reasoning
    }
  end

  defp strings(report) do
    Map.new(report, fn {key, value} ->
      {to_string(key), if(is_map(value), do: strings(value), else: value)}
    end)
  end

  test "a report is read with atom and string keys, once that has its keys twice" do
    # What was read from the cache and written to it is beside the input.
    report = %{
      input_tokens: 21,
      cache_creation_input_tokens: 188,
      cache_read_input_tokens: 1000,
      cache_creation: %{ephemeral_5m_input_tokens: 188, ephemeral_1h_input_tokens: 0},
      output_tokens: 393
    }

    for report <- [report, strings(report), Map.merge(report, strings(report))],
        do: assert(read(report) == usage(1209, 393, 1602, 1000, 0, 188))
  end

  test "what is no report is refused, with the key that is wrong" do
    for {report, key} <- [
          {%{}, nil},
          {%{"model" => "m"}, nil},
          {%{usage: %{}}, nil},
          {%{input_tokens: nil}, nil},
          {%{input_tokens: -1}, :input_tokens},
          {%{input_tokens: 1.5}, :input_tokens},
          {%{"output_tokens" => "12"}, "output_tokens"},
          {%{input_tokens: Bitwise.bsl(1, 80)}, :input_tokens},
          {%{input_tokens: 1, usage: 7}, :usage},
          {%{prompt_tokens: 1, prompt_tokens_details: 7}, :prompt_tokens_details},
          {%{prompt_tokens: 1, prompt_tokens_details: %{cached_tokens: -7}}, :cached_tokens}
        ] do
      error = assert_refused(fn -> read(report) end)
      assert %Context.Error{reason: {:invalid_usage, ^key}} = error
      assert is_binary(Exception.message(error))
    end

    for wrong <- [nil, [], "text", [input_tokens: 1], 7] do
      assert_caller_bug(fn -> read(wrong) end)
    end
  end

  test "needs a message of the model" do
    assert reason_of(fn ->
             Tokens.add_token_usage(Context.new("Hi"), %{input_tokens: 1})
           end) ==
             :no_assistant_message

    assert Tokens.get_cumulative_tokens(Context.new("Hi")) == @zero
    assert Tokens.get_iteration_tokens(Context.new("Hi"), 1) == @zero
  end

  test "belongs to the iteration of the model's last message" do
    context =
      Context.new("Hi")
      |> Context.add_assistant_message(nil, [%{id: "a", name: :x}])
      |> Tokens.add_token_usage(%{input_tokens: 10, output_tokens: 1})
      |> Context.add_tool_results([{"a", {:ok, 1}}])
      # Results came already: it is still of the message in front of them.
      |> Tokens.add_token_usage(%{input_tokens: 20, output_tokens: 2})
      |> Context.add_assistant_message("done")
      |> Tokens.add_token_usage(%{input_tokens: 40, output_tokens: 4})
      |> Context.add_user_message("And?")
      |> Tokens.add_token_usage(%{input_tokens: 80, output_tokens: 8})

    tokens = for n <- 1..4, do: Tokens.get_iteration_tokens(context, n)
    assert tokens == [usage(30, 3, 33, 0, 0), usage(120, 12, 132, 0, 0), @zero, nil]
    assert Tokens.get_cumulative_tokens(context) == usage(150, 15, 165, 0, 0)
  end

  test "iterations that are not there have none" do
    for number <- [0, -1, 2, Bitwise.bsl(1, 80), -Bitwise.bsl(1, 80)] do
      assert Tokens.get_iteration_tokens(answered(), number) == nil
    end
  end

  test "does not show in messages or requests" do
    context = answered()
    used = Tokens.add_token_usage(context, %{input_tokens: 987_654, output_tokens: 1})
    assert Context.to_messages(used) == Context.to_messages(context)

    for provider <- AshAgent.TestSupport.RequestChecker.providers() do
      assert Context.request!(used, provider) == Context.request!(context, provider)
    end
  end

  test "changes nothing else, and not the context it was given" do
    context = answered()
    before = Context.dump(context)

    used =
      Tokens.add_token_usage(context, %{input_tokens: 9, output_tokens: 1},
        at: ~U[2030-01-01 00:00:00Z]
      )

    assert Context.dump(context) == before
    assert Tokens.get_cumulative_tokens(context) == @zero
    assert used[:updated_at] == ~U[2030-01-01 00:00:00.000000Z]
    assert Context.iterations(used) == Context.iterations(context)
  end

  test "stays with what is hidden, summarised or cleared" do
    context =
      Enum.reduce(1..5, Context.new("Hi"), fn n, context ->
        context
        |> Context.add_assistant_message(String.duplicate("word ", 50))
        |> Tokens.add_token_usage(%{input_tokens: n, output_tokens: 1})
        |> Context.add_user_message("#{n}")
      end)

    all = Tokens.get_cumulative_tokens(context)
    assert all == usage(15, 5, 20, 0, 0)

    assert context
           |> Context.View.hide({:all_but_last, 1})
           |> Tokens.get_cumulative_tokens() == all

    assert context
           |> Context.View.mark_as_summarized(1..3, "s")
           |> Tokens.get_cumulative_tokens() ==
             all

    assert context
           |> Context.View.hide({:all_but_last, 1})
           |> Tokens.get_iteration_tokens(1) ==
             usage(1, 1, 2, 0, 0)
  end

  test "sums over all iterations, after any operations and from storage" do
    check_all("usage", [runs: 200, max_size: 15], fn size ->
      start = {ContextGenerators.build(ContextGenerators.script(2)), %{}}

      {context, reports} =
        Enum.reduce(1..size, start, fn _, {context, reports} ->
          context = ContextGenerators.continue(context, ContextGenerators.steps(1))

          spoken =
            for i <- Context.iterations(context),
                Enum.any?(i.messages, &(&1.role == :assistant)),
                do: i.number

          if spoken != [] and chance(60) do
            report = %{
              input_tokens: between(0, 1000),
              output_tokens: between(0, 100),
              cached_tokens: between(0, 10),
              cache_write_tokens: between(0, 10),
              reasoning_tokens: between(0, 10)
            }

            number = List.last(spoken)

            {Tokens.add_token_usage(context, report),
             Map.update(reports, number, [report], &[report | &1])}
          else
            {context, reports}
          end
        end)

      sum = fn reports, key -> reports |> Enum.map(& &1[key]) |> Enum.sum() end

      all = fn reports ->
        {input, output} = {sum.(reports, :input_tokens), sum.(reports, :output_tokens)}

        usage(
          input,
          output,
          input + output,
          sum.(reports, :cached_tokens),
          sum.(reports, :reasoning_tokens),
          sum.(reports, :cache_write_tokens)
        )
      end

      for copy <- [
            context,
            Context.load!(Context.dump(context)),
            Context.load!(Context.to_snapshot(context))
          ] do
        assert Tokens.get_cumulative_tokens(copy) ==
                 all.(Enum.concat(Map.values(reports)))

        for n <- 1..context.current_iteration,
            do: assert(Tokens.get_iteration_tokens(copy, n) == all.(Map.get(reports, n, [])))
      end

      to = between(1, context.current_iteration)
      back = Context.rewind(context, to: to)
      kept = for {n, list} <- reports, n <= to, report <- list, do: report
      assert Tokens.get_cumulative_tokens(back) == all.(kept)
    end)
  end

  test "survives deltas" do
    context = answered() |> Tokens.add_token_usage(%{input_tokens: 9, output_tokens: 1})
    stored = Context.load!(Context.dump(context))

    context =
      context
      |> Context.add_user_message("More")
      |> Context.add_assistant_message("Yes")
      |> Tokens.add_token_usage(%{input_tokens: 20, output_tokens: 5})

    loaded = Context.load!(stored, Context.dump(context, since: stored.current_iteration))
    assert Context.equal?(loaded, context)
    assert Tokens.get_cumulative_tokens(loaded) == usage(29, 6, 35, 0, 0)
    assert Tokens.count_tokens(loaded) == Tokens.count_tokens(context)
  end
end
