defmodule AshAgent.TestSupport.Python do
  @moduledoc false

  # Checks by published Python packages: scripts that answer each line with a line, by their names beside
  # this file or by their paths. The interpreter is the
  # one that ASH_AGENT_CONTEXT_PYTHON names, that of the folder _build/python, or python3.

  @doc "The interpreter that has what a script needs, and what that is; else `nil`."
  def find(script) do
    given = System.get_env("ASH_AGENT_CONTEXT_PYTHON")
    candidates = [given, Path.expand("../../_build/python/bin/python3", __DIR__), "python3"]

    Enum.find_value(candidates, fn candidate ->
      python = candidate && System.find_executable(candidate)

      case python && System.cmd(python, [path(script), "--which"], stderr_to_stdout: true) do
        {found, 0} -> {python, String.split(found)}
        _ -> nil
      end
    end)
  end

  @doc "The answers of a script to lines."
  def answers(script, args \\ [], lines) do
    {python, _found} = find(script)

    file =
      Path.join(System.tmp_dir!(), "lines-#{System.pid()}-#{System.unique_integer([:positive])}")

    File.write!(file, Enum.map(lines, &[&1, ?\n]))
    command = ~s(file=$1; shift; exec "$@" <"$file")

    {answer, 0} = System.cmd("/bin/sh", ["-c", command, "sh", file, python, path(script)] ++ args)

    File.rm!(file)
    answer |> String.split("\n") |> Enum.take(length(lines))
  end

  defp path(script), do: Path.expand(script, __DIR__)
end
