defmodule AshAgent.Door.Source.Ash do
  @moduledoc false

  # Conversations of a resource with `AshAgent.Conversation`. Everything is one of its actions, with the identity's actor and tenant, so its
  # policies say who sees and does what, and a turn runs with the rights of who asked. What they refuse is not there.
  #
  # A session ends with its turn, so between turns the conversation is as it is stored.

  @behaviour AshAgent.Door.Source

  alias AshAgent.{Context, Conversation, Session, Store}
  alias AshAgent.Conversation.{Info, Runner}
  alias AshAgent.Door.Source

  # Doors are compiled without Ash as well.
  @compile {:no_warn_undefined,
            [Ash, Ash.Resource.Info, Ash.ToTenant, Conversation, Info, Runner]}

  @impl true
  def open(resource, identity, limit) do
    with {:ok, record} <- fetch_seen(resource, identity) do
      case Runner.fetch_session(record, identity[:tenant]) do
        {:ok, session, begins?} ->
          with {:ok, ref, snapshot} <- Session.subscribe(session, limit: limit),
               do: {:ok, session, ref, snapshot, begun(Session.status(session), begins?)},
               else: (_full -> {:error, :unavailable})

        # A turn that has ended meanwhile is in what is read now.
        other ->
          stored(resource, identity, other)
      end
    end
  end

  # What was begun here comes to the session soon.
  defp begun(idle, true) when idle in [:idle, {:paused, []}], do: :running
  defp begun(status, _begins?), do: status

  defp stored(resource, identity, session) do
    with {:ok, record} <- fetch(resource, identity, [:context, :status]),
         %Context{} = context <- record.context do
      snapshot = %{number: 0, context: context, message: nil, activity: []}
      status = if session == :begins, do: :running, else: status(record.status, context)
      {:ok, nil, nil, snapshot, status}
    else
      {:error, kind} -> {:error, kind}
      # There is none, or a policy hides it.
      _nothing -> {:error, :not_found}
    end
  end

  defp status(:paused, context), do: {:paused, Context.Calls.undecided_tool_calls(context)}
  defp status(status, _context), do: status

  @impl true
  def see(resource, identity),
    do: with({:ok, _record} <- fetch_seen(resource, identity), do: :ok)

  @impl true
  def name(resource, %{conversation: id} = identity),
    do: {resource, Ash.ToTenant.to_tenant(identity[:tenant], resource), id}

  @impl true
  def say(resource, identity, input, key, nil), do: say(resource, identity, message(input, key))

  # An action stores a message before a session looks at it, so doors ask one after the other.
  def say(resource, identity, input, key, behind) do
    :global.trans({{__MODULE__, name(resource, identity)}, self()}, fn ->
      with :ok <- last?(resource, identity, behind),
           do: say(resource, identity, input, key, nil)
    end)
  end

  defp last?(resource, identity, behind) do
    with {:ok, %{context: %Context{} = context} = record} <-
           fetch(resource, identity, [:context]),
         {_first, last} when last == context.current_iteration <-
           Context.find_turn(context, :idempotency_key, behind),
         {:ok, []} <- waiting(resource, identity, record) do
      :ok
    else
      {:error, kind} when is_atom(kind) -> {:error, kind}
      _more_was_said -> {:error, :moved}
    end
  end

  @impl true
  def fork(resource, identity, %{start: %{} = attributes} = fork, iteration)
      when not is_map_key(fork, :conversation) do
    input = Map.merge(attributes, %{source_id: identity.conversation, iteration: iteration})

    with {:ok, %{id: id}} <- tell(Ash.create(resource, input, [action: :fork] ++ rights(fork))),
         do: {:ok, Map.put(fork, :conversation, id)}
  end

  def fork(_resource, _identity, _fork, _iteration), do: {:error, :not_served}

  @impl true
  def steer(resource, identity, input, key) do
    message = Map.put(message(input, key), :steer, true)
    with {:ok, _identity} <- say(resource, identity, message), do: :ok
  end

  # An action of one's own may take texts alone.
  defp message([%{type: :text, text: text}], key), do: %{input: text, key: key, wait: false}
  defp message(parts, key), do: %{parts: parts, key: key, wait: false}

  defp say(resource, identity, message) do
    own = if metadata = identity[:metadata], do: %{metadata: metadata}, else: %{}
    message = Map.merge(message, own)

    case identity do
      %{conversation: _id} ->
        with :ok <- run(resource, identity, :say, message), do: {:ok, identity}

      %{start: %{} = attributes} ->
        # Of the action's arguments, the key is for conversations, and this one is the message's.
        message = message |> Map.delete(:key) |> Map.put(:metadata, said(message))
        opts = [action: :start] ++ rights(identity)

        with {:ok, %{id: id}} <- tell(Ash.create(resource, Map.merge(attributes, message), opts)),
             do: {:ok, Map.put(identity, :conversation, id)}

      _nothing ->
        {:error, :not_found}
    end
  end

  defp said(message),
    do: Map.put(message[:metadata] || %{}, :idempotency_key, message.key)

  @impl true
  def waits?(resource, identity, key) do
    with {:ok, record} <- fetch(resource, identity, []),
         {:ok, waiting} <- waiting(resource, identity, record) do
      Enum.any?(waiting, &(&1.id == key))
    else
      _none -> false
    end
  end

  defp waiting(resource, identity, record),
    do: resource |> Info.store(identity[:tenant]) |> Store.waiting(Info.key(record))

  @impl true
  def stop(resource, identity), do: run(resource, identity, :cancel, %{})

  @impl true
  def decide(resource, identity, %{id: id, arguments: shown} = call, verdict, reason) do
    {action, input} =
      case verdict do
        :approve -> {:approve, %{}}
        {:edit, edited} -> {:approve, %{edited: edited}}
        :deny -> {:deny, %{reason: reason}}
        {:answer, %{} = form} -> {:answer, %{form: form}}
        {:answer, answer} -> {:answer, %{answer: answer}}
      end

    # The id of what was shown stands for the attempt, too, so an action of one's own may do without.
    %{arguments: taken} = Ash.Resource.Info.action(resource, action)
    attempt = for %{name: :attempt} <- taken, into: %{}, do: {:attempt, call[:attempt] || 1}
    shown = Map.merge(%{call_id: id, arguments: shown}, attempt)
    run(resource, identity, action, Map.merge(input, shown))
  end

  @impl true
  def resume(resource, identity), do: run(resource, identity, :resume, %{wait: false})

  @impl true
  def rewind(resource, identity, number),
    do: run(resource, identity, :rewind, %{iteration: number})

  ## Actions

  defp rights(identity) do
    [actor: identity[:actor], tenant: identity[:tenant], authorize?: true] ++
      for {:context, %{} = context} <- identity, do: {:context, context}
  end

  # The words of a transcript that a field policy hides are in all that a door tells.
  defp fetch_seen(resource, identity) do
    hidden? = Info.hides_transcript?(resource)

    with {:ok, record} <- fetch(resource, identity, if(hidden?, do: [:transcript], else: [])) do
      if hidden? and is_struct(record.transcript, Ash.ForbiddenField),
        do: {:error, :not_found},
        else: {:ok, record}
    end
  end

  defp fetch(resource, %{conversation: id} = identity, load),
    do: tell(Ash.get(resource, id, [load: load] ++ rights(identity)))

  defp fetch(_resource, _identity, _load), do: {:error, :not_found}

  defp run(resource, identity, action, input) do
    with {:ok, record} <- fetch(resource, identity, []),
         {:ok, _record} <- tell(Ash.update(record, input, [action: action] ++ rights(identity))),
         do: :ok
  end

  defp tell({:ok, value}), do: {:ok, value}

  defp tell({:error, %{errors: [_ | _] = errors} = error}),
    do: {:error, Enum.find_value(errors, kind(error), &reason/1)}

  defp tell({:error, error}), do: {:error, reason(error) || kind(error)}

  defp reason(%{reason: reason} = error) when is_struct(error, Conversation.Error) do
    case reason do
      kind when kind in [:busy, :paused, :no_actor, :not_found] -> kind
      kind when kind in [:no_message, :no_answer] -> :invalid_messages
      %Context.Error{} = error -> Source.kind(error)
      _other -> :unavailable
    end
  end

  defp reason(_other), do: nil

  defp kind(%{__struct__: kind}) when kind in [Ash.Error.Forbidden, Ash.Error.Query.NotFound],
    do: :not_found

  # The action has no such argument.
  defp kind(%{errors: [%{__struct__: Ash.Error.Invalid.NoSuchInput} | _]}),
    do: :not_served

  defp kind(%{errors: [%{__struct__: kind} | _]})
       when kind in [
              Ash.Error.Query.NotFound,
              Ash.Error.Changes.StaleRecord,
              Ash.Error.Invalid.InvalidPrimaryKey,
              Ash.Error.Query.InvalidFilterValue,
              Ash.Error.Invalid.TenantRequired
            ],
       do: :not_found

  defp kind(_other), do: :unavailable
end
