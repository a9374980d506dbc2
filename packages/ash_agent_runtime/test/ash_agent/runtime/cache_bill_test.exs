defmodule AshAgent.Runtime.CacheBillTest do
  # Bills of a provider that counts by the rules of prompt caches, for what runs and sessions send by default.
  use ExUnit.Case, async: true

  alias AshAgent.{Context, LLM, Runtime, Session}
  alias AshAgent.Context.Audit
  alias AshAgent.TestSupport.BillingCache

  @price %{
    model: :any,
    input: 3_000_000,
    cache_read: 300_000,
    cache_write: 3_750_000,
    cache_write_1h: 6_000_000,
    output: 15_000_000
  }
  @system "You are careful. " <> String.duplicate("Follow the rules of the house. ", 260)
  @providers [:anthropic, :bedrock]

  # A run of so many requests, with so many calls in each answer but the last one.
  defp run(provider, requests, opts) do
    {bank, llm} = open(provider, requests, opts)
    input = opts[:input] || "Look around."

    {:ok, result} =
      Runtime.run(Context.new(input, system_prompt: opts[:system] || @system),
        llm: llm,
        tools: tools(opts[:bytes] || 200, opts[:word] || "word "),
        stream: false,
        max_iterations: opts[:max_iterations] || 1_000,
        max_calls: 1_000,
        max_total_tokens: :infinity,
        prices: [@price],
        view: opts[:view] || [],
        on_event: opts[:on_event]
      )

    {bank, result.context}
  end

  defp open(provider, requests, opts) do
    calls = opts[:calls] || 1

    answer = fn
      number when number >= requests -> "Done."
      number -> for call <- 1..calls, do: {"c#{number}_#{call}", "look", opts[:arguments] || %{}}
    end

    {:ok, bank} = BillingCache.start_link([answer: answer] ++ Keyword.take(opts, [:rule, :least]))
    own = [api_key: "k", request: opts[:request] || [], transport: BillingCache.transport(bank)]

    case provider do
      :anthropic ->
        {bank, LLM.Anthropic.new([model: opts[:model] || "claude-sonnet-4-5"] ++ own)}

      :bedrock ->
        model = opts[:model] || "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
        {bank, LLM.Bedrock.new([model: model, region: "eu-central-1"] ++ own)}
    end
  end

  defp tools(bytes, word \\ "word ") do
    result = String.duplicate(word, div(bytes, byte_size(word)))
    [%{name: "look", description: "Looks.", parameters: %{}, function: fn _ -> {:ok, result} end}]
  end

  # What the first requests cost, compared with the same without marks.
  defp share(bank, requests) do
    bills = bank |> BillingCache.bills() |> Enum.take(requests)
    sum = fn of -> bills |> Enum.map(of) |> Enum.sum() end
    sum.(&BillingCache.cost/1) / sum.(& &1.all)
  end

  defp marks(bank), do: Enum.map(BillingCache.bills(bank), & &1.marks)

  describe "what is asked to be kept by default" do
    test "runs with tools, sessions and conversations that go on ask, a request alone does not" do
      for provider <- @providers do
        {bank, _context} = run(provider, 3, [])
        assert Enum.all?(marks(bank), &(&1 > 0))

        {bank, llm} = open(provider, 1, [])
        context = Context.new("Hi", system_prompt: @system)
        {:ok, %{context: context}} = Runtime.run(context, llm: llm, stream: false)
        assert marks(bank) == [0]
        assert [%{verdict: :unasked}] = Audit.account(context).requests

        kept = context |> Context.to_snapshot() |> Context.load!()

        {:ok, _result} =
          kept |> Context.add_user_message("And?") |> Runtime.run(llm: llm, stream: false)

        assert [0, more] = marks(bank)
        assert more > 0

        {bank, llm} = open(provider, 1, [])
        {:ok, session} = Session.start_link(llm: llm, stream: false, system_prompt: @system)
        {:ok, _result} = Session.prompt(session, "Hi")
        assert hd(marks(bank)) > 0
      end
    end

    test "an option says otherwise, and a model that is not known to keep anything is not asked" do
      profile = "arn:aws:bedrock:eu-central-1:1:application-inference-profile/p1"

      for {provider, opts} <- [
            anthropic: [request: [cache: false]],
            bedrock: [request: [cache: false]],
            bedrock: [model: profile],
            bedrock: [model: "meta.llama3-1-70b-instruct-v1:0"],
            anthropic: [model: "deepseek-chat"]
          ] do
        {bank, context} = run(provider, 3, opts)
        assert marks(bank) == [0, 0, 0]
        account = Audit.account(context, prices: [@price])
        assert account.verdicts == %{unasked: 3}
        assert account.avoidable > 0
      end
    end
  end

  describe "what it costs" do
    # A run is billed as the beginning of a longer one, and a look-back that counts each block finds the least.
    test "runs of 2 to 5 requests cost at most 2 % more than without, and mostly less" do
      for provider <- @providers,
          system <- [@system, String.slice(@system, 0, 4_200), String.slice(@system, 0, 2_000)],
          bytes <- [5_000, 30_000, 150_000],
          calls <- [1, 3, 8, 10, 40] do
        opts = [bytes: div(bytes, calls), calls: calls, system: system, rule: :blocks]
        {bank, _context} = run(provider, 6, opts)

        for requests <- 2..5 do
          share = share(bank, requests)
          shape = {provider, byte_size(system), bytes, calls, requests, share}
          assert share <= 1.02, inspect(shape)
          if system == @system and bytes <= 5_000, do: assert(share < 0.9, inspect(shape))
        end
      end
    end

    test "a request that is known to be alone costs no more" do
      {bank, _context} = run(:anthropic, 1, max_iterations: 1)
      assert marks(bank) == [0]

      {bank, llm} = open(:anthropic, 1, [])
      context = Context.new("Hi", system_prompt: @system)
      {:ok, _result} = Runtime.run(context, llm: llm, stream: false, view: :auto)
      assert marks(bank) == [0]
    end

    test "what was written is read by the next request" do
      for bytes <- [500, 5_000, 150_000] do
        {bank, _context} = run(:anthropic, 40, bytes: bytes, system: "Short.")
        bills = BillingCache.bills(bank)
        first = Enum.find_index(bills, &(&1.written > 0))
        assert bills |> Enum.drop(first + 1) |> Enum.all?(&(&1.read > 0))
      end
    end

    test "a long run costs little more than with the best of eight settings" do
      hour = [%{type: :text, text: "Look around.", cache: [ttl: "1h"]}]

      sums =
        for request <- [[], [cache: false]],
            view <- [:auto, []],
            input <- ["Look around.", hour] do
          {bank, _} =
            run(:anthropic, 80, bytes: 5_000, request: request, view: view, input: input)

          BillingCache.sum(bank)
        end

      assert hd(sums) <= Enum.min(sums) * 1.05
    end

    test "forty turns of parallel calls are within 3 % of the limit, however positions are counted" do
      shapes = [
        {:runs, @system, 200},
        {:blocks, @system, 200},
        {:blocks, String.slice(@system, 0, 4_200), 200},
        {:blocks, @system, 1_000}
      ]

      for provider <- @providers,
          {rule, system, bytes} <- shapes,
          calls <- [10, 12, 20, 40] do
        {bank, context} =
          run(provider, 40, calls: calls, bytes: bytes, system: system, rule: rule)

        share = BillingCache.sum(bank) / BillingCache.sum_best(bank)
        assert share <= 1.03, inspect({provider, rule, byte_size(system), bytes, calls, share})
        assert Audit.account(context).verdicts == %{first: 1, hit: 39}
      end
    end

    test "a prompt that is too short for the cache costs no more than what five requests could not write" do
      for provider <- @providers,
          system <- ["Short.", String.slice(@system, 0, 2_000)],
          calls <- [10, 12, 20, 40] do
        {bank, _context} = run(provider, 40, calls: calls, system: system, rule: :blocks)
        bills = BillingCache.bills(bank)
        # Whatever was sent is written by the sixth request, and read from then on.
        unread = for bill <- Enum.take(bills, 6), do: bill.common * 0.9
        most = BillingCache.sum_best(bank) + Enum.sum(unread)

        assert BillingCache.sum(bank) <= most * 1.001,
               inspect({provider, byte_size(system), calls})

        assert bills |> Enum.drop(6) |> Enum.all?(&(&1.read == &1.common))
      end
    end

    test "large results are written one by one where a mark may stand between them" do
      for rule <- [:runs, :blocks], calls <- [10, 20, 40] do
        # No text of a result ends one.
        opts = [calls: calls, bytes: 20_000, rule: rule, word: ~S(}]},{"type":"tool_result"\" )]
        {bank, _context} = run(:anthropic, 6, opts)
        bills = BillingCache.bills(bank)
        written = for bill <- Enum.take(bills, 3), do: bill.read + bill.written
        [_prompt, second, third] = written
        ends = for bill <- bills, do: bill.all
        assert second not in ends and second > hd(ends), inspect(written)
        # What was written is found again, although nobody but the provider knows its end.
        assert Enum.at(bills, 2).read == second
        assert Enum.at(bills, 3).read == third
      end
    end

    test "what stands before the first uncleared result is read when the next ones are cleared" do
      hour = [%{type: :text, text: "Look around.", cache: [ttl: "1h"]}]

      arguments = %{"where" => String.duplicate("in the attic, ", 30)}

      for provider <- @providers, calls <- [1, 2], input <- ["Look around.", hour] do
        opts = [
          bytes: div(6_000, calls),
          calls: calls,
          view: :auto,
          input: input,
          arguments: arguments
        ]

        {bank, context} = run(provider, 100, opts)
        assert Audit.account(context).verdicts[:cleared] > 3
        lost = for bill <- BillingCache.bills(bank), do: bill.common - bill.read
        # Of the bill, with what it costs to write them instead.
        share = Enum.sum(lost) * 1.15 / BillingCache.sum(bank)
        assert share < 0.015, inspect({provider, calls, input, share})
      end
    end

    test "a conversation in which nothing is ever read writes no more" do
      {bank, llm} = open(:anthropic, 1, [])
      {:ok, session} = Session.start_link(llm: llm, stream: false, system_prompt: "Short.")
      text = String.duplicate("word ", 1_500)

      for _turn <- 1..20 do
        {:ok, _result} = Session.prompt(session, text)
        BillingCache.move_clock(bank, 6)
      end

      assert BillingCache.sum(bank) / BillingCache.sum_unmarked(bank) < 1.05
    end
  end

  describe "verdicts" do
    test "a clearing that the view's policy chose is no mistake" do
      {_bank, context} = run(:anthropic, 60, bytes: 5_000, view: :auto)

      for context <- [context, context |> Context.to_snapshot() |> Context.load!()] do
        account = Audit.account(context, prices: [@price])
        assert %{cleared: cleared, hit: hit, first: 1} = account.verdicts
        assert cleared > 1 and cleared + hit == 59
        assert account.avoidable == 0
      end
    end

    test "one that somebody chose by hand is one" do
      {_bank, llm} = open(:anthropic, 4, bytes: 20_000)
      opts = [llm: llm, tools: tools(20_000), stream: false, prices: [@price], max_iterations: 3]
      {:error, %{context: context}} = Runtime.run(Context.new("Go", system_prompt: @system), opts)
      context = Context.View.clear_tool_results(context, keep: 0)

      {:ok, %{context: context}} =
        Runtime.run(context, [max_iterations: 9] ++ Keyword.delete(opts, :max_iterations))

      account = Audit.account(context, prices: [@price])
      assert List.last(account.requests).verdict == {:broken, :cleared}
      assert account.avoidable > 0
    end

    test "the event has the verdict and the money, and the handler of the guide rings for breaks alone" do
      test = self()
      handle = ring(fn words -> send(test, {:rang, words}) end)

      heard = fn name, measured, metadata ->
        send(test, {:heard, name, measured, metadata})
        handle.(name, measured, metadata, nil)
      end

      {_bank, _context} = run(:anthropic, 60, bytes: 5_000, view: :auto, on_event: heard)

      assert_received {:heard, [_, _, :llm, :cache],
                       %{predicted: _, read: _, cost: _, avoidable: 0}, %{verdict: :cleared}}

      refute_received {:rang, _words}

      {_bank, llm} = open(:anthropic, 2, [])
      opts = [llm: llm, tools: tools(200), stream: false, on_event: heard, prices: [@price]]
      {:ok, %{context: context}} = Runtime.run(Context.new("Hi", system_prompt: @system), opts)
      context = Context.put_system_prompt(context, String.upcase(@system))
      {:ok, _result} = context |> Context.add_user_message("Again") |> Runtime.run(opts)
      assert_received {:rang, words}
      assert words =~ "system_prompt"
    end
  end

  # The handler that the guide shows, with another way to tell.
  defp ring(tell) do
    guide = File.read!("../../guides/cache.md")
    [_, code] = Regex.run(~r/```elixir\n(require Logger\n\nring = fn.+?end\n)/s, guide)
    code = String.replace(code, "Logger.warning(", "tell.(")
    {ring, _binding} = Code.eval_string(code <> "\nring", tell: tell)
    ring
  end

  describe "forecasts" do
    setup do
      {bank, llm} = open(:anthropic, 6, model: "claude-sonnet-4-5")
      opts = [llm: llm, tools: tools(8_000), stream: false, max_iterations: 3]
      {:error, %{context: context}} = Runtime.run(Context.new("Go", system_prompt: @system), opts)
      %{bank: bank, context: context, opts: opts}
    end

    @models ["claude-sonnet-4-5", "claude-haiku-4-5"]
    @other %{@price | model: "claude-haiku-4-5"}
           |> Map.new(fn {key, value} ->
             {key, if(is_integer(value), do: div(value, 3), else: value)}
           end)
    @prices [%{@price | model: "claude-sonnet-4-5"}, @other]

    defp forecast(context, opts),
      do:
        Audit.forecast(
          context,
          opts[:provider] || :anthropic,
          [cache: :auto, prices: @prices] ++ Keyword.delete(opts, :provider)
        )
        |> elem(1)

    test "another model has its own prices and a cold cache", %{context: context} do
      [same, other] = for model <- @models, do: forecast(context, model: model)
      assert same.breaks == []
      assert same.read > 3_000
      assert [%{cause: :model}] = other.breaks
      assert {other.read, other.new} == {0, 0}
      assert_in_delta other.cost, other.tokens * 1_250_000, other.tokens * 10_000
    end

    test "what is written of a request, if not all is, is told before it is sent" do
      for requests <- 2..5 do
        {bank, llm} = open(:anthropic, 99, [])
        opts = [llm: llm, tools: tools(150_000), stream: false]
        asked = Context.new("Go", system_prompt: @system)
        {:error, %{context: context}} = Runtime.run(asked, [max_iterations: requests] ++ opts)
        told = forecast(context, model: hd(@models))
        {:error, _error} = Runtime.run(context, [max_iterations: requests + 1] ++ opts)
        bill = List.last(BillingCache.bills(bank))
        assert told.read == bill.read

        # What is new is only estimated.
        if bill.fresh > 0,
          do: assert_in_delta(told.written, bill.written, 50),
          else: assert(told.written > bill.written / 2)
      end
    end

    test "after a switch back, the earlier request is read", %{
      context: context,
      opts: opts,
      bank: bank
    } do
      earlier = forecast(context, model: hd(@models)).read
      {_llm, own} = opts[:llm]
      other = {LLM.Anthropic, Keyword.put(own, :model, List.last(@models))}

      {:error, %{context: context}} =
        Runtime.run(context, Keyword.merge(opts, llm: other, max_iterations: 4))

      row = List.last(Audit.account(context, prices: @prices).requests)
      assert {row.verdict, row.predicted, row.avoidable} == {{:broken, :model}, 0, 0}

      back = forecast(context, model: hd(@models))
      assert {back.read, back.breaks} == {earlier, []}
      {:ok, %{context: context}} = Runtime.run(context, Keyword.merge(opts, max_iterations: 9))
      bill = Enum.at(BillingCache.bills(bank), 4)
      assert_in_delta bill.read, back.read, back.read * 0.05
      assert List.last(Audit.account(context).requests).verdict == :hit
    end

    test "another view, other tools, another provider and another minimum are compared", %{
      context: context
    } do
      model = hd(@models)
      plain = forecast(context, model: model)
      cleared = fn context, _needs -> {:ok, Context.View.clear_tool_results(context, keep: 0)} end
      assert [%{cause: :cleared}] = forecast(context, model: model, view: [cleared]).breaks
      assert forecast(context, model: model, view: :auto) == plain

      assert [%{cause: :tools}] =
               forecast(context, model: model, tools: [%{"name" => "other"}]).breaks

      assert [%{cause: :model} | _] =
               forecast(context, provider: :bedrock, model: "anthropic." <> model).breaks

      assert forecast(context, model: model, cache_minimum: 1_000_000).read == 0
      priced = [Map.put(hd(@prices), :cache_minimum, 1_000_000)]

      assert {:ok, %{read: 0, written: 0}} =
               Audit.forecast(context, :anthropic, model: model, cache: :auto, prices: priced)
    end
  end
end
