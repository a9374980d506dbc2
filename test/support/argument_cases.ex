defmodule AshAgent.TestSupport.ArgumentCases do
  @moduledoc false

  # Every public function of an application's modules is called with a wrong kind for all of its arguments, and with a right
  # call of which one argument is wrong. It answers, or raises an `ArgumentError` in words, in the name of a public function.
  # `:takes_anything` are the functions for which no argument is wrong, by module, `:least` is how many functions there are at
  # least, and `calls/0` returns right calls.

  defmacro __using__(opts) do
    quote do
      use ExUnit.Case, async: true

      @app unquote(opts[:app])
      @takes_anything unquote(opts[:takes_anything] || [])
      @least unquote(opts[:least] || 50)

      # Errors that data can cause.
      @data [AshAgent.Context.Error, AshAgent.Response.Error]
      @wrong [nil, :openai, "sk-secret", 7.5, {:wrong}, [:wrong | :list], %{wrong: "sk-secret"}]

      defp public_functions do
        {:ok, modules} = :application.get_key(@app, :modules)

        for module <- modules,
            Code.ensure_loaded?(module) and AshAgent.Caller.marked?(module),
            {:docs_v1, _, _, _, %{}, _, docs} <- [Code.fetch_docs(module)],
            {{:function, name, arity}, _, _, %{}, _} when arity > 0 <- docs,
            do: {module, name, arity}
      end

      # What is wrong with how a call was refused, or `nil`.
      defp fault(module, name, arguments, allowed) do
        apply(module, name, arguments)
        if allowed == [:nothing], do: "takes anything"
      rescue
        error -> if error.__struct__ not in allowed, do: fault(error, __STACKTRACE__)
      end

      defp fault(%ArgumentError{message: words}, [{module, name, arity, _} | _]) do
        arity = if is_list(arity), do: length(arity), else: arity

        cond do
          String.length(words) < 20 -> "says only #{words}"
          words =~ "sk-secret" -> "shows a value"
          function_exported?(module, name, arity) -> nil
          # The call was the last thing that its function did, and so the trace begins with the caller.
          module == __MODULE__ -> nil
          true -> "is refused in #{inspect(module)}.#{name}/#{arity}"
        end
      end

      defp fault(error, [place | _]), do: "raises #{inspect(error)} in #{inspect(place)}"

      test "a public function refuses what it cannot take, in words" do
        functions = public_functions()
        assert length(functions) >= @least

        faults =
          for {module, name, arity} <- functions,
              {module, name} not in @takes_anything,
              fault = fault(module, name, List.duplicate(make_ref(), arity), [:nothing]),
              do: "#{inspect(module)}.#{name}/#{arity} #{fault}"

        assert faults == [], Enum.join(faults, "\n")
      end

      test "one wrong argument is refused in words, or is an error that data can cause" do
        faults =
          for {{module, name}, arguments} <- calls(),
              position <- 0..(length(arguments) - 1)//1,
              wrong <- @wrong,
              fault = fault(module, name, List.replace_at(arguments, position, wrong), @data),
              do: "#{inspect(module)}.#{name} with #{inspect(wrong)} at #{position} #{fault}"

        assert faults == [], Enum.join(faults, "\n")
      end
    end
  end
end
