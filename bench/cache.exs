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

  llm =
    LLM.Anthropic.new(
      model: "claude-sonnet-4-5",
      api_key: "k",
      request: opts[:request] || [],
      transport: BillingCache.transport(bank)
    )

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

for {title, prompt} <- [{"8 KB", system}, {"2 KB", String.slice(system, 0, 2_000)}] do
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

IO.puts("\n| 40 requests | a run of calls is a position | each block is one |\n|---|---:|---:|")

for count <- [10, 12, 20, 40] do
  banks = for rule <- [:runs, :blocks], do: run.(40, 200, calls: count, rule: rule)
  shares = for bank <- banks, do: percent.(share.(bank, &BillingCache.sum_best/1))
  IO.puts("| #{count} calls each | #{Enum.join(shares, " | ")} |")
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
