defmodule AshAgent.Runtime.ToolExecutor do
  @moduledoc """
  Executes tool calls concurrently, each in its own process, and returns a result for every call, whatever happens.

      iex> tools = %{
      ...>   "add" => fn %{"a" => a, "b" => b} -> {:ok, a + b} end,
      ...>   whoami: fn _arguments, %{actor: actor} -> {:ok, actor} end
      ...> }
      iex> calls = [
      ...>   %{id: "1", name: "add", arguments: %{"a" => 1, "b" => 2}},
      ...>   %{id: "2", name: "whoami", arguments: %{}},
      ...>   %{id: "3", name: "fly", arguments: %{}}
      ...> ]
      iex> AshAgent.Runtime.ToolExecutor.execute_tools(calls, tools, %{actor: "Ada"})
      [
        %{id: "1", result: {:ok, 3}},
        %{id: "2", result: {:ok, "Ada"}},
        %{id: "3", result: {:error, "unknown tool \\"fly\\"; available tools: add, whoami"}}
      ]

  Definitions are described in `AshAgent.Runtime.Tool`. A tool returns `{:ok, term}`, `{:error, reason}`, or `{:halt,
  term}`, which ends the loop of `AshAgent.Runtime` and counts as `{:ok, term}` here. Any other term counts as `{:ok,
  term}`.

  ## Failures

  The result is `{:error, words}`, with words for the model, if the tool is unknown, if the arguments are not a JSON
  object or do not fit the tool's schema, see `AshAgent.Runtime.Tool`, and if the tool raises, throws, exits or times out. In a run,
  the result of a call that timed out says that nobody knows its outcome. Calls are
  matched to tools by the text of the name; a name that a model wrote never becomes an atom.

  ## The tool context

  Tools with two arguments get the runtime context. It always has `:agent`, `:domain`, `:actor` and `:tenant`, which are
  `nil` if not given. Nothing of it is stored. In a run with a store it also has an `:idempotency_key`, which is the
  same each time that this call runs, and another one for every other call, see `AshAgent.Store.call_key/3`.

  ## Processes

  When the caller ends, for whatever reason, its tools are killed, unless they run under a supervisor that you give. The
  `$callers` of a tool's process include the caller. If `:opentelemetry_api` is available, a tool's process continues the
  caller's trace.
  """

  alias AshAgent.{Deadline, Options}

  alias AshAgent.Runtime.{
    Bounds,
    Events,
    Keeper,
    Outcome,
    Progress,
    Tool,
    ToolArguments,
    Underway
  }

  alias AshAgent.Trace.Caller

  @schema Options.schema([
            {:timeout, :milliseconds, [default: 60_000], "the time that each call may take."},
            {:max_concurrency, :pos_integer, [default: 8], "how many calls may run at a time."},
            {:check_arguments, :boolean, [default: true],
             "whether arguments are checked against the schemas of the tools."},
            {:exception_messages, :boolean, [default: false],
             "whether results have the messages of exceptions, and not their modules alone."},
            {:on_event, {:or, [{:fun, 1}, {:fun, 3}, nil]},
             [type_doc: "a function of arity 1 or 3"],
             "see `AshAgent.Runtime.Events`. Defaults to no function."},
            {:supervisor, :any, [type_doc: "a `Task.Supervisor`"],
             "runs the tools, which then do not end with the caller. By default they do."}
          ])

  @type call :: %{
          required(:id) => String.t(),
          required(:name) => atom() | String.t(),
          optional(atom()) => term()
        }
  @type result :: %{id: String.t(), result: {:ok, term()} | {:error, term()}}

  @doc """
  Executes tool calls and returns their results, in the order of the calls.

  ## Options

  #{Options.docs(@schema)}

  Raises `ArgumentError` for tools that are not definitions.

  ## Examples

      iex> slow = fn _ -> Process.sleep(:infinity) end
      iex> AshAgent.Runtime.ToolExecutor.execute_tools([%{id: "1", name: :slow, arguments: %{}}], %{slow: slow}, %{}, timeout: 10)
      [%{id: "1", result: {:error, "timed out after 10 ms"}}]
  """
  @doc since: "0.1.0"
  @spec execute_tools([call()], Tool.definitions(), map(), keyword()) :: [result()]
  def execute_tools(tool_calls, tool_definitions, runtime_context, opts \\ [])
      when is_list(tool_calls) and is_map(runtime_context) do
    opts = Options.validate!(opts, @schema)

    settings =
      opts
      |> Keyword.take([:timeout, :max_concurrency, :exception_messages])
      |> Enum.into(%{
        tools: tool_definitions |> Tool.new() |> by_name(opts[:check_arguments]),
        tool_context: tool_context(runtime_context),
        deadline: :infinity,
        events: Events.new(opts),
        scope: Map.merge(Bounds.outermost(), %{context_id: nil, inherited: []})
      })

    indexed = Enum.with_index(tool_calls)

    {:done, results} =
      with_supervisor(opts[:supervisor], fn supervisor ->
        settings = Map.put(settings, :supervisor, supervisor)

        execute(indexed, settings, %{}, fn {_call, index}, outcome, _duration, results ->
          Map.put(results, index, Outcome.result(outcome))
        end)
      end)

    for {call, index} <- indexed,
        do: %{id: Tool.field(call, :id), result: Map.fetch!(results, index)}
  end

  @doc false
  # Calls of a tool without its schema need no more than the required arguments.
  def by_name(tools, check?),
    do: Map.new(tools, &{&1.name, if(check?, do: &1, else: %{&1 | schema: nil})})

  @doc false
  def tool_context(runtime_context),
    do: Map.merge(%{agent: nil, domain: nil, actor: nil, tenant: nil}, runtime_context)

  @doc false
  # Gives `fun` what starts the tasks and ends them: a Task.Supervisor of the caller's, or a keeper that ends with this process.
  def with_supervisor(nil, fun), do: Keeper.with_keeper(fun)
  def with_supervisor(supervisor, fun), do: fun.(supervisor)

  # Milliseconds that a result waits for others, to be written with them.
  @pause 5

  defmodule State do
    @moduledoc false
    # `waiting` are the calls that have not started, with their keys, and `running` are the others by the references of their
    # tasks. `acc` is the last result of `fun`. `write_at` is the time at which results are written while others run,
    # `:infinity` without any, and `pause` the milliseconds that the first of them waits for more.
    @enforce_keys [:waiting, :settings, :fun, :acc]
    defstruct [:waiting, :settings, :fun, :acc, :pause, running: %{}, write_at: :infinity]
  end

  @doc false
  # Runs calls, given as `{call, key}`, and folds their `AshAgent.Runtime.Outcome`s as they come. `fun` gets the call with
  # its key, the outcome, how long the call took, in native units, and the accumulator. `settings.keys`, when given, has
  # the idempotency keys by the calls' ids.
  #
  # While calls run, `settings.write`, when given, gets the accumulator with the outcomes that have come, and returns it: a few
  # milliseconds after the first of them, so that those that come together are one write.
  #
  # `settings.checked?`, when given, tells by the key whether the arguments of a call were checked before.
  #
  # Returns `{:done, acc}`, or `{:timeout, acc}` when the deadline has passed or when `settings.over?`, when given, returns
  # true for the accumulator; nothing runs any more then.
  def execute(calls, settings, acc, fun) do
    defaults = %{over?: fn _acc -> false end, checked?: fn _key -> false end, write: nil}
    settings = Map.merge(defaults, settings)
    run(%State{waiting: calls, settings: settings, fun: fun, acc: acc, pause: @pause})
  end

  defp run(%State{settings: settings} = state) do
    if settings.over?.(state.acc), do: stop(state), else: start_or_await(state)
  end

  defp start_or_await(%{waiting: [next | waiting], running: running, settings: settings} = state)
       when map_size(running) < settings.max_concurrency do
    if Deadline.left(settings.deadline) == 0,
      do: stop(state),
      else: %{state | waiting: waiting} |> start(next) |> run()
  end

  defp start_or_await(%{waiting: [], running: running} = state) when map_size(running) == 0,
    do: {:done, state.acc}

  defp start_or_await(%{running: running, settings: settings} = state) do
    receive do
      {ref, reply} when is_map_key(running, ref) ->
        Process.demonitor(ref, [:flush])
        state |> finish_call(ref, reply) |> run()

      {:DOWN, ref, :process, _pid, reason} when is_map_key(running, ref) ->
        state |> finish_call(ref, {:raised, :exit, reason, []}) |> run()

      {channel, :tool_progress, measured} when is_reference(channel) ->
        emit_progress(running, channel, measured, settings)
        run(state)
    after
      running |> next_deadline(min(settings.deadline, state.write_at)) |> Deadline.left() ->
        if Deadline.left(state.write_at) == 0,
          do: state |> write() |> run(),
          else: kill_late(state)
    end
  end

  # One that takes long is not begun again at once: each writes all results of the iteration.
  defp write(%{settings: settings} = state) do
    started = Deadline.now()
    acc = settings.write.(state.acc)
    pause = max(@pause, Deadline.now() - started)
    %{state | acc: acc, write_at: :infinity, pause: pause}
  end

  defp emit_progress(running, channel, measured, settings) do
    for {_ref, %{channel: ^channel} = entry} <- running,
        do: Events.emit(settings.events, [:tool, :progress], measured, entry.metadata)
  end

  # `:infinity` is greater than every number.
  defp next_deadline(running, deadline),
    do: :maps.fold(fn _ref, entry, next -> min(entry.deadline, next) end, deadline, running)

  defp kill_late(%{running: running, settings: settings} = state) do
    if Deadline.left(settings.deadline) == 0 do
      stop(state)
    else
      late = for {ref, %{deadline: deadline}} <- running, Deadline.left(deadline) == 0, do: ref

      late
      |> Enum.reduce(state, &finish_call(&2, &1, shut_down(running[&1])))
      |> run()
    end
  end

  # The run is over: results that have arrived count, the other calls are killed.
  defp stop(%{running: running, settings: settings} = state) do
    {kind, reason} =
      if Deadline.left(settings.deadline) == 0, do: {:timeout, :timeout}, else: {:exit, :killed}

    state =
      Enum.reduce(running, state, fn {ref, entry}, state ->
        case shut_down(entry) do
          {:timed_out, _timeout} ->
            Progress.close(entry.channel)
            emit_exception(entry, settings, kind, reason, [])
            state

          reply ->
            finish_call(state, ref, reply)
        end
      end)

    {:timeout, state.acc}
  end

  defp shut_down(%{task: task, timeout: timeout}) do
    case Task.shutdown(task, :brutal_kill) do
      {:ok, reply} -> reply
      {:exit, reason} -> {:raised, :exit, reason, []}
      nil -> {:timed_out, timeout}
    end
  end

  defp finish_call(state, ref, reply) do
    {entry, running} = Map.pop!(state.running, ref)
    Progress.close(entry.channel)
    outcome = outcome(reply, entry, state.settings)
    fold(%{state | running: running}, entry, outcome, Events.since(entry.started))
  end

  defp fold(state, entry, outcome, duration) do
    acc = state.fun.(entry.keyed, outcome, duration, state.acc)
    %{state | acc: acc, write_at: next_write(state)}
  end

  defp next_write(%{settings: %{write: nil}}), do: :infinity
  defp next_write(%{write_at: :infinity, pause: pause}), do: Deadline.new(pause)
  defp next_write(%{write_at: write_at}), do: write_at

  ## One call

  defp start(%{settings: settings} = state, {call, key} = keyed) do
    id = Tool.field(call, :id)
    metadata = %{tool: Tool.name(Tool.field(call, :name)), tool_call_id: id}
    size = Events.bytes(Tool.field(call, :arguments))
    started = Events.put_system_time(%{arguments_bytes: size})
    checked = check(settings, call, key)
    repairs = with({:ok, _tool, _arguments, repairs} <- checked, do: repairs, else: (_ -> %{}))
    agent = if match?({:ok, %{agent?: true}, _, _}, checked), do: %{sub_agent: true}, else: %{}
    told = metadata |> Map.merge(repairs) |> Map.merge(agent)
    Events.emit(settings.events, [:tool, :start], started, told)
    entry = %{keyed: keyed, started: System.monotonic_time(), metadata: metadata}

    case checked do
      {:ok, tool, arguments, _repairs} ->
        timeout = tool.timeout || settings.timeout
        {channel, scope} = open_scope(tool, settings, timeout, id)
        Underway.put_call(settings.scope, id)
        function = Tool.function(tool, arguments, tool_context(settings, id, tool), scope)
        task = Caller.task(settings.supervisor, fn -> call_guarded(function) end)
        deadline = Deadline.new(timeout, tool.grace)
        running = %{task: task, timeout: timeout, deadline: deadline, channel: channel}
        entry = entry |> Map.merge(running) |> Map.put(:late?, tool.late != nil)
        %{state | running: Map.put(state.running, task.ref, entry)}

      {:error, words} ->
        fold(state, entry, outcome({:returned, {:error, words}}, entry, settings), 0)
    end
  end

  # For a tool that runs an agent itself, or reports its progress.
  defp open_scope(%{run: run}, settings, timeout, id) when is_function(run, 3) do
    {channel, progress} = Progress.open()
    own = %{timeout: timeout, deadline: settings.deadline, tool_call_id: id, progress: progress}
    {channel, Map.merge(settings.scope, own)}
  end

  defp open_scope(_tool, _settings, _timeout, _id), do: {nil, nil}

  # A late tool gives the second one to whoever will answer.
  defp tool_context(%{keys: keys} = settings, id, %{late: late}) when is_map_key(keys, id) do
    own = %{idempotency_key: keys[id]}
    own = if late, do: Map.put(own, :arrival_key, settings.arrival_keys[id]), else: own
    Map.merge(settings.tool_context, own)
  end

  defp tool_context(settings, _id, _tool), do: settings.tool_context

  # The tool that can take a call, the arguments as it gets them, and a map with their repairs. Calls of a run were checked before they
  # were decided about.
  defp check(settings, call, key) do
    with {:ok, tool} <- find(settings.tools, Tool.field(call, :name)),
         {:ok, call} <- if(settings.checked?.(key), do: {:ok, call}, else: fit(tool, call)),
         {:ok, arguments} <- Tool.arguments(Tool.field(call, :arguments)),
         do: {:ok, tool, arguments, Map.take(call, [:repairs])}
  end

  defp fit(tool, call),
    do: ToolArguments.fit(tool, %{arguments: Tool.field(call, :arguments)})

  @doc false
  # Runs a function of the application to a term that says how it ended.
  def call_guarded(fun) do
    {:returned, fun.()}
  catch
    kind, reason ->
      {:raised, kind, Exception.normalize(kind, reason, __STACKTRACE__),
       Events.prune(__STACKTRACE__)}
  end

  @doc false
  def find(tools, name) do
    with :error <- Map.fetch(tools, Tool.name(name)) do
      known =
        case tools |> Map.keys() |> Enum.sort() do
          [] -> "there are no tools"
          names -> "available tools: " <> Enum.join(names, ", ")
        end

      {:error, "unknown tool #{inspect(Tool.name(name))}; #{known}"}
    end
  end

  defp outcome({:returned, value}, entry, settings) do
    outcome = read_outcome(value, entry)
    size = Events.bytes(outcome.term)
    measured = %{duration: Events.since(entry.started), result_bytes: size}
    metadata = Map.put(entry.metadata, :status, outcome.status)
    Events.emit(settings.events, [:tool, :stop], measured, metadata)
    outcome
  end

  defp outcome({:raised, kind, reason, stacktrace}, entry, settings) do
    private = if kind == :error, do: %{exception: fn -> reason end}, else: %{}
    label = Events.label(kind, reason)
    emit_exception(entry, settings, kind, label, stacktrace, private)
    raised = if stacktrace != [], do: {kind, reason, stacktrace}
    if raised, do: Events.log_raised(raised, "the tool " <> inspect(entry.metadata.tool))

    %Outcome{
      status: :error,
      term: words(kind, reason, settings[:exception_messages]),
      error_type: Events.error_type(kind, label),
      raised: raised
    }
  end

  defp outcome({:timed_out, timeout}, entry, settings) do
    emit_exception(entry, settings, :timeout, :timeout, [])
    %Outcome{status: :error, term: "timed out after #{timeout} ms", error_type: "timeout"}
  end

  defp read_outcome(%Outcome{} = outcome, _entry), do: outcome

  defp read_outcome({:later, opts}, %{late?: true}), do: %Outcome{status: :waiting, term: opts}

  defp read_outcome({status, term}, _entry) when status in [:ok, :error, :halt],
    do: %Outcome{status: status, term: term}

  defp read_outcome(:error, _entry), do: %Outcome{status: :error, term: "the tool failed"}
  defp read_outcome(value, _entry), do: %Outcome{status: :ok, term: value}

  defp emit_exception(entry, settings, kind, reason, stacktrace, private \\ %{}) do
    failure = %{kind: kind, reason: reason, stacktrace: stacktrace}
    metadata = Map.merge(entry.metadata, failure)
    measured = %{duration: Events.since(entry.started)}
    Events.emit(settings.events, [:tool, :exception], measured, metadata, private)
  end

  # Reasons may contain data that the model must not see (such as the arguments of a failed GenServer.call/3, or the address of a
  # database), so at most a word of them is shown unless the application wants an exception's message to be read.
  defp words(:error, exception, true) do
    words(:error, exception, false) <> ": " <> String.slice(message(exception), 0, 2_000)
  end

  defp words(:error, exception, _closed), do: "the tool raised #{inspect(exception.__struct__)}"

  defp words(:throw, _value, _closed), do: "the tool threw a value that nobody caught"

  defp words(:exit, reason, _closed),
    do: "the tool's process exited (#{inspect(Events.label(:exit, reason))})"

  defp message(exception) do
    Exception.message(exception)
  rescue
    _ -> "(no message)"
  end
end
