defmodule AshAgent.Session.Border do
  @moduledoc false

  # Contexts leave the session's node as snapshots, since a handle works on its own node only, and are contexts again where
  # they arrive. On the same node nothing is changed.

  alias AshAgent.Context

  @doc "A reply or a message for `pid`, in the form in which it gets to its node."
  def leaving(term, pid) when node(pid) == node(), do: term
  def leaving(%Context{} = context, _pid), do: packed(nil, nil, context)
  def leaving({:context, %Context{} = context}, _pid), do: packed(:context, nil, context)

  def leaving({tag, %{context: %Context{} = context} = struct}, _pid),
    do: packed(tag, %{struct | context: nil} |> unloaded() |> alone(), context)

  def leaving(other, _pid), do: other

  defp packed(tag, struct, context),
    do: {__MODULE__, tag, struct, Context.to_snapshot(context)}

  defp unloaded(%{kept: %{} = kept} = struct),
    do: %{struct | kept: %{kept | value: nil, lines: []}}

  defp unloaded(struct), do: struct

  # They are as long as they like, and nobody on another node shows them.
  defp alone(%{sub_agents: _contexts} = struct), do: %{struct | sub_agents: []}
  defp alone(struct), do: struct

  @doc "What has left its node, where it is wanted."
  def arrived({__MODULE__, tag, struct, snapshot}) do
    context = Context.from_snapshot!(snapshot)

    case {tag, struct} do
      {nil, nil} -> context
      {tag, nil} -> {tag, context}
      {tag, struct} -> {tag, %{struct | context: context}}
    end
  end

  def arrived(other), do: other

  @doc "Whether a session is on another node."
  def away?(session) do
    case GenServer.whereis(session) do
      pid when is_pid(pid) -> node(pid) != node()
      {_name, node} -> node != node()
      nil -> false
    end
  end

  @doc """
  Lets a session on another node run a job whose messages come to the calling process as those of a session here would.

  `call` asks the session on behalf of the process that it is called in. Returns its answer. `tag` is the first element of
  a session's messages.
  """
  def relay(session, tag, call) do
    caller = self()
    {relay, monitor} = spawn_monitor(fn -> relay(session, tag, call, caller) end)

    receive do
      {^relay, answer} ->
        Process.demonitor(monitor, [:flush])
        answer

      {:DOWN, ^monitor, :process, ^relay, {:shutdown, {__MODULE__, reason}}} ->
        exit(reason)

      {:DOWN, ^monitor, :process, ^relay, reason} ->
        exit(reason)
    end
  end

  defp relay(session, tag, call, caller) do
    caller_gone = Process.monitor(caller)
    session_gone = session |> GenServer.whereis() |> Process.monitor()
    # An exit of the call is for the caller, and not for the log.
    answer = catch_exit(call)
    send(caller, {self(), arrived(answer)})
    with {:ok, ref} <- answer, do: pass_on(tag, ref, caller, [caller_gone, session_gone])
  end

  defp catch_exit(call) do
    call.()
  catch
    :exit, reason ->
      exit({:shutdown, {__MODULE__, reason}})
  end

  defp pass_on(tag, ref, caller, monitors) do
    receive do
      {^tag, ^ref, message} ->
        message = arrived(message)
        send(caller, {tag, ref, message})
        if match?({:context, _}, message), do: pass_on(tag, ref, caller, monitors)

      {:DOWN, monitor, :process, _pid, _reason} ->
        unless monitor in monitors, do: pass_on(tag, ref, caller, monitors)
    end
  end
end
