defmodule AshAgent.Session.KeyTest do
  use ExUnit.Case, async: true

  @moduletag :capture_log

  # The same key twice is one message, whatever happened in between.

  import AshAgent.TestSupport.StoredSessions, only: [sqlite: 0, start_session: 1, stop: 2]
  import AshAgent.TestSupport.Leash
  import AshAgent.TestSupport.Runs, only: [say: 1]
  import AshAgent.TestSupport.Wait, only: [until: 1]

  alias AshAgent.{Context, Session, Store}
  alias AshAgent.Runtime.{Error, Result}
  alias AshAgent.TestSupport.WatchedStore

  @down %Store.Error{reason: {:unavailable, :test}}

  setup do: {:ok, store: sqlite()}

  defp start(store, opts \\ []),
    do: start_session(Keyword.merge([store: store, id: "c", llm: llm()], opts))

  # Fails once, before or after it was asked for this, for the first time or a later one.
  defp failing(store, name, moment, error \\ @down, nth \\ 1) do
    asked = :counters.new(1, [])

    WatchedStore.new(store, fn now, asked_for ->
      if {now, asked_for} == {moment, name}, do: :counters.add(asked, 1, 1)
      first? = {now, asked_for} == {moment, name} and :counters.get(asked, 1) == nth
      if first?, do: {:error, error}, else: :ok
    end)
  end

  defp users(session) do
    for %{role: :user, content: text} <- Context.to_messages(Session.context(session)), do: text
  end

  defp ask(session, text, key) do
    {:ok, ref} = Session.prompt_async(session, text, key: key)
    ref
  end

  test "while it runs, all who asked get the answer" do
    session = start_supervised!({Session, llm: llm()})
    one = ask(session, "Hi", "k1")
    two = ask(session, "Hi", "k1")
    waiting = Task.async(fn -> Session.prompt(session, "Hi", key: "k1") end)
    until(fn -> match?({:message_queue_len, 0}, Process.info(session, :message_queue_len)) end)
    let(["Hi"])
    assert_receive {Session, ^one, {:ok, %Result{output: "re: Hi"}}}, 5_000
    assert_receive {Session, ^two, {:ok, %Result{output: "re: Hi"}}}, 5_000
    assert {:ok, %Result{output: "re: Hi"}} = Task.await(waiting)
    assert users(session) == ["Hi"]
  end

  test "while it waits, it waits once", %{store: store} do
    session = start(store)
    first = ask(session, "One", "k1")
    second = ask(session, "Two", "k2")
    again = ask(session, "Two", "k2")
    until(fn -> match?({:ok, [_two]}, Store.waiting(store, "c")) end)
    let(["One"])
    assert_receive {Session, ^first, {:ok, _}}, 5_000
    let(["One", "Two"])

    for ref <- [second, again],
        do: assert_receive({Session, ^ref, {:ok, %Result{output: "re: Two"}}}, 5_000)

    assert users(session) == ["One", "Two"]
  end

  test "when it was answered, its answer comes again, also when others came after it", %{
    store: store
  } do
    llm = fn context -> {:ok, %{content: "re: #{Context.count_messages(context)}"}} end
    session = start(store, llm: llm)

    for opts <- [[metadata: %{from: "ann"}], []],
        do:
          assert({:ok, %{output: "re: 1"}} = Session.prompt(session, "One", [key: "k1"] ++ opts))

    assert {:ok, %{output: "re: 3"}} = Session.prompt(session, "Two", key: "k2")
    assert {:ok, %{output: "re: 1"}} = Session.prompt(session, "One", key: "k1")
    assert users(session) == ["One", "Two"]

    assert {:ok, %{metadata: %{from: "ann", idempotency_key: "k1"}}} =
             Context.fetch_message(Session.context(session), {1, 0})
  end

  test "after a crash, another session knows it", %{store: store} do
    session = start(store)
    ask(session, "Hi", "k1")
    assert_receive {:asked, _model, ["Hi"]}, 5_000
    {:ok, _ref} = Session.prompt_async(session, "Later", key: "k2")
    stop(session, :kill)

    session = start(store)
    again = ask(session, "Hi", "k1")
    later = ask(session, "Later", "k2")
    let(["Hi"])
    assert_receive {Session, ^again, {:ok, %Result{output: "re: Hi"}}}, 5_000
    let(["Hi", "Later"])
    assert_receive {Session, ^later, {:ok, %Result{output: "re: Later"}}}, 5_000
    assert users(session) == ["Hi", "Later"]
  end

  test "after an error of which nobody knows whether it was stored", %{store: store} do
    for {moment, n} <- [after: 1, before: 2] do
      session = start(failing(store, :enqueue, moment), id: "c#{n}", when_busy: :queue)
      one = Task.async(fn -> Session.prompt(session, "One", key: "k1") end)
      assert_receive {:asked, model, ["One"]}, 5_000

      assert {:error, %Error{stored: :unknown} = error} =
               Session.prompt(session, "Two", key: "k2", await: 5_000)

      assert Exception.message(error) =~ ":key"
      two = ask(session, "Two", "k2")
      send(model, :go)
      assert {:ok, %Result{output: "re: One"}} = Task.await(one)
      let(["One", "Two"])
      assert_receive {Session, ^two, {:ok, %Result{output: "re: Two"}}}, 5_000
      assert users(session) == ["One", "Two"]
      assert Store.waiting(store, "c#{n}") == {:ok, []}
    end
  end

  test "a message that was stored unconfirmed runs before a later one", %{store: store} do
    session = start(failing(store, :enqueue, :after))
    assert {:error, %Error{stored: :unknown}} = Session.prompt_async(session, "Lost?")
    assert {:ok, [%{input: "Lost?"}]} = Store.waiting(store, "c")
    {:ok, later} = Session.prompt_async(session, "Later")
    let(["Lost?"])
    let(["Lost?", "Later"])
    assert_receive {Session, ^later, {:ok, %Result{output: "re: Later"}}}, 5_000
  end

  test "a message that was stored unconfirmed runs although nobody asks again", %{store: store} do
    session = start(failing(store, :enqueue, :after))
    assert {:error, %Error{stored: :unknown}} = Session.prompt_async(session, "Lost?")
    let(["Lost?"])
    until(fn -> Session.status(session) == :idle end)
    assert users(session) == ["Lost?"]
  end

  test "a message that could not be stored is not in the conversation", %{store: store} do
    full = %Store.Error{reason: {:disk_full, :test}}
    session = start(failing(store, :append, :before, full))
    assert {:error, %Error{stored: false}} = Session.prompt(session, "One")
    assert users(session) == []
    again = Task.async(fn -> Session.prompt(session, "One") end)
    let(["One"])
    assert {:ok, %Result{output: "re: One"}} = Task.await(again)
    assert users(session) == ["One"]
  end

  test "a message that waited in the store stays, whatever its turn comes to", %{store: store} do
    full = %Store.Error{reason: {:disk_full, :test}}
    session = start(failing(store, :append, :before, full))
    {:ok, one} = Session.prompt_async(session, "One")
    assert_receive {Session, ^one, {:error, %Error{stored: true}}}, 5_000
    again = Task.async(fn -> Session.resume(session) end)
    let(["One"])
    assert {:ok, %Result{output: "re: One"}} = Task.await(again)
    assert users(session) == ["One"]
    assert Store.waiting(store, "c") == {:ok, []}
  end

  test "a message that a run may have stored is looked for, and nothing runs before that", %{
    store: store
  } do
    # It was stored: it runs at once, though nobody asks again, and before what waits.
    session = start(failing(store, :append, :after))
    assert {:error, %Error{stored: :unknown}} = Session.prompt(session, "Lost?")
    let(["Lost?"])
    until(fn -> Session.status(session) == :idle end)
    assert users(session) == ["Lost?"]

    for {ask, n} <- [prompt: 1, prompt_async: 2, resume: 3] do
      session = start(failing(store, :append, :after), id: "after #{n}")
      assert {:error, %Error{stored: :unknown}} = Session.prompt(session, "Lost?")
      task = Task.async(fn -> ask(ask, session) end)
      let(["Lost?"])
      if ask != :resume, do: let(["Lost?", "Later"])
      assert {:ok, _} = Task.await(task)
      until(fn -> Session.status(session) == :idle end)
      assert hd(users(session)) == "Lost?"
    end

    # It was not: it never comes up.
    session = start(failing(store, :append, :before), id: "before")
    assert {:error, %Error{stored: :unknown}} = Session.prompt(session, "Lost?")
    later = Task.async(fn -> Session.prompt(session, "Later") end)
    let(["Later"])
    assert {:ok, %Result{output: "re: Later"}} = Task.await(later)
    assert users(session) == ["Later"]
  end

  defp ask(:prompt, session), do: Session.prompt(session, "Later")
  defp ask(:prompt_async, session), do: Session.prompt_async(session, "Later")
  defp ask(:resume, session), do: Session.resume(session)

  test "what waits behind a message that may be stored waits until that is known", %{store: store} do
    test = self()

    # The first write is let go when something waits behind it.
    fun = fn
      :before, :append ->
        send(test, {:writing, self()})
        receive do: ({:write, answer} -> answer)

      _, _ ->
        :ok
    end

    session = start(WatchedStore.new(store, fun))
    one = Task.async(fn -> Session.prompt(session, "One") end)
    assert_receive {:writing, run}, 5_000
    two = Task.async(fn -> Session.prompt(session, "Two") end)
    until(fn -> match?({:ok, [_]}, Store.waiting(store, "c")) end)
    send(run, {:write, {:error, @down}})
    assert {:error, %Error{stored: :unknown}} = Task.await(one)
    assert_receive {:writing, run}, 5_000
    send(run, {:write, :ok})
    let(["Two"])
    assert_receive {:writing, run}, 5_000
    send(run, {:write, :ok})
    assert {:ok, %Result{output: "re: Two"}} = Task.await(two)
    assert users(session) == ["Two"]
  end

  test "every error of a session with a store says it", %{store: store} do
    # Cancelled while it is answered; the model fails.
    session = start(store, id: "cancelled")
    one = Task.async(fn -> Session.prompt(session, "Hi") end)
    assert_receive {:asked, _model, ["Hi"]}, 5_000
    :ok = Session.cancel(session)
    assert {:error, %Error{reason: :cancelled, stored: true}} = Task.await(one)
    session = start(store, id: "failed", llm: fn _ -> {:error, :no} end)
    assert {:error, %Error{stored: true} = error} = Session.prompt(session, "Hi")
    assert error.reason == {:llm_error, :no}

    # Drained, and lost: what waits is stored, what runs has been.
    for {id, stop} <- [drained: &GenServer.cast(&1, {:drain, :now}), lost: &take_away(store, &1)] do
      session = start(store, id: "#{id}")
      one = Task.async(fn -> Session.prompt(session, "One") end)
      assert_receive {:asked, _model, ["One"]}, 5_000
      two = Task.async(fn -> Session.prompt(session, "Two") end)
      until(fn -> match?({:ok, [_]}, Store.waiting(store, "#{id}")) end)
      stop.(session)
      if id == :lost, do: Session.steer(session, "x")
      for task <- [one, two], do: assert({:error, %Error{stored: true}} = Task.await(task))
    end

    # While it is written, nobody knows.
    test = self()

    hangs =
      WatchedStore.new(store, fn
        :before, :append -> send(test, :writing) && Process.sleep(:infinity)
        _, _ -> :ok
      end)

    session = start(hangs, id: "hangs")
    one = Task.async(fn -> Session.prompt(session, "One") end)
    assert_receive :writing, 5_000
    GenServer.cast(session, {:drain, :now})
    assert {:error, %Error{reason: :drained, stored: :unknown}} = Task.await(one)
  end

  defp take_away(store, session) do
    {:ok, %{owner: owner}} = Store.fetch(store, "lost")
    {:ok, _} = Store.claim(store, "lost", owner: "b", from: owner)
    session
  end

  test "an error says that a message is not stored, or that it is", %{store: store} do
    refused = %Store.Error{reason: {:disk_full, :test}}

    session = start(failing(store, :enqueue, :before, refused), id: "full")
    assert {:error, %Error{stored: false} = error} = Session.prompt_async(session, "Hi")
    assert Exception.message(error) =~ "not stored"

    # The run's first write has the message, its second one the answer.
    session = start(failing(store, :append, :before, @down, 2), id: "later", llm: say("Hello!"))
    assert {:error, %Error{stored: true}} = Session.prompt(session, "Hi")
  end

  test "steering with the same key is one message", %{store: store} do
    session = start(store)
    one = ask(session, "One", "k1")
    assert_receive {:asked, model, ["One"]}, 5_000
    for _ <- 1..3, do: assert(Session.steer(session, "Short!", key: "s1") == :ok)
    send(model, :go)
    let(["One", "Short!"])
    assert_receive {Session, ^one, {:ok, _}}, 5_000
    assert Session.steer(session, "Short!", key: "s1") == :ok
    assert Session.steer(session, "Short!", key: "s2") == {:error, :idle}
    assert users(session) == ["One", "Short!"]
  end

  test "a message that follows another one is only taken while nobody else was quicker", %{
    store: store
  } do
    session = start(store)
    follow = fn after_, key -> Session.prompt_async(session, key, key: key, after: after_) end
    assert follow.("k1", "k2") == {:error, :moved}
    one = ask(session, "One", "k1")
    assert_receive {:asked, model, ["One"]}, 5_000
    assert follow.("k1", "k2") == {:error, :moved}
    send(model, :go)
    assert_receive {Session, ^one, {:ok, _}}, 5_000

    # Of several at once, one is taken, and it is taken again.
    answers =
      1..5 |> Enum.map(&Task.async(fn -> follow.("k1", "b#{&1}") end)) |> Task.await_many()

    assert [{:ok, _}] = Enum.reject(answers, &(&1 == {:error, :moved}))
    index = Enum.find_index(answers, &match?({:ok, _}, &1)) + 1
    assert {:ok, _} = follow.("k1", "b#{index}")
    assert_receive {:asked, model, ["One", _]}, 5_000
    send(model, :go)
    until(fn -> Session.status(session) == :idle end)
    assert users(session) == ["One", "b#{index}"]
    assert follow.("k1", "k2") == {:error, :moved}
    assert {:ok, _} = follow.("b#{index}", "k2")
  end

  test "keys are short texts", %{store: store} do
    session = start(store)

    for key <- ["", String.duplicate("a", 201), :a, 1, <<255>>] do
      assert_raise ArgumentError, ~r/:key/, fn -> Session.prompt(session, "Hi", key: key) end
      assert_raise ArgumentError, ~r/:key/, fn -> Session.steer(session, "Hi", key: key) end
    end
  end
end
