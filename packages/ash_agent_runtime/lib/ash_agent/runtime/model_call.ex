defmodule AshAgent.Runtime.ModelCall do
  @moduledoc false

  # One call of the model: its answer, or the part of it that came, is added to the context.

  alias AshAgent.{Context, Deadline, LLM, Response}

  alias AshAgent.Runtime.{Answer, Bounds, Events, Output, Overflow, Run, Shape, TypedAnswer}
  alias AshAgent.Runtime.Spent

  @broken_off "interrupted: the answer broke off"

  @doc "Asks the model. Stops the run if its answer ends the turn."
  def ask(run) do
    with {:ok, run} <- run |> note_request() |> shape_view(),
         {:ok, run} <- put_view(run, Overflow.stay_within(run.context, run)) do
      case Bounds.afford(run) do
        :ok -> ask_shaped(run)
        {:error, reason} -> {:stop, run, {:failed, reason}}
      end
    end
  end

  # The application gets the changes before the model sees them.
  defp shape_view(run) do
    case Shape.apply(run.view, run.context) do
      {:ok, context} -> put_view(run, context)
      {:error, reason} -> {:stop, run, {:failed, reason}}
    end
  end

  defp put_view(run, context) when context == run.context, do: {:ok, run}
  defp put_view(run, context), do: run |> Run.put_context(context) |> Run.check()

  defp ask_shaped(run) do
    started = System.monotonic_time()
    run = %{run | requested_at: Run.now(), context: note_sent(run)}

    if Events.heard?(run.events) do
      measured = %{messages: Context.count_messages(run.context)}
      Events.emit(run.events, [:llm, :start], Events.put_system_time(measured))
    end

    answer = request(run)
    run = run |> put_model(answer.model) |> add_tries(answer)

    with {:ok, response} <- read_outcome(answer.outcome, run),
         {:ok, context} <- add_response(run, response, answer.first),
         outline = Context.outline(context),
         :ok <- check_said(context, outline, response) do
      accept(run, context, response, %{started: started, first: answer.first, outline: outline})
    else
      {:error, reason} -> recover(run, answer, reason, started)
    end
  end

  # A run has many fields to copy.
  defp put_model(%{model_process: model} = run, model), do: run
  defp put_model(run, model), do: %{run | model_process: model}

  # After its failure is noted, a request that is too long is made again from a shorter view, one whose schema was refused with a
  # tool, and one whose answer was empty as it is.
  defp recover(run, answer, reason, started) do
    {:stop, failed, _reason} = stop = break_off(run, answer, reason, started)

    with :error <- shorten(failed, reason), :error <- ask_by_tool(failed, reason) do
      if match?({:llm_error, %LLM.Error{reason: {:empty, _word}}}, reason),
        do: ask_again(failed, stop),
        else: stop
    else
      {:ok, run} -> ask(run)
    end
  end

  defp shorten(run, reason) do
    with true <- Overflow.overflow?(run.context, reason),
         {:ok, context} <- Overflow.shorten(run.context, run) do
      {:ok, Run.put_context(run, context)}
    else
      _nothing_to_leave_out -> :error
    end
  end

  defp ask_by_tool(run, reason) do
    with {:ok, output} <- Output.after_refusal(run.output, reason) do
      tools = Output.offer(output, run.offered_tools)
      {:ok, %{run | output: output, offered_tools: tools, noted?: false}}
    end
  end

  # The same request may come to something.
  @asked_again 2

  defp ask_again(%{asked_again: @asked_again}, stop), do: stop

  defp ask_again(run, stop) do
    with {:ok, run} <- Run.check(%{run | asked_again: run.asked_again + 1}),
         :ok <- Bounds.ask(run.bounds) do
      ask(run)
    else
      {:error, reason} -> put_elem(stop, 2, {:failed, reason})
      refused -> refused
    end
  end

  # It is the same in all requests of a run.
  defp note_request(%{noted?: true, output: nil} = run), do: run

  defp note_request(%{noted?: true} = run),
    do: %{run | context: Output.mark(run.output, run.context)}

  defp note_request(run) do
    fields = LLM.describe(run.llm, if(run.stream?, do: :stream, else: :chat))
    fields = Output.describe(run.output, fields)

    tools =
      for tool <- run.offered_tools,
          do: Map.new(tool, fn {key, value} -> {to_string(key), value} end)

    # The default needs no check.
    keep = if run.request_notes == :whole, do: [], else: [keep: run.request_notes]
    context = Context.Audit.put_request(run.context, fields, tools, keep)
    encoding = with {provider, opts} <- LLM.encoding(run.llm), do: prepare(provider, opts)
    %{run | context: Output.mark(run.output, context), noted?: true, encoding: encoding}
  end

  defp prepare(provider, opts),
    do: with({:ok, prepared} <- Context.PreparedRequest.new(provider, opts), do: prepared)

  # An impossible request fails where it is made. A schema that goes with the system prompt is in the note of the request's fields.
  defp note_sent(run) do
    with %{} = encoding <- run.encoding,
         {:ok, context} <- Context.Audit.put_sent(run.context, encoding) do
      context
    else
      _error_or_nil -> run.context
    end
  end

  defp request(run) do
    case Deadline.left(run.deadline) do
      0 -> %Answer{outcome: :timeout, model: run.model_process}
      left -> Answer.ask(run, min(left, run.llm_timeout))
    end
  end

  @doc "Gives the application the context with the answer so far."
  def store_partial(run, response) do
    case add_partial(run, Response.interrupt(response, :unfinished), nil) do
      {:ok, context} -> Events.store(run.on_change, context)
      {:error, _error} -> :ok
    end
  end

  defp add_partial(run, response, first),
    do: Run.add_broken_response(run.context, response, @broken_off, [], times(run, first))

  ## The outcome

  defp read_outcome({:returned, {:ok, %Response{state: :interrupted}}}, _run),
    do: {:error, {:llm_error, :interrupted}}

  defp read_outcome({:returned, {:ok, response}}, _run), do: {:ok, response}

  defp read_outcome({:returned, {:error, {:invalid_answer, _} = reason}}, _run),
    do: {:error, reason}

  defp read_outcome({:returned, {:error, reason}}, _run), do: {:error, {:llm_error, reason}}

  defp read_outcome({:raised, kind, reason, _stacktrace}, _run),
    do: {:error, {:llm_exception, kind, reason}}

  defp read_outcome({:exit, reason}, _run), do: {:error, {:llm_exception, :exit, reason}}
  defp read_outcome({:refused, reason}, _run), do: {:error, reason}

  defp read_outcome(:timeout, run) do
    if Deadline.left(run.deadline) == 0,
      do: {:error, {:timeout, run.timeout}},
      else: {:error, {:llm_timeout, run.llm_timeout}}
  end

  # The only answers that stay in their iteration and do not end the turn are those that came to nothing. A provider refuses for a reason.
  defp check_said(context, outline, response) do
    if outline.answered? or outline.pending > 0 or Run.last_message(context) == nil,
      do: :ok,
      else: {:error, {:llm_error, LLM.Error.empty(Response.finish_word(response))}}
  end

  defp add_response(run, response, first) do
    with {:error, error} <- Context.put_response(run.context, response, times(run, first)),
         do: {:error, {:invalid_answer, error}}
  end

  # `first` is the time until the first piece of a stream.
  defp times(run, nil), do: {run.requested_at, nil}

  defp times(run, first) do
    took = System.convert_time_unit(first, :native, :microsecond)
    {run.requested_at, run.requested_at + took}
  end

  defp accept(run, context, response, %{started: started, first: first, outline: outline}) do
    {message, %{usage: usage, finish_reason: finish_reason}} = Response.read(response)
    calls = if outline.pending == 0, do: [], else: Context.pending_tool_calls(context)
    {run, cost} = count_answer(run, context, response, usage, outline.tokens)

    run = %{
      run
      | iterations: run.iterations + 1,
        finish_reason: finish_reason,
        pending: calls,
        fresh?: true,
        asked_again: 0
    }

    measured =
      %{
        duration: Events.since(started),
        content_bytes: Events.bytes(message.content),
        tool_calls: length(calls)
      }
      |> put_known(:time_to_first_token, first)
      |> put_known(:cost, cost)

    metadata = %{usage: usage || %{}, finish_reason: finish_reason}
    Events.emit(run.events, [:llm, :stop], measured, metadata)
    if Events.heard?(run.events) and usage != nil, do: tell_cache(run, context)
    # Not before: who ends the run counts an answer that is not in the context.
    Spent.add_answer(run, usage, cost)
    run = Run.put_context(run, context)

    # After a refusal the model would refuse again. Otherwise it goes on, or has not yet read that calls were cut off or malformed.
    refused? = calls == [] and finish_reason in [:refusal, :content_filter]
    final? = refused? or outline.answered?

    # A message that came meanwhile belongs to this turn.
    run = if final?, do: Run.add_messages(run), else: run
    final? = final? and run.context == context

    ending =
      if final?,
        do: TypedAnswer.settle(run, message),
        else: TypedAnswer.settle_unfinished(run, message)

    with {:ok, run} <- run |> close(ending) |> Run.check(),
         {:ok, run} <- run |> write(ending, note(run, usage)) |> Run.check() do
      case ending do
        {:stop, reason} -> {:stop, run, reason}
        {:again, error} -> {:ok, TypedAnswer.ask_again(run, error)}
        :go_on -> {:ok, run}
      end
    end
  end

  # Emitted for each request but the first of its kind, and where the provider reports on it.
  defp tell_cache(run, context) do
    opts = [since: run.context.current_iteration, prices: run.prices, model: run.model]
    %{requests: requests} = Context.Audit.account(context, opts)

    with %{predicted: predicted, diagnosis: diagnosis} = last
         when last.verdict != :first or diagnosis != nil <- List.last(requests) do
      measured =
        %{predicted: predicted, read: last.usage[:cached_tokens] || 0}
        |> put_known(:cost, last.cost)
        |> put_known(:avoidable, last.avoidable)

      described = if diagnosis, do: %{diagnosis: diagnosis.reason}, else: %{}
      described = Map.merge(described, describe_verdict(last.verdict))
      Events.emit(run.events, [:llm, :cache], measured, described)
    end
  end

  defp put_known(measured, _name, nil), do: measured
  defp put_known(measured, name, value), do: Map.put(measured, name, value)

  defp describe_verdict({:broken, cause}), do: %{verdict: :broken, cause: cause}
  defp describe_verdict(verdict), do: %{verdict: verdict}

  defp close(run, {:stop, reason}), do: TypedAnswer.close(run, reason)
  defp close(run, _ending), do: run

  defp write(run, {:stop, reason}, note), do: Run.flush_end(run, reason, note)
  defp write(run, _ending, note), do: Run.flush(run, nil, note)

  # Nobody reads it without a store.
  defp note(%{journal: nil}, _usage), do: %{}

  defp note(run, usage) do
    %{
      step: :answer,
      usage: usage || %{},
      started_at: Run.to_iso8601(run.requested_at),
      ended_at: Run.to_iso8601(Run.now())
    }
  end

  # The part of the answer that came stays.
  defp break_off(run, answer, reason, started) do
    run = run |> add_partial_answer(answer, reason) |> put_failure(answer, reason)
    {kind, label} = Events.failure(reason)

    metadata = %{kind: kind, reason: label, stacktrace: stacktrace(answer.outcome)}
    metadata = Map.merge(describe_failure(answer, reason), metadata)
    Events.emit(run.events, [:llm, :exception], %{duration: Events.since(started)}, metadata)
    {:stop, run, {:failed, reason}}
  end

  defp add_partial_answer(run, answer, reason) do
    run = if match?({:refused, _}, answer.outcome), do: %{run | refused: reason}, else: run

    with %Response{} = response <- partial_response(answer),
         response = Response.interrupt(response, elem(reason, 0)),
         {:ok, context} <- add_partial(run, response, answer.first) do
      usage = Response.usage(response)
      {run, cost} = count_answer(run, context, response, usage)
      Spent.add_answer(run, usage, cost)
      %{run | context: context}
    else
      _nothing_came -> count_failed(run, reason)
    end
  end

  # A stream of which nothing was delivered may have reported tokens. They are billed, and leave no message.
  defp count_failed(run, {:llm_error, %LLM.Error{response: %Response{} = response}}) do
    with %{} = usage <- Response.usage(response),
         {:ok, context} <- add_partial(run, response, nil) do
      {counted, cost} = count_answer(run, context, response, usage)
      Spent.add_answer(run, usage, cost)
      %{counted | tokens: run.tokens}
    else
      _nothing_reported -> run
    end
  end

  defp count_failed(run, _reason), do: run

  ## Keeping failures

  defp add_tries(run, %{tries: tries}) do
    for {error, measured} <- Enum.reverse(tries), reduce: run do
      run ->
        failure = error |> LLM.Error.to_failure() |> Map.merge(measured)
        failure = Map.merge(describe_request(run), failure)
        run = count_failed(run, {:llm_error, error})
        %{run | context: Context.Audit.add_failure(run.context, failure)}
    end
  end

  # When the store refuses an answer, the model has not failed.
  defp put_failure(run, %{outcome: {:refused, _}}, _reason), do: Run.put_context(run, run.context)

  defp put_failure(run, answer, reason) do
    streamed = if answer.response, do: %{part: "stream"}, else: %{}
    failure = run |> describe_request() |> Map.merge(streamed) |> Map.merge(failure(reason))
    Run.put_context(run, Context.Audit.add_failure(run.context, failure))
  end

  defp describe_failure(%{outcome: {:refused, _}}, _reason), do: %{}

  defp describe_failure(_answer, reason),
    do: reason |> failure() |> Map.take([:status]) |> Map.put(:failure, failure(reason).kind)

  defp describe_request(run) do
    asked = [model: run.model, provider: LLM.provider(run.llm)]
    at = %{requested_at: Run.to_iso8601(run.requested_at)}
    for {key, value} <- asked, value != nil, into: at, do: {key, value}
  end

  defp failure({:llm_error, %LLM.Error{} = error}), do: LLM.Error.to_failure(error)

  defp failure({timeout, _limit}) when timeout in [:timeout, :llm_timeout],
    do: %{kind: :timeout, timeout: "whole"}

  defp failure({:llm_error, :interrupted}), do: %{kind: :closed}
  # A model of the application's own returned or raised something.
  defp failure(reason), do: %{kind: :invalid_response, code: reason |> elem(0) |> to_string()}

  defp partial_response(%{outcome: {:returned, {:ok, %Response{state: :interrupted} = response}}}),
    do: response

  # One that came to nothing is kept as it is.
  defp partial_response(%{
         response: nil,
         outcome: {:returned, {:ok, %Response{state: :complete} = response}}
       }),
       do: response

  defp partial_response(answer), do: answer.response

  defp stacktrace({:raised, _kind, _reason, stacktrace}), do: stacktrace
  defp stacktrace(_outcome), do: []

  # Counts an answer for the bounds and for the result. Its cost is `nil` if that is not known.
  defp count_answer(run, context, response, usage),
    do: count_answer(run, context, response, usage, Context.outline(context).tokens)

  defp count_answer(run, context, response, usage, tokens) do
    cost = Bounds.report(run.bounds, tokens - run.tokens, run.context, context, run.model)

    # An answer that broke off is reported as far as it came.
    if (cost == nil or usage == nil) and response.state == :complete,
      do: Bounds.note_unreported(run.bounds)

    usage = Map.merge(run.usage, usage || %{}, fn _key, a, b -> a + b end)
    {Run.add_cost(%{run | usage: usage, tokens: tokens}, cost || 0), cost}
  end
end
