defmodule AshAgent.Sessions.NodesTest do
  use ExUnit.Case, async: true

  # Nodes on loopback with sessions on one file.

  import AshAgent.TestSupport.Wait, only: [until: 1, until: 2]

  alias AshAgent.{Context, Store}
  alias AshAgent.Runtime.Authority
  alias AshAgent.TestSupport.{Agents, Asker, Nodes}

  @moduletag :tmp_dir
  @moduletag timeout: 300_000

  defp group(names, %{tmp_dir: folder}, opts \\ [], fun) do
    {elsewhere, opts} = Keyword.pop(opts, :elsewhere, [])

    Nodes.group(names, fn call, nodes ->
      at = &call.(&1, {Agents, &2, &3})
      # Before anything there asks for it.
      for name <- elsewhere, do: at.(name, :be_elsewhere, [])
      for name <- names, do: at.(name, :start, [Path.join(folder, "store.db"), opts])
      fun.(at, nodes)
    end)
  end

  test "whichever node is asked, one has the session, and what comes back works on the caller's",
       context do
    group([:a, :b], context, fn at, %{a: a} ->
      assert {:ok, "re: one " <> _, ["one", answer]} = at.(:a, :ask, [:prompt, ["c", "one"]])
      assert answer == "re: one #{a}"
      # Here, not there.
      assert {:ok, output, [_, _, "two", output]} = at.(:b, :ask, [:prompt, ["c", "two"]])
      assert output == "re: two #{a}"
      assert {:ok, [_, _, _, _]} = at.(:b, :ask, [:context, ["c"]])
      assert {:ok, nil, [_, _, _, _]} = at.(:b, :ask, [:snapshot, ["c"]])
      assert at.(:b, :ask, [:status, ["c"]]) == :idle

      # Each new context, and the result.
      assert {contexts, {:ok, output, texts}} = at.(:b, :listen, ["c", "three"])
      assert output == "re: three #{a}"
      assert [[_, _, _, _, "three"], ^texts] = Enum.uniq(contexts)

      assert {:error, {:invalid_part, _, _}} = at.(:b, :ask, [:prompt, ["c", [%{type: :image}]]])
      at.(:a, :start_held, ["c"])
      assert at.(:b, :ask, [:status, ["c"]]) == :running
      assert at.(:b, :ask, [:steer, ["c", "Quick!"]]) == :ok
      assert at.(:b, :ask, [:cancel, ["c"]]) == :ok
      assert {:error, :cancelled, [_ | _]} = at.(:a, :held_answer, [])
      assert %{epoch: 1} = at.(:b, :owner, ["c"])
    end)
  end

  test "a question is answered on any node, also after the one that asked it is gone", context do
    group([:a, :b], context, [lease: 600_000], fn at, %{a: a, b: b} ->
      for {id, kill?, node} <- [{"c", false, a}, {"d", true, b}] do
        assert {:paused, ["q"], _} = at.(:a, :ask, [:prompt, [id, "ask"]])
        if kill?, do: Nodes.kill(at.(:a, :os_pid, []))
        assert :ok = at.(:b, :ask_until, [:answer, [id, "q", "Friday"], [:unreachable]])
        if not kill?, do: assert({:error, _} = at.(:a, :ask, [:answer, [id, "q", "Monday"]]))

        assert {:error, {:illegal_status, _, :ok, _}} =
                 at.(:b, :ask, [:answer, [id, "q", "Monday"]])

        assert {:ok, output, _texts} = at.(:b, :ask, [:resume, [id]])
        assert output == "Friday #{node}"
      end
    end)
  end

  test "a late result goes to the session on another node, and after that node's death to one that has whoever asked",
       context do
    opts = [lease: 600_000, recover: 200, restore_context: &Agents.restore/1]

    group([:a, :b], context, opts, fn at, %{a: a, b: b} ->
      for {id, kill?, node} <- [{"c", false, a}, {"d", true, b}] do
        who = "ann of #{id}"
        own = [runtime_context: %{actor: who}, metadata: %{"who" => who}]
        assert {:ok, _started, _texts} = at.(:a, :ask, [:prompt, [id, "build it", own]])
        assert [key] = at.(:b, :waiting, [id])
        if kill?, do: Nodes.kill(at.(:a, :os_pid, []))
        assert at.(:b, :ask, [:arrive, [id, key, {:ok, "green"}]]) == {:ok, :kept}
        last = fn -> List.last(at.(:b, :owner, [id]).texts) end
        until(fn -> last.() == "#{who} #{node}" end)
        assert at.(:b, :ask, [:arrive, [id, key, {:ok, "green"}]]) == {:ok, :again}
        assert {:ok, [%{state: :arrived}, %{state: :ok}]} = at.(:b, :calls, [id])
      end
    end)
  end

  test "a message that a dead node has left is answered as whoever sent it, by a node that has just begun",
       %{tmp_dir: folder} = context do
    {:ok, store} = Store.SQLite.open(Path.join(folder, "store.db"))

    leave = fn id, metadata ->
      {:ok, _kept} = Store.create(store, Context.new([], id: id))
      metadata = Authority.mark(metadata, runtime_context: %{actor: "ann"})
      {:ok, _id} = Store.enqueue(store, id, "who asks?", metadata: metadata)
      {:ok, _claim} = Store.claim(store, id, owner: "dead", lease: 1)
    end

    # No module that has the words of the mark, or of whoever asked, is loaded there when the message is read.
    for {restore, left} <- [
          {&Agents.restore/1, %{"text" => %{"who" => "ann"}, "nobody" => %{}}},
          {&Asker.restore/1, %{"atoms" => %{asker_for_a_node_that_just_began: "ann"}}}
        ] do
      for {id, metadata} <- left, do: leave.(id, metadata)

      group([:b], context, [recover: 100, restore_context: restore], fn at, %{b: b} ->
        for {id, metadata} <- left do
          texts = if metadata == %{}, do: ["who asks?"], else: ["who asks?", "ann #{b}"]
          assert {id, until(fn -> ended(at.(:b, :owner, [id])) end)} == {id, texts}
        end
      end)
    end
  end

  defp ended(%{status: status, texts: texts}),
    do: if(status == :parked or length(texts) > 1, do: texts)

  test "of nodes that want one at once, one gets it, and the others send it their prompts",
       context do
    names = [:a, :b, :c]

    group(names, context, fn at, _nodes ->
      ids = for n <- 1..15, do: "c#{n}"

      ask = &at.(&1, :at_once, [:prompt, for(id <- ids, do: [id, "from #{&1}"])])
      tasks = for name <- names, do: Task.async(fn -> ask.(name) end)

      for answers <- Task.await_many(tasks, 120_000),
          answer <- answers,
          do: assert({:ok, _, _} = answer)

      for id <- ids do
        assert %{epoch: 1, texts: texts} = at.(:a, :owner, [id])
        asked = for "from " <> name <- texts, do: name
        assert Enum.sort(asked) == ["a", "b", "c"]
        assert length(texts) == 6
      end
    end)
  end

  test "the conversations of a node that was killed are refused until its lease is over, and then go on",
       context do
    # Long enough for a busy machine to ask before it is over.
    opts = [lease: 30_000, recover: 200, elsewhere: [:a]]

    group([:a, :b], context, opts, fn at, %{a: a, b: b} ->
      at.(:a, :start_prompt, ["c", "pay"])
      at.(:a, :await_held, [])
      Nodes.kill(at.(:a, :os_pid, []))
      assert {:error, {:unreachable, owner}} = at.(:b, :ask, [:prompt, ["c", "two"]])
      assert owner =~ "#{a} "
      assert {:ok, output, texts} = at.(:b, :ask_until, [:prompt, ["c", "two"], [:unreachable]])
      assert output == "re: two #{b}"
      # The tool had started, so it is not called again.
      assert texts == ["pay", "paid #{b}", "two", "re: two #{b}"]
      assert {:ok, [%{state: :unknown}]} = at.(:b, :calls, ["c"])
    end)
  end

  test "the conversations of a node of the same machine that was killed go on at once", context do
    group([:a, :b], context, [lease: 600_000], fn at, %{b: b} ->
      at.(:a, :start_prompt, ["c", "pay"])
      at.(:a, :await_held, [])
      Nodes.kill(at.(:a, :os_pid, []))
      assert {:ok, output, _texts} = at.(:b, :ask_until, [:prompt, ["c", "two"], [:unreachable]])
      assert output == "re: two #{b}"
      assert {:ok, [%{state: :unknown}]} = at.(:b, :calls, ["c"])
    end)
  end

  test "a node that was stopped for longer than its lease has lost its conversations, and writes nothing",
       context do
    group([:a, :b], context, [lease: 10_000, recover: 200], fn at, %{b: b} ->
      at.(:a, :start_prompt, ["c", "hold one"])
      at.(:a, :await_held, [])
      {:ok, session} = at.(:a, :session, ["c"])
      pid = at.(:a, :os_pid, [])
      Nodes.signal(pid, "STOP")

      # Another node has it, and its model is asked.
      at.(:b, :go, [])

      assert until(fn -> at.(:b, :owner, ["c"]).status == :idle end, 60_000)

      before = at.(:b, :owner, ["c"])
      assert before.texts == ["hold one", "re: hold one #{b}"]

      Nodes.signal(pid, "CONT")
      # Its model answers now, too late.
      at.(:a, :go_if_held, [])
      assert until(fn -> not at.(:a, :alive?, [session]) end, 60_000)
      assert {:error, {:store_error, {:owned, owner}}, _} = at.(:a, :held_answer, [])
      assert owner =~ "#{b} "
      assert at.(:b, :owner, ["c"]) == before
      # And it sends what it is asked to the new owner.
      assert {:ok, output, _} = at.(:a, :ask, [:prompt, ["c", "two"]])
      assert output == "re: two #{b}"
    end)
  end

  test "nodes that are cut off from each other refuse with a reason, and find each other again",
       context do
    group([:a, :b], context, fn at, %{a: a, b: b} ->
      assert {:ok, _, _} = at.(:a, :ask, [:prompt, ["c", "one"]])
      at.(:a, :cut_off, [[b]])
      at.(:b, :cut_off, [[a]])
      assert {:error, {:unreachable, _}} = at.(:b, :ask, [:prompt, ["c", "two"]])
      # One that is alive keeps its conversations.
      assert {:ok, _, _} = at.(:a, :ask, [:prompt, ["c", "three"]])
      at.(:a, :cut_off, [[]])
      at.(:b, :cut_off, [[]])
      assert {:ok, output, texts} = at.(:b, :ask, [:prompt, ["c", "four"]])
      assert output == "re: four #{a}"
      assert "two" not in texts
      assert %{epoch: 1} = at.(:b, :owner, ["c"])
    end)
  end

  test "a prompt that comes while its node is being drained goes to another node", context do
    group([:a, :b], context, fn at, %{b: b} ->
      assert {:ok, _, _} = at.(:a, :ask, [:prompt, ["idle", "one"]])
      at.(:a, :start_prompt, ["c", "pay"])
      at.(:a, :await_held, [])
      draining = Task.async(fn -> at.(:a, :drain, [[timeout: 60_000]]) end)
      assert until(fn -> not at.(:a, :ready?, []) end)
      assert {:ok, output, _} = at.(:b, :ask_until, [:prompt, ["idle", "two"], [:draining]])
      assert output == "re: two #{b}"
      # The draining node knows where it is now.
      assert {:ok, output, _} = at.(:a, :ask, [:prompt, ["idle", "three"]])
      assert output == "re: three #{b}"
      at.(:a, :go, [])
      assert Task.await(draining, 60_000) == :ok
      assert {:error, :drained, _} = at.(:a, :held_answer, [])
      assert {:ok, output, ["pay", output]} = at.(:b, :ask, [:resume, ["c"]])
      assert output == "paid #{b}"
      assert {:ok, [%{state: :ok}]} = at.(:b, :calls, ["c"])
    end)
  end
end
