defmodule AshAgent.Session.Waking do
  @moduledoc false

  # What a session that does nothing does about results that come late: they go on with a turn that waits for them, or begin one with
  # the rights of whoever asked for the call. A conversation begins so many turns by itself an hour, see `:max_wakes`.
  #
  # A turn that was parked, paused or cut short comes first, and so does a message of somebody else that has no answer.

  alias AshAgent.Context
  alias AshAgent.Context.Calls
  alias AshAgent.Runtime.{AskUser, Authority, Journal, Late, Tool}
  alias AshAgent.Session.{Claim, Job}

  @hour 3_600_000

  @doc """
  Returns what a session without a run and without messages does next: `{:start, job}`, `{:rest, milliseconds}` until it should look again,
  or `:infinity`, or `{:drop, keys, context}` with results that begin no turn. Somebody who asks says that there are some, even if no call waits.
  """
  def next(session, asked? \\ false)

  def next(%{claim: %{kept: %{status: status}}, run: nil} = session, asked?)
      when status in [:idle, :waiting] do
    if not Late.open?(session.context) and status == :idle and not asked? do
      {:rest, :infinity}
    else
      with {:ok, [_ | _] = arrivals} <- Claim.fetch_arrivals(session.claim),
           true <- session.woken != session.claim.kept.revision do
        open = Late.open(session.context, arrivals)

        if status == :waiting,
          do: go_on(session, open, arrivals),
          else: wake(session, open, arrivals)
      else
        _none_or_error -> {:rest, look_again(session)}
      end
    end
  end

  def next(_session, _asked?), do: {:rest, :infinity}

  @doc "Returns after how many milliseconds a session looks again."
  def look_again(%{claim: %{lease: lease}, context: context}),
    do: if(Late.open?(context), do: max(div(lease, 3), 1), else: :infinity)

  ## A turn that waits

  defp go_on(%{context: context} = session, open, arrivals) do
    {known, other} = Enum.split_with(arrivals, &is_map_key(open, &1.key))
    number = context.current_iteration
    own = Enum.filter(known, &Late.same_asker?(context, open[&1.key], number))

    waits = Late.wait_keys(context)

    if Enum.any?(other, &(&1.key in waits)) or all_there?(Enum.reduce(own, context, &arrive/2)),
      do: {:start, %Job{kind: :resume}},
      else: {:rest, look_again(session)}
  end

  defp arrive(%{key: key}, context) do
    with {:error, _lost} <- Calls.arrive(context, {:handle, key}, {:ok, nil}),
         do: context,
         else: ({:ok, context} -> context)
  end

  defp all_there?(context) do
    case Late.pending_waits(context) do
      [] ->
        Late.awaited(context) == []

      waits ->
        Enum.any?(waits, &match?({:done, _words}, Late.wait(context, &1, nil)))
    end
  end

  ## A new turn

  defp wake(%{context: context} = session, open, arrivals) do
    call = Late.find_call(context, arrivals)
    dropped = Enum.filter(arrivals, &(not is_map_key(open, &1.key) or Late.cancelled?(&1)))

    cond do
      Context.pending_tool_calls(context) != [] ->
        {:rest, look_again(session)}

      call != nil ->
        limit(session, call)

      dropped != [] ->
        {:drop, Enum.map(dropped, & &1.key), Late.drop(context, dropped)}

      true ->
        {:rest, look_again(session)}
    end
  end

  defp limit(%{context: context, max_wakes: max}, call) do
    case rest(context, max) do
      nil -> {:start, %Job{kind: :wake, opts: [call: call]}}
      time -> {:rest, time}
    end
  end

  @doc """
  Returns for how many milliseconds late results begin no turn of a conversation, since they have begun as many as they may in an hour, or `nil`.
  """
  def rest(context, max) do
    now = DateTime.utc_now()
    woken = Late.list_woken(context, DateTime.add(now, -@hour, :millisecond))

    # An atom is greater than any number.
    if length(woken) >= max do
      oldest = Enum.at(woken, max - 1)
      if oldest, do: max(@hour - DateTime.diff(now, oldest, :millisecond), 1), else: @hour
    end
  end

  @doc """
  Finds the call of a question that is answered late, or `nil`: then the answer is for a call that is pending.
  """
  def find_question(%{claim: nil}, _id), do: nil

  def find_question(%{context: context}, id) do
    if Enum.all?(Context.pending_tool_calls(context), &(&1.id != id)),
      do: Enum.find(Calls.late_calls(context, :open), &(&1.id == id and &1.handle != nil))
  end

  @doc "Delivers the answer to such a question, or to whoever works on the call and has asked. Returns `:ok` or an error."
  def answer(%{runtime: runtime} = session, call, answer, opts) do
    case Enum.find(list_tools(runtime[:tools]), &(&1.name == Tool.name(call.name))) do
      %{answer: give} when is_function(give) -> give.(call.handle, answer)
      tool -> arrive(session, if(tool && tool.asks?, do: tool), call, answer, opts)
    end
  rescue
    error in [Context.Error, ArgumentError, FunctionClauseError] -> {:error, error}
  end

  defp arrive(%{claim: claim}, tool, call, answer, opts) do
    result = AskUser.check_answer(tool, call, answer, Keyword.take(opts, [:arguments]))

    case Journal.ask(fn -> Claim.arrive(claim, call.handle, result, from: opts[:by]) end) do
      {:ok, _kept_or_again} ->
        :ok

      {:error, {:store_error, why}} when is_atom(why) ->
        {:error, %Context.Error{reason: {:late_tool_result, call.id, why}}}

      {:error, reason} ->
        {:error, reason}
    end
  end

  defp list_tools(function) when is_function(function, 0), do: Tool.new(function.())
  defp list_tools(tools), do: tools

  @doc """
  Returns the job of somebody who resumes. If the last turn has its answer, results that wait for a runtime context or an option are
  what there is to go on with.
  """
  def redirect(%{context: context, claim: claim}, %{kind: :resume, opts: opts} = job)
      when claim != nil do
    with true <- Late.open?(context),
         %{answered?: true, pending: 0} <- Context.outline(context),
         {:ok, arrivals} <- Claim.fetch_arrivals(claim),
         %{} = call <- Late.find_call(context, arrivals) do
      %{job | kind: :wake, opts: [call: call] ++ opts}
    else
      _nothing -> job
    end
  end

  def redirect(_session, job), do: job

  @doc "Returns the `AshAgent.Runtime.Authority` of whoever asked for a call of an iteration."
  def find_authority(%{context: context, runtime: runtime, askers: askers}, number) do
    with :error <- Map.fetch(askers, Authority.asker(context, number)) do
      context
      |> Authority.read(runtime[:runtime_context], number)
      |> Authority.recover(context, runtime[:supervisor], runtime, number)
    else
      {:ok, authority} -> authority
    end
  end

  @doc "Remembers who asked for the current turn, for as long as the session lives: a runtime context is stored nowhere."
  def remember(%{claim: nil} = session, _context, _authority), do: session

  def remember(session, context, [runtime_context: %{}] = authority) do
    case Authority.asker(context, context.current_iteration) do
      asker when is_binary(asker) -> put_in(session.askers[asker], authority)
      _nobody_knows -> session
    end
  end

  def remember(session, _context, _authority), do: session
end
