defmodule AshAgent.Conversation.Iteration do
  @iteration %Spark.Dsl.Section{
    name: :iteration,
    describe: "Whose iterations they are.",
    examples: ["iteration do\n  conversation MyApp.Chat.Conversation\nend"],
    schema:
      AshAgent.Options.schema([
        {:conversation, {:spark, Ash.Resource}, [required: true],
         "The resource with `AshAgent.Conversation` that names this one as its `iterations`."}
      ])
  }

  @moduledoc """
  The iterations of conversations as an Ash resource, to read, filter, sort, aggregate and authorize.

      defmodule MyApp.Chat.Iteration do
        use Ash.Resource,
          domain: MyApp.Chat,
          data_layer: AshPostgres.DataLayer,
          extensions: [AshAgent.Conversation.Iteration]

        iteration do
          conversation MyApp.Chat.Conversation
        end
      end

      conversation do
        iterations MyApp.Chat.Iteration
        ...
      end

      Ash.load!(conversation, [iterations: [:status, :content]], actor: user)
      Ash.aggregate!(MyApp.Chat.Iteration, {:tokens, :sum, field: :total_tokens}, actor: user)
      Ash.sum!(MyApp.Chat.Iteration, :cost, actor: user)

  The rows are the store's, in the table `ash_agent_iterations`; repo, schema and tenants are those of the conversation's
  resource. Only the store writes them, in one statement that compares epoch and revision, so the resource's only action is `:read`.

  ## What it has

  | field | |
  |---|---|
  | `conversation_id`, `number` | the primary key; the id is text, whatever the record's is |
  | `conversation` | the relationship, and `iterations` is that of the conversation |
  | `status` | `:open` or `:completed` |
  | `started_at`, `completed_at` | times |
  | `total_tokens` | the tokens that the models reported for its answers |
  | `cost`, `input_tokens`, `output_tokens`, `cached_tokens`, `cache_write_tokens`, `reasoning_tokens`, `unpriced_answers`, `prices_digest` | what was spent while it was the current one, see [Money](AshAgent.Conversation.html#module-money); `nil` for what a fork has from its source. After a rewind, what was spent on the one that had its number is in it, too |
  | `content` | the iteration, as `AshAgent.Context.get_iteration/2` returns it, without the system prompt |
  | `document` | the iteration as it is stored. Not public, and not selected unless asked for |

  `content` is decoded from the document, and all others are read by the database.

  ## Who may read them

  Anyone who may read the conversation: an authorized read returns only iterations of conversations that the policies of the
  conversation's read action show to the actor, in the tenant. A resource with `Ash.Policy.Authorizer` can add its own rules.

  The options of the section are listed in its [cheat sheet](dsl-ashagent-conversation-iteration.html).
  """

  use Spark.Dsl.Extension,
    sections: [@iteration],
    transformers: [AshAgent.Conversation.Iteration.Transformer],
    verifiers: [AshAgent.Conversation.Iteration.Verifier]
end
