defmodule AshAgent.Context.ForkTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions

  alias AshAgent.{ChatContext, Context}
  alias AshAgent.Context.{Error, JSON}

  @at ~U[2026-01-01 10:00:00.000000Z]
  @later ~U[2026-01-02 10:00:00.000000Z]

  defp context do
    Context.new("One", id: "c1", at: @at, metadata: %{user: 7}, system_prompt: "S")
    |> Context.add_assistant_message("1", [], at: @at)
    |> Context.Tokens.add_token_usage(%{input_tokens: 3, output_tokens: 1}, at: @at)
    |> Context.add_user_message("Two", at: @at)
    |> Context.View.put_masks([{"secret", "[x]"}], at: @at)
  end

  defp fork(context \\ context(), opts \\ []),
    do: Context.fork(context, Keyword.merge([id: "c2", at: @later], opts))

  describe "fork/2" do
    test "gives the conversation another id and keeps where it came from" do
      fork = fork()
      assert {fork[:id], fork[:origin]} == {"c2", %{id: "c1", iteration: 2}}
      assert {fork[:created_at], fork[:updated_at]} == {@later, @later}
      assert {context()[:id], context()[:origin]} == {"c1", nil}
    end

    test "keeps all else: iterations, messages, metadata, view, reports" do
      {context, fork} = {context(), fork()}
      changed = [:id, :origin, :created_at, :updated_at]
      assert Map.drop(Context.to_map(fork), changed) == Map.drop(Context.to_map(context), changed)
      assert Context.to_messages(fork) == Context.to_messages(context)
      assert Context.View.view(fork) == Context.View.view(context)

      assert Context.Tokens.get_cumulative_tokens(fork) ==
               Context.Tokens.get_cumulative_tokens(context)

      assert Context.diff(context, fork) == %{last_common: 2, a: [], b: []}
    end

    test "makes an id where none is given, another one each time" do
      ids = for _ <- 1..50, do: Context.fork(context())[:id]
      assert length(Enum.uniq(ids)) == 50
      for id <- ids, do: assert(id =~ ~r/^[0-9a-f-]{36}$/)
    end

    test "lets each go its own way" do
      context = context()
      fork = context |> fork() |> Context.add_assistant_message("2b")
      context = Context.add_assistant_message(context, "2a")
      assert [%{content: "2b"}] = tl(Context.get_iteration_messages(fork, 2))
      assert [%{content: "2a"}] = tl(Context.get_iteration_messages(context, 2))
      assert fork[:origin] == %{id: "c1", iteration: 2}
    end

    test "tells of the nearest origin, of forks of forks and of rewound ones" do
      assert fork(fork(), id: "c3")[:origin] == %{id: "c2", iteration: 2}
      rewound = context() |> Context.rewind(to: 1) |> fork()
      assert rewound[:origin] == %{id: "c1", iteration: 1}
      assert Context.rewind(fork(), to: 1)[:origin] == %{id: "c1", iteration: 2}
    end

    test "asks again about calls that were approved, and keeps what was decided about others" do
      context =
        Context.add_assistant_message(
          context(),
          nil,
          for(id <- ~w(a b c d), do: %{id: id, name: :delete})
        )
        |> Context.Calls.approve_tool_call("a", by: "ann")
        |> Context.Calls.approve_tool_call("b", by: "ann")
        |> Context.Calls.deny_tool_call("c", "no", by: "ann")
        |> Context.add_tool_results([{"a", {:ok, 1}}])

      fork = fork(context)
      statuses = for id <- ~w(a b c d), do: Context.Calls.tool_call_status(fork, id)
      assert statuses == [:ok, :pending, :denied, :pending]
      assert %{by: "ann"} = Context.Calls.tool_call_decision(fork, "a")
      assert Context.Calls.tool_call_decision(fork, "b") == nil
      assert %{decision: :denied} = Context.Calls.tool_call_decision(fork, "c")
      assert Context.Calls.tool_call_status(context, "b") == :approved
      assert Context.equal?(Context.load!(Context.dump(fork)), fork)

      assert Context.Calls.tool_call_status(Context.Calls.approve_tool_call(fork, "b"), "b") ==
               :approved
    end

    test "refuses an id that is none or the context's own, and unknown options" do
      for id <- ["", 7, :c2, <<255>>, "c1"] do
        assert_caller_bug(fn -> Context.fork(context(), id: id) end)
      end

      assert_caller_bug(fn -> Context.fork(context(), name: "c2") end)
      assert_caller_bug(fn -> Context.fork(context(), at: 7) end)
      assert_caller_bug(fn -> apply(Context, :fork, [%{}, [id: "c2"]]) end)
    end
  end

  describe "a stored fork" do
    test "comes back equal, with its origin" do
      fork = fork()
      assert %{"id" => "c2", "origin" => %{"id" => "c1", "iteration" => 2}} = Context.dump(fork)
      refute is_map_key(Context.dump(context()), "origin")

      for copy <- [
            Context.load!(Context.dump(fork)),
            Context.load!(Context.to_snapshot(fork)),
            Context.create!(Context.to_map(fork))
            |> Context.View.put_masks([{"secret", "[x]"}], at: @later)
          ] do
        assert copy[:origin] == %{id: "c1", iteration: 2}
        assert Context.to_map(copy) == Context.to_map(fork)
      end

      assert Context.equal?(Context.load!(Context.dump(fork)), fork)
    end

    test "does not overwrite what it was made of" do
      rows =
        for context <- [context(), fork()], into: %{}, do: {context[:id], Context.dump(context)}

      assert Context.equal?(Context.load!(rows["c1"]), context())
      assert Context.equal?(Context.load!(rows["c2"]), fork())
    end

    test "is another conversation, which equal?/2 tells by each of id and origin" do
      fork = fork()
      other = fork(context() |> Context.update!(id: "c0", updated_at: @at))

      refute Context.equal?(
               fork,
               Context.update!(context(), id: "c2", created_at: @later, updated_at: @later)
             )

      refute Context.equal?(fork, other)
      assert Context.equal?(fork, fork())
    end

    test "has deltas of its own, and refuses those of its origin" do
      fork = fork()
      grown = Context.add_assistant_message(fork, "2")
      delta = Context.dump(grown, since: 2)
      assert Context.equal?(Context.load!(fork, delta), grown)
      assert {:error, %Error{reason: {:invalid, ["id"], _}}} = Context.load(context(), delta)

      assert {:error, %Error{reason: {:invalid, ["id"], _}}} =
               Context.load(fork, Context.dump(context(), since: 2))

      assert Context.dump(fork, beside: context()) == Context.dump(fork)
    end

    test "keeps what a newer release writes of its origin" do
      dump = put_in(Context.dump(fork()), ["origin", "new"], %{":a" => [1]})
      assert Context.dump(Context.load!(dump)) == dump
      assert JSON.decode!(Context.to_snapshot(Context.load!(dump))) == dump
      refute Context.equal?(Context.load!(dump), fork())
    end

    test "of a wrong origin is refused with the path" do
      for {origin, path} <- [
            {7, []},
            {%{}, ["id"]},
            {%{"id" => ""}, ["id"]},
            {%{"id" => "c1"}, ["iteration"]},
            {%{"id" => "c1", "iteration" => 0}, ["iteration"]},
            {%{"id" => "c1", "iteration" => 1.5}, ["iteration"]},
            {%{"id" => "c1", "iteration" => 1, 7 => 1}, []}
          ] do
        dump = Map.put(Context.dump(fork()), "origin", origin)
        assert {:error, %Error{reason: {:invalid, ["origin" | ^path], _}}} = Context.load(dump)
      end

      for {origin, path} <- [
            {7, []},
            {%{id: 7}, [:id]},
            {%{id: "c1"}, [:iteration]},
            {%{id: "c1", iteration: 1, more: 1}, [:more]}
          ] do
        assert {:error, %Error{reason: {:invalid, [:origin | ^path], _}}} =
                 Context.create(origin: origin)
      end
    end
  end

  test "a chat of a fork has its id" do
    chat = ChatContext.new(context: fork())
    assert chat.id == "c2"

    assert ChatContext.active(ChatContext.load!(ChatContext.dump(chat))).context[:origin] == %{
             id: "c1",
             iteration: 2
           }
  end

  test "update/2 and deltas keep the origin" do
    fork = fork()
    assert Context.update!(fork, metadata: %{})[:origin] == fork[:origin]
    assert Context.update!(fork, iterations: [])[:origin] == fork[:origin]

    assert Context.update!(fork, origin: %{"id" => "c0", "iteration" => 1})[:origin] == %{
             id: "c0",
             iteration: 1
           }

    assert Context.add_assistant_message(fork, "2")[:origin] == fork[:origin]
  end
end
