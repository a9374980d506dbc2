defmodule AshAgent.Integration.OpenTelemetryTest do
  use ExUnit.Case, async: true

  alias AshAgent.{Context, LLM, Runtime, Session}
  alias AshAgent.TestSupport.{OtlpReader, WireServer}
  alias AshAgent.Trace.Exporter

  @moduletag :opentelemetry
  @moduletag integrations: ["OpenTelemetry"]

  @trace 0x0AF7651916CD43DD8448EB211C80319C
  @span 0xB7AD6B7169203331

  # The modules are Erlang's, and not there where the tests are only compiled.
  defp enter(span \\ @span) do
    context = apply(:otel_tracer, :from_remote_span, [@trace, span, 1])
    apply(:otel_tracer, :set_current_span, [context])
  end

  # The span that something measured here would be within.
  defp current do
    case apply(:otel_tracer, :current_span_ctx, []) do
      :undefined -> nil
      context -> {apply(:otel_span, :trace_id, [context]), apply(:otel_span, :span_id, [context])}
    end
  end

  # A run in which the model, a hook, a tool and a sub-agent's model and tool each tell where they are.
  defp opts do
    me = self()
    tell = fn who -> send(me, {who, current(), self()}) end

    inner =
      Runtime.SubAgent.tool(
        name: "inner",
        llm:
          asking(tell, :inner_model, [%{tool_calls: [%{id: "1", name: "look"}]}, "It is there."]),
        tools: %{look: fn _ -> {:ok, tell.(:inner_tool)} && {:ok, 1} end}
      )

    call = %{id: "1", name: "inner", arguments: %{"task" => "look"}}

    [
      llm: asking(tell, :model, [%{tool_calls: [call, %{id: "2", name: "here"}]}, "Done."]),
      tools: [inner, %{name: "here", function: fn _ -> tell.(:tool) && {:ok, 1} end}],
      approval: fn _call, _ -> tell.(:approval) && :approve end
    ]
  end

  defp asking(tell, who, answers) do
    llm = LLM.Scripted.new(answers)

    fn context ->
      tell.(who)
      LLM.chat(llm, context)
    end
  end

  defp assert_everywhere(span) do
    for who <- [:model, :approval, :tool, :inner_model, :inner_tool] do
      assert_receive {^who, {@trace, ^span}, pid}
      assert pid != self()
    end
  end

  test "a run continues its caller's trace in models, tools and sub-agents" do
    enter()
    assert {:ok, _} = Runtime.run(Context.new("Look"), opts())
    assert_everywhere(@span)
    assert current() == {@trace, @span}
  end

  test "tools that are executed on their own do so, too" do
    enter()
    me = self()
    tools = %{here: fn _ -> {:ok, send(me, current()) && 1} end}
    Runtime.ToolExecutor.execute_tools([%{id: "1", name: "here", arguments: %{}}], tools, %{})
    assert_receive {@trace, @span}
  end

  test "a session continues the trace of each prompt, also of one that had to wait" do
    me = self()
    session = start_supervised!({Session, [llm: fn _ -> wait(me) end]})

    prompts =
      for n <- 1..3 do
        {:ok, ref} =
          Task.await(
            Task.async(fn ->
              enter(n)
              Session.prompt_async(session, "#{n}")
            end)
          )

        ref
      end

    for n <- 1..3 do
      assert_receive {:asked, model, {@trace, ^n}}
      send(model, :go)
    end

    assert length(prompts) == 3
    {:ok, session} = Session.start_link(opts())
    enter()
    assert {:ok, _} = Session.prompt(session, "Look")
    assert_everywhere(@span)
    # The session itself belongs to nobody's trace.
    me = self()
    assert {:ok, _} = Task.await(Task.async(fn -> Session.resume(session) end))
    :sys.replace_state(session, fn state -> send(me, {:session, current()}) && state end)
    assert_receive {:session, nil}
  end

  defp wait(me) do
    send(me, {:asked, self(), current()})
    receive do: (:go -> {:ok, %{content: "Hello!"}})
  end

  test "the exporter links a turn to the span that asked for it" do
    server =
      WireServer.start(fn connection ->
        with {:ok, request} <- WireServer.read_request(connection) do
          WireServer.tell(connection, {:request, request})
          WireServer.write(connection, WireServer.response(200, ""))
        end
      end)

    exporter = start_supervised!({Exporter, url: server.url <> "/traces", delay: 0})
    opts = [llm: LLM.Scripted.new(["Hello!", "Again."]), on_event: Exporter.on_event(exporter)]
    links = [{"0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"}]
    enter()
    assert {:ok, _} = Runtime.run(Context.new("Hi"), opts)
    assert_receive {:request, request}
    assert [%{parent: nil, links: ^links}, %{links: []}] = OtlpReader.spans(request.body)

    {:ok, session} = Session.start_link(opts)
    assert {:ok, _} = Session.prompt(session, "Hi")
    assert_receive {:request, request}
    assert [%{links: ^links}, _] = OtlpReader.spans(request.body)
  end

  test "where there is no trace, none is begun" do
    assert current() == nil
    me = self()
    llm = fn _ -> {:ok, %{content: inspect(send(me, {:model, current()}))}} end
    assert {:ok, _} = Runtime.run(Context.new("Hi"), llm: llm)
    assert_receive {:model, nil}
  end
end
