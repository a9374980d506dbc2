defmodule AshAgent.Session.Options do
  @moduledoc false

  # The options of `AshAgent.Session` and its functions, checked in the process that calls them.

  alias AshAgent.{Runtime, Store}

  @runtime_schema Runtime.Options.schema()
                  |> Keyword.drop([:llm, :on_change, :supervisor, :store, :kept])
  @runtime_options Keyword.keys(@runtime_schema)

  # So many turns an hour may late results begin.
  @max_wakes 20
  @metadata [type: {:or, [:map, nil]}, type_doc: "a map"]
  @own_schema AshAgent.Options.schema([
                {:llm, :any, [required: true, type_doc: "a model"], "see `t:AshAgent.LLM.t/0`."},
                {:context, :any, [type_doc: "a conversation, or a function of arity 0"],
                 "the conversation to start with: a context, a result of `AshAgent.Context.to_map/1`, `dump/1` or `to_snapshot/1`, or a " <>
                   "function that returns one of these or `nil`. Defaults to an empty conversation."},
                {:system_prompt, {:or, [:string, :list, nil]},
                 [type_doc: "a string or a list of text parts"],
                 "the system prompt of an empty conversation. Defaults to no system prompt."},
                {:on_change, {:or, [{:fun, 1}, nil]}, [type_doc: "a function of arity 1"],
                 "gets every new context. If it returns `{:error, reason}`, the run ends; if it fails in another way, that is logged and " <>
                   "the session continues. Defaults to no function."},
                {:when_busy, {:in, [:queue, :error]}, [default: :queue],
                 "`:queue` lets prompts wait for their turn, `:error` refuses them with `{:error, :busy}`."},
                {:when_cancelled, {:in, [:drop, :go_on]}, [default: :drop],
                 "what `cancel/1` does with messages that wait, prompts and those of `steer/3`: `:drop` drops them and tells so, and " <>
                   "nothing starts until somebody asks; `:go_on` starts the next one."},
                {:max_queue, :non_neg_integer, [default: 100],
                 "how many prompts may wait; more get `{:error, :busy}`. As many messages of `steer/3` may; more get `{:error, :full}`."},
                {:max_queue_bytes, :non_neg_integer, [default: 67_108_864],
                 "how many bytes those that wait may have together, with the same errors."},
                {:max_input_bytes, :pos_integer, [default: 33_554_432],
                 "how many bytes a prompt, a message of `steer/3` or a decision may have, metadata and options included; larger ones get " <>
                   "`{:error, :too_large}`."},
                {:max_subscribers, :non_neg_integer, [default: 1_000],
                 "how many subscriptions there may be; `subscribe/2` returns `{:error, :full}` for more. As many callers may wait for one " <>
                   "message that is sent again and again with its `:key`; more get `{:error, :busy}`."},
                {:hibernate_after, :milliseconds, [default: :infinity],
                 "the time without a message, also in the middle of a run, after which the session's memory is compacted until the next " <>
                   "message. Useful for many sessions that are mostly idle."},
                {:name, :any, [type_doc: "a name as in `GenServer`"],
                 "registers the session. Defaults to no name."},
                {:id, :any,
                 "the id for `child_spec/1`, and with `:store` the id of the conversation, a string. Defaults to the name, or to this " <>
                   "module."},
                {:store, :any, [type_doc: "a store"],
                 "the `AshAgent.Store` that keeps the conversation, see above. `:context` and `:system_prompt` are then for a " <>
                   "conversation that is not in it yet. Defaults to no store."},
                {:lease, :pos_integer, [default: 30_000],
                 "with `:store`, milliseconds until others may claim the conversation if this node has died. The claim is renewed " <>
                   "after each third of it."},
                {:idle, :milliseconds, [default: :infinity],
                 "with `:store`, the time after which the session stops with `{:shutdown, :idle}` if it neither runs nor has " <>
                   "subscribers. The conversation is in the store."},
                {:go_on, :boolean, [default: true],
                 "with `:store`, whether the session continues a turn that was cut short, and takes waiting prompts. If not, " <>
                   "`resume/2` does, and a new prompt interrupts the turn."},
                {:max_resumes, {:or, [:pos_integer, {:in, [:infinity]}]},
                 [type_doc: "a positive integer or `:infinity`", default: 10],
                 "with `:store`, how often sessions may resume a turn and then die, or be stopped, before they write anything, or find that " <>
                   "it cannot be loaded. After that the conversation is `:parked`: nothing happens until somebody calls `resume/2` or prompts it."},
                {:max_wakes, {:or, [:non_neg_integer, {:in, [:infinity]}]},
                 [type_doc: "a non-negative integer or `:infinity`", default: @max_wakes],
                 "with `:store`, how many turns an hour results that come late may begin in a conversation; the next ones wait for the next hour."},
                {:stop_when_idle, :boolean, [default: false],
                 "whether the session stops with `:normal` once it has run something and nothing is running or waiting, once it is " <>
                   "paused, or once it was asked for nothing for ten seconds."}
              ])

  @await {:await, {:or, [:non_neg_integer, {:in, [:infinity]}]},
          [type_doc: "milliseconds or `:infinity`", default: :infinity],
          "the time to wait for the answer, after which the caller exits while the run continues."}
  @runtime_context {:runtime_context, @metadata,
                    "replaces the session's for this turn, whoever approves and resumes. It is never stored; the log says that there was " <>
                      "one. Defaults to the session's."}
  @key {:key, {:custom, &__MODULE__.key?/1}, [type_doc: "a string of 1 to 200 bytes"],
        "says which message this is: the same key twice is one message, after an error as well, in another session of the " <>
          "conversation or on another node. It stands in the message's metadata as `:idempotency_key`. Defaults to none."}
  @prompt_async [
    {:metadata, @metadata, "kept with the message. Defaults to no metadata."},
    @key,
    {:after, {:or, [{:custom, &__MODULE__.key?/1}, nil]},
     [type_doc: "the `:key` of another message"],
     "only takes the message if that one's turn is the last, has ended, and nothing waits: otherwise the error is `:moved`. Defaults to none."},
    @runtime_context
  ]
  @resume_async [
    {:runtime_context, @metadata,
     "replaces the turn's for this run, and the log says that whoever resumed gave it. Defaults to the turn's: that of its " <>
       "prompt, or else the session's."},
    {:by, {:custom, &__MODULE__.who?/1}, [type_doc: "a term, but not a function"],
     "who resumes, which the log keeps if they give a `:runtime_context`. Defaults to `nil`."}
  ]
  @decide [
    {:by, :any, "who decides. Defaults to `nil`."},
    {:arguments, {:or, [:map, :string, nil]}, [type_doc: "a map or a string"],
     "the arguments that were shown to them. Others are an error that names what differs, and nothing is " <>
       "decided. Defaults to those of `status/1`."},
    {:attempt, {:or, [:pos_integer, nil]}, [type_doc: "a positive integer"],
     "the `attempt` of the call as `status/1` shows it, or 1 if it had none: a decision about an earlier one is an error. Defaults to any."}
  ]
  @approve @decide ++
             [
               {:edited, {:or, [:map, :string, nil]}, [type_doc: "a map or a string"],
                "the arguments to run the call with, if the person wants others. Those that do not fit the tool's schema are an " <>
                  "error, and nothing is decided; rules, hooks and the approval function may still deny them when the call runs. " <>
                  "Defaults to those that were shown."}
             ]
  @limited Runtime.Options.take_schema(~w(max_iterations max_calls max_total_tokens max_cost)a)
  @limits for {name, option} <- @limited,
              option = Keyword.drop(option, [:default, :doc]),
              do:
                {name,
                 option ++
                   [
                     doc:
                       "replaces the session's for this run. Results that come later for its calls begin turns with the lesser of the two."
                   ]}

  @functions for {name, rows} <- [
                   prompt: @prompt_async ++ [@await],
                   prompt_async: @prompt_async,
                   prompt_stored: [@runtime_context],
                   steer: [{:metadata, :map, [default: %{}], "kept with the message."}, @key],
                   resume: @resume_async ++ @limits ++ [@await],
                   resume_async: @resume_async ++ @limits,
                   approve: @approve,
                   deny: @decide,
                   answer: @decide,
                   subscribe: [
                     {:limit, :pos_integer, [default: 1_000],
                      "how many messages may wait for the subscriber, see above."}
                   ]
                 ],
                 do: {name, AshAgent.Options.schema(rows)}

  @doc false
  def key?(key), do: is_binary(key) and byte_size(key) in 1..200 and String.valid?(key)

  @doc false
  # It is kept, so it has to be data.
  def who?(by), do: not is_function(by)

  @doc "Returns the limits that a job has for its run. They came by a message, and may be anything."
  def take_limits(%{opts: opts}) do
    for {name, option} <- @limits,
        {:ok, value} <- [Keyword.fetch(opts, name)],
        AshAgent.Options.check(value, option) == :ok,
        do: {name, value}
  end

  @doc "All options of a session."
  def schema, do: @own_schema ++ @runtime_schema

  @doc "The default of `:max_wakes`."
  def max_wakes, do: @max_wakes

  @doc "Returns the documentation of the options that are a session's own."
  def docs, do: AshAgent.Options.docs(@own_schema)

  @doc "Returns the documentation of a function's options."
  def docs(function), do: @functions |> Keyword.fetch!(function) |> AshAgent.Options.docs()

  @doc "Returns the names of the options of a run that a session passes on."
  def runtime_names, do: @runtime_options

  @doc "Checks the options of a function and adds their defaults. Raises `ArgumentError`."
  def validate!(opts, function),
    do: AshAgent.Options.validate!(opts, Keyword.fetch!(@functions, function))

  @doc """
  Checks the options of `start_link/1` and prepares the model and the tools. Those of runs are then in `:runtime`.
  """
  def prepare!(opts) do
    opts = AshAgent.Options.validate!(opts, schema())

    if opts[:store] != nil and not Store.Options.id?(opts[:id]) do
      AshAgent.Caller.refuse!(
        "expected :id to be the conversation's id, a non-empty string, since :store is given"
      )
    end

    passed = [:llm, :on_change | @runtime_options]
    runtime = opts |> Keyword.take(passed) |> Runtime.prepare()
    Runtime.Late.check!(runtime[:tools], opts, 0)
    opts |> Keyword.drop(passed) |> Keyword.put(:runtime, runtime)
  end
end
