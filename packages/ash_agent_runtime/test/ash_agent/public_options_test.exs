defmodule AshAgent.Runtime.PublicOptionsTest do
  alias AshAgent.{Context, LLM, MCP, Runtime, Session, Sessions, Store, Toolbox, Trace}
  alias AshAgent.Runtime.{AskUser, Permissions, Recall, SubAgent, ToolExecutor}
  alias AshAgent.Store.{Conversation, Postgres, SQLite}
  alias AshAgent.Store.Postgres.Migrations
  alias AshAgent.Test.{Branch, Eval, Server}

  use AshAgent.TestSupport.OptionCases,
    app: :ash_agent_runtime,
    any:
      for(name <- [:approve, :deny, :answer], do: {Session, name, :by}) ++
        for(
          option <- [:llm, :context, :name, :id, :store, :output],
          do: {Session, :start_link, option}
        ) ++
        for(
          name <- [:start_link, :child_spec],
          option <- [:llm, :context, :store, :output],
          do: {Sessions, name, option}
        ) ++
        for(name <- [:approve, :deny, :answer], do: {Sessions, name, :by}) ++
        for(
          name <- [:run, :resume],
          option <- [:llm, :supervisor, :store, :output],
          do: {Runtime, name, option}
        ) ++
        [
          {Store, :arrive, :from},
          {Store, :waiting_calls, :for},
          {Sessions, :arrive, :from},
          {Sessions, :waiting, :for},
          {Sessions, :cancel_call, :by},
          {Sessions, :cancel_call, :reason},
          {Sessions.Webhook, :new, :from},
          {Sessions.Webhook.Plug, :init, :webhook},
          {AshAgent.Test, :replay, :llm},
          {AshAgent.Test, :replay, :output},
          {Trace.Exporter, :start_link, :tools},
          {Trace.Exporter, :start_link, :name},
          {Server, :start_link, :name},
          {MCP, :start_link, :name},
          {MCP, :tools, :actor},
          {MCP, :tools, :tenant},
          {SubAgent, :tool, :llm},
          {SubAgent, :tool, :output},
          {AskUser, :tool, :for},
          {ToolExecutor, :execute_tools, :supervisor}
        ],
    started: [{SQLite, :child_spec}, {Session, :child_spec}, {Trace.Exporter, :child_spec}],
    elsewhere: [AshAgent.LLM]

  defp branch(context),
    do: %Branch{original: context, iteration: 1, change: "", result: nil, context: context}

  defp calls do
    call = %{id: "a", name: :now, arguments: %{}}
    context = "Hi" |> Context.new() |> Context.add_assistant_message(nil, [call])
    toolbox = Toolbox.new(name: "now", command: "date")

    %{
      {AshAgent.Output, :read} => [AshAgent.Output.new(:string), "{}"],
      {AshAgent.Output, :check} => [AshAgent.Output.new(:string), %{}],
      {Context.Enhancer.Budget, :prepare} => [],
      {Context.Enhancer.Memory, :prepare} => [],
      {Context.Enhancer.Redact, :prepare} => [],
      {Store, :arrive} => [store(), "c1", "k", {:ok, 1}],
      {Store, :arrived} => [store()],
      {Store, :expire_waiting} => [store()],
      {Store, :waiting_calls} => [store()],
      {Store, :append} => [store(), kept(), context],
      {Store, :call_key} => [context, "a"],
      {Store, :calls} => [store(), "c1"],
      {Store, :claim} => [store(), "c1"],
      {Store, :create} => [store(), context],
      {Store, :enqueue} => [store(), "c1", "Hi"],
      {Store, :erase} => [store()],
      {Store, :expired} => [store()],
      {Store, :history} => [store(), "c1"],
      {Store, :list} => [store()],
      {Store, :prune} => [store()],
      {Store, :dump} => [store(), "c1"],
      {Store, :search} => [store(), "word"],
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
      {LLM.Recorded, :new} => [LLM.Ollama],
      {LLM.Scripted, :new} => [[]],
      {LLM.Transport.HTTP1, :prepare} => [],
      {Server, :start_link} => [],
      {AshAgent.Test, :branch} => [context, 1],
      {AshAgent.Test, :replay} => [context],
      {Eval, :run} => [[cases: [], run: &to_string/1]],
      {Branch, :to_html} => [branch(context)],
      {Branch, :to_text} => [branch(context)],
      {Trace.Exporter, :export} => [:nobody, context],
      {Trace.Exporter, :start_link} => [],
      {Trace.Stored, :list} => [store()],
      {Trace.Stored, :print} => [store(), "c1"],
      {Trace.Stored, :to_html} => [store(), "c1"],
      {Toolbox, :new} => [],
      {Toolbox, :run} => [toolbox, %{}],
      {Permissions, :new} => [],
      {Runtime, :run} => [context],
      {Runtime, :attach_default_logger} => [],
      {Runtime, :resume} => [context],
      {SubAgent, :tool} => [],
      {AskUser, :tool} => [],
      {Recall, :tool} => [],
      {Session, :start_link} => [],
      {Session, :prompt} => [self(), "Hi"],
      {Session, :steer} => [self(), "Hi"],
      {Session, :prompt_async} => [self(), "Hi"],
      {Session, :resume} => [self()],
      {Session, :resume_async} => [self()],
      {Session, :approve} => [self(), "a"],
      {Session, :answer} => [self(), "a", "yes"],
      {Session, :deny} => [self(), "a", nil],
      {Session, :subscribe} => [self()],
      {Sessions, :start_link} => [],
      {Sessions, :child_spec} => [],
      {Sessions, :prompt} => [:sessions, "c1", "Hi"],
      {Sessions, :prompt_async} => [:sessions, "c1", "Hi"],
      {Sessions, :steer} => [:sessions, "c1", "Hi"],
      {Sessions, :resume} => [:sessions, "c1"],
      {Sessions, :approve} => [:sessions, "c1", "a"],
      {Sessions, :answer} => [:sessions, "c1", "a", "yes"],
      {Sessions, :deny} => [:sessions, "c1", "a", nil],
      {Sessions, :subscribe} => [:sessions, "c1"],
      {Sessions, :fork} => [:sessions, "c1", "c2"],
      {Sessions, :drain} => [:sessions],
      {Sessions, :arrive} => [:sessions, "c1", "k", {:ok, 1}],
      {Sessions, :cancel_call} => [:sessions, "c1", "k"],
      {Sessions, :waiting} => [store()],
      {Sessions.Webhook, :new} => [],
      {Sessions.Webhook.Plug, :init} => [],
      {Sessions, :overview} => [store()],
      {Sessions, :print_overview} => [store()],
      {MCP, :start_link} => [],
      {MCP, :tools} => [:mcp],
      {ToolExecutor, :execute_tools} => [[], %{}, %{}]
    }
  end

  # Options are checked before a database is asked.
  defp store, do: Postgres.new(__MODULE__)
  defp kept, do: %Conversation{id: "c1", claimed?: true}
end
