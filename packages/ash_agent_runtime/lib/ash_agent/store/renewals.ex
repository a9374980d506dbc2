defmodule AshAgent.Store.Renewals do
  @moduledoc false

  # Renews the claims of a node's sessions together: requests within a tenth of a second share one statement. So a store gets
  # at most ten statements a second, however many sessions there are.

  use GenServer

  alias AshAgent.Store
  alias AshAgent.Store.{Error, Named}

  @window 100
  # A shorter lease might end in the meantime.
  @shortest_lease 3_000

  def start_link(_opts), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  @doc "The same as `AshAgent.Store.renew/2`, a moment later. Exits if nothing is known when the lease is over."
  def renew(store, kept) do
    if kept.lease >= @shortest_lease and Named.shared?(store),
      do: GenServer.call(__MODULE__, {:renew, store, kept}, kept.lease),
      else: Store.renew(store, kept)
  end

  @impl true
  def init(nil), do: {:ok, %{}}

  @impl true
  def handle_call({:renew, store, kept}, from, waiting) do
    unless is_map_key(waiting, store),
      do: Process.send_after(self(), {:renew_all, store}, @window)

    {:noreply, Map.update(waiting, store, [{from, kept}], &[{from, kept} | &1])}
  end

  # In a process of its own, since a store that does not answer must not hold up the others.
  @impl true
  def handle_info({:renew_all, store}, waiting) do
    {asked, waiting} = Map.pop!(waiting, store)
    spawn(fn -> renew_all(store, asked) end)
    {:noreply, waiting}
  end

  defp renew_all(store, asked) do
    {callers, claims} = Enum.unzip(asked)

    with {:error, _error} = error <- ask(store, claims),
         do: for(caller <- callers, do: GenServer.reply(caller, error)),
         else: ({:ok, answers} -> Enum.zip_with(callers, answers, &GenServer.reply/2))
  end

  # Stores of applications may raise anything, which is not shown.
  defp ask(store, claims) do
    Store.renew_all(store, claims)
  rescue
    _exception -> {:error, %Error{reason: {:unavailable, "exception"}}}
  catch
    _kind, _reason -> {:error, %Error{reason: {:unavailable, "exit"}}}
  end
end
