defmodule AshAgent do
  @moduledoc """
  A map of all modules. It has no functions of its own.

  An application depends on the topmost package that it uses.

  ## ash_agent_context: conversations as values

  | to | use |
  |---|---|
  | hold a conversation, add to it, read it, ask a provider with it, store it | `AshAgent.Context` |
  | change what models see of it | `AshAgent.Context.View`, and by a policy `AshAgent.Context.Shortening` and `Rent` |
  | read what the view leaves out, and keep things in it | `AshAgent.Context.Recall`, `AshAgent.Context.Pins` |
  | count tokens | `AshAgent.Context.Tokens` |
  | approve tool calls, and look at what became of them | `AshAgent.Context.Calls` |
  | see what requests asked for, whether they hit the cache, failed, and what they cost | `AshAgent.Context.Audit` |
  | read histories of providers and of other libraries | `AshAgent.Context.Import`, `ReqLLM`, `LangChain` and `Jido` |
  | keep branches, child conversations and settings | `AshAgent.ChatContext`, `AshAgent.ChatContext.Branch`, `AshAgent.ChatContext.Config` |
  | read what a provider sends back, whole or as it streams | `AshAgent.Response` |
  | shape what a model is shown, step by step | `AshAgent.Context.Enhancer` |
  | know what answers cost | `AshAgent.Prices` |
  | keep it in a column of Ecto | `AshAgent.Context.EctoType`, `AshAgent.ChatContext.EctoType` |
  | read and write JSON | `AshAgent.Context.JSON` |
  | look at it: a page, OpenTelemetry's spans | `AshAgent.Trace` |
  | match on what went wrong | `AshAgent.Context.Error`, `AshAgent.Response.Error` |

  ## ash_agent_runtime: the agent loop

  | to | use |
  |---|---|
  | run an agent until it answers | `AshAgent.Runtime`, with `AshAgent.Runtime.Result`, `Paused` and `Error` |
  | give it tools: functions, programs, agents | `AshAgent.Runtime.Tool`, `AshAgent.Toolbox`, `AshAgent.Runtime.SubAgent` |
  | let it read what its view leaves out | `AshAgent.Runtime.Recall` |
  | let it ask the person | `AshAgent.Runtime.AskUser` |
  | keep to a budget, put memory into prompts, mask patterns | `AshAgent.Context.Enhancer.Budget`, `Memory` and `Redact` |
  | get typed answers | `AshAgent.Output` |
  | execute calls without the loop | `AshAgent.Runtime.ToolExecutor` |
  | allow, deny, ask and watch | `AshAgent.Runtime.Permissions`, `AshAgent.Runtime.Hooks`, `AshAgent.Runtime.Events` |
  | keep an agent in a process, and watch it | `AshAgent.Session` |
  | find it again on any node, and after a crash | `AshAgent.Sessions` |
  | take late results over HTTP | `AshAgent.Sessions.Webhook`, `AshAgent.Sessions.Webhook.Plug` |
  | keep conversations | `AshAgent.Store`, in `AshAgent.Store.SQLite` or `AshAgent.Store.Postgres` |
  | reach a model | `AshAgent.LLM`, with a client for each provider, such as `AshAgent.LLM.Anthropic` |
  | test without one | `AshAgent.LLM.Scripted` |
  | use the tools of MCP servers | `AshAgent.MCP` |
  | look at stored and running conversations, also in a release | `AshAgent.Trace.Stored`, `mix ash_agent.trace` |
  | list what runs and waits, pause it, raise a limit | `AshAgent.Sessions.overview/2`, `mix ash_agent.sessions` |
  | send traces to a viewer | `AshAgent.Trace.Exporter` |

  ## ash_agent_test: for `only: [:dev, :test]`

  | to | use |
  |---|---|
  | assert about runs, and run them again from the middle | `AshAgent.Test`, `AshAgent.Test.Branch` |
  | play back what a provider said, or let a server misbehave | `AshAgent.LLM.Recorded`, `AshAgent.Test.Server` |
  | compare stored conversations with today's code | `mix ash_agent.replay`, `AshAgent.LLM.Difference` |
  | measure an agent on cases | `mix ash_agent.eval`, `AshAgent.Test.Eval` |
  | test a store of your own | `AshAgent.Store.Conformance` |

  ## ash_agent_resources: Ash

  | to | use |
  |---|---|
  | have conversations as resources | `AshAgent.Conversation`, `AshAgent.Conversation.Iteration`, `mix ash_agent.gen.conversation` |
  | have agents as resources | `AshAgent.Resource`, `AshAgent.Info`, `AshAgent.Sigils` |
  | give an agent Ash actions as tools | `AshAgent.Tools` |
  | have attributes that hold conversations | `AshAgent.Context.AshType`, `AshAgent.ChatContext.AshType`, `AshAgent.Context.Embedded` |

  ## ash_agent_web: the browser, with Plug or Phoenix LiveView

  | to | use |
  |---|---|
  | serve conversations to `useChat` and other front ends | `AshAgent.Door`, `AshAgent.Door.Plug` |
  | look at stored and running conversations in the browser | `AshAgent.Trace.Plug` |
  | have a chat in the browser | `AshAgent.Web`, `AshAgent.Web.Transcript` |
  | show Markdown of a model as safe HTML | `AshAgent.Web.Markdown` |
  """
end
