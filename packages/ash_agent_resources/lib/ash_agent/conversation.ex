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
    schema:
      AshAgent.Options.schema([
        {:llm, {:or, [{:fun, 0}, {:fun, 1}, {:fun, 2}, :any]}, [required: true],
         "The model, see `t:AshAgent.LLM.t/0`, or a function of arity 0 that returns it."},
        {:tools, {:or, [{:fun, 0}, {:fun, 1}, {:list, :any}, :map, :atom]}, [default: []],
         "The tools, see `AshAgent.Runtime.Tool`, or a function that returns them. With arity 1 it gets the record. A domain, here " <>
           "or in a list, stands for the tools that it declares, and `{domain, names}` for some of them, see `AshAgent.Domain`."},
        {:system_prompt, {:or, [{:fun, 0}, {:fun, 1}, :string]},
         "The system prompt of new conversations, or a function that returns it. With arity 1 it gets the record."},
        {:approval, {:or, [{:fun, 2}, {:one_of, [:auto]}]}, [default: :auto],
         "Decides which calls may run, as the option of `AshAgent.Runtime.run/2`: a function of the call and the tool context."},
        {:permission_rules, {:list, :any}, [default: []], "See `AshAgent.Runtime.Permissions`."},
        {:allowed_tools, {:list, {:or, [:atom, :string]}},
         "The names of the tools that may run. Defaults to all."},
        {:max_iterations, :pos_integer, [default: 10], "How many iterations a turn may have."},
        {:max_total_tokens, :pos_integer,
         "How many tokens the models of one turn may report. Defaults to that of `AshAgent.Runtime.run/2`."},
        {:prices, {:or, [{:fun, 0}, {:list, :any}]},
         "What models cost, see `AshAgent.Prices`: a list, or a function that returns it or a file that is read. Needed for `cost`."},
        {:options, :keyword_list, [default: []],
         "Other options of `AshAgent.Runtime.run/2`, such as `llm_timeout: 60_000`."},
        {:iterations, {:spark, Ash.Resource},
         "A resource with `AshAgent.Conversation.Iteration`, to read the stored iterations with Ash. Needs AshPostgres."},
        {:store, {:or, [{:fun, 1}, :any]},
         "The store of the messages, or a function that gets the tenant and returns it. Required unless the data " <>
           "layer is AshPostgres; then it defaults to `AshAgent.Store.Postgres` in the resource's repository, in the tenant's schema if there is one."},
        {:name, :string,
         "What the store knows the resource by: its part of a conversation's key, see `AshAgent.Conversation.Info.key/1`. Without colons. " <>
           "Defaults to the table in PostgreSQL, or else to the name of the module."},
        {:authority, {:one_of, [:asker, :resumer]}, [default: :asker],
         "As whom the tools of a turn run that somebody else resumes: as who asked for it, or as who resumes. A turn that goes on by itself " <>
           "runs as who asked."},
        {:actor_persister, :atom,
         "A module with `store/1` and `lookup/1`, as an `AshOban.ActorPersister`: what is stored of an actor with each message, and how it " <>
           "is found again. Records of Ash resources need none."},
        {:without_conversation, {:list, :atom}, [default: []],
         "Create actions that make records without a conversation on purpose, as an import may. Others are a warning of the compiler."},
        {:deltas, :boolean, [default: true],
         "Whether the resource's notifiers get the pieces of an answer while it comes."},
        {:title, :atom,
         "The attribute in which the model writes a title after the first answer, unless it has a value."},
        {:title_llm, {:or, [{:fun, 0}, {:fun, 1}, {:fun, 2}, :any]},
         "The model that writes the title, such as a cheaper one. Defaults to `llm`."}
      ])
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

  The record has only your application's attributes. The messages are in the tables of `AshAgent.Store`, one row per iteration, so
  that writing a turn costs the same at any length, along with the journal of tool calls that lets runs continue after a crash.
  Their key consists of the resource's name and the record's id, such as `"conversations:7"`, so the conversations of two
  resources never collide. With AshPostgres they are in the same database. `:start`, `:fork`, `:rewind`, decisions and the message
  of a `:say` are written in the action's transaction, and each write of a turn in its own statement. Destroying the record
  deletes its messages, unless the action is `soft?`, like those of AshArchival.

  With `iterations MyApp.Chat.Iteration`, the rows are a resource too, which you can read, filter, count and load as `iterations`:
  see `AshAgent.Conversation.Iteration`.

  ## Actions

  You can replace each of them with your own action of the same name, and each has a function of the same name in the code
  interface. Other actions of yours use `AshAgent.Conversation.Change`.

  | action | |
  |---|---|
  | `:start` | creates a conversation. Takes `input` or `parts`, and the public attributes. With a message, the model answers it. Sent again by the same actor with the same `key`, it returns the first one, with `begun: true` in its metadata; only for keys of the type `:uuid` |
  | `:say` | adds a user message (`input` or `parts`, `metadata`), and runs the turn. Sent again with the same `key`, it is said once. With `steer: true`, the turn that runs reads it, see below |
  | `:resume` | continues a turn that waited for decisions, failed or was cut short, and then answers messages that still wait |
  | `:approve`, `:deny` | decide about the pending call `call_id`. `arguments` are those that were shown, and others are an error, as is an `attempt` that is not the call's as it is shown now, or 1 if it has none. The call runs with `edited` arguments if the person wrote some; a denial may have a `reason` |
  | `:answer` | answers the question of the call `call_id`, see `AshAgent.Runtime.AskUser`, with a text as `answer` or a map as `form`. `arguments` are those that were shown |
  | `:arrive` | gives the call that waits under `key` its late result: `text`, `result`, a map, or `error`; see below |
  | `:waiting` | reads the conversations with calls that wait, for whom they may: with `for`, only those that wait for this person or tag. `waiting_calls` of each lists them |
  | `:cancel` | ends the running turn, or gives up pending calls and a turn that is parked, and drops messages that wait |
  | `:rewind` | goes back to the end of an `iteration`, or with the number before the first one to before anything was said |
  | `:fork` | creates another conversation that continues from `source_id`, at an `iteration` if one is given |
  | `:erase` | deletes all records of a `filter` for good, with their conversations; see below |
  | `:delta` | is never called. It is the action of notifications with pieces of an answer, see below |

  `:start`, `:say` and `:resume` return when the turn is over or waits for decisions. The record's metadata `:run` has the
  `AshAgent.Runtime.Result` or `AshAgent.Runtime.Paused`. With `wait: false` they return once the message is stored. If the run fails,
  they return an `AshAgent.Conversation.Error`; the message and what was answered are kept, and `:resume` continues.

  The turn runs in its own process, an `AshAgent.Session`, and outlives the caller. Inside a transaction of the caller, these
  three return at once: the message is written in the transaction, its turn starts after the commit, and a rollback leaves nothing
  behind. The commit is noticed through Ash's notifications: in a `Repo.transaction`, pass `return_notifications?: true`, and
  afterwards pass the notifications to `Ash.Notifier.notify/1`.

  ## Erasing

  `:erase` is for a person's data. It takes a filter of public fields, as `Ash.Query.filter_input/2` does, and deletes the records
  that it finds in the tenant, including archived ones, with their conversations and the forks of those. It returns the receipt of
  `AshAgent.Store.erase/2` plus the count of `records`. Only the policies of this action apply, so allow it only for people who
  may delete all of this.

      MyApp.Chat.Conversation.erase!(%{user_id: user.id}, actor: officer)
      #=> %{ids: ["conversations:7"], records: 1, conversations: 1, iterations: 12, calls: 3, prompts: 0, writes: 25}

  ## Turns that were cut short

  A turn dies with its node. Once nobody runs it, at most thirty seconds later, the calculation `due` is true. An AshOban trigger
  on it with the action `:resume`, see the guide "Oban", or an `AshAgent.Conversation.Sweeper` then continues the turn without a
  person. Calls that were started are not started again, unless their tool is safe to repeat. You can filter by `due` only with
  AshPostgres and its own store.

  ## Late results

  A tool may answer hours later, see [A tool answers in an hour](https://hexdocs.pm/ash_agent_context/late.html): it gets the `:arrival_key` of its call, and
  whoever has the result calls `:arrive` with it. The first result of a key is the only one; the record's metadata has `arrived: :kept`, or `:again` for the
  same one. Then the turn goes on as the user who asked for the turn of the call, and never as who brings the result; if that user cannot be found, the result
  waits until they `:resume`. So give `:arrive` a policy of its own,
  such as one for the actor of a webhook:

      bypass action(:arrive) do
        authorize_if actor_attribute_equals(:role, :ci)
      end

  A result that only `AshAgent.Store.arrive/5` got, and a deadline that has passed, make the conversation `due`. `AshAgent.Conversation.Upkeep.resume_due/2`,
  and with it the sweeper, stores the deadlines that have passed. With an AshOban trigger alone, do that in a job every minute:
  `AshAgent.Store.expire_waiting/2` with `AshAgent.Conversation.Info.store/2`.

  ## Two at once

  Every message is stored before anything runs. If two callers say something at the same time, on any node, the session runs both
  turns one after the other, each with its own actor. A session on another, unconnected node keeps its conversation: then `:say`
  returns with the message stored, and `:resume` answers it later. The other actions return an error with the reason `:busy` while
  a turn is running. Don't use `AshAgent.Sessions` on the same tables: it would continue interrupted turns with its own model and
  without an actor. With the argument `revision`, `:rewind` and `:fork` fail if the conversation has changed since it was read.

  ## Steering

  With `steer: true`, the message of a `:say` goes to the turn that runs: the model reads it with the next results, or once more after its answer.
  Then the action returns at once, with `steered: true` in the record's metadata; whoever asked for the turn gets its end. If no turn runs, it is as
  without. So it is if the turn's tools run as somebody else, in another tenant or with another shared context: a turn does nothing for those who may not do it
  themselves, and their message is the next turn.

  ## The actor and the tenant

  The resource's policies decide who may do what, as for any resource; `:approve`, `:deny`, `:answer` and `:arrive` have their own policies, and a decision
  records who made it. Tools get the action's `:actor`, `:tenant` and `:domain`, its shared context as `:shared`, the resource
  as `:agent`, and the record's id as `:conversation_id`.

  Tools run as the user who asked, no matter who approves and resumes. To make that possible, the message stores the resource and the key of the actor, which
  `:resume` reads again, and the shared context, such as a locale. If the actor is not an Ash record, the message stores its `id`: that actor can resume, and
  for anybody else to do so the section needs an `actor_persister`. With `authority :resumer`, tools run as the user who resumes.

  With attribute multitenancy, access to the messages goes through the record. With schema multitenancy, the store's tables are in the tenant's schema, and
  without a tenant, everything that reads or writes them raises `Ash.Error.Invalid.TenantRequired`.

  ## Calculations

  With AshPostgres, the database computes `status` (`:idle`, `:running`, `:paused`), `last_outcome`, `last_error`, `revision`,
  `last_activity_at` and `message_count`, and you can filter and sort by them. `message_count` includes the system prompt, which the transcript does not show, and
  reads all iterations; the others cost as much as a join. You can also load them for a record that you already have.

  `last_outcome` says how the last turn that ended did so, see `AshAgent.Conversation.Outcome`. If something went wrong, `last_error` has
  the `"kind"` and `"words"` of ours, without those of a provider or an exception. In `transcript`, a message has an `outcome` if its answer is
  not whole: `:length`, `:refused`, `:filtered`, `:failed` or `:interrupted`.

  `cost`, `input_tokens`, `output_tokens`, `cached_tokens`, `cache_write_tokens`, `reasoning_tokens`, `unpriced_answers` and `prices_digest` say what the
  conversation has spent, see [Money](#module-money). You can filter and sort by them, too, and add them up over a relationship.

  `context`, `transcript`, `last_message`, `current_iteration`, `pending_tool_calls`, `waiting_calls` and `total_tokens`, and with other stores all calculations,
  are read from the store, once per conversation. You cannot filter or sort by these.

  ## Money

  With `prices`, each write of a turn keeps what the turn has spent since the write before. `cost` is the sum in US dollars, an exact decimal:

      conversation do
        prices &MyApp.Prices.all/0
        ...
      end

      # In the customer's resource, which has_many :conversations
      sum :spent, :conversations, :cost

      Ash.sum!(MyApp.Chat.Conversation, :cost, actor: user)

  Each answer counts once: those of sub-agents with the conversation that asked for them, those that a rewind took back, those of
  attempts that failed as far as the provider reported them, and nothing of what a fork has from its source. It is what was paid at the time: a new price list changes
  nothing, and `prices_digest` says which prices counted last (`AshAgent.Prices.digest/1`). `AshAgent.Context.Audit.fetch_cost/2` computes what
  the answers that are left cost by other prices. Titles are not counted.

  What is unknown is `nil`, and never 0: `cost` without a single priced answer, the tokens of a kind that no provider reported. `unpriced_answers` is
  the number of answers that the sum lacks, since their model has no price or did not report its tokens; those of earlier releases are among
  them, whose tokens count. With other stores than AshPostgres' own, the values are read from all writes of a conversation.

  ## Deltas

  The resource's notifiers, such as `Ash.Notifier.PubSub`, get the actions, and while the model streams, notifications of the
  action `:delta` with the pieces as `metadata.events`, see `t:AshAgent.Response.event/0`, with their `iteration` and a `number` that grows
  within a turn. They get one with `metadata.said` when a message of `:say` is stored, one with `metadata.ended` at the end of a turn:
  `:answered`, `:paused` or `:failed`, and one with `metadata.titled` when a title is written.

      pub_sub do
        module MyAppWeb.Endpoint
        prefix "conversation"
        publish :delta, [:id], transform: & &1.metadata
        publish :say, [:id]
      end

  Policies do not check notifications: anyone who can read a topic can read the answer. For GraphQL, `AshAgent.Conversation.Answers` passes
  them on to subscribers who may read the conversation.

  ## Titles

  With `title :title`, the model is asked once, after the first answer of a conversation without a title, for one of a few words. The request has the
  beginning of the question and of the answer, at most 1,000 characters of each, and no tools; its cost is not part of the turn's. The action
  `:put_title` writes the title as whoever asked, without their policies. A title that somebody writes in the meantime stays. If the model fails, the
  conversation has no title, and nothing else is wrong. An action that brings its own `llm`, as below, leads to no title.

  ## Options of a single call

  `context: %{ash_agent: %{options: [llm: llm]}}` of an action replaces options of the run it starts, for instance in tests. It
  cannot be set through an action's input.

  The options of the section are listed in its [cheat sheet](dsl-ashagent-conversation.html).
  """

  use Spark.Dsl.Extension,
    sections: [@conversation],
    transformers: [AshAgent.Conversation.Transformer, AshAgent.Conversation.Admin],
    verifiers: [AshAgent.Conversation.Verifier]

  use AshAgent.Arguments

  @doc """
  Waits until all sessions that a process, or a process started by it, has begun have ended, and returns `:ok`.

  A session releases its conversation after it has answered. Tests call this before they give back the connection of their sandbox; see the
  guide "Testing". It waits at most `timeout` milliseconds.

      on_exit(fn ->
        AshAgent.Conversation.await_turns(test)
        Ecto.Adapters.SQL.Sandbox.stop_owner(owner)
      end)
  """
  @doc since: "0.1.0"
  @spec await_turns(pid(), non_neg_integer()) :: :ok
  def await_turns(caller, timeout \\ 5_000) when is_pid(caller) and is_integer(timeout),
    do: AshAgent.Conversation.Runner.await_turns(caller, timeout)

  @doc """
  Subscribes the calling process to the turn of a record that runs, and returns what `AshAgent.Session.subscribe/2` returns: what has come of
  the answer so far, and then each change. Returns `:idle` if no turn runs.

  A LiveView that is opened or connects again in the middle of an answer shows it whole in this way. Pass the `:tenant`. No policy is
  checked: read the record with the actor first.

      case AshAgent.Conversation.subscribe(conversation) do
        {:ok, ref, snapshot} -> snapshot.message
        :idle -> nil
      end
  """
  @doc since: "0.1.0"
  @spec subscribe(Ash.Resource.record(), tenant: term()) ::
          {:ok, reference(), AshAgent.Session.snapshot()} | {:error, :full} | :idle
  def subscribe(%_resource{} = record, opts \\ []) when is_list(opts),
    do: AshAgent.Conversation.Runner.subscribe(record, opts[:tenant])

  @doc false
  # `mix ash.codegen` calls it.
  def codegen(argv), do: AshAgent.Conversation.Codegen.run(argv)
end
