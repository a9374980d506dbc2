defmodule AshAgent.SessionsTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.StoredSessions, only: [sqlite: 0, stored: 2, texts: 1]
  import AshAgent.TestSupport.Wait, only: [until: 1]

  alias AshAgent.{Context, Session, Sessions, Store}
  alias AshAgent.Runtime.{Error, Result}
  alias AshAgent.TestSupport.WatchedStore

  doctest AshAgent.Sessions

  setup do: {:ok, store: sqlite()}

  # Asks the test, and says what it is told.
  defp llm do
    test = self()

    fn context ->
      send(test, {:asked, self(), List.last(Context.to_messages(context)).content})
      receive do: ({:say, answer} -> {:ok, answer})
    end
  end

  defp say(text, answer) do
    assert_receive {:asked, model, ^text}
    send(model, {:say, answer})
  end

  defp echo do
    fn context -> {:ok, %{content: "re: " <> List.last(Context.to_messages(context)).content}} end
  end

  defp start(store, opts \\ []) do
    name = :"sessions#{System.unique_integer([:positive])}"
    opts = Keyword.merge([name: name, store: store, llm: echo()], opts)
    start_supervised!({Sessions, opts})
    name
  end

  test "starts a session with the first prompt, and uses it for the next", %{store: store} do
    sessions = start(store, options: fn id -> [system_prompt: "You are #{id}."] end)
    assert {:ok, %Result{output: "re: one"}} = Sessions.prompt(sessions, "c", "one")
    {:ok, session} = Sessions.fetch_session(sessions, "c")
    assert {:ok, %Result{context: context}} = Sessions.prompt(sessions, "c", "two")
    assert {:ok, ^session} = Sessions.fetch_session(sessions, "c")
    assert texts(context) == ["You are c.", "one", "re: one", "two", "re: two"]
    assert {:ok, same} = Sessions.context(sessions, "c")
    assert Context.equal?(same, context)
    assert Sessions.status(sessions, "c") == :idle
    assert {:error, :idle} = Sessions.steer(sessions, "c", "now")
    assert :ok = Sessions.cancel(sessions, "c")
    assert {:ok, ref, %{number: number}} = Sessions.subscribe(sessions, "c")
    {:ok, _} = Sessions.prompt_async(sessions, "c", "three")
    assert_receive {Session, ^ref, next, {:context, _}} when next == number + 1
    assert {:ok, %{context: %Context{}}} = Sessions.snapshot(sessions, "c")
  end

  test "a conversation goes on from an earlier iteration under another id", %{store: store} do
    sessions = start(store)
    for text <- ["one", "two"], do: {:ok, _} = Sessions.prompt(sessions, "c", text)
    assert {:ok, fork} = Sessions.fork(sessions, "c", "d", to: 1)
    assert fork[:origin] == %{id: "c", iteration: 1}
    assert {:ok, %Result{context: context}} = Sessions.prompt(sessions, "d", "three")
    assert texts(context) == ["one", "re: one", "three", "re: three"]
    assert {:ok, context} = Sessions.context(sessions, "c")
    assert texts(context) == ["one", "re: one", "two", "re: two"]

    assert {:error, {:store_error, :exists}} = Sessions.fork(sessions, "c", "d")
    assert {:error, %Context.Error{}} = Sessions.fork(sessions, "c", "e", to: 7)
    assert {:error, %Sessions.Error{reason: :not_found}} = Sessions.fork(sessions, "none", "e")
    assert_raise ArgumentError, ~r/:to/, fn -> Sessions.fork(sessions, "c", "e", to: 0) end
  end

  test "only prompts create a conversation", %{store: store} do
    sessions = start(store)

    for ask <- [
          &Sessions.context(sessions, &1),
          &Sessions.snapshot(sessions, &1),
          &Sessions.cancel(sessions, &1),
          &Sessions.status(sessions, &1),
          &Sessions.steer(sessions, &1, "x"),
          &Sessions.resume(sessions, &1),
          &Sessions.approve(sessions, &1, "call_1"),
          &Sessions.deny(sessions, &1, "call_1"),
          &Sessions.subscribe(sessions, &1)
        ],
        id <- ["nobody", "", <<255>>] do
      assert {:error, %Sessions.Error{reason: :not_found}} = ask.(id)
    end

    assert_raise ArgumentError, fn -> Sessions.prompt(sessions, "c", "x", colour: 1) end
    assert_raise ArgumentError, fn -> Sessions.prompt(sessions, "c", :x) end
    assert {:ok, %{conversations: []}} = Store.list(store)
    {:ok, _} = Store.create(store, AshAgent.ChatContext.new(id: "chat", input: "Hi"))

    assert {:error, error} = Sessions.context(sessions, "chat")
    assert error.reason == {:start_error, :no_context}
    assert Exception.message(error) =~ "chat with branches"
    assert %{owner: nil} = stored(store, "chat")
  end

  test "many at once on one conversation get one session, and all are answered", %{store: store} do
    sessions = start(store)

    1..20
    |> Enum.map(&Task.async(fn -> {&1, Sessions.prompt(sessions, "c", "#{&1}")} end))
    |> Task.await_many(60_000)
    |> Enum.each(fn {number, answer} ->
      assert {:ok, %Result{output: "re: " <> text}} = answer
      assert text == "#{number}"
    end)

    assert %{epoch: 1} = kept = stored(store, "c")
    assert length(texts(kept.value)) == 40
  end

  test "a session that nobody needs leaves memory, and what comes at that moment is answered", %{
    store: store
  } do
    sessions = start(store, idle: 1)

    for number <- 1..50 do
      text = "#{number}"
      assert {:ok, %Result{output: "re: " <> ^text}} = Sessions.prompt(sessions, "c", text)
      # About as long as it takes to leave.
      Process.sleep(rem(number, 4))
    end

    assert until(fn -> stored(store, "c").owner == nil end)
    kept = stored(store, "c")
    assert kept.epoch > 1 and length(texts(kept.value)) == 100

    {:ok, ref, _} = Sessions.subscribe(sessions, "c")
    {:ok, session} = Sessions.fetch_session(sessions, "c")
    # It stays for its subscriber.
    assert {:ok, _} = Sessions.prompt(sessions, "c", "more")
    refute_received {:DOWN, ^ref, _, _, _}
    Session.unsubscribe(session, ref)
    monitor = Process.monitor(session)
    assert_receive {:DOWN, ^monitor, _, _, {:shutdown, :idle}}
  end

  test "another node's interrupted turn and waiting prompts are found", %{store: store} do
    # As a node leaves them that dies: claimed, and the lease over.
    for {id, status} <- [running: :running, idle: :idle, waiting: :idle, paused: :paused] do
      opts = [owner: "x", lease: 1, status: status]
      {:ok, _} = Store.create(store, Context.new("one", id: "#{id}"), opts)
    end

    {:ok, _} = Store.enqueue(store, "waiting", "two")
    {:ok, _} = Store.create(store, Context.new("one", id: "owned"), owner: "x", status: :running)
    sessions = start(store, recover: 10, batch: 1)
    assert until(fn -> texts(stored(store, "running").value) == ["one", "re: one"] end)
    assert until(fn -> texts(stored(store, "waiting").value) == ["one", "two", "re: two"] end)
    assert until(fn -> stored(store, "idle").owner == nil end)
    assert until(fn -> stored(store, "paused").owner == nil end)
    assert %{owner: "x", epoch: 1} = stored(store, "owned")
    assert {:error, error} = Sessions.prompt(sessions, "owned", "two")
    assert {error.reason, error.stored} == {{:unreachable, "x"}, false}
    assert Exception.message(error) =~ "lease"
  end

  @tag :capture_log
  test "a turn whose session crashed is taken up again", %{store: store} do
    sessions = start(store, llm: llm(), lease: 500, recover: 20)
    {:ok, _} = Sessions.prompt_async(sessions, "c", "one")
    assert_receive {:asked, _, "one"}
    {:ok, _} = Sessions.prompt_async(sessions, "c", "two")
    {:ok, session} = Sessions.fetch_session(sessions, "c")
    lost = Task.async(fn -> Sessions.prompt(sessions, "c", "one more", key: "k") end)
    until(fn -> match?({:ok, [_, _]}, Store.waiting(store, "c")) end)
    Process.exit(session, :kill)

    assert {:error, %Sessions.Error{stored: :unknown} = error} = Task.await(lost)
    assert {:lost, _} = error.reason
    assert Exception.message(error) =~ ":key"
    {:ok, _} = Sessions.prompt_async(sessions, "c", "one more", key: "k")
    say("one", %{content: "1"})
    say("two", %{content: "2"})
    say("one more", %{content: "3"})
    said = ["one", "1", "two", "2", "one more", "3"]
    assert until(fn -> texts(stored(store, "c").value) == said end)
  end

  describe "drain/2" do
    setup %{store: store} do
      test = self()

      tool = fn _ ->
        send(test, {:tool, self()})
        receive do: (:go -> {:ok, "paid"})
      end

      opts = [llm: llm(), tools: %{"pay" => tool}, recover: 20, drain: 0]
      call = %{tool_calls: [%{id: "a", name: "pay"}]}
      {:ok, opts: opts, call: call, sessions: start(store, opts)}
    end

    test "lets a step end, stores it, and another node goes on", context do
      %{store: store, opts: opts, call: call, sessions: sessions} = context
      prompt = Task.async(fn -> Sessions.prompt(sessions, "c", "one") end)
      say("one", call)
      assert_receive {:tool, tool}
      {:ok, _} = Sessions.prompt_async(sessions, "c", "two")
      assert {:error, :idle} = idle(sessions)

      draining = Task.async(fn -> Sessions.drain(sessions, timeout: 60_000) end)
      assert until(fn -> not Sessions.ready?(sessions) end)
      assert until(fn -> stored(store, "idle").owner == nil end)
      # Nothing new, whether it has a session or not.
      for id <- ["c", "idle", "new"] do
        assert {:error, %Sessions.Error{reason: :draining}} = Sessions.prompt(sessions, id, "no")
      end

      # But the running turn may be talked to.
      assert :ok = Sessions.steer(sessions, "c", "Quick!")
      refute_received {:asked, _, _}
      send(tool, :go)
      assert :ok = Task.await(draining)
      assert {:error, %Error{reason: :drained}} = Task.await(prompt)
      assert {:ok, [%{state: :ok}]} = Store.calls(store, "c")

      other = start(store, opts)
      resumed = Task.async(fn -> Sessions.resume(other, "c") end)
      say("Quick!", %{content: "Done"})
      say("two", %{content: "2"})
      assert {:ok, %Result{}} = Task.await(resumed)
      refute_received {:tool, _}
      assert texts(stored(store, "c").value) == ["one", "Quick!", "Done", "two", "2"]
      refute_received {:asked, _, "no"}
    end

    defp idle(sessions) do
      task = Task.async(fn -> Sessions.prompt(sessions, "idle", "one") end)
      say("one", %{content: "1"})
      {:ok, _} = Task.await(task)
      Sessions.steer(sessions, "idle", "x")
    end

    test "kills what does not end in time, and leaves it to another node", context do
      %{store: store, opts: opts, call: call, sessions: sessions} = context
      {:ok, ref} = Sessions.prompt_async(sessions, "c", "one")
      say("one", call)
      assert_receive {:tool, tool}
      monitor = Process.monitor(tool)
      assert :ok = Sessions.drain(sessions, timeout: 0)
      assert_receive {:DOWN, ^monitor, _, _, :killed}
      assert_receive {Session, ^ref, {:error, %Error{reason: :drained}}}
      assert {:ok, [%{state: :started}]} = Store.calls(store, "c")

      # Found by itself. Whether it was paid is unknown.
      start(store, opts)
      assert_receive {:asked, model, [%{type: :tool_result, is_error: true, content: text}]}
      assert text =~ "unknown"
      send(model, {:say, %{content: "Sorry"}})
      assert until(fn -> List.last(texts(stored(store, "c").value)) == "Sorry" end)
      refute_received {:tool, _}
    end

    test "happens when a supervisor stops it", %{store: store, sessions: sessions} do
      {:ok, ref} = Sessions.prompt_async(sessions, "c", "one")
      assert_receive {:asked, _, "one"}
      assert :ok = stop_supervised(sessions)
      assert_receive {Session, ^ref, {:error, %Error{reason: :drained}}}
      refute Sessions.ready?(sessions)
      assert %{status: :running} = stored(store, "c")
      assert until(fn -> match?({:ok, [_]}, Store.expired(store, owner: "b")) end)

      assert_raise ArgumentError, ~r/not running under the name/, fn ->
        Sessions.prompt(sessions, "c", "x")
      end
    end
  end

  test "a node that finds a conversation while it is drained lets go of it", %{store: store} do
    sessions = start(store, llm: llm(), recover: :infinity, drain: 0)
    {:ok, _} = Sessions.prompt_async(sessions, "c", "one")
    assert_receive {:asked, _, "one"}
    assert :ok = Sessions.drain(sessions)
    test = self()

    watched =
      WatchedStore.new(store, fn now, name ->
        if now == :after and name == :expired do
          send(test, {:found, self()})
          receive do: (:go -> :ok)
        end

        :ok
      end)

    other = start(watched, llm: llm(), recover: 20, drain: 0)
    assert_receive {:found, finder}
    assert :ok = Sessions.drain(other)
    assert {:ok, []} = Store.expired(store, owner: "b")
    send(finder, :go)
    assert until(fn -> match?({:ok, [_]}, Store.expired(store, owner: "b")) end)
    refute_received {:asked, _, _}
  end

  test "sessions are registered where :registry says", %{store: store} do
    sessions = start(store, registry: {:global, __MODULE__})
    {:ok, _} = Sessions.prompt(sessions, "c", "one")
    {:ok, session} = Sessions.fetch_session(sessions, "c")
    assert :global.whereis_name({__MODULE__, "c"}) == session

    assert {:ok, %Result{output: "re: two"}} =
             Session.prompt({:via, :global, {__MODULE__, "c"}}, "two")
  end

  test "a store that fails is an error, and nothing is left over", %{store: store} do
    down = %Store.Error{reason: {:unavailable, :test}}

    fails = &if({&1, &2} == {:before, :claim}, do: {:error, down}, else: :ok)
    sessions = start(WatchedStore.new(store, fails))
    assert {:error, %Sessions.Error{reason: reason}} = Sessions.prompt(sessions, "c", "one")
    assert reason == {:store_error, down}
    assert {:ok, %{conversations: []}} = Store.list(store)
  end

  test "options are checked, and shown to nobody", %{store: store} do
    assert_raise ArgumentError, ~r/required option :llm/, fn ->
      Sessions.start_link(name: Foo, store: store)
    end

    assert_raise ArgumentError, ~r/unknown options \[:id\]/, fn ->
      Sessions.child_spec(name: Foo, store: store, llm: echo(), id: "c")
    end

    sessions = start(store, runtime_context: %{key: "secret"}, system_prompt: "secret")
    {:ok, _} = Sessions.prompt(sessions, "c", "secret")

    for {_id, pid, _type, _modules} <- Supervisor.which_children(sessions),
        do: refute(inspect(:sys.get_status(pid), limit: :infinity) =~ "secret")

    opts = [name: Foo, store: store, llm: echo(), system_prompt: "secret"]
    refute inspect(Sessions.child_spec(opts), limit: :infinity) =~ "secret"
  end
end
