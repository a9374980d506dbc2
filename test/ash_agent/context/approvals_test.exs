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

  defp status(context, id \\ "a"), do: Context.tool_call_status(context, id)
  defp result(context, id), do: Enum.find(calls(context), &(&1.id == id)).result
  defp calls(context), do: Enum.flat_map(Context.iterations(context), & &1.tool_calls)

  describe "many calls of one answer" do
    # Up to 8 calls are looked for one by one, up to 16 slots lie in one piece of memory.
    test "are answered in any order, at once or one by one, to the same end" do
      check_all("many calls", [runs: 60], fn _ ->
        ids = for number <- 1..between(1, 80), do: "call_#{number}"
        context = asked(Enum.shuffle(ids))
        approved = Enum.filter(ids, fn _ -> chance(50) end)

        context =
          approved
          |> Enum.shuffle()
          |> Enum.reduce(context, &Context.approve_tool_call(&2, &1, by: :ann, at: @at))

        results = for id <- Enum.shuffle(ids), do: {id, {:ok, id <> "!"}}
        {now, later} = Enum.split(results, between(0, length(results)))
        some = Enum.reduce(now, context, &Context.add_tool_results(&2, [&1], at: @at))

        for {id, _} <- results do
          status = if id in approved, do: :approved, else: :pending
          assert status(context, id) == status
          assert status(some, id) == if(List.keymember?(now, id, 0), do: :ok, else: status)
        end

        assert Enum.sort(for call <- Context.pending_tool_calls(some), do: call.id) ==
                 Enum.sort(for {id, _} <- later, do: id)

        for {id, _} <- now, later != [] do
          assert {:tool_call_already_answered, ^id, _} =
                   reason_of(fn -> Context.add_tool_results(some, [{id, {:ok, 1}}]) end)
        end

        for {id, _} <- Enum.take(later, 1) do
          twice = [{id, {:ok, 1}} | later]

          assert {:duplicate_tool_result, ^id} =
                   reason_of(fn -> Context.add_tool_results(some, twice) end)
        end

        all = if later == [], do: some, else: Context.add_tool_results(some, later, at: @at)
        at_once = Context.add_tool_results(context, results, at: @at)
        assert Context.equal?(all, at_once)
        assert Context.dump(all) == Context.dump(at_once)
        assert Context.equal?(Context.load!(Context.dump(some)), some)
        for id <- ids, do: assert(result(all, id) == {:ok, id <> "!"})
      end)
    end
  end

  describe "a call" do
    test "is pending first" do
      assert status(asked()) == :pending
      assert Context.tool_call_decision(asked(), "a") == nil
    end

    test "that nobody made has no status and no decision" do
      for context <- [Context.new("Hi"), asked()] do
        assert status(context, "nobody") == nil
        assert Context.tool_call_decision(context, "nobody") == nil
      end
    end

    test "that is approved still waits for its result" do
      context = Context.approve_tool_call(asked(), "a", by: "ann", at: @at)

      assert status(context) == :approved
      assert [%{id: "a"}] = Context.pending_tool_calls(context)
      assert context.current_iteration == 1
      assert {:error, [{:pending_tool_calls, ["a"]}]} = Context.validate_for_request(context)

      assert Context.get_iteration(context, 1).tool_calls ==
               Context.get_iteration(asked(), 1).tool_calls

      assert Context.to_messages(context) == Context.to_messages(asked())

      assert Context.tool_call_decision(context, "a") ==
               %{decision: :approved, by: "ann", at: @at, reason: nil}
    end

    test "ends as its result says, and keeps who approved it" do
      for {result, status} <- [{{:ok, 1}, :ok}, {{:error, :gone}, :error}] do
        context =
          asked()
          |> Context.approve_tool_call("a", by: :ann)
          |> Context.add_tool_results([{"a", result}])

        assert status(context) == status
        assert %{decision: :approved, by: :ann} = Context.tool_call_decision(context, "a")
        assert context.current_iteration == 2
      end
    end

    test "may run without a decision" do
      context = Context.add_tool_results(asked(), [{"a", {:ok, 1}}])
      assert {status(context), Context.tool_call_decision(context, "a")} == {:ok, nil}
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
        context = Context.deny_tool_call(asked(), "a", reason, by: "ann", at: @at)
        assert status(context) == :denied
        assert result(context, "a") == {:error, text}
        assert context.current_iteration == 2
        assert %{completed_at: @at} = Context.get_iteration(context, 1)

        assert Context.tool_call_decision(context, "a") ==
                 %{decision: :denied, by: "ann", at: @at, reason: reason}

        assert %{content: [%{content: ^text, is_error: true}]} =
                 List.last(Context.to_messages(context))
      end
    end

    test "that is approved and then interrupted or cancelled ends so" do
      for status <- [:interrupted, :cancelled] do
        context =
          asked() |> Context.approve_tool_call("a") |> Context.interrupt("stop", status: status)

        assert status(context) == status
        assert result(context, "a") == {:error, "stop"}
        assert %{decision: :approved} = Context.tool_call_decision(context, "a")
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
    test "is made once" do
      approved = Context.approve_tool_call(asked(), "a")

      assert reason_of(fn -> Context.approve_tool_call(approved, "a") end) ==
               {:illegal_status, "a", :approved, :approved}

      assert reason_of(fn -> Context.deny_tool_call(approved, "a") end) ==
               {:illegal_status, "a", :approved, :denied}
    end

    test "comes before the end" do
      ended = [
        ok: Context.add_tool_results(asked(), [{"a", {:ok, 1}}]),
        error: Context.add_tool_results(asked(), [{"a", {:error, 1}}]),
        denied: Context.deny_tool_call(asked(), "a"),
        interrupted: Context.interrupt(asked()),
        cancelled: Context.interrupt(asked(), "x", status: :cancelled)
      ]

      for {status, context} <- ended do
        assert status(context) == status

        assert reason_of(fn -> Context.approve_tool_call(context, "a") end) ==
                 {:illegal_status, "a", status, :approved}

        assert reason_of(fn -> Context.deny_tool_call(context, "a", "no") end) ==
                 {:illegal_status, "a", status, :denied}
      end
    end

    test "is refused with a message that names both statuses" do
      error =
        assert_refused(fn ->
          asked() |> Context.deny_tool_call("a") |> Context.approve_tool_call("a")
        end)

      assert Exception.message(error) =~ ":denied"
      assert Exception.message(error) =~ ":approved"
      assert Exception.message(error) =~ ~s("a")
    end

    test "about an unknown call names those that wait" do
      for decide <- [&Context.approve_tool_call(&1, "x"), &Context.deny_tool_call(&1, "x")] do
        assert reason_of(fn -> decide.(asked(["a", "b"])) end) ==
                 {:unknown_tool_call, "x", ["a", "b"]}

        assert reason_of(fn -> decide.(Context.new("Hi")) end) == {:unknown_tool_call, "x", []}
      end
    end

    test "is about one of several calls, and the last one completes the iteration" do
      context = Context.deny_tool_call(asked(["a", "b", "c"]), "b")
      assert context.current_iteration == 1
      assert for(id <- ["a", "b", "c"], do: status(context, id)) == [:pending, :denied, :pending]

      assert reason_of(fn -> Context.add_tool_results(context, [{"b", {:ok, 1}}]) end) ==
               {:tool_call_already_answered, "b", ["a", "c"]}

      context = Context.add_tool_results(context, [{"a", {:ok, 1}}])
      assert context.current_iteration == 1
      context = Context.deny_tool_call(context, "c")
      assert context.current_iteration == 2
      assert for(id <- ["a", "b", "c"], do: status(context, id)) == [:ok, :denied, :denied]
      assert :ok = Context.validate_for_request(context)
    end

    test "is about the newest call of an id" do
      context =
        asked()
        |> Context.deny_tool_call("a")
        |> Context.add_assistant_message(nil, [%{id: "a", name: :delete}])

      assert status(context) == :pending
      assert Context.tool_call_decision(context, "a") == nil
      assert context |> Context.approve_tool_call("a") |> status() == :approved
      # The one of long ago is as it was.
      assert [%{result: {:error, "denied"}}, %{result: nil}] = calls(context)
    end

    test "may be anybody's" do
      for by <- [nil, "ann", :ann, 7, {:user, 1}, %{id: 1, name: "Ann"}, <<255>>] do
        context = Context.approve_tool_call(asked(), "a", by: by)
        assert Context.tool_call_decision(context, "a").by === by
      end
    end

    test "is of now unless it is said when" do
      before = DateTime.utc_now()
      %{at: at} = asked() |> Context.approve_tool_call("a") |> Context.tool_call_decision("a")
      assert DateTime.diff(at, before) in 0..5
      assert_caller_bug(fn -> Context.approve_tool_call(asked(), "a", at: "now") end)
      assert_caller_bug(fn -> Context.approve_tool_call(asked(), :a) end)
      assert_caller_bug(fn -> Context.deny_tool_call(asked(), "a", nil, unknown: 1) end)
    end

    test "does not change the context it was made on" do
      context = asked()
      before = Context.dump(context)
      Context.approve_tool_call(context, "a")
      Context.deny_tool_call(context, "a")
      assert Context.dump(context) == before
      assert status(context) == :pending
    end

    test "does not reach providers but for the result of a denial" do
      plain = asked() |> Context.add_tool_results([{"a", {:ok, "done"}}], at: @at)

      approved =
        asked()
        |> Context.approve_tool_call("a", by: "SECRET", at: @at)
        |> Context.add_tool_results([{"a", {:ok, "done"}}], at: @at)

      for provider <- AshAgent.TestSupport.RequestChecker.providers() do
        assert Context.request!(approved, provider) == Context.request!(plain, provider)
        denied = asked() |> Context.deny_tool_call("a", "policy", by: "SECRET")
        body = denied |> Context.encode_request!(provider) |> IO.iodata_to_binary()
        assert body =~ "denied: policy"
        refute body =~ "SECRET"
      end
    end

    test "is gone when the conversation is rewound to before its call" do
      context =
        asked() |> Context.approve_tool_call("a") |> Context.add_tool_results([{"a", {:ok, 1}}])

      context = context |> Context.add_assistant_message(nil, [%{id: "b", name: :x}])
      context = context |> Context.deny_tool_call("b") |> Context.rewind(to: 1)
      assert status(context, "b") == nil
      assert %{decision: :approved} = Context.tool_call_decision(context, "a")
    end
  end

  describe "the arguments that would run" do
    defp asked_about(arguments),
      do: Context.ask_about_tool_call(asked(), "a", arguments, at: @at)

    defp copies(context) do
      copies = [
        Context.load!(Context.dump(context)),
        Context.from_snapshot!(Context.to_snapshot(context))
      ]

      for copy <- copies, do: assert(Context.equal?(copy, context))
      [context | copies]
    end

    test "are shown to whoever decides, and the call stays as the model wrote it" do
      for context <- copies(asked_about(%{path: "/srv"})) do
        assert Context.undecided_tool_calls(context) == [
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

    test "are those that an approval holds for" do
      for context <- copies(asked_about(%{path: "/srv"})) do
        context = Context.approve_tool_call(context, "a", by: "ann", at: @at)

        for context <- copies(context) do
          assert Context.tool_call_approved?(context, "a", %{path: "/srv"})
          refute Context.tool_call_approved?(context, "a", %{"path" => "/srv"})
          refute Context.tool_call_approved?(context, "a", %{})
          assert Context.undecided_tool_calls(context) == []

          assert Context.tool_call_decision(context, "a") == %{
                   decision: :approved,
                   by: "ann",
                   at: @at,
                   reason: nil,
                   arguments: %{path: "/srv"}
                 }
        end
      end
    end

    test "that somebody has seen are those that would run, or nothing is approved" do
      for context <- copies(asked_about(%{"to" => ["ann", "bob"], n: 2})) do
        approve = &Context.approve_tool_call(context, "a", by: "ann", arguments: &1)
        assert status(approve.(%{"to" => ["ann", "bob"], n: 2})) == :approved

        # What a form or an old page made of them: another value, type, length, key or kind of key.
        for {seen, paths} <- [
              {%{"to" => ["ann", "eve"], n: 2}, [["to", 1]]},
              {%{"to" => ["ann", "bob"], n: 2.0}, [[:n]]},
              {%{"to" => ["ann"], n: 2}, [["to", 1]]},
              {%{"to" => "ann, bob", n: 2}, [["to"]]},
              {%{"to" => ["ann", "bob"], "n" => 2}, [[:n], ["n"]]},
              {%{}, [[:n], ["to"]]}
            ] do
          assert reason_of(fn -> approve.(seen) end) == {:other_arguments, "a", paths}
        end

        assert status(context) == :pending
      end
    end

    test "that differ are named by their places, without their values" do
      context = asked_about(%{"to" => "SECRET", "cc" => ["SECRET"]})

      error =
        assert_raise Context.Error, fn ->
          Context.approve_tool_call(context, "a", arguments: %{"to" => "HIDDEN", "cc" => []})
        end

      assert Exception.message(error) ==
               "the arguments that were given for the tool call \"a\" are not those that it would run with, so it was not " <>
                 "approved: they differ at [\"cc\", 0], [\"to\"]. Show those of AshAgent.Context.Calls.undecided_tool_calls/1, and give these, or " <>
                 "deny the call"
    end

    test "stay with a denial" do
      context = Context.deny_tool_call(asked_about(%{n: 2}), "a")
      assert %{decision: :denied, arguments: %{n: 2}} = Context.tool_call_decision(context, "a")
      refute Context.tool_call_approved?(context, "a", %{n: 2})
    end

    test "are the call's own when nothing else is said" do
      assert [%{id: "a"}, %{id: "b"}] = Context.undecided_tool_calls(asked(["a", "b"]))
      refute Context.tool_call_approved?(asked(), "a", %{})
      approved = Context.approve_tool_call(asked(), "a")
      assert Context.tool_call_approved?(approved, "a", %{})
      refute Context.tool_call_approved?(approved, "a", %{n: 1})
      assert Context.undecided_tool_calls(Context.new("Hi")) == []

      assert Context.equal?(
               asked_about(%{}),
               Context.ask_about_tool_call(asked_about(%{n: 1}), "a", %{}, at: @at)
             )

      refute Context.equal?(asked_about(%{}), asked())
      assert Context.equal?(asked_about(nil), asked_about(%{}))
    end

    test "are asked about until there is a decision or a result, and the call is as before meanwhile" do
      for context <- copies(asked_about(nil)) ++ [Context.fork(asked_about(nil))] do
        assert [%{id: "a"}] = Context.asked_tool_calls(context)
        assert Context.get_iteration(context, 1) == Context.get_iteration(asked(), 1)
        assert status(context) == :pending
        assert Context.tool_call_decision(context, "a") == nil

        for ended <- [
              Context.approve_tool_call(context, "a"),
              Context.deny_tool_call(context, "a"),
              Context.interrupt(context),
              Context.interrupt(context, "stop", status: :cancelled),
              Context.add_tool_results(context, [{"a", {:ok, 1}}])
            ],
            do: assert(Context.asked_tool_calls(ended) == [])
      end

      assert Context.asked_tool_calls(asked()) == []
      assert Context.asked_tool_calls(Context.new("Hi")) == []
    end

    test "that are changed in a stored document are not what was approved" do
      path = ["iterations", Access.at(0), "messages", Access.at(1), "tool_calls", Access.at(0)]
      approved = Context.dump(Context.approve_tool_call(asked(), "a", by: "ann"))
      changed = approved |> put_in(path ++ ["arguments"], %{"path" => "/"}) |> Context.load!()
      assert status(changed) == :approved
      refute Context.tool_call_approved?(changed, "a", %{"path" => "/"})

      changed = approved |> put_in(path ++ ["name"], "wipe") |> Context.load!()
      refute Context.tool_call_approved?(changed, "a", %{})

      # What was approved before digests were kept holds for the call as it is.
      old =
        approved |> update_in(path ++ ["decision"], &Map.delete(&1, "digest")) |> Context.load!()

      assert Context.tool_call_approved?(old, "a", %{})
      refute Context.tool_call_approved?(old, "a", %{n: 1})

      for wrong <- [5, [], %{"$atom" => "x"}] do
        document = put_in(approved, path ++ ["decision", "digest"], wrong)
        assert {:error, %{reason: {:invalid, _, _}}} = Context.load(document)
      end
    end

    test "can be noted for a pending call only" do
      approved = Context.approve_tool_call(asked(), "a")
      ask = &Context.ask_about_tool_call(&1, "a", %{n: 1})
      assert reason_of(fn -> ask.(approved) end) == {:illegal_status, "a", :approved, :asked}

      assert reason_of(fn -> ask.(Context.deny_tool_call(asked(), "a")) end) ==
               {:illegal_status, "a", :denied, :asked}

      assert reason_of(fn -> ask.(Context.new("Hi")) end) == {:unknown_tool_call, "a", []}

      for wrong <- [
            fn -> Context.ask_about_tool_call(asked(), "a", "{}") end,
            fn -> Context.ask_about_tool_call(asked(), "a", %{}, by: 1) end,
            fn -> Context.approve_tool_call(asked(), "a", arguments: "{}") end,
            fn -> Context.tool_call_approved?(asked(), "a", nil) end
          ],
          do: assert_caller_bug(wrong)

      assert {:unsupported_term, :improper_list, _} =
               reason_of(fn -> Context.ask_about_tool_call(asked(), "a", %{a: [1 | 2]}) end)
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
              Context.from_snapshot!(Context.to_snapshot(context))
            ] do
          assert Context.equal?(copy, context)

          for id <- ids do
            assert status(copy, id) == status(context, id)
            assert Context.tool_call_decision(copy, id) == Context.tool_call_decision(context, id)
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
              {Context.undecided_tool_calls(context), [:pending, :asked]},
              {Context.asked_tool_calls(context), [:asked]}
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
          assert Context.tool_call_approved?(context, id, given) == approved?
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
                 reason_of(fn -> Context.ask_about_tool_call(context, id, arguments) end)

        {context, model}

      {{_, asked}, :ask} ->
        arguments = one_of([arguments, nil])

        {Context.ask_about_tool_call(context, id, arguments),
         %{model | id => {:asked, arguments || asked}}}

      {{_, asked}, :approve} ->
        {Context.approve_tool_call(context, id), %{model | id => {:approved, asked}}}

      {{_, ^arguments}, :approve_seen} ->
        context = Context.approve_tool_call(context, id, arguments: arguments)
        {context, %{model | id => {:approved, arguments}}}

      {_, :approve_seen} ->
        assert {:other_arguments, ^id, _} =
                 reason_of(fn ->
                   Context.approve_tool_call(context, id, arguments: arguments)
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
        do: Context.approve_tool_call(context, id, by: "ann"),
        else: Context.deny_tool_call(context, id, "no", by: "ann")
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
    approved = Enum.reduce(ids, asked, &Context.approve_tool_call(&2, &1))
    answered = Enum.reduce(ids, approved, &Context.add_tool_results(&2, [{&1, {:ok, 1}}]))
    assert answered.current_iteration == 2
  end
end
