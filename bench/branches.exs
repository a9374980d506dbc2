# Compares branches of a chat with the same on maps and lists:
#
#     MIX_ENV=prod mix run bench/branches.exs
#
# A conversation of n messages has a message of the user and an answer by turns, each of 2 KB. The chat of maps has a list
# of iterations for each branch.

Code.require_file("support/plain.exs", __DIR__)
Code.require_file("support/harness.exs", __DIR__)

defmodule AshAgent.Bench.Chats do
  @moduledoc false

  alias AshAgent.Bench.Plain
  alias AshAgent.{ChatContext, Context}

  @at ~U[2026-01-01 00:00:00.000000Z]

  def text(n),
    do: String.pad_trailing("message #{n} ", 2048, "All work and no play makes a dull agent. ")

  def conversation(module, n) do
    for i <- 2..n//1, reduce: module.new(text(1), at: @at, id: "bench") do
      context when rem(i, 2) == 0 -> module.add_assistant_message(context, text(i))
      context -> module.add_user_message(context, text(i))
    end
  end

  def ours(n), do: ChatContext.new(context: conversation(Context, n))
  def maps(n), do: %{branches: %{"main" => conversation(Plain, n)}, active: "main"}

  def branch_maps(chat, name, at \\ nil) do
    branch = chat.branches["main"]
    branch = if at, do: rewind(branch, at), else: branch
    %{chat | branches: Map.put(chat.branches, name, branch)}
  end

  defp rewind(branch, at),
    do: %{branch | iterations: Enum.take(branch.iterations, at), current_iteration: at}

  # Ten more branches of a chat, at ten places, each with an answer of its own.
  def branched_ours(n) do
    for i <- 1..10, reduce: ours(n) do
      chat ->
        chat
        |> ChatContext.branch("b#{i}", iteration: at(n, i))
        |> ChatContext.update_context(&Context.add_user_message(&1, "own #{i}"), branch: "b#{i}")
    end
  end

  def branched_maps(n) do
    for i <- 1..10, reduce: maps(n) do
      chat ->
        chat = branch_maps(chat, "b#{i}", at(n, i))

        %{
          chat
          | branches: Map.update!(chat.branches, "b#{i}", &Plain.add_user_message(&1, "own #{i}"))
        }
    end
  end

  defp at(n, i), do: div(n * i, 22)
end

alias AshAgent.Bench.{Chats, Harness, Plain}
alias AshAgent.{ChatContext, Context}

same? = fn ours, maps ->
  Map.keys(ours.branches) == Map.keys(maps.branches) and
    Enum.all?(ours.branches, fn {name, branch} ->
      Context.to_messages(branch.context) == Plain.to_messages(maps.branches[name])
    end)
end

us = fn value -> :erlang.float_to_binary(value / 1, decimals: if(value < 10, do: 2, else: 1)) end

row = fn name, times, aim, reached? ->
  ratio =
    if times.ratio >= 1,
      do: "#{us.(times.ratio)} times slower",
      else: "#{us.(1 / times.ratio)} times faster"

  IO.puts(
    "| #{name} | #{us.(times.plain)} us | #{us.(times.native)} us | #{ratio} | #{aim}: #{if reached?, do: "yes", else: "NO"} |"
  )

  times
end

IO.puts("#{Harness.environment()}\n")

IO.puts(
  "| work, messages of 2 KB | maps and lists | AshAgent.ChatContext | this package is | aim |"
)

IO.puts("|---|---|---|---|---|")

branches =
  for n <- [1, 10_000] do
    {chat, plain} = {Chats.ours(n), Chats.maps(n)}

    Harness.compare(
      fn -> ChatContext.branch(chat, "b") end,
      fn -> Chats.branch_maps(plain, "b") end,
      same?
    )
  end

for {n, times} <- Enum.zip([1, 10_000], branches) do
  aim =
    if n == 1,
      do: {"none", true},
      else: {"at most 1.5 times the time at 1", times.native <= 1.5 * hd(branches).native}

  row.("branch #{n} messages", times, elem(aim, 0), elem(aim, 1))
end

{chat, plain} = {Chats.ours(10_000), Chats.maps(10_000)}

times =
  Harness.compare(
    fn -> ChatContext.branch(chat, "b", iteration: 2_500) end,
    fn -> Chats.branch_maps(plain, "b", 2_500) end,
    same?
  )

row.("branch 10000 messages at iteration 2500", times, "faster", times.ratio < 1)

append = fn chat ->
  ChatContext.update_context(chat, &Context.add_user_message(&1, "own"))
end

append_plain = fn chat ->
  %{chat | branches: Map.update!(chat.branches, "main", &Plain.add_user_message(&1, "own"))}
end

times = Harness.compare(fn -> append.(chat) end, fn -> append_plain.(plain) end, same?)
row.("append to a branch of 10000 messages", times, "faster", times.ratio < 1)

{chat, plain} = {Chats.branched_ours(1_000), Chats.branched_maps(1_000)}
echo = Harness.echo()

times =
  Harness.compare(
    fn -> Harness.there_and_back(echo, chat) end,
    fn -> Harness.there_and_back(echo, plain) end,
    same?
  )

row.(
  "hand 11 branches of up to 1000 messages over and back",
  times,
  "at least 100 times faster",
  times.ratio <= 1 / 100
)

# The maps are written branch by branch, by the writer that this package has.
whole = fn -> AshAgent.Context.JSON.encode(plain.branches) end
text = fn -> ChatContext.to_snapshot(chat) end
times = Harness.compare(text, whole, fn _, _ -> true end)
row.("write 11 branches of up to 1000 messages as JSON", times, "faster", times.ratio < 1)

one = byte_size(ChatContext.to_snapshot(Chats.ours(1_000)))

IO.puts(
  "\nJSON of 1 branch: #{one} bytes; of 11: #{byte_size(text.())} bytes, as maps #{byte_size(whole.())} bytes."
)
