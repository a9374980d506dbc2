defmodule AshAgent.Context.Options do
  @moduledoc false

  # The options of the functions of AshAgent.Context and AshAgent.ChatContext, which share most of them. A schema is named
  # after its function.

  alias AshAgent.Context.Trust
  alias AshAgent.Options

  @methods [:auto, :estimate, :o200k_base, :cl100k_base]
  @least_result_bytes 100

  @time [type: {:or, [{:struct, DateTime}, nil]}, type_doc: "a `DateTime`"]
  @at @time ++ [doc: "the time of the change. Defaults to now."]
  @asked_model [
    type: {:or, [:string, nil]},
    type_doc: "a string",
    doc:
      "the model that is asked, where answers name none or one without a price. Defaults to no name."
  ]
  @text [type: {:custom, &__MODULE__.text?/1}, type_doc: "a non-empty UTF-8 string"]
  @name [type: {:custom, &__MODULE__.name?/1}, type_doc: "a non-empty UTF-8 string"]
  @prompt [type: {:or, [:string, :list, nil]}, type_doc: "a string or a list of text parts"]
  @metadata [type: {:or, [:map, nil]}, type_doc: "a map"]
  @iteration [type: {:or, [:integer, nil]}, type_doc: "the number of an iteration"]
  @branch_name [type: {:or, [:string, nil]}, type_doc: "the name of a branch"]
  @max_result_bytes [
    type: {:custom, &__MODULE__.result_bytes?/1},
    type_doc: "an integer of at least #{@least_result_bytes}, or `nil`"
  ]

  @id @text ++ [doc: "the conversation's id. Defaults to a new UUID v4."]

  @message [
    at: @time ++ [doc: "the time of the message. Defaults to now."],
    metadata:
      @metadata ++
        [doc: "kept with the message and shown under `:metadata`. Defaults to no metadata."]
  ]

  @keep [
    keep_first: [
      type: :non_neg_integer,
      default: 0,
      doc: "how many iterations at the beginning stay."
    ],
    keep_last: [type: :non_neg_integer, default: 1, doc: "how many iterations at the end stay."]
  ]

  @step [
    type: :pos_integer,
    default: 5,
    doc:
      "hides up to a multiple of this number of iterations where possible. That hides more than is needed, and then " <>
        "nothing for some turns, during which providers' prompt caches hit."
  ]

  @method [
    type: {:in, @methods},
    doc: "how to count tokens, see `t:AshAgent.Context.token_method/0`."
  ]

  @request [
    pending: [
      type: {:in, [:error, :interrupt]},
      default: :error,
      doc: "`:interrupt` sends pending calls as interrupted."
    ],
    model: [
      type: {:or, [:string, nil]},
      doc:
        "the model's name. Thinking signed by another model is not sent, and requests for Gemini, Bedrock and " <>
          "OpenAI Responses follow what this model accepts. Defaults to no model."
    ],
    thinking: [
      type: {:in, [:drop, :text]},
      default: :drop,
      doc: "what to do with thinking that came from another provider or model."
    ],
    cache: [
      type: {:in, [:auto, false]},
      default: false,
      doc: "for Anthropic and Bedrock: `:auto` places up to four cache breakpoints."
    ],
    system_role: [
      type: {:in, ["system", "developer"]},
      default: "system",
      doc: "for OpenAI: the role of the system prompt."
    ],
    since:
      @iteration ++
        [
          doc:
            "the first iteration to send; the system prompt is always sent. Defaults to the oldest."
        ],
    max_result_bytes:
      @max_result_bytes ++
        [
          doc:
            "limits the text of each tool result, see `AshAgent.Context.put_max_result_bytes/3`. Defaults to the view's own limit."
        ],
    dialect: [
      type: {:in, [:openai, :deepseek, :openrouter, :vllm, nil]},
      doc:
        "for OpenAI chat: how the server writes reasoning; the guide on requests lists which host uses which. By default " <>
          "imported reasoning goes back as it came, and no other reasoning is sent."
    ],
    previous_response_id:
      [type: {:custom, &__MODULE__.kept_id?/1}, type_doc: "a string that is not blank"] ++
        [
          doc:
            "for OpenAI Responses: the id of the last response, which the API keeps together with everything before it. " <>
              "Only what came later is sent: what follows the model's last message in the iteration `:since`, or in the " <>
              "whole conversation. Defaults to sending everything."
        ],
    conversation:
      [type: {:custom, &__MODULE__.kept_id?/1}, type_doc: "a string that is not blank"] ++
        [doc: "the same with the id of a conversation that the API keeps."]
  ]

  @schemas [
    change: [at: @at],
    new: [
      system_prompt: @prompt ++ [doc: "the system prompt. Defaults to no system prompt."],
      metadata:
        @metadata ++
          [
            doc:
              "kept with the conversation, see `AshAgent.Context.metadata/1`. Defaults to `%{}`."
          ],
      id:
        @text ++
          [
            doc:
              "the conversation's id. Every later version of the conversation keeps it; only `AshAgent.Context.fork/2` changes it. " <>
                "Defaults to a new UUID v4."
          ],
      at: @time ++ [doc: "when the conversation starts. Defaults to now."],
      max_result_bytes:
        @max_result_bytes ++
          [doc: "see `AshAgent.Context.put_max_result_bytes/3`. Defaults to `nil`."]
    ],
    message: @message,
    add_response:
      @message ++
        [
          requested_at: [
            type: {:or, [{:struct, DateTime}, :integer, nil]},
            type_doc: "a `DateTime`, or microseconds since 1970",
            doc:
              "when the response was requested, from this context. It is kept with the time of the message, and so is the " <>
                "view (without its masks), see `AshAgent.Trace`. Defaults to no times."
          ],
          first_chunk_at: [
            type: {:or, [{:struct, DateTime}, :integer, nil]},
            type_doc: "a `DateTime`, or microseconds since 1970",
            doc:
              "when the first piece of a stream came, kept with `:requested_at`. Defaults to `nil`."
          ]
        ],
    interrupt:
      @message ++
        [
          status: [
            type: {:in, [:interrupted, :cancelled]},
            default: :interrupted,
            doc:
              "the status that `AshAgent.Context.tool_call_status/2` then returns for the calls."
          ]
        ],
    to_messages: [
      view: [
        type: {:in, [:view, :log]},
        default: :view,
        doc: "`:log` returns all messages as they were added."
      ]
    ],
    dump: [
      since: [
        type: {:or, [:pos_integer, nil]},
        type_doc: "the number of an iteration",
        doc:
          "the map then holds this iteration and the later ones only, and costs O(their size). `AshAgent.Context.load/2` puts it onto a " <>
            "context that has the others. Defaults to all iterations."
      ],
      beside: [
        type: {:custom, &__MODULE__.context?/1},
        type_doc: "a context",
        doc:
          "another context with the same id and a common beginning, such as one that was kept when this one was " <>
            "rewound. The map then holds what this context has beyond it, and none of the messages they share; `AshAgent.Context.load/2` " <>
            "puts it onto that context. When the two share nothing, or have different ids as a fork has, the map holds " <>
            "everything, has no `\"since\"`, and is for `AshAgent.Context.load/1`."
      ]
    ],
    request: @request,
    encode_request:
      [
        body: [
          type: :map,
          default: %{},
          doc:
            "the provider's other fields (model, tools, max_tokens, ...). They come before the message part. A field that " <>
              "stays the same for many turns can be a fragment, see `AshAgent.Context.JSON.fragment/1`."
        ]
      ] ++ @request,
    to_prompt: [
      mode: [
        type: {:in, [:full, :continuation, :message]},
        default: :full,
        doc:
          "`:full` is the whole view. `:continuation` is the system prompt with the user's last message, or with the last " <>
            "tool results, for models that keep the session themselves. `:message` is that last message alone, without a " <>
            "heading."
      ]
    ],
    import: [id: @id, at: @time ++ [doc: "the time of everything in it. Defaults to now."]],
    rewind: [to: [type: :integer, required: true, type_doc: "the number of an iteration"]],
    fork: [
      id:
        @text ++
          [doc: "the fork's id, which must differ from the context's. Defaults to a new UUID v4."],
      at: @time ++ [doc: "the time of the fork. Defaults to now."]
    ],
    approve: [
      arguments:
        @metadata ++
          [
            doc:
              "the arguments that the person who decides has seen. Give them when the context may have changed since they " <>
                "were shown. Defaults to those that `AshAgent.Context.undecided_tool_calls/1` shows."
          ],
      by: [type: :any, doc: "who decides. Defaults to `nil`."],
      at: @time ++ [doc: "when. Defaults to now."]
    ],
    deny: [
      by: [type: :any, doc: "who decides. Defaults to `nil`."],
      at: @time ++ [doc: "when. Defaults to now."]
    ],
    fetch_cost:
      AshAgent.Prices.schema() ++
        [
          since: [
            type: :pos_integer,
            default: 1,
            doc: "the number of the first iteration that counts."
          ]
        ],
    put_request: [
      keep: [
        type: {:in, [:whole, :hashes]},
        default: :whole,
        doc:
          "`:hashes` keeps digests in place of the values in `\"body\"` and of the tools, which only tell what has changed."
      ]
    ],
    forecast:
      @request ++
        AshAgent.Prices.schema() ++
        [at: @time ++ [doc: "when the request will be sent. Defaults to now."]],
    account:
      AshAgent.Prices.schema() ++
        [
          model: [
            type: {:or, [:string, nil]},
            type_doc: "a string",
            doc:
              "the model that was asked, where answers name none or one without a price. Defaults to no name."
          ],
          since: [
            type: :pos_integer,
            default: 1,
            doc: "the number of the first iteration that counts."
          ]
        ],
    count_tokens: [method: [default: :auto] ++ @method],
    fit:
      [
        reserve: [
          type: :non_neg_integer,
          default: 0,
          doc: "tokens of the budget to keep free for the answer."
        ]
      ] ++ @keep ++ [step: @step, method: [default: :auto] ++ @method, at: @at],
    hide_old: [at: @time ++ [doc: "the time to count back from. Defaults to now."]],
    compact:
      [
        range: [
          type: {:custom, &__MODULE__.range?/1},
          type_doc: "a range of iterations such as `2..4`",
          doc: "the iterations to compact. Defaults to all before the current turn."
        ]
      ] ++
        @keep ++
        [
          check: [
            type: {:in, [:append, :refuse, :hide, nil]},
            default: :append,
            doc: """
            what to do about a summary that misses facts or says what is not so, see below:
              * `:append` adds what it misses, at most a tenth of what it replaces, and names what it made up
              * `:refuse` clears the range's results instead
              * `:hide` hides the range instead
              * `nil` uses it as it is, if it is shorter than what it replaces
            """
          ],
          at: @at
        ],
    clear_tool_results: [
      keep: [type: :non_neg_integer, default: 3, doc: "how many of the last results stay."],
      placeholder:
        [default: "[Old tool result cleared]"] ++
          [
            type: {:custom, &__MODULE__.words?/1},
            type_doc: "a UTF-8 string that is not blank",
            doc: "what models read instead."
          ],
      at: @at
    ],
    clear_when_due: [
      keep: [type: :non_neg_integer, default: 3, doc: "how many of the last results stay."],
      share: [
        type: {:custom, &__MODULE__.share?/1},
        type_doc: "a number from 0 to 10",
        default: 0.5,
        doc:
          "the share of the price of clearing that results have to cost before they are cleared. With 0 they are cleared at once."
      ],
      prices:
        Keyword.put(
          AshAgent.Prices.schema()[:prices],
          :doc,
          "what models cost, see `AshAgent.Prices`. Without a price of the model, a token that is read from the cache costs " <>
            "0.1 and one that is written 1.25 times as much as another one."
        ),
      model: @asked_model,
      window: [
        type: {:or, [:pos_integer, nil]},
        type_doc: "a positive integer",
        doc:
          "tokens that a request may have before results are cleared in any case. Defaults to as many as leave room for the " <>
            "answer in the `:context_window` of the model's price, if it has one, see `shorten/3`."
      ],
      at: @at
    ],
    shorten: [
      keep: [
        type: :non_neg_integer,
        default: 3,
        doc: "how many of the last results the first step leaves."
      ],
      prices:
        Keyword.put(
          AshAgent.Prices.schema()[:prices],
          :doc,
          "prices with a `:context_window`, see `AshAgent.Prices`."
        ),
      model: @asked_model,
      window: [
        type: {:or, [:pos_integer, nil]},
        type_doc: "a positive integer",
        doc:
          "tokens that a request may have, for the cause `:window`. Defaults to the `:context_window` of the model's price, without " <>
            "the tokens that the noted request (`put_request/4`) lets the answer have, or without 8,192, at most a quarter of the " <>
            "window, where it says nothing. Without either, each request fits."
      ],
      summarize: [
        type: {:or, [{:fun, 1}, nil]},
        type_doc: "a function of arity 1",
        doc:
          "makes a summary of messages for the last step, as in `compact/3`. Defaults to no such step."
      ],
      at: @at
    ],
    recall: [
      from: [type: :pos_integer, default: 1, doc: "the first line."],
      lines: [
        type: {:or, [:pos_integer, nil]},
        type_doc: "a positive integer",
        doc: "how many lines. Defaults to all that `:max_bytes` has room for."
      ],
      pattern: [
        type: {:or, [:string, nil]},
        type_doc: "a regular expression as a string",
        doc:
          "returns only lines that match, each with its number. The syntax is that of `AshAgent.Context.put_masks/3`."
      ],
      max_bytes: [type: :pos_integer, default: 8_000, doc: "how long the text may be."]
    ],
    put_recall: [
      index: [
        type: {:custom, &__MODULE__.index?/1},
        type_doc: "a number from 0 to 0.1",
        doc:
          "the share of the tokens of hidden iterations that an index of their facts may have, such as `0.03`. `0` turns it " <>
            "off, as it is by default."
      ],
      user_bytes: [
        type: {:or, [:non_neg_integer, nil]},
        type_doc: "a non-negative integer",
        doc:
          "how much of the user's words in hidden iterations is quoted, at most an eighth of what is hidden. 2,000 by default."
      ],
      at: @at
    ],
    receipt: [
      iteration: [
        type: {:or, [:pos_integer, nil]},
        type_doc: "the number of an iteration",
        doc:
          "returns the receipt of the request that was made for it instead of the view as it is."
      ],
      limit: [type: :non_neg_integer, default: 20, doc: "how many facts to return."]
    ],
    search: [
      limit: [type: :pos_integer, default: 5, doc: "how many hits to return."]
    ],
    enhance: [
      needs: [
        type: {:custom, &__MODULE__.needs?/1},
        type_doc: "a list of atoms, alone or with a value, a map, or a `MapSet`",
        default: [],
        doc:
          "what to ask the enhancers for, such as `[:profile, recall: \"maps\"]`. A need whose value is `nil` or `false` " <>
            "is ignored, and enhancers skip needs they do not know."
      ],
      on_error: [
        type: {:or, [{:in, [:stop, :skip]}, {:fun, 2}]},
        default: :stop,
        doc:
          "what to do when an enhancer fails: `:stop` returns the error, `:skip` goes on without the enhancer, and a " <>
            "function returns one of the two for the enhancer (its module, or the enhancer itself when it is a function) " <>
            "and the error. By default a failure stops, since without the enhancer data that should be masked could be sent."
      ]
    ],
    chat_new: [
      input: [
        type: {:or, [:string, :list, :map, nil]},
        type_doc: "a string, a list of parts or a map",
        doc:
          "the first user message, see `AshAgent.Context.new/2`. By default the conversation is empty."
      ],
      context: [
        type: {:or, [{:custom, &__MODULE__.context?/1}, nil]},
        type_doc: "a context",
        doc: "a context to begin with instead."
      ],
      id:
        @text ++
          [
            doc:
              "the chat's id, which a new context gets as well. Defaults to the id of the context; for a new one that is " <>
                "a UUID v4."
          ],
      config: [
        type: {:or, [:keyword_list, :map, nil]},
        type_doc: "a keyword list, a map or an `AshAgent.ChatContext.Config`",
        doc: "the settings. Defaults to an empty configuration."
      ],
      branch: [default: "main"] ++ @name ++ [doc: "the name of the branch."],
      system_prompt: @prompt ++ [doc: "the system prompt. Defaults to the context's own."],
      user_prompt:
        [type: {:or, [:string, nil]}, type_doc: "a string"] ++
          [doc: "text that follows the system prompt in requests. Defaults to the context's own."],
      at: @time ++ [doc: "when the chat starts. Defaults to now."]
    ],
    branch: [
      from: @branch_name ++ [doc: "the branch to start from. Defaults to the active one."],
      iteration:
        @iteration ++
          [
            doc:
              "starts the branch at the end of this iteration, see `AshAgent.Context.rewind/2`. Defaults to the current " <>
                "iteration."
          ],
      system_prompt: @prompt ++ [doc: "see `put_system_prompt/3`. Defaults to that of `:from`."],
      user_prompt:
        [type: {:or, [:string, nil]}, type_doc: "a string"] ++
          [doc: "see `put_user_prompt/3`. Defaults to that of `:from`."]
    ],
    update_context: [
      branch:
        @branch_name ++
          [
            doc:
              "the branch to update, for instance when another may have become active. Defaults to the active one."
          ]
    ],
    put_prompt: [
      branch: @branch_name ++ [doc: "the branch to change. Defaults to the active one."],
      at: @at
    ],
    spawn_child: [
      seed: [
        type: {:custom, &__MODULE__.seed?/1},
        type_doc: "a range of iterations such as `2..4`",
        doc: "iterations of the parent to begin with. Defaults to none."
      ],
      from:
        @branch_name ++
          [doc: "the parent's branch that they are taken from. Defaults to the active one."],
      input: [
        type: {:or, [:string, :list, :map, nil]},
        type_doc: "a string, a list of parts or a map",
        doc: "a user message after the seed: the task. Defaults to no message."
      ],
      id:
        @text ++
          [doc: "the child's id, which must differ from the parent's. Defaults to a new UUID v4."],
      config: [
        type: {:or, [:keyword_list, :map, nil]},
        type_doc: "a keyword list, a map or an `AshAgent.ChatContext.Config`",
        doc: "the settings. Defaults to the parent's."
      ],
      branch: [default: "main"] ++ @name ++ [doc: "the name of the child's branch."],
      system_prompt: @prompt ++ [doc: "the system prompt. Defaults to no system prompt."],
      user_prompt:
        [type: {:or, [:string, nil]}, type_doc: "a string"] ++
          [doc: "text that follows the system prompt in requests. Defaults to no text."],
      at: @time ++ [doc: "when the child starts. Defaults to now."]
    ],
    complete_child: [
      branch:
        @branch_name ++ [doc: "the branch that gets the message. Defaults to the active one."],
      at: @time ++ [doc: "the time of the message. Defaults to now."]
    ],
    load: Trust.schema()
  ]

  @doc "The options with defaults filled in. Raises `ArgumentError` for unknown, repeated, missing and wrong ones."
  @spec validate!(keyword(), atom()) :: keyword()
  # Most calls have no options, and the defaults of a schema do not change.
  for {name, schema} <- @schemas,
      not Enum.any?(schema, fn {_, option} -> option[:required] end) do
    def validate!([], unquote(name)), do: unquote(Macro.escape(Options.validate!([], schema)))
  end

  def validate!(opts, name), do: Options.validate!(opts, compile(name))

  @doc "The time of a change, of the options of a function that has no others."
  @spec time!(keyword()) :: DateTime.t() | nil
  def time!([]), do: nil
  def time!(opts), do: validate!(opts, :change)[:at]

  @doc "The metadata and the time of a message."
  @spec stamp!(keyword()) :: {map() | nil, DateTime.t() | nil}
  def stamp!([]), do: {nil, nil}

  def stamp!(opts) do
    opts = validate!(opts, :message)
    {opts[:metadata], opts[:at]}
  end

  @doc "Attributes of a conversation as a map."
  @spec attributes!(map() | list()) :: map()
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

  @doc "The options as a Markdown list."
  @spec docs(atom()) :: String.t()
  def docs(name), do: name |> schema() |> Options.docs()

  @doc "The schema of this name."
  @spec schema(atom()) :: Options.schema()
  def schema(name), do: name |> compile() |> elem(0)

  for {name, schema} <- @schemas do
    defp compile(unquote(name)), do: unquote(schema |> Options.compile() |> Macro.escape())
  end

  @doc "The least limit of a result: below it, the note of what was left out takes all of the room."
  @spec least_result_bytes() :: pos_integer()
  def least_result_bytes, do: @least_result_bytes

  @doc false
  # By its fields, since AshAgent.Context is documented with its options.
  def context?(value), do: is_struct(value) and match?(%{ref: _, current_iteration: _}, value)

  @doc false
  def text?(text), do: is_nil(text) or name?(text)

  @doc false
  def name?(name), do: is_binary(name) and name != "" and String.valid?(name)

  @doc false
  def share?(share), do: is_number(share) and share >= 0 and share <= 10

  @doc false
  def index?(share), do: is_number(share) and share >= 0 and share <= 0.1

  @doc false
  def words?(text), do: is_binary(text) and String.valid?(text) and String.trim(text) != ""

  @doc false
  def kept_id?(id), do: is_nil(id) or words?(id)

  @doc false
  def result_bytes?(bytes),
    do: is_nil(bytes) or (is_integer(bytes) and bytes >= @least_result_bytes)

  @doc false
  def range?(nil), do: true
  def range?(%Range{step: 1, first: first, last: last}), do: is_integer(first) and last >= first
  def range?(_other), do: false

  @doc false
  def seed?(range), do: is_nil(range) or (range?(range) and range.first > 0)

  @doc false
  def needs?(needs) when is_struct(needs),
    do: is_struct(needs, MapSet) and needs?(MapSet.to_list(needs))

  def needs?(needs) when is_map(needs), do: needs |> Map.keys() |> Enum.all?(&is_atom/1)

  def needs?(needs) do
    is_list(needs) and not List.improper?(needs) and
      Enum.all?(needs, &(is_atom(&1) or match?({name, _value} when is_atom(name), &1)))
  end
end
