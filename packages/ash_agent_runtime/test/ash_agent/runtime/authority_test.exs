defmodule AshAgent.Runtime.AuthorityTest do
  # A turn runs as whoever asked for it, wherever the conversation was and whoever goes on with it, or not at all.
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.StoredSessions, only: [sqlite: 0]

  alias AshAgent.{Context, Runtime, Session, Sessions, Store}
  alias AshAgent.LLM.Scripted
  alias AshAgent.Runtime.{Authority, Error, SubAgent}

  @moduletag :capture_log

  @guest [runtime_context: %{actor: :guest, token: "SECRET"}]
  @owner [runtime_context: %{actor: :owner}]
  @call %{tool_calls: [%{id: "w", name: "who", arguments: %{}}]}

  defp opts(answers, more \\ []) do
    test = self()
    who = fn _arguments, %{actor: actor} -> send(test, {:ran_as, actor}) && {:ok, "me"} end
    Keyword.merge([llm: Scripted.new(answers), tools: %{who: who}], more)
  end

  defp ran_as do
    receive do
      {:ran_as, actor} -> actor
    after
      0 -> :nothing_ran
    end
  end

  defp asking, do: [approval: fn _call, _tool_context -> :ask end]

  defp asked(text \\ "Who?"),
    do: Context.new("Hi", id: "c") |> Context.add_assistant_message("Hello") |> say(text)

  defp say(context, text),
    do: Context.add_user_message(context, text, metadata: %{"user" => "guest"})

  # What a guest's turn leaves: a call that waits, or a message whose model failed.
  defp leave(:paused, opts), do: %{answers: [@call], more: asking() ++ opts, decide?: true}
  defp leave(:failed, opts), do: %{answers: [{:error, :down}], more: opts, decide?: false}

  defp left(:run, way) do
    %{answers: answers, more: more, decide?: decide?} = leave(way, @guest)
    {_ended, %{context: context}} = Runtime.run(asked(), opts(answers, more))
    if decide?, do: Context.Calls.approve_tool_call(context, "w", by: "boss"), else: context
  end

  defp left(:session, way) do
    %{answers: answers, more: more, decide?: decide?} = leave(way, @owner)
    start = [context: Context.rewind(asked(), to: 1)] ++ more
    session = start_supervised!({Session, opts(answers, start)}, id: make_ref())
    {_ended, _} = Session.prompt(session, "Who?", [metadata: %{"user" => "guest"}] ++ @guest)
    if decide?, do: :ok = Session.approve(session, "w", by: "boss")
    Session.context(session)
  end

  defp take(context, :same), do: context
  defp take(context, :snapshot), do: context |> Context.to_snapshot() |> Context.load!()
  defp take(context, :dump), do: context |> Context.dump() |> Context.load!()

  defp take(context, :map),
    do: context |> Context.to_map() |> Context.create!() |> approve_again()

  defp take(context, :fork), do: context |> Context.fork() |> approve_again()

  defp take(context, :delta) do
    delta = Context.dump(context, since: 2)
    context |> Context.rewind(to: 1) |> take(:dump) |> Context.load!(delta)
  end

  defp take(context, :sqlite) do
    {store, id} = keep(context)
    {:ok, %{value: context}} = Store.fetch(store, id)
    context
  end

  # A branch asks again about what was approved and has not run.
  defp approve_again(context) do
    for(call <- Context.Calls.undecided_tool_calls(context), do: call.id)
    |> Enum.reduce(context, &Context.Calls.approve_tool_call(&2, &1, by: "boss"))
  end

  defp keep(context) do
    store = sqlite()
    {:ok, kept} = Store.create(store, context, owner: "a")
    {:ok, _} = Store.release(store, kept)
    {store, kept.id}
  end

  @ways ~w(same snapshot dump map delta fork sqlite)a

  # Those who go on, with options of the run, and with those of `resume/2` in a session.
  defp goers do
    [
      run: &Runtime.run(&1, &2 ++ &3),
      resume: &Runtime.resume(&1, &2 ++ &3),
      session: fn context, opts, given ->
        session = start_supervised!({Session, [context: context] ++ opts}, id: make_ref())
        Session.resume(session, given)
      end,
      session_of_somebody: fn context, opts, given ->
        own = [context: context] ++ @owner ++ opts
        session = start_supervised!({Session, own}, id: make_ref())
        Session.resume(session, given)
      end,
      sessions: fn context, opts, given ->
        {store, id} = keep(context)
        name = :"sessions#{System.unique_integer([:positive])}"
        start_supervised!({Sessions, [name: name, store: store] ++ @owner ++ opts}, id: name)
        Sessions.resume(name, id, given)
      end
    ]
  end

  defp answers(:paused), do: ["Done."]
  defp answers(:failed), do: [@call, "Done."]

  for by <- [:run, :session], left <- [:paused, :failed] do
    @tag by: by, left: left
    test "a guest's turn of a #{by} that #{left}", %{by: by, left: left} do
      left_behind = left(by, left)
      assert ran_as() == :nothing_ran
      refute Context.to_snapshot(left_behind) =~ "SECRET"

      for way <- @ways, {name, go} <- goers() do
        context = take(left_behind, way)
        own = opts(answers(left))

        assert {:error, %Error{reason: {:missing_option, :runtime_context}} = error} =
                 go.(context, own, [])

        assert Exception.message(error) =~ ":runtime_context of whoever asked"
        assert {name, way, Context.equal?(error.context, context)} == {name, way, true}
        assert ran_as() == :nothing_ran

        assert {:ok, %{output: "Done.", context: ended}} = go.(context, own, @guest)
        assert {name, way, ran_as()} == {name, way, :guest}
        # Who gives one again is noted, whoever they are.
        notes = notes(ended)
        assert [%{"given" => "prompt"}, %{"given" => "resume", "at" => _at}] = notes
        refute inspect(notes) =~ "guest"

        test = self()

        restore = fn metadata ->
          send(test, {:restored, metadata})
          {:ok, %{actor: String.to_existing_atom(metadata["user"])}}
        end

        own = opts(answers(left), restore_context: restore)
        assert {:ok, %{output: "Done.", context: ended}} = go.(context, own, [])
        assert {name, way, ran_as()} == {name, way, :guest}
        assert [%{"given" => "prompt"}] = notes(ended)
        assert_received {:restored, %{"user" => "guest"}}
        refute_received {:restored, _metadata}
      end
    end
  end

  defp notes(context) do
    for iteration <- context[:iterations],
        %{} = note <- iteration.metadata["runtime_context"] || [],
        do: note
  end

  test "a runtime context that cannot be restored is missing, whatever the function does" do
    left = left(:run, :failed)

    for reply <- [
          :error,
          {:error, "SECRET"},
          nil,
          %{actor: :boss},
          {:ok, :boss},
          {:ok, ~D[2026-01-01]}
        ],
        {_name, go} <- goers() do
      restore = fn _metadata -> reply end
      assert {:error, error} = go.(left, opts([@call], restore_context: restore), [])
      assert error.reason == {:missing_option, :runtime_context}
    end

    for fail <- [fn -> raise "SECRET" end, fn -> throw("SECRET") end, fn -> exit("SECRET") end],
        {_name, go} <- goers() do
      restore = fn _metadata -> fail.() end

      log =
        ExUnit.CaptureLog.capture_log(fn ->
          assert {:error, error} = go.(left, opts([@call], restore_context: restore), [])
          assert error.reason == {:missing_option, :runtime_context}
        end)

      refute log =~ "SECRET"
    end

    assert ran_as() == :nothing_ran
  end

  test "a message that waits is marked, also where the words of the mark are not known" do
    unknown = &%Context.UnknownAtom{name: &1}
    marked = Authority.mark(%{from: "ann"}, runtime_context: %{actor: "ann"})
    assert marked == %{from: "ann", runtime_context: :given}

    for key <- [:runtime_context, unknown.("runtime_context")],
        value <- [:given, unknown.("given")] do
      assert %{metadata: %{from: "ann"} = metadata, authority: authority} =
               Authority.unmark(%{metadata: %{key => value, from: "ann"}})

      assert {authority, map_size(metadata)} == {Authority.gone(), 1}
    end

    for own <- [%{}, %{from: "ann"}, %{runtime_context: "mine"}, %{"runtime_context" => :given}] do
      assert Authority.unmark(%{metadata: own}) == %{metadata: own, authority: []}
    end
  end

  test "nobody is looked for beside whom another message stands" do
    context =
      left(:run, :failed) |> Context.add_user_message("Me too", metadata: %{"user" => "owner"})

    restore = fn _metadata -> {:ok, %{actor: :guest}} end
    opts = opts([@call], restore_context: restore)

    assert {:error, %Error{reason: {:missing_option, :runtime_context}}} =
             Runtime.run(context, opts)
  end

  test "an answer, and the turn after it, need nobody's" do
    {:ok, %{context: context}} = Runtime.run(asked(), opts(["Done."], @guest))
    assert {:ok, %{output: "Done.", context: same}} = Runtime.run(context, opts([]))
    assert Context.equal?(same, context)
    assert {:ok, %{context: same}} = Runtime.resume(context, opts([]) ++ @owner)
    assert Context.equal?(same, context)

    assert {:ok, _result} =
             context
             |> Context.add_user_message("And now?")
             |> Runtime.run(opts([@call, "Nobody."]))

    assert ran_as() == nil
  end

  test "runs that nobody gave one note nothing, and a sub-agent is its parent's" do
    {:ok, %{context: context}} = Runtime.run(asked(), opts([@call, "Done."]))
    assert notes(context) == []
    assert ran_as() == nil

    child = SubAgent.tool([name: "child"] ++ opts([@call, "me"]))
    call = %{tool_calls: [%{id: "c", name: "child", arguments: %{"task" => "Who?"}}]}
    own = opts([call, "Done."], [tools: [child]] ++ @guest)
    assert {:ok, %{context: context, sub_agents: [inner]}} = Runtime.run(asked(), own)
    assert ran_as() == :guest
    assert [%{"given" => "prompt", "message" => [2, 0]}] = notes(context)
    assert notes(inner) == []
  end

  test "it is noted before the model is asked, in the store and for :on_change" do
    test = self()
    store = sqlite()
    {:ok, kept} = Store.create(store, asked(), owner: "a")

    llm = fn _context ->
      {:ok, %{value: stored}} = Store.fetch(store, "c")
      send(test, {:stored, notes(stored)})
      {:error, :down}
    end

    own =
      [llm: llm, store: store, kept: kept, on_change: &send(test, {:changed, notes(&1)})] ++
        @guest

    {:error, _} = Runtime.run(kept.value, own)
    assert_received {:stored, [%{"given" => "prompt", "message" => [2, 0]}]}
    assert_received {:changed, [%{"given" => "prompt"}]}
  end
end
