# Measures at a provider that bills by the rules of Claude's prompt cache what runs cost with `cache: :auto`, which is the default with
# tools: those of 1 to 5 requests compared with `cache: false`, those of 40 requests with parallel calls compared with the limit, which is
# to read all that came before and to write the rest, and one of 300 calls under eight settings:
#
#     cd packages/ash_agent_runtime && MIX_ENV=prod mix run ../../bench/cache.exs
#
# BENCH_QUICK=1 shows only that it works: 30 calls.

Code.require_file("support/harness.exs", __DIR__)

# Tests have the provider already.
unless Code.ensure_loaded?(AshAgent.TestSupport.BillingCache),
  do: Code.require_file("../packages/ash_agent_runtime/test/support/billing_cache.ex", __DIR__)

alias AshAgent.{Context, LLM, Runtime}
alias AshAgent.Bench.Harness
alias AshAgent.TestSupport.BillingCache

calls = if Harness.quick?(), do: 30, else: 300

system = "You are careful. " <> String.duplicate("Follow the rules of the house. ", 260)

run = fn requests, bytes, opts ->
  answer = fn
    number when number >= requests -> "Done."
    number -> for call <- 1..(opts[:calls] || 1), do: {"c#{number}_#{call}", "look", %{}}
  end

  {:ok, bank} = BillingCache.start_link(answer: answer, rule: opts[:rule] || :runs)
  result = String.duplicate("word ", div(bytes, 5))

  own = [
    api_key: "k",
    request: opts[:request] || [],
    transport: BillingCache.transport(bank)
  ]

  llm =
    case opts[:provider] do
      :bedrock ->
        model = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
        LLM.Bedrock.new([model: model, region: "eu-central-1"] ++ own)

      _anthropic ->
        LLM.Anthropic.new([model: "claude-sonnet-4-5"] ++ own)
    end

  input = opts[:input] || "Look around."
  context = Context.new(input, system_prompt: opts[:system] || system)

  {:ok, _result} =
    Runtime.run(context,
      llm: llm,
      tools: opts[:tools] || %{look: fn _ -> {:ok, result} end},
      stream: false,
      max_iterations: 1_000,
      max_calls: 10_000,
      max_total_tokens: :infinity,
      view: opts[:view] || []
    )

  bank
end

share = fn bank, of -> BillingCache.sum(bank) / of.(bank) end
percent = fn share -> :erlang.float_to_binary((share - 1) * 100, decimals: 1) <> " %" end
sizes = [5_000, 50_000, 150_000]

# A run is billed as the beginning of a longer one.
dearest = fn bytes, count, prompt, rule ->
  bills =
    6
    |> run.(div(bytes, count), calls: count, system: prompt, rule: rule)
    |> BillingCache.bills()

  for requests <- 2..5 do
    bills = Enum.take(bills, requests)
    Enum.sum(Enum.map(bills, &BillingCache.cost/1)) / Enum.sum(Enum.map(bills, & &1.all))
  end
  |> Enum.max()
end

prompts = [{"8 KB", system}, {"2 KB", String.slice(system, 0, 2_000)}]

for {title, prompt} <- prompts do
  IO.puts("\nSystem prompt of #{title}\n")
  IO.puts("| requests | 5 KB | 50 KB | 150 KB |\n|---|---:|---:|---:|")
  alone = run.(1, 0, system: prompt, tools: [])
  IO.puts("| 1, no tools | #{percent.(share.(alone, &BillingCache.sum_unmarked/1))} | | |")

  for requests <- 1..5 do
    banks = for bytes <- sizes, do: run.(requests, bytes, system: prompt)
    shares = for bank <- banks, do: percent.(share.(bank, &BillingCache.sum_unmarked/1))
    IO.puts("| #{requests} | #{Enum.join(shares, " | ")} |")
  end
end

IO.puts("\n| the dearest run of 2 to 5 requests | 5 KB | 50 KB | 150 KB |\n|---|---:|---:|---:|")

for {title, prompt} <- prompts, count <- [1, 3, 8, 10, 20, 40] do
  shares =
    for bytes <- sizes,
        do: Enum.max(for rule <- [:runs, :blocks], do: dearest.(bytes, count, prompt, rule))

  IO.puts("| #{title}, #{count} calls each | #{Enum.map_join(shares, " | ", percent)} |")
end

# The least that 40 requests can cost, by their sizes, if runs of 2 to 5 of them may cost 2 % more than without marks: each of these
# writes as much as that allows, from the provider's minimum on, and later ones write all. A rule that writes less earlier may not
# write more later. So no rule is cheaper that does not know where the run ends, wherever its marks may stand.
bound = fn bank ->
  sizes = for bill <- BillingCache.bills(bank), do: bill.all
  [first | _sizes] = sizes
  start = {0, 0, 0, 0}

  {cost, _sent, _kept, _reads} =
    sizes
    |> Enum.with_index(1)
    |> Enum.reduce(start, fn {size, number}, {cost, sent, kept, reads} ->
      sent = sent + size
      most = (0.02 * sent + 0.9 * reads) / 0.25
      most = if number in 2..5, do: min(most, size), else: size
      most = if number == 1, do: first, else: most
      now = if most >= 1_024, do: max(most, kept), else: kept
      {cost + kept * 0.1 + (now - kept) * 1.25 + size - now, sent, now, reads + now}
    end)

  cost
end

IO.puts(
  "\n| 40 requests, above the limit | a run of calls is a position | each block is one | Bedrock, each block is one | any rule that keeps 2 % |\n|---|---:|---:|---:|---:|"
)

ways = [{:anthropic, :runs}, {:anthropic, :blocks}, {:bedrock, :blocks}]

for {title, prompt} <- prompts ++ [{"0 KB", "Short."}],
    bytes <- [200, 1_000, 5_000],
    count <- [10, 12, 20, 40],
    bytes * count <= 50_000 do
  banks =
    for {provider, rule} <- ways,
        do: run.(40, bytes, calls: count, rule: rule, provider: provider, system: prompt)

  shares = for bank <- banks, do: percent.(share.(bank, &BillingCache.sum_best/1))
  least = percent.(bound.(hd(banks)) / BillingCache.sum_best(hd(banks)))

  IO.puts(
    "| #{title}, #{count} results of #{bytes} bytes | #{Enum.join(shares, " | ")} | #{least} |"
  )
end

IO.puts(
  "\n| #{calls} calls: `cache` | `view` | lifetime | US dollars | above the limit |\n|---|---|---|---:|---:|"
)

hour = [%{type: :text, text: "Look around.", cache: [ttl: "1h"]}]

for request <- [[], [cache: false]],
    view <- [[], :auto],
    {life, input} <- [{"5m", "Look around."}, {"1h", hour}] do
  bank = run.(calls, 5_000, request: request, view: view, input: input)
  dollars = :erlang.float_to_binary(BillingCache.sum(bank) * 3.0e-6, decimals: 2)
  above = if request == [], do: percent.(share.(bank, &BillingCache.sum_best/1))
  IO.puts("| #{inspect(request)} | #{inspect(view)} | #{life} | #{dollars} | #{above} |")
end
