defmodule AshAgent.PricesTest do
  use ExUnit.Case, async: true

  doctest AshAgent.Prices

  alias AshAgent.{Context, Prices, Response}

  @file_of_prices ~s([{"id": "anthropic", "provider_match": {"contains": "anthropic"}, "models": [
    {"id": "c", "match": {"starts_with": "claude"}, "context_window": 200000,
     "prices": {"input_mtok": 3, "cache_write_mtok": 3.75, "cache_write_1h_mtok": 6, "output_mtok": 15, "web_searches_kcount": 10}},
    {"id": "t", "match": {"equals": "t"}, "prices": {"input_mtok": 1, "per_image": 2}}]}])

  @answer %{
    id: "m1",
    type: "message",
    role: "assistant",
    model: "claude-x",
    stop_reason: "end_turn",
    content: [%{type: "text", text: "Hi"}],
    usage: %{
      input_tokens: 10,
      output_tokens: 20,
      cache_creation_input_tokens: 30,
      cache_creation: %{ephemeral_5m_input_tokens: 25, ephemeral_1h_input_tokens: 5},
      server_tool_use: %{web_search_requests: 2},
      service_tier: "batch",
      speed: "standard",
      inference_geo: "us"
    }
  }

  setup context do
    if context[:tmp_dir],
      do: File.write!(Path.join(context.tmp_dir, "prices.json"), @file_of_prices)

    :ok
  end

  defp answered do
    {:ok, response} = Response.decode(:anthropic, Context.JSON.encode(@answer))
    {:ok, context} = "Hello!" |> Context.new() |> Context.add_response(response)
    {response, context}
  end

  test "an answer's usage has what is billed by itself, and sums have the tokens" do
    {response, context} = answered()

    assert %{
             input_tokens: 40,
             cache_write_tokens: 30,
             cache_write_1h_tokens: 5,
             searches: 2,
             service_tier: "batch",
             inference_geo: "us"
           } = usage = Response.usage(response)

    refute is_map_key(usage, :speed)
    refute is_map_key(Context.Tokens.get_cumulative_tokens(context), :searches)
  end

  @tag :tmp_dir
  test "a file's prices count what is billed by itself, also after storage", %{tmp_dir: folder} do
    {:ok, prices} = Prices.read(Path.join(folder, "prices.json"))
    {_response, context} = answered()
    cost = 10 * 3_000_000 + 25 * 3_750_000 + 5 * 6_000_000 + 20 * 15_000_000 + 2 * 10_000_000_000
    assert Context.Audit.fetch_cost(context, prices: prices) == {:ok, cost}
    stored = context |> Context.to_snapshot() |> Context.load!()
    assert Context.equal?(stored, context)
    assert Context.Audit.fetch_cost(stored, prices: prices) == {:ok, cost}
    assert Context.Audit.fetch_cost(Context.fork(context), prices: prices) == {:ok, cost}
  end

  test "words that a provider reports change the price" do
    {_response, context} = answered()

    price = %{
      model: "claude-x",
      input: 1_000,
      output: 2_000,
      factors: %{service_tier: %{"batch" => {1, 2}}, inference_geo: %{us: {11, 10}}}
    }

    assert Context.Audit.fetch_cost(context, prices: [price]) == {:ok, 22_000 + 22_000}

    assert Context.Audit.fetch_cost(context, prices: [Map.delete(price, :factors)]) ==
             {:ok, 40_000 + 40_000}
  end

  @tag :tmp_dir
  test "files say what was not understood, and are short in iex", %{tmp_dir: folder} do
    path = Path.join(folder, "prices.json")
    {:ok, prices} = Prices.read(path)
    assert prices.skipped == [{"anthropic", "t", "per_image"}]
    assert prices.rounded == []
    digest = Base.encode16(:crypto.hash(:sha256, @file_of_prices), case: :lower)
    assert prices.sha256 == digest

    assert inspect(prices) ==
             "#AshAgent.Prices<1 models, 1 skipped, sha256 #{String.slice(digest, 0, 8)}>"

    File.write!(path, "{}")
    assert {:error, %Context.Error{} = error} = Prices.read(path)
    assert Exception.message(error) =~ "a list of providers"
    assert {:error, %File.Error{reason: :enoent}} = Prices.read(path <> "x")
  end

  for {name, price} <- [
        no_output: %{model: "m", input: 1},
        a_float: %{model: "m", input: 1.5, output: 1},
        no_name: %{input: 1, output: 1},
        an_unknown_key: %{model: "m", input: 1, output: 1, outptu: 1},
        a_number: 5
      ] do
    test "a price with #{name} is refused" do
      assert_raise ArgumentError, ~r/:prices/, fn ->
        Context.Audit.fetch_cost(Context.new("Hi"), prices: [unquote(Macro.escape(price))])
      end
    end
  end
end
