defmodule AshAgent.TestSupport.OptionCases do
  @moduledoc false

  # Every public function of an application that takes options is called with an option it does not have, and with each of
  # its options set to a function of five arguments, which is right for none of them. A function that is missing in `calls/0`
  # of the test, the arguments before the options, fails the first test.
  #
  # `:any` are options that may be any term, since the application alone reads them, or a process; `:started` functions for
  # supervisors, where the started function checks the options; and options of the modules in `:elsewhere` are for
  # others, who check them.

  defmacro __using__(opts) do
    quote do
      use ExUnit.Case, async: true

      @app unquote(opts[:app])
      @any unquote(opts[:any])
      @started unquote(opts[:started] || [])
      @elsewhere unquote(opts[:elsewhere] || [])

      defp wrong(_, _, _, _, _), do: "sk-secret"

      defp message({{module, function}, arguments}, opts) do
        assert_raise(ArgumentError, fn -> apply(module, function, arguments ++ [opts]) end).message
      end

      # The message lists the options, and so shows which of them there are to be tried.
      defp options(call) do
        assert [_, listed] =
                 Regex.run(~r/valid options are: \[(.*)\]$/, message(call, colour: "sk-secret"))

        for ":" <> name <- String.split(listed, ", "), do: String.to_existing_atom(name)
      end

      defp documented do
        {:ok, modules} = :application.get_key(@app, :modules)

        for module <- modules,
            not Enum.member?(@elsewhere, module) and
              not String.contains?(inspect(module), ["TestSupport.", "Inspect."]),
            {:docs_v1, _, _, _, moduledoc, _, docs} when moduledoc != :hidden <- [
              Code.fetch_docs(module)
            ],
            {{:function, name, _arity}, _, signatures, doc, _} when doc != :hidden <- docs,
            Enum.any?(signatures, &(&1 =~ ~r/\b(opts|fields|delta_or_opts)\b/)),
            do: {module, name}
      end

      test "knows every public function that takes options" do
        known = Map.keys(calls())
        assert length(documented()) > 10
        assert documented() |> Enum.uniq() |> Enum.reject(&(&1 in known or &1 in @started)) == []
      end

      test "an unknown option is refused, by its name and without any contents" do
        for call <- calls() do
          words = message(call, colour: "sk-secret")
          assert words =~ "unknown options [:colour], valid options are: ["
          refute words =~ "sk-secret"
        end
      end

      test "each option refuses a wrong value, and says what it expects" do
        for {{module, function}, _} = call <- calls(),
            option <- options(call),
            {module, function, option} not in @any do
          words = message(call, [{option, &wrong/5}])
          assert words =~ "invalid value for option #{inspect(option)}: expected "
          assert words =~ "got: a function of arity 5"
          refute words =~ "a valid value", "#{inspect(call)} does not say what #{option} is"
        end
      end

      test "an option given twice is refused" do
        for call <- calls(), option <- Enum.take(options(call), 1) do
          assert message(call, [{option, nil}, {option, nil}]) =~ inspect(option)
        end
      end

      test "something else than a keyword list is refused" do
        for {{_, function}, _} = call <- calls(), function not in [:put, :put_config] do
          words = message(call, ["sk-secret"])
          assert words =~ "expected options to be a keyword list"
          refute words =~ "sk-secret"
        end
      end
    end
  end
end
