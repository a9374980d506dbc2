defmodule AshAgent.Runtime.Output do
  @moduledoc false

  # The typed answer of a run: how the model is asked for it, how its answer is read, and what it is told when that does not fit.
  #
  # With a tool, the call of an answer is settled before the others of the same message. These run, wait or are denied like
  # any other, and when all have a result, the run ends with the answer.

  alias AshAgent.{Context, LLM, Output, Response}
  alias AshAgent.Runtime.{Events, Run}

  @tool "submit_answer"
  @description "Gives the final answer. Call it once, when you are done, and do not answer in text."

  #   * `type` - an `AshAgent.Output`
  #   * `mode` - `:native`, `:tool` or `:text`
  #   * `note` - why it is not native, in words, or `nil`
  #   * `fields` - those of a native request
  #   * `strict?` - the provider holds its model to the schema
  #   * `max_retries`, `retries` - how often the model may be asked again, and has been
  @enforce_keys [:type, :mode, :max_retries]
  defstruct @enforce_keys ++ [note: nil, fields: nil, strict?: false, retries: 0]

  # These providers promise that an answer fits.
  @strict [:openai_chat, :openai_responses, :anthropic, :bedrock, :mistral]

  @doc "The output of a run with these options and tools, or `nil`. Raises `ArgumentError` for a mode that cannot be."
  def new(opts, tools) do
    if type = opts[:output] do
      if Enum.any?(tools, &(&1.name == @tool)),
        do:
          raise(ArgumentError, "a run with :output has a tool #{@tool} of its own; rename yours")

      choose(
        opts[:output_mode],
        %__MODULE__{
          type: type,
          mode: :text,
          max_retries: opts[:max_retries]
        },
        opts[:llm],
        tools
      )
    end
  end

  defp choose(:text, output, _llm, _tools), do: output
  defp choose(:tool, output, llm, _tools), do: choose_tool(output, llm, nil)

  defp choose(mode, output, llm, tools) do
    case constrain(output.type, llm, beside_tools?: tools != [], forced?: mode == :native) do
      {:ok, fields} ->
        %{output | mode: :native, fields: fields, strict?: LLM.provider(llm) in @strict}

      {:error, words} when mode == :native ->
        raise ArgumentError, "the :output cannot be asked for with output_mode: :native: #{words}"

      {:error, words} ->
        choose_tool(output, llm, words)
    end
  end

  # A function of one argument gets no tools.
  defp choose_tool(output, llm, note) when is_function(llm, 1), do: %{output | note: note}
  defp choose_tool(output, _llm, note), do: %{output | mode: :tool, note: note}

  defp constrain(type, {module, _opts} = llm, how) do
    provider = LLM.provider(llm)

    if provider && function_exported?(module, :credentials, 1),
      do: Output.constrain(type, provider, LLM.model_name(llm) || "", how),
      else: {:error, "it needs a client of this package"}
  end

  defp constrain(_type, _function, _how), do: {:error, "it needs a client of this package"}

  @doc "The tools that the model is offered, with that of the answer."
  def offer(%__MODULE__{mode: :tool, type: type}, tools),
    do: tools ++ [%{name: @tool, description: @description, parameters: type.schema}]

  def offer(_output, tools), do: tools

  @doc "The fields of a request that ask for the answer, or `nil`."
  def fields(%__MODULE__{fields: fields}), do: fields
  def fields(nil), do: nil

  @doc "The context of a request: without a tool or a field of the provider, the system prompt has the schema."
  def instruct(%__MODULE__{mode: :text, type: type}, context) do
    words =
      "When you are done, answer with one JSON object that fits this JSON Schema, and with nothing else:\n\n" <>
        Context.JSON.encode(type.schema)

    case Context.system_prompt(context) do
      nil -> Context.put_system_prompt(context, words)
      text when is_binary(text) -> Context.put_system_prompt(context, text <> "\n\n" <> words)
      parts -> Context.put_system_prompt(context, parts ++ [%{type: :text, text: words}])
    end
  end

  def instruct(_output, context), do: context

  ## A turn remembers that it has a type

  @doc "Marks the iteration, so that nobody goes on with it without its type."
  def mark(nil, context), do: context

  def mark(%__MODULE__{mode: mode}, context),
    do:
      Context.put_iteration_metadata(
        context,
        context.current_iteration,
        "output",
        to_string(mode)
      )

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
  def settle_calls(%{output: %{mode: :tool}} = run) do
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
  def conclude(%{output: %{mode: :tool} = output} = run, number) do
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
