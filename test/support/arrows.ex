defmodule AshAgent.TestSupport.Arrows do
  @moduledoc false

  # The rules for what may know what: files of a package are in no circle at compile time, packages know only those below them, and the
  # handles of contexts are the context's package's alone. Each function returns sentences that name the file.

  import ExUnit.CaptureIO

  @doc "The circles of files that need each other at compile time, as `mix xref` finds them in the package whose tests run."
  def circles do
    args = ~w(graph --format cycles --label compile-connected --fail-above 0)

    capture_io(:stderr, fn ->
      send(self(), {:xref, capture_io(fn -> xref(args) end)})
    end)

    receive do
      {:xref, words} -> if words =~ "No cycles found", do: "", else: words
    end
  end

  defp xref(args) do
    Mix.Task.rerun("xref", args)
  rescue
    # It raises where it has found some.
    Mix.Error -> :ok
  end

  @doc "The modules of the lower application that name one of the upper."
  def upward(lower, upper) do
    above = MapSet.new(modules(upper))

    for module <- modules(lower), name <- atoms(module), name in above do
      "#{source(module)} names #{inspect(name)}, of a package above"
    end
  end

  @doc "Where an application touches what handles of contexts are."
  def intrusions(app) do
    for module <- modules(app), fault <- faults(module), do: "#{source(module)} #{fault}"
  end

  defp faults(module) do
    source = File.read!(source(module))

    calls =
      if AshAgent.Context.Native in atoms(module),
        do: ["calls AshAgent.Context.Native"],
        else: []

    looks =
      for [words] <- Regex.scan(~r/\b(?:context|value)\.ref\b|Context\{[^}]*\bref:/, source),
          do: "looks into a context: #{words}"

    calls ++ looks
  end

  # Without what is there for tests alone. In tests, the modules of ash_agent_test are those of ash_agent_runtime that come from its folder.
  defp modules(:ash_agent_test), do: modules(:ash_agent_runtime, "/ash_agent_test/lib/")
  defp modules(:ash_agent_runtime), do: modules(:ash_agent_runtime, "/ash_agent_runtime/lib/")
  defp modules(app), do: modules(app, "/lib/")

  defp modules(app, folder) do
    {:ok, modules} = :application.get_key(app, :modules)
    Enum.filter(modules, &(source(&1) =~ folder))
  end

  defp source(module) do
    {:ok, {_, [compile_info: info]}} =
      module |> :code.which() |> :beam_lib.chunks([:compile_info])

    to_string(info[:source])
  end

  defp atoms(module) do
    {:ok, {_, [atoms: atoms]}} = module |> :code.which() |> :beam_lib.chunks([:atoms])
    for {_index, name} <- atoms, do: name
  end
end
