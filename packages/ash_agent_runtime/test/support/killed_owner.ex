defmodule AshAgent.TestSupport.KilledOwner do
  @moduledoc false

  # The owner of a conversation with calls that wait, which is killed with SIGKILL at its n-th step: before and after each thing that it asks the
  # store. It looks at what is stored, does what is missing, and ends when all calls have their results.

  alias AshAgent.{Context, Store}
  alias AshAgent.Context.Calls
  alias AshAgent.TestSupport.KilledRun

  @ids ~w(a b c)

  def new(id),
    do:
      Context.new("Hi", id: id)
      |> Context.add_assistant_message("Hello!")
      |> Context.add_user_message("Pay")

  @doc "In a VM of its own; returns `{:finished, steps}` when it was not killed."
  def run(spec, id, nth) do
    {:ok, _} = Application.ensure_all_started(:ash_agent_runtime)
    Logger.configure(level: :none)
    steps = :counters.new(1, [])

    step = fn ->
      :counters.add(steps, 1, 1)

      if :counters.get(steps, 1) == nth do
        System.cmd("kill", ["-9", System.pid()])
        Process.sleep(:infinity)
      end
    end

    finish(KilledRun.open(spec), id, step)
    {:finished, :counters.get(steps, 1)}
  end

  @doc "Goes on with the conversation until all of its calls have their results."
  def finish(store, id, step \\ fn -> :ok end) do
    ask = fn fun ->
      step.()
      {:ok, kept} = fun.()
      step.()
      kept
    end

    kept = ask.(fn -> Store.claim(store, id, owner: "owner", lease: 600_000, reclaim: true) end)
    go_on(store, kept, ask)
  end

  defp go_on(store, %{value: context} = kept, ask) do
    late = Calls.late_calls(context)

    cond do
      Context.pending_tool_calls(context) != [] ->
        go_on(store, start(store, kept, ask), ask)

      late == [] ->
        calls = for id <- @ids, do: %{id: id, name: :pay, arguments: %{"id" => id}}
        answered = Context.add_assistant_message(context, nil, calls)
        go_on(store, ask.(fn -> Store.append(store, kept, answered) end), ask)

      Enum.any?(late, &(&1.state == :open)) ->
        go_on(store, take(store, kept, ask), ask)

      true ->
        kept
    end
  end

  # One that was started by an owner that is gone waits all the same: its job may have begun.
  defp start(store, %{value: context} = kept, ask) do
    keys = for id <- @ids, do: {id, Store.call_key(context, id)}

    kept =
      ask.(fn ->
        with {:ok, kept, _started} <-
               Store.start(store, kept, for({_id, key} <- keys, do: %{key: key})),
             do: {:ok, kept}
      end)

    # The last one has no time left.
    waits =
      for {id, key} <- keys do
        deadline = if id == "c", do: DateTime.utc_now()
        {id, {:waiting, %{handle: Store.arrival_key(key, 1), for: "bank", deadline: deadline}}}
      end

    ask.(fn -> Store.append(store, kept, Context.add_tool_results(context, waits)) end)
  end

  defp take(store, %{value: context} = kept, ask) do
    arrivals = ask.(fn -> Store.arrivals(store, kept.id) end)
    _ = ask.(fn -> Store.expire_waiting(store, limit: 1_000) end)

    taken =
      Enum.reduce(arrivals, context, fn arrival, context ->
        {:ok, context} =
          Calls.arrive(context, {:handle, arrival.key}, arrival.outcome,
            from: arrival.from,
            at: arrival.at
          )

        context
      end)

    if arrivals == [] do
      Process.sleep(2)
      kept
    else
      ask.(fn -> Store.append(store, kept, Calls.place_arrivals(taken)) end)
    end
  end

  @doc "Delivers a result for each call as soon as the journal has it, and returns what it was told: `[{key, outcome, answer}]`."
  def deliver(store, id, name, told \\ %{}) do
    {:ok, calls} = Store.calls(store, id)

    told =
      for %{key: key, attempt: attempt} <- calls,
          key = Store.arrival_key(key, attempt),
          not is_map_key(told, key),
          into: told do
        outcome = {:ok, "#{name} #{:erlang.unique_integer()}"}
        {key, {outcome, Store.arrive(store, id, key, outcome, from: name)}}
      end

    if map_size(told) == length(@ids) do
      told
    else
      Process.sleep(:rand.uniform(3))
      deliver(store, id, name, told)
    end
  end
end
