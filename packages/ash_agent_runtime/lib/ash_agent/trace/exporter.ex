defmodule AshAgent.Trace.Exporter do
  @schema AshAgent.Options.schema([
            {:url, :string, [required: true],
             "the receiver's URL for traces, such as `\"http://localhost:4318/v1/traces\"` of a collector, or " <>
               "`\"http://localhost:6006/v1/traces\"` of Arize Phoenix."},
            {:headers, :list, [default: []],
             "further headers, `{name, value}` with a string or a function that returns it, such as " <>
               "`{\"authorization\", fn -> \"Bearer \" <> System.fetch_env!(\"TRACES_KEY\") end}`."},
            {:max_queue, :pos_integer, [default: 1_000],
             "how many turns may wait. Those that come when so many wait are lost."},
            {:max_batch, :pos_integer, [default: 50], "how many turns are sent together."},
            {:max_batch_bytes, :pos_integer, [default: 4_000_000],
             "the bytes after which no other turn is sent along."},
            {:delay, :non_neg_integer, [default: 1_000],
             "milliseconds to wait for other turns to send along."},
            {:max_retries, :non_neg_integer, [default: 8],
             "how often a batch is sent again before it is given up."},
            {:retry_delay, :pos_integer, [default: 1_000],
             "milliseconds before the first retry. Each further one waits twice as long, unless the receiver says when to " <>
               "come back."},
            {:max_retry_delay, :pos_integer, [default: 60_000],
             "how many milliseconds to wait for a retry at most."},
            {:timeout, :pos_integer, [default: 10_000], "milliseconds for one request."},
            {:transport, {:or, [:atom, {:custom, &AshAgent.LLM.Client.transport?/1}]},
             [type_doc: "a module or `{module, options}`", default: AshAgent.LLM.Transport.HTTP1],
             "the HTTP client, see `AshAgent.LLM.Transport`."},
            {:ssl, :keyword_list, [default: []],
             "options of `:ssl`, such as `[cacertfile: path]`."},
            {:name, :any, [type_doc: "a name as in `GenServer`"],
             "registers the exporter. Defaults to no name."}
          ]) ++ AshAgent.Trace.Otlp.shared_options() ++ AshAgent.Context.Printed.mask_options()

  @export AshAgent.Options.schema([
            {:turn, {:custom, &AshAgent.Trace.Otlp.turn?/1},
             [type_doc: "a number, a range of numbers, `:last` or `nil`", default: :last],
             "which turns, see `AshAgent.Trace.to_otlp/2`."},
            {:children,
             {:list, {:or, [{:struct, AshAgent.Context}, {:struct, AshAgent.ChatContext}]}},
             [type_doc: "a list of contexts and chats", default: []],
             "the conversations of sub-agents, such as the `sub_agents` of an `AshAgent.Runtime.Result`."}
          ])

  @moduledoc """
  A process that sends finished turns to an OpenTelemetry endpoint, as Protobuf over HTTP.

      children = [
        {AshAgent.Trace.Exporter, name: MyApp.Traces, url: "http://localhost:6006/v1/traces", agent: "assistant"}
      ]

  Give its `on_event/1` to runs and sessions, but not to their sub-agents, whose conversations come with the run's:

      AshAgent.Session.start_link(llm: llm, tools: tools, on_event: AshAgent.Trace.Exporter.on_event(MyApp.Traces))

  When a run ends, with or without an error, the exporter gets its conversation and sends the turns that the run worked on, with the spans
  that `AshAgent.Trace.to_otlp/2` describes. When a run pauses, it sends the spans so far; the turn's span follows when the run
  has been resumed and has ended, together with the others once more. If a turn ends more than once, because a run failed and another one continued, its
  span is sent again, under the same ids.

  The run hands over a handle, whatever the length of the conversation, and waits for nothing. Encoding and sending happen in
  another process.

  ## Losses

  Transient failures (no connection, no answer in time, the statuses 408, 429, 502, 503 and 504) are retried, respecting
  `retry-after`. Other refusals are final. In the meantime, turns wait, up to `:max_queue`. The exporter logs a warning with the
  endpoint's port and path when a request first fails, another one with the reason when it starts to drop turns, and one with
  their number when a batch gets through again or the exporter stops. Turns that are waiting when the exporter stops are lost;
  call `flush/2` first.

  Neither logs nor crash reports nor `inspect/1` show headers or what was said.

  ## Live traces

  If `:opentelemetry_api` is available when this package is compiled, the processes of models, tools and sub-agents continue the
  OpenTelemetry trace of the process that called `AshAgent.Runtime.run/2` or `AshAgent.Session.prompt/3`. So the spans that a tool
  makes, such as those of its database queries, become part of the trace of the web request. The exporter's traces are
  separate, since their ids derive from conversations; each turn's span links to the caller's span.

  ## Options

  #{AshAgent.Options.docs(@schema)}
  """

  use AshAgent.Arguments

  use GenServer

  alias AshAgent.{ChatContext, Context, ToolDefinition}
  alias AshAgent.LLM.{Client, Transport}
  alias AshAgent.Runtime.Sealed
  alias AshAgent.Trace.{Caller, Otlp}
  alias AshAgent.Trace.Exporter.Delivery

  require Logger

  @type exporter :: GenServer.server()

  @run_stop [:ash_agent, :runtime, :run, :stop]

  @doc """
  Starts an exporter.

  The module's documentation has the options. Raises `ArgumentError` for unknown and wrong ones, and `AshAgent.Context.Error` with
  `{:feature_missing, "otlp"}`.

  ## Examples

      iex> AshAgent.Trace.Exporter.start_link(url: "localhost:4318")
      ** (ArgumentError) AshAgent.Trace.Exporter expects :url to be an http or https URL without credentials
  """
  @doc since: "0.1.0"
  @spec start_link(keyword()) :: GenServer.on_start()
  def start_link(opts) when is_list(opts) do
    opts = AshAgent.Options.validate!(opts, @schema)

    opts =
      opts
      |> Keyword.update!(:headers, &Client.headers(__MODULE__, &1))
      |> Keyword.update!(:transport, &Transport.new/1)
      |> Keyword.update!(:url, &Client.uri(__MODULE__, :url, &1))

    _checked = opts[:tools] && ToolDefinition.to_maps(opts[:tools])
    :ok = Otlp.available!()
    GenServer.start_link(__MODULE__, opts, Keyword.take(opts, [:name]))
  end

  @doc false
  def start_sealed(opts) when is_function(opts, 0), do: start_link(opts.())

  @doc """
  Returns a specification for a supervisor, with the options of `start_link/1`.

  ## Examples

      iex> AshAgent.Trace.Exporter.child_spec(url: "http://localhost:4318/v1/traces", name: MyApp.Traces).id
      MyApp.Traces
  """
  @doc since: "0.1.0"
  @spec child_spec(keyword()) :: Supervisor.child_spec()
  def child_spec(opts) when is_list(opts) do
    # Supervisors print specifications, and headers contain keys.
    %{id: opts[:name] || __MODULE__, start: {__MODULE__, :start_sealed, [fn -> opts end]}}
  end

  @doc """
  Returns a function for the option `:on_event` of `AshAgent.Runtime.run/2` and `AshAgent.Session.start_link/1`.

  ## Examples

      iex> AshAgent.Trace.Exporter.on_event(MyApp.Traces) |> is_function(3)
      true
  """
  @doc since: "0.1.0"
  @spec on_event(exporter()) :: ([atom()], map(), map() -> :ok)
  def on_event(exporter), do: &handle_event(exporter, &1, &2, &3)

  @doc """
  Takes an event of a run, for functions that do more with events than `on_event/1`.

  Returns `:ok` at once, even if the exporter is not running. Events other than the end of a run are ignored, and so are those of
  sub-agents.

  ## Examples

      iex> show = fn event, measurements, metadata ->
      ...>   AshAgent.Trace.Exporter.handle_event(MyApp.Traces, event, measurements, metadata)
      ...>   if event == [:ash_agent, :runtime, :run, :stop], do: send(self(), metadata.status)
      ...> end
      iex> {:ok, _} = AshAgent.Runtime.run(AshAgent.Context.new("Hi"), llm: fn _ -> {:ok, %{content: "Hello!"}} end, on_event: show)
      iex> receive do status -> status end
      :answered
  """
  @doc since: "0.1.0"
  @spec handle_event(exporter(), [atom()], map(), map()) :: :ok
  def handle_event(exporter, event, measurements, metadata)

  def handle_event(exporter, @run_stop, _measured, %{context: context, depth: 0} = metadata) do
    %{status: status} = metadata
    turns = metadata.first_iteration..context.current_iteration
    error = if status == :error, do: metadata |> name_error() |> inspect() |> String.trim(":")
    how = [error: error, open?: status == :paused, caller: Caller.ids()]
    cast(exporter, context, metadata.sub_agents, turns, how)
  end

  def handle_event(_exporter, event, _measurements, %{} = _metadata) when is_list(event), do: :ok

  # The failures of an application's own model are all one kind.
  defp name_error(%{failure: kind}) when kind != :invalid_response, do: kind
  defp name_error(%{reason: reason}), do: reason

  @doc """
  Sends turns of a conversation, for instance turns that no run of this package has made. Returns `:ok` at once.

  ## Options

  #{AshAgent.Options.docs(@export)}

  ## Examples

      iex> context = AshAgent.Context.new("What is 2 + 2?") |> AshAgent.Context.add_assistant_message("4")
      iex> AshAgent.Trace.Exporter.export(MyApp.Traces, context)
      :ok
  """
  @doc since: "0.1.0"
  @spec export(exporter(), Context.t() | ChatContext.t(), keyword()) :: :ok
  def export(exporter, %module{} = shown, opts \\ []) when module in [Context, ChatContext] do
    opts = AshAgent.Options.validate!(opts, @export)
    cast(exporter, shown, opts[:children], opts[:turn], [])
  end

  defp cast(exporter, shown, children, turns, how),
    do: GenServer.cast(exporter, {:turn, {shown, children, turns, how}})

  @doc """
  Sends what is waiting right away, and returns `:ok` once it has arrived or was given up.

  ## Examples

      AshAgent.Trace.Exporter.flush(MyApp.Traces, 30_000)
  """
  @doc since: "0.1.0"
  @spec flush(exporter(), timeout()) :: :ok
  def flush(exporter, timeout \\ :infinity) when is_server(exporter),
    do: GenServer.call(exporter, :flush, timeout)

  ## The process

  defmodule State do
    @moduledoc false

    # queue: turns that wait, with their size. held: sub-agents of paused runs, by conversation. sending: the task with a
    # batch, and the number of its turns. lost: turns lost since the last report. failing?: true if the last batch did not
    # arrive, which was reported. flushing: callers that wait for a flush.
    @enforce_keys [:opts, :supervisor]
    defstruct @enforce_keys ++
                [:sending, :timer, failing?: false, queue: :queue.new(), size: 0] ++
                [held: %{}, lost: 0, flushing: []]
  end

  @impl true
  def init(opts) do
    {:ok, supervisor} = Task.Supervisor.start_link()
    Process.flag(:trap_exit, true)
    {:ok, %State{opts: opts, supervisor: supervisor}}
  end

  # A crash report must not show the queue.
  @impl true
  def handle_cast(message, state), do: Sealed.run(fn -> {:noreply, take(message, state)} end)

  @impl true
  def handle_call(request, from, state), do: Sealed.run(fn -> answer(request, from, state) end)

  @impl true
  def handle_info(message, state), do: Sealed.run(fn -> {:noreply, hear(message, state)} end)

  defp take({:turn, {shown, children, turns, how}}, state) do
    {held, state} = pop_in(state.held[id(shown)])
    children = (held || []) ++ children
    turn = {shown, children, turns, how}
    state = if how[:open?], do: hold(state, id(shown), children), else: state

    if state.size < state.opts[:max_queue] do
      state = %{state | queue: :queue.in(turn, state.queue), size: state.size + 1}
      state |> wait() |> send_next(full?(state))
    else
      lose(state, 1, "#{state.opts[:max_queue]} turns wait already")
    end
  end

  defp take(_other, state), do: state

  # Sub-agents of a run that never goes on must not pile up.
  defp hold(%{held: held} = state, id, children) do
    room? = children != [] and map_size(held) < state.opts[:max_queue]
    if room?, do: %{state | held: Map.put(held, id, children)}, else: state
  end

  defp answer(:flush, _from, %{size: 0, sending: nil} = state), do: {:reply, :ok, state}

  defp answer(:flush, from, state) do
    before = state.size + in_flight(state)
    {:noreply, send_next(%{state | flushing: [{from, before} | state.flushing]}, true)}
  end

  defp answer(_other, _from, state), do: {:reply, {:error, :unknown_call}, state}

  defp hear(:send, state), do: send_next(%{state | timer: nil}, true)

  defp hear({ref, reply}, %{sending: {%{ref: ref}, count}} = state) do
    Process.demonitor(ref, [:flush])
    handle_sent(state, count, reply)
  end

  defp hear({:DOWN, ref, :process, _, _}, %{sending: {%{ref: ref}, count}} = state),
    do: handle_sent(state, count, {:failed, count, "the process that sent them failed", []})

  defp hear(_other, state), do: state

  @impl true
  def terminate(_reason, %{size: size} = state) do
    waiting = size + in_flight(state)
    state = if waiting > 0, do: lose(state, waiting, "the exporter stops"), else: state
    warn_lost(state)
  end

  def terminate(_reason, _broken), do: :ok

  # Not a callback of older GenServers, but OTP's gen_server calls it from version 25 on.
  if {:format_status, 1} in GenServer.behaviour_info(:callbacks), do: @impl(true)

  def format_status(status), do: Sealed.format_status(status, &show/1)

  defp show(%{size: size, lost: lost}), do: %{waiting: size, lost: lost}
  defp show(_broken), do: :not_shown

  defp wait(%{timer: nil, sending: nil} = state),
    do: %{state | timer: Process.send_after(self(), :send, state.opts[:delay])}

  defp wait(state), do: state

  defp full?(state), do: state.size >= state.opts[:max_batch]

  defp send_next(%{sending: nil, size: size} = state, true) when size > 0 do
    if state.timer, do: Process.cancel_timer(state.timer)
    {batch, queue} = size |> min(state.opts[:max_batch]) |> :queue.split(state.queue)
    turns = :queue.to_list(batch)
    opts = [warned?: state.failing?] ++ state.opts

    work = fn -> Sealed.run(fn -> Delivery.deliver(turns, opts) end) end
    task = Task.Supervisor.async_nolink(state.supervisor, work, shutdown: :brutal_kill)

    count = length(turns)
    %{state | queue: queue, size: size - count, sending: {task, count}, timer: nil}
  end

  defp send_next(state, _now?), do: state

  # Turns without room in the batch come first in the next one.
  defp handle_sent(state, count, {outcome, lost, reason, rest}) do
    queue = Enum.reduce(Enum.reverse(rest), state.queue, &:queue.in_r/2)
    done = count - length(rest)
    state = %{state | queue: queue, size: state.size + length(rest), sending: nil}
    state = if lost > 0, do: lose(state, lost, reason), else: state
    state = %{state | failing?: outcome != :sent}
    state = if outcome == :sent, do: warn_lost(state), else: state
    state |> reply_flushed(done) |> send_next(true)
  end

  defp reply_flushed(state, done) do
    {over, waiting} =
      state.flushing
      |> Enum.map(fn {from, left} -> {from, left - done} end)
      |> Enum.split_with(fn {_from, left} -> left <= 0 end)

    for {from, _left} <- over, do: GenServer.reply(from, :ok)
    %{state | flushing: waiting}
  end

  defp in_flight(%{sending: nil}), do: 0
  defp in_flight(%{sending: {_task, count}}), do: count

  defp lose(%{lost: 0} = state, count, reason) do
    Logger.warning("#{about(state)} loses turns: #{reason}")
    %{state | lost: count}
  end

  defp lose(state, count, _reason), do: %{state | lost: state.lost + count}

  defp warn_lost(%{lost: 0} = state), do: state

  defp warn_lost(state) do
    Logger.warning("#{about(state)}, turns lost: #{state.lost}")
    %{state | lost: 0}
  end

  defp about(state), do: Delivery.about(state.opts[:url])

  defp id(%Context{} = context), do: context[:id]
  defp id(%ChatContext{id: id}), do: id
end
