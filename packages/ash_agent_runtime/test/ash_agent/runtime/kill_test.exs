defmodule AshAgent.Runtime.KillTest do
  use ExUnit.Case, async: true

  # A VM is killed with SIGKILL at each step of a run, every one of them, and the run goes on in another VM.

  alias AshAgent.{Context, Store}
  alias AshAgent.TestSupport.{KilledRun, OtherVM}

  @moduletag :tmp_dir
  @moduletag timeout: 300_000

  test "SQLite: whatever the step, nothing is done twice that must not be", %{tmp_dir: folder} do
    path = Path.join(folder, "store.db")
    kill_at_each({Store.SQLite, path}, folder)
  end

  @tag :p1_pgsql
  @tag integrations: ["PostgreSQL", "p1_pgsql"]
  test "PostgreSQL: whatever the step, nothing is done twice that must not be", %{tmp_dir: folder} do
    {:ok, 5} = Store.Postgres.Migrations.migrate(KilledRun.open(Store.Postgres))
    kill_at_each(Store.Postgres, folder)
  end

  defp kill_at_each(spec, folder) do
    store = KilledRun.open(spec)
    run = System.unique_integer([:positive])

    steps =
      Enum.find(1..100, fn nth ->
        id = "killed #{run} #{nth}"
        ledger = Path.join(folder, "ledger #{nth}")
        File.write!(ledger, "")
        {:ok, _} = Store.create(store, KilledRun.new(id))
        outcome = OtherVM.run(KilledRun, :run, [spec, id, ledger, nth])
        check(store, id, ledger)
        match?({:ok, {:finished, _}}, outcome)
      end)

    # Claim, first write, model, answer, start, three effects, results, model, answer. Results that come apart are written apart.
    together = 2 + 2 + 1 + 2 + 2 + 3 * 2 + 2 + 1 + 2 + 1
    assert steps in together..(together + 4)
  end

  defp check(store, id, ledger) do
    done = KilledRun.effects(ledger)
    {:ok, left} = Store.fetch(store, id)
    {:ok, calls} = Store.calls(store, id)

    completed =
      for call_id <- KilledRun.ids(),
          Context.Calls.tool_call_status(left.value, call_id) == :ok,
          do: call_id

    # Every call that has done something is known.
    assert Enum.map(done, &elem(&1, 1)) -- Enum.map(calls, & &1.key) == []

    {:ok, claim} = Store.claim(store, id, owner: "run", reclaim: true)
    {:ok, result} = KilledRun.go_on(store, claim, ledger)
    after_all = KilledRun.effects(ledger)
    again = after_all -- done
    assert result.output == "Done"
    assert {:ok, stored} = Store.fetch(store, id)
    assert Context.equal?(stored.value, result.context)

    # What had its result is not run again.
    assert for({call_id, _} <- again, call_id in completed, do: call_id) == []
    count = fn call_id -> Enum.count(after_all, &(elem(&1, 0) == call_id)) end
    status = fn call_id -> Context.Calls.tool_call_status(result.context, call_id) end
    assert count.("never") <= 1
    assert status.("never") == :unknown or (status.("never") == :ok and count.("never") == 1)
    assert {count.("ask"), status.("ask")} == {1, :ok}
    assert count.("safe") in 1..2 and status.("safe") == :ok

    # A call has one key, however often it ran.
    assert after_all
           |> Enum.uniq()
           |> Enum.map(&elem(&1, 0))
           |> Enum.frequencies()
           |> Map.values()
           |> Enum.all?(&(&1 == 1))

    assert {:ok, []} = still_unknown(store, id, result.context)

    # And it goes on.
    assert {:ok, _} =
             Store.append(store, result.kept, Context.add_user_message(result.context, "More"))
  end

  # Attempts that were started, and about which neither an outcome nor a later attempt says anything.
  defp still_unknown(store, id, context) do
    {:ok, calls} = Store.calls(store, id)

    last =
      calls
      |> Enum.group_by(& &1.key)
      |> Map.values()
      |> Enum.map(&Enum.max_by(&1, fn c -> c.attempt end))

    {:ok,
     for(
       call <- last,
       call.state == :started or Context.Calls.tool_call_status(context, call.call.id) == nil,
       do: call
     )}
  end
end
