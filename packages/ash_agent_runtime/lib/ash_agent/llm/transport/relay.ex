defmodule AshAgent.LLM.Transport.Relay do
  @moduledoc false

  # Runs another library's streaming function in a process of its own, and hands each of its messages over to the caller, one
  # at a time: the library reads on when the caller has consumed the last one. So the three timeouts are exact, whatever the
  # library's own are, and its connection closes with its process when the caller halts, raises or dies.

  alias AshAgent.LLM.Transport.{Clock, Request}

  @doc """
  Reduces the messages that `produce` hands over.

  `produce` gets a function that hands one message over and returns `:cont` or `:halt`, and returns `:ok` or
  `{:error, reason}`.
  """
  def stream(%Request{} = request, acc, fun, produce) do
    clock =
      request
      |> Clock.new()
      |> Clock.start(:first_byte, sum(request.connect_timeout, request.first_byte_timeout))

    callers = [self() | Process.get(:"$callers", [])]
    caller = self()
    ref = make_ref()
    # Linked, so that it ends with the caller, however that ends.
    {pid, monitor} =
      Process.spawn(fn -> run(caller, ref, callers, produce) end, [:link, :monitor])

    try do
      receive_all(%{pid: pid, ref: ref, monitor: monitor, fun: fun}, acc, clock)
    after
      Process.unlink(pid)
      Process.exit(pid, :kill)
      Process.demonitor(monitor, [:flush])
      flush(ref)
    end
  end

  defp run(caller, ref, callers, produce) do
    Process.put(:"$callers", callers)

    result =
      try do
        produce.(fn message -> hand_over(caller, ref, message) end)
      catch
        # Finch raises this when all connections of its pool are busy for longer than its pool_timeout.
        :error, %RuntimeError{message: "Finch was unable to provide a connection" <> _} ->
          {:error, {:connection, :pool_timeout}}

        kind, reason ->
          {:raised, kind, reason, __STACKTRACE__}
      end

    send(caller, {ref, :done, result})
    # The caller ends this process: an end of its own would reach callers that trap exits.
    receive do: (:never -> :ok)
  end

  defp hand_over(caller, ref, message) do
    send(caller, {ref, :message, message})

    receive do
      {^ref, reply} -> reply
    end
  end

  defp receive_all(%{pid: pid, ref: ref, monitor: monitor} = relay, acc, clock) do
    clock = Clock.again(clock)

    receive do
      {^ref, :message, message} ->
        clock = if match?({:head, _, _}, message), do: clock, else: Clock.between(clock)

        case relay.fun.(message, acc) do
          {:cont, acc} ->
            send(pid, {ref, :cont})
            receive_all(relay, acc, clock)

          {:halt, acc} ->
            {:ok, acc}
        end

      {^ref, :done, :ok} ->
        {:ok, acc}

      {^ref, :done, {:error, reason}} ->
        {:error, reason, acc}

      {^ref, :done, {:raised, kind, reason, stacktrace}} ->
        :erlang.raise(kind, reason, stacktrace)

      {:DOWN, ^monitor, :process, _, _} ->
        {:error, {:connection, :closed}, acc}
    after
      Clock.wait(clock) -> {:error, Clock.name_timeout(clock), acc}
    end
  end

  defp flush(ref) do
    receive do
      {^ref, _, _} -> flush(ref)
    after
      0 -> :ok
    end
  end

  defp sum(_connect, :infinity), do: :infinity
  defp sum(connect, first_byte), do: connect + first_byte

  @doc "The reasons of Mint, which both libraries pass on in structs of their own, as those of a transport."
  def reason(%{__struct__: module, reason: reason}) do
    http? = module |> Module.split() |> List.last() == "HTTPError"

    case reason do
      _ when http? -> {:invalid_response, "Mint: #{name(reason)}"}
      {:tls_alert, {alert, _words}} -> {:connection, {:tls_alert, alert}}
      _ -> {:connection, name(reason)}
    end
  end

  def reason(%{__struct__: module}), do: {:connection, module}
  def reason(_other), do: {:connection, :failed}

  # The rest of a reason may have data of the server.
  defp name(reason) when is_atom(reason), do: reason
  defp name(reason) when is_tuple(reason) and is_atom(elem(reason, 0)), do: elem(reason, 0)
  defp name(_reason), do: :failed
end
