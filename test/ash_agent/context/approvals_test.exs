defmodule AshAgent.Context.ApprovalsTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions
  import AshAgent.TestSupport.Generators, only: [check_all: 3, one_of: 1, chance: 1, between: 2]

  alias AshAgent.Context

  @at ~U[2026-01-02 10:00:00.000000Z]

  defp asked(ids \\ ["a"]) do
    Context.new("Clean up", at: @at, id: "c1")
    |> Context.add_assistant_message(nil, Enum.map(ids, &%{id: &1, name: :delete}), at: @at)
  end

  defp status(context, id \\ "a"), do: Context.Calls.tool_call_status(context, id)
  defp result(context, id), do: Enum.find(calls(context), &(&1.id == id)).result
  defp calls(context), do: Enum.flat_map(Context.iterations(context), & &1.tool_calls)

  describe "a call" do
    test "that nobody made has no status and no decision" do
      for context <- [Context.new("Hi"), asked()] do
        assert status(context, "nobody") == nil
        assert Context.Calls.tool_call_decision(context, "nobody") == nil
      end
    end

    test "that is approved still waits for its result" do
      context = Context.Calls.approve_tool_call(asked(), "a", by: "ann", at: @at)

      assert status(context) == :approved
      assert [%{id: "a"}] = Context.pending_tool_calls(context)
      assert context.current_iteration == 1
      assert {:error, [{:pending_tool_calls, ["a"]}]} = Context.validate_for_request(context)

      assert Context.get_iteration(context, 1).tool_calls ==
               Context.get_iteration(asked(), 1).tool_calls

      assert Context.to_messages(context) == Context.to_messages(asked())

      assert Context.Calls.tool_call_decision(context, "a") ==
               %{decision: :approved, by: "ann", at: @at, reason: nil}
    end

    test "that is denied has an error as its result that says so" do
      for {reason, text} <- [
            {nil, "denied"},
            {"", "denied"},
            {" \n", "denied"},
            {"not on Fridays", "denied: not on Fridays"},
            {:too_late, "denied: too late"},
            {{:limit, 3}, "denied: limit: 3"}
          ] do
        context = Context.Calls.deny_tool_call(asked(), "a", reason, by: "ann", at: @at)
        assert status(context) == :denied
        assert result(context, "a") == {:error, text}
        assert context.current_iteration == 2
        assert %{completed_at: @at} = Context.get_iteration(context, 1)

        assert Context.Calls.tool_call_decision(context, "a") ==
                 %{decision: :denied, by: "ann", at: @at, reason: reason}

        assert %{content: [%{content: ^text, is_error: true}]} =
                 List.last(Context.to_messages(context))
      end
    end

    test "is interrupted unless it is said to be cancelled" do
      assert asked() |> Context.interrupt() |> status() == :interrupted
      assert asked() |> Context.interrupt("x", status: :cancelled) |> status() == :cancelled
      assert_caller_bug(fn -> Context.interrupt(asked(), "x", status: :ok) end)
      assert_caller_bug(fn -> Context.interrupt(asked(), "x", status: nil) end)
    end
  end

  describe "a decision" do
    test "about an unknown call names those that wait" do
      for decide <- [
            &Context.Calls.approve_tool_call(&1, "x"),
            &Context.Calls.deny_tool_call(&1, "x")
          ] do
        assert reason_of(fn -> decide.(asked(["a", "b"])) end) ==
                 {:unknown_tool_call, "x", ["a", "b"]}

        assert reason_of(fn -> decide.(Context.new("Hi")) end) == {:unknown_tool_call, "x", []}
      end
    end

    test "is about the newest call of an id" do
      context =
        asked()
        |> Context.Calls.deny_tool_call("a")
        |> Context.add_assistant_message(nil, [%{id: "a", name: :delete}])

      assert status(context) == :pending
      assert Context.Calls.tool_call_decision(context, "a") == nil
      assert context |> Context.Calls.approve_tool_call("a") |> status() == :approved
      # The one of long ago is as it was.
      assert [%{result: {:error, "denied"}}, %{result: nil}] = calls(context)
    end

    test "is of now unless it is said when" do
      before = DateTime.utc_now()

      %{at: at} =
        asked() |> Context.Calls.approve_tool_call("a") |> Context.Calls.tool_call_decision("a")

      assert DateTime.diff(at, before) in 0..5
      assert_caller_bug(fn -> Context.Calls.approve_tool_call(asked(), "a", at: "now") end)
      assert_caller_bug(fn -> Context.Calls.approve_tool_call(asked(), :a) end)
      assert_caller_bug(fn -> Context.Calls.deny_tool_call(asked(), "a", nil, unknown: 1) end)
    end

    test "does not reach providers but for the result of a denial" do
      plain = asked() |> Context.add_tool_results([{"a", {:ok, "done"}}], at: @at)

      approved =
        asked()
        |> Context.Calls.approve_tool_call("a", by: "SECRET", at: @at)
        |> Context.add_tool_results([{"a", {:ok, "done"}}], at: @at)

      for provider <- AshAgent.TestSupport.RequestChecker.providers() do
        assert Context.request!(approved, provider) == Context.request!(plain, provider)
        denied = asked() |> Context.Calls.deny_tool_call("a", "policy", by: "SECRET")
        body = denied |> Context.encode_request!(provider) |> IO.iodata_to_binary()
        assert body =~ "denied: policy"
        refute body =~ "SECRET"
      end
    end
  end

  describe "the arguments that would run" do
    defp asked_about(arguments),
      do: Context.Calls.ask_about_tool_call(asked(), "a", arguments, at: @at)

    defp copies(context) do
      copies = [
        Context.load!(Context.dump(context)),
        Context.load!(Context.to_snapshot(context))
      ]

      for copy <- copies, do: assert(Context.equal?(copy, context))
      [context | copies]
    end

    test "are shown to whoever decides, and the call stays as the model wrote it" do
      for context <- copies(asked_about(%{path: "/srv"})) do
        assert Context.Calls.undecided_tool_calls(context) == [
                 %{id: "a", name: :delete, arguments: %{path: "/srv"}}
               ]

        assert Context.pending_tool_calls(context) == Context.pending_tool_calls(asked())
        assert Context.to_messages(context) == Context.to_messages(asked())
        assert status(context) == :pending

        for provider <- AshAgent.TestSupport.RequestChecker.providers(),
            context = Context.interrupt(context) do
          refute context |> Context.encode_request!(provider) |> IO.iodata_to_binary() =~ "srv"
        end
      end
    end

    test "that differ are named by their places, without their values" do
      context = asked_about(%{"to" => "SECRET", "cc" => ["SECRET"]})

      error =
        assert_raise Context.Error, fn ->
          Context.Calls.approve_tool_call(context, "a", arguments: %{"to" => "HIDDEN", "cc" => []})
        end

      assert Exception.message(error) ==
               "the arguments that were given for the tool call \"a\" are not those that it would run with, so nothing was " <>
                 "decided: they differ at [\"cc\", 0], [\"to\"]. Show those of AshAgent.Context.Calls.undecided_tool_calls/1, and give these with " <>
                 "the decision"
    end

    test "are those that a denial is about, too" do
      context = asked_about(%{"to" => "ann"})
      deny = &Context.Calls.deny_tool_call(context, "a", "no", arguments: &1)

      assert reason_of(fn -> deny.(%{"to" => "bob"}) end) == {:other_arguments, "a", [["to"]]}
      assert context |> status() == :pending
      assert %{"to" => "ann"} |> deny.() |> status() == :denied
    end

    test "are of one attempt, and a decision about an earlier one is none" do
      alias Context.Calls

      question =
        Calls.ask_about_tool_call(asked(["q"]), "q", %{"question" => "Why?"}, question: true)

      for {context, id, more} <- [{asked(), "a", %{}}, {question, "q", %{question: true}}] do
        assert [call] = Calls.undecided_tool_calls(context)
        refute is_map_key(call, :attempt)
        anew = Context.put_iteration_metadata(context, 1, "asked_anew", %{id => 1})
        call = Map.put(call, :attempt, 2)
        assert Map.take(call, Map.keys(more)) == more
        assert Calls.undecided_tool_calls(anew) == [call]

        assert anew |> Context.to_snapshot() |> Context.load!() |> Calls.undecided_tool_calls() ==
                 [call]

        for decide <- [
              &Calls.approve_tool_call(anew, id, attempt: &1),
              &Calls.deny_tool_call(anew, id, "no", attempt: &1),
              &Calls.answer_tool_call(anew, id, "So.", attempt: &1)
            ],
            attempt <- [1, 3, 2 ** 70] do
          assert reason_of(fn -> decide.(attempt) end) == {:other_attempt, id, 2}
        end

        denied = Calls.deny_tool_call(anew, id, "no", attempt: 2)
        assert status(denied, id) == :denied
        # Whoever says none decides about the attempt as it is now.
        assert status(Calls.deny_tool_call(anew, id, "no", attempt: nil), id) == :denied
        assert status(Calls.deny_tool_call(context, id, "no", attempt: 1), id) == :denied
      end

      assert_raise ArgumentError, ~r/:attempt/, fn ->
        Calls.approve_tool_call(asked(), "a", attempt: 0)
      end
    end

    test "are a text for a call that has a text" do
      call = %{id: "a", kind: :custom, name: :query, arguments: "SELECT 1"}
      context = Context.new("Hi") |> Context.add_assistant_message(nil, [call])
      approve = &Context.Calls.approve_tool_call(context, "a", arguments: &1)

      for other <- ["SELECT 2", %{"sql" => "SELECT 1"}],
          do: assert({:other_arguments, "a", [[]]} = reason_of(fn -> approve.(other) end))

      approved = approve.("SELECT 1")
      assert Context.Calls.tool_call_approved?(approved, "a", "SELECT 1")
      refute Context.Calls.tool_call_approved?(approved, "a", "SELECT 2")
    end

    test "are the call's own when nothing else is said" do
      assert [%{id: "a"}, %{id: "b"}] = Context.Calls.undecided_tool_calls(asked(["a", "b"]))
      refute Context.Calls.tool_call_approved?(asked(), "a", %{})
      approved = Context.Calls.approve_tool_call(asked(), "a")
      assert Context.Calls.tool_call_approved?(approved, "a", %{})
      refute Context.Calls.tool_call_approved?(approved, "a", %{n: 1})
      assert Context.Calls.undecided_tool_calls(Context.new("Hi")) == []

      assert Context.equal?(
               asked_about(%{}),
               Context.Calls.ask_about_tool_call(asked_about(%{n: 1}), "a", %{}, at: @at)
             )

      refute Context.equal?(asked_about(%{}), asked())
      assert Context.equal?(asked_about(nil), asked_about(%{}))
    end

    test "are in the map of a paused conversation, as those that were approved" do
      context = asked(["a", "b", "c"]) |> Context.Calls.ask_about_tool_call("a", %{n: 1})

      approved =
        context |> Context.Calls.ask_about_tool_call("b") |> Context.Calls.approve_tool_call("b")

      for context <- [context, approved, Context.Calls.approve_tool_call(context, "a")] do
        map = Context.to_map(context)
        copy = Context.create!(map)
        assert Context.to_map(copy) == map
        assert Context.Calls.asked_tool_calls(copy) == map.asked
        assert %{id: "a", arguments: %{n: 1}} = hd(map.asked)
        assert Context.pending_tool_calls(copy) == Context.pending_tool_calls(context)
      end

      assert for(call <- Context.to_map(approved).asked, do: call.id) == ["a", "b"]
      ended = Context.interrupt(approved)
      refute is_map_key(Context.to_map(ended), :asked)
      refute is_map_key(Context.to_map(asked()), :asked)
    end

    test "are of pending calls in a map, too" do
      own = asked() |> Context.to_map() |> Map.delete(:asked)
      create = &Context.create(Map.put(own, :asked, &1))

      for {wrong, reason} <- [
            {[%{id: "x"}], {:unknown_tool_call, "x", ["a"]}},
            {[%{}], {:invalid, [:asked, 0, :id], "text"}},
            {[1], {:invalid, [:asked, 0], "a tool call map"}},
            {%{}, {:invalid, [:asked], "a list"}}
          ],
          do: assert({:error, %Context.Error{reason: ^reason}} = create.(wrong))

      # Only a call's own arguments can be a text.
      for shown <- [nil, "{}"] do
        assert {:ok, context} = create.([%{"id" => "a", "arguments" => shown}])
        assert Context.Calls.asked_tool_calls(context) == Context.pending_tool_calls(context)
      end
    end

    test "can be noted for a pending call only" do
      approved = Context.Calls.approve_tool_call(asked(), "a")
      ask = &Context.Calls.ask_about_tool_call(&1, "a", %{n: 1})
      assert reason_of(fn -> ask.(approved) end) == {:illegal_status, "a", :approved, :asked}

      assert reason_of(fn -> ask.(Context.Calls.deny_tool_call(asked(), "a")) end) ==
               {:illegal_status, "a", :denied, :asked}

      assert reason_of(fn -> ask.(Context.new("Hi")) end) == {:unknown_tool_call, "a", []}

      for wrong <- [
            fn -> Context.Calls.ask_about_tool_call(asked(), "a", "{}") end,
            fn -> Context.Calls.ask_about_tool_call(asked(), "a", %{}, by: 1) end,
            fn -> Context.Calls.approve_tool_call(asked(), "a", arguments: []) end,
            fn -> Context.Calls.tool_call_approved?(asked(), "a", nil) end
          ],
          do: assert_caller_bug(wrong)

      assert {:unsupported_term, :improper_list, _} =
               reason_of(fn -> Context.Calls.ask_about_tool_call(asked(), "a", %{a: [1 | 2]}) end)
    end
  end

  test "any sequence of decisions, results and interruptions goes through the statuses in order" do
    check_all("statuses", [runs: 300, max_size: 8], fn size ->
      ids = for n <- 1..between(1, size), do: "id#{n}"
      statuses = Map.new(ids, &{&1, :pending})

      Enum.reduce(1..(size * 3), {asked(ids), statuses}, fn _, {context, statuses} ->
        id = one_of(ids)
        operation = one_of([:approve, :deny, :ok, :error])
        operation = if chance(3), do: one_of([:interrupted, :cancelled]), else: operation
        {context, statuses} = decide(context, statuses, operation, id)
        for {id, status} <- statuses, do: assert(status(context, id) == status)

        pending = for id <- ids, statuses[id] in [:pending, :approved], do: id
        assert for(call <- Context.pending_tool_calls(context), do: call.id) == pending
        assert context.current_iteration == if(pending == [], do: 2, else: 1)

        for copy <- [
              Context.load!(Context.dump(context)),
              Context.load!(Context.to_snapshot(context))
            ] do
          assert Context.equal?(copy, context)

          for id <- ids do
            assert status(copy, id) == status(context, id)

            assert Context.Calls.tool_call_decision(copy, id) ==
                     Context.Calls.tool_call_decision(context, id)
          end
        end

        {context, statuses}
      end)
    end)
  end

  test "an approval holds for what was asked last, whatever came between, and for nothing else" do
    check_all("asked arguments", [runs: 200, max_size: 6], fn size ->
      ids = for n <- 1..between(1, size), do: "id#{n}"
      model = Map.new(ids, &{&1, {:pending, %{}}})

      Enum.reduce(1..(size * 3), {asked(ids), model}, fn _, {context, model} ->
        {context, model} = ask_or_approve(context, model, one_of(ids))
        {context, model} = copy(context, model)

        for {calls, statuses} <- [
              {Context.Calls.undecided_tool_calls(context), [:pending, :asked]},
              {Context.Calls.asked_tool_calls(context), [:asked]}
            ],
            do:
              assert(
                for(call <- calls, do: {call.id, call.arguments}) ==
                  for(
                    id <- ids,
                    {status, arguments} = model[id],
                    status in statuses,
                    do: {id, arguments}
                  )
              )

        for {id, {status, arguments}} <- model, n <- [nil, 0, 1, 2] do
          given = if n, do: %{n: n}, else: %{}
          approved? = status == :approved and given == arguments
          assert Context.Calls.tool_call_approved?(context, id, given) == approved?
        end

        {context, model}
      end)
    end)
  end

  # A document keeps all of it. A fork, and a document that is not trusted, ask again about what was approved.
  defp copy(context, model) do
    asked_again =
      for {id, {status, arguments}} <- model,
          into: %{},
          do: {id, {if(status == :approved, do: :asked, else: status), arguments}}

    case between(1, 12) do
      1 ->
        {Context.fork(context), asked_again}

      2 ->
        {Context.load!(Context.dump(context), approvals: :drop),
         Map.new(asked_again, fn {id, {status, _}} -> {id, {status, %{}}} end)}

      n when n < 7 ->
        {Context.load!(Context.dump(context)), model}

      _n ->
        {context, model}
    end
  end

  defp ask_or_approve(context, model, id) do
    arguments = one_of([%{}, %{n: 0}, %{n: 1}])

    case {model[id], one_of([:ask, :ask, :approve, :approve_seen])} do
      {{:approved, _}, _operation} ->
        assert {:illegal_status, ^id, :approved, :asked} =
                 reason_of(fn -> Context.Calls.ask_about_tool_call(context, id, arguments) end)

        {context, model}

      {{_, asked}, :ask} ->
        arguments = one_of([arguments, nil])

        {Context.Calls.ask_about_tool_call(context, id, arguments),
         %{model | id => {:asked, arguments || asked}}}

      {{_, asked}, :approve} ->
        {Context.Calls.approve_tool_call(context, id), %{model | id => {:approved, asked}}}

      {{_, ^arguments}, :approve_seen} ->
        context = Context.Calls.approve_tool_call(context, id, arguments: arguments)
        {context, %{model | id => {:approved, arguments}}}

      {_, :approve_seen} ->
        assert {:other_arguments, ^id, _} =
                 reason_of(fn ->
                   Context.Calls.approve_tool_call(context, id, arguments: arguments)
                 end)

        {context, model}
    end
  end

  defp decide(context, statuses, operation, _id) when operation in [:interrupted, :cancelled] do
    ended =
      Map.new(statuses, fn {id, status} ->
        {id, if(status in [:pending, :approved], do: operation, else: status)}
      end)

    {Context.interrupt(context, "stop", status: operation), ended}
  end

  defp decide(context, statuses, operation, id) when operation in [:approve, :deny] do
    to = %{approve: :approved, deny: :denied}[operation]

    run = fn ->
      if operation == :approve,
        do: Context.Calls.approve_tool_call(context, id, by: "ann"),
        else: Context.Calls.deny_tool_call(context, id, "no", by: "ann")
    end

    case statuses[id] do
      :pending ->
        {run.(), Map.put(statuses, id, to)}

      from ->
        assert reason_of(run) == {:illegal_status, id, from, to}
        {context, statuses}
    end
  end

  defp decide(context, statuses, operation, id) do
    run = fn -> Context.add_tool_results(context, [{id, {operation, "result"}}]) end

    if statuses[id] in [:pending, :approved] do
      {run.(), Map.put(statuses, id, operation)}
    else
      assert elem(reason_of(run), 0) in [:tool_call_already_answered, :no_pending_tool_calls]
      {context, statuses}
    end
  end
end

defmodule AshAgent.Context.ManyCallsTest do
  # Alone, since each of these calls waits for a dirty scheduler where other tests keep them busy.
  use ExUnit.Case, async: false

  alias AshAgent.Context

  # Each one took time for all of them: 20,000 took a minute.
  @tag timeout: 30_000
  test "many calls of one answer are approved and answered one by one in linear time" do
    ids = for number <- 1..20_000, do: "call_#{number}"
    calls = Enum.map(ids, &%{id: &1, name: :delete})
    asked = Context.add_assistant_message(Context.new("Clean up"), nil, calls)
    approved = Enum.reduce(ids, asked, &Context.Calls.approve_tool_call(&2, &1))
    answered = Enum.reduce(ids, approved, &Context.add_tool_results(&2, [{&1, {:ok, 1}}]))
    assert answered.current_iteration == 2
  end
end
