defmodule AshAgent.Runtime.ToolArgumentsTest do
  use ExUnit.Case, async: true

  import ExUnit.CaptureLog

  alias AshAgent.{Context, LLM, Runtime, Session, Store}
  alias AshAgent.Runtime.{Tool, ToolExecutor}

  @parameters %{
    type: :object,
    properties: %{
      seats: %{type: :integer, minimum: 1},
      class: %{enum: [:first, :second]},
      rows: %{type: :array, items: %{type: :integer}},
      seat: %{
        type: :object,
        properties: %{row: %{type: :integer}},
        additionalProperties: false
      }
    },
    required: [:seats]
  }

  # Arguments, and those that the tool gets, or the error of the model. The words of each are tested in the core.
  @cases [
    {%{"seats" => "2"}, {:ok, %{"seats" => 2}}},
    {%{"seats" => 2.0}, {:ok, %{"seats" => 2}}},
    {%{"seats" => 1, "seat" => %{"row" => "3"}}, {:ok, %{"seats" => 1, "seat" => %{"row" => 3}}}},
    {%{"seats" => 1, "rows" => "[1, 2]"}, {:ok, %{"seats" => 1, "rows" => [1, 2]}}},
    {%{"seats" => 1, "rows" => nil}, {:ok, %{"seats" => 1}}},
    {%{"seats" => 1, "more" => "7"}, {:ok, %{"seats" => 1, "more" => "7"}}},
    {%{"seats" => nil}, "/seats: expected an integer, got null"},
    {%{"seats" => [2]}, "/seats: expected an integer, got a list"},
    {%{"seats" => 1, "class" => "First"}, ~s(/class: expected one of "first", "second")},
    {%{"seats" => 1, "rows" => [1, "x"]}, "/rows/1: expected an integer, got a string"},
    {%{"seats" => 1, "seat" => %{"row" => 1, "col" => 1}}, "/seat/col: is not a field here"},
    {%{}, ~s(the required argument "seats" is missing)}
  ]

  defp book(more \\ %{}) do
    me = self()

    function = fn arguments ->
      send(me, {:ran, arguments})
      {:ok, "booked"}
    end

    %{book: Map.merge(%{function: function, parameters: @parameters}, more)}
  end

  defp llm(arguments),
    do: LLM.Scripted.new([%{tool_calls: [call(arguments)]}, "Done."])

  defp call(arguments), do: %{id: "a", name: "book", arguments: arguments}

  defp result(context), do: hd(Context.get_iteration(context, 1).tool_calls).result

  # Each entrance, as a function of the arguments and options that returns the result of the call.
  defp entrances do
    %{
      executor: fn arguments, _opts ->
        [%{result: result}] = ToolExecutor.execute_tools([call(arguments)], book(), %{})
        result
      end,
      run: fn arguments, opts ->
        {:ok, result} =
          Runtime.run(Context.new("Hi"), [llm: llm(arguments), tools: book()] ++ opts)

        result(result.context)
      end,
      tools_of_a_function: fn arguments, opts ->
        tools = book()
        opts = [llm: llm(arguments), tools: fn -> tools end] ++ opts
        {:ok, result} = Runtime.run(Context.new("Hi"), opts)
        result(result.context)
      end,
      session: fn arguments, opts ->
        {:ok, store} = Store.SQLite.open(":memory:")
        opts = [llm: llm(arguments), tools: book(), store: store, id: "c"] ++ opts
        {:ok, session} = Session.start_link(opts)
        {:ok, _result} = Session.prompt(session, "Hi")
        {:ok, kept} = Store.fetch(store, "c")
        result(kept.value)
      end,
      snapshot: fn arguments, opts ->
        opts = [llm: llm(arguments), tools: book()] ++ opts
        ask = [approval: fn _call, _tool_context -> :ask end]
        {:paused, paused} = Runtime.run(Context.new("Hi"), ask ++ opts)
        [shown] = paused.calls
        context = paused.context |> Context.to_snapshot() |> Context.load!()
        context = Context.Calls.approve_tool_call(context, "a", arguments: shown.arguments)
        {:ok, result} = Runtime.resume(context, ask ++ opts)
        send(self(), {:shown, shown.arguments})
        result(result.context)
      end
    }
  end

  for {{given, expected}, n} <- Enum.with_index(@cases, 1) do
    test "case #{n}: #{inspect(given)}" do
      for {name, entrance} <- entrances(),
          is_tuple(unquote(Macro.escape(expected))) or name != :snapshot do
        result = entrance.(unquote(Macro.escape(given)), [])

        case unquote(Macro.escape(expected)) do
          {:ok, arguments} ->
            assert {name, result} == {name, {:ok, "booked"}}
            assert_received {:ran, ran}
            assert {name, ran} == {name, arguments}
            if name == :snapshot, do: assert_received({:shown, ^arguments})

          words ->
            assert {:error, error} = result
            assert error =~ words
            refute_received {:ran, _}
        end
      end
    end
  end

  test "repairs leave the terms that JSON does not have" do
    given = %{seats: "2", class: :first, more: {1, 2}, day: ~D[2026-01-01], at: [~D[2026-01-01]]}
    assert [%{result: {:ok, "booked"}}] = ToolExecutor.execute_tools([call(given)], book(), %{})
    repaired = %{given | seats: 2}
    assert_received {:ran, ^repaired}
  end

  test "a call that does not fit is not shown to anybody for approval" do
    me = self()
    approval = fn call, _ -> send(me, {:asked, call}) && :approve end
    opts = [tools: book(), approval: approval]

    assert {:ok, _} = Runtime.run(Context.new("Hi"), [llm: llm(%{"seats" => "x"})] ++ opts)
    refute_received {:asked, _}

    assert {:ok, result} = Runtime.run(Context.new("Hi"), [llm: llm(%{"seats" => "2"})] ++ opts)
    repairs = [%{path: ["seats"], kind: :number_from_text}]
    assert_received {:asked, %{arguments: %{"seats" => 2}, repairs: ^repairs}}

    # The log has the call as the model wrote it, and what was repaired.
    assert [%{arguments: %{"seats" => "2"}}] = Context.get_iteration(result.context, 1).tool_calls
    loaded = result.context |> Context.to_snapshot() |> Context.load!()
    message = loaded |> Context.get_iteration_messages(1) |> List.last()
    assert message.metadata == %{repairs: %{"a" => repairs}}
  end

  test "approving what the model wrote approves its repair, and nothing else" do
    for {given, ran?} <- [{%{"seats" => "2"}, true}, {%{"seats" => "3"}, false}] do
      context = Context.add_assistant_message(Context.new("Hi"), nil, [call(given)])
      context = Context.Calls.approve_tool_call(context, "a", by: "ann")
      change = fn call, _ -> {:ok, %{call | arguments: %{"seats" => 2}}} end
      opts = [llm: LLM.Scripted.new(["Done."]), tools: book(), before_tool: change]

      {:ok, result} =
        Runtime.resume(context, if(ran?, do: Keyword.delete(opts, :before_tool), else: opts))

      assert match?({:ok, _}, result(result.context)) == ran?
    end
  end

  test "rules see the repaired arguments, also where a hook has changed them" do
    rule = {:deny, "book", &(is_integer(&1["seats"]) and &1["seats"] > 5)}
    hook = fn call, _ -> {:ok, %{call | arguments: %{"seats" => "9"}}} end

    for {given, hooks} <- [{"9", []}, {"1", hook}] do
      opts = [llm: llm(%{"seats" => given}), tools: book(), before_tool: hooks]
      {:ok, result} = Runtime.run(Context.new("Hi"), [permission_rules: [rule]] ++ opts)
      assert {:error, "denied: the tool" <> _} = result(result.context)
      refute_received {:ran, _}
    end
  end

  test "hooks get repaired arguments, and may give what does not fit yet" do
    me = self()

    hook = fn call, _ ->
      send(me, {:hook, call.arguments})
      {:ok, put_in(call.arguments["seats"], "4")}
    end

    for given <- [%{"rows" => "[1]"}, %{"rows" => "[1]", "seats" => "2"}] do
      opts = [llm: llm(given), tools: book(), before_tool: hook]
      {:ok, result} = Runtime.run(Context.new("Hi"), opts)
      assert result(result.context) == {:ok, "booked"}
      assert_received {:ran, %{"rows" => [1], "seats" => 4}}
    end

    assert_received {:hook, %{"rows" => "[1]"}}
    assert_received {:hook, %{"rows" => [1], "seats" => 2}}
  end

  test "repairs are told when the tool starts" do
    me = self()
    on_event = fn name, _, metadata -> send(me, {Enum.drop(name, 2), metadata}) end
    repairs = [%{path: ["seats"], kind: :number_from_text}]
    calls = [call(%{"seats" => "2"})]

    ToolExecutor.execute_tools(calls, book(), %{}, on_event: on_event)
    assert_received {[:tool, :start], %{repairs: ^repairs}}

    {:ok, _} =
      Runtime.run(Context.new("Hi"),
        llm: llm(%{"seats" => "2"}),
        tools: book(),
        on_event: on_event
      )

    assert_received {[:tool, :start], %{repairs: ^repairs}}

    # A model of the application's own may say what it likes of its calls.
    llm =
      LLM.Scripted.new([
        %{tool_calls: [Map.put(call(%{"seats" => 2}), :repairs, :forged)]},
        "Done."
      ])

    {:ok, _} = Runtime.run(Context.new("Hi"), llm: llm, tools: book(), on_event: on_event)
    assert_received {[:tool, :start], metadata}
    refute is_map_key(metadata, :repairs)
  end

  test "check_arguments: false lets everything pass that has the required arguments" do
    off = [check_arguments: false]

    for {given, expected} <- [{%{"seats" => "2"}, {:ok, "booked"}}, {%{}, :error}] do
      {:ok, result} = Runtime.run(Context.new("Hi"), [llm: llm(given), tools: book()] ++ off)
      [%{result: executed}] = ToolExecutor.execute_tools([call(given)], book(), %{}, off)
      assert executed == result(result.context)
      assert executed == expected or elem(executed, 0) == expected
    end

    assert_received {:ran, %{"seats" => "2"}}
  end

  test "a schema that cannot be read lets arguments pass, and says so once" do
    parameters = %{"type" => "object", "required" => ["x"], "not" => %{"required" => ["secret"]}}

    tools = %{
      unreadable: %{function: fn arguments -> {:ok, arguments} end, parameters: parameters}
    }

    calls =
      for {id, arguments} <- [{"a", %{"x" => [1]}}, {"b", %{}}],
          do: %{id: id, name: :unreadable, arguments: arguments}

    log =
      capture_log(fn ->
        for _ <- 1..3 do
          assert [%{result: {:ok, %{"x" => [1]}}}, %{result: {:error, _}}] =
                   ToolExecutor.execute_tools(calls, tools, %{})
        end
      end)

    assert log =~ ~s(the arguments of the tool "unreadable" are not checked)
    assert log |> String.split("unreadable") |> length() == 2
  end

  test "a tool that gets other parameters is checked against these" do
    [tool] = Tool.new(book())

    other = %{
      tool
      | parameters: %{"type" => "object", "properties" => %{"day" => %{"type" => "integer"}}}
    }

    for {arguments, fits?} <- [{%{"day" => 1}, true}, {%{"day" => "x"}, false}, {%{}, true}] do
      [%{result: result}] = ToolExecutor.execute_tools([call(arguments)], [other], %{})
      assert match?({:ok, _}, result) == fits?
    end
  end

  describe "definitions" do
    test "wrong keys are refused with the right one" do
      for {key, right} <- [
            schema: ":parameters",
            params: ":parameters",
            input_schema: ":parameters",
            paramaters: ":parameters",
            tool_timeout: ":timeout",
            timeuot: ":timeout",
            fun: ":function",
            handler: ":function",
            doc: ":description",
            output: ":returns",
            retry: ":repeat"
          ],
          key <- [key, to_string(key)],
          definitions <- [
            %{x: Map.put(%{function: fn _ -> 1 end}, key, "secret")},
            [Map.put(%{name: "x", function: fn _ -> 1 end}, key, "secret")]
          ] do
        error = assert_raise ArgumentError, fn -> Tool.new(definitions) end
        assert error.message =~ ~s(the tool "x" has the key #{inspect(key)})
        assert error.message =~ "write #{right}"
        refute error.message =~ "secret"
      end

      error =
        assert_raise ArgumentError, fn ->
          Tool.new(%{x: %{:function => & &1, {1, "secret"} => 1}})
        end

      assert error.message =~ "the keys are :name, :function"
      refute error.message =~ "secret"
    end

    test "a :timeout replaces that of the run, in both directions" do
      slow = fn _ -> Process.sleep(200) && {:ok, "done"} end

      for {own, run, expected} <- [
            {5_000, 20, {:ok, "done"}},
            {:infinity, 20, {:ok, "done"}},
            {nil, 20, {:error, "timed out after 20 ms"}},
            {20, 5_000, {:error, "timed out after 20 ms"}}
          ] do
        tools = %{book: %{function: slow, timeout: own}}
        opts = [llm: llm(%{}), tools: tools, tool_timeout: run]
        {:ok, result} = Runtime.run(Context.new("Hi"), opts)

        # In a conversation, nobody knows what a call that was stopped has done.
        case {expected, result(result.context)} do
          {{:ok, _}, kept} -> assert kept == expected
          {{:error, words}, {:error, kept}} -> assert kept =~ "unknown" and kept =~ words
        end

        assert [%{result: ^expected}] =
                 ToolExecutor.execute_tools([call(%{})], tools, %{}, timeout: run)
      end

      toolbox = AshAgent.Toolbox.new(name: "book", command: "sleep", args: ["5"], timeout: 20)
      {:ok, result} = Runtime.run(Context.new("Hi"), llm: llm(%{}), tools: [toolbox])
      assert {:error, words} = result(result.context)
      assert words =~ "timed out after 20 ms"

      for wrong <- [0, -1, 1.5, "5"] do
        assert_raise ArgumentError, ~r/:timeout of the tool "x"/, fn ->
          Tool.new(%{x: %{function: & &1, timeout: wrong}})
        end
      end
    end
  end

  describe "functions that fail" do
    @secret "the key of the safe"

    defp fail(how) do
      case how do
        :raise -> raise @secret
        :elixir -> Map.fetch!(Map.new(), @secret)
        :clause -> clause(Function.identity(@secret))
        :throw -> throw(@secret)
        :exit -> exit(@secret)
      end
    end

    defp clause(:never), do: :ok

    for {how, code} <- [
          raise: "RuntimeError",
          elixir: "KeyError",
          clause: "FunctionClauseError",
          throw: "throw",
          exit: "exit"
        ] do
      @tag :capture_log
      test "a tool: #{how}" do
        line = ~r/tool_arguments_test.exs:\d+: #{inspect(__MODULE__)}\.(fail|clause)\/1/

        for entrance <- [:run, :session] do
          tools = %{book: fn _ -> fail(unquote(how)) end}
          opts = [llm: llm(%{}), tools: tools]

          log =
            capture_log(fn ->
              {context, said} = run_stored(entrance, opts)
              assert [failure] = Context.Audit.failures(context)

              assert %{part: "tool", code: unquote(code), iteration: 1, message: message} =
                       failure

              assert message =~ ~s(the tool "book")
              assert message =~ line
              assert result(context) == {:error, said}
              refute inspect(failure) =~ @secret
              refute said =~ "tool_arguments_test"
              # People see it, and no viewer takes it for a request.
              assert IO.iodata_to_binary(AshAgent.Trace.to_html(context)) =~
                       "raised (#{unquote(code)})"

              refute AshAgent.Trace.to_otlp(context) =~ "invalid_response"
            end)

          assert log =~ line

          assert [_line] =
                   for(text <- String.split(log, "\n"), text =~ ~s(the tool "book"), do: text)

          assert log =~ ~s(the tool "book" failed)
          refute log =~ @secret
        end
      end
    end

    defp run_stored(:run, opts) do
      {:ok, result} = Runtime.run(Context.new("Hi"), opts)
      context = result.context |> Context.to_snapshot() |> Context.load!()
      {context, result(context) |> elem(1)}
    end

    defp run_stored(:session, opts) do
      {:ok, store} = Store.SQLite.open(":memory:")
      {:ok, session} = Session.start_link([store: store, id: "c"] ++ opts)
      {:ok, _} = Session.prompt(session, "Hi")
      {:ok, kept} = Store.fetch(store, "c")
      {kept.value, result(kept.value) |> elem(1)}
    end

    @tag :capture_log
    test "the function of :tools ends the run, and the next one begins anew" do
      {:ok, fails?} = Agent.start_link(fn -> true end)
      tools = fn -> if Agent.get(fails?, & &1), do: fail(:elixir), else: book() end
      opts = [llm: LLM.Scripted.new([fn _ -> {:ok, %{content: "Hello!"}} end]), tools: tools]

      {:error, error} = Runtime.run(Context.new("Hi"), opts)
      assert {:tools_exception, :error, %KeyError{}} = error.reason
      assert Exception.message(error) =~ "the function of :tools raised KeyError"

      assert [%{part: "tools", code: "KeyError", message: message}] =
               Context.Audit.failures(error.context)

      assert message =~ "fail/1"

      {:ok, store} = Store.SQLite.open(":memory:")
      {:ok, session} = Session.start_link([store: store, id: "c"] ++ opts)
      {:error, error} = Session.prompt(session, "Hi")
      assert {error.stored, elem(error.reason, 0)} == {true, :tools_exception}
      assert Session.status(session) == :idle
      {:ok, kept} = Store.fetch(store, "c")
      assert [%{part: "tools"}] = Context.Audit.failures(kept.value)

      Agent.update(fails?, fn _ -> false end)
      assert {:ok, %{output: "Hello!"}} = Session.resume(session)
    end

    @tag :capture_log
    test "what throws, exits or returns no tools is the same error" do
      for {tools, kind} <- [
            {fn -> throw(@secret) end, :throw},
            {fn -> exit(@secret) end, :exit},
            {fn -> %{x: %{function: & &1, schema: %{}}} end, :error}
          ] do
        {:error, error} =
          Runtime.run(Context.new("Hi"), llm: LLM.Scripted.new(["Hello!"]), tools: tools)

        assert {:tools_exception, ^kind, _} = error.reason
        assert Exception.message(error) =~ "the function of :tools"
        refute inspect(Context.Audit.failures(error.context)) =~ @secret
      end
    end

    test "a run that only returns its answer needs no tools" do
      context = Context.new("Hi") |> Context.add_assistant_message("Hello!")
      opts = [llm: LLM.Scripted.new([]), tools: fn -> fail(:raise) end]

      assert capture_log(fn -> assert {:ok, %{output: "Hello!"}} = Runtime.run(context, opts) end) =~
               ":tools failed"
    end
  end
end
