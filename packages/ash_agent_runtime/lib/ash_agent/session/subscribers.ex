defmodule AshAgent.Session.Subscribers do
  @moduledoc false

  # The subscribers of a session's changes. Messages go straight from the session to each of them; their first element, the
  # tag, is the session's.

  alias AshAgent.{Context, Response}

  @doc "Nobody."
  def new, do: %{}

  @doc "With a process that has seen everything up to `number`."
  def add(subscribers, ref, pid, limit, number) do
    # behind: nil, :told, or :untold when not even that could be sent.
    subscriber = %{
      pid: pid,
      monitor: Process.monitor(pid),
      limit: limit,
      seen: number,
      behind: nil
    }

    Map.put(subscribers, ref, subscriber)
  end

  @doc "Without one."
  def delete(subscribers, ref) do
    with %{^ref => %{monitor: monitor}} <- subscribers, do: Process.demonitor(monitor, [:flush])
    Map.delete(subscribers, ref)
  end

  @doc "Without the one whose process ended: `{:ok, subscribers}` or `:error`."
  def down(subscribers, monitor) do
    case Enum.find(subscribers, fn {_ref, subscriber} -> subscriber.monitor == monitor end) do
      {ref, _subscriber} -> {:ok, Map.delete(subscribers, ref)}
      nil -> :error
    end
  end

  @doc "One has handled everything up to `number`."
  def acknowledge(subscribers, ref, number) do
    case subscribers do
      %{^ref => %{seen: seen} = known} ->
        %{subscribers | ref => %{known | seen: max(seen, number)}}

      _unknown ->
        subscribers
    end
  end

  @doc "A process takes a snapshot, and with that knows everything up to `number`."
  def caught_up(subscribers, pid, number) do
    Map.new(subscribers, fn
      {ref, %{pid: ^pid} = known} -> {ref, %{known | seen: number, behind: nil}}
      other -> other
    end)
  end

  @doc "Tells everybody of a change."
  def tell(subscribers, _tag, _number, _change) when map_size(subscribers) == 0, do: subscribers

  def tell(subscribers, tag, number, change) do
    away = if Enum.any?(subscribers, fn {_ref, known} -> away?(known.pid) end), do: abroad(change)

    Map.new(subscribers, fn {ref, known} ->
      {ref, tell_one(known, {tag, ref, number}, if(away?(known.pid), do: away, else: change))}
    end)
  end

  defp tell_one(%{behind: :told} = known, _head, _change), do: known
  defp tell_one(%{behind: :untold} = known, head, _change), do: fall_behind(known, head)

  defp tell_one(known, {_tag, _ref, number} = head, change) do
    case room(known, number) do
      {:ok, known} -> if deliver(known, head, change), do: known, else: untold(known)
      :none -> fall_behind(known, head)
    end
  end

  defp fall_behind(known, head) do
    if deliver(known, head, :behind), do: %{known | behind: :told}, else: untold(known)
  end

  defp untold(known), do: %{known | behind: :untold}

  # Looking at another process's queue may take a while, so it is done rarely.
  defp room(%{seen: seen, limit: limit} = known, number) when number - seen <= limit,
    do: {:ok, known}

  defp room(%{pid: pid} = known, number) do
    with false <- away?(pid),
         {:message_queue_len, waiting} when waiting <= known.limit <-
           Process.info(pid, :message_queue_len) do
      {:ok, %{known | seen: number - 1}}
    else
      _away_or_slow_or_gone -> :none
    end
  end

  # The session does not wait for a busy connection.
  defp deliver(%{pid: pid}, {tag, ref, number}, change),
    do: :erlang.send(pid, {tag, ref, number, change}, [:nosuspend, :noconnect]) == :ok

  defp away?(pid), do: node(pid) != node()

  @doc "What `AshAgent.Session.snapshot/1` returns, in the form in which it gets to the node of `pid`."
  def snapshot(%{context: context, open: open, number: number}, pid) do
    if away?(pid),
      do: {number, abroad({:context, context}), open && Response.message(open)},
      else: {number, {:context, context}, open}
  end

  defp abroad({:context, context}), do: {:snapshot, Context.to_snapshot(context)}
  defp abroad(change), do: change

  ## In the subscriber

  @doc "The snapshot, where it is wanted."
  def arrived({number, {:context, context}, response}) do
    message = response && Response.message(response)
    %{number: number, context: context, message: message, response: response}
  end

  def arrived({number, {:snapshot, binary}, message}) do
    context = Context.from_snapshot!(binary)
    %{number: number, context: context, message: message, response: nil}
  end

  @doc "Takes the messages of a subscription out of the queue."
  def flush(tag, ref) do
    receive do
      {^tag, ^ref, _number, _change} -> flush(tag, ref)
    after
      0 -> :ok
    end
  end
end
