defmodule AshAgent.Session.Renewer do
  @moduledoc false

  # The process that renews a session's claim every third of its lease, however long the session is busy, and hands it over
  # when the session stops. If the claim is lost, it sends `{:lost, renewer, reason}` to the session.
  #
  # It waits in hibernation. Nothing of this module is then on its stack, so that new code can be loaded as often as one
  # likes, and it needs little memory.

  alias AshAgent.Deadline
  alias AshAgent.Runtime.Journal
  alias AshAgent.Store

  @enforce_keys [:store, :kept, :lease, :session, :monitor, :renewed_at]
  defstruct @enforce_keys

  @doc "Notes that a claim was renewed just now, for a renewer and for another one in its place."
  def note_renewal do
    renewed_at = :atomics.new(1, signed: true)
    :ok = :atomics.put(renewed_at, 1, Deadline.now())
    renewed_at
  end

  @doc "Starts a renewer for the calling session, whose claim was renewed when `note_renewal/0` says. Returns `{pid, monitor}`."
  def start(store, kept, lease, renewed_at) do
    session = self()
    callers = [session | Process.get(:"$callers", [])]

    known = [store: store, kept: kept, lease: lease, session: session, renewed_at: renewed_at]

    pid =
      spawn(fn ->
        Process.put(:"$callers", callers)
        renew_later(struct!(__MODULE__, [monitor: Process.monitor(session)] ++ known))
      end)

    {pid, Process.monitor(pid)}
  end

  @doc "Ends a renewer whose claim is released."
  def stop({pid, _monitor}), do: Process.exit(pid, :kill)

  @doc "Lets the claim's lease end now: whoever looks for those whose lease is over finds that there is something left to do."
  def hand_over(store, kept),
    do: Journal.ask(fn -> Store.renew(store, %{kept | lease: 1}) end)

  defp wait(state), do: :erlang.hibernate(__MODULE__, :handle_message, [state])

  @doc false
  # Public, since a process that hibernates wakes up in it.
  def handle_message(%__MODULE__{monitor: monitor} = state) do
    receive do
      # A session that crashed keeps its claim until the lease is over, so that it does not crash on all nodes in turn.
      {:DOWN, ^monitor, :process, _pid, reason} ->
        if stopped?(reason), do: hand_over(state.store, state.kept)

      :renew ->
        renew(state)

      _other ->
        wait(state)
    end
  end

  defp stopped?(reason), do: reason in [:normal, :shutdown] or match?({:shutdown, _}, reason)

  defp renew(%{lease: lease, renewed_at: renewed_at} = state) do
    asked_at = Deadline.now()

    case Journal.ask(fn -> Store.Renewals.renew(state.store, state.kept) end) do
      {:ok, _kept} ->
        :ok = :atomics.put(renewed_at, 1, asked_at)
        renew_later(state)

      {:error, {:store_error, %Store.Error{}} = reason} ->
        # Until the lease is over nobody else can have it. From then on another may run what this session runs.
        if Deadline.now() - :atomics.get(renewed_at, 1) < lease,
          do: renew_later(state),
          else: report_loss(state, reason)

      {:error, reason} ->
        report_loss(state, reason)
    end
  end

  defp renew_later(state) do
    Process.send_after(self(), :renew, max(div(state.lease, 3), 1))
    wait(state)
  end

  defp report_loss(state, reason), do: send(state.session, {:lost, self(), reason})
end
