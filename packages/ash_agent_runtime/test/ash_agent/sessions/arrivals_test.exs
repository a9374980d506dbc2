defmodule AshAgent.Sessions.ArrivalsTest do
  use ExUnit.Case, async: true

  # Whoever has a late result gives it to a session, wherever that is, or to the store alone: then a look of any node finds it.

  import AshAgent.TestSupport.StoredSessions, only: [sqlite: 0]
  import AshAgent.TestSupport.Wait, only: [until: 1]

  alias AshAgent.{Context, Session, Sessions, Store}

  # A store of an application that was written before there were late results.
  defmodule Early do
    @moduledoc false
    @behaviour Store
    defstruct [:store]

    for {name, arity} <- Store.behaviour_info(:callbacks) do
      [_ | args] = Macro.generate_arguments(arity, __MODULE__)

      @impl true
      def unquote(name)(%{store: store}, unquote_splicing(args)),
        do: Store.Named.call(store, unquote(name), [unquote_splicing(args)])
    end
  end

  setup do: {:ok, store: sqlite()}

  defp start(store, opts) do
    name = :"arrivals#{System.unique_integer([:positive])}"
    llm = fn _context -> {:ok, %{content: "Seen."}} end
    start_supervised!({Sessions, [name: name, store: store, llm: llm] ++ opts}, id: name)
    name
  end

  defp waiting!(store, id, more \\ []) do
    wait = Map.new([handle: "h"] ++ more)

    context =
      Context.new("Build it", id: id)
      |> Context.add_assistant_message(nil, [%{id: "a", name: :build}])
      |> Context.add_tool_results([{"a", {:waiting, wait}}])
      |> Context.add_assistant_message("I started it.")

    {:ok, _} = Store.create(store, context)
  end

  test "a result starts the session of a conversation that nobody has", %{store: store} do
    sessions = start(store, recover: :infinity)
    waiting!(store, "c", for: "ann")
    assert {:ok, %{calls: [%{id: "c", key: key}]}} = Sessions.waiting(sessions, for: "ann")
    assert {:ok, :kept} = Sessions.arrive(sessions, "c", key, {:ok, "green"}, from: "ci")
    until(fn -> Sessions.list_sessions(sessions) != [] end)
    assert {:ok, :again} = Sessions.arrive(sessions, "c", key, {:ok, "green"})
    assert {:error, :answered} = Sessions.arrive(sessions, "c", key, {:ok, "red"})
    assert {:error, :answered} = Sessions.cancel_call(sessions, "c", key)
    assert {:ok, %{calls: []}} = Sessions.waiting(sessions)
    assert {:error, :not_found} = Sessions.arrive(sessions, "none", key, {:ok, 1})
    assert {:error, :unknown} = Sessions.arrive(sessions, "c", "other", {:ok, 1})
    assert_raise ArgumentError, fn -> Sessions.arrive(:none, "c", key, {:ok, 1}) end
    assert_raise ArgumentError, fn -> Sessions.arrive(sessions, "c", key, :green) end
  end

  test "one that is called off takes nothing any more", %{store: store} do
    sessions = start(store, recover: :infinity)
    waiting!(store, "c")
    assert {:ok, :kept} = Sessions.cancel_call(sessions, "c", "h", reason: "too late", by: "ann")
    assert {:error, :cancelled} = Sessions.arrive(sessions, "c", "h", {:ok, "green"})
    assert_raise ArgumentError, fn -> Sessions.cancel_call(sessions, "c", "h", why: "x") end
  end

  test "a look finds results that only the store was given, and deadlines", %{store: store} do
    waiting!(store, "given")
    waiting!(store, "passed", deadline: ~U[2026-01-01 10:00:00Z])
    waiting!(store, "waits")
    {:ok, :kept} = Store.arrive(store, "given", "h", {:ok, "green"})
    sessions = start(store, recover: 20)

    ids = fn ->
      for session <- Sessions.list_sessions(sessions),
          Process.alive?(session),
          do: Session.context(session)[:id]
    end

    until(fn -> Enum.sort(ids.()) == ["given", "passed"] end)
    assert {:error, :late} = Sessions.arrive(sessions, "passed", "h", {:ok, "green"})
  end

  test "a store that keeps no late results is named, and left alone", %{store: store} do
    without = %Early{store: store}

    assert_raise ArgumentError, ~r"no arrive/5", fn ->
      Store.arrive(without, "c", "k", {:ok, 1})
    end

    assert_raise ArgumentError, ~r"no arrive/5", fn -> Sessions.waiting(without) end
    sessions = start(without, recover: 20)
    assert {:ok, _} = Sessions.prompt(sessions, "c", "Hi")
  end

  # What stands before needs Oban and an endpoint.
  test "the guide lists and delivers as it says" do
    [_, guide] = "guides/deliver.md" |> File.read!() |> String.split("## What waits")
    assert AshAgent.TestSupport.Guide.run(guide) == 4
  end

  test "a conversation that waits for a person is left alone", %{store: store} do
    waiting!(store, "c")
    {:ok, kept} = Store.claim(store, "c", owner: "a")
    {:ok, _} = Store.release(store, kept, status: :parked)
    {:ok, :kept} = Store.arrive(store, "c", "h", {:ok, "green"})
    assert {:ok, %{ids: []}} = Store.arrived(store)
  end
end
