defmodule AshAgent.Soak.Cluster.Faults do
  @moduledoc "Does things to nodes at random, and watches how long others need to take over what the node ran."

  alias AshAgent.Soak.Cluster
  alias AshAgent.Soak.Cluster.{Database, Member}
  alias AshAgent.TestSupport.Nodes

  import Cluster, only: [now: 0, say: 1]

  @faults [:kill, :kill, :stop, :cut_from_nodes, :cut_from_store, :cut_from_both, :drain]

  @doc "Until the time is over."
  def run(state, seconds), do: loop(state, now() + seconds * 1_000, now())

  defp loop(state, until, next) do
    state = state |> watch() |> heal()

    cond do
      now() > until ->
        state

      now() >= next ->
        loop(inject(state), until, now() + :rand.uniform(2 * state.options.every))

      true ->
        Process.sleep(250)
        loop(state, until, next)
    end
  end

  # At least half of the nodes are well.
  defp inject(state) do
    well = for {_key, %{fault: nil} = node} <- state.nodes, do: node

    if 2 * (length(well) - 1) >= map_size(state.nodes) do
      node = Enum.random(well)
      fault = Enum.random(@faults)
      lease = state.options.lease
      # Some are shorter than the lease, and some longer.
      lasts = if fault == :stop, do: lease + :rand.uniform(lease), else: :rand.uniform(2 * lease)
      claims = Database.running(state.db, node.name)
      say("#{node.vm}: #{fault} for #{lasts} ms, running #{map_size(claims)}")
      state = state |> put(node, %{fault: fault, until: now() + lasts}) |> begin(fault, node.key)
      %{waiting(state, fault, claims) | done: [fault | state.done]}
    else
      state
    end
  end

  # Those that are cut off from the other nodes keep their conversations, and those that are drained give them away.
  defp waiting(state, fault, claims) when fault in [:kill, :stop] do
    update_in(
      state.waits,
      &Map.put(&1, make_ref(), %{fault: fault, claims: claims, since: now()})
    )
  end

  defp waiting(state, _fault, _claims), do: state

  defp begin(state, :kill, key) do
    Nodes.kill(state.nodes[key].pid)
    put(state, state.nodes[key], %{gone?: true})
  end

  defp begin(state, :stop, key) do
    Nodes.signal(state.nodes[key].pid, "STOP")
    put(state, state.nodes[key], %{stopped?: true})
  end

  defp begin(state, :cut_from_nodes, _key), do: Cluster.introduce(state)

  defp begin(state, :cut_from_store, key) do
    :peer.call(state.nodes[key].peer, Member, :cut_from_store, [true])
    state
  end

  defp begin(state, :cut_from_both, key),
    do: state |> begin(:cut_from_store, key) |> Cluster.introduce()

  defp begin(state, :drain, key) do
    took = :peer.call(state.nodes[key].peer, Member, :deploy, [], 120_000)
    state = put(state, state.nodes[key], %{fault: nil})
    %{state | drains: [took | state.drains]}
  end

  defp heal(state) do
    due =
      for {key, %{fault: fault, until: until}} <- state.nodes,
          fault != nil,
          until < now(),
          do: key

    Enum.reduce(due, state, &heal(&2, &1, state.nodes[&1].fault))
  end

  def heal_all(state) do
    broken = for {key, %{fault: fault}} <- state.nodes, fault != nil, do: key
    state = Enum.reduce(broken, state, &heal(&2, &1, state.nodes[&1].fault))
    finish(state, now() + 4 * state.options.lease)
  end

  # Until the last ones are taken over.
  defp finish(state, until) do
    if state.waits == %{} or now() > until do
      state
    else
      Process.sleep(250)
      finish(watch(state), until)
    end
  end

  defp heal(state, key, :kill) do
    state = state |> Cluster.start(key) |> Cluster.introduce()
    Cluster.serve(state, state.nodes[key])
    state
  end

  defp heal(state, key, :stop) do
    Nodes.signal(state.nodes[key].pid, "CONT")
    state |> put(state.nodes[key], %{stopped?: false, fault: nil}) |> Cluster.introduce()
  end

  defp heal(state, key, fault) do
    if fault in [:cut_from_store, :cut_from_both],
      do: :peer.call(state.nodes[key].peer, Member, :cut_from_store, [false])

    state |> put(state.nodes[key], %{fault: nil}) |> Cluster.introduce()
  end

  defp put(state, node, changes), do: put_in(state.nodes[node.key], Map.merge(node, changes))

  # A conversation is taken over when its claim is a later one.
  defp watch(state) do
    Enum.reduce(state.waits, state, fn {ref, wait}, state ->
      {taken, ended} = Database.taken(state.db, wait.claims)
      took = now() - wait.since
      left = Map.drop(wait.claims, taken ++ ended)
      times = for _ <- taken, do: {wait.fault, took}
      state = %{state | takeovers: times ++ state.takeovers}

      if left == %{} or took > 4 * state.options.lease,
        do: update_in(state.waits, &Map.delete(&1, ref)),
        else: put_in(state.waits[ref].claims, left)
    end)
  end
end
