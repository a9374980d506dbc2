defmodule AshAgent.Context.Options do
  @moduledoc false

  # The options of the functions of AshAgent.Context and AshAgent.ChatContext, which share most of them. A schema is named
  # after its function; those of views and of chats have files of their own.

  import AshAgent.Context.Options.Kinds

  alias AshAgent.Context.Options.{Chats, Kinds, Views}
  alias AshAgent.Context.Trust
  alias AshAgent.Options

  @id "the conversation's id. Defaults to a new UUID v4."

  @message [
    {:at, time(), "the time of the message. Defaults to now."},
    {:metadata, metadata(),
     "kept with the message and shown under `:metadata`. Defaults to no metadata."}
  ]

  @request [
    {:pending, {:in, [:error, :interrupt]}, [default: :error],
     "`:interrupt` sends pending calls as interrupted."},
    {:model, {:or, [:string, nil]},
     "the model's name. Thinking signed by another model is not sent, and requests for Gemini, Bedrock and " <>
       "OpenAI Responses follow what this model accepts. The request does not name it: write `body: %{model: \"...\"}` of " <>
       "`encode_request/3` for that. Defaults to no model."},
    {:thinking, {:in, [:drop, :text]}, [default: :drop],
     "what to do with thinking that came from another provider or model."},
    {:cache, {:in, [:auto, false]}, [default: false],
     "for Anthropic and Bedrock: `:auto` places up to four cache breakpoints, where they pay off."},
    {:system_role, {:in, ["system", "developer"]}, [default: "system"],
     "for OpenAI: the role of the system prompt."},
    {:since, iteration(),
     "the first iteration to send; the system prompt is always sent. Defaults to the oldest."},
    {:max_result_bytes, result_bytes(),
     "limits the text of each tool result, see `AshAgent.Context.View.put_max_result_bytes/3`. Defaults to the view's own limit."},
    {:dialect, {:in, [:openai, :deepseek, :openrouter, :vllm, nil]},
     "for OpenAI chat: how the server writes reasoning; the guide on thinking lists which host uses which. By default " <>
       "imported reasoning goes back as it came, and no other reasoning is sent. For Anthropic: `:deepseek` is a server that " <>
       "wants thinking back although it did not sign it."},
    {:previous_response_id, kept_id(),
     "for OpenAI Responses, and for the threads of Anthropic: the id of the last response, which the API keeps together with everything before it. " <>
       "Only what came later is sent: what follows the model's last message in the iteration `:since`, or in the " <>
       "whole conversation. Defaults to sending everything."},
    {:conversation, kept_id(),
     "for OpenAI Responses: the same with the id of a conversation that the API keeps."}
  ]

  @decide [
    {:arguments, [type: {:or, [:map, :string, nil]}, type_doc: "a map or a string"],
     "the arguments that the person who decides has seen. Give them when the context may have changed since they " <>
       "were shown: others are an error, and nothing is decided. Defaults to those that " <>
       "`AshAgent.Context.Calls.undecided_tool_calls/1` shows."},
    {:attempt, {:or, [:pos_integer, nil]}, [type_doc: "a positive integer"],
     "the `attempt` of the call as it was shown, or 1 if it had none: a decision about an earlier one is an error. Defaults to any."},
    {:by, :any, "who decides. Defaults to `nil`."},
    {:at, time(), "when. Defaults to now."}
  ]

  @own [
    change: [at: at()],
    new: [
      {:system_prompt, prompt(), "the system prompt. Defaults to no system prompt."},
      {:metadata, metadata(),
       "kept with the conversation, see `AshAgent.Context.metadata/1`. Defaults to `%{}`."},
      {:id, text(),
       "the conversation's id. Every later version of the conversation keeps it; only `AshAgent.Context.fork/2` changes it. " <>
         "Defaults to a new UUID v4."},
      {:at, time(), "when the conversation starts. Defaults to now."},
      {:max_result_bytes, result_bytes(),
       "see `AshAgent.Context.View.put_max_result_bytes/3`. Defaults to `nil`."}
    ],
    message: @message,
    add_response:
      @message ++
        [
          {:requested_at, moment(),
           "when the response was requested, from this context. It is kept with the time of the message, and so is the " <>
             "view (without its masks), see `AshAgent.Trace`. Defaults to no times."},
          {:first_chunk_at, moment(),
           "when the first piece of a stream came, kept with `:requested_at`. Defaults to `nil`."}
        ],
    interrupt:
      @message ++
        [
          {:status, {:in, [:interrupted, :cancelled]}, [default: :interrupted],
           "the status that `AshAgent.Context.Calls.tool_call_status/2` then returns for the calls."}
        ],
    to_messages: [
      {:view, {:in, [:view, :log]}, [default: :view],
       "`:log` returns all messages as they were added."}
    ],
    dump: [
      {:since, {:or, [:pos_integer, nil]}, [type_doc: "the number of an iteration"],
       "the map then holds this iteration and the later ones only, and costs O(their size). `AshAgent.Context.load/2` puts it onto a " <>
         "context that has the others. Defaults to all iterations."},
      {:beside, {:custom, &Kinds.context?/1}, [type_doc: "a context"],
       "another context with the same id and a common beginning, such as one that was kept when this one was " <>
         "rewound. The map then holds what this context has beyond it, and none of the messages they share; `AshAgent.Context.load/2` " <>
         "puts it onto that context. When the two share nothing, or have different ids as a fork has, the map holds " <>
         "everything, has no `\"since\"`, and is for `AshAgent.Context.load/1`."}
    ],
    request: @request,
    encode_request:
      [
        {:body, :map, [default: %{}],
         "the provider's other fields (model, tools, max_tokens, ...). They come before the message part. A field that " <>
           "stays the same for many turns can be a fragment, see `AshAgent.Context.JSON.fragment/1`."}
      ] ++ @request,
    to_prompt: [
      {:mode, {:in, [:full, :continuation, :message]}, [default: :full],
       "`:full` is the whole view. `:continuation` is the system prompt with the user's last message, or with the last " <>
         "tool results, for models that keep the session themselves. `:message` is that last message alone, without a " <>
         "heading."}
    ],
    import: [{:id, text(), @id}, {:at, time(), "the time of everything in it. Defaults to now."}],
    rewind: [
      to: [type: :integer, required: true, type_doc: "the number of an iteration"]
    ],
    fork: [
      {:id, text(),
       "the fork's id, which must differ from the context's. Defaults to a new UUID v4."},
      {:at, time(), "the time of the fork. Defaults to now."}
    ],
    approve: [
      {:edited, [type: {:or, [:map, :string, nil]}, type_doc: "a map or a string"],
       "the arguments to run the call with, if the person wants others than those shown. Defaults to those."}
      | @decide
    ],
    decide: @decide,
    ask: [
      {:question, :boolean, [default: false],
       "whether the call is a question, which somebody answers with `AshAgent.Context.Calls.answer_tool_call/4`. It is never run."},
      {:at, at()}
    ],
    arrive: [
      {:from, :any, "who brings the result. Defaults to `nil`."},
      {:at, time(), "when it arrived. Defaults to now."},
      {:awaited_by, text(),
       "the id of the pending call that waits for it. Where a provider takes late outputs, it stands in front of the output of that call."}
    ],
    fetch_cost: AshAgent.Prices.schema() ++ [since: first_counted()],
    put_request: [
      {:keep, {:in, [:whole, :hashes]}, [default: :whole],
       "`:hashes` keeps digests in place of the values in `\"body\"` and of the tools, which only tell what has changed."}
    ],
    forecast:
      @request ++
        AshAgent.Prices.schema() ++
        [
          {:view, {:custom, &Kinds.view?/1},
           [type_doc: "`:auto`, a list of enhancers, or `{enhancers, options}`"],
           "what shapes the view before, as in `AshAgent.Runtime.run/2`. Defaults to nothing."},
          {:tools, {:or, [:list, nil]}, [type_doc: "a list of maps"],
           "the tools of the request, as in `AshAgent.Context.Audit.put_request/4`. Defaults to those of the last one."},
          {:cache_minimum, positive(),
           "the tokens of the shortest request that the model caches. Defaults to the `:cache_minimum` of its price, or what is known " <>
             "of the model."},
          {:at, time(), "when the request will be sent. Defaults to now."}
        ],
    account: AshAgent.Prices.schema() ++ [model: asked_model(), since: first_counted()],
    count_tokens: [Views.method(:auto)],
    enhance: [
      {:needs, {:custom, &Kinds.needs?/1},
       [type_doc: "a list of atoms, alone or with a value, a map, or a `MapSet`", default: []],
       "what to ask the enhancers for, such as `[:profile, recall: \"maps\"]`. A need whose value is `nil` or `false` " <>
         "is ignored, and enhancers skip needs they do not know."},
      {:on_error, {:or, [{:in, [:stop, :skip]}, {:fun, 2}]}, [default: :stop],
       "what to do when an enhancer fails: `:stop` returns the error, `:skip` goes on without the enhancer, and a " <>
         "function returns one of the two for the enhancer (its module, or the enhancer itself when it is a function) " <>
         "and the error. By default a failure stops, since without the enhancer data that should be masked could be sent."}
    ],
    load: Trust.schema()
  ]

  @schemas for {name, rows} <- @own ++ Views.schemas() ++ Chats.schemas(),
               do: {name, Options.schema(rows)}

  @doc "The options with defaults filled in. Raises `ArgumentError` for unknown, repeated, missing and wrong ones."
  # Most calls have no options, and the defaults of a schema do not change.
  for {name, schema} <- @schemas,
      not Enum.any?(schema, fn {_, option} -> option[:required] end) do
    def validate!([], unquote(name)), do: unquote(Macro.escape(Options.validate!([], schema)))
  end

  def validate!(opts, name), do: Options.validate!(opts, compile(name))

  @doc "The time of a change, of the options of a function that has no others."
  def time!([]), do: nil
  def time!(opts), do: validate!(opts, :change)[:at]

  @doc "The metadata and the time of a message."
  def stamp!([]), do: {nil, nil}

  def stamp!(opts) do
    opts = validate!(opts, :message)
    {opts[:metadata], opts[:at]}
  end

  @doc "Attributes of a conversation as a map."
  def attributes!(attributes) when is_list(attributes) do
    if Keyword.keyword?(attributes) do
      Map.new(attributes)
    else
      AshAgent.Caller.refuse!(
        "expected attributes as a map or a keyword list, got: #{Options.kind(attributes)}"
      )
    end
  end

  def attributes!(attributes), do: attributes

  @doc "The options of a clearing of results, as the core takes them."
  def rent(opts, share) do
    prices = AshAgent.Prices.terms_or_nil(opts[:prices])
    Map.merge(Map.new([:keep, :model, :window], &{&1, opts[&1]}), %{share: share, prices: prices})
  end

  @doc "The options as a Markdown list."
  def docs(name), do: name |> schema() |> Options.docs()

  @doc "The schema of this name."
  def schema(name), do: name |> compile() |> elem(0)

  for {name, schema} <- @schemas do
    defp compile(unquote(name)), do: unquote(schema |> Options.compile() |> Macro.escape())
  end
end
