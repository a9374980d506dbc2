defmodule AshAgent.TestSupport.Linked do
  @moduledoc "Kills processes together with those that they are linked to."

  @doc "Kills a process and waits until all that hangs together with it is gone."
  def kill(pid) do
    monitors = for pid <- list([pid], [self()]), do: Process.monitor(pid)
    Process.exit(pid, :kill)
    for monitor <- monitors, do: receive(do: ({:DOWN, ^monitor, _, _, _} -> :ok))
    Logger.flush()
  end

  defp list([], _seen), do: []

  defp list([pid | rest], seen) do
    case pid not in seen && Process.info(pid, :links) do
      {:links, links} -> [pid | list(rest ++ Enum.filter(links, &is_pid/1), [pid | seen])]
      _ -> list(rest, seen)
    end
  end
end
