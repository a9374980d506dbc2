defmodule AshAgent.Session.AuthorityTest do
  use ExUnit.Case, async: true

  # The tools of a turn run as whoever asked for it, whoever approves and resumes, or not at all.

  import AshAgent.TestSupport.StoredSessions
  import AshAgent.TestSupport.Wait, only: [until: 1]
  import ExUnit.CaptureLog

  alias AshAgent.{Context, Session, Sessions, Store}
  alias AshAgent.Runtime.{Error, Result}
  alias AshAgent.TestSupport.WatchedStore

  @moduletag :capture_log

  @owner [runtime_context: %{actor: :owner}]
  @guest [runtime_context: %{actor: :guest, token: "SECRET"}]
  @boss [runtime_context: %{actor: :boss, token: "SECRET"}]
  @gone {:missing_option, :runtime_context}
  # Whoever steers has no rights of their own.
  @steered [metadata: %{from: "boss"}]

  @call {:ok, %{tool_calls: [%{id: "w", name: "who"}]}}
  @done {:ok, %{content: "Done."}}
  @down {:error, :overloaded}

  # A model that answers what the test says, and a tool that says as whom it runs.
  defp options(opts) do
    test = self()

    llm = fn context ->
      send(test, {:asked, self(), context})
      receive do: ({:say, answer} -> answer)
    end

    who = fn _arguments, %{actor: actor} -> send(test, {:ran_as, actor}) && {:ok, "me"} end
    Keyword.merge([llm: llm, tools: %{who: who}], opts)
  end

  defp start(opts), do: opts |> options() |> start_session()

  defp asked do
    assert_receive {:asked, model, _context}, 5_000
    model
  end

  defp say(answer), do: send(asked(), {:say, answer})

  defp ran_as do
    assert_receive {:ran_as, actor}, 5_000
    say(@done)
    actor
  end

  defp ask(session, opts), do: ask(session, "Who?", opts)

  defp ask(session, text, opts) do
    {:ok, ref} = Session.prompt_async(session, text, opts)
    ref
  end

  defp resume(session, opts \\ []) do
    {:ok, ref} = Session.resume_async(session, opts)
    ref
  end

  defp await(ref) do
    receive do
      {Session, ^ref, {:context, _context}} -> await(ref)
      {Session, ^ref, reply} -> reply
    after
      5_000 -> flunk("no reply")
    end
  end

  defp pause(session, opts) do
    ref = ask(session, opts)
    say(@call)
    assert {:paused, _paused} = await(ref)
    :ok = Session.approve(session, "w", by: :boss)
  end

  defp fail(session, opts) do
    ref = ask(session, opts)
    say(@down)
    assert {:error, %Error{reason: {:llm_error, :overloaded}}} = await(ref)
  end

  # What is noted of the runtime contexts that were given.
  defp notes(context) do
    for iteration <- context[:iterations],
        %{} = note <- iteration.metadata["runtime_context"] || [],
        do: note
  end

  # From a prompt to its tool, in one session.
  defp reach(:paused, session, asker) do
    pause(session, asker)
    resume(session)
  end

  defp reach(way, session, asker) when way in [:paused_twice, :resumed_by_another] do
    pause(session, asker)
    ref = resume(session, if(way == :paused_twice, do: [], else: [by: "ann"] ++ @boss))
    assert_receive {:ran_as, actor}, 5_000
    assert way == :paused_twice or actor == :boss
    say({:ok, %{tool_calls: [%{id: "w2", name: "who"}]}})
    assert {:paused, _paused} = await(ref)
    :ok = Session.approve(session, "w2")
    resume(session)
  end

  defp reach(:failed, session, asker) do
    fail(session, asker)
    ref = resume(session)
    say(@call)
    ref
  end

  defp reach(way, session, asker) when way in [:sent_again, :sent_again_without] do
    fail(session, [key: "k"] ++ asker)
    ref = ask(session, [key: "k"] ++ if(way == :sent_again, do: asker, else: []))
    say(@call)
    ref
  end

  defp reach(:cancelled, session, asker) do
    ref = ask(session, asker)
    asked()
    :ok = Session.cancel(session)
    assert {:error, %Error{reason: :cancelled}} = await(ref)
    ref = resume(session)
    say(@call)
    ref
  end

  # The turn ends before it could read the message, which becomes a prompt.
  defp reach(:steered_late, session, asker) do
    ref = ask(session, asker)
    model = asked()
    :ok = Session.steer(session, "And who now?")
    send(model, {:say, @down})
    assert {:error, _error} = await(ref)
    say(@call)
    nil
  end

  defp reach(:queued, session, asker) do
    first = ask(session, "Wait", @boss)
    model = asked()
    ref = ask(session, asker)
    send(model, {:say, @done})
    assert {:ok, _result} = await(first)
    say(@call)
    ref
  end

  @ways ~w(paused paused_twice resumed_by_another failed sent_again sent_again_without cancelled
    steered_late queued)a

  for way <- @ways, {own, asker} <- [{[], []}, {[], @guest}, {@owner, []}, {@owner, @guest}] do
    @tag way: way, own: own, asker: asker
    test "#{way}: a session of #{own[:runtime_context][:actor] || "nobody"} that #{asker[:runtime_context][:actor] || "it"} asks",
         %{way: way, own: own, asker: asker} do
      paused? = way in [:paused, :paused_twice, :resumed_by_another]
      approval = if paused?, do: fn _call, _context -> :ask end, else: :auto

      for kept <- [[], [store: sqlite(), id: "c"]] do
        session = start([approval: approval] ++ own ++ kept)
        ref = reach(way, session, asker)
        assert ran_as() == (asker[:runtime_context] || own[:runtime_context] || %{})[:actor]
        if ref, do: assert({:ok, %Result{output: "Done."}} = await(ref))
        assert until(fn -> Session.status(session) == :idle end)
        refute Context.to_snapshot(Session.context(session)) =~ "SECRET"
      end
    end
  end

  # What an earlier session leaves: at a pause, in the middle of a turn, or after a failure.
  defp leave(:paused, session, asker), do: pause(session, asker)
  defp leave(:failed, session, asker), do: fail(session, asker)

  defp leave(:running, session, asker) do
    ask(session, asker)
    asked()
  end

  # For the log, what comes between the answers of a turn begins another one.
  defp leave(:steered, session, asker) do
    ask(session, asker)
    model = asked()
    :ok = Session.steer(session, "Quick!", @steered)
    send(model, {:say, @call})
    assert_receive {:ran_as, _actor}, 5_000
    call_again()
  end

  defp leave(:retried, session, asker) do
    ask(session, asker)
    say({:ok, %{content: "no number"}})
    call_again()
  end

  defp leave(:steer_waits, session, asker) do
    ask(session, asker)
    asked()
    :ok = Session.steer(session, "Quick!", @steered)
  end

  # The message joins the one that has no answer.
  defp leave(:steered_late, session, asker) do
    ref = ask(session, asker)
    model = asked()
    :ok = Session.steer(session, "Quick!", @steered)
    send(model, {:say, @down})
    assert {:error, _error} = await(ref)
    asked()
  end

  # It was asked for with the session's own, and was going on with those of somebody else.
  defp leave(:resumed, session, []), do: leave(:running, session, [])

  defp leave(:resumed, session, asker) do
    fail(session, [])
    resume(session, asker)
    asked()
  end

  defp leave(:queued, session, asker) do
    ask(session, "Wait", [])
    asked()
    ask(session, asker)
  end

  # Messages are stored with the answer to them.
  defp call_again do
    say({:ok, %{tool_calls: [%{id: "again", name: "who"}]}})
    assert_receive {:ran_as, _actor}, 5_000
    asked()
  end

  @left [
    :paused,
    :failed,
    :running,
    :steered,
    :steered_late,
    :retried,
    :steer_waits,
    :resumed,
    :queued
  ]

  describe "after a restart" do
    for left <- @left, asker <- [[], @guest], how <- [:kill, :stop] do
      @tag left: left, asker: asker, how: how
      test "#{left}, #{how}: a turn that #{asker[:runtime_context][:actor] || "the session itself"} asked for",
           %{left: left, asker: asker, how: how} do
        opts = [store: sqlite(), id: "c"] ++ @owner
        opts = if left == :paused, do: [approval: fn _, _ -> :ask end] ++ opts, else: opts

        opts =
          if left == :retried, do: [output: [n: :integer], output_mode: :text] ++ opts, else: opts

        session = start(opts)
        leave(left, session, asker)
        stop(session, how)
        session = start(opts)
        if left == :queued, do: say(@done)

        if asker == [] do
          if left in [:paused, :failed], do: resume(session)
          if left != :paused, do: say(@call)
          assert {left, ran_as()} == {left, :owner}
        else
          if left not in [:paused, :failed],
            do: assert(until(fn -> Session.status(session) == :parked end))

          assert {:error, %Error{reason: @gone} = error} = Session.resume(session)
          assert Exception.message(error) =~ "Resume with the :runtime_context of whoever asked"
          assert {:error, %Error{reason: @gone}} = await(resume(session))
          refute_received {:asked, _model, _context}
          refute_received {:ran_as, _actor}

          resume(session, @guest)
          if left != :paused, do: say(@call)
          assert {left, ran_as()} == {left, :guest}
        end

        refute Context.to_snapshot(Session.context(session)) =~ "SECRET"
      end
    end

    for left <- @left -- [:resumed], how <- [:kill, :stop] do
      @tag left: left, how: how
      test "#{left}, #{how}: goes on by itself as whoever the application finds by the message",
           %{
             left: left,
             how: how
           } do
        opts = [store: sqlite(), id: "c", restore_context: &restore/1] ++ @owner
        opts = if left == :paused, do: [approval: fn _, _ -> :ask end] ++ opts, else: opts

        opts =
          if left == :retried, do: [output: [n: :integer], output_mode: :text] ++ opts, else: opts

        session = start(opts)
        leave(left, session, [metadata: %{from: "guest"}] ++ @guest)
        stop(session, how)

        # It may die again before the model has answered.
        unless left in [:paused, :failed] do
          session = start(opts)
          asked()
          stop(session, how)
        end

        session = start(opts)
        if left == :queued, do: say(@done)
        if left in [:paused, :failed], do: resume(session)
        if left != :paused, do: say(@call)
        assert {left, ran_as()} == {left, :guest}
      end
    end

    test "a message that waits in the store is answered after the turn of somebody else, each as its own" do
      opts = [store: sqlite(), id: "c", restore_context: &restore/1] ++ @owner
      session = start(opts)
      ask(session, [metadata: %{from: "guest"}] ++ @guest)
      asked()
      stop(session, :kill)
      {:ok, waiting} = Store.enqueue(opts[:store], "c", "And now?")

      session = start([go_on: false] ++ opts)
      {:ok, _ref} = Session.prompt_stored(session, waiting, @boss)
      for actor <- [:guest, :boss], do: say(@call) && assert(ran_as() == actor)
    end

    # The guest has a turn, and then the store does not take the beginning of another one.
    defp start_down(begin) do
      test = self()
      sqlite = sqlite()
      down? = :counters.new(1, [])

      watch = fn now, name ->
        if {now, name} == {:before, :append} and :counters.get(down?, 1) == 1 do
          send(test, {:writes, self()})
          receive do: (:refuse -> {:error, %Store.Error{reason: {:corrupt, :test}}})
        else
          :ok
        end
      end

      opts = [id: "c", restore_context: &restore/1] ++ @owner
      session = start([store: WatchedStore.new(sqlite, watch)] ++ opts)
      begin.(session)
      :counters.put(down?, 1, 1)
      {session, [store: sqlite] ++ opts, fn -> :counters.put(down?, 1, 0) end}
    end

    defp answer_guest(session) do
      ref = ask(session, [metadata: %{from: "guest"}] ++ @guest)
      say(@done)
      assert {:ok, _result} = await(ref)
    end

    defp said(session) do
      assert until(fn -> Session.status(session) == :idle end)
      messages = Context.to_messages(Session.context(session))
      for %{role: :user, content: "" <> text} <- messages, do: text
    end

    for asker <- [[], @boss ++ @steered], cut <- [:kill, :refuse] do
      @tag asker: asker, cut: cut
      test "#{cut}: a message for a turn of #{asker[:runtime_context][:actor] || "the session itself"} that the store never had is in no other one",
           %{asker: asker, cut: cut} do
        {session, opts, put_up} = start_down(&answer_guest/1)
        spawn(fn -> Session.prompt(session, "And I?", asker) end)
        assert_receive {:writes, run}, 5_000
        :ok = Session.steer(session, "Quick!", @steered)
        put_up.()
        if cut == :kill, do: stop(session, :kill), else: send(run, :refuse)
        session = if cut == :kill, do: start(opts), else: session

        say(@call)
        assert ran_as() == if(asker == [], do: :owner, else: :boss)
        assert said(session) == ["Who?", "Quick!"]
      end
    end

    test "a message for a turn that the store never had comes after its prompt, if that waits there" do
      {session, opts, _put_up} = start_down(&answer_guest/1)
      ask(session, "And I?", @boss ++ @steered)
      :ok = Session.steer(session, "Quick!", @steered)
      stop(session, :kill)

      session = start(opts)
      for _ <- 1..2, do: say(@call) && assert(ran_as() == :boss)
      assert said(session) == ["Who?", "And I?", "Quick!"]
    end

    test "a message for a turn that the store never had is not given to one that somebody resumes" do
      {session, _opts, put_up} = start_down(&fail(&1, @guest))
      asks = Task.async(fn -> Session.prompt(session, "And I?", @boss) end)
      assert_receive {:writes, run}, 5_000
      :ok = Session.steer(session, "Quick!")
      :ok = Session.pause(session)
      put_up.()
      send(run, :refuse)
      assert {:error, %Error{stored: false}} = Task.await(asks)

      resume(session)
      for actor <- [:guest, :boss], do: say(@call) && assert(ran_as() == actor)
      assert said(session) == ["Who?", "Quick!"]
    end

    test "nobody is looked for whose rights nobody gave" do
      opts = [store: sqlite(), id: "c"] ++ @owner
      session = start(opts)
      # The session's own, and then those of somebody who resumed.
      leave(:resumed, session, [by: "ann"] ++ @guest)
      stop(session, :kill)
      session = start([restore_context: fn %{} -> :error end] ++ opts)
      assert until(fn -> Session.status(session) == :parked end)
      assert {:error, %Error{reason: @gone}} = Session.resume(session)

      restore = fn _metadata -> flunk("the session knows its own") end
      opts = [store: sqlite(), id: "c", restore_context: restore] ++ @owner
      session = start(opts)
      fail(session, [])
      stop(session, :kill)
      resume(start(opts))
      say(@call)
      assert ran_as() == :owner
    end

    for left <- [:paused, :failed, :running, :steered, :steered_late],
        kept <- [:store, :snapshot] do
      @tag left: left, kept: kept
      test "#{left}, #{kept}: a turn of a session of somebody else waits for whoever asked", %{
        left: left,
        kept: kept
      } do
        opts = if left == :paused, do: [approval: fn _, _ -> :ask end], else: []
        stored = [store: sqlite(), id: "c"]
        session = start(if(kept == :store, do: stored, else: []) ++ @guest ++ opts)
        leave(left, session, [])
        context = Context.to_snapshot(Session.context(session))
        refute context =~ "guest"
        stop(session, :kill)
        kept = if kept == :store, do: stored, else: [context: context]

        for own <- [@owner, []] do
          session = start(kept ++ own ++ opts)
          assert {:error, %Error{reason: @gone}} = await(resume(session))
          refute_received {:asked, _model, _context}
          refute_received {:ran_as, _actor}
          stop(session, :stop)
        end

        session = start(kept ++ @owner ++ opts)
        ref = resume(session, @guest)
        if left != :paused, do: say(@call)
        assert {left, ran_as()} == {left, :guest}
        assert {:ok, _result} = await(ref)
        # The next turn is the owner's.
        ref = ask(session, [])
        say({:ok, %{tool_calls: [%{id: "next", name: "who"}]}})

        if left == :paused do
          assert {:paused, _paused} = await(ref)
          :ok = Session.approve(session, "next")
          resume(session)
        end

        assert ran_as() == :owner
      end
    end

    test "a session's own is known again, although it was made anew" do
      for {before, later, same?} <- [
            {%{actor: %{id: 1, name: "a"}}, %{actor: %{id: 1, name: "b"}, page: 2}, true},
            {%{actor: %{id: 1}}, %{actor: %{id: 2}}, false},
            {%{actor: %{id: 1}, tenant: "a"}, %{actor: %{id: 1}, tenant: "b"}, false},
            {%{actor: %Version{major: 1, minor: 0, patch: 0}}, %{actor: %{id: 1}}, false},
            {%{user: 1, page: self()}, %{user: 1, page: make_ref()}, true},
            {%{user: 1}, %{user: 2}, false},
            {%{user: 1}, %{}, false}
          ] do
        opts = [store: sqlite(), id: "c"]
        session = start([runtime_context: before] ++ opts)
        fail(session, [])
        stop(session, :kill)
        session = start([runtime_context: later] ++ opts)
        ref = resume(session)
        if same?, do: say(@done)
        assert {before, same?} == {before, match?({:ok, _result}, await(ref))}
      end
    end

    test "a function that hangs keeps nobody waiting for ever" do
      opts = [store: sqlite(), id: "c"] ++ @owner
      session = start(opts)
      fail(session, @guest)
      stop(session, :kill)
      hang = fn _metadata -> Process.sleep(:infinity) end
      session = start([restore_context: hang] ++ opts)
      assert {:error, %Error{reason: @gone}} = Session.resume(session)
    end

    defp restore(%{from: from}), do: {:ok, %{actor: String.to_existing_atom(from)}}
    defp restore(_metadata), do: {:error, :not_found}

    test "the context that :on_change has stored says so as well" do
      {:ok, stored} = Agent.start_link(fn -> nil end)
      on_change = fn context -> Agent.update(stored, fn _ -> Context.to_snapshot(context) end) end
      opts = [on_change: on_change, context: fn -> Agent.get(stored, & &1) end] ++ @owner

      session = start(opts)
      fail(session, @guest)
      stop(session, :kill)
      session = start(opts)
      assert {:error, %Error{reason: @gone}} = Session.resume(session)
      assert Session.status(session) == :idle
      resume(session, @guest)
      say(@call)
      assert ran_as() == :guest
    end

    test "an answer that is there is returned to whoever asks" do
      opts = [store: sqlite(), id: "c"] ++ @owner
      session = start(opts)
      ref = ask(session, @guest)
      say(@done)
      assert {:ok, _result} = await(ref)
      stop(session, :stop)
      before = stored(opts[:store]).value

      session = start(opts)
      assert {:ok, %Result{output: "Done."}} = Session.resume(session)
      assert {:ok, %Result{output: "Done."}} = Session.resume(session, @boss)
      assert Context.equal?(Session.context(session), before)
    end

    test "the next prompt is nobody else's" do
      opts = [store: sqlite(), id: "c"] ++ @owner
      session = start(opts)
      fail(session, @guest)
      # It joins the message that has no answer.
      fail(session, [])
      stop(session, :stop)

      session = start(opts)
      resume(session)
      say(@call)
      assert ran_as() == :owner
    end

    test "a message that is sent again brings its own" do
      opts = [store: sqlite(), id: "c"] ++ @owner
      session = start(opts)
      fail(session, [key: "one"] ++ @guest)
      stop(session, :stop)

      session = start(opts)
      assert {:error, %Error{reason: @gone, stored: true}} = await(ask(session, key: "one"))
      ask(session, [key: "one"] ++ @guest)
      say(@call)
      assert ran_as() == :guest
    end

    test "a message that waits goes on when it is sent again" do
      opts = [store: sqlite(), id: "c"] ++ @owner
      session = start(opts)
      ask(session, "Wait", [])
      asked()
      ask(session, [key: "two", metadata: %{from: "web"}] ++ @guest)
      stop(session, :kill)

      session = start(opts)
      model = asked()
      again = ask(session, [key: "two"] ++ @guest)
      send(model, {:say, @done})
      say(@call)
      assert ran_as() == :guest
      assert {:ok, %Result{context: context}} = await(again)
      # What is noted of a message that waits does not stay with it.
      assert [%{from: "web", idempotency_key: "two"}] =
               for(
                 %{role: :user, metadata: metadata} <- Context.to_messages(context),
                 do: metadata
               )
    end

    test "a message that waits is not run with the session's own because it was sent again without one" do
      opts = [store: sqlite(), id: "c"] ++ @owner
      session = start(opts)
      ask(session, "Wait", [])
      asked()
      ask(session, [key: "two"] ++ @guest)
      stop(session, :kill)

      session = start(opts)
      model = asked()
      again = ask(session, key: "two")
      send(model, {:say, @done})
      assert {:error, %Error{reason: @gone, stored: true}} = await(again)
      assert Session.status(session) == :parked
      assert {:ok, []} = Store.waiting(opts[:store], "c")
      refute_received {:asked, _model, _context}
    end

    test "a message that waits in the store does not go on with a turn of somebody else" do
      opts = [store: sqlite(), id: "c"] ++ @owner
      session = start(opts)
      ask(session, @guest)
      asked()
      stop(session, :kill)
      {:ok, waiting} = Store.enqueue(opts[:store], "c", "And now?")

      session = start([go_on: false] ++ opts)
      assert {:error, %Error{reason: @gone}} = Session.prompt_stored(session, waiting, @boss)
      ref = resume(session, @guest)
      say(@call)
      assert ran_as() == :guest
      assert {:ok, _result} = await(ref)
      {:ok, _ref} = Session.prompt_stored(session, waiting, @boss)
      say(@call)
      assert ran_as() == :boss
    end

    test "a turn that cannot go on is parked, with its reason and no word of it" do
      opts = [store: sqlite(), id: "c"] ++ @owner
      session = start(opts)
      ask(session, "SECRET?", @guest)
      asked()
      ask(session, "And me?", [])
      stop(session, :kill)

      log =
        capture_log(fn ->
          session = start(opts)
          assert Session.status(session) == :parked
          # What waits behind it waits as well, and the next session does the same.
          stop(session, :stop)
          session = start(opts)
          assert Session.status(session) == :parked
          refute_received {:asked, _model, _context}
          stop(session, :stop)
        end)

      assert log =~ ~s(conversation "c" is parked: its turn was asked with a :runtime_context)
      refute log =~ "SECRET"
      {:ok, history} = Store.history(opts[:store], "c")
      assert %{parked: %{reason: :missing_runtime_context}} = List.last(history).note

      session = start(opts)
      resume(session, @guest)
      say(@call)
      assert ran_as() == :guest
      say(@call)
      assert ran_as() == :owner
    end

    test "a conversation of an earlier release goes on as it did" do
      store = sqlite()
      {:ok, _kept} = Store.create(store, Context.new("Who?", id: "c"), status: :running)
      start([store: store, id: "c"] ++ @owner)
      say(@call)
      assert ran_as() == :owner
    end
  end

  describe "a message that could not be stored" do
    for {moment, error} <- [
          before: %Store.Error{reason: {:unavailable, :test}},
          before: %Store.Error{reason: {:corrupt, :test}}
        ] do
      @tag moment: moment, error: error
      test "#{moment}, #{inspect(error.reason)}: leaves the turn to whoever asked for it", %{
        error: error
      } do
        session = start_failing(:before, error)
        resume(session)
        say(@call)
        assert ran_as() == :guest
      end
    end

    test "and was, goes on as whoever said it" do
      start_failing(:after, %Store.Error{reason: {:unavailable, :test}})
      say(@call)
      assert ran_as() == :boss
    end

    # The guest's turn has failed, and the boss's message cannot be written.
    defp start_failing(moment, error) do
      down? = :counters.new(1, [])

      watch = fn now, name ->
        if {now, name} == {moment, :append} and :counters.get(down?, 1) == 1,
          do: {:error, error},
          else: :ok
      end

      session = start([store: WatchedStore.new(sqlite(), watch), id: "c"] ++ @owner)
      fail(session, @guest)
      :counters.put(down?, 1, 1)
      assert {:error, %Error{reason: {:store_error, _}}} = Session.prompt(session, "Me!", @boss)
      :counters.put(down?, 1, 0)
      session
    end
  end

  describe "the log" do
    test "says who gave a turn another runtime context, and when, and nothing of it" do
      session = start(approval: fn _call, _context -> :ask end)
      pause(session, @guest)

      assert [%{"given" => "prompt", "message" => [1, 0], "as" => "sha256:" <> _} = note] =
               notes(Session.context(session))

      assert map_size(note) == 3

      ref = resume(session, [by: "ann"] ++ @boss)
      assert ran_as() == :boss
      assert {:ok, %Result{context: context}} = await(ref)

      assert [%{"given" => "prompt"}, %{"given" => "resume", "by" => "ann", "at" => at}] =
               notes(context)

      assert {:ok, _time, 0} = DateTime.from_iso8601(at)
      refute Context.to_snapshot(context) =~ "SECRET"
    end

    test "keeps what was noted when a message of somebody else comes beside it" do
      session = start(@owner)
      fail(session, @guest)
      ref = resume(session, [by: "ann"] ++ @boss)
      say(@down)
      assert {:error, _error} = await(ref)
      fail(session, [])
      assert ["prompt", "resume", "none", "session"] = given(session)
      fail(session, @guest)
      assert ["prompt", "resume", "none", "session", "prompt"] = given(session)
      assert Session.context(session).current_iteration == 1
    end

    defp given(session), do: for(note <- notes(Session.context(session)), do: note["given"])

    test "has nothing of those who gave none" do
      session = start(approval: fn _call, _context -> :ask end)
      pause(session, [])
      ref = resume(session, by: "ann")
      assert ran_as() == nil
      assert {:ok, %Result{context: context}} = await(ref)
      assert for(iteration <- context[:iterations], do: iteration.metadata) == [%{}, %{}]
    end
  end

  describe "sessions of a node" do
    defp start_sessions(name, store) do
      own = [name: name, store: store, options: fn _id -> @owner end]
      start_supervised!({Sessions, options([approval: fn _, _ -> :ask end] ++ own)})
      name
    end

    defp pause_in(sessions) do
      {:ok, ref} = Sessions.prompt_async(sessions, "c", "Who?", @guest)
      say(@call)
      assert {:paused, _paused} = await(ref)
      :ok = Sessions.approve(sessions, "c", "w", by: :boss)
    end

    test "keep it while the session lives" do
      sessions = start_sessions(Module.concat(__MODULE__, Node), sqlite())
      pause_in(sessions)
      task = Task.async(fn -> Sessions.resume(sessions, "c") end)
      assert ran_as() == :guest
      assert {:ok, _result} = Task.await(task)
    end

    test "say that it is gone with a session that left memory" do
      sessions = start_sessions(Module.concat(__MODULE__, Idle), sqlite())
      pause_in(sessions)
      {:ok, session} = Sessions.fetch_session(sessions, "c")
      stop(session, :stop)

      assert {:error, %Error{reason: @gone}} = Sessions.resume(sessions, "c")
      assert {:paused, []} = Sessions.status(sessions, "c")
      task = Task.async(fn -> Sessions.resume(sessions, "c", [by: "ann"] ++ @guest) end)
      assert ran_as() == :guest
      assert {:ok, %Result{context: context}} = Task.await(task)
      assert [_prompt, %{"by" => "ann"}] = notes(context)
    end
  end
end
