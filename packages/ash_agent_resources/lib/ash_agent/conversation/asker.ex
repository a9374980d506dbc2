defmodule AshAgent.Conversation.Asker do
  @moduledoc false

  # The person who asked for a turn, with language and scopes: stored with the message, so that its tools run as this person,
  # whoever approves or resumes. Of an actor only the keys by which it is found again are stored.

  alias AshAgent.Context
  alias AshAgent.Conversation.Info

  # The key in the metadata of a message.
  @key "ash_agent"

  @doc "The metadata of a message, with who asks."
  def put(metadata, changeset, context) do
    asker = %{
      "by" => identity(context.actor),
      "actor" => persist(changeset.resource, context.actor),
      "shared" => take_shared(changeset)
    }

    Map.put(metadata, @key, Map.reject(asker, fn {_name, value} -> value in [nil, %{}] end))
  end

  @doc "The metadata with the key of a message that may be sent again."
  def put_key(metadata, nil), do: metadata
  def put_key(metadata, key), do: Map.put(metadata, :idempotency_key, key)

  @doc "Returns the first and the last iteration of the turn with the message of a key, or nil."
  def find_said(conversation, key), do: Context.find_turn(conversation, :idempotency_key, key)

  @doc "The messages as others may see them."
  def hide(messages), do: Enum.map(messages, &hide_one/1)

  defp hide_one(%{metadata: %{@key => _asker} = metadata} = message) do
    case Map.drop(metadata, [@key, :idempotency_key]) do
      none when none == %{} -> Map.delete(message, :metadata)
      metadata -> %{message | metadata: metadata}
    end
  end

  defp hide_one(message), do: message

  @doc "The context that the action passes on to other actions."
  def take_shared(changeset), do: Map.drop(changeset.context[:shared] || %{}, [:private])

  @doc """
  Returns who asked for the turn of a conversation, or of an iteration, which is who sent the last message of a user until then, or nil.
  """
  def of(%Context{} = conversation, last \\ nil) do
    last = last || conversation.current_iteration

    said =
      last..1//-1
      |> Stream.flat_map(&(conversation |> Context.get_iteration_messages(&1) |> Enum.reverse()))
      |> Enum.find(&said?/1)

    of_metadata(said[:metadata] || %{})
  end

  @doc "Returns whether a message is one of a person."
  def said?(%{role: :user, content: [%{type: :tool_result} | _]}), do: false
  # A run marks its own request for another answer so.
  def said?(%{role: :user, metadata: %{output_retry: _number}}), do: false
  def said?(%{role: role}), do: role == :user

  @doc "Returns the messages of users in the turn."
  def messages(conversation) do
    conversation
    |> Context.get_iteration_messages(Context.turn_start(conversation))
    |> Enum.filter(&(&1.role == :user))
  end

  @doc "The same of a message that waits."
  def of_metadata(metadata), do: metadata[@key]

  @doc "The runtime context of a turn that goes on: that of whoever asked."
  def restore(_turn, nil, given), do: {:ok, given}

  def restore(turn, %{} = asker, given) do
    with {:ok, actor} <- actor(turn, asker["by"], asker["actor"], given.actor),
         do: {:ok, %{given | actor: actor, shared: asker["shared"] || %{}}}
  end

  def restore(_turn, _other, _given), do: {:error, :no_actor}

  defp actor(turn, by, stored, given) do
    persister = Info.option(turn.resource, :actor_persister)

    cond do
      # The person who resumes is the one who asked, as they are now.
      by == identity(given) -> {:ok, given}
      by == nil -> {:ok, nil}
      persister != nil and stored != nil -> require_actor(persister.lookup(stored))
      true -> require_actor(find(stored, turn.runtime_context.tenant))
    end
  end

  defp require_actor({:ok, actor}) when actor != nil, do: {:ok, actor}
  defp require_actor(_none), do: {:error, :no_actor}

  @doc "An actor's key, and nothing else of it: what a decision knows of whoever made it."
  def identity(nil), do: nil

  def identity(%resource{} = actor) do
    if Ash.Resource.Info.resource?(resource) do
      values = actor |> key() |> Keyword.values()
      "#{Ash.Resource.Info.short_name(resource)}:#{Enum.join(values, ",")}"
    else
      to_name(actor) || digest(actor)
    end
  end

  def identity(actor), do: to_name(actor) || digest(actor)

  defp to_name(%{id: id}) when is_binary(id) or is_integer(id), do: to_string(id)
  defp to_name(_actor), do: nil

  # Nothing else distinguishes two of them.
  defp digest(actor),
    do:
      "sha256:" <>
        (:sha256 |> :crypto.hash(:erlang.term_to_binary(actor)) |> Base.encode16(case: :lower))

  defp key(%resource{} = actor),
    do: for(name <- Ash.Resource.Info.primary_key(resource), do: {name, Map.fetch!(actor, name)})

  defp persist(resource, actor) do
    persister = Info.option(resource, :actor_persister)

    cond do
      actor == nil -> nil
      persister != nil -> persister.store(actor)
      is_struct(actor) and Ash.Resource.Info.resource?(actor.__struct__) -> record(actor)
      true -> nil
    end
  end

  defp record(%resource{} = actor),
    do: %{"resource" => inspect(resource), "key" => Map.new(key(actor))}

  defp find(%{"resource" => name, "key" => %{} = key}, tenant) do
    resource = Module.safe_concat([name])
    if Ash.Resource.Info.resource?(resource), do: get(resource, key, tenant)
  rescue
    _ in ArgumentError -> nil
  end

  defp find(_other, _tenant), do: nil

  # An actor that may not be read may still ask.
  defp get(resource, key, tenant) do
    tenant = if Ash.Resource.Info.multitenancy_strategy(resource), do: tenant
    Ash.get(resource, key, authorize?: false, tenant: tenant)
  end
end
