defmodule AshAgent.Runtime.CutTest do
  use ExUnit.Case, async: true

  # What is told and kept of a run that was ended from outside: its money, its sub-agents, and which of its calls had begun.

  import AshAgent.TestSupport.Runs, only: [hanging: 1, prompt: 2]
  import AshAgent.TestSupport.StoredSessions, only: [sqlite: 0]

  alias AshAgent.{Context, LLM, Runtime, Session, Store}
  alias AshAgent.Runtime.{Error, SubAgent, Underway}
  alias AshAgent.TestSupport.StreamModel

  @moduletag :capture_log

  @used %{input_tokens: 1_000, output_tokens: 0}
  @price 1_000_000_000
  @prices [%{model: :any, input: 1_000_000, output: 1_000_000}]

  defp call(id, name), do: %{id: id, name: name, arguments: %{"task" => "it"}}
  defp calls(calls), do: %{tool_calls: calls, usage: @used}

  # Asks once, and its call never ends. The child is a tool of the parent.
  defp stuck(tools),
    do: [
      llm: fn _ -> {:ok, calls(for(name <- Map.keys(tools), do: call(name, name)))} end,
      tools: tools
    ]

  defp nested(leaf) do
    dig = SubAgent.tool([name: "dig"] ++ stuck(%{"leaf" => leaf}))

    look =
      SubAgent.tool(name: "look", llm: fn _ -> {:ok, calls([call("d", "dig")])} end, tools: [dig])

    [llm: fn _ -> {:ok, calls([call("l", "look")])} end, tools: [look], prices: @prices]
  end

  defp start(opts), do: start_supervised!({Session, opts}, id: make_ref(), restart: :temporary)

  defp create(store) do
    {:ok, kept} = Store.create(store, Context.new("Hi", id: "c"), owner: "a")
    kept
  end

  # Ends a run from outside, and returns its error.
  defp cut(how, opts) when how == :timeout do
    {:error, error} = prompt("Hi", [{how, 1_500}] ++ opts)
    assert_received {:working, _}
    error
  end

  defp cut(how, opts) do
    store = sqlite()
    Process.put(:store, store)
    opts = if how == :drain, do: [store: store, id: "c"] ++ opts, else: opts
    session = start(opts)
    {:ok, ref} = Session.prompt_async(session, "Hi")
    assert_receive {:working, _}

    case how do
      :cancel -> :ok = Session.cancel(session)
      :kill -> Process.exit(:sys.get_state(session).run.task.pid, :kill)
      :drain -> GenServer.cast(session, {:drain, :now})
    end

    assert_receive {Session, ^ref, {:error, error}}
    error
  end

  describe "the money" do
    test "of a run that was cut is told, with its sub-agents at all depths" do
      for how <- [:timeout, :cancel, :kill, :drain] do
        error = cut(how, nested(hanging(:working)))
        assert {how, error.iterations, error.usage[:input_tokens]} == {how, 1, 1_000}
        assert {how, error.cost} == {how, 3 * @price}
        assert [look, dig] = error.sub_agents
        assert {look[:metadata].tool_call_id, dig[:metadata].tool_call_id} == {"l", "d"}
        for child <- [look, dig], do: assert(Context.pending_tool_calls(child) == [])
      end
    end

    test "of a run without prices is not told, but its tokens and sub-agents are" do
      error = cut(:cancel, Keyword.delete(nested(hanging(:working)), :prices))
      assert %{cost: nil, usage: %{input_tokens: 1_000}, sub_agents: [_, _]} = error
    end

    test "of sub-agents that were killed counts in the turn's later runs, after a reload as well" do
      for how <- [:timeout, :cancel, :kill] do
        %{context: context} = cut(how, nested(hanging(:working)))
        context = context |> Context.to_snapshot() |> Context.load!()
        results = context |> Context.get_iteration_messages(1) |> List.last()
        assert %{sub_agents: %{"l" => %{status: status, cost: cost}}} = results.metadata
        # When the time of both is over, the child may be faster.
        assert status == :interrupted or how == :timeout
        assert cost == 2 * @price
        opts = [llm: fn _ -> {:ok, %{content: "Done", usage: @used}} end, prices: @prices]

        assert {:error, %Error{reason: {:max_cost_exceeded, _}}} =
                 Runtime.run(context, [max_cost: 3 * @price] ++ opts)

        assert {:ok, _} = Runtime.run(context, [max_cost: 3 * @price + 1] ++ opts)
      end
    end

    # The child may take a second longer, to report its end.
    test "of sub-agents that were killed when a node was drained counts for the next session" do
      store = sqlite()
      opts = [store: store, id: "c"] ++ nested(hanging(:working))
      session = start(opts)
      {:ok, _ref} = Session.prompt_async(session, "Hi")
      assert_receive {:working, _}
      monitor = Process.monitor(session)
      GenServer.cast(session, {:drain, :now})
      assert_receive {:DOWN, ^monitor, _, _, {:shutdown, :drained}}
      assert {:ok, %{status: :running}} = Store.fetch(store, "c")

      llm = fn _ -> {:ok, %{content: "Done", usage: @used}} end
      next = fn max -> start(Keyword.merge(opts, llm: llm, max_cost: max, go_on: false)) end
      session = next.(3 * @price)
      assert {:error, %Error{reason: {:max_cost_exceeded, _}}} = Session.resume(session)
      GenServer.stop(session)
      assert {:ok, %{output: "Done"}} = Session.resume(next.(3 * @price + 1))
    end

    test "of the same sub-agent in each of several drained sessions counts" do
      store = sqlite()
      again = fn [look] -> [%{look | repeat: :safe}] end
      opts = [store: store, id: "c"] ++ Keyword.update!(nested(hanging(:working)), :tools, again)

      for life <- 1..3 do
        session = start(opts)
        if life == 1, do: {:ok, _ref} = Session.prompt_async(session, "Hi")
        assert_receive {:working, _}
        monitor = Process.monitor(session)
        GenServer.cast(session, {:drain, :now})
        assert_receive {:DOWN, ^monitor, _, _, {:shutdown, :drained}}
      end

      {:ok, %{value: context}} = Store.fetch(store, "c")
      assert %{"sub_agents" => %{"l" => note}} = Context.get_iteration(context, 1).metadata
      assert {note.cost, note.usage.input_tokens} == {6 * @price, 3_000}
    end

    test "of a run whose session was killed is known to whoever is told its end" do
      test = self()

      tell = fn
        [_, _, :run, :stop], _, %{depth: 0} = metadata -> send(test, {:ended, metadata})
        _event, _, _ -> :ok
      end

      session = start([on_event: tell] ++ nested(hanging(:working)))
      {:ok, _ref} = Session.prompt_async(session, "Hi")
      assert_receive {:working, _}
      Process.exit(session, :kill)
      assert_receive {:ended, %{reason: :exit, sub_agents: [_, _], context: context}}
      assert [%{id: "l"}] = Context.pending_tool_calls(context)
    end

    test "of a sub-agent that had to be killed is told by the run" do
      hang = fn
        [_, _, :tool, :start], _, _ -> Process.sleep(:infinity)
        _event, _, _ -> :ok
      end

      child =
        [name: "look", timeout: 50, on_event: hang] ++ stuck(%{"leaf" => fn _ -> {:ok, 1} end})

      llm = LLM.Scripted.new([calls([call("l", "look")]), %{content: "Hm", usage: @used}])
      opts = [llm: llm, tools: [SubAgent.tool(child)], prices: @prices]
      assert {:ok, %{sub_agents: [_child], context: context} = result} = prompt("Hi", opts)
      assert result.cost == 3 * @price
      results = context |> Context.get_iteration_messages(1) |> List.last()
      assert %{sub_agents: %{"l" => %{status: :interrupted, cost: @price}}} = results.metadata
    end

    test "of an answer that was cut is told as far as the provider reported it, and counts later" do
      start = %{
        type: "message_start",
        message: %{
          id: "m",
          type: "message",
          role: "assistant",
          model: "m",
          content: [],
          usage: @used
        }
      }

      block = %{type: "content_block_start", index: 0, content_block: %{type: "text", text: ""}}

      piece = %{
        type: "content_block_delta",
        index: 0,
        delta: %{type: "text_delta", text: "Once "}
      }

      sse =
        for %{type: type} = event <- [start, block, piece],
            do: ["event: ", type, "\ndata: ", Context.JSON.encode(event), "\n\n"]

      for how <- [:cancel, :kill, :drain, :timeout] do
        test = self()

        llm =
          StreamModel.new(:anthropic, fn _context, feed ->
            feed.(IO.iodata_to_binary(sse))
            send(test, {:working, self()})
            Process.sleep(:infinity)
          end)

        error = cut(how, llm: llm, prices: @prices)
        assert {how, error.cost, error.usage[:input_tokens]} == {how, @price, 1_000}
        opts = [llm: fn _ -> {:ok, %{content: "Done", usage: @used}} end, prices: @prices]

        context =
          if how == :drain do
            {:ok, stored} = Store.fetch(Process.get(:store), "c")
            stored.value
          else
            error.context
          end

        bound = fn more -> Runtime.run(context, [max_cost: @price + more] ++ opts) end
        assert {:error, %Error{reason: {:max_cost_exceeded, _}}} = bound.(0)
        assert {:ok, _} = bound.(1)
      end
    end
  end

  describe "the facts of a run" do
    test "are noted for whoever may ask: its session, the run around it, and a run with sub-agents" do
      run = %{context: nil, iterations: 1, usage: %{}, cost: nil, sub_agents: []}
      run = Map.merge(run, %{outermost?: true, watch: nil, scope: %{context_id: "of"}})

      for {own, noted} <- [
            {%{}, 0},
            {%{watch: fn _ -> :ok end}, 1},
            {%{outermost?: false}, 1},
            {%{sub_agents: [Context.new("Hi")]}, 1}
          ] do
        table = Underway.new()
        Underway.put_facts(run |> Map.merge(own) |> Map.put(:underway, table))
        assert :ets.info(table, :size) == noted
      end
    end
  end

  describe "a call" do
    test "that was stopped in the middle reads otherwise than one that did not start, for model, status and journal" do
      for how <- [:timeout, :cancel, :kill], stored? <- [false, true] do
        store = sqlite()

        tools = %{
          "pay" => hanging(:working),
          "mail" => fn _ -> {:ok, "sent"} end,
          "look" => fn _ -> {:ok, 1} end
        }

        script = [%{tool_calls: for(name <- ~w(look pay mail), do: call(name, name))}]
        opts = [llm: LLM.Scripted.new(script), tools: tools, max_concurrency: 1]

        opts =
          cond do
            not stored? ->
              opts

            how == :timeout ->
              [store: store, kept: create(store)] ++ opts

            true ->
              [store: store, id: "c"] ++ opts
          end

        error =
          if how == :timeout and stored? do
            {:error, error} = Runtime.run(opts[:kept].value, [timeout: 1_500] ++ opts)
            assert_received {:working, _}
            error
          else
            cut(how, opts)
          end

        context = error.context |> Context.to_snapshot() |> Context.load!()
        [look, pay, mail] = Context.get_iteration(context, 1).tool_calls
        assert look.result == {:ok, 1}

        assert {:error, "the outcome is unknown: the call was started, and stopped" <> _} =
                 pay.result

        assert {:error, unstarted} = mail.result
        assert unstarted =~ "the call was not started"

        statuses = for id <- ~w(look pay mail), do: Context.Calls.tool_call_status(context, id)
        ended = if how == :cancel, do: :cancelled, else: :interrupted
        assert {how, statuses} == {how, [:ok, :unknown, ended]}

        if stored? do
          {:ok, calls} = Store.calls(store, "c")
          states = for %{call: %{id: id}, state: state} <- calls, into: %{}, do: {id, state}
          assert {how, states} == {how, %{"look" => :ok, "pay" => :unknown, "mail" => ended}}
        end
      end
    end

    test "whose time was over is unknown, and the run goes on" do
      llm = LLM.Scripted.new([%{tool_calls: [call("p", "pay"), call("m", "mail")]}, "Done."])
      tools = %{"pay" => fn _ -> Process.sleep(:infinity) end, "mail" => fn _ -> {:ok, 1} end}
      store = sqlite()
      kept = create(store)
      opts = [llm: llm, tools: tools, tool_timeout: 50, store: store, kept: kept]
      assert {:ok, %{context: context}} = Runtime.run(kept.value, opts)
      [pay, mail] = Context.get_iteration(context, 1).tool_calls
      assert {:error, words} = pay.result
      assert words =~ "(timed out after 50 ms). It may have been carried out"
      assert mail.result == {:ok, 1}
      assert Context.Calls.tool_call_status(context, "p") == :unknown
      {:ok, calls} = Store.calls(store, "c")

      assert Enum.sort(for %{call: call, state: state} <- calls, do: {call.id, state}) == [
               {"m", :ok},
               {"p", :unknown}
             ]
    end

    test "with the id of an earlier one that ran is not taken for it" do
      llm = fn context ->
        if context.current_iteration == 1,
          do: {:ok, %{tool_calls: [call("a", "look")]}},
          else: {:ok, %{tool_calls: [call("b", "pay"), call("a", "look")]}}
      end

      tools = %{"look" => fn _ -> {:ok, 1} end, "pay" => hanging(:working)}

      session =
        start(
          llm: llm,
          tools: tools,
          max_concurrency: 1
        )

      {:ok, ref} = Session.prompt_async(session, "Hi")
      assert_receive {:working, _}
      :ok = Session.cancel(session)
      assert_receive {Session, ^ref, {:error, %Error{context: context}}}

      assert [
               {:error, "the outcome" <> _},
               {:error, "cancelled by the user; the call was not started"}
             ] = for(call <- Context.get_iteration(context, 2).tool_calls, do: call.result)
    end
  end
end
