defmodule AshAgent.Late.SessionsTest do
  # A conversation that waits is nobody's, and goes on wherever its result comes.
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.StoredSessions, only: [sqlite: 0]
  import AshAgent.TestSupport.Wait, only: [until: 1]

  alias AshAgent.{Context, Sessions, Store}

  setup do: {:ok, store: sqlite()}

  # It answers by what it reads.
  defp model(wait) do
    fn context ->
      text = inspect(Context.to_messages(context), limit: :infinity)

      cond do
        text =~ "green" -> {:ok, %{content: "It is green."}}
        text =~ "the time is over" -> {:ok, %{content: "It takes long."}}
        not (text =~ "id: \"a\"") -> {:ok, call("a", "build", %{})}
        wait != nil and not (text =~ "\"w\"") -> {:ok, call("w", "wait_for", wait)}
        true -> {:ok, %{content: "I started the build."}}
      end
    end
  end

  defp call(id, name, arguments),
    do: %{tool_calls: [%{id: id, name: name, arguments: arguments}]}

  defp start(store, wait, opts) do
    test = self()

    build = fn _arguments, %{arrival_key: key} ->
      send(test, {:started, key})
      {:later, deadline: 3_600_000, for: "ci"}
    end

    name = :"late#{System.unique_integer([:positive])}"
    own = [name: name, store: store, llm: model(wait)]
    opts = Keyword.put_new(opts, :recover, :infinity)
    tools = %{build: %{function: build, late: true}}
    start_supervised!({Sessions, opts ++ own ++ [tools: tools]}, id: name)
    name
  end

  defp key do
    assert_receive {:started, key}, 1_000
    key
  end

  defp last(store) do
    {:ok, kept} = Store.fetch(store, "c")
    %{content: content} = List.last(Context.to_messages(kept.value))
    content
  end

  test "a result that comes by another supervisor is told to the session that lives", %{
    store: store
  } do
    one = start(store, nil, [])
    two = start(store, nil, [])
    {:ok, %{output: "I started the build."}} = Sessions.prompt(one, "c", "Build it")
    assert {:ok, :kept} = Sessions.arrive(two, "c", key(), {:ok, "green"}, from: "ci")
    until(fn -> last(store) == "It is green." end)
    assert Sessions.list_sessions(two) == []
  end

  test "no process and no claim is held while the model waits, and no look counts", %{
    store: store
  } do
    one = start(store, %{}, idle: 1)
    {:ok, %{status: :waiting}} = Sessions.prompt(one, "c", "Build it")
    until(fn -> Sessions.list_sessions(one) == [] end)
    {:ok, kept} = Store.fetch(store, "c")
    assert {kept.owner, kept.status} == {nil, :waiting}

    assert {:ok, [%{status: :waiting, late: ["build"], calls: []} = row]} =
             Sessions.overview(store)

    assert Sessions.Overview.line(row) =~ "waits for results: build"

    # Looks of any node leave it alone.
    two = start(store, %{}, recover: 5, idle: 1)
    Process.sleep(50)
    assert Sessions.list_sessions(two) == []
    assert {:ok, %{calls: [%{for: "ci", call: %{name: "build"}}]}} = Sessions.waiting(two)

    {:ok, :kept} = Store.arrive(store, "c", key(), {:ok, "green"})
    until(fn -> last(store) == "It is green." end)
    {:ok, writes} = Store.history(store, "c")
    refute Enum.any?(writes, &match?(%{note: %{resumed: _}}, &1))
  end

  test "a look ends a wait whose time is over", %{store: store} do
    one = start(store, %{"seconds" => 1}, idle: 1, recover: 20)
    {:ok, %{status: :waiting}} = Sessions.prompt(one, "c", "Build it")
    assert {:ok, %{calls: [%{call: %{name: "build"}}]}} = Sessions.waiting(one)
    Process.sleep(1_000)
    until(fn -> last(store) == "It takes long." end)
    assert {:ok, :kept} = Sessions.arrive(one, "c", key(), {:ok, "green"})
    until(fn -> last(store) == "It is green." end)
  end

  test "a prompt, and a cancel, find a conversation that waits", %{store: store} do
    one = start(store, %{}, idle: 1)
    {:ok, %{status: :waiting}} = Sessions.prompt(one, "c", "Build it")
    until(fn -> Sessions.list_sessions(one) == [] end)
    assert Sessions.status(one, "c") == :waiting
    {:ok, %{output: "I started the build."}} = Sessions.prompt(one, "c", "stop")

    {:ok, %{status: :waiting}} = Sessions.prompt(start(store, %{}, []), "d", "Build it")
    assert Sessions.cancel(one, "d") == :ok
    assert Sessions.status(one, "d") == :idle
    assert {:ok, %{status: :idle}} = Store.fetch(store, "d")
  end
end
