defmodule AshAgent.Late.RandomTest do
  # Two people, late results, messages, cancels and restarts in any order. Each result that the store has taken stands in the conversation once, nobody's
  # turn has the rights of somebody else, and in the end nothing waits.
  # Not beside tests that capture the log: these conversations are parked, and that is logged.
  use ExUnit.Case, async: false

  alias AshAgent.{Context, Session, Store}
  alias AshAgent.Context.Calls
  alias AshAgent.Runtime.{Late, Run}

  @moduletag :capture_log
  @moduletag timeout: 240_000
  @id "c"

  # What the model says depends on how much was said, so it does not repeat itself.
  defp model(seed) do
    fn context ->
      messages = Context.to_messages(context)
      number = length(messages)

      case :erlang.phash2({seed, number}, 10) do
        roll when roll < 4 -> {:ok, call("b#{number}", "build", %{})}
        roll when roll < 6 -> {:ok, call("w#{number}", "wait_for", %{})}
        6 -> {:ok, call("l#{number}", "look", %{})}
        _text -> {:ok, %{content: "ok #{number}"}}
      end
    end
  end

  defp call(id, name, arguments),
    do: %{tool_calls: [%{id: id, name: name, arguments: arguments}]}

  defp tools(test, seed) do
    build = fn _arguments, %{arrival_key: key} ->
      send(test, {:started, seed, key})
      {:later, deadline: 3_600_000}
    end

    look = fn _arguments, %{actor: %{id: id}} -> {:ok, "seen by " <> id} end
    %{build: %{function: build, late: true}, look: look}
  end

  defp start(store, seed, when_late, llm \\ nil) do
    {:ok, session} =
      Session.start_link(
        store: store,
        id: @id,
        llm: llm || model(seed),
        tools: tools(self(), seed),
        when_late: when_late,
        max_wakes: :infinity,
        max_iterations: 6,
        restore_context: fn
          %{user: user} -> {:ok, %{actor: %{id: user}}}
          _nobody -> :error
        end
      )

    session
  end

  defp pick(list), do: Enum.at(list, :rand.uniform(length(list)) - 1)

  defp as(user), do: [runtime_context: %{actor: %{id: user}}, metadata: %{user: user}]

  defp step(state) do
    state = hear(state)

    case :rand.uniform(12) do
      n when n <= 3 ->
        {:ok, _ref} = prompt(state.session, pick(~w(ann bob)))
        state

      n when n <= 7 ->
        deliver(state)

      8 ->
        Session.steer(state.session, "also")
        state

      9 ->
        :ok = Session.cancel(state.session)
        state

      10 ->
        rest(state.session)
        state

      11 ->
        GenServer.stop(state.session)
        %{state | session: start(state.store, state.seed, state.when_late)}

      12 ->
        Process.unlink(state.session)
        Process.exit(state.session, :kill)
        monitor = Process.monitor(state.session)
        receive do: ({:DOWN, ^monitor, _, _, _} -> :ok)
        %{state | session: start(state.store, state.seed, state.when_late)}
    end
  end

  defp prompt(session, user), do: Session.prompt_async(session, "Go, says #{user}", as(user))

  defp deliver(%{keys: []} = state), do: state

  defp deliver(state) do
    key = pick(state.keys)
    {:ok, _kept_or_again} = Store.arrive(state.store, @id, key, {:ok, "result #{key}"})
    if :rand.uniform(3) > 1, do: :ok = Session.take_arrivals(state.session)
    %{state | given: Enum.uniq([key | state.given])}
  end

  defp hear(%{seed: seed} = state) do
    receive do
      {:started, ^seed, key} -> hear(%{state | keys: Enum.uniq([key | state.keys])})
      _messages_of_sessions -> hear(state)
    after
      0 -> state
    end
  end

  defp rest(session, left \\ 6_000) do
    case Session.status(session) do
      :running when left > 0 -> Process.sleep(5) && rest(session, left - 1)
      :running -> flunk("it runs for ever")
      status -> status
    end
  end

  # All that may come comes, and both have the last word.
  defp finish(state, left \\ 30) do
    rest(state.session)
    state = hear(state)
    context = Session.context(state.session)
    open = for %{handle: key} <- Calls.late_calls(context, :open), do: key
    missing = open -- state.given

    for key <- missing, do: {:ok, _} = Store.arrive(state.store, @id, key, {:ok, "result #{key}"})
    state = %{state | given: state.given ++ missing}
    :ok = Session.take_arrivals(state.session)
    status = rest(state.session)
    {:ok, arrivals} = Store.arrivals(state.store, @id)

    cond do
      missing == [] and arrivals == [] and status == :idle ->
        state

      left == 0 ->
        flunk(
          "#{inspect(status)}, and #{length(arrivals)} results wait: #{inspect(Calls.late_calls(context))}"
        )

      true ->
        if missing == [], do: prompt(state.session, pick(~w(ann bob)))
        finish(state, left - 1)
    end
  end

  defp check(%{store: store} = state) do
    {:ok, kept} = Store.fetch(store, @id)
    context = kept.value
    calls = Map.new(Calls.late_calls(context), &{&1.handle, &1})
    text = inspect(Context.to_messages(context), limit: :infinity, printable_limit: :infinity)

    for key <- state.given do
      times = length(String.split(text, "result " <> key)) - 1

      case calls[key] do
        # It filled its slot, or its call was given up with its turn.
        nil -> assert times in 0..1, "#{key} stands #{times} times"
        # It comes before the next request: a turn that had read a part of what it waited for was cancelled.
        %{state: :arrived} -> assert times == 0
        %{state: state} -> assert {state, times} == {:placed, 1}
      end
    end

    for number <- 1..context.current_iteration,
        %{name: "look", result: {:ok, "seen by " <> user}} <-
          Context.get_iteration(context, number).tool_calls,
        do:
          assert(
            user == asker(context, number),
            "iteration #{number} was seen by #{user}"
          )
  end

  # By what was said, and not by the notes of rights. A turn that was woken and cancelled before the model answered leaves its results in the current
  # iteration, where the next message joins them: whoever said it asked for what follows. One that stood there before was of the person who was woken.
  defp asker(context, number) do
    users = for %{metadata: %{user: user}} <- Run.said(context, number), do: user

    case {List.last(users), Late.woken(context, number)} do
      {nil, nil} -> asker(context, number - 1)
      {nil, %{"turn" => turn}} -> asker(context, turn)
      {user, _woken_or_not} -> user
    end
  end

  for when_late <- [:go_on, :end, :wait] do
    test "whatever happens, when_late: #{inspect(when_late)}" do
      for number <- 1..String.to_integer(System.get_env("CASES") || "12") do
        seed = {ExUnit.configuration()[:seed], number, 7}
        :rand.seed(:exsss, seed)
        {:ok, store} = Store.SQLite.open(":memory:")
        session = start(store, seed, unquote(when_late))

        state = %{
          store: store,
          session: session,
          seed: seed,
          when_late: unquote(when_late),
          keys: [],
          given: []
        }

        state = Enum.reduce(1..15, state, fn _, state -> step(state) end)
        state = finish(state)
        check(state)
        GenServer.stop(state.session)
      end
    end
  end

  test "a message joins the results of a turn that was woken and cancelled" do
    {:ok, store} = Store.SQLite.open(":memory:")
    test = self()

    llm = fn _context ->
      send(test, {:asked, self()})
      receive do: ({:say, answer} -> {:ok, answer})
    end

    session = start(store, :joined, :go_on, llm)
    {:ok, _ref} = prompt(session, "ann")
    say(call("b", "build", %{}))
    assert_receive {:started, :joined, key}, 5_000
    say(%{content: "Later."})
    rest(session)

    {:ok, :kept} = Store.arrive(store, @id, key, {:ok, "result #{key}"})
    :ok = Session.take_arrivals(session)
    assert_receive {:asked, _model}, 5_000
    :ok = Session.cancel(session)

    {:ok, _ref} = prompt(session, "bob")
    say(call("l", "look", %{}))
    say(%{content: "Seen."})
    rest(session)

    look = %{name: "look", result: {:ok, "seen by bob"}}
    calls = Context.get_iteration(Session.context(session), 3).tool_calls
    assert [%{name: "build"}, ^look] = Enum.map(calls, &Map.take(&1, [:name, :result]))
    check(%{store: store, given: [key]})
    GenServer.stop(session)
  end

  defp say(answer) do
    assert_receive {:asked, model}, 5_000
    send(model, {:say, answer})
  end
end
