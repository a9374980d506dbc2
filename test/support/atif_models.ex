defmodule AshAgent.Test.AtifModels do
  @moduledoc false

  # The published models of ATIF, in Python: nvidia-nat-atif and Harbor's. They are looked for with the interpreter that
  # ASH_AGENT_CONTEXT_PYTHON names, that of the folder _build/python, or python3.

  @script Path.expand("atif_models.py", __DIR__)

  @doc "The interpreter that has one of the models, and which it has, or nil."
  def find do
    given = System.get_env("ASH_AGENT_CONTEXT_PYTHON")
    candidates = [given, Path.expand("_build/python/bin/python3"), "python3"]

    Enum.find_value(candidates, fn candidate ->
      python = candidate && System.find_executable(candidate)

      case python && System.cmd(python, [@script, "--which"], stderr_to_stdout: true) do
        {models, 0} -> {python, String.split(models)}
        _ -> nil
      end
    end)
  end

  @doc "What the models find wrong with each of these JSON texts: an empty text where nothing is."
  def problems(texts) do
    {python, _models} = find()
    file = Path.join(System.tmp_dir!(), "trajectories-#{System.unique_integer([:positive])}")
    File.write!(file, Enum.map(texts, &[&1, ?\n]))

    {answer, 0} = System.cmd("/bin/sh", ["-c", ~s(exec "$0" "$1" <"$2"), python, @script, file])

    File.rm!(file)
    answer |> String.split("\n") |> Enum.take(length(texts))
  end
end
