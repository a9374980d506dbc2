defmodule AshAgent.Runtime.SpentTest do
  # What the writes of stored conversations say was spent, against plain sums.
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Generators, only: [between: 2, chance: 1, check_all: 3, one_of: 1]

  alias AshAgent.{Context, LLM, Prices, Response, Runtime, Session, Store}
  alias AshAgent.Context.JSON
  alias AshAgent.Runtime.{Spent, SubAgent}
  alias AshAgent.TestSupport.PiSession

  @moduletag :capture_log

  # Sums of these are nothing that a float has.
  @prices [
    %{
      model: "a",
      input: 3_000_001,
      cache_read: 300_007,
      cache_write: 3_750_011,
      output: 15_000_013
    },
    %{model: "b", input: 17, output: 999_999_999_989}
  ]
  @tokens ~w(input_tokens output_tokens cached_tokens cache_write_tokens reasoning_tokens)a

  defp store do
    {:ok, store} = Store.SQLite.open(":memory:")
    store
  end

  # An answer of a model, which may have no price, and may not report anything.
  defp answer(more) do
    cached = between(0, 500)

    usage = %{
      input_tokens: cached + between(0, 5_000),
      cached_tokens: cached,
      output_tokens: between(0, 300),
      reasoning_tokens: 0
    }

    usage = if chance(85), do: usage
    model = one_of(["a", "a", "b", "unknown"])
    counted = if usage, do: %{usage: usage}, else: %{}
    known = if usage && model != "unknown", do: cost(model, usage)
    send(self(), {:answered, %{usage: usage, cost: known}})
    Map.merge(%{model: model, content: "x"}, Map.merge(counted, more))
  end

  defp cost(model, usage) do
    price = Enum.find(@prices, &(&1.model == model))
    read = Map.get(price, :cache_read, price.input)

    (usage.input_tokens - usage.cached_tokens) * price.input + usage.cached_tokens * read +
      usage.output_tokens * price.output
  end

  # With the models' names.
  defp play(script) do
    {:ok, left} = Agent.start_link(fn -> script end)

    fn _context ->
      case Agent.get_and_update(left, &List.pop_at(&1, 0)) do
        {:error, error} -> {:error, error}
        answer -> {:ok, answer}
      end
    end
  end

  defp answered do
    receive do
      {:answered, one} -> [one | answered()]
    after
      0 -> []
    end
  end

  # The answers are drawn before the run, which asks in other processes.
  defp sub_agent(depth) do
    script =
      if depth > 1 and chance(30),
        do: [answer(%{tool_calls: [call("look#{depth - 1}")]}), answer(%{})],
        else: [answer(%{})]

    deeper = if length(script) == 2, do: [sub_agent(depth - 1)], else: []
    SubAgent.tool(name: "look#{depth}", llm: play(script), tools: deeper)
  end

  defp call(name),
    do: %{id: "#{name}-#{between(1, 1_000_000_000)}", name: name, arguments: %{"task" => "x"}}

  # What a turn's answers are, with the sub-agents that they ask.
  defp turn do
    case between(1, 4) do
      1 -> {[answer(%{tool_calls: [call("look2")]}), answer(%{})], [sub_agent(2)]}
      2 -> {[answer(%{tool_calls: [call("noop")]}), answer(%{})], [noop()]}
      _plain -> {[answer(%{})], []}
    end
  end

  defp noop, do: %{name: "noop", function: fn _arguments -> {:ok, "x"} end}

  defp expect(answers) do
    sum = fn values -> if values != [], do: Enum.sum(values) end
    costs = for %{cost: cost} when cost != nil <- answers, do: cost

    tokens =
      for name <- @tokens, into: %{} do
        counted = for %{usage: %{^name => count}} when count > 0 <- answers, do: count
        {name, sum.(counted)}
      end

    unpriced = Enum.count(answers, &(&1.cost == nil))
    unpriced = if unpriced > 0, do: unpriced
    prices = if costs != [], do: Prices.digest(@prices)
    Map.merge(tokens, %{cost: sum.(costs), unpriced: unpriced, prices: prices})
  end

  defp spent(store, id) do
    {:ok, sums, _outcome} = Spent.fetch(store, id)
    sums
  end

  defp by_iteration(store, id) do
    {:ok, writes} = Store.history(store, id, limit: 10_000)
    for %{note: %{spent: %{iteration: number} = spent}} <- writes, do: {number, spent[:cost] || 0}
  end

  test "random turns, forks and rewinds cost what their answers cost, each once" do
    check_all("what was spent", [runs: 60], fn size ->
      store = store()
      {:ok, _} = Store.create(store, Context.new("", id: "c0"))

      Enum.reduce(1..(2 + div(size, 2)), %{"c0" => []}, fn number, paid ->
        id = one_of(Map.keys(paid))

        case between(1, 6) do
          1 -> fork(store, id, "c#{number}", paid)
          2 -> rewind(store, id, paid)
          entrance -> say(store, id, entrance, paid)
        end
      end)
    end)
  end

  defp fork(store, id, new, paid) do
    {:ok, %{value: context}} = Store.fetch(store, id)
    {:ok, _} = Store.create(store, Context.fork(context, id: new))
    assert spent(store, new) == expect([])
    Map.put(paid, new, [])
  end

  defp rewind(store, id, paid) do
    {:ok, kept} = Store.claim(store, id, owner: "r", lease: 60_000)
    context = Context.rewind(kept.value, to: between(1, kept.value.current_iteration))
    {:ok, kept} = Store.append(store, kept, context)
    {:ok, _} = Store.release(store, kept)
    assert spent(store, id) == expect(paid[id])
    paid
  end

  defp say(store, id, entrance, paid) do
    {script, tools} = turn()
    answers = answered()
    opts = [llm: play(script), tools: tools, prices: @prices]
    enter(entrance, store, id, opts)
    paid = Map.update!(paid, id, &(&1 ++ answers))
    assert spent(store, id) == expect(paid[id])
    costs = for {_number, cost} <- by_iteration(store, id), do: cost
    assert Enum.sum(costs) == (spent(store, id).cost || 0)
    paid
  end

  defp enter(entrance, store, id, opts) when entrance < 5 do
    {:ok, kept} = Store.claim(store, id, owner: "r", lease: 60_000)
    context = Context.add_user_message(kept.value, "Go on")
    {_status, %{kept: kept}} = Runtime.run(context, [store: store, kept: kept] ++ opts)
    {:ok, _} = Store.release(store, kept)
  end

  defp enter(_session, store, id, opts) do
    {:ok, session} = Session.start_link([id: id, store: store] ++ opts)
    Session.prompt(session, "Go on")
    GenServer.stop(session)
  end

  test "an iteration has what it and the sub-agents of its calls cost" do
    store = store()
    child = SubAgent.tool(name: "look2", llm: fn _context -> {:ok, one("b")} end)
    script = [Map.put(one("a"), :tool_calls, [call("look2")]), one("a")]
    {:ok, kept} = Store.create(store, Context.new("Hi", id: "c"))
    opts = [llm: play(script), tools: [child], prices: @prices]
    {:ok, result} = Runtime.run(kept.value, [store: store, kept: kept] ++ opts)

    sums =
      for {number, cost} <- by_iteration(store, "c"),
          reduce: %{},
          do: (sums -> Map.update(sums, number, cost, &(&1 + cost)))

    assert sums == %{1 => cost("a", usage()) + cost("b", usage()), 2 => cost("a", usage())}
    assert result.cost == sums[1] + sums[2]
  end

  defp usage, do: %{input_tokens: 1_001, cached_tokens: 7, output_tokens: 3, reasoning_tokens: 0}
  defp one(model), do: %{content: "x", model: model, usage: usage()}

  test "what failed and was tried again, and what came of an answer that broke off, counts as far as it was reported" do
    {:ok, said} = Response.from_message(one("a"))

    broken = %LLM.Error{
      reason: :closed,
      kind: :closed,
      response: Response.interrupt(said, :closed)
    }

    for entrance <- [1, 6] do
      store = store()
      {:ok, _} = Store.create(store, Context.new("", id: "c"))
      enter(entrance, store, "c", llm: play([{:error, broken}]), prices: @prices)
      assert %{input_tokens: 1_001, unpriced: nil} = spent = spent(store, "c")
      assert spent.cost == cost("a", usage())
    end
  end

  describe "a turn that somebody ends" do
    # In the middle of a stream, in a tool, in a sub-agent's tool.
    defp cut(store, end_it, opts) do
      {:ok, session} = Session.start_link([id: "c", store: store, prices: @prices] ++ opts)
      {:ok, ref} = Session.prompt_async(session, "Hi")
      assert_receive :working, 5_000
      end_it.(session)
      assert_receive {Session, ^ref, {:error, error}}, 5_000
      error
    end

    test "has cost what its answers and its sub-agents' had come to" do
      Process.flag(:trap_exit, true)
      test = self()

      stuck = %{
        name: "stuck",
        function: fn _arguments -> send(test, :working) && Process.sleep(:infinity) end
      }

      asks = &Map.put(one(&1), :tool_calls, [call(&2)])

      child = fn ->
        SubAgent.tool(name: "look2", llm: play([asks.("b", "stuck")]), tools: [stuck])
      end

      for end_it <- [&Session.cancel/1, &GenServer.cast(&1, {:drain, :now})],
          {tools, answer, cost} <- [
            {[stuck], asks.("a", "stuck"), cost("a", usage())},
            {[child.()], asks.("a", "look2"), cost("a", usage()) + cost("b", usage())}
          ] do
        store = store()
        error = cut(store, end_it, llm: play([answer]), tools: tools)
        assert error.cost == cost
        assert spent(store, "c").cost == cost
      end
    end
  end

  test "an answer that is cut in its stream counts as far as it was reported, and else has no known price" do
    test = self()
    told = fn name, _, _ -> if List.last(name) == :delta, do: send(test, :working) end
    text = String.duplicate("word ", 1_000)
    prices = [%{model: :any, input: 1, output: 1}]

    for {reported, cost, unpriced, input} <- [
          {%{usage: usage()}, 1_004, nil, 1_001},
          {%{}, nil, 1, nil}
        ] do
      store = store()
      llm = AshAgent.LLM.Scripted.new([Map.put(reported, :content, text)], delay: 5)
      opts = [llm: llm, store: store, id: "c", prices: prices, on_event: told]
      {:ok, session} = Session.start_link(opts)
      {:ok, ref} = Session.prompt_async(session, "Hi")
      assert_receive :working, 5_000
      Session.cancel(session)
      assert_receive {Session, ^ref, {:error, error}}, 5_000
      assert error.cost == (cost || 0)
      assert %{cost: ^cost, unpriced: ^unpriced, input_tokens: ^input} = spent(store, "c")
    end
  end

  @oracle Path.join(Path.dirname(PiSession.folder() || "/nowhere/x"), "prices")

  # Of models whose prices have no dates, so that they hold today.
  test "recorded usages cost what the oracle says, to the last digit" do
    with {:ok, prices} <- Prices.read(Path.join(@oracle, "prices.json")) do
      usages = @oracle |> Path.join("usages.json") |> File.read!() |> JSON.decode!()
      undated = undated(@oracle |> Path.join("prices.json") |> File.read!() |> JSON.decode!())

      rows =
        for %{"body" => body} = row <- usages,
            {provider, flavour, format} <- [
              {"anthropic", "default", :anthropic},
              {"openai", "chat", :openai_chat}
            ],
            {provider, body["model"]} in undated,
            %{"input_price" => _} = priced <- extractors(row, provider, flavour),
            {:ok, response} <- [decode(format, body)],
            do: {response, dollars(priced["input_price"]) + dollars(priced["output_price"])}

      assert length(rows) > 30

      for rows <- Enum.chunk_every(rows, 20) do
        store = store()
        {:ok, _} = Store.create(store, Context.new("", id: "c"))

        for {response, _cost} <- rows,
            do: enter(1, store, "c", llm: fn _context -> {:ok, response} end, prices: prices)

        expected = rows |> Enum.map(&elem(&1, 1)) |> Enum.sum()
        assert %{cost: ^expected, unpriced: nil, prices: digest} = spent(store, "c")
        assert digest == prices.sha256
      end
    end
  end

  defp undated(providers) do
    for %{"id" => provider, "models" => models} <- providers,
        %{"id" => model, "prices" => %{} = prices} <- models,
        Enum.all?(prices, fn {_unit, price} -> is_number(price) end),
        into: MapSet.new(),
        do: {provider, model}
  end

  defp extractors(%{"extracted" => extracted}, provider, flavour) do
    for %{"extractors" => all} <- extracted,
        %{"provider_id" => ^provider, "api_flavor" => ^flavour} = one <- all,
        do: one
  end

  defp decode(:anthropic, body),
    do:
      Response.decode(
        :anthropic,
        Map.merge(body, %{"type" => "message", "content" => [%{"type" => "text", "text" => "x"}]})
      )

  defp decode(:openai_chat, body),
    do:
      Response.decode(
        :openai_chat,
        Map.put(body, "choices", [%{"message" => %{"content" => "x"}}])
      )

  # In 10^-12 dollars.
  defp dollars(text) do
    [whole | rest] = String.split(text, ".")
    fraction = rest |> Enum.join() |> String.pad_trailing(12, "0")
    {twelve, more} = String.split_at(fraction, 12)
    assert String.trim(more, "0") == ""
    String.to_integer(whole <> twelve)
  end

  test "recorded sessions cost what they cost there" do
    for folder <- List.wrap(PiSession.folder()),
        path <- Path.wildcard(Path.join(folder, "*.jsonl")) do
      {context, _costs} = PiSession.read(path)

      prices = [
        %{
          model: :any,
          input: 3_000_000,
          cache_read: 300_000,
          cache_write: 3_750_000,
          output: 15_000_000
        }
      ]

      %{requests: requests} = Context.Audit.account(context, prices: prices)
      store = store()
      {:ok, _} = Store.create(store, Context.new("", id: "c"))
      requests = Enum.take_every(requests, 8)

      for %{usage: usage, model: model} <- requests do
        llm = fn _context -> {:ok, %{content: "x", model: model, usage: usage}} end
        enter(1, store, "c", llm: llm, prices: prices)
      end

      sums = spent(store, "c")
      assert sums.cost == requests |> Enum.map(& &1.cost) |> Enum.sum()

      for name <- [:input_tokens, :output_tokens, :cached_tokens, :cache_write_tokens],
          do: assert(sums[name] == requests |> Enum.map(&(&1.usage[name] || 0)) |> Enum.sum())
    end
  end
end
