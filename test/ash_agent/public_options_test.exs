defmodule AshAgent.PublicOptionsTest do
  alias AshAgent.{ChatContext, Context, Response, Trace}
  alias AshAgent.Context.Enhancer

  use AshAgent.TestSupport.OptionCases,
    app: :ash_agent_context,
    any: [
      {Context.Calls, :approve_tool_call, :by},
      {Context.Calls, :answer_tool_call, :by},
      {Context.Calls, :arrive, :from},
      {Context.Calls, :deny_tool_call, :by},
      {Trace, :to_otlp, :tools}
    ]

  defp context, do: "Hi" |> Context.new() |> Context.add_assistant_message(nil, [call()])

  defp waiting do
    context = Context.add_tool_results(context(), [{"a", {:waiting, %{for: "ann"}}}])
    Context.add_assistant_message(context, "Wait")
  end

  defp call, do: %{id: "a", name: :now, arguments: %{}}

  defp calls do
    context = context()
    chat = ChatContext.new(input: "Hi")
    child = ChatContext.spawn_child(chat)

    %{
      {Context, :new} => ["Hi"],
      {Context, :add_user_message} => [Context.new("Hi"), "Hi"],
      {Context, :add_assistant_message} => [Context.new("Hi"), "Hi", []],
      {Context, :add_response} => [Context.new("Hi"), response()],
      {Context, :add_response!} => [Context.new("Hi"), response()],
      {Context, :add_tool_results} => [context, [{"a", {:ok, 1}}]],
      {Context, :interrupt} => [context, "stopped"],
      {Context, :to_messages} => [context],
      {Context.Audit, :fetch_cost} => [context],
      {AshAgent.Prices, :read} => ["prices.json"],
      {Context, :dump} => [context],
      {Context, :load} => [context, Context.dump(context)],
      {Context, :load!} => [context, Context.dump(context)],
      {Context, :request} => [context, :anthropic],
      {Context, :request!} => [context, :anthropic],
      {Context, :encode_request} => [context, :anthropic],
      {Context.PreparedRequest, :new} => [:anthropic],
      {Context, :encode_request!} => [context, :anthropic],
      {Context, :request_report} => [context, :anthropic],
      {Context, :to_prompt} => [context],
      {Context.Recall, :put_recall} => [context, true],
      {Context.Recall, :recall} => [context, "1-123"],
      {Context.Recall, :receipt} => [context],
      {Context.Rent, :clear_when_due} => [context],
      {Context.Shortening, :shorten} => [context, :window],
      {Context.Audit, :account} => [context],
      {Context.Audit, :put_request} => [context, nil, nil],
      {Context.Audit, :put_sent} => [context, :anthropic],
      {Context.Audit, :forecast} => [context, :anthropic],
      {Context.Pins, :pin} => [context, {:iteration, 1}],
      {Context.Pins, :unpin} => [context, {:iteration, 1}],
      {Context.Recall, :search} => [context, "words"],
      {Context.Import, :from_request} => [%{"messages" => []}, :anthropic],
      {Context.Import, :from_request!} => [%{"messages" => []}, :anthropic],
      {Context.Import, :from_messages} => [[]],
      {Context.ReqLLM, :from_req_llm} => [[]],
      {Context.LangChain, :from_langchain} => [[]],
      {Context.Jido, :from_jido} => [%{entries: []}],
      {Context.Import, :from_messages!} => [[]],
      {Context, :rewind} => [context],
      {Context, :fork} => [context],
      {Context, :put_system_prompt} => [context, "Hi"],
      {Context.Calls, :ask_about_tool_call} => [context, "a", %{}],
      {Context.Calls, :ask_again} => [context],
      {Context.Calls, :arrive} => [waiting(), "a", {:ok, 1}],
      {Context.Calls, :leave_late_calls} => [waiting()],
      {Context.Calls, :place_arrivals} => [Context.new("Hi")],
      {Context.Calls, :approve_tool_call} => [context, "a"],
      {Context.Calls, :answer_tool_call} => [context, "a", "yes"],
      {Context.Calls, :deny_tool_call} => [context, "a", nil],
      {Context.Audit, :add_failure} => [context, %{kind: :closed}],
      {Context.Tokens, :add_token_usage} => [context, %{input_tokens: 1}],
      {Context.Tokens, :count_tokens} => [context],
      {Context.Tokens, :token_breakdown} => [context],
      {Context.Tokens, :budget} => [context, 10],
      {Context.View, :fit} => [context, 10],
      {Context.View, :hide} => [context, 1],
      {Context.View, :compact} => [context, :drop],
      {Context.View, :mark_as_summarized} => [context, 1, "Hi"],
      {Context.View, :expand} => [context, :all],
      {Context.View, :clear_tool_results} => [context],
      {Context.View, :put_max_result_bytes} => [context, nil],
      {Context.View, :put_prompt_block} => [context, :a, "Hi"],
      {Context.View, :put_masks} => [context, []],
      {Context, :put_metadata} => [context, :a, 1],
      {Context, :put_iteration_metadata} => [context, 1, :a, 1],
      {ChatContext, :new} => [],
      {ChatContext, :branch} => [chat, "idea"],
      {ChatContext, :update_context} => [chat, & &1],
      {ChatContext, :put_system_prompt} => [chat, "Hi"],
      {ChatContext, :put_user_prompt} => [chat, "Hi"],
      {ChatContext, :put_config} => [chat],
      {ChatContext, :spawn_child} => [chat],
      {ChatContext, :complete_child} => [%{chat | id: child.parent_id}, child, "Done"],
      {ChatContext, :load} => [ChatContext.dump(chat)],
      {ChatContext, :load!} => [ChatContext.dump(chat)],
      {ChatContext, :from_snapshot} => [ChatContext.to_snapshot(chat)],
      {ChatContext, :from_snapshot!} => [ChatContext.to_snapshot(chat)],
      {ChatContext.Config, :new} => [],
      {ChatContext.Config, :put} => [ChatContext.Config.new()],
      {Enhancer, :run} => [context, []],
      {Enhancer, :check!} => [[]],
      {Response, :new} => [:anthropic],
      {Response, :decode} => [:anthropic, "{}"],
      {Context, :print} => [context],
      {Trace, :to_csv} => [context],
      {Trace, :to_html} => [context],
      {Trace, :to_otlp} => [context]
    }
  end

  defp response do
    {:ok, response} = Response.decode(:ollama, %{message: %{content: "Hi"}, done: true})
    response
  end
end
