defmodule AshAgent.Sessions.Arrivals do
  @moduledoc false

  # Late results find their conversation's session: the one that lives, on whatever node, or one that starts for them. What is not told here is
  # kept, and found by the next look of any node.

  alias AshAgent.Runtime.{Journal, Sealed}
  alias AshAgent.{Session, Store}
  alias AshAgent.Sessions.{Error, Router}

  # As many sessions at once as a node starts at most.
  @at_once 64

  @doc "Tells the session of a conversation that there are late results. A node that does not know of them leaves them to others."
  def tell(sessions, id) do
    Router.ask(sessions, id, :find, &ask/1)
  end

  @doc "Tells a session, which answers at once."
  def ask(session), do: Sealed.call(session, :take_arrivals, {Session, :take_arrivals})

  @doc "The same, while whoever asks goes on."
  def tell_later(sessions, id) do
    spawn(fn -> Sealed.run(fn -> tell(sessions, id) end) end)
    :ok
  end

  @doc "Stores the deadlines that have passed, and tells the sessions of all that have late results. `report` gets what goes wrong."
  def look(config, report) do
    if Store.Named.late?(config.store) do
      expire(config, report)
      wake(config, nil, report)
    end
  end

  defp expire(%{batch: batch} = config, report) do
    expire = fn -> Store.expire_waiting(config.store, limit: batch) end

    with {:ok, passed} <- Journal.ask(expire) do
      tell_all(config, Enum.uniq(for(%{id: id} <- passed, do: id)), report)
      if length(passed) == batch, do: expire(config, report)
    end
  end

  defp wake(%{batch: batch} = config, cursor, report) do
    page = if cursor, do: [limit: batch, after: cursor], else: [limit: batch]

    with {:ok, %{ids: ids, next: next}} <-
           Journal.ask(fn -> Store.arrived(config.store, page) end) do
      tell_all(config, ids, report)
      if next, do: wake(config, next, report)
    end
  end

  defp tell_all(%{name: name}, ids, report) do
    ids
    |> Task.async_stream(&{&1, tell(name, &1)}, max_concurrency: @at_once, timeout: :infinity)
    |> Enum.each(fn {:ok, {id, answer}} -> report_failure(answer, id, report) end)
  end

  # One that cannot be reached is looked for again.
  defp report_failure({:error, %Error{reason: {kind, _detail}} = error}, id, report)
       when kind in [:store_error, :start_error],
       do: report.({:error, error}, id)

  defp report_failure(_answer, _id, _report), do: :ok
end
