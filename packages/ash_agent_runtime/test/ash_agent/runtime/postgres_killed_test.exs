defmodule AshAgent.Runtime.PostgresKilledTest do
  # It kills the server that other tests use.
  use ExUnit.Case, async: false

  import AshAgent.TestSupport.Runs, only: [drain: 1]

  alias AshAgent.{Context, Runtime, Store}
  alias AshAgent.Store.Postgres.Migrations
  alias AshAgent.TestSupport.{PgServer, PgSQL, WatchedStore}

  @moduletag :p1_pgsql
  @moduletag integrations: ["PostgreSQL", "p1_pgsql"]
  # The driver tells of its connections' deaths, with all that it holds.
  @moduletag :capture_log
  @moduletag timeout: 300_000

  setup do
    store = Store.Postgres.new(PgSQL.pool!())
    {:ok, 5} = Migrations.migrate(store)
    on_exit(fn -> PgServer.control("restart") end)
    {:ok, store: store}
  end

  defp llm(context) do
    calls = for id <- ~w(never safe), do: %{id: id, name: id, arguments: %{"id" => id}}

    if context.current_iteration == 1,
      do: {:ok, %{tool_calls: calls}},
      else: {:ok, %{content: "Done"}}
  end

  defp tools(test) do
    effect = fn %{"id" => id}, %{idempotency_key: key} ->
      send(test, {:effect, id, key})
      {:ok, "did " <> id}
    end

    for id <- ~w(never safe),
        do: {id, %{function: effect, repeat: String.to_existing_atom(id)}}
  end

  defp effects, do: drain(do: ({:effect, id, key} -> {id, key}))

  defp run(store, kept, context),
    do: Runtime.run(context, llm: &llm/1, tools: tools(self()), store: store, kept: kept)

  # Kills the server at a moment around the n-th thing that a run asks of its store.
  defp killing(store, moment, nth) do
    counter = :counters.new(1, [])

    WatchedStore.new(store, fn now, name when name in [:append, :start, :calls] ->
      if now == :before, do: :counters.add(counter, 1, 1)

      if now == moment and :counters.get(counter, 1) == nth,
        do: PgServer.control("stop"),
        else: :ok
    end)
  end

  test "a run stops before its next effect, and goes on when the server is back", %{store: store} do
    run_id = System.unique_integer([:positive])

    # The message it begins with, the answer, the calls that start, their results, and the last answer.
    for moment <- [:before, :after], nth <- 1..5 do
      id = "server killed #{run_id} #{moment} #{nth}"
      {:ok, kept} = Store.create(store, Context.new("Go", id: id), owner: "run")
      outcome = run(killing(store, moment, nth), kept, kept.value)
      done = effects()

      # The write before which it died is the third; one after which it died was made.
      started? = nth > 3 or {moment, nth} == {:after, 3}
      assert Enum.sort(for {id, _} <- done, do: id) == if(started?, do: ~w(never safe), else: [])

      context =
        case outcome do
          {:error, %Runtime.Error{reason: {:store_error, %Store.Error{}}} = error} ->
            assert Exception.message(error) =~ "run again"
            error.context

          # After the last write there is nothing left to ask for.
          {:ok, result} ->
            assert {moment, nth} == {:after, 5}
            result.context
        end

      PgServer.control("restart")
      store_again = PgServer.until_back(fn -> Store.fetch(store, id) end)
      assert {:ok, _} = store_again
      {:ok, claim} = Store.claim(store, id, owner: "run", reclaim: true)
      {:ok, result} = run(store, claim, if(rem(nth, 2) == 0, do: context, else: claim.value))
      all = done ++ effects()
      count = fn id -> Enum.count(all, &(elem(&1, 0) == id)) end
      status = fn id -> Context.Calls.tool_call_status(result.context, id) end

      assert count.("never") <= 1
      assert status.("never") == :unknown or {count.("never"), status.("never")} == {1, :ok}
      assert count.("safe") in 1..2 and status.("safe") == :ok
      assert length(Enum.uniq(all)) == length(Enum.uniq_by(all, &elem(&1, 0)))
      assert {:ok, stored} = Store.fetch(store, id)
      assert Context.equal?(stored.value, result.context)
    end
  end
end
