defmodule AshAgent.Conversation.Change do
  @moduledoc """
  The change of the actions of `AshAgent.Conversation`, for actions of your own.

      actions do
        create :open do
          accept [:title]
          argument :input, :string
          change {AshAgent.Conversation.Change, does: :start}
        end

        update :ask do
          accept []
          argument :input, :string, allow_nil?: false
          require_atomic? false
          change {AshAgent.Conversation.Change, does: :say}
        end
      end

  `does` is the name of one of the actions, and the change reads its arguments, those that the action has:

  | `does` | type | arguments |
  |---|---|---|
  | `:start` | create | `input` or `parts`, `metadata`, `key`, `wait` |
  | `:fork` | create | `source_id`, `iteration`, `revision` |
  | `:say` | update | `input` or `parts`, `metadata`, `key`, `steer`, `wait` |
  | `:resume` | update | `wait` |
  | `:approve` | update | `call_id`, `arguments`, `attempt`, `edited` |
  | `:deny` | update | `call_id`, `reason`, `arguments`, `attempt` |
  | `:answer` | update | `call_id`, `answer` or `form`, `arguments`, `attempt` |
  | `:arrive` | update | `key`, `text`, `result` or `error` |
  | `:cancel` | update | none |
  | `:rewind` | update | `iteration`, `revision` |

  Messages, decisions and branches are written in the action's transaction, and turns run after it; in a transaction of the caller, after its
  commit. An argument that callers do not
  give is `public?: false`, and set by a change before this one.
  """

  use Ash.Resource.Change

  alias Ash.Changeset
  alias AshAgent.{Context, Conversation, Store}
  alias AshAgent.Conversation.{Asker, Begin, Info, Runner}
  alias AshAgent.Runtime.{Authority, Ended, Journal, Rewind, ToolArguments}

  @actions [:start, :fork, :say, :resume, :approve, :deny, :answer, :arrive, :cancel, :rewind]
  # The last two are the extension's own.
  @does @actions ++ [:delta, :delete]

  @doc false
  @impl true
  def init([does: name] = opts) when name in @does, do: {:ok, opts}

  def init(_opts),
    do: {:error, "expected does: with one of #{Enum.map_join(@actions, ", ", &inspect/1)}"}

  @doc false
  @impl true
  def change(changeset, [does: name], context), do: does(name, changeset, context)

  # Deleting needs only the record that was destroyed.
  @doc false
  @impl true
  def atomic(changeset, [does: :delete] = opts, context),
    do: {:ok, change(changeset, opts, context)}

  def atomic(_changeset, opts, _context),
    do: {:not_atomic, "#{opts[:does]} of a conversation writes its messages"}

  # A change of all destroy actions. A soft one keeps the record, and with it the conversation.
  defp does(:delete, %{action: %{soft?: true}} = changeset, _context), do: changeset

  defp does(:delete, changeset, _context) do
    Changeset.after_action(changeset, fn changeset, record ->
      case Store.delete(store(changeset), Info.key(record)) do
        {:error, %Store.Error{} = error} -> fail(error)
        _deleted -> {:ok, record}
      end
    end)
  end

  defp does(:start, changeset, context) do
    message = message(changeset, context)

    changeset
    |> check_message(message, :optional)
    |> begin_once(context)
    |> Changeset.after_action(fn
      _changeset, %{__metadata__: %{begun: true}} = record -> {:ok, record}
      changeset, record -> create(changeset, record, first(changeset.resource, record, message))
    end)
    |> then(&if(message == {:ok, nil}, do: &1, else: turn(&1, context, :start)))
  end

  defp does(:say, changeset, context) do
    message = message(changeset, context)
    kind = if Changeset.get_argument(changeset, :steer), do: :steer, else: :prompt

    changeset
    |> check_message(message, :required)
    |> touch()
    |> Changeset.before_action(&waits_for_nobody/1)
    |> Changeset.after_action(fn
      %{context: %{ash_agent_said: before}}, record ->
        {:ok, update_in(record.__metadata__, &(&1 |> Map.delete(:prompt) |> Map.merge(before)))}

      changeset, record ->
        {:ok, {input, metadata}} = message
        key = Changeset.get_argument(changeset, :key)

        # Nobody but who asked, or somebody who is found by the message, gives its turn a runtime context.
        metadata = Authority.mark(Asker.put_key(metadata, key), Authority.gone())
        opts = [metadata: metadata]

        case enqueue(changeset, record, input, if(key, do: [id: key] ++ opts, else: opts)) do
          {:ok, id} -> {:ok, Ash.Resource.put_metadata(record, :prompt, id)}
          {:error, reason} -> fail(reason)
        end
    end)
    |> turn(context, kind)
  end

  defp does(:resume, changeset, context), do: turn(changeset, context, :resume)

  defp does(:approve, changeset, context) do
    Changeset.after_action(changeset, fn changeset, record ->
      edit(changeset, record, [status: :paused], fn conversation ->
        opts =
          [edited: Changeset.get_argument(changeset, :edited)] ++ decision(changeset, context)

        tools = Runner.tool_options(changeset, record)
        ToolArguments.approve(conversation, call_id(changeset), opts, tools)
      end)
    end)
  end

  defp does(:deny, changeset, context) do
    Changeset.after_action(changeset, fn changeset, record ->
      edit(changeset, record, [status: :paused], fn conversation ->
        id = call_id(changeset)
        reason = Changeset.get_argument(changeset, :reason)

        # Who cannot be sure says nothing of a denial.
        started? =
          with {:ok, ids} <- fetch_started(changeset, record, conversation),
               do: id in ids,
               else: (_error -> true)

        Journal.deny(conversation, id, reason, decision(changeset, context), started?)
      end)
    end)
  end

  defp does(:answer, changeset, context) do
    case for(name <- [:answer, :form], given = Changeset.get_argument(changeset, name), do: given) do
      [answer] ->
        opts = decision(changeset, context)

        edit_after(changeset, [status: :paused], fn conversation ->
          Context.Calls.answer_tool_call(conversation, call_id(changeset), answer, opts)
        end)

      _none_or_both ->
        error(changeset, :no_answer)
    end
  end

  defp does(:arrive, changeset, context) do
    case for(
           name <- [:text, :result, :error],
           given = Changeset.get_argument(changeset, name),
           do: {name, given}
         ) do
      [{name, given}] ->
        outcome = {if(name == :error, do: :error, else: :ok), given}

        changeset
        |> Changeset.after_action(&arrive(&1, &2, outcome, Asker.identity(context.actor)))
        |> turn(context, :arrive)

      _none_or_several ->
        error(changeset, :no_result)
    end
  end

  defp does(:cancel, changeset, _context) do
    Changeset.after_action(changeset, fn changeset, record ->
      if Runner.cancel(changeset.resource, changeset.to_tenant, Info.key(record)) do
        {:ok, record}
      else
        taken = list_waiting(changeset, Info.key(record))

        edit(changeset, record, &cancelled(&1, taken), fn conversation ->
          Journal.cancel(conversation, fetch_started(changeset, record, conversation))
        end)
      end
    end)
  end

  defp does(:rewind, changeset, _context) do
    edit_after(changeset, [status: :idle], fn conversation ->
      Rewind.rewind(conversation, Changeset.get_argument(changeset, :iteration))
    end)
  end

  defp does(:fork, changeset, context) do
    changeset
    |> Changeset.before_action(fn changeset ->
      case source(changeset, context) do
        {:ok, stored} -> Changeset.put_context(changeset, :ash_agent_source, stored)
        {:error, error} -> Changeset.add_error(changeset, error)
      end
    end)
    |> Changeset.after_action(fn changeset, record ->
      iteration = Changeset.get_argument(changeset, :iteration)

      Runner.attempt(fn ->
        source = changeset.context.ash_agent_source.value
        source = if iteration, do: Context.rewind(source, to: iteration), else: source
        Context.fork(source, id: Info.key(record))
      end)
      |> case do
        {:ok, fork} -> create(changeset, record, fork)
        {:error, error} -> fail(error)
      end
    end)
  end

  defp does(:delta, changeset, _context) do
    Changeset.add_error(changeset,
      message: "the action :delta is never called: its notifications are the pieces of an answer"
    )
  end

  defp arrive(changeset, record, outcome, from) do
    store = store(changeset)
    key = Changeset.get_argument(changeset, :key)

    with true <- Store.Named.late?(store) || {:error, :unknown},
         {:ok, stored} <- Store.arrive(store, Info.key(record), key, outcome, from: from) do
      {:ok, Ash.Resource.put_metadata(record, :arrived, stored)}
    else
      {:error, reason} -> fail(reason)
    end
  end

  ## Messages

  # Returns a message's text or parts, or nil.
  defp message(changeset, context) do
    metadata = Asker.put(Changeset.get_argument(changeset, :metadata) || %{}, changeset, context)

    case {Changeset.get_argument(changeset, :input), Changeset.get_argument(changeset, :parts)} do
      {nil, nil} -> {:ok, nil}
      {input, nil} -> make(input, metadata)
      {nil, parts} -> make(parts, metadata)
      _both -> {:error, :no_message}
    end
  end

  # The error of a message that no context takes comes before anything is written.
  defp make(input, metadata) do
    Context.new(input, metadata: metadata)
    {:ok, {input, metadata}}
  rescue
    error in [Context.Error, ArgumentError, FunctionClauseError] -> {:error, unwrap(error)}
  end

  defp unwrap(%Context.Error{} = error), do: error
  defp unwrap(_other), do: :no_message

  defp check_message(changeset, {:error, reason}, _needed), do: error(changeset, reason)
  defp check_message(changeset, {:ok, nil}, :required), do: error(changeset, :no_message)
  defp check_message(changeset, _message, _needed), do: changeset

  # A form that is sent twice begins one conversation, whose id is made of the key and of who sends it.
  defp begin_once(changeset, context) do
    key = Changeset.get_argument(changeset, :key)
    asked = {changeset.resource, changeset.to_tenant, Asker.identity(context.actor), key}
    hash = :crypto.hash(:sha256, :erlang.term_to_binary(asked, [:deterministic]))
    <<a::48, _::4, b::12, _::2, c::62, _rest::binary>> = hash
    uuid = <<a::48, 8::4, b::12, 2::2, c::62>>
    id = Ecto.UUID.load!(uuid)

    put_begun = fn changeset ->
      alone(changeset, uuid)

      case Ash.get(changeset.resource, id, rights(context)) do
        {:ok, record} ->
          Changeset.set_result(changeset, {:ok, Ash.Resource.put_metadata(record, :begun, true)})

        {:error, _none} ->
          changeset
      end
    end

    if key do
      [name] = Ash.Resource.Info.primary_key(changeset.resource)

      changeset
      |> Changeset.force_change_attribute(name, id)
      |> Changeset.before_action(put_begun)
    else
      changeset
    end
  end

  # Another transaction that begins it ends first, and then it is there.
  defp alone(%{resource: resource}, <<lock::signed-64, _::binary>>) do
    if Info.tables?(resource),
      do: Info.repo(resource).query!("SELECT pg_advisory_xact_lock($1)", [lock])
  end

  # Ash sets the time of an update that changes something, and this one writes elsewhere.
  defp touch(changeset) do
    case Ash.Resource.Info.attribute(changeset.resource, :updated_at) do
      %{update_default: now} when is_function(now, 0) ->
        Changeset.force_change_attribute(changeset, :updated_at, now.())

      _own ->
        changeset
    end
  end

  # A conversation that waits for decisions takes no messages, but for one that it has.
  defp waits_for_nobody(changeset) do
    case Store.fetch(store(changeset), Info.key(changeset.data)) do
      {:ok, %{status: :paused} = stored} -> said_before(changeset, stored)
      {:ok, _stored} -> changeset
      {:error, :not_found} -> changeset
      {:error, reason} -> error(changeset, reason)
    end
  end

  # It returns then as the first time, if that was the turn that waits.
  defp said_before(changeset, %{value: conversation} = stored) do
    key = Changeset.get_argument(changeset, :key)
    waiting = list_waiting(changeset, stored.id)

    case key && Asker.find_said(conversation, key) do
      {_first, last} when last == conversation.current_iteration ->
        Changeset.put_context(changeset, :ash_agent_said, %{run: Runner.paused(stored)})

      nil ->
        if key in waiting,
          do: Changeset.put_context(changeset, :ash_agent_said, %{}),
          else: error(changeset, :paused)

      _earlier ->
        Changeset.put_context(changeset, :ash_agent_said, %{})
    end
  end

  # A record that seeds or an import made has no conversation before its first message.
  defp enqueue(changeset, record, input, opts) do
    store = store(changeset)
    key = Info.key(record)

    with {:error, :not_found} <- Store.enqueue(store, key, input, opts) do
      case Store.create(store, first(changeset.resource, record, {:ok, nil})) do
        {:ok, _stored} -> Store.enqueue(store, key, input, opts)
        # Somebody else was faster.
        {:error, :exists} -> Store.enqueue(store, key, input, opts)
        {:error, reason} -> {:error, reason}
      end
    end
  end

  defp first(resource, record, {:ok, message}) do
    empty = resource |> Info.system_prompt(record) |> empty(Info.key(record))

    case message do
      nil -> empty
      {input, metadata} -> Context.add_user_message(empty, input, metadata: metadata)
    end
  end

  defp empty(system_prompt, id) do
    messages = if system_prompt, do: [%{role: :system, content: system_prompt}], else: []

    %{iterations: [%{number: 1, messages: messages}]}
    |> Context.create!()
    |> Context.dump()
    |> Map.put("id", id)
    |> Context.load!()
  end

  defp create(changeset, record, conversation) do
    case Store.create(store(changeset), conversation) do
      {:ok, _stored} -> {:ok, record}
      {:error, reason} -> fail(reason)
    end
  end

  ## Turns

  # A turn outlives the action, and reads what is committed.
  defp turn(changeset, context, kind) do
    changeset
    # It works in a transaction of the caller, of which Ash would warn each time.
    |> Changeset.set_context(%{warn_on_transaction_hooks?: false})
    |> Changeset.before_transaction(fn changeset ->
      in_transaction? = Ash.DataLayer.in_transaction?(changeset.resource)
      Changeset.put_context(changeset, :ash_agent_in_transaction?, in_transaction?)
    end)
    |> Changeset.after_action(fn
      %{context: %{ash_agent_in_transaction?: true}} = changeset, record ->
        turn = Runner.new(changeset, record, context)
        {:ok, record, [Begin.later(changeset, record, fn -> run(kind, turn, false) end)]}

      _changeset, record ->
        {:ok, record}
    end)
    |> Changeset.after_transaction(fn
      %{context: %{ash_agent_in_transaction?: true}}, answer ->
        answer

      changeset, {:ok, record} ->
        run(kind, Runner.new(changeset, record, context), wait?(changeset))

      _changeset, error ->
        error
    end)
  end

  defp run(:start, %{record: %{__metadata__: %{begun: true}} = record}, _wait?), do: {:ok, record}
  defp run(:start, turn, wait?), do: Runner.run(turn, :resume, wait?)

  defp run(kind, %{record: %{__metadata__: metadata}} = turn, wait?)
       when kind in [:prompt, :steer] do
    case metadata do
      %{prompt: id} when kind == :steer -> Runner.steer(turn, id, wait?)
      %{prompt: id} -> Runner.run(turn, {:prompt, id}, wait?)
      _said_before -> {:ok, turn.record}
    end
  end

  defp run(:arrive, turn, _wait?), do: Runner.wake(turn)

  # A turn that is resumed may be the question of somebody else.
  defp run(:resume, turn, wait?) do
    with {:ok, turn} <- Runner.as_asker(turn), do: Runner.run(turn, :resume, wait?)
  end

  # Without the argument, as in an action of one's own, the action waits.
  defp wait?(changeset), do: Changeset.get_argument(changeset, :wait) != false

  ## Changes of a conversation that does not run

  defp fetch_started(changeset, record, conversation),
    do: Journal.fetch_unknown(store(changeset), Info.key(record), conversation)

  # What waits does not start after that.
  defp list_waiting(changeset, id) do
    case Store.waiting(store(changeset), id) do
      {:ok, messages} -> Enum.map(messages, & &1.id)
      {:error, _reason} -> []
    end
  end

  defp edit_after(changeset, opts, fun),
    do:
      Changeset.after_action(changeset, fn changeset, record ->
        edit(changeset, record, opts, fun)
      end)

  defp edit(changeset, record, opts, fun) do
    revision = Changeset.get_argument(changeset, :revision)
    place = {changeset.resource, changeset.to_tenant, Info.key(record)}

    case Runner.edit(store(changeset), place, revision, opts, fun) do
      :ok -> {:ok, record}
      {:error, reason} -> fail(reason)
    end
  end

  # A conversation that waits for nobody has no turn to cancel.
  defp cancelled(%{status: :idle}, taken), do: [status: :idle, taken: taken]

  defp cancelled(_stored, taken),
    do: [status: :idle, taken: taken, note: Ended.note({:failed, :cancelled})]

  defp source(changeset, context) do
    id = Changeset.get_argument(changeset, :source_id)
    revision = Changeset.get_argument(changeset, :revision)

    with {:ok, record} <- Ash.get(changeset.resource, id, rights(context)),
         {:ok, stored} <- Store.fetch(store(changeset), Info.key(record)) do
      if revision in [nil, stored.revision], do: {:ok, stored}, else: fail(:changed)
    else
      {:error, %Store.Error{} = error} -> fail(error)
      {:error, :not_found} -> fail(:not_found)
      {:error, error} -> {:error, error}
    end
  end

  defp rights(%{actor: actor, tenant: tenant, authorize?: authorize?}),
    do: [actor: actor, tenant: tenant, authorize?: authorize? != false]

  # Who decides, and the arguments and the attempt that were shown to them.
  defp decision(changeset, context) do
    shown =
      for name <- [:arguments, :attempt], do: {name, Changeset.get_argument(changeset, name)}

    [by: Asker.identity(context.actor)] ++ shown
  end

  defp call_id(changeset), do: Changeset.get_argument(changeset, :call_id)

  defp store(changeset), do: Info.store(changeset.resource, changeset.tenant)

  defp error(changeset, reason),
    do: Changeset.add_error(changeset, Conversation.Error.exception(reason: reason))

  defp fail(reason), do: {:error, Conversation.Error.exception(reason: reason)}
end
