defmodule AshAgent.SessionTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Runs, only: [hanging: 1, results: 1, results: 2, say: 1]
  import AshAgent.TestSupport.Wait, only: [until: 1, until: 2]
  import ExUnit.CaptureLog

  alias AshAgent.{Context, Session}
  alias AshAgent.LLM.Scripted
  alias AshAgent.Runtime.{Error, Result}

  doctest AshAgent.Session

  defp call(id, name, arguments \\ %{}), do: %{id: id, name: name, arguments: arguments}

  defp start(opts) do
    start_supervised!({Session, Keyword.put_new(opts, :llm, say("Hi"))}, id: make_ref())
  end

  # A model that tells the test that it was asked, and answers when it is told to.
  defp gated do
    test = self()

    fn context ->
      send(test, {:asked, self(), context})
      receive(do: ({:answer, answer} -> {:ok, answer}))
    end
  end

  defp texts(context) do
    for %{role: role, content: text} when is_binary(text) <- Context.to_messages(context),
        do: {role, text}
  end

  # The supervisor of a session's tasks, which logs its end when the session crashes.
  defp supervisors(session) do
    {:links, links} = Process.info(session, :links)
    {:dictionary, dictionary} = Process.info(session, :dictionary)

    ancestors = dictionary[:"$ancestors"]
    links -- [self() | Enum.map(ancestors, &((is_pid(&1) && &1) || Process.whereis(&1)))]
  end

  describe "prompt/3" do
    test "keeps one conversation over several prompts" do
      add = call("a", :add, %{"a" => 1, "b" => 1})
      llm = Scripted.new(["One.", %{tool_calls: [add]}, "Two."])
      tools = %{add: fn %{"a" => a, "b" => b} -> a + b end}
      session = start(llm: llm, system_prompt: "Count.", tools: tools)

      assert {:ok, %Result{output: "One."}} = Session.prompt(session, "First?")

      assert {:ok, %Result{output: "Two.", iterations: 2}} =
               Session.prompt(session, "Second?", metadata: %{from: 7})

      context = Session.context(session)

      asked = [system: "Count.", user: "First?", assistant: "One.", user: "Second?"]
      assert texts(context) == asked ++ [assistant: "Two."]
      noted = &match?(%{content: "Second?", metadata: %{from: 7}}, &1)
      assert Enum.any?(Context.to_messages(context), noted)
    end

    test "returns an error for input that is none, and goes on" do
      session = start([])

      assert {:error, %Context.Error{reason: {:invalid_part, 0, :type}}} =
               Session.prompt(session, [%{type: :hologram}])

      assert {:ok, %Result{}} = Session.prompt(session, "Hi")
      assert_raise ArgumentError, fn -> Session.prompt(session, nil) end
      assert_raise ArgumentError, fn -> Session.prompt(session, "Hi", metadata: 5) end
    end

    test "of another process may end without the run ending" do
      session = start(llm: gated())
      caller = spawn(fn -> Session.prompt(session, "Hi") end)
      assert_receive {:asked, model, _}
      Process.exit(caller, :kill)
      {:ok, ref} = Session.prompt_async(session, "Next")
      send(model, {:answer, %{content: "First"}})
      assert_receive {:asked, model, context}
      assert texts(context) == [user: "Hi", assistant: "First", user: "Next"]
      send(model, {:answer, %{content: "Second"}})
      assert_receive {Session, ^ref, {:ok, %Result{output: "Second"}}}
    end

    test "may stop waiting" do
      session = start(llm: gated())
      assert {:timeout, _} = catch_exit(Session.prompt(session, "Hi", await: 10))
      assert_receive {:asked, model, _}
      send(model, {:answer, %{content: "Late"}})
      assert {:ok, %Result{output: "Late"}} = Session.resume(session)
    end
  end

  describe "prompt_async/3" do
    test "sends every context and then the result" do
      llm = Scripted.new([%{tool_calls: [call("a", :t), call("b", :t)]}, "Done"])
      session = start(llm: llm, tools: %{t: fn _ -> :ok end})
      {:ok, ref} = Session.prompt_async(session, "Hi")
      assert_receive {Session, ^ref, {:ok, %Result{output: "Done"} = result}}

      counts =
        for _ <- 1..5 do
          assert_received {Session, ^ref, {:context, context}}
          {Context.count_messages(context), length(Context.pending_tool_calls(context))}
        end

      assert counts == [{1, 0}, {2, 2}, {3, 1}, {3, 0}, {4, 0}]
      refute_received {Session, ^ref, _}
      assert Context.equal?(Session.context(session), result.context)
    end
  end

  describe "a busy session" do
    test "queues prompts and runs them in order, up to its limit" do
      session = start(llm: gated(), max_queue: 2)
      refs = for n <- 1..3, do: elem({:ok, _} = Session.prompt_async(session, "#{n}"), 1)
      assert {:error, :busy} = Session.prompt_async(session, "4")
      assert {:error, :busy} = Session.prompt(session, "5")

      for {ref, n} <- Enum.with_index(refs, 1) do
        assert_receive {:asked, model, _}
        refute_received {:asked, _, _}
        send(model, {:answer, %{content: "Answer #{n}"}})
        assert_receive {Session, ^ref, {:ok, %Result{}}}
      end

      assert texts(Session.context(session)) ==
               Enum.flat_map(1..3, &[{:user, "#{&1}"}, {:assistant, "Answer #{&1}"}])
    end

    test "refuses prompts when told to" do
      session = start(llm: gated(), when_busy: :error)
      {:ok, ref} = Session.prompt_async(session, "1")
      assert {:error, :busy} = Session.prompt(session, "2")
      assert_receive {:asked, model, _}
      send(model, {:answer, %{content: "1"}})
      assert_receive {Session, ^ref, {:ok, _}}
      {:ok, _} = Session.prompt_async(session, "3")
    end

    test "goes on with the queue when a prompt in it is no input" do
      session = start(llm: gated())
      {:ok, one} = Session.prompt_async(session, "1")
      {:ok, two} = Session.prompt_async(session, [%{type: :hologram}])
      {:ok, three} = Session.prompt_async(session, "3")

      for _ <- 1..2,
          do: assert_receive({:asked, model, _}) && send(model, {:answer, %{content: "ok"}})

      assert_receive {Session, ^one, {:ok, _}}
      assert_receive {Session, ^two, {:error, %Context.Error{}}}
      assert_receive {Session, ^three, {:ok, _}}
    end
  end

  describe "cancel/1" do
    test "in the middle of three parallel tools kills them, keeps what is there, and the conversation goes on" do
      test = self()
      calls = [call("1", :hang), call("2", :quick), call("3", :hang)]
      llm = Scripted.new([%{tool_calls: calls}, "Fine."])
      tools = %{hang: hanging(:tool), quick: fn _ -> :done end}
      session = start(llm: llm, tools: tools, on_change: &send(test, {:changed, &1}))
      {:ok, ref} = Session.prompt_async(session, "Hi")
      tools = for _ <- 1..2, do: assert_receive({:tool, pid}) && pid
      # The prompt, the calls, the one result.
      for _ <- 1..3, do: assert_receive({:changed, _})

      assert Session.cancel(session) == :ok
      refute Enum.any?(tools, &Process.alive?/1)
      assert_receive {Session, ^ref, {:error, %Error{reason: :cancelled, context: context}}}
      assert_receive {:changed, stored}
      assert Context.equal?(stored, context)
      assert Context.equal?(Session.context(session), context)
      assert [{:error, unknown}, {:ok, :done}, {:error, unknown}] = results(context)
      assert unknown =~ "stopped before its result came (cancelled by the user)"
      assert {:ok, %Result{output: "Fine."}} = Session.prompt(session, "And now?")
    end

    test "goes on with the queue if it is told to, and does nothing when nothing runs" do
      session = start(llm: gated(), when_cancelled: :go_on)
      assert Session.cancel(session) == :ok
      {:ok, one} = Session.prompt_async(session, "1")
      {:ok, two} = Session.prompt_async(session, "2")
      assert_receive {:asked, _, _}
      Session.cancel(session)
      assert_receive {Session, ^one, {:error, %Error{reason: :cancelled}}}
      assert_receive {:asked, model, context}
      assert texts(context) == [user: "1", user: "2"]
      send(model, {:answer, %{content: "ok"}})
      assert_receive {Session, ^two, {:ok, _}}
      assert Session.cancel(session) == :ok
    end

    test "works while on_change hangs" do
      test = self()

      on_change = fn _ ->
        send(test, {:storing, self()})
        if self() != session_of(), do: Process.sleep(:infinity)
      end

      session = start(on_change: on_change)
      {:ok, ref} = Session.prompt_async(session, "Hi")
      assert_receive {:storing, pid}
      # The session's own call to on_change comes with the cancellation; it must not hang too.
      assert pid != session
      :persistent_term.put({__MODULE__, :session}, session)
      assert Session.cancel(session) == :ok
      assert_receive {Session, ^ref, {:error, %Error{reason: :cancelled}}}
      refute Process.alive?(pid)
    end

    test "races with the end of the run without harm" do
      for _ <- 1..100 do
        session = start([])
        {:ok, ref} = Session.prompt_async(session, "Hi")
        Session.cancel(session)
        assert_receive {Session, ^ref, {status, %{context: context}}} when status in [:ok, :error]
        assert Context.equal?(context, Session.context(session))
        assert {:ok, _} = Session.prompt(session, "Again")
      end
    end
  end

  defp session_of, do: :persistent_term.get({__MODULE__, :session}, nil)

  describe "a session that waits" do
    test "hibernates after the time that it is told" do
      for {opts, asleep?} <- [{[hibernate_after: 20], true}, {[], false}] do
        session = start(opts)
        {:ok, _} = Session.prompt(session, "Hi")
        assert until(fn -> asleep?(session) end, 500) == asleep?
        assert {:ok, %Result{output: "Hi"}} = Session.prompt(session, "Hi again")
      end

      for wrong <- [0, -1, "1", nil, 1.5] do
        assert_raise ArgumentError, fn ->
          Session.start_link(llm: fn _ -> {:ok, %{}} end, hibernate_after: wrong)
        end
      end
    end

    defp asleep?(session),
      do:
        Process.info(session, :current_function) == {:current_function, {:erlang, :hibernate, 3}}
  end

  describe "put_llm/2" do
    test "takes effect from the next prompt on; the history stays" do
      session = start(llm: gated())
      {:ok, ref} = Session.prompt_async(session, "Hi")
      assert_receive {:asked, model, _}
      other = Scripted.new([fn context -> "Seen #{Context.count_messages(context)}" end])
      assert Session.put_llm(session, other) == :ok
      send(model, {:answer, %{content: "Old"}})
      assert_receive {Session, ^ref, {:ok, %Result{output: "Old"}}}
      assert {:ok, %Result{output: "Seen 3"}} = Session.prompt(session, "Hi")
      assert_raise ArgumentError, fn -> Session.put_llm(session, 5) end
    end
  end

  describe "failures" do
    test "of model and tools leave the session running" do
      answers = [
        fn _ -> raise "x" end,
        fn _ -> Process.exit(self(), :kill) end,
        fn _ -> exit(:shutdown) end,
        %{tool_calls: [call("a", :kill), call("a", :kill)]},
        %{tool_calls: [call("a", :kill), call("b", :raise)]},
        "Survived."
      ]

      tools = %{kill: fn _ -> Process.exit(self(), :kill) end, raise: fn _ -> raise "x" end}
      session = start(llm: Scripted.new(answers), tools: tools)
      for _ <- 1..4, do: assert({:error, %Error{}} = Session.prompt(session, "Hi"))
      assert {:ok, %Result{output: "Survived."}} = Session.prompt(session, "Hi")
    end

    test "of the run's process are an error, and its tools end" do
      test = self()
      llm = fn _ -> {:ok, %{tool_calls: [call("a", :hang)]}} end

      tell = fn _ -> send(test, {:run, self()}) end
      session = start(llm: llm, tools: %{hang: hanging(:tool)}, on_event: tell)
      {:ok, ref} = Session.prompt_async(session, "Hi")
      assert_receive {:run, run}
      assert_receive {:tool, tool}
      Process.exit(run, :kill)
      assert_receive {Session, ^ref, {:error, %Error{reason: {:exit, :killed}, context: context}}}
      refute Process.alive?(tool)
      assert [{:error, "the outcome is unknown: " <> _}] = results(context)
      assert Session.cancel(session) == :ok
    end

    test "to keep a context end the run with the store's error, and the session goes on" do
      test = self()
      kept = start_supervised!({Agent, fn -> true end})

      on_change = fn context ->
        send(test, {:changed, context})
        if Agent.get(kept, & &1), do: :ok, else: {:error, :stale}
      end

      llm = fn context ->
        send(test, :asked)
        {:ok, %{content: "#{Context.count_messages(context)}"}}
      end

      session = start(llm: llm, on_change: on_change)
      assert {:ok, _} = Session.prompt(session, "1")
      assert_received :asked
      Agent.update(kept, fn _ -> false end)

      {:ok, ref} = Session.prompt_async(session, "2")
      assert_receive {Session, ^ref, {:error, %Error{reason: {:on_change_error, :stale}} = error}}
      # What was not kept was not built on.
      refute_received :asked
      assert Context.equal?(Session.context(session), error.context)
      assert Session.status(session) == :idle

      Agent.update(kept, fn _ -> true end)
      assert {:ok, %Result{output: "3", context: context}} = Session.resume(session)
      assert texts(context) == [user: "1", assistant: "1", user: "2", assistant: "3"]
    end

    @tag :capture_log
    test "of a cancellation to be kept are logged without their reason" do
      log =
        capture_log(fn ->
          pid = start_supervised!({Agent, fn -> :ok end})
          keep = fn _ -> Agent.get(pid, & &1) end
          session = start(llm: gated(), on_change: keep, tools: %{t: hanging(:tool)})
          {:ok, ref} = Session.prompt_async(session, "Hi")
          assert_receive {:asked, model, _}
          send(model, {:answer, %{tool_calls: [call("a", :t)]}})
          assert_receive {:tool, _}
          Agent.update(pid, fn _ -> {:error, "SECRET"} end)
          assert Session.cancel(session) == :ok
          assert_receive {Session, ^ref, {:error, %Error{reason: :cancelled}}}
        end)

      assert log =~ ":on_change failed"
      refute log =~ "SECRET"
    end

    @tag :capture_log
    test "of the session itself are heard by whoever monitors it" do
      Process.flag(:trap_exit, true)
      {:ok, session} = Session.start_link(llm: gated())
      monitor = session |> GenServer.whereis() |> Process.monitor()
      {:ok, ref} = Session.prompt_async(session, "Hi")
      {:ok, queued} = Session.prompt_async(session, "And then?")
      assert_receive {:asked, model, _}
      Process.exit(session, :kill)
      assert_receive {:DOWN, ^monitor, :process, ^session, :killed}
      assert until(fn -> not Process.alive?(model) end)
      refute_received {Session, ^ref, {_, %{context: _}}}
      refute_received {Session, ^queued, _}
    end

    @tag :capture_log
    test "at the start name the node that made the context" do
      Process.flag(:trap_exit, true)
      {:ok, context} = AshAgent.TestSupport.OtherVM.run(Context, :new, ["Hello!"], :there)
      llm = fn _ -> flunk("asked") end

      for context <- [context, fn -> context end, fn -> {:ok, context} end] do
        assert {:error, %Context.Error{reason: {:foreign_handle, :"there@127.0.0.1"}} = error} =
                 Session.start_link(llm: llm, context: context)

        assert Exception.message(error) =~ "there@127.0.0.1"
      end

      assert_raise ArgumentError, ~r/there@127.0.0.1/, fn ->
        AshAgent.Runtime.run(context, llm: llm)
      end
    end

    test "at the start are told" do
      Process.flag(:trap_exit, true)
      llm = fn _ -> {:ok, %{}} end
      assert {:error, %Context.Error{}} = Session.start_link(llm: llm, context: %{iterations: 5})

      for {context, reason} <- [
            {fn -> :error end, :no_context},
            {fn -> {:error, :not_found} end, :not_found},
            {5, :no_context}
          ],
          do: assert({:error, reason} == Session.start_link(llm: llm, context: context))

      wrong = [llm: nil, max_queue: -1, tools: 5, system_prompt: 5, on_change: 5, colour: 1]

      for opts <- [[] | for(option <- wrong, do: Keyword.merge([llm: llm], [option]))],
          do: assert_raise(ArgumentError, fn -> Session.start_link(opts) end)
    end
  end

  describe "a session that was killed" do
    @tag :capture_log
    test "between the model and its tools is resumed from what was stored" do
      test = self()
      store = start_supervised!({Agent, fn -> nil end})
      llm = Scripted.new([%{tool_calls: [call("a", :slow), call("b", :quick)]}, "Done."])
      gate = :counters.new(1, [])

      slow = fn _ ->
        :counters.add(gate, 1, 1)
        send(test, {:slow, self()})
        if :counters.get(gate, 1) == 1, do: Process.sleep(:infinity), else: :slept
      end

      start_supervised!(
        {Session,
         name: __MODULE__.Killed,
         llm: llm,
         tools: %{slow: slow, quick: fn _ -> :quick end},
         context: fn -> Agent.get(store, & &1) end,
         on_change: fn context ->
           Agent.update(store, fn _ -> Context.to_map(context) end)
           send(test, :stored)
         end}
      )

      session = Process.whereis(__MODULE__.Killed)
      {:ok, _ref} = Session.prompt_async(session, "Hi")
      assert_receive {:slow, tool}
      # The prompt, the calls, the quick result.
      for _ <- 1..3, do: assert_receive(:stored)

      monitors = for pid <- [session, tool | supervisors(session)], do: Process.monitor(pid)

      capture_log(fn ->
        Process.exit(session, :kill)
        for ref <- monitors, do: assert_receive({:DOWN, ^ref, :process, _, _})
      end)

      assert until(fn -> Process.whereis(__MODULE__.Killed) not in [nil, session] end)
      session = Process.whereis(__MODULE__.Killed)
      assert [%{id: "a"}] = Context.pending_tool_calls(Session.context(session))

      assert {:ok, %Result{output: "Done."}} = Session.resume(session)
      assert_received {:slow, _}

      assert results(Session.context(session)) == [{:ok, :slept}, {:ok, :quick}]
    end

    @tag :capture_log
    test "takes its model and tools with it" do
      Process.flag(:trap_exit, true)
      llm = fn _ -> {:ok, %{tool_calls: [call("a", :hang), call("b", :hang)]}} end
      {:ok, session} = Session.start_link(llm: llm, tools: %{hang: hanging(:tool)})
      {:ok, _} = Session.prompt_async(session, "Hi")
      tools = for _ <- 1..2, do: assert_receive({:tool, pid}) && pid
      refs = for pid <- tools ++ supervisors(session), do: Process.monitor(pid)
      Process.exit(session, :kill)
      for ref <- refs, do: assert_receive({:DOWN, ^ref, :process, _, _})
    end
  end

  test "two hundred sessions work at once, and leave nothing behind" do
    before = length(Process.list())
    tools = %{add: fn %{"a" => a, "b" => b} -> {:ok, a + b} end}

    sessions =
      for n <- 1..200 do
        llm = fn context ->
          calls = for id <- ["a", "b"], do: call(id, "add", %{"a" => n, "b" => 1})
          over? = rem(context.current_iteration, 3) == 0
          {:ok, if(over?, do: %{content: "#{n}"}, else: %{tool_calls: calls})}
        end

        {:ok, session} = Session.start_link(llm: llm, tools: tools)
        session
      end

    for round <- 1..3 do
      prompt = &elem({:ok, _} = Session.prompt_async(&1, "Round #{round}"), 1)
      refs = Enum.map(sessions, prompt)

      for {ref, n} <- Enum.with_index(refs, 1) do
        text = "#{n}"
        assert_receive {Session, ^ref, {:ok, %Result{output: ^text}}}, 30_000
      end
    end

    for {session, n} <- Enum.with_index(sessions, 1) do
      context = Session.context(session)
      assert context.current_iteration == 9

      assert Enum.flat_map(1..9, &results(context, &1)) == List.duplicate({:ok, n + 1}, 12)
      GenServer.stop(session)
    end

    assert until(fn -> length(Process.list()) < before + 50 end)
  end
end
