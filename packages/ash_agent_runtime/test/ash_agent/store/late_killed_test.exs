defmodule AshAgent.Store.LateKilledTest do
  use ExUnit.Case, async: true

  # An owner is killed with SIGKILL at each of its steps, again and again, while two others deliver results, and deadlines pass.

  alias AshAgent.Context.Calls
  alias AshAgent.Store
  alias AshAgent.TestSupport.{KilledOwner, KilledRun, OtherVM}

  @moduletag :tmp_dir
  @moduletag timeout: 1_800_000

  test "SQLite: nothing is lost, and nothing is twice", %{tmp_dir: folder} do
    kill({Store.SQLite, Path.join(folder, "store.db")}, 12)
  end

  @tag :slow
  test "SQLite: 200 kills", %{tmp_dir: folder} do
    kill({Store.SQLite, Path.join(folder, "store.db")}, 200)
  end

  @tag :p1_pgsql
  @tag integrations: ["PostgreSQL", "p1_pgsql"]
  test "PostgreSQL: nothing is lost, and nothing is twice" do
    {:ok, 5} = Store.Postgres.Migrations.migrate(KilledRun.open(Store.Postgres))
    kill(Store.Postgres, 12)
  end

  # An owner that nobody kills has so many steps, or more where it waits for results.
  @steps 14

  defp kill(spec, kills) do
    store = KilledRun.open(spec)
    run = System.unique_integer([:positive])

    killed =
      for n <- 1..kills do
        id = "late #{run} #{n}"
        {:ok, _} = Store.create(store, KilledOwner.new(id))

        deliverers =
          for name <- ~w(one two),
              do: Task.async(fn -> KilledOwner.deliver(KilledRun.open(spec), id, name) end)

        outcome = OtherVM.run(KilledOwner, :run, [spec, id, rem(n - 1, @steps) + 1])
        kept = KilledOwner.finish(store, id)
        check(store, kept, Task.await_many(deliverers, 60_000))
        match?({:crashed, _reason}, outcome)
      end

    assert Enum.count(killed, & &1) >= div(kills * 3, 4)
  end

  defp check(store, %{id: id, value: context}, told) do
    late = Calls.late_calls(context)
    assert length(late) == 3
    {:ok, stored} = Store.fetch(store, id)
    assert AshAgent.Context.equal?(stored.value, context)

    for %{handle: key} = call <- late do
      answers = for told <- told, {outcome, answer} = told[key], do: {outcome, answer}
      kept = for {outcome, {:ok, :kept}} <- answers, do: outcome

      # The first one is what the conversation has, and the others were told.
      case kept do
        [outcome] -> assert call.result == outcome
        [] -> assert {call.result, call.from} == {{:error, :deadline}, "deadline"}
      end

      refused = for {_outcome, {:error, why}} <- answers, do: why
      assert length(refused) == length(answers) - length(kept)
      assert Enum.all?(refused, &(&1 in [:answered, :late]))
    end

    # Told again, whoever had it first hears so.
    for told <- told,
        {key, {outcome, {:ok, :kept}}} <- told,
        do: assert({:ok, :again} = Store.arrive(store, id, key, outcome))

    assert {:ok, []} = Store.arrivals(store, id)
    assert {:ok, %{calls: []}} = Store.waiting_calls(store, id: id)
    assert {:ok, calls} = Store.calls(store, id)
    assert Enum.map(calls, & &1.state) == [:arrived, :arrived, :arrived]
  end
end
