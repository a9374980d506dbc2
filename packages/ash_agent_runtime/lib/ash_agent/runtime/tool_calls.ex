defmodule AshAgent.Runtime.ToolCalls do
  @moduledoc false

  # The pending calls of one answer: their attempts before this run are settled, all of them are decided about, and those
  # that may run are executed. All are decided before the first one runs, so that decisions are recorded whatever the tools
  # do.

  alias AshAgent.{Context, Response}
  alias AshAgent.Runtime.{Events, Gate, Journal, Late, Outcome, Repeat, Run, Tool, ToolExecutor}
  alias AshAgent.Runtime.{AskUser, Underway}

  # `undecided` are the calls that have no result yet, and `ready` those that may run, as `{call, {index, kind}}`, the latest
  # first. The kind is `:refused` if no tool can take the call, which then gets an error without any hook,
  # and `:waits` for a call that waits for others.
  #
  # `attempts` has the numbers of attempts that are not the first, by the calls' ids. `unknown` are the calls whose earlier
  # attempt has no known outcome, and `asked` counts all calls that wait for a person. `halts` has the terms of tools that
  # ended the run, by the calls' positions. `started_elsewhere` are the calls that another run has started.
  # `questions` are calls whose tools ask a person before they go on, with what they ask. `waits` are calls by which the model waits for others,
  # and `later?` is true if the result of a call comes later. `arrivals` are the results that had come when the first attempt was settled, by their keys.
  @enforce_keys [:run]
  defstruct [:run, undecided: [], ready: [], attempts: %{}, unknown: []] ++
              [asked: 0, halts: %{}, started_elsewhere: []] ++
              [waits: [], later?: false, questions: [], arrivals: nil]

  @doc "Executes the pending calls. Stops the run if a tool ends it, or if calls wait for a person."
  def execute(%Run{} = run) do
    pending = run.pending
    batch = settle_all(%__MODULE__{run: forget_earlier(run)}, pending, run.earlier)
    batch = %{batch | asked: length(batch.unknown)}

    result =
      with {:ok, batch} <- check(batch),
           {:ok, batch} <- decide_all(batch),
           batch = put_in(batch.run.called, length(pending) - batch.asked),
           {:ok, batch} <- start_attempts(batch),
           {:ok, batch} <- run_tools(batch),
           {:ok, batch} <- settle_waits(batch),
           do: batch |> ask_questions() |> finish()

    case result do
      {:ok, batch} -> {:ok, batch.run}
      {:stop, batch, reason} -> {:stop, batch.run, reason}
    end
  end

  defp forget_earlier(%{earlier: earlier} = run) when earlier == %{}, do: run
  defp forget_earlier(run), do: %{run | earlier: %{}}

  defp check(batch) do
    with {:stop, run, reason} <- Run.check(batch.run),
         do: {:stop, %{batch | run: run}, reason},
         else: (_ok -> {:ok, batch})
  end

  defp update_context(batch, change),
    do: %{batch | run: Run.put_context(batch.run, change.(batch.run.context))}

  ## Attempts before this run

  defp settle_all(batch, pending, earlier) when earlier == %{}, do: %{batch | undecided: pending}

  defp settle_all(batch, pending, earlier) do
    batch = Enum.reduce(pending, batch, &settle(&2, &1, earlier[&1.id]))

    {undecided, unknown} = {Enum.reverse(batch.undecided), Enum.reverse(batch.unknown)}
    ask_about_unknown(%{batch | undecided: undecided, unknown: unknown})
  end

  # A person decides about these. A used approval lets nothing run, and the person who decides again has to find the call
  # undecided.
  defp ask_about_unknown(%{unknown: []} = batch), do: batch

  defp ask_about_unknown(%{unknown: ids} = batch) do
    approved? = &(Context.Calls.tool_call_status(batch.run.context, &1) == :approved)
    again = &Context.Calls.ask_again/1
    batch = if Enum.any?(ids, approved?), do: update_context(batch, again), else: batch

    asked = list_asked(batch.run.context)
    ask = &Context.Calls.ask_about_tool_call(&2, &1)
    ids = Enum.reject(ids, &(&1 in asked))
    if ids == [], do: batch, else: update_context(batch, &Enum.reduce(ids, &1, ask))
  end

  defp list_asked(context),
    do: for(call <- Context.Calls.asked_tool_calls(context), into: MapSet.new(), do: call.id)

  defp settle(batch, call, nil), do: %{batch | undecided: [call | batch.undecided]}

  defp settle(%{run: run} = batch, call, attempt) do
    case run.tools[Tool.name(call.name)] do
      %{late: most} = tool when most != nil ->
        settle_late(batch, call, attempt, tool)

      _tool ->
        decide_attempt(batch, call, attempt)
    end
  end

  # The job may have begun before the machine stopped, and its result may have come.
  defp settle_late(%{arrivals: nil} = batch, call, attempt, tool) do
    case Journal.arrivals(batch.run.journal) do
      {:ok, arrivals} ->
        settle_late(%{batch | arrivals: Map.new(arrivals, &{&1.key, &1})}, call, attempt, tool)

      {:error, reason} ->
        %{batch | run: %{batch.run | refused: batch.run.refused || reason}}
    end
  end

  defp settle_late(%{run: run} = batch, call, attempt, tool) do
    key = Late.key(attempt)

    with %{outcome: outcome} <- batch.arrivals[key] do
      run = update_in(run.journal, &Journal.take_arrivals(&1, [key]))
      result = Late.finish(run, call, outcome)
      update_context(%{batch | run: run}, &add_result(&1, call.id, result))
    else
      nil -> decide_attempt(batch, call, attempt, if(tool.foreign?, do: nil, else: tool))
    end
  end

  defp decide_attempt(%{run: run} = batch, call, attempt, late \\ nil) do
    case Repeat.decide(Run.tool_settings(run), run.gate, run.context, call, attempt) do
      :again ->
        attempts = Map.put(batch.attempts, call.id, attempt.attempt + 1)
        run = update_in(run.journal, &close(&1, attempt))
        %{batch | run: run, attempts: attempts, undecided: [call | batch.undecided]}

      {:result, {:unknown, _words}, :unknown} when late != nil ->
        {:ok, waiting} = Late.read([], late, Late.key(attempt))
        update_context(%{batch | later?: true}, &add_result(&1, call.id, {:waiting, waiting}))

      {:result, result, state} ->
        run = update_in(run.journal, &Journal.finish_attempt(&1, attempt, state))
        update_context(%{batch | run: run}, &add_result(&1, call.id, result))

      :pause ->
        noted = Repeat.note_anew(run.context, call.id, attempt.attempt)
        batch = if noted == run.context, do: batch, else: update_context(batch, fn _ -> noted end)
        %{batch | unknown: [call.id | batch.unknown]}
    end
  end

  # Nobody will know how the attempt before ended.
  defp close(journal, %{state: :started} = attempt),
    do: Journal.finish_attempt(journal, attempt, :unknown)

  defp close(journal, _ended), do: journal

  ## Decisions

  defp decide_all(batch) do
    decide_all(batch.undecided, 0, list_shown(batch.run), batch)
  end

  defp decide_all([], _index, _shown, batch), do: {:ok, batch}

  defp decide_all([call | calls], index, shown, batch) do
    with {:ok, batch} <- decide(batch, call, index, Map.fetch(shown, call.id)),
         do: decide_all(calls, index + 1, shown, batch)
  end

  defp list_shown(%{fresh?: true, pending: pending}),
    do: Map.new(pending, &{&1.id, {&1.arguments, false}})

  defp list_shown(%{context: context}) do
    asked = list_asked(context)
    Map.new(Context.Calls.undecided_tool_calls(context), &{&1.id, {&1.arguments, &1.id in asked}})
  end

  # Arguments that a person wrote are those of the call, as if the model had written them.
  defp put_edited(call, context, :error) do
    case Context.Calls.tool_call_decision(context, call.id) do
      %{edited: edited} -> {%{call | arguments: edited}, true}
      _as_shown -> {call, false}
    end
  end

  defp put_edited(call, context, {:ok, {arguments, true}}) do
    asked = Context.Calls.asked_tool_calls(context)
    again? = Enum.any?(asked, &(match?(%{edited: true}, &1) and &1.id == call.id))
    {if(again?, do: %{call | arguments: arguments}, else: call), false}
  end

  defp put_edited(call, _context, _not_asked), do: {call, false}

  # `shown` has the arguments that the context has for an undecided call, and whether somebody was asked about it before. It
  # is `:error` for an approved one.
  defp decide(%{run: run} = batch, %{id: id} = call, index, shown) do
    started = System.monotonic_time()
    approved? = if shown == :error, do: &approved?(run.context, id, &1)
    {call, edited?} = put_edited(call, run.context, shown)

    env =
      run
      |> Run.tool_settings()
      |> Map.merge(%{approved?: approved?, edited?: edited?, as_shown?: &as_shown?(run, &1)})

    case Gate.decide(run.gate, call, env) do
      {:approve, %{arguments: arguments} = call} ->
        approve =
          &(&1
            |> ask_about(id, arguments, shown)
            |> Context.Calls.approve_tool_call(id, by: :approval))

        record(batch, call, {:approved, started}, approve, &enqueue(&1, call, index, :called))

      {:ask, %{arguments: arguments} = call} ->
        ask = &ask_about(&1, id, arguments, shown)
        record(batch, call, {:ask, started}, ask, &%{&1 | asked: &1.asked + 1})

      {:question, %{arguments: arguments} = call} ->
        ask = &Context.Calls.ask_about_tool_call(&1, id, arguments, question: true)
        record(batch, call, {:ask, started}, ask, &%{&1 | asked: &1.asked + 1})

      {:deny, by, reason} ->
        Events.emit_decision(run.events, call, :denied, by, started)
        batch |> update_context(&deny(&1, id, shown == :error, by, reason)) |> check()

      {:run, call} ->
        {:ok, enqueue(batch, call, index, if(waits?(run, call), do: :waits, else: :called))}

      {:refused, call} ->
        {:ok, enqueue(batch, call, index, :refused)}

      :timeout ->
        time_out(batch)
    end
  end

  defp waits?(run, call), do: match?(%{waits?: true}, run.tools[Tool.name(call.name)])

  defp enqueue(batch, call, index, kind),
    do: %{batch | ready: [{call, {index, kind}} | batch.ready]}

  defp approved?(context, id, arguments) do
    Context.Calls.tool_call_approved?(context, id, arguments)
  rescue
    # No context can hold such arguments, so nobody has approved them.
    _ in [Context.Error, ArgumentError] -> false
  end

  # The request is kept whole, or as digests. What is not known has not been shown.
  defp as_shown?(%{context: context} = run, name) do
    with [shown] <- for(%{"name" => ^name} = tool <- noted_tools(context), do: tool),
         [tool] <- for(%{name: ^name} = tool <- run.offered_tools, do: tool) do
      tool = Map.new(tool, fn {key, value} -> {to_string(key), value} end)
      Enum.any?([[], [keep: :hashes]], &([shown] == note([tool], &1)))
    else
      _not_one -> false
    end
  end

  defp noted_tools(context),
    do: Context.Audit.get_request(context, Context.count_iterations(context)).tools || []

  defp note(tools, opts) do
    {:ok, response} =
      Response.decode(:ollama, %{"message" => %{"content" => "."}, "done" => true})

    Context.new(".")
    |> Context.Audit.put_request(nil, tools, opts)
    |> Context.add_response!(response, requested_at: DateTime.utc_now())
    |> noted_tools()
  end

  # The question is in the log, so that the conversation is paused wherever it goes. Arguments that are not a map, as those of
  # a tool that takes text, can only be the call's own.
  defp ask_about(context, _id, arguments, {:ok, {arguments, true}}), do: context

  defp ask_about(context, id, arguments, {:ok, {arguments, false}}),
    do: Context.Calls.ask_about_tool_call(context, id)

  defp ask_about(context, id, arguments, _others),
    do: Context.Calls.ask_about_tool_call(context, id, arguments)

  # A hook may return arguments that cannot be stored with the call, so that nobody can decide about them.
  defp record(%{run: run} = batch, call, {decision, started}, change, continue) do
    case try_change(run.context, change) do
      {:ok, context} ->
        Events.emit_decision(run.events, call, decision, :approval, started)

        changed? = context != run.context
        batch = if changed?, do: update_context(batch, fn _ -> context end), else: batch
        batch |> continue.() |> check()

      {:error, error} ->
        words = "a hook (:before_tool) returned arguments that cannot be stored: "
        reason = words <> Exception.message(error)
        Events.emit_decision(run.events, call, :denied, :before_tool, started)
        batch |> update_context(&deny(&1, call.id, false, :before_tool, reason)) |> check()
    end
  end

  defp try_change(context, change) do
    {:ok, change.(context)}
  rescue
    error in [Context.Error, ArgumentError] -> {:error, error}
  end

  # The approval stays in the log; the result says that the call did not run.
  defp deny(context, id, true, _by, reason) when is_binary(reason),
    do: add_result(context, id, {:error, "denied: " <> reason})

  defp deny(context, id, true, _by, reason),
    do: add_result(context, id, {:error, {:denied, reason}})

  defp deny(context, id, false, by, reason) do
    Context.Calls.deny_tool_call(context, id, reason, by: by)
  rescue
    error in [Context.Error, ArgumentError, FunctionClauseError] ->
      words = "for a reason that cannot be stored: " <> Exception.message(error)
      Context.Calls.deny_tool_call(context, id, words, by: by)
  end

  ## Execution

  # Only what the journal lets start is run.
  defp start_attempts(%{run: %{journal: nil}} = batch),
    do: {:ok, %{batch | ready: Enum.reverse(batch.ready)}}

  defp start_attempts(batch) do
    %{run: run, ready: ready} = batch = refuse_unstorable(batch)
    called = for {call, {_index, :called}} <- ready, do: call

    starting =
      for call <- called,
          do: {call, Map.get(batch.attempts, call.id, 1), Repeat.decided_at(run.context, call.id)}

    with nil <- run.refused,
         {:ok, journal, ids} <- Journal.start(run.journal, run.context, starting) do
      ready = Enum.filter(ready, fn {call, {_, kind}} -> kind != :called or call.id in ids end)
      elsewhere = Enum.map(called, & &1.id) -- ids
      run = %{run | journal: journal}
      {:ok, %{batch | run: run, ready: ready, started_elsewhere: elsewhere}}
    else
      {:error, reason} -> stop_unstored(batch, reason)
      refused -> stop_unstored(batch, refused)
    end
  end

  # Hooks may make arguments that the journal cannot store.
  defp refuse_unstorable(batch) do
    Enum.reduce(batch.ready, %{batch | ready: []}, fn {call, {_index, kind}} = entry, batch ->
      if kind == :refused or Journal.storable?(call.arguments) do
        %{batch | ready: [entry | batch.ready]}
      else
        words = "a hook (:before_tool) gave arguments that cannot be kept"
        update_context(batch, &add_result(&1, call.id, {:error, words}))
      end
    end)
  end

  defp run_tools(batch) do
    own = %{over?: &(&1.run.refused != nil), checked?: &match?({_index, :called}, &1)}
    settings = batch.run |> Run.tool_settings() |> Map.merge(own)
    settings = if batch.run.journal, do: Map.put(settings, :write, &write/1), else: settings
    {waits, ready} = Enum.split_with(batch.ready, &match?({_call, {_index, :waits}}, &1))
    batch = %{batch | waits: Enum.map(waits, &elem(&1, 0))}
    {state, batch} = ToolExecutor.execute(ready, settings, batch, &add_outcome/4)

    cond do
      batch.started_elsewhere != [] ->
        stop_unstored(batch, {:store_error, {:started, batch.started_elsewhere}})

      batch.run.refused != nil ->
        stop_unstored(batch, batch.run.refused)

      state == :timeout ->
        time_out(batch)

      true ->
        {:ok, batch}
    end
  end

  # A result counts although the calls beside it hang or take the machine with them.
  defp write(batch), do: %{batch | run: Run.flush(batch.run, nil)}

  defp add_outcome({call, {_index, kind}} = keyed, outcome, duration, batch) do
    cond do
      kind == :called and outcome.status == :asks ->
        add_question(keyed, outcome, duration, batch)

      kind == :called and later?(batch.run, call, outcome) ->
        add_later(keyed, outcome, duration, batch)

      true ->
        add_now(keyed, outcome, duration, batch)
    end
  end

  # Arguments that a person wrote would not be those of the call any more.
  defp add_question({call, _key} = keyed, outcome, duration, %{run: run} = batch) do
    if match?(%{edited: _}, Context.Calls.tool_call_decision(run.context, call.id)) do
      add_now(keyed, outcome, duration, batch)
    else
      journal = run.journal && Journal.finish(run.journal, call.id, :interrupted)
      questions = [{call, outcome.term} | batch.questions]
      %{batch | run: %{run | journal: journal}, questions: questions, asked: batch.asked + 1}
    end
  end

  defp ask_questions(%{questions: []} = batch), do: batch

  # Nothing else runs any more. A call that was approved is asked about once more.
  defp ask_questions(%{questions: questions} = batch) do
    batch = update_context(batch, &Context.Calls.ask_again/1)

    Enum.reduce(Enum.reverse(questions), batch, fn {call, question}, batch ->
      Events.emit_decision(batch.run.events, call, :ask, :tool, System.monotonic_time())
      update_context(batch, &AskUser.put_question(&1, call, question))
    end)
  end

  # One that was killed may have begun its job. A tool of somebody else has told nobody the key then.
  defp later?(_run, _call, %{status: :waiting}), do: true

  defp later?(run, call, outcome),
    do:
      stopped?(outcome) and
        match?(
          %{late: most, foreign?: false} when most != nil,
          run.tools[Tool.name(call.name)]
        )

  defp add_later({call, _key} = keyed, outcome, duration, %{run: run} = batch) do
    attempt = Map.fetch!(run.journal.attempts, call.id)
    opts = if outcome.status == :waiting, do: outcome.term, else: []

    with {:ok, waiting} <- Late.read(opts, run.tools[Tool.name(call.name)], Late.key(attempt)),
         times = times(duration),
         context = add_result(run.context, call.id, {:waiting, waiting}, [], times),
         :waiting <- Context.Calls.tool_call_status(context, call.id) do
      journal = Journal.leave(run.journal, call.id)
      run = Run.put_context(note_call(%{run | journal: journal}, call, times), context)
      %{batch | run: run, later?: true}
    else
      {:error, words} ->
        add_now(keyed, %Outcome{status: :error, term: words}, duration, batch)

      _unstorable ->
        add_now(
          keyed,
          %Outcome{status: :error, term: "the tool gave a :for that cannot be stored"},
          duration,
          batch
        )
    end
  end

  defp times(duration) do
    ended_at = Run.now()
    started_at = ended_at - System.convert_time_unit(duration, :native, :microsecond)
    %{started_at: started_at, ended_at: ended_at}
  end

  defp add_now({call, {index, kind}}, outcome, duration, %{run: run} = batch) do
    outcome = Underway.add_cut(outcome, run.underway, run.scope.context_id, call.id)
    result = run |> apply_hooks(call, kind, Outcome.result(outcome)) |> tell_stopped(outcome)
    times = times(duration)

    about =
      if outcome.error_type, do: Map.put(times, :error_type, outcome.error_type), else: times

    repairs = with %{repairs: repairs} <- call, do: [repairs: repairs], else: (_none -> [])
    notes = List.wrap(outcome.metadata) ++ repairs

    context =
      run.context |> note_failure(call, outcome) |> add_result(call.id, result, notes, about)

    run =
      run
      |> Run.add_sub_agents(outcome.contexts, outcome.cost)
      |> note_outcome(call, if(stopped?(outcome), do: :unknown, else: outcome.status), times)
      |> Run.put_context(context)

    case {outcome.status, result} do
      {:halt, {:ok, term}} -> %{batch | run: run, halts: Map.put(batch.halts, index, term)}
      _goes_on -> %{batch | run: run}
    end
  end

  defp apply_hooks(_run, _call, :refused, result), do: result
  defp apply_hooks(%{gate: %{after: []}}, _call, :called, result), do: result

  defp apply_hooks(run, call, :called, result),
    do: Gate.result(run.gate, call, result, Run.tool_settings(run))

  # A call that was killed when its time was over may have been carried out, and so may one whose answer was cut off.
  defp stopped?(%Outcome{status: :error, error_type: type}),
    do: type in ["timeout", Outcome.unknown()]

  defp stopped?(_ended), do: false

  defp tell_stopped({:error, words}, %{term: words} = outcome) do
    if stopped?(outcome), do: Repeat.make_stopped(words), else: {:error, words}
  end

  defp tell_stopped(result, _outcome), do: result

  # The model reads no more than that it failed.
  defp note_failure(context, _call, %{raised: nil}), do: context

  defp note_failure(context, call, %{raised: raised}) do
    about = "the tool #{inspect(Tool.name(call.name))}, "
    Context.Audit.add_failure(context, Events.describe_raised("tool", raised, about))
  end

  defp note_outcome(%{journal: nil} = run, _call, _status, _times), do: run

  defp note_outcome(run, call, status, times) do
    journal = Journal.finish(run.journal, call.id, status)
    note_call(%{run | journal: journal}, call, times)
  end

  defp note_call(run, call, %{started_at: started_at, ended_at: ended_at}) do
    times = %{ended_at: Run.to_iso8601(ended_at), microseconds: ended_at - started_at}
    note = Map.merge(times, %{id: call.id, name: Tool.name(call.name)})
    %{run | call_notes: [note | run.call_notes]}
  end

  # `about` has the times of the tool, if one has run, and the kind of its error.
  defp add_result(context, id, result, notes \\ [], about \\ %{}) do
    notes = for {key, note} <- notes, into: %{}, do: {key, %{id => note}}
    opts = Underway.add_notes(context, notes)
    result = Map.merge(about, %{id: id, result: result})

    try do
      Context.add_tool_results(context, [result], opts)
    rescue
      error in [Context.Error, ArgumentError, FunctionClauseError] ->
        words = "the tool returned a term that cannot be stored: " <> Exception.message(error)
        Context.add_tool_results(context, [%{result | result: {:error, words}}], opts)
    end
  end

  ## Waiting for results that come later

  # Nobody is kept waiting who has sent a message, or is asked for a decision.
  defp settle_waits(%{waits: []} = batch), do: {:ok, batch}

  defp settle_waits(%{waits: waits} = batch) do
    with {:ok, run} <- Late.take(batch.run, nil, waits),
         {:ok, arrivals} <- Journal.arrivals(run.journal) do
      over = MapSet.new(arrivals, & &1.key)
      why = end_of_waits(%{batch | run: run})
      {:ok, Enum.reduce(waits, %{batch | run: run, waits: []}, &settle_wait(&2, &1, why, over))}
    else
      {:stop, run, reason} -> {:stop, %{batch | run: run}, reason}
      {:error, reason} -> stop_unstored(batch, reason)
    end
  end

  defp end_of_waits(%{asked: asked}) when asked > 0, do: "another call waits for a person"
  defp end_of_waits(%{halts: halts}) when halts != %{}, do: "another tool ended the run"
  defp end_of_waits(%{run: run}), do: if(run.messages?.(), do: "a message came")

  defp settle_wait(%{run: run} = batch, call, why, over) do
    key = Late.wait_key(run.context, call)
    call = Late.noted_wait(run.context, call)

    case Late.wait(run.context, call, if(key in over, do: "the time is over", else: why)) do
      {:done, words} ->
        # An earlier run may have written that it waits.
        journal = if run.fresh?, do: run.journal, else: Journal.take_arrivals(run.journal, [key])
        batch = %{batch | run: %{run | journal: journal}}
        update_context(batch, &add_result(&1, call.id, {:ok, words}))

      {:wait, deadline} ->
        row = %{key: key, call: Map.put(call, :iteration, run.context.current_iteration)}
        run = update_in(run.journal, &Journal.wait(&1, row, deadline))
        batch = %{batch | run: run, waits: [call | batch.waits]}
        update_context(batch, &Late.note_wait(&1, call))
    end
  end

  ## The end

  @halted "interrupted: another tool ended the run"

  defp finish(%{asked: 0, halts: halts, waits: [_ | _]} = batch) when halts == %{} do
    with {:ok, batch} <- flush(batch, :waiting), do: {:stop, batch, :waiting}
  end

  defp finish(%{asked: 0, halts: halts, later?: true, run: %{when_late: how}} = batch)
       when halts == %{} and how != :go_on,
       do: finish_late(how, batch)

  defp finish(%{asked: 0, halts: halts} = batch) when halts == %{}, do: flush(batch, nil)

  defp finish(%{halts: halts} = batch) when halts == %{} do
    with {:ok, batch} <- flush(batch, :paused), do: {:stop, batch, {:paused, batch.unknown}}
  end

  # A run that a tool has ended has no more questions. Of several such tools, the first of the calls counts.
  defp finish(batch) do
    run =
      if batch.asked > 0,
        do: Run.interrupt(batch.run, @halted, told: @halted, unknown: batch.unknown),
        else: batch.run

    {_index, term} = Enum.min_by(batch.halts, fn {index, _term} -> index end)

    if run.refused do
      stop_unstored(%{batch | run: run}, run.refused)
    else
      halted = {:halted, term}
      batch = %{batch | run: Run.flush_end(run, halted)}
      with {:ok, batch} <- check(batch), do: {:stop, batch, halted}
    end
  end

  # A result that came before the tool returned begins a turn of its own.
  defp finish_late(:end, %{run: run} = batch) do
    with {:ok, batch} <- check(%{batch | run: Run.flush_end(run, :waiting)}),
         do: {:stop, batch, :waiting}
  end

  defp finish_late(:wait, batch) do
    case Late.take(batch.run) do
      {:ok, run} ->
        batch = %{batch | run: run}

        if Late.awaited(run.context) == [],
          do: flush(batch, nil),
          else: with({:ok, batch} <- flush(batch, :waiting), do: {:stop, batch, :waiting})

      {:stop, run, reason} ->
        {:stop, %{batch | run: run}, reason}
    end
  end

  defp flush(batch, status), do: check(%{batch | run: Run.flush(batch.run, status)})

  # A tool killed in the middle may have done its work or not: the model should know that.
  defp time_out(%{run: run} = batch) do
    run = Run.interrupt(run, "interrupted: the run timed out", unknown: batch.unknown)
    {:stop, %{batch | run: run}, {:failed, {:timeout, run.timeout}}}
  end

  # Data that the store refused stays as it is: the next run finds it in the journal.
  defp stop_unstored(%{run: run} = batch, reason) do
    run =
      case reason do
        {:store_error, {:started, _ids}} ->
          Run.flush(%{run | refused: nil}, nil)

        {:store_error, _reason} ->
          run

        _on_change_error ->
          words = "interrupted: the conversation could not be stored"
          Run.interrupt(%{run | refused: reason}, words, unknown: batch.unknown)
      end

    {:stop, %{batch | run: %{run | refused: reason}}, {:failed, reason}}
  end
end
