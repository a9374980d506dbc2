defmodule AshAgent.Session.Subscribers do
  @moduledoc false

  # The subscribers of a session's changes. Nobody waits for one: one that falls too far back gets one message about it, and
  # nothing more until it takes a snapshot. Messages go straight from the session to each of them; their first element, the
  # tag, is the session's.

  alias AshAgent.{Context, Response}

  @doc "Returns no subscribers."
  def new, do: %{}

  @doc "Adds a process that has seen everything up to `number`."
  def add(subscribers, ref, pid, limit, number) do
    # `behind` is nil, :notified, or :unnotified when not even that could be sent.
    monitor = Process.monitor(pid)
    known = %{pid: pid, monitor: monitor, limit: limit, seen: number, behind: nil}
    Map.put(subscribers, ref, known)
  end

  @doc "Removes one."
  def delete(subscribers, ref) do
    with %{^ref => %{monitor: monitor}} <- subscribers, do: Process.demonitor(monitor, [:flush])
    Map.delete(subscribers, ref)
  end

  @doc "Removes the one whose process ended. Returns `{:ok, subscribers}`, or `:error` if there is none."
  def delete_down(subscribers, monitor) do
    case Enum.find(subscribers, fn {_ref, subscriber} -> subscriber.monitor == monitor end) do
      {ref, _subscriber} -> {:ok, Map.delete(subscribers, ref)}
      nil -> :error
    end
  end

  @doc "Notes that one has handled everything up to `number`."
  def acknowledge(subscribers, ref, number) do
    with %{^ref => %{seen: seen} = known} <- subscribers,
         do: %{subscribers | ref => %{known | seen: max(seen, number)}}
  end

  @doc "Notes that a process takes a snapshot, and with that knows everything up to `number`."
  def catch_up(subscribers, pid, number) do
    Map.new(subscribers, fn
      {ref, %{pid: ^pid} = known} -> {ref, %{known | seen: number, behind: nil}}
      other -> other
    end)
  end

  @doc "Sends a change to everybody."
  def publish(subscribers, _tag, _number, _change) when subscribers == %{}, do: subscribers

  def publish(subscribers, tag, number, change) do
    packed = if Enum.any?(subscribers, fn {_, s} -> remote?(s.pid) end), do: pack(change)

    Map.new(subscribers, fn {ref, known} ->
      {ref, notify(known, {tag, ref, number}, if(remote?(known.pid), do: packed, else: change))}
    end)
  end

  defp notify(%{behind: :notified} = known, _head, _change), do: known
  defp notify(%{behind: :unnotified} = known, head, _change), do: fall_behind(known, head)

  defp notify(known, {_tag, _ref, number} = head, change) do
    case make_room(known, number) do
      {:ok, known} ->
        if deliver(known, head, change), do: known, else: %{known | behind: :unnotified}

      :none ->
        fall_behind(known, head)
    end
  end

  defp fall_behind(known, head) do
    %{known | behind: if(deliver(known, head, :behind), do: :notified, else: :unnotified)}
  end

  # Looking at another process's queue may take a while, so it is done rarely.
  defp make_room(%{seen: seen, limit: limit} = known, number) when number - seen <= limit,
    do: {:ok, known}

  defp make_room(%{pid: pid} = known, number) do
    with false <- remote?(pid),
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

  defp remote?(pid), do: node(pid) != node()

  @doc "Returns the snapshot of a session's state in the form in which it gets to the node of `pid`."
  def pack_snapshot(%{shown: {context, response}, number: number} = state, pid) do
    shown = {:context, context}

    if remote?(pid),
      do: {number, pack(shown), response && Response.message(response), state.activity},
      else: {number, shown, response, state.activity}
  end

  defp pack({:context, context}), do: {:snapshot, Context.to_snapshot(context)}
  defp pack(change), do: change

  ## In the subscriber

  @doc "Restores the snapshot on the subscriber's node."
  def load_snapshot({number, {:context, context}, response, activity}) do
    message = response && Response.message(response)
    %{number: number, context: context, message: message, response: response, activity: activity}
  end

  def load_snapshot({number, {:snapshot, binary}, message, activity}) do
    context = Context.load!(binary)
    %{number: number, context: context, message: message, response: nil, activity: activity}
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
