defmodule AshAgent.Session.Run do
  @moduledoc false

  # A session's run: its start, the news of its task, and its end. Functions that take a session's state return the next one.

  alias AshAgent.{Context, Response, Runtime}
  alias AshAgent.Runtime.{Authority, Bounds, Error, Events, Paused, Repeat, Result, Sealed}
  alias AshAgent.Session.{Claim, Client, Job, Options, State}
  alias AshAgent.Trace.Caller

  require Logger

  #   * `task` - the process that runs the loop
  #   * `token` - marks its messages, so that late ones of earlier runs are not taken for its own
  #   * `client` - the receiver of the reply
  #   * `first` - the number of the iteration with which the turn began
  #   * `started` - when it started, in native time units
  #   * `given` - the messages that it was given for its turn
  #   * `before`, `asked_before` - the conversation without the message of its job, and the authority of its turn
  #   * `stored?` - the message of its job is in the store
  @enforce_keys [:task, :token, :client, :first, :started, :before, :asked_before, :stored?]
  defstruct @enforce_keys ++ [given: []]

  # After so many milliseconds the store is asked again whether a message was stored.
  @check_again 1_000

  ## Starting

  @doc "Starts a job. One that is not valid is answered with its error, and the next one starts."
  def start(%State{} = session, %Job{client: client} = job) do
    with {:ok, before} <- settle_started(session, job),
         {:ok, context} <- Job.prepare(job, before, session.runtime) do
      session = State.add_taken(session, List.wrap(job.id))
      authority = find_authority(session, job)

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
  defp find_authority(session, %{kind: kind, opts: opts}) do
    case Authority.take(opts) do
      [] when kind == :resume ->
        if State.lacks_authority?(session), do: Authority.gone(), else: known_authority(session)

      given ->
        given
    end
  end

  # An answer that is only returned needs none.
  defp known_authority(session) do
    authority = State.turn_authority(session)
    if authority == Authority.gone(), do: [], else: authority
  end

  defp start(session, %{client: client, kind: kind} = job, context, authority) do
    token = make_ref()

    run = %__MODULE__{
      task: start_task(session, job, context, authority, token),
      token: token,
      client: client,
      first: Context.turn_start(context),
      started: System.monotonic_time(),
      before: session.context,
      asked_before: session.asked,
      stored?: kind == :resume or job.id != nil
    }

    asked = if kind == :prompt, do: authority, else: session.asked
    stop = session.stop_when_idle != false
    session = %{session | status: :running, run: run, stop_when_idle: stop, pausing?: false}
    State.put_context(%{session | asked: asked, withdrawn: nil}, context)
  end

  # The caller that resumes gets the error, and the conversation stays as it is.
  defp refuse(session, %{kind: :resume, client: client}, _context) when client != nil do
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
        log_parked(context, reason)
        if context != session.context, do: tell_change(session, context)
        State.put_context(%{session | claim: claim, status: :idle, run: nil}, context)

      {:error, reason} ->
        lose(session, reason)
    end
  end

  defp log_parked(context, reason) do
    Logger.error(
      "the conversation #{inspect(context[:id])} is parked: #{describe(reason)}. AshAgent.Session.resume/2 goes on with it"
    )
  end

  defp describe(%{reason: :died_without_progress, resumes: count}) do
    "#{count} sessions in a row have gone on with its turn and ended before they could store anything"
  end

  defp describe(%{reason: :missing_runtime_context}) do
    "its turn was asked with a :runtime_context of its own, which is not stored and has to be given again"
  end

  # A message ends the turn before it. Its calls that were started may have been carried out.
  defp settle_started(%{context: context}, %{kind: :resume}), do: {:ok, context}

  defp settle_started(%{context: context, claim: claim}, _prompt) do
    with [_ | _] <- Context.pending_tool_calls(context),
         {:ok, ids} <- Claim.fetch_unknown(claim, context) do
      {:ok, add_unknown(context, ids, "another message came")}
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

  # It was a message for the running turn, and has only that one's rights.
  def start_next(%State{steers: [steer | steers]} = session) do
    job = Job.from_message(steer, State.turn_authority(session))
    start(%{session | steers: steers, run: nil}, job)
  end

  def start_next(%State{} = session) do
    case :queue.out(session.queue) do
      {{:value, job}, queue} -> start(%{session | queue: queue, run: nil}, job)
      {:empty, _queue} -> %{session | status: :idle, run: nil}
    end
  end

  # The task gets no more than it needs, since everything is copied.
  defp start_task(session, job, context, opts, token) do
    %{claim: claim, runtime: runtime} = session
    new? = context != session.context
    caller = Keyword.get(job.opts, :caller)
    opts = runtime |> Keyword.merge(opts) |> Keyword.merge(Options.take_limits(job))
    within = within(self(), token, claim)

    Caller.task(runtime[:supervisor], caller, fn ->
      Sealed.run(fn -> run(context, new?, opts, within, claim) end)
    end)
  end

  ## In the task

  defp within(session, token, claim) do
    Map.merge(Bounds.outermost(), %{
      watch: &report(session, token, &1),
      steered: fn -> take_steers(session, token) end,
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
  defp take_steers(session, token) do
    send(session, {:steers, token, self()})
    receive do: ({^token, steers} when is_list(steers) or steers == :pause -> steers)
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
    State.show_context(%{session | run: %{session.run | stored?: true}}, kept.value)
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

  def give_steers(%State{steers: steers} = session, pid) do
    send(pid, {session.run.token, steers})
    ids = for %{id: id} when id != nil <- steers, do: id
    run = %{session.run | given: session.run.given ++ steers}
    State.add_taken(%{session | steers: [], run: run}, ids)
  end

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
    Client.reply(run.client, reply)
    status = if session.status == :draining, do: :draining, else: :paused
    State.put_context(State.clear_taken(%{session | status: status, run: nil}), context)
  end

  defp finish(session, {:error, %Error{reason: {:store_error, _} = reason} = error}) do
    session = State.put_context(session, error.context)

    if Claim.lost?(reason) do
      lose(session, reason)
    else
      {session, stored} = session |> State.mark_stale() |> withdraw(reason)
      Client.reply(session.run.client, {:error, %{error | stored: stored}})
      go_on(session, stored)
    end
  end

  defp finish(%{run: run} = session, {_, %{context: context}} = reply) do
    Client.reply(run.client, add_stored(reply, session))
    %{session | run: nil} |> State.clear_taken() |> State.put_context(context) |> start_next()
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

  @doc "Cancels what runs, or gives up the calls that wait for a decision."
  def cancel(%State{status: :idle} = session), do: session

  def cancel(%State{status: :paused, claim: claim, context: context} = session) do
    # None of its calls runs: nobody knows how those ended that were started.
    context =
      case Claim.fetch_unknown(claim, context) do
        {:ok, ids} -> add_unknown(context, ids, "the user cancelled the turn")
        {:error, _reason} -> context
      end

    context = Context.interrupt(context, "cancelled by the user", status: :cancelled)
    {session, _written} = end_turn(session, context, :unknown)
    start_next(session)
  end

  def cancel(%State{run: run} = session) do
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

  defp end_error(%{claim: claim, context: context}, reason, stored),
    do: {:error, %Error{reason: reason, context: context, stored: claim && stored}}

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
    stored = if session.run.stored?, do: true, else: :unknown
    Client.reply(run.client, end_error(session, reason, stored))
    session
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

  defp add_unknown(context, [], _reason), do: context

  defp add_unknown(context, ids, reason) do
    results = for id <- ids, do: %{id: id, result: Repeat.make_unknown(reason)}
    Context.add_tool_results(context, results)
  end

  # Ends the turn of a run that has no reply.
  defp interrupt(%{run: run} = session, words, reason, opts) do
    label = if is_atom(reason), do: reason, else: elem(reason, 0)
    ended = if label == :cancelled, do: :cancelled, else: :interrupted
    {session, written} = end_turn(session, add_response(session, label, words, opts), ended)

    case {session, written} do
      {%{status: :lost}, _refused} ->
        start_next(session)

      {session, :ok} ->
        session |> report_end(run, reason, true) |> start_next()

      {session, {:error, why}} ->
        {session, stored} = withdraw(session, why)
        session |> report_end(run, reason, stored) |> go_on(stored)
    end
  end

  defp report_end(session, run, reason, stored) do
    reply = end_error(session, reason, stored)
    token = run.token
    watch = &send(self(), {:run, token, &1})

    session.runtime
    |> Events.new(%{context_id: session.context[:id]}, watch)
    |> Runtime.report_end(run.started, reply, %{first_iteration: run.first, depth: 0})

    Client.reply(run.client, reply)
    flush_news(session)
  end

  # The part of an answer that came stays.
  defp add_response(%{response: nil, context: context}, _label, words, opts),
    do: Context.interrupt(context, words, opts)

  defp add_response(%{response: response, context: context}, label, words, opts) do
    response = Response.interrupt(response, label)

    case Runtime.Run.add_broken_response(context, response, words, opts) do
      {:ok, context} -> context
      {:error, _error} -> Context.interrupt(context, words, opts)
    end
  end

  # The session's own change at the end of a turn stays even if it cannot be stored: the conversation goes on from here.
  # Returns the session, and the result of the store.
  defp end_turn(session, context, ended) do
    {session, written} = write_turn(session, context, ended)
    tell_change(session, context)
    {State.put_context(session, context), written}
  end

  defp tell_change(session, context) do
    on_change = session.runtime[:on_change]

    with {:error, {:on_change_error, reason}} <- Events.store(on_change, context),
         do: Events.log(:error, reason, [], ":on_change")
  end

  defp write_turn(session, context, ended) do
    case Claim.write(session.claim, context, :idle, ended) do
      {:ok, claim} ->
        {%{session | claim: claim}, :ok}

      {:error, reason} = error ->
        session =
          if Claim.lost?(reason), do: lose(session, reason), else: State.mark_stale(session)

        {session, error}
    end
  end
end
