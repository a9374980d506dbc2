defmodule AshAgent.Test.Nodes do
  @moduledoc false

  # Two nodes on loopback that know each other. They need no daemon that finds nodes by their names, and nobody else finds
  # them: each is told the other's port. This module is what they have in the place of that daemon.

  @doc "Calls `fun` with a function that calls `apply(module, function, arguments)` on `:here` or `:there`, and their nodes."
  def pair(fun) do
    {here, name} = start("here")
    {there, other} = start("there")
    peers = %{here: here, there: there}
    call = fn which, {m, f, a} -> :peer.call(peers[which], m, f, a, 60_000) end

    try do
      port = call.(:there, {:persistent_term, :get, [{__MODULE__, :own}]})
      call.(:here, {:persistent_term, :put, [{__MODULE__, :other}, port]})
      true = call.(:here, {Node, :connect, [other]})
      fun.(call, %{here: name, there: other})
    after
      for {_, peer} <- peers, do: :peer.stop(peer)
    end
  end

  defp start(name) do
    path = Enum.flat_map(:code.get_path(), &[~c"-pa", &1])
    daemon = [~c"-start_epmd", ~c"false", ~c"-epmd_module", Atom.to_charlist(__MODULE__)]

    {:ok, peer, node} =
      :peer.start(%{
        connection: :standard_io,
        name: :"#{name}#{System.unique_integer([:positive])}",
        host: ~c"127.0.0.1",
        longnames: true,
        args: daemon ++ [~c"-setcookie", ~c"of_this_test"] ++ path
      })

    {peer, node}
  end

  ## What stands in for the daemon

  def start_link, do: :ignore

  def register_node(_name, port, _family) do
    :persistent_term.put({__MODULE__, :own}, port)
    {:ok, 1}
  end

  def listen_port_please(_name, _host), do: {:ok, 0}
  def address_please(_name, _host, _family), do: {:ok, {127, 0, 0, 1}}

  def port_please(_name, _ip, _timeout \\ :infinity) do
    case :persistent_term.get({__MODULE__, :other}, nil) do
      nil -> :noport
      port -> {:port, port, 6}
    end
  end

  def names(_host), do: {:error, :address}
end
