defmodule AshAgent.Conversation.Runner do
  @moduledoc false

  # Turns of a conversation, in the one session that it has in the cluster, and changes while it has none.

  alias AshAgent.{Context, Conversation, Session, Store}
  alias AshAgent.Conversation.{Asker, Info, Notices, Title}
  alias AshAgent.Runtime.{Error, Paused, Result, Sealed}
  alias AshAgent.Session.{Owner, Waking}

  # Options have keys, and the runtime context has the actor.
  @derive {Inspect, only: [:resource, :id]}
  @enforce_keys ~w(resource domain record id tenant store runtime_context options by)a
  defstruct @enforce_keys ++ [empty?: false]

  @sessions AshAgent.Conversation.Sessions
  @waiting AshAgent.Conversation.Waiting
  @begun AshAgent.Conversation.Begun

  # So many looks for a session that is just starting or ending elsewhere, with so many milliseconds in between.
  @tries 20
  @pause 50

  @doc "Returns the data for a turn of a record, from the action that begins it."
  def new(changeset, record, context) do
    resource = changeset.resource

    %__MODULE__{
      resource: resource,
      domain: changeset.domain,
      record: record,
      id: Info.key(record),
      tenant: changeset.to_tenant,
      store: Info.store(resource, changeset.tenant),
      options: changeset.context[:ash_agent][:options] || [],
      by: Asker.identity(context.actor),
      runtime_context: %{
        agent: resource,
        domain: changeset.domain,
        actor: context.actor,
        tenant: changeset.tenant,
        shared: Asker.take_shared(changeset),
        conversation_id: Info.id(record)
      }
    }
  end

  @doc "The same turn as whoever asked for it, or the error of a turn whose asker cannot be found."
  def as_asker(%__MODULE__{} = turn) do
    case Store.fetch(turn.store, turn.id) do
      {:ok, stored} -> as_asker_of(turn, stored)
      {:error, reason} -> refuse(reason)
    end
  end

  defp as_asker_of(turn, %{value: context} = stored) do
    number = find_late(turn.store, stored)

    with true <- number == nil or may_wake?(turn, context) || {:error, :max_wakes},
         {:ok, turn} <- as_asker(turn, Asker.of(context, number)) do
      {:ok, %{turn | empty?: Asker.messages(context) == []}}
    else
      {:error, reason} -> refuse(reason)
    end
  end

  # A turn that has its answer goes on with late results, if there are any: with the rights of whoever asked for the turn of the call.
  defp find_late(store, %{id: id, value: context}) do
    with true <- Store.Named.late?(store),
         [_ | _] = calls <- Context.Calls.late_calls(context, :open),
         %{answered?: true, pending: 0} <- Context.outline(context),
         {:ok, arrivals} <- Store.arrivals(store, id),
         keys = Enum.map(arrivals, & &1.key),
         %{iteration: number} <- Enum.find(calls, &(&1.handle in keys)),
         do: number,
         else: (_none -> nil)
  end

  # A person who resumes may ask for more turns than late results begin by themselves.
  defp may_wake?(%{runtime_context: %{actor: nil}} = turn, context) do
    own = turn.options ++ Info.option(turn.resource, :options)
    Waking.rest(context, Keyword.get(own, :max_wakes, Session.Options.max_wakes())) == nil
  end

  defp may_wake?(_turn, _context), do: true

  defp as_asker(turn, asker) do
    given = turn.runtime_context
    # A turn that a job or a sweep continues has no person who resumes it.
    authority = if given.actor, do: Info.option(turn.resource, :authority), else: :asker

    with :asker <- authority,
         {:ok, runtime_context} <- Asker.restore(turn, asker, given) do
      {:ok, %{turn | runtime_context: runtime_context}}
    else
      :resumer -> {:ok, turn}
      {:error, reason} -> {:error, reason}
    end
  end

  @doc "Gives a message that waits to the turn that runs, if that has the same rights, or else runs it as `run/3` does."
  def steer(%__MODULE__{} = turn, id, wait?) do
    own = [runtime_context: turn.runtime_context]

    steered =
      unless_gone(fn ->
        with {:running, session} <- session_status({turn.resource, turn.tenant, turn.id}),
             do: Session.steer_stored(session, id, own)
      end)

    if steered == :ok do
      Notices.notify_said(turn, id)
      turn = update_in(turn.record.__metadata__, &Map.drop(&1, [:run, :prompt]))
      {:ok, Ash.Resource.put_metadata(turn.record, :steered, true)}
    else
      run(turn, {:prompt, id}, wait?)
    end
  end

  @doc "Runs a message that waits, or what the conversation needs, and returns what the action returns."
  def run(%__MODULE__{} = turn, job, wait?) do
    # The metadata are those of an earlier action.
    turn = update_in(turn.record.__metadata__, &Map.drop(&1, [:run, :prompt, :steered]))
    with {:prompt, id} <- job, do: Notices.notify_said(turn, id)

    if wait? do
      returned = run(turn, job)
      if Title.wanted?(turn, returned), do: later(nil, fn -> Title.write(turn, returned) end)
      returned
    else
      place = {turn.resource, turn.tenant, turn.id}

      later(place, fn ->
        returned = run(turn, job)
        Registry.unregister(@begun, place)
        if Title.wanted?(turn, returned), do: Title.write(turn, returned)
      end)

      {:ok, turn.record}
    end
  end

  @doc """
  Goes on with a conversation for which a late result has come. Its turn runs as whoever asked for that of the call: who brings the result has no part
  in it.
  """
  def wake(%__MODULE__{store: store, id: id} = turn) do
    own = %{turn.runtime_context | actor: nil, shared: %{}}

    # A session that runs finds the result. Where nobody can be found, it waits for who asked.
    with true <- Store.Named.late?(store),
         {:ok, [_ | _]} <- Store.arrivals(store, id),
         {:ok, %{status: status} = stored} when status in [:idle, :waiting] <-
           Store.fetch(store, id),
         {:ok, asked} <- as_asker_of(%{turn | runtime_context: own, by: nil}, stored),
         do: run(asked, :resume, false),
         else: (_not_now -> {:ok, turn.record})
  end

  # A process of its own waits, and gets the session's messages.
  defp later(place, fun) do
    start = {:proc_lib, :start_link, [__MODULE__, :wait, [place, fun, callers()]]}
    child = %{id: __MODULE__, start: start, restart: :temporary}
    {:ok, _pid} = DynamicSupervisor.start_child(@waiting, child)
  end

  @doc false
  # The process knows its callers from its start on.
  def wait(place, fun, callers) do
    Process.put(:"$callers", callers)
    if place, do: Registry.register(@begun, place, nil)
    :proc_lib.init_ack({:ok, self()})
    Sealed.run(fun)
  end

  # With them a turn uses the connection that a test has checked out.
  defp callers, do: [self() | Process.get(:"$callers", [])]

  # Where nobody has said anything, a turn would ask the model about nothing.
  defp run(%{empty?: true} = turn, :resume) do
    case Store.waiting(turn.store, turn.id) do
      {:ok, [_ | _]} -> continue(turn, :resume, nil)
      _none -> run(%{turn | empty?: false}, :resume)
    end
  end

  defp run(turn, job) do
    case in_session(turn, &ask(&1, turn, job)) do
      {:error, %Error{reason: {:missing_option, :runtime_context}}} when job != :resume ->
        conclude(turn, job, run_after(turn, job))

      answer ->
        conclude(turn, job, answer)
    end
  end

  # The turn before the message was cut short. It goes on first, with the rights of the person who asked for it.
  defp run_after(turn, job) do
    with {:ok, before} <- as_asker(turn),
         {_status, %kind{}} when kind in [Result, Paused, Error] <-
           in_session(before, &ask(&1, before, :resume)) do
      in_session(turn, &ask(&1, turn, job))
    else
      {:error, %Conversation.Error{reason: reason}} -> {:error, reason}
      {:error, reason} -> {:error, reason}
    end
  end

  defp conclude(turn, job, answer) do
    case answer do
      {_status, %kind{} = ended} when kind in [Result, Paused] -> continue(turn, job, ended)
      {:error, %Error{reason: reason}} -> fail(turn, {:run, reason})
      {:error, :elsewhere} when job == :resume -> refuse(:busy)
      # Another session has it: it or the next one answers.
      {:error, later} when later in [:taken, :elsewhere] -> {:ok, turn.record}
      {:error, :paused} -> refuse(:paused)
      {:error, reason} -> fail(turn, reason)
    end
  end

  # Messages that wait since their process died are answered by the next one that resumes.
  defp continue(turn, :resume, ended) when not is_struct(ended, Paused) do
    with {:ok, [_ | _] = prompts} <- Store.waiting(turn.store, turn.id),
         %{} = waiting <- Enum.find(prompts, &(&1.kind == :prompt)) do
      case answer(turn, waiting) do
        {:error, :no_actor} -> fail(turn, :no_actor)
        {:ok, %Result{} = ended} -> continue(turn, :resume, ended)
        {:paused, paused} -> tell_ended(turn, paused)
        {:error, %Error{reason: reason}} -> fail(turn, {:run, reason})
        # Its own caller was faster.
        _other -> tell_ended(turn, ended)
      end
    else
      _nothing -> tell_ended(turn, ended)
    end
  end

  defp continue(turn, _job, ended), do: tell_ended(turn, ended)

  defp answer(turn, waiting) do
    with {:ok, turn} <- as_asker(turn, Asker.of_metadata(waiting.metadata)),
         do: in_session(turn, &ask(&1, turn, {:prompt, waiting.id}))
  end

  defp tell_ended(turn, nil), do: {:ok, turn.record}

  defp tell_ended(turn, ended) do
    Notices.notify_ended(turn, if(is_struct(ended, Paused), do: :paused, else: :answered))
    {:ok, Ash.Resource.put_metadata(turn.record, :run, ended)}
  end

  defp fail(turn, reason) do
    Notices.notify_ended(turn, :failed)
    refuse(reason)
  end

  defp refuse(reason), do: {:error, Conversation.Error.exception(reason: reason)}

  ## The session

  defp ask(session, turn, job) do
    monitor = Process.monitor(session)
    own = [runtime_context: turn.runtime_context]

    answer =
      case job do
        :resume -> Session.resume_async(session, [by: turn.by] ++ own)
        {:prompt, id} -> Session.prompt_stored(session, id, own)
      end

    answer =
      with {:ok, ref} <- answer do
        # From now on the session says what it does.
        Registry.unregister(@begun, {turn.resource, turn.tenant, turn.id})
        await(ref, monitor)
      end

    Process.demonitor(monitor, [:flush])

    # A session gives its conversation back after its reply. The next action finds it free, also in a transaction on the only
    # connection of a test. A session with more to do returns at once.
    unless_gone(fn -> Session.status(session) end)
    answer
  end

  defp await(ref, monitor) do
    receive do
      {Session, ^ref, {:context, _context}} -> await(ref, monitor)
      {Session, ^ref, reply} -> reply
      {:DOWN, ^monitor, :process, _pid, _reason} -> {:error, :interrupted}
    end
  end

  # One that ends while it is called is waited for, and another one started.
  defp in_session(turn, fun, tries \\ @tries)
  defp in_session(_turn, _fun, 0), do: {:error, :elsewhere}

  defp in_session(turn, fun, tries) do
    case session(turn) do
      {:ok, session} ->
        with :gone <- unless_gone(fn -> fun.(session) end) do
          await_down(session)
          in_session(turn, fun, tries - 1)
        end

      {:error, {:store_error, {:owned, _owner}}} ->
        Process.sleep(@pause)
        in_session(turn, fun, tries - 1)

      {:error, {:store_error, reason}} ->
        {:error, reason}

      {:error, reason} ->
        {:error, reason}
    end
  end

  # A session may end while it is called.
  defp unless_gone(fun) do
    fun.()
  catch
    :exit, {_reason, {Session, _function, _arguments}} -> :gone
  end

  defp session(turn) do
    name = name(turn.resource, turn.tenant, turn.id)

    case :global.whereis_name(name) do
      :undefined -> start(turn, name)
      session -> {:ok, session}
    end
  end

  # The session does not end with the process that sent the message.
  defp start(turn, name) do
    opts = options(turn, name)

    child = %{
      id: Session,
      start: {Session, :start_sealed, [fn -> opts end, Owner.reserve(), callers()]},
      restart: :temporary
    }

    case DynamicSupervisor.start_child(@sessions, child) do
      {:ok, session} -> {:ok, session}
      {:error, {:already_started, session}} -> {:ok, session}
      # A conversation that somebody else has is not a crash.
      {:error, {:shutdown, reason}} -> {:error, reason}
      {:error, reason} -> {:error, reason}
    end
  end

  defp options(turn, name) do
    opts = Keyword.merge(Info.run_options(turn.resource, turn.record), turn.options)
    watch = Notices.watch(turn, opts[:on_event])
    given = %{turn.runtime_context | actor: nil, shared: %{}}

    Keyword.merge(opts,
      name: {:global, name},
      store: turn.store,
      id: turn.id,
      go_on: false,
      stop_when_idle: true,
      restore_context: &Asker.restore(turn, Asker.of_metadata(&1), given),
      on_event: watch
    )
  end

  @doc "The options with which a turn of a record would check the arguments of its calls."
  def tool_options(changeset, record) do
    resource = changeset.resource
    given = [tools: fn -> Info.tools(resource, record) end]
    own = Keyword.merge(Info.option(resource, :options), given)
    own = Keyword.merge(own, changeset.context[:ash_agent][:options] || [])
    Keyword.take(own, [:tools, :check_arguments])
  end

  defp name(resource, tenant, id), do: {__MODULE__, resource, tenant, id}

  @doc "Waits for the sessions that a process has begun, and for those that wait for them."
  def await_turns(caller, timeout) do
    until = System.monotonic_time(:millisecond) + timeout
    # Waiting turns start sessions.
    for supervisor <- [@waiting, @sessions], do: await_begun(supervisor, caller, until)
    :ok
  end

  defp await_begun(supervisor, caller, until) do
    monitors =
      for {_id, process, _type, _modules} when is_pid(process) <-
            DynamicSupervisor.which_children(supervisor),
          {:dictionary, dictionary} <- [Process.info(process, :dictionary)],
          caller in Keyword.get(dictionary, :"$callers", []),
          do: Process.monitor(process)

    Enum.each(monitors, &await_end(&1, until))
  end

  defp await_end(monitor, until) do
    receive do
      {:DOWN, ^monitor, :process, _pid, _reason} -> :ok
    after
      max(until - System.monotonic_time(:millisecond), 0) ->
        Process.demonitor(monitor, [:flush])
    end
  end

  ## Without a session

  @doc "Cancels the turn that runs, and returns whether there was one."
  def cancel(resource, tenant, id) do
    cancelled =
      unless_gone(fn ->
        with {:running, session} <- session_status({resource, tenant, id}),
             do: {:cancelled, Session.cancel(session)}
      end)

    match?({:cancelled, _reply}, cancelled)
  end

  defp session_status({resource, tenant, id}) do
    case :global.whereis_name(name(resource, tenant, id)) do
      :undefined -> nil
      session -> {Session.status(session), session}
    end
  end

  @doc "Subscribes to the session of a record's turn, see `AshAgent.Conversation.subscribe/2`."
  def subscribe(record, tenant) do
    subscribed =
      unless_gone(fn ->
        with {:ok, session, _begins?} <- fetch_session(record, tenant),
             do: Session.subscribe(session)
      end)

    if subscribed in [:none, :begins, :gone], do: :idle, else: subscribed
  end

  @doc """
  The session of a record's turn, `{:ok, pid, begins?}`, which may end while it is called, and where a turn that was begun on this node may not have
  come to it yet; `:begins` where such a turn may have none yet, or `:none`.
  """
  def fetch_session(%resource{} = record, tenant) do
    place = {resource, Ash.ToTenant.to_tenant(tenant, resource), Info.key(record)}
    begins? = Registry.lookup(@begun, place) != []

    case unless_gone(fn -> session_status(place) end) do
      {_status, session} -> {:ok, session, begins?}
      _none when begins? -> :begins
      _none -> :none
    end
  end

  @doc "A stored conversation that waits for decisions, as the turn returned it."
  def paused(%{value: context}),
    do: %Paused{context: context, calls: Context.Calls.undecided_tool_calls(context)}

  @doc "Changes a conversation that does not run: `:ok` or `{:error, reason}`."
  def edit(store, place, revision, opts, fun, tries \\ @tries)
  def edit(_store, _place, _revision, _opts, _fun, 0), do: {:error, :busy}

  def edit(store, {_resource, _tenant, id} = place, revision, opts, fun, tries) do
    with {:ok, stored} <- Store.fetch(store, id),
         true <- revision in [nil, stored.revision] || {:error, :changed},
         {:ok, context} <- attempt(fn -> fun.(stored.value) end),
         {:ok, _stored} <- Store.append(store, stored, context, for_stored(opts, stored)) do
      :ok
    else
      {:error, {:owned, _owner}} ->
        if running?(place) do
          {:error, :busy}
        else
          free(store, id)
          edit(store, place, revision, opts, fun, tries - 1)
        end

      {:error, :stale} ->
        edit(store, place, revision, opts, fun, tries - 1)

      {:error, reason} ->
        {:error, reason}
    end
  end

  defp for_stored(opts, stored) when is_function(opts, 1), do: opts.(stored)
  defp for_stored(opts, _stored), do: opts

  # Removes a claim whose lease is over, as of a turn that was cut short.
  defp free(store, id) do
    owner = "edit " <> Ash.UUID.generate()

    with {:ok, claim} <- Store.claim(store, id, owner: owner),
         {:ok, _stored} <- Store.release(store, claim) do
      :ok
    else
      _owned -> Process.sleep(@pause)
    end
  end

  @doc "The context that a function returns, or the error that it raises."
  def attempt(fun) do
    {:ok, fun.()}
  rescue
    error in Context.Error -> {:error, error}
  end

  # A session that is just ending still has the claim.
  defp running?(place) do
    case unless_gone(fn -> session_status(place) end) do
      {:running, _session} ->
        true

      {_status, session} ->
        await_down(session)
        false

      _none ->
        false
    end
  end

  defp await_down(session) do
    monitor = Process.monitor(session)

    receive do
      {:DOWN, ^monitor, :process, _pid, _reason} -> :ok
    after
      @pause * @tries -> Process.demonitor(monitor, [:flush])
    end
  end
end
