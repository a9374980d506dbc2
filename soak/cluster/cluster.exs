defmodule AshAgent.Soak.Cluster do
  @moduledoc """
  The driver: starts the nodes, does things to them for a while, puts everything right again, and looks at what is left.
  """

  alias AshAgent.Soak.Cluster.{Check, Database, Faults, Member, Report}
  alias AshAgent.TestSupport.Nodes

  @doc "Whether nothing was lost, written twice or left without an answer."
  def run(options) do
    :rand.seed(:exsss, options.seed)
    {:ok, _} = Application.ensure_all_started(:ash_agent_runtime)
    Logger.configure(level: :none)
    say("seed #{options.seed}; #{options.conversations} conversations are stored")
    db = Database.open()
    Database.fill(db, options.conversations)
    sizes = Database.sizes(db)

    state = %{
      options: options,
      db: db,
      nodes: %{},
      takeovers: [],
      waits: %{},
      done: [],
      drains: [],
      started: now()
    }

    state = Enum.reduce(1..options.nodes, state, &start(&2, &1))
    introduce(state)
    for {_key, node} <- state.nodes, do: serve(state, node)
    say("#{options.nodes} nodes run, each with #{clients(options)} clients")

    state = Faults.run(%{state | started: now()}, options.seconds)
    say("everything is put right")
    state = Faults.heal_all(state)
    state = Map.put(state, :seconds, (now() - state.started) / 1_000)
    settled? = settle(state)
    report = Check.run(state, settled?) |> Map.put(:sizes, sizes)
    for {_key, node} <- state.nodes, do: :peer.stop(node.peer)
    Report.print(report, state)
  end

  def now, do: System.monotonic_time(:millisecond)
  def say(words), do: IO.puts("#{Time.utc_now() |> Time.truncate(:second)} #{words}")
  def clients(options), do: div(options.prompts, options.nodes)

  @doc "A new VM in a place."
  def start(state, key) do
    # A node that does not answer is noticed within ten seconds.
    {peer, name} =
      Nodes.start("node#{key}_", [~c"-kernel", ~c"net_ticktime", ~c"8", ~c"+S", ~c"2:2"])

    pid = :peer.call(peer, System, :pid, [])
    vm = name |> Atom.to_string() |> String.split("@") |> hd()

    node = %{
      key: key,
      peer: peer,
      name: name,
      vm: vm,
      pid: pid,
      fault: nil,
      stopped?: false,
      gone?: false
    }

    put_in(state.nodes[key], node)
  end

  @doc "Tells all that answer who there is and who is cut off from whom."
  def introduce(state) do
    there = for {_key, node} <- state.nodes, not node.gone?, not node.stopped?, do: node
    all = for {_key, node} <- state.nodes, not node.gone?, do: node
    ports = Map.new(all, &{&1.name, port(&1, there)})
    cut = for node <- all, cut?(node), do: node.name

    for node <- there do
      :peer.call(node.peer, Nodes, :know, [ports])

      others =
        if cut?(node), do: for(other <- all, other.name != node.name, do: other.name), else: cut

      :peer.call(node.peer, Member, :cut_from_nodes, [others])
    end

    state
  end

  defp cut?(node), do: node.fault in [:cut_from_nodes, :cut_from_both]

  defp port(node, there) do
    if node in there do
      port = :peer.call(node.peer, Nodes, :port, [])
      :persistent_term.put({__MODULE__, node.name}, port)
      port
    else
      :persistent_term.get({__MODULE__, node.name})
    end
  end

  @doc "Starts sessions and clients on a node."
  def serve(state, node) do
    given =
      state.options
      |> Map.take([:conversations, :think, :lease, :folder])
      |> Map.merge(%{vm: node.vm, clients: clients(state.options)})

    :ok = :peer.call(node.peer, Member, :start, [given], 120_000)
  end

  # Clients end when they are answered; then nothing is to be left over.
  defp settle(state) do
    for {_key, node} <- state.nodes, do: :peer.call(node.peer, Member, :stop_clients, [])

    clients? = wait(fn -> Enum.all?(state.nodes, fn {_, node} -> ended?(state, node) end) end)

    say("all clients have ended: #{clients?}")

    for {_key, node} <- state.nodes,
        where <- :peer.call(node.peer, Member, :stuck, []),
        do: say(where)

    nothing? = wait(fn -> Database.left(state.db) == {0, 0} end)
    say("no conversation has anything left to do: #{nothing?}")
    unless nothing?, do: for(row <- Database.what_is_left(state.db), do: say(inspect(row)))
    %{clients?: clients?, nothing?: nothing?}
  end

  defp ended?(state, node),
    do: :peer.call(node.peer, Member, :state, []).ended == clients(state.options)

  # Of those that want the same conversation, the last one waits for all others.
  defp wait(fun, deadline \\ now() + 600_000) do
    cond do
      fun.() ->
        true

      now() > deadline ->
        false

      true ->
        Process.sleep(500)
        wait(fun, deadline)
    end
  end
end
