defmodule AshAgent.Runtime.TypedAnswer do
  @moduledoc false

  # Reads a typed answer, tells the model why one does not fit, and shows the value while it comes.
  #
  # With a tool, the call of an answer is settled before the others of the same message. These run, wait or are denied like
  # any other, and when all have a result, the run ends with the answer.
  #
  # If the view is to show the answer alone, each attempt has an iteration of its own.

  alias AshAgent.{Context, Deadline, Output, Response, Runtime}
  alias AshAgent.Runtime.{Authority, Events, Late, Run}

  @tool Output.tool_name()

  @doc """
  Returns whether a turn was asked for a typed answer. An answer in text may be one that did not fit: whoever asked was
  killed before the model was asked again.
  """
  def expected?(context, %{last: last, pending: pending, turn_start: turn_start}) do
    number = if last == nil, do: context.current_iteration - 1, else: context.current_iteration

    unfinished? = pending != [] or last == nil or match?(%{role: :assistant}, last)

    retry?(last) or
      (match?(%{role: :user}, last) and Runtime.Output.asked?(context)) or
      (unfinished? and number >= turn_start and
         match?(%{metadata: %{"output" => _mode}}, Context.get_iteration(context, number)))
  end

  @doc """
  Returns the number of the iteration with what the user said. A message that asks again begins another turn for the log, but not for the
  limits of the turn.
  """
  def turn_start(context) do
    first = Context.turn_start(context)
    Enum.find(first..1//-1, first, &(Run.said(context, &1) != []))
  end

  @doc """
  Notes how often earlier runs of the turn asked the model again. `last` is the last message of the current iteration, or `nil`: then the
  iteration before it is concluded once more.
  """
  def count_retries(nil, _context, _last), do: nil

  def count_retries(output, context, last) do
    next = context.current_iteration
    concluded = if last == nil, do: next - 1, else: next

    retries =
      for number <- Late.turn_start(context)..next,
          iteration = Context.get_iteration(context, number),
          asked <- Enum.filter(iteration.messages, &retry?/1) ++ refused(iteration, concluded),
          do: asked

    %{output | retries: length(retries)}
  end

  # The model reads in the results that its answers do not fit.
  defp refused(%{number: number}, concluded) when number >= concluded, do: []

  defp refused(%{tool_calls: calls}, _concluded) do
    answers = Enum.filter(calls, &answer?/1)
    if answers != [] and Enum.all?(answers, &match?({:error, _}, &1.result)), do: [1], else: []
  end

  ## A message that ends the turn

  @doc """
  Reads the message that ends a turn. Returns `{:stop, reason}`, or `{:again, error}` if the model is to be asked again.
  """
  def settle(%{output: nil}, message), do: {:stop, {:answered, message}}

  # Even if it fits: as the calls of a refused answer do not run, its text is no value.
  def settle(%{finish_reason: reason}, message) when reason in [:refusal, :content_filter],
    do: {:stop, {:failed, {:refused, Response.text(message) || ""}}}

  def settle(%{output: output} = run, message) do
    # The answer may come as text in spite of the tool.
    strict? = output.strict? and output.mode == :native

    case read(output, Response.text(message) || "", strict?) do
      {:ok, value, repairs} -> {:stop, {:typed, value, repairs}}
      {:error, error} -> refuse(run, error)
    end
  end

  defp refuse(%{finish_reason: finish_reason} = run, error) do
    cond do
      finish_reason == :length ->
        {:stop, {:failed, {:output_cut, error}}}

      run.output.retries >= run.output.max_retries ->
        {:stop, {:failed, {:invalid_output, error}}}

      true ->
        {:again, error}
    end
  end

  @doc "Ends the run if the call of an answer was cut by the token limit: it would be cut again."
  def settle_unfinished(%{output: %{} = output, finish_reason: :length}, message) do
    calls = Map.get(message, :unfinished_tool_calls, [])

    case Enum.find(calls, &answer?/1) do
      nil -> :go_on
      call -> {:stop, {:failed, {:output_cut, cut(read_call(output, call))}}}
    end
  end

  def settle_unfinished(_run, _message), do: :go_on

  defp cut({:error, error}), do: %{error | reason: :cut}

  defp cut({:ok, value, _repairs}),
    do: %Output.Error{reason: :cut, lines: ["the answer: ends early"], value: value}

  # The cast of a type may be the application's.
  defp read(output, text, strict?),
    do: guard(fn -> Output.read(output.type, text, strict: strict?) end)

  defp check(output, value), do: guard(fn -> Output.check(output.type, value) end)

  defp guard(fun) do
    fun.()
  catch
    kind, reason ->
      Events.log(kind, reason, __STACKTRACE__, "the cast of :output")
      lines = ["the answer: could not be read"]
      {:error, %Output.Error{reason: :invalid, lines: lines}}
  end

  @doc "Asks the model again, with what was wrong."
  def ask_again(run, error) do
    run = update_in(run.output.retries, &(&1 + 1))

    words =
      "Your answer does not fit its schema.\n" <> words(error) <> "\n" <> how(run.output.mode)

    metadata = %{output_retry: run.output.retries}
    Run.put_context(run, Authority.add_message(run.context, words, metadata: metadata))
  end

  defp how(:tool), do: "Call #{@tool} with the whole answer."
  defp how(_mode), do: "Give the whole answer again, as one JSON object and nothing else."

  defp words(error), do: Enum.map_join(error.lines, "\n", &("- " <> &1))

  ## Calls of the tool

  @doc "Adds the results of an answer's pending calls."
  # Models call it by habit, too: an earlier run of the conversation may have offered it.
  def settle_calls(%{output: %{}} = run) do
    {answers, others} = Enum.split_with(run.pending, &answer?/1)

    case for(call <- answers, do: %{id: call.id, result: result(read_call(run.output, call))}) do
      [] ->
        run

      results ->
        context = Context.add_tool_results(run.context, results)
        Run.put_context(%{run | pending: others}, context)
    end
  end

  def settle_calls(run), do: run

  defp answer?(call), do: to_string(call.name) == @tool

  defp read_call(output, %{arguments: text}) when is_binary(text), do: read(output, text, false)
  defp read_call(output, %{arguments: arguments}), do: check(output, arguments || %{})

  defp result({:ok, _value, _repairs}), do: {:ok, "accepted"}

  defp result({:error, error}),
    do: {:error, "The answer does not fit its schema.\n" <> words(error)}

  @doc "Ends a run whose calls of this iteration have their results, if one of them gave the answer or there were too many."
  def conclude(%{output: %{} = output} = run, number) do
    calls =
      for call <- calls(run.context, number), answer?(call), do: {call, read_call(output, call)}

    accepted =
      for {%{result: {:ok, _}}, {:ok, value, repairs}} <- calls, do: {:typed, value, repairs}

    failed = for {_call, {:error, error}} <- calls, do: error

    case {accepted, failed} do
      {[typed | _], _failed} ->
        {:stop, run, typed}

      {[], []} ->
        :go_on

      {[], [error | _]} when run.finish_reason == :length ->
        {:stop, run, {:failed, {:output_cut, cut({:error, error})}}}

      {[], [error | _]} when output.retries >= output.max_retries ->
        {:stop, run, {:failed, {:invalid_output, error}}}

      {[], _errors} ->
        {:ok, update_in(run.output.retries, &(&1 + 1))}
    end
  end

  def conclude(_run, _number), do: :go_on

  defp calls(context, number) do
    case Context.get_iteration(context, number) do
      %{tool_calls: calls} -> calls
      nil -> []
    end
  end

  ## Attempts that did not fit

  @doc "Opens an iteration for an attempt that may have to be hidden."
  def begin_attempt(%{output: %{hide_retries?: true}, refused: nil} = run) do
    if Run.last_message(run.context) == nil do
      run
    else
      context = Runtime.Output.mark(run.output, run.context)
      next = context.current_iteration + 1
      run = Run.put_context(run, Context.update!(context, current_iteration: next))
      # It is no step of the model.
      %{run | first_iteration: run.first_iteration + 1}
    end
  end

  def begin_attempt(run), do: run

  @doc "Hides the attempts before an answer from the view, where that was asked for."
  def close(%{output: %{hide_retries?: true}} = run, {:typed, _value, _repairs}) do
    context = run.context
    # With a tool, the iteration after the answer is open.
    answered = if Run.last_message(context) == nil, do: 1, else: 0
    last = context.current_iteration - answered - 1
    numbers = failed_attempts(context, last, [])
    hidden = Enum.reduce(numbers, context, &Context.View.hide(&2, &1))
    if numbers == [], do: run, else: Run.put_context(run, hidden)
  end

  def close(run, _reason), do: run

  # Back to what the user said.
  defp failed_attempts(context, number, found) do
    iteration = Context.get_iteration(context, number)

    cond do
      iteration == nil or Run.said(context, number) != [] -> found
      failed?(iteration, context) -> failed_attempts(context, number - 1, [number | found])
      true -> failed_attempts(context, number - 1, found)
    end
  end

  defp retry?(message), do: match?(%{metadata: %{output_retry: _number}}, message)

  # What was wrong with a text follows it. A model that goes on by itself is not told anything.
  defp failed?(%{tool_calls: [], number: number} = iteration, context) do
    next = Context.get_iteration_messages(context, number + 1)
    told? = Enum.all?(iteration.messages, &retry?/1) or Enum.any?(next, &retry?/1)
    told? and not Enum.any?(iteration.messages, &is_map_key(&1, :state))
  end

  defp failed?(%{tool_calls: calls}, _context),
    do: Enum.all?(calls, &(answer?(&1) and match?({:error, _words}, &1.result)))

  ## Streams

  # The whole value is told at most every 50 milliseconds. It is read from the beginning, so a long one is told less often: that takes
  # at most a twentieth of the time, however long the answer becomes.
  @interval 50
  @share 20

  @doc """
  The state in which the pieces of an answer are followed, or `nil`. Its `due` is the time when the value has to be told that the last
  pieces made, `nil` if it was.
  """
  def follow(%{output: nil}), do: nil

  def follow(%{output: output} = run) do
    show(run, [{:attempt, output.retries + 1}], fn -> :none end)
    %{follow: Output.follow(), call: nil, text: [], next: Deadline.now(), due: nil}
  end

  @doc """
  Follows the pieces of an answer, or `:end`, and returns the next state. Tells what came of the value with each piece, and all of it
  from time to time and at the end.
  """
  def follow(_run, nil, _events), do: nil
  def follow(_run, %{due: nil} = state, :end), do: state
  def follow(run, state, :end), do: tell_value(run, state)

  def follow(%{output: output} = run, state, events) do
    {state, piece} = Enum.reduce(events, {state, []}, &take(output.mode, &1, &2))
    piece = piece |> Enum.reverse() |> IO.iodata_to_binary()
    state = if piece == "", do: state, else: add_piece(run, state, piece)
    if state.due && Deadline.now() >= state.due, do: tell_value(run, state), else: state
  end

  defp add_piece(%{output: output} = run, state, piece) do
    {follow, parts} = Output.follow(output.type, state.follow, piece)
    state = %{state | follow: follow, text: [state.text, piece]}

    changes = for {path, came} <- parts, do: {:partial, path, came}
    if changes != [], do: show(run, changes, fn -> value(run, state) end)
    if changes == [], do: state, else: %{state | due: state.next}
  end

  defp tell_value(%{output: output} = run, state) do
    told = %{attempt: output.retries + 1}
    start = Deadline.now()

    if run.watch do
      with {:ok, value} <- guard(fn -> value(run, state) end),
           do: run.watch.({:event, [:llm, :value], %{}, Map.put(told, :value, value)})
    end

    Events.emit(run.events, [:llm, :value], %{}, told, %{value: fn -> value(run, state) end})
    stop = Deadline.now()
    %{state | due: nil, next: stop + max(@interval, @share * (stop - start))}
  end

  defp value(%{output: output}, state),
    do: Output.read_partial(output.type, IO.iodata_to_binary(state.text))

  defp take(:tool, {:tool_call_started, position, @tool}, {%{call: nil} = state, piece}),
    do: {%{state | call: position}, piece}

  defp take(:tool, {:tool_call_arguments, call, json}, {%{call: call} = state, piece}),
    do: {state, [json | piece]}

  # Some providers have no pieces of arguments.
  defp take(:tool, {:tool_call, %{name: @tool} = call}, {%{text: []} = state, []}),
    do: {state, [arguments(call)]}

  defp take(mode, {:text, _part, text}, {state, piece}) when mode != :tool,
    do: {state, [text | piece]}

  defp take(_mode, _event, acc), do: acc

  defp arguments(%{arguments: text}) when is_binary(text), do: text
  defp arguments(%{arguments: arguments}), do: Context.JSON.encode(arguments || %{})

  # Only the application's function and subscribers get values.
  defp show(run, changes, value) do
    if run.watch, do: run.watch.({:event, [:llm, :partial], %{}, %{changes: changes}})
    Events.emit(run.events, [:llm, :partial], %{}, %{}, %{changes: changes, value: value})
  end
end
