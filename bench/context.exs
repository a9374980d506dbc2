# Compares AshAgent.Context with the same operations on maps and lists:
#
#     MIX_ENV=prod mix run bench/context.exs
#
# A conversation of n messages has n answers of the model, each 2 KB of text with one tool call, and n results.

Code.require_file("support/plain.exs", __DIR__)
Code.require_file("support/harness.exs", __DIR__)

defmodule AshAgent.Bench.Conversations do
  @moduledoc false

  @at ~U[2026-01-01 00:00:00.000000Z]

  def text(n),
    do: String.pad_trailing("message #{n} ", 2048, "All work and no play makes a dull agent. ")

  def call(n), do: %{id: "call_#{n}", name: :search, arguments: %{query: "number #{n}"}}
  def result(n), do: %{id: "call_#{n}", result: {:ok, "found #{n}"}}

  def with_calls(module, n) do
    for i <- 1..n, reduce: module.new("start", at: @at) do
      context ->
        context
        |> module.add_assistant_message(text(i), [call(i)])
        |> module.add_tool_results([result(i)])
    end
  end

  # n messages without a tool call: a user message and an answer by turns.
  def without_calls(module, n) do
    for i <- 2..n, reduce: module.new(text(1), at: @at) do
      context when rem(i, 2) == 0 -> module.add_assistant_message(context, text(i))
      context -> module.add_user_message(context, text(i))
    end
  end
end

alias AshAgent.Bench.{Conversations, Harness, Plain}
alias AshAgent.Context

same_messages? = fn context, plain -> Context.to_messages(context) == Plain.to_messages(plain) end

row = fn name, limit, times, reached? ->
  us = fn value -> :erlang.float_to_binary(value, decimals: if(value < 10, do: 2, else: 1)) end

  ratio =
    if times.ratio >= 1,
      do: "#{us.(times.ratio)} times slower",
      else: "#{us.(1 / times.ratio)} times faster"

  IO.puts(
    "| #{name} | #{us.(times.plain)} us | #{us.(times.native)} us | #{ratio} | #{limit}: #{if reached?, do: "yes", else: "NO"} |"
  )

  times
end

IO.puts("#{Harness.environment()}\n")
IO.puts("| operation | maps and lists | AshAgent.Context | this package is | aim |")
IO.puts("|---|---|---|---|---|")

appends =
  for n <- [10, 100, 300, 1_000, 10_000], n < 10_000 or not Harness.quick?(), into: %{} do
    context = Conversations.with_calls(Context, n)
    plain = Conversations.with_calls(Plain, n)
    text = Conversations.text(n + 1)
    calls = [Conversations.call(n + 1)]

    times =
      Harness.compare(
        fn -> Context.add_assistant_message(context, text, calls) end,
        fn -> Plain.add_assistant_message(plain, text, calls) end,
        same_messages?
      )

    {n, times}
  end

for {n, times} <- Enum.sort(appends) do
  {limit, reached?} =
    case n do
      10 ->
        {"at most 8 times slower", times.ratio <= 8}

      100 ->
        {"none", true}

      10_000 ->
        {"faster, and at most 1.5 times the time at 10",
         times.ratio < 1 and times.native <= 1.5 * appends[10].native}

      _ ->
        {"faster", times.ratio < 1}
    end

  row.("append to #{n} messages", limit, times, reached?)
end

context = Conversations.with_calls(Context, 1_000)
plain = Conversations.with_calls(Plain, 1_000)
echo = Harness.echo()

times =
  Harness.compare(
    fn -> Harness.there_and_back(echo, context) end,
    fn -> Harness.there_and_back(echo, plain) end,
    same_messages?
  )

row.(
  "hand 1000 messages to another process and back",
  "at least 100 times faster",
  times,
  times.ratio <= 1 / 100
)

without = {Conversations.without_calls(Context, 1_000), Conversations.without_calls(Plain, 1_000)}
# With their results, 500 answers are 1000 messages, and the first user message.
with = {Conversations.with_calls(Context, 500), Conversations.with_calls(Plain, 500)}

for {name, limit, {context, plain}} <- [{"without calls", 5, without}, {"with calls", 7, with}] do
  times =
    Harness.compare(
      fn -> Context.to_messages(context) end,
      fn -> Plain.to_messages(plain) end,
      &==/2
    )

  row.("list 1000 messages #{name}", "at most #{limit} times slower", times, times.ratio <= limit)
end

times =
  Harness.compare(
    fn -> Context.get_iteration(context, 500) end,
    fn -> Plain.get_iteration(plain, 500) end,
    fn iteration, plain ->
      iteration.messages == plain.messages and iteration.tool_calls == plain.tool_calls
    end
  )

row.("get iteration 500 of 1000", "faster", times, times.ratio < 1)
