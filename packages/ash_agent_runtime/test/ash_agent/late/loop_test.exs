defmodule AshAgent.Late.LoopTest do
  use ExUnit.Case, async: true

  alias AshAgent.{Context, Runtime, Session, Store}
  alias AshAgent.Context.Calls

  setup do
    {:ok, store} = Store.SQLite.open(":memory:")
    %{store: store}
  end

  # A tool that tells the test the key of its call, and returns what it is told.
  defp late(opts \\ []) do
    test = self()

    run = fn arguments, tool_context ->
      send(test, {:started, tool_context.arrival_key, arguments})
      Keyword.get(opts, :return, {:later, deadline: 3_600_000, for: "ci"})
    end

    %{function: run, late: true}
  end

  defp call(name, id, arguments \\ %{}),
    do: %{tool_calls: [%{id: id, name: name, arguments: arguments}]}

  # A model that tells the test what it reads.
  defp model(answers) do
    test = self()
    {:ok, agent} = Agent.start_link(fn -> answers end)

    fn context ->
      send(test, {:asked, Context.to_messages(context)})

      case Agent.get_and_update(agent, &{List.first(&1), Enum.drop(&1, 1)}) do
        nil -> {:ok, %{content: "nothing more"}}
        text when is_binary(text) -> {:ok, %{content: text}}
        answer -> {:ok, answer}
      end
    end
  end

  defp session(store, llm, opts \\ []) do
    opts = Keyword.merge([llm: llm, store: store, id: "c1", tools: %{build: late()}], opts)
    {:ok, session} = Session.start_link(opts)
    session
  end

  defp key do
    assert_receive {:started, key, _arguments}, 1_000
    key
  end

  # The messages of the next request, as one text.
  defp asked do
    assert_receive {:asked, messages}, 1_000
    inspect(messages, limit: :infinity, printable_limit: :infinity)
  end

  defp arrive(store, session, key, outcome, opts \\ [from: "ci"]) do
    answer = Store.arrive(store, "c1", key, outcome, opts)
    :ok = Session.arrived(session)
    answer
  end

  defp await(session, status) do
    Enum.find(1..200, fn _ -> Session.status(session) == status || !Process.sleep(5) end) ||
      flunk("never #{inspect(status)}: #{inspect(Session.status(session))}")
  end

  test "the turn goes on, ends, and the result begins another one", %{store: store} do
    session = session(store, model([call("build", "a"), "I started the build.", "It is green."]))
    {:ok, result} = Session.prompt(session, "Build it")
    assert {result.status, result.output} == {:answered, "I started the build."}
    key = key()
    asked()
    assert asked() =~ "still running"
    assert [%{handle: ^key, for: "ci"}] = Calls.late_calls(result.context, :open)
    assert {:ok, [%{state: :waiting}]} = Store.calls(store, "c1")

    assert arrive(store, session, key, {:ok, "green"}) == {:ok, :kept}
    assert asked() =~ "green"
    await(session, :idle)
    context = Session.context(session)
    assert [%{state: :placed, from: "ci"}] = Calls.late_calls(context)
    assert %{content: "It is green."} = List.last(Context.to_messages(context))
    assert {:ok, []} = Store.arrivals(store, "c1")
    assert {:ok, [%{state: :arrived}]} = Store.calls(store, "c1")
    assert arrive(store, session, key, {:ok, "green"}) == {:ok, :again}
    assert arrive(store, session, key, {:ok, "red"}) == {:error, :answered}
    refute_receive {:asked, _}, 50
  end

  test "the model waits", %{store: store} do
    session =
      session(
        store,
        model([call("build", "a"), call("wait_for", "w", %{"calls" => ["a"]}), "It is green."])
      )

    {:ok, result} = Session.prompt(session, "Build it")
    assert result.status == :waiting
    assert Session.status(session) == :waiting
    {:ok, kept} = Store.fetch(store, "c1")
    assert kept.status == :waiting
    key = key()
    for _ <- 1..2, do: asked()
    assert arrive(store, session, key, {:ok, "green"}) == {:ok, :kept}
    text = asked()
    assert text =~ "the result of build has come"
    assert text =~ "green"
    await(session, :idle)
    assert %{content: "It is green."} = List.last(Context.to_messages(Session.context(session)))

    assert Enum.all?(
             1..Session.context(session).current_iteration,
             &(Runtime.Late.woken(Session.context(session), &1) == nil)
           )
  end
end
