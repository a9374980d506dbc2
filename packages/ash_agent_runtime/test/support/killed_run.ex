defmodule AshAgent.TestSupport.KilledRun do
  @moduledoc false

  # A run on a store that is killed with SIGKILL at its n-th step, and what it does outside: lines in a file, the ledger.
  # Steps are the moments before and after each thing that the store is asked, each call of the model, and each effect.

  alias AshAgent.{Context, Runtime, Store}
  alias AshAgent.TestSupport.{PgSQL, WatchedStore}

  @calls for id <- ~w(never safe ask), do: %{id: id, name: id, arguments: %{"id" => id}}

  def ids, do: Enum.map(@calls, & &1.id)

  @doc "Runs in a VM of its own; returns `{:finished, steps}` when it was not killed."
  def run(spec, id, ledger, nth) do
    {:ok, _} = Application.ensure_all_started(:ash_agent_runtime)
    Logger.configure(level: :none)
    steps = :counters.new(1, [])
    step = fn -> step(steps, nth) end
    store = WatchedStore.new(open(spec), fn _moment, _name -> step.() end)
    {:ok, claim} = Store.claim(store, id, owner: "run", lease: 600_000)
    {:ok, _result} = go_on(store, claim, ledger, step)
    {:finished, :counters.get(steps, 1)}
  end

  @doc "Runs the claimed conversation to its end."
  def go_on(store, claim, ledger, step \\ fn -> :ok end) do
    Runtime.run(claim.value,
      llm: &model(&1, step),
      tools: tools(ledger, step),
      store: store,
      kept: claim
    )
  end

  def open({Store.SQLite, path}) do
    {:ok, store} = Store.SQLite.open(path)
    store
  end

  def open(Store.Postgres), do: Store.Postgres.new(PgSQL.connect!())

  @doc "The effects: `[{id, key}]`."
  def effects(ledger),
    do:
      for(
        line <- ledger |> File.read!() |> String.split("\n", trim: true),
        do: line |> String.split() |> List.to_tuple()
      )

  defp step(steps, nth) do
    # Two processes never get the same number: adding and reading are one in a process that has the lock.
    number = :global.trans({__MODULE__, self()}, fn -> count(steps) end, [node()])

    if number == nth do
      System.cmd("kill", ["-9", System.pid()])
      Process.sleep(:infinity)
    end

    :ok
  end

  defp count(steps) do
    :counters.add(steps, 1, 1)
    :counters.get(steps, 1)
  end

  defp model(context, step) do
    step.()

    if context.current_iteration == 1,
      do: {:ok, %{tool_calls: @calls}},
      else: {:ok, %{content: "Done"}}
  end

  defp tools(ledger, step) do
    effect = fn %{"id" => id}, %{idempotency_key: key} ->
      step.()
      File.write!(ledger, "#{id} #{key}\n", [:append])
      step.()
      {:ok, "did " <> id}
    end

    ask = fn call, key ->
      if {call.id, key} in effects(ledger), do: {:done, {:ok, "did " <> call.id}}, else: :not_done
    end

    for {id, repeat} <- [{"never", :never}, {"safe", :safe}, {"ask", {:ask, ask}}],
        do: {id, %{function: effect, repeat: repeat}}
  end

  def new(id), do: Context.new("Go", id: id)
end
