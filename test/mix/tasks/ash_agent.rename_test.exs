defmodule Mix.Tasks.AshAgent.RenameTest do
  use ExUnit.Case, async: true

  alias Mix.Tasks.AshAgent.Rename

  # A text before and after, and the lines to look at.
  defp assert_renamed(before, later, lines \\ [], extension \\ ".ex") do
    {text, notes} = Rename.rename(before, extension)
    assert text == later
    assert Enum.map(notes, &elem(&1, 0)) == lines
    assert {^later, _} = Rename.rename(later, extension)
  end

  test "calls are found by the name, an alias, an alias of another name and one of several" do
    assert_renamed(
      """
      AshAgent.Context.pin(context, {:call, "ä, (b"}) # Context.pin(c)

      defmodule A do
        alias AshAgent.Context

        def a(c), do: Context.approve_tool_call(c, "a",
          by: "ann") # a comment, with a comma
        def b(c), do: Context.new(c)
      end

      defmodule B do
        alias AshAgent.Context, as: Talk
        alias AshAgent.{ChatContext, Prices}
        def a(c), do: c |> Talk.view() |> Map.fetch!(:hidden)
      end

      defmodule C do
        alias AshAgent.{Context, Prices}
        def a(c), do: Context.pins(c) ++ Context.pin(c)
        def b, do: &Context.pin(&1, {:iteration, 1})
        @spec c(Context.t(), Context.call_status()) :: Context.usage()
        def c(c, _), do: Context.search c, "words"
      end

      defmodule D do
        alias Mine.Context
        def a(c), do: Context.pin(c, 1)
      end

      defmodule E do
        alias AshAgent
        def a(c), do: AshAgent.Context.Error |> is_atom() && AshAgent.Context.pins(c)
      end
      """,
      """
      AshAgent.Context.Pins.pin(context, {:call, "ä, (b"}) # Context.pin(c)

      defmodule A do
        alias AshAgent.Context

        def a(c), do: Context.Calls.approve_tool_call(c, "a",
          by: "ann") # a comment, with a comma
        def b(c), do: Context.new(c)
      end

      defmodule B do
        alias AshAgent.Context, as: Talk
        alias AshAgent.{ChatContext, Prices}
        def a(c), do: c |> Talk.View.view() |> Map.fetch!(:hidden)
      end

      defmodule C do
        alias AshAgent.{Context, Prices}
        def a(c), do: Context.Pins.pins(c) ++ Context.Pins.pin(c)
        def b, do: &Context.Pins.pin(&1, {:iteration, 1})
        @spec c(Context.t(), Context.Calls.call_status()) :: Context.Tokens.usage()
        def c(c, _), do: Context.Recall.search c, "words"
      end

      defmodule D do
        alias Mine.Context
        def a(c), do: Context.pin(c, 1)
      end

      defmodule E do
        alias AshAgent
        def a(c), do: AshAgent.Context.Error |> is_atom() && AshAgent.Context.Pins.pins(c)
      end
      """
    )
  end

  test "calls get their new arguments, one in another as well" do
    assert_renamed(
      """
      alias AshAgent.Context
      Context.keep_last_iterations(context, 2)
      context |> Context.keep_last_iterations(n + 1, at: now) |> Context.to_messages()
      Context.keep_iteration_range(context, 2, last - 1)
      Context.keep_iteration_range(context, 2, Enum.max([1, 2]), at: now)
      Context.hide_old_iterations(context, 60 * 60)
      Context.enhance(context, [fun], needs: [:a])
      Context.estimate_token_count(context) + (context |> Context.estimate_token_count())
      Context.tokens_remaining(Context.keep_last_iterations(context, (a; b)), 100) == 5
      if context |> Context.exceeds_token_budget?(100, method: :estimate) or true, do: 1
      Context.from_snapshot!(text) |> Context.hide_iterations(1..2)

      Context.budget_utilization(
        # the one
        context,
        %{a: {1, "x, y"}}.a
      )
      """,
      """
      alias AshAgent.Context
      Context.View.hide(context, {:all_but_last, 2})
      context |> Context.View.hide({:all_but_last, n + 1}, at: now) |> Context.to_messages()
      Context.View.hide(context, {:all_but, 2..(last - 1)})
      Context.View.hide(context, {:all_but, 2..Enum.max([1, 2])}, at: now)
      Context.View.hide(context, {:older_than, 60 * 60})
      Context.Enhancer.run(context, [fun], needs: [:a])
      Context.Tokens.count_tokens(context, method: :estimate) + (context |> Context.Tokens.count_tokens(method: :estimate))
      Context.Tokens.budget(Context.View.hide(context, {:all_but_last, (a; b)}), 100).remaining == 5
      if context |> Context.Tokens.budget(100, method: :estimate) |> Map.fetch!(:exceeded?) or true, do: 1
      Context.load!(text) |> Context.View.hide(1..2)

      Context.Tokens.budget(# the one
        context, %{a: {1, "x, y"}}.a).share
      """
    )
  end

  test "captures, imports and calls by name" do
    assert_renamed(
      """
      defmodule A do
        import AshAgent.Context, only: [new: 1, pin: 2, pins: 1, keep_last_iterations: 2]
        import Enum, only: [map: 2]
        def a(c), do: c |> pin({:call, "a"}) |> keep_last_iterations(1) |> pins()
        def b(c), do: map([c], &pins/1) ++ [new("a")]
        def search(_), do: map([], &AshAgent.Context.pins/1)
        def d, do: apply(AshAgent.Context, :pin, [1, 2])
        def e, do: {AshAgent.Context, :pin, [1, 2]}
        def f, do: &AshAgent.Context.keep_last_iterations/2
        defdelegate view(context), to: AshAgent.Context
      end

      defmodule B do
        import AshAgent.Context
        def a(c), do: recall?(c)
      end
      """,
      """
      defmodule A do
        import AshAgent.Context, only: [new: 1]
        import AshAgent.Context.Pins, only: [pin: 2, pins: 1]
        import AshAgent.Context.View, only: [hide: 2]
        import Enum, only: [map: 2]
        def a(c), do: c |> pin({:call, "a"}) |> hide({:all_but_last, 1}) |> pins()
        def b(c), do: map([c], &pins/1) ++ [new("a")]
        def search(_), do: map([], &AshAgent.Context.Pins.pins/1)
        def d, do: apply(AshAgent.Context, :pin, [1, 2])
        def e, do: {AshAgent.Context, :pin, [1, 2]}
        def f, do: &AshAgent.Context.keep_last_iterations/2
        defdelegate view(context), to: AshAgent.Context
      end

      defmodule B do
        import AshAgent.Context
        def a(c), do: recall?(c)
      end
      """,
      [9, 10, 11, 12, 17]
    )
  end

  test "an alias that something else brings is taken for ours if one says so" do
    text = "use Mine\nContext.pins(c)\n"
    assert {^text, [{2, "pins" <> _}]} = Rename.rename(text, ".exs")
    assert {"use Mine\nContext.Pins.pins(c)\n", []} = Rename.rename(text, ".exs", true)
  end

  test "documentation, its examples and comments" do
    assert_renamed(
      ~S'''
      defmodule A do
        alias AshAgent.Context

        @doc """
        See `AshAgent.Context.pin/3`, `Context.hide_iterations/3` and `t:AshAgent.Context.usage/0`.

            iex> c = Context.new("\\n")
            iex> c |> Context.pin({:fact, "a\\nb"})
            ...>   |> Context.pins()
            []
        """
        # Like Context.tokens_remaining/3.
        def a, do: "Context.pin(c)"
      end
      ''',
      ~S'''
      defmodule A do
        alias AshAgent.Context

        @doc """
        See `AshAgent.Context.Pins.pin/3`, `Context.View.hide/3` and `t:AshAgent.Context.Tokens.usage/0`.

            iex> c = Context.new("\\n")
            iex> c |> Context.Pins.pin({:fact, "a\\nb"})
            ...>   |> Context.Pins.pins()
            []
        """
        # Like Context.Tokens.budget/3.
        def a, do: "Context.pin(c)"
      end
      '''
    )
  end

  test "fenced code of guides, with what is no whole code" do
    assert_renamed(
      """
      AshAgent has `Context.pin/3`.

      ```elixir
      alias AshAgent.Context
      Context.pin(context, {:call, "a"})
      ```

      ```iex
      iex> Context.exceeds_token_budget?(context, 5)
      false
      ```

      ```text
      Context.pin(context)
      ```

      ```elixir
      def handle(x) do
        Context.pin(context, x)
        Context.keep_last_iterations(context, 1)
      ```
      """,
      """
      AshAgent has `Context.Pins.pin/3`.

      ```elixir
      alias AshAgent.Context
      Context.Pins.pin(context, {:call, "a"})
      ```

      ```iex
      iex> Context.Tokens.budget(context, 5).exceeded?
      false
      ```

      ```text
      Context.pin(context)
      ```

      ```elixir
      def handle(x) do
        Context.Pins.pin(context, x)
        Context.keep_last_iterations(context, 1)
      ```
      """,
      [20],
      ".md"
    )
  end

  test "each function of the table is where it says, with these arguments" do
    for {old, moved} <- Rename.moved() do
      module = Module.concat(AshAgent, String.trim_trailing("Context.#{moved.module}", "."))
      assert Code.ensure_loaded?(module)

      if moved.args == [] do
        {:ok, types} = Code.Typespec.fetch_types(module)
        assert Enum.any?(types, &match?({:type, {name, _, []}} when name == moved.as, &1))
      else
        assert function_exported?(module, moved.as, length(moved.to)), "#{old}"
        refute function_exported?(AshAgent.Context, old, length(moved.args)), "#{old}"
      end
    end
  end
end
