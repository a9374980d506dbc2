defmodule AshAgent.TestSupport.StoreWriter do
  @moduledoc false
  # A VM that writes turns into a store as fast as it can, and is killed.

  alias AshAgent.{Context, Store}

  @doc """
  Starts it on the conversation `c`, kills it with SIGKILL after a while, and returns the number that it was told last to be
  kept. It notes each before it writes the next.
  """
  def kill_in_the_middle(store, log, kill \\ &kill/1) do
    File.write!(log, "")
    path = Enum.flat_map(:code.get_path(), &[~c"-pa", &1])
    {:ok, vm, _node} = :peer.start(%{connection: :standard_io, args: path})
    pid = :peer.call(vm, System, :pid, [])
    :ok = :peer.cast(vm, __MODULE__, :write, [store, log])
    wait_for(log, 5 + :rand.uniform(40))
    kill.(pid)
    stop(vm)
    log |> File.read!() |> String.split("\n", trim: true) |> List.last() |> String.to_integer()
  end

  defp kill(pid), do: {_, 0} = System.cmd("kill", ["-9", pid])

  defp stop(vm) do
    :peer.stop(vm)
  catch
    _, _ -> :gone
  end

  defp wait_for(log, lines) do
    if log |> File.read!() |> String.split("\n", trim: true) |> length() < lines do
      Process.sleep(2)
      wait_for(log, lines)
    end
  end

  @doc false
  def write(store, log) do
    {:ok, _} = Application.ensure_all_started(:ash_agent_runtime)
    # The driver tells of the server's death.
    Logger.configure(level: :none)
    store = open(store)
    {:ok, kept} = Store.fetch(store, "c")
    file = File.open!(log, [:append, :raw])
    write_on(store, kept, file, kept.value.current_iteration)
  end

  defp open({Store.SQLite, path}) do
    {:ok, store} = Store.SQLite.open(path)
    store
  end

  defp open(Store.Postgres), do: Store.Postgres.new(AshAgent.TestSupport.PgSQL.connect!())

  defp write_on(store, kept, file, number) do
    value =
      kept.value
      |> Context.add_assistant_message(text(number))
      |> Context.add_user_message(text(number + 1))

    case Store.append(store, kept, value) do
      {:ok, kept} ->
        IO.binwrite(file, "#{number}\n")
        write_on(store, kept, file, number + 1)

      # The server has died: what was written is in the store's hand.
      {:error, _} ->
        Process.sleep(:infinity)
    end
  end

  defp text(number), do: "#{number} " <> String.duplicate("text", 200)

  @doc "Whether a conversation is a prefix of what was written, with all that was acknowledged and at most one turn more."
  def check(context, acknowledged) do
    last = context.current_iteration
    true = last in [acknowledged + 1, acknowledged + 2]

    for number <- 2..last do
      [%{role: :user, content: said} | answers] = Context.get_iteration_messages(context, number)
      true = said == text(number)
      true = Enum.map(answers, & &1.content) == if(number < last, do: [text(number)], else: [])
    end

    :ok
  end
end
