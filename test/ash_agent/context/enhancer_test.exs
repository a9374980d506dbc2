defmodule AshAgent.Context.EnhancerTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions

  alias AshAgent.Context
  alias AshAgent.Context.Error

  doctest AshAgent.Context.Enhancer

  defmodule Block do
    @behaviour AshAgent.Context.Enhancer

    @impl true
    def prepare(opts), do: Keyword.validate!(opts, [:text])

    @impl true
    def enhance(context, needs, opts),
      do: {:ok, Context.View.put_prompt_block(context, :block, opts[:text] || inspect(needs))}
  end

  defmodule Bare do
    @behaviour AshAgent.Context.Enhancer

    @impl true
    def enhance(context, _needs, opts),
      do: {:ok, Context.View.put_prompt_block(context, :bare, inspect(opts))}
  end

  defp hello, do: Context.new("Hello!", metadata: %{a: 1}, system_prompt: "Hi")

  defp failure(fun, opts \\ []) do
    {:error, %Error{reason: {:enhancer_failed, ^fun, reason}} = error} =
      Context.Enhancer.run(hello(), [fun], opts)

    {reason, Exception.message(error)}
  end

  defp block(name, text),
    do: fn context, _needs -> {:ok, Context.View.put_prompt_block(context, name, text)} end

  describe "enhance/3" do
    test "takes modules, modules with options and functions, in their order" do
      seen = fn context, _needs ->
        {:ok,
         Context.View.put_prompt_block(context, :seen, inspect(Context.View.view(context).blocks))}
      end

      assert {:ok, context, %{skipped: []}} =
               Context.Enhancer.run(hello(), [{Block, text: "one"}, Bare, seen])

      assert Context.View.view(context).blocks == [
               {"block", "one"},
               {"bare", "[]"},
               {"seen", ~s([{"block", "one"}, {"bare", "[]"}])}
             ]
    end

    test "returns the context as it is for no enhancers" do
      context = hello()
      assert {:ok, ^context, %{skipped: []}} = Context.Enhancer.run(context, [])
    end

    test "leaves the given context as it was" do
      context = hello()
      {:ok, _enhanced, _report} = Context.Enhancer.run(context, [Block])
      assert Context.View.view(context).blocks == []
    end

    test "gives needs as a map, whatever they came as" do
      for {given, seen} <- [
            {[], %{}},
            {[:a, b: 1, c: nil, d: false], %{a: true, b: 1}},
            {%{a: true, b: "x", c: nil}, %{a: true, b: "x"}},
            {MapSet.new([:a]), %{a: true}}
          ] do
        {:ok, context, _report} = Context.Enhancer.run(hello(), [Block], needs: given)
        assert Context.View.view(context).blocks == [{"block", inspect(seen)}]
      end
    end

    test "refuses what is no enhancer before any runs" do
      me = self()
      told = fn context, _needs -> send(me, :ran) && {:ok, context} end

      for bad <- [
            nil,
            "text",
            No.Such,
            String,
            {String, []},
            {Block, :a},
            {Block, [1]},
            {Block, [], 1},
            fn _ -> 1 end
          ] do
        assert_caller_bug(fn -> Context.Enhancer.run(hello(), [told, bad]) end)
      end

      refute_received :ran

      assert_raise ArgumentError, ~r/got: String, which has no enhance\/3/, fn ->
        Context.Enhancer.run(hello(), [{String, key: "secret"}])
      end
    end

    test "raises what an enhancer raises for its options, also when failures are skipped" do
      for bad <- [{Block, txt: 1}, {Block, text: 1, txt: 2}] do
        assert_caller_bug(fn -> Context.Enhancer.run(hello(), [bad], on_error: :skip) end)
      end
    end

    test "refuses wrong arguments and options" do
      for opts <- [[need: []], [needs: :a], [needs: ["a"]], [needs: %{"a" => 1}], [needs: 1..2]] do
        assert_caller_bug(fn -> Context.Enhancer.run(hello(), [], opts) end)
      end

      for on_error <- [nil, :raise, fn -> :skip end, "skip"],
          do: assert_caller_bug(fn -> Context.Enhancer.run(hello(), [], on_error: on_error) end)

      assert_caller_bug(fn -> Context.Enhancer.run(:context, []) end)
      assert_caller_bug(fn -> Context.Enhancer.run(hello(), Block) end)
      assert_caller_bug(fn -> Context.Enhancer.run(hello(), [], %{}) end)
    end
  end

  describe "a failing enhancer" do
    test "stops the run with its reason" do
      assert {:down, "the enhancer #Function<" <> _} = failure(fn _, _ -> {:error, :down} end)
    end

    test "may raise, throw and exit" do
      assert {%RuntimeError{message: "no"}, message} = failure(fn _, _ -> raise "no" end)

      assert message =~
               " failed: no. Pass the option :on_error to AshAgent.Context.Enhancer.run/3 to go on without it"

      assert {{:throw, 1}, _} = failure(fn _, _ -> throw(1) end)
      assert {{:exit, :gone}, _} = failure(fn _, _ -> exit(:gone) end)

      assert {%Error{reason: {:cannot_fit, _}}, _} =
               failure(fn c, _ -> {:error, elem(Context.View.fit(c, 1), 1)} end)

      assert {%Error{reason: {:invalid_pattern, _, _}}, _} =
               failure(fn c, _ -> Context.View.put_masks(c, [{"(", ""}]) end)
    end

    test "may return nonsense, which the message does not show" do
      context = hello()

      for other <- [
            nil,
            :ok,
            context,
            {:ok, "secret"},
            {:ok, context, 1},
            :error,
            {:ok, %{context | ref: nil}, []}
          ] do
        assert {{:bad_return, ^other}, message} = failure(fn _, _ -> other end)
        refute message =~ "secret"
      end

      assert {%ArgumentError{}, _} =
               failure(fn context, _ -> {:ok, %{context | ref: make_ref()}} end)
    end

    test "is one that changes the log" do
      changes = [
        &Context.add_user_message(&1, "more"),
        &Context.add_assistant_message(&1, "more"),
        &Context.put_metadata(&1, :a, 2),
        &Context.put_iteration_metadata(&1, 1, :a, 2),
        &Context.put_system_prompt(&1, "Other"),
        &Context.update!(&1, %{created_at: ~U[2020-01-01 00:00:00Z]}),
        fn _ -> Context.new("Hello!", metadata: %{a: 1}, system_prompt: "Hi") end,
        fn context -> %{context | current_iteration: 2} end
      ]

      for change <- changes do
        assert {:log_changed, message} = failure(fn context, _ -> {:ok, change.(context)} end)
        assert message =~ "it returned a context with another log, but may only change the view"
      end
    end

    test "is one that rewinds, approves or answers" do
      context =
        hello()
        |> Context.add_assistant_message("1")
        |> Context.add_user_message("Two")
        |> Context.add_assistant_message(nil, [%{id: "a", name: :x}])

      for change <- [
            &Context.rewind(&1, to: 1),
            &Context.Calls.approve_tool_call(&1, "a"),
            &Context.add_tool_results(&1, [{"a", {:ok, 1}}]),
            &Context.interrupt/1
          ] do
        assert {:error, %Error{reason: {:enhancer_failed, _, :log_changed}}} =
                 Context.Enhancer.run(context, [fn context, _ -> {:ok, change.(context)} end])
      end
    end

    test "may give an equal context that went through storage" do
      assert {:ok, _, %{skipped: []}} =
               Context.Enhancer.run(hello(), [
                 fn context, _ -> context |> Context.dump() |> Context.load() end
               ])
    end

    test "is skipped with :skip, and told in the report" do
      fails = fn _, _ -> {:error, :down} end
      enhancers = [block(:a, "1"), fails, Block, {Block, text: <<255>>}, block(:b, "2")]

      assert {:ok, context, %{skipped: [first, second]}} =
               Context.Enhancer.run(hello(), enhancers, on_error: :skip)

      assert Enum.map(Context.View.view(context).blocks, &elem(&1, 0)) == ["a", "block", "b"]
      assert %{enhancer: ^fails, error: %Error{reason: {:enhancer_failed, ^fails, :down}}} = first

      assert %{
               enhancer: Block,
               error: %Error{reason: {:enhancer_failed, Block, %ArgumentError{}}}
             } = second
    end

    test "leaves nothing behind when skipped" do
      half = fn context, _ ->
        Context.View.put_prompt_block(context, :half, "done")
        raise "half-way"
      end

      context = hello()

      assert {:ok, ^context, %{skipped: [_]}} =
               Context.Enhancer.run(context, [half], on_error: :skip)
    end

    test "is stopped or skipped as a function decides" do
      decide = fn
        Block, %Error{} -> :skip
        _function, %Error{} -> :stop
      end

      bad = {Block, text: <<255>>}

      assert {:ok, _, %{skipped: [%{enhancer: Block}]}} =
               Context.Enhancer.run(hello(), [bad], on_error: decide)

      fails = fn _, _ -> {:error, :down} end

      assert {:error, %Error{reason: {:enhancer_failed, ^fails, :down}}} =
               Context.Enhancer.run(hello(), [bad, fails], on_error: decide)

      assert_raise ArgumentError, ~r/expected :on_error to return/, fn ->
        Context.Enhancer.run(hello(), [fails], on_error: fn _, _ -> :maybe end)
      end
    end

    test "runs no enhancer behind it when it stops" do
      me = self()
      told = fn context, _needs -> send(me, :ran) && {:ok, context} end
      assert {:error, _} = Context.Enhancer.run(hello(), [fn _, _ -> :no end, told])
      refute_received :ran
    end
  end
end
