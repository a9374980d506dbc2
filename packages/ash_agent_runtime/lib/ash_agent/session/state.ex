defmodule AshAgent.Session.State do
  @moduledoc false

  # The state of a session. `AshAgent.Session.Server` has the table of its states.

  alias AshAgent.Context
  alias AshAgent.Runtime.{Authority, Loop}
  alias AshAgent.Session.{Client, Job, Subscribers}

  #   * `status` - `:idle`, `:running`, `:paused`, `:draining` or `:lost`
  #   * `run` - the `AshAgent.Session.Run` of a session that runs or drains. A session that drains stops when it is `nil`
  #   * `context` - the conversation
  #   * `asked` - the `AshAgent.Runtime.Authority` of its turn, or `nil` if that began before this session
  #   * `withdrawn` - the same of a message that was withdrawn and may be in the store, or `nil`
  #   * `response` - the current answer, an `AshAgent.Response`, or `nil`
  #   * `shown` - the context and the response that others see: with a store, the stored ones, and the pieces of an answer
  #   * `number` - the number of changes so far
  #   * `subscribers` - the receivers of changes, see `AshAgent.Session.Subscribers`
  #   * `tag` - the first element of the session's messages
  #   * `queue` - an `AshAgent.Session.Job` for each prompt that waits
  #   * `steers` - messages for the turn that runs: maps with `:id`, `:input` and `:metadata`, and those that are prompts without it with
  #     their `:kind` and `:authority`
  #   * `when_busy` - decides if prompts may wait
  #   * `when_cancelled` - decides if messages that wait are dropped when a turn is cancelled
  #   * `dropped` - those that were, until the end of the turn is told
  #   * `limits` - the limits for messages of others, `max_queue` and so on, as a map
  #   * `claim` - the `AshAgent.Session.Claim` of the conversation in its store, or `nil` without a store
  #   * `runtime` - the options of each run
  #   * `max_wakes` - how many turns an hour late results may begin
  #   * `askers` - the `AshAgent.Runtime.Authority` of those who asked for turns, by `Authority.asker/2`
  #   * `woken` - the revision of the conversation for which late results began the last run
  #   * `look_timer` - the timer until the session looks for late results again
  #   * `max_resumes` - how often a turn may begin without a step
  #   * `idle_timeout`, `idle_timer` - the longest time without a need for the session, and the timer that runs meanwhile
  #   * `stop_when_idle` - `false`, `true`, or `:unasked` until the session has run something
  #   * `told` - the clients of runs whose ends are being told, with their replies, by monitors
  #   * `ended` - the `AshAgent.Session.Ending` of the run before
  #   * `activity` - the events of tools that run and of waits, the latest last
  #   * `pausing?` - the run ends at its next step, and nothing else starts
  #   * `unsure?` - a message may have been stored that the session has not heard of
  #   * `ignored` - the number of messages that were not understood
  @enforce_keys [:status, :context, :tag, :when_busy, :limits, :claim, :runtime, :max_resumes] ++
                  [:when_cancelled]
  @nothing ~w(run asked withdrawn response shown idle_timer ended)a ++
             [unsure?: false, activity: [], number: 0, ignored: 0, stop_when_idle: false] ++
             [pausing?: false, told: %{}, dropped: []] ++
             [max_wakes: :infinity, askers: %{}, woken: nil, look_timer: nil]
  @nobody [subscribers: Subscribers.new(), queue: :queue.new(), steers: []]
  defstruct @enforce_keys ++ [idle_timeout: :infinity] ++ @nothing ++ @nobody

  @doc "Returns what `AshAgent.Session.status/1` returns."
  def public_status(%__MODULE__{status: :paused, context: context}),
    do: {:paused, Context.Calls.undecided_tool_calls(context)}

  def public_status(%__MODULE__{status: :idle, claim: %{kept: %{status: :parked}}}), do: :parked
  def public_status(%__MODULE__{status: :idle, claim: %{kept: %{status: :waiting}}}), do: :waiting
  def public_status(%__MODULE__{status: :idle}), do: :idle
  def public_status(%__MODULE__{}), do: :running

  @doc "Returns the `AshAgent.Runtime.Authority` of whoever asked for the turn."
  def turn_authority(%__MODULE__{asked: nil, context: context, runtime: runtime}),
    do: Authority.read(context, runtime[:runtime_context])

  def turn_authority(%__MODULE__{asked: asked}), do: asked

  @doc """
  Returns true if the turn that runs or waits is in the store. If its beginning is never stored, a message for it must not go to the turn
  before, which may be somebody else's: it is a prompt.
  """
  def begun?(%__MODULE__{claim: claim, run: run}),
    do: claim == nil or run == nil or run.begun?

  @doc "Returns true if the turn cannot go on, since the runtime context that it was asked with is gone."
  def lacks_authority?(%__MODULE__{} = state),
    do: Loop.acts?(state.context, state.runtime) and turn_authority(state) == Authority.gone()

  @doc "Lets the application find the runtime context again that the turn was asked with, if it cannot go on without."
  def recover_authority(%__MODULE__{context: context, runtime: runtime} = state) do
    recover = &Authority.recover(&1, context, runtime[:supervisor], runtime)
    if lacks_authority?(state), do: %{state | asked: recover.(Authority.gone())}, else: state
  end

  @doc "Returns true if a prompt may not wait."
  def full?(%__MODULE__{when_busy: when_busy, limits: limits, queue: queue} = state, input) do
    when_busy == :error or :queue.len(queue) >= limits.max_queue or no_room?(state, input)
  end

  @doc "Returns true if a message for the turn that runs may not wait."
  def steers_full?(%__MODULE__{limits: limits, steers: steers} = state, input),
    do: length(steers) >= limits.max_queue or no_room?(state, input)

  defp no_room?(%{limits: limits, queue: queue, steers: steers}, input) do
    waiting = for %{input: input} <- steers ++ :queue.to_list(queue), do: size(input)
    Enum.sum(waiting) + size(input) > limits.max_queue_bytes
  end

  @doc "Returns true if this is more than others may send at once."
  def too_large?(%__MODULE__{limits: limits}, term), do: size(term) > limits.max_input_bytes

  defp size(term), do: :erlang.external_size(term)

  @doc "Returns true if a stored prompt waits in the queue."
  def queued?(%__MODULE__{queue: queue}, id),
    do: Enum.any?(:queue.to_list(queue), &(&1.id == id))

  @doc "Returns true if a stored prompt waits for the turn that runs."
  def steers?(%__MODULE__{steers: steers}, id), do: Enum.any?(steers, &(&1.id == id))

  @doc """
  Finds a user's message by its key: `:waiting` for a steer, `{:queued, job}`, `:running` in the turn that runs,
  `{:turn, first, last}` with its iterations, or `nil`.
  """
  def find_message(%__MODULE__{}, nil), do: nil

  def find_message(%__MODULE__{run: run} = state, key) do
    given = if run, do: run.given, else: []
    job = Enum.find(:queue.to_list(state.queue), &(key(&1.opts[:metadata]) == key))

    cond do
      job != nil -> {:queued, job}
      Enum.any?(state.steers, &(key(&1.metadata) == key)) -> :waiting
      Enum.any?(given, &(key(&1.metadata) == key)) -> :running
      true -> find_turn(state, Context.find_turn(state.context, :idempotency_key, key))
    end
  end

  defp find_turn(_state, nil), do: nil
  defp find_turn(%{run: %{first: from}}, {first, _last}) when first >= from, do: :running
  defp find_turn(_state, {first, last}), do: {:turn, first, last}

  @doc "Returns the key in a message's metadata, or `nil`."
  def key(%{idempotency_key: key}) when is_binary(key), do: key
  def key(_metadata), do: nil

  @doc "Adds the client of a message that was sent again to the job of the queue that has it."
  def join_job(%__MODULE__{queue: queue} = state, job, again) do
    client = Client.join(job.client, again.client)
    joined = %{job | client: client, opts: Authority.restore(job.opts, again.opts)}
    %{state | queue: :queue.filter(&[if(&1 == job, do: joined, else: &1)], queue)}
  end

  @doc "Adds messages that wait in the store and that the session has not heard of."
  def add_waiting(%__MODULE__{} = state, steers, prompts) do
    known =
      for %{id: id} <- state.steers ++ :queue.to_list(state.queue), into: MapSet.new(), do: id

    known = MapSet.union(known, MapSet.new(state.claim.taken))
    new? = &(not MapSet.member?(known, &1.id))
    jobs = for prompt <- prompts, new?.(prompt), do: Job.from_message(prompt)
    queue = Enum.reduce(jobs, state.queue, &:queue.in/2)
    %{state | queue: queue, steers: state.steers ++ Enum.filter(steers, new?), unsure?: false}
  end

  @doc "Returns true if somebody would miss the session."
  def needed?(%__MODULE__{run: run, subscribers: subscribers, queue: queue} = state) do
    run != nil or subscribers != %{} or state.told != %{} or
      Enum.any?(:queue.to_list(queue), &(&1.client != nil))
  end

  @doc "Returns true if the next session of the conversation has something to do."
  def unfinished?(%__MODULE__{claim: claim} = state),
    do: claim.stale? or claim.kept.status == :running or waiting?(state)

  @doc "Returns true if messages wait."
  def waiting?(%__MODULE__{steers: steers, queue: queue}),
    do: steers != [] or not :queue.is_empty(queue)

  @doc "Returns true if nothing runs, and there is a turn that was parked or waits, or a message that waits until somebody asks."
  def set_aside?(%__MODULE__{status: :idle, unsure?: false, claim: claim} = state),
    do: match?(%{kept: %{status: :parked}}, claim) or suspended?(state) or waiting?(state)

  def set_aside?(%__MODULE__{}), do: false

  @doc "Returns true if the turn waits for late results."
  def suspended?(%__MODULE__{status: :idle, run: nil, claim: %{kept: %{status: :waiting}}}),
    do: true

  def suspended?(%__MODULE__{}), do: false

  @doc "Adds a job to the queue. Going on takes back a pause that the turn has not reached yet, and comes before messages then."
  def enqueue(%__MODULE__{pausing?: true, queue: queue} = state, %{kind: :resume} = job),
    do: %{state | queue: :queue.in_r(job, queue), pausing?: false}

  def enqueue(%__MODULE__{queue: queue} = state, job), do: %{state | queue: :queue.in(job, queue)}

  @doc "Remembers that a run was ended from outside: it may have written what nobody has heard of."
  def mark_stale(%__MODULE__{claim: nil} = state), do: state
  def mark_stale(%__MODULE__{} = state), do: put_in(state.claim.stale?, true)

  @doc "Remembers that stored messages are in the context, so that the next write takes them out of those that wait."
  def add_taken(%__MODULE__{claim: nil} = state, _ids), do: state
  def add_taken(%__MODULE__{} = state, ids), do: update_in(state.claim.taken, &(&1 ++ ids))

  @doc "Forgets messages that a run has taken out of those that wait."
  def clear_taken(%__MODULE__{claim: nil} = state), do: state
  def clear_taken(%__MODULE__{} = state), do: put_in(state.claim.taken, [])

  @doc "Counts a message that was not understood."
  def ignore(%__MODULE__{} = state), do: %{state | ignored: state.ignored + 1}

  @doc "Makes a context the current one. It ends the current answer. Others see it when it is stored."
  def put_context(%__MODULE__{} = state, context) do
    state = end_waits(%{state | context: context, response: nil})
    if kept?(state, context), do: show_context(state, context), else: state
  end

  defp kept?(%{claim: nil}, _context), do: true
  defp kept?(%{claim: claim}, context), do: claim.kept.value == context

  @doc "Shows a context that is stored, and tells the subscribers."
  def show_context(%__MODULE__{shown: {context, nil}} = state, context), do: state

  def show_context(%__MODULE__{} = state, context) do
    if state.run, do: Client.send_context(state.run.client, context)
    publish(%{state | shown: {context, nil}}, {:context, context})
  end

  @doc "Tells the subscribers what happened in the run. Those that come later are shown tools that run, and waits."
  def put_event(%__MODULE__{} = state, {:event, name, _measured, metadata} = event) do
    others = Enum.reject(state.activity, &ended_by?(&1, name, metadata))

    going_on =
      if name in [[:tool, :start], [:llm, :retry], [:llm, :waiting]], do: [event], else: []

    publish(%{state | activity: others ++ going_on}, event)
  end

  defp ended_by?(_event, [:run, :stop], _metadata), do: true

  defp ended_by?({:event, [:tool, :start], _, %{tool_call_id: id}}, [:tool, kind], metadata),
    do: kind in [:stop, :exception] and metadata[:tool_call_id] == id

  defp ended_by?({:event, [:llm, _], _, _}, _name, _metadata), do: true
  defp ended_by?(_event, _name, _metadata), do: false

  @doc "Adds events to the current answer, which is then `response`, and tells the subscribers."
  def put_response(%__MODULE__{shown: {context, _before}} = state, events, response) do
    state = %{state | response: response, shown: {context, response}}
    publish(end_waits(state), {:delta, events})
  end

  defp end_waits(%{activity: []} = state), do: state

  defp end_waits(state),
    do: %{state | activity: Enum.reject(state.activity, &match?({:event, [:llm, _], _, _}, &1))}

  defp publish(%{number: number} = state, change) do
    subscribers = Subscribers.publish(state.subscribers, state.tag, number + 1, change)
    %{state | number: number + 1, subscribers: subscribers}
  end

  @doc "Returns what may be shown of a state: counts, and no words. It may be broken."
  def show(%__MODULE__{context: %Context{}, subscribers: %{}} = state) do
    queued = if :queue.is_queue(state.queue), do: :queue.len(state.queue), else: :not_shown

    state
    |> Map.take([:context, :when_busy, :ignored, :number])
    |> Map.merge(state.limits)
    |> Map.merge(%{running: state.run != nil, paused: state.status == :paused, queued: queued})
    |> Map.put(:subscribers, map_size(state.subscribers))
  end

  def show(_broken), do: :not_shown
end
