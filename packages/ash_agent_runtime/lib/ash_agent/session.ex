defmodule AshAgent.Session do
  @moduledoc """
  A process that holds one conversation: it takes prompts, runs the agent loop, and always has the current context.

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
  calls it. If it returns `{:error, reason}`, the run ends with `{:on_change_error, reason}`, and decisions are not recorded.
  To continue a stored conversation, pass it as `:context`. A function is called at every start, including restarts by a
  supervisor.

  If the stored context has calls without results, because the session died while tools were running, `resume/2` executes them,
  perhaps for the second time, and continues the loop; a new prompt tells the model instead that they were interrupted.

  ## Stores

  With `:store` and `:id`, the session keeps its conversation in an `AshAgent.Store`:

      {:ok, session} = AshAgent.Session.start_link(store: MyApp.Conversations, id: "c1", llm: llm, tools: tools)

  It claims the conversation, or creates it, and is its only writer until it stops. Its runs write as
  `AshAgent.Runtime.run/2` describes. Waiting prompts, `prompt_async/3` and `steer/3` are stored before they are confirmed.
  A session that replaces one that died continues the turn that was cut short, and then takes the waiting prompts; only
  subscribers get their answers. A turn or prompt that came with a `:runtime_context`, which is never stored, continues
  with the one that `:restore_context` finds; without one it is parked, and waits until `resume/2` gives one.

  If somebody else has claimed the conversation, which happens to a session that was stopped for longer than its
  `:lease`, it kills its run, all its callers get an error with `{:store_error, {:owned, owner}}`, and it stops with
  `{:shutdown, :lost}`. A store that cannot be reached only ends the run; the next prompt tries again. A message that could not be
  stored is not in the conversation.

  `AshAgent.Sessions` finds, starts and recovers such sessions on several nodes.

  ## Other nodes

  You can call a session from any node. Contexts travel to other nodes as snapshots, which costs O(size of the conversation), and
  are contexts again when a function returns them or `prompt_async/3` sends them. The `kept` of such a result is not loaded.

  ## Watching

  `subscribe/2` sends every change to the calling process: pieces of the current answer, and contexts, with numbers. A
  late subscriber gets a snapshot first and misses nothing. If an answer breaks off, even because of `cancel/1` or because the run
  is killed, the context keeps it as far as it came, see `AshAgent.Runtime`.

  ## Approval

  With `:approval`, a run may end with `{:paused, %AshAgent.Runtime.Paused{}}`. The session is then paused: `status/1`
  lists the undecided calls, `approve/3`, `deny/4` and `answer/4` record decisions, and `resume/2` continues. `cancel/1` gives up
  these calls and ends the turn. Until then, new prompts return `{:error, :paused}`, and queued prompts keep waiting. A
  session with an approval function is also paused if it starts with a context in which calls are pending, and so is every session
  that starts with a paused conversation, from a store or not: without `:approval`, `resume/2` returns the error
  `{:missing_option, :approval}` until all calls are decided.

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
  gets `{:error, %AshAgent.Runtime.Error{}}`. When the session itself ends, everything it runs is killed, and queued
  prompts are lost: callers of `prompt/3` exit, and callers of `prompt_async/3` get no more messages, so monitor the session.

  Crash reports of a session, its processes and its callers, and `:sys.get_status/1`, show no
  messages, prompts, keys or runtime contexts, only the kind of failure and where it happened. Tools,
  models, hooks, and processes that they start, are responsible for their own logs.

  Unexpected messages are ignored. An unexpected call returns `{:error, :unknown_call}`, and `:sys.get_status/1` shows
  how many messages were `ignored`.
  """

  use AshAgent.Arguments

  alias AshAgent.{Context, LLM, Response}
  alias AshAgent.Runtime.{Error, Paused, Result, Sealed}
  alias AshAgent.Session.{Border, Options, Server, Subscribers}
  alias AshAgent.Trace.Caller

  @type session :: GenServer.server()
  @type input :: binary() | [Context.part()] | map()

  @typedoc """
  The state of a session.

    * `number` - the number of the last change; subscribers get the later ones
    * `context` - the context
    * `message` - the current, incomplete answer as `AshAgent.Response.message/1` returns it, or `nil`
    * `response` - the same as an `AshAgent.Response`; `nil` for callers on other nodes, where it would not work
    * `activity` - what is going on, in the events of `subscribe/2`: the starts of running tools, and the last retry or wait for a model
  """
  @type snapshot :: %{
          number: non_neg_integer(),
          context: Context.t(),
          message: map() | nil,
          response: Response.t() | nil,
          activity: [{:event, [atom()], map(), map()}]
        }

  @doc """
  Starts a session.

  ## Options

  #{Options.docs()}

  These options of `AshAgent.Runtime.run/2` apply to each prompt: #{Enum.map_join(Options.runtime_names(), ", ", &"`:#{&1}`")}.

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
    # The caller is told, and is not linked to a session that cannot begin.
    if store = opts[:store], do: AshAgent.Store.Named.check!(store)
    start_server(opts, [])
  end

  @doc false
  def start_sealed(opts) when is_function(opts, 0), do: start_link(opts.())

  @doc false
  # For `AshAgent.Sessions`: a conversation that `from` holds may be claimed, and one that cannot be claimed is not a crash.
  # `callers` are the `$callers` of the session's processes, for a database that knows whose connection they may use.
  def start_sealed(opts, from, callers \\ []) when is_function(opts, 0),
    do: start_server(opts.(), from: from, quiet?: true, callers: callers)

  defp start_server(opts, more) do
    init = Options.prepare!(opts) ++ [tag: __MODULE__] ++ more
    GenServer.start_link(Server, init, Keyword.take(opts, [:name, :hibernate_after]))
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

  With a `:key`, asking again is safe: a message that is there already is not added twice, and its answer is returned, or waited
  for. Without one, the `stored` of an error says whether the message may have been stored, see `AshAgent.Runtime.Error`.

  Returns `{:paused, %AshAgent.Runtime.Paused{}}` if calls need a decision, `{:error, %AshAgent.Runtime.Error{}}` if the
  run failed, `{:error, %AshAgent.Context.Error{}}` if the input is not valid, `{:error, :busy}` or `{:error,
  :paused}` if the session is busy or paused, and `{:error, :moved}` if somebody was quicker (`:after`). Calls without results from an earlier life of the session are interrupted
  first.

  ## Options

  #{Options.docs(:prompt)}

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
          | {:error, Error.t() | Context.Error.t() | :busy | :moved | :paused | :draining}
  def prompt(session, input, opts \\ [])
      when is_server(session) and (is_binary(input) or is_list(input) or is_map(input)) do
    {await, opts} = opts |> Options.validate!(:prompt) |> Keyword.pop!(:await)
    call(session, {:run, {:prompt, input, prepare_prompt(opts)}}, :prompt, await)
  end

  @doc """
  Like `prompt/3`, but returns `{:ok, ref}` at once and sends messages to the caller.

  They are `{AshAgent.Session, ref, {:context, context}}` for every new context, and finally `{AshAgent.Session, ref,
  reply}` with the result of `prompt/3`. Returns `{:error, :busy}` or `{:error, :paused}` if the session is busy or
  paused. Takes `:metadata`, `:key`, `:after` and `:runtime_context` as `prompt/3` does.

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
          {:ok, reference()} | {:error, :busy | :moved | :paused | :draining}
  def prompt_async(session, input, opts \\ [])
      when is_server(session) and (is_binary(input) or is_list(input) or is_map(input)) do
    opts = Options.validate!(opts, :prompt_async)
    run_async(session, {:prompt, input, prepare_prompt(opts)}, :prompt_async)
  end

  @doc false
  # Like prompt_async/3 for a message that waits in the store, which the conversation gets once: the error of a second time is
  # :taken. Takes the option :runtime_context.
  def prompt_stored(session, id, opts) when is_server(session) and is_binary(id) do
    opts = Options.validate!(opts, :prompt_stored)
    run_async(session, {:stored, id, opts}, :prompt_stored)
  end

  @doc false
  # Gives a message that waits in the store as a prompt to the running turn, if that has the same runtime context. Otherwise it goes on
  # waiting, and the error is :idle, :paused, :other, :full or :taken.
  def steer_stored(session, id, opts) when is_server(session) and is_binary(id) do
    opts = Options.validate!(opts, :prompt_stored)
    call(session, {:steer_stored, id, opts}, :steer)
  end

  @doc """
  Adds a user message to the running turn, and returns `:ok`: the model reads it after all results of the iteration,
  before it is asked again. A model that has answered by then is asked once more.

  With a store, the message is stored before this returns, so it is not lost if the session dies. If the run has just
  ended, the message becomes a prompt of its own. Returns `{:error, :idle}` or `{:error, :paused}` when nothing runs, `{:error, :full}` or
  `{:error, :too_large}` beyond the session's limits (`:max_queue`, `:max_queue_bytes`, `:max_input_bytes`),
  `{:error, %AshAgent.Context.Error{}}` when the input is not one, and `{:error, %AshAgent.Runtime.Error{}}` with
  `{:store_error, reason}` when it could not be stored.

  ## Options

  #{Options.docs(:steer)}

  ## Examples

      iex> {:ok, session} = AshAgent.Session.start_link(llm: fn _ -> {:ok, %{}} end)
      iex> AshAgent.Session.steer(session, "Shorter, please!")
      {:error, :idle}
  """
  @doc since: "0.1.0"
  @spec steer(session(), input(), keyword()) ::
          :ok | {:error, :idle | :paused | Context.Error.t() | Error.t()}
  def steer(session, input, opts \\ [])
      when is_server(session) and (is_binary(input) or is_list(input) or is_map(input)) do
    opts = Options.validate!(opts, :steer)
    call(session, {:steer, input, put_key(opts[:metadata], opts[:key])}, :steer)
  end

  @doc """
  Continues without a new message, and returns the same as `prompt/3`: executes pending calls, asks about those that need
  a decision, and asks the model if it has not answered.

  Use it after decisions, for conversations that were cut short or paused, and with a greater limit after one was reached. Tools
  run with the runtime context of whoever asked, unless you give another; if that is gone with an earlier session, and
  `:restore_context` does not find it, the error is `{:missing_option, :runtime_context}`. If
  the conversation ends with an answer, it returns that.

  ## Options

  #{Options.docs(:resume)}

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
  def resume(session, opts \\ []) when is_server(session) do
    {await, opts} = opts |> Options.validate!(:resume) |> Keyword.pop!(:await)

    call(session, {:run, {:resume, put_caller(opts)}}, :resume, await)
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
  def resume_async(session, opts \\ []) when is_server(session) do
    opts = Options.validate!(opts, :resume_async)
    run_async(session, {:resume, put_caller(opts)}, :resume_async)
  end

  @doc """
  Returns the session's status: `:idle`, `:running`, `:parked` (see "Stores" and `:max_resumes`), `:waiting` if its turn goes on when late
  results have come or somebody writes, or `{:paused, calls}` with the undecided calls of `AshAgent.Context.Calls.undecided_tool_calls/1`, which have the arguments that they would run with.

  With `{:paused, []}`, everything is decided and `resume/2` continues.

  ## Examples

      iex> {:ok, session} = AshAgent.Session.start_link(llm: fn _ -> {:ok, %{}} end)
      iex> AshAgent.Session.status(session)
      :idle
  """
  @doc since: "0.1.0"
  @spec status(session()) :: :idle | :running | :parked | :waiting | {:paused, [map()]}
  def status(session) when is_server(session), do: call(session, :status, :status)

  @doc """
  Approves an undecided call, see `AshAgent.Context.Calls.approve_tool_call/3`, and returns `:ok` when `:on_change` has stored
  it, however long that takes. `resume/2` executes the call.

  Returns `{:error, :busy}` while the loop runs, `{:error, %AshAgent.Context.Error{}}` if there is no such call, if it is
  already approved, or if other arguments were shown, and `{:error, %AshAgent.Runtime.Error{}}` with
  `{:on_change_error, reason}` if the decision could not be stored. After an error, no decision is made.

  ## Options

  #{Options.docs(:approve)}

  ## Examples

      iex> {:ok, session} = AshAgent.Session.start_link(llm: fn _ -> {:ok, %{}} end)
      iex> {:error, error} = AshAgent.Session.approve(session, "call_1")
      iex> error.reason
      {:unknown_tool_call, "call_1", []}
  """
  @doc since: "0.1.0"
  @spec approve(session(), String.t(), keyword()) ::
          :ok | {:error, :busy | Context.Error.t() | Error.t()}
  def approve(session, id, opts \\ []) when is_server(session) and is_binary(id) do
    opts = Options.validate!(opts, :approve)
    call(session, {:decide, {:approved, id, nil}, opts}, :approve)
  end

  @doc """
  Denies an undecided call, see `AshAgent.Context.Calls.deny_tool_call/4`, and returns `:ok`. After `resume/2`, the model reads
  the denial with its reason.

  Returns the errors of `approve/3`.

  ## Options

  #{Options.docs(:deny)}

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
  def deny(session, id, reason \\ nil, opts \\ []) when is_server(session) and is_binary(id) do
    opts = Options.validate!(opts, :deny)
    call(session, {:decide, {:denied, id, reason}, opts}, :deny)
  end

  @doc """
  Answers a call of a tool that asks, see `AshAgent.Runtime.AskUser`, and returns `:ok` when the answer is stored as the call's result.
  `resume/2` goes on with it. A question that was asked with `late: true` goes on by itself, also while something runs.

  Returns the errors of `approve/3`, and `{:error, %AshAgent.Context.Error{}}` for a call that is no question, and for an answer that is not
  among the choices or does not fit the form, see `AshAgent.Context.Calls.answer_tool_call/4`.

  ## Options

  #{Options.docs(:answer)}

  ## Examples

      iex> alias AshAgent.{LLM, Runtime, Session}
      iex> question = %{"question" => "Which seat?", "choices" => ["window", "aisle"]}
      iex> llm = LLM.Scripted.new([%{tool_calls: [%{id: "call_1", name: "ask_user", arguments: question}]}, "Booked."])
      iex> {:ok, session} = Session.start_link(llm: llm, tools: [Runtime.AskUser.tool()])
      iex> {:paused, _paused} = Session.prompt(session, "Book a seat")
      iex> Session.answer(session, "call_1", "aisle", by: "ann")
      :ok
      iex> {:ok, result} = Session.resume(session)
      iex> result.output
      "Booked."
  """
  @doc since: "0.1.0"
  @spec answer(session(), String.t(), String.t() | map(), keyword()) ::
          :ok | {:error, :busy | Context.Error.t() | Error.t()}
  def answer(session, id, answer, opts \\ [])
      when is_server(session) and is_binary(id) and (is_binary(answer) or is_map(answer)) do
    opts = Options.validate!(opts, :answer)
    call(session, {:decide, {:answered, id, answer}, opts}, :answer)
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
  def context(session) when is_server(session), do: call(session, :context, :context)

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
  def snapshot(session) when is_server(session),
    do: session |> call(:snapshot, :snapshot) |> Subscribers.load_snapshot()

  @doc """
  Sends every change of the session to the calling process from now on, and returns `{:ok, ref, snapshot}` with the current state,
  or `{:error, :full}` beyond `:max_subscribers`.

  Changes are messages `{AshAgent.Session, ref, number, change}`, numbered without gaps from `snapshot.number + 1` on. A change is

    * `{:delta, events}` - more of the current answer, see `t:AshAgent.Response.event/0`
    * `{:context, context}` - a new context. It ends the current answer, whether the context contains it or not
    * `{:snapshot, binary}` - the same for a subscriber on another node, where a handle does not work; load it with
      `AshAgent.Context.load/1`
    * `{:event, name, measurements, metadata}` - a step of the run, as `AshAgent.Runtime.Events` lists them, without their first two
      names: `[:tool, :start]`, `[:tool, :progress]` and all others of tools, `[:llm, :retry]`, `[:llm, :waiting]`, `[:iteration, :pause]`,
      and `[:run, :stop]` for the end of a run, with its error and the messages that `cancel/1` dropped. The others have no texts; what went wrong is in `AshAgent.Context.Audit.failures/1`.
      With `:output`, `[:llm, :value]` has the typed answer as far as it came as its `value`, at most every 50 milliseconds, and
      `[:llm, :partial]` what each piece changed in it
    * `:behind` - the subscriber fell behind: it gets neither this change nor the following ones until it calls `snapshot/1`

  So show the snapshot's message followed by the deltas, and start over after each context. The messages go straight to the
  subscriber. `ref` monitors the session: when it ends, `{:DOWN, ref, :process, _, _}` arrives. The session forgets subscribers
  that end. A process that subscribes twice gets everything twice.

  A subscriber falls behind if more than `:limit` messages wait for it. The session looks at the subscriber's message queue after
  every `:limit` messages, so up to twice as many may wait. It cannot look at the queue of a process on another node: such a
  subscriber has to call `acknowledge/3` in time, or `snapshot/1` when it is told that it fell behind.

  ## Options

  #{Options.docs(:subscribe)}

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
  @spec subscribe(session(), keyword()) :: {:ok, reference(), snapshot()} | {:error, :full}
  def subscribe(session, opts \\ []) when is_server(session) do
    opts = Options.validate!(opts, :subscribe)
    server = GenServer.whereis(session) || exit({:noproc, {__MODULE__, :subscribe, [session]}})
    ref = Process.monitor(server)

    case call(server, {:subscribe, ref, opts[:limit]}, :subscribe) do
      {:error, :full} ->
        Process.demonitor(ref, [:flush])
        {:error, :full}

      snapshot ->
        {:ok, ref, Subscribers.load_snapshot(snapshot)}
    end
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
  def acknowledge(session, ref, number)
      when is_server(session) and is_reference(ref) and is_integer(number),
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
  def unsubscribe(session, ref) when is_server(session) and is_reference(ref) do
    Process.demonitor(ref, [:flush])
    :ok = call(session, {:unsubscribe, ref}, :unsubscribe)
    Subscribers.flush(__MODULE__, ref)
  end

  @doc """
  Cancels the running prompt and returns `:ok`: kills the processes of the model and the tools, keeps the answer as far as
  it came, and answers calls without a result: those that ran have the status `:unknown`, since nobody knows what became of them, and
  those that had not begun are `:cancelled`. If nothing runs, it does nothing.

  A paused session gives up the undecided calls, as cancelled. A turn that was parked is given up as well, and what waits behind it.

  The caller of the prompt gets an `AshAgent.Runtime.Error` with the reason `:cancelled`, and with what the run cost so far. Nothing else starts until somebody asks:
  messages that wait are dropped, in the store as well, the callers of their prompts get an error with the reason `:dropped`, and the end of the
  turn has them, see `AshAgent.Runtime.Events`. With `when_cancelled: :go_on`, the session continues with the next of them instead.
  Results that tools have returned stay.

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
  def cancel(session) when is_server(session), do: call(session, :cancel, :cancel)

  @doc """
  Pauses the running turn and returns `:ok`: what runs ends its step, the model's answer or the tools' results, and nothing else starts
  until somebody calls `resume/2` or `prompt/3`, which comes after what waits. `resume/2` takes back a pause that the turn has not reached yet, and
  `cancel/1` gives up the turn and what waits. If nothing runs, it does nothing.

  Whoever asked gets an `AshAgent.Runtime.Error` with the reason `:parked`, unless the step was the turn's last. With a store the
  conversation is `:parked`, wherever it is opened next.

  ## Examples

      iex> llm = AshAgent.LLM.Scripted.new([%{tool_calls: [%{name: "look"}]}, "Done."])
      iex> {:ok, session} = AshAgent.Session.start_link(llm: llm, tools: %{look: fn _, %{me: me} -> AshAgent.Session.pause(me) end})
      iex> {:error, error} = AshAgent.Session.prompt(session, "Look!", runtime_context: %{me: session})
      iex> error.reason
      :parked
      iex> {:ok, result} = AshAgent.Session.resume(session)
      iex> result.output
      "Done."
  """
  @doc since: "0.1.0"
  @spec pause(session()) :: :ok
  def pause(session) when is_server(session), do: call(session, :pause, :pause)

  @doc """
  Looks for late results in the store, and returns `:ok`. An idle session goes on with them, see `:max_wakes`; a turn that runs reads those of its
  own at its next step.

  `AshAgent.Sessions.arrive/5` does this. Call it after `AshAgent.Store.arrive/5` if you start sessions yourself; without it, a session
  that is idle looks after each third of its `:lease`.

  ## Examples

      iex> {:ok, session} = AshAgent.Session.start_link(llm: fn _ -> {:ok, %{}} end)
      iex> AshAgent.Session.take_arrivals(session)
      :ok
  """
  @doc since: "0.1.0"
  @spec take_arrivals(session()) :: :ok
  def take_arrivals(session) when is_server(session),
    do: call(session, :take_arrivals, :take_arrivals)

  @doc """
  Goes back to the end of an iteration, as `AshAgent.Context.rewind/2`, and returns `:ok` when that is stored. The number before the first iteration
  is the conversation before anything was said: only its system prompt is left.

  Returns `{:error, :busy}` while something runs or waits, `{:error, :paused}` while calls wait for decisions, and
  `{:error, %AshAgent.Context.Error{}}` for an iteration that is not there.

  ## Examples

      iex> {:ok, session} = AshAgent.Session.start_link(llm: fn _ -> {:ok, %{content: "Hello!"}} end, system_prompt: "Be brief.")
      iex> {:ok, _result} = AshAgent.Session.prompt(session, "Hi")
      iex> AshAgent.Session.rewind(session, 0)
      :ok
      iex> session |> AshAgent.Session.context() |> AshAgent.Context.to_messages()
      [%{role: :system, content: "Be brief."}]
  """
  @doc since: "0.1.0"
  @spec rewind(session(), integer()) ::
          :ok | {:error, :busy | :paused | Context.Error.t() | Error.t()}
  def rewind(session, number) when is_server(session) and is_integer(number),
    do: call(session, {:rewind, number}, :rewind)

  @doc """
  Switches to another model from the next prompt on, with the same history. Returns `:ok`.

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
  def put_llm(session, llm) when is_server(session),
    do: call(session, {:put_llm, LLM.new(llm)}, :put_llm)

  # A call may have to wait for a slow :on_change.
  defp call(session, message, function, timeout \\ :infinity),
    do: session |> Sealed.call(message, {__MODULE__, function}, timeout) |> Border.unpack()

  defp run_async(session, job, function) do
    run = fn -> call(session, {:run_async, self(), job}, function) end
    if Border.remote?(session), do: Border.relay(session, __MODULE__, run), else: run.()
  end

  defp prepare_prompt(opts) do
    {key, opts} = Keyword.pop(opts, :key)
    opts = if key, do: Keyword.put(opts, :metadata, put_key(opts[:metadata], key)), else: opts
    put_caller(opts)
  end

  # The key stays with the message wherever that is: in memory, in the store, on another node.
  defp put_key(metadata, nil), do: metadata
  defp put_key(metadata, key), do: Map.put(metadata || %{}, :idempotency_key, key)

  # A prompt may wait, and still belongs to the trace of the process that asked.
  defp put_caller(opts), do: Keyword.put(opts, :caller, Caller.current())
end
