defmodule AshAgent.Runtime.ViewTest do
  use ExUnit.Case, async: true

  alias AshAgent.{Context, LLM, Runtime, Session, Store}
  alias AshAgent.Context.Enhancer.{Budget, Redact}

  import AshAgent.TestSupport.Runs, only: [prompt: 2]

  def ok(_arguments), do: {:ok, "ok"}
  @auto [tools: %{look: {__MODULE__, :ok}}, view: :auto]

  @long String.duplicate("All is well. ", 1_000)

  defp look(number), do: %{tool_calls: [%{id: "call_#{number}", name: "look"}]}
  defp looks(count), do: LLM.Scripted.new(Enum.map(1..count, &look/1) ++ ["Done."])

  defp look_thrice do
    Enum.reduce(1..3, Context.new("Look"), fn n, context ->
      context
      |> Context.add_assistant_message(nil, [%{id: "call_#{n}", name: "look"}])
      |> Context.add_tool_results([{"call_#{n}", {:ok, @long}}])
    end)
  end

  defp turn(n, context),
    do: context |> Context.add_assistant_message(@long) |> Context.add_user_message("#{n}")

  defp results(context) do
    for %{content: [%{type: :tool_result, content: text}]} <- Context.to_messages(context),
        do: text
  end

  test "each request is made from the view, which stays with the context" do
    llm = looks(2)

    count = fn context, _needs ->
      {:ok, Context.View.put_prompt_block(context, :n, "#{context.current_iteration}")}
    end

    opts = [llm: llm, tools: %{look: fn _ -> {:ok, "ok"} end}, view: [count]]
    {:ok, result} = prompt("Look", opts)

    seen =
      for %{context: context} <- LLM.Scripted.requests(llm),
          do: hd(Context.to_messages(context)).content

    assert seen == ["1", "2", "3"]
    assert %{blocks: [{"n", "3"}]} = Context.View.view(result.context)

    loaded = result.context |> Context.to_snapshot() |> Context.load!()
    assert %{blocks: [{"n", "3"}]} = Context.View.view(loaded)
  end

  test "an enhancer that fails ends the run before the model is asked, unless it may be skipped" do
    test = self()
    llm = fn _ -> {:ok, %{content: "#{inspect(send(test, :asked))}"}} end
    broken = fn _context, _needs -> {:error, :down} end

    assert {:error, %{reason: {:view_error, error}} = failed} =
             prompt("Hi", llm: llm, view: [broken])

    assert {:enhancer_failed, ^broken, :down} = error.reason
    assert Exception.message(failed) =~ "the model was not asked"
    refute_received :asked

    assert {:ok, _result} = prompt("Hi", llm: llm, view: {[broken], on_error: :skip})
    assert_received :asked
  end

  test "wrong views are refused before anything happens" do
    for view <- [[:nothing], [{Budget, []}], {[], on_error: :hope}, :often, [Budget | Budget]] do
      opts = [llm: fn _ -> flunk("asked") end, view: view]
      assert_raise ArgumentError, fn -> prompt("Hi", opts) end
    end
  end

  test "what the application refuses ends the run with the view" do
    hide = {Redact, patterns: [:email]}
    opts = [llm: fn _ -> flunk("asked") end, view: [hide], on_change: fn _ -> {:error, :full} end]

    assert {:error, %{reason: {:on_change_error, :full}}} = prompt("ann@example.com", opts)
  end

  test ":auto clears when the rent is paid, by the run's prices, and lets the model read again" do
    run = fn opts ->
      opts = [tools: %{look: fn _ -> {:ok, @long} end}, view: :auto, max_iterations: 20] ++ opts
      {:ok, result} = prompt("Look", [llm: looks(12)] ++ opts)
      result.context
    end

    context = run.([])
    assert [first | _] = results(context)
    assert first =~ "recall 1.1-" and byte_size(first) < 500
    assert Enum.take(results(context), -3) == List.duplicate(@long, 3)
    assert Context.Recall.recall?(context)

    # Where clearing costs nothing, all but three are cleared with each request.
    free = [%{model: :any, input: 10, output: 10}]
    assert %{cleared: %{iteration: 9, calls: 1}} = Context.View.view(run.(prices: free))
    dear = [%{model: :any, input: 10, cache_read: 1, cache_write: 1_000, output: 10}]
    assert Context.View.view(run.(prices: dear)).cleared == nil
  end

  test "an application's own tool of that name stays" do
    own = %{name: "recall", description: "Mine", function: fn _ -> {:ok, "mine"} end}
    llm = LLM.Scripted.new(["Done."])
    {:ok, _result} = prompt("Hi", llm: llm, tools: [own], view: :auto)
    assert [%{opts: opts}] = LLM.Scripted.requests(llm)
    assert [%{name: "recall", description: "Mine"}] = opts[:tools]
  end

  test "reports count exactly the view that stays with the context" do
    usage = %{input_tokens: 5_000, output_tokens: 10}
    llm = LLM.Scripted.new([Map.put(look(1), :usage, usage), "Done."])
    test = self()

    count = fn context, _needs ->
      send(test, {:counted, Context.Tokens.count_tokens(context, method: :auto)})
      {:ok, context}
    end

    context = Enum.reduce(1..9, Context.new("0"), &turn/2)
    view = [{Budget, budget: 8_000, method: :estimate}, count]
    opts = [llm: llm, tools: %{look: fn _ -> {:ok, "ok"} end}, view: view]
    {:ok, _result} = Runtime.run(context, opts)
    assert_received {:counted, first}
    assert first < 8_000
    # What was reported for this view, and an estimate of the result alone.
    assert_received {:counted, second}
    assert second in 5_011..5_050
  end

  test "a sub-agent has a view of its own" do
    child = LLM.Scripted.new(["Done."])
    agent = Runtime.SubAgent.tool(name: "helper", description: "Helps", llm: child, view: :auto)
    call = %{id: "a", name: "helper", arguments: %{"task" => "Look"}}
    parent = LLM.Scripted.new([%{tool_calls: [call]}, "Fine."])
    {:ok, _result} = prompt("Hi", llm: parent, tools: [agent])
    assert [%{opts: opts}] = LLM.Scripted.requests(child)
    assert [%{name: "recall"}] = opts[:tools]
    assert [%{opts: opts} | _] = LLM.Scripted.requests(parent)
    assert ["helper"] = Enum.map(opts[:tools], & &1.name)
  end

  test "what is too long with view: :auto is asked again from a shorter view" do
    test = self()
    error = %LLM.Error{kind: :context_overflow, reason: {:status, 400}}

    llm = fn context, _opts ->
      shown = Enum.count(results(context), &(&1 == @long))
      send(test, {:shown, shown})
      if shown > 1, do: {:error, error}, else: {:ok, %{content: "Done."}}
    end

    {:ok, result} = look_thrice() |> Runtime.run([llm: llm] ++ @auto)
    assert_received {:shown, 3}
    assert_received {:shown, 1}
    assert [%{kind: :context_overflow}] = Context.Audit.failures(result.context)
  end

  test "what fails for another reason is not" do
    test = self()
    error = %LLM.Error{kind: :invalid_request, reason: {:status, 400}}
    llm = fn _context -> send(test, :asked) && {:error, error} end

    {:error, ended} = look_thrice() |> Runtime.run([llm: llm] ++ @auto)
    assert %{reason: {:llm_error, ^error}, context: context} = ended
    assert_received :asked
    refute_received :asked
    assert Enum.count(results(context), &(&1 == @long)) == 3
  end

  test "the view is stored, and the next run of a session goes on with it" do
    {:ok, store} = Store.SQLite.open(":memory:")
    llm = LLM.Scripted.new(["One.", "Two."])
    {:ok, calls} = Agent.start_link(fn -> 0 end)

    summarize = fn _messages ->
      Agent.update(calls, &(&1 + 1))
      {:ok, "They spoke."}
    end

    context = Enum.reduce(1..3, Context.new("0", id: "c1"), &turn/2)
    view = [{Budget, budget: 4_000, strategy: {:summarize, summarize}}]
    opts = [llm: llm, view: view, store: store, id: "c1", context: context]
    {:ok, session} = start_supervised({Session, opts})
    assert {:ok, _result} = Session.prompt(session, "Hi")
    assert {:ok, _result} = Session.prompt(session, "Again")

    {:ok, stored} = Store.fetch(store, "c1")
    assert [%Range{first: 1}] = Context.View.view(stored.value).summaries
    assert Agent.get(calls, & &1) == 1
  end
end
