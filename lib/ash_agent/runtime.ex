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

  ## Approval

  `:approval` says which calls may run: a function that gets the call and the tool context and returns `:approve`,
  `{:deny, reason}` or `:ask`. All calls of an answer are decided first, in their order. Then the approved ones are executed,
  and when calls are left to ask about, the run ends with `{:paused, %AshAgent.Runtime.Paused{}}`. Decide about them on the
  context, at any time and in any process, and go on with `resume/2`.

  What was decided is noted on the context, by `:approval`, `:permissions` or `:before_tool`, see
  `AshAgent.Context.tool_call_decision/2`. With `:auto`, calls run without a decision being noted. A call that is approved
  already, by whomever, is not asked about again.

  What was shown is what runs. The hooks `:before_tool` come before the question, and the calls of a `Paused` have the
  arguments that the tool would get. An approval holds for these. When others would run after a pause, because a hook
  makes something else of them by then or because the stored conversation was changed, the call does not run: its result
  is an error that says so, and the model may call again. So a hook should give the same for the same call. What is
  never the same twice, such as a time or a token, belongs into the tool.

  A tool that halts the run ends it also when calls are left to ask about; these are interrupted.

  ## Permissions and hooks

  Each call passes, in this order:

    1. `:allowed_tools` and `:permission_rules`, see `AshAgent.Runtime.Permissions`
    2. the hooks `:before_tool`, which may deny it and change its arguments; changed arguments pass the rules again
    3. `:approval`
    4. the tool
    5. the hooks `:after_tool`, which may change the result

  What is denied has its reason as its result, which the model reads. A call that no tool can take (an unknown
  name, arguments that are no JSON object) gets that as its result; no hook and no approval function hears of it, nor does
  the latter of one that lacks a required argument. An approved call passes 1 and 2 as well when it is executed: that someone
  approved it lifts no rule, and hooks are asked again after a pause.

      iex> alias AshAgent.{Context, LLM, Runtime}
      iex> llm = LLM.Scripted.new([%{tool_calls: [%{id: "call_1", name: "greet", arguments: %{"name" => "ada"}}]}, "Done."])
      iex> {:ok, result} =
      ...>   Runtime.run(Context.new("Greet Ada"),
      ...>     llm: llm,
      ...>     tools: %{greet: fn %{"name" => name} -> {:ok, "Hello, " <> name} end},
      ...>     before_tool: fn call, _tool_context -> {:ok, update_in(call.arguments["name"], &String.capitalize/1)} end,
      ...>     after_tool: fn _call, {:ok, text}, _tool_context -> {:ok, {:ok, text <> "!"}} end
      ...>   )
      iex> Context.get_iteration(result.context, 1).tool_calls
      [%{id: "call_1", name: "greet", arguments: %{"name" => "ada"}, result: {:ok, "Hello, Ada!"}}]

  The context keeps the arguments that the model wrote; only the tool, the approval function and the hooks behind see the
  changed ones.

  A hook or approval function that raises, exits, is killed or returns something else has decided nothing: the call is denied,
  or the result becomes an error, in words that say so, and the failure is logged. Predicates and hooks may take as long as
  a tool may, the approval function as long as the run.

  ## Failures

  Whatever the model and the tools do, `run/2` returns, and the context it returns is valid and can go on. What a tool does
  wrong becomes the result of its call, see `AshAgent.Runtime.ToolExecutor`; so does a result that a context cannot hold.
  What the model does wrong ends the run with an `AshAgent.Runtime.Error`; nothing of that answer is in the context.

  ## Processes

  The loop runs in the calling process; the model and each tool run in a process of their own under a supervisor that ends
  with the call or, together with all it supervises, with the caller. Answers that come too late are dropped.
  """

  alias AshAgent.{Context, LLM}

  alias AshAgent.Runtime.{
    Bounds,
    Error,
    Events,
    Gate,
    Options,
    Paused,
    Result,
    SubAgent,
    Tool,
    ToolExecutor
  }

  @options [
    :llm,
    :on_event,
    :on_change,
    :supervisor,
    :allowed_tools,
    :permission_rules,
    :before_tool,
    :after_tool,
    :max_calls,
    :max_total_tokens,
    :max_sub_agents,
    approval: :auto,
    tools: %{},
    max_iterations: 10,
    runtime_context: %{},
    timeout: :infinity,
    llm_timeout: 120_000,
    tool_timeout: 60_000,
    max_concurrency: 8
  ]

  @doc """
  Runs the loop and returns `{:ok, %AshAgent.Runtime.Result{}}`, `{:error, %AshAgent.Runtime.Error{}}`, or
  `{:paused, %AshAgent.Runtime.Paused{}}` when calls wait for a decision.

  All hold the context that was reached. What the model reports as its usage is noted on it, see
  `AshAgent.Context.add_token_usage/3`; a report that the context does not take is left out.

  ## Options

    * `:llm` - the model, see `t:AshAgent.LLM.t/0`. Required.
    * `:tools` - see `AshAgent.Runtime.Tool`. Defaults to none.
    * `:max_iterations` - how many iterations a turn, from the last user message up to now, may have. Defaults to `10`.
      With that many behind it, the turn ends with `{:max_iterations_exceeded, max}`.
    * `:max_calls` - how many calls of models this run may make, those of all its sub-agents together, or `:infinity`.
      Defaults to `200`, or to `:max_iterations` when that is more. Then it ends with `{:max_calls_exceeded, max}`.
    * `:max_total_tokens` - how many tokens the models of this run, sub-agents included, may report until one more is
      asked, or `:infinity`. Answers that are under way by then still come in. Defaults to `10_000_000`. Then it ends with
      `{:max_total_tokens_exceeded, max}`.
    * `:max_sub_agents` - how many sub-agents this run may start, at all depths together, or `:infinity`. The call of one
      too many gets an error that the model reads. Defaults to `50`.
    * `:runtime_context` - a map for the tools, such as `%{agent: .., domain: .., actor: .., tenant: ..}`; it is not
      stored. Defaults to `%{}`.
    * `:timeout` - milliseconds for the whole run, or `:infinity`. Defaults to `:infinity`.
    * `:llm_timeout` - milliseconds for one answer of the model. Defaults to `120_000`.
    * `:tool_timeout` - milliseconds for one tool call. Defaults to `60_000`.
    * `:max_concurrency` - how many tools run at a time. Defaults to `8`.
    * `:allowed_tools` - a list of names, atoms or text. What is not in it is not offered to the model, and not executed.
      Defaults to `nil`, all.
    * `:permission_rules` - see `AshAgent.Runtime.Permissions`. Defaults to none.
    * `:before_tool` - a function, or a list of functions, of the call and the tool context that returns `:ok`, `{:ok, call}`
      with changed arguments, or `{:deny, reason}`. Defaults to none.
    * `:after_tool` - a function, or a list of functions, of the call, its result (`{:ok, term}` or `{:error, reason}`) and the
      tool context that returns `:ok`, or `{:ok, result}` with another result. It is called as results come, one at a time, and
      hears of failures of the tool too. An error in the place of what a tool halted with keeps the run going. Defaults to none.
    * `:approval` - `:auto`, or a function of the call and the tool context that returns `:approve`, `{:deny, reason}` or
      `:ask`. Defaults to `:auto`.
    * `:on_event` - a function that hears of each step, see `AshAgent.Runtime.Events`. Defaults to none.
    * `:on_change` - a function that gets every new context before the next step begins, to store it. It gets one for each
      answer of the model, one for each decision about a call, and one for each result of a tool. When it returns
      `{:error, reason}`, the run ends with `{:on_change_error, reason}`: tools that run are killed, their calls
      interrupted, and no other context is given to it. When it fails in another way, that is logged and the run goes on.
      Defaults to none.
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
  @spec run(Context.t(), keyword()) ::
          {:ok, Result.t()} | {:paused, Paused.t()} | {:error, Error.t()}
  def run(%Context{} = context, opts) when is_list(opts), do: run(context, opts, outermost())

  @doc false
  # `within` says what runs this one is within, see AshAgent.Runtime.SubAgent: how many, their permissions, and the
  # bounds that they share.
  def run(context, opts, within) do
    opts = options(opts)

    ToolExecutor.with_supervisor(opts[:supervisor], fn supervisor ->
      context |> state(opts, supervisor, within) |> begin()
    end)
  end

  @doc false
  def outermost, do: %{depth: 0, permissions: [], bounds: nil}

  @doc """
  Goes on with a conversation that waited for decisions, and returns what `run/2` returns.

  It is `run/2` under the name for that moment: approved calls are executed, denied ones have their result, and those
  still undecided are asked about again. It takes the same options; none of them is stored with the context, so give the
  same `:approval` again. With its default, what is undecided is executed.

  ## Examples

      iex> alias AshAgent.{Context, LLM, Runtime}
      iex> llm = LLM.Scripted.new([%{tool_calls: [%{id: "call_1", name: "clean_up"}]}, "It is clean."])
      iex> opts = [llm: llm, tools: %{clean_up: fn _ -> {:ok, "3 files"} end}, approval: fn _call, _tool_context -> :ask end]
      iex> {:paused, paused} = Runtime.run(Context.new("Clean up"), opts)
      iex> paused.calls
      [%{id: "call_1", name: "clean_up", arguments: %{}}]
      iex> stored = Context.to_snapshot(paused.context)
      iex> context = stored |> Context.from_snapshot!() |> Context.approve_tool_call("call_1", by: "ann")
      iex> {:ok, result} = Runtime.resume(context, opts)
      iex> result.output
      "It is clean."
  """
  @doc since: "0.1.0"
  @spec resume(Context.t(), keyword()) ::
          {:ok, Result.t()} | {:paused, Paused.t()} | {:error, Error.t()}
  def resume(%Context{} = context, opts) when is_list(opts), do: run(context, opts)

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

    Gate.new(opts)
    Bounds.new(opts)
    opts |> Keyword.put(:llm, LLM.new(opts[:llm])) |> Keyword.update!(:tools, &Tool.new/1)
  end

  defp state(context, opts, supervisor, within) do
    gate = Gate.new(opts, within.permissions)
    bounds = within.bounds || Bounds.new(opts)
    tools = Enum.filter(opts[:tools], &Gate.offer?(gate, &1.name))

    %{
      context: context,
      llm: opts[:llm],
      offered: Enum.map(tools, &Map.take(&1, [:name, :description, :parameters])),
      gate: gate,
      bounds: bounds,
      max_iterations: opts[:max_iterations],
      first: first_of_turn(context, opts[:max_iterations]),
      timeout: opts[:timeout],
      deadline: deadline(opts[:timeout]),
      llm_timeout: opts[:llm_timeout],
      on_change: opts[:on_change],
      refused: nil,
      events: Events.new(opts[:on_event], %{context_id: context[:id]}),
      usage: %{},
      iterations: 0,
      finish_reason: nil,
      supervisor: supervisor,
      execution: %{
        tools: ToolExecutor.by_name(tools),
        tool_context: ToolExecutor.tool_context(opts[:runtime_context]),
        timeout: opts[:tool_timeout],
        max_concurrency: opts[:max_concurrency],
        supervisor: supervisor,
        scope: %{
          depth: within.depth,
          permissions: gate.permissions,
          bounds: bounds,
          context_id: context[:id],
          inherited: Keyword.take(opts, SubAgent.inherited())
        }
      }
    }
  end

  # Nobody needs to know it exactly when it is too far back to go on.
  defp first_of_turn(context, max),
    do: max(Context.turn_start(context), context.current_iteration - max)

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
    with false <-
           Context.exceeded_max_iterations?(run.context, run.first + run.max_iterations),
         :ok <- Bounds.ask(run.bounds) do
      iteration(run, &ask/1)
    else
      true -> {:error, error(run, {:max_iterations_exceeded, run.max_iterations})}
      {:error, reason} -> {:error, error(run, reason)}
    end
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
        Bounds.report(run.bounds, run.context, context)

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

        cond do
          run.refused -> {:failed, run, run.refused}
          calls == [] -> {:stop, {:ok, result(run, :answered, text(content(answer)))}, 0}
          true -> execute(run, calls)
        end

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
        context = Context.add_assistant_message(context, content, calls)
        {:ok, note_usage(context, answer), answer}
    end
  rescue
    error in [Context.Error, ArgumentError, FunctionClauseError] ->
      {:error, {:invalid_answer, error}, []}
  end

  # A report that the context does not take is no reason to lose the answer.
  defp note_usage(context, %{usage: %{} = usage}) when not is_struct(usage) do
    Context.add_token_usage(context, usage)
  rescue
    _ in [Context.Error, ArgumentError, FunctionClauseError] -> context
  end

  defp note_usage(context, _answer), do: context

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

  # All calls are decided before the first one runs, so that what was decided is noted whatever the tools do.
  defp execute(run, calls) do
    undecided = Map.new(Context.undecided_tool_calls(run.context), &{&1.id, &1.arguments})

    case decide(run, Enum.with_index(calls), undecided) do
      {:decided, run, ready, 0} -> run |> carry_out(ready) |> carried_out(length(calls))
      {:decided, run, ready, asked} -> paused(carry_out(run, ready), length(calls) - asked)
      {:timeout, run} -> timed_out(run)
      {:refused, run} -> {:failed, run, run.refused}
    end
  end

  defp decide(run, indexed, undecided) do
    Enum.reduce_while(indexed, {:decided, run, [], 0}, fn {call, index}, {_, run, ready, asked} ->
      case decision(run, call, Map.fetch(undecided, call.id)) do
        {_decision, %{refused: reason} = run} when reason != nil ->
          {:halt, {:refused, run}}

        {_decision, %{refused: reason} = run, _call} when reason != nil ->
          {:halt, {:refused, run}}

        {:run, run, call} ->
          {:cont, {:decided, run, [{call, {index, :called}} | ready], asked}}

        {:refused, run, call} ->
          {:cont, {:decided, run, [{call, {index, :refused}} | ready], asked}}

        {:denied, run} ->
          {:cont, {:decided, run, ready, asked}}

        {:ask, run} ->
          {:cont, {:decided, run, ready, asked + 1}}

        :timeout ->
          {:halt, {:timeout, run}}
      end
    end)
  end

  # `asked` is what an undecided call would run with as far as the context knows, or :error for one that is approved.
  defp decision(run, %{id: id} = call, asked) do
    started = System.monotonic_time()
    approved? = if asked == :error, do: &approved?(run.context, id, &1)
    env = run |> gate_env() |> Map.put(:approved?, approved?)

    case Gate.decide(run.gate, call, env) do
      {:approve, call} ->
        note(run, call, :approved, started, fn context ->
          Context.approve_tool_call(context, id, by: :approval, arguments: call.arguments)
        end)

      {:ask, %{arguments: arguments} = call} ->
        note(run, call, :ask, started, fn context ->
          if asked == {:ok, arguments},
            do: context,
            else: Context.ask_about_tool_call(context, id, arguments)
        end)

      {:deny, by, reason} ->
        decided(run, call, :denied, by, started)
        {:denied, changed(run, deny(run.context, id, asked == :error, by, reason))}

      {run_or_refused, call} ->
        {run_or_refused, run, call}

      :timeout ->
        :timeout
    end
  end

  defp approved?(context, id, arguments) do
    Context.tool_call_approved?(context, id, arguments)
  rescue
    # No context can hold such arguments, so nobody has approved them.
    _ in [Context.Error, ArgumentError] -> false
  end

  # Only what is kept with the call can be approved: arguments that a hook has made may be nothing to be kept.
  defp note(run, call, decision, started, change) do
    case kept(run.context, change) do
      {:ok, context} ->
        decided(run, call, decision, :approval, started)
        run = if context == run.context, do: run, else: changed(run, context)
        if decision == :ask, do: {:ask, run}, else: {:run, run, call}

      {:error, error} ->
        words = "a hook (:before_tool) gave arguments that cannot be kept: "
        decided(run, call, :denied, :before_tool, started)
        reason = words <> Exception.message(error)
        {:denied, changed(run, deny(run.context, call.id, false, :before_tool, reason))}
    end
  end

  defp kept(context, change) do
    {:ok, change.(context)}
  rescue
    error in [Context.Error, ArgumentError] -> {:error, error}
  end

  defp gate_env(run) do
    run.execution
    |> Map.take([:tools, :tool_context, :supervisor, :timeout])
    |> Map.put(:deadline, run.deadline)
  end

  defp decided(run, call, decision, by, started) do
    Events.emit(run.events, [:tool, :decision], %{duration: Events.since(started)}, %{
      tool: Tool.name(call.name),
      tool_call_id: call.id,
      decision: decision,
      by: by
    })
  end

  # What was approved stays so in the log; that it did not run is its result.
  defp deny(context, id, true, _by, reason) when is_binary(reason),
    do: add_result(context, id, {:error, "denied: " <> reason})

  defp deny(context, id, true, _by, reason),
    do: add_result(context, id, {:error, {:denied, reason}})

  defp deny(context, id, false, by, reason) do
    Context.deny_tool_call(context, id, reason, by: by)
  rescue
    error in [Context.Error, ArgumentError, FunctionClauseError] ->
      words = "for a reason that cannot be kept: " <> Exception.message(error)
      Context.deny_tool_call(context, id, words, by: by)
  end

  # Returns the run with the terms of the tools that end it, the first call's first.
  defp carry_out(run, ready) do
    settings =
      Map.merge(run.execution, %{
        events: run.events,
        deadline: run.deadline,
        over?: fn {run, _halts} -> run.refused != nil end
      })

    {state, {run, halts}} =
      ready
      |> Enum.reverse()
      |> ToolExecutor.execute(settings, {run, %{}}, fn {call, {index, reached}},
                                                       outcome,
                                                       {run, halts} ->
        result = seen(run, call, reached, ToolExecutor.result(outcome))
        run = changed(run, add_result(run.context, call.id, result, metadata(outcome)))

        case {outcome, result} do
          {{:halt, _}, {:ok, term}} -> {run, Map.put(halts, index, term)}
          _ -> {run, halts}
        end
      end)

    state = if run.refused, do: :refused, else: state
    {state, run, for({_index, term} <- Enum.sort(halts), do: term)}
  end

  defp seen(run, call, :called, result), do: Gate.result(run.gate, call, result, gate_env(run))
  defp seen(_run, _call, :refused, result), do: result

  defp metadata({_status, _term, metadata}), do: metadata
  defp metadata(_outcome), do: nil

  defp carried_out({:refused, run, _halts}, _calls), do: unkept(run)
  defp carried_out({:timeout, run, _halts}, _calls), do: timed_out(run)
  defp carried_out({:done, run, []}, calls), do: {:next, run, calls}

  # Of several, the first of the calls counts.
  defp carried_out({:done, run, [term | _]}, calls),
    do: {:stop, {:ok, result(run, :halted, term)}, calls}

  defp paused({:done, run, []}, calls) do
    waiting = Context.undecided_tool_calls(run.context)
    Events.emit(run.events, [:iteration, :pause], Events.started(%{tool_calls: length(waiting)}))

    paused = %Paused{
      context: run.context,
      calls: waiting,
      iterations: run.iterations,
      usage: run.usage
    }

    {:stop, {:paused, paused}, calls}
  end

  # A run that a tool has ended asks for nothing any more.
  defp paused({:done, run, halts}, calls) do
    context = Context.interrupt(run.context, "interrupted: another tool ended the run")
    run = changed(run, context)
    carried_out({if(run.refused, do: :refused, else: :done), run, halts}, calls)
  end

  defp paused({refused_or_timeout, _run, _halts} = carried_out, calls)
       when refused_or_timeout in [:refused, :timeout],
       do: carried_out(carried_out, calls)

  # Killed in the middle, a tool may have done its work or not: the model is to know that.
  defp timed_out(run) do
    context = Context.interrupt(run.context, "interrupted: the time of the run was up")
    {:failed, changed(run, context), {:timeout, run.timeout}}
  end

  defp unkept(run) do
    context = Context.interrupt(run.context, "interrupted: the conversation could not be kept")
    {:failed, changed(run, context), run.refused}
  end

  defp add_result(context, id, result, metadata \\ nil) do
    opts = if metadata, do: [metadata: beside(context, id, metadata)], else: []

    try do
      Context.add_tool_results(context, [{id, result}], opts)
    rescue
      error in [Context.Error, ArgumentError, FunctionClauseError] ->
        words = "the tool returned what cannot be kept: " <> Exception.message(error)
        Context.add_tool_results(context, [{id, {:error, words}}], opts)
    end
  end

  # Results of one answer share a message: what is noted with each stands under its call's id.
  defp beside(context, id, {key, noted}) do
    noted_before =
      case last_message(context) do
        %{content: [%{type: :tool_result} | _], metadata: %{^key => %{} = before}} -> before
        _ -> %{}
      end

    %{key => Map.put(noted_before, id, noted)}
  end

  ## What comes out

  # What the application has refused to keep ends the run before its next step.
  defp changed(%{refused: nil} = run, context) do
    case Events.store(run.on_change, context) do
      :ok -> %{run | context: context}
      {:error, reason} -> %{run | context: context, refused: reason}
    end
  end

  defp changed(run, context), do: %{run | context: context}

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

  defp error(run, reason) do
    %Error{
      reason: reason,
      context: run.context,
      usage: run.usage,
      iterations: run.iterations
    }
  end

  defp deadline(:infinity), do: :infinity
  defp deadline(timeout), do: System.monotonic_time(:millisecond) + timeout
end
