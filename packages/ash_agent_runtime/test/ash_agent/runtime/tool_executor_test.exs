defmodule AshAgent.Runtime.ToolExecutorTest do
  use ExUnit.Case, async: true

  @moduletag :capture_log

  import AshAgent.Runtime.ToolExecutor, only: [execute_tools: 3, execute_tools: 4]

  alias AshAgent.{Context, Toolbox}
  alias AshAgent.Runtime.Keeper

  doctest AshAgent.Runtime.ToolExecutor
  doctest AshAgent.Runtime.Tool
  doctest AshAgent.Runtime.Events

  defmodule Weather do
    def one(arguments), do: {:ok, {:one, arguments}}
    def two(arguments, tool_context), do: {:ok, {:two, arguments, tool_context.actor}}
    def both(_), do: {:ok, 1}
    def both(_, _), do: {:ok, 2}
  end

  defmodule Definition do
    defstruct [:name, :function, :description, :parameters]
  end

  defp call(name, arguments \\ %{}), do: %{id: "call", name: name, arguments: arguments}

  defp result(definition, arguments \\ %{}, opts \\ []) do
    [%{id: "call", result: result}] =
      execute_tools([call(:tool, arguments)], %{tool: definition}, %{actor: "Ada"}, opts)

    result
  end

  test "leaves the end of other processes to whoever watches them" do
    ref = make_ref()
    send(self(), {:DOWN, ref, :process, self(), :killed})
    assert result(fn _ -> {:ok, 1} end) == {:ok, 1}
    assert_received {:DOWN, ^ref, :process, _pid, :killed}
  end

  describe "definitions" do
    test "are functions, {module, function}, maps and structs with either, and toolboxes" do
      arguments = %{"x" => 1}
      assert result(&{:ok, &1}, arguments) == {:ok, arguments}
      assert result(&{:ok, {&1, &2.actor}}, arguments) == {:ok, {arguments, "Ada"}}
      assert result({Weather, :one}, arguments) == {:ok, {:one, arguments}}
      assert result({Weather, :two}, arguments) == {:ok, {:two, arguments, "Ada"}}
      assert result({Weather, :both}, arguments) == {:ok, 2}
      assert result(%{function: {Weather, :one}}, arguments) == {:ok, {:one, arguments}}
      assert result(%Definition{function: &{:ok, &1}}, arguments) == {:ok, arguments}
      assert result(Toolbox.new(name: "cat", command: "cat"), arguments) == {:ok, ~s({"x":1})}
    end

    test "may be a list" do
      tools = [
        {"a", fn _ -> :a end},
        {:b, fn _ -> :b end},
        %Definition{name: :c, function: fn _ -> :c end},
        %{name: "d", function: fn _ -> :d end},
        Toolbox.new(name: "e", command: "echo", args: ["-n", "e"])
      ]

      results = execute_tools(for(name <- ~w(a b c d e), do: call(name)), tools, %{})
      assert for(%{result: {:ok, result}} <- results, do: result) == [:a, :b, :c, :d, "e"]
    end

    test "may be a single toolbox" do
      cat = Toolbox.new(name: "cat", command: "cat")
      assert [%{result: {:ok, "{}"}}] = execute_tools([call("cat")], cat, %{})
    end

    test "are found by the text of the name, without making atoms" do
      tools = %{"b" => fn _ -> 2 end, a: fn _ -> 1 end}
      results = execute_tools(for(name <- ["a", :a, "b", :b], do: call(name)), tools, %{})
      assert for(%{result: {:ok, n}} <- results, do: n) == [1, 1, 2, 2]

      name = "no_such_tool_#{System.unique_integer([:positive])}"
      assert [%{result: {:error, words}}] = execute_tools([call(name)], tools, %{})
      assert words == "unknown tool #{inspect(name)}; available tools: a, b"
      assert_raise ArgumentError, fn -> String.to_existing_atom(name) end
    end
  end

  describe "results" do
    test "come in the order of the calls, and fit a context" do
      me = self()

      tool = fn %{n: n} ->
        send(me, {:began, n, self()})
        receive(do: (:go -> {:ok, n}))
      end

      calls = for n <- 1..5, do: %{id: "#{n}", name: "t", arguments: %{n: n}}
      task = Task.async(fn -> execute_tools(calls, %{t: tool}, %{}) end)
      pids = for n <- 1..5, do: assert_receive({:began, ^n, pid}) && pid
      for pid <- Enum.reverse(pids), do: send(pid, :go)
      results = Task.await(task)
      assert results == for(n <- 1..5, do: %{id: "#{n}", result: {:ok, n}})

      context = Context.add_assistant_message(Context.new("Hi"), nil, calls)
      assert Context.add_tool_results(context, results).current_iteration == 2
    end

    test "are what the tool returned, as result or as value" do
      for {returned, result} <- [
            {{:error, :no}, {:error, :no}},
            {{:halt, 1}, {:ok, 1}},
            {"text", {:ok, "text"}},
            {nil, {:ok, nil}},
            {:error, {:error, "the tool failed"}}
          ],
          do: assert(result(fn _ -> returned end) == result)
    end

    test "have no words of an exception, which the application's function gets whole" do
      test = self()
      tool = fn _ -> raise ArgumentError, "postgres://app:SECRET@db" end
      tell = fn event, _measured, metadata -> send(test, {List.last(event), metadata}) end
      assert {:error, words} = result(tool, %{}, on_event: tell)
      assert words == "the tool raised ArgumentError"
      assert_received {:exception, %{reason: ArgumentError, exception: exception}}
      refute inspect(exception) =~ "SECRET"
      assert Exception.message(exception.()) =~ "SECRET"
    end

    test "of tools that fail are words for the model" do
      opened = [exception_messages: true]
      linked = fn _ -> spawn_link(fn -> exit(:linked) end) && Process.sleep(:infinity) end

      for {tool, opts, words} <- [
            {fn _ -> raise "no coffee" end, [], "the tool raised RuntimeError"},
            {fn _ -> raise "no coffee" end, opened, "the tool raised RuntimeError: no coffee"},
            {fn _ -> throw(:secret) end, [], "the tool threw a value that nobody caught"},
            {fn _ -> exit(:boom) end, [], "the tool's process exited (:boom)"},
            {fn _ -> exit({:secret, "token"}) end, [], "the tool's process exited (:secret)"},
            {fn _ -> exit("token") end, [], "the tool's process exited (:other)"},
            {fn _ -> Process.exit(self(), :kill) end, [], "the tool's process exited (:killed)"},
            {linked, [], "the tool's process exited (:linked)"},
            {fn _ -> GenServer.call(:nobody_here, {:secret, "token"}) end, [],
             "the tool's process exited (:noproc)"},
            {fn _ -> apply(NoSuchModule, :f, []) end, [],
             "the tool raised UndefinedFunctionError"}
          ],
          do: assert(result(tool, %{}, opts) == {:error, words})

      assert {:error, "the tool raised FunctionClauseError: no function" <> _} =
               result(fn %{never: _} -> 1 end, %{}, opened)

      long = fn _ -> raise String.duplicate("x", 100_000) end
      assert {:error, words} = result(long, %{}, opened)
      assert byte_size(words) < 3_000
    end

    test "of tools that are too slow say so, and the tools are killed" do
      me = self()
      hang = fn _ -> send(me, self()) && Process.sleep(:infinity) end
      assert result(hang, %{}, timeout: 200) == {:error, "timed out after 200 ms"}
      assert_received pid when is_pid(pid)
      refute Process.alive?(pid)
    end

    test "do not wait for a tool that traps exits" do
      stubborn = fn _ ->
        Process.flag(:trap_exit, true)
        Process.sleep(:infinity)
      end

      assert result(stubborn, %{}, timeout: 20) == {:error, "timed out after 20 ms"}
    end

    test "take one process for each call, and one that ends them with the caller, which hears nothing of them" do
      worker =
        Task.async(fn ->
          Process.flag(:trap_exit, true)
          receive do: (:go -> :ok)

          results =
            execute_tools([call("a"), call("a")], %{"a" => fn _ -> {:ok, self()} end}, %{})

          {results, Process.info(self(), :messages), Process.info(self(), :links)}
        end)

      :erlang.trace(worker.pid, true, [:procs, :set_on_spawn])
      send(worker.pid, :go)
      {[%{result: {:ok, one}}, %{result: {:ok, other}}], messages, links} = Task.await(worker)
      delivered = :erlang.trace_delivered(:all)
      assert_receive {:trace_delivered, :all, ^delivered}

      assert {messages, links} == {{:messages, []}, {:links, [self()]}}
      assert_received {:trace, worker, :spawn, heir, _function}
      assert_received {:trace, ^worker, :spawn, ^one, _function}
      assert_received {:trace, ^worker, :spawn, ^other, _function}
      refute_received {:trace, _pid, :spawn, _child, _function}

      for pid <- [heir, one, other] do
        monitor = Process.monitor(pid)
        assert_receive {:DOWN, ^monitor, :process, ^pid, _reason}
      end
    end

    test "leave no tool behind when the calls end early, also of those that trap exits" do
      me = self()

      stubborn = fn _ ->
        Process.flag(:trap_exit, true)
        send(me, {:tool, self(), Process.get(:"$callers"), Process.get(:"$ancestors")})
        Process.sleep(:infinity)
      end

      for how <- [:raise, :kill] do
        {worker, ref} =
          spawn_monitor(fn ->
            Keeper.with_keeper(fn keeper ->
              AshAgent.Trace.Caller.task(keeper, fn -> stubborn.(%{}) end)
              send(me, {:heir, keeper.heir})
              receive do: (:raise -> raise("stop"))
            end)
          end)

        assert_receive {:heir, heir}
        assert_receive {:tool, tool, [^worker | _], [^worker | _]}
        [monitor, over] = for pid <- [tool, heir], do: Process.monitor(pid)
        if how == :kill, do: Process.exit(worker, :kill), else: send(worker, how)
        assert_receive {:DOWN, ^ref, :process, ^worker, _reason}
        assert_receive {:DOWN, ^monitor, :process, ^tool, :killed}
        assert_receive {:DOWN, ^over, :process, ^heir, :normal}
      end
    end

    test "do not begin when the calls are over" do
      me = self()
      keeper = Keeper.with_keeper(& &1)
      %Task{ref: ref} = Keeper.start_task(keeper, fn -> send(me, :began) end)
      assert_receive {:DOWN, ^ref, :process, _pid, :normal}
      refute_received :began
    end

    test "of no calls are none" do
      assert execute_tools([], %{}, %{}) == []
    end
  end

  describe "arguments" do
    test "may be JSON text, also empty" do
      echo = &{:ok, &1}
      assert result(echo, ~s({"a": 1})) == {:ok, %{"a" => 1}}
      for empty <- [nil, "", " \n"], do: assert(result(echo, empty) == {:ok, %{}})
    end

    test "that are no object are refused" do
      for bad <- ["[1]", "{\"a\":", "nonsense", [1], 5] do
        assert result(fn _ -> flunk("ran") end, bad) ==
                 {:error, "the arguments are not a JSON object"}
      end
    end

    test "that lack what the schema requires are refused by name, whatever the kind of keys" do
      texts = %{"required" => ["city", "day"]}

      for schema <- [texts, %{required: [:city, :day]}, %{required: ["city", :day]}] do
        tool = %{function: &{:ok, &1}, parameters: schema}
        assert result(tool, %{}) == {:error, ~s(the required arguments "city", "day" are missing)}

        for given <- [%{"city" => "NYC"}, %{city: "NYC"}],
            do:
              assert(result(tool, given) == {:error, ~s(the required argument "day" is missing)})

        assert {:ok, _} = result(tool, %{:city => "NYC", "day" => nil})
      end

      for odd <- [%{"required" => "city"}, %{"required" => [1, %{}]}, %{required: nil}] do
        assert {:ok, _} = result(%{function: &{:ok, &1}, parameters: odd}, %{})
      end
    end
  end

  describe "concurrency" do
    test "is bounded" do
      running = :counters.new(2, [:atomics])

      tool = fn _ ->
        :counters.add(running, 1, 1)
        now = :counters.get(running, 1)
        if now > :counters.get(running, 2), do: :counters.put(running, 2, now)
        receive(after: (2 -> :ok))
        :counters.sub(running, 1, 1)
      end

      calls = for n <- 1..30, do: %{id: "#{n}", name: :t, arguments: %{}}
      assert length(execute_tools(calls, %{t: tool}, %{}, max_concurrency: 3)) == 30
      assert :counters.get(running, 2) in 2..3
    end

    test "gives each call its own time, from when it begins" do
      tool = fn _ -> receive(after: (200 -> :ok)) end
      calls = for n <- 1..6, do: %{id: "#{n}", name: :t, arguments: %{}}
      results = execute_tools(calls, %{t: tool}, %{}, max_concurrency: 1, timeout: 1_000)
      assert Enum.all?(results, &match?({:ok, _}, &1.result))
    end

    test "of a thousand calls leaves nothing behind" do
      calls = for n <- 1..1_000, do: %{id: "#{n}", name: :t, arguments: %{}}

      results = execute_tools(calls, %{t: fn _ -> raise "x" end}, %{}, max_concurrency: 100)
      assert length(results) == 1_000
      assert left_behind() == []
      assert Process.info(self(), :messages) == {:messages, []}
    end

    # Of all processes, those that came from this one, without ExUnit's for the logs.
    defp left_behind do
      for pid <- Process.list(),
          {:dictionary, dictionary} <- [Process.info(pid, :dictionary)],
          dictionary[:"$initial_call"] != {StringIO, :init, 1},
          key <- [:"$ancestors", :"$callers"],
          self() in List.wrap(dictionary[key]),
          do: pid
    end
  end
end
