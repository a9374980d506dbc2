defmodule AshAgent.Session do
  @moduledoc """
  One conversation as a process: it takes prompts, runs the agent loop beside itself, and always knows the context.

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

  `:on_change` gets every new context: after a prompt, an answer, the result of a tool, a cancellation. During a run it
  is called by the run's process before the next step begins, so that what a step builds on is stored; otherwise by the
  session. When it returns `{:error, reason}`, the run ends with `{:on_change_error, reason}`, and a decision is not made. A
  session that is started with what was stored, as `:context`, goes on there. Given a function, it is asked at every start,
  also when a supervisor restarts the session.

  When the stored context has calls without results, because the session died while tools ran, `resume/2` executes them
  (again) and goes on with the loop; a new prompt tells the model that they were interrupted.

  ## Approval

  With `:approval`, a run may end with `{:paused, %AshAgent.Runtime.Paused{}}`. The session is paused then: `status/1` lists
  the calls that wait, `approve/3` and `deny/4` note decisions, and `resume/2` goes on. `cancel/1` gives up those calls and
  ends the turn. Until then a new prompt is refused with `{:error, :paused}`, and prompts that waited already go on waiting.
  A session with an approval function is also paused when it starts with a context in which calls wait.

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

  Model and tools run in processes of their own; whatever they do, the session goes on, and the caller of `prompt/3` gets
  `{:error, %AshAgent.Runtime.Error{}}`. When the session itself ends, all that it runs is killed, and so are the prompts
  that waited: callers of `prompt/3` exit. After `prompt_async/3` nothing comes any more, so monitor the session.

  Neither messages nor prompts, keys or runtime contexts are shown when a session, one of its processes or one of its
  callers crashes, or when it is inspected with `:sys.get_status/1`. A crash says which kind of failure it was, and where.
  What tools, models and hooks log, and processes that they start, is theirs.

  Messages that are none of a session's change nothing. A call gets `{:error, :unknown_call}`, and `:sys.get_status/1` says
  how many were `ignored`.
  """

  use GenServer

  alias AshAgent.{Context, LLM, Runtime}
  alias AshAgent.Runtime.{Error, Events, Options, Paused, Result, Sealed, Tool, ToolExecutor}

  @runtime_options [
    :tools,
    :max_iterations,
    :runtime_context,
    :timeout,
    :llm_timeout,
    :tool_timeout,
    :max_concurrency,
    :max_calls,
    :max_total_tokens,
    :max_sub_agents,
    :on_event,
    :allowed_tools,
    :permission_rules,
    :before_tool,
    :after_tool,
    :approval
  ]
  @own_options [
    :llm,
    :context,
    :system_prompt,
    :on_change,
    :name,
    :id,
    when_busy: :queue,
    max_queue: 100,
    hibernate_after: :infinity
  ]

  @type session :: GenServer.server()
  @type input :: binary() | [Context.part()] | map()

  @doc """
  Starts a session.

  ## Options

    * `:llm` - the model, see `t:AshAgent.LLM.t/0`. Required.
    * `:context` - what to begin with: a context, what `AshAgent.Context.to_map/1`, `dump/1` or `to_snapshot/1` gave, or a function that
      returns one of these or `nil`. Defaults to an empty conversation.
    * `:system_prompt` - for an empty conversation. Defaults to none.
    * `:on_change` - a function that gets every new context. When it returns `{:error, reason}`, the run ends; when it fails
      in another way, that is logged and the session goes on. Defaults to none.
    * `:when_busy` - `:queue`, so that prompts wait for their turn, or `:error`, so that they get `{:error, :busy}`.
      Defaults to `:queue`.
    * `:max_queue` - how many prompts may wait; more get `{:error, :busy}`. Defaults to `100`.
    * `:hibernate_after` - milliseconds without a message, also in the middle of a run, after which the session's memory is
      compacted until the next one. Worth it for many sessions that mostly wait. Defaults to `:infinity`, never.
    * `:name` - a name to register, as `GenServer` has it. Defaults to none.
    * `:tools`, `:max_iterations`, `:max_calls`, `:max_total_tokens`, `:max_sub_agents`, `:runtime_context`, `:timeout`,
      `:llm_timeout`, `:tool_timeout`, `:max_concurrency`, `:on_event`, `:allowed_tools`, `:permission_rules`, `:before_tool`,
      `:after_tool`, `:approval` - as in `AshAgent.Runtime.run/2`, for each prompt.

  Raises `ArgumentError` for unknown and wrong options. Returns `{:error, reason}` when `:context` is no context.

  ## Examples

      iex> AshAgent.Session.start_link(llm: fn _ -> {:ok, %{}} end, when_busy: :panic)
      ** (ArgumentError) expected :when_busy to be :queue or :error, got: :panic
  """
  @doc since: "0.1.0"
  @spec start_link(keyword()) :: GenServer.on_start()
  def start_link(opts) when is_list(opts) do
    opts = options(opts)
    GenServer.start_link(__MODULE__, opts, Keyword.take(opts, [:name, :hibernate_after]))
  end

  @doc false
  def start_sealed(opts) when is_function(opts, 0), do: start_link(opts.())

  @doc """
  Returns a specification for a supervisor, with the options of `start_link/1` and `:id`.

  The id defaults to the name, or to this module. A session is restarted when it crashed (`:transient`), and then starts
  with `:context` as it was given: give a function that reads what `:on_change` has stored.

  ## Examples

      iex> AshAgent.Session.child_spec(llm: fn _ -> {:ok, %{}} end, id: :ada).id
      :ada
  """
  @doc since: "0.1.0"
  @spec child_spec(keyword()) :: Supervisor.child_spec()
  def child_spec(opts) when is_list(opts) do
    # Supervisors print specifications, and options have keys, prompts, and who acts. Wrong models are told of at once.
    opts = if opts[:llm], do: Keyword.update!(opts, :llm, &LLM.new/1), else: opts

    %{
      id: opts[:id] || opts[:name] || __MODULE__,
      start: {__MODULE__, :start_sealed, [fn -> opts end]},
      restart: :transient
    }
  end

  @doc """
  Adds a user message, runs the loop and returns `{:ok, %AshAgent.Runtime.Result{}}` with the answer as `output`.

  Returns `{:paused, %AshAgent.Runtime.Paused{}}` when calls wait for a decision, `{:error, %AshAgent.Runtime.Error{}}` when the
  run failed, `{:error, %AshAgent.Context.Error{}}` when the input is none, and `{:error, :busy}` or `{:error, :paused}` when
  the session is. Calls without results from an earlier life of the session are
  interrupted first.

  ## Options

    * `:metadata` - a map kept with the message. Defaults to none.
    * `:runtime_context` - for this prompt, instead of the session's. Defaults to the session's.
    * `:await` - milliseconds to wait for the answer, after which the caller exits and the run goes on. Defaults to
      `:infinity`.

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
          | {:error, Error.t() | Context.Error.t() | :busy | :paused}
  def prompt(session, input, opts \\ [])
      when is_binary(input) or is_list(input) or is_map(input) do
    {await, opts} = opts |> prompt_options([:await]) |> Keyword.pop(:await, :infinity)
    call(session, {:run, {:prompt, input, opts}}, :prompt, await)
  end

  @doc """
  Like `prompt/3`, but returns `{:ok, ref}` at once and sends what happens to the caller.

  Messages are `{AshAgent.Session, ref, {:context, context}}` for every new context, and at last
  `{AshAgent.Session, ref, reply}` with what `prompt/3` returns. Returns `{:error, :busy}` or `{:error, :paused}` when the
  session is. Takes `:metadata` and `:runtime_context` as `prompt/3` does.

  A session that ends sends nothing more. To hear of that, monitor it:

      monitor = session |> GenServer.whereis() |> Process.monitor()
      {:ok, ref} = AshAgent.Session.prompt_async(session, "Hi")

      receive do
        {AshAgent.Session, ^ref, {:ok, result}} -> result.output
        {:DOWN, ^monitor, :process, _pid, _reason} -> "The assistant is not there."
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
          {:ok, reference()} | {:error, :busy | :paused}
  def prompt_async(session, input, opts \\ [])
      when is_binary(input) or is_list(input) or is_map(input) do
    call(session, {:run_async, self(), {:prompt, input, prompt_options(opts, [])}}, :prompt_async)
  end

  @doc """
  Goes on without a new message: executes calls that wait for a result, asks about those that need a decision, asks the model when it has not answered, and
  returns what `prompt/3` returns.

  For conversations that were cut short, see the section on restarting. A conversation that ends with an answer gives
  that. Takes `:runtime_context` and `:await` as `prompt/3` does.

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
    {await, opts} =
      opts |> Options.validate!([:await, :runtime_context]) |> Keyword.pop(:await, :infinity)

    call(session, {:run, {:resume, opts}}, :resume, await)
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
    opts = Options.validate!(opts, [:runtime_context])
    call(session, {:run_async, self(), {:resume, opts}}, :resume_async)
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
  Approves a call that waits for a decision, see `AshAgent.Context.approve_tool_call/3`, and returns `:ok` once `:on_change`
  has kept it, however long that takes. `resume/2` executes it.

  Returns `{:error, :busy}` while the loop runs, `{:error, %AshAgent.Context.Error{}}` when no such call waits or it is
  approved already, and `{:error, %AshAgent.Runtime.Error{}}` with `{:on_change_error, reason}` when it could not be kept;
  then nothing is decided. Takes the options `:by`, who decides, and `:arguments`, what was shown to them.

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
    opts = Options.validate!(opts, [:by, :arguments])

    unless is_nil(opts[:arguments]) or is_map(opts[:arguments]),
      do: raise(ArgumentError, "expected :arguments to be a map")

    call(session, {:decide, {:approved, id}, opts}, :approve)
  end

  @doc """
  Denies a call that waits for a decision, see `AshAgent.Context.deny_tool_call/4`, and returns `:ok`. After `resume/2` the
  model reads that, with the reason.

  Returns errors as `approve/3` does, and takes its option `:by`.

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
    opts = Options.validate!(opts, [:by])
    call(session, {:decide, {:denied, id, reason}, opts}, :deny)
  end

  @doc """
  Returns the context as it is now, also while the loop runs.

  ## Examples

      iex> {:ok, session} = AshAgent.Session.start_link(llm: fn _ -> {:ok, %{}} end, system_prompt: "Be brief.")
      iex> session |> AshAgent.Session.context() |> AshAgent.Context.to_messages()
      [%{role: :system, content: "Be brief."}]
  """
  @doc since: "0.1.0"
  @spec context(session()) :: Context.t()
  def context(session), do: call(session, :context, :context)

  @doc """
  Ends the prompt that runs: kills the model's and the tools' processes, answers calls without a result with an error
  that says so, and returns `:ok`. When nothing runs, nothing happens.

  A paused session gives up the calls that wait, as cancelled, and goes on with the prompts that waited.

  Its caller gets an `AshAgent.Runtime.Error` with the reason `:cancelled`. The conversation goes on with the next prompt,
  one that waits already included. Results that tools gave before stay.

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
  Takes another model from the next prompt on; the history stays. Returns `:ok`.

  Raises `ArgumentError` for what is no model.

  ## Examples

      iex> {:ok, session} = AshAgent.Session.start_link(llm: fn _ -> {:ok, %{content: "one"}} end)
      iex> AshAgent.Session.put_llm(session, fn _ -> {:ok, %{content: "two"}} end)
      iex> {:ok, result} = AshAgent.Session.prompt(session, "Which?")
      iex> result.output
      "two"
  """
  @doc since: "0.1.0"
  @spec put_llm(session(), LLM.t()) :: :ok
  # Made ready here, so that the session never sees a bare key.
  def put_llm(session, llm), do: call(session, {:put_llm, LLM.new(llm)}, :put_llm)

  # Whatever waits for its turn may have to wait for a slow :on_change.
  defp call(session, message, function, timeout \\ :infinity),
    do: Sealed.call(session, message, {__MODULE__, function}, timeout)

  ## Options, in the caller's process

  defp options(opts) do
    opts = Options.validate!(opts, @own_options ++ @runtime_options)

    unless opts[:when_busy] in [:queue, :error],
      do:
        raise(
          ArgumentError,
          "expected :when_busy to be :queue or :error, got: #{inspect(opts[:when_busy])}"
        )

    unless is_integer(opts[:max_queue]) and opts[:max_queue] >= 0,
      do:
        raise(
          ArgumentError,
          "expected :max_queue to be 0 or more, got: #{inspect(opts[:max_queue])}"
        )

    ToolExecutor.timeout!(opts[:hibernate_after], :hibernate_after)

    unless is_nil(opts[:system_prompt]) or is_binary(opts[:system_prompt]) or
             is_list(opts[:system_prompt]),
           do: raise(ArgumentError, "expected :system_prompt to be text or text parts")

    runtime = opts |> Keyword.take([:llm, :on_change | @runtime_options]) |> Runtime.options()

    opts
    |> Keyword.drop(@runtime_options)
    |> Keyword.merge(llm: runtime[:llm], runtime: Keyword.take(runtime, @runtime_options))
  end

  defp prompt_options(opts, more) do
    opts = Options.validate!(opts, [:metadata, :runtime_context | more])

    for key <- [:metadata, :runtime_context],
        opts[key] != nil and not is_map(opts[key]),
        do: raise(ArgumentError, "expected #{inspect(key)} to be a map")

    opts
  end

  ## The process

  # Each callback is sealed: what fails in it tells nothing of what is in it.

  @impl true
  def init(opts), do: Sealed.run(fn -> begun(opts) end)

  @impl true
  def handle_call(request, from, state), do: Sealed.run(fn -> called(request, from, state) end)

  @impl true
  def handle_cast(_request, state), do: Sealed.run(fn -> {:noreply, ignored(state)} end)

  @impl true
  def handle_info(message, state), do: Sealed.run(fn -> {:noreply, told(message, state)} end)

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

  defp shown(%{context: %Context{}, ignored: _} = state) do
    state
    |> Map.take([:context, :when_busy, :max_queue, :ignored])
    |> Map.merge(%{running: state.run != nil, paused: state.paused?, queued: queued(state.queue)})
  end

  defp shown(_broken), do: :not_shown

  defp queued(queue), do: if(:queue.is_queue(queue), do: :queue.len(queue), else: :not_shown)

  defp begun(opts) do
    case initial(opts[:context], opts[:system_prompt]) do
      {:ok, context} ->
        {:ok, supervisor} = Task.Supervisor.start_link()

        {:ok,
         %{
           context: context,
           llm: opts[:llm],
           runtime: opts[:runtime],
           on_change: opts[:on_change],
           when_busy: opts[:when_busy],
           max_queue: opts[:max_queue],
           supervisor: supervisor,
           queue: :queue.new(),
           run: nil,
           paused?: waits?(context, opts[:runtime][:approval]),
           ignored: 0
         }}

      {:error, reason} ->
        {:stop, reason}
    end
  end

  # Of calls that wait, only a session that asks for decisions knows that they may wait for one.
  defp waits?(context, approval),
    do: is_function(approval) and Context.pending_tool_calls(context) != []

  defp initial(function, system_prompt) when is_function(function, 0),
    do: initial(function.(), system_prompt)

  defp initial(%Context{} = context, _system_prompt), do: {:ok, context}
  defp initial(nil, nil), do: Context.create(%{})

  defp initial(nil, system_prompt),
    do:
      Context.create(%{
        iterations: [%{number: 1, messages: [%{role: :system, content: system_prompt}]}]
      })

  defp initial({:ok, context}, system_prompt), do: initial(context, system_prompt)
  defp initial(:error, _system_prompt), do: {:error, :no_context}
  defp initial({:error, reason}, _system_prompt), do: {:error, reason}

  defp initial(text, system_prompt) when is_binary(text),
    do: Context |> apply(:from_snapshot, [text]) |> initial(system_prompt)

  # What dump/1 gives is versioned, what to_map/1 gives is not.
  defp initial(%{"version" => _} = dump, _system_prompt), do: apply(Context, :load, [dump])
  defp initial(%{} = attributes, _system_prompt), do: Context.create(attributes)
  defp initial(_other, _system_prompt), do: {:error, :no_context}

  defguardp is_input(input) when is_binary(input) or is_list(input) or is_map(input)

  defp called({:run, job}, from, state), do: accept(job, {:call, from}, state)

  defp called({:run_async, pid, job}, from, state) when is_pid(pid),
    do: accept(job, {:async, pid, make_ref(), from}, state)

  defp called(:context, _from, state), do: {:reply, state.context, state}
  defp called(:status, _from, state), do: {:reply, status_of(state), state}

  defp called({:decide, {:approved, id} = decision, opts}, _from, state)
       when is_binary(id) and is_list(opts),
       do: decide(decision, opts, state)

  defp called({:decide, {:denied, id, _reason} = decision, opts}, _from, state)
       when is_binary(id) and is_list(opts),
       do: decide(decision, opts, state)

  defp called({:put_llm, llm}, _from, state), do: {:reply, :ok, %{state | llm: llm}}

  defp called(:cancel, _from, %{run: nil, paused?: true} = state) do
    context = Context.interrupt(state.context, "cancelled by the user", status: :cancelled)
    {:reply, :ok, state |> changed(context) |> next()}
  end

  defp called(:cancel, _from, %{run: nil} = state), do: {:reply, :ok, state}

  defp called(:cancel, _from, %{run: run} = state) do
    # Contexts that it sent before it was killed are in the mailbox by then.
    reply = Task.shutdown(run.task, :brutal_kill)
    state = state |> end_tasks() |> drain(run.token)

    case reply do
      # The turn is to be over, and not to wait.
      {:ok, {:paused, %{context: context}}} ->
        {:reply, :ok, cancelled(%{state | context: context})}

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

  defp told({ref, reply}, %{run: %{task: %{ref: ref}} = run} = state) do
    Process.demonitor(ref, [:flush])
    state |> drain(run.token) |> finish(reply)
  end

  defp told(
         {:DOWN, ref, :process, _pid, reason},
         %{run: %{task: %{ref: ref}} = run} = state
       ) do
    state = state |> end_tasks() |> drain(run.token)
    interrupted(state, "interrupted", {:exit, reason})
  end

  # Whatever it is, late messages of runs that were cancelled too.
  defp told(_other, state), do: ignored(state)

  defp accept({:prompt, input, opts} = job, client, state)
       when is_input(input) and is_list(opts) do
    if state.run == nil and state.paused?,
      do: {:reply, {:error, :paused}, state},
      else: take(job, client, state)
  end

  defp accept({:resume, opts} = job, client, state) when is_list(opts),
    do: take(job, client, state)

  defp accept(_job, _client, state), do: unknown_call(state)

  defp take(job, client, %{run: nil} = state),
    do: {:noreply, start(state, job, accepted(client))}

  defp take(job, client, state) do
    if state.when_busy == :error or :queue.len(state.queue) >= state.max_queue,
      do: {:reply, {:error, :busy}, state},
      else: {:noreply, %{state | queue: :queue.in({job, accepted(client)}, state.queue)}}
  end

  defp accepted({:call, from}), do: {:call, from}

  defp accepted({:async, pid, ref, from}) do
    GenServer.reply(from, {:ok, ref})
    {:async, pid, ref}
  end

  defp start(state, job, client) do
    case begin(state.context, job) do
      {:ok, context, own} ->
        session = self()
        token = make_ref()
        store = state.on_change

        tell = fn context ->
          send(session, {:context, token, context})
          if store, do: store.(context)
        end

        opts =
          state.runtime
          |> Keyword.merge(own)
          |> Keyword.merge(llm: state.llm, supervisor: state.supervisor, on_change: tell)

        new? = context != state.context

        task =
          Task.Supervisor.async_nolink(
            state.supervisor,
            fn -> Sealed.run(fn -> run(context, new?, opts) end) end,
            shutdown: :brutal_kill
          )

        run = %{task: task, token: token, client: client}
        %{state | context: context, run: run, paused?: false}

      {:error, error} ->
        reply(client, {:error, error})
        next(state)
    end
  end

  # In the task.
  defp run(context, new?, opts) do
    with true <- new?, {:error, reason} <- Events.store(opts[:on_change], context) do
      {:error, %Error{reason: reason, context: context}}
    else
      _stored -> Runtime.run(context, opts)
    end
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

  defp given(opts), do: for({:runtime_context, %{} = map} <- opts, do: {:runtime_context, map})

  defp see(state, run, context) do
    tell(run.client, context)
    %{state | context: context}
  end

  # Takes the contexts that a run which is over has left in the mailbox.
  defp drain(%{run: run} = state, token) do
    receive do
      {:context, ^token, context} -> state |> see(run, context) |> drain(token)
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

  # What waits goes on waiting: the turn is not over.
  defp finish(%{run: run} = state, {:paused, %Paused{context: context}} = reply) do
    reply(run.client, reply)
    %{state | context: context, run: nil, paused?: true}
  end

  defp finish(%{run: run} = state, {_, %{context: context}} = reply) do
    reply(run.client, reply)
    next(%{state | context: context, run: nil})
  end

  defp cancelled(state),
    do: interrupted(state, "cancelled by the user", :cancelled, status: :cancelled)

  defp interrupted(%{run: run} = state, words, reason, opts \\ []) do
    before = state.context
    state = changed(state, Context.interrupt(before, words, opts))
    if state.context != before, do: tell(run.client, state.context)
    reply(run.client, {:error, %Error{reason: reason, context: state.context}})
    next(state)
  end

  # What the session itself changes when a run has ended is not given up because it could not be kept.
  defp changed(state, context) do
    with {:error, {:on_change_error, reason}} <- Events.store(state.on_change, context),
         do: Events.log(:error, reason, [], ":on_change")

    %{state | context: context}
  end

  defp next(state) do
    case :queue.out(state.queue) do
      {{:value, {job, client}}, queue} -> start(%{state | queue: queue, run: nil}, job, client)
      {:empty, _} -> %{state | run: nil, paused?: false}
    end
  end

  defp status_of(%{run: %{}}), do: :running
  defp status_of(%{paused?: false}), do: :idle
  defp status_of(%{context: context}), do: {:paused, Context.undecided_tool_calls(context)}

  defp decide(_decision, _opts, %{run: %{}} = state), do: {:reply, {:error, :busy}, state}

  defp decide(decision, opts, state) do
    started = System.monotonic_time()

    with {:ok, context} <- decided(state.context, decision, opts),
         :ok <- Events.store(state.on_change, context) do
      emit_decision(state, decision, started)
      {:reply, :ok, %{state | context: context}}
    else
      {:error, {:on_change_error, _} = reason} ->
        {:reply, {:error, %Error{reason: reason, context: state.context}}, state}

      {:error, error} ->
        {:reply, {:error, error}, state}
    end
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

  defp tell({:async, pid, ref}, context), do: send(pid, {__MODULE__, ref, {:context, context}})
  defp tell({:call, _from}, _context), do: :ok

  defp reply({:async, pid, ref}, reply), do: send(pid, {__MODULE__, ref, reply})
  defp reply({:call, from}, reply), do: GenServer.reply(from, reply)
end
