defmodule AshAgent.TestSupport.InspectCases do
  @moduledoc false

  # Every public struct of an application is inspected in one line, without prompts and keys. `values/0` of the test has one of
  # each, with the texts `secret` in its fields; a struct that is missing there fails the test, unless `:except` has it.

  defmacro __using__(opts) do
    quote do
      use ExUnit.Case, async: true

      @app unquote(opts[:app])
      @except unquote(opts[:except] || [])
      @most 110

      defp public_structs do
        {:ok, modules} = :application.get_key(@app, :modules)

        for module <- modules -- @except,
            not String.contains?(inspect(module), ["TestSupport.", "Mix.Tasks."]),
            Code.ensure_loaded?(module) and function_exported?(module, :__struct__, 0),
            {:docs_v1, _, _, _, %{}, _, _} <- [Code.fetch_docs(module)],
            do: module
      end

      test "every public struct is inspected in one line that shows no text of it" do
        values = Map.new(values(), &{&1.__struct__, &1})
        assert public_structs() -- Map.keys(values) == []

        for {module, value} <- values do
          line = inspect(value)
          assert line =~ ~r/\A#{Regex.escape("##{inspect(module)}<")}.*>\z/, line
          assert String.length(line) <= @most, line
          refute line =~ "secret", line
        end
      end
    end
  end
end
