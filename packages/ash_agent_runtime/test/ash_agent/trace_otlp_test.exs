defmodule AshAgent.Runtime.TraceOtlpTest do
  # Traces of runs and their sub-agents.
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.OtlpReader

  alias AshAgent.{Context, LLM, Runtime, Trace}

  defp spans_of(shown, opts \\ []), do: shown |> Trace.to_otlp(opts) |> spans()

  defp tree(spans, parent \\ nil) do
    for %{parent: ^parent} = span <- spans, do: {span.name, tree(spans, span.id)}
  end

  defp nanos(at), do: DateTime.to_unix(at, :nanosecond)

  test "has the times that a run has stored" do
    call = %{tool_calls: [%{id: "1", name: "look"}]}
    tools = %{look: fn _ -> {:ok, 1} end}
    llm = LLM.Scripted.new([call, "There."])
    {:ok, %{context: context}} = Runtime.run(Context.new("Where?"), llm: llm, tools: tools)
    {:ok, %{response: first}} = Context.fetch_message(context, {1, 1})
    {:ok, %{response: last}} = Context.fetch_message(context, {2, 0})
    tool = Context.Calls.tool_call_times(context, "1")

    for context <- [context, Context.add_user_message(context, "Thanks")] do
      [turn, chat, look, answer | _] = spans_of(context)
      assert {chat.from, chat.to} == {nanos(first.requested_at), nanos(first.received_at)}
      assert {look.from, look.to} == {nanos(tool.started_at), nanos(tool.ended_at)}
      assert {answer.from, answer.to} == {nanos(last.requested_at), nanos(last.received_at)}
      # The answer ends the turn, whenever the user spoke again.
      assert turn.to == answer.to
    end
  end

  test "a sub-agent is within its own call, also if another one had the same id" do
    answers = fn n ->
      [%{tool_calls: [%{id: "1", name: "helper", arguments: %{"task" => "look"}}]}, "Done #{n}."]
    end

    llm = fn _child -> {:ok, %{content: "found"}} end
    helper = Runtime.SubAgent.tool(name: "helper", llm: llm)

    opts = fn n -> [llm: LLM.Scripted.new(answers.(n)), tools: [helper]] end
    {:ok, first} = Runtime.run(Context.new("One"), opts.(1))
    second = Context.add_user_message(first.context, "Two")
    {:ok, second} = Runtime.run(second, opts.(2))

    # In whatever order they are given.
    children = second.sub_agents ++ first.sub_agents
    whole = spans_of(second.context, children: children)
    one = spans_of(first.context, children: first.sub_agents)
    two = spans_of(second.context, turn: :last, children: second.sub_agents)
    ids = fn spans -> for span <- spans, do: {span.trace, span.id, span.parent} end
    assert length(one) == 6 and length(two) == 6
    assert ids.(whole) == ids.(one) ++ ids.(two)
  end

  test "a run's conversation and its sub-agents' are a tree" do
    helper = fn name, task ->
      Runtime.SubAgent.tool(
        name: name,
        llm: LLM.Scripted.new(task),
        tools: if(name == "outer", do: [Process.get(:inner)], else: [])
      )
    end

    Process.put(:inner, helper.("inner", ["found"]))
    call = fn name -> %{tool_calls: [%{id: "1", name: name, arguments: %{"task" => "look"}}]} end
    outer = helper.("outer", [call.("inner"), "it is there"])

    {:ok, result} =
      Runtime.run(Context.new("Where?"),
        llm: LLM.Scripted.new([call.("outer"), "There."]),
        tools: [outer]
      )

    assert tree(spans_of(result.context, children: result.sub_agents)) == [
             {"invoke_agent ash_agent",
              [
                {"chat scripted", []},
                {"execute_tool outer",
                 [
                   {"invoke_agent outer",
                    [
                      {"chat scripted", []},
                      {"execute_tool inner", [{"invoke_agent inner", [{"chat scripted", []}]}]},
                      {"chat scripted", []}
                    ]}
                 ]},
                {"chat scripted", []}
              ]}
           ]
  end
end
