defmodule AshAgent.TestSupport.StoreWork do
  @moduledoc false

  # Has a store run each of its statements, for tests that look at their plans.

  alias AshAgent.{ChatContext, Context, Store}

  @doc "Those of the turns of a conversation and of a chat."
  def do_turns(store) do
    calls = [%{id: "a", name: :pay, arguments: %{}}]
    chat = ChatContext.new(id: "chat", input: "x")
    {:ok, kept} = Store.create(store, chat)
    {:ok, kept} = Store.append(store, kept, ChatContext.branch(chat, "idea", iteration: 1))
    {:ok, _} = Store.append(store, kept, ChatContext.delete_branch(kept.value, "idea"))

    image = %{
      type: :image,
      media_type: "image/png",
      data: Base.encode64(:crypto.strong_rand_bytes(3_000))
    }

    {:ok, kept} = Store.create(store, Context.new([image], id: "c"))
    {:ok, kept} = Store.claim(store, kept.id, owner: "a")
    {:ok, _} = Store.enqueue(store, kept, "one", id: "p1")
    {:ok, _} = Store.enqueue(store, "c", "two", id: "p2")
    {:ok, _} = Store.waiting(store, "c")
    context = Context.add_assistant_message(kept.value, "x", calls)
    {:ok, kept} = Store.append(store, kept, context, taken: ["p1", "p2"])
    {:ok, kept, ["k"]} = Store.start(store, kept, [%{key: "k"}])
    context = Context.add_tool_results(context, [{"a", {:ok, 1}}])
    {:ok, kept} = Store.append(store, kept, context, finished: [%{key: "k", state: :ok}])
    {:ok, kept} = do_late(store, kept)
    {:ok, kept} = Store.append(store, kept, Context.rewind(kept.value, to: 1))
    {:ok, [_]} = Store.calls(store, "c", keys: ["k"], state: :ok)
    {:ok, [_ | _]} = Store.history(store, "c")
    {:ok, kept} = Store.renew(store, kept)
    {:ok, kept} = Store.release(store, kept)
    {:ok, _} = Store.fetch(store, kept.id)
    {:ok, _} = Store.search(store, "x", id: "c")
    {:error, :not_found} = Store.append(store, %{kept | id: "none"}, kept.value)
    :ok = Store.delete(store, "c")
  end

  defp do_late(store, kept) do
    context = Context.add_assistant_message(kept.value, "x", [%{id: "b", name: :build}])
    {:ok, kept} = Store.append(store, kept, context)
    {:ok, kept, ["l"]} = Store.start(store, kept, [%{key: "l"}])
    context = Context.add_tool_results(context, [{"b", {:waiting, %{handle: "l.1"}}}])
    {:ok, kept} = Store.append(store, kept, context)
    {:ok, %{calls: [_]}} = Store.waiting_calls(store, id: "c")
    {:ok, :kept} = Store.arrive(store, "c", "l.1", {:ok, 1})
    {:ok, [_]} = Store.arrivals(store, "c")
    {:ok, context} = Context.Calls.arrive(context, {:handle, "l.1"}, {:ok, 1})
    Store.append(store, kept, context)
  end

  @doc "Those that are about many conversations, or that move one."
  def do_others(store) do
    mark = %{mark: 1}

    [one, two | _] =
      for n <- 1..4 do
        context = Context.new("word", id: "other #{n}", metadata: mark)
        {:ok, kept} = Store.create(store, context, owner: "a", status: :running)
        kept
      end

    {:ok, [{:ok, _}, {:ok, _}]} = Store.renew_all(store, [one, two])
    {:ok, _} = Store.expired(store, owner: "b", limit: 10)
    time = ~U[2026-01-01 10:00:00Z]

    for cursor <- [nil, {time, "x"}] do
      page = [[limit: 10, after: cursor]]
      {:ok, %{conversations: [_, _, _, _]}} = Store.Named.call(store, :list_claimed, page)
    end

    for by <- [:updated_at, :created_at], order <- [:asc, :desc], last <- [nil, {time, "x"}] do
      opts = if last, do: [after: last], else: []
      {:ok, _} = Store.list(store, [by: by, order: order, since: time] ++ opts)
      {:ok, _} = Store.list(store, [by: by, order: order] ++ opts)
    end

    {:ok, _} = Store.list(store, parent_id: "other 1")

    for one <- [[], [for: "x"], [deadline_before: time]],
        last <- [[], [after: {time, "x", "y"}]],
        do: {:ok, _} = Store.waiting_calls(store, one ++ last)

    {:ok, _} = Store.expire_waiting(store)
    for last <- [[], [after: {time, "x", "y"}]], do: {:ok, _} = Store.arrived(store, last)
    {:ok, %{conversations: [_, _, _, _]}} = Store.list(store, metadata: mark)
    {:ok, %{results: [_, _, _, _]}} = Store.search(store, "word")
    {:ok, _} = Store.dump(store, "other 1")
    {:ok, _} = Store.release(store, one)
    :ok = Store.rename(store, "other 1", "renamed")

    {:ok, %{conversations: 1}} =
      Store.prune(store, older_than: 0, status: :running, metadata: mark)

    {:ok, %{conversations: 3}} = Store.erase(store, metadata: mark)
    :ok
  end
end
