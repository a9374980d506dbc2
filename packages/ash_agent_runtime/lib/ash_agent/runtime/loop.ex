defmodule AshAgent.Runtime.Loop do
  @moduledoc false

  # The steps of a run: ask the model, execute its calls, and repeat until there is a reason to stop.

  alias AshAgent.Context
  alias AshAgent.Runtime.{Authority, Bounds, Events, Journal, Late, Model, ModelCall, Output, Run}
  alias AshAgent.Runtime.{ToolCalls, TypedAnswer, Underway}

  @doc "Runs until the end, and returns the reply of `AshAgent.Runtime.run/2`."
  def run(%Run{} = run) do
    Underway.put_facts(run)

    {:stop, run, reason} =
      with {:ok, run} <- check_price(run),
           {:ok, run} <- take_first(run),
           {:ok, run} <- run |> note_beginning() |> Run.check(),
           {:ok, run} <- begin_journal(run),
           {:ok, run} <- check_tools(run),
           {:ok, run} <- finish_turn(run),
           do: iterate(run)

    Model.finish(run.model_process)
    Run.reply(run, reason)
  end

  # A run that may not ask the model must not continue the tools of an earlier run either: it cannot end well.
  defp check_price(run) do
    with {:error, reason} <- Bounds.begin(run.bounds, run.context, run.model, run.outermost?),
         false <- run.pending == [] and run.answered? and run.wake == nil do
      {:stop, run, {:failed, reason}}
    else
      _may_ask -> {:ok, run}
    end
  end

  # Late results that have come are what an answered turn goes on with, if there are any for it.
  defp take_first(run) do
    with {:ok, taken} <- Late.take(run, run.wake) do
      taken = %{taken | wake: nil}
      {:ok, if(taken.context == run.context, do: taken, else: Run.reopen(taken))}
    end
  end

  # What the turn needs of whoever goes on with it is in the log before the model is asked.
  defp note_beginning(%{last: last, context: context} = run) do
    asks? = run.output != nil and match?(%{role: :user}, last) and run.pending == []

    context =
      if asks? and not Output.asked?(context),
        do: Output.mark_asked(context, run.output),
        else: context

    context =
      if run.given? and not run.answered?,
        do: Authority.note_run(context, run.tool_context),
        else: context

    if context == run.context, do: run, else: Run.put_context(run, context)
  end

  # Without its tools, the model would answer something else.
  defp check_tools(%{tools_raised: {kind, reason, _stacktrace} = raised} = run) do
    if run.pending == [] and run.answered? do
      {:ok, run}
    else
      failure = Events.describe_raised("tools", raised, "the function of :tools, ")
      run = Run.put_context(run, Context.Audit.add_failure(run.context, failure))
      {:stop, run, {:failed, {:tools_exception, kind, reason}}}
    end
  end

  defp check_tools(run), do: {:ok, run}

  # The beginning of the run is stored before it does anything.
  defp begin_journal(%{journal: nil} = run), do: {:ok, run}
  defp begin_journal(%{journal: %{kept: %{status: :idle}}} = run), do: begin_writing(run)

  # The turn was cut short or waited for somebody, and may have been ended by a decision or by another message.
  defp begin_journal(run) do
    case Journal.close_settled(run.journal, run.context) do
      {:ok, journal} -> begin_writing(%{run | journal: journal})
      {:error, reason} -> {:stop, run, {:failed, reason}}
    end
  end

  defp begin_writing(run) do
    run = if run.answered?, do: run, else: Run.flush(run, :running, %{step: :begin})
    with {:ok, run} <- Run.check(run), do: load_attempts(run)
  end

  defp load_attempts(run) do
    with [_ | _] = pending <- run.pending,
         {:ok, journal, earlier} <- Journal.earlier(run.journal, run.context, pending) do
      {:ok, %{run | journal: journal, earlier: earlier}}
    else
      [] -> {:ok, run}
      {:error, reason} -> {:stop, run, {:failed, reason}}
    end
  end

  # An earlier run may have left pending calls, or an answer.
  defp finish_turn(run) do
    cond do
      run.pending != [] ->
        run_iteration(run, &execute/1)

      run.answered? ->
        finish_answered(run)

      # The answer came, and nobody heard of it.
      run.last == nil ->
        end_typed({:ok, run}, run.context.current_iteration - 1)

      true ->
        {:ok, run}
    end
  end

  defp finish_answered(run) do
    case TypedAnswer.settle(run, run.last) do
      {:stop, reason} ->
        run = TypedAnswer.close(run, reason)
        with {:ok, run} <- run |> Run.flush_end(reason) |> Run.check(), do: {:stop, run, reason}

      {:again, error} ->
        run |> TypedAnswer.ask_again(error) |> Run.check()
    end
  end

  @doc "Returns whether a run with these options may ask or start anything: one whose conversation is answered only returns that."
  def acts?(context, opts),
    do: opts[:output] != nil or not Context.outline(context).answered?

  defp iterate(run) do
    with {:ok, run} <- Late.take(run),
         {:ok, run} <- run |> Run.add_messages() |> check_pause(),
         {:ok, run} <- run |> TypedAnswer.begin_attempt() |> Run.check(),
         {:ok, run} <- check_limits(run),
         {:ok, run} <- run_iteration(run, &ask_and_execute/1),
         do: iterate(run)
  end

  defp check_pause(%{paused?: true} = run), do: {:stop, run, {:failed, :parked}}
  defp check_pause(run), do: {:ok, run}

  # The context counts from the conversation's first iteration. A turn has used its iterations when the current one is after
  # the last of them.
  defp check_limits(run) do
    max = run.max_iterations

    with false <- Context.exceeded_max_iterations?(run.context, run.first_iteration + max),
         :ok <- Bounds.ask(run.bounds) do
      {:ok, run}
    else
      true -> {:stop, run, {:failed, {:max_iterations_exceeded, max}}}
      {:error, reason} -> {:stop, run, {:failed, reason}}
    end
  end

  defp ask_and_execute(run) do
    with {:ok, run} <- ModelCall.ask(run),
         do: if(run.pending == [], do: {:ok, run}, else: execute(run))
  end

  defp execute(run) do
    number = run.context.current_iteration
    run = TypedAnswer.settle_calls(run)

    done =
      if run.pending == [],
        do: run |> Run.flush(nil) |> Run.check(),
        else: ToolCalls.execute(run)

    end_typed(done, number)
  end

  # Another tool may have ended the run beside the answer, and it counts more.
  defp end_typed({:stop, _run, {:failed, _reason}} = stop, _number), do: stop
  defp end_typed({:stop, _run, {:paused, _unknown}} = stop, _number), do: stop

  defp end_typed(done, number) do
    case TypedAnswer.conclude(elem(done, 1), number) do
      :go_on ->
        done

      {:ok, run} ->
        {:ok, run}

      {:stop, run, reason} ->
        run = TypedAnswer.close(run, reason)
        with {:ok, run} <- run |> Run.flush_end(reason) |> Run.check(), do: {:stop, run, reason}
    end
  end

  defp run_iteration(run, step) do
    started = System.monotonic_time()
    events = Events.with_metadata(run.events, %{iteration: run.context.current_iteration})
    Events.emit(events, [:iteration, :start], Events.put_system_time())

    result = step.(%{run | events: events, called: 0})
    measured = %{duration: Events.since(started)}

    with {:stop, _run, {:failed, reason}} <- result do
      {kind, label} = Events.failure(reason)
      Events.emit(events, [:iteration, :exception], measured, %{kind: kind, reason: label})
    else
      _goes_on_or_over ->
        measured = Map.put(measured, :tool_calls, elem(result, 1).called)
        Events.emit(events, [:iteration, :stop], measured)
    end

    result
  end
end
