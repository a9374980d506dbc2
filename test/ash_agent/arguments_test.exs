defmodule ArgumentsTest do
  alias AshAgent.{ChatContext, Context, Response, Trace}

  use AshAgent.TestSupport.ArgumentCases,
    app: :ash_agent_context,
    takes_anything: [{Context.JSON, :encode}, {Context.JSON, :fragment}]

  defp calls do
    call = %{id: "a", name: :now, arguments: %{}}
    context = "Hi" |> Context.new() |> Context.add_assistant_message(nil, [call])
    chat = ChatContext.new(input: "Hi")

    %{
      {Context, :new} => ["Hi"],
      {Context, :add_user_message} => [Context.new("Hi"), "Hi"],
      {Context, :add_assistant_message} => [Context.new("Hi"), "Hi", []],
      {Context, :add_response} => [Context.new("Hi"), Response.new(:ollama)],
      {Context, :add_tool_results} => [context, [{"a", {:ok, 1}}]],
      {Context, :interrupt} => [context, "stopped"],
      {Context, :get_iteration} => [context, 1],
      {Context, :request} => [context, :anthropic],
      {Context, :encode_request!} => [context, :anthropic],
      {Context, :request_report} => [context, :anthropic],
      {Context.Import, :from_request!} => [%{"messages" => []}, :anthropic],
      {Context.Import, :from_messages!} => [[]],
      {Context, :load!} => [Context.dump(context)],
      {Context, :put_system_prompt} => [context, "Hi"],
      {Context.Calls, :approve_tool_call} => [context, "a"],
      {Context.Calls, :deny_tool_call} => [context, "a", nil],
      {Context.Tokens, :add_token_usage} => [context, %{input_tokens: 1}],
      {Context.Tokens, :budget} => [context, 10],
      {Context.View, :fit} => [context, 10],
      {Context.View, :hide} => [context, {:all_but, 1..1}],
      {Context.View, :compact} => [context, :drop],
      {Context.View, :mark_as_summarized} => [context, 1, "Hi"],
      {Context.View, :expand} => [context, :all],
      {Context.Pins, :pin} => [context, {:iteration, 1}],
      {Context.Pins, :unpin} => [context, {:iteration, 1}],
      {Context.Recall, :search} => [context, "words"],
      {Context.Recall, :recall} => [context, "1-123"],
      {Context.View, :put_max_result_bytes} => [context, nil],
      {Context.View, :put_prompt_block} => [context, :a, "Hi"],
      {Context.View, :put_masks} => [context, []],
      {Context.Enhancer, :run} => [context, []],
      {Context, :put_iteration_metadata} => [context, 1, :a, 1],
      {Context, :print} => [context],
      {ChatContext, :branch} => [chat, "idea"],
      {ChatContext, :update_context} => [chat, & &1],
      {ChatContext, :put_system_prompt} => [chat, "Hi"],
      {Response, :new} => [:anthropic],
      {Response, :decode} => [:anthropic, "{}"],
      {Trace, :to_html} => [context],
      {Trace, :to_otlp} => [context],
      {AshAgent.Prices, :read} => ["prices.json"]
    }
  end

  defp words(function), do: assert_raise(ArgumentError, function).message

  test "says what to write" do
    assert words(fn -> Context.request(Context.new("Hi"), :openai) end) =~
             "expected provider to be one of :anthropic, :openai_chat, "

    assert words(fn -> Context.request(Context.new("Hi"), :openai) end) =~
             "got: :openai. Did you mean :openai_chat or :openai_responses?"

    assert words(fn -> Context.add_user_message("Hi", "Hi") end) ==
             "AshAgent.Context.add_user_message/3: expected context to be a %AshAgent.Context{}, got: a binary of 2 bytes. " <>
               "Make one with AshAgent.Context.new/2"

    assert words(fn -> Context.new(nil) end) ==
             "AshAgent.Context.new/2: expected input to be a string or a list or a map, got: nil"
  end

  test "keeps the names of arguments and the defaults in the documentation" do
    {:docs_v1, _, _, _, _, _, docs} = Code.fetch_docs(Context)
    signatures = for {{:function, name, _}, _, [signature], _, _} <- docs, do: {name, signature}
    assert signatures[:add_user_message] == "add_user_message(context, input, opts \\\\ [])"
    assert signatures[:encode_request] == "encode_request(context, provider, opts \\\\ [])"
  end
end
