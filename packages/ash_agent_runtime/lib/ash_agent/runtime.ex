defmodule AshAgent.Runtime do
  @moduledoc """
  The agent loop on a context: ask the model, execute the tools it calls, add their results, and repeat, until it answers
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

  `AshAgent.LLM` describes models, and `AshAgent.Runtime.Tool` describes tools, which `AshAgent.Runtime.ToolExecutor`
  executes. `AshAgent.Session` keeps a conversation in a process.

  ## Continuing

  A run does what its context needs: pending calls are executed first, and if the context ends with an answer, the run
  returns it without asking the model. So to continue a run that was cut short, run the stored context again. If its tools
  were running at that time, they may run twice without a store, so use `:store`, make tools idempotent, or call
  `AshAgent.Context.interrupt/2` first. If the last answer broke off, the model is asked to continue it.

  ## Streams

  If the model can stream, the run reads its answer as it comes, and calls `:on_event` for each piece, see
  `AshAgent.Runtime.Events`. It reads more from the provider only when the functions that get a piece have returned.

      iex> alias AshAgent.{Context, LLM, Runtime}
      iex> me = self()
      iex> show = fn
      ...>   [_, _, :llm, :delta], _, %{events: events} -> for {:text, _part, text} <- events, do: send(me, text)
      ...>   _event, _measurements, _metadata -> :ok
      ...> end
      iex> {:ok, _} = Runtime.run(Context.new("Hi"), llm: LLM.Scripted.new(["Hello there!"]), on_event: show)
      iex> for _ <- 1..2, do: (receive do text when is_binary(text) -> text end)
      ["Hello ", "there!"]

  An answer that breaks off, because of a timeout, an error or a crash, is kept as far as it came: the error's context
  ends with it, with `state: :interrupted`, and `AshAgent.Context.fetch_message/2` has the first word of the error's
  reason. None of its calls is executed, and every provider accepts the next request. While a long answer comes in,
  `:on_change` gets such a context as well, with the reason `:unfinished`: if you store it, it survives the death of the
  VM.

  A call that the model could not finish because it reached its token limit is not executed either. The model is told so,
  and the run continues.

  ## Stores

  With `:store` and `:kept`, a run writes what it does to a store before it goes on, so that it survives the death of its
  machine: the messages it begins with before the model is asked, the model's answer before any tool starts, that calls
  start, and all results of an answer together. Those are at most three round trips for each answer.

      iex> alias AshAgent.{Context, LLM, Runtime, Store}
      iex> {:ok, store} = Store.SQLite.open(":memory:")
      iex> {:ok, kept} = Store.create(store, Context.new("Pay Ann", id: "c1"), owner: "a")
      iex> llm = LLM.Scripted.new([%{tool_calls: [%{id: "call_1", name: "pay"}]}, "Paid."])
      iex> tools = %{pay: fn _arguments, %{idempotency_key: key} when is_binary(key) -> {:ok, "paid"} end}
      iex> {:ok, result} = Runtime.run(kept.value, llm: llm, tools: tools, store: store, kept: kept)
      iex> {:ok, stored} = Store.fetch(store, "c1")
      iex> {Context.equal?(stored.value, result.context), stored.status}
      {true, :idle}
      iex> {:ok, [call]} = Store.calls(store, "c1")
      iex> {call.state, call.call.name}
      {:ok, "pay"}

  After a crash, claim the conversation and run its context again. No call that has its result in the store runs again. For
  a call that was started and has none, the tool's `:repeat` decides, see `AshAgent.Runtime.Tool`: it runs again, its outcome is
  asked for, or the model reads that the outcome is unknown. With `:approval`, the run pauses for a person instead;
  `unknown` of the `AshAgent.Runtime.Paused` has these calls. An approval lets a call start once, whoever resumes.

  When the store does not take a write, or somebody else has claimed the conversation, the run ends before its next step with
  `{:store_error, reason}`. Each result, pause and error has the newest `kept` for the next run.

  With or without a store, the context keeps when each request was made and answered (`AshAgent.Context.fetch_message/2`), when each tool
  started and ended (`AshAgent.Context.tool_call_times/2`), and the view that each request was made from. `AshAgent.Trace` shows them.

  ## Approval

  `:approval` decides which calls may run: a function that gets the call and the tool context and returns `:approve`,
  `{:deny, reason}` or `:ask`. First it decides about all calls of an answer, in order. Then the approved ones are
  executed, and if there are calls to ask about, the run ends with `{:paused, %AshAgent.Runtime.Paused{}}`. Decide about
  them on the context, at any time and in any process, and continue with `resume/2`.

  Decisions are recorded on the context, with `:approval`, `:permissions` or `:before_tool` as the one who decided, see
  `AshAgent.Context.tool_call_decision/2`. With `:auto`, calls run and no decision is recorded. A call that is already
  approved, by whomever, is not asked about again.

  Only arguments that were shown will run. The hooks `:before_tool` run before the question, and the calls of a `Paused`
  have the arguments that the tool would get. An approval is for exactly these. If others would run after the pause,
  because a hook now returns something else or because the stored conversation was changed, the call does not run: its
  result is an error that says so, and the model may call again. So a hook should return the same arguments for the same
  call. Values that are never the same twice, such as a time or a token, belong in the tool.

  If a tool halts the run, the run ends even if there are calls to ask about; these are interrupted.

  ## Costs

  With `:prices`, see `AshAgent.Prices`, results and events tell what a run cost, with its sub-agents. With `:max_cost` as well, the
  run ends before a model is asked when the turn has cost that much. An answer on its way is still received and paid for, so a turn
  can cost one answer more, and with parallel sub-agents one more of each.

  The costs of the turn's earlier runs count too, so neither a pause nor a crash begins a new account. A user message does. To
  limit a whole conversation, pass what is left of its budget, see `AshAgent.Context.fetch_cost/2`.

  Without a price there is no call: if the model (its option `:model`; a function has none) has no price, the run ends with
  `{:no_price, model}` before it asks or starts anything. If a model does not report its tokens, the run ends with `:unknown_cost`
  instead of asking it again. An answer that broke off counts with what was reported until then.

      iex> prices = [%{model: :any, input: 3_000_000, output: 15_000_000}]
      iex> again = fn _ -> {:ok, %{tool_calls: [%{name: "roll"}], usage: %{input_tokens: 800, output_tokens: 20}}} end
      iex> opts = [llm: again, tools: %{roll: fn _ -> {:ok, 1} end}, prices: prices, max_cost: 5_000_000_000]
      iex> {:error, error} = AshAgent.Runtime.run(AshAgent.Context.new("Roll a six"), opts)
      iex> {error.reason, error.iterations, error.cost}
      {{:max_cost_exceeded, 5_000_000_000}, 2, 5_400_000_000}

  ## Permissions and hooks

  Each call passes these steps, in order:

    1. `:allowed_tools` and `:permission_rules`, see `AshAgent.Runtime.Permissions`
    2. the hooks `:before_tool`, which may deny the call and change its arguments; changed arguments are checked by the rules again
    3. `:approval`
    4. the tool
    5. the hooks `:after_tool`, which may change the result

  A denied call gets the reason as its result, which the model reads. So does a call that no tool can take (because its
  name is unknown, or its arguments are not a JSON object), without any hook or approval function being called. If a
  required argument is missing, the approval function is not called. An approved call passes steps 1 and 2 again when it
  is executed: an approval does not lift the rules, and hooks are called again after a pause.

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

  The context keeps the arguments that the model wrote. Only the tool, the approval function and later hooks see the
  changed ones.

  A hook or approval function that raises, exits, is killed or returns something else has not decided: the call is denied,
  or its result becomes an error, in words that say so, and the failure is logged. Predicates and hooks may take as long
  as a tool, the approval function as long as the run.

  ## Failures

  Whatever the model and the tools do, `run/2` returns, and its context is valid and can be continued. A tool's failure
  becomes the result of its call, see `AshAgent.Runtime.ToolExecutor`, and so does a result that a context cannot store. A
  model's failure ends the run with an `AshAgent.Runtime.Error`, whose context has the part of a stream that came.

  ## Processes

  The loop runs in the calling process. The model and each tool run in their own processes, under a supervisor that ends
  with the call; if the caller dies, it ends with everything it supervises. Late answers are dropped.
  """

  alias AshAgent.{Context, LLM, Response}
  alias AshAgent.Options, as: Check

  alias AshAgent.Runtime.{
    Answer,
    Bounds,
    Error,
    Events,
    Gate,
    Journal,
    Options,
    Paused,
    Repeat,
    Result,
    Tool,
    ToolExecutor
  }

  @broken_off "interrupted: the answer broke off"

  @doc """
  Runs the loop and returns `{:ok, %AshAgent.Runtime.Result{}}`, `{:error, %AshAgent.Runtime.Error{}}`, or `{:paused,
  %AshAgent.Runtime.Paused{}}` if calls need a decision.

  All of them contain the context that was reached. It includes the usage that the model reports, see
  `AshAgent.Context.add_token_usage/3`; a report that is not valid is left out.

  ## Options

  #{Check.docs(Options.schema())}

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
  def run(%Context{} = context, opts) when is_list(opts),
    do: run(context, opts, Bounds.outermost())

  @doc false
  # `within` describes the runs around this one, see AshAgent.Runtime.SubAgent: how many there are, their permissions, and
  # the bounds that they share.
  def run(context, opts, within) do
    opts = options(opts)
    started = System.monotonic_time()

    reply =
      ToolExecutor.with_supervisor(opts[:supervisor], fn supervisor ->
        context |> state(opts, supervisor, within) |> begin_bounded()
      end)

    told = %{first_iteration: Context.turn_start(context), depth: within.depth}
    ended(opts[:on_event], started, reply, told)
    reply
  end

  @doc false
  # Tells of the end of a run. Only the application's function gets contexts: that of the run and those of its sub-agents,
  # with the iteration that the run's first turn began with, and how many runs there are around this one.
  def ended(on_event, started, {_, %{context: context} = ended} = reply, told) do
    on_event
    |> Events.new(%{context_id: context[:id], iteration: context.current_iteration})
    |> Events.emit(
      [:run, :stop],
      %{duration: Events.since(started)},
      ending(reply),
      Map.merge(told, Map.take(ended, [:context, :sub_agents]))
    )
  end

  defp ending({:ok, result}), do: %{status: result.status}
  defp ending({:paused, _paused}), do: %{status: :paused}

  defp ending({:error, error}) do
    {kind, label} = failure(error.reason)
    %{status: :error, kind: kind, reason: label}
  end

  @doc """
  Continues a conversation after decisions were made, and returns the same as `run/2`.

  It is `run/2` under another name: approved calls are executed, denied ones have their result, and undecided ones are
  asked about again. It takes the same options. None of them is stored with the context, so pass the same `:approval`
  again: with its default, undecided calls are executed.

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
    opts = Check.validate!(opts, Options.schema())
    opts |> Keyword.put(:llm, LLM.new(opts[:llm])) |> Keyword.update!(:tools, &tools/1)
  end

  # A function is called when a run begins.
  defp tools(function) when is_function(function, 0), do: function
  defp tools(definitions), do: Tool.new(definitions)

  defp current(function) when is_function(function, 0), do: Tool.new(function.())
  defp current(tools), do: tools

  defp state(context, opts, supervisor, within) do
    gate = Gate.new(opts, within.permissions)
    bounds = within.bounds || Bounds.new(opts)
    tools = opts[:tools] |> current() |> Enum.filter(&Gate.offer?(gate, &1.name))

    %{
      context: context,
      llm: opts[:llm],
      offered: Enum.map(tools, &Map.take(&1, [:name, :description, :parameters])),
      gate: gate,
      bounds: bounds,
      model: LLM.model_name(opts[:llm]),
      outermost?: within.bounds == nil,
      max_iterations: opts[:max_iterations],
      first: first_of_turn(context, opts[:max_iterations]),
      timeout: opts[:timeout],
      deadline: deadline(opts[:timeout]),
      llm_timeout: opts[:llm_timeout],
      stream?: opts[:stream],
      on_change: opts[:on_change],
      on_change_bytes: opts[:on_change_bytes],
      on_change_interval: opts[:on_change_interval],
      watch: within[:watch],
      steered: within[:steered] || fn -> [] end,
      journal: Journal.new(opts, context, within[:taken] || []),
      refused: nil,
      noted: [],
      sub_agents: [],
      events: Events.new(opts[:on_event], %{context_id: context[:id]}),
      usage: %{},
      cost: if(bounds.prices != [], do: 0),
      iterations: 0,
      finish_reason: nil,
      requested_at: nil,
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
          inherited: Keyword.take(opts, Options.inherited())
        }
      }
    }
  end

  # The exact number does not matter if it is too far back to continue.
  defp first_of_turn(context, max),
    do: max(Context.turn_start(context), context.current_iteration - max)

  ## The loop

  defp begin(run, earlier \\ %{}) do
    case {Context.pending_tool_calls(run.context), finished?(run.context)} do
      {[], true} ->
        run = flush(run, :idle)

        if run.refused,
          do: {:error, error(run, run.refused)},
          else: {:ok, result(run, :answered, run.context |> last_message() |> Response.text())}

      {[], false} ->
        iterate(run)

      {pending, _} ->
        iteration(run, &execute(&1, pending, earlier))
    end
  end

  # Before tools of an earlier run go on, since a run that may not ask cannot end well.
  defp begin_bounded(run) do
    with {:error, reason} <- Bounds.begin(run.bounds, run.context, run.model, run.outermost?),
         false <- Context.pending_tool_calls(run.context) == [] and finished?(run.context) do
      failed(run, reason)
    else
      _may_ask -> if run.journal, do: begin_kept(run), else: begin(run)
    end
  end

  # What the run begins with is stored before anything is done, and what was started before is asked for.
  defp begin_kept(run) do
    run = if finished?(run.context), do: run, else: flush(run, :running, %{step: :begin})

    with nil <- run.refused,
         {:ok, earlier} <- earlier(run, Context.pending_tool_calls(run.context)) do
      begin(run, earlier)
    else
      {:error, reason} -> {:error, error(run, reason)}
      refused -> {:error, error(run, refused)}
    end
  end

  defp finished?(context) do
    case last_message(context) do
      %{role: :assistant} = message ->
        not is_map_key(message, :tool_calls) and not is_map_key(message, :state)

      _other ->
        false
    end
  end

  defp earlier(_run, []), do: {:ok, %{}}
  defp earlier(run, pending), do: Journal.earlier(run.journal, run.context, pending)

  defp last_message(context),
    do: context |> Context.get_iteration_messages(context.current_iteration) |> List.last()

  defp iterate(run) do
    run = steered(run)

    # The function counts from the conversation's first iteration; a turn has used its number when it is at the
    # iteration after it.
    with nil <- run.refused,
         false <-
           Context.exceeded_max_iterations?(run.context, run.first + run.max_iterations),
         :ok <- Bounds.ask(run.bounds) do
      iteration(run, &ask/1)
    else
      true -> failed(run, {:max_iterations_exceeded, run.max_iterations})
      {:error, reason} -> failed(run, reason)
      refused -> failed(run, refused)
    end
  end

  # What has come is stored also when the run fails, and the reason is that of the failure.
  defp failed(run, reason) do
    run = if match?({:store_error, _}, reason), do: run, else: flush(run, :idle)
    {:error, error(run, reason)}
  end

  # Messages for the running turn, between the results of one iteration and the next.
  defp steered(%{refused: nil} = run) do
    case run.steered.() do
      [] ->
        run

      messages ->
        context =
          Enum.reduce(messages, run.context, fn message, context ->
            Context.add_user_message(context, message.input, metadata: message.metadata)
          end)

        run = if run.journal, do: put_in(run.journal.taken, ids(messages, run)), else: run
        changed(run, context)
    end
  end

  defp steered(run), do: run

  defp ids(messages, run), do: run.journal.taken ++ for(%{id: id} <- messages, do: id)

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

        failed(run, reason)
    end
  end

  defp failure({timeout, _}) when timeout in [:timeout, :llm_timeout], do: {:timeout, timeout}
  defp failure({:llm_exception, kind, reason}), do: {kind, Events.label(kind, reason)}
  defp failure({reason, _}), do: {:error, reason}
  defp failure(reason), do: {:error, reason}

  ## The model

  defp ask(run) do
    started = System.monotonic_time()
    run = %{run | requested_at: now()}
    messages = Context.count_messages(run.context)
    Events.emit(run.events, [:llm, :start], Events.started(%{messages: messages}))

    case answer(run) do
      {:ok, context, response, first} ->
        message = Response.message(response)
        calls = Context.pending_tool_calls(context)
        {run, cost} = add(run, context, response)

        run = %{
          run
          | iterations: run.iterations + 1,
            finish_reason: Response.finish_reason(response)
        }

        measured =
          [time_to_first_token: first, cost: cost]
          |> Enum.reject(fn {_name, value} -> value == nil end)
          |> Enum.into(%{
            duration: Events.since(started),
            content_bytes: Events.bytes(message.content),
            tool_calls: length(calls)
          })

        Events.emit(run.events, [:llm, :stop], measured, %{
          usage: usage(response),
          finish_reason: Response.finish_reason(response)
        })

        run = changed(run, context)

        # A message that came meanwhile is for this turn. Calls that were cut off are to be read of.
        stop? = calls == [] and not is_map_key(message, :unfinished_tool_calls)
        run = if stop?, do: steered(run), else: run
        stop? = stop? and run.context == context

        run =
          if run.refused, do: run, else: flush(run, if(stop?, do: :idle), noted(run, response))

        cond do
          run.refused -> {:failed, run, run.refused}
          calls != [] -> execute(run, calls)
          stop? -> {:stop, {:ok, result(run, :answered, Response.text(message))}, 0}
          true -> {:next, run, 0}
        end

      {:error, run, reason, stacktrace} ->
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

  defp noted(run, response) do
    times = %{
      started_at: iso8601(run.requested_at),
      ended_at: iso8601(now())
    }

    Map.merge(times, %{step: :answer, usage: usage(response)})
  end

  # Counts an answer, and returns what it cost, if that is known.
  defp add(run, context, response) do
    cost = Bounds.report(run.bounds, run.context, context, run.model)

    # An answer that broke off is reported as far as it came.
    if (cost == nil or Response.usage(response) == nil) and response.state == :complete,
      do: Bounds.unreported(run.bounds)

    run = %{run | usage: add_usage(run.usage, usage(response))}
    {if(cost, do: spend(run, cost), else: run), cost}
  end

  defp spend(run, cost), do: Map.update!(run, :cost, &(&1 && &1 + cost))

  defp answer(run) do
    left = ToolExecutor.left(run.deadline)

    if left == 0,
      do: broken(run, nil, {:timeout, run.timeout}, []),
      else: run |> call(min(left, run.llm_timeout)) |> Answer.ask() |> answered(run)
  end

  defp call(run, timeout) do
    %{
      llm: run.llm,
      context: run.context,
      tools: run.offered,
      timeout: timeout,
      supervisor: run.supervisor,
      stream?: run.stream? and LLM.streams?(run.llm),
      watch: fn events, response -> watch(run, events, response) end,
      keep: run.on_change && fn response -> keep(run, response) end,
      keep_bytes: run.on_change_bytes,
      keep_interval: run.on_change_interval
    }
  end

  defp answered({{:returned, {:ok, %Response{state: :interrupted} = response}}, answer}, run),
    do: broken(run, %{answer | response: response}, {:llm_error, :interrupted}, [])

  defp answered({{:returned, {:ok, response}}, answer}, run) do
    case Context.add_response(run.context, response, requested_at: run.requested_at) do
      {:ok, context} -> {:ok, context, response, answer.first}
      {:error, error} -> broken(run, answer, {:invalid_answer, error}, [])
    end
  end

  defp answered({{:returned, {:error, {:invalid_answer, _} = reason}}, answer}, run),
    do: broken(run, answer, reason, [])

  defp answered({{:returned, {:error, reason}}, answer}, run),
    do: broken(run, answer, {:llm_error, reason}, [])

  defp answered({{:raised, kind, reason, stacktrace}, answer}, run),
    do: broken(run, answer, {:llm_exception, kind, reason}, stacktrace)

  defp answered({{:exit, reason}, answer}, run),
    do: broken(run, answer, {:llm_exception, :exit, reason}, [])

  defp answered({{:refused, reason}, answer}, run),
    do: broken(%{run | refused: reason}, answer, reason, [])

  defp answered({:timeout, answer}, run) do
    if ToolExecutor.left(run.deadline) == 0,
      do: broken(run, answer, {:timeout, run.timeout}, []),
      else: broken(run, answer, {:llm_timeout, run.llm_timeout}, [])
  end

  # The part of the answer that came stays.
  defp broken(run, answer, reason, stacktrace) do
    response = answer && Answer.interrupted(answer, elem(reason, 0))

    case response && partly(run, response) do
      {:ok, context} ->
        {run, _cost} = add(run, context, response)
        {:error, changed(run, context), reason, stacktrace}

      _nothing ->
        {:error, run, reason, stacktrace}
    end
  end

  defp partly(run, response),
    do: broken_off(run.context, response, @broken_off, requested_at: run.requested_at)

  @doc false
  # The conversation with a response to which nothing is added any more. None of its calls is run.
  def broken_off(context, response, words, opts) do
    {requested, opts} = Keyword.split(opts, [:requested_at])

    with {:ok, context} <- Context.add_response(context, response, requested),
         do: {:ok, Context.interrupt(context, words, opts)}
  end

  # Only the application's function gets texts.
  defp watch(run, events, response) do
    if run.watch, do: run.watch.({:delta, events, response})
    measured = %{bytes: Answer.bytes(events)}
    Events.emit(run.events, [:llm, :delta], measured, %{}, %{events: events})
  end

  # Gives the application the context as it would be if nothing more came.
  defp keep(run, response) do
    case partly(run, Response.interrupt(response, :unfinished)) do
      {:ok, context} -> Events.store(run.on_change, context)
      {:error, _error} -> :ok
    end
  end

  defp usage(response), do: Response.usage(response) || %{}

  defp add_usage(sum, usage), do: Map.merge(sum, usage, fn _key, a, b -> a + b end)

  ## The tools

  # All calls are decided before the first one runs, so that decisions are recorded whatever the tools do.
  defp execute(run, calls, earlier \\ %{}) do
    {run, going, attempts, unknown} = settle(run, calls, earlier)
    undecided = Map.new(Context.undecided_tool_calls(run.context), &{&1.id, &1.arguments})
    asked = length(unknown)

    with nil <- run.refused,
         {:decided, run, ready, more} <- decide(run, Enum.with_index(going), undecided) do
      case {carry_out(run, Enum.reverse(ready), attempts), asked + more} do
        {carried_out, 0} -> carried_out(carried_out, length(calls))
        {carried_out, asked} -> paused(carried_out, length(calls) - asked, unknown)
      end
    else
      {:timeout, run} -> timed_out(run)
      {:refused, run} -> {:failed, run, run.refused}
      refused -> {:failed, run, refused}
    end
  end

  # Of calls that were started before, and that have no result: those that run again, with the number of the attempt, and
  # those that a person has to decide about. The others get their result.
  defp settle(run, calls, earlier) do
    {run, going, attempts, unknown} =
      Enum.reduce(calls, {run, [], %{}, []}, fn call, {run, going, attempts, unknown} ->
        case earlier[call.id] && repeat(run, call, earlier[call.id]) do
          nil ->
            {run, [call | going], attempts, unknown}

          :again ->
            attempts = Map.put(attempts, call.id, earlier[call.id].attempt + 1)
            {run, [call | going], attempts, unknown}

          {:result, result, state} ->
            journal = Journal.finish_attempt(run.journal, earlier[call.id], state)
            context = add_result(run.context, call.id, result)
            {changed(%{run | journal: journal}, context), going, attempts, unknown}

          :pause ->
            {run, going, attempts, [call.id | unknown]}
        end
      end)

    {undecide(run, unknown), Enum.reverse(going), attempts, Enum.reverse(unknown)}
  end

  defp repeat(run, call, attempt) do
    execution = Map.put(run.execution, :deadline, run.deadline)
    Repeat.decide(execution, run.gate, run.context, call, attempt)
  end

  # An approval that was used lets nothing run, and who decides again has to find the call undecided.
  defp undecide(run, unknown) do
    if Enum.any?(unknown, &(Context.tool_call_status(run.context, &1) == :approved)) do
      snapshot = Context.to_snapshot(run.context)
      changed(run, Context.from_snapshot!(snapshot, approvals: :drop))
    else
      run
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

  # `asked` are the arguments that the context has for an undecided call, or :error for an approved one.
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

  # Only arguments that can be stored with the call can be approved, and a hook may return others.
  defp note(run, call, decision, started, change) do
    case kept(run.context, change) do
      {:ok, context} ->
        decided(run, call, decision, :approval, started)
        run = if context == run.context, do: run, else: changed(run, context)
        if decision == :ask, do: {:ask, run}, else: {:run, run, call}

      {:error, error} ->
        words = "a hook (:before_tool) returned arguments that cannot be stored: "
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

  # The approval stays in the log; the result says that the call did not run.
  defp deny(context, id, true, _by, reason) when is_binary(reason),
    do: add_result(context, id, {:error, "denied: " <> reason})

  defp deny(context, id, true, _by, reason),
    do: add_result(context, id, {:error, {:denied, reason}})

  defp deny(context, id, false, by, reason) do
    Context.deny_tool_call(context, id, reason, by: by)
  rescue
    error in [Context.Error, ArgumentError, FunctionClauseError] ->
      words = "for a reason that cannot be stored: " <> Exception.message(error)
      Context.deny_tool_call(context, id, words, by: by)
  end

  # Returns the run with the terms of the tools that end it, the first call's first.
  defp carry_out(run, ready, attempts) do
    case start(run, ready, attempts) do
      {:ok, run, ready, elsewhere} ->
        {state, run, halts} = run_tools(run, ready)

        run =
          if elsewhere == [],
            do: run,
            else: %{run | refused: {:store_error, {:started, elsewhere}}}

        {if(run.refused, do: :refused, else: state), run, halts}

      {:error, reason} ->
        {:refused, %{run | refused: reason}, []}
    end
  end

  # Only what the journal lets start is run.
  defp start(%{journal: nil} = run, ready, _attempts), do: {:ok, run, ready, []}

  defp start(run, ready, attempts) do
    {run, ready} = keepable(run, ready)
    called = for {call, {_index, :called}} <- ready, do: call

    starting =
      for call <- called,
          do: {call, Map.get(attempts, call.id, 1), Repeat.decided_at(run.context, call.id)}

    with nil <- run.refused,
         {:ok, journal, ids} <- Journal.start(run.journal, run.context, starting) do
      {ready, _} =
        Enum.split_with(ready, fn {call, {_, reached}} ->
          reached == :refused or call.id in ids
        end)

      {:ok, %{run | journal: journal}, ready, Enum.map(called, & &1.id) -- ids}
    else
      {:error, reason} -> {:error, reason}
      refused -> {:error, refused}
    end
  end

  # Hooks may make arguments that the journal cannot note.
  defp keepable(run, ready) do
    Enum.reduce(Enum.reverse(ready), {run, []}, fn {call, {_, reached}} = entry, {run, ready} ->
      if reached == :refused or Journal.keeps?(call.arguments) do
        {run, [entry | ready]}
      else
        words = "a hook (:before_tool) gave arguments that cannot be kept"
        {changed(run, add_result(run.context, call.id, {:error, words})), ready}
      end
    end)
  end

  defp run_tools(run, ready) do
    settings =
      Map.merge(run.execution, %{
        events: run.events,
        deadline: run.deadline,
        over?: fn {run, _halts} -> run.refused != nil end,
        keys:
          if(run.journal,
            do: Map.new(run.journal.attempts, fn {id, a} -> {id, a.key} end),
            else: %{}
          )
      })

    {state, {run, halts}} =
      ToolExecutor.execute(ready, settings, {run, %{}}, fn {call, {index, reached}},
                                                           outcome,
                                                           duration,
                                                           {run, halts} ->
        result = seen(run, call, reached, ToolExecutor.result(outcome))

        times = times(duration)

        run =
          run
          |> spend(child_cost(outcome))
          |> noted(call, outcome, times)
          |> changed(add_result(run.context, call.id, result, metadata(outcome), times))

        case {outcome, result} do
          {{:halt, _}, {:ok, term}} -> {run, Map.put(halts, index, term)}
          _ -> {run, halts}
        end
      end)

    {state, run, for({_index, term} <- Enum.sort(halts), do: term)}
  end

  defp child_cost({_status, _term, {{:sub_agents, %{cost: cost}}, _contexts}}), do: cost
  defp child_cost(_outcome), do: 0

  defp times(duration) do
    ended_at = now()

    %{
      started_at: ended_at - System.convert_time_unit(duration, :native, :microsecond),
      ended_at: ended_at
    }
  end

  # Microseconds since 1970, which contexts read much faster than a DateTime.
  defp now, do: System.os_time(:microsecond)

  defp iso8601(micros), do: micros |> DateTime.from_unix!(:microsecond) |> DateTime.to_iso8601()

  defp noted(run, call, outcome, times) do
    run = %{run | sub_agents: run.sub_agents ++ contexts(outcome)}
    if run.journal, do: journal(run, call, outcome, times), else: run
  end

  defp journal(run, call, outcome, %{started_at: started_at, ended_at: ended_at}) do
    noted = %{
      id: call.id,
      name: Tool.name(call.name),
      ended_at: iso8601(ended_at),
      microseconds: ended_at - started_at
    }

    journal = Journal.finish(run.journal, call.id, elem(outcome, 0))
    %{run | journal: journal, noted: [noted | run.noted]}
  end

  defp seen(run, call, :called, result), do: Gate.result(run.gate, call, result, gate_env(run))
  defp seen(_run, _call, :refused, result), do: result

  defp metadata({_status, _term, {metadata, _contexts}}), do: metadata
  defp metadata(_outcome), do: nil

  defp contexts({_status, _term, {_metadata, contexts}}), do: contexts
  defp contexts(_outcome), do: []

  defp carried_out({:refused, run, _halts}, _calls), do: unkept(run)
  defp carried_out({:timeout, run, _halts}, _calls), do: timed_out(run)

  defp carried_out({:done, run, halts}, calls) do
    case {flush(run, if(halts != [], do: :idle)), halts} do
      {%{refused: reason} = run, _halts} when reason != nil -> {:failed, run, reason}
      {run, []} -> {:next, run, calls}
      # Of several, the first of the calls counts.
      {run, [term | _]} -> {:stop, {:ok, result(run, :halted, term)}, calls}
    end
  end

  defp paused({:done, run, []}, calls, unknown) do
    case flush(run, :paused) do
      %{refused: nil} = run -> waits(run, calls, unknown)
      run -> {:failed, run, run.refused}
    end
  end

  # A run that a tool has ended asks for nothing any more.
  defp paused({:done, run, halts}, calls, _unknown) do
    context = Context.interrupt(run.context, "interrupted: another tool ended the run")
    run = changed(run, context)
    carried_out({if(run.refused, do: :refused, else: :done), run, halts}, calls)
  end

  defp paused({refused_or_timeout, _run, _halts} = carried_out, calls, _unknown)
       when refused_or_timeout in [:refused, :timeout],
       do: carried_out(carried_out, calls)

  defp waits(run, calls, unknown) do
    waiting = Context.undecided_tool_calls(run.context)
    Events.emit(run.events, [:iteration, :pause], Events.started(%{tool_calls: length(waiting)}))

    paused = %Paused{
      context: run.context,
      calls: waiting,
      iterations: run.iterations,
      usage: run.usage,
      cost: run.cost,
      unknown: unknown,
      sub_agents: run.sub_agents,
      kept: kept_of(run)
    }

    {:stop, {:paused, paused}, calls}
  end

  # A tool killed in the middle may have done its work or not: the model should know that.
  defp timed_out(run) do
    context = Context.interrupt(run.context, "interrupted: the run timed out")
    {:failed, run |> interrupted() |> changed(context), {:timeout, run.timeout}}
  end

  # What the store did not take stays as it is: a run that goes on finds it in the journal.
  defp unkept(%{refused: {:store_error, _} = reason} = run) do
    run =
      if match?({:started, _}, elem(reason, 1)), do: flush(%{run | refused: nil}, nil), else: run

    {:failed, %{run | refused: reason}, reason}
  end

  defp unkept(run) do
    context = Context.interrupt(run.context, "interrupted: the conversation could not be stored")
    {:failed, run |> interrupted() |> changed(context), run.refused}
  end

  defp interrupted(%{journal: nil} = run), do: run
  defp interrupted(run), do: %{run | journal: Journal.finish_all(run.journal, :interrupted)}

  # `times` are those of the tool, if one has run.
  defp add_result(context, id, result, metadata \\ nil, times \\ %{}) do
    opts = if metadata, do: [metadata: beside(context, id, metadata)], else: []

    try do
      Context.add_tool_results(context, [Map.merge(times, %{id: id, result: result})], opts)
    rescue
      error in [Context.Error, ArgumentError, FunctionClauseError] ->
        words = "the tool returned a term that cannot be stored: " <> Exception.message(error)
        failed = Map.merge(times, %{id: id, result: {:error, words}})
        Context.add_tool_results(context, [failed], opts)
    end
  end

  # Results of one answer share a message: the metadata of each is under its call's id.
  defp beside(context, id, {key, noted}) do
    noted_before =
      case last_message(context) do
        %{content: [%{type: :tool_result} | _], metadata: %{^key => %{} = before}} -> before
        _ -> %{}
      end

    %{key => Map.put(noted_before, id, noted)}
  end

  ## What comes out

  # If the application refuses to store a context, the run ends before its next step.
  defp changed(run, context) do
    if run.watch, do: run.watch.({:context, context})
    stored(run, context)
  end

  defp stored(%{refused: nil} = run, context) do
    case Events.store(run.on_change, context) do
      :ok -> %{run | context: context}
      {:error, reason} -> %{run | context: context, refused: reason}
    end
  end

  defp stored(run, context), do: %{run | context: context}

  # Writes what has changed to the store.
  defp flush(run, status, note \\ %{})
  defp flush(%{journal: nil} = run, _status, _note), do: run

  defp flush(run, status, note) do
    note = if run.noted == [], do: note, else: Map.put(note, :calls, Enum.reverse(run.noted))

    case Journal.write(run.journal, run.context, status, note) do
      {:ok, journal} ->
        if run.watch, do: run.watch.({:kept, journal.kept})
        %{run | journal: journal, noted: []}

      {:error, reason} ->
        %{run | refused: run.refused || reason}
    end
  end

  defp kept_of(%{journal: nil}), do: nil
  defp kept_of(run), do: run.journal.kept

  defp result(run, status, output) do
    %Result{
      status: status,
      output: output,
      context: run.context,
      iterations: run.iterations,
      usage: run.usage,
      cost: run.cost,
      finish_reason: run.finish_reason,
      sub_agents: run.sub_agents,
      kept: kept_of(run)
    }
  end

  defp error(run, reason) do
    %Error{
      reason: reason,
      context: run.context,
      usage: run.usage,
      cost: run.cost,
      iterations: run.iterations,
      sub_agents: run.sub_agents,
      kept: kept_of(run)
    }
  end

  defp deadline(:infinity), do: :infinity
  defp deadline(timeout), do: System.monotonic_time(:millisecond) + timeout
end
