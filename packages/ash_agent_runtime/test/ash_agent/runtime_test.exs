defmodule AshAgent.RuntimeTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Runs,
    only: [drain: 1, hanging: 1, prompt: 2, results: 1, results: 2, say: 1]

  import ExUnit.CaptureLog

  alias AshAgent.{Context, Runtime}
  alias AshAgent.LLM.Scripted
  alias AshAgent.Runtime.{Error, Result}

  doctest AshAgent.Runtime

  defp call(id, name, arguments \\ %{}), do: %{id: id, name: name, arguments: arguments}
  defp calls(calls), do: %{tool_calls: calls}

  # A context that is valid: nothing pending, and it can go on.
  defp assert_goes_on(context) do
    assert Context.pending_tool_calls(context) == []

    assert {:ok, %Result{output: "Fine."}} =
             context
             |> Context.add_user_message("Go on")
             |> Runtime.run(llm: say("Fine."))
  end

  describe "run/2" do
    test "takes a conversation through turns with several rounds each" do
      add = &call(&1, "add", %{"a" => &2, "b" => &3})

      llm =
        Scripted.new([
          calls([add.("a", 1, 2), add.("b", 3, 4)]),
          calls([add.("a", 3, 7)]),
          "Ten.",
          calls([add.("a", 10, 1)]),
          "Eleven."
        ])

      tools = %{add: fn %{"a" => a, "b" => b} -> {:ok, a + b} end}

      {:ok, first} = prompt("1+2+3+4?", llm: llm, tools: tools)
      assert %Result{status: :answered, output: "Ten.", iterations: 3} = first
      assert first.context.current_iteration == 3

      {:ok, second} =
        first.context |> Context.add_user_message("And 1?") |> Runtime.run(llm: llm, tools: tools)

      assert second.output == "Eleven."
      assert second.context.current_iteration == 5

      results = for n <- 1..5, result <- results(second.context, n), do: result
      assert results == [{:ok, 3}, {:ok, 7}, {:ok, 10}, {:ok, 11}]
      assert first.context |> Context.to_messages() |> length() == 6

      assert for(%{context: asked} <- Scripted.requests(llm), do: asked.current_iteration) == [
               1,
               2,
               3,
               4,
               5
             ]
    end

    test "offers the tools to the model, and the time that is left" do
      me = self()

      llm = fn _context, opts ->
        send(me, {:opts, opts})
        {:ok, %{content: "Hi"}}
      end

      tools = %{
        "b" => {String, :length},
        a: %{function: &{:ok, &1}, description: "A", parameters: %{"type" => "object"}}
      }

      {:ok, _} = prompt("Hi", llm: llm, tools: tools, timeout: 30_000)
      assert_received {:opts, opts}

      assert opts[:tools] == [
               %{name: "a", description: "A", parameters: %{"type" => "object"}},
               %{name: "b", description: nil, parameters: %{"type" => "object"}}
             ]

      assert opts[:timeout] in 1..30_000
    end

    test "sums up usage and tells the finish reason" do
      usage = %{input_tokens: 1, output_tokens: 2, note: "x"}

      llm =
        Scripted.new([
          Map.put(calls([call("a", :noop)]), :usage, usage),
          %{content: "Done", usage: %{input_tokens: 10, cached_tokens: 5}, finish_reason: "stop"}
        ])

      {:ok, result} = prompt("Hi", llm: llm, tools: %{noop: fn _ -> :ok end})

      assert result.usage == %{
               input_tokens: 11,
               output_tokens: 2,
               total_tokens: 13,
               cached_tokens: 5,
               cache_write_tokens: 0,
               reasoning_tokens: 0
             }

      assert result.finish_reason == :stop
    end

    test "keeps the answer's parts, and gives their text" do
      signed = %{provider: :anthropic, signature: "s"}
      thinking = %{type: :thinking, text: "Hm", provider_metadata: signed}
      parts = [thinking, %{type: :text, text: "Four"}, %{type: :text, text: "."}]
      {:ok, result} = prompt("2+2?", llm: say(parts))

      assert result.output == "Four."
      assert %{content: ^parts} = result.context |> Context.to_messages() |> List.last()
    end

    test "takes an answer without anything as the end" do
      for answer <- [%{}, %{content: nil, tool_calls: nil}, %{content: []}] do
        assert {:ok, %Result{output: nil}} = prompt("Hi", llm: fn _ -> {:ok, answer} end)
      end
    end

    test "gives calls without an id one, and answers them" do
      llm = Scripted.new([calls([%{name: "one"}, %{"name" => "two", "id" => ""}]), "Done"])
      tools = %{one: fn _ -> 1 end, two: fn _ -> 2 end}
      {:ok, result} = prompt("Hi", llm: llm, tools: tools)

      assert [%{id: a, result: {:ok, 1}}, %{id: b, result: {:ok, 2}}] =
               Context.get_iteration(result.context, 1).tool_calls

      assert a != b
    end

    test "returns a context that ends with an answer as it is, without asking" do
      context = Context.new("Hi") |> Context.add_assistant_message("Hello!")
      assert {:ok, result} = Runtime.run(context, llm: fn _ -> flunk("asked") end)
      assert %Result{output: "Hello!", iterations: 0} = result
      assert Context.equal?(result.context, context)
    end

    test "executes calls that wait for a result first, and only these" do
      me = self()

      context =
        Context.new("Hi")
        |> Context.add_assistant_message(nil, [call("a", :note), call("b", :note)])
        |> Context.add_tool_results([{"a", {:ok, "was there"}}])

      tools = %{note: fn _ -> send(me, :noted) end}

      assert {:ok, result} = Runtime.run(context, llm: say("Done"), tools: tools)

      assert [{:ok, "was there"}, {:ok, :noted}] = results(result.context)

      assert_received :noted
      refute_received :noted
    end

    test "hands a context that on_change got over in order, the last one being the result's" do
      me = self()
      llm = Scripted.new([calls([call("a", :t), call("b", :t)]), "Done"])

      opts = [tools: %{t: fn _ -> :ok end}, on_change: &send(me, {:changed, &1})]
      {:ok, result} = prompt("Hi", [llm: llm] ++ opts)
      contexts = for _ <- 1..4, do: assert_receive({:changed, context}) && context
      assert Enum.map(contexts, &length(Context.pending_tool_calls(&1))) == [2, 1, 0, 0]
      assert Context.equal?(List.last(contexts), result.context)
    end

    test "goes on when on_change and on_event fail, and logs no text of theirs" do
      fails = fn _ -> raise "SECRET" end
      exits = fn _ -> exit({:shutdown, "SECRET"}) end
      opts = [llm: say("Hi"), on_change: fails, on_event: exits]
      log = capture_log(fn -> assert {:ok, %Result{output: "Hi"}} = prompt("Hi", opts) end)
      assert log =~ ":on_change failed (error, RuntimeError)"
      assert log =~ ":on_event failed (exit, :shutdown)"
      refute log =~ "SECRET"
    end

    test "refuses wrong options before anything runs" do
      context = Context.new("Hi")
      llm = fn _ -> flunk("asked") end

      for opts <- [
            [],
            [llm: nil],
            [llm: fn -> 1 end],
            [llm: 5],
            [llm: {Scripted, :x}],
            [llm: llm, max_iterations: 0],
            [llm: llm, timeout: 0],
            [llm: llm, llm_timeout: -1],
            [llm: llm, tool_timeout: 1.5],
            [llm: llm, max_concurrency: nil],
            [llm: llm, runtime_context: []],
            [llm: llm, on_event: fn _, _ -> 1 end],
            [llm: llm, on_change: 1],
            [llm: llm, tools: %{a: 1}],
            [llm: llm, tools: %{"a" => &{:ok, &1}, a: &{:ok, &1}}],
            [llm: llm, tools: %{a: {String, :nothing}}],
            [llm: llm, tools: %{a: {NoSuchModule, :run}}],
            [llm: llm, tools: [fn _ -> 1 end]],
            [llm: llm, tools: %{a: %{function: &{:ok, &1}, parameters: "x"}}],
            [llm: llm, model: "x"]
          ] do
        assert_raise ArgumentError, fn -> Runtime.run(context, opts) end
      end
    end
  end

  describe "an on_change that returns an error" do
    # Refuses the context of this number, counted from 1.
    defp refusing(number) do
      test = self()
      count = :counters.new(1, [])

      fn context ->
        :counters.add(count, 1, 1)
        send(test, {:changed, context})
        if :counters.get(count, 1) >= number, do: {:error, {:stale, number}}, else: :ok
      end
    end

    defp heard(tag), do: drain(do: ({^tag, heard} -> heard))

    test "ends the run before its next step, whichever that is" do
      test = self()
      calls = for id <- ["a", "b"], do: call(id, "t", %{"id" => id})

      llm = fn context ->
        send(test, {:asked, context.current_iteration})
        {:ok, if(context.current_iteration == 1, do: calls(calls), else: %{content: "Done"})}
      end

      tools = %{"t" => fn %{"id" => id} -> send(test, {:ran, id}) && {:ok, id} end}
      opts = [llm: llm, tools: tools, approval: fn _, _ -> :approve end, max_concurrency: 1]

      # The answer, two decisions, two results, the last answer.
      for {number, asked, ran, results} <- [
            {1, [1], [], [nil, nil]},
            {2, [1], [], [nil, nil]},
            {3, [1], [], [nil, nil]},
            {4, [1], ["a"],
             [
               {:ok, "a"},
               {:error,
                "interrupted: the conversation could not be stored; the call was not started"}
             ]},
            {5, [1], ["a", "b"], [{:ok, "a"}, {:ok, "b"}]},
            {6, [1, 2], ["a", "b"], [{:ok, "a"}, {:ok, "b"}]}
          ] do
        opts = Keyword.put(opts, :on_change, refusing(number))
        assert {:error, %Error{} = error} = prompt("Hi", opts)
        assert error.reason == {:on_change_error, {:stale, number}}
        assert Exception.message(error) =~ ":on_change"
        assert heard(:asked) == asked
        assert heard(:ran) == ran
        assert length(heard(:changed)) == number

        assert results(error.context) == results

        # What was reached can go on.
        assert {:ok, %Result{output: "Done"}} =
                 Runtime.run(error.context, Keyword.delete(opts, :on_change))

        for tag <- [:asked, :ran, :changed], do: heard(tag)
      end

      assert {:ok, _} = prompt("Hi", opts ++ [on_change: refusing(7)])
    end

    test "kills the tools that run, and starts no other" do
      test = self()

      hang = hanging(:tool)

      quick = fn _ -> receive(do: (:go -> {:ok, 1})) end
      llm = fn _ -> {:ok, calls([call("a", "hang"), call("b", "quick"), call("c", "later")])} end

      on_change = fn context ->
        if Context.Calls.tool_call_status(context, "b") == :ok, do: {:error, :gone}, else: :ok
      end

      tools = %{
        "hang" => hang,
        "quick" => fn arguments -> send(test, {:quick, self()}) && quick.(arguments) end,
        "later" => fn _ -> send(test, :later) end
      }

      opts = [llm: llm, tools: tools, on_change: on_change, max_concurrency: 2]
      run = Task.async(fn -> {prompt("Hi", opts), Process.info(self(), :messages)} end)

      assert_receive {:tool, tool}
      assert_receive {:quick, pid}
      monitor = Process.monitor(tool)
      send(pid, :go)

      assert {{:error, %Error{reason: {:on_change_error, :gone}} = error}, {:messages, []}} =
               Task.await(run)

      assert_receive {:DOWN, ^monitor, _, _, :killed}
      refute_received :later

      assert for(id <- ~w(a b c), do: Context.Calls.tool_call_status(error.context, id)) ==
               [:unknown, :ok, :interrupted]
    end

    test "ends a run that would pause or was halted" do
      llm = fn _ -> {:ok, calls([call("a", "stop"), call("b", "ask")])} end
      tools = %{"stop" => fn _ -> {:halt, 1} end, "ask" => fn _ -> 1 end}
      approval = fn call, _ -> if call.name == "ask", do: :ask, else: :approve end
      opts = [llm: llm, tools: tools, approval: approval]
      # The answer, the approval, the question, the result, what is given up.
      assert {:ok, %Result{status: :halted}} = prompt("Hi", opts ++ [on_change: refusing(6)])

      for number <- 1..5 do
        assert {:error, %Error{reason: {:on_change_error, {:stale, ^number}}}} =
                 prompt("Hi", opts ++ [on_change: refusing(number)])
      end
    end

    test "is told as an event, and other errors are no such thing" do
      test = self()
      on_event = fn name, _, metadata -> send(test, {Enum.take(name, -2), metadata[:reason]}) end
      opts = [llm: say("Hi"), on_event: on_event]

      {:error, _} = prompt("Hi", opts ++ [on_change: fn _ -> {:error, "SECRET"} end])

      assert_received {[:iteration, :exception], :on_change_error}

      for other <- [:error, {:error, 1, 2}, nil, {:ok, {:error, 1}}, %{error: 1}] do
        assert {:ok, _} = prompt("Hi", opts ++ [on_change: fn _ -> other end])
      end
    end
  end

  describe "the limit" do
    test "lets a turn have exactly its iterations" do
      for max <- 1..3 do
        counter = :counters.new(1, [])

        again = fn _ ->
          :counters.add(counter, 1, 1)
          {:ok, calls([call("a", :t)])}
        end

        opts = [llm: again, tools: %{t: fn _ -> :ok end}, max_iterations: max]

        assert {:error, %Error{reason: {:max_iterations_exceeded, ^max}} = error} =
                 prompt("Hi", opts)

        assert :counters.get(counter, 1) == max
        assert Exception.message(error) =~ "#{max} iterations"
        assert_goes_on(error.context)
      end
    end

    test "counts the turn only, so that a long chat does not run dry" do
      context =
        Enum.reduce(1..50, Context.new("Hi"), fn n, context ->
          context
          |> Context.add_assistant_message("Answer")
          |> Context.add_user_message("Question #{n}")
        end)

      llm = Scripted.new([calls([call("a", :t)]), "Done"])

      assert {:ok, %Result{output: "Done"}} =
               Runtime.run(context, llm: llm, tools: %{t: fn _ -> :ok end}, max_iterations: 2)
    end

    test "counts what the turn had before this run, and a greater one goes on" do
      opts = [tools: %{t: fn _ -> :ok end}, max_iterations: 2]
      again = fn _ -> {:ok, calls([call("a", :t)])} end
      {:error, %{context: context}} = prompt("Hi", [llm: again] ++ opts)

      assert {:error, %Error{reason: {:max_iterations_exceeded, 2}}} =
               Runtime.run(context, [llm: fn _ -> flunk("asked") end] ++ opts)

      assert {:ok, %Result{iterations: 1}} =
               Runtime.run(context, llm: say("Done"), max_iterations: 3)
    end

    test "counts from the last user message, which joined an iteration that was open" do
      context =
        Context.new("Hi")
        |> Context.add_assistant_message(nil, [call("a", :t)])
        |> Context.add_tool_results([{"a", {:ok, 1}}])
        |> Context.add_user_message("Now!")

      assert context.current_iteration == 2

      assert {:ok, _} = Runtime.run(context, llm: say("Done"), max_iterations: 1)
    end

    test "works on a conversation without a user message" do
      llm = say("Hi")
      assert {:ok, %Result{output: "Hi"}} = Runtime.run(Context.create!(%{}), llm: llm)
      late = Context.create!(iterations: [%{number: 500}])
      assert {:ok, %Result{output: "Hi"}} = Runtime.run(late, llm: llm, max_iterations: 1)
    end
  end

  describe "a model that fails" do
    test "gives an error with the messages as they were, and the failure" do
      context = Context.new("Hi")

      no_content = "content: text, nil or a list of parts"
      invalid = &{:invalid_answer, %Context.Error{reason: &1}}

      no_message =
        "expected {:ok, response}, {:ok, message} with the message as a map, or {:error, reason}"

      for {llm, reason} <- [
            {fn _ -> {:error, :overloaded} end, {:llm_error, :overloaded}},
            {fn _ -> raise "boom" end, {:llm_exception, :error, %RuntimeError{message: "boom"}}},
            {fn _ -> throw(:ball) end, {:llm_exception, :throw, :ball}},
            {fn _ -> exit(:boom) end, {:llm_exception, :exit, :boom}},
            {fn _ -> Process.exit(self(), :kill) end, {:llm_exception, :exit, :killed}},
            {fn _ -> spawn_link(fn -> exit(:linked) end) && Process.sleep(:infinity) end,
             {:llm_exception, :exit, :linked}},
            {fn _ -> :nothing end, {:invalid_answer, no_message}},
            {fn _ -> {:ok, "text"} end, {:invalid_answer, no_message}},
            {fn _ -> {:ok, ~D[2026-01-01]} end, {:invalid_answer, no_message}},
            {say(5), invalid.({:invalid, [], no_content})},
            {say(%{}), invalid.({:invalid, [], no_content})},
            {fn _ -> {:ok, %{tool_calls: %{}}} end,
             invalid.({:invalid, [], "a list of tool calls"})},
            {fn _ -> {:ok, calls([%{id: "a", name: ""}])} end,
             invalid.({:invalid_tool_call, 0, :name})},
            {fn _ -> {:ok, calls([call("a", :t), call("a", :t)])} end,
             invalid.({:duplicate_tool_call, "a"})},
            {fn _ -> {:ok, calls([%{id: "a"}])} end, invalid.({:invalid_tool_call, 0, :name})},
            {fn _ -> {:ok, calls([:nonsense])} end, :any},
            {say([%{type: :hologram}]), invalid.({:invalid_part, 0, :type})}
          ] do
        assert {:error, %Error{} = error} = Runtime.run(context, llm: llm)

        if reason == :any,
          do: assert({:invalid_answer, %{reason: {:invalid_tool_call, 0, _}}} = error.reason),
          else: assert(error.reason == reason)

        assert is_binary(Exception.message(error))
        assert Context.to_messages(error.context) == Context.to_messages(context)
        assert [%{kind: :invalid_response, iteration: 1}] = Context.Audit.failures(error.context)
        assert_goes_on(error.context)
      end
    end

    test "survives improper lists in an answer" do
      for answer <- [
            %{content: ["a" | "b"]},
            calls([call("a", :t) | :x]),
            calls([call("a", :t, %{"x" => [1 | 2]})])
          ] do
        assert {:error, %Error{reason: {:invalid_answer, _}} = error} =
                 prompt("Hi", llm: fn _ -> {:ok, answer} end)

        assert_goes_on(error.context)
      end
    end

    test "keeps the rounds before" do
      llm = Scripted.new([calls([call("a", :t)]), {:error, :down}])

      assert {:error, %Error{reason: {:llm_error, :down}} = error} =
               prompt("Hi", llm: llm, tools: %{t: fn _ -> {:ok, 1} end})

      assert [{:ok, 1}] = results(error.context)
      assert error.context.current_iteration == 2
      assert_goes_on(error.context)
    end

    test "that is too slow is killed, and its late answer does not come" do
      me = self()

      llm = fn _ ->
        send(me, {:model, self()})
        receive(do: (:go -> {:ok, %{content: "late"}}))
      end

      for {opts, reason} <- [
            {[llm_timeout: 200], {:llm_timeout, 200}},
            {[timeout: 200], {:timeout, 200}},
            {[timeout: 200, llm_timeout: 1_000], {:timeout, 200}}
          ] do
        assert {:error, %Error{reason: ^reason} = error} = prompt("Hi", [llm: llm] ++ opts)

        # On a busy machine the time may be up before the model has begun.
        receive do
          {:model, pid} -> refute Process.alive?(pid)
        after
          0 -> :ok
        end

        assert_goes_on(error.context)
      end

      assert Process.info(self(), :messages) == {:messages, []}
    end
  end

  describe "tools" do
    test "may end the loop with a term, which is their result; the others of the round finish" do
      tools = %{stop: fn _ -> {:halt, %{answer: 42}} end, other: fn _ -> {:ok, :done} end}
      llm = Scripted.new([calls([call("a", :other), call("b", :stop), call("c", :other)])])

      assert {:ok, %Result{status: :halted, output: %{answer: 42}} = result} =
               prompt("Hi", llm: llm, tools: tools)

      assert results(result.context) ==
               [{:ok, :done}, {:ok, %{answer: 42}}, {:ok, :done}]

      assert_goes_on(result.context)
    end

    test "of several that halt, the first call counts" do
      first = fn _ -> receive(after: (20 -> {:halt, 1})) end
      tools = %{first: first, second: fn _ -> {:halt, 2} end}
      llm = Scripted.new([calls([call("a", :first), call("b", :second)])])
      assert {:ok, %Result{output: 1}} = prompt("Hi", llm: llm, tools: tools)
    end

    test "that return what a context cannot hold get an error result that says so" do
      deep = Enum.reduce(1..300, 1, fn _, inner -> [inner] end)

      for bad <- [[1 | 2], <<1::3>>, deep, [%{type: :image, data: "no base64!", media_type: "x"}]],
          status <- [:ok, :error] do
        llm = Scripted.new([calls([call("a", :bad)]), "Done"])

        tools = %{bad: fn _ -> {status, bad} end}

        assert {:ok, %Result{output: "Done", context: context}} =
                 prompt("Hi", llm: llm, tools: tools)

        assert [result] = results(context)

        # As the reason of an error, a list of maps is data.
        unless status == :error and match?([%{} | _], bad),
          do: assert({:error, "the tool returned a term that cannot be stored: " <> _} = result)
      end
    end

    test "that are killed with the run's time leave interrupted calls" do
      slow = hanging(:tool)

      names = [a: :quick, b: :slow, c: :slow, d: :slow]
      llm = Scripted.new([calls(for {id, name} <- names, do: call("#{id}", name))])
      tools = %{quick: fn _ -> {:ok, 1} end, slow: slow}
      opts = [llm: llm, tools: tools, timeout: 1_000, max_concurrency: 2]
      assert {:error, %Error{reason: {:timeout, 1_000}} = error} = prompt("Hi", opts)
      unstarted = {:error, "interrupted: the run timed out; the call was not started"}

      assert [{:ok, 1}, {:error, unknown}, {:error, unknown}, ^unstarted] = results(error.context)
      assert unknown =~ "the call was started, and stopped before its result came"

      statuses = for id <- ~w(a b c d), do: Context.Calls.tool_call_status(error.context, id)
      assert statuses == [:ok, :unknown, :unknown, :interrupted]

      # The last one had not begun.
      assert_received {:tool, one}
      assert_received {:tool, two}
      refute_received {:tool, _}
      refute Process.alive?(one) or Process.alive?(two)
      assert_goes_on(error.context)
    end

    test "get the runtime context, which nobody stores" do
      me = self()
      actor = make_ref()
      tool = fn _, tool_context -> {:ok, send(me, {:tool, tool_context}) && "seen"} end
      llm = Scripted.new([calls([call("a", :t)]), "Done"])
      runtime_context = %{agent: A, domain: D, actor: actor, tenant: "t"}

      opts = [llm: llm, tools: %{t: tool}, runtime_context: runtime_context]
      {:ok, result} = prompt("Hi", opts)
      assert_received {:tool, ^runtime_context}
      refute inspect(Context.to_map(result.context), limit: :infinity) =~ inspect(actor)
      for %{opts: opts} <- Scripted.requests(llm), do: refute(inspect(opts) =~ inspect(actor))
    end
  end

  describe "processes" do
    test "leave nothing behind, neither processes nor messages nor links nor monitors" do
      test_process = self()
      Process.flag(:trap_exit, true)
      {:links, links} = Process.info(self(), :links)

      llm = fn context ->
        send(test_process, {:pid, self()})

        if context.current_iteration > 1, do: exit(:enough)
        {:ok, calls(for name <- ~w(ok raise exit hang kill), do: call(name, name))}
      end

      note = fn then ->
        fn _ ->
          send(test_process, {:pid, self()})
          then.()
        end
      end

      tools = %{
        ok: note.(fn -> :ok end),
        raise: note.(fn -> raise "x" end),
        exit: note.(fn -> exit(:x) end),
        hang: note.(fn -> Process.sleep(:infinity) end),
        kill: note.(fn -> Process.exit(self(), :kill) end)
      }

      {:error, _} = prompt("Hi", llm: llm, tools: tools, tool_timeout: 30)

      pids = for _ <- 1..7, do: assert_received({:pid, pid}) && pid
      refute Enum.any?(pids, &Process.alive?/1)

      left = Process.info(self(), [:links, :monitors, :messages])
      assert left == [links: links, monitors: [], messages: []]
    end

    @tag :capture_log
    test "end with the caller, whatever ends it" do
      for reason <- [:kill, :shutdown] do
        hang = hanging(:tool)

        llm = fn _ -> {:ok, calls([call("a", :hang), call("b", :hang)])} end
        caller = spawn(fn -> prompt("Hi", llm: llm, tools: %{hang: hang}) end)

        tools = for _ <- 1..2, do: assert_receive({:tool, pid}) && Process.monitor(pid)
        Process.exit(caller, reason)
        for ref <- tools, do: assert_receive({:DOWN, ^ref, :process, _, :killed})
      end
    end

    test "know their callers" do
      me = self()
      llm = fn _ -> {:ok, %{content: inspect(hd(Process.get(:"$callers")) == me)}} end
      assert {:ok, %Result{output: "true"}} = prompt("Hi", llm: llm)
    end

    test "may run under a supervisor of the caller's" do
      supervisor = start_supervised!(Task.Supervisor)
      me = self()

      llm = fn _ ->
        send(me, {:children, Task.Supervisor.children(supervisor), self()})
        {:ok, %{content: "Hi"}}
      end

      {:ok, _} = prompt("Hi", llm: llm, supervisor: supervisor)
      assert_received {:children, [pid], pid}
      assert Task.Supervisor.children(supervisor) == []
    end
  end

  describe "events" do
    defp events(opts) do
      me = self()

      on_event = fn name, measurements, metadata ->
        send(me, {:event, Enum.drop(name, 2), measurements, metadata})
      end

      reply = prompt("SECRET question", [on_event: on_event] ++ opts)
      {reply, drain(do: ({:event, name, measured, metadata} -> {name, measured, metadata}))}
    end

    test "tell every step in order, with durations and sizes, without text" do
      llm =
        Scripted.new([
          calls([call("a", :good, %{"x" => "SECRET"}), call("b", :bad), call("c", :gone)]),
          %{content: "SECRET answer", usage: %{input_tokens: 3}, finish_reason: "stop"}
        ])

      tools = %{
        good: fn _ -> {:ok, "SECRET result"} end,
        bad: fn _ -> raise ArgumentError, "SECRET words" end
      }

      {{:ok, result}, events} = events(llm: llm, tools: tools, max_concurrency: 1)
      {deltas, events} = Enum.split_with(events, &match?({[:llm, :delta], _, _}, &1))
      assert Enum.count(deltas) > 5

      asked = ~w(iteration.start llm.start llm.stop)
      ran = ~w(tool.start tool.stop tool.start tool.exception tool.start tool.stop)

      assert Enum.map(events, &Enum.join(elem(&1, 0), ".")) ==
               asked ++ ran ++ ["iteration.stop"] ++ asked ++ ["iteration.stop", "run.stop"]

      refute inspect(events, limit: :infinity) =~ "SECRET"

      for {name, measurements, metadata} <- events do
        assert metadata.context_id == result.context[:id]
        assert metadata.iteration in 1..2

        if List.last(name) == :start,
          do: assert(is_integer(measurements.system_time)),
          else: assert(measurements.duration > 0)
      end

      assert {_, %{tool_calls: 3, content_bytes: 0}, _} = Enum.at(events, 2)

      assert {_, %{result_bytes: 13}, %{tool: "good", tool_call_id: "a", status: :ok}} =
               Enum.at(events, 4)

      assert {_, _, %{tool: "bad", kind: :error, reason: ArgumentError, stacktrace: [_ | _]}} =
               Enum.at(events, 6)

      assert {_, _, %{tool: "gone", status: :error}} = Enum.at(events, 8)
      assert {_, %{tool_calls: 3}, _} = Enum.at(events, 9)

      assert {_, %{content_bytes: 13}, %{usage: %{input_tokens: 3}, finish_reason: :stop}} =
               Enum.at(events, 12)
    end

    test "tell failures and timeouts" do
      {{:error, _}, events} = events(llm: fn _ -> raise "SECRET" end)

      assert [_, _, failed, {[:iteration, :exception], _, _}, ended] = events
      assert {[:llm, :exception], %{duration: _}, %{kind: :error, reason: RuntimeError}} = failed
      assert {[:run, :stop], _, %{status: :error, kind: :error, reason: RuntimeError}} = ended
      refute inspect(events, limit: :infinity) =~ "SECRET"

      {{:error, _}, events} = events(llm: fn _ -> Process.sleep(:infinity) end, llm_timeout: 10)
      assert {[:llm, :exception], _, %{kind: :timeout, reason: :llm_timeout}} = Enum.at(events, 2)

      llm = Scripted.new([calls([call("a", :hang)]), "Done"])
      hang = fn _ -> Process.sleep(:infinity) end
      {{:ok, _}, events} = events(llm: llm, tools: %{hang: hang}, tool_timeout: 10)
      assert Enum.any?(events, &match?({[:tool, :exception], _, %{kind: :timeout}}, &1))
    end

    test "tell the end of each run, with its context and those of its sub-agents" do
      {{:ok, result}, events} = events(llm: Scripted.new(["Hi"]))
      context = result.context
      assert {[:run, :stop], %{duration: _}, told} = List.last(events)

      assert %{status: :answered, context: ^context, sub_agents: [], first_iteration: 1, depth: 0} =
               told

      me = self()

      tell = fn event -> send(me, {:child, event.event, event.metadata}) end
      found = Scripted.new(["found", "found"])
      helper = Runtime.SubAgent.tool(name: "helper", llm: found, on_event: tell)
      task = %{"task" => "look"}
      helped = [calls([call("a", "helper", task), call("b", "helper", task)]), "Done"]
      {{:ok, result}, events} = events(llm: Scripted.new(helped), tools: [helper])
      assert {_, _, %{sub_agents: [_, _] = contexts}} = List.last(events)
      assert result.sub_agents == contexts
      assert_received {:child, [_, _, :run, :stop], %{depth: 1, sub_agents: []}}

      assert for(context <- contexts, do: Context.metadata(context).tool_call_id) |> Enum.sort() ==
               ["a", "b"]

      halt = %{halt: fn _ -> {:halt, 1} end}
      {{:ok, _}, events} = events(llm: Scripted.new([calls([call("a", :halt)])]), tools: halt)
      assert {[:run, :stop], _, %{status: :halted}} = List.last(events)

      ask = [approval: fn _, _ -> :ask end, tools: halt]
      {{:paused, _}, events} = events([llm: Scripted.new([calls([call("a", :halt)])])] ++ ask)
      assert {[:run, :stop], _, %{status: :paused}} = List.last(events)

      again = Scripted.new([calls([call("a", :gone)]), calls([call("b", :gone)])])
      {{:error, _}, events} = events(llm: again, max_iterations: 1)
      assert {_, _, %{status: :error, reason: :max_iterations_exceeded}} = List.last(events)
      assert Enum.count(events, &match?({[:run, :stop], _, _}, &1)) == 1
    end

    test "come as one map to a function of one argument" do
      me = self()

      {:ok, _} = prompt("Hi", llm: fn _ -> {:ok, %{}} end, on_event: &send(me, &1))

      assert_received %{
        event: [:ash_agent, :runtime, :llm, :stop],
        measurements: %{duration: _},
        metadata: %{iteration: 1}
      }
    end
  end
end
