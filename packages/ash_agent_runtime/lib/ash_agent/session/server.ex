defmodule AshAgent.Session.Server do
  @moduledoc false

  # The process of a session, an `AshAgent.Session.State`, whose `status` is one of these:
  #
  # | event                   | idle             | running                 | paused            | draining                |
  # |-------------------------|------------------|-------------------------|-------------------|-------------------------|
  # | prompt                  | running          | waits in the queue      | error `:paused`   | error `:draining`       |
  # | resume                  | running          | waits in the queue      | running           | error `:draining`       |
  # | steer                   | error `:idle`    | is given to the run     | error `:paused`   | is stored for later     |
  # | a late result           | running          | is read at its next step| waits             | waits                   |
  # | steer_stored            | error `:idle`    | is given to the run     | error `:paused`   | error `:draining`       |
  # | approve, deny, answer   | makes a decision | error `:busy`           | makes a decision  | error `:busy`           |
  # | rewind                  | goes back        | error `:busy`           | error `:paused`   | error `:busy`           |
  # | cancel                  | drops what waits | idle                    | idle              | stops                   |
  # | pause                   | -                | at its next step: idle  | -                 | -                       |
  # | the run asks for steers | -                | it gets them            | -                 | stops, if all is stored |
  # | the run pauses          | -                | paused                  | -                 | stops                   |
  # | the run ends or crashes | -                | next job, or idle       | -                 | stops                   |
  # | drain soon              | stops            | draining                | stops             | -                       |
  # | drain now               | stops            | stops                   | stops             | stops                   |
  # | the claim is lost       | lost             | lost                    | lost              | lost                    |
  #
  # An idle session whose turn waits for late results goes on with it when they come, when somebody steers it, or when it is cancelled.
  # A run that fails before somebody has decided about its calls leaves the session paused. A cancelled turn drops what waits,
  # unless the option `:when_cancelled` lets the next job start. A session that drains has a run that ends at its next step, or
  # none, and then it stops. One that is `:lost` stops at once, and does not touch the conversation any more. With `:idle` it stops
  # when nobody has needed it for so long, and with `:stop_when_idle` when it is idle or paused.
  #
  # It is a GenServer, and not a `:gen_statem`, since most requests are the same in all states, and since prompts that wait are
  # data, which is counted, limited, shown and stored, while a `:gen_statem` would postpone events. A transition is a function
  # that takes the state and returns the next one. Only `next_action/1` decides, after each event, whether the session stops.
  #
  # Each callback is sealed: a failure discloses nothing of the session's data.

  use GenServer

  alias AshAgent.{Context, Runtime}
  alias AshAgent.Runtime.{Authority, Error, Events, Rewind, Sealed}
  alias AshAgent.Session.{Border, Claim, Client, Decision, Job, Run, State, Subscribers, Waking}
  alias AshAgent.Trace.Caller

  # A session with `:stop_when_idle` waits so many milliseconds for its first request.
  @unasked 10_000

  # The limits for messages of others.
  @limits [:max_queue, :max_queue_bytes, :max_input_bytes, :max_subscribers]

  # An improper list has no length.
  defguardp is_options(opts) when length(opts) >= 0
  defguardp is_input(input) when is_binary(input) or is_list(input) or is_map(input)

  ## Starting

  @impl true
  def init(opts), do: Sealed.run(fn -> open(opts) end)

  defp open(opts) do
    with [_ | _] = callers <- opts[:callers], do: Process.put(:"$callers", callers)

    case load(opts) do
      {:ok, context, claim} ->
        Caller.note(context[:id])
        if opts[:stop_when_idle], do: Process.send_after(self(), :unasked, @unasked)
        {:ok, new_state(opts, context, claim), {:continue, {:restore, opts[:go_on]}}}

      {:error, reason} ->
        {:stop, if(opts[:quiet?], do: {:shutdown, reason}, else: reason)}
    end
  end

  defp new_state(opts, context, claim) do
    {:ok, supervisor} = Task.Supervisor.start_link()

    %State{
      status: first_status(context, claim && claim.kept, opts[:runtime][:approval]),
      context: context,
      shown: {context, nil},
      tag: opts[:tag],
      when_busy: opts[:when_busy],
      when_cancelled: opts[:when_cancelled],
      limits: opts |> Keyword.take(@limits) |> Map.new(),
      max_resumes: opts[:max_resumes],
      max_wakes: opts[:max_wakes],
      claim: claim,
      runtime: Keyword.merge([runtime_context: %{}], opts[:runtime]) ++ [supervisor: supervisor],
      idle_timeout: if(claim, do: opts[:idle], else: :infinity),
      stop_when_idle: if(opts[:stop_when_idle], do: :unasked, else: false)
    }
  end

  # Pending calls may need a decision if the session asks for decisions, or if the conversation was paused for one. A turn that was
  # cut short goes on, unless its calls need somebody to ask and there is nobody.
  defp first_status(context, kept, approval) do
    stored = kept && kept.status
    asks? = (is_function(approval) and stored not in [:running, :waiting]) or stored == :paused
    waits? = asks? and Context.pending_tool_calls(context) != []
    waits? = waits? or Context.Calls.asked_tool_calls(context) != []
    if waits? or Runtime.undecided?(context, kept, approval), do: :paused, else: :idle
  end

  defp load(opts) do
    if opts[:store] do
      claim_opts = Keyword.take(opts, [:lease, :from, :max_resumes])

      with {:ok, claim} <-
             Claim.open(opts[:store], opts[:id], claim_opts, fn -> new_context(opts) end),
           do: {:ok, claim.kept.value, claim}
    else
      with {:ok, context} <- restore_context(opts[:context], opts[:system_prompt]),
           do: {:ok, context, nil}
    end
  end

  # A new conversation has the id that it is stored under. One that was given has its own.
  defp new_context(opts) do
    if opts[:context] == nil,
      do: create_context(opts[:system_prompt], %{id: opts[:id]}),
      else: restore_context(opts[:context], opts[:system_prompt])
  end

  defp restore_context(function, system_prompt) when is_function(function, 0),
    do: restore_context(function.(), system_prompt)

  defp restore_context(nil, system_prompt), do: create_context(system_prompt, %{})

  defp restore_context({:ok, context}, system_prompt),
    do: restore_context(context, system_prompt)

  defp restore_context({:error, reason}, _system_prompt), do: {:error, reason}

  defp restore_context(stored, _system_prompt) when is_binary(stored) or is_map(stored),
    do: Context.restore(stored)

  defp restore_context(_other, _system_prompt), do: {:error, :no_context}

  defp create_context(nil, attributes), do: Context.create(attributes)

  defp create_context(system_prompt, attributes) do
    messages = [%{role: :system, content: system_prompt}]
    Context.create(Map.put(attributes, :iterations, [%{number: 1, messages: messages}]))
  end

  ## Callbacks

  @impl true
  def handle_continue({:restore, go_on?}, session),
    do: Sealed.run(fn -> settle({:noreply, if(go_on?, do: restore(session), else: session)}) end)

  @impl true
  def handle_call(request, {pid, _tag} = from, session) do
    Sealed.run(fn ->
      case handle_request(request, from, session) do
        {:reply, reply, session} -> settle({:reply, Border.pack(reply, pid), session})
        {:noreply, session} -> settle({:noreply, session})
      end
    end)
  end

  @impl true
  def handle_cast(request, session),
    do: Sealed.run(fn -> settle({:noreply, handle_order(request, session)}) end)

  @impl true
  def handle_info({:timeout, timer, :idle}, %State{idle_timer: timer} = session)
      when is_reference(timer),
      do: {:stop, {:shutdown, :idle}, session}

  def handle_info(message, session),
    do: Sealed.run(fn -> settle({:noreply, handle_message(message, session)}) end)

  @impl true
  def terminate(_reason, session) do
    Sealed.run(fn -> session |> Run.answer_all_told() |> close() end)
  end

  defp close(%State{claim: %Claim{} = claim, status: status} = session) when status != :lost do
    Run.end_tasks(session)
    if State.unfinished?(session), do: Claim.hand_over(claim), else: Claim.release(claim)
  end

  defp close(_session), do: :ok

  # Not a callback of older GenServers, but OTP's gen_server calls it from version 25 on.
  if {:format_status, 1} in GenServer.behaviour_info(:callbacks), do: @impl(true)

  def format_status(status), do: Sealed.format_status(status, &State.show/1)

  ## After each event

  defp settle({:noreply, session}) do
    case next_action(session) do
      {:ok, session} -> {:noreply, session}
      {:stop, reason, session} -> {:stop, reason, session}
    end
  end

  defp settle({:reply, reply, session}) do
    case next_action(session) do
      {:ok, session} -> {:reply, reply, session}
      {:stop, reason, session} -> {:stop, reason, reply, session}
    end
  end

  defp next_action(%{status: :lost} = session), do: {:stop, {:shutdown, :lost}, session}

  defp next_action(%{status: :draining, run: nil} = session),
    do: {:stop, {:shutdown, :drained}, Run.answer_drained(session)}

  # The prompts that a paused session has not begun wait in the store. Starting another session soon would not help them.
  defp next_action(%{stop_when_idle: true, status: status} = session)
       when status in [:idle, :paused] do
    session = Run.answer_queue(session, {:error, :paused})
    {:stop, :normal, %{session | queue: :queue.new()}}
  end

  defp next_action(session), do: {:ok, update_idle_timer(session)}

  # Measures the time in which nobody needs the session.
  defp update_idle_timer(%{idle_timeout: :infinity} = session), do: session

  defp update_idle_timer(%{idle_timer: timer} = session) do
    case {timer, State.needed?(session)} do
      {nil, false} ->
        %{session | idle_timer: :erlang.start_timer(session.idle_timeout, self(), :idle)}

      {timer, true} when timer != nil ->
        :erlang.cancel_timer(timer)
        %{session | idle_timer: nil}

      _unchanged ->
        session
    end
  end

  ## The first event

  # A conversation from a store goes on with the turn that was cut short, and with the prompts that waited.
  defp restore(%{claim: nil} = session), do: session

  defp restore(%{claim: claim} = session) do
    with {:ok, {steers, prompts}} <- Claim.fetch_waiting(claim),
         queue = prompts |> Enum.map(&Job.from_message/1) |> :queue.from_list(),
         {:ok, session} <- restore(%{session | queue: queue, steers: steers}, claim.kept.status) do
      session
    else
      {:error, reason} -> Run.lose(session, reason)
    end
  end

  # The next session finds it paused, and no other one is started for its turn.
  defp restore(%{status: :paused} = session, :running) do
    with {:ok, claim} <- Claim.pause(session.claim), do: {:ok, %{session | claim: claim}}
  end

  defp restore(session, :running), do: {:ok, go_on(session)}

  defp restore(session, stored) when stored == :parked or session.status == :paused,
    do: {:ok, session}

  defp restore(session, _idle), do: {:ok, Run.start_next(session)}

  # An atom is greater than any number.
  defp go_on(%{claim: claim, max_resumes: max} = session) do
    with {:ok, count} when count < max <- Claim.count_resumes(claim.store, claim.kept),
         {:ok, claim} <- Claim.note_resume(claim, count + 1) do
      Run.start(%{session | claim: claim}, %Job{kind: :resume})
    else
      {:ok, count} ->
        Run.park(session, session.context, %{reason: :died_without_progress, resumes: count})

      {:error, reason} ->
        Run.lose(session, reason)
    end
  end

  ## Requests, which are answered now or when a run ends

  defp handle_request({:run, job}, from, session),
    do: accept(job, Client.new(from), session)

  defp handle_request({:run_async, pid, job}, from, session) when is_pid(pid),
    do: accept(job, Client.new(from, pid, session.tag), session)

  defp handle_request({:steer, input, metadata}, _from, session)
       when is_input(input) and is_map(metadata),
       do: steer(input, metadata, session)

  defp handle_request({:steer_stored, id, opts}, _from, session)
       when is_binary(id) and is_options(opts),
       do: with_waiting(session, &steer_stored(id, opts, &1))

  defp handle_request({:decide, {verdict, id, reason} = decision, opts}, _from, session)
       when verdict in [:approved, :denied, :answered] and is_binary(id) and is_options(opts) do
    question = if verdict == :answered, do: Waking.find_question(session, id)

    if question,
      do: answer_late(question, reason, opts, session),
      else: with_waiting(session, &decide(decision, opts, &1))
  end

  defp handle_request(:take_arrivals, _from, session), do: {:reply, :ok, Run.look(session)}

  defp handle_request({:rewind, number}, _from, session) when is_integer(number),
    do: with_waiting(session, &rewind(number, &1))

  defp handle_request(:cancel, _from, session), do: {:reply, :ok, Run.cancel(session)}

  defp handle_request(:pause, _from, session),
    do: {:reply, :ok, %{session | pausing?: session.run != nil}}

  defp handle_request({:put_llm, llm}, _from, session),
    do: {:reply, :ok, put_in(session.runtime[:llm], llm)}

  defp handle_request(:context, _from, %{shown: {context, _response}} = session),
    do: {:reply, context, session}

  defp handle_request(:status, _from, session),
    do: {:reply, State.public_status(session), session}

  defp handle_request(:snapshot, {pid, _tag}, session) do
    subscribers = Subscribers.catch_up(session.subscribers, pid, session.number)
    {:reply, Subscribers.pack_snapshot(session, pid), %{session | subscribers: subscribers}}
  end

  defp handle_request({:subscribe, ref, limit}, _from, session)
       when is_reference(ref) and is_integer(limit) and
              map_size(session.subscribers) >= session.limits.max_subscribers,
       do: {:reply, {:error, :full}, session}

  defp handle_request({:subscribe, ref, limit}, {pid, _tag}, session)
       when is_reference(ref) and is_integer(limit) do
    subscribers = Subscribers.add(session.subscribers, ref, pid, limit, session.number)
    {:reply, Subscribers.pack_snapshot(session, pid), %{session | subscribers: subscribers}}
  end

  defp handle_request({:unsubscribe, ref}, _from, session),
    do: {:reply, :ok, update_in(session.subscribers, &Subscribers.delete(&1, ref))}

  defp handle_request(_unknown, _from, session), do: reply_unknown(session)

  defp reply_unknown(session), do: {:reply, {:error, :unknown_call}, State.ignore(session)}

  # Jobs come by a message, and may be anything.
  defp accept(_job, _client, %{status: :draining} = session),
    do: {:reply, {:error, :draining}, session}

  defp accept({:prompt, input, opts}, client, session)
       when is_input(input) and is_options(opts) do
    job = %Job{kind: :prompt, input: input, opts: opts, client: client}

    if State.too_large?(session, {input, opts}),
      do: {:reply, {:error, :too_large}, session},
      else: with_waiting(session, &accept_prompt(job, &1))
  end

  defp accept({:resume, opts}, client, session) when is_options(opts) do
    with_waiting(session, fn session ->
      %{context: context, claim: claim, runtime: runtime} = session

      if Runtime.undecided?(context, claim && claim.kept, runtime[:approval]),
        do: refuse(session, {:missing_option, :approval}),
        else:
          start_or_enqueue(%Job{kind: :resume, opts: opts, client: client, asked?: true}, session)
    end)
  end

  defp accept({:stored, id, opts}, client, %{claim: %Claim{}} = session)
       when is_binary(id) and is_options(opts),
       do: with_waiting(session, &accept_stored(id, opts, client, &1))

  defp accept(_job, _client, session), do: reply_unknown(session)

  # A message that has come before is not added again.
  defp accept_prompt(%{client: client} = job, session) do
    case State.find_message(session, State.key(job.opts[:metadata])) do
      nil ->
        if moved?(job.opts[:after], session),
          do: {:reply, {:error, :moved}, session},
          else: start_or_enqueue(job, session)

      {:queued, waiting} ->
        join(waiting.client, client, session, &State.join_job(&1, waiting, job))

      {:turn, first, last} ->
        accept_again({first, last}, job, session)

      _running ->
        join_run(client, session)
    end
  end

  # Whether something was said after the turn of a message, or is about to be.
  defp moved?(nil, _session), do: false

  defp moved?(key, %{run: run, context: context} = session) do
    case State.find_message(session, key) do
      {:turn, _first, last} ->
        run != nil or State.waiting?(session) or last != context.current_iteration

      _unknown_or_running ->
        true
    end
  end

  defp accept_again(_turn, _job, %{status: :paused} = session),
    do: {:reply, {:error, :paused}, session}

  # The last turn has no answer, and others run.
  defp accept_again({_first, last}, job, %{run: %Run{}, context: context} = session)
       when last == context.current_iteration,
       do: join_run(job.client, session)

  defp accept_again(turn, job, session) do
    Client.confirm(job.client)
    {:noreply, Run.answer(session, turn, job)}
  end

  defp join_run(client, %{run: run} = session) do
    join(run.client, client, session, fn session ->
      update_in(session.run.client, &Client.join(&1, client))
    end)
  end

  defp join(clients, client, session, join) do
    if Client.count(clients) >= session.limits.max_subscribers do
      {:reply, {:error, :busy}, session}
    else
      Client.confirm(client)
      {:noreply, join.(session)}
    end
  end

  # After an error whose outcome nobody knows, a message may be in the store: it comes before anything else.
  defp with_waiting(%{unsure?: false} = session, accept), do: accept.(session)

  defp with_waiting(session, accept) do
    case Run.catch_up(session) do
      {:ok, session} -> accept.(session)
      {:error, reason} -> refuse(session, reason)
    end
  end

  defp start_or_enqueue(%{kind: :prompt}, %{status: :paused} = session),
    do: {:reply, {:error, :paused}, session}

  defp start_or_enqueue(job, session) do
    cond do
      session.run != nil and State.full?(session, job.input) ->
        {:reply, {:error, :busy}, session}

      # A prompt whose caller waits for its answer is stored by its run, if that starts now.
      session.run == nil and job.client.ref == nil and not State.waiting?(session) ->
        {:noreply, Run.start(session, job)}

      true ->
        case store_job(job, session.claim) do
          {:ok, id} -> {:noreply, begin_job(%{job | id: id}, session)}
          {:error, reason} -> refuse(session, reason)
        end
    end
  end

  # A job is stored before it is confirmed.
  defp store_job(%{kind: kind}, claim) when kind == :resume or claim == nil, do: {:ok, nil}

  defp store_job(%{kind: :prompt, input: input, opts: opts}, claim),
    do: Claim.enqueue(claim, :prompt, input, opts[:metadata] || %{}, Authority.take(opts))

  # What waits since a pause comes before a new prompt.
  defp begin_job(job, session) do
    Client.confirm(job.client)

    cond do
      session.run != nil -> State.enqueue(session, job)
      job.kind == :resume -> Run.start(session, job)
      true -> session |> State.enqueue(job) |> Run.start_next()
    end
  end

  defp accept_stored(_id, _opts, _client, %{status: :paused} = session),
    do: {:reply, {:error, :paused}, session}

  defp accept_stored(id, opts, client, session) do
    case find_stored_prompt(id, session) do
      {:ok, prompt} ->
        begin_stored(Job.from_message(prompt, opts, client), cut_short?(session), session)

      {:error, reason} ->
        refuse(session, reason)
    end
  end

  # The first message is answered first, although its owner died.
  defp begin_stored(job, true, session) do
    session = State.recover_authority(session)

    if State.lacks_authority?(session),
      do: refuse(session, {:missing_option, :runtime_context}),
      else: {:noreply, begin_job(job, Run.start(session, %Job{kind: :resume}))}
  end

  defp begin_stored(job, false, session), do: {:noreply, begin_job(job, session)}

  defp cut_short?(%{run: run, claim: claim}), do: run == nil and claim.kept.status == :running

  defp find_stored_prompt(id, %{claim: claim} = session) do
    with false <- id in claim.taken or State.queued?(session, id) or State.steers?(session, id),
         {:ok, {_steers, prompts}} <- Claim.fetch_waiting(claim),
         %{} = prompt <- Enum.find(prompts, &(&1.id == id)) do
      {:ok, prompt}
    else
      {:error, reason} -> {:error, reason}
      _taken -> {:error, :taken}
    end
  end

  defp steer(input, metadata, session) do
    with_waiting(session, fn session ->
      case State.find_message(session, State.key(metadata)) do
        nil -> add_steer(input, metadata, session)
        _there -> {:reply, :ok, session}
      end
    end)
  end

  defp add_steer(input, metadata, %{status: status} = session) when status in [:idle, :paused] do
    if State.suspended?(session),
      do: end_waiting(input, metadata, session),
      else: {:reply, {:error, status}, session}
  end

  defp add_steer(input, metadata, session), do: keep_steer(input, metadata, session)

  # A turn that waits for late results goes on with the message.
  defp end_waiting(input, metadata, session) do
    with {:reply, :ok, session} <- keep_steer(input, metadata, session),
         do: {:reply, :ok, Run.start_next(session)}
  end

  defp keep_steer(input, metadata, session) do
    with false <- State.too_large?(session, {input, metadata}) && {:error, :too_large},
         false <- State.steers_full?(session, input) && {:error, :full},
         :ok <- check_message(input, metadata),
         authority = State.turn_authority(session),
         kind = if(State.begun?(session), do: :steer, else: :prompt),
         {:ok, id} <- Claim.enqueue(session.claim, kind, input, metadata, authority) do
      steer = %{id: id, kind: kind, input: input, metadata: metadata}
      steer = if kind == :prompt, do: Map.put(steer, :authority, authority), else: steer
      {:reply, :ok, %{session | steers: session.steers ++ [steer]}}
    else
      {:error, reason} -> refuse(session, reason)
    end
  end

  # A message whose sender may do something else than the turn's tools is a prompt of its own.
  defp steer_stored(id, opts, %{status: :running, run: %Run{} = run} = session) do
    authority = Authority.take(opts)

    with true <- Authority.same?(authority, run.authority) || {:error, :other},
         {:ok, prompt} <- find_stored_prompt(id, session),
         false <- State.steers_full?(session, prompt.input) && {:error, :full} do
      steer = Map.put(prompt, :authority, authority)
      {:reply, :ok, %{session | steers: session.steers ++ [steer]}}
    else
      {:error, reason} -> refuse(session, reason)
    end
  end

  defp steer_stored(_id, _opts, %{status: status} = session),
    do: {:reply, {:error, status}, session}

  defp check_message(input, metadata) do
    _context = Context.new(input, metadata: metadata)
    :ok
  rescue
    error in Context.Error -> {:error, error}
  end

  # Whatever runs reads it at its next step, or when it is over.
  defp answer_late(question, answer, opts, session) do
    with false <- State.too_large?(session, {answer, opts}) && {:error, :too_large},
         :ok <- Waking.answer(session, question, answer, opts) do
      {:reply, :ok, Run.look(session)}
    else
      {:error, reason} -> refuse(session, reason)
    end
  end

  defp decide(_decision, _opts, %{run: %Run{}} = session), do: {:reply, {:error, :busy}, session}

  defp decide(decision, opts, session) do
    too_large? = State.too_large?(session, {decision, opts})

    case if(too_large?, do: {:error, :too_large}, else: Decision.make(session, decision, opts)) do
      {:ok, session} -> {:reply, :ok, session}
      {:error, {:store_error, _} = reason} -> refuse(State.mark_stale(session), reason)
      {:error, reason} -> refuse(session, reason)
    end
  end

  # What waits was said to the conversation as it is.
  defp rewind(number, %{status: :idle, runtime: runtime} = session) do
    with false <- State.set_aside?(session),
         {:ok, context} <- rewound(session.context, number),
         :ok <- Events.store(runtime[:on_change], context),
         {:ok, claim} <- Claim.write(session.claim, context, :idle, []) do
      {:reply, :ok, State.put_context(%{session | claim: claim}, context)}
    else
      true -> {:reply, {:error, :busy}, session}
      {:error, {:store_error, _} = reason} -> refuse(State.mark_stale(session), reason)
      {:error, reason} -> refuse(session, reason)
    end
  end

  defp rewind(_number, %{status: :paused} = session), do: {:reply, {:error, :paused}, session}
  defp rewind(_number, session), do: {:reply, {:error, :busy}, session}

  defp rewound(context, number) do
    {:ok, Rewind.rewind(context, number)}
  rescue
    error in Context.Error -> {:error, error}
  end

  defp refuse(session, {:store_error, %Context.Error{} = error}),
    do: {:reply, {:error, error}, session}

  defp refuse(session, {kind, _} = reason)
       when kind in [:store_error, :on_change_error, :missing_option] do
    stored = if kind == :store_error, do: Claim.tell_stored(reason)
    error = %Error{reason: reason, context: session.context, stored: stored}
    session = if Claim.lost?(reason), do: Run.lose(session, reason), else: session
    {:reply, {:error, error}, if(stored == :unknown, do: Run.check_later(session), else: session)}
  end

  defp refuse(session, error), do: {:reply, {:error, error}, session}

  ## Orders, which are not answered

  defp handle_order({:acknowledge, ref, number}, session) when is_integer(number) do
    number = min(number, session.number)
    update_in(session.subscribers, &Subscribers.acknowledge(&1, ref, number))
  end

  # For a deployment: `:soon` when the current step has been stored, `:now` whatever runs.
  defp handle_order({:drain, :soon}, %{claim: %Claim{}} = session),
    do: %{session | status: :draining}

  defp handle_order({:drain, :now}, %{claim: %Claim{}} = session),
    do: Run.drain_now(%{session | status: :draining})

  defp handle_order(_unknown, session), do: State.ignore(session)

  ## Messages of the run, of the renewer, and of subscribers that end

  defp handle_message({:run, token, news}, %{run: %{token: token}} = session),
    do: Run.handle_news(session, news)

  defp handle_message({:steers, token, pid}, %{run: %{token: token}} = session),
    do: Run.give_steers(session, pid)

  defp handle_message({:messages?, token, pid}, %{run: %{token: token}} = session) do
    send(pid, {token, State.waiting?(session)})
    session
  end

  defp handle_message({ref, reply}, %{run: %{task: %{ref: ref}}} = session),
    do: Run.handle_reply(session, reply)

  defp handle_message({:DOWN, ref, :process, _, reason}, %{run: %{task: %{ref: ref}}} = session),
    do: Run.handle_crash(session, reason)

  defp handle_message({:DOWN, monitor, :process, _, _}, %{told: told} = session)
       when is_map_key(told, monitor),
       do: Run.answer_told(session, monitor)

  defp handle_message({:lost, renewer, reason}, %{claim: %{renewer: {renewer, _}}} = session),
    do: Run.lose(session, reason)

  defp handle_message({:DOWN, ref, :process, _, _}, %{claim: %{renewer: {_, ref}}} = session),
    do: %{session | claim: Claim.restart_renewer(session.claim)}

  # The process that started the session may have died before its request.
  defp handle_message(:unasked, %{stop_when_idle: stop} = session) when stop != false,
    do: %{session | stop_when_idle: true}

  defp handle_message({:DOWN, monitor, :process, _pid, _reason}, session) do
    case Subscribers.delete_down(session.subscribers, monitor) do
      {:ok, subscribers} -> %{session | subscribers: subscribers}
      :error -> State.ignore(session)
    end
  end

  defp handle_message(:check_waiting, %{unsure?: true, claim: %Claim{}, status: status} = session)
       when status != :draining do
    case Run.catch_up(session) do
      {:ok, session} -> session
      {:error, _reason} -> Run.check_later(%{session | unsure?: false})
    end
  end

  defp handle_message(:check_waiting, session), do: session

  defp handle_message({:timeout, timer, :look}, %{look_timer: timer} = session),
    do: Run.look(%{session | look_timer: nil})

  # This may also be a late message of a run that was cancelled.
  defp handle_message(_unknown, session), do: State.ignore(session)
end
