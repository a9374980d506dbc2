defmodule AshAgent.PublicOptionsTest do
  alias AshAgent.{ChatContext, Context, Response, Trace}
  alias AshAgent.Context.Enhancer

  use AshAgent.TestSupport.OptionCases,
    app: :ash_agent_context,
    any: [
      {Context, :approve_tool_call, :by},
      {Context, :deny_tool_call, :by},
      {Context.Calls, :approve_tool_call, :by},
      {Context.Calls, :deny_tool_call, :by},
      {Trace, :to_otlp, :tools}
    ]

  # The code and the documentation of functions of AshAgent.Context stand here, under the same names.
  @parts [
    Context.Account,
    Context.Asked,
    Context.Calls,
    Context.Failures,
    Context.Import,
    Context.Libraries,
    Context.Log,
    Context.Pins,
    Context.Recall,
    Context.Receipt,
    Context.Rent,
    Context.Requests,
    Context.Responses,
    Context.Shortening,
    Context.Storage,
    Context.Tokens,
    Context.View
  ]

  defp context, do: "Hi" |> Context.new() |> Context.add_assistant_message(nil, [call()])
  defp call, do: %{id: "a", name: :now, arguments: %{}}

  defp calls do
    named = named_calls()

    for {{Context, name}, arguments} <- named,
        part <- @parts,
        Code.ensure_loaded?(part) and function_exported?(part, name, length(arguments) + 1),
        into: named,
        do: {{part, name}, arguments}
  end

  defp named_calls do
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
      {Context, :fetch_cost} => [context],
      {AshAgent.Prices, :read} => ["prices.json"],
      {Context, :dump} => [context],
      {Context, :load} => [context, Context.dump(context)],
      {Context, :load!} => [context, Context.dump(context)],
      {Context, :from_snapshot} => [Context.to_snapshot(context)],
      {Context, :from_snapshot!} => [Context.to_snapshot(context)],
      {Context, :request} => [context, :anthropic],
      {Context, :request!} => [context, :anthropic],
      {Context, :encode_request} => [context, :anthropic],
      {Context, :encode_request!} => [context, :anthropic],
      {Context, :request_report} => [context, :anthropic],
      {Context, :to_prompt} => [context],
      {Context, :put_recall} => [context, true],
      {Context, :recall} => [context, "1-123"],
      {Context, :receipt} => [context],
      {Context, :clear_when_due} => [context],
      {Context, :shorten} => [context, :window],
      {Context, :account} => [context],
      {Context, :put_request} => [context, nil, nil],
      {Context, :put_sent} => [context, :anthropic],
      {Context, :forecast} => [context, :anthropic],
      {Context, :pin} => [context, {:iteration, 1}],
      {Context, :unpin} => [context, {:iteration, 1}],
      {Context, :search} => [context, "words"],
      {Context, :from_request} => [%{"messages" => []}, :anthropic],
      {Context, :from_request!} => [%{"messages" => []}, :anthropic],
      {Context, :from_messages} => [[]],
      {Context, :from_req_llm} => [[]],
      {Context, :from_langchain} => [[]],
      {Context, :from_jido} => [%{entries: []}],
      {Context, :from_messages!} => [[]],
      {Context, :rewind} => [context],
      {Context, :fork} => [context],
      {Context, :put_system_prompt} => [context, "Hi"],
      {Context, :ask_about_tool_call} => [context, "a", %{}],
      {Context, :approve_tool_call} => [context, "a"],
      {Context, :deny_tool_call} => [context, "a", nil],
      {Context, :add_failure} => [context, %{kind: :closed}],
      {Context, :add_token_usage} => [context, %{input_tokens: 1}],
      {Context, :count_tokens} => [context],
      {Context, :token_breakdown} => [context],
      {Context, :exceeds_token_budget?} => [context, 10],
      {Context, :tokens_remaining} => [context, 10],
      {Context, :budget_utilization} => [context, 10],
      {Context, :fit} => [context, 10],
      {Context, :keep_last_iterations} => [context, 1],
      {Context, :hide_old_iterations} => [context, 1],
      {Context, :keep_iteration_range} => [context, 1, 1],
      {Context, :hide_iterations} => [context, 1],
      {Context, :compact} => [context, :drop],
      {Context, :mark_as_summarized} => [context, 1, "Hi"],
      {Context, :expand} => [context, :all],
      {Context, :clear_tool_results} => [context],
      {Context, :put_max_result_bytes} => [context, nil],
      {Context, :put_prompt_block} => [context, :a, "Hi"],
      {Context, :put_masks} => [context, []],
      {Context, :enhance} => [context, []],
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
      {Response, :new} => [:anthropic],
      {Response, :decode} => [:anthropic, "{}"],
      {Context, :print} => [context],
      {Trace, :to_html} => [context],
      {Trace, :to_otlp} => [context]
    }
  end

  defp response do
    {:ok, response} = Response.decode(:ollama, %{message: %{content: "Hi"}, done: true})
    response
  end
end
