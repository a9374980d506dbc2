defmodule AshAgent.Runtime.Late do
  @moduledoc false

  # Calls whose results come later: which results a run takes and when, and the tool `wait_for`, by which a model waits for them.
  #
  # A result that has come is an arrival in the store, under the key of the start of its call, until a run takes it: into the slot of a
  # call that is pending, and otherwise behind everything that was said. A run takes those of calls of the person whose turn it is.
  # A turn that was begun for arrivals has a note in the metadata of its iteration, `"woken"`, with the time and the iteration whose turn
  # it goes on with: that is where the person comes from, and the rights.
  #
  # A call of `wait_for` stays pending while its turn waits, and nothing runs then. It is a call that waits like the others, so its time is
  # over when an arrival of the store says so.

  alias AshAgent.{Caller, Context, Store}
  alias AshAgent.Context.Calls
  alias AshAgent.Runtime.{Authority, Bounds, Events, Gate, Journal, Run, Tool, ToolArguments}

  @name "wait_for"
  @woken "woken"

  @description "Waits for calls whose results come later, and returns when all have come. Use it when you cannot go on without them. " <>
                 "Otherwise do something else, or end: you are told when a result comes."

  @parameters %{
    "type" => "object",
    "properties" => %{
      "calls" => %{
        "type" => "array",
        "items" => %{"type" => "string"},
        "description" =>
          "the ids of the calls to wait for; all that are running if it is left out"
      },
      "seconds" => %{
        "type" => "integer",
        "minimum" => 1,
        "maximum" => 31_536_000,
        "description" => "how long to wait at most"
      }
    },
    "additionalProperties" => false
  }

  ## Tools

  @doc "Adds the tool that waits to tools of which one answers late, unless there is one of its name."
  def add_tool(tools) do
    if Enum.any?(tools, & &1.late) and not Enum.any?(tools, &(&1.name == @name)),
      do: tools ++ [wait_tool()],
      else: tools
  end

  defp wait_tool do
    [tool] =
      Tool.new([
        %{
          name: @name,
          description: @description,
          parameters: @parameters,
          function: fn _ -> nil end
        }
      ])

    %{tool | waits?: true}
  end

  @doc """
  Returns the tools of a run. Raises `ArgumentError` for a late one if the run has no store which keeps its result, or is within another one. A tool of
  somebody else answers at once then.
  """
  def check!(tools, opts, depth) when is_list(tools) do
    with true <- Enum.any?(tools, & &1.late),
         words when words != nil <- refuse(depth, opts[:store]) do
      for %{name: name, foreign?: false, late: late} when late != nil <- tools,
          do: Caller.refuse!("the tool #{inspect(name)} has :late, #{words}")

      Enum.map(tools, &%{&1 | late: nil})
    else
      _fine -> tools
    end
  end

  def check!(tools, _opts, _depth), do: tools

  defp refuse(depth, _store) when depth > 0,
    do: "which a sub-agent cannot wait for; give it to the outermost run"

  defp refuse(_depth, nil),
    do: "which needs the option :store: a result that comes later has to be kept"

  defp refuse(_depth, store) do
    unless Store.Named.late?(store), do: "but the store keeps no late results: it has no arrive/5"
  end

  @doc "Reads what a tool has returned with `:later`: `{:ok, waiting}` as the context takes it, or an error in words."
  def read(opts, %{late: most, for: whom} = tool, key) do
    with true <- Keyword.keyword?(opts) and Keyword.keys(opts) -- [:deadline, :for] == [],
         {:ok, deadline} <- deadline(Keyword.get(opts, :deadline, most)) do
      waiting = %{for: Keyword.get(opts, :for, whom), handle: key, deadline: deadline}
      {:ok, if(tool.asks?, do: Map.put(waiting, :question, tool.shown), else: waiting)}
    else
      _wrong -> {:error, "the tool did not say {:later, deadline: time, for: term}"}
    end
  end

  defp deadline(%DateTime{} = time), do: {:ok, time}

  defp deadline(most) do
    if Tool.late?(most),
      do: {:ok, DateTime.add(DateTime.utc_now(), most, :millisecond)},
      else: :error
  end

  ## Turns

  @doc "Returns the number of the iteration with which a turn began: with what a user said, or with results for which it was woken."
  def turn_start(context, number \\ nil) do
    Enum.find((number || context.current_iteration)..1//-1, 1, fn number ->
      woken(context, number) != nil or Run.said(context, number) != []
    end)
  end

  @doc "Returns the note of an iteration that was woken, `%{\"at\" => time, \"turn\" => iteration}`, or `nil`."
  def woken(context, number) do
    with %{metadata: %{@woken => %{"at" => _at, "turn" => _turn} = note}} <-
           Context.get_iteration(context, number),
         do: note,
         else: (_none -> nil)
  end

  @doc """
  Ends the turn for which results woke the current iteration, if there is one: a message begins another turn beside them. That one was woken
  still counts.
  """
  def end_woken(%{current_iteration: number} = context) do
    note = woken(context, number)
    ended = note && Map.delete(note, "turn")
    if note, do: Context.put_iteration_metadata(context, number, @woken, ended), else: context
  end

  @doc "Returns when turns of a conversation were woken after a time, the latest first."
  def list_woken(context, since) do
    context.current_iteration..1//-1
    |> Stream.map(&Context.get_iteration(context, &1))
    |> Stream.take_while(&(DateTime.compare(&1.started_at, since) == :gt))
    |> Enum.flat_map(fn iteration ->
      with %{@woken => %{"at" => at}} <- iteration.metadata,
           {:ok, at, _} <- DateTime.from_iso8601(at),
           do: [at],
           else: (_ -> [])
    end)
  end

  @doc """
  Finds the option that a run needs to go on with the turn of a call that waited, and does not have: `:output`, `:approval`, or `nil`.
  """
  def find_missing(context, %{id: id, iteration: number}, opts) do
    cond do
      typed?(context, number) and opts[:output] == nil -> :output
      decided?(context, id, number) and not is_function(opts[:approval], 2) -> :approval
      true -> nil
    end
  end

  @doc "Returns options for a turn that late results begin, which is asked for a typed answer if the one of their calls was."
  def put_output(opts, context, wake) do
    if opts[:output] == nil, do: opts, else: keep_output(opts, context, wake)
  end

  defp keep_output(opts, context, wake) do
    turn = wake || with(%{"turn" => turn} <- woken(context, turn_start(context)), do: turn)
    if turn == nil or typed?(context, turn), do: opts, else: Keyword.delete(opts, :output)
  end

  @doc "Returns whether the turn of an iteration was asked for a typed answer."
  def typed?(context, number),
    do: match?(%{metadata: %{"output" => _mode}}, Context.get_iteration(context, number))

  # Somebody was asked about the calls of this turn.
  defp decided?(context, id, number) do
    context =
      if number == context.current_iteration,
        do: context,
        else: Context.rewind(context, to: number)

    match?(%{decision: :approved}, Calls.tool_call_decision(context, id))
  end

  ## Arrivals

  @doc """
  Finds the call for whose result a turn begins, or `nil`. A message that has no answer is not for the rights of somebody else, and waits for its
  own turn.
  """
  def find_call(context, arrivals) do
    open = open(context, arrivals)
    %{answered?: answered?} = Context.outline(context)

    Enum.find_value(arrivals, fn %{key: key} = arrival ->
      call = open[key]
      own? = fn -> same_asker?(context, call, context.current_iteration) end
      if call != nil and not cancelled?(arrival) and (answered? or own?.()), do: call
    end)
  end

  @doc "Returns whether somebody called a call off, whom nobody has to tell."
  def cancelled?(%{outcome: outcome}), do: match?({:cancelled, _reason}, outcome)

  @doc "Takes results without a turn: of calls that were called off, and those that no call waits for any more."
  def drop(context, arrivals) do
    open = open(context, arrivals)

    Enum.reduce(arrivals, context, fn %{key: key, outcome: outcome} = arrival, context ->
      opts = [from: arrival.from, at: arrival.at]

      with true <- is_map_key(open, key),
           {:ok, context} <- Calls.arrive(context, {:handle, key}, outcome, opts) do
        context
      else
        # The time of something that is over by now.
        _nobody when outcome == {:error, :deadline} -> context
        _nobody -> note_lost(context)
      end
    end)
  end

  @doc "Finds the call for whose result a run without a session begins, since everything else has its answer, or `nil`."
  def find_wake(context, opening, opts, within) do
    with true <- opts[:store] != nil and within[:watch] == nil and opening.answered?,
         [] <- opening.pending,
         true <- open?(context),
         {:ok, arrivals} <- Journal.fetch_arrivals(opts[:store], context[:id]) do
      find_call(context, arrivals)
    else
      _nothing -> nil
    end
  end

  @doc "Returns whether a call waits and has no result."
  def open?(context), do: Calls.waits?(context)

  @doc "Returns those of the calls that wait for whose results these are, by their keys."
  def open(context, arrivals) do
    keys = for %{key: key} <- arrivals, do: key

    for %{state: :open} = call <- Calls.late_calls(context, keys),
        into: %{},
        do: {call.handle, call}
  end

  @doc "Returns whether a call belongs to the person whose turn an iteration is in."
  def same_asker?(context, call, number),
    do: Authority.asker(context, call.iteration) == Authority.asker(context, number)

  @doc """
  Takes what has come for the person whose turn it is into the conversation, after the hooks of the run, and gives it its place unless calls
  are pending. `wake` is the iteration for whose turn the run was woken, or `nil`.
  """
  def take(run, wake \\ nil, waits \\ [])
  def take(%{journal: nil} = run, _wake, _waits), do: {:ok, run}

  def take(run, wake, waits) do
    with true <- open?(run.context),
         {:ok, [_ | _] = arrivals} <- Journal.arrivals(run.journal),
         open = open(run.context, arrivals),
         own = list_own(run.context, open, arrivals, wake),
         :ok <- if(wake, do: Bounds.begin_turn(put_in(run.context, try_all(run, own))), else: :ok) do
      {:ok, take_all(run, open, own, wake, waits ++ pending_waits(run.context))}
    else
      {:error, reason} -> {:stop, %{run | refused: run.refused || reason}, {:failed, reason}}
      _nothing -> {:ok, run}
    end
  end

  # Not those of calls of somebody else, or of one whose tool has not returned.
  defp list_own(context, open, arrivals, wake) do
    asker = Authority.asker(context, wake || context.current_iteration)
    numbers = for {_key, call} <- open, into: MapSet.new(), do: call.iteration

    own =
      for number <- numbers,
          Authority.asker(context, number) == asker,
          into: MapSet.new(),
          do: number

    for %{key: key} = arrival <- arrivals, open[key][:iteration] in own, do: arrival
  end

  # The conversation with results as they came, for a forecast: no hook has seen them.
  defp try_all(run, arrivals), do: run.context |> drop(arrivals) |> place()

  defp take_all(run, _open, [], _wake, _waits), do: run

  defp take_all(run, open, arrivals, wake, waits) do
    waits = for wait <- waits, do: {wait.id, awaited_ids(run.context, wait)}
    add = &add(run, &2, open[&1.key], &1, waits)
    context = arrivals |> Enum.reduce(run.context, add) |> place()
    context = if wake, do: note_woken(context, wake), else: context
    keys = Enum.map(arrivals, & &1.key)
    Run.put_context(%{run | journal: Journal.take_arrivals(run.journal, keys)}, context)
  end

  defp place(context) do
    if Context.pending_tool_calls(context) == [], do: Calls.place_arrivals(context), else: context
  end

  defp note_woken(context, turn) do
    number = context.current_iteration
    note = %{"at" => DateTime.to_iso8601(DateTime.utc_now()), "turn" => turn}
    context |> Authority.copy(turn) |> Context.put_iteration_metadata(number, @woken, note)
  end

  # What cannot be stored is an error that the model reads, as with any result.
  defp add(run, context, call, %{outcome: outcome} = arrival, waits) do
    result = finish(run, call, outcome)
    wait = Enum.find_value(waits, fn {id, calls} -> if call.id in calls, do: id end)
    opts = [from: arrival.from, at: arrival.at, awaited_by: wait]
    metadata = %{tool: Tool.name(call.name), tool_call_id: call.id, status: elem(result, 0)}
    Events.emit(run.events, [:tool, :arrival], Events.put_system_time(), metadata)

    case arrive(context, call.handle, result, opts) do
      {:ok, context} ->
        context

      {:error, %{reason: {:late_tool_result, _call, _why}} = error} ->
        note_lost(context, Exception.message(error))

      {:error, error} ->
        add_unstorable(context, call, error, opts)
    end
  end

  defp add_unstorable(context, call, error, opts) do
    words = "the result cannot be stored: " <> Exception.message(error)
    {:ok, context} = Calls.arrive(context, {:handle, call.handle}, {:error, words}, opts)
    context
  end

  defp arrive(context, key, result, opts) do
    Calls.arrive(context, {:handle, key}, result, opts)
  rescue
    error in [Context.Error, ArgumentError, FunctionClauseError] -> {:error, error}
  end

  @doc "Notes that a result came which no call waits for any more."
  def note_lost(context, words \\ "a result came late, and no call waits for it") do
    failure = %{kind: :invalid_response, part: "tool", code: "late_result", message: words}
    Context.Audit.add_failure(context, failure)
  end

  @no_result "no result came until the deadline. The call was started, and what became of it is not known"

  @doc "Takes the result of a call that comes late through the type of the tool and the hooks after it."
  def finish(_run, _call, {:error, :deadline}), do: {:unknown, @no_result}

  def finish(run, call, {status, _term} = result) when status in [:ok, :error] do
    tool = Map.get(run.tools, Tool.name(call.name), %{returns: nil})
    call = Map.take(call, [:id, :name, :arguments])
    Gate.result(run.gate, call, Tool.check_result(tool.returns, result), Run.tool_settings(run))
  end

  def finish(_run, _call, result), do: result

  ## Waiting

  @doc """
  Returns what a call of `wait_for` returns now: `{:done, words}`, or `{:wait, deadline}` if calls of the person whose turn it is have no
  result. `why` ends it in words, or is `nil`.
  """
  def wait(context, call, why) do
    arguments = read_wait(call)
    known = context |> Calls.late_calls() |> Map.new(&{&1.id, &1})
    states = for id <- Enum.uniq(awaited_ids(context, call)), do: {id, state(context, known[id])}

    cond do
      not Enum.any?(states, &match?({_id, {:open, _words}}, &1)) ->
        {:done, words("nothing to wait for is left", states)}

      why != nil ->
        {:done, words(why, states)}

      seconds = arguments["seconds"] ->
        {:wait, DateTime.add(DateTime.utc_now(), seconds, :second)}

      true ->
        {:wait, nil}
    end
  end

  # Hooks and models may write what the tool's schema does not have.
  defp read_wait(call) do
    with {:ok, given} <- Tool.arguments(call.arguments),
         named = Map.new(given, fn {name, value} -> {to_string(name), value} end),
         {:ok, %{arguments: given}} <- ToolArguments.fit(wait_tool(), %{call | arguments: named}),
         {:ok, arguments} <- Tool.arguments(given),
         do: arguments,
         else: (_unfit -> %{})
  end

  defp awaited_ids(context, call), do: read_wait(call)["calls"] || open_ids(context)

  defp open_ids(context) do
    for call <- Calls.late_calls(context, :open),
        same_asker?(context, call, context.current_iteration),
        do: call.id
  end

  defp state(_context, nil), do: {:none, "no call of this id waits"}

  defp state(context, %{state: :open} = call) do
    until =
      if call.deadline,
        do: " until " <> DateTime.to_iso8601(DateTime.truncate(call.deadline, :second)),
        else: ""

    if same_asker?(context, call, context.current_iteration),
      do: {:open, "#{Tool.name(call.name)} is still running" <> until},
      else: {:other, "#{Tool.name(call.name)} was started for somebody else"}
  end

  defp state(_context, %{state: :elsewhere}),
    do: {:elsewhere, "its result comes in another conversation"}

  defp state(context, %{id: id} = call) do
    if Calls.tool_call_status(context, id) == :cancelled,
      do: {:cancelled, "it was cancelled"},
      else: {:arrived, "the result of #{Tool.name(call.name)} has come"}
  end

  defp words(first, states),
    do: Enum.join([first | for({id, {_state, words}} <- states, do: "#{id}: #{words}")], "\n")

  @doc "Returns the calls that a turn waits for with its last step: those of its own that have no result."
  def awaited(context) do
    first = turn_start(context)
    Enum.filter(Calls.late_calls(context, :open), &(&1.iteration >= first))
  end

  # A tool of the application may have the name.
  @waits "waits"

  @doc "Notes that the model waits by a pending call, with the arguments that the hooks before it left."
  def note_wait(%{current_iteration: number} = context, %{id: id} = call) do
    waits = Map.put(noted_waits(context), id, read_wait(call))
    Context.put_iteration_metadata(context, number, @waits, waits)
  end

  @doc "Returns a call with the arguments by which the model waits already, whatever the hooks would make of them now."
  def noted_wait(context, %{id: id} = call),
    do: %{call | arguments: Map.get(noted_waits(context), id, call.arguments)}

  defp noted_waits(%{current_iteration: number} = context) do
    with %{metadata: %{@waits => %{} = waits}} <- Context.get_iteration(context, number),
         do: waits,
         else: (_none -> %{})
  end

  @doc "Returns the pending calls by which the model waits."
  def pending_waits(context) do
    with [_ | _] = pending <- Context.pending_tool_calls(context),
         waits = noted_waits(context),
         do: for(call <- pending, is_map_key(waits, call.id), do: noted_wait(context, call))
  end

  @doc "Ends the waiting of a conversation that a message or a person interrupts."
  def end_waits(context, why) do
    results =
      for %{id: id} = call <- pending_waits(context) do
        {:done, words} = wait(context, call, why)
        {id, {:ok, words}}
      end

    if results == [], do: context, else: Context.add_tool_results(context, results)
  end

  @doc "The key by which the result of an attempt is taken."
  def key(%{key: key, attempt: attempt}), do: Store.CallKey.arrival(key, attempt)

  @doc "The key by which the time of a call is over by which the model waits. It is started once."
  def wait_key(context, %{id: id} = call),
    do: key(%{key: Journal.keys(context, [call])[id], attempt: 1})

  @doc "The keys of all that are pending."
  def wait_keys(context), do: Enum.map(pending_waits(context), &wait_key(context, &1))

  @doc "Returns the keys of calls that waited in the first context and do so no longer in the second."
  def closed_waits(before, context),
    do: wait_keys(before) -- wait_keys(context)
end
