defmodule AshAgent.Session.EndsTest do
  use ExUnit.Case, async: true

  # Each run of a session has one end, which everybody hears when it can be acted on, whatever ended it.

  import AshAgent.TestSupport.Generators, only: [between: 2, check_all: 3, one_of: 1]
  import AshAgent.TestSupport.Runs, only: [drain: 1, hanging: 1]
  import AshAgent.TestSupport.StoredSessions, only: [sqlite: 0]
  import AshAgent.TestSupport.Wait, only: [until: 1]

  alias AshAgent.{Context, LLM, Runtime, Session, Store}
  alias AshAgent.Runtime.Error

  @moduletag :capture_log

  @ask [%{tool_calls: [%{id: "c1", name: "work", arguments: %{}}]}, "Done."]

  defp start(opts), do: start_supervised!({Session, opts}, id: make_ref(), restart: :temporary)

  # Sends all ends to the test: what `:on_event` heard, with the number of the prompt.
  defp tell do
    test = self()

    fn
      [_, _, :run, :stop], _, metadata ->
        send(test, {:ended, prompt(metadata), outcome(metadata)})

      _event, _, _ ->
        :ok
    end
  end

  defp prompt(%{context: context}) do
    texts =
      for %{role: :user, content: text} when is_binary(text) <- Context.to_messages(context),
          do: text

    List.last(texts)
  end

  defp outcome(%{status: :error, reason: reason}), do: reason
  defp outcome(%{status: status}), do: status

  describe "a pause" do
    test "is told when a decision can be made, to subscribers and to :on_event" do
      test = self()

      for asks <- [:subscriber, :on_event] do
        tell = fn [_, _ | name], _, _ ->
          Process.sleep(5)

          if asks == :on_event and name in [[:iteration, :pause], [:run, :stop]],
            do: send(test, {:approved, Session.approve(Process.whereis(asks), "c1", by: :ann)})
        end

        tools = %{work: fn _ -> {:ok, 1} end}
        opts = [llm: LLM.Scripted.new(@ask), tools: tools, on_event: tell, name: asks]
        session = start([approval: fn _, _ -> :ask end] ++ opts)
        {:ok, ref, _snapshot} = Session.subscribe(session)
        {:ok, _mine} = Session.prompt_async(session, "Hi")

        if asks == :subscriber do
          assert_receive {Session, ^ref, _, {:event, [:iteration, :pause], %{tool_calls: 1}, _}}
          assert Session.approve(session, "c1", by: :ann) == :ok
          assert_receive {Session, ^ref, _, {:event, [:run, :stop], _, %{status: :paused}}}
        else
          assert_receive {:approved, :ok}
          assert_receive {:approved, {:error, %Context.Error{}}}
        end

        assert {:ok, %{output: "Done."}} = Session.resume(session)
      end
    end

    test "is told before the end of a run without a session" do
      me = self()
      tell = fn [_, _ | name], _, _ -> send(me, {:event, name}) end
      tools = %{work: fn _ -> {:ok, 1} end}
      opts = [llm: LLM.Scripted.new(@ask), tools: tools, on_event: tell]

      assert {:paused, _} =
               Runtime.run(Context.new("Hi"), [approval: fn _, _ -> :ask end] ++ opts)

      names = drain(do: ({:event, name} -> name))
      assert [[:iteration, :stop], [:iteration, :pause], [:run, :stop]] = Enum.take(names, -3)
    end

    test "that is cancelled ends its turn" do
      for store <- [nil, sqlite()] do
        tools = %{work: fn _ -> {:ok, 1} end}
        opts = if store, do: [store: store, id: "c"], else: []
        opts = [llm: LLM.Scripted.new(@ask), tools: tools, on_event: tell()] ++ opts
        session = start([approval: fn _, _ -> :ask end] ++ opts)
        {:paused, _} = Session.prompt(session, "1")
        {:ok, ref, _snapshot} = Session.subscribe(session)
        :ok = Session.cancel(session)
        assert_receive {Session, ^ref, _, {:event, [:run, :stop], _, %{reason: :cancelled}}}
        until(fn -> drained() == [{"1", :paused}, {"1", :cancelled}] end)
      end
    end
  end

  defp drained do
    heard = Process.get(:heard, []) ++ drain(do: ({:ended, prompt, outcome} -> {prompt, outcome}))
    Process.put(:heard, heard)
    if match?([_, _ | _], heard), do: Process.delete(:heard)
    heard
  end

  describe "after cancel/1" do
    setup do
      test = self()

      llm = fn context ->
        send(test, {:asked, length(Context.to_messages(context))})

        if Context.to_messages(context) == [%{role: :user, content: "1"}],
          do: {:ok, hd(@ask)},
          else: {:ok, %{content: "Hm"}}
      end

      {:ok, opts: [llm: llm, tools: %{work: hanging(:working)}, on_event: tell()]}
    end

    for stored? <- [false, true], waits <- [:steer, :prompt] do
      @stored stored?
      @waits waits

      test "a #{waits} that waited is dropped#{if stored?, do: ", in the store, too"}", %{
        opts: opts
      } do
        store = sqlite()
        opts = if @stored, do: [store: store, id: "c"] ++ opts, else: opts
        session = start(opts)
        {:ok, one} = Session.prompt_async(session, "1")
        assert_receive {:working, _}
        {:ok, ref, _snapshot} = Session.subscribe(session)

        two =
          if @waits == :prompt,
            do: elem(Session.prompt_async(session, "2", metadata: %{from: "ann"}), 1),
            else: Session.steer(session, "2", metadata: %{from: "ann"}) && nil

        assert Session.cancel(session) == :ok
        assert_receive {Session, ^one, {:error, %Error{reason: :cancelled}}}

        if two do
          assert_receive {Session, ^two,
                          {:error, %Error{reason: :dropped, stored: stored} = error}}

          assert stored == if(@stored, do: false)
          assert Exception.message(error) =~ "Send it again"
        end

        dropped = [%{kind: @waits, input: "2", metadata: %{from: "ann"}}]
        assert_receive {Session, ^ref, _, {:event, [:run, :stop], _, %{dropped: ^dropped}}}
        assert Session.status(session) == :idle
        assert_received {:asked, 1}
        refute_receive {:asked, _}, 50

        if @stored do
          assert Store.waiting(store, "c") == {:ok, []}
          GenServer.stop(session)
          session = start(opts)
          refute_receive {:asked, _}, 50
          assert Session.status(session) == :idle
        end
      end
    end

    for stored? <- [false, true], {how, rule} <- [cancel: :drop, cancel: :go_on, kill: :drop] do
      @stored stored?
      @how how
      @rule rule

      test "a message that the run was just handed is not lost (#{how}, #{rule}#{if stored?, do: ", stored"})",
           %{opts: opts} do
        test = self()

        tools = %{
          work: fn _ -> send(test, {:working, self()}) && receive(do: (:go -> {:ok, 1})) end
        }

        opts = [tools: tools, when_cancelled: @rule] ++ Keyword.delete(opts, :tools)
        opts = if @stored, do: [store: sqlite(), id: "c"] ++ opts, else: opts
        session = start(opts)
        {:ok, one} = Session.prompt_async(session, "1")
        assert_receive {:working, tool}
        :ok = Session.steer(session, "2")
        task = :sys.get_state(session).run.task.pid

        # The run asks for messages, gets them, and is killed before it can add them.
        :sys.suspend(session)
        send(tool, :go)

        until(fn ->
          {:message_queue_len, 0} != Process.info(session, :message_queue_len) and waits?(session)
        end)

        :erlang.suspend_process(task)
        :sys.resume(session)
        until(fn -> :sys.get_state(session).run.given != [] end)
        {:ok, ref, _snapshot} = Session.subscribe(session)
        if @how == :cancel, do: Session.cancel(session), else: Process.exit(task, :kill)
        assert_receive {Session, ^one, {:error, _}}

        if {@how, @rule} == {:cancel, :drop} do
          assert_receive {Session, ^ref, _,
                          {:event, [:run, :stop], _, %{dropped: [%{kind: :steer, input: "2"}]}}}

          refute "2" in texts(session)
        else
          until(fn -> Session.status(session) == :idle end)
          assert List.last(texts(session)) == "2"
        end
      end
    end

    defp waits?(session) do
      {:messages, messages} = Process.info(session, :messages)
      Enum.any?(messages, &match?({:steers, _, _}, &1))
    end

    defp texts(session) do
      for %{role: :user, content: text} when is_binary(text) <-
            Context.to_messages(Session.context(session)),
          do: text
    end

    test "whose store fails, what was dropped does not come back", %{opts: opts} do
      down = :atomics.new(1, [])
      {:ok, sqlite} = Store.SQLite.open(":memory:")

      fail = fn
        :before, name when name in [:append, :fetch, :waiting] ->
          if :atomics.get(down, 1) == 1,
            do: {:error, %Store.Error{reason: {:unavailable, :econnrefused}}},
            else: :ok

        _moment, _name ->
          :ok
      end

      store = AshAgent.TestSupport.WatchedStore.new(sqlite, fail)
      session = start([store: store, id: "c"] ++ opts)
      {:ok, _one} = Session.prompt_async(session, "1")
      assert_receive {:working, _}
      {:ok, two} = Session.prompt_async(session, "2")
      :atomics.put(down, 1, 1)
      :ok = Session.cancel(session)
      assert_receive {Session, ^two, {:error, %Error{reason: :dropped, stored: :unknown}}}
      :atomics.put(down, 1, 0)
      assert_received {:asked, 1}
      refute_receive {:asked, _}, 1_200
      assert {:ok, _} = Session.prompt(session, "3")
      assert Store.waiting(sqlite, "c") == {:ok, []}
    end
  end

  describe "a run" do
    test "has an end when its session is drained, loses its conversation, is stopped, or is killed" do
      for {how, outcome} <- [drain: :drained, lose: :store_error, stop: :exit, kill: :exit] do
        store = sqlite()
        opts = [llm: LLM.Scripted.new(@ask), tools: %{work: hanging(:working)}, on_event: tell()]
        session = start([store: store, id: "c"] ++ opts)
        {:ok, ref, _snapshot} = Session.subscribe(session)
        {:ok, mine} = Session.prompt_async(session, "#{how}")
        assert_receive {:working, _}

        case how do
          :drain ->
            GenServer.cast(session, {:drain, :now})

          :lose ->
            send(
              session,
              {:lost, elem(:sys.get_state(session).claim.renewer, 0), {:store_error, :stale}}
            )

          :stop ->
            GenServer.stop(session)

          :kill ->
            Process.exit(session, :kill)
        end

        text = "#{how}"
        assert_receive {:ended, ^text, ^outcome}
        assert_receive {:DOWN, ^ref, :process, _, _}
        told = drain(do: ({Session, ^ref, _, {:event, [:run, :stop], _, metadata}} -> metadata))

        if how in [:drain, :lose] do
          assert [%{reason: ^outcome}] = told
          assert_received {Session, ^mine, {:error, %Error{}}}
        end

        refute_receive {:ended, _, _}, 20
      end
    end

    test "that nobody goes on with any more has an end" do
      store = sqlite()
      {:ok, _kept} = Store.create(store, Context.new("1", id: "c"), status: :running)

      deadly = fn _context ->
        [_supervisor, session | _] = Process.get(:"$ancestors")
        Process.exit(session, :kill)
        Process.sleep(:infinity)
      end

      opts = [store: store, id: "c", llm: deadly, max_resumes: 1, on_event: tell()]
      monitor = Process.monitor(start(opts))
      assert_receive {:DOWN, ^monitor, _, _, _}
      assert_receive {:ended, "1", :exit}
      session = start(opts)
      assert_receive {:ended, "1", :max_resumes_exceeded}
      assert Session.status(session) == :parked
    end

    test "has one end, and a turn one that is its last, whatever is killed and when" do
      check_all("ends of turns", [runs: 40], fn _size ->
        test = self()
        store = one_of([nil, sqlite()])

        work = fn _ ->
          send(test, {:at_work, self()})
          if one_of([true, false]), do: Process.sleep(between(0, 3))
          {:ok, 1}
        end

        llm = fn context ->
          send(test, {:at_work, self()})
          last = context |> Context.to_messages() |> List.last()
          Process.sleep(between(0, 3))

          if last.role == :user and is_binary(last.content),
            do: {:ok, hd(@ask)},
            else: {:ok, %{content: "Done."}}
        end

        asked = fn _, _ -> one_of([:approve, :approve, :ask]) end
        tell = tell()

        slow = fn name, measured, metadata ->
          Process.sleep(between(0, 1)) && tell.(name, measured, metadata)
        end

        opts = [llm: llm, tools: %{work: work}, approval: asked, on_event: slow]
        opts = if store, do: [store: store, id: "c"] ++ opts, else: opts
        session = start(opts)
        {:ok, ref, _snapshot} = Session.subscribe(session)

        begun = for number <- 1..5, text = "#{number}", prompted?(session, text), do: text

        # Whatever is left is over.
        Session.cancel(session)
        until(fn -> Session.status(session) == :idle and :sys.get_state(session).told == %{} end)
        ends = drain(do: ({:ended, prompt, outcome} -> {prompt, outcome}))

        shown =
          drain(
            do: ({Session, ^ref, _, {:event, [:run, :stop], _, metadata}} -> outcome(metadata))
          )

        assert Enum.map(ends, &elem(&1, 1)) == shown
        finals = for {prompt, outcome} <- ends, outcome != :paused, do: prompt
        assert finals == begun
        drain(do: ({:at_work, _} -> 1))
        drain(do: ({Session, _, _} -> 1))
        GenServer.stop(session)
      end)
    end
  end

  # Prompts, and lets something happen. A paused session is decided about, which ends its turn sooner or later.
  defp prompted?(session, text) do
    {:ok, ref} = Session.prompt_async(session, text)
    Process.sleep(between(0, 4))

    case one_of([:nothing, :cancel, :kill_worker, :kill_task]) do
      :nothing ->
        :ok

      :cancel ->
        Session.cancel(session)

      :kill_worker ->
        for(pid <- drain(do: ({:at_work, pid} -> pid)), do: Process.exit(pid, :kill))

      :kill_task ->
        with(
          %{run: %{task: %{pid: pid}}} <- :sys.get_state(session),
          do: Process.exit(pid, :kill)
        )
    end

    settle(session, ref)
    true
  end

  defp settle(session, ref) do
    assert_receive {Session, ^ref, {status, %{context: %Context{}}}}
                   when status in [:ok, :error, :paused]

    if status == :paused and match?({:paused, _}, Session.status(session)) do
      with {:paused, [%{id: id} | _]} <- Session.status(session), do: Session.approve(session, id)

      if one_of([true, false]) do
        Session.cancel(session)
      else
        {:ok, again} = Session.resume_async(session)
        settle(session, again)
      end
    end
  end
end
