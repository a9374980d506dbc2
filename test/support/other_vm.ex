defmodule AshAgent.Test.OtherVM do
  @moduledoc false

  @doc """
  What `apply(module, function, arguments)` returns in a fresh VM: `{:ok, value}`, or `{:crashed, reason}` when that VM
  dies of it or the call raises.

  For what may bring a VM down, and for memory that nobody has used before. The function must be in a compiled file.
  """
  def run(module, function, arguments) do
    path = Enum.flat_map(:code.get_path(), &[~c"-pa", &1])
    {:ok, vm, _node} = :peer.start(%{connection: :standard_io, args: path})

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
end
