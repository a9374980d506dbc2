defmodule AshAgent.BoundaryTest do
  use ExUnit.Case, async: true

  # The loop, its sessions, models and programs know conversations by the functions that are documented for everyone, and by
  # nothing else. So does the core's storage: Elixir hands it over and takes it.

  @outside [
    AshAgent.Toolbox,
    AshAgent.Runtime,
    AshAgent.Session,
    AshAgent.Sessions,
    AshAgent.LLM
  ]

  defp modules do
    {:ok, modules} = :application.get_key(:ash_agent_runtime, :modules)
    modules
  end

  defp outside?(module) do
    name = Atom.to_string(module)
    Enum.any?(@outside, &(module == &1 or String.starts_with?(name, "#{&1}.")))
  end

  defp calls(module) do
    {^module, binary, _file} = :code.get_object_code(module)
    {:ok, {^module, [imports: calls]}} = :beam_lib.chunks(binary, [:imports])
    calls
  end

  defp of_contexts?(module) do
    module in [AshAgent.Context, AshAgent.ChatContext] or
      String.starts_with?(Atom.to_string(module), [
        "Elixir.AshAgent.Context.",
        "Elixir.AshAgent.ChatContext."
      ])
  end

  # What the compiler makes of structs and protocols.
  @generated [:__struct__, :exception, :message, :impl_for, :impl_for!]

  defp documented?({module, name, arity}) do
    case Code.fetch_docs(module) do
      {:docs_v1, _, _, _, shown, _, docs} ->
        shown != :hidden and (name in @generated or Enum.any?(docs, &shows?(&1, name, arity)))

      _none ->
        false
    end
  end

  # A function with defaults is documented at its longest.
  defp shows?({{kind, name, most}, _, _, doc, meta}, name, arity)
       when kind in [:function, :macro],
       do: doc not in [:hidden, :none] and arity in (most - Map.get(meta, :defaults, 0))..most

  defp shows?(_doc, _name, _arity), do: false

  defp hidden_calls(modules) do
    for module <- modules,
        {called, _name, _arity} = call <- calls(module),
        of_contexts?(called),
        not documented?(call),
        do: {module, call}
  end

  test "the loop, sessions, models and toolboxes call documented functions of contexts only" do
    outside = Enum.filter(modules(), &outside?/1)
    assert AshAgent.Runtime.ToolExecutor in outside
    assert hidden_calls(outside) == []
  end

  test "they never look into a context" do
    files =
      Path.wildcard("lib/ash_agent/{toolbox,runtime,session,llm}.ex") ++
        Path.wildcard("lib/ash_agent/{runtime,llm}/**/*.ex")

    assert length(files) > 10

    for file <- files do
      source = File.read!(file)
      refute source =~ ~r/%(AshAgent\.)?Context\{[^}]*\bref:/, file
      refute source =~ ~r/context\.ref\b/, file
      refute source =~ ~s("version"), file
    end
  end
end
