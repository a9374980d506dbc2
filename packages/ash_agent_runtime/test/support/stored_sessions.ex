defmodule AshAgent.TestSupport.StoredSessions do
  @moduledoc false

  # Sessions of stored conversations, and how they end.

  import ExUnit.Assertions
  import ExUnit.Callbacks

  alias AshAgent.{Context, Session, Store}

  @doc "A store in memory."
  def sqlite do
    {:ok, store} = Store.SQLite.open(":memory:")
    store
  end

  @doc "Starts a session that is not started again when it ends."
  def start_session(opts) do
    start_supervised!(Supervisor.child_spec({Session, opts}, restart: :temporary), id: make_ref())
  end

  @doc "What is stored of a conversation."
  def stored(store, id \\ "c") do
    {:ok, kept} = Store.fetch(store, id)
    kept
  end

  @doc "The messages that are texts."
  def texts(context),
    do: for(m <- Context.to_messages(context), is_binary(m.content), do: m.content)

  @doc "Stops a session, or kills it, and waits for its end."
  def stop(session, how \\ :stop) do
    monitor = Process.monitor(session)
    if how == :kill, do: Process.exit(session, :kill), else: GenServer.stop(session)
    assert_receive {:DOWN, ^monitor, _, _, _}
  end
end
