defmodule AshAgent.Runtime.OutputTest do
  # Typed answers of runs: how they are asked for, read, asked for again, and what they are beside tools and pauses.
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Runs, only: [drain: 1, prompt: 2, results: 1, results: 2]

  alias AshAgent.{Context, LLM, Output, Response, Runtime, Session, Store}
  alias AshAgent.LLM.Scripted
  alias AshAgent.TestSupport.StreamModel

  @output [city: :string, people: [type: :integer, minimum: 1]]
  @ulm %{city: "Ulm", people: 127_000}
  @json %{"city" => "Ulm", "people" => 127_000}
  @text ~s({"city": "Ulm", "people": 127000})

  defp submit(arguments, id \\ "answer_1"),
    do: %{id: id, name: "submit_answer", arguments: arguments}

  defp run(answers, opts) do
    llm = Scripted.new(answers)
    reply = prompt("Where?", Keyword.merge([llm: llm, output: @output], opts))
    {reply, Scripted.requests(llm)}
  end

  describe "modes" do
    test "a model with tools is offered one for the answer, and may answer in text all the same" do
      {{:ok, result}, [%{opts: opts}]} = run([%{tool_calls: [submit(@json)]}], [])
      assert {result.output, result.status, result.output_mode} == {@ulm, :answered, :tool}
      assert [%{name: "submit_answer", parameters: schema}] = opts[:tools]
      assert schema == Output.new(@output).schema
      assert result.output_note =~ "needs a client"

      {{:ok, result}, _requests} = run(["```json\n#{@text}\n```"], [])
      assert {result.output, Enum.map(result.repairs, & &1.kind)} == {@ulm, [:prose]}
      # The text stays in the conversation.
      assert [_question, %{content: "```json" <> _}] = Context.to_messages(result.context)
    end

    test "text tells the schema in the system prompt of the request alone" do
      {{:ok, result}, [%{context: asked, opts: opts}]} = run([@text], output_mode: :text)
      assert result.output == @ulm
      assert Context.system_prompt(asked) =~ ~s("people")
      assert Context.system_prompt(result.context) == nil
      assert opts[:tools] == []
    end

    test "a function of one argument gets no tools" do
      llm = fn context ->
        assert Context.system_prompt(context) =~ "JSON Schema"
        {:ok, %{content: @text}}
      end

      assert {:ok, %{output: @ulm, output_mode: :text}} =
               prompt("Where?", llm: llm, output: @output)
    end

    test "a call of the tool counts, also where the model was not offered it" do
      llm = fn _context -> {:ok, %{tool_calls: [submit(@json)]}} end
      assert {:ok, %{output: @ulm}} = prompt("Where?", llm: llm, output: @output)
    end

    test "what cannot be native is an error if it has to be" do
      words = ~r/cannot be asked for with output_mode: :native: it needs a client/
      assert_raise ArgumentError, words, fn -> run([], output_mode: :native) end

      assert_raise ArgumentError, ~r/has a tool submit_answer of its own/, fn ->
        run([], tools: %{submit_answer: fn _ -> :ok end})
      end

      assert_raise ArgumentError, ~r/expected a type of an output/, fn ->
        prompt("Hi", llm: Scripted.new([]), output: {:nothing})
      end
    end
  end

  describe "asking again" do
    test "tells the model what is wrong, and counts what it costs" do
      again = fn context ->
        assert %{role: :user, content: words, metadata: %{output_retry: 1}} =
                 context |> Context.to_messages() |> List.last()

        assert words =~ "- /people: expected at least 1"
        @text
      end

      usage = %{input_tokens: 10, output_tokens: 5}
      bad = %{content: ~s({"city": "Ulm", "people": 0}), usage: usage}
      {{:ok, result}, requests} = run([bad, again], output_mode: :text)
      assert {result.output, result.iterations, length(requests)} == {@ulm, 2, 2}
      assert %{input_tokens: 10, output_tokens: 5} = result.usage
      assert Context.get_iteration(result.context, 2).messages |> length() == 2
    end

    test "ends with the last error, with the value as far as it came" do
      bad = ~s({"city": "Ulm"})
      {{:error, error}, requests} = run([bad, bad, bad, @text], output_mode: :text)

      assert {:invalid_output, %Output.Error{lines: [line], value: %{"city" => "Ulm"}}} =
               error.reason

      assert line == "/people: is missing: expected an integer"
      assert length(requests) == 3
      assert Exception.message(error) =~ line

      {{:error, %{reason: {:invalid_output, _}}}, requests} =
        run([bad, @text], output_mode: :text, max_retries: 0)

      assert length(requests) == 1
    end

    test "by a tool, the result of the call says what is wrong" do
      bad = %{tool_calls: [submit(%{"city" => "Ulm"})]}
      good = %{tool_calls: [submit(@json, "answer_2")]}
      {{:ok, result}, _requests} = run([bad, good], [])
      assert result.output == @ulm
      assert [{:error, words}] = results(result.context)
      assert words =~ "/people: is missing"
      assert [{:ok, "accepted"}] = results(result.context, 2)

      {{:error, error}, requests} = run([bad, bad, bad, good], [])
      assert {:invalid_output, _} = error.reason
      assert length(requests) == 3
    end

    test "not after the token limit or a refusal, which are told as such" do
      cut = %{content: ~s({"city": "Ulm", "peo), finish_reason: :length}
      {{:error, error}, [_]} = run([cut], output_mode: :text)
      assert {:output_cut, %Output.Error{reason: :cut, value: %{city: "Ulm"}}} = error.reason

      refused = %{content: "I will not say.", finish_reason: :refusal}
      {{:error, error}, [_]} = run([refused], output_mode: :text)
      assert error.reason == {:refused, "I will not say."}

      for reason <- [:refusal, :content_filter], mode <- [:text, :tool] do
        {{:error, error}, [_]} =
          run([%{content: @text, finish_reason: reason}], output_mode: mode)

        assert error.reason == {:refused, @text}
      end
    end

    test "where a second answer is cut, which the first one is not instead of" do
      text = ~s({"city": "Bonn", "people": 1} Wait: {"ci)
      call = %{tool_calls: [submit(text)]}

      for {begun, mode} <- [{%{content: text}, :text}, {call, :tool}] do
        cut = Map.put(begun, :finish_reason, :length)
        {{:error, error}, [_]} = run([cut, @text], output_mode: mode)
        assert {:output_cut, %Output.Error{reason: :cut}} = error.reason

        {{:ok, result}, [_, _]} = run([begun, @text], output_mode: mode)
        assert result.output == @ulm
      end
    end

    test "where a part of what is not JSON would fit" do
      spec = [name: :string, customer: [type: [name: :string], required: false]]
      broken = ~s({“name”: "order 7", "customer": {"name": "Ann"}})
      whole = ~s({"name": "order 7", "customer": {"name": "Ann"}})
      call = %{tool_calls: [submit(broken)]}

      for {begun, mode} <- [{broken, :text}, {call, :tool}] do
        {{:ok, result}, [_, _]} = run([begun, whole], output: spec, output_mode: mode)
        assert result.output == %{name: "order 7", customer: %{name: "Ann"}}
      end
    end

    test "by a call that the token limit cut is not made again" do
      call = %{id: "c1", name: "submit_answer", arguments: ~s({"city": "Ulm", "peo)}

      for cut <- [
            %{tool_calls: [call], finish_reason: :length},
            %{tool_calls: [call, call("lookup")], finish_reason: :length}
          ] do
        {{:error, error}, requests} = run([cut, @text], tools: %{lookup: fn _ -> {:ok, "x"} end})
        assert length(requests) == 1
        assert {:output_cut, %Output.Error{reason: :cut, value: %{city: "Ulm"}}} = error.reason
        assert Context.pending_tool_calls(error.context) == []
      end
    end

    defp call(name), do: %{id: name, name: name, arguments: %{}}

    test "is hidden by the view, where that is asked for, and stays in the log" do
      bad = ~s({"city": "Ulm"})

      for {answers, mode} <- [
            {[bad, bad, @text], :text},
            {[
               %{tool_calls: [submit(%{"city" => "Ulm"})]},
               %{tool_calls: [call("lookup")]},
               @text
             ], :tool, 5}
          ] do
        opts = [output_mode: mode, hide_retries: true, tools: %{lookup: fn _ -> {:ok, "x"} end}]
        {{:ok, result}, requests} = run(answers, opts)
        assert {result.output, result.iterations, length(requests)} == {@ulm, 3, 3}
        shown = Context.to_messages(result.context)
        assert %{role: :user, content: "Where?"} = hd(shown)
        assert %{role: :assistant, content: @text} = List.last(shown)
        # What other tools found stays.
        assert length(shown) == if(mode == :tool, do: 4, else: 2)
        assert result.context |> Context.View.expand(:all) |> Context.count_messages() == 6
        assert Context.Tokens.get_cumulative_tokens(result.context) != nil

        next = result.context |> Context.to_snapshot() |> Context.load!()

        assert {:ok, %{output: @ulm, iterations: 1}} =
                 next
                 |> Context.add_user_message("Again!")
                 |> Runtime.run(llm: Scripted.new([@text]), output: @output, hide_retries: true)
      end

      # Without attempts that fail there is nothing to hide, and every attempt has its iteration.
      {{:ok, result}, _requests} = run([@text], output_mode: :text, hide_retries: true)
      assert %{hidden: []} = Context.View.view(result.context)
    end

    test "a turn with attempts that is resumed hides those before, too" do
      first = %{tool_calls: [%{id: "a", name: "lookup", arguments: %{}}]}

      opts = [tools: %{lookup: &lookup/1}, approval: fn _, _ -> :ask end]
      opts = [output_mode: :text, hide_retries: true] ++ opts
      {{:paused, paused}, _} = run([~s({"city": "Ulm"}), first], opts)
      context = Context.Calls.approve_tool_call(paused.context, "a")
      llm = Scripted.new([@text])

      assert {:ok, %{output: @ulm} = result} =
               Runtime.resume(context, [llm: llm, output: @output] ++ opts)

      assert [%{content: "Where?"}, %{tool_calls: [_]}, _results, %{content: @text}] =
               Context.to_messages(result.context)
    end

    test "attempts count over all runs of a turn, wherever one was cut, fresh and reloaded" do
      bad = %{
        text: ~s({"city": "Ulm"}),
        tool: %{tool_calls: [%{id: "x", name: "submit_answer", arguments: %{"city" => "Ulm"}}]}
      }

      usage = %{input_tokens: 100, output_tokens: 0}
      prices = [%{model: :any, input: 1, output: 1}]

      for mode <- [:text, :tool],
          hide? <- [false, true],
          reload? <- [false, true],
          most <- [0, 2] do
        me = self()
        bad = if mode == :text, do: %{content: bad.text}, else: bad.tool
        answer = LLM.Scripted.new(fn _ -> send(me, :answered) && Map.put(bad, :usage, usage) end)

        opts = [
          llm: answer,
          output: @output,
          output_mode: mode,
          hide_retries: hide?,
          max_retries: most
        ]

        opts = [prices: prices, max_iterations: 50] ++ opts
        answers = &length(drain(do: (:answered when &1 -> 1)))

        # Each run ends with its second change, until one has an end of its own.
        cut = fn cut, context, cost when cost < 1_000 ->
          changes = :counters.new(1, [])

          on_change = fn _ ->
            :counters.add(changes, 1, 1)
            if :counters.get(changes, 1) == 2, do: {:error, :down}, else: :ok
          end

          {:error, error} = Runtime.run(context, [on_change: on_change] ++ opts)

          context =
            if reload?, do: Context.load!(Context.to_snapshot(error.context)), else: error.context

          if match?({:on_change_error, _}, error.reason),
            do: cut.(cut, context, cost + error.cost),
            else: {error, context, cost + error.cost}
        end

        {error, context, cost} = cut.(cut, Context.new("Where?"), 0)
        assert {mode, hide?, elem(error.reason, 0)} == {mode, hide?, :invalid_output}
        assert {mode, hide?, reload?, answers.(true)} == {mode, hide?, reload?, most + 1}
        assert Exception.message(error) =~ "a greater :max_retries"

        # Running again asks nothing, with a greater limit it does. All of it counts for the turn.
        assert {:error, %{reason: {:invalid_output, _}}} = Runtime.run(context, opts)
        assert answers.(true) == 0
        assert cost == (most + 1) * 100
        bound = [max_cost: cost, max_retries: most + 1]

        assert {:error, %{reason: {:max_cost_exceeded, ^cost}}} =
                 Runtime.run(context, Keyword.merge(opts, bound))

        bound = [max_cost: cost + 1, max_retries: most + 1]

        assert {:error, %{reason: {:invalid_output, _}}} =
                 Runtime.run(context, Keyword.merge(opts, bound))

        assert answers.(true) == 1

        # What the user says next is another turn.
        context = Context.add_user_message(context, "Again!")
        assert {:error, %{reason: {:invalid_output, _}}} = Runtime.run(context, opts)
        assert answers.(true) == most + 1
      end
    end

    test "a cast that raises is one that does not fit, and is logged without the value" do
      type =
        {%{type: "object", properties: %{n: %{type: "integer"}}, required: ["n"]},
         cast: fn %{"n" => n} -> {:ok, div(10, n)} end}

      llm = Scripted.new([~s({"n": 0}), ~s({"n": 5})])

      log =
        ExUnit.CaptureLog.capture_log(fn ->
          assert {:ok, %{output: 2}} = prompt("Hi", llm: llm, output: type, output_mode: :text)
        end)

      assert log =~ "the cast of :output"
    end
  end

  describe "beside tools" do
    defp lookup(_arguments), do: {:ok, "found"}

    test "the others of the same message run, and the run ends" do
      me = self()
      tools = %{note: fn _ -> send(me, :noted) && {:ok, "noted"} end}

      calls = [submit(@json), %{id: "b", name: "note", arguments: %{}}]
      {{:ok, result}, [_]} = run([%{tool_calls: calls}], tools: tools)
      assert result.output == @ulm
      assert_received :noted

      assert [{:ok, "accepted"}, {:ok, "noted"}] = results(result.context)
    end

    test "permissions and approval decide about the others, not about the answer" do
      calls = [submit(@json), %{id: "b", name: "lookup", arguments: %{}}]
      opts = [tools: %{lookup: &lookup/1}, allowed_tools: ["lookup"]]
      opts = [approval: fn %{name: "lookup"}, _ -> :ask end] ++ opts
      {{:paused, paused}, _requests} = run([%{tool_calls: calls}], opts)
      assert [%{id: "b"}] = paused.calls
      context = Context.Calls.deny_tool_call(paused.context, "b", "no")

      # Without its type, nobody goes on.
      llm = Scripted.new([])

      assert {:error, %{reason: {:missing_option, :output}} = error} =
               Runtime.resume(paused.context, [llm: llm] ++ opts)

      assert Exception.message(error) =~ "Pass the same :output again"

      assert {:ok, %{output: @ulm}} = Runtime.resume(context, [llm: llm, output: @output] ++ opts)
    end

    test "a run goes on after a pause, and its answer is typed" do
      first = %{tool_calls: [%{id: "a", name: "lookup", arguments: %{}}]}
      opts = [tools: %{lookup: &lookup/1}, approval: fn _, _ -> :ask end, output_mode: :text]
      {{:paused, paused}, _} = run([first], opts)

      context =
        paused.context
        |> Context.to_snapshot()
        |> Context.load!()
        |> Context.Calls.approve_tool_call("a")

      assert {:error, %{reason: {:missing_option, :output}}} =
               Runtime.resume(
                 context,
                 [llm: Scripted.new([])] ++ Keyword.delete(opts, :output_mode)
               )

      assert {:ok, %{output: @ulm}} =
               Runtime.resume(context, [llm: Scripted.new([@text]), output: @output] ++ opts)
    end

    @tag :capture_log
    test "a run that is killed before it asks again goes on from its store, with its type" do
      {:ok, store} = Store.SQLite.open(":memory:")
      {:ok, kept} = Store.create(store, Context.new("Where?", id: "c"), owner: "a")
      test = self()

      # It never hears the model's second answer.
      model = fn context ->
        if retry?(context) do
          send(test, :asked_again)
          Process.sleep(:infinity)
        else
          {:ok, %{content: ~s({"city": "Ulm"})}}
        end
      end

      opts = [output: @output, output_mode: :text]

      {:ok, runner} =
        Task.start(fn ->
          Runtime.run(kept.value, [llm: model, store: store, kept: kept] ++ opts)
        end)

      assert_receive :asked_again, 5_000
      Process.exit(runner, :kill)

      {:ok, kept} = Store.claim(store, "c", owner: "a", reclaim: true)
      untyped = [llm: Scripted.new([]), store: store, kept: kept]

      assert {:error, %{reason: {:missing_option, :output}}} = Runtime.run(kept.value, untyped)
      llm = Scripted.new([@text])

      assert {:ok, %{output: @ulm} = result} =
               Runtime.run(kept.value, [llm: llm, store: store, kept: kept] ++ opts)

      [%{context: asked}] = Scripted.requests(llm)
      assert asked |> Context.to_messages() |> List.last() |> Response.text() =~ "people"
      {:ok, stored} = Store.fetch(store, "c")
      assert Context.equal?(stored.value, result.context)
    end

    defp retry?(context),
      do: match?(%{metadata: %{output_retry: 1}}, List.last(Context.to_messages(context)))

    @tag :capture_log
    test "a run that was cut short in its first request goes on with its type only, wherever it was kept" do
      for way <- [:cut, :failed] do
        {:ok, store} = Store.SQLite.open(":memory:")
        {:ok, kept} = Store.create(store, Context.new("Where?", id: "c"), owner: "a")
        opts = [output: @output, output_mode: :text]
        changed = first_request(way, kept.value, [store: store, kept: kept] ++ opts)
        {:ok, kept} = Store.claim(store, "c", owner: "a", reclaim: true)

        for {context, own} <- [
              {kept.value, [store: store, kept: kept]},
              {changed, []},
              {changed |> Context.to_snapshot() |> Context.load!(), []},
              {Context.fork(changed), []}
            ] do
          assert {:error, %{reason: {:missing_option, :output}} = error} =
                   Runtime.run(context, [llm: Scripted.new([])] ++ own)

          assert Context.equal?(error.context, context)

          # Another message may ask for something else.
          again = Context.add_user_message(context, "In words, please")
          assert {:ok, %{output: "Ulm"}} = Runtime.run(again, llm: Scripted.new(["Ulm"]))

          assert {:ok, %{output: @ulm}} =
                   Runtime.run(context, [llm: Scripted.new([@text])] ++ own ++ opts)
        end
      end
    end

    test "a session without its type parks such a turn, with what waits behind it, and one with it goes on" do
      {:ok, store} = Store.SQLite.open(":memory:")
      {:ok, kept} = Store.create(store, Context.new("Where?", id: "c"), owner: "a")
      opts = [output: @output, output_mode: :text]
      first_request(:cut, kept.value, [store: store, kept: kept] ++ opts)
      {:ok, kept} = Store.claim(store, "c", owner: "a", reclaim: true)
      {:ok, _id} = Store.enqueue(store, kept, "And when?", kind: :prompt)
      {:ok, _kept} = Store.release(store, kept, status: :running)
      session = [id: "c", store: store]

      log =
        ExUnit.CaptureLog.capture_log(fn ->
          untyped = start_supervised!({Session, [llm: Scripted.new([])] ++ session}, id: :untyped)
          assert AshAgent.TestSupport.Wait.until(fn -> Session.status(untyped) == :parked end)
          assert {:error, %{reason: {:missing_option, :output}}} = Session.resume(untyped)
          assert Session.status(untyped) == :parked
          stop_supervised(:untyped)
        end)

      assert log =~ ~s(conversation "c" is parked: its turn was begun with :output)
      {:ok, history} = Store.history(store, "c")

      assert %{parked: %{reason: :missing_option, option: :output}} =
               Enum.find_value(history, &(&1.note[:parked] && &1.note))

      assert {:ok, [%{input: "And when?"}]} = Store.waiting(store, "c")
      typed = [llm: Scripted.new([@text, @text])] ++ opts
      session = start_supervised!({Session, typed ++ session}, id: :typed)
      assert {:ok, %{output: @ulm}} = Session.resume(session)
    end

    test "so does a turn to which somebody added a message" do
      test = self()

      llm = fn _context ->
        send(test, {:asked, self()})
        receive do: (:go -> {:ok, %{tool_calls: [%{id: "a", name: "lookup"}]}})
      end

      opts = [llm: llm, tools: %{lookup: &lookup/1}, output: @output, output_mode: :text]
      session = start_supervised!({Session, [on_change: &send(test, {:changed, &1})] ++ opts})
      {:ok, _ref} = Session.prompt_async(session, "Where?")
      assert_receive {:asked, model}
      :ok = Session.steer(session, "Quick!")
      send(model, :go)
      assert_receive {:asked, _model}, 5_000
      :ok = stop_supervised(Session)

      context = last_changed(nil)
      assert [%{role: :user, content: "Quick!"}] = Context.get_iteration_messages(context, 2)

      assert {:error, %{reason: {:missing_option, :output}}} =
               Runtime.resume(context, llm: Scripted.new([]))
    end

    # Returns the last context that the application was given.
    defp first_request(way, context, opts) do
      test = self()

      llm = fn _context ->
        if way == :failed,
          do: {:error, :down},
          else: send(test, :asked) && Process.sleep(:infinity)
      end

      opts = [llm: llm, on_change: &send(test, {:changed, &1})] ++ opts
      {runner, monitor} = spawn_monitor(fn -> Runtime.run(context, opts) end)
      if way == :cut, do: assert_receive(:asked, 5_000) && Process.exit(runner, :kill)
      assert_receive {:DOWN, ^monitor, :process, ^runner, _reason}, 5_000
      last_changed(nil)
    end

    defp last_changed(last) do
      receive do
        {:changed, context} -> last_changed(context)
      after
        0 -> last
      end
    end

    test "a run that ends with the answer has it again when it is run again, and another message is another turn" do
      {{:ok, result}, _} = run([%{tool_calls: [submit(@json)]}], [])

      assert {:ok, %{output: @ulm, iterations: 0}} =
               Runtime.run(result.context, llm: Scripted.new([]), output: @output)

      next = Context.add_user_message(result.context, "And now?")
      assert {:ok, %{output: "Nothing."}} = Runtime.run(next, llm: Scripted.new(["Nothing."]))
    end

    test "sub-agents have types of their own" do
      child =
        Runtime.SubAgent.tool(
          name: "find",
          llm: Scripted.new([@text]),
          output: @output,
          output_mode: :text
        )

      call = %{tool_calls: [%{id: "a", name: "find", arguments: %{"task" => "Where?"}}]}
      llm = Scripted.new([call, "It is Ulm."])

      assert {:ok, %{output: "It is Ulm.", context: context}} =
               prompt("Where?", llm: llm, tools: [child])

      assert [{:ok, @ulm}] = results(context)
    end

    test "a tool's result is of its type before the model reads it" do
      tools = %{
        right: %{function: fn _ -> {:ok, %{city: "Ulm", people: 1}} end, returns: @output},
        wrong: %{function: fn _ -> {:ok, %{city: "secret"}} end, returns: @output}
      }

      calls = for name <- ["right", "wrong"], do: %{id: name, name: name, arguments: %{}}
      llm = Scripted.new([%{tool_calls: calls}, "Done."])
      assert {:ok, %{context: context}} = prompt("Hi", llm: llm, tools: tools)

      assert [{:ok, %{city: "Ulm"}}, {:error, words}] = results(context)

      assert words =~ "/people: is missing"
      refute words =~ "secret"
    end
  end

  describe "streams" do
    defp changes(opts) do
      me = self()

      on_event = fn
        [_, _, :llm, :partial], _, %{changes: changes, value: value} ->
          send(me, {:partial, changes, value.()})

        _, _, _ ->
          :ok
      end

      assert {:ok, result} = prompt("Where?", [on_event: on_event, output: @output] ++ opts)

      {result, received()}
    end

    defp received, do: drain(do: ({:partial, _changes, _value} = partial -> partial))

    defp put_together(changes) do
      Enum.reduce(changes, nil, fn
        {:attempt, _number}, _value -> nil
        {:partial, [], {:value, value}}, nil -> value
        {:partial, [key], {:text, text}}, value -> Map.update(value, key, text, &(&1 <> text))
        {:partial, [key], {:value, json}}, value -> Map.put(value, key, json)
      end)
    end

    test "tell what came, and begin anew with each attempt" do
      bad = ~s(Here: {"city": "New Ulm on the Danube", "people": 0})
      good = ~s({"city": "Ulm on the Danube", "people": 127000})
      {result, partials} = changes(llm: Scripted.new([bad, good]), output_mode: :text)
      assert result.output == %{city: "Ulm on the Danube", people: 127_000}
      all = for {:partial, changes, _value} <- partials, change <- changes, do: change
      assert for({:attempt, number} <- all, do: number) == [1, 2]
      assert put_together(all) == %{"city" => "Ulm on the Danube", "people" => 127_000}
      values = for {:partial, _changes, {:ok, value}} <- partials, do: value
      assert %{city: "New "} in values
      assert List.last(values) == result.output
    end

    test "follow the arguments of the tool" do
      call = submit(%{"city" => "Ulm on the Danube", "people" => 127_000})
      {result, partials} = changes(llm: Scripted.new([%{tool_calls: [call]}]))
      all = for {:partial, changes, _value} <- partials, change <- changes, do: change
      assert put_together(all) == %{"city" => "Ulm on the Danube", "people" => 127_000}
      assert result.output.people == 127_000
    end

    test "follow a call that comes whole" do
      part = %{functionCall: %{name: "submit_answer", args: %{city: "Ulm", people: 127_000}}}
      candidate = %{content: %{role: "model", parts: [part]}, finishReason: "STOP"}
      json = Context.JSON.encode(%{candidates: [candidate]})

      llm =
        StreamModel.new(:gemini, fn _context, feed ->
          {:ok, response, []} = Response.finish(feed.("data: #{json}\n\n"))
          {:ok, response}
        end)

      {result, partials} = changes(llm: llm, output_mode: :tool)
      assert result.output == @ulm
      all = for {:partial, changes, _value} <- partials, change <- changes, do: change
      assert put_together(all) == %{"city" => "Ulm", "people" => 127_000}
    end

    test "the whole value comes with the first change, and later although no piece brings it" do
      test = self()

      llm =
        StreamModel.new(fn _context, feed ->
          send(test, {:model, self()})
          feed.(StreamModel.text(~s({"city": "New)))
          feed.(StreamModel.text(" Ulm"))
          receive do: (:go_on -> :ok)
          feed.(StreamModel.text(~s(", "people": 127000)))
          {:ok, feed.(StreamModel.text("}") <> StreamModel.finish())}
        end)

      on_event = fn
        [_, _, :llm, :value], _, %{attempt: 1, value: value} -> send(test, {:value, value.()})
        _, _, _ -> :ok
      end

      opts = [llm: llm, output: @output, output_mode: :text, on_event: on_event]
      run = Task.async(fn -> prompt("Where?", opts) end)
      assert_receive {:model, model}, 60_000
      assert_receive {:value, {:ok, %{city: "New"} = value}} when map_size(value) == 1, 60_000
      assert_receive {:value, {:ok, %{city: "New Ulm"} = value}} when map_size(value) == 1, 60_000
      send(model, :go_on)
      assert {:ok, %{output: output}} = Task.await(run, 60_000)
      assert output == %{city: "New Ulm", people: 127_000}
      assert {:ok, output} == List.last(drain(do: ({:value, value} -> value)))
    end

    test "the whole value comes less often than pieces" do
      me = self()

      on_event = fn
        [_, _, :llm, name], _, _ when name in [:partial, :value] -> send(me, name)
        _, _, _ -> :ok
      end

      text = ~s({"city": "#{String.duplicate("Ulm ", 2_000)}", "people": 1})
      opts = [llm: Scripted.new([text]), output: @output, output_mode: :text, on_event: on_event]
      start = System.monotonic_time(:millisecond)
      assert {:ok, _result} = prompt("Where?", opts)
      took = System.monotonic_time(:millisecond) - start
      {:messages, told} = Process.info(self(), :messages)
      assert Enum.count(told, &(&1 == :partial)) > 2_000
      # However slow this machine is.
      assert Enum.count(told, &(&1 == :value)) <= 2 + div(took, 50)
    end

    test "reach the subscribers of a session, which read the whole value of the snapshot" do
      session =
        start_supervised!(
          {Session, llm: Scripted.new([@text]), output: @output, output_mode: :text}
        )

      {:ok, ref, _snapshot} = Session.subscribe(session)
      assert {:ok, %{output: @ulm}} = Session.prompt(session, "Where?")

      assert_receive {Session, ^ref, _,
                      {:event, [:llm, :partial], _, %{changes: [{:attempt, 1}]}}}

      assert_receive {Session, ^ref, _,
                      {:event, [:llm, :partial], _,
                       %{changes: [{:partial, [], {:value, %{}}} | _]}}}

      assert_receive {Session, ^ref, _, {:event, [:llm, :value], _, %{attempt: 1, value: @ulm}}}
    end

    test "a late subscriber reads the same value of a call that has begun" do
      json = ~s({"city": "New Ulm", "peop)
      output = Output.new(@output)
      started = [{:tool_call_started, 0, "c", "submit_answer"}, {:tool_call_arguments, 0, json}]
      {:ok, response, _events} = Response.push(Response.new(nil), [{:text, "I say {}"} | started])
      assert Output.read_partial(output, response) == {:ok, %{city: "New Ulm"}}
      assert Output.read_partial(output, Response.message(response)) == {:ok, %{city: "New Ulm"}}
      assert Output.read_partial(output, nil) == :none
      {:ok, response, _events} = Response.push(Response.new(nil), [{:text, json}])
      assert Output.read_partial(output, response) == {:ok, %{city: "New Ulm"}}
    end
  end

  describe "what requests asked for" do
    defp causes(context) do
      {:ok, forecast} = Context.Audit.forecast(context, :gemini)
      Enum.map(forecast.breaks, & &1.cause)
    end

    test "says how the answer was asked for, and a forecast names it as the cause" do
      alias AshAgent.Test.Server
      usage = %{input_tokens: 5_000, output_tokens: 5}

      script =
        for read <- [4_000, 4_000, 0, 0],
            do: %{content: @text, usage: Map.put(usage, :cached_tokens, read)}

      server = start_supervised!({Server, script: script})
      opts = [model: "gemini-2.5-flash", base_url: Server.base_url(server), api_key: "k"]
      llm = LLM.Gemini.new(opts)

      ask = fn context, own ->
        context = Context.add_user_message(context, "Where?")
        {:ok, result} = Runtime.run(context, [llm: llm] ++ own)
        result.context
      end

      context = Context.new("Hi") |> ask.(output: @output) |> ask.(output: @output)
      number = context.current_iteration
      assert %{fields: fields} = Context.Audit.get_request(context, number)
      assert %{"output" => %{"mode" => "native"}, "body" => body} = fields
      assert %{"generationConfig" => %{"responseJsonSchema" => %{}}} = body
      assert %{requests: requests} = Context.Audit.account(context)
      refute Enum.any?(requests, &match?({:broken, _}, &1.verdict))

      other = ask.(context, output: [city: [type: :string, max_length: 9], people: :integer])

      assert %{verdict: {:broken, :output}} = List.last(Context.Audit.account(other).requests)
      text = ask.(context, output: @output, output_mode: :text)
      assert %{verdict: {:broken, :output}} = List.last(Context.Audit.account(text).requests)
      assert causes(text) == []
    end
  end

  describe "with the clients" do
    test "the caller's fields stand beside those of the answer" do
      alias AshAgent.Test.Server
      server = start_supervised!({Server, script: [@text]})
      opts = [model: "gemini-2.5-flash", base_url: Server.base_url(server), api_key: "k"]
      llm = LLM.Gemini.new([body: %{generationConfig: %{temperature: 0}}] ++ opts)

      assert {:ok, %{output: @ulm, output_mode: :native}} =
               prompt("Where?", llm: llm, output: @output)

      assert [%{body: %{"generationConfig" => config}}] = Server.requests(server)

      assert %{
               "temperature" => 0,
               "responseMimeType" => "application/json",
               "responseJsonSchema" => %{}
             } = config
    end
  end
end
