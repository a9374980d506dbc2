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

  describe "results that alone are too long" do
    @most 200_000

    # Asks for so many logs, and reads again a line that is left out of the first one.
    defp reader(count) do
      test = self()

      fn context ->
        {:ok, body} =
          Context.encode_request(context, :anthropic, body: %{model: "m", max_tokens: 9})

        called =
          for %{tool_calls: calls} <- Context.to_messages(context), call <- calls, do: call.name

        cond do
          :erlang.iolist_size(body) > @most ->
            {:error, %LLM.Error{kind: :context_overflow, reason: {:status, 400}}}

          called == [] ->
            {:ok, %{tool_calls: for(n <- 1..count, do: %{id: "log_#{n}", name: "read_log"})}}

          "recall" not in called ->
            send(test, {:saw, logs(context)})

            [handle] =
              Regex.run(~r/left out,.* recall ([^ ]+)/, logs(context), capture: :all_but_first)

            arguments = %{"handle" => handle, "from" => 5_000, "lines" => 1}
            {:ok, %{tool_calls: [%{id: "again", name: "recall", arguments: arguments}]}}

          true ->
            again = List.last(Regex.scan(~r/line 4999|line 5000/, logs(context)))
            {:ok, %{content: "Done: #{again}"}}
        end
      end
    end

    defp logs(context) do
      for %{role: :user, content: [_ | _] = parts} <- Context.to_messages(context),
          %{type: :tool_result, content: text} <- parts,
          into: "",
          do: text
    end

    defp read_logs(count) do
      lines = Enum.map_join(1..div(60_000, count), &"line #{&1}: the pump answered late\n")
      %{read_log: fn _ -> {:ok, "first words\n" <> lines <> "last words"} end}
    end

    test "are shown in part, with a handle for the rest, and the turn goes on, and so does the next" do
      for count <- [1, 5], where <- [:run, :session] do
        opts = [llm: reader(count), tools: read_logs(count), view: :auto]
        {:ok, store} = Store.SQLite.open(":memory:")

        {:ok, result} =
          case where do
            :run ->
              Runtime.run(Context.new("Read the logs"), opts)

            :session ->
              {:ok, session} = Session.start_link([store: store, id: "c"] ++ opts)
              answer = Session.prompt(session, "Read the logs")
              :ok = GenServer.stop(session)
              answer
          end

        # Renting clears all but three at once, with a handle for each.
        assert_received {:saw, logs}
        shown = min(count, 3)
        # A note of a cleared result has its first words.
        logs = String.replace(logs, ~r/\[[^\]]*read_log: [^\]]*first words[^\]]*\]/, "")

        for words <- ["first words", "last words"],
            do: assert(length(String.split(logs, words)) == shown + 1)

        refute logs =~ "line 5000:"
        assert result.output =~ "line 4999" or result.output =~ "line 5000"
        assert [%{kind: :shortened} = step] = Context.Shortening.shortenings(result.context)
        assert step.cause == :context_overflow and step.range == 1..1
        failures = Context.Audit.failures(result.context)
        assert failures != [] and Enum.all?(failures, &(&1.kind == :context_overflow))
        assert Context.Recall.receipt(result.context).counts.gone == 0
        whole = Context.View.expand(result.context, step)
        assert Context.Shortening.shortenings(whole) == []
        assert byte_size(logs(whole)) > 1_000_000

        # Loaded, it is as short, and nothing has to be refused again.
        loaded =
          if where == :run,
            do: result.context |> Context.to_snapshot() |> Context.load!(),
            else: elem(Store.fetch(store, "c"), 1).value

        again = loaded |> Context.add_user_message("And now?") |> Runtime.run(opts)
        assert {:ok, %{output: "Done: " <> _line, context: context}} = again
        assert Context.Audit.failures(context) == failures
      end
    end

    test "are so before they are sent, where the window is known" do
      for count <- [1, 5] do
        prices = [%{model: :any, input: 1, output: 1, context_window: 60_000}]
        opts = [llm: reader(count), tools: read_logs(count), view: :auto, prices: prices]
        assert {:ok, result} = prompt("Read the logs", opts)
        assert Context.Audit.failures(result.context) == []

        assert [%{kind: :shortened, cause: :window}] =
                 Context.Shortening.shortenings(result.context)
      end
    end
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
