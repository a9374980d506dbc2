defmodule AshAgent.Session.Program do
  @moduledoc false

  # Identifies a VM as a process of a machine, so that another VM of the same machine can see that it has ended. That is only
  # known on Linux, and only where the boot and the namespace of processes are the same: two containers of a machine have one
  # boot, but each counts its processes by itself. A number of a process is used again, its start time is not.

  @doc ~S(Returns this VM's program as text, `boot.namespace.process.start`, or "" where it is not known.)
  def own, do: AshAgent.Memo.fetch(__MODULE__, &read_own/0)

  defp read_own do
    process = System.pid()

    with {:ok, place} <- read_place("/proc"),
         {:ok, start} <- read_start("/proc", process) do
      "#{place}.#{process}.#{start}"
    else
      _unknown -> ""
    end
  end

  @doc "Returns whether a program is `:running` or has `:ended`, or `:unknown` for one of another machine."
  def state(program, proc \\ "/proc") do
    with [boot, space, process, start] <- String.split(program, "."),
         {:ok, place} when place == boot <> "." <> space <- read_place(proc),
         {_number, ""} <- Integer.parse(process) do
      case read_start(proc, process) do
        {:ok, ^start} -> :running
        {:ok, _another} -> :ended
        {:error, :enoent} -> if hides?(proc), do: :unknown, else: :ended
        _unknown -> :unknown
      end
    else
      _another_machine -> :unknown
    end
  end

  # Mounted with `hidepid`, it has no processes of other users. The first one is the system's.
  defp hides?(proc), do: not File.exists?(Path.join(proc, "1"))

  defp read_place(proc) do
    with {:ok, boot} <- File.read(Path.join(proc, "sys/kernel/random/boot_id")),
         {:ok, space} <- File.read_link(Path.join(proc, "self/ns/pid")) do
      {:ok, digest(boot) <> "." <> digest(space)}
    end
  end

  defp digest(text) do
    <<start::binary-size(9), _rest::binary>> = :crypto.hash(:sha256, String.trim(text))
    Base.url_encode64(start)
  end

  # The 22nd field; the second is a name in parentheses, which may hold anything.
  defp read_start(proc, process) do
    with {:ok, text} <- File.read(Path.join([proc, process, "stat"])) do
      fields = text |> String.split(") ") |> List.last() |> String.split(" ")

      # A process that has ended and that nobody has waited for is a zombie.
      case fields do
        [state | _] when state in ["Z", "X"] -> {:ok, :ended}
        fields -> {:ok, Enum.at(fields, 19)}
      end
    end
  end
end
