defmodule AshAgent.Session.Claim do
  @moduledoc false

  # A session's conversation in a store: its claim, and a process that renews the claim, and releases it when the session
  # ends.

  alias AshAgent.{Context, Store}
  alias AshAgent.Runtime.Journal
  alias AshAgent.Store.Conversation

  # kept: the newest that the session has heard of. stale?: a run has ended in the middle, so there may be a newer one.
  # taken: ids of stored messages that the conversation in memory has.
  @enforce_keys [:store, :kept, :renewer]
  defstruct [:store, :kept, :renewer, stale?: false, taken: []]

  @doc """
  Claims a conversation for the calling process, or creates it with the context that `initial` returns. The options are
  those of a claim: `:lease`, and `:from` for a conversation that this owner holds for it.

  Returns `{:ok, keeper}` or `{:error, reason}`.
  """
  def open(store, id, opts, initial) do
    with {:ok, kept} <- claim(store, id, opts, initial), do: opened(store, kept, opts[:lease])
  end

  defp opened(store, %Conversation{kind: :context} = kept, lease),
    do: {:ok, %__MODULE__{store: store, kept: kept, renewer: renewer(store, kept, lease)}}

  defp opened(store, kept, _lease) do
    Journal.ask(fn -> Store.release(store, kept) end)
    {:error, :no_context}
  end

  defp claim(store, id, opts, initial) do
    own = [owner: owner(self()), lease: opts[:lease]]

    case Journal.ask(fn -> Store.claim(store, id, own ++ Keyword.take(opts, [:from])) end) do
      {:error, {:store_error, :not_found}} ->
        with {:ok, context} <- initial.(), do: create(store, context, own, id)

      {:error, {:store_error, {:owned, owner}}} = owned ->
        # Its process was one of this VM and is gone.
        if locate(owner) == :gone,
          do: Journal.ask(fn -> Store.claim(store, id, own ++ [from: owner]) end),
          else: owned

      answer ->
        answer
    end
  end

  defp create(store, context, own, id) do
    if context[:id] == id,
      do: Journal.ask(fn -> Store.create(store, context, own) end),
      else: {:error, :other_id}
  end

  # A name that tells which process of which VM it is.
  defp owner(pid), do: "#{node()} #{vm()} #{:erlang.pid_to_list(pid)}"

  @doc "The name of this VM as an owner that holds conversations for sessions which start here."
  def reserve, do: "#{node()} #{vm()} reserved"

  @doc """
  Where an owner's process is: `{:here, pid}`, `:gone` for one of this VM that has ended, `:reserved` for what this VM holds,
  `{:there, node}`, or `:unknown`.
  """
  def locate(owner) do
    with [name, vm, process] <- String.split(owner, " ", parts: 3),
         {:ok, node} <- existing(name) do
      cond do
        node != node() -> {:there, node}
        vm != vm() -> :unknown
        true -> locate_here(process)
      end
    else
      _other -> :unknown
    end
  end

  defp existing(name) do
    {:ok, String.to_existing_atom(name)}
  rescue
    _ in ArgumentError -> :error
  end

  defp locate_here("reserved"), do: :reserved

  defp locate_here(text) do
    pid = text |> String.to_charlist() |> :erlang.list_to_pid()
    if Process.alive?(pid), do: {:here, pid}, else: :gone
  rescue
    _ in ArgumentError -> :unknown
  end

  defp vm do
    with nil <- :persistent_term.get(__MODULE__, nil) do
      made = 9 |> :crypto.strong_rand_bytes() |> Base.url_encode64()
      :global.trans({__MODULE__, self()}, fn -> put_vm(made) end, [node()])
    end
  end

  defp put_vm(made) do
    with nil <- :persistent_term.get(__MODULE__, nil) do
      :persistent_term.put(__MODULE__, made)
      made
    end
  end

  ## The process that renews

  defp renewer(store, kept, lease) do
    session = self()

    pid =
      spawn(fn ->
        monitor = Process.monitor(session)
        now = System.monotonic_time(:millisecond)
        renew(%{store: store, kept: kept, lease: lease, session: session, monitor: monitor}, now)
      end)

    {pid, Process.monitor(pid)}
  end

  defp renew(state, since) do
    %{monitor: monitor} = state

    receive do
      # One that crashed keeps its claim until the lease is over, so that it does not crash on all nodes in turn.
      {:DOWN, ^monitor, :process, _pid, reason} ->
        if stopped?(reason), do: hand_over(state)
    after
      max(div(state.lease, 3), 1) -> renewed(state, since)
    end
  end

  defp renewed(state, since) do
    asked = System.monotonic_time(:millisecond)

    case Journal.ask(fn -> Store.renew(state.store, state.kept) end) do
      {:ok, _kept} ->
        renew(state, asked)

      {:error, {:store_error, %Store.Error{}}} = error ->
        # Until the lease is over nobody else can have it.
        if System.monotonic_time(:millisecond) - since < state.lease,
          do: renew(state, since),
          else: lose(state, error)

      error ->
        lose(state, error)
    end
  end

  defp lose(state, {:error, reason}), do: send(state.session, {:lost, self(), reason})

  defp stopped?(reason), do: reason in [:normal, :shutdown] or match?({:shutdown, _}, reason)

  ## What the session asks for

  @doc "Ends the claim."
  def release(%__MODULE__{renewer: {renewer, _}} = keeper) do
    with {:ok, _} <- Journal.ask(fn -> Store.release(keeper.store, keeper.kept) end),
         do: Process.exit(renewer, :kill)
  end

  @doc "Lets the claim's lease end now: whoever looks for those whose lease is over finds that there is something left to do."
  def hand_over(%{store: store, kept: kept}),
    do: Journal.ask(fn -> Store.renew(store, %{kept | lease: 1}) end)

  @doc "Reads what was written last where a run has ended in the middle."
  def refresh(%__MODULE__{stale?: false} = keeper), do: {:ok, keeper}

  def refresh(keeper) do
    with {:ok, kept} <- Journal.ask(fn -> Store.fetch(keeper.store, keeper.kept) end),
         do: {:ok, %{keeper | kept: kept, stale?: false}}
  end

  @doc "Writes a context. `ended` is how the calls that run have ended, or `nil`."
  def write(%__MODULE__{} = keeper, context, status, ended) do
    with {:ok, keeper} <- refresh(keeper),
         {:ok, calls} <- started(keeper, ended) do
      finished = for call <- calls, do: %{key: call.key, attempt: call.attempt, state: ended}
      opts = [finished: finished, taken: keeper.taken, status: status]

      with {:ok, kept} <-
             Journal.ask(fn -> Store.append(keeper.store, keeper.kept, context, opts) end),
           do: {:ok, %{keeper | kept: kept, taken: []}}
    end
  end

  defp started(_keeper, nil), do: {:ok, []}

  defp started(keeper, _ended),
    do: Journal.ask(fn -> Store.calls(keeper.store, keeper.kept.id, state: :started) end)

  @doc "Stores a message for later, where the next owner finds it as well: `{:ok, id}` or an error."
  def enqueue(%__MODULE__{} = keeper, kind, input, metadata) do
    Journal.ask(fn ->
      Store.enqueue(keeper.store, keeper.kept, input, kind: kind, metadata: metadata)
    end)
  end

  @doc "The messages that wait, those for the running turn first."
  def waiting(%__MODULE__{} = keeper) do
    with {:ok, messages} <- Journal.ask(fn -> Store.waiting(keeper.store, keeper.kept.id) end),
         do: {:ok, Enum.split_with(messages, &(&1.kind == :steer))}
  end

  @doc "Whether an error means that the conversation is another's now."
  def lost?({:store_error, reason}),
    do: reason in [:stale, :not_found] or match?({:owned, _}, reason)

  def lost?(_reason), do: false

  @doc "The context."
  def context(%__MODULE__{kept: %{value: %Context{} = context}}), do: context
end
