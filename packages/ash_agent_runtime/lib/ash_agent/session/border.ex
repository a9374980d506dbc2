defmodule AshAgent.Session.Border do
  @moduledoc false

  # Contexts leave the session's node as snapshots, since a handle works on its own node only, and are contexts again where
  # they arrive. On the same node nothing is changed.

  alias AshAgent.Context

  @doc "Returns a reply or a message for `pid` in the form in which it gets to its node."
  def pack(term, pid) when node(pid) == node(), do: term
  def pack(%Context{} = context, _pid), do: pack_parts(nil, nil, context)
  def pack({:context, %Context{} = context}, _pid), do: pack_parts(:context, nil, context)

  def pack({tag, %{context: %Context{} = context} = struct}, _pid),
    do: pack_parts(tag, %{struct | context: nil} |> unload_kept() |> drop_sub_agents(), context)

  def pack(other, _pid), do: other

  defp pack_parts(tag, struct, context),
    do: {__MODULE__, tag, struct, Context.to_snapshot(context)}

  defp unload_kept(%{kept: %{} = kept} = struct),
    do: %{struct | kept: %{kept | value: nil, lines: []}}

  defp unload_kept(struct), do: struct

  # Contexts of sub-agents may be of any length, and no other node shows them.
  defp drop_sub_agents(%{sub_agents: _contexts} = struct), do: %{struct | sub_agents: []}
  defp drop_sub_agents(struct), do: struct

  @doc "Restores what `pack/2` has made of a term, where it has arrived."
  def unpack({__MODULE__, tag, struct, snapshot}) do
    context = Context.load!(snapshot)
    loaded = if struct, do: %{struct | context: context}, else: context
    if tag, do: {tag, loaded}, else: loaded
  end

  def unpack(other), do: other

  @doc "Returns true if a session is on another node."
  def remote?(session) do
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
    send(caller, {self(), unpack(answer)})
    with {:ok, ref} <- answer, do: wait(tag, ref, caller, [caller_gone, session_gone])
  end

  # No function of this module is on the stack meanwhile, so that new code can be loaded as often as needed.
  defp wait(tag, ref, caller, monitors),
    do: :erlang.hibernate(__MODULE__, :forward, [tag, ref, caller, monitors])

  defp catch_exit(call) do
    call.()
  catch
    :exit, reason ->
      exit({:shutdown, {__MODULE__, reason}})
  end

  @doc false
  # Public, since a process that hibernates wakes up in it.
  def forward(tag, ref, caller, monitors) do
    receive do
      {^tag, ^ref, message} ->
        message = unpack(message)
        send(caller, {tag, ref, message})
        if match?({:context, _}, message), do: wait(tag, ref, caller, monitors)

      {:DOWN, monitor, :process, _pid, _reason} ->
        unless monitor in monitors, do: wait(tag, ref, caller, monitors)
    end
  end
end
