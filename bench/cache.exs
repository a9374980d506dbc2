# Measures what runs of 1 to 5 requests cost with `cache: :auto`, which is the default with tools, compared with `cache: false`, and what a run of
# 300 calls costs under eight settings, at a provider that bills by the rules of Claude's prompt cache:
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

run = fn requests, bytes, request, view, input ->
  answer = fn
    number when number >= requests -> "Done."
    number -> [{"c#{number}", "look", %{}}]
  end

  {:ok, bank} = BillingCache.start_link(answer: answer)
  result = String.duplicate("word ", div(bytes, 5))
  transport = BillingCache.transport(bank)

  llm =
    LLM.Anthropic.new(
      model: "claude-sonnet-4-5",
      api_key: "k",
      request: request,
      transport: transport
    )

  {:ok, _result} =
    Runtime.run(Context.new(input, system_prompt: system),
      llm: llm,
      tools: %{look: fn _ -> {:ok, result} end},
      stream: false,
      max_iterations: 1_000,
      max_calls: 1_000,
      max_total_tokens: :infinity,
      view: view
    )

  {BillingCache.sum(bank), BillingCache.sum_unmarked(bank)}
end

percent = fn share -> :erlang.float_to_binary((share - 1) * 100, decimals: 1) <> " %" end
IO.puts("| requests | 5 KB | 50 KB |\n|---|---:|---:|")

for requests <- 1..5 do
  [small, large] =
    for bytes <- [5_000, 50_000] do
      {cost, plain} = run.(requests, bytes, [], [], "Look around.")
      percent.(cost / plain)
    end

  IO.puts("| #{requests} | #{small} | #{large} |")
end

IO.puts("\n| #{calls} calls: `cache` | `view` | lifetime | US dollars |\n|---|---|---|---:|")
hour = [%{type: :text, text: "Look around.", cache: [ttl: "1h"]}]

for request <- [[], [cache: false]],
    view <- [[], :auto],
    {life, input} <- [{"5m", "Look around."}, {"1h", hour}] do
  {cost, _plain} = run.(calls, 5_000, request, view, input)
  dollars = :erlang.float_to_binary(cost * 3.0e-6, decimals: 2)
  IO.puts("| #{inspect(request)} | #{inspect(view)} | #{life} | #{dollars} |")
end
