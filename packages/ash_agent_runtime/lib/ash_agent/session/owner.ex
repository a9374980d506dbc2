defmodule AshAgent.Session.Owner do
  @moduledoc false

  # The names under which sessions claim conversations. A name tells which process of which VM it is, so that whoever reads
  # it in a store can find that process.

  @doc "Returns the name of a process of this VM."
  def name(pid), do: "#{node()} #{vm()} #{:erlang.pid_to_list(pid)}"

  @doc "Returns the name of this VM as an owner that holds conversations for sessions which start here."
  def reserve, do: "#{node()} #{vm()} reserved"

  @doc """
  Finds an owner's process: `{:here, pid}`, `:gone` for one of this VM that has ended, `:reserved` for what this VM holds,
  `{:there, node}`, or `:unknown`.
  """
  def locate(owner) do
    with [name, vm, process] <- String.split(owner, " ", parts: 3),
         {:ok, node} <- fetch_atom(name) do
      cond do
        node != node() -> {:there, node}
        vm != vm() -> :unknown
        true -> locate_process(process)
      end
    else
      _other -> :unknown
    end
  end

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
    with nil <- :persistent_term.get(__MODULE__, nil),
         do: :global.trans({__MODULE__, self()}, &put_vm/0, [node()])
  end

  # Another process may have been faster.
  defp put_vm do
    with nil <- :persistent_term.get(__MODULE__, nil) do
      made = 9 |> :crypto.strong_rand_bytes() |> Base.url_encode64()
      :persistent_term.put(__MODULE__, made)
      made
    end
  end
end
