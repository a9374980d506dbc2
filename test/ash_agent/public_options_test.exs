defmodule AshAgent.PublicOptionsTest do
  use ExUnit.Case, async: true

  # Every public function that takes options is called with an option it does not have, and with each of its options set to
  # a function of five arguments, which is right for none of them. A function that is missing here fails the first test.

  alias AshAgent.{ChatContext, Context, LLM, MCP, Response, Runtime, Session, Sessions}
  alias AshAgent.{Store, Toolbox, Trace}
  alias AshAgent.Context.Enhancer
  alias AshAgent.Runtime.{Permissions, SubAgent, ToolExecutor}
  alias AshAgent.Store.{Conversation, Postgres, SQLite}
  alias AshAgent.Store.Postgres.Migrations

  @secret "sk-secret"

  # The code and the documentation of functions of AshAgent.Context stand here, under the same names.
  @parts [
    Context.Calls,
    Context.Import,
    Context.Libraries,
    Context.Log,
    Context.Requests,
    Context.Responses,
    Context.Storage,
    Context.Tokens,
    Context.View
  ]

  # Options that may be any term, since the application alone reads them, or a process.
  @any for(
         part <- [Context, Context.Calls],
         name <- [:approve_tool_call, :deny_tool_call],
         do: {part, name, :by}
       ) ++
         [{Session, :approve, :by}, {Session, :deny, :by}] ++
         for(option <- [:llm, :context, :name, :id, :store], do: {Session, :start_link, option}) ++
         for(
           name <- [:start_link, :child_spec],
           option <- [:llm, :context, :store],
           do: {Sessions, name, option}
         ) ++
         for(name <- [:approve, :deny], do: {Sessions, name, :by}) ++
         for({module, name} <- [{Runtime, :run}, {Runtime, :resume}], do: {module, name, :llm}) ++
         for(
           {module, name} <- [{Runtime, :run}, {Runtime, :resume}],
           option <- [:supervisor, :store],
           do: {module, name, option}
         ) ++
         [
           {Trace, :to_atif, :tools},
           {Trace, :to_otlp, :tools},
           {Trace.Exporter, :start_link, :tools},
           {Trace.Exporter, :start_link, :name},
           {MCP, :start_link, :name},
           {SubAgent, :tool, :llm},
           {ToolExecutor, :execute_tools, :supervisor}
         ]

  # Functions for supervisors: the started function checks the options.
  @started [{SQLite, :child_spec}, {Session, :child_spec}, {Trace.Exporter, :child_spec}]

  # Its options are for the model, which checks them.
  @elsewhere [AshAgent.LLM]

  defp context, do: "Hi" |> Context.new() |> Context.add_assistant_message(nil, [call()])
  defp call, do: %{id: "a", name: :now, arguments: %{}}

  # The arguments before the options.
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
    toolbox = Toolbox.new(name: "now", command: "date")

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
      {Enhancer.Budget, :prepare} => [],
      {Enhancer.Memory, :prepare} => [],
      {Enhancer.Redact, :prepare} => [],
      {Response, :new} => [:anthropic],
      {Response, :decode} => [:anthropic, "{}"],
      {Store, :append} => [store(), kept(), context],
      {Store, :call_key} => [context, "a"],
      {Store, :calls} => [store(), "c1"],
      {Store, :claim} => [store(), "c1"],
      {Store, :create} => [store(), context],
      {Store, :enqueue} => [store(), "c1", "Hi"],
      {Store, :expired} => [store()],
      {Store, :history} => [store(), "c1"],
      {Store, :list} => [store()],
      {Store, :release} => [store(), kept()],
      {SQLite, :open} => [":memory:"],
      {Postgres, :new} => [__MODULE__],
      {Migrations, :up} => [],
      {Migrations, :down} => [],
      {Migrations, :sql} => [0, 1],
      {Migrations, :migrate} => [store()],
      {LLM.Anthropic, :new} => [],
      {LLM.Bedrock, :new} => [],
      {LLM.Bedrock.SigV4, :sign} => ["GET", URI.parse("https://example.com/"), [], "", %{}],
      {LLM.Gemini, :new} => [],
      {LLM.Mistral, :new} => [],
      {LLM.Ollama, :new} => [],
      {LLM.ReqLLM, :new} => [],
      {LLM.OpenAICompatible, :new} => [],
      {LLM.OpenAIResponses, :new} => [],
      {LLM.Scripted, :new} => [[]],
      {LLM.Transport.HTTP1, :prepare} => [],
      {Context, :print} => [context],
      {Trace, :from_atif} => [%{}],
      {Trace, :from_atif!} => [%{}],
      {Trace, :to_atif} => [context],
      {Trace, :to_html} => [context],
      {Trace, :to_otlp} => [context],
      {Trace.Exporter, :export} => [:nobody, context],
      {Trace.Exporter, :start_link} => [],
      {Toolbox, :new} => [],
      {Toolbox, :run} => [toolbox, %{}],
      {Permissions, :new} => [],
      {Runtime, :run} => [context],
      {Runtime, :resume} => [context],
      {SubAgent, :tool} => [],
      {Session, :start_link} => [],
      {Session, :prompt} => [self(), "Hi"],
      {Session, :steer} => [self(), "Hi"],
      {Session, :prompt_async} => [self(), "Hi"],
      {Session, :resume} => [self()],
      {Session, :resume_async} => [self()],
      {Session, :approve} => [self(), "a"],
      {Session, :deny} => [self(), "a", nil],
      {Session, :subscribe} => [self()],
      {Sessions, :start_link} => [],
      {Sessions, :child_spec} => [],
      {Sessions, :prompt} => [:sessions, "c1", "Hi"],
      {Sessions, :prompt_async} => [:sessions, "c1", "Hi"],
      {Sessions, :steer} => [:sessions, "c1", "Hi"],
      {Sessions, :resume} => [:sessions, "c1"],
      {Sessions, :approve} => [:sessions, "c1", "a"],
      {Sessions, :deny} => [:sessions, "c1", "a", nil],
      {Sessions, :subscribe} => [:sessions, "c1"],
      {Sessions, :drain} => [:sessions],
      {MCP, :start_link} => [],
      {MCP, :tools} => [:mcp],
      {ToolExecutor, :execute_tools} => [[], %{}, %{}]
    }
  end

  # Options are checked before a database is asked.
  defp store, do: Postgres.new(__MODULE__)
  defp kept, do: %Conversation{id: "c1", claimed?: true}

  defp wrong(_, _, _, _, _), do: @secret

  defp response do
    {:ok, response} = Response.decode(:ollama, %{message: %{content: "Hi"}, done: true})
    response
  end

  defp message({{module, function}, arguments}, opts) do
    assert_raise(ArgumentError, fn -> apply(module, function, arguments ++ [opts]) end).message
  end

  # The message lists the options, and so shows which of them there are to be tried.
  defp options(call) do
    assert [_, listed] =
             Regex.run(~r/valid options are: \[(.*)\]$/, message(call, colour: @secret))

    for ":" <> name <- String.split(listed, ", "), do: String.to_existing_atom(name)
  end

  defp documented do
    {:ok, modules} = :application.get_key(:ash_agent_context, :modules)

    for module <- modules,
        module not in @elsewhere and
          not String.contains?(inspect(module), ["Test.", "Inspect."]),
        {:docs_v1, _, _, _, moduledoc, _, docs} when moduledoc != :hidden <- [
          Code.fetch_docs(module)
        ],
        {{:function, name, _arity}, _, signatures, doc, _} when doc != :hidden <- docs,
        Enum.any?(signatures, &(&1 =~ ~r/\b(opts|fields|delta_or_opts)\b/)),
        do: {module, name}
  end

  test "knows every public function that takes options" do
    known = Map.keys(calls())
    assert {Context, :fit} in documented()
    assert documented() |> Enum.uniq() |> Enum.reject(&(&1 in known or &1 in @started)) == []
  end

  test "an unknown option is refused, by its name and without any contents" do
    for call <- calls() do
      words = message(call, colour: @secret)
      assert words =~ "unknown options [:colour], valid options are: ["
      refute words =~ @secret
    end
  end

  test "each option refuses a wrong value, and says what it expects" do
    for {{module, function}, _} = call <- calls(),
        option <- options(call),
        {module, function, option} not in @any do
      words = message(call, [{option, &wrong/5}])
      assert words =~ "invalid value for option #{inspect(option)}: expected "
      assert words =~ "got: a function of arity 5"
      refute words =~ "a valid value", "#{inspect(call)} does not say what #{option} is"
    end
  end

  test "an option given twice is refused" do
    for call <- calls(), option <- Enum.take(options(call), 1) do
      assert message(call, [{option, nil}, {option, nil}]) =~ inspect(option)
    end
  end

  test "something else than a keyword list is refused" do
    for {{_, function}, _} = call <- calls(), function not in [:put, :put_config] do
      words = message(call, [@secret])
      assert words =~ "expected options to be a keyword list"
      refute words =~ @secret
    end
  end
end
