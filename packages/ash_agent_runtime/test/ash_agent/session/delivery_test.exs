defmodule AshAgent.Session.DeliveryTest do
  use ExUnit.Case, async: true

  # Subscriptions under failure, by a model: whatever went wrong and whoever died, what each subscriber was told adds up to the
  # conversation that is kept.

  import AshAgent.TestSupport.StoredSessions, only: [sqlite: 0, start_session: 1, stop: 2]
  import AshAgent.TestSupport.Generators, only: [between: 2, check_all: 3, one_of: 1]

  alias AshAgent.{Context, LLM, Session, Store}
  alias AshAgent.TestSupport.{StreamModel, Viewer, Wait}

  @moduletag :capture_log

  @kinds ~w(rate_limited overloaded server_error context_overflow unauthorized timeout closed)a

  # What the model does when it is asked next, from a list that the test fills.
  defp llm(script) do
    StreamModel.new(fn _context, feed ->
      case next(script) do
        {:say, pieces} ->
          StreamModel.say(feed, pieces)

        {:call, name} ->
          feed.(StreamModel.text("Let me see. "))
          feed.(StreamModel.call("call#{System.unique_integer([:positive])}", name, "{}"))
          {:ok, feed.(StreamModel.finish("tool_calls"))}

        {:fail, kind} ->
          {:error, error(kind)}

        {:break, pieces, kind} ->
          for piece <- pieces, do: feed.(StreamModel.text(piece))
          {:error, error(kind)}

        :raise ->
          raise "a model that raises"

        {:hang, pieces} ->
          for piece <- pieces, do: feed.(StreamModel.text(piece))
          Process.sleep(:infinity)
      end
    end)
  end

  defp error(kind), do: %LLM.Error{reason: :test, kind: kind}

  defp next(script) do
    Agent.get_and_update(script, fn
      [step | steps] -> {step, steps}
      [] -> {{:say, ["Nothing more."]}, []}
    end)
  end

  defp start(store, script) do
    tools = %{
      "fine" => fn _ -> {:ok, "fine"} end,
      "broken" => fn _ -> raise "a tool that raises" end,
      "gone" => fn _ -> Process.exit(self(), :kill) end
    }

    opts = [store: store, id: "c", llm: llm(script), tools: tools, max_resumes: :infinity]
    start_session(opts)
  end

  # A subscriber in a process of its own. It subscribes again when its session ends.
  defp subscribe(session, opts) do
    test = self()

    spawn_link(fn ->
      viewer = Viewer.new(session, opts)
      send(test, {:subscribed, self()})
      follow(viewer, opts)
    end)

    receive do: ({:subscribed, pid} -> pid)
  end

  defp follow(%{ref: ref, session: session} = viewer, opts) do
    receive do
      {:DOWN, ^ref, :process, _pid, _reason} ->
        opts |> subscribe_again() |> follow(opts)

      {:shown, from} ->
        {:ok, viewer} = catch_up(viewer, Session.snapshot(session).number)
        send(from, {:shown, self(), viewer})
        follow(viewer, opts)
    after
      0 ->
        case Viewer.next(viewer, 1) do
          {:ok, viewer} -> follow(viewer, opts)
          :quiet -> follow(viewer, opts)
        end
    end
  end

  # The session may be killed before it is heard of.
  defp subscribe_again(opts) do
    receive do: ({:again, session} -> Viewer.new(session, opts))
  catch
    :exit, {:noproc, _} -> subscribe_again(opts)
  end

  defp catch_up(%{number: number} = viewer, last) when number >= last, do: {:ok, viewer}

  defp catch_up(viewer, last) do
    with {:ok, viewer} <- Viewer.next(viewer), do: catch_up(viewer, last)
  end

  defp step do
    pieces = for n <- 1..between(1, 6), do: "piece #{n} "

    one_of([
      {:prompt, [{:say, pieces}]},
      {:prompt, [{:call, one_of(["fine", "broken", "gone", "unknown"])}, {:say, pieces}]},
      {:prompt, [{:fail, one_of(@kinds)}]},
      {:prompt, [{:break, pieces, one_of(@kinds)}]},
      {:prompt, [{:call, "fine"}, {:break, pieces, one_of(@kinds)}]},
      {:prompt, [:raise]},
      {:cancel, [{:hang, pieces}]},
      {:cancel, [{:call, "fine"}, {:hang, pieces}]},
      {:kill, [{:hang, pieces}]},
      {:kill, [{:call, "broken"}, {:hang, pieces}]},
      :join,
      :join_slow
    ])
  end

  defp take(:join, {session, viewers}, _world),
    do: {session, [subscribe(session, []) | viewers]}

  defp take(:join_slow, {session, viewers}, _world),
    do: {session, [subscribe(session, limit: 2) | viewers]}

  defp take({kind, steps}, {session, viewers}, %{script: script} = world) do
    Agent.update(script, fn _ -> steps end)
    {:ok, ref} = Session.prompt_async(session, "Go on")
    if kind != :prompt, do: Wait.until(fn -> Agent.get(script, & &1) == [] end)

    case kind do
      :prompt -> receive do: ({Session, ^ref, {outcome, _}} when outcome in [:ok, :error] -> :ok)
      :cancel -> :ok = Session.cancel(session)
      :kill -> :killed
    end

    if kind == :kill, do: {kill(session, viewers, world), viewers}, else: {session, viewers}
  end

  # The next session goes on with the turn.
  defp kill(session, viewers, %{store: store, script: script}) do
    stop(session, :kill)
    session = start(store, script)
    for viewer <- viewers, do: send(viewer, {:again, session})
    session
  end

  test "what each subscriber was told adds up to the kept conversation" do
    check_all("told", [runs: 40], fn _size ->
      store = sqlite()
      {:ok, script} = Agent.start_link(fn -> [] end)
      world = %{store: store, script: script}
      session = start(store, script)
      state = {session, [subscribe(session, [])]}
      steps = for _ <- 1..between(2, 12), do: step()
      {session, viewers} = Enum.reduce(steps, state, &take(&1, &2, world))
      Wait.until(fn -> Session.status(session) == :idle end)

      {:ok, kept} = Store.fetch(store, "c")
      messages = Context.to_messages(kept.value)
      assert Context.to_messages(Session.context(session)) == messages
      assert %{message: nil, activity: []} = Session.snapshot(session)

      for viewer <- viewers do
        send(viewer, {:shown, self()})
        assert_receive {:shown, ^viewer, shown}, 10_000
        assert {shown.messages, shown.text} == {messages, ""}
      end

      # Each failure that was asked for is kept, once.
      asked =
        for {_kind, list} <- Enum.filter(steps, &is_tuple/1),
            step <- list,
            kind = failed(step),
            do: kind

      told = for failure <- Context.Audit.failures(kept.value), do: failure.kind

      raised =
        for {_kind, list} <- Enum.filter(steps, &is_tuple/1),
            step <- list,
            step in [:raise, {:call, "broken"}],
            do: :invalid_response

      assert Enum.sort(told) == Enum.sort(asked ++ raised)

      for viewer <- viewers, do: Process.unlink(viewer) && Process.exit(viewer, :kill)
      GenServer.stop(session)
    end)
  end

  defp failed({:fail, kind}), do: kind
  defp failed({:break, _pieces, kind}), do: kind
  defp failed(_other), do: nil
end
