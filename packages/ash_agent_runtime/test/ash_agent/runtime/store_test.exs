defmodule AshAgent.Runtime.StoreTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.StoredSessions, only: [sqlite: 0]
  import AshAgent.TestSupport.Runs, only: [drain: 1, results: 1]

  alias AshAgent.{Context, Runtime, Session, Store}
  alias AshAgent.Runtime.{Error, Paused, Repeat}
  alias AshAgent.TestSupport.{PgSQL, WatchedStore}

  @down %Store.Error{reason: {:unavailable, :test}}

  defp postgres do
    store = Store.Postgres.new(PgSQL.pool!())
    {:ok, 5} = Store.Postgres.Migrations.migrate(store)
    store
  end

  # PostgreSQL is other tests' as well.
  defp id(%Store.Postgres{}), do: "run #{System.unique_integer([:positive])}"
  defp id(_own), do: "c"

  defp create(store, opts \\ [owner: "a"]) do
    {:ok, kept} = Store.create(store, Context.new("Go", id: id(store)), opts)
    kept
  end

  # Calls `ids` in each of so many iterations, and then answers.
  defp llm(iterations, ids) do
    fn context ->
      calls = for id <- ids, do: %{id: id, name: "do", arguments: %{"id" => id}}
      over? = context.current_iteration > iterations
      {:ok, if(over?, do: %{content: "Done"}, else: %{tool_calls: calls})}
    end
  end

  # A tool that tells of each effect with its key.
  defp tools(repeat \\ :never) do
    test = self()

    run = fn %{"id" => id}, %{idempotency_key: key} ->
      send(test, {:effect, id, key})
      {:ok, "did " <> id}
    end

    %{"do" => %{function: run, repeat: repeat}}
  end

  defp run(store, kept, opts \\ []) do
    {context, opts} = Keyword.pop(opts, :context, kept && kept.value)
    own = [llm: llm(1, ~w(a b)), tools: tools(), store: store, kept: kept]
    Runtime.run(context, Keyword.merge(own, opts))
  end

  # Tells the test of each operation.
  defp told_of(store) do
    test = self()
    tell = fn now, name -> with(:before <- now, do: send(test, {:told, name})) && :ok end
    WatchedStore.new(store, tell)
  end

  defp effects, do: drain(do: ({:effect, id, key} -> {id, key}))

  defp told, do: drain(do: ({:told, what} -> what))

  defp statuses(context, ids \\ ~w(a b)),
    do: for(id <- ids, do: Context.Calls.tool_call_status(context, id))

  # Leaves the conversation as a machine does that stops while the tools run, and claims it anew.
  defp crash(store, kept, opts \\ []) do
    stop =
      WatchedStore.new(store, fn
        :before, :append -> if Process.get(:started), do: {:error, @down}, else: :ok
        :after, :start -> with(_ <- Process.put(:started, true), do: :ok)
        _, _ -> :ok
      end)

    assert {:error, %Error{reason: {:store_error, @down}}} = run(stop, kept, opts)
    Process.delete(:started)
    effects()
    {:ok, claim} = Store.claim(store, "c", owner: "a", reclaim: true)
    claim
  end

  describe "a run with a store" do
    test "writes the answer, then what starts, then the results: three round trips an iteration" do
      test = self()
      store = told_of(sqlite())
      kept = create(store)
      told()
      tool = fn _ -> send(test, {:told, :tool}) && {:ok, 1} end
      llm = llm(5, ~w(a b c))
      model = fn context -> send(test, {:told, :model}) && llm.(context) end
      assert {:ok, result} = run(store, kept, llm: model, tools: %{"do" => tool})

      iteration = [:model, :append, :start, :tool, :tool, :tool, :append]

      assert told() ==
               [:append] ++ List.flatten(List.duplicate(iteration, 5)) ++ [:model, :append]

      assert {:ok, stored} = Store.fetch(store, "c")
      assert Context.equal?(stored.value, result.context)
      assert {stored.status, stored.revision} == {:idle, result.kept.revision}
      assert {:ok, calls} = Store.calls(store, "c")
      assert Enum.map(calls, & &1.state) == List.duplicate(:ok, 15)
    end

    test "writes results while other calls hang, those together that come together" do
      test = self()
      inner = sqlite()
      store = told_of(inner)
      kept = create(store)

      tool = fn
        %{"n" => 4} -> send(test, {:hanging, self()}) && receive(do: (:never -> :ok))
        _ -> {:ok, :paid}
      end

      calls = for n <- 1..4, do: %{id: "call#{n}", name: "do", arguments: %{"n" => n}}
      model = fn _context -> {:ok, %{tool_calls: calls}} end

      opts = [llm: model, tools: %{"do" => tool}, max_concurrency: 4]
      {:ok, runner} = Task.start(fn -> run(store, kept, opts) end)
      assert_receive {:hanging, _tool}, 5_000

      three? = fn -> match?({:ok, [_, _, _]}, Store.calls(inner, "c", state: :ok)) end
      AshAgent.TestSupport.Wait.until(three?)

      # The prompt, the answer, what starts, and the three results: at most two writes, if one came late.
      assert [:create, :append, :append, :start | writes] = told()
      assert writes in [[:append], [:append, :append]]

      # Whoever goes on finds the three, and nobody knows of the fourth.
      Process.exit(runner, :kill)
      {:ok, stored} = Store.fetch(inner, "c")
      assert [%{id: "call4"}] = Context.pending_tool_calls(stored.value)
    end

    test "notes when each call of the model and of a tool ended" do
      store = sqlite()
      assert {:ok, _} = run(store, create(store))
      {:ok, history} = Store.history(store, "c")
      notes = Enum.map(history, & &1.note)

      assert [%{}, %{step: :begin}, answer, %{calls: calls}, %{step: :answer}] = notes
      assert %{step: :answer} = answer
      assert answer.started_at <= answer.ended_at
      assert [%{name: "do", microseconds: took}, _] = calls
      assert took >= 0
      assert Enum.sort(Enum.map(calls, & &1.id)) == ~w(a b)
    end

    test "gives each call a key that is the journal's, and a fork others" do
      store = sqlite()
      kept = create(store)
      assert {:ok, _} = run(store, kept)
      mine = effects()
      {:ok, calls} = Store.calls(store, "c")

      assert Enum.sort(Keyword.values(for {id, key} <- mine, do: {:"#{id}", key})) ==
               Enum.sort(Enum.map(calls, & &1.key))

      {:ok, forked} = Store.create(store, Context.fork(kept.value), owner: "a")
      assert {:ok, _} = run(store, forked)
      assert MapSet.disjoint?(MapSet.new(mine), MapSet.new(effects()))
    end

    test "stops before the next step when the store fails at any of them, and goes on from there" do
      # Each operation of a run, with an error before it has happened, and after.
      for moment <- [:before, :after], nth <- 1..5, repeat <- [:safe, :never] do
        store = sqlite()
        kept = create(store)
        counter = :counters.new(1, [])

        failing =
          WatchedStore.new(store, fn now, name when name in [:append, :start, :calls] ->
            if now == :before, do: :counters.add(counter, 1, 1)
            if now == moment and :counters.get(counter, 1) == nth, do: {:error, @down}, else: :ok
          end)

        assert {:error, %Error{reason: {:store_error, @down}} = error} =
                 run(failing, kept, tools: tools(repeat))

        assert Exception.message(error) =~ "cannot be reached"
        # Nothing was asked of it after that.
        assert :counters.get(counter, 1) == nth
        done = effects()
        assert length(done) == if(nth > 3, do: 2, else: 0)

        # What the error has goes on, and so does what is stored.
        {:ok, claim} =
          Store.claim(store, "c", owner: "b", reclaim: true, lease: 1) |> owned(store)

        {:ok, result} = run(store, claim, tools: tools(repeat), context: error.context)
        again = effects()
        assert Context.pending_tool_calls(result.context) == []
        assert {:ok, stored} = Store.fetch(store, "c")
        assert Context.equal?(stored.value, result.context)

        for id <- ~w(a b) do
          runs = Enum.count(done ++ again, &(elem(&1, 0) == id))
          unknown? = Context.Calls.tool_call_status(result.context, id) == :unknown
          # Only what was noted as started, and of which the run has heard nothing, is unknown.
          assert unknown? == ({moment, nth, repeat} == {:after, 3, :never})
          assert runs == if(unknown?, do: 0, else: 1)
        end
      end
    end

    # The claim of a run that has ended is the same process's.
    defp owned({:error, {:owned, owner}}, store),
      do: Store.claim(store, "c", owner: owner, reclaim: true)

    defp owned(claim, _store), do: claim

    test "ends before the next effect when another owns the conversation" do
      store = sqlite()
      kept = create(store, owner: "a", lease: 1)

      steal = fn context ->
        Process.sleep(5)
        {:ok, _} = Store.claim(store, "c", owner: "b")
        llm(1, ~w(a b)).(context)
      end

      assert {:error, %Error{reason: {:store_error, {:owned, "b"}}} = error} =
               run(store, kept, llm: steal)

      assert Exception.message(error) =~ ~s("b" has claimed)
      assert effects() == []
      assert {:ok, stored} = Store.fetch(store, "c")
      assert Context.count_messages(stored.value) == 1
    end

    test "refuses what is no stored state of its conversation" do
      store = sqlite()
      kept = create(store)

      wrong = [kept: nil, kept: %{kept | value: nil}, store: nil, context: Context.new("Go")]

      for option <- wrong,
          do: assert_raise(ArgumentError, ~r/:kept/, fn -> run(store, kept, [option]) end)
    end
  end

  describe "after a crash" do
    test "a call that may be repeated runs again, with its key and as the next attempt" do
      store = sqlite()
      claim = crash(store, create(store), tools: tools(:safe))
      {:ok, before} = Store.calls(store, "c")
      assert {:ok, result} = run(store, claim, tools: tools(:safe))
      assert statuses(result.context) == [:ok, :ok]

      assert Enum.sort(for {_, key} <- effects(), do: key) ==
               Enum.sort(Enum.map(before, & &1.key))

      {:ok, calls} = Store.calls(store, "c")

      attempts = Enum.sort(for c <- calls, do: {c.attempt, c.state})
      assert attempts == [{1, :unknown}, {1, :unknown}, {2, :ok}, {2, :ok}]
    end

    test "a call that takes its machine with it is not repeated without end" do
      store = sqlite()
      opts = [tools: tools(:safe)]
      kept = Enum.reduce(1..3, create(store), fn _, kept -> crash(store, kept, opts) end)
      assert {:ok, result} = run(store, kept, opts)
      assert effects() == []
      assert statuses(result.context) == [:unknown, :unknown]
      {:ok, calls} = Store.calls(store, "c")
      assert Enum.map(calls, & &1.attempt) |> Enum.max() == 3
      refute Enum.any?(calls, &(&1.state == :started))

      # A person is asked where there is one.
      store = sqlite()
      kept = crash(store, create(store), opts)
      asked = opts ++ [approval: fn _, _ -> :ask end, max_attempts: 1]
      assert {:paused, %Paused{unknown: ["a", "b"]}} = run(store, kept, asked)
      assert effects() == []
    end

    test "a call that may not be repeated has a result that says so" do
      store = sqlite()
      claim = crash(store, create(store))
      assert {:ok, result} = run(store, claim)
      assert effects() == []
      assert statuses(result.context) == [:unknown, :unknown]

      assert [{:error, "the outcome is unknown" <> _}, _] = results(result.context)

      {:ok, calls} = Store.calls(store, "c")
      assert Enum.map(calls, & &1.state) == [:unknown, :unknown]
      {:ok, stored} = Store.fetch(store, "c")
      loaded = Context.load!(Context.to_snapshot(stored.value))
      assert statuses(loaded) == [:unknown, :unknown]
    end

    @tag :capture_log
    test "a tool that knows is asked" do
      test = self()

      for {answer, status, runs} <- [
            {{:done, {:ok, "was done"}}, :ok, 0},
            {{:done, {:error, "was refused"}}, :error, 0},
            {:not_done, :ok, 1},
            {:unknown, :unknown, 0},
            {:nonsense, :unknown, 0},
            {:raise, :unknown, 0}
          ] do
        ask = fn call, key ->
          send(test, {:asked, call, key})
          if answer == :raise, do: raise("secret"), else: answer
        end

        store = sqlite()
        claim = crash(store, create(store), llm: llm(1, ["a"]))
        assert {:ok, result} = run(store, claim, llm: llm(1, ["a"]), tools: tools({:ask, ask}))
        assert_received {:asked, %{id: "a", arguments: %{"id" => "a"}}, key}
        assert {:ok, [%{key: ^key} | _]} = Store.calls(store, "c")
        assert statuses(result.context, ["a"]) == [status]
        assert length(effects()) == runs
      end
    end

    test "with :approval, a person decides about each repetition" do
      store = sqlite()
      opts = [llm: llm(1, ["a"]), approval: fn _, _ -> :ask end]
      assert {:paused, paused} = run(store, create(store), opts)
      assert {:ok, %{status: :paused}} = Store.fetch(store, "c")
      assert Repeat.asked_anew(paused.context) == %{}
      approved = Context.Calls.approve_tool_call(paused.context, "a", by: "ann")
      claim = crash(store, paused.kept, [context: approved] ++ opts)

      # The approval was used: it starts nothing again.
      assert {:paused, %Paused{unknown: ["a"], calls: [%{id: "a"}]} = paused} =
               run(store, claim, opts)

      # This is another question, which is the same one for everybody.
      assert {:ok, %{value: stored}} = Store.fetch(store, "c")
      assert Repeat.asked_anew(stored) == %{"a" => 1}
      assert {:paused, %Paused{unknown: ["a"]} = again} = run(store, paused.kept, opts)
      assert again.context == paused.context
      assert effects() == []

      denied = Context.Calls.deny_tool_call(paused.context, "a", "it was done")
      assert {:ok, %{output: "Done"}} = Runtime.run(denied, opts)

      {:ok, kept} = Store.fetch(store, paused.kept)
      assert [%{id: "a", attempt: 2}] = paused.calls

      assert_raise Context.Error, ~r/not about its attempt 2/, fn ->
        Context.Calls.approve_tool_call(kept.value, "a", by: "ann", attempt: 1)
      end

      approved = Context.Calls.approve_tool_call(kept.value, "a", by: "ann", attempt: 2)
      assert {:ok, result} = run(store, kept, [context: approved] ++ opts)
      assert [{"a", _}] = effects()
      assert statuses(result.context, ["a"]) == [:ok]
    end
  end

  describe "a started call that a person denies" do
    # The conversation waits for a person, who has to say what becomes of a call that was started.
    defp paused_unknown(store, opts) do
      assert {:paused, paused} = run(store, create(store), opts)
      approved = Context.Calls.approve_tool_call(paused.context, "a", by: "ann")
      claim = crash(store, paused.kept, [context: approved] ++ opts)
      assert {:paused, %Paused{unknown: ["a"]} = paused} = run(store, claim, opts)
      {:ok, [%{state: :started}]} = Store.calls(store, "c")
      paused
    end

    defp ask_opts, do: [llm: llm(1, ["a"]), approval: fn _, _ -> :ask end]

    defp session_of(store) do
      paused = paused_unknown(store, ask_opts())
      {:ok, _} = Store.release(store, paused.kept)
      {:ok, session} = Session.start_link([id: "c", store: store, tools: tools()] ++ ask_opts())
      session
    end

    test "is of unknown outcome in the log, for the model and in the journal" do
      store = sqlite()
      session = session_of(store)

      # Who was shown other arguments settles nothing.
      assert {:error, %Context.Error{reason: {:other_arguments, "a", _}}} =
               Session.deny(session, "a", "no", arguments: %{"other" => 1})

      assert {:ok, [%{state: :started}]} = Store.calls(store, "c")
      :ok = Session.deny(session, "a", "it was paid by hand", by: "ann")
      assert {:ok, [%{state: :unknown, call: noted}]} = Store.calls(store, "c")
      assert %{id: "a", settled: %{by: "ann", reason: "it was paid by hand"}} = noted
      assert {:ok, %{output: "Done", context: context}} = Session.resume(session)
      assert effects() == []
      assert statuses(context, ["a"]) == [:unknown]
      assert [{:error, words}] = results(context)
      assert words =~ "may have been carried out"
      assert words =~ "it was paid by hand"

      messages = Context.get_iteration(context, 1).messages
      result = Enum.find(messages, &match?([%{type: :tool_result} | _], &1.content))
      assert %{metadata: %{settled: %{"a" => %{by: "ann"}}}} = result
      assert {:ok, %{status: :idle}} = Store.fetch(store, "c")
    end

    test "is not decided about by who was asked about an earlier attempt" do
      for decide <- [
            &Session.approve(&1, "a", attempt: &2),
            &Session.deny(&1, "a", "no", attempt: &2)
          ] do
        store = sqlite()
        session = session_of(store)
        assert {:paused, [%{id: "a", attempt: 2}]} = Session.status(session)

        for other <- [1, 3] do
          assert {:error, %Context.Error{reason: {:other_attempt, "a", 2}}} =
                   decide.(session, other)
        end

        assert {:paused, [%{id: "a", attempt: 2}]} = Session.status(session)
        assert {:ok, [%{state: :started}]} = Store.calls(store, "c")
        assert decide.(session, 2) == :ok
        assert {:ok, %{output: "Done"}} = Session.resume(session)
      end
    end

    test "keeps who settled it, beside those of its neighbours" do
      store = sqlite()
      {:ok, _} = Store.release(store, crash(store, create(store)))
      own = [id: "c", store: store, tools: tools(), go_on: false, llm: llm(1, ["a", "b"])]
      {:ok, session} = Session.start_link([approval: fn _, _ -> :ask end] ++ own)
      assert {:paused, %Paused{unknown: ["a", "b"]}} = Session.resume(session)
      :ok = Session.deny(session, "a", "it was paid", by: "ann")
      :ok = Session.deny(session, "b", "it was not", by: "bob")
      result = session |> Session.context() |> Context.get_iteration_messages(1) |> List.last()
      assert %{settled: %{"a" => %{by: "ann"}, "b" => %{by: "bob"}}} = result.metadata
    end

    test "is of unknown outcome as well when the turn is cancelled" do
      store = sqlite()
      session = session_of(store)
      assert Session.cancel(session) == :ok
      assert {:ok, [%{state: :unknown}]} = Store.calls(store, "c")
      assert {:ok, %{status: :idle, value: context}} = Store.fetch(store, "c")
      assert statuses(context, ["a"]) == [:unknown]
      assert [{:error, words}] = results(context)
      assert words =~ "may have been carried out"
      assert words =~ "the user cancelled the turn"
    end

    test "is closed as unknown also where the context was changed by hand" do
      store = sqlite()
      paused = paused_unknown(store, ask_opts())
      denied = Context.Calls.deny_tool_call(paused.context, "a", "it was done")
      assert {:ok, %{output: "Done"}} = run(store, paused.kept, [context: denied] ++ ask_opts())
      {:ok, [%{state: :unknown}]} = Store.calls(store, "c")
      assert {:ok, %{status: :idle}} = Store.fetch(store, "c")
    end
  end

  describe "an approval" do
    test "is used once, whoever resumes", do: used_once(&sqlite/0)

    @tag :p1_pgsql
    @tag integrations: ["PostgreSQL", "p1_pgsql"]
    test "is used once with PostgreSQL, whoever resumes", do: used_once(&postgres/0)

    defp used_once(open) do
      for _ <- 1..20 do
        store = open.()
        opts = [llm: llm(1, ["a"]), approval: fn _, _ -> :ask end]
        assert {:paused, paused} = run(store, create(store, []), opts)
        approved = Context.Calls.approve_tool_call(paused.context, "a")
        {:ok, kept} = Store.append(store, paused.kept, approved)
        tools = tools()

        run = fn -> run(store, kept, [tools: tools] ++ opts) end
        replies = Task.await_many(for _ <- 1..2, do: Task.async(run))
        assert [{"a", _}] = effects()
        assert Enum.count(replies, &match?({:ok, _}, &1)) == 1
        assert [%{reason: {:store_error, reason}}] = for({:error, error} <- replies, do: error)
        assert reason in [:stale, {:started, ["a"]}]
      end
    end

    test "a call that another has started in the same moment is left to it" do
      store = sqlite()

      other = fn
        :before, :start ->
          {:ok, kept} = Store.fetch(store, "c")
          key = Store.call_key(kept.value, "a")
          assert {:ok, _, [^key]} = Store.start(store, kept, [%{key: key}])
          :ok

        _, _ ->
          :ok
      end

      assert {:error, error} = run(WatchedStore.new(store, other), create(store, []))
      assert error.reason == {:store_error, {:started, ["a"]}}
      assert Exception.message(error) =~ ~s(started the calls "a")
      assert [{"b", _}] = effects()
      assert statuses(error.context) == [:pending, :ok]
      assert {:ok, stored} = Store.fetch(store, "c")
      assert Context.equal?(stored.value, error.context)
    end

    test "is for the arguments that the journal starts", do: journal_starts(sqlite())

    @tag :p1_pgsql
    @tag integrations: ["PostgreSQL", "p1_pgsql"]
    test "is for the arguments that the journal in PostgreSQL starts",
      do: journal_starts(postgres())

    defp journal_starts(store) do
      hook = fn call, _ -> {:ok, %{call | arguments: %{"id" => "changed"}}} end
      opts = [llm: llm(1, ["a"]), before_tool: hook, approval: fn _, _ -> :ask end]
      assert {:paused, %{calls: [%{arguments: shown}]} = paused} = run(store, create(store), opts)
      approved = Context.Calls.approve_tool_call(paused.context, "a", arguments: shown)
      other = fn call, _ -> {:ok, %{call | arguments: %{"id" => "other"}}} end

      changed = Keyword.put(opts, :before_tool, other)
      {:ok, _} = Runtime.run(approved, [tools: tools()] ++ changed)
      assert effects() == []
      assert {:ok, _} = run(store, paused.kept, [context: approved] ++ opts)
      assert [{"changed", _}] = effects()
      assert {:ok, [%{call: %{arguments: ^shown}}]} = Store.calls(store, paused.kept.id)
    end
  end

  test "a tool that is killed with its run is unknown in the journal as well, and one that did not start is interrupted" do
    store = sqlite()

    slow = fn %{"id" => id} -> if(id == "a", do: {:ok, 1}, else: Process.sleep(:infinity)) end
    opts = [tools: %{"do" => slow}, timeout: 2_000]
    assert {:error, %{reason: {:timeout, 2_000}} = error} = run(store, create(store), opts)
    assert statuses(error.context) == [:ok, :unknown]
    {:ok, calls} = Store.calls(store, "c")

    states = Enum.sort(for c <- calls, do: {c.call.id, c.state})
    assert states == [{"a", :ok}, {"b", :unknown}]
    assert {:ok, %{status: :idle} = stored} = Store.fetch(store, "c")
    assert Context.equal?(stored.value, error.context)
  end

  test "arguments that the journal cannot note start nothing" do
    store = sqlite()
    hook = fn call, _ -> {:ok, %{call | arguments: %{"id" => [1 | 2]}}} end
    assert {:ok, result} = run(store, create(store), before_tool: hook)
    assert effects() == []
    assert statuses(result.context) == [:error, :error]
  end
end
