defmodule AshAgent.Runtime.Run do
  @moduledoc false

  # The state of one run, and the only place that changes its context.
  #
  # Steps take a run and return `{:ok, run}`, or `{:stop, run, reason}` when the run ends, with the reason `{:answered, text}`,
  # `{:halted, term}`, `{:paused, ids}`, `:waiting` or `{:failed, reason}`.

  alias AshAgent.{Context, Deadline, LLM, Response}

  alias AshAgent.Runtime.{
    Authority,
    Bounds,
    Ended,
    Error,
    Events,
    Gate,
    Journal,
    Late,
    Options,
    Output
  }

  alias AshAgent.Runtime.{Paused, Recall, Result, Shape, Spent, Tool, ToolExecutor, TypedAnswer}
  alias AshAgent.Runtime.Underway

  # The settings, which stay the same:
  #
  #   * `llm`, `model` - the model, and its name or `nil`
  #   * `tools`, `offered_tools` - the tools that the permissions offer, by name, and in the form for the model
  #   * `tools_raised` - how the function that lists the tools failed, or `nil`
  #   * `tool_context`, `tool_timeout`, `max_concurrency`, `max_attempts`, `exception_messages`, `supervisor`,
  #     `scope` - how tools run
  #   * `gate`, `bounds`, `underway` - permissions and hooks, and what is shared with sub-agents: the limits, and the table of
  #     `AshAgent.Runtime.Underway`
  #   * `outermost?` - `false` in a sub-agent
  #   * `given?` - `true` in a run that is in no session and was given a `:runtime_context`
  #   * `first_iteration`, `max_iterations` - the beginning of the turn, and its limit
  #   * `timeout`, `deadline`, `llm_timeout` - the time limits
  #   * `stream?` - `true` if the model streams its answers
  #   * `on_change`, `on_change_bytes`, `on_change_interval` - the application's function that stores contexts
  #   * `watch` - a session's function that gets each context, delta, event and stored conversation
  #   * `view` - the options that shape the context's view, see `AshAgent.Runtime.Shape`
  #   * `prices` - the prices of models, and the limits of their requests
  #   * `when_late` - what the turn does when the result of a call comes later
  #   * `wake` - the iteration for whose turn the run takes late results, or `nil`
  #   * `summarize` - the application's function that summarises messages
  #   * `request_notes` - `:whole`, or `:hashes` if only digests of requests are kept
  #   * `next_messages` - returns the messages that came for the running turn
  #   * `messages?` - returns whether messages wait, for the running turn or for others
  #
  # The state:
  #
  #   * `context` - the conversation so far
  #   * `output` - the typed answer that is asked for, see `AshAgent.Runtime.Output`, or `nil`
  #   * `events` - the receivers of events, with the number of the iteration
  #   * `journal` - the data for the store, `nil` without one
  #   * `earlier` - the attempts of pending calls that were started before this run, by the ids of the calls
  #   * `refused` - the error of the application or the store that takes nothing more; the run ends before its next step
  #   * `call_notes` - notes on finished calls for the next write, the newest first
  #   * `paused?` - true if somebody has paused the turn, so that it goes no further than to its next step
  #   * `ended?` - true if the store has been told how the turn ended
  #   * `noted?` - true if the context has the inputs of requests beside messages
  #   * `encoding` - how a client encodes all requests, as an `AshAgent.Context.PreparedRequest`, or `nil`
  #   * `model_process` - the model's process, see `AshAgent.Runtime.Model`, or `nil`
  #   * `requested_at` - the time of the request to the model, in microseconds since 1970
  #   * `last` - the last message of the iteration that the run began with, or `nil`
  #   * `answered?` - whether the turn was answered when the run began
  #   * `pending` - the calls that wait for results when an iteration's tools begin to run
  #   * `fresh?` - true if they are those of an answer of this run, so that nobody has decided about them or was asked
  #   * `tokens` - the number of tokens reported for the conversation
  #   * `asked_again` - how often the model came to nothing since its last answer
  #   * `called` - the number of calls that the iteration has dealt with
  #   * `iterations`, `usage`, `cost`, `finish_reason`, `sub_agents` - see `AshAgent.Runtime.Result`
  @options ~w(llm tool_timeout max_concurrency max_attempts exception_messages max_iterations)a ++
             ~w(timeout llm_timeout on_change on_change_bytes on_change_interval summarize)a ++
             [:request_notes, :when_late]
  @opening [:last, :pending, :tokens, :answered?]
  @tool_settings ~w(tools tool_context max_concurrency max_attempts exception_messages supervisor deadline events)a

  @enforce_keys [:context, :gate, :bounds, :underway, :events, :supervisor]
  @own ~w(model tools tools_raised offered_tools tool_context scope outermost? given? first_iteration)a ++
         ~w(deadline stream? watch view prices next_messages messages? journal output wake)a
  @state ~w(refused model_process encoding requested_at cost finish_reason)a ++
           [
             fresh?: false,
             noted?: false,
             paused?: false,
             ended?: false,
             earlier: %{},
             call_notes: [],
             called: 0
           ] ++
           [asked_again: 0] ++
           [iterations: 0, usage: %{}, sub_agents: []]
  defstruct @enforce_keys ++ @options ++ @opening ++ @own ++ @state

  @doc "Returns the facts of a context that a run needs before it begins."
  def open(context) do
    outline = Context.outline(context)
    pending = if outline.pending == 0, do: [], else: Context.pending_tool_calls(context)
    Map.merge(outline, %{pending: pending, last: last_message(context)})
  end

  @doc "Begins a run with prepared options. `within` describes the runs around it, see `AshAgent.Runtime.Bounds.outermost/0`."
  def new(context, opening, events, opts, supervisor, within) do
    gate = Gate.new(opts, within.permissions)
    bounds = within.bounds || Bounds.new(opts)
    {given, tools_raised} = load_tools(opts[:tools], opts, within.depth)
    {tools, output, offered} = opts |> Keyword.put(:tools, given) |> offer(gate)
    # A model has nothing to recall yet.
    goes_on? = opts[:max_iterations] != 1 and not Enum.all?(tools, & &1.recall?)
    opts = if goes_on? or goes_on?(opts, opening, within), do: keep_sent(opts), else: opts
    output = TypedAnswer.count_retries(output, context, opening.last)
    context = Recall.put_handles(context, opening.recall?, tools)

    scope = %{
      depth: within.depth,
      permissions: gate.permissions,
      bounds: bounds,
      underway: within.underway,
      context_id: opening.id,
      inherited: Keyword.take(opts, Options.list_inherited())
    }

    own = %{
      context: context,
      model: LLM.model_name(opts[:llm]),
      tools: ToolExecutor.by_name(tools, opts[:check_arguments]),
      tools_raised: tools_raised,
      offered_tools: offered,
      output: output,
      tool_context: ToolExecutor.tool_context(opts[:runtime_context] || %{}),
      supervisor: supervisor,
      scope: scope,
      gate: gate,
      bounds: bounds,
      underway: within.underway,
      outermost?: within.bounds == nil,
      given?: within[:given?] || false,
      first_iteration: first_iteration(context, opening, opts[:max_iterations]),
      deadline: Deadline.new(opts[:timeout]),
      stream?: opts[:stream] and LLM.streams?(opts[:llm]),
      watch: within[:watch],
      view: Shape.new(opts),
      prices: opts[:prices] || [],
      next_messages: within[:steered] || fn -> [] end,
      messages?: within[:messages?] || fn -> false end,
      journal: Journal.new(opts, opening.id, within[:taken] || []),
      wake: within[:wake],
      events: events,
      cost: if(bounds.prices, do: 0)
    }

    run = opening |> Map.take(@opening) |> Map.merge(own)
    # `struct!/2` looks for the enforced keys once more for each field.
    Map.merge(struct(__MODULE__), opts |> Keyword.take(@options) |> Enum.into(run))
  end

  # The exact number does not matter if it is too far back to continue.
  defp first_iteration(%{current_iteration: number} = context, %{turn_start: first}, max) do
    least = max(first, number - max)

    if Context.Calls.waits?(context, :ever),
      do: Enum.find(number..least//-1, least, &(Late.woken(context, &1) != nil)),
      else: least
  end

  @doc "Reads the facts again that a run begins with, after late results got their place."
  def reopen(%{context: context} = run) do
    opening = open(context)
    first = first_iteration(context, opening, run.max_iterations)
    run = struct!(run, Map.take(opening, @opening))

    %{
      run
      | first_iteration: first,
        output: TypedAnswer.count_retries(run.output, context, opening.last)
    }
  end

  # A single request costs more if it is kept for another one.
  defp goes_on?(opts, opening, within),
    do: opts[:store] != nil or within[:watch] != nil or opening.tokens > 0

  defp keep_sent(opts), do: Keyword.update!(opts, :llm, &LLM.keep_sent/1)

  @doc "Returns the tools of a run with these options, the typed answer that it asks for, and the tools that its model is offered."
  def offer(opts, gate) do
    tools = opts[:tools]
    tools = if is_function(tools, 0), do: Tool.new(tools.()), else: tools
    tools = Shape.add_tool(tools, opts[:view])
    tools = tools |> Enum.filter(&offer?(gate, &1)) |> Late.add_tool()
    output = Output.new(opts, tools)
    {tools, output, Output.offer(output, Enum.map(tools, &describe/1))}
  end

  # A client may tell the model which tools answer later.
  defp describe(tool) do
    late = if tool.late, do: %{late: true}, else: %{}
    tool |> Map.take([:name, :description, :parameters]) |> Map.merge(late)
  end

  defp offer?(gate, tool), do: tool.recall? or Gate.offer?(gate, tool.name)

  # The tools, and how the function that lists them failed.
  defp load_tools(function, opts, depth) when is_function(function, 0) do
    {Late.check!(Tool.new(function.()), opts, depth), nil}
  catch
    kind, reason ->
      raised = {kind, Exception.normalize(kind, reason, __STACKTRACE__), __STACKTRACE__}
      Events.log_raised(raised, "the function of :tools")
      {[], raised}
  end

  defp load_tools(tools, opts, depth), do: {Late.check!(tools, opts, depth), nil}

  @doc "Returns the settings for `AshAgent.Runtime.ToolExecutor`, which the checks of a call use as well."
  def tool_settings(%__MODULE__{} = run) do
    settings =
      run
      |> Map.take(@tool_settings)
      |> Map.put(:timeout, run.tool_timeout)
      |> Map.put(:scope, Map.put(run.scope, :conversation, run.context))

    put_keys(settings, if(run.journal, do: run.journal.attempts, else: %{}))
  end

  defp put_keys(settings, attempts) when attempts == %{}, do: settings

  defp put_keys(settings, attempts) do
    keys = Map.new(attempts, fn {id, attempt} -> {id, attempt.key} end)
    arrival_keys = Map.new(attempts, fn {id, attempt} -> {id, Late.key(attempt)} end)
    Map.merge(settings, %{keys: keys, arrival_keys: arrival_keys})
  end

  @doc "Stops a run whose last change was refused."
  def check(%__MODULE__{refused: nil} = run), do: {:ok, run}
  def check(%__MODULE__{refused: reason} = run), do: {:stop, run, {:failed, reason}}

  @doc "Returns the messages of users in an iteration, without requests for another typed answer."
  def said(context, number) do
    Enum.filter(Context.get_iteration_messages(context, number), fn
      %{content: [%{type: :tool_result} | _]} -> false
      %{metadata: %{output_retry: _number}} -> false
      message -> message.role == :user
    end)
  end

  @doc "Returns the last message of the current iteration, or `nil`."
  def last_message(context),
    do: context |> Context.get_iteration_messages(context.current_iteration) |> List.last()

  ## Changes

  @doc """
  Replaces the context, and gives it to the session and to the application.

  An application that refused a context gets no other one.
  """
  def put_context(run, context) do
    run = %{run | context: context}
    Underway.put_facts(run)
    if run.watch, do: run.watch.({:context, context})

    with nil <- run.refused,
         {:error, reason} <- Events.store(run.on_change, context) do
      %{run | refused: reason}
    else
      _refused_or_stored -> run
    end
  end

  @doc "Adds the messages that came for the running turn, between the results of one iteration and the next."
  def add_messages(%__MODULE__{refused: nil} = run) do
    case run.next_messages.() do
      [] ->
        run

      :pause ->
        %{run | paused?: true}

      messages ->
        add = &Authority.add_message(&2, &1.input, metadata: &1.metadata)
        context = messages |> Enum.reduce(run.context, add) |> Output.mark_asked(run.output)

        ids = for %{id: id} <- messages, do: id
        run = if run.journal, do: update_in(run.journal.taken, &(&1 ++ ids)), else: run
        put_context(run, context)
    end
  end

  def add_messages(run), do: run

  @doc "Writes the end of a turn, and the reason for which the run stops, to the store."
  def flush_end(run, reason, note \\ %{}) do
    note = Map.merge(note, Ended.note(reason, run.finish_reason))
    %{flush(run, :idle, note) | ended?: true}
  end

  @doc "Writes the changes to the store, with a status unless that is `nil`."
  def flush(run, status, note \\ %{})
  def flush(%__MODULE__{journal: nil} = run, _status, _note), do: run

  def flush(run, status, note) do
    calls = if run.call_notes == [], do: %{}, else: %{calls: Enum.reverse(run.call_notes)}
    spent = Spent.note(run.underway, run.events.metadata[:iteration], run.prices)
    note = note |> Map.merge(calls) |> Map.merge(spent)

    case Journal.write(run.journal, run.context, status, note) do
      {:ok, journal} ->
        Spent.subtract(run.underway, spent)
        if run.watch, do: run.watch.({:kept, journal.kept})
        %{run | journal: journal, call_notes: []}

      {:error, reason} ->
        %{run | refused: run.refused || reason}
    end
  end

  @doc "Interrupts the pending calls. Nobody knows what became of those that were running, which the store is told, too."
  def interrupt(run, words, opts \\ []) do
    # Those of a conversation that was loaded may have been started before, which only a journal knows.
    opts = if run.fresh? or run.journal, do: opts, else: Keyword.put_new(opts, :told, words)
    cut = Underway.list_cut(run.underway, run.scope.context_id)
    {context, unknown} = Underway.interrupt(run.underway, run.context, words, opts)

    run = Enum.reduce(cut, run, &add_sub_agents(&2, &1.contexts, &1.facts.cost || 0))
    put_context(%{run | journal: Journal.finish_all(run.journal, unknown)}, context)
  end

  @doc "Adds the conversations of a sub-agent, and what they cost."
  def add_sub_agents(run, [], cost), do: add_cost(run, cost)

  def add_sub_agents(run, contexts, cost),
    do: add_cost(%{run | sub_agents: run.sub_agents ++ contexts}, cost)

  @doc "Adds what something cost, in a run with prices."
  def add_cost(%{cost: nil} = run, _cost), do: run
  def add_cost(run, cost), do: %{run | cost: run.cost + cost}

  @doc "Adds a response that is over to a context. None of its calls runs."
  def add_broken_response(context, response, words, opts, times \\ {nil, nil}) do
    with {:ok, context} <- Context.put_response(context, response, times),
         do: {:ok, Context.interrupt(context, words, opts)}
  end

  @doc "Returns the time in microseconds since 1970, which contexts read much faster than a `DateTime`."
  def now, do: System.os_time(:microsecond)

  @doc "Returns such a time as text, for notes."
  def to_iso8601(micros),
    do: micros |> DateTime.from_unix!(:microsecond) |> DateTime.to_iso8601()

  ## The end

  @doc "Returns what `AshAgent.Runtime.run/2` returns of a run that stopped for this reason."
  def reply(run, {:answered, message}),
    do: {:ok, result(run, :answered, Response.text(message))}

  def reply(%{output: %{mode: mode, note: note}} = run, {:typed, value, repairs}) do
    result = result(run, :answered, value)
    {:ok, %{result | repairs: repairs, output_mode: mode, output_note: note}}
  end

  def reply(run, :waiting), do: {:ok, result(run, :waiting, nil)}
  def reply(run, {:halted, term}), do: {:ok, result(run, :halted, term)}

  def reply(run, {:paused, unknown}) do
    calls = Context.Calls.undecided_tool_calls(run.context)
    {:paused, struct!(Paused, Map.merge(facts(run), %{calls: calls, unknown: unknown}))}
  end

  # The answer so far is stored even if the run fails. The reason stays that of the failure.
  def reply(run, {:failed, reason}) do
    run = store_end(run, reason)
    {:error, struct!(Error, Map.put(facts(run), :reason, reason))}
  end

  defp store_end(run, {:store_error, _reason}), do: run
  # Nothing has begun.
  defp store_end(%{wake: wake} = run, _reason) when wake != nil, do: run
  defp store_end(run, :parked), do: flush(run, :parked, %{parked: %{reason: :paused}})
  defp store_end(%{ended?: true} = run, _reason), do: flush(run, :idle)

  # The calls of a turn that failed before somebody has decided about them still wait.
  defp store_end(run, reason) do
    case Context.Calls.asked_tool_calls(run.context) do
      [] -> flush_end(run, {:failed, reason})
      _waiting -> flush(run, :paused, Ended.note({:failed, reason}, run.finish_reason))
    end
  end

  defp result(run, status, output) do
    own = %{status: status, output: output, finish_reason: run.finish_reason}
    struct!(Result, Map.merge(facts(run), own))
  end

  defp facts(run) do
    run
    |> Map.take([:context, :iterations, :usage, :cost, :sub_agents])
    |> Map.put(:kept, run.journal && run.journal.kept)
  end
end
