defmodule AshAgent.TestSupport.PgSQL do
  @moduledoc false

  # A database for `AshAgent.Store.Postgres.new/2` over erlang-p1-pgsql, the driver that Debian packages, for tests where
  # Postgrex is not at hand. One process has the connection; others wait, and a transaction is its caller's alone.
  #
  # The driver's statements with parameters get no answer when they fail or give no rows, so parameters are written into
  # the text; its errors come inside of `{:ok, _}`; and it knows no TLS, so the server is one on loopback.

  use GenServer

  # The first is what the driver does not say that it needs.
  @applications [:stringprep, :p1_pgsql]
  @driver :pgsql

  @doc "Whether driver and server are there; bin/test starts the server."
  def ready?,
    do: System.get_env("ASH_AGENT_CONTEXT_PGPORT") != nil and Code.ensure_loaded?(@driver)

  @doc "Starts a connection and returns what a store is made of."
  def connect!(opts \\ []) do
    for app <- @applications, do: {:ok, _} = Application.ensure_all_started(app)
    {:ok, pid} = GenServer.start(__MODULE__, opts)
    database(fn -> pid end)
  end

  @doc "The same over several connections, which all tests share: a process always gets the same one."
  def pool!(size \\ 8) do
    :global.trans({__MODULE__, self()}, fn ->
      with nil <- :persistent_term.get(__MODULE__, nil) do
        for app <- @applications, do: {:ok, _} = Application.ensure_all_started(app)
        pids = for _ <- 1..size, do: GenServer.start(__MODULE__, []) |> elem(1)
        {query, _} = database(fn -> hd(pids) end)
        {:ok, %{rows: [[version]]}} = query.("show server_version", [])
        version |> String.split() |> hd() |> AshAgent.TestSupport.Integrations.put_postgresql()
        :persistent_term.put(__MODULE__, pids)
      end
    end)

    pids = :persistent_term.get(__MODULE__)
    database(fn -> Enum.at(pids, :erlang.phash2(self(), size)) end)
  end

  defp database(pick) do
    query = fn sql, params -> GenServer.call(pick.(), {:query, sql, params}, :infinity) end
    {query, fn function -> transaction(pick.(), query, function) end}
  end

  defp transaction(pid, query, function) do
    :ok = GenServer.call(pid, :lock, :infinity)

    try do
      {:ok, _} = query.("begin", [])
      value = function.()
      {:ok, _} = query.("commit", [])
      {:ok, value}
    catch
      kind, reason ->
        query.("rollback", [])
        :erlang.raise(kind, reason, __STACKTRACE__)
    after
      GenServer.call(pid, :unlock, :infinity)
    end
  end

  @impl true
  def init(opts) do
    # The driver prints that its socket was closed.
    {:ok, silent} = StringIO.open("")
    Process.group_leader(self(), silent)
    {:ok, connection} = open(opts)
    {:ok, %{opts: opts, connection: connection, owner: nil, waiting: :queue.new()}}
  end

  defp open(opts) do
    server = [
      host: ~c"127.0.0.1",
      port: String.to_integer(System.fetch_env!("ASH_AGENT_CONTEXT_PGPORT")),
      database: opts |> Keyword.get(:database, "postgres") |> String.to_charlist(),
      user: ~c"postgres",
      password: "ASH_AGENT_CONTEXT_PGPASSWORD" |> System.fetch_env!() |> String.to_charlist(),
      as_binary: true
    ]

    # A missing driver is no warning.
    with {:ok, connection} <- apply(@driver, :connect, [server]) do
      # The driver's process ends with its connection.
      Process.monitor(connection)
      {:ok, connection}
    end
  end

  @impl true
  def handle_call(:lock, {pid, _}, %{owner: nil} = state),
    do: {:reply, :ok, %{state | owner: {pid, Process.monitor(pid)}}}

  def handle_call(:unlock, {pid, _}, %{owner: {pid, monitor}} = state) do
    Process.demonitor(monitor, [:flush])
    {:reply, :ok, next(%{state | owner: nil})}
  end

  def handle_call({:query, sql, params}, {pid, _}, %{owner: {pid, _}} = state),
    do: reply(state, sql, params)

  def handle_call({:query, sql, params}, _from, %{owner: nil} = state),
    do: reply(state, sql, params)

  def handle_call(call, from, state),
    do: {:noreply, %{state | waiting: :queue.in({call, from}, state.waiting)}}

  @impl true
  def handle_info({:DOWN, monitor, :process, _pid, _reason}, %{owner: {_, monitor}} = state) do
    ask(state.connection, "rollback", [])
    {:noreply, next(%{state | owner: nil})}
  end

  def handle_info({:DOWN, _, :process, connection, _reason}, %{connection: connection} = state),
    do: {:noreply, %{state | connection: nil}}

  def handle_info(_message, state), do: {:noreply, state}

  # After the server's death it is another connection.
  defp reply(%{connection: nil} = state, sql, params) do
    case open(state.opts) do
      {:ok, connection} -> reply(%{state | connection: connection}, sql, params)
      _error -> {:reply, {:error, :econnrefused}, state}
    end
  end

  defp reply(state, sql, params) do
    case ask(state.connection, sql, params) do
      {:error, :closed} -> {:reply, {:error, :closed}, %{state | connection: nil}}
      answer -> {:reply, answer, state}
    end
  end

  # Until one of them takes the lock.
  defp next(%{owner: nil} = state) do
    case :queue.out(state.waiting) do
      {:empty, _} ->
        state

      {{:value, {call, from}}, waiting} ->
        {:reply, reply, state} = handle_call(call, from, %{state | waiting: waiting})
        GenServer.reply(from, reply)
        next(state)
    end
  end

  defp next(state), do: state

  defp ask(connection, sql, params) do
    case apply(@driver, :squery, [connection, written(sql, params), :infinity]) do
      {:ok, [{:error, fields} | _]} -> {:error, code(fields)}
      {:ok, [{_command, _columns, rows}]} -> {:ok, %{rows: rows |> Enum.map(&row/1)}}
      {:ok, [_command]} -> {:ok, %{rows: []}}
      {:error, reason} -> {:error, code(reason)}
    end
  catch
    :exit, _reason -> {:error, :closed}
  end

  defp written(sql, []), do: sql

  defp written(sql, params) do
    Regex.replace(~r/\$(\d+)/, sql, fn _, number ->
      literal = Enum.at(params, String.to_integer(number) - 1)
      "'" <> String.replace(literal, "'", "''") <> "'"
    end)
  end

  defp row(row), do: for(cell <- row, do: if(cell != :null, do: cell))

  defp code(fields) when is_list(fields) do
    case List.keyfind(fields, :code, 0) do
      {:code, code} -> to_string(code)
      nil -> :error
    end
  end

  defp code(_fields), do: :error
end
