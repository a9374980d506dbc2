defmodule AshAgent.Resource do
  @argument %Spark.Dsl.Entity{
    name: :argument,
    describe: "An argument of the actions `:call` and `:stream`.",
    examples: ["argument :message, :string, allow_nil?: false"],
    target: Ash.Resource.Actions.Argument,
    schema: Ash.Resource.Actions.Argument.schema(),
    args: [:name, :type],
    transform: {Ash.Type, :set_type_transformation, []}
  }

  @input %Spark.Dsl.Section{
    name: :input,
    describe: "The arguments of a call.",
    entities: [@argument]
  }

  @agent %Spark.Dsl.Section{
    name: :agent,
    describe: "The model, its prompt, and what it takes and gives.",
    examples: [
      """
      agent do
        client "anthropic:claude-sonnet-4-5", temperature: 0.5, max_tokens: 1000

        input do
          argument :message, :string, allow_nil?: false
        end

        output Reply
        prompt ~p"You help customers. {{ output_format }}"
      end
      """
    ],
    imports: [AshAgent.Resource.Client, AshAgent.Sigils],
    no_depend_modules: [:client, :output, :hooks],
    sections: [@input],
    schema:
      AshAgent.Options.schema([
        {:client, :any, [required: true],
         "`\"provider:model\"`, with options of the client and `:temperature` and `:max_tokens`; or a model, see " <>
           "`t:AshAgent.LLM.t/0`, or a function of arity 0 that returns it. Without `:api_key` and `:base_url`, the key is that of the " <>
           "environment, such as `ANTHROPIC_API_KEY`, read for each request."},
        {:output, :any, [default: :string],
         "The type of answers: `:string`, an `Ash.TypedStruct`, or another Ash type of objects."},
        {:prompt, {:or, [:string, {:fun, 1}]},
         "The system prompt, with `{{ name }}` for the argument of that name, or a function of the arguments. In a call without " <>
           "arguments, it is the message."},
        {:hooks, :atom, "A module with callbacks of `AshAgent.Runtime.Hooks`."},
        {:token_budget, :pos_integer, "How many tokens the models of one call may report."},
        {:budget_strategy, {:one_of, [:halt, :warn]}, [default: :warn],
         "With `:halt`, a call that used up its budget ends with an error. With `:warn`, the telemetry event " <>
           "`[:ash_agent, :token_limit_warning]` tells that 80% are used."},
        {:options, :keyword_list, [default: []],
         "Other options of `AshAgent.Runtime.run/2`, such as `approval: &MyApp.approval/2` or `after_tool: &MyApp.shorten/3`."}
      ])
  }

  @tool %Spark.Dsl.Entity{
    name: :tool,
    describe: "A tool that the model may call.",
    examples: [
      """
      tool :get_customer do
        description "Looks up a customer"
        function {MyApp.Customers, :get, []}
        parameters id: [type: :uuid, required: true, description: "The customer's ID"]
      end
      """,
      """
      tool :open_ticket do
        description "Opens a ticket for the customer"
        action {MyApp.Support.Ticket, :open}
      end
      """
    ],
    target: AshAgent.Resource.Tool,
    args: [:name],
    identifier: :name,
    # No need to compile those first.
    no_depend_modules: [:action, :function],
    transform: {AshAgent.Resource.Tool, :check, []},
    schema:
      AshAgent.Options.schema([
        {:name, :atom, [required: true], "The tool's name."},
        {:description, :string, [required: true], "Tells the model when to use the tool."},
        {:action, {:or, [{:tuple, [:atom, :atom]}, {:tuple, [:atom, :atom, :keyword_list]}]},
         "`{resource, action}`, or `{resource, action, options}` with options of `AshAgent.Tools.actions/3`, such as `filter: [:id]`."},
        {:function, {:or, [{:tuple, [:atom, :atom, {:list, :any}]}, {:fun, 1}, {:fun, 2}]},
         "`{module, function, extra}`, called with the arguments, those in `extra`, and the tool context; or a function of the " <>
           "arguments, or of the arguments and the tool context."},
        {:parameters, :keyword_list,
         [
           default: [],
           keys: [
             *: [
               type: :keyword_list,
               keys: [
                 type: [
                   type: :any,
                   default: :string,
                   doc: "An Ash type. Values are cast to it."
                 ],
                 required: [type: :boolean, default: false],
                 description: [type: :string],
                 constraints: [type: :keyword_list, default: []]
               ]
             ]
           ]
         ], "The arguments of a function, by name."},
        {:timeout, :pos_integer,
         "How many milliseconds a call may take, instead of the section's `timeout`."}
      ])
  }

  @tools %Spark.Dsl.Section{
    name: :tools,
    describe: "The tools of the agent, which may also be inside of `agent`.",
    examples: [
      """
      tools do
        max_iterations 5

        tool :get_customer do
          description "Looks up a customer"
          action {MyApp.Customers.Customer, :read, filter: [:id]}
        end
      end
      """
    ],
    entities: [@tool],
    no_depend_modules: [:domains],
    schema:
      AshAgent.Options.schema([
        {:domains, {:list, :any}, [default: []],
         "Domains whose tools the agent has as well, see `AshAgent.Domain`: `[MyApp.Billing, {MyApp.Support, [:read_tickets]}]`."},
        {:max_iterations, :pos_integer, [default: 10], "How many iterations a call may have."},
        {:timeout, :pos_integer, [default: 30_000], "How many milliseconds a tool may take."},
        {:on_error, {:one_of, [:continue, :halt]}, [default: :continue],
         "With `:continue`, the model reads that a tool failed. With `:halt`, the call ends with an error."}
      ])
  }

  @moduledoc """
  An agent as an Ash resource.

      defmodule MyApp.Assistant do
        use Ash.Resource, domain: MyApp.Agents, extensions: [AshAgent.Resource]

        resource do
          require_primary_key? false
        end

        agent do
          client "anthropic:claude-sonnet-4-5", max_tokens: 1000

          input do
            argument :message, :string, allow_nil?: false
          end

          output MyApp.Reply
          prompt ~p"You help customers. {{ output_format }}"
        end

        tools do
          max_iterations 5

          tool :open_ticket do
            description "Opens a ticket for the customer"
            action {MyApp.Support.Ticket, :open}
          end
        end

        code_interface do
          define :call, args: [:message]
          define :run, args: [:message]
          define :stream, args: [:message]
        end
      end

      {:ok, %MyApp.Reply{content: "I have opened a ticket."}} = MyApp.Assistant.call("It does not print", actor: user)

      {:ok, result} = MyApp.Assistant.run("It does not print", actor: user)
      {:ok, result} = MyApp.Assistant.run("Thanks!", %{context: result.context}, actor: user)
      result.output
      #=> %MyApp.Reply{content: "You are welcome."}

  It is the agent of the package `ash_agent`, running on `AshAgent.Runtime`: see the guide "Coming from ash_agent". An agent
  stores nothing. For stored conversations, see `AshAgent.Conversation`.

  ## Actions

  You can replace each of them with your own action of the same name.

  | action | |
  |---|---|
  | `:call` | asks the model, and returns its answer. Its type is the agent's `output`, which GraphQL, JSON:API and other actions know |
  | `:run` | does the same, and returns an `AshAgent.Runtime.Result`, whose `output` is the answer and whose `context` is the conversation |
  | `:stream` | returns a stream of the answer |
  | `:resume` | continues `context` without a new message, after decisions about its calls or after an error |

  All but `:resume` take the arguments of `input`, and `:run` and `:stream` also `context`, a conversation to continue. The argument `message` is the user
  message; without it, the message is all arguments as JSON. The prompt of this call replaces the system prompt of the conversation.
  A context can only come from your application, not as JSON. If it has pending calls, `:run` returns an error, and
  `:resume` executes them with this agent's tools and the actor of this action.

  If an `approval` function in `options` asks about calls, the actions return an `AshAgent.Runtime.Paused` instead of a result. `:call` returns
  an error with the reason `:paused`, or `{:invalid_output, words}` if the model's answer is not of the type. Errors are an
  `AshAgent.Resource.Error`, with the context to continue from.

  ## Streams

  The elements are `{:content, text}` and `{:thinking, text}` as they arrive, `{:partial, value}` with the typed answer so far, at most every
  50 milliseconds and with maps for what will be a struct, and at the end one of `{:done, result}`, `{:paused, paused}` and
  `{:error, error}`. Each enumeration of the stream starts a run. It proceeds only as fast as it is read, within `llm_timeout`,
  and ends when its reader stops or dies.

  ## Typed output

  With an `output` other than `:string`, the type becomes the `:output` of the runs: the model is asked for it through its
  provider's own field or the tool `submit_answer`, and asked again if the answer does not fit, see `AshAgent.Output` and the
  guide on typed answers. Set `:output_mode` and `:max_retries` in `options`. The instruction to answer in that form takes the
  place of `{{ output_format }}` in your prompt, or comes at its end.

  ## The actor and the tenant

  Policies of the resource decide who may call an agent. Tools get `:actor`, `:tenant`, `:authorize?` and `:domain` of the action and the
  resource as `:agent`. None of them is stored or logged. Actions as tools always run with `authorize?: true`, see `AshAgent.Tools`.

  ## Agents as tools

  An agent's action is a tool like any other. It runs with the actor of the call, and gives the model the agent's answer:

      tool :research do
        description "Looks something up in the handbook"
        action {MyApp.Researcher, :call}
      end

  `AshAgent.Runtime.SubAgent` makes tools that also share the limits of the run.

  ## Options of a single call

  `context: %{ash_agent: %{options: [llm: llm]}}` of an action replaces options of the run, for instance in tests. It cannot be
  set through an action's input.

  The options of the sections are listed in their [cheat sheet](dsl-ashagent-resource.html).
  """

  use Spark.Dsl.Extension,
    sections: [@agent, @tools],
    transformers: [AshAgent.Resource.Transformer],
    verifiers: [AshAgent.Resource.Verifier]

  use AshAgent.Arguments

  @doc """
  Returns an Ash type as an `AshAgent.Output`, for the `:output` of runs that are not of an agent.

  `type` is an Ash type with its constraints, such as `MyApp.Ticket`, `{:array, :string}` or `Ash.Type.Date`. Answers are cast by the type, and its
  constraints are checked. Raises `ArgumentError` for a type whose values no model can write.

  ## Examples

      iex> output = AshAgent.Resource.output(:integer, min: 1)
      iex> AshAgent.Output.read(output, ~s({"value": "3"}))
      {:ok, 3, [%{path: [], kind: :number_from_text}]}
  """
  @doc since: "0.1.0"
  @spec output(term(), keyword()) :: AshAgent.Output.t()
  def output(type, constraints \\ []) when is_list(constraints) do
    case AshAgent.Resource.Output.new(type, constraints) do
      {:ok, output} -> output
      {:error, words} -> AshAgent.Caller.refuse!("expected an Ash type for an :output: " <> words)
    end
  end
end
