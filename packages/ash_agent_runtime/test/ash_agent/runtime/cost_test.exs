defmodule AshAgent.Runtime.CostTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Runs, only: [prompt: 2, results: 1]

  alias AshAgent.{Context, LLM, Response, Runtime, Store}
  alias AshAgent.Runtime.{Error, SubAgent}
  alias AshAgent.Test.Server
  alias AshAgent.TestSupport.Clients

  # 10^-12 US dollars a token.
  @prices [%{model: :any, input: 3, cache_read: 1, cache_write: 4, output: 15}]

  @usage %{input_tokens: 100, cached_tokens: 30, cache_write_tokens: 20, output_tokens: 10}
  @cost 50 * 3 + 30 * 1 + 20 * 4 + 10 * 15

  # A model with a name, as clients have one.
  defmodule Named do
    @behaviour LLM

    @impl true
    def chat(context, opts), do: opts[:answer].(context)
  end

  # One that tries again by itself.
  defmodule Retrying do
    @behaviour LLM

    @impl true
    def chat(_context, opts), do: opts[:answer].(opts)
  end

  defp named(name, answer), do: {Named, model: name, answer: answer}

  defp calls(names) do
    calls =
      for {name, n} <- Enum.with_index(names),
          do: %{id: "call_#{n}", name: name, arguments: %{"task" => "t"}}

    %{tool_calls: calls, usage: @usage}
  end

  defp forever(tool \\ "noop"), do: fn _context -> {:ok, calls([tool])} end

  # The option of a client that limits its answers.
  defp limit(:anthropic, most), do: [max_tokens: most]
  defp limit(:gemini, most), do: [body: %{generationConfig: %{maxOutputTokens: most}}]
  defp limit(:bedrock, most), do: [body: %{inferenceConfig: %{maxTokens: most}}]
  defp limit(:ollama, most), do: [body: %{options: %{num_predict: most}}]
  defp limit(:openai_responses, most), do: [body: %{max_output_tokens: most}]
  defp limit(_chat, most), do: [body: %{max_tokens: most}]

  defp opts(llm, opts),
    do: [llm: llm, tools: %{"noop" => fn _ -> {:ok, "done"} end}, prices: @prices] ++ opts

  defp run(llm, opts), do: prompt("Hi", opts(llm, opts))

  describe "the cost of a run" do
    test "is in its result and its events, and the same as that of its context" do
      me = self()
      llm = LLM.Scripted.new([calls(["noop"]), %{content: "Done", usage: @usage}])
      on_event = fn [_, _ | name], measured, _ -> send(me, {name, measured[:cost]}) end
      {:ok, result} = run(llm, on_event: on_event)

      assert result.cost == 2 * @cost
      assert Context.Audit.fetch_cost(result.context, prices: @prices) == {:ok, 2 * @cost}
      assert Context.Audit.fetch_cost(result.context, prices: @prices, since: 2) == {:ok, @cost}
      for _ <- 1..2, do: assert_received({[:llm, :stop], @cost})
      refute_received {[:llm, :stop], _}

      stored = result.context |> Context.to_snapshot() |> Context.load!()
      assert Context.Audit.fetch_cost(stored, prices: @prices) == {:ok, 2 * @cost}
    end

    test "has what streams reported that failed before anything was delivered" do
      start = %{type: "message_start", message: %{usage: %{input_tokens: 100}}}
      opened = Response.new(:anthropic, model: "m")
      data = IO.iodata_to_binary(["data: ", Context.JSON.encode(start), "\n\n"])
      {:ok, response, _events} = Response.feed(opened, data)
      response = Response.interrupt(response, :provider)
      error = %LLM.Error{reason: {:provider, "overloaded"}, kind: :overloaded, response: response}
      prices = [%{model: :any, input: 1, output: 1}]

      for {last, tokens} <- [
            {{:ok, %{content: "Hi", usage: @usage}}, 310},
            {{:error, error}, 300}
          ] do
        answer = fn opts ->
          for n <- 1..2, do: opts[:on_retry].(%{error: error, attempt: n, wait: 0})
          last
        end

        {_status, ended} = prompt("Hi", llm: {Retrying, answer: answer}, prices: prices)
        assert {ended.usage.input_tokens, ended.cost} == {300, tokens}
        messages = Context.to_messages(ended.context)
        assert length(messages) == if(match?({:ok, _}, last), do: 2, else: 1)
        assert length(Context.Audit.failures(ended.context)) >= 2
      end
    end

    test "is not told without prices" do
      me = self()
      llm = LLM.Scripted.new([%{content: "Done", usage: @usage}])
      on_event = fn [_, _ | name], measured, _ -> send(me, {name, measured}) end
      {:ok, result} = prompt("Hi", llm: llm, on_event: on_event)
      assert result.cost == nil
      assert_received {[:llm, :stop], measured}
      refute is_map_key(measured, :cost)
    end

    test "is that of the model that answers, else of the one that was asked for" do
      answer = fn named -> fn _ -> {:ok, %{content: "Hi", model: named, usage: @usage}} end end

      prices =
        for {model, price} <- [{"big", 10}, {"small", 1}],
            do: %{model: model, input: price, output: price}

      for {reported, cost} <- [{"small-2026-01-01", 110}, {"huge", 1100}, {nil, 1100}] do
        llm = named("big", answer.(reported))
        {:ok, result} = prompt("Hi", llm: llm, prices: prices)
        assert result.cost == cost
      end
    end

    test "is exact where floats are not, and never too large for a counter" do
      usage = %{input_tokens: 9_007_199_254_740_993}

      context = Context.new("Hi") |> Context.add_assistant_message("Hi")
      context = Context.Tokens.add_token_usage(context, usage)
      price = %{model: :any, input: 1, output: 0}
      assert Context.Audit.fetch_cost(context, prices: [price]) == {:ok, 9_007_199_254_740_993}

      huge = %{calls(["noop"]) | usage: %{input_tokens: 0x7FFFFFFFFFFFFFFF}}

      opts = [prices: [%{price | input: 1_000_000_000_000}], max_total_tokens: :infinity]
      opts = fn _ -> {:ok, huge} end |> opts(max_cost: 5) |> Keyword.merge(opts)
      assert {:error, %Error{reason: {:max_cost_exceeded, 5}}} = prompt("Hi", opts)
    end
  end

  describe "max_cost" do
    test "ends a run before the model call after it is reached" do
      for {max, answers} <- [{1, 1}, {@cost, 1}, {@cost + 1, 2}, {3 * @cost, 3}] do
        assert {:error, %Error{} = error} = run(forever(), max_cost: max)
        assert error.reason == {:max_cost_exceeded, max}
        assert Exception.message(error) =~ "has cost #{max} * 10^-12 US dollars"
        assert {error.iterations, error.cost} == {answers, answers * @cost}
        assert Context.pending_tool_calls(error.context) == []
      end

      llm = LLM.Scripted.new([%{content: "Done", usage: @usage}])
      assert {:ok, %{cost: @cost}} = run(llm, max_cost: 1)
    end

    test "is a turn's: what it has cost before a pause or a crash counts, an earlier turn does not" do
      {:error, error} = run(forever(), max_iterations: 2)
      assert error.cost == 2 * @cost

      for max <- [2 * @cost, 3 * @cost, :infinity] do
        left = if max == :infinity, do: 3, else: div(max, @cost) - 2

        opts = opts(forever(), max_cost: max, max_iterations: 5)
        {:error, resumed} = Runtime.run(error.context, opts)
        assert resumed.cost == left * @cost
      end

      context = Context.add_user_message(error.context, "Go on")
      {:error, next} = Runtime.run(context, opts(forever(), max_cost: 2 * @cost))
      assert next.cost == 2 * @cost

      ask = [approval: fn _, _ -> :ask end, max_cost: @cost]
      {:paused, paused} = run(forever(), ask)
      assert paused.cost == @cost
      context = Context.Calls.approve_tool_call(paused.context, "call_0")

      assert {:error, %{reason: {:max_cost_exceeded, _}, cost: 0}} =
               Runtime.resume(context, opts(forever(), ask))
    end

    test "counts sub-agents at all depths, in parallel and when it goes on" do
      leaf = SubAgent.tool(name: "leaf", llm: fn _ -> {:ok, %{content: "x", usage: @usage}} end)

      child =
        LLM.Scripted.new(fn context ->
          if Context.count_messages(context) == 1,
            do: calls(["leaf", "leaf"]),
            else: %{content: "y", usage: @usage}
        end)

      middle = SubAgent.tool(name: "middle", llm: child, tools: [leaf])

      script = fn ->
        LLM.Scripted.new([calls(["middle", "middle"]), %{content: "Done", usage: @usage}])
      end

      opts = [tools: [middle], prices: @prices]

      # Each of the two in the middle asks twice, and so do its two leaves once each.
      whole = (2 + 2 * 4) * @cost
      {:ok, result} = prompt("Hi", [llm: script.(), max_cost: whole] ++ opts)
      assert result.cost == whole

      {:error, error} = prompt("Hi", [llm: script.(), max_cost: whole - @cost] ++ opts)

      assert {error.reason, error.cost} == {{:max_cost_exceeded, whole - @cost}, whole - @cost}

      stored = error.context |> Context.to_snapshot() |> Context.load!()
      {:error, again} = Runtime.run(stored, [llm: script.(), max_cost: whole - @cost] ++ opts)
      assert {again.reason, again.cost} == {{:max_cost_exceeded, whole - @cost}, 0}

      # The children are refused as well when their siblings have used it up.
      one = [llm: script.(), max_cost: 2 * @cost, max_concurrency: 1]
      {:error, error} = prompt("Hi", one ++ opts)
      assert error.reason == {:max_cost_exceeded, 2 * @cost}

      assert [_, {:error, "the run has spent all" <> _}] = results(error.context)
    end

    test "refuses a model without a price before it is asked, and before tools go on" do
      me = self()
      answer = fn _ -> send(me, :asked) && {:ok, %{content: "Hi", usage: @usage}} end
      future = DateTime.add(DateTime.utc_now(), 3600)

      for {llm, prices, model} <- [
            {answer, [], nil},
            {answer, [%{model: "m", input: 1, output: 1}], nil},
            {named(<<255>>, answer), [%{model: "m", input: 1, output: 1}], nil},
            {named("other", answer), [%{model: "m", input: 1, output: 1}], "other"},
            {named("m", answer), [%{model: "m", input: 1, output: 1, valid_from: future}], "m"}
          ] do
        opts = [llm: llm, prices: prices, max_cost: 1_000_000]
        assert {:error, %Error{} = error} = prompt("Hi", opts)
        assert error.reason == {:no_price, model}
        assert Exception.message(error) =~ "model: :any"

        pending = Context.new("Hi") |> Context.add_assistant_message("", [%{id: "a", name: "t"}])
        tools = %{"t" => fn _ -> send(me, :run) end}

        assert {:error, %Error{reason: {:no_price, ^model}}} =
                 Runtime.run(pending, [tools: tools] ++ opts)
      end

      refute_received :asked
      refute_received :run

      past = ~D[2020-01-01]
      opts = [prices: [%{model: "m", input: 1, output: 1, valid_from: past}], max_cost: 1_000_000]

      assert {:ok, %{cost: 110}} = prompt("Hi", [llm: named("m", answer)] ++ opts)

      # A finished conversation needs no model.
      done = Context.new("Hi") |> Context.add_assistant_message("Hi")
      assert {:ok, _} = Runtime.run(done, llm: answer, max_cost: 1)
    end

    test "refuses a sub-agent whose model has no price" do
      child = SubAgent.tool(name: "child", llm: named("other", fn _ -> raise "asked" end))
      answers = LLM.Scripted.new([calls(["child"]), %{content: "Done", usage: @usage}])

      llm = named("m", &LLM.chat(answers, &1))
      prices = [%{model: "m", input: 1, output: 1}]
      {:ok, result} = prompt("Hi", llm: llm, tools: [child], prices: prices, max_cost: 1_000_000)
      assert [{:error, "the sub-agent's model has no price" <> _}] = results(result.context)
    end

    test "ends a run whose model does not report its tokens" do
      silent = fn _ -> {:ok, Map.delete(calls(["noop"]), :usage)} end

      assert {:error, %Error{reason: :unknown_cost, iterations: 1} = error} =
               run(silent, max_cost: 1_000_000)

      assert Exception.message(error) =~ "did not report"
      assert {:error, %Error{reason: {:max_iterations_exceeded, _}}} = run(silent, [])
    end

    test "is asked before a request is sent, with the longest answer, for all clients" do
      long = Context.new(String.duplicate("word ", 4_000))
      price = %{model: :any, input: 3_000_000, output: 15_000_000}

      # A request of about 5,000 tokens, and an answer of 100, which only some name.
      for {provider, _module} <- Clients.modules(), limited? <- [true, false] do
        server = start_supervised!({Server, provider: provider, script: ["Yes"]}, id: make_ref())
        limit = if limited?, do: limit(provider, 1_000_000), else: []
        llm = Clients.new(provider, Server.base_url(server), [max_retries: 0] ++ limit)
        opts = [llm: llm, prices: [price], stream: false]

        {:ok, forecast} = Context.Audit.forecast(long, provider, prices: [price], model: "m")

        # Anthropic's client always has a limit.
        most = if limited?, do: 1_000_000, else: if(provider == :anthropic, do: 4_096, else: 0)
        enough = forecast.cost + most * 15_000_000

        assert {:error, %Error{} = error} = Runtime.run(long, [max_cost: enough - 1] ++ opts)
        assert {provider, error.reason} == {provider, {:max_cost_exceeded, enough - 1}}
        assert {error.cost, error.iterations} == {0, 0}
        assert Server.requests(server) == []
        assert {:ok, %{output: "Yes"}} = Runtime.run(long, [max_cost: enough] ++ opts)
      end
    end

    test "is asked before a function in a run with a view, and counts what was spent before" do
      me = self()

      llm = fn context ->
        send(me, :asked)

        if context.current_iteration == 1,
          do: {:ok, calls(["noop"])},
          else: {:ok, %{content: "Done", usage: @usage}}
      end

      tools = %{"noop" => fn _ -> {:ok, String.duplicate("word ", 10_000)} end}

      opts = [
        llm: llm,
        tools: tools,
        prices: [%{model: :any, input: 1_000_000, output: 1}],
        view: :auto
      ]

      assert {:error, %Error{} = error} = prompt("Hi", [max_cost: 5_000_000_000] ++ opts)
      assert {error.reason, error.iterations} == {{:max_cost_exceeded, 5_000_000_000}, 1}
      assert Exception.message(error) =~ "its limit is $0.005"
      assert_received :asked
      refute_received :asked
      assert {:ok, _} = Runtime.run(error.context, [max_cost: 50_000_000_000] ++ opts)
    end

    test "is told in dollars" do
      for {amount, dollars} <- [
            {1, "0.000000000001"},
            {10_000_000_000, "0.01"},
            {1_500_000_000_000, "1.50"},
            {12_000_000_000_000, "12.00"}
          ] do
        error = %Error{reason: {:max_cost_exceeded, amount}, context: Context.new("Hi")}
        assert Exception.message(error) =~ "its limit is $#{dollars}. "
      end
    end

    test "stores what it has when a run with a store ends" do
      {:ok, store} = Store.SQLite.open(":memory:")
      {:ok, kept} = Store.create(store, Context.new("Hi", id: "c"), owner: "me")
      opts = opts(forever(), store: store, max_cost: @cost)
      {:error, error} = Runtime.run(kept.value, [kept: kept] ++ opts)
      assert error.reason == {:max_cost_exceeded, @cost}
      {:ok, stored} = Store.fetch(store, "c")
      assert Context.equal?(stored.value, error.context)

      {:error, again} = Runtime.run(error.context, [kept: error.kept] ++ opts)
      assert {again.reason, again.cost} == {{:max_cost_exceeded, @cost}, 0}
    end
  end

  describe "prices" do
    test "are checked, in words that show none" do
      price = %{model: "m", input: 1, output: 1}

      for wrong <- [
            %{"m" => price},
            [Map.delete(price, :output)],
            [%{price | model: :m}],
            [%{price | model: <<255>>}],
            [%{price | input: 1.5}],
            [%{price | input: -1}],
            [%{price | input: 2_000_000_000_000}],
            [Map.put(price, :cache_read, nil)],
            [Map.put(price, :valid_from, "2026-01-01")],
            [Map.put(price, :valid_from, %{~D[2026-01-01] | year: 99_999})],
            [Map.put(price, :secret, 1)],
            [price | :improper]
          ] do
        words =
          ~r/invalid value for option :prices: expected a list of prices, got: (a map|a list)/

        assert_raise ArgumentError, words, fn ->
          run(forever(), []) && prompt("Hi", llm: forever(), prices: wrong)
        end

        assert_raise ArgumentError, words, fn ->
          Context.Audit.fetch_cost(Context.new("Hi"), prices: wrong)
        end
      end

      for wrong <- [0, -1, 1.0, "1"] do
        assert_raise ArgumentError, ~r/:max_cost/, fn -> run(forever(), max_cost: wrong) end
      end
    end
  end
end
