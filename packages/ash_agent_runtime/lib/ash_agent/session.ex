defmodule AshAgent.Session do
  @moduledoc """
  A process that keeps one conversation: it takes prompts, runs the agent loop, and always has the current context.

      iex> {:ok, session} = AshAgent.Session.start_link(llm: fn _ -> {:ok, %{content: "Hello, Ada!"}} end)
      iex> {:ok, result} = AshAgent.Session.prompt(session, "I am Ada.")
      iex> result.output
      "Hello, Ada!"
      iex> session |> AshAgent.Session.context() |> AshAgent.Context.count_messages()
      2

  Under a supervisor:

      children = [
        {AshAgent.Session, name: MyApp.Assistant, llm: llm, tools: tools, context: &MyApp.Store.load/0, on_change: &MyApp.Store.save/1}
      ]

  ## Storing and restarting

  `:on_change` gets every new context: after a prompt, an answer, the result of a tool, a cancellation. During a run, the
  run's process calls it before the next step begins, so that each step builds on a stored context; otherwise the session
  calls it. If it returns `{:error, reason}`, the run ends with `{:on_change_error, reason}`, and a decision is not made.
  To continue a stored conversation, pass it as `:context`. A function is called at every start, also when a supervisor
  restarts the session.

  If the stored context has calls without results, because the session died while tools ran, `resume/2` executes them,
  perhaps for the second time, and continues the loop; a new prompt instead tells the model that they were interrupted.

  ## Stores

  With `:store` and `:id`, the session keeps its conversation in an `AshAgent.Store`:

      {:ok, session} = AshAgent.Session.start_link(store: MyApp.Conversations, id: "c1", llm: llm, tools: tools)

  It claims the conversation, or creates it, and is its only writer until it stops. Its runs write as
  `AshAgent.Runtime.run/2` describes. Prompts that wait, `prompt_async/3` and `steer/3` are stored before they are confirmed.
  A session that starts where another one died goes on with the turn that was cut short, and then with the prompts that
  waited; nobody gets the answers of these but subscribers. Their `:runtime_context` is the session's, since it is never
  stored.

  When somebody else has claimed the conversation, which happens to a session that was stopped for longer than its
  `:lease`, it kills its run, all its callers get an error with `{:store_error, {:owned, owner}}`, and it stops with
  `{:shutdown, :lost}`. A store that cannot be reached ends the run alone; the next prompt tries again.

  `AshAgent.Sessions` finds, starts and recovers such sessions on several nodes.

  ## Other nodes

  A session may be called from any node. Contexts reach other nodes as snapshots, which costs O(size of the conversation), and
  are contexts again when a function returns them or `prompt_async/3` sends them. The `kept` of a result is not loaded then.

  ## Watching

  `subscribe/2` sends every change to the calling process: pieces of the current answer, and contexts, with numbers. A
  late subscriber gets a snapshot first and misses nothing. If an answer breaks off, also by `cancel/1` or because the run
  is killed, the context keeps it as far as it came, see `AshAgent.Runtime`.

  ## Approval

  With `:approval`, a run may end with `{:paused, %AshAgent.Runtime.Paused{}}`. The session is then paused: `status/1`
  lists the undecided calls, `approve/3` and `deny/4` record decisions, and `resume/2` continues. `cancel/1` gives up
  these calls and ends the turn. Until then, new prompts return `{:error, :paused}`, and queued prompts keep waiting. A
  session with an approval function is also paused if it starts with a context in which calls are pending.

      iex> alias AshAgent.{LLM, Session}
      iex> llm = LLM.Scripted.new([%{tool_calls: [%{id: "call_1", name: "clean_up"}]}, "It is clean."])
      iex> {:ok, session} =
      ...>   Session.start_link(llm: llm, tools: %{clean_up: fn _ -> {:ok, "3 files"} end}, approval: fn _call, _tool_context -> :ask end)
      iex> {:paused, _paused} = Session.prompt(session, "Clean up")
      iex> Session.status(session)
      {:paused, [%{id: "call_1", name: "clean_up", arguments: %{}}]}
      iex> Session.approve(session, "call_1", by: "ann")
      :ok
      iex> {:ok, result} = Session.resume(session)
      iex> result.output
      "It is clean."

  ## Failures

  The model and the tools run in their own processes. Whatever they do, the session survives, and the caller of `prompt/3`
  gets `{:error, %AshAgent.Runtime.Error{}}`. When the session itself ends, everything that it runs is killed, and queued
  prompts are lost: callers of `prompt/3` exit. After `prompt_async/3` no message comes any more, so monitor the session.

  When a session, one of its processes or one of its callers crashes, or when it is inspected with `:sys.get_status/1`, no
  messages, prompts, keys or runtime contexts are shown. A crash only says which kind of failure it was, and where. Tools,
  models, hooks, and processes that they start, are responsible for their own logs.

  Unexpected messages change nothing. An unexpected call returns `{:error, :unknown_call}`, and `:sys.get_status/1` shows
  how many messages were `ignored`.
  """

  use GenServer

  alias AshAgent.{Context, LLM, Response, Runtime}
  alias AshAgent.Runtime.{Error, Events, Options, Paused, Result, Sealed, Tool}
  alias AshAgent.Session.{Border, Claim, Subscribers}
  alias AshAgent.Trace.Caller

  @runtime_schema Options.schema() |> Keyword.drop([:llm, :on_change, :supervisor, :store, :kept])
  @runtime_options Keyword.keys(@runtime_schema)

  @metadata [type: {:or, [:map, nil]}, type_doc: "a map"]

  # Milliseconds.
  @unasked 10_000

  @own_schema [
    llm: [type: :any, required: true, type_doc: "a model", doc: "see `t:AshAgent.LLM.t/0`."],
    context: [
      type: :any,
      type_doc: "a conversation, or a function of arity 0",
      doc:
        "the conversation to start with: a context, a result of `AshAgent.Context.to_map/1`, `dump/1` or `to_snapshot/1`, or a " <>
          "function that returns one of these or `nil`. Defaults to an empty conversation."
    ],
    system_prompt: [
      type: {:or, [:string, :list, nil]},
      type_doc: "a string or a list of text parts",
      doc: "the system prompt of an empty conversation. Defaults to no system prompt."
    ],
    on_change: [
      type: {:or, [{:fun, 1}, nil]},
      type_doc: "a function of arity 1",
      doc:
        "gets every new context. If it returns `{:error, reason}`, the run ends; if it fails in another way, that is logged and " <>
          "the session continues. Defaults to no function."
    ],
    when_busy: [
      type: {:in, [:queue, :error]},
      default: :queue,
      doc:
        "`:queue` lets prompts wait for their turn, `:error` refuses them with `{:error, :busy}`."
    ],
    max_queue: [
      type: :non_neg_integer,
      default: 100,
      doc: "how many prompts may wait; more get `{:error, :busy}`."
    ],
    hibernate_after: [
      type: {:or, [:pos_integer, {:in, [:infinity]}]},
      type_doc: "milliseconds or `:infinity`",
      default: :infinity,
      doc:
        "the time without a message, also in the middle of a run, after which the session's memory is compacted until the next " <>
          "message. Useful for many sessions that are mostly idle."
    ],
    name: [
      type: :any,
      type_doc: "a name as in `GenServer`",
      doc: "registers the session. Defaults to no name."
    ],
    id: [
      type: :any,
      doc:
        "the id for `child_spec/1`, and with `:store` the id of the conversation, a string. Defaults to the name, or to this " <>
          "module."
    ],
    store: [
      type: :any,
      type_doc: "a store",
      doc:
        "the `AshAgent.Store` that keeps the conversation, see above. `:context` and `:system_prompt` are then for a " <>
          "conversation that is not in it yet. Defaults to no store."
    ],
    lease: [
      type: :pos_integer,
      default: 30_000,
      doc:
        "with `:store`, milliseconds until others may claim the conversation if this node has died. Every third of it the " <>
          "claim is renewed."
    ],
    idle: [
      type: {:or, [:pos_integer, {:in, [:infinity]}]},
      type_doc: "milliseconds or `:infinity`",
      default: :infinity,
      doc:
        "with `:store`, the time after which the session stops with `{:shutdown, :idle}` if it neither runs nor has " <>
          "subscribers. The conversation is in the store."
    ],
    go_on: [
      type: :boolean,
      default: true,
      doc:
        "with `:store`, whether the session goes on with a turn that was cut short and with prompts that waited. If not, " <>
          "`resume/2` does, and a new prompt interrupts the turn."
    ],
    stop_when_idle: [
      type: :boolean,
      default: false,
      doc:
        "whether the session stops with `:normal` when it has run something and nothing runs or waits any more, or when it is " <>
          "paused, or when it was asked for nothing for ten seconds."
    ]
  ]

  @await [
    type: {:or, [:non_neg_integer, {:in, [:infinity]}]},
    type_doc: "milliseconds or `:infinity`",
    default: :infinity,
    doc: "the time to wait for the answer, after which the caller exits while the run continues."
  ]
  @runtime_context [
    runtime_context:
      @metadata ++ [doc: "replaces the session's for this run. Defaults to the session's."]
  ]
  @prompt_async [
                  metadata: @metadata ++ [doc: "kept with the message. Defaults to no metadata."]
                ] ++ @runtime_context
  @prompt @prompt_async ++ [await: @await]
  @resume @runtime_context ++ [await: @await]

  @deny [by: [type: :any, doc: "who decides. Defaults to `nil`."]]
  @approve @deny ++
             [
               arguments:
                 @metadata ++
                   [
                     doc:
                       "the arguments that were shown to them. Defaults to those of `status/1`."
                   ]
             ]

  @subscription [
    limit: [
      type: :pos_integer,
      default: 1_000,
      doc: "how many messages may wait for the subscriber, see above."
    ]
  ]

  @steering [metadata: [type: :map, default: %{}, doc: "kept with the message."]]

  @type session :: GenServer.server()
  @type input :: binary() | [Context.part()] | map()

  @typedoc """
  The state of a session.

    * `number` - the number of the last change; subscribers get the later ones
    * `context` - the context
    * `message` - the current, incomplete answer as `AshAgent.Response.message/1` returns it, or `nil`
    * `response` - the same as an `AshAgent.Response`; `nil` for callers on other nodes, where it would not work
  """
  @type snapshot :: %{
          number: non_neg_integer(),
          context: Context.t(),
          message: map() | nil,
          response: Response.t() | nil
        }

  @doc """
  Starts a session.

  ## Options

  #{AshAgent.Options.docs(@own_schema)}

  These options of `AshAgent.Runtime.run/2` apply to each prompt: #{Enum.map_join(@runtime_options, ", ", &"`:#{&1}`")}.

  Raises `ArgumentError` for unknown and wrong options. Returns `{:error, reason}` if `:context` is not a context, and
  `{:error, %AshAgent.Context.Error{}}` with `{:foreign_handle, node}` if it was made on another node. With a store it
  returns `{:error, {:store_error, reason}}`, for instance with `{:owned, owner}`, if it cannot claim the conversation.

  ## Examples

      iex> AshAgent.Session.start_link(llm: fn _ -> {:ok, %{}} end, when_busy: :panic)
      ** (ArgumentError) invalid value for option :when_busy: expected one of :queue, :error, got: :panic
  """
  @doc since: "0.1.0"
  @spec start_link(keyword()) :: GenServer.on_start()
  def start_link(opts) when is_list(opts) do
    opts = options(opts)
    GenServer.start_link(__MODULE__, opts, Keyword.take(opts, [:name, :hibernate_after]))
  end

  @doc false
  def start_sealed(opts) when is_function(opts, 0), do: start_link(opts.())

  @doc false
  # For `AshAgent.Sessions`: a conversation that `from` holds may be claimed, and one that cannot be claimed is not a crash.
  def start_sealed(opts, from) do
    opts = opts.()
    start = Keyword.merge(options(opts), from: from, quiet?: true)
    GenServer.start_link(__MODULE__, start, Keyword.take(opts, [:name, :hibernate_after]))
  end

  @doc false
  def schema, do: @own_schema ++ @runtime_schema

  @options [
    prompt: @prompt,
    prompt_async: @prompt_async,
    steer: @steering,
    resume: @resume,
    approve: @approve,
    deny: @deny,
    subscribe: @subscription
  ]

  @doc false
  # Checks the options of a function before its session is looked for.
  def check!(opts, function) do
    AshAgent.Options.validate!(opts, @options[function])
    opts
  end

  @doc """
  Returns a specification for a supervisor, with the options of `start_link/1` and `:id`.

  The id defaults to the name, or to this module. A session that crashed is restarted (`:transient`), and starts with the given
  `:context` again: pass a function that loads the conversation that `:on_change` stored.

  ## Examples

      iex> AshAgent.Session.child_spec(llm: fn _ -> {:ok, %{}} end, id: :ada).id
      :ada
  """
  @doc since: "0.1.0"
  @spec child_spec(keyword()) :: Supervisor.child_spec()
  def child_spec(opts) when is_list(opts) do
    # Supervisors print specifications, and options contain keys, prompts and actors. A wrong model raises at once.
    opts = if opts[:llm], do: Keyword.update!(opts, :llm, &LLM.new/1), else: opts

    %{
      id: opts[:id] || opts[:name] || __MODULE__,
      start: {__MODULE__, :start_sealed, [fn -> opts end]},
      restart: :transient
    }
  end

  @doc """
  Adds a user message, runs the loop and returns `{:ok, %AshAgent.Runtime.Result{}}` with the answer as `output`.

  Returns `{:paused, %AshAgent.Runtime.Paused{}}` if calls need a decision, `{:error, %AshAgent.Runtime.Error{}}` if the
  run failed, `{:error, %AshAgent.Context.Error{}}` if the input is not valid, and `{:error, :busy}` or `{:error,
  :paused}` if the session is busy or paused. Calls without results from an earlier life of the session are interrupted
  first.

  ## Options

  #{AshAgent.Options.docs(@prompt)}

  ## Examples

      iex> {:ok, session} = AshAgent.Session.start_link(llm: fn _ -> {:error, :overloaded} end)
      iex> {:error, error} = AshAgent.Session.prompt(session, "Hello?")
      iex> error.reason
      {:llm_error, :overloaded}
  """
  @doc since: "0.1.0"
  @spec prompt(session(), input(), keyword()) ::
          {:ok, Result.t()}
          | {:paused, Paused.t()}
          | {:error, Error.t() | Context.Error.t() | :busy | :paused | :draining}
  def prompt(session, input, opts \\ [])
      when is_binary(input) or is_list(input) or is_map(input) do
    {await, opts} = opts |> AshAgent.Options.validate!(@prompt) |> Keyword.pop!(:await)
    call(session, {:run, {:prompt, input, called_by(opts)}}, :prompt, await)
  end

  @doc """
  Like `prompt/3`, but returns `{:ok, ref}` at once and sends messages to the caller.

  They are `{AshAgent.Session, ref, {:context, context}}` for every new context, and finally `{AshAgent.Session, ref,
  reply}` with the result of `prompt/3`. Returns `{:error, :busy}` or `{:error, :paused}` if the session is busy or
  paused. Takes `:metadata` and `:runtime_context` as `prompt/3` does.

  When a session ends, it sends nothing more. To notice that, monitor it:

      monitor = session |> GenServer.whereis() |> Process.monitor()
      {:ok, ref} = AshAgent.Session.prompt_async(session, "Hi")

      receive do
        {AshAgent.Session, ^ref, {:ok, result}} -> result.output
        {:DOWN, ^monitor, :process, _pid, _reason} -> "The assistant is gone."
      end

  ## Examples

      iex> {:ok, session} = AshAgent.Session.start_link(llm: fn _ -> {:ok, %{content: "Hello!"}} end)
      iex> {:ok, ref} = AshAgent.Session.prompt_async(session, "Hi")
      iex> receive do
      ...>   {AshAgent.Session, ^ref, {:ok, result}} -> result.output
      ...> end
      "Hello!"
  """
  @doc since: "0.1.0"
  @spec prompt_async(session(), input(), keyword()) ::
          {:ok, reference()} | {:error, :busy | :paused | :draining}
  def prompt_async(session, input, opts \\ [])
      when is_binary(input) or is_list(input) or is_map(input) do
    opts = AshAgent.Options.validate!(opts, @prompt_async)
    run_async(session, {:prompt, input, called_by(opts)}, :prompt_async)
  end

  @doc false
  # Like prompt_async/3 for a message that waits in the store, which the conversation gets once: the error of a second time is
  # :taken. Takes the option :runtime_context.
  def prompt_stored(session, id, opts) when is_binary(id) do
    opts = AshAgent.Options.validate!(opts, @runtime_context)
    run_async(session, {:stored, id, opts}, :prompt_stored)
  end

  @doc """
  Adds a user message to the turn that runs, and returns `:ok`: the model reads it when all results of the iteration are
  there, before it is asked again. A model that has answered by then is asked once more.

  With a store the message is stored before `:ok`, and not lost when the session dies. One that comes when the run is just
  over becomes a prompt of its own. Returns `{:error, :idle}` or `{:error, :paused}` when nothing runs,
  `{:error, %AshAgent.Context.Error{}}` when the input is not one, and `{:error, %AshAgent.Runtime.Error{}}` with
  `{:store_error, reason}` when it could not be stored.

  ## Options

  #{AshAgent.Options.docs(@steering)}

  ## Examples

      iex> {:ok, session} = AshAgent.Session.start_link(llm: fn _ -> {:ok, %{}} end)
      iex> AshAgent.Session.steer(session, "Shorter, please!")
      {:error, :idle}
  """
  @doc since: "0.1.0"
  @spec steer(session(), input(), keyword()) ::
          :ok | {:error, :idle | :paused | Context.Error.t() | Error.t()}
  def steer(session, input, opts \\ [])
      when is_binary(input) or is_list(input) or is_map(input) do
    opts = AshAgent.Options.validate!(opts, @steering)
    call(session, {:steer, input, opts[:metadata]}, :steer)
  end

  @doc """
  Continues without a new message, and returns the same as `prompt/3`: executes pending calls, asks about those that need
  a decision, and asks the model if it has not answered.

  Use it for conversations that were cut short, see "Storing and restarting". If the conversation ends with an answer, it
  returns that.

  ## Options

  #{AshAgent.Options.docs(@resume)}

  ## Examples

      iex> llm = fn _ -> {:ok, %{content: "Hello!"}} end
      iex> {:ok, session} = AshAgent.Session.start_link(llm: llm, context: AshAgent.Context.new("Hi"))
      iex> {:ok, result} = AshAgent.Session.resume(session)
      iex> result.output
      "Hello!"
  """
  @doc since: "0.1.0"
  @spec resume(session(), keyword()) ::
          {:ok, Result.t()} | {:paused, Paused.t()} | {:error, Error.t() | :busy}
  def resume(session, opts \\ []) do
    {await, opts} = opts |> AshAgent.Options.validate!(@resume) |> Keyword.pop!(:await)

    call(session, {:run, {:resume, called_by(opts)}}, :resume, await)
  end

  @doc """
  Like `resume/2`, but returns `{:ok, ref}` at once and sends what happens to the caller, as `prompt_async/3` does.

  ## Examples

      iex> llm = fn _ -> {:ok, %{content: "Hello!"}} end
      iex> {:ok, session} = AshAgent.Session.start_link(llm: llm, context: AshAgent.Context.new("Hi"))
      iex> {:ok, ref} = AshAgent.Session.resume_async(session)
      iex> receive do
      ...>   {AshAgent.Session, ^ref, {:ok, result}} -> result.output
      ...> end
      "Hello!"
  """
  @doc since: "0.1.0"
  @spec resume_async(session(), keyword()) :: {:ok, reference()} | {:error, :busy}
  def resume_async(session, opts \\ []) do
    opts = AshAgent.Options.validate!(opts, @runtime_context)
    run_async(session, {:resume, called_by(opts)}, :resume_async)
  end

  @doc """
  Tells what the session does: `:idle`, `:running`, or `{:paused, calls}` with the calls that are still undecided, as
  `AshAgent.Context.undecided_tool_calls/1` has them: with the arguments that they would run with.

  With `{:paused, []}`, all is decided and `resume/2` goes on.

  ## Examples

      iex> {:ok, session} = AshAgent.Session.start_link(llm: fn _ -> {:ok, %{}} end)
      iex> AshAgent.Session.status(session)
      :idle
  """
  @doc since: "0.1.0"
  @spec status(session()) :: :idle | :running | {:paused, [map()]}
  def status(session), do: call(session, :status, :status)

  @doc """
  Approves an undecided call, see `AshAgent.Context.approve_tool_call/3`, and returns `:ok` when `:on_change` has stored
  it, however long that takes. `resume/2` executes the call.

  Returns `{:error, :busy}` while the loop runs, `{:error, %AshAgent.Context.Error{}}` if there is no such call or it is
  already approved, and `{:error, %AshAgent.Runtime.Error{}}` with `{:on_change_error, reason}` if the decision could not
  be stored; then it is not made.

  ## Options

  #{AshAgent.Options.docs(@approve)}

  ## Examples

      iex> {:ok, session} = AshAgent.Session.start_link(llm: fn _ -> {:ok, %{}} end)
      iex> {:error, error} = AshAgent.Session.approve(session, "call_1")
      iex> error.reason
      {:unknown_tool_call, "call_1", []}
  """
  @doc since: "0.1.0"
  @spec approve(session(), String.t(), keyword()) ::
          :ok | {:error, :busy | Context.Error.t() | Error.t()}
  def approve(session, id, opts \\ []) when is_binary(id) do
    opts = AshAgent.Options.validate!(opts, @approve)
    call(session, {:decide, {:approved, id}, opts}, :approve)
  end

  @doc """
  Denies an undecided call, see `AshAgent.Context.deny_tool_call/4`, and returns `:ok`. After `resume/2`, the model reads
  the denial with its reason.

  Returns the errors of `approve/3`.

  ## Options

  #{AshAgent.Options.docs(@deny)}

  ## Examples

      iex> alias AshAgent.{LLM, Session}
      iex> llm = LLM.Scripted.new([%{tool_calls: [%{id: "call_1", name: "clean_up"}]}, "Then not."])
      iex> {:ok, session} =
      ...>   Session.start_link(llm: llm, tools: %{clean_up: fn _ -> {:ok, "3 files"} end}, approval: fn _call, _tool_context -> :ask end)
      iex> {:paused, _paused} = Session.prompt(session, "Clean up")
      iex> Session.deny(session, "call_1", "not on Fridays", by: "ann")
      :ok
      iex> {:ok, result} = Session.resume(session)
      iex> result.output
      "Then not."
  """
  @doc since: "0.1.0"
  @spec deny(session(), String.t(), term(), keyword()) ::
          :ok | {:error, :busy | Context.Error.t() | Error.t()}
  def deny(session, id, reason \\ nil, opts \\ []) when is_binary(id) do
    opts = AshAgent.Options.validate!(opts, @deny)
    call(session, {:decide, {:denied, id, reason}, opts}, :deny)
  end

  @doc """
  Returns the current context, also while the loop runs.

  ## Examples

      iex> {:ok, session} = AshAgent.Session.start_link(llm: fn _ -> {:ok, %{}} end, system_prompt: "Be brief.")
      iex> session |> AshAgent.Session.context() |> AshAgent.Context.to_messages()
      [%{role: :system, content: "Be brief."}]
  """
  @doc since: "0.1.0"
  @spec context(session()) :: Context.t()
  def context(session), do: call(session, :context, :context)

  @doc """
  Returns the context, the current answer, and the number of the last change, see `t:snapshot/0`.

  After calling it, a subscriber that fell behind gets changes again. Costs O(size of the current answer), and for callers
  on other nodes O(size of the conversation), for the session as well.

  ## Examples

      iex> {:ok, session} = AshAgent.Session.start_link(llm: fn _ -> {:ok, %{}} end, context: AshAgent.Context.new("Hi"))
      iex> %{number: 0, context: context, message: nil} = AshAgent.Session.snapshot(session)
      iex> AshAgent.Context.count_messages(context)
      1
  """
  @doc since: "0.1.0"
  @spec snapshot(session()) :: snapshot()
  def snapshot(session), do: session |> call(:snapshot, :snapshot) |> Subscribers.arrived()

  @doc """
  Sends every change of the session to the calling process from now on, and returns `{:ok, ref, snapshot}` with the current state.

  Changes are messages `{AshAgent.Session, ref, number, change}`, numbered without gaps from `snapshot.number + 1` on. A change is

    * `{:delta, events}` - more of the current answer, see `t:AshAgent.Response.event/0`
    * `{:context, context}` - a new context. It ends the current answer, whether the context contains it or not
    * `{:snapshot, binary}` - the same for a subscriber on another node, where a handle does not work; load it with
      `AshAgent.Context.from_snapshot/1`
    * `:behind` - the subscriber fell behind: it gets neither this change nor the following ones until it calls `snapshot/1`

  So show the snapshot's message followed by the deltas, and nothing after each context. The messages go straight to the subscriber.
  `ref` monitors the session: when it ends, `{:DOWN, ref, :process, _, _}` arrives. The session forgets subscribers that end. A process
  that subscribes twice gets everything twice.

  A subscriber falls behind if more than `:limit` messages wait for it. The session looks at the subscriber's message queue after
  every `:limit` messages, so up to twice as many may wait. It cannot look at the queue of a process on another node: such a
  subscriber has to call `acknowledge/3` in time, or `snapshot/1` when it is told that it fell behind.

  ## Options

  #{AshAgent.Options.docs(@subscription)}

  ## Examples

      iex> {:ok, session} = AshAgent.Session.start_link(llm: AshAgent.LLM.Scripted.new(["Hello there!"]))
      iex> {:ok, ref, snapshot} = AshAgent.Session.subscribe(session)
      iex> {:ok, _result} = AshAgent.Session.prompt(session, "Hi")
      iex> changes = for n <- 1..5, do: (receive do {AshAgent.Session, ^ref, number, change} when number == snapshot.number + n -> change end)
      iex> for {:delta, events} <- changes, {:text, 0, text} <- events, do: text
      ["Hello ", "there!"]
      iex> {:context, context} = List.last(changes)
      iex> AshAgent.Context.count_messages(context)
      2
  """
  @doc since: "0.1.0"
  @spec subscribe(session(), keyword()) :: {:ok, reference(), snapshot()}
  def subscribe(session, opts \\ []) do
    opts = AshAgent.Options.validate!(opts, @subscription)
    server = GenServer.whereis(session) || exit({:noproc, {__MODULE__, :subscribe, [session]}})
    ref = Process.monitor(server)

    {:ok, ref,
     server |> call({:subscribe, ref, opts[:limit]}, :subscribe) |> Subscribers.arrived()}
  end

  @doc """
  Tells a session on another node that all changes up to `number` were handled, and returns `:ok`.

  On the session's own node, this is not necessary.

  ## Examples

      iex> {:ok, session} = AshAgent.Session.start_link(llm: fn _ -> {:ok, %{}} end)
      iex> {:ok, ref, %{number: number}} = AshAgent.Session.subscribe(session)
      iex> AshAgent.Session.acknowledge(session, ref, number)
      :ok
  """
  @doc since: "0.1.0"
  @spec acknowledge(session(), reference(), non_neg_integer()) :: :ok
  def acknowledge(session, ref, number) when is_reference(ref) and is_integer(number),
    do: GenServer.cast(session, {:acknowledge, ref, number})

  @doc """
  Ends a subscription and returns `:ok`. No message of it is left in the message queue.

  ## Examples

      iex> {:ok, session} = AshAgent.Session.start_link(llm: fn _ -> {:ok, %{}} end)
      iex> {:ok, ref, _snapshot} = AshAgent.Session.subscribe(session)
      iex> AshAgent.Session.unsubscribe(session, ref)
      :ok
  """
  @doc since: "0.1.0"
  @spec unsubscribe(session(), reference()) :: :ok
  def unsubscribe(session, ref) when is_reference(ref) do
    Process.demonitor(ref, [:flush])
    :ok = call(session, {:unsubscribe, ref}, :unsubscribe)
    Subscribers.flush(__MODULE__, ref)
  end

  @doc """
  Cancels the running prompt and returns `:ok`: kills the processes of the model and the tools, keeps the answer as far as
  it came, and answers calls without a result with an error that says so. If nothing runs, it does nothing.

  A paused session gives up the undecided calls, as cancelled, and continues with the queued prompts.

  The caller of the prompt gets an `AshAgent.Runtime.Error` with the reason `:cancelled`. The conversation continues with
  the next prompt, which may already be queued. Results that tools have returned stay.

  ## Examples

      iex> {:ok, session} = AshAgent.Session.start_link(llm: fn _ -> Process.sleep(:infinity) end)
      iex> {:ok, ref} = AshAgent.Session.prompt_async(session, "Think for ever")
      iex> AshAgent.Session.cancel(session)
      :ok
      iex> receive do
      ...>   {AshAgent.Session, ^ref, {:error, error}} -> error.reason
      ...> end
      :cancelled
  """
  @doc since: "0.1.0"
  @spec cancel(session()) :: :ok
  def cancel(session), do: call(session, :cancel, :cancel)

  @doc """
  Uses another model from the next prompt on, with the same history. Returns `:ok`.

  Raises `ArgumentError` for anything that is not a model.

  ## Examples

      iex> {:ok, session} = AshAgent.Session.start_link(llm: fn _ -> {:ok, %{content: "one"}} end)
      iex> AshAgent.Session.put_llm(session, fn _ -> {:ok, %{content: "two"}} end)
      iex> {:ok, result} = AshAgent.Session.prompt(session, "Which?")
      iex> result.output
      "two"
  """
  @doc since: "0.1.0"
  @spec put_llm(session(), LLM.t()) :: :ok
  # Prepared here, so that the session never sees a bare key.
  def put_llm(session, llm), do: call(session, {:put_llm, LLM.new(llm)}, :put_llm)

  # A call may have to wait for a slow :on_change.
  defp call(session, message, function, timeout \\ :infinity),
    do: session |> Sealed.call(message, {__MODULE__, function}, timeout) |> Border.arrived()

  defp run_async(session, job, function) do
    run = fn -> call(session, {:run_async, self(), job}, function) end
    if Border.away?(session), do: Border.relay(session, __MODULE__, run), else: run.()
  end

  ## Options, in the caller's process

  defp options(opts) do
    opts = AshAgent.Options.validate!(opts, schema())

    unless opts[:store] == nil or AshAgent.Store.id?(opts[:id]),
      do:
        raise(
          ArgumentError,
          "expected :id to be the conversation's id, a non-empty string, since :store is given"
        )

    runtime = opts |> Keyword.take([:llm, :on_change | @runtime_options]) |> Runtime.options()

    opts
    |> Keyword.drop(@runtime_options)
    |> Keyword.merge(llm: runtime[:llm], runtime: Keyword.take(runtime, @runtime_options))
  end

  ## The process

  # Each callback is sealed: a failure discloses nothing of its data.

  @impl true
  def init(opts), do: Sealed.run(fn -> begun(opts) end)

  @impl true
  def handle_continue(:go_on, state), do: Sealed.run(fn -> go_on({:noreply, restored(state)}) end)

  @impl true
  def handle_call(request, from, state),
    do: Sealed.run(fn -> request |> called(from, state) |> leaving(from) |> go_on() end)

  @impl true
  def handle_cast(request, state),
    do: Sealed.run(fn -> go_on({:noreply, cast(request, state)}) end)

  @impl true
  def handle_info(message, state),
    do: Sealed.run(fn -> go_on({:noreply, told(message, state)}) end)

  @impl true
  def terminate(_reason, %{keeper: %Claim{} = keeper, lost: nil} = state) do
    Sealed.run(fn ->
      end_tasks(state)
      if unfinished?(state), do: Claim.hand_over(keeper), else: Claim.release(keeper)
    end)
  end

  def terminate(_reason, _state), do: :ok

  defp unfinished?(%{keeper: keeper} = state) do
    keeper.stale? or keeper.kept.status == :running or state.steers != [] or
      not :queue.is_empty(state.queue)
  end

  defp leaving({:reply, reply, state}, {pid, _tag}),
    do: {:reply, Border.leaving(reply, pid), state}

  defp leaving(noreply, _from), do: noreply

  # Whoever has lost the conversation stops, and whoever is to stop when nothing is left to do.
  defp go_on({:noreply, %{lost: reason} = state}) when reason != nil,
    do: {:stop, {:shutdown, :lost}, state}

  defp go_on({:reply, reply, %{lost: reason} = state}) when reason != nil,
    do: {:stop, {:shutdown, :lost}, reply, state}

  # So does one that is to leave memory, when its run has ended.
  defp go_on({:noreply, %{leaving: reason, run: nil} = state}) when reason != nil,
    do: {:stop, {:shutdown, reason}, left(state)}

  defp go_on({:reply, reply, %{leaving: reason, run: nil} = state}) when reason != nil,
    do: {:stop, {:shutdown, reason}, reply, left(state)}

  defp go_on({:noreply, %{stop: :idle} = state}) do
    if done?(state), do: {:stop, :normal, dismissed(state)}, else: {:noreply, rest(state)}
  end

  defp go_on({:reply, reply, %{stop: :idle} = state}) do
    if done?(state),
      do: {:stop, :normal, reply, dismissed(state)},
      else: {:reply, reply, rest(state)}
  end

  defp go_on({:noreply, state}), do: {:noreply, rest(state)}
  defp go_on({:reply, reply, state}), do: {:reply, reply, rest(state)}

  # Measures the time in which nobody needs the session.
  defp rest(%{idle: :infinity} = state), do: state

  defp rest(%{timer: nil} = state) do
    if needed?(state),
      do: state,
      else: %{state | timer: :erlang.start_timer(state.idle, self(), :idle)}
  end

  defp rest(state) do
    if needed?(state) do
      :erlang.cancel_timer(state.timer)
      %{state | timer: nil}
    else
      state
    end
  end

  defp needed?(state) do
    state.run != nil or state.subscribers != %{} or
      Enum.any?(:queue.to_list(state.queue), fn {_job, client, _id} -> client != nil end)
  end

  # Prompts that wait are in the store, for the next session of the conversation.
  defp left(state) do
    for {_job, client, _id} <- :queue.to_list(state.queue), do: reply(client, drained(state))
    state
  end

  defp drained(state), do: {:error, %Error{reason: :drained, context: state.context}}

  defp done?(%{run: nil} = state), do: state.paused? or :queue.is_empty(state.queue)
  defp done?(_running), do: false

  # What a paused session has not begun waits in the store.
  defp dismissed(state) do
    for {_job, client, _id} <- :queue.to_list(state.queue), do: reply(client, {:error, :paused})
    %{state | queue: :queue.new()}
  end

  # Not a callback of older GenServers, but OTP's gen_server calls it from version 25 on.
  if {:format_status, 1} in GenServer.behaviour_info(:callbacks), do: @impl(true)

  def format_status(status) do
    Map.new(status, fn
      {:state, state} -> {:state, shown(state)}
      {:message, _prompt} -> {:message, :not_shown}
      {:log, _events} -> {:log, []}
      other -> other
    end)
  end

  defp shown(%{context: %Context{}, subscribers: %{}} = state) do
    state
    |> Map.take([:context, :when_busy, :max_queue, :ignored])
    |> Map.merge(%{running: state.run != nil, paused: state.paused?, queued: queued(state.queue)})
    |> Map.merge(%{number: state.number, subscribers: map_size(state.subscribers)})
  end

  defp shown(_broken), do: :not_shown

  defp queued(queue), do: if(:queue.is_queue(queue), do: :queue.len(queue), else: :not_shown)

  defp begun(opts) do
    case opened(opts) do
      {:ok, context, keeper} ->
        {:ok, supervisor} = Task.Supervisor.start_link()
        waits? = waits?(context, opts[:runtime][:approval])
        if opts[:stop_when_idle], do: Process.send_after(self(), :unasked, @unasked)

        {:ok,
         %{
           keeper: keeper,
           go_on?: opts[:go_on],
           # :idle from the first run on.
           stop: if(opts[:stop_when_idle], do: :unasked),
           steers: [],
           lost: nil,
           # Why it is to stop when nothing runs, and the timer that finds that out.
           leaving: nil,
           idle: if(keeper, do: opts[:idle], else: :infinity),
           timer: nil,
           context: context,
           llm: opts[:llm],
           runtime: opts[:runtime],
           on_change: opts[:on_change],
           when_busy: opts[:when_busy],
           max_queue: opts[:max_queue],
           supervisor: supervisor,
           queue: :queue.new(),
           run: nil,
           paused?: waits? and (keeper == nil or keeper.kept.status != :running),
           # The current answer, the number of the last change, and the subscribers.
           open: nil,
           number: 0,
           subscribers: Subscribers.new(),
           ignored: 0
         }, {:continue, :go_on}}

      {:error, reason} ->
        {:stop, if(opts[:quiet?], do: {:shutdown, reason}, else: reason)}
    end
  end

  defp opened(opts) do
    initial = fn -> initial(opts[:context], opts[:system_prompt]) end

    if opts[:store] do
      with {:ok, keeper} <-
             Claim.open(opts[:store], opts[:id], Keyword.take(opts, [:lease, :from]), fn ->
               named(initial.(), opts)
             end),
           do: {:ok, Claim.context(keeper), keeper}
    else
      with {:ok, context} <- initial.(), do: {:ok, context, nil}
    end
  end

  # A new conversation has the id that it is stored under; one that was given has its own.
  defp named({:ok, context}, opts) do
    if opts[:context] == nil,
      do: Context.restore(Map.put(Context.dump(context), "id", opts[:id])),
      else: {:ok, context}
  end

  defp named(error, _opts), do: error

  # A conversation from a store goes on with the turn that was cut short, and with the prompts that waited.
  defp restored(%{keeper: nil} = state), do: state
  defp restored(%{go_on?: false} = state), do: state

  defp restored(state) do
    case Claim.waiting(state.keeper) do
      {:ok, {steers, prompts}} ->
        jobs = for prompt <- prompts, do: {stored(prompt), nil, prompt.id}
        state = %{state | queue: :queue.from_list(jobs), steers: steers}

        cond do
          state.keeper.kept.status == :running -> start(state, {:resume, []}, nil, nil)
          state.paused? -> state
          true -> next(state)
        end

      {:error, reason} ->
        lose(state, reason)
    end
  end

  defp stored(prompt), do: {:prompt, prompt.input, [metadata: prompt.metadata]}

  # Pending calls may need a decision only if the session asks for decisions.
  defp waits?(context, approval),
    do: is_function(approval) and Context.pending_tool_calls(context) != []

  defp initial(function, system_prompt) when is_function(function, 0),
    do: initial(function.(), system_prompt)

  defp initial(nil, nil), do: Context.create(%{})

  defp initial(nil, system_prompt),
    do:
      Context.create(%{
        iterations: [%{number: 1, messages: [%{role: :system, content: system_prompt}]}]
      })

  defp initial({:ok, context}, system_prompt), do: initial(context, system_prompt)
  defp initial(:error, _system_prompt), do: {:error, :no_context}
  defp initial({:error, reason}, _system_prompt), do: {:error, reason}

  defp initial(kept, _system_prompt) when is_binary(kept) or is_map(kept),
    do: Context.restore(kept)

  defp initial(_other, _system_prompt), do: {:error, :no_context}

  defguardp is_input(input) when is_binary(input) or is_list(input) or is_map(input)

  defp called({:run, job}, from, state), do: accept(job, {:call, from}, state)

  defp called({:run_async, pid, job}, from, state) when is_pid(pid),
    do: accept(job, {:async, pid, make_ref(), from}, state)

  defp called(:context, _from, state), do: {:reply, state.context, state}
  defp called(:status, _from, state), do: {:reply, status_of(state), state}

  defp called(:snapshot, {pid, _tag}, state) do
    subscribers = Subscribers.caught_up(state.subscribers, pid, state.number)
    {:reply, Subscribers.snapshot(state, pid), %{state | subscribers: subscribers}}
  end

  defp called({:subscribe, ref, limit}, {pid, _tag}, state)
       when is_reference(ref) and is_integer(limit) do
    subscribers = Subscribers.add(state.subscribers, ref, pid, limit, state.number)
    {:reply, Subscribers.snapshot(state, pid), %{state | subscribers: subscribers}}
  end

  defp called({:unsubscribe, ref}, _from, state),
    do: {:reply, :ok, %{state | subscribers: Subscribers.delete(state.subscribers, ref)}}

  defp called({:decide, {:approved, id} = decision, opts}, _from, state)
       when is_binary(id) and is_list(opts),
       do: decide(decision, opts, state)

  defp called({:decide, {:denied, id, _reason} = decision, opts}, _from, state)
       when is_binary(id) and is_list(opts),
       do: decide(decision, opts, state)

  defp called({:steer, input, metadata}, _from, state)
       when (is_binary(input) or is_list(input) or is_map(input)) and is_map(metadata),
       do: take_steer(input, metadata, state)

  defp called({:put_llm, llm}, _from, state), do: {:reply, :ok, %{state | llm: llm}}

  defp called(:cancel, _from, %{run: nil, paused?: true} = state) do
    context = Context.interrupt(state.context, "cancelled by the user", status: :cancelled)
    {:reply, :ok, state |> changed(context, :cancelled) |> next()}
  end

  defp called(:cancel, _from, %{run: nil} = state), do: {:reply, :ok, state}

  defp called(:cancel, _from, %{run: run} = state) do
    # Contexts that it sent before it was killed are in the mailbox by then.
    reply = Task.shutdown(run.task, :brutal_kill)
    state = state |> end_tasks() |> drain(run.token) |> uncertain()

    case reply do
      # The turn should end, and not wait.
      {:ok, {:paused, %{context: context}}} ->
        {:reply, :ok, state |> put(context) |> cancelled()}

      {:ok, reply} ->
        {:reply, :ok, finish(state, reply)}

      _killed ->
        {:reply, :ok, cancelled(state)}
    end
  end

  defp called(_unknown, _from, state), do: unknown_call(state)

  defp unknown_call(state), do: {:reply, {:error, :unknown_call}, ignored(state)}

  defp ignored(%{ignored: ignored} = state), do: %{state | ignored: ignored + 1}

  defp told({:context, token, context}, %{run: %{token: token} = run} = state),
    do: see(state, run, context)

  defp told({:delta, token, pid, events, response}, %{run: %{token: token}} = state) do
    state = hear(state, events, response)
    # More is read from the provider when everybody has been told.
    send(pid, {token, :more})
    state
  end

  defp told({:kept, token, kept}, %{run: %{token: token}} = state),
    do: put_in(state.keeper.kept, kept)

  # A session that is to leave lets its run ask nothing more when all that it has done is stored.
  defp told(
         {:steered, token, _pid},
         %{leaving: reason, run: %{token: token}, keeper: %{kept: %{value: context}}} = state
       )
       when reason != nil and context == state.context,
       do: cut(state)

  # The run asks for messages of the turn.
  defp told({:steered, token, pid}, %{run: %{token: token}} = state) do
    send(pid, {token, state.steers})
    taken(%{state | steers: []}, for(%{id: id} when id != nil <- state.steers, do: id))
  end

  defp told({:timeout, timer, :idle}, %{timer: timer} = state),
    do: %{state | leaving: :idle, timer: nil}

  # Whoever started it may have died before asking for anything.
  defp told(:unasked, %{stop: :unasked} = state), do: %{state | stop: :idle}
  defp told(:unasked, %{stop: :idle} = state), do: state

  defp told({:lost, renewer, reason}, %{keeper: %{renewer: {renewer, _}}} = state),
    do: lose(state, reason)

  defp told({:DOWN, ref, :process, _pid, _reason}, %{keeper: %{renewer: {_, ref}}} = state),
    do: lose(state, {:store_error, :stale})

  defp told({ref, reply}, %{run: %{task: %{ref: ref}} = run} = state) do
    Process.demonitor(ref, [:flush])
    state |> drain(run.token) |> finish(reply)
  end

  defp told(
         {:DOWN, ref, :process, _pid, reason},
         %{run: %{task: %{ref: ref}} = run} = state
       ) do
    state = state |> end_tasks() |> drain(run.token) |> uncertain()
    interrupted(state, "interrupted", {:exit, reason})
  end

  defp told({:DOWN, monitor, :process, _pid, _reason} = message, state) do
    case Subscribers.down(state.subscribers, monitor) do
      {:ok, subscribers} -> %{state | subscribers: subscribers}
      :error -> unknown(message, state)
    end
  end

  defp told(other, state), do: unknown(other, state)

  # Whatever it is, including late messages of cancelled runs.
  defp unknown(_message, state), do: ignored(state)

  defp cast({:acknowledge, ref, number}, state) when is_integer(number) do
    number = min(number, state.number)
    %{state | subscribers: Subscribers.acknowledge(state.subscribers, ref, number)}
  end

  # For a deployment: `:soon` when the current step has been stored, `:now` whatever runs.
  defp cast({:drain, :soon}, %{keeper: %Claim{}} = state), do: %{state | leaving: :drained}

  defp cast({:drain, :now}, %{keeper: %Claim{}} = state),
    do: cut(%{state | leaving: :drained})

  defp cast(_request, state), do: ignored(state)

  defp accept(_job, _client, %{leaving: reason} = state) when reason != nil,
    do: {:reply, {:error, :draining}, state}

  defp accept({:prompt, input, opts} = job, client, state)
       when is_input(input) and is_list(opts) do
    if state.run == nil and state.paused?,
      do: {:reply, {:error, :paused}, state},
      else: take(job, client, state)
  end

  defp accept({:stored, id, opts}, client, %{keeper: %Claim{}} = state)
       when is_binary(id) and is_list(opts),
       do: take_stored(id, opts, client, state)

  defp accept({:resume, opts} = job, client, state) when is_list(opts),
    do: take(job, client, state)

  defp accept(_job, _client, state), do: unknown_call(state)

  # A prompt whose caller waits for its answer is stored by its run.
  defp take(job, {:call, _from} = client, %{run: nil} = state),
    do: {:noreply, start(state, job, accepted(client), nil)}

  defp take(job, client, state) do
    busy? = state.run != nil
    full? = state.when_busy == :error or :queue.len(state.queue) >= state.max_queue

    with false <- busy? and full?,
         {:ok, id} <- remember(state, job) do
      client = accepted(client)

      if busy?,
        do: {:noreply, %{state | queue: :queue.in({job, client, id}, state.queue)}},
        else: {:noreply, start(state, job, client, id)}
    else
      true -> {:reply, {:error, :busy}, state}
      {:error, error} -> refuse(state, error)
    end
  end

  defp take_stored(_id, _opts, _client, %{run: nil, paused?: true} = state),
    do: {:reply, {:error, :paused}, state}

  defp take_stored(id, opts, client, state) do
    with false <- id in state.keeper.taken or queued?(state.queue, id),
         {:ok, {_steers, prompts}} <- Claim.waiting(state.keeper),
         %{} = prompt <- Enum.find(prompts, &(&1.id == id)) do
      {:prompt, input, own} = stored(prompt)
      job = {:prompt, input, own ++ opts}

      if state.run,
        do: {:noreply, %{state | queue: :queue.in({job, accepted(client), id}, state.queue)}},
        else: {:noreply, start(state, job, accepted(client), id)}
    else
      {:error, reason} -> refuse(state, reason)
      _taken -> {:reply, {:error, :taken}, state}
    end
  end

  defp queued?(queue, id), do: Enum.any?(:queue.to_list(queue), &(elem(&1, 2) == id))

  # What is confirmed is stored before.
  defp remember(%{keeper: nil}, _job), do: {:ok, nil}
  defp remember(_state, {:resume, _opts}), do: {:ok, nil}

  defp remember(state, {:prompt, input, opts}),
    do: Claim.enqueue(state.keeper, :prompt, input, opts[:metadata] || %{})

  defp refuse(state, {:store_error, %Context.Error{} = error}),
    do: {:reply, {:error, error}, state}

  defp refuse(state, reason) do
    reply = {:error, %Error{reason: reason, context: state.context}}
    {:reply, reply, if(Claim.lost?(reason), do: lose(state, reason), else: state)}
  end

  defp take_steer(_input, _metadata, %{run: nil, paused?: true} = state),
    do: {:reply, {:error, :paused}, state}

  defp take_steer(_input, _metadata, %{run: nil} = state), do: {:reply, {:error, :idle}, state}

  defp take_steer(input, metadata, state) do
    with {:ok, _message} <- message(input, metadata),
         {:ok, id} <- remember_steer(state, input, metadata) do
      steer = %{id: id, input: input, metadata: metadata}
      {:reply, :ok, %{state | steers: state.steers ++ [steer]}}
    else
      {:error, %Context.Error{} = error} -> {:reply, {:error, error}, state}
      {:error, error} -> refuse(state, error)
    end
  end

  defp message(input, metadata) do
    {:ok, Context.new(input, metadata: metadata)}
  rescue
    error in Context.Error -> {:error, error}
  end

  defp remember_steer(%{keeper: nil}, _input, _metadata), do: {:ok, nil}

  defp remember_steer(state, input, metadata),
    do: Claim.enqueue(state.keeper, :steer, input, metadata)

  defp accepted({:call, from}), do: {:call, from}

  defp accepted({:async, pid, ref, from}) do
    GenServer.reply(from, {:ok, ref})
    {:async, pid, ref}
  end

  defp start(state, job, client, id) do
    case begin(state.context, job) do
      {:ok, context, own} ->
        session = self()
        token = make_ref()
        state = taken(state, List.wrap(id))

        within =
          Map.merge(Runtime.Bounds.outermost(), %{
            watch: &watch(session, token, &1),
            steered: fn -> steered(session, token) end,
            taken: if(state.keeper, do: state.keeper.taken, else: [])
          })

        opts =
          state.runtime
          |> Keyword.merge(own)
          |> Keyword.merge(llm: state.llm, supervisor: state.supervisor)
          |> Keyword.put(:on_change, state.on_change)

        keeper = state.keeper
        caller = caller(job)
        new? = context != state.context
        if new?, do: tell(client, context)

        task =
          Task.Supervisor.async_nolink(
            state.supervisor,
            fn ->
              Caller.continue(caller)
              Sealed.run(fn -> run(context, new?, opts, within, keeper) end)
            end,
            shutdown: :brutal_kill
          )

        run = %{
          task: task,
          token: token,
          client: client,
          first: Context.turn_start(context),
          started: System.monotonic_time()
        }

        stop = if state.stop, do: :idle
        put(%{state | run: run, paused?: false, stop: stop}, context)

      {:error, error} ->
        reply(client, {:error, error})
        next(state)
    end
  end

  # In the task.
  defp run(context, new?, opts, within, keeper) do
    with {:ok, kept} <- kept(keeper),
         :ok <- if(new?, do: Events.store(opts[:on_change], context), else: :ok) do
      Runtime.run(context, kept ++ opts, within)
    else
      {:error, reason} -> {:error, %Error{reason: reason, context: context}}
    end
  end

  defp kept(nil), do: {:ok, []}

  defp kept(keeper) do
    with {:ok, keeper} <- Claim.refresh(keeper),
         do: {:ok, [store: keeper.store, kept: keeper.kept]}
  end

  # A session that ends kills the run that waits here.
  defp steered(session, token) do
    send(session, {:steered, token, self()})
    receive do: ({^token, steers} when is_list(steers) -> steers)
  end

  defp watch(session, token, {:kept, kept}), do: send(session, {:kept, token, kept})

  defp watch(session, token, {:context, context}), do: send(session, {:context, token, context})

  # A session that ends kills the run that waits here.
  defp watch(session, token, {:delta, events, response}) do
    send(session, {:delta, token, self(), events, response})
    receive do: ({^token, :more} -> :ok)
  end

  defp begin(context, job) do
    {:ok, asked(context, job), job |> Tuple.to_list() |> List.last() |> given()}
  rescue
    error in [Context.Error, ArgumentError, FunctionClauseError] -> {:error, error}
  end

  defp asked(context, {:resume, _opts}), do: context

  defp asked(context, {:prompt, input, opts}) do
    message = if opts[:metadata], do: [metadata: opts[:metadata]], else: []
    context |> Context.interrupt() |> Context.add_user_message(input, message)
  end

  # The trace of the process that asked: the job may have waited since.
  defp caller(job), do: job |> Tuple.to_list() |> List.last() |> Keyword.get(:caller)

  defp called_by(opts), do: Keyword.put(opts, :caller, Caller.current())

  defp given(opts), do: for({:runtime_context, %{} = map} <- opts, do: {:runtime_context, map})

  defp see(state, run, context) do
    tell(run.client, context)
    put(state, context)
  end

  defp hear(state, events, response), do: publish(%{state | open: response}, {:delta, events})

  # Each new context goes this way.
  defp put(%{context: context, open: nil} = state, context), do: state

  defp put(state, context),
    do: publish(%{state | context: context, open: nil}, {:context, context})

  defp publish(%{number: number} = state, change) do
    subscribers = Subscribers.tell(state.subscribers, __MODULE__, number + 1, change)
    %{state | number: number + 1, subscribers: subscribers}
  end

  # Takes the contexts that a finished run has left in the mailbox.
  defp drain(%{run: run} = state, token) do
    receive do
      {:context, ^token, context} ->
        state |> see(run, context) |> drain(token)

      {:delta, ^token, _pid, events, response} ->
        state |> hear(events, response) |> drain(token)

      {:kept, ^token, kept} ->
        put_in(state.keeper.kept, kept) |> drain(token)
    after
      0 -> state
    end
  end

  # The run's tools, which do not end with it.
  defp end_tasks(state) do
    for pid <- Task.Supervisor.children(state.supervisor),
        do: Task.Supervisor.terminate_child(state.supervisor, pid)

    state
  end

  # Queued prompts keep waiting: the turn is not over.
  defp finish(%{run: run} = state, {:paused, %Paused{context: context}} = reply) do
    reply(run.client, reply)
    put(written(%{state | run: nil, paused?: true}), context)
  end

  defp finish(
         %{run: run} = state,
         {:error, %Error{reason: {:store_error, _} = reason} = error} = reply
       ) do
    state = put(state, error.context)

    if Claim.lost?(reason) do
      lose(state, reason)
    else
      reply(run.client, reply)
      next(uncertain(%{state | run: nil}))
    end
  end

  defp finish(%{run: run} = state, {_, %{context: context}} = reply) do
    reply(run.client, reply)
    next(put(written(%{state | run: nil}), context))
  end

  ## The store

  defp taken(%{keeper: nil} = state, _ids), do: state
  defp taken(state, ids), do: update_in(state.keeper.taken, &(&1 ++ ids))

  defp written(%{keeper: nil} = state), do: state
  defp written(state), do: put_in(state.keeper.taken, [])

  # A run that was ended from outside may have written what nobody has heard of.
  defp uncertain(%{keeper: nil} = state), do: state
  defp uncertain(state), do: put_in(state.keeper.stale?, true)

  # The conversation is another's: nothing of it runs here any more, and whoever waits is told.
  defp lose(%{lost: nil} = state, reason) do
    state = if state.run, do: stop_run(state), else: state
    error = {:error, %Error{reason: reason, context: state.context}}
    waiting = for {_job, client, _id} <- :queue.to_list(state.queue), do: client
    for client <- List.wrap(state.run && state.run.client) ++ waiting, do: reply(client, error)
    %{state | lost: reason, run: nil, queue: :queue.new()}
  end

  defp lose(state, _reason), do: state

  # The turn is for the next session of the conversation.
  defp cut(%{run: nil} = state), do: state

  defp cut(%{run: run} = state) do
    state = state |> stop_run() |> uncertain()
    reply(run.client, drained(state))
    %{state | run: nil}
  end

  defp stop_run(%{run: run} = state) do
    Task.shutdown(run.task, :brutal_kill)
    state |> end_tasks() |> drain(run.token)
  end

  # Whether it was written or not, the conversation goes on from here.
  defp keep(%{keeper: nil} = state, _context, _ended), do: state

  defp keep(state, context, ended) do
    case Claim.write(state.keeper, context, :idle, ended) do
      {:ok, keeper} ->
        %{state | keeper: keeper}

      {:error, reason} ->
        if Claim.lost?(reason), do: lose(state, reason), else: uncertain(state)
    end
  end

  defp cancelled(state),
    do: interrupted(state, "cancelled by the user", :cancelled, status: :cancelled)

  defp interrupted(%{run: run} = state, words, reason, opts \\ []) do
    before = state.context
    label = if is_atom(reason), do: reason, else: elem(reason, 0)
    ended = if label == :cancelled, do: :cancelled, else: :interrupted
    state = changed(state, broken_off(state, label, words, opts), ended)
    if state.context != before, do: tell(run.client, state.context)

    if state.lost == nil do
      ended = {:error, %Error{reason: reason, context: state.context}}
      told = %{first_iteration: run.first, depth: 0}
      Runtime.ended(state.runtime[:on_event], run.started, ended, told)
      reply(run.client, ended)
    end

    next(state)
  end

  # The part of an answer that came stays.
  defp broken_off(%{open: nil, context: context}, _label, words, opts),
    do: Context.interrupt(context, words, opts)

  defp broken_off(%{open: open, context: context}, label, words, opts) do
    case Runtime.broken_off(context, Response.interrupt(open, label), words, opts) do
      {:ok, context} -> context
      {:error, _error} -> Context.interrupt(context, words, opts)
    end
  end

  # The session's own change at the end of a run stays even if it cannot be stored.
  defp changed(state, context, ended) do
    state = keep(state, context, ended)

    with {:error, {:on_change_error, reason}} <- Events.store(state.on_change, context),
         do: Events.log(:error, reason, [], ":on_change")

    put(state, context)
  end

  defp next(%{lost: lost, leaving: leaving} = state) when lost != nil or leaving != nil,
    do: %{state | run: nil}

  # What came too late for its turn is a prompt.
  defp next(%{steers: [steer | steers]} = state),
    do: start(%{state | steers: steers, run: nil}, stored(steer), nil, steer.id)

  defp next(state) do
    case :queue.out(state.queue) do
      {{:value, {job, client, id}}, queue} ->
        start(%{state | queue: queue, run: nil}, job, client, id)

      {:empty, _} ->
        %{state | run: nil, paused?: false}
    end
  end

  defp status_of(%{run: %{}}), do: :running
  defp status_of(%{paused?: false}), do: :idle
  defp status_of(%{context: context}), do: {:paused, Context.undecided_tool_calls(context)}

  defp decide(_decision, _opts, %{run: %{}} = state), do: {:reply, {:error, :busy}, state}

  defp decide(decision, opts, state) do
    started = System.monotonic_time()

    with {:ok, context} <- decided(state.context, decision, opts),
         :ok <- Events.store(state.on_change, context),
         {:ok, state} <- keep_decision(state, context) do
      emit_decision(state, decision, started)
      {:reply, :ok, put(state, context)}
    else
      {:error, {:on_change_error, _} = reason} ->
        {:reply, {:error, %Error{reason: reason, context: state.context}}, state}

      {:error, {:store_error, _} = reason} ->
        refuse(uncertain(state), reason)

      {:error, error} ->
        {:reply, {:error, error}, state}
    end
  end

  defp keep_decision(%{keeper: nil} = state, _context), do: {:ok, state}

  defp keep_decision(state, context) do
    with {:ok, keeper} <- Claim.write(state.keeper, context, :paused, nil),
         do: {:ok, %{state | keeper: keeper}}
  end

  defp decided(context, decision, opts) do
    case decision do
      {:approved, id} -> {:ok, Context.approve_tool_call(context, id, opts)}
      {:denied, id, reason} -> {:ok, Context.deny_tool_call(context, id, reason, opts)}
    end
  rescue
    error in [Context.Error, ArgumentError, FunctionClauseError] -> {:error, error}
  end

  # The context is the one that the decision was made on.
  defp emit_decision(state, decision, started) do
    [verdict, id | _reason] = Tuple.to_list(decision)
    call = state.context |> Context.pending_tool_calls() |> Enum.find(&(&1.id == id))
    metadata = %{context_id: state.context[:id], iteration: state.context.current_iteration}

    state.runtime[:on_event]
    |> Events.new(metadata)
    |> Events.emit([:tool, :decision], %{duration: Events.since(started)}, %{
      tool: Tool.name(call.name),
      tool_call_id: call.id,
      decision: verdict,
      by: :session
    })
  end

  # Nobody waits for a prompt that an earlier session was given.
  defp tell(nil, _context), do: :ok
  defp tell({:async, pid, ref}, context), do: tell(pid, ref, {:context, context})
  defp tell({:call, _from}, _context), do: :ok

  defp tell(pid, ref, message), do: send(pid, {__MODULE__, ref, Border.leaving(message, pid)})

  defp reply(nil, _reply), do: :ok
  defp reply({:async, pid, ref}, reply), do: tell(pid, ref, reply)

  defp reply({:call, {pid, _tag} = from}, reply),
    do: GenServer.reply(from, Border.leaving(reply, pid))
end
