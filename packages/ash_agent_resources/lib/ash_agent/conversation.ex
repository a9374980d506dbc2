defmodule AshAgent.Conversation do
  @conversation %Spark.Dsl.Section{
    name: :conversation,
    describe: "How the conversation is run, and where its messages are kept.",
    # No need to compile it first.
    no_depend_modules: [:tools],
    examples: [
      """
      conversation do
        llm {AshAgent.LLM.Anthropic, model: "claude-sonnet-4-5"}
        tools &MyApp.Support.tools/0
        system_prompt "You help with tickets."
      end
      """
    ],
    schema: [
      llm: [
        type: {:or, [{:fun, 0}, {:fun, 1}, {:fun, 2}, :any]},
        required: true,
        doc: "The model, see `t:AshAgent.LLM.t/0`, or a function of arity 0 that returns it."
      ],
      tools: [
        type: {:or, [{:fun, 0}, {:fun, 1}, {:list, :any}, :map, :atom]},
        default: [],
        doc:
          "The tools, see `AshAgent.Runtime.Tool`, or a function that returns them. With arity 1 it gets the record. A domain, here " <>
            "or in a list, stands for the tools that it declares, and `{domain, names}` for some of them, see `AshAgent.Domain`."
      ],
      system_prompt: [
        type: {:or, [{:fun, 0}, {:fun, 1}, :string]},
        doc:
          "The system prompt of new conversations, or a function that returns it. With arity 1 it gets the record."
      ],
      approval: [
        type: {:or, [{:fun, 2}, {:one_of, [:auto]}]},
        default: :auto,
        doc:
          "Decides which calls may run, as the option of `AshAgent.Runtime.run/2`: a function of the call and the tool context."
      ],
      permission_rules: [
        type: {:list, :any},
        default: [],
        doc: "See `AshAgent.Runtime.Permissions`."
      ],
      allowed_tools: [
        type: {:list, {:or, [:atom, :string]}},
        doc: "The names of the tools that may run. Defaults to all."
      ],
      max_iterations: [
        type: :pos_integer,
        default: 10,
        doc: "How many iterations a turn may have."
      ],
      max_total_tokens: [
        type: :pos_integer,
        doc:
          "How many tokens the models of one turn may report. Defaults to that of `AshAgent.Runtime.run/2`."
      ],
      options: [
        type: :keyword_list,
        default: [],
        doc: "Other options of `AshAgent.Runtime.run/2`, such as `llm_timeout: 60_000`."
      ],
      iterations: [
        type: {:spark, Ash.Resource},
        doc:
          "A resource with `AshAgent.Conversation.Iteration`, to read the stored iterations with Ash. Needs AshPostgres."
      ],
      store: [
        type: {:or, [{:fun, 1}, :any]},
        doc:
          "The store of the messages, or a function that gets the tenant and returns it. Required unless the data " <>
            "layer is AshPostgres; then it defaults to `AshAgent.Store.Postgres` in the resource's repository, in the tenant's schema if there is one."
      ],
      name: [
        type: :string,
        doc:
          "What the store knows the resource by: its part of a conversation's key, see `AshAgent.Conversation.Info.key/1`. Without colons. " <>
            "Defaults to the table in PostgreSQL, or else to the name of the module."
      ],
      authority: [
        type: {:one_of, [:asker, :resumer]},
        default: :asker,
        doc:
          "As whom the tools of a turn run that somebody else resumes: as who asked for it, or as who resumes. A turn that goes on by itself " <>
            "runs as who asked."
      ],
      actor_persister: [
        type: :atom,
        doc:
          "A module with `store/1` and `lookup/1`, as an `AshOban.ActorPersister`: what is stored of an actor with each message, and how it " <>
            "is found again. Records of Ash resources need none."
      ],
      without_conversation: [
        type: {:list, :atom},
        default: [],
        doc:
          "Create actions that make records without a conversation on purpose, as an import may. Others are a warning of the compiler."
      ],
      deltas: [
        type: :boolean,
        default: true,
        doc: "Whether the resource's notifiers get the pieces of an answer while it comes."
      ]
    ]
  }

  @moduledoc """
  A conversation as an Ash resource.

      defmodule MyApp.Chat.Conversation do
        use Ash.Resource,
          domain: MyApp.Chat,
          data_layer: AshPostgres.DataLayer,
          authorizers: [Ash.Policy.Authorizer],
          extensions: [AshAgent.Conversation]

        postgres do
          table "conversations"
          repo MyApp.Repo
        end

        attributes do
          attribute :title, :string, public?: true
          attribute :user_id, :uuid, public?: true
        end

        conversation do
          llm {AshAgent.LLM.Anthropic, model: "claude-sonnet-4-5"}
          tools &MyApp.Support.tools/0
          system_prompt "You help with tickets."
        end

        policies do
          policy always() do
            authorize_if expr(user_id == ^actor(:id))
          end
        end
      end

      conversation = MyApp.Chat.Conversation.start!(%{title: "Printer", input: "It does not print"}, actor: user)
      conversation = MyApp.Chat.Conversation.say!(conversation, "It is switched on", actor: user)
      Ash.load!(conversation, [:transcript, :status], actor: user)

  `mix ash_agent.gen.conversation` writes such a resource and its migration.

  ## Where the messages are

  The record has only attributes of your application. The messages are in the tables of `AshAgent.Store`, under a key that has the
  resource's name and the record's id, `"conversations:7"`, so that the conversations of two resources never meet: a row
  for each iteration, so that a turn costs the same to write at any length, and with the journal of tool calls that runs after a crash
  need. With AshPostgres they are in the same database. `:start`, `:fork`, `:rewind`, decisions and the message of a `:say` are written
  in the action's transaction, and each write of a turn in a statement of its own. Destroying the record deletes its messages, unless the
  action is `soft?`, as those of AshArchival are.

  With `iterations MyApp.Chat.Iteration`, the rows are a resource as well, to read, filter, count and load as `iterations`: see
  `AshAgent.Conversation.Iteration`.

  ## Actions

  Each can be replaced by one of your own with the same name, and each has a function of the same name in the code interface. Actions of
  your own use `AshAgent.Conversation.Change`.

  | action | |
  |---|---|
  | `:start` | creates a conversation. Takes `input` or `parts`, and the public attributes. With a message, the model answers it |
  | `:say` | adds a user message (`input` or `parts`, `metadata`), and runs the turn |
  | `:resume` | continues a turn that waited for decisions, failed or was cut short, and then answers messages that still wait |
  | `:approve`, `:deny` | decide about the pending call `call_id`. `arguments` are those that were shown; a denial has a `reason` |
  | `:cancel` | ends the running turn, or gives up pending calls |
  | `:rewind` | goes back to the end of an `iteration` |
  | `:fork` | creates another conversation that continues from `source_id`, at an `iteration` if one is given |
  | `:erase` | deletes all records of a `filter` for good, with all that was said in them; see below |
  | `:delta` | is never called. It is the action of notifications with pieces of an answer, see below |

  `:start`, `:say` and `:resume` return when the turn is over or waits for decisions. The record's metadata `:run` has the
  `AshAgent.Runtime.Result` or `AshAgent.Runtime.Paused`. With `wait: false` they return once the message is stored. If the run fails,
  they return an `AshAgent.Conversation.Error`; the message and what was answered are kept, and `:resume` continues.

  The turn runs in a process of its own, an `AshAgent.Session`, and does not end with the caller. In a transaction of the caller, these
  three return at once: the message is written with the transaction, its turn begins after the commit, and a rollback leaves nothing. Ash
  tells of the commit: in a `Repo.transaction`, pass `return_notifications?: true`, and the notifications to `Ash.Notifier.notify/1` after it.

  ## Erasing

  `:erase` is for a person's data. It takes a filter of public fields, as `Ash.Query.filter_input/2` does, and deletes the records that it finds in
  the tenant, archived ones included, with their conversations and the forks of those. It returns a receipt, that of `AshAgent.Store.erase/2` with
  the count of `records`. It asks the policies of the action itself, and no others: allow it to whoever may do that.

      MyApp.Chat.Conversation.erase!(%{user_id: user.id}, actor: officer)
      #=> %{ids: ["conversations:7"], records: 1, conversations: 1, iterations: 12, calls: 3, prompts: 0, writes: 25}

  ## Turns that were cut short

  A turn ends with its node. Once nobody has it, which is at most thirty seconds later, the calculation `due` is true: an AshOban trigger on
  it with the action `:resume`, see the guide "Oban", or an `AshAgent.Conversation.Sweeper` goes on with the turn, without a person. Calls
  that were started are not started again, unless their tool is safe to repeat. In another store than that of AshPostgres, nothing can be
  filtered by `due`.

  ## Two at once

  Every message is stored before anything runs. When two callers say something at once, on whatever node, the session runs both turns,
  one after the other, each with its own actor. A session that another, unconnected node runs keeps its conversation: `:say` then
  returns with the message stored, and `:resume` answers it later. The other actions return an error with the reason `:busy` while a
  turn runs. Keep an `AshAgent.Sessions` away from the same tables: it would continue turns that were cut short, with its own model
  and without an actor. With the argument `revision`, `:rewind` and `:fork` fail if the conversation has changed since it was read.

  ## The actor and the tenant

  Policies of the resource decide who may do what, as for any resource; `:approve` and `:deny` have policies of their own, and a decision
  knows who made it. Tools get `:actor`, `:tenant` and `:domain` of the action, the shared context of the action as `:shared`, the resource
  as `:agent`, and the record's id as `:conversation_id`.

  Tools run as who asked, whoever approves and resumes. For that the message keeps the resource and the key of the actor, which `:resume`
  reads anew, and the shared context, such as a locale. Of other actors, it keeps the `id`: they can resume what they asked for, and
  for anybody else to do it the section needs an `actor_persister`. With `authority :resumer`, tools run as who resumes.

  With multitenancy by attribute the record guards its messages. By schema, the tables of the store are in the tenant's schema.

  ## Calculations

  `status` (`:idle`, `:running`, `:paused`), `revision`, `last_activity_at` and `message_count` are read by the database with AshPostgres,
  and a list can be filtered and sorted by them. `message_count` counts the system prompt, which the transcript does not show, and
  looks at all iterations; the others cost as much as a join. As all that the
  database calculates, they can be loaded for a record that is at hand.

  `context`, `transcript`, `last_message`, `current_iteration`, `pending_tool_calls` and `total_tokens`, and with other stores all of them,
  are read from the store, for each conversation once. Nothing can be filtered or sorted by these.

  ## Deltas

  Notifiers of the resource, such as `Ash.Notifier.PubSub`, get the actions, and while the model streams a notification of the action
  `:delta` with the pieces as `metadata.events`, see `t:AshAgent.Response.event/0`. When a message of `:say` is stored comes one with `metadata.said`, at the end of a turn one with
  `metadata.ended`: `:answered`, `:paused` or `:failed`.

      pub_sub do
        module MyAppWeb.Endpoint
        prefix "conversation"
        publish :delta, [:id], transform: & &1.metadata
        publish :say, [:id]
      end

  Whoever may read a topic reads the answer: notifications are not checked by policies.

  ## Options of a single call

  `context: %{ash_agent: %{options: [llm: llm]}}` of an action replaces options of the run it starts, for tests for instance. It
  cannot be given in an action's input.

  The options of the section are listed in its [cheat sheet](dsl-ashagent-conversation.html).
  """

  use Spark.Dsl.Extension,
    sections: [@conversation],
    transformers: [AshAgent.Conversation.Transformer],
    verifiers: [AshAgent.Conversation.Verifier]

  use AshAgent.Arguments

  @doc """
  Waits until the sessions have ended that a process, or one that it has started, has begun, and returns `:ok`.

  A session releases its conversation after it has answered. A test calls this before it gives back the connection of its sandbox; see the
  guide "Testing". After `timeout` milliseconds, it does not wait any more.

      on_exit(fn ->
        AshAgent.Conversation.await_turns(test)
        Ecto.Adapters.SQL.Sandbox.stop_owner(owner)
      end)
  """
  @doc since: "0.1.0"
  @spec await_turns(pid(), non_neg_integer()) :: :ok
  def await_turns(caller, timeout \\ 5_000) when is_pid(caller) and is_integer(timeout),
    do: AshAgent.Conversation.Runner.await_turns(caller, timeout)

  @doc false
  # `mix ash.codegen` calls it.
  def codegen(argv), do: AshAgent.Conversation.Codegen.run(argv)
end
