defmodule AshAgent.Runtime.RecallTest do
  use ExUnit.Case, async: true

  alias AshAgent.{Context, Runtime}
  alias AshAgent.LLM.Scripted
  alias AshAgent.Runtime.{Recall, SubAgent, ToolExecutor}

  doctest AshAgent.Runtime.Recall

  @file_text Enum.map_join(1..200, "\n", &"line #{&1}")

  defp read_tool, do: {:read_file, fn _arguments -> {:ok, @file_text} end}

  defp calls(calls) do
    for {{name, arguments}, number} <- Enum.with_index(calls),
        do: %{
          id: "#{name}_#{number}_#{System.unique_integer([:positive])}",
          name: name,
          arguments: arguments
        }
  end

  # The model reads a file, and then recalls with the handles that it reads in its context.
  defp model(steps) do
    Scripted.new(
      Enum.map(steps, fn
        step when is_function(step, 1) -> step
        answer when is_binary(answer) -> answer
        step -> %{tool_calls: calls(step)}
      end)
    )
  end

  defp handles(context) do
    for %{content: [%{type: :tool_result} | _] = results} <- Context.to_messages(context),
        %{content: text} <- results,
        [_, handle] <- [Regex.run(~r/recall ([0-9.]+-[0-9]{3})/, text)],
        do: handle
  end

  defp results(context) do
    for %{tool_calls: calls} <- Context.iterations(context),
        call <- calls,
        do: {to_string(call.name), call.result}
  end

  defp run(context, steps, opts \\ []) do
    opts = Keyword.merge([llm: model(steps), tools: [read_tool(), Recall.tool()]], opts)
    {:ok, result} = Runtime.run(context, opts)
    result.context
  end

  defp cleared do
    run(Context.new("Read."), [[read_file: %{"path" => "lib/a.ex"}], "Read."])
    |> Context.View.clear_tool_results(keep: 0)
    |> Context.add_user_message("Again.")
  end

  test "reads what was cleared, and its answer is a result like any other" do
    context = cleared()
    assert [handle] = handles(context)
    arguments = %{"handle" => handle, "from" => 3, "lines" => 2}
    context = run(context, [[recall: arguments], "Done."])

    assert {"recall", {:ok, "line 3\nline 4\n[lines 3 to 4 of 200]"}} =
             context |> results() |> List.last()

    context =
      run(context |> Context.add_user_message("More"), [[recall: %{"handle" => handle}], "Done."])

    assert {"recall", {:ok, @file_text}} = context |> results() |> List.last()
    assert [_, _] = context |> Context.View.clear_tool_results(keep: 0) |> handles()
  end

  test "searches, and says what it cannot do" do
    context =
      run(cleared(), [
        [recall: %{"query" => "line 77"}],
        [recall: %{"query" => "zebra"}],
        [recall: %{"handle" => "1.1-000"}, recall: %{"handle" => "nonsense"}, recall: %{}],
        "Done."
      ])

    assert [{_, {:ok, found}}, {_, {:ok, "[nothing found]"}} | errors] =
             context |> results() |> tl()

    assert found =~ ~r/^1\.1-\d{3}: .*line 77/
    assert [{_, {:error, "gone: " <> _}}, {_, {:error, unknown}}, {_, {:error, neither}}] = errors
    assert unknown =~ "not a handle"
    assert neither =~ "give a handle"
  end

  test "tells of the same recall twice in a row" do
    context = cleared()
    [handle] = handles(context)
    same = [recall: %{"handle" => handle, "lines" => 1}]
    context = run(context, [same, same, [recall: %{"handle" => handle, "lines" => 2}], "Done."])
    said = for {"recall", {:ok, text}} <- results(context), do: text

    for {text, words} <-
          Enum.zip(said, ["line 1", "the same as in the answer before", "line 2"]),
        do: assert(text =~ words)
  end

  test "needs no permission and no approval, unlike other tools" do
    context = cleared()
    [handle] = handles(context)

    opts = [
      allowed_tools: [:read_file],
      permission_rules: [{:deny, "*"}],
      approval: fn _call, _context -> {:deny, "no"} end
    ]

    context = run(context, [[recall: %{"handle" => handle}, read_file: %{}], "Done."], opts)

    assert [{"recall", {:ok, @file_text}}, {"read_file", {:error, _}}] =
             context |> results() |> tl()
  end

  test "is offered from the first request on, and handles stand only while it is" do
    context = cleared()
    llm = Scripted.new(["Done."])
    {:ok, result} = Runtime.run(context, llm: llm, tools: [Recall.tool(), read_tool()])
    assert [%{opts: opts}] = Scripted.requests(llm)
    assert Enum.any?(opts[:tools], &(&1.name == "recall"))
    assert [_] = handles(result.context)

    more = Context.add_user_message(result.context, "Go on")
    {:ok, result} = Runtime.run(more, llm: Scripted.new(["Yes."]))
    refute Context.Recall.recall?(result.context)
    assert [] = handles(result.context)

    own = %{recall: fn _ -> {:ok, "mine"} end}
    {:ok, result} = context |> Runtime.run(llm: Scripted.new(["Yes."]), tools: own)
    assert Context.Recall.recall?(result.context)
  end

  test "reads the conversation of a sub-agent in the sub-agent" do
    test = self()

    child =
      SubAgent.tool(
        name: "child",
        llm: model([[recall: %{"query" => "secret"}], "Nothing."]),
        tools: [Recall.tool()],
        on_child: fn child -> send(test, {:child, child}) end
      )

    context =
      Context.new("The secret is 4711.")
      |> Context.add_assistant_message("Ok.")
      |> Context.add_user_message("Go")

    context = Context.View.hide(context, {:all_but_last, 1})

    {:ok, _result} =
      Runtime.run(context,
        llm: model([[child: %{"task" => "Look"}], "Done."]),
        tools: [child, Recall.tool()]
      )

    assert_received {:child, context}
    assert [{"recall", {:ok, "[nothing found]"}}] = results(context)
  end

  test "works only in a run" do
    call = %{id: "1", name: "recall", arguments: %{"query" => "a"}}
    assert [%{result: {:error, words}}] = ToolExecutor.execute_tools([call], [Recall.tool()], %{})
    assert words =~ "only in a run"
  end

  test "answers within its bytes" do
    context = cleared()
    [handle] = handles(context)
    tools = [read_tool(), Recall.tool(max_bytes: 100)]

    context =
      run(context, [[recall: %{"handle" => handle}], [recall: %{"query" => "line"}], "Done."],
        tools: tools
      )

    for {"recall", {:ok, text}} <- results(context), do: assert(byte_size(text) <= 150)
  end

  describe "a request that is too long" do
    defp too_long(most) do
      fn context ->
        if Context.Tokens.count_tokens(context, method: :estimate) > most,
          do: {:error, %AshAgent.LLM.Error{reason: {:status, 400}, kind: :context_overflow}},
          else: "Fine."
      end
    end

    defp long(turns) do
      Enum.reduce(1..turns, Context.new("Begin"), fn number, context ->
        Enum.reduce(1..4, context, fn call, context ->
          id = "c#{number}_#{call}"

          context
          |> Context.add_assistant_message(nil, [%{id: id, name: "read_file", arguments: %{}}])
          |> Context.add_tool_results([{id, {:ok, "code A#{number}B#{call} " <> @file_text}}])
        end)
        |> Context.add_assistant_message("Done #{number}. " <> String.duplicate("Word. ", 100))
        |> Context.add_user_message("Go on with #{number}")
      end)
    end

    defp ask(context, most, tools) do
      llm = Scripted.new(too_long(most))
      {Runtime.run(context, llm: llm, tools: tools), length(Scripted.requests(llm))}
    end

    test "is made again from shorter and shorter views, and nothing is lost" do
      context = long(3)

      for {most, cleared?, hidden, requests} <- [
            {100_000, false, [], 1},
            {4_000, true, [], 2},
            {2_200, true, [], 3},
            {900, true, [1..15], 4}
          ] do
        assert {{:ok, result}, ^requests} = ask(context, most, [Recall.tool()])
        view = Context.View.view(result.context)
        assert {view.cleared != nil, view.hidden} == {cleared?, hidden}
        assert Enum.count(Context.Audit.failures(result.context)) == requests - 1

        for failure <- Context.Audit.failures(result.context),
            do: assert(failure.kind == :context_overflow)

        assert Context.Recall.receipt(result.context).counts.gone == 0
        cleared = Context.View.clear_tool_results(result.context, keep: 0)
        assert [_ | _] = Context.Recall.search(cleared, "A1B1")
      end
    end

    # A quarter of a small window is left for the answer.
    defp prices(limit),
      do: [%{model: :any, input: 1, output: 1, context_window: div(limit * 4, 3)}]

    test "is shortened before it is sent where the model's window is known" do
      for {window, kinds} <- [
            {100_000, []},
            {4_000, [:cleared]},
            {2_200, [:cleared, :cleared]},
            {900, [:cleared, :cleared, :hidden]}
          ] do
        llm = Scripted.new(too_long(window))
        opts = [llm: llm, tools: [Recall.tool()], prices: prices(window)]
        assert {:ok, result} = Runtime.run(long(3), opts)
        assert length(Scripted.requests(llm)) == 1
        assert Context.Audit.failures(result.context) == []
        steps = Context.Shortening.shortenings(result.context)
        assert Enum.map(steps, & &1.kind) == kinds
        assert Enum.all?(steps, &(&1.cause == :window))
        assert Context.Recall.receipt(result.context).counts.gone == 0
      end
    end

    test "is as short with a view of the run's own" do
      llm = Scripted.new(too_long(900))
      opts = [llm: llm, view: :auto, prices: prices(900)]
      assert {:ok, result} = Runtime.run(long(3), opts)
      assert [_only] = Scripted.requests(llm)

      assert %{kind: :hidden, range: 1..15} =
               List.last(Context.Shortening.shortenings(result.context))
    end

    test "is summarised last, if a summariser is given" do
      hidden =
        Enum.reduce(1..3, Context.Recall.put_recall(long(3), true), fn _step, context ->
          {shorter, %{}} = Context.Shortening.shorten(context, :context_overflow)
          shorter
        end)

      opts = [
        llm: Scripted.new(too_long(Context.Tokens.count_tokens(hidden, method: :estimate) - 1)),
        tools: [Recall.tool()],
        summarize: fn _messages -> {:ok, "They read a file."} end
      ]

      assert {:ok, result} = Runtime.run(long(3), opts)
      kinds = result.context |> Context.Shortening.shortenings() |> Enum.map(& &1.kind)
      assert kinds == [:cleared, :cleared, :hidden, :summarized]
    end

    test "ends the run without the tool, and when nothing is left to leave out" do
      assert {{:error, %{reason: {:llm_error, %{kind: :context_overflow}}}}, 1} =
               ask(long(3), 4_000, [])

      assert {{:error, error}, requests} = ask(long(3), 10, [Recall.tool()])
      assert %{reason: {:llm_error, %{kind: :context_overflow}}} = error
      assert requests <= 4
      assert Context.get_iteration(error.context, 1).messages != []
    end
  end
end
