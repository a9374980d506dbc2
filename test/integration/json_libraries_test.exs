defmodule AshAgent.Integration.JSONLibrariesTest do
  use ExUnit.Case, async: true

  alias AshAgent.Context

  # Neither is a dependency, so neither may be named where it is not there.
  for {library, tag} <- [{Jason, :jason}, {JSON, :json}] do
    @tag tag
    test "#{inspect(library)} encodes a context as its dump" do
      context = Context.new("hi \"there\"", metadata: %{a: 1.5})
      text = apply(unquote(library), :encode!, [%{context: context}])
      assert Context.JSON.decode!(text) == %{"context" => Context.dump(context)}
    end
  end
end
