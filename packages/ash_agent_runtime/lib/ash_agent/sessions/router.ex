defmodule AshAgent.Sessions.Router do
  @moduledoc false

  # Finds the session of a conversation, here or on another node, and calls it. A request that no session has read is repeated
  # for a while.

  alias AshAgent.{Deadline, Session, Store}
  alias AshAgent.Runtime.Events
  alias AshAgent.Session.Owner
  alias AshAgent.Sessions.{Error, Node}

  # A request waits so many milliseconds for a session that just stops, or for a draining node to let go.
  @patience 5_000
  @pause 20

  @doc """
  Calls `fun` with the session of a conversation, and again if that session has not heard it. `:create` as the mode makes a
  conversation that does not exist, and `:find` does not.

  Returns what `fun` returns, or `{:error, %AshAgent.Sessions.Error{}}`.
  """
  def ask(sessions, id, mode, fun) when is_atom(sessions) and is_binary(id) do
    config = Node.config!(sessions)

    if Store.Options.id?(id) do
      deadline = Deadline.new(@patience)
      repeat_until(deadline, fn -> attempt(config, id, mode, fun) end)
    else
      {:error, %Error{reason: :not_found}}
    end
  end

  # An attempt returns `{:again, reason}` when no session has begun with the request. Neither has a draining node.
  defp repeat_until(deadline, attempt) do
    case attempt.() do
      {:again, reason} -> pause_and_repeat(deadline, attempt, reason)
      {:error, :draining} -> pause_and_repeat(deadline, attempt, :draining)
      answer -> answer
    end
  end

  defp pause_and_repeat(deadline, attempt, reason) do
    if Deadline.now() > deadline do
      {:error, %Error{reason: reason}}
    else
      Process.sleep(@pause + :rand.uniform(@pause))
      repeat_until(deadline, attempt)
    end
  end

  defp attempt(config, id, mode, fun) do
    with {:ok, session} <- find(config, id, mode), do: call(session, fun)
  end

  defp call(session, fun) do
    fun.(session)
  catch
    :exit, {reason, {Session, _function, _args}} = exit -> handle_exit(reason, exit)
    :exit, reason -> handle_exit(reason, reason)
  end

  # The session has not read the request: it could not claim the conversation, or it has answered everything that it had
  # accepted and stopped.
  defp handle_exit({:shutdown, reason}, _exit),
    do: {:again, {:lost, Events.label(:exit, reason)}}

  defp handle_exit(:noproc, _exit), do: {:again, {:lost, :noproc}}
  defp handle_exit(:timeout, exit), do: exit(exit)

  defp handle_exit(reason, _exit),
    do: {:error, %Error{reason: {:lost, label_exit(reason)}, stored: :unknown}}

  defp label_exit({:nodedown, _node}), do: :nodedown
  defp label_exit(:noconnection), do: :nodedown
  defp label_exit({:failed, label}), do: label
  defp label_exit(reason), do: Events.label(:exit, reason)

  defp find(config, id, mode) do
    case Node.find(config, id, mode) do
      {:owned, owner} -> find_owner(config, id, owner)
      {:error, :draining} -> {:error, %Error{reason: :draining}}
      answer -> answer
    end
  end

  defp find_owner(config, id, owner) do
    case Owner.locate(owner) do
      {:there, node} -> find_on(node, config, id, owner)
      # A session that was not started by `AshAgent.Sessions`.
      {:here, session} -> {:ok, session}
      :unknown -> {:error, %Error{reason: {:unreachable, owner}}}
      _ended_or_starting -> {:again, {:unreachable, owner}}
    end
  end

  defp find_on(node, config, id, owner) do
    case :erpc.call(node, Node, :serve, [config.name, id, owner], @patience) do
      {:error, :unknown} -> {:error, %Error{reason: {:unreachable, owner}}}
      # It has another owner by now.
      {:owned, other} -> {:again, {:unreachable, other}}
      answer -> answer
    end
  catch
    _kind, _reason -> {:error, %Error{reason: {:unreachable, owner}}}
  end
end
