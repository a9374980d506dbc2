defmodule AshAgent.Trace.PhoenixTest do
  use ExUnit.Case, async: true

  alias AshAgent.{Context, Runtime}
  alias AshAgent.TestSupport.{Phoenix, Wait}
  alias AshAgent.Trace.Exporter

  @moduletag :phoenix
  @moduletag :tmp_dir
  @moduletag integrations: ["Phoenix"]
  # It takes half a minute to start, on a busy machine several.
  @moduletag timeout: 600_000

  @spans 7

  defp answer(context, fields) do
    content = for text <- [fields[:text]], text, do: %{"type" => "text", "text" => text}
    thinking = [%{"type" => "thinking", "thinking" => "hm", "signature" => "s"}]

    calls =
      for {id, name, input} <- fields[:calls] || [],
          do: %{"type" => "tool_use", "id" => id, "name" => name, "input" => input}

    body = %{
      "id" => "msg_#{Context.count_messages(context)}",
      "type" => "message",
      "role" => "assistant",
      "model" => "claude-x",
      "stop_reason" => if(calls == [], do: "end_turn", else: "tool_use"),
      "content" => thinking ++ content ++ calls,
      "usage" => %{
        "input_tokens" => 100,
        "cache_read_input_tokens" => 20,
        "output_tokens" => 30
      }
    }

    AshAgent.Response.decode(:anthropic, body)
  end

  test "takes what the exporter sends, and tells the tree with tokens and messages", %{
    tmp_dir: folder
  } do
    url = Phoenix.start(folder)

    exporter =
      start_supervised!(
        {Exporter,
         url: url <> "/v1/traces",
         agent: "trip",
         messages: true,
         attributes: %{"user.id" => "ann"}}
      )

    helper =
      Runtime.SubAgent.tool(
        name: "research",
        description: "Looks it up",
        llm: fn child -> answer(child, text: "Hotel Roma") end
      )

    llm = fn context ->
      case Context.to_messages(context) do
        [_system, _user] ->
          calls = [{"c1", "research", %{"task" => "Hotels"}}, {"c2", "buy", %{"price" => 9}}]
          answer(context, text: "I will look.", calls: calls)

        _results ->
          answer(context, text: "It is booked.")
      end
    end

    opts = [
      llm: llm,
      tools: [helper, %{name: "buy", function: fn _ -> {:error, "too dear"} end}],
      on_event: Exporter.on_event(exporter)
    ]

    context = Context.new("Book a hotel", system_prompt: "Be brief.", id: "trip-1")
    {:ok, result} = Runtime.run(context, opts)
    assert Exporter.flush(exporter) == :ok

    spans = spans(url)
    assert length(spans) == @spans

    assert tree(spans) == [
             {"invoke_agent trip", "AGENT",
              [
                {"chat claude-x", "LLM", []},
                {"execute_tool buy", "TOOL", []},
                {"execute_tool research", "TOOL",
                 [{"invoke_agent research", "AGENT", [{"chat claude-x", "LLM", []}]}]},
                {"chat claude-x", "LLM", []}
              ]
              |> Enum.sort()}
           ]

    first = Enum.find(spans, &(&1["attributes"]["llm.finish_reason"] == "tool_call"))

    assert %{
             "llm.model_name" => "claude-x",
             "llm.provider" => "anthropic",
             "llm.token_count.prompt" => 120,
             "llm.token_count.completion" => 30,
             "llm.token_count.prompt_details.cache_read" => 20,
             "session.id" => "trip-1",
             "llm.input_messages.0.message.role" => "system",
             "llm.input_messages.0.message.content" => "Be brief.",
             "llm.input_messages.1.message.role" => "user",
             "llm.input_messages.1.message.content" => "Book a hotel",
             "llm.output_messages.0.message.contents.0.message_content.text" => "hm",
             "llm.output_messages.0.message.contents.1.message_content.text" => "I will look.",
             "llm.output_messages.0.message.tool_calls.0.tool_call.function.name" => "research",
             "llm.output_messages.0.message.tool_calls.1.tool_call.id" => "c2"
           } = first["attributes"]

    buy = Enum.find(spans, &(&1["name"] == "execute_tool buy"))
    assert %{"status_code" => "ERROR", "attributes" => %{"output.value" => "too dear"}} = buy

    [trace] = traces(url)
    # Those of the three answers, once each.
    assert trace["token_count_prompt"] == 3 * 120
    assert trace["token_count_completion"] == 3 * 30

    # The same turn once more is the same trace. When the next one is there, it has been read.
    Exporter.export(exporter, result.context, children: result.sub_agents)
    next = Context.add_user_message(result.context, "Thanks")
    {:ok, result} = Runtime.run(next, Keyword.put(opts, :llm, &answer(&1, text: "Welcome.")))
    assert Exporter.flush(exporter) == :ok

    assert length(spans(url, @spans + 2)) == @spans + 2
    assert [_first, _second] = traces(url)
    assert [%{"session_id" => "trip-1"}] = sessions(url)
    assert result.output == "Welcome."

    # A failed turn has its question, and its failure by its kind. What was sent when a run paused is there once.
    busy = %AshAgent.LLM.Error{reason: {:status, 529}, kind: :overloaded}
    failing = Keyword.put(opts, :llm, fn _ -> {:error, busy} end)
    {:error, _} = Runtime.run(Context.new("And now?", id: "trip-2"), failing)

    approval = [approval: fn _call, _tool_context -> :ask end]
    question = Context.new("Buy", id: "trip-3")
    pausing = opts |> Keyword.put(:llm, &buy/1) |> Keyword.merge(approval)
    {:paused, paused} = Runtime.run(question, pausing)
    assert Exporter.flush(exporter) == :ok
    assert [%{"parent_id" => "" <> _}] = of("trip-3", spans(url, @spans + 5))
    decided = Context.Calls.approve_tool_call(paused.context, "c9")
    {:ok, _} = Runtime.resume(decided, pausing)
    assert Exporter.flush(exporter) == :ok

    spans = spans(url, @spans + 8)
    assert length(spans) == @spans + 8
    assert [_, _] = failed = of("trip-2", spans)
    for span <- failed, do: assert(span["attributes"]["error.type"] == "overloaded")
    root = Enum.find(of("trip-3", spans), &(&1["parent_id"] == nil))
    assert %{"input.value" => "Buy", "output.value" => "Bought."} = root["attributes"]
  end

  defp buy(context) do
    if length(Context.to_messages(context)) == 1,
      do: answer(context, calls: [{"c9", "buy", %{"price" => 9}}]),
      else: answer(context, text: "Bought.")
  end

  defp of(conversation, spans),
    do: Enum.filter(spans, &(&1["attributes"]["session.id"] == conversation))

  # It answers requests before it has stored what they bring.
  defp spans(url, at_least \\ @spans) do
    get = fn -> Phoenix.get(url <> "/v1/projects/default/spans?limit=100")["data"] end
    assert Wait.until(fn -> length(get.()) >= at_least end, 120_000)
    get.()
  end

  defp traces(url), do: Phoenix.get(url <> "/v1/projects/default/traces")["data"]
  defp sessions(url), do: Phoenix.get(url <> "/v1/projects/default/sessions")["data"]

  # Calls run at the same time, so spans beside each other have no order but that of their names.
  defp tree(spans, parent \\ nil) do
    children =
      for %{"parent_id" => ^parent} = span <- spans,
          do: {span["name"], span["span_kind"], tree(spans, span["context"]["span_id"])}

    Enum.sort(children)
  end
end
