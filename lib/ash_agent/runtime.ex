defmodule AshAgent.Runtime do
  @moduledoc """
  The agent loop on a context: ask the model, execute the tools it calls, add their results, and again, until it answers
  without calling a tool.

      iex> alias AshAgent.{Context, Runtime}
      iex> llm = fn context ->
      ...>   case context |> Context.to_messages() |> List.last() do
      ...>     %{role: :user, content: "What's" <> _} ->
      ...>       {:ok, %{tool_calls: [%{id: "call_1", name: "get_weather", arguments: %{"city" => "NYC"}}]}}
      ...>
      ...>     %{content: [%{type: :tool_result, content: weather}]} ->
      ...>       {:ok, %{content: "It is " <> weather <> "."}}
      ...>   end
      ...> end
      iex> tools = %{get_weather: fn %{"city" => "NYC"} -> {:ok, "sunny"} end}
      iex> {:ok, result} = Runtime.run(Context.new("What's the weather in NYC?"), llm: llm, tools: tools)
      iex> result.output
      "It is sunny."
      iex> Context.get_iteration(result.context, 1).tool_calls
      [%{id: "call_1", name: "get_weather", arguments: %{"city" => "NYC"}, result: {:ok, "sunny"}}]

  The model is anything that `AshAgent.LLM` describes, tools are what `AshAgent.Runtime.Tool` describes, and
  `AshAgent.Runtime.ToolExecutor` runs them. `AshAgent.Session` keeps a conversation in a process.

  ## Going on

  A run does what its context needs: calls that wait for a result are executed first, and a context that ends with an answer
  comes back with it, without asking. So a run that was cut short is taken up by running the stored context again. Since
  tools may have done their work before the cut, their being executed twice is theirs to bear; to avoid it, call
  `AshAgent.Context.interrupt/2` first.

  ## Failures

  Whatever the model and the tools do, `run/2` returns, and the context it returns is valid and can go on. What a tool does
  wrong becomes the result of its call, see `AshAgent.Runtime.ToolExecutor`; so does a result that a context cannot hold.
  What the model does wrong ends the run with an `AshAgent.Runtime.Error`; nothing of that answer is in the context.

  ## Processes

  The loop runs in the calling process; the model and each tool run in a process of their own under a supervisor that ends
  with the call or, together with all it supervises, with the caller. Answers that come too late are dropped.
  """

  alias AshAgent.{Context, LLM}
  alias AshAgent.Runtime.{Error, Events, Options, Result, Tool, ToolExecutor}

  @options [
    :llm,
    :on_event,
    :on_change,
    :supervisor,
    tools: %{},
    max_iterations: 10,
    runtime_context: %{},
    timeout: :infinity,
    llm_timeout: 120_000,
    tool_timeout: 60_000,
    max_concurrency: 8
  ]

  @doc """
  Runs the loop and returns `{:ok, %AshAgent.Runtime.Result{}}` or `{:error, %AshAgent.Runtime.Error{}}`.

  Both hold the context that was reached.

  ## Options

    * `:llm` - the model, see `t:AshAgent.LLM.t/0`. Required.
    * `:tools` - see `AshAgent.Runtime.Tool`. Defaults to none.
    * `:max_iterations` - how many iterations a turn, from the last user message up to now, may have. Defaults to `10`.
      With that many behind it, the turn ends with `{:max_iterations_exceeded, max}`.
    * `:runtime_context` - a map for the tools, such as `%{agent: .., domain: .., actor: .., tenant: ..}`; it is not
      stored. Defaults to `%{}`.
    * `:timeout` - milliseconds for the whole run, or `:infinity`. Defaults to `:infinity`.
    * `:llm_timeout` - milliseconds for one answer of the model. Defaults to `120_000`.
    * `:tool_timeout` - milliseconds for one tool call. Defaults to `60_000`.
    * `:max_concurrency` - how many tools run at a time. Defaults to `8`.
    * `:on_event` - a function that hears of each step, see `AshAgent.Runtime.Events`. Defaults to none.
    * `:on_change` - a function that gets every new context before the next step begins, to store it. It gets one for each
      answer of the model and one for each result of a tool. When it fails, that is logged and the run goes on. Defaults to
      none.
    * `:supervisor` - a `Task.Supervisor` to run model and tools under, for callers that end what they leave behind
      themselves. Defaults to one of the run's own.

  Raises `ArgumentError` for unknown and wrong options.

  ## Examples

      iex> {:error, error} = AshAgent.Runtime.run(AshAgent.Context.new("Hi"), llm: fn _ -> {:error, :overloaded} end)
      iex> error.reason
      {:llm_error, :overloaded}
      iex> AshAgent.Context.count_messages(error.context)
      1

      iex> again = fn _ -> {:ok, %{tool_calls: [%{name: "roll"}]}} end
      iex> {:error, error} =
      ...>   AshAgent.Runtime.run(AshAgent.Context.new("Roll a six"), llm: again, tools: %{roll: fn _ -> {:ok, 1} end}, max_iterations: 2)
      iex> error.reason
      {:max_iterations_exceeded, 2}
  """
  @doc since: "0.1.0"
  @spec run(Context.t(), keyword()) :: {:ok, Result.t()} | {:error, Error.t()}
  def run(%Context{} = context, opts) when is_list(opts) do
    opts = opts |> options()

    ToolExecutor.with_supervisor(opts[:supervisor], fn supervisor ->
      context |> state(opts, supervisor) |> begin()
    end)
  end

  @doc false
  # Checks options and makes the model and the tools ready; running with the result again costs little.
  def options(opts) do
    opts = Options.validate!(opts, @options)

    for key <- [:timeout, :llm_timeout, :tool_timeout], do: ToolExecutor.timeout!(opts[key], key)
    for key <- [:max_iterations, :max_concurrency], do: ToolExecutor.positive!(opts[key], key)

    unless is_map(opts[:runtime_context]),
      do: raise(ArgumentError, "expected :runtime_context to be a map")

    unless is_nil(opts[:on_event]) or is_function(opts[:on_event], 1) or
             is_function(opts[:on_event], 3),
           do: raise(ArgumentError, "expected :on_event to be a function of arity 1 or 3")

    unless is_nil(opts[:on_change]) or is_function(opts[:on_change], 1),
      do: raise(ArgumentError, "expected :on_change to be a function of arity 1")

    opts |> Keyword.put(:llm, LLM.new(opts[:llm])) |> Keyword.update!(:tools, &Tool.new/1)
  end

  defp state(context, opts, supervisor) do
    %{
      context: context,
      llm: opts[:llm],
      offered: Enum.map(opts[:tools], &Map.take(&1, [:name, :description, :parameters])),
      max_iterations: opts[:max_iterations],
      first: first_of_turn(context, opts[:max_iterations]),
      timeout: opts[:timeout],
      deadline: deadline(opts[:timeout]),
      llm_timeout: opts[:llm_timeout],
      on_change: opts[:on_change],
      events: Events.new(opts[:on_event], %{context_id: context[:id]}),
      usage: %{},
      iterations: 0,
      finish_reason: nil,
      supervisor: supervisor,
      execution: %{
        tools: ToolExecutor.by_name(opts[:tools]),
        tool_context: ToolExecutor.tool_context(opts[:runtime_context]),
        timeout: opts[:tool_timeout],
        max_concurrency: opts[:max_concurrency],
        supervisor: supervisor
      }
    }
  end

  # The iteration that the last user message opened. Nobody needs to know it exactly when it is too far back to go on.
  defp first_of_turn(context, max) do
    current = context.current_iteration
    oldest = max(current - Context.count_iterations(context) + 1, current - max)
    Enum.find(current..oldest//-1, oldest, &user_message?(context, &1))
  end

  defp user_message?(context, number) do
    context
    |> Context.get_iteration_messages(number)
    |> Enum.any?(fn
      %{role: :user, content: [%{type: :tool_result} | _]} -> false
      %{role: :user} -> true
      _ -> false
    end)
  end

  ## The loop

  defp begin(run) do
    case {Context.pending_tool_calls(run.context), last_message(run.context)} do
      {[], %{role: :assistant, content: content} = message}
      when not is_map_key(message, :tool_calls) ->
        {:ok, result(run, :answered, text(content))}

      {[], _} ->
        iterate(run)

      {pending, _} ->
        iteration(run, &execute(&1, pending))
    end
  end

  defp last_message(context),
    do: context |> Context.get_iteration_messages(context.current_iteration) |> List.last()

  defp iterate(run) do
    # The function counts from the conversation's first iteration; a turn has had its number when it stands at the
    # iteration behind it.
    if Context.exceeded_max_iterations?(run.context, run.first + run.max_iterations),
      do: {:error, error(run, {:max_iterations_exceeded, run.max_iterations})},
      else: iteration(run, &ask/1)
  end

  # One iteration: `step` is what it begins with.
  defp iteration(run, step) do
    started = System.monotonic_time()
    number = run.context.current_iteration
    events = Events.with_metadata(run.events, %{iteration: number})
    Events.emit(events, [:iteration, :start], Events.started())

    case step.(%{run | events: events}) do
      {:stop, reply, tool_calls} ->
        Events.emit(events, [:iteration, :stop], %{
          duration: Events.since(started),
          tool_calls: tool_calls
        })

        reply

      {:next, run, tool_calls} ->
        Events.emit(events, [:iteration, :stop], %{
          duration: Events.since(started),
          tool_calls: tool_calls
        })

        iterate(run)

      {:failed, run, reason} ->
        {kind, label} = failure(reason)

        Events.emit(events, [:iteration, :exception], %{duration: Events.since(started)}, %{
          kind: kind,
          reason: label
        })

        {:error, error(run, reason)}
    end
  end

  defp failure({timeout, _}) when timeout in [:timeout, :llm_timeout], do: {:timeout, timeout}
  defp failure({:llm_exception, kind, reason}), do: {kind, Events.label(kind, reason)}
  defp failure({reason, _}), do: {:error, reason}

  ## The model

  defp ask(run) do
    started = System.monotonic_time()

    Events.emit(
      run.events,
      [:llm, :start],
      Events.started(%{messages: Context.count_messages(run.context)})
    )

    case answer(run) do
      {:ok, context, answer} ->
        calls = Context.extract_tool_calls(context)

        Events.emit(
          run.events,
          [:llm, :stop],
          %{
            duration: Events.since(started),
            content_bytes: Events.bytes(content(answer)),
            tool_calls: length(calls)
          },
          %{usage: usage(answer), finish_reason: finish_reason(answer)}
        )

        run =
          changed(
            %{
              run
              | usage: add_usage(run.usage, usage(answer)),
                iterations: run.iterations + 1,
                finish_reason: finish_reason(answer)
            },
            context
          )

        if calls == [],
          do: {:stop, {:ok, result(run, :answered, text(content(answer)))}, 0},
          else: execute(run, calls)

      {:error, reason, stacktrace} ->
        {kind, label} = failure(reason)

        Events.emit(
          run.events,
          [:llm, :exception],
          %{duration: Events.since(started)},
          %{kind: kind, reason: label, stacktrace: stacktrace}
        )

        {:failed, run, reason}
    end
  end

  defp answer(run) do
    left = ToolExecutor.left(run.deadline)
    allowed = min(left, run.llm_timeout)

    case if(left == 0, do: nil, else: call(run, allowed)) do
      {:ok, {:returned, {:ok, %{} = answer}}} ->
        add_answer(run.context, answer)

      {:ok, {:returned, {:error, reason}}} ->
        {:error, {:llm_error, reason}, []}

      {:ok, {:returned, _other}} ->
        {:error, {:invalid_answer, "expected {:ok, map} or {:error, reason}"}, []}

      {:ok, {:raised, kind, reason, stacktrace}} ->
        {:error, {:llm_exception, kind, reason}, stacktrace}

      {:exit, reason} ->
        {:error, {:llm_exception, :exit, reason}, []}

      nil ->
        if ToolExecutor.left(run.deadline) == 0,
          do: {:error, {:timeout, run.timeout}, []},
          else: {:error, {:llm_timeout, run.llm_timeout}, []}
    end
  end

  defp call(%{llm: llm, context: context, offered: offered} = run, timeout) do
    task =
      Task.Supervisor.async_nolink(
        run.supervisor,
        fn ->
          ToolExecutor.guarded(fn -> LLM.chat(llm, context, tools: offered, timeout: timeout) end)
        end,
        shutdown: :brutal_kill
      )

    Task.yield(task, timeout) || Task.shutdown(task, :brutal_kill)
  end

  defp add_answer(context, answer) do
    content = content(answer)
    calls = Map.get(answer, :tool_calls) || []

    cond do
      not (is_nil(content) or is_binary(content) or is_list(content)) ->
        {:error, {:invalid_answer, "expected :content to be text and :parts to be a list"}, []}

      not is_list(calls) ->
        {:error, {:invalid_answer, "expected :tool_calls to be a list"}, []}

      true ->
        {:ok, Context.add_assistant_message(context, content, calls), answer}
    end
  rescue
    error in [Context.Error, ArgumentError, FunctionClauseError] ->
      {:error, {:invalid_answer, error}, []}
  end

  defp content(answer) do
    case Map.get(answer, :parts) do
      empty when empty in [nil, []] -> Map.get(answer, :content)
      parts -> parts
    end
  end

  defp text(nil), do: nil
  defp text(text) when is_binary(text), do: text

  defp text(parts) do
    texts = for %{} = part <- parts, text = text_of(part), do: text
    if texts == [], do: nil, else: IO.iodata_to_binary(texts)
  end

  defp text_of(part) do
    case {part[:type] || part["type"], part[:text] || part["text"]} do
      {type, text} when type in [:text, "text"] and is_binary(text) -> text
      _ -> nil
    end
  end

  defp usage(%{usage: %{} = usage}) when not is_struct(usage),
    do: for({key, number} <- usage, is_number(number), into: %{}, do: {key, number})

  defp usage(_answer), do: %{}

  defp add_usage(sum, usage), do: Map.merge(sum, usage, fn _key, a, b -> a + b end)

  defp finish_reason(%{finish_reason: reason}) when is_binary(reason), do: reason
  defp finish_reason(_answer), do: nil

  ## The tools

  defp execute(run, calls) do
    settings = Map.merge(run.execution, %{events: run.events, deadline: run.deadline})

    {state, {run, halts}} =
      ToolExecutor.execute(Enum.with_index(calls), settings, {run, %{}}, fn {call, index},
                                                                            outcome,
                                                                            {run, halts} ->
        run = changed(run, add_result(run.context, call.id, ToolExecutor.result(outcome)))

        {run,
         if(match?({:halt, _}, outcome), do: Map.put(halts, index, elem(outcome, 1)), else: halts)}
      end)

    case {state, Enum.sort(halts)} do
      {:timeout, _} ->
        # Killed in the middle, a tool may have done its work or not: the model is to know that.
        context = Context.interrupt(run.context, "interrupted: the time of the run was up")
        {:failed, changed(run, context), {:timeout, run.timeout}}

      {:done, []} ->
        {:next, run, length(calls)}

      # Of several, the first of the calls counts.
      {:done, [{_index, term} | _]} ->
        {:stop, {:ok, result(run, :halted, term)}, length(calls)}
    end
  end

  defp add_result(context, id, result) do
    Context.add_tool_results(context, [{id, result}])
  rescue
    error in [Context.Error, ArgumentError, FunctionClauseError] ->
      words = "the tool returned what cannot be kept: " <> Exception.message(error)
      Context.add_tool_results(context, [{id, {:error, words}}])
  end

  ## What comes out

  defp changed(run, context) do
    if run.on_change, do: Events.safely(fn -> run.on_change.(context) end, ":on_change")
    %{run | context: context}
  end

  defp result(run, status, output) do
    %Result{
      status: status,
      output: output,
      context: run.context,
      iterations: run.iterations,
      usage: run.usage,
      finish_reason: run.finish_reason
    }
  end

  defp error(run, reason), do: %Error{reason: reason, context: run.context, usage: run.usage}

  defp deadline(:infinity), do: :infinity
  defp deadline(timeout), do: System.monotonic_time(:millisecond) + timeout
end
