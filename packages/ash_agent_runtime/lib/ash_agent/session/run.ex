defmodule AshAgent.Session.Run do
  @moduledoc false

  # A session's run: its start, the news of its task, and its end. Functions that take a session's state return the next one.

  alias AshAgent.{Context, Response, Runtime}

  alias AshAgent.Runtime.{
    Authority,
    Bounds,
    Ended,
    Error,
    Events,
    Journal,
    Paused,
    Repeat,
    Result
  }

  alias AshAgent.Runtime.{Sealed, Spent, Underway}
  alias AshAgent.Session.{Claim, Client, Ending, Job, Options, Parked, State, Waking}
  alias AshAgent.Trace.Caller

  #   * `task` - the process that runs the loop
  #   * `token` - marks its messages, so that late ones of earlier runs are not taken for its own
  #   * `client` - the receiver of the reply
  #   * `first` - the number of the iteration with which the turn began
  #   * `started` - when it started, in native time units
  #   * `ending` - the process that tells its end, see `AshAgent.Session.Ending`
  #   * `underway` - the table of what it has come to, see `AshAgent.Runtime.Underway`
  #   * `authority` - the `AshAgent.Runtime.Authority` that its tools have
  #   * `given` - the messages that it was given for its turn
  #   * `handed` - the last of them, with the conversation that does not have them yet
  #   * `before`, `asked_before` - the conversation without the message of its job, and the authority of its turn
  #   * `stored?` - the message of its job is in the store
  #   * `begun?` - its turn is in the store
  #   * `wake?` - it begins a turn for late results
  @enforce_keys ~w(task token client first started ending underway authority before asked_before stored? begun? wake?)a
  defstruct @enforce_keys ++ [:handed, given: []]

  # After so many milliseconds the store is asked again whether a message was stored.
  @check_again 1_000

  ## Starting

  @doc "Starts a job. One that is not valid is answered with its error, and the next one starts."
  def start(%State{} = session, %Job{client: client} = job) do
    job = Waking.redirect(session, job)

    with {:ok, before} <- settle_started(session, job),
         {:ok, context} <- Job.prepare(job, before, session.runtime) do
      session = State.add_taken(session, List.wrap(job.id))
      {authority, session} = find_authority(session, job, context)

      if authority == Authority.gone(),
        do: refuse(session, job, context),
        else: start(session, job, context, authority)
    else
      {:error, {:store_error, _} = reason} ->
        Client.reply(client, end_error(session, reason, job.id != nil))
        go_on(session, :unknown)

      {:error, error} ->
        Client.reply(client, {:error, error})
        start_next(session)
    end
  end

  # A turn that goes on has the rights of the person who asked, unless somebody gives it others for this run.
  defp find_authority(session, %{kind: kind, opts: opts}, context) do
    case Authority.take(opts) do
      [] when kind == :wake ->
        {Waking.find_authority(session, opts[:call].iteration), session}

      [] when kind == :resume ->
        session = State.recover_authority(session)
        {known_authority(session), session}

      given ->
        runtime = session.runtime
        {Authority.recover(given, context, runtime[:supervisor], runtime), session}
    end
  end

  # An answer that is only returned needs none.
  defp known_authority(session) do
    authority = State.turn_authority(session)
    gone? = authority == Authority.gone()
    if gone? and not State.lacks_authority?(session), do: [], else: authority
  end

  defp start(session, %{client: client, kind: kind} = job, context, authority) do
    token = make_ref()
    begun = begin_end(session, context, Keyword.get(job.opts, :caller))

    own = %{
      task: start_task(session, job, context, authority, token, begun.underway),
      token: token,
      client: client,
      authority: authority,
      before: session.context,
      asked_before: session.asked,
      stored?: kind in [:resume, :wake] or job.id != nil,
      begun?: kind == :resume,
      wake?: kind == :wake
    }

    run = struct!(__MODULE__, Map.merge(begun, own))

    asked = if kind == :resume, do: session.asked, else: authority
    session = if kind == :prompt, do: Waking.remember(session, context, authority), else: session
    session = if kind == :wake, do: %{session | woken: session.claim.kept.revision}, else: session
    stop = session.stop_when_idle != false
    session = %{session | status: :running, run: run, stop_when_idle: stop, pausing?: false}
    State.put_context(%{session | asked: asked, withdrawn: nil}, context)
  end

  # The caller that resumes gets the error, and the conversation stays as it is.
  defp refuse(session, %{kind: kind, client: client}, _context)
       when kind in [:resume, :wake] and client != nil do
    Client.reply(client, end_error(session, {:missing_option, :runtime_context}, true))
    if session.status == :running, do: start_next(session), else: session
  end

  # Nobody who could give one waits.
  defp refuse(session, %{client: client}, context) do
    session = %{session | asked: Authority.gone()}
    session = park(session, context, %{reason: :missing_runtime_context})
    Client.reply(client, end_error(session, {:missing_option, :runtime_context}, true))
    session
  end

  @doc "Gives up a turn, for a reason that the history of the conversation gets: it waits until somebody resumes it."
  def park(%State{} = session, context, reason) do
    case Claim.park(session.claim, context, reason) do
      {:ok, claim} ->
        Parked.log(context[:id], reason)
        if context != session.context, do: tell_change(session, context)
        run = session.run || begin_end(session, context, nil)
        session = %{session | claim: claim, status: :idle, run: nil, pausing?: false}
        session = State.put_context(session, context)
        tell_end(session, run, end_error(session, end_of(reason), true))

      {:error, reason} ->
        lose(session, reason)
    end
  end

  defp end_of(%{reason: :died_without_progress, resumes: count}),
    do: {:max_resumes_exceeded, count}

  defp end_of(%{reason: :missing_runtime_context}), do: {:missing_option, :runtime_context}
  defp end_of(%{reason: :missing_option, option: option}), do: {:missing_option, option}
  defp end_of(%{reason: :over_budget, limit: reason}), do: reason

  # A message ends the turn before it. Its calls that were started may have been carried out.
  defp settle_started(%{context: context}, %{kind: kind}) when kind in [:resume, :wake],
    do: {:ok, context}

  defp settle_started(%{context: context, claim: claim}, _prompt) do
    with [_ | _] <- Context.pending_tool_calls(context),
         {:ok, ids} <- Claim.fetch_unknown(claim, context) do
      {:ok, Repeat.add_unknown(context, ids, "another message came")}
    else
      [] -> {:ok, context}
      error -> error
    end
  end

  @doc """
  Answers with what a turn that is over has led to. The last turn may have no answer yet: then the run goes on with it.
  """
  def answer(%State{context: context} = session, {_first, last}, %{client: client, opts: opts}) do
    if last == context.current_iteration do
      start(session, %Job{kind: :resume, client: client, opts: Authority.take(opts)})
    else
      message = context |> Context.get_iteration_messages(last) |> List.last()
      output = if message.role == :assistant, do: Response.text(message)
      Client.reply(client, {:ok, %Result{status: :answered, context: context, output: output}})
      session
    end
  end

  @doc "Starts what waits: a message that came too late for its turn, then the prompts. Without any, the session is idle."
  def start_next(%State{status: status} = session) when status in [:draining, :lost],
    do: %{session | run: nil}

  def start_next(%State{pausing?: true} = session),
    do: %{session | status: :idle, run: nil, pausing?: false}

  # A prompt that came too late for the turn to which it was given has the rights that it brought, or those of a turn that was not in the store.
  def start_next(
        %State{steers: [%{kind: kind, authority: authority} = prompt | steers]} = session
      )
      when kind == :prompt or authority != [],
      do: start(%{session | steers: steers, run: nil}, Job.from_message(prompt))

  # It was a message for the running turn, and has only that one's rights.
  def start_next(%State{steers: [steer | steers]} = session) do
    job = Job.from_message(steer, State.turn_authority(session))
    start(%{session | steers: steers, run: nil}, %{job | kind: :steer})
  end

  def start_next(%State{} = session) do
    case :queue.out(session.queue) do
      {{:value, job}, queue} -> start(%{session | queue: queue, run: nil}, job)
      {:empty, _queue} -> start_late(%{session | status: :idle, run: nil})
    end
  end

  # Late results, if there are any to go on with.
  defp start_late(session, asked? \\ false) do
    case Waking.next(session, asked?) do
      {:start, job} ->
        start(session, job)

      {:drop, keys, context} ->
        case Claim.drop_arrivals(session.claim, context, keys) do
          {:ok, claim} -> State.put_context(%{session | claim: claim}, context)
          {:error, reason} -> if Claim.lost?(reason), do: lose(session, reason), else: session
        end

      {:rest, time} ->
        look_later(session, time)
    end
  end

  # Whoever brings a result may know no session that could be told.
  defp look_later(%{look_timer: timer} = session, _time) when timer != nil, do: session
  defp look_later(session, :infinity), do: session

  defp look_later(session, time),
    do: %{session | look_timer: :erlang.start_timer(time, self(), :look)}

  @doc "Looks for late results, if nothing else is to be done."
  def look(%State{status: :idle, run: nil, unsure?: false} = session) do
    if State.waiting?(session), do: session, else: start_late(session, true)
  end

  def look(%State{} = session), do: session

  # What the end of a run needs, which a turn that waited for decisions has as well.
  defp begin_end(%{runtime: runtime, ended: before}, context, caller) do
    first = Context.turn_start(context)
    ending = Ending.start(before, runtime, context, %{first_iteration: first, depth: 0}, caller)
    begun = %{client: nil, first: first, started: System.monotonic_time(), ending: ending}
    Map.put(begun, :underway, Underway.new({:heir, ending, nil}))
  end

  # The task gets no more than it needs, since everything is copied.
  defp start_task(session, job, context, opts, token, underway) do
    %{claim: claim, runtime: runtime, ended: ended} = session
    new? = context != session.context
    caller = Keyword.get(job.opts, :caller)
    wake = if job.kind == :wake, do: job.opts[:call]
    limits = Authority.limits(context, wake && wake.iteration)
    opts = runtime |> Keyword.merge(opts) |> Bounds.narrow(limits)
    opts = Keyword.merge(opts, Options.take_limits(job))
    within = self() |> within(token, claim) |> Map.merge(%{underway: underway, wake: wake})

    Caller.task(runtime[:supervisor], caller, fn ->
      Ending.await_end(ended)
      Sealed.run(fn -> run(context, new?, opts, within, claim) end)
    end)
  end

  ## In the task

  defp within(session, token, claim) do
    Map.merge(Bounds.outermost(), %{
      watch: &report(session, token, &1),
      steered: fn -> ask_session(session, token, :steers) end,
      messages?: fn -> ask_session(session, token, :messages?) end,
      taken: if(claim, do: claim.taken, else: [])
    })
  end

  defp run(context, new?, opts, within, claim) do
    with {:ok, stored} <- Claim.run_options(claim),
         :ok <- if(new?, do: Events.store(opts[:on_change], context), else: :ok) do
      Runtime.run_prepared(context, stored ++ opts, within)
    else
      {:error, reason} -> {:error, %Error{reason: reason, context: context}}
    end
  end

  # Nothing more is read from the provider until everybody has the news. A session that ends kills the run that waits here.
  defp report(session, token, {:delta, events, response}) do
    send(session, {:run, token, {:delta, self(), events, response}})
    receive do: ({^token, :more} -> :ok)
  end

  defp report(session, token, news), do: send(session, {:run, token, news})

  # A session that ends kills the run that waits here, too.
  defp ask_session(session, token, what) do
    send(session, {what, token, self()})

    receive do:
              ({^token, answer} when is_list(answer) or (is_atom(answer) and answer != :more) ->
                 answer)
  end

  ## Hearing from the task

  @doc "Handles news of the current run."
  def handle_news(%State{} = session, {:context, context}),
    do: State.put_context(session, context)

  def handle_news(%State{} = session, {:delta, pid, events, response}) do
    session = State.put_response(session, events, response)
    send(pid, {session.run.token, :more})
    session
  end

  def handle_news(%State{} = session, {:event, _name, _measured, _metadata} = event),
    do: State.put_event(session, event)

  def handle_news(%State{} = session, {:kept, kept}) do
    session = put_in(session.claim.kept, kept)
    State.show_context(%{session | run: %{session.run | stored?: true, begun?: true}}, kept.value)
  end

  @doc """
  Gives the run the messages that came for its turn.

  A session that drains ends its run here instead, if all that the run has done is stored.
  """
  def give_steers(%State{pausing?: true} = session, pid) do
    send(pid, {session.run.token, :pause})
    session
  end

  def give_steers(
        %State{status: :draining, claim: %{kept: %{value: stored}}, context: context} = session,
        _pid
      )
      when stored == context,
      do: drain_now(session)

  def give_steers(%State{run: run} = session, pid) do
    {steers, others} = Enum.split_with(session.steers, &for?(&1, run.authority))
    send(pid, {run.token, steers})
    ids = for %{id: id} when id != nil <- steers, do: id
    run = %{run | given: run.given ++ steers, handed: {session.context, steers}}
    State.add_taken(%{session | steers: others, run: run}, ids)
  end

  # Its own turn may not have begun.
  defp for?(%{kind: :prompt, authority: own}, authority),
    do: own == authority or Authority.same?(own, authority)

  defp for?(_steer, _authority), do: true

  @doc "Handles the reply of the task, which is over."
  def handle_reply(%State{run: run} = session, reply) do
    Process.demonitor(run.task.ref, [:flush])
    session |> flush_news() |> finish(reply)
  end

  @doc "Handles the crash of the task."
  def handle_crash(%State{} = session, reason) do
    session = session |> end_tasks() |> flush_news() |> State.mark_stale()
    interrupt(session, "interrupted", {:exit, reason}, [])
  end

  # A task that has ended may have left news in the mailbox.
  defp flush_news(%{run: %{token: token}} = session) do
    receive do
      {:run, ^token, news} -> session |> handle_news(news) |> flush_news()
    after
      0 -> session
    end
  end

  # The queued prompts keep waiting, since the turn is not over.
  defp finish(%{run: run} = session, {:paused, %Paused{context: context}} = reply) do
    status = if session.status == :draining, do: :draining, else: :paused
    session = State.clear_taken(%{session | status: status, run: nil, pausing?: false})
    session |> State.put_context(context) |> tell_end(run, reply)
  end

  defp finish(session, {:error, %Error{reason: {:store_error, _} = reason} = error}) do
    session = State.put_context(session, error.context)

    if Claim.lost?(reason) do
      lose(session, reason)
    else
      {session, stored} = session |> State.mark_stale() |> withdraw(reason)
      session |> tell_end(session.run, {:error, %{error | stored: stored}}) |> go_on(stored)
    end
  end

  # The session went on by itself, and nobody waits who could give it.
  defp finish(
         %{status: :running, run: %{client: nil}} = session,
         {:error, %Error{reason: {:missing_option, option}, context: context}}
       ),
       do: park(session, context, %{reason: :missing_option, option: option})

  # What waits behind the turn still does.
  defp finish(
         %{status: :running, claim: %{kept: %{status: :parked}}} = session,
         {:error, %Error{reason: {:missing_option, _option}}} = reply
       ),
       do: stay_parked(session, reply)

  # The limits did not allow to begin a turn for late results, which wait in the store.
  defp finish(
         %{status: :running, run: %{wake?: true, before: %{current_iteration: number}} = run} =
           session,
         {:error, %Error{context: %{current_iteration: number} = context} = error} = reply
       ) do
    cond do
      run.client == nil -> park(session, context, %{reason: :over_budget, limit: error.reason})
      session.claim.kept.status == :parked -> stay_parked(session, reply)
      true -> end_run(session, context, reply)
    end
  end

  defp finish(session, {_, %{context: context}} = reply), do: end_run(session, context, reply)

  defp stay_parked(%{run: run} = session, reply) do
    reply = add_stored(reply, session)
    tell_end(%{session | status: :idle, run: nil, pausing?: false}, run, reply)
  end

  defp end_run(%{run: run} = session, context, reply) do
    reply = add_stored(reply, session)
    session = %{session | run: nil} |> State.clear_taken() |> State.put_context(context)
    session |> tell_end(run, reply) |> go_on(:known)
  end

  defp add_stored({:error, %Error{stored: nil} = error}, %{claim: %Claim{}, run: run}),
    do: {:error, %{error | stored: run.stored?}}

  defp add_stored(reply, _session), do: reply

  ## A message that could not be stored

  # The message is not in the conversation, so that sending it again does not send it twice. If it may be in the store,
  # nothing starts until the store has an answer.
  defp withdraw(%{run: %{stored?: true}} = session, _reason), do: {session, true}

  defp withdraw(%{run: run} = session, reason) do
    stored = Claim.tell_stored(reason)
    withdrawn = if stored == :unknown, do: session.asked
    session = %{session | asked: run.asked_before, withdrawn: withdrawn}
    {State.put_context(session, run.before), stored}
  end

  defp go_on(session, :unknown), do: check_later(%{session | status: :idle, run: nil})

  # The calls of a turn that failed before somebody has decided about them still wait.
  defp go_on(%{status: :running, context: context} = session, _known) do
    if Context.Calls.asked_tool_calls(context) == [],
      do: start_next(session),
      else: %{session | status: :paused, run: nil, pausing?: false}
  end

  defp go_on(session, _known), do: start_next(session)

  @doc "Asks the store soon whether there is a message of which nobody knows whether it was stored."
  def check_later(%State{} = session) do
    unless session.unsure?, do: Process.send_after(self(), :check_waiting, @check_again)
    %{session | unsure?: true}
  end

  @doc """
  Hears of what the store has and the session does not know, after an error whose outcome nobody knew: a turn that was written goes
  on, and messages that wait come before later ones. Returns `{:ok, session}` or an error.
  """
  def catch_up(%State{claim: claim} = session) do
    with {:ok, {steers, prompts}} <- Claim.fetch_waiting(claim),
         {:ok, session, news?} <- adopt(session) do
      session = State.add_waiting(session, steers, prompts)

      cond do
        session.status != :idle ->
          {:ok, session}

        news? and session.claim.kept.status == :running ->
          {:ok, start(session, %Job{kind: :resume})}

        true ->
          {:ok, start_next(session)}
      end
    end
  end

  # A write that the session took for failed had all of the session's data.
  defp adopt(%{run: nil, claim: %{kept: known} = claim} = session) do
    with {:ok, %{kept: kept} = claim} <- Claim.refresh(claim) do
      if kept.revision > known.revision do
        asked = session.withdrawn || session.asked
        session = %{session | claim: %{claim | taken: []}, asked: asked, withdrawn: nil}
        {:ok, State.put_context(session, kept.value), true}
      else
        {:ok, %{session | claim: claim, withdrawn: nil}, false}
      end
    end
  end

  defp adopt(session), do: {:ok, session, false}

  ## Ending it from outside

  @doc "Cancels what runs, or gives up what waits until somebody goes on. Nothing that waits starts, unless the application wants it."
  def cancel(%State{status: :idle} = session),
    do: if(State.set_aside?(session), do: cancel(%{session | status: :paused}), else: session)

  def cancel(%State{when_cancelled: :go_on} = session), do: cancel_turn(session)

  def cancel(%State{queue: queue, steers: steers} = session) do
    waiting = :queue.to_list(queue)
    dropped = for message <- steers ++ waiting, message.input != nil, do: show(message)
    ids = for %{id: id} when id != nil <- steers ++ waiting, do: id
    session = %{session | queue: :queue.new(), steers: [], dropped: dropped}
    {session, reason, stored} = %{session | pausing?: true} |> cancel_turn() |> forget(ids)
    for job <- waiting, do: Client.reply(job.client, end_error(session, reason, stored))
    rest(%{session | pausing?: false})
  end

  # Late results do not begin a turn at once.
  defp rest(%{status: :idle, run: nil, claim: %Claim{}} = session),
    do: look_later(session, Waking.look_again(session))

  defp rest(session), do: session

  defp show(%Job{input: input, opts: opts}),
    do: %{kind: :prompt, input: input, metadata: opts[:metadata] || %{}}

  defp show(steer), do: steer |> Map.take([:input, :metadata]) |> Map.put(:kind, :steer)

  # Those that cannot be taken out of the store now are with the next write.
  defp forget(session, ids) do
    case Claim.forget(session.claim, ids) do
      {:ok, claim} ->
        {%{session | claim: claim}, :dropped, false}

      {:error, {:store_error, :not_found} = gone} ->
        {lose(session, gone), gone, false}

      {:error, _reason} ->
        {session |> State.mark_stale() |> State.add_taken(ids), :dropped, :unknown}
    end
  end

  defp cancel_turn(%{status: :paused, claim: claim, context: context} = session) do
    context = Journal.cancel(context, Claim.fetch_unknown(claim, context))
    {session, _written} = end_turn(session, context, :cancelled)
    session = if session.status == :lost, do: session, else: %{session | status: :idle}

    session
    |> tell_end(begin_end(session, context, nil), end_error(session, :cancelled, true))
    |> start_next()
  end

  defp cancel_turn(%{run: run} = session) do
    # News that the task sent before it was killed are in the mailbox by then.
    reply = Task.shutdown(run.task, :brutal_kill)
    session = session |> end_tasks() |> flush_news() |> State.mark_stale()

    case reply do
      # The turn should end, and not wait.
      {:ok, {:paused, %{context: context}}} ->
        session |> State.put_context(context) |> interrupt_cancelled()

      {:ok, reply} ->
        finish(session, reply)

      _killed ->
        interrupt_cancelled(session)
    end
  end

  @doc "Ends the run of a session that drains. The turn is for the next session of the conversation."
  def drain_now(%State{run: nil} = session), do: session

  def drain_now(%State{} = session) do
    session = session |> end_run(:drained) |> State.mark_stale()
    %{session | run: nil}
  end

  # What an answer and sub-agents cost that are cut here, for the limits of the next session.
  defp note_cut(%{run: run, claim: claim, context: context} = session) do
    answer = Map.merge(%{context: context, iterations: 0}, partial(session))
    answers = if session.response, do: [%{call: :answer, facts: answer}], else: []

    cut = answers ++ Underway.list_cut(run.underway, context[:id])
    note = spent(session)
    change = if cut == [], do: & &1, else: &Underway.note_cut(&1, cut)

    with true <- claim != nil and (cut != [] or note != %{}),
         {:ok, claim} <- Claim.change(%{claim | stale?: true}, change, note) do
      %{session | claim: claim}
    else
      _none_or_unknown -> session
    end
  end

  # What a run that was killed has not written, with the part of an answer that came.
  defp spent(%{run: nil}), do: %{}

  defp spent(%{run: %{underway: table}, context: context, runtime: runtime} = session) do
    %{usage: usage, cost: cost} = partial(session)
    if session.response, do: Spent.add(table, if(usage != %{}, do: usage), cost)
    Spent.note(table, context.current_iteration, runtime[:prices] || [])
  end

  # A message of a conversation that was deleted is gone with it.
  defp end_error(%{claim: claim, context: context}, reason, stored, facts \\ %{}) do
    stored = reason != {:store_error, :not_found} && stored
    own = %{reason: reason, context: context, stored: claim && stored}
    {:error, struct!(Error, Map.merge(facts, own))}
  end

  # What a run that was killed has come to, with the part of an answer that came.
  defp facts(%{run: run, context: context} = session) do
    facts = Underway.facts(run.underway, context[:id])
    %{usage: usage, cost: cost} = partial(session)
    usage = Map.merge(facts.usage, usage, fn _key, a, b -> a + b end)
    %{facts | usage: usage, cost: facts.cost && facts.cost + (cost || 0)}
  end

  defp partial(%{response: response, context: context, runtime: runtime}) do
    with %Response{} <- response,
         response = Response.interrupt(response, :cut),
         {:ok, whole} <- Context.put_response(context, response, {nil, nil}) do
      cost = Bounds.cost(runtime, context, whole)
      %{usage: Response.usage(response) || %{}, cost: cost}
    else
      _nothing -> %{usage: %{}, cost: nil}
    end
  end

  @doc "Answers the clients of prompts that wait in the store when a session that drains stops."
  def answer_drained(%State{} = session),
    do: answer_queue(session, end_error(session, :drained, true))

  @doc "Handles that the conversation is another's: nothing of it runs here any more, and all who wait get an error."
  def lose(%State{status: :lost} = session, _reason), do: session

  def lose(%State{run: run} = session, reason) do
    session = if run, do: end_run(session, reason), else: session
    answer_queue(%{session | status: :lost, run: nil}, end_error(session, reason, true))
  end

  # The run is killed, and may have stored its message by then.
  defp end_run(%{run: run} = session, reason) do
    session = stop_task(session)
    session = if reason == :drained, do: note_cut(session), else: session
    stored = if session.run.stored?, do: true, else: :unknown
    tell_end(session, run, end_error(session, reason, stored, facts(session)))
  end

  @doc "Answers the clients of all prompts that wait. With a store these wait for the next session of the conversation."
  def answer_queue(%State{queue: queue} = session, reply) do
    for %Job{client: client} <- :queue.to_list(queue), do: Client.reply(client, reply)
    session
  end

  @doc "Kills what the run has started. Its tools do not end with it."
  def end_tasks(%State{runtime: runtime} = session) do
    for pid <- Task.Supervisor.children(runtime[:supervisor]),
        do: Task.Supervisor.terminate_child(runtime[:supervisor], pid)

    session
  end

  defp stop_task(%{run: run} = session) do
    Task.shutdown(run.task, :brutal_kill)
    session |> end_tasks() |> flush_news()
  end

  defp interrupt_cancelled(session),
    do: interrupt(session, "cancelled by the user", :cancelled, status: :cancelled)

  # Ends the turn of a run that has no reply.
  defp interrupt(%{run: run} = session, words, reason, opts) do
    label = if is_atom(reason), do: reason, else: elem(reason, 0)
    facts = facts(session)
    session = take_back(session, label == :cancelled and session.when_cancelled)
    {session, written} = end_turn(session, add_response(session, label, words, opts), reason)

    case {session, written} do
      {%{status: :lost}, _refused} ->
        start_next(session)

      {session, :ok} ->
        session |> tell_end(run, end_error(session, reason, true, facts)) |> start_next()

      {session, {:error, why}} ->
        {session, stored} = withdraw(session, why)
        session |> tell_end(run, end_error(session, reason, stored, facts)) |> go_on(stored)
    end
  end

  # A run that was killed may not have added the messages that it was handed last.
  defp take_back(%{run: %{handed: {context, steers}}, context: context} = session, :drop),
    do: %{session | dropped: session.dropped ++ Enum.map(steers, &show/1)}

  defp take_back(%{run: %{handed: {context, steers}}, context: context} = session, _starts) do
    ids = for %{id: id} <- steers, do: id
    session = if session.claim, do: update_in(session.claim.taken, &(&1 -- ids)), else: session
    %{session | steers: steers ++ session.steers}
  end

  defp take_back(session, _when_cancelled), do: session

  # Whoever hears of the end can act on it: the state is what it says by then. Subscribers hear it now, `:on_event` soon, and
  # then the client gets its reply.
  defp tell_end(%{context: context} = session, run, reply) do
    dropped = if session.dropped == [], do: %{}, else: %{dropped: session.dropped}
    told = Map.put(session.told, Ending.tell(run.ending, reply, dropped), {run.client, reply})
    Underway.delete(run.underway)

    for {name, measured, metadata} <- Runtime.end_events(run.started, reply),
        reduce: %{session | told: told, ended: run.ending, dropped: []} do
      session ->
        metadata = metadata |> Map.put(:context_id, context[:id]) |> Map.merge(dropped)
        State.put_event(session, {:event, name, measured, metadata})
    end
  end

  @doc "Answers a client when everybody has heard of the end of its run."
  def answer_told(%State{told: told} = session, monitor) do
    {{client, reply}, told} = Map.pop!(told, monitor)
    Client.reply(client, reply)
    %{session | told: told}
  end

  @doc "The same for all, when the session stops."
  def answer_all_told(%State{told: told, ended: ended} = session) do
    Ending.await_end(ended)
    for {_monitor, {client, reply}} <- told, do: Client.reply(client, reply)
    %{session | told: %{}}
  end

  # The part of an answer that came stays.
  defp add_response(%{response: nil} = session, _label, words, opts),
    do: interrupt_calls(session, words, opts)

  defp add_response(%{response: response, context: context} = session, label, words, opts) do
    response = Response.interrupt(response, label)

    case Runtime.Run.add_broken_response(context, response, words, opts) do
      {:ok, context} -> context
      {:error, _error} -> interrupt_calls(session, words, opts)
    end
  end

  # Calls that were pending before the run may have been started by another one, which only a store knows.
  defp interrupt_calls(%{run: run, claim: claim, context: context}, words, opts) do
    earlier = for %{id: id} <- Context.pending_tool_calls(run.before), do: id
    opts = if earlier != [] and claim == nil, do: [told: words] ++ opts, else: opts

    unknown =
      with [_ | _] <- earlier, {:ok, ids} <- Claim.fetch_unknown(claim, context) do
        Enum.filter(ids, &(&1 in earlier))
      else
        _none_or_error -> []
      end

    {context, _ids} = Underway.interrupt(run.underway, context, words, [unknown: unknown] ++ opts)
    context
  end

  # The session's own change at the end of a turn stays even if it cannot be stored: the conversation goes on from here.
  # Returns the session, and the result of the store.
  defp end_turn(session, context, reason) do
    note = Map.merge(Ended.note({:failed, reason}), spent(session))
    {session, written} = write_turn(session, context, note)
    tell_change(session, context)
    {State.put_context(session, context), written}
  end

  defp tell_change(session, context) do
    on_change = session.runtime[:on_change]

    with {:error, {:on_change_error, reason}} <- Events.store(on_change, context),
         do: Events.log(:error, reason, [], ":on_change")
  end

  defp write_turn(session, context, note) do
    case Claim.write(session.claim, context, :idle, :started, note) do
      {:ok, claim} ->
        {%{session | claim: claim}, :ok}

      {:error, reason} = error ->
        session =
          if Claim.lost?(reason), do: lose(session, reason), else: State.mark_stale(session)

        {session, error}
    end
  end
end
