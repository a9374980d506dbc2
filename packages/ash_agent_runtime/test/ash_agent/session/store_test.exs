defmodule AshAgent.Session.StoreTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.StoredSessions
  import ExUnit.CaptureLog
  import AshAgent.TestSupport.Leash
  import AshAgent.TestSupport.Runs, only: [hanging: 1]
  import AshAgent.TestSupport.Wait, only: [until: 1]

  alias AshAgent.{Context, Session, Store}
  alias AshAgent.Runtime.{Error, Result}
  alias AshAgent.TestSupport.WatchedStore

  @down %Store.Error{reason: {:unavailable, :test}}

  setup do: {:ok, store: sqlite()}

  defp start(store, opts \\ []),
    do: start_session(Keyword.merge([store: store, id: "c", llm: llm()], opts))

  # Calls a tool that waits for a decision, when the test lets it.
  defp asking do
    test = self()

    llm = fn _context ->
      send(test, {:asked, self(), []})
      receive do: (:go -> {:ok, %{tool_calls: [%{id: "1", name: "rm", arguments: %{}}]}})
    end

    [tools: %{rm: fn _ -> 1 end}, approval: fn _, _ -> :ask end, llm: llm]
  end

  test "claims and creates, writes each turn, and releases", %{store: store} do
    session = start(store, system_prompt: "Be brief.")
    assert stored(store).owner =~ inspect(session) |> String.slice(4..-1//1)

    {:error, {{:store_error, {:owned, _}}, _}} =
      start_supervised({Session, store: store, id: "c", llm: llm()})

    {:ok, ref} = Session.prompt_async(session, "one")
    let(["one"])
    assert_receive {Session, ^ref, {:ok, %Result{output: "re: one", context: context}}}
    kept = stored(store)
    assert Context.equal?(kept.value, context)
    assert kept.status == :idle

    stop(session)
    assert %{owner: nil} = stored(store)
    again = start(store)
    assert Context.equal?(Session.context(again), context)
    assert {:ok, []} = Store.waiting(store, "c")
  end

  describe "a session that stops when idle" do
    test "answers what waits in the store, once, and releases the conversation", %{store: store} do
      {:ok, _} = Store.create(store, Context.new("zero", id: "c"))
      {:ok, one} = Store.enqueue(store, "c", "one")
      {:ok, two} = Store.enqueue(store, "c", "two", metadata: %{by: "ann"})
      session = start(store, stop_when_idle: true, go_on: false)
      monitor = Process.monitor(session)

      assert Session.prompt_stored(session, "nobody's", []) == {:error, :taken}
      {:ok, second} = Session.prompt_stored(session, two, [])
      {:ok, first} = Session.prompt_stored(session, one, [])
      for id <- [one, two], do: assert(Session.prompt_stored(session, id, []) == {:error, :taken})
      # What is said first is answered first.
      let(["zero", "two"])
      let(["zero", "two", "one"])
      assert_receive {Session, ^second, {:ok, %Result{output: "re: two"}}}
      assert_receive {Session, ^first, {:ok, %Result{output: "re: one"}}}
      assert_receive {:DOWN, ^monitor, _, _, :normal}
      assert %{owner: nil, status: :idle} = stored(store)
      assert {:ok, []} = Store.waiting(store, "c")
    end

    test "stops when it is paused, and leaves what waits in the store", %{store: store} do
      session = start(store, [stop_when_idle: true] ++ asking())
      monitor = Process.monitor(session)
      {:ok, one} = Session.prompt_async(session, "one")
      {:ok, two} = Session.prompt_async(session, "two")
      let([])
      assert_receive {Session, ^one, {:paused, _}}
      assert_receive {Session, ^two, {:error, :paused}}
      assert_receive {:DOWN, ^monitor, _, _, :normal}
      assert {:ok, [%{input: "two"}]} = Store.waiting(store, "c")
      assert %{owner: nil, status: :paused} = stored(store)
    end

    test "stops when nobody asks it for anything", %{store: store} do
      session = start(store, stop_when_idle: true)
      monitor = Process.monitor(session)
      # As after ten seconds.
      send(session, :unasked)
      assert_receive {:DOWN, ^monitor, _, _, :normal}
    end
  end

  test "goes on with nothing by itself if it is told so", %{store: store} do
    session = start(store)
    {:ok, _} = Session.prompt_async(session, "one")
    assert_receive {:asked, _, ["one"]}
    {:ok, _} = Session.prompt_async(session, "two")
    stop(session, :kill)

    session = start(store, go_on: false)
    assert Session.status(session) == :idle
    {:ok, ref} = Session.resume_async(session)
    let(["one"])
    assert_receive {Session, ^ref, {:ok, _}}
    assert Session.status(session) == :idle
    assert {:ok, [%{input: "two"}]} = Store.waiting(store, "c")
  end

  test "hands over what waits when it is drained while it is paused", %{store: store} do
    session = start(store, asking())
    monitor = Process.monitor(session)
    {:ok, one} = Session.prompt_async(session, "one")
    {:ok, two} = Session.prompt_async(session, "two")
    let([])
    assert_receive {Session, ^one, {:paused, _}}
    GenServer.cast(session, {:drain, :soon})
    assert_receive {Session, ^two, {:error, %Error{reason: :drained}}}
    assert_receive {:DOWN, ^monitor, _, _, {:shutdown, :drained}}

    # The claim is not released, but its lease is over: whoever looks for such conversations goes on with it.
    assert %{owner: owner, status: :paused} = stored(store)
    assert owner != nil
    assert {:ok, [%{input: "two"}]} = Store.waiting(store, "c")
  end

  test "keeps its claim when the process that renews it dies", %{store: store} do
    test = self()
    watch = fn step, name -> send(test, {step, name}) && :ok end
    session = start(WatchedStore.new(store, watch), lease: 300)
    {renewer, _} = :sys.get_state(session).claim.renewer

    # Where it waits, no code of this package is on its stack: new code may be loaded any number of times.
    hibernates? = fn pid ->
      Process.info(pid, :current_function) == {:current_function, {:erlang, :hibernate, 3}}
    end

    assert until(fn -> hibernates?.(renewer) end)
    send(renewer, :unexpected)
    Process.exit(renewer, :kill)
    assert until(fn -> elem(:sys.get_state(session).claim.renewer, 0) != renewer end)
    assert_receive {:after, :renew}, 5_000
    assert_receive {:after, :renew}, 5_000
    {renewer, _} = :sys.get_state(session).claim.renewer
    assert until(fn -> hibernates?.(renewer) end)
    {:ok, ref} = Session.prompt_async(session, "one")
    let(["one"])
    assert_receive {Session, ^ref, {:ok, %Result{output: "re: one"}}}
  end

  test "keeps its claim when that process dies while the store cannot be reached", %{store: store} do
    test = self()
    asked = :counters.new(1, [])

    watch = fn
      :before, :renew ->
        :counters.add(asked, 1, 1)
        send(test, {:renews, self()})
        if :counters.get(asked, 1) == 1, do: {:error, @down}, else: :ok

      _, _ ->
        :ok
    end

    session = start(WatchedStore.new(store, watch), lease: 60_000)
    renewer = fn -> elem(:sys.get_state(session).claim.renewer, 0) end
    first = renewer.()
    Process.exit(first, :kill)
    assert until(fn -> renewer.() != first end)
    second = renewer.()

    for _ <- 1..2 do
      send(second, :renew)
      assert_receive {:renews, ^second}, 5_000
    end

    assert renewer.() == second
    assert Session.status(session) == :idle
  end

  test "asks the store for nothing when its claim is released", %{store: store} do
    session = start(store)
    {renewer, _} = :sys.get_state(session).claim.renewer
    monitor = Process.monitor(renewer)
    stop(session)
    # Had it asked, it would have ended by itself.
    assert_receive {:DOWN, ^monitor, _, _, :killed}
  end

  test "goes on with the turn and the prompts of one that died, and confirms only what is stored",
       %{store: store} do
    session = start(store)
    {:ok, _} = Session.prompt_async(session, "one")
    assert_receive {:asked, _, ["one"]}
    {:ok, _} = Session.prompt_async(session, "two", metadata: %{by: "ann"})
    {:ok, _} = Session.prompt_async(session, "three")
    assert :ok = Session.steer(session, "now!")

    {:ok, waiting} = Store.waiting(store, "c")
    kinds = for %{kind: kind, input: input} <- waiting, do: {kind, input}
    assert Enum.sort(kinds) == [prompt: "three", prompt: "two", steer: "now!"]

    stop(session, :kill)
    assert stored(store).status == :running
    # The owner was this VM's and is gone, so that there is nothing to wait for.
    session = start(store)
    let(["one", "now!"])
    let(["one", "now!", "two"])
    let(["one", "now!", "two", "three"])
    assert until(fn -> Session.status(session) == :idle end)

    assert texts(stored(store).value) ==
             ["one", "now!", "re: now!", "two", "re: two", "three", "re: three"]

    assert {:ok, []} = Store.waiting(store, "c")
    assert {:ok, %{conversations: [_]}} = Store.list(store, status: :idle)

    two = Enum.find(Context.to_messages(stored(store).value), &(&1.content == "two"))
    assert %{metadata: %{by: "ann"}} = two
  end

  test "does not confirm what it could not store", %{store: store} do
    fun = fn
      :before, :enqueue -> {:error, @down}
      _, _ -> :ok
    end

    session = start(WatchedStore.new(store, fun))
    assert {:error, %Error{reason: {:store_error, @down}}} = Session.prompt_async(session, "lost")
    task = Task.async(fn -> Session.prompt(session, "one") end)
    assert_receive {:asked, model, ["one"]}
    assert {:error, %Error{reason: {:store_error, @down}}} = Session.steer(session, "lost")
    assert {:error, %Error{reason: {:store_error, @down}}} = Session.prompt_async(session, "lost")
    send(model, :go)
    assert {:ok, %Result{output: "re: one"}} = Task.await(task)
    assert texts(stored(store).value) == ["one", "re: one"]
  end

  test "goes on when the store comes back", %{store: store} do
    down = :counters.new(1, [])

    fun = fn now, name ->
      down? = {now, name} == {:after, :append} and :counters.get(down, 1) == 1
      if down?, do: {:error, @down}, else: :ok
    end

    session = start(WatchedStore.new(store, fun))
    :counters.put(down, 1, 1)
    assert {:error, %Error{reason: {:store_error, @down}}} = Session.prompt(session, "one")
    :counters.put(down, 1, 0)
    task = Task.async(fn -> Session.prompt(session, "two") end)
    # The store had taken it.
    let(["one"])
    let(["one", "two"])
    assert {:ok, result} = Task.await(task)
    assert Context.equal?(stored(store).value, result.context)
  end

  test "keeps its claim through a long call, and loses its run at once when another has it", %{
    store: store
  } do
    session = start(store, lease: 1_500)
    monitor = Process.monitor(session)
    running = Task.async(fn -> Session.prompt(session, "one") end)
    assert_receive {:asked, model, ["one"]}
    queued = Task.async(fn -> Session.prompt(session, "two") end)
    assert until(fn -> match?({:ok, [_]}, Store.waiting(store, "c")) end)
    Process.sleep(2_500)
    owner = stored(store).owner
    assert {:error, {:owned, ^owner}} = Store.claim(store, "c", owner: "b")

    # As if it had been stopped for longer than its lease.
    alive = Process.monitor(model)
    {:ok, theirs} = Store.claim(store, "c", owner: owner, reclaim: true)
    {:ok, theirs} = Store.release(store, theirs)
    {:ok, _} = Store.claim(store, theirs.id, owner: "b")
    assert_receive {:DOWN, ^alive, _, _, :killed}, 10_000

    # It may have looked before "b" had it.
    for task <- [running, queued] do
      assert {:error, %Error{reason: {:store_error, reason}}} = Task.await(task)
      assert match?({:owned, _}, reason) or reason == :stale
    end

    assert_receive {:DOWN, ^monitor, _, _, {:shutdown, :lost}}
    assert stored(store).owner == "b"
    assert texts(stored(store).value) == ["one"]
  end

  test "a steered message comes after all results and before the next model call", %{store: store} do
    for opts <- [[store: store, id: "c"], []] do
      test = self()

      tool = fn _ ->
        send(test, {:tool, self()})
        receive do: (:go -> {:ok, "done"})
      end

      llm = fn context ->
        case List.last(Context.to_messages(context)) do
          %{content: "Go"} -> {:ok, %{tool_calls: for(id <- ~w(a b), do: %{id: id, name: "do"})}}
          %{content: text} when is_binary(text) -> {:ok, %{content: "re: " <> text}}
        end
      end

      session =
        start_supervised!({Session, [llm: llm, tools: %{"do" => tool}] ++ opts}, id: make_ref())

      assert {:error, :idle} = Session.steer(session, "too early")
      task = Task.async(fn -> Session.prompt(session, "Go") end)
      assert_receive {:tool, one}
      assert_receive {:tool, two}
      send(one, :go)
      assert {:error, %Context.Error{}} = Session.steer(session, [%{type: :image}])
      assert :ok = Session.steer(session, "Left!", metadata: %{by: "ann"})
      assert :ok = Session.steer(session, "Right!")
      send(two, :go)
      assert {:ok, result} = Task.await(task)
      roles = for m <- Context.to_messages(result.context), do: m.role
      assert roles == [:user, :assistant, :user, :user, :user, :assistant]
      assert List.last(texts(result.context)) == "re: Right!"
      if opts != [], do: assert({:ok, []} = Store.waiting(store, "c"))
    end
  end

  test "a message steered into the final answer is answered in the same turn", %{store: store} do
    for opts <- [[store: store, id: "c"], []] do
      test = self()

      llm = fn context ->
        case List.last(texts(context)) do
          "Go" ->
            send(test, {:answering, self()})
            receive do: (:go -> {:ok, %{content: "Gone"}})

          text ->
            {:ok, %{content: "re: " <> text}}
        end
      end

      session = start_supervised!({Session, [llm: llm] ++ opts}, id: make_ref())
      task = Task.async(fn -> Session.prompt(session, "Go") end)
      assert_receive {:answering, model}
      assert :ok = Session.steer(session, "Left!")
      send(model, :go)
      assert {:ok, result} = Task.await(task)
      assert texts(result.context) == ["Go", "Gone", "Left!", "re: Left!"]
      assert result.output == "re: Left!"
      assert Session.status(session) == :idle
      if opts != [], do: assert({:ok, []} = Store.waiting(store, "c"))
    end
  end

  test "cancelling is stored, with how the calls ended", %{store: store} do
    llm = fn _ -> {:ok, %{tool_calls: [%{id: "a", name: "do"}]}} end
    session = start(store, llm: llm, tools: %{"do" => hanging(:tool)})
    {:ok, ref} = Session.prompt_async(session, "Go")
    assert_receive {:tool, _pid}
    assert :ok = Session.cancel(session)
    assert_receive {Session, ^ref, {:error, %Error{reason: :cancelled, context: context}}}
    assert Context.equal?(stored(store).value, context)
    assert stored(store).status == :idle
    assert {:ok, [%{state: :unknown}]} = Store.calls(store, "c")
    assert {:ok, []} = Store.waiting(store, "c")
  end

  test "a decision is stored, and starts its call once", %{store: store} do
    test = self()
    tool = fn _ -> send(test, :ran) && {:ok, 1} end

    llm = fn context ->
      if context.current_iteration == 1,
        do: {:ok, %{tool_calls: [%{id: "a", name: "do"}]}},
        else: {:ok, %{content: "Done"}}
    end

    opts = [llm: llm, tools: %{"do" => tool}, approval: fn _, _ -> :ask end]
    session = start(store, opts)
    assert {:paused, _} = Session.prompt(session, "Go")
    assert stored(store).status == :paused
    :ok = Session.approve(session, "a", by: "ann")
    stop(session)
    session = start(store, opts)
    assert {:paused, []} = Session.status(session)
    assert {:ok, %Result{output: "Done"}} = Session.resume(session)
    assert_received :ran
    refute_received :ran
    assert {:ok, [%{state: :ok, call: %{decided_at: at}}]} = Store.calls(store, "c")
    assert is_binary(at)
  end

  test "nothing of a conversation is logged when its session dies", %{store: store} do
    log =
      capture_log(fn ->
        session = start(store, system_prompt: "secret")
        {:ok, _} = Session.prompt_async(session, "secret")
        assert_receive {:asked, _, _}
        {:ok, _} = Session.prompt_async(session, "secret")
        refute inspect(:sys.get_status(session), limit: :infinity) =~ "secret"
        stop(session, :kill)
      end)

    refute log =~ "secret"
  end
end
