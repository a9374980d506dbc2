defmodule AshAgent.Integration.JSONLibrariesTest do
  use ExUnit.Case, async: true

  alias AshAgent.Context

  # Neither is a dependency, so neither may be named where it is not there.
  for {library, tag} <- [{Jason, :jason}, {JSON, :json}] do
    @tag tag
    @tag integrations: [inspect(library)]
    test "#{inspect(library)} encodes a context as its dump" do
      context = Context.new("hi \"there\"", metadata: %{a: 1.5})
      text = apply(unquote(library), :encode!, [%{context: context}])
      assert Context.JSON.decode!(text) == %{"context" => Context.dump(context)}
    end

    @tag tag
    @tag integrations: [inspect(library)]
    test "#{inspect(library)} loses nothing of a context" do
      terms = [
        nil,
        :atom,
        {"tuple", [120]},
        1.0e3,
        1.0e300,
        -0.0,
        2 ** 200,
        <<255>>,
        "ü\u2028\0",
        ~U[2026-01-01 10:00:00.5Z]
      ]

      context =
        Context.new("hi", system_prompt: "Be brief.", metadata: %{terms: terms})
        |> Context.add_assistant_message(nil, [%{id: "a", name: :look, arguments: %{at: {1, 2}}}])
        |> Context.add_tool_results([{"a", {:error, terms}}])

      text = apply(unquote(library), :encode!, [[context]])
      assert [document] = apply(unquote(library), :decode!, [text])
      assert Context.equal?(Context.load!(document), context)
    end
  end
end
