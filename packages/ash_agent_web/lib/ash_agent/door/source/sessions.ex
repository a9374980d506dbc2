defmodule AshAgent.Door.Source.Sessions do
  @moduledoc false

  # Conversations of an `AshAgent.Sessions`, which takes them from a store.

  @behaviour AshAgent.Door.Source

  alias AshAgent.{Context, Session, Sessions}
  alias AshAgent.Door.Source

  @impl true
  def open(sessions, %{conversation: id}, limit) do
    with {:ok, session} <- Sessions.fetch_session(sessions, id),
         {:ok, ref, snapshot} <- Session.subscribe(session, limit: limit) do
      {:ok, session, ref, snapshot, Session.status(session)}
    else
      error -> failure(error)
    end
  end

  # Who may, the application has said.
  @impl true
  def see(_sessions, _identity), do: :ok

  @impl true
  def name(sessions, %{conversation: id}), do: {sessions, id}

  @impl true
  def say(sessions, %{conversation: id} = identity, input, key, behind) do
    own = for {name, map} <- identity, name in [:runtime_context, :metadata], do: {name, map}

    case Sessions.prompt_async(sessions, id, input, [key: key, after: behind] ++ own) do
      {:ok, _ref} -> {:ok, identity}
      {:error, %Context.Error{}} -> {:error, :invalid_messages}
      error -> failure(error)
    end
  end

  @impl true
  def fork(sessions, %{conversation: id}, %{conversation: fork} = identity, iteration) do
    case Sessions.fork(sessions, id, fork, to: iteration) do
      {:ok, _context} -> {:ok, identity}
      {:error, {:store_error, :exists}} -> {:error, :fork_not_served}
      error -> failure(error)
    end
  end

  @impl true
  def steer(sessions, %{conversation: id}, input, key) do
    case Sessions.steer(sessions, id, input, key: key) do
      {:error, %Context.Error{}} -> {:error, :invalid_messages}
      answer -> failure(answer)
    end
  end

  # The session has all of them.
  @impl true
  def waits?(_sessions, _identity, _key), do: false

  @impl true
  def stop(sessions, %{conversation: id}), do: failure(Sessions.cancel(sessions, id))

  @impl true
  def decide(sessions, %{conversation: id} = identity, %{id: call} = asked, verdict, reason) do
    # The arguments and the attempt are those that were shown.
    opts = [arguments: asked.arguments, attempt: asked[:attempt] || 1, by: identity[:by]]

    answer =
      case verdict do
        :approve -> Sessions.approve(sessions, id, call, opts)
        # Other arguments are a decision of their own about these.
        {:edit, edited} -> Sessions.approve(sessions, id, call, [edited: edited] ++ opts)
        :deny -> Sessions.deny(sessions, id, call, reason, opts)
        {:answer, answer} -> Sessions.answer(sessions, id, call, answer, opts)
      end

    failure(answer)
  end

  @impl true
  def resume(sessions, %{conversation: id}) do
    with {:ok, session} <- Sessions.fetch_session(sessions, id),
         {:ok, _ref} <- Session.resume_async(session),
         do: :ok,
         else: (error -> failure(error))
  end

  @impl true
  def rewind(sessions, %{conversation: id}, number),
    do: failure(Sessions.rewind(sessions, id, number))

  defp failure(:ok), do: :ok
  defp failure({:error, kind}) when kind in [:busy, :moved, :paused, :idle], do: {:error, kind}
  defp failure({:error, kind}) when kind in [:full, :too_large], do: {:error, :busy}
  defp failure({:error, %Sessions.Error{reason: :not_found}}), do: {:error, :not_found}
  defp failure({:error, %Context.Error{} = error}), do: {:error, Source.kind(error)}
  defp failure(_error), do: {:error, :unavailable}
end
