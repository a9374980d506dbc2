defmodule AshAgent.TestSupport.DocCases do
  @moduledoc false

  # Every public function of an application has an example in its documentation, or names the function that has it.

  defmacro __using__(opts) do
    quote do
      use ExUnit.Case, async: true

      @app unquote(opts[:app])

      test "every public function has an example, or names the one that has it" do
        {:ok, modules} = :application.get_key(@app, :modules)

        functions =
          for module <- modules,
              not String.contains?(inspect(module), "TestSupport."),
              {:docs_v1, _, _, _, %{}, _, docs} <- [Code.fetch_docs(module)],
              {{kind, name, arity}, _, _, %{"en" => doc}, _} when kind in [:function, :macro] <-
                docs,
              name != :child_spec,
              do: {"#{inspect(module)}.#{name}/#{arity}", doc}

        assert length(functions) > 100

        assert for(
                 {name, doc} <- functions,
                 not (doc =~ ~r/^\s*iex>|^    \S|`[\w.]*\w[?!]?\/\d`/m),
                 do: name
               ) == []
      end
    end
  end
end
