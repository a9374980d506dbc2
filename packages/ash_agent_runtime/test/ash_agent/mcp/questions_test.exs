defmodule AshAgent.MCP.QuestionsTest do
  # What a server asks in the middle of a call is a question to a person, and the call goes on with the answer.
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.McpClient, only: [listing: 1, server: 3, text: 1]
  import AshAgent.TestSupport.StoredSessions, only: [sqlite: 0]

  alias AshAgent.{Context, LLM, MCP, Runtime, Session, Sessions, Store}
  alias AshAgent.Context.Calls
  alias AshAgent.TestSupport.McpClient

  @moduletag :capture_log

  @form %{
    "type" => "object",
    "properties" => %{"seats" => %{"type" => "integer"}},
    "required" => ["seats"]
  }

  defp elicit(words, form \\ @form),
    do: %{
      "method" => "elicitation/create",
      "params" => %{"message" => words, "requestedSchema" => form}
    }

  defp asks(requests, state \\ "s1"),
    do:
      {:asks,
       %{"resultType" => "input_required", "inputRequests" => requests, "requestState" => state}}

  # A server whose tool is answered by a function of what is sent along. The test is told of each call.
  defp tools(answer, opts) do
    test = self()

    call = fn _name, arguments, _progress, opts ->
      send(test, {:called, arguments, opts[:offers], opts[:answers]})
      answer.(opts[:answers])
    end

    fake = %{list: listing(["book"]), call: call}
    opts = [servers: [server("air", fake, %{})], client: McpClient] ++ opts
    mcp = start_supervised!({MCP, opts}, id: make_ref())
    fn -> MCP.tools(mcp) end
  end

  defp once(answers) when answers == %{}, do: asks(%{"q" => elicit("How many?")})
  defp once(_answers), do: text("booked")

  defp llm,
    do:
      LLM.Scripted.new([
        %{tool_calls: [%{id: "a", name: "air__book", arguments: %{"to" => "Oslo"}}]},
        "Done."
      ])

  @accepted %{
    "inputResponses" => %{"q" => %{"action" => "accept", "content" => %{"seats" => 2}}},
    "requestState" => "s1"
  }

  defp result(context, id \\ "a") do
    [call] = Enum.filter(Context.get_iteration(context, 1).tool_calls, &(&1.id == id))
    call.result
  end

  # Ways to ask, answer and go on. They return the question and the context at the end.
  defp go(:run, tools) do
    opts = [llm: llm(), tools: tools]
    {:paused, paused} = Runtime.run(Context.new("Go", id: "c"), opts)

    assert_raise Context.Error, fn ->
      Calls.answer_tool_call(paused.context, "a", %{"seats" => "x"})
    end

    assert_raise Context.Error, fn -> Calls.approve_tool_call(paused.context, "a") end
    context = paused.context |> Context.dump() |> Context.load!()
    context = Calls.answer_tool_call(context, "a", %{"seats" => "2"}, by: "ann")
    {:ok, %{output: "Done.", context: context}} = Runtime.resume(context, opts)
    {paused.calls, context}
  end

  defp go(:session, tools) do
    session = start_supervised!({Session, llm: llm(), tools: tools}, id: make_ref())
    {:paused, paused} = Session.prompt(session, "Go")
    {:error, %Context.Error{}} = Session.answer(session, "a", %{"seats" => "x"})
    {:error, %Context.Error{}} = Session.approve(session, "a")
    :ok = Session.answer(session, "a", %{"seats" => 2}, by: "ann")
    {:ok, %{output: "Done."}} = Session.resume(session)
    {paused.calls, Session.context(session)}
  end

  defp go(way, tools) when way in [:sessions, :restarted] do
    {store, llm} = {sqlite(), llm()}
    one = sessions(store, llm, tools)
    {:paused, paused} = Sessions.prompt(one, "c", "Go")

    two =
      if way == :restarted, do: stop_supervised!(one) && sessions(store, llm, tools), else: one

    {:error, %Context.Error{}} = Sessions.answer(two, "c", "a", %{"seats" => "x"})
    :ok = Sessions.answer(two, "c", "a", %{"seats" => 2}, by: "ann")

    two =
      if way == :restarted, do: stop_supervised!(two) && sessions(store, llm, tools), else: two

    {:ok, %{output: "Done."}} = Sessions.resume(two, "c")
    {:ok, context} = Sessions.context(two, "c")
    {:ok, attempts} = Store.calls(store, "c")
    assert Enum.map(attempts, &{&1.attempt, &1.state}) == [{1, :interrupted}, {2, :ok}]
    {paused.calls, context}
  end

  defp sessions(store, llm, tools) do
    name = :"mcp_questions#{System.unique_integer([:positive])}"
    start_supervised!({Sessions, name: name, store: store, llm: llm, tools: tools}, id: name)
    name
  end

  test "pauses the turn; the answer is checked, and the call goes on with it, wherever that is" do
    for way <- [:run, :session, :sessions, :restarted] do
      {calls, context} = go(way, tools(&once/1, questions: :ask))
      arguments = %{"to" => "Oslo"}
      assert [%{id: "a", name: "air__book", arguments: shown, question: true}] = calls
      assert shown["question"] == "How many?"
      assert shown["form"]["properties"] == @form["properties"]
      assert shown["arguments"] == arguments
      assert_received {:called, ^arguments, [:questions], none}
      assert none == %{}
      assert_received {:called, ^arguments, [:questions], @accepted}
      refute_received {:called, _, _, _}
      assert {way, result(context)} == {way, {:ok, "booked"}}
      assert %{decision: :approved, by: "ann"} = Calls.tool_call_decision(context, "a")
    end
  end

  test "an approval before, another call beside it and a second question change nothing" do
    answer = fn
      none when none == %{} -> asks(%{"q" => elicit("How many?")})
      %{"requestState" => "s1"} -> asks(%{"q" => elicit("Sure?")}, "s2")
      %{"requestState" => "s2"} -> text("booked")
    end

    calls = for id <- ["a", "b"], do: %{id: id, name: "air__book", arguments: %{"to" => id}}
    beside = %{id: "z", name: "other", arguments: %{}}

    tools =
      tools(answer, questions: :ask).() ++ AshAgent.Runtime.Tool.new(%{other: fn _ -> "x" end})

    for approval <- [:auto, fn _call, _context -> :approve end] do
      opts = [
        llm: LLM.Scripted.new([%{tool_calls: calls ++ [beside]}, "Done."]),
        tools: tools,
        approval: approval
      ]

      {:paused, paused} = Runtime.run(Context.new("Go"), opts)
      assert Enum.map(paused.calls, & &1.id) == ["a", "b"]
      assert result(paused.context, "z") == {:ok, "x"}
      context = Calls.answer_tool_call(paused.context, "a", %{"seats" => 1})
      context = Calls.deny_tool_call(context, "b", "no")
      {:paused, paused} = Runtime.resume(context, opts)
      assert [%{id: "a", arguments: %{"question" => "Sure?"}}] = paused.calls
      context = Calls.answer_tool_call(paused.context, "a", %{"seats" => 2})
      {:ok, %{context: context}} = Runtime.resume(context, opts)
      assert result(context) == {:ok, "booked"}

      assert result(context, "b") == {:error, "denied: no"} or
               match?({:error, _}, result(context, "b"))
    end
  end

  test "several questions are one form, and an answer is given to each" do
    answer = fn
      none when none == %{} -> asks(%{"p" => elicit("From?"), "q" => elicit("To?")}, nil)
      _answers -> text("booked")
    end

    opts = [llm: llm(), tools: tools(answer, questions: :ask)]
    {:paused, paused} = Runtime.run(Context.new("Go"), opts)
    assert [%{arguments: %{"question" => "From?\nTo?"}}] = paused.calls
    given = %{"p" => %{"seats" => 1}, "q" => %{"seats" => 2}}
    {:ok, _} = paused.context |> Calls.answer_tool_call("a", given) |> Runtime.resume(opts)
    assert_received {:called, _, _, %{"inputResponses" => responses} = answers}
    assert responses["q"] == %{"action" => "accept", "content" => %{"seats" => 2}}
    assert Map.keys(answers) == ["inputResponses"]
  end

  test "what is no question for a person, or for nobody, is an error that the model reads" do
    deep =
      Enum.reduce(1..30, %{}, fn _, form ->
        %{"type" => "object", "properties" => %{"a" => form}}
      end)

    wrong = [
      asks(%{"q" => %{"method" => "sampling/createMessage", "params" => %{}}}),
      asks(%{"q" => %{"method" => "roots/list"}}),
      asks(%{"q" => put_in(elicit("x"), ["params", "mode"], "url")}),
      asks(%{"q" => elicit("x", %{"type" => "string"})}),
      asks(%{"q" => elicit("x", deep)}),
      asks(%{"q" => elicit(7)}),
      asks(%{"q" => "x"}),
      asks("x"),
      asks(%{}, nil),
      asks(%{"q" => elicit("x")}, String.duplicate("s", 64_001)),
      asks(Map.new(1..17, &{"q#{&1}", elicit("x")}))
    ]

    refused =
      ~s(the MCP server "air" asks for something that it does not get here, and has not done the call)

    for {questions, answers} <- [{nil, [once(%{})]}, {:ask, wrong}], answer <- answers do
      opts = [llm: llm(), tools: tools(fn _ -> answer end, questions: questions)]
      assert {:ok, %{context: context}} = Runtime.run(Context.new("Go"), opts)
      assert result(context) == {:error, refused}
    end

    # Nobody talks to a sub-agent.
    sub =
      Runtime.SubAgent.tool(
        name: "sub",
        description: "-",
        llm: llm(),
        tools: tools(&once/1, questions: :ask).()
      )

    calls = [%{id: "s", name: "sub", arguments: %{"task" => "Go"}}]
    llm = LLM.Scripted.new([%{tool_calls: calls}, "Done."])
    assert {:ok, %{output: "Done."}} = Runtime.run(Context.new("Go"), llm: llm, tools: [sub])
    for _ <- 1..2, do: assert_received({:called, _, [], _})
  end

  test "words of a server control nothing" do
    answer = fn _ -> asks(%{"q" => elicit("a\e[2J\u202Eb" <> String.duplicate("c", 5_000))}) end
    opts = [llm: llm(), tools: tools(answer, questions: :ask)]
    {:paused, %{calls: [%{arguments: shown}]}} = Runtime.run(Context.new("Go"), opts)
    assert "a [2J bc" <> _ = shown["question"]
    assert byte_size(shown["question"]) <= 4_096
  end

  test "a function answers in the place of a person, also in a sub-agent; a wrong answer declines" do
    test = self()

    for {answer, expected} <- [
          {{:ok, %{"seats" => "2"}}, %{"action" => "accept", "content" => %{"seats" => 2}}},
          {{:ok, %{"seats" => "x"}}, %{"action" => "decline"}},
          {:decline, %{"action" => "decline"}},
          {:raise, %{"action" => "decline"}}
        ] do
      fun = fn asked ->
        send(test, {:asked, asked}) && ((answer == :raise && raise("x")) || answer)
      end

      opts = [llm: llm(), tools: tools(&once/1, questions: fun)]
      assert {:ok, %{context: context}} = Runtime.run(Context.new("Go"), opts)
      assert result(context) == {:ok, "booked"}

      assert_received {:asked,
                       %{server: "air", question: "How many?", form: %{"type" => "object"}}}

      assert_received {:called, _, _, none} when none == %{}
      assert_received {:called, _, _, %{"inputResponses" => %{"q" => ^expected}}}
    end
  end

  test "a server that asks without end is given up" do
    for requests <- [%{"q" => elicit("x")}, %{}] do
      fun = fn _ -> {:ok, %{"seats" => 1}} end
      opts = [llm: llm(), tools: tools(fn _ -> asks(requests) end, questions: fun)]
      assert {:ok, %{context: context}} = Runtime.run(Context.new("Go"), opts)
      assert {:error, ~s(the MCP server "air" asks without end) <> _} = result(context)
    end
  end
end
