defmodule AshAgent.TestSupport.MixTask do
  @moduledoc false

  # Mix tasks in the VM of a test, with what they say. The shell of Mix is the VM's.

  import AshAgent.TestSupport.Runs, only: [drain: 1]

  @doc "What tasks say comes to the test."
  def hear do
    shell = Mix.shell()
    Mix.shell(Mix.Shell.Process)
    ExUnit.Callbacks.on_exit(fn -> Mix.shell(shell) end)
  end

  @doc "Runs a task: its exit status, what it says, and what it says of errors."
  def run(task, args) do
    status =
      try do
        task.run(args)
        0
      catch
        :exit, {:shutdown, status} -> status
      end

    {status, said(:info), said(:error)}
  end

  @doc "What was said."
  def said(kind),
    do: Enum.join(drain(do: ({:mix_shell, ^kind, [words]} -> words <> "\n")))
end
