defmodule AshAgent.Late.KillTest do
  # A session is killed at each thing that it asks its store, before and after it. Whenever that is, and whenever the result comes, the call
  # starts once, the result stands in the conversation once, and the agent ends with it.
  use ExUnit.Case, async: true

  alias AshAgent.{Context, Session, Store}
  alias AshAgent.Context.Calls
  alias AshAgent.TestSupport.WatchedStore

  @moduletag :capture_log
  @moduletag timeout: 240_000
  @id "c1"

  # It answers by what it reads, so a life goes on where the one before was killed.
  defp model(waits?) do
    fn context ->
      messages = Context.to_messages(context)
      text = inspect(messages, limit: :infinity)

      cond do
        text =~ "green" -> {:ok, %{content: "It is green."}}
        not (text =~ "id: \"a\"") -> {:ok, call("a", "build")}
        waits? and not (text =~ "\"w\"") -> {:ok, call("w", "wait_for")}
        true -> {:ok, %{content: "I started the build."}}
      end
    end
  end

  defp call(id, name), do: %{tool_calls: [%{id: id, name: name, arguments: %{}}]}

  defp tools(test, store, when_delivered) do
    build = fn _arguments, %{arrival_key: key} ->
      send(test, {:started, key})
      if when_delivered == :in_tool, do: deliver(store, key)
      {:later, deadline: 3_600_000}
    end

    %{build: %{function: build, late: true}}
  end

  defp deliver(store, key), do: Store.arrive(store, @id, key, {:ok, "green"}, from: "ci")

  # Kills what asks for the `at`th time, with its session, and counts.
  defp killer(at) do
    counter = :counters.new(1, [])

    fun = fn _when, _name ->
      :counters.add(counter, 1, 1)

      if :counters.get(counter, 1) == at do
        for pid <- [session_of(self()), self()], do: Process.exit(pid, :kill)
        Process.sleep(:infinity)
      end

      :ok
    end

    {counter, fun}
  end

  # A task of the session has it among those that called it.
  defp session_of(pid) do
    case Process.info(pid, :dictionary) do
      {:dictionary, dictionary} ->
        List.last(Enum.filter([pid | dictionary[:"$callers"] || []], &session?/1)) || pid

      nil ->
        pid
    end
  end

  defp session?(pid) do
    with {:dictionary, dictionary} <- Process.info(pid, :dictionary),
         do: match?({Session.Server, _, _}, dictionary[:"$initial_call"]),
         else: (nil -> false)
  end

  defp start(store, opts) do
    Session.start_link([store: store, id: @id] ++ opts)
  catch
    :exit, _reason -> :error
  end

  defp prompt(session) do
    Session.prompt(session, "Build it", key: "once")
  catch
    :exit, _reason -> :killed
  end

  defp await(session, left \\ 4_000) do
    status = Session.status(session)
    last = session |> Session.context() |> Context.to_messages() |> List.last()

    cond do
      status == :idle and match?(%{content: "It is green."}, last) -> Session.context(session)
      left == 0 -> flunk("#{inspect(status)}: #{inspect(last)}")
      true -> Process.sleep(5) && await(session, left - 1)
    end
  end

  # One conversation: lives until one of them ends well. Returns how often the first one asked its store.
  defp live(at, {when_late, waits?, when_delivered}) do
    Process.flag(:trap_exit, true)
    {:ok, store} = Store.SQLite.open(":memory:")
    {counter, fun} = killer(at)
    opts = [llm: model(waits?), tools: tools(self(), store, when_delivered), when_late: when_late]

    with {:ok, session} <- start(WatchedStore.new(store, fun), opts) do
      prompt(session)

      receive do
        {:started, key} when when_delivered == :afterwards ->
          send(self(), {:started, key})
          {:ok, :kept} = deliver(store, key)
          tell(session)
      after
        0 -> :ok
      end

      # The turn that the result begins is killed as well.
      if when_delivered != :between, do: quiet(session)
      Process.unlink(session)
      Process.exit(session, :kill)
      monitor = Process.monitor(session)
      assert_receive {:DOWN, ^monitor, :process, _, _}
    end

    asked = :counters.get(counter, 1)
    {:ok, session} = start(store, opts)
    prompt(session)
    keys = started([])
    # Killed just before the tool, nobody has heard of the key.
    open = for call <- Calls.late_calls(Session.context(session), :open), do: call.handle
    for key <- Enum.uniq(keys ++ open), do: deliver(store, key)
    tell(session)
    context = await(session)
    check(store, context, keys, at)
    GenServer.stop(session)
    asked
  end

  defp tell(session) do
    Session.take_arrivals(session)
  catch
    :exit, _reason -> :killed
  end

  defp quiet(session) do
    if Session.status(session) == :running, do: Process.sleep(1) && quiet(session)
  catch
    :exit, _reason -> :killed
  end

  defp started(keys) do
    receive do
      {:started, key} -> started(Enum.uniq([key | keys]))
    after
      0 -> keys
    end
  end

  defp check(store, context, keys, at) do
    assert length(keys) <= 1, "started #{length(keys)} times, killed at #{at}"
    assert [%{id: "a", state: state, result: {:ok, "green"}}] = late(context)
    assert state in [:placed, :filled]
    text = inspect(Context.to_messages(context), limit: :infinity)
    assert length(String.split(text, "content: \"green\"")) == 2
    assert {:ok, []} = Store.arrivals(store, @id)
    assert {:ok, %{calls: []}} = Store.waiting_calls(store)
    {:ok, calls} = Store.calls(store, @id)
    assert Enum.map(calls, & &1.state) == [:arrived]
    {:ok, kept} = Store.fetch(store, @id)
    assert Context.equal?(kept.value, context)
  end

  # A result that came before the conversation said that it waits is the call's own.
  defp late(context) do
    with [] <- Calls.late_calls(context) do
      [call] = Context.get_iteration(context, 1).tool_calls
      [%{id: call.id, state: :filled, result: call.result}]
    end
  end

  for when_late <- [:go_on, :end, :wait],
      waits? <- [false, true],
      when_late == :go_on or not waits?,
      when_delivered <- [:in_tool, :afterwards, :between] do
    name = if waits?, do: "a model that waits", else: "when_late: #{inspect(when_late)}"

    test "#{name}, with a result #{when_delivered}" do
      case = {unquote(when_late), unquote(waits?), unquote(when_delivered)}
      asked = live(:never, case)
      assert asked > 5
      for at <- 1..asked, do: live(at, case)
    end
  end
end
