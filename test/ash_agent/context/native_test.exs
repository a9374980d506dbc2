defmodule AshAgent.Context.NativeTest do
  use ExUnit.Case, async: true

  alias AshAgent.Context.Native

  @table File.read!("native/ash_agent_context_nif/src/nifs.rs")

  # Each line of the table is read otherwise than in Native: up to its weight, and by its commas.
  defp lines do
    [_macro, table] = String.split(@table, "\nnifs! {\n")

    for line <- String.split(table, "\n", trim: true), line =~ " = " do
      [name, arguments] = line |> String.split(")") |> hd() |> String.trim() |> String.split("(")

      {name, length(String.split(arguments, ",", trim: true))}
    end
  end

  test "has a function for each line of the table, and both lanes of it" do
    assert {:module, Native} = Code.ensure_loaded(Native)
    assert length(lines()) > 100

    for {name, arity} <- lines(), ending <- ["", "_normal", "_dirty"] do
      assert function_exported?(Native, String.to_atom(name <> ending), arity)
    end
  end

  # The library has no other, for the VM loads none that has functions without stubs.
  test "has no stub that the library leaves one" do
    for {name, arity} <- lines(), lane <- ["_normal", "_dirty"] do
      refute :nif_not_loaded ==
               reason(fn ->
                 apply(Native, String.to_atom(name <> lane), List.duplicate(:none, arity))
               end)
    end
  end

  test "makes a type where it is asked for, unless that may take long" do
    schema = fn field -> %{"type" => "object", "properties" => %{"a" => field}} end
    many = fn count -> Map.new(1..count, &{"a#{&1}", %{"type" => "string"}}) end

    for {schema, here?} <- [
          {schema.(%{"type" => "string"}), true},
          {%{"type" => "object", "properties" => many.(10)}, true},
          {%{"type" => "object", "properties" => many.(100)}, false},
          {schema.(%{"type" => "string", "description" => String.duplicate("a", 7_000)}), false},
          {schema.(%{"type" => "string", "pattern" => "a+"}), false},
          {schema.(%{type: :array, items: [%{anyOf: [%{pattern: "a+"}]}]}), false},
          {schema.(%{"type" => "object", "patternProperties" => %{"^a" => %{}}}), false}
        ] do
      assert match?({:ok, _type}, Native.answer_type_normal(schema)) == here?
    end
  end

  defp reason(fun) do
    fun.()
  catch
    :error, reason -> reason
  end
end
