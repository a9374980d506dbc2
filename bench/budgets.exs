# Compares counting tokens, trimming and what a trimmed conversation costs with plain maps:
#
#     MIX_ENV=prod mix run bench/budgets.exs
#
# The maps count four bytes a token, which reads every message anew each time; ours counts each message once.

Code.require_file("support/harness.exs", __DIR__)

alias AshAgent.Bench.Harness
alias AshAgent.Context

filler = "All work and no play makes a dull agent. "
text = fn n, size -> String.pad_trailing("message #{n} ", size, filler) end

conversation = fn n ->
  for i <- 2..n//1, reduce: Context.new(text.(1, 2048)) do
    context when rem(i, 2) == 0 -> Context.add_assistant_message(context, text.(i, 2048))
    context -> Context.add_user_message(context, text.(i, 2048))
  end
end

maps = fn n -> for i <- 1..n, do: %{role: :user, content: text.(i, 2048)} end

# What applications do without this package: bytes by four, and some for each message.
count = fn messages ->
  Enum.reduce(messages, 0, fn message, sum -> sum + div(byte_size(message.content), 4) + 4 end)
end

by_length = fn messages ->
  Enum.reduce(messages, 0, fn message, sum -> sum + div(String.length(message.content), 4) + 4 end)
end

us = fn value -> :erlang.float_to_binary(value / 1, decimals: if(value < 10, do: 2, else: 1)) end

IO.puts("#{Harness.environment()}\n")
IO.puts("| work, messages of 2 KB | maps | ours | | aim |\n|---|---|---|---|---|")

row = fn name, times, verdict ->
  ratio =
    if times.ratio >= 1,
      do: "#{us.(times.ratio)} times slower",
      else: "#{us.(1 / times.ratio)} times faster"

  IO.puts(
    "| #{name} | #{us.(times.plain)} us | #{us.(times.native)} us | #{ratio} | #{verdict} |"
  )
end

any = fn _, _ -> true end
context = conversation.(1_000)
messages = maps.(1_000)

for method <- [:estimate, :o200k_base, :cl100k_base] do
  Context.Tokens.count_tokens(context, method: method)

  times =
    Harness.compare(
      fn -> Context.Tokens.count_tokens(context, method: method) end,
      fn -> count.(messages) end,
      any
    )

  aim = "2 us: #{if times.native < 2, do: "yes", else: "NO"}"
  row.("#{method} of 1,000 unchanged messages; maps: bytes / 4", times, aim)
end

times =
  Harness.compare(
    fn -> Context.Tokens.count_tokens(context, method: :estimate) end,
    fn -> by_length.(messages) end,
    any
  )

row.("the same; maps: characters / 4, as the original counts", times, "")

# Turn by turn: append, then ask whether it is too much.
loop = fn start, add, exceeds? ->
  Enum.reduce(1..50, start, fn i, conversation ->
    conversation = add.(conversation, text.(i, 2048))
    exceeds?.(conversation)
    conversation
  end)
end

native = fn ->
  loop.(
    context,
    &(&1 |> Context.add_assistant_message(&2) |> Context.add_user_message("go on")),
    &Context.Tokens.budget(&1, 1_000_000).exceeded?
  )
end

plain = fn ->
  loop.(
    Enum.reverse(messages),
    &[%{role: :user, content: "go on"}, %{role: :assistant, content: &2} | &1],
    &(by_length.(&1) > 1_000_000)
  )
end

times = Harness.compare(native, plain, any)
row.("50 turns behind 1,000 messages, a budget check in each", times, "")

# Trimming: what is hidden decides, not what stays.
{:ok, _, hidden} = Context.View.fit(context, 100_000, step: 1)
all = Context.Tokens.count_tokens(context)

for n <- [1_000, 10_000] do
  context = conversation.(n)
  total = Context.Tokens.count_tokens(context)

  {:ok, _, 1..20} =
    Context.View.fit(
      context,
      total - Context.Tokens.count_tokens(Context.View.hide(context, {:all_but, 1..20})) + 10,
      step: 20
    )

  hide = fn -> Context.View.fit(context, total - 10_000, step: 20) end
  drop = fn -> Context.View.compact(context, :drop, range: 1..20) end
  times = Harness.compare(hide, drop, any)

  IO.puts(
    "fit and compact(:drop) that hide 20 of #{div(n, 2)} iterations: #{us.(times.native)} us and #{us.(times.plain)} us"
  )
end

IO.puts("fit of #{all} tokens to 100,000 hides #{inspect(hidden)}")

# What stays is not encoded again.
fresh = fn -> Context.encode_request!(context, :openai_chat) end
fresh.()
{:ok, trimmed, _} = Context.View.fit(context, 100_000)
times = Harness.compare(fn -> Context.encode_request!(trimmed, :openai_chat) end, fresh, any)

IO.puts(
  "body of the trimmed conversation right after: #{us.(times.native)} us; of the whole one: #{us.(times.plain)} us"
)

# Before and after a request, by what is encoded already: the prompt cache, of 500 answers with a call each.
usage = %{
  input_tokens: 10,
  output_tokens: 1,
  cache_read_input_tokens: 5_000,
  cache_creation_input_tokens: 100
}

now = DateTime.utc_now()

turn = fn n, context ->
  use = %{type: "tool_use", id: "call_#{n}", name: "look", input: %{}}
  said = [%{type: "text", text: text.(n, 1024)}, use]
  body = %{type: "message", model: "m", content: said, usage: usage}
  {:ok, response} = AshAgent.Response.decode(:anthropic, body)
  {:ok, context} = Context.add_response(context, response, requested_at: now, at: now)
  Context.add_tool_results(context, [{"call_#{n}", {:ok, text.(n, 2048)}}])
end

before = Enum.reduce(1..499, Context.new("Go", system_prompt: "Be brief."), turn)
# A run notes each request, so that only what came since the last one is new.
{:ok, noted} = Context.Audit.put_sent(before, :anthropic, cache: :auto)
agent = turn.(500, noted)

encode = fn -> Context.encode_request!(agent, :anthropic, cache: :auto) end
encode.()
{:ok, %{breaks: []}} = Context.Audit.forecast(agent, :anthropic, cache: :auto)

for {name, aim, work} <- [
      {"a forecast", 50, fn -> Context.Audit.forecast(agent, :anthropic, cache: :auto) end},
      {"a note of what is sent", 1,
       fn -> Context.Audit.put_sent(agent, :anthropic, cache: :auto) end},
      {"whether results are due", nil, fn -> Context.Rent.clear_when_due(agent) end},
      {"an account", nil, fn -> Context.Audit.account(agent) end}
    ] do
  times = Harness.compare(work, encode, any)
  aim = if aim, do: "; #{aim} us: #{if times.native < aim, do: "yes", else: "NO"}"

  IO.puts(
    "#{name} of 1,000 messages: #{us.(times.native)} us, its body #{us.(times.plain)} us#{aim}"
  )
end
