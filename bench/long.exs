# Measures what a turn of a long conversation costs:
#
#     ELIXIR_ERL_OPTIONS="+sbwt none +sbwtdcpu none +sbwtdio none" MIX_ENV=prod mix run bench/long.exs
#
# Each iteration has an answer with a call and its result of 600 bytes. Each operation is timed on a conversation to which one
# turn was just added ("a turn") and on the same one loaded from its snapshot, of which nothing is kept ("anew"): the ratio is of
# the same run. Figures are medians. On a busy machine, trust the ratio of CPU time, which is told where Linux counts it and both
# sides take a millisecond or more. Below 1.5, a ratio of an operation that reads what was said is a loss.

Code.require_file("support/harness.exs", __DIR__)

defmodule Long do
  @moduledoc false

  alias AshAgent.{Context, Response}

  @filler "All work and no play makes a dull agent, in lib/agent.ex at line 17. "

  def make(count), do: Enum.reduce(1..count, Context.new("Go"), &add_turn/2)

  def add_turn(number, context) do
    {:ok, response} = Response.decode(:anthropic, answer(number))
    {:ok, context} = Context.Audit.put_sent(context, :anthropic)
    result = "result #{number} of order A#{number * 7919}B "

    context
    |> Context.add_response!(response)
    |> Context.add_tool_results([{"c#{number}", {:ok, String.pad_trailing(result, 600, @filler)}}])
  end

  defp answer(number),
    do: %{
      id: "m#{number}",
      type: "message",
      role: "assistant",
      model: "claude-sonnet-4-5",
      content: [
        %{type: "text", text: "I look."},
        %{type: "tool_use", id: "c#{number}", name: "read", input: %{path: "lib/a#{number}.ex"}}
      ],
      stop_reason: "tool_use",
      usage: %{
        input_tokens: 10,
        cache_read_input_tokens: number * 100,
        cache_creation_input_tokens: 300,
        output_tokens: 50
      }
    }

  # The median of several, each after one more turn.
  def turn(context, prepare, operation) do
    {_context, times} =
      Enum.reduce(1..runs(), {context, []}, fn _, {context, times} ->
        context = add_turn(context.current_iteration, context)
        {[], prepared} = {[], prepare.(context)}
        {context, [time(fn -> operation.(prepared) end) | times]}
      end)

    median(times)
  end

  def anew(context, prepare, operation) do
    snapshot = Context.to_snapshot(context)

    median(
      for _ <- 1..runs() do
        {:ok, context} = Context.load(snapshot)
        prepared = prepare.(context)
        time(fn -> operation.(prepared) end)
      end
    )
  end

  # Microseconds, and those of CPU in all threads, without what it takes to ask for them.
  defp time(fun) do
    asking = Enum.min(for _ <- 1..3, do: elem(cpu(fn -> :ok end), 1))
    {{time, _}, cpu} = cpu(fn -> :timer.tc(fun) end)
    {time, cpu - asking}
  end

  defp cpu(fun) do
    before = used()
    result = fun.()
    {result, div(used() - before, 1_000)}
  end

  # The first number of each thread, in nanoseconds. Nothing elsewhere than on Linux.
  defp used do
    for file <- threads(), {:ok, text} <- [File.read(file)], reduce: 0 do
      sum -> sum + (text |> String.split() |> hd() |> String.to_integer())
    end
  end

  defp threads do
    with nil <- Process.get(:threads) do
      found = Path.wildcard("/proc/self/task/*/schedstat")
      Process.put(:threads, found)
      found
    end
  end

  defp runs, do: if(AshAgent.Bench.Harness.quick?(), do: 3, else: 11)

  defp median(times) do
    {times, cpu} = Enum.unzip(times)
    {AshAgent.Bench.Harness.median(times), AshAgent.Bench.Harness.median(cpu)}
  end

  def ratio(anew, turn), do: Float.round(anew / max(turn, 1), 1)
end

alias AshAgent.Bench.Harness
alias AshAgent.Context

recall = &Context.Recall.put_recall(&1, true, index: 0.02)
# A conversation that hides, as one with a budget does at every tenth turn.
hidden = fn context ->
  if Context.View.view(context).hidden == [],
    do: context |> recall.() |> Context.View.hide({:all_but_last, 13}),
    else: context
end

operations = [
  {"account", & &1, &Context.Audit.account/1},
  {"account of the last turn", & &1, &Context.Audit.account(&1, since: &1.current_iteration - 1)},
  {"receipt, results cleared", &Context.View.clear_tool_results(&1, keep: 3),
   &Context.Recall.receipt/1},
  {"receipt, iterations hidden", &Context.View.hide(&1, {:all_but_last, 3}),
   &Context.Recall.receipt/1},
  {"hide, with an index", recall, &Context.View.hide(&1, {:all_but_last, 3})},
  {"hide ten more, with an index", hidden, &Context.View.hide(&1, {:all_but_last, 3})},
  {"hide, with a handle", &Context.Recall.put_recall(&1, true),
   &Context.View.hide(&1, {:all_but_last, 3})},
  # A loop encodes each turn, so what was encoded before is kept.
  {"request after the next turn",
   fn context ->
     Context.encode_request!(context, :anthropic)
     Long.add_turn(context.current_iteration, context)
   end, &Context.encode_request!(&1, :anthropic)},
  {"clear when due", & &1, &Context.Rent.clear_when_due(&1, keep: 3)},
  {"a hundred notes of the same request", & &1,
   fn context ->
     for _ <- 1..100,
         do: Context.Audit.put_request(context, %{"max_tokens" => 5}, [%{"name" => "read"}])
   end},
  {"a hundred digests of the same request", & &1,
   fn context -> for _ <- 1..100, do: {:ok, _} = Context.Audit.put_sent(context, :anthropic) end}
]

IO.puts("#{Harness.environment()}\n")
IO.puts("| operation | iterations | a turn, us | anew, us | anew / a turn | of CPU |")
IO.puts("|---|---|---|---|---|---|")

sizes = if Harness.quick?(), do: [100, 1_000], else: [100, 1_000, 10_000]
contexts = for size <- sizes, do: {size, Long.make(size)}

for {name, prepare, operation} <- operations, {size, context} <- contexts do
  {turn, turn_cpu} = Long.turn(context, prepare, operation)
  {anew, anew_cpu} = Long.anew(context, prepare, operation)
  by_cpu = if min(turn_cpu, anew_cpu) >= 1_000, do: Long.ratio(anew_cpu, turn_cpu), else: "-"
  IO.puts("| #{name} | #{size} | #{turn} | #{anew} | #{Long.ratio(anew, turn)} | #{by_cpu} |")
end
