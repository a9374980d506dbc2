defmodule AshAgent.Runtime.TypedAnswer do
  @moduledoc false

  # How a typed answer is read, what the model is told when it does not fit, and what is shown of it while it comes.
  #
  # With a tool, the call of an answer is settled before the others of the same message. These run, wait or are denied like
  # any other, and when all have a result, the run ends with the answer.

  alias AshAgent.{Context, Output, Response}
  alias AshAgent.Runtime.{Events, Run}

  @tool AshAgent.Runtime.Output.tool_name()

  @doc "Whether a turn that is not over was asked for a typed answer."
  def expected?(context) do
    last = Run.last_message(context)
    number = if last == nil, do: context.current_iteration - 1, else: context.current_iteration

    unfinished? =
      Context.pending_tool_calls(context) != [] or last == nil or
        match?(%{role: :assistant, state: _}, last)

    unfinished? and number >= Context.turn_start(context) and
      match?(%{metadata: %{"output" => _mode}}, Context.get_iteration(context, number))
  end

  ## A message that ends the turn

  @doc """
  Reads the message that ends a turn. Returns `{:stop, reason}`, or `{:again, error}` if the model is to be asked again.
  """
  def settle(%{output: nil}, message), do: {:stop, {:answered, message}}

  def settle(%{output: output} = run, message) do
    # What a tool was offered for may still come as text.
    strict? = output.strict? and output.mode == :native

    case read(output, Response.text(message) || "", strict?) do
      {:ok, value, repairs} -> {:stop, {:typed, value, repairs}}
      {:error, error} -> refuse(run, message, error)
    end
  end

  defp refuse(%{finish_reason: finish_reason} = run, message, error) do
    cond do
      finish_reason in [:refusal, :content_filter] ->
        {:stop, {:failed, {:refused, Response.text(message) || ""}}}

      finish_reason == :length ->
        {:stop, {:failed, {:output_cut, error}}}

      run.output.retries >= run.output.max_retries ->
        {:stop, {:failed, {:invalid_output, error}}}

      true ->
        {:again, error}
    end
  end

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
    Run.put_context(run, Context.add_user_message(run.context, words, metadata: metadata))
  end

  defp how(:tool), do: "Call #{@tool} with the whole answer."
  defp how(_mode), do: "Give the whole answer again, as one JSON object and nothing else."

  defp words(error), do: Enum.map_join(error.lines, "\n", &("- " <> &1))

  ## Calls of the tool

  @doc "Gives the calls of an answer that are pending their results."
  # Models call it by habit, too: an earlier run of the conversation may have offered it.
  def settle_calls(%{output: %{}} = run) do
    results =
      for call <- Context.pending_tool_calls(run.context),
          answer?(call),
          do: %{id: call.id, result: result(read_call(run.output, call))}

    if results == [],
      do: run,
      else: Run.put_context(run, Context.add_tool_results(run.context, results))
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

  ## Streams

  @doc "The state in which the pieces of an answer are followed, or `nil`."
  def follow(%{output: nil}), do: nil

  def follow(%{output: output} = run) do
    show(run, [{:attempt, output.retries + 1}], fn -> :none end)
    %{follow: Output.follow(), call: nil, text: []}
  end

  @doc "Follows the pieces of an answer, tells what came of its value, and returns the next state."
  def follow(_run, nil, _events), do: nil

  def follow(%{output: output} = run, state, events) do
    {state, piece} = Enum.reduce(events, {state, []}, &take(output.mode, &1, &2))
    piece = piece |> Enum.reverse() |> IO.iodata_to_binary()

    if piece == "" do
      state
    else
      text = [state.text, piece]
      {follow, parts} = Output.follow(output.type, state.follow, piece)
      changes = for {path, came} <- parts, do: {:partial, path, came}

      if changes != [],
        do:
          show(run, changes, fn -> Output.read_partial(output.type, IO.iodata_to_binary(text)) end)

      %{state | follow: follow, text: text}
    end
  end

  defp take(:tool, {:tool_call_started, position, @tool}, {%{call: nil} = state, piece}),
    do: {%{state | call: position}, piece}

  defp take(:tool, {:tool_call_arguments, call, json}, {%{call: call} = state, piece}),
    do: {state, [json | piece]}

  defp take(mode, {:text, _part, text}, {state, piece}) when mode != :tool,
    do: {state, [text | piece]}

  defp take(_mode, _event, acc), do: acc

  # Only the application's function and subscribers get values.
  defp show(run, changes, value) do
    if run.watch, do: run.watch.({:event, [:llm, :partial], %{}, %{changes: changes}})
    Events.emit(run.events, [:llm, :partial], %{}, %{}, %{changes: changes, value: value})
  end
end
