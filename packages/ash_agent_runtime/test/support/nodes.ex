defmodule AshAgent.TestSupport.Nodes do
  @moduledoc false

  # Nodes on loopback that know each other. They need no daemon that finds nodes by their names, and nobody else finds
  # them: each is told the others' ports. This module is what they have in the place of that daemon.

  @doc "Calls `fun` with a function that calls `apply(module, function, arguments)` on `:here` or `:there`, and their nodes."
  def pair(fun), do: group([:here, :there], fun)

  @doc "The same with nodes of these names."
  def group(names, fun) do
    peers = Map.new(names, &{&1, start(&1)})
    call = fn which, {m, f, a} -> :peer.call(elem(peers[which], 0), m, f, a, 60_000) end

    try do
      introduce(Map.values(peers))
      fun.(call, Map.new(peers, fn {name, {_peer, node}} -> {name, node} end))
    after
      for {_, {peer, _node}} <- peers, do: stop(peer)
    end
  end

  @doc "Starts a node, which knows no other one yet: `{peer, node}`."
  def start(name, args \\ []) do
    path = Enum.flat_map(:code.get_path(), &[~c"-pa", &1])
    daemon = [~c"-start_epmd", ~c"false", ~c"-epmd_module", Atom.to_charlist(__MODULE__)]

    {:ok, peer, node} =
      :peer.start(%{
        connection: :standard_io,
        name: :"#{name}#{System.unique_integer([:positive])}",
        host: ~c"127.0.0.1",
        longnames: true,
        args: daemon ++ [~c"-setcookie", ~c"of_this_test"] ++ args ++ path
      })

    {peer, node}
  end

  defp stop(peer) do
    :peer.stop(peer)
  catch
    # It was killed.
    :exit, _reason -> :ok
  end

  @doc "Starts what lives longer than the process of the call, and returns the node."
  def outlive(start) do
    caller = self()

    spawn(fn ->
      {:ok, _} = start.()
      send(caller, :started)
      Process.sleep(:infinity)
    end)

    receive do: (:started -> node())
  end

  @doc "Tells nodes of each other's ports, and connects them."
  def introduce(peers) do
    ports = Map.new(peers, fn {peer, node} -> {node, :peer.call(peer, __MODULE__, :port, [])} end)
    for {peer, _node} <- peers, do: :peer.call(peer, __MODULE__, :know, [ports])

    for {peer, node} <- peers, {_peer, other} <- peers, other != node do
      true = :peer.call(peer, Node, :connect, [other], 60_000)
    end
  end

  @doc "The port of the node that calls this, and those of others."
  def port, do: :persistent_term.get({__MODULE__, :own})

  def know(ports),
    do:
      :persistent_term.put(
        {__MODULE__, :others},
        Map.new(ports, fn {node, port} -> {short(node), port} end)
      )

  @doc "Kills a VM, or sends it another signal."
  def kill(os_pid), do: signal(os_pid, "KILL")
  def signal(os_pid, name), do: {_, 0} = System.cmd("kill", ["-#{name}", os_pid])

  @doc "Cuts the node that calls this off from others, or lets it find them again. Both sides have to."
  def cut_off(others) do
    :persistent_term.put({__MODULE__, :cut}, Enum.map(others, &short/1))
    for node <- others, do: Node.disconnect(node)
    :ok
  end

  defp short(node),
    do: node |> Atom.to_string() |> String.split("@") |> hd() |> String.to_charlist()

  ## What stands in for the daemon

  def start_link, do: :ignore

  def register_node(_name, port, _family) do
    :persistent_term.put({__MODULE__, :own}, port)
    {:ok, 1}
  end

  def listen_port_please(_name, _host), do: {:ok, 0}
  def address_please(_name, _host, _family), do: {:ok, {127, 0, 0, 1}}

  def port_please(name, _ip, _timeout \\ :infinity) do
    known = :persistent_term.get({__MODULE__, :others}, %{})

    case name not in :persistent_term.get({__MODULE__, :cut}, []) && known[name] do
      port when is_integer(port) -> {:port, port, 6}
      _unknown -> :noport
    end
  end

  def names(_host), do: {:error, :address}
end
