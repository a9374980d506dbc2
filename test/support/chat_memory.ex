defmodule AshAgent.TestSupport.ChatMemory do
  @moduledoc false

  alias AshAgent.{ChatContext, Context}
  alias AshAgent.TestSupport.{Memory, Wait}

  @doc "A chat of `iterations` iterations of two messages, of 2 KB texts that no two messages share."
  def chat(iterations), do: ChatContext.new(context: Memory.conversation(iterations))

  @doc """
  A chat with `count` branches more, each of another iteration of the first one, and each with a message of its own.
  """
  def branched(chat, count) do
    last = ChatContext.active(chat).context.current_iteration

    Enum.reduce(1..count, chat, fn number, chat ->
      name = "branch #{number}"
      at = max(1, div(last * number, count + 1))

      chat
      |> ChatContext.branch(name, from: "main", iteration: at)
      |> ChatContext.update_context(&Context.add_user_message(&1, "own #{number}"), branch: name)
    end)
  end

  @doc """
  Bytes of a chat of 10,000 messages, of 1,000 branches of it on top of that, and of what `load/1` makes of its dump with
  10 branches.
  """
  def bytes do
    start = used()
    chat = chat(5_000)
    one = used()
    many = branched(chat, 1_000)
    branches = used()
    dump = ChatContext.dump(branched(chat, 10))
    before = used()
    copy = ChatContext.load!(dump)
    loaded = used()

    true = map_size(many.branches) == 1_001
    true = map_size(copy.branches) == 11
    true = map_size(dump) > 0
    %{one: one - start, branches: branches - one, loaded: loaded - before}
  end

  defp used do
    :erlang.garbage_collect()
    Wait.resident_bytes()
  end
end
