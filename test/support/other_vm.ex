defmodule AshAgent.TestSupport.OtherVM do
  @moduledoc false

  @doc """
  What `apply(module, function, arguments)` returns in a fresh VM: `{:ok, value}`, or `{:crashed, reason}` when that VM
  dies of it or the call raises.

  For what may bring a VM down, for memory that nobody has used before, and for what another node makes. The function must
  be in a compiled file. With `name`, the VM is the node of that name on loopback.
  """
  def run(module, function, arguments, name \\ nil) do
    path = Enum.flat_map(:code.get_path(), &[~c"-pa", &1])
    run_in(options(name, path), module, function, arguments)
  end

  @doc "The same in a VM that the permissions of files concern, also when root starts it."
  def run_unprivileged(module, function, arguments) do
    path = Enum.flat_map(:code.get_path(), &[~c"-pa", &1])
    run_in(Map.merge(options(nil, path), unprivileged()), module, function, arguments)
  end

  defp unprivileged do
    case {System.cmd("id", ["-u"]), System.find_executable("setpriv")} do
      {{"0\n", 0}, setpriv} when setpriv != nil ->
        erl = Path.join([:code.root_dir(), "bin", "erl"])
        capabilities = "-dac_override,-dac_read_search,-fowner"

        %{
          exec:
            {to_charlist(setpriv),
             [~c"--bounding-set", to_charlist(capabilities), to_charlist(erl)]}
        }

      _not_root ->
        %{}
    end
  end

  defp run_in(options, module, function, arguments) do
    {:ok, vm, _node} = :peer.start(options)

    try do
      {:ok, :peer.call(vm, module, function, arguments, 60_000)}
    catch
      kind, reason -> {:crashed, {kind, reason}}
    after
      try do
        :peer.stop(vm)
      catch
        _, _ -> :gone
      end
    end
  end

  defp options(nil, path), do: %{connection: :standard_io, args: path}

  # It listens without the daemon that finds nodes by their names: nobody is to find this one.
  defp options(name, path) do
    alone = [~c"-start_epmd", ~c"false", ~c"-erl_epmd_port", ~c"0"]
    Map.merge(options(nil, alone ++ path), %{name: name, host: ~c"127.0.0.1", longnames: true})
  end
end
