defmodule AshAgent.Runtime.Events do
  @moduledoc """
  The events of a run.

  Events go to the function given as `:on_event`, and to `:telemetry` if its module is loaded, which it is as soon as a handler is
  attached, even in the middle of a run. All events of a run come in order and from one process; only the end of a session's run
  comes from another one. They do not contain the text of messages, arguments or results, with three
  exceptions for the function, of which the third is below: the metadata of `[:ash_agent, :runtime, :llm, :delta]` has the new
  pieces as `:events`, a list of `t:AshAgent.Response.event/0`, and that of `[:ash_agent, :runtime, :run, :stop]` has the contexts
  of the run and of its sub-agents, and messages that were dropped. `:telemetry` never gets texts or contexts.

  The function takes one argument, `%{event: name, measurements: map, metadata: map}`, or three: name, measurements and
  metadata. It is called between the steps of the run and between the pieces of a stream, and nothing is read from the
  stream in the meantime, so it should be quick. If it fails, that is logged and the run continues.

  | event | measurements | metadata |
  |---|---|---|
  | `[:ash_agent, :runtime, :iteration, :start]` | `system_time` | |
  | `[:ash_agent, :runtime, :iteration, :stop]` | `duration`, `tool_calls` | |
  | `[:ash_agent, :runtime, :iteration, :exception]` | `duration` | `kind`, `reason` |
  | `[:ash_agent, :runtime, :iteration, :pause]` | `system_time`, `tool_calls` | |
  | `[:ash_agent, :runtime, :llm, :start]` | `system_time`, `messages` | |
  | `[:ash_agent, :runtime, :llm, :delta]` | `bytes` | `events`, for the function alone |
  | `[:ash_agent, :runtime, :llm, :stop]` | `duration`, `time_to_first_token`, `content_bytes`, `tool_calls`, `cost` | `usage`, `finish_reason` |
  | `[:ash_agent, :runtime, :llm, :cache]` | `predicted`, `read`, `cost`, `avoidable` | `verdict`, `cause`, `diagnosis` |
  | `[:ash_agent, :runtime, :llm, :exception]` | `duration` | `kind`, `reason`, `stacktrace`, `failure`, `status` |
  | `[:ash_agent, :runtime, :llm, :partial]` | | `changes` and `value`, for the function alone |
  | `[:ash_agent, :runtime, :llm, :value]` | | `attempt`; for the function alone `value` |
  | `[:ash_agent, :runtime, :llm, :retry]` | `attempt`, `wait` | `kind` |
  | `[:ash_agent, :runtime, :llm, :waiting]` | `duration` | |
  | `[:ash_agent, :runtime, :tool, :decision]` | `duration` | `tool`, `tool_call_id`, `decision`, `by` |
  | `[:ash_agent, :runtime, :tool, :start]` | `system_time`, `arguments_bytes` | `tool`, `tool_call_id`; `repairs` if there were any; `sub_agent: true` of a sub-agent's |
  | `[:ash_agent, :runtime, :tool, :progress]` | `progress`, `total` | `tool`, `tool_call_id` |
  | `[:ash_agent, :runtime, :tool, :stop]` | `duration`, `result_bytes` | `tool`, `tool_call_id`, `status` |
  | `[:ash_agent, :runtime, :tool, :arrival]` | `system_time` | `tool`, `tool_call_id`, `status` |
  | `[:ash_agent, :runtime, :tool, :exception]` | `duration` | `tool`, `tool_call_id`, `kind`, `reason`, `stacktrace` |
  | `[:ash_agent, :runtime, :run, :stop]` | `duration` | `status`; `kind`, `reason` and `failure` of an error; for the function alone `context`, `sub_agents`, `first_iteration`, `depth`, `dropped` |

  All metadata have `context_id` and `iteration`, the number within the conversation. Durations are in native time units,
  as usual with `:telemetry`: `System.convert_time_unit(duration, :native, :millisecond)`.

  A delta is the content of one piece of a stream, and its `bytes` are those of text, thinking and arguments. Answers that
  are not streamed have no deltas and no `time_to_first_token`. `cost` is in 10^-12 US dollars, and only known with `:prices`. `finish_reason` is a
  `t:AshAgent.Response.finish_reason/0`. `status` is `:ok`, `:error`, `:halt`, or `:waiting` if the result
  comes later: then an arrival tells when a run has taken it into the conversation, and its status may also be `:unknown` or `:cancelled`. `decision` is `:approved`, `:denied`,
  `:answered` or `:ask`, and `by` is `:approval`, `:permissions`, `:before_tool`, or `:session` for a decision made through
  `AshAgent.Session`; a call that runs without a decision has no such event. `repairs` is a list of `t:AshAgent.Output.repair/0`: what was
  repaired in the arguments, and where. A pause comes right before the end of its run
  and counts the undecided calls. `kind` is `:error`, `:exit`, `:throw` or `:timeout`; `reason` is the name of an exception's
  module, an atom, or the first element of the reason. The bytes of a term that is not text are those of its external term
  format.

  A tool that raised is logged, and kept in `AshAgent.Context.Audit.failures/1`, with the place in the code. The function also gets the
  `exception` in the metadata, as a function that returns it, since its message may contain a secret and metadata get logged.

  The `failure` of a request is a `t:AshAgent.Response.Error.kind/0`, as in `AshAgent.Context.Audit.failures/1`, and its `status` that of HTTP;
  both are missing when a store or `:on_change` refused what came, and the status when there was none. The end of a run that such a
  failure ended has its `failure` as well.

  The cache's event comes after the stop where the provider reported tokens, unless nothing was there to be read: how many were
  `predicted`, how many it `read`, what the request cost and how much of that was `avoidable` (with `:prices`), and the `verdict`, as in `AshAgent.Context.Audit.account/2`, with the `cause` of one that is `:broken`, and the reason
  that the provider itself gave as `diagnosis`, where it was asked.

  A retry comes when a request has failed and the model waits before it tries again: `attempt` is the number of the failed
  attempt, `wait` is in milliseconds, and `kind` is a `t:AshAgent.Response.Error.kind/0`. Waiting comes after a model has been
  silent for 10 seconds, and every 10 seconds from then on.

  With `:output`, a partial contains what has arrived of the typed answer. Its `changes` are `{:attempt, number}` when the model
  is asked, and then `{:partial, path, {:text, more}}` for a text that grows and `{:partial, path, {:value, json}}` for a complete
  value, or for a list or an object that starts empty. Nothing is taken back within an attempt. Its `value` is a function that
  returns `{:ok, value}`, the whole value so far, or `:none`: call it as often as you show it. The event of a value, with the same
  function, comes with the first change, then at most every 50 milliseconds, and after the last. A session's subscribers get both, as
  `{:event, [:llm, :partial], %{}, %{changes: changes}}` and `{:event, [:llm, :value], %{}, %{attempt: number, value: value}}`, with
  the value itself.

  A tool of an MCP server (`AshAgent.MCP`) may report its progress, a number that grows, and a total if it knows one. Reports that
  come faster than every 50 milliseconds are dropped.

  The end of a run has the `status` `:answered`, `:halted`, `:waiting`, `:paused` or `:error`. `first_iteration` is the number of the
  iteration that the turn began with, and `depth` is the number of runs around this one, so it is 0 unless the run
  is a sub-agent's. It comes once for each call of `AshAgent.Runtime.run/2` and once for each run of a session, also if that was cancelled or
  drained, lost its conversation, or died. A session tells it when it can act on it: a decision can be made as soon as a pause is told. If
  `AshAgent.Session.cancel/1` dropped messages that waited, the cancelled turn's end has them as `dropped`, a list of maps with `:kind`
  (`:prompt` or `:steer`), `:input` and `:metadata`, for the function and for the session's subscribers.

      iex> me = self()
      iex> {:ok, _} =
      ...>   AshAgent.Runtime.run(AshAgent.Context.new("Hi"),
      ...>     llm: fn _ -> {:ok, %{content: "Hello!"}} end,
      ...>     on_event: fn name, _, _ -> send(me, Enum.take(name, -2)) end
      ...>   )
      iex> for _ <- 1..4, do: (receive do name -> name end)
      [[:iteration, :start], [:llm, :start], [:llm, :stop], [:iteration, :stop]]
  """

  require Logger

  @enforce_keys [:on_event, :metadata]
  defstruct [:on_event, :metadata, :watch]

  @typedoc "The receivers of events."
  @opaque t :: %__MODULE__{
            on_event: on_event() | nil,
            metadata: map(),
            watch: (term() -> term()) | nil
          }

  @type on_event ::
          (%{event: [atom()], measurements: map(), metadata: map()} -> term())
          | ([atom()], map(), map() -> term())

  @doc false
  # The events of a run with these options, or of its session. Those that a session's subscribers hear go to `watch` as well.
  def new(opts, metadata \\ %{}, watch \\ nil),
    do: %__MODULE__{on_event: opts[:on_event], metadata: metadata, watch: watch}

  @doc false
  def with_metadata(%__MODULE__{} = events, metadata),
    do: %{events | metadata: Map.merge(events.metadata, metadata)}

  @watched [[:llm, :retry], [:llm, :waiting], [:iteration, :pause], [:run, :stop]]

  @doc false
  # `private` is metadata for the function only.
  def emit(%__MODULE__{} = events, name, measurements, metadata \\ %{}, private \\ %{}) do
    event = [:ash_agent, :runtime | name]
    metadata = Map.merge(events.metadata, metadata)

    if telemetry?(), do: execute(event, measurements, metadata)

    if events.watch && (hd(name) == :tool or name in @watched),
      do: events.watch.({:event, name, measurements, Map.delete(metadata, :stacktrace)})

    tell(events.on_event, event, measurements, Map.merge(metadata, private))
    :ok
  end

  # These are called for each step, so they make no function for `safely/2`.
  defp execute(event, measurements, metadata) do
    apply(:telemetry, :execute, [event, measurements, metadata])
  catch
    kind, reason -> log(kind, reason, __STACKTRACE__, ":telemetry")
  end

  defp tell(nil, _event, _measurements, _metadata), do: :ok

  defp tell(on_event, event, measurements, metadata) do
    if is_function(on_event, 3),
      do: on_event.(event, measurements, metadata),
      else: on_event.(%{event: event, measurements: measurements, metadata: metadata})
  catch
    kind, reason -> log(kind, reason, __STACKTRACE__, ":on_event")
  end

  @doc false
  # Returns true if someone else than subscribers hears events: their measurements are not made otherwise.
  def heard?(%__MODULE__{on_event: on_event}), do: on_event != nil or telemetry?()

  @doc false
  def emit_decision(events, call, decision, by, started) do
    about = %{tool: AshAgent.Runtime.Tool.name(call.name), tool_call_id: call.id}
    metadata = Map.merge(about, %{decision: decision, by: by})
    emit(events, [:tool, :decision], %{duration: since(started)}, metadata)
  end

  # Looking for a module that does not exist takes a millisecond of the code server. Attaching a handler loads this one.
  defp telemetry?, do: function_exported?(:telemetry, :execute, 3)

  @doc false
  # Runs a function of the application for its effect; if it raises, that is logged without the message, which may hold text.
  def safely(function, name) do
    with {:ok, _value} <- attempt(function, name), do: :ok
  end

  @doc false
  # The same for a function whose result counts.
  def attempt(function, name) do
    {:ok, function.()}
  catch
    kind, reason ->
      log(kind, reason, __STACKTRACE__, name)
      :error
  end

  @doc false
  # Gives a context to the application to store. If it refuses, its error is the reason; a failure is logged.
  def store(nil, _context), do: :ok

  def store(on_change, context) do
    case attempt(fn -> on_change.(context) end, ":on_change") do
      {:ok, {:error, reason}} -> {:error, {:on_change_error, reason}}
      _stored_or_logged -> :ok
    end
  end

  @doc false
  def log(kind, reason, stacktrace, name),
    do: log_failure(describe_failed(name, kind, reason), stacktrace)

  @doc false
  # Adds the conversation that the process works for.
  def log_failure(words, stacktrace \\ []),
    do: log_with(words, "\n" <> (stacktrace |> prune() |> Exception.format_stacktrace()))

  defp log_with(words, place) do
    id = AshAgent.Trace.Caller.conversation()
    Logger.error("#{words}#{if id, do: " in the conversation #{inspect(id)}"}" <> place)
  end

  @doc false
  # A function of the application that failed, for the log.
  def log_raised({kind, reason, stacktrace}, name),
    do: log_with(describe_failed(name, kind, reason), " " <> find_place(stacktrace))

  defp describe_failed("the tool" <> _name = name, :error, %FunctionClauseError{} = reason) do
    "#{name} failed (error, #{inspect(reason.__struct__)}): no clause takes what it was given. The keys of its arguments are " <>
      ~s(texts, as in fn %{"city" => city} -> ..., not atoms)
  end

  defp describe_failed(name, kind, reason),
    do: "#{name} failed (#{kind}, #{inspect(label(kind, reason))})"

  @doc false
  # The same as the conversation keeps it: where it was, and nothing of what it had.
  def describe_raised(part, {kind, reason, stacktrace}, about) do
    place = find_place(stacktrace)

    own =
      if is_struct(reason, AshAgent.MCP.Error), do: ": " <> Exception.message(reason), else: ""

    failure = if own == "", do: :invalid_response, else: :unreachable
    code = error_type(kind, label(kind, reason))
    %{kind: failure, part: part, code: code, message: about <> place <> own}
  end

  # The application's code is what called that of others.
  @others [:elixir, :stdlib, :kernel, :ash_agent_context, :ash_agent_runtime]

  defp find_place(stacktrace) do
    own? = fn entry ->
      tuple_size(entry) == 4 and elem(entry, 3)[:line] != nil and
        Application.get_application(elem(entry, 0)) not in @others
    end

    stacktrace = prune(stacktrace)

    case Enum.find(stacktrace, List.first(stacktrace), own?) do
      nil -> "at an unknown place"
      entry -> "at " <> Exception.format_stacktrace_entry(entry)
    end
  end

  @doc false
  # A thrown value is data, and an exit's word says little without its kind.
  def error_type(:error, exception), do: inspect(exception)
  def error_type(kind, _label), do: to_string(kind)

  @doc false
  # Distinguishes failures without disclosing their words.
  def label(:error, %module{}), do: module

  def label(:error, reason) when not is_atom(reason),
    do: Exception.normalize(:error, reason).__struct__

  def label(_kind, reason), do: first_atom(reason)

  defp first_atom(reason) when is_atom(reason), do: reason
  defp first_atom(%module{}), do: module

  defp first_atom(reason) when is_tuple(reason) and tuple_size(reason) > 0,
    do: reason |> elem(0) |> first_atom()

  defp first_atom(_reason), do: :other

  @doc false
  # The kind and the label of the reason of an `AshAgent.Runtime.Error`.
  def failure({timeout, _}) when timeout in [:timeout, :llm_timeout], do: {:timeout, timeout}

  def failure({who, kind, reason}) when who in [:llm_exception, :tools_exception],
    do: {kind, label(kind, reason)}

  def failure({reason, _}), do: {:error, reason}
  def failure(reason), do: {:error, reason}

  @doc false
  # The arguments of a function that did not match are data; their number is enough.
  def prune(stacktrace) do
    Enum.map(stacktrace, fn
      {module, name, given, at} when is_list(given) -> {module, name, length(given), at}
      {name, given, at} when is_list(given) -> {name, length(given), at}
      entry -> entry
    end)
  end

  @doc false
  def bytes(text) when is_binary(text), do: byte_size(text)
  def bytes(nil), do: 0
  def bytes(term), do: :erlang.external_size(term)

  @doc false
  def put_system_time(measurements \\ %{}),
    do: Map.put(measurements, :system_time, System.system_time())

  @doc false
  def since(start), do: System.monotonic_time() - start
end
