defmodule AshAgent.OptionsTest do
  use ExUnit.Case, async: true

  alias AshAgent.Options

  @schema [
    mode: [type: {:in, [:full, :hybrid]}, default: :full, doc: "How much is shown."],
    limit: [type: {:or, [:pos_integer, nil]}, doc: "At most so many."],
    notify: [type: {:fun, 1}, doc: "Called with each event."],
    names: [type: {:list, :string}, default: [], doc: "Names."],
    at: [type: {:custom, &__MODULE__.time?/1}, type_doc: "a `DateTime`", doc: "The time."],
    model: [type: :string, required: true, doc: "The model."]
  ]

  def time?(value), do: is_struct(value, DateTime)

  defp message(opts) do
    assert_raise(ArgumentError, fn -> Options.validate!(opts, @schema) end).message
  end

  test "fills in defaults and keeps what was given" do
    opts = Options.validate!([model: "m", limit: nil], @schema)
    assert Enum.sort(opts) == [limit: nil, mode: :full, model: "m", names: []]
    assert Options.validate!([model: "m", mode: :hybrid], @schema)[:mode] == :hybrid
  end

  test "names the allowed values and what was given" do
    assert message(model: "m", mode: :fulll) ==
             "invalid value for option :mode: expected one of :full, :hybrid, got: :fulll"

    assert message(model: "m", limit: 0) ==
             "invalid value for option :limit: expected a positive integer or nil, got: 0"

    assert message(model: "m", at: 1) ==
             "invalid value for option :at: expected a `DateTime`, got: 1"

    assert message(model: "m", notify: &is_map_key/2) =~
             "expected a function of arity 1, got: a function of arity 2"

    assert message(model: "m", names: ["a" | "b"]) =~
             "expected a list in which each element is a string, got: a list"

    assert message(model: "m", names: ["a", "b", :c]) =~ ", got: :c at index 2"
  end

  test "names unknown, repeated and missing options" do
    assert message(model: "m", mod: :full) ==
             "unknown options [:mod], valid options are: [:mode, :limit, :notify, :names, :at, :model]"

    assert message(model: "m", model: "n") == "options [:model] given more than once"
    assert message([]) == "required option :model not given: expected a string"
    assert message([:model]) == "expected options to be a keyword list, got: a list"
    assert message(%{model: "m"}) == "expected options to be a keyword list, got: a map"
  end

  test "never shows what a value holds" do
    secret = "sk-secret"

    for value <- [
          secret,
          [secret],
          %{key: secret},
          {secret},
          fn -> secret end,
          URI.parse(secret),
          ~c"sk-secret"
        ] do
      refute message(model: "m", mode: value) =~ secret
    end
  end

  test "every type takes its values and no others" do
    values = [
      any: {[nil, 1], []},
      atom: {[:a], [1]},
      boolean: {[true], [nil]},
      integer: {[-1], [1.0]},
      non_neg_integer: {[0], [-1]},
      timeout: {[0, :infinity], [-1, nil]},
      list: {[[]], [%{}]},
      map: {[%{}], [[]]},
      keyword_list: {[[a: 1]], [[1], [{"a", 1}]]}
    ]

    for {type, {right, wrong}} <- values, schema = [option: [type: type]] do
      for value <- right,
          do: assert(Options.validate!([option: value], schema) == [option: value])

      for value <- wrong do
        assert_raise ArgumentError, ~r/invalid value for option :option/, fn ->
          Options.validate!([option: value], schema)
        end
      end
    end

    assert Options.validate!([option: ~D[2026-01-01]], option: [type: {:struct, Date}])
  end

  test "writes the documentation" do
    assert Options.docs(Keyword.take(@schema, [:mode, :limit, :model])) == """
             * `:mode` (one of `:full`, `:hybrid`) - How much is shown. Defaults to `:full`.
             * `:limit` (a positive integer or `nil`) - At most so many.
             * `:model` (a string) - The model. Required.\
           """
  end
end
