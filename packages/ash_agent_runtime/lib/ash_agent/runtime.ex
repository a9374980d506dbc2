defmodule AshAgent.Runtime do
  @moduledoc """
  The agent loop: ask the model, execute the tools it calls, add their results, and repeat until it answers
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
  executes. `AshAgent.Session` holds a conversation in a process.

  ## Continuing

  A run does what its context needs: it executes pending calls first, and if the context ends with an answer, it
  returns that without asking the model. So to continue a run that was cut short, run the stored context again. If tools
  were running when it was cut short, they may run twice without a store, so use `:store`, make tools idempotent, or call
  `AshAgent.Context.interrupt/2` first. If the last answer broke off, the model is asked to continue it.

  A turn runs with the rights of whoever asked: the log says that it was asked with a `:runtime_context`, which itself is never
  stored. Whoever continues it has to give one, which the log notes, or `:restore_context` has to find it by the metadata of
  the message that asked. Otherwise the error is `{:missing_option, :runtime_context}`, and nothing is run.

      iex> alias AshAgent.{Context, Runtime}
      iex> {:ok, context} = Context.create(%{})
      iex> context = Context.add_user_message(context, "Export the customers", metadata: %{"user" => "guest"})
      iex> {:error, error} = Runtime.run(context, llm: fn _ -> {:error, :overloaded} end, runtime_context: %{actor: "guest"})
      iex> opts = [llm: fn _ -> {:ok, %{content: "12 rows"}} end]
      iex> {:error, %{reason: {:missing_option, :runtime_context}}} = Runtime.resume(error.context, opts)
      iex> restore = fn %{"user" => user} -> {:ok, %{actor: user}} end
      iex> {:ok, result} = Runtime.resume(error.context, [restore_context: restore] ++ opts)
      iex> result.output
      "12 rows"

  ## Streams

  If the model can stream, the run reads its answer as it arrives, and calls `:on_event` for each piece, see
  `AshAgent.Runtime.Events`. It reads more from the provider only after these functions have returned.

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
  reason. None of its calls is executed, and every provider accepts the next request. While a long answer arrives,
  `:on_change` gets such a context as well, with the reason `:unfinished`: if you store it, it survives a VM crash.

  A call that the model could not finish because it reached its token limit is not executed either. The model is told,
  and the run continues.

  ## Stores

  With `:store` and `:kept`, a run writes each step to a store before the next one, so that it survives a machine
  crash: the new messages before the model is asked, the model's answer before any tool starts, the start of each
  call, and all results of an answer together. That takes at most three round trips per answer.

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

  After a crash, claim the conversation and run its context again. No call whose result is in the store runs again. For
  a call that was started and has no result, the tool's `:repeat` decides, see `AshAgent.Runtime.Tool`: it runs again, a function
  finds out its outcome, or the model reads that the outcome is unknown. With `:approval`, the run pauses for a person instead;
  `unknown` of the `AshAgent.Runtime.Paused` lists these calls. An approval lets a call start once, whoever resumes.

  If the store refuses a write, or somebody else has claimed the conversation, the run ends before its next step with
  `{:store_error, reason}`. Each result, pause and error has the newest `kept` for the next run.

  With or without a store, the context keeps when each request was made and answered (`AshAgent.Context.fetch_message/2`), when each tool
  started and ended (`AshAgent.Context.Calls.tool_call_times/2`), and the view that each request was made from. `AshAgent.Trace` shows them.

  ## Approval

  `:approval` decides which calls may run: a function that takes the call and the tool context and returns `:approve`,
  `{:deny, reason}` or `:ask`. It decides about all calls of an answer first, in order. Then the approved ones are
  executed, and if there are calls to ask about, the run ends with `{:paused, %AshAgent.Runtime.Paused{}}`. Record the
  decisions on the context, at any time and in any process, and continue with `resume/2`. The context records which calls were
  asked about, see `AshAgent.Context.Calls.asked_tool_calls/1`: without an approval function, no run goes on while they are undecided.

  Decisions are recorded on the context, with `:approval`, `:permissions` or `:before_tool` as the one who decided, see
  `AshAgent.Context.Calls.tool_call_decision/2`. With `:auto`, calls run and no decision is recorded. A call that somebody has already
  approved is not asked about again.

  A call runs only with the arguments that were shown. The hooks `:before_tool` run before the question, and the calls of a `Paused`
  have the arguments that the tool would get. An approval covers exactly these, and approving others is an error. If they have
  changed after the approval, because a hook returns something else or the stored conversation was edited, the call does not run: its
  result is an error that says so, and the model may call again. So a hook should return the same arguments for the same
  call. Values that differ each time, such as a time or a token, belong in the tool.

  If a tool halts the run, the run ends even if there are calls to ask about; these are interrupted.

  ## Costs

  With `:prices`, see `AshAgent.Prices`, results and events say what a run cost, including its sub-agents. With `:max_cost` as well, the
  run stops asking models once the turn has cost that much. An answer that is already under way is still received and paid for.

  Each request of the package's clients is forecast before it is sent, see `AshAgent.Context.Audit.forecast/3`: one that would cost more than
  what is left ends the run with the same error, and is not sent. Its answer counts as if it were as long as it may be, by `max_tokens`
  and the like. Without such a limit, or with `request_notes: :hashes`, nobody knows how long it gets, and it does not count. With `:view`, a model that is a function is forecast, too, by
  an estimate of its tokens. What the forecast cannot know, such as tokens of thinking, can make a turn overshoot by one answer, and with
  parallel sub-agents by one of each.

  The costs of the turn's earlier runs count too, so a pause or a crash does not reset the sum. A user message does. To
  limit a whole conversation, pass what is left of its budget, see `AshAgent.Context.Audit.fetch_cost/2`.

  No price, no call: if the model (its option `:model`; a function has none) has no price, the run ends with
  `{:no_price, model}` before it asks or starts anything. If a model does not report its tokens, the run ends with `:unknown_cost`
  instead of asking it again. An answer that broke off counts with what was reported until then.

      iex> prices = [%{model: :any, input: 3_000_000, output: 15_000_000}]
      iex> again = fn _ -> {:ok, %{tool_calls: [%{name: "roll"}], usage: %{input_tokens: 800, output_tokens: 20}}} end
      iex> opts = [llm: again, tools: %{roll: fn _ -> {:ok, 1} end}, prices: prices, max_cost: 5_000_000_000]
      iex> {:error, error} = AshAgent.Runtime.run(AshAgent.Context.new("Roll a six"), opts)
      iex> {error.reason, error.iterations, error.cost}
      {{:max_cost_exceeded, 5_000_000_000}, 2, 5_400_000_000}

  ## Views

  `:view` shapes what the model sees before each request: a list of enhancers, as for `AshAgent.Context.Enhancer.run/3`. The view stays with
  the context and is stored with it, so it grows with the conversation instead of being rebuilt, a summary is made
  once, and token reports count exactly this view, as `method: :auto` of `AshAgent.Context.Enhancer.Budget` requires.

  `view: :auto` makes long runs cheaper: it clears old tool results when that pays off, see `AshAgent.Context.Rent`, using the model's price
  if there are `:prices`, and keeps the last three. The model gets the tool `AshAgent.Runtime.Recall` to read them again. If a request is too
  long for the model, its view is shortened step by step, see `AshAgent.Context.Shortening`. Use it from a conversation's first run on.

      iex> alias AshAgent.{Context, LLM, Runtime}
      iex> long = fn _ -> {:ok, String.duplicate("All is well. ", 1_000)} end
      iex> call = fn number -> %{tool_calls: [%{id: "call_\#{number}", name: "look"}]} end
      iex> llm = LLM.Scripted.new(Enum.map(1..14, call) ++ ["All is well."])
      iex> opts = [llm: llm, tools: %{look: long}, view: :auto, max_iterations: 15]
      iex> {:ok, result} = Runtime.run(Context.new("Look around"), opts)
      iex> Context.View.view(result.context).cleared != nil
      true

  Enhancers run in the process of the run, and none of the timeouts stops them. If one fails, the run ends with `{:view_error,
  error}` before the model is asked, unless `{enhancers, on_error: :skip}` says otherwise.

  ## Permissions and hooks

  Each call passes these steps, in order:

    1. `:allowed_tools` and `:permission_rules`, see `AshAgent.Runtime.Permissions`
    2. the tool's schema: arguments that are not quite as it says are repaired, see `AshAgent.Runtime.Tool`
    3. the hooks `:before_tool`, which may deny the call and change its arguments. Repaired and changed arguments are checked by the rules,
       and changed ones by the schema, again
    4. `:approval`
    5. the tool
    6. the hooks `:after_tool`, which may change the result

  A denied call gets the reason as its result, which the model reads. So does a call that no tool can take (because its
  name is unknown, or its arguments are not a JSON object), without any hook or approval function being called. If the
  arguments do not fit the schema after the hooks, the approval function is not called. An approved call passes steps 1 to 3 again when it
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

  A hook or approval function that raises, exits, is killed or returns something else has not decided: the call is denied
  or its result becomes an error that says so, and the failure is logged. Predicates and hooks may take as long
  as a tool, the approval function as long as the run.

  ## Typed answers

  With `:output`, the run ends with a typed value instead of a text:

      iex> alias AshAgent.{Context, LLM, Runtime}
      iex> llm = LLM.Scripted.new([%{tool_calls: [%{id: "call_1", name: "submit_answer", arguments: %{"city" => "Ulm", "people" => "127000"}}]}])
      iex> {:ok, result} = Runtime.run(Context.new("Where?"), llm: llm, output: [city: :string, people: :integer])
      iex> {result.output, result.repairs}
      {%{city: "Ulm", people: 127000}, [%{path: ["people"], kind: :number_from_text}]}

  `AshAgent.Output` describes the types and how answers are read, and `guides/answers.md` how they are asked for.

  ## Failures

  Whatever the model and the tools do, `run/2` returns, and its context is valid and can be continued. A tool's failure
  becomes the result of its call, see `AshAgent.Runtime.ToolExecutor`, and so does a result that a context cannot store. A
  model's failure ends the run with an `AshAgent.Runtime.Error`, whose context has the part of the stream that arrived.

  ## Processes

  The loop runs in the calling process. The model and each tool run in their own processes, which end with the call; if the
  caller dies, they are killed. Late answers are dropped.
  """

  use AshAgent.Arguments

  alias AshAgent.{Context, LLM}
  alias AshAgent.Options, as: Check

  alias AshAgent.Runtime.{
    Authority,
    Bounds,
    DefaultLogger,
    Error,
    Events,
    Late,
    Loop,
    Options,
    Paused
  }

  alias AshAgent.Runtime.{Result, Run, Shape, Tool, ToolExecutor, TypedAnswer, Underway}
  alias AshAgent.Trace.Caller

  @doc """
  Runs the loop and returns `{:ok, %AshAgent.Runtime.Result{}}`, `{:error, %AshAgent.Runtime.Error{}}`, or `{:paused,
  %AshAgent.Runtime.Paused{}}` if calls need a decision.

  All of them contain the context as far as the run came, including the usage that the model reported, see
  `AshAgent.Context.Tokens.add_token_usage/3`; invalid reports are left out.

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

  @compiled Check.compile(Options.schema())

  @doc false
  # `within` describes the runs around this one, see AshAgent.Runtime.SubAgent: how many there are, their permissions, and
  # the bounds that they share.
  def run(context, opts, within) do
    opts = options(opts)
    given? = within.depth == 0 and opts[:runtime_context] != nil
    run_prepared(context, opts, Map.put(within, :given?, given?))
  end

  @doc false
  # Takes the result of `prepare/1`, and the options of its run.
  def run_prepared(context, opts, within) do
    started = System.monotonic_time()
    context = place_arrivals(context)
    opening = Run.open(context)
    events = Events.new(opts, %{context_id: opening.id}, within[:watch])
    wake = within[:wake] || Late.find_wake(context, opening, opts, within)

    Caller.within(opening.id, fn ->
      reply =
        with nil <- find_missing(context, opening, opts, wake),
             opts = Late.put_output(opts, context, wake && wake.iteration),
             {:ok, opts} <- Authority.complete(opts, context, wake && wake.iteration) do
          execute(context, opening, events, opts, Map.put(within, :wake, wake && wake.iteration))
        else
          option -> {:error, %Error{reason: {:missing_option, option}, context: context}}
        end

      first = %{first_iteration: opening.turn_start, depth: within.depth}
      # A session tells its run's end once it can be acted on.
      unless within[:watch], do: report_end(events, started, reply, first)
      reply
    end)
  end

  # Late results that have arrived stand before the next request, behind the results of calls that are pending.
  defp place_arrivals(context) do
    with [_ | _] <- Context.Calls.late_calls(context, :arrived),
         [] <- Context.pending_tool_calls(context),
         do: Context.Calls.place_arrivals(context),
         else: (_nothing -> context)
  end

  defp execute(context, opening, events, opts, within) do
    Underway.with_table(within[:underway], fn table ->
      within = Map.put(within, :underway, table)

      ToolExecutor.with_supervisor(opts[:supervisor], fn supervisor ->
        context |> Run.new(opening, events, opts, supervisor, within) |> Loop.run()
      end)
    end)
  end

  defp find_missing(context, _opening, opts, %{} = call),
    do: Late.find_missing(context, call, opts)

  defp find_missing(context, opening, opts, nil) do
    cond do
      opening.pending != [] and undecided?(context, opts[:kept], opts[:approval]) -> :approval
      opts[:output] == nil and TypedAnswer.expected?(context, opening) -> :output
      true -> nil
    end
  end

  @doc false
  # A paused conversation waits for decisions wherever it is opened: if nobody can be asked, they are missing. Its calls have
  # a note that somebody was asked about them. Those of conversations that earlier releases stored do not, so the status
  # counts, too. Where an approval function was cut short in the middle of an answer, the rest of its calls wait for it.
  def undecided?(_context, _kept, approval) when is_function(approval), do: false

  # Questions are asked without one.
  def undecided?(context, kept, _approval) do
    not_questions = fn calls -> Enum.reject(calls, &is_map_key(&1, :question)) end

    not_questions.(Context.Calls.asked_tool_calls(context)) != [] or
      (not_questions.(Context.Calls.undecided_tool_calls(context)) != [] and
         (match?(%{status: :paused}, kept) or partly_decided?(context)))
  end

  defp partly_decided?(%{current_iteration: number} = context) do
    Enum.any?(Context.get_iteration(context, number).tool_calls, fn %{id: id} ->
      match?(%{by: :approval}, Context.Calls.tool_call_decision(context, id))
    end)
  end

  @doc false
  # Emits the events of a run's end. Only the application's function gets contexts: the run's and those of its sub-agents, with
  # the iteration that the run's first turn began with, and the number of runs around this one.
  def report_end(events, started, {_, %{} = ended} = reply, metadata) do
    private = Map.merge(metadata, Map.take(ended, [:context, :sub_agents]))

    for {name, measured, metadata} <- end_events(started, reply),
        do: Events.emit(events, name, measured, metadata, private)
  end

  @doc false
  # The same events, `{name, measurements, metadata}`, for those who hear nothing private.
  def end_events(started, {_, %{context: context}} = reply) do
    metadata = %{iteration: context.current_iteration}
    measured = %{duration: Events.since(started)}
    stop = {[:run, :stop], measured, Map.merge(metadata, status_metadata(reply))}

    with {:paused, %{calls: calls}} <- reply,
         waiting = Events.put_system_time(%{tool_calls: length(calls)}),
         do: [{[:iteration, :pause], waiting, metadata}, stop],
         else: (_over -> [stop])
  end

  defp status_metadata({:ok, result}), do: %{status: result.status}
  defp status_metadata({:paused, _paused}), do: %{status: :paused}

  defp status_metadata({:error, error}) do
    {kind, label} = Events.failure(error.reason)
    Map.merge(%{status: :error, kind: kind, reason: label}, model_failure(error))
  end

  # The failure of the model that ended a turn, by the name that all providers have for it.
  defp model_failure(%{reason: reason, context: context})
       when elem(reason, 0) in [:llm_error, :llm_timeout, :llm_exception, :invalid_answer] do
    case List.last(Context.Audit.failures(context)) do
      %{kind: kind} -> %{failure: kind}
      nil -> %{}
    end
  end

  defp model_failure(_error), do: %{}

  @doc """
  Continues a conversation after decisions were made, and returns the same as `run/2`.

  It is `run/2` under another name: approved calls are executed, denied ones have their result, and undecided ones are
  asked about again. It takes the same options. None of them is stored with the context, so pass the same `:approval`
  again. The pause itself is in the conversation: while calls are undecided that somebody was asked about, see
  `AshAgent.Context.Calls.asked_tool_calls/1`, a run without an approval function returns the error `{:missing_option, :approval}` and
  runs nothing, wherever the conversation was stored.

  ## Examples

      iex> alias AshAgent.{Context, LLM, Runtime}
      iex> llm = LLM.Scripted.new([%{tool_calls: [%{id: "call_1", name: "clean_up"}]}, "It is clean."])
      iex> opts = [llm: llm, tools: %{clean_up: fn _ -> {:ok, "3 files"} end}, approval: fn _call, _tool_context -> :ask end]
      iex> {:paused, paused} = Runtime.run(Context.new("Clean up"), opts)
      iex> paused.calls
      [%{id: "call_1", name: "clean_up", arguments: %{}}]
      iex> stored = Context.to_snapshot(paused.context)
      iex> context = stored |> Context.load!() |> Context.Calls.approve_tool_call("call_1", by: "ann")
      iex> {:ok, result} = Runtime.resume(context, opts)
      iex> result.output
      "It is clean."
  """
  @doc since: "0.1.0"
  @spec resume(Context.t(), keyword()) ::
          {:ok, Result.t()} | {:paused, Paused.t()} | {:error, Error.t()}
  def resume(%Context{} = context, opts) when is_list(opts), do: run(context, opts)

  @doc """
  Logs a line for each run, request, tool and failure, with ids, times, tokens and costs, but never with texts.

  The lines come from the events that `:telemetry` gets, see `AshAgent.Runtime.Events`, so you need that application. If a tool
  raised, the line has the exception's module, file and line, but not its message, which may contain a secret.

  ```text
  ash_agent llm.stop conversation=user-17 iteration=1 ms=812 first_token_ms=340 input_tokens=911 output_tokens=42 tool_calls=1 finish=:tool_calls
  ash_agent tool.exception conversation=user-17 iteration=1 tool=weather call=call_1 ms=3 kind=:error reason=KeyError at=lib/weather.ex:12
  ash_agent run.stop conversation=user-17 iteration=2 status=:answered ms=1904
  ```

  Returns `:ok`, `{:error, :already_exists}` if it is already attached, or `{:error, :no_telemetry}`. `detach_default_logger/0`
  detaches it.

  ## Options

  #{Check.docs(DefaultLogger.schema())}

  Raises `ArgumentError` for unknown and wrong options.

  ## Examples

      AshAgent.Runtime.attach_default_logger(level: :debug, events: [:llm, :tool])
  """
  @doc since: "0.1.0"
  @spec attach_default_logger(keyword()) :: :ok | {:error, :already_exists | :no_telemetry}
  def attach_default_logger(opts \\ []) when is_list(opts), do: DefaultLogger.attach(opts)

  @doc "Detaches the logger of `attach_default_logger/1`, and returns `:ok`, `{:error, :not_found}` or `{:error, :no_telemetry}`."
  @doc since: "0.1.0"
  @spec detach_default_logger() :: :ok | {:error, :not_found | :no_telemetry}
  def detach_default_logger, do: DefaultLogger.detach()

  @doc false
  # Checks options and makes the model and the tools ready.
  def options(opts), do: opts |> Check.validate!(@compiled) |> prepare()

  @doc false
  # Does the same for options that were checked.
  def prepare(opts) do
    Shape.check!(opts[:view])

    opts
    |> prepare_output()
    |> Keyword.put(:llm, LLM.new(opts[:llm]))
    |> Keyword.update!(:tools, &prepare_tools/1)
  end

  @doc false
  # Makes the type of the answer, if there is one.
  def prepare_output(opts) do
    if opts[:output], do: Keyword.update!(opts, :output, &AshAgent.Output.new/1), else: opts
  end

  # A function is called when a run begins.
  defp prepare_tools(function) when is_function(function, 0), do: function
  defp prepare_tools(definitions), do: Tool.new(definitions)
end
