defmodule AshAgent.Session.ParkedTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.StoredSessions, only: [sqlite: 0, start_session: 1]
  import AshAgent.TestSupport.Wait, only: [until: 1]
  import ExUnit.CaptureLog

  alias AshAgent.{Context, Session, Sessions, Store}
  alias AshAgent.Session.Parked

  @moduletag :capture_log

  setup do
    store = sqlite()
    {:ok, _kept} = Store.create(store, Context.new("Kill me", id: "c"), status: :running)
    {:ok, store: store}
  end

  # A model that takes its session down. `$ancestors` begins with the session's supervisor of tasks.
  defp deadly do
    fn _context ->
      [_supervisor, session | _] = Process.get(:"$ancestors")
      Process.exit(session, :kill)
      Process.sleep(:infinity)
    end
  end

  defp open(store, opts), do: start_session([store: store, id: "c"] ++ opts)

  # Opens a session, which dies or has parked the conversation.
  defp die(store, max) do
    session = open(store, llm: deadly(), max_resumes: max)
    await_end(session, Process.monitor(session))
  end

  defp await_end(session, monitor) do
    receive do
      {:DOWN, ^monitor, _, _, reason} when reason in [:killed, :noproc] -> :died
    after
      20 -> if parked?(session), do: :parked, else: await_end(session, monitor)
    end
  end

  defp parked?(session) do
    Session.status(session) == :parked and GenServer.stop(session) == :ok
  catch
    :exit, _reason -> false
  end

  test "a turn that takes its session down again and again is parked with its reason", %{
    store: store
  } do
    died = Stream.repeatedly(fn -> die(store, 3) end) |> Enum.take_while(&(&1 == :died))
    assert length(died) == 3

    assert {:ok, %{conversations: [%{id: "c", status: :parked}]}} =
             Store.list(store, status: :parked)

    {:ok, history} = Store.history(store, "c")
    assert %{parked: %{reason: :died_without_progress, resumes: 3}} = List.last(history).note
  end

  test "sessions that a node starts count once each" do
    store = sqlite()
    opts = [owner: "gone", lease: 1, status: :running]
    {:ok, _kept} = Store.create(store, Context.new("Kill me", id: "c"), opts)
    test = self()
    deadly = deadly()
    llm = fn context -> send(test, :asked) && deadly.(context) end
    name = Module.concat(__MODULE__, Counted)
    opts = [name: name, store: store, llm: llm, lease: 60, recover: 20, max_resumes: 3]
    start_supervised!({Sessions, opts})
    for _ <- 1..3, do: assert_receive(:asked, 10_000)
    until(fn -> match?({:ok, %{status: :parked}}, Store.fetch(store, "c")) end)
    refute_received :asked
  end

  test "it says so in the log, without a word of the conversation", %{store: store} do
    for _ <- 1..2, do: assert(die(store, 2) == :died)
    log = capture_log(fn -> assert die(store, 2) == :parked end)
    assert log =~ ~s(conversation "c" is parked: 2 sessions)
    refute log =~ "Kill me"
  end

  test "it waits for a person, with its prompts, and then goes on", %{store: store} do
    for _ <- 1..2, do: die(store, 1)
    {:ok, kept} = Store.fetch(store, "c")
    assert kept.status == :parked

    session =
      open(store, llm: fn context -> {:ok, %{content: "#{Context.count_messages(context)}"}} end)

    assert Session.status(session) == :parked
    assert Context.count_messages(Session.context(session)) == 1
    assert {:ok, %{output: "1"}} = Session.resume(session)
    assert Session.status(session) == :idle
    assert {:ok, %{status: :idle}} = Store.fetch(store, "c")
  end

  test "a prompt lets it go on as well", %{store: store} do
    for _ <- 1..2, do: die(store, 1)
    session = open(store, llm: fn _ -> {:ok, %{content: "Better"}} end)
    assert {:ok, %{output: "Better"}} = Session.prompt(session, "Try again")
  end

  test "a step counts: whoever writes is not parked", %{store: store} do
    for _ <- 1..4 do
      for _ <- 1..2, do: assert(die(store, 3) == :died)
      {:ok, %{owner: owner}} = Store.fetch(store, "c")
      {:ok, kept} = Store.claim(store, "c", owner: "somebody", from: owner)
      context = Context.Audit.add_failure(kept.value, %{kind: :closed})
      {:ok, kept} = Store.append(store, kept, context, status: :running)
      {:ok, _kept} = Store.release(store, kept)
    end
  end

  # What makes a stored conversation one that cannot be loaded, and the words of it.
  @damages [
    {"update ash_agent_branches set document = json_set(document, '$.version', 99)", "99"},
    {"delete from ash_agent_blobs", "a medium is missing"},
    {"update ash_agent_blobs set data = 'AAAA'", "a medium has changed"},
    {"update ash_agent_iterations set document = '{}'", "iterations"}
  ]

  defp damaged(statement, opts) do
    store = sqlite()
    data = Base.encode64(:crypto.strong_rand_bytes(3_000))
    picture = %{type: :image, media_type: "image/png", data: data}
    {:ok, _kept} = Store.create(store, Context.new([picture], id: "c"), opts)
    run!(store, statement)
    store
  end

  defp run!(store, statement) do
    reference = make_ref()
    :ok = Store.SQLite.Native.run(store.ref, {:script, reference}, [statement], [])
    assert_receive {:ash_agent_sqlite, ^reference, {:ok, _rows}}
  end

  defp answer(_context), do: {:ok, %{content: "Better"}}

  test "what cannot be loaded is parked by the sessions that look for it, with its id and its reason" do
    for {{statement, words}, number} <- Enum.with_index(@damages) do
      store = damaged(statement, owner: "gone", lease: 1, status: :running)
      name = Module.concat(__MODULE__, "Damaged#{number}")
      opts = [name: name, store: store, llm: &answer/1, lease: 60, recover: 20, max_resumes: 3]

      log =
        capture_log(fn ->
          start_supervised!({Sessions, opts}, id: name)

          until(fn ->
            match?({:ok, %{conversations: [_]}}, Store.list(store, status: :parked))
          end)

          stop_supervised!(name)
        end)

      assert {:ok, %{conversations: [%{owner: nil} = kept]}} = Store.list(store, status: :parked)
      assert {:ok, %{id: "c", reason: reason, at: %DateTime{}}} = Parked.fetch(store, kept)
      assert %{reason: :cannot_be_loaded, resumes: 3, error: said} = reason
      assert said =~ words and log =~ ~s(the conversation "c" is parked) and log =~ words

      # Other tests log, too.
      for line <- String.split(log, "\n"),
          line =~ "conversation" and not (line =~ "in the conversation"),
          do: assert(line =~ ~s("c"))

      refute log =~ "AAAA"
    end
  end

  test "one that waits for nothing is only refused, and one that can be read again goes on" do
    Process.flag(:trap_exit, true)

    store =
      damaged("update ash_agent_branches set document = json_set(document, '$.version', 99)", [])

    for _ <- 1..3 do
      assert {:error, {:store_error, %Context.Error{}}} =
               Session.start_link(store: store, id: "c", llm: &answer/1, max_resumes: 1)
    end

    assert {:ok, %{conversations: [%{owner: nil, status: :idle}]}} = Store.list(store)
    {:ok, _id} = Store.enqueue(store, "c", "And now?")
    refuse = fn -> Session.start_link(store: store, id: "c", llm: &answer/1, max_resumes: 2) end
    for _ <- 1..2, do: assert({:error, {:store_error, %Context.Error{}}} = refuse.())
    assert {:ok, %{conversations: [%{status: :parked} = kept]}} = Store.list(store)
    assert {:ok, %{reason: %{resumes: 2}}} = Parked.fetch(store, kept)

    run!(store, "update ash_agent_branches set document = json_set(document, '$.version', 1)")
    assert {:ok, %{output: "Better"}} = Session.resume(open(store, llm: &answer/1))
  end

  defmodule Away do
    @moduledoc false
    @behaviour Store.Blobs
    @impl true
    def put(_config, _id, _bytes), do: {:ok, "place"}
    @impl true
    def get(_config, _place), do: {:error, :timeout}
    @impl true
    def delete(_config, _places), do: :ok
  end

  test "what is away for a while is not given up" do
    Process.flag(:trap_exit, true)
    {:ok, store} = Store.SQLite.open(":memory:", blobs: {Away, []})
    data = Base.encode64(:crypto.strong_rand_bytes(3_000))
    context = Context.new([%{type: :image, media_type: "image/png", data: data}], id: "c")
    {:ok, _kept} = Store.create(store, context, status: :running)

    for _ <- 1..3 do
      assert {:error, {:store_error, %Store.Error{reason: {:unavailable, _}}}} =
               Session.start_link(
                 store: store,
                 id: "c",
                 llm: &answer/1,
                 max_resumes: 1,
                 lease: 60
               )
    end

    # Whoever looks for what is left to do finds it.
    until(fn -> match?({:ok, [%{id: "c"}]}, Store.expired(store, owner: "b")) end)
  end

  test "why a turn is parked can be asked", %{store: store} do
    for _ <- 1..2, do: die(store, 1)
    {:ok, %{conversations: [kept]}} = Store.list(store)

    assert {:ok, %{id: "c", reason: %{reason: :died_without_progress}}} =
             Parked.fetch(store, kept)

    assert {:ok, nil} = Parked.fetch(store, %{kept | status: :idle})
    # Also when it was written after that.
    {:ok, claim} = Store.claim(store, "c", owner: "b")
    {:ok, _} = Store.append(store, claim, claim.value, note: %{})
    {:ok, %{conversations: [kept]}} = Store.list(store)
    assert {:ok, %{reason: reason}} = Parked.fetch(store, kept)
    assert Parked.describe(reason) =~ "sessions in a row"
  end

  test "sessions of a node leave it alone", %{store: store} do
    for _ <- 1..2, do: die(store, 1)
    test = self()

    name = Module.concat(__MODULE__, Node)
    llm = fn _ -> send(test, :asked) && {:ok, %{content: "Hi"}} end
    start_supervised!({Sessions, name: name, store: store, llm: llm, lease: 2_000, recover: 20})
    refute_receive :asked, 300
    assert {:ok, %{status: :parked}} = Store.fetch(store, "c")
    assert {:ok, %{output: "Hi"}} = Sessions.resume(name, "c")
  end
end
