defmodule AshAgent.Session.Owner do
  @moduledoc false

  # The names under which sessions claim conversations. A name has the process and the VM, so that a reader of the store can
  # find that process, and the length of its leases: `node vm/program/lease process`.
  #
  # The program is the VM's process of the operating system, see `AshAgent.Session.Program`.

  alias AshAgent.Memo
  alias AshAgent.Session.Program

  # Two clocks may differ by so many milliseconds.
  @skew 5_000

  @doc "Returns the name of a process of this VM whose leases have so many milliseconds."
  def name(pid, lease),
    do: "#{node()} #{vm()}/#{Program.own()}/#{lease} #{:erlang.pid_to_list(pid)}"

  @doc "Returns the name of this VM as an owner that holds conversations for sessions which start here."
  def reserve, do: "#{node()} #{vm()}/#{Program.own()}/ reserved"

  @doc """
  Finds an owner's process: `{:here, pid}`, `:gone` for one of this VM, or of a VM of this machine, that has ended, `:reserved` for
  what this VM holds, `{:there, node}`, or `:unknown`.
  """
  def locate(owner) do
    with {name, vm, program, _lease, process} <- parse(owner) do
      cond do
        vm == vm() -> locate_process(process)
        Program.state(program) == :ended -> :gone
        node = other_node(name) -> {:there, node}
        true -> :unknown
      end
    end
  end

  # Names of earlier releases have no program.
  defp parse(owner) do
    with [name, vm, process] <- String.split(owner, " ", parts: 3) do
      case String.split(vm, "/") do
        [vm, program, lease] -> {name, vm, program, lease, process}
        _older -> {name, vm, "", "", process}
      end
    else
      _other -> :unknown
    end
  end

  defp other_node(name) do
    case fetch_atom(name) do
      {:ok, node} when node != node() -> node
      _this_or_none -> nil
    end
  end

  @doc """
  Returns true if a lease by this machine's clock ends so late that the clock was wrong when it was made, and its owner cannot be
  seen to live.

  A lease is at most as long as its owner's leases are. One of a wrong clock would hold a conversation until the right clock gets there.
  """
  def distrusted?(owner, %DateTime{} = lease_until) do
    with {_name, _vm, program, lease, _process} <- parse(owner),
         {lease, ""} <- Integer.parse(lease) do
      left = DateTime.diff(lease_until, DateTime.utc_now(), :millisecond)
      left > lease + @skew and Program.state(program) != :running
    else
      _unknown -> false
    end
  end

  def distrusted?(_owner, nil), do: false

  # A name that no node of the cluster has must not become an atom.
  defp fetch_atom(name) do
    {:ok, String.to_existing_atom(name)}
  rescue
    _ in ArgumentError -> :error
  end

  defp locate_process("reserved"), do: :reserved

  defp locate_process(text) do
    pid = text |> String.to_charlist() |> :erlang.list_to_pid()
    if Process.alive?(pid), do: {:here, pid}, else: :gone
  rescue
    _ in ArgumentError -> :unknown
  end

  # A node that is started again has the same name and the same pids.
  defp vm do
    make = fn -> 9 |> :crypto.strong_rand_bytes() |> Base.url_encode64() end
    # Another process may have been faster.
    put = fn -> Memo.fetch(__MODULE__, make) end

    with nil <- :persistent_term.get(__MODULE__, nil),
         do: :global.trans({__MODULE__, self()}, put, [node()])
  end
end
