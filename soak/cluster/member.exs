defmodule AshAgent.Soak.Cluster.Member do
  @moduledoc """
  What runs on each node: its sessions, and clients that send prompts to conversations anywhere and note what became of them.

  Each VM notes in a file of its own, a line before it asks and one when it is answered, so that SIGKILL loses none:

      asked <text> <conversation>
      confirmed <text>
      answered <text>
      refused <text> <reason>
      wrong <text>
      effect <key>
  """

  alias AshAgent.{Context, Sessions, Session, Store}
  alias AshAgent.TestSupport.PgSQL

  @sessions __MODULE__.Sessions
  @connections 6

  @doc "Starts sessions and clients."
  def start(options) do
    {:ok, _} = Application.ensure_all_started(:ash_agent_runtime)
    Logger.configure(level: :none)
    caller = self()

    # They live longer than the process of the call.
    spawn(fn ->
      :persistent_term.put(__MODULE__, options)
      :persistent_term.put({__MODULE__, :queries}, :counters.new(2, [:write_concurrency]))
      {query, transaction} = PgSQL.pool!(@connections)
      store = Store.Postgres.new({&ask(query, &1, &2), transaction})
      :persistent_term.put({__MODULE__, :store}, store)
      serve()
      pids = for number <- 1..options.clients, do: spawn(fn -> client(options, number) end)
      :persistent_term.put({__MODULE__, :clients}, pids)
      send(caller, :started)
      Process.sleep(:infinity)
    end)

    receive do: (:started -> :ok)
  end

  defp serve do
    options = :persistent_term.get(__MODULE__)

    {:ok, sessions} =
      Sessions.start_link(
        name: @sessions,
        store: :persistent_term.get({__MODULE__, :store}),
        llm: &model/1,
        tools: %{"effect" => &effect/2},
        lease: options.lease,
        idle: options.lease,
        drain: 3_000
      )

    Process.unlink(sessions)
  end

  ## The store, which can be out of reach

  defp ask(query, sql, params) do
    counter = :persistent_term.get({__MODULE__, :queries})
    :counters.add(counter, 1, 1)

    case :persistent_term.get({__MODULE__, :away}, false) do
      false ->
        query.(sql, params)

      true ->
        # Longer than a broken connection, shorter than a driver waits.
        Process.sleep(:rand.uniform(1_000))
        {:error, :closed}
    end
  end

  def cut_from_store(away?), do: :persistent_term.put({__MODULE__, :away}, away?)
  def cut_from_nodes(others), do: AshAgent.TestSupport.Nodes.cut_off(others)

  @doc "Drains the node, and starts its sessions again, as a deployment does."
  def deploy do
    before = System.monotonic_time(:millisecond)
    :ok = Sessions.drain(@sessions, timeout: 3_000)
    took = System.monotonic_time(:millisecond) - before
    :ok = Supervisor.stop(@sessions, :shutdown, :infinity)
    serve()
    took
  end

  ## The model and its tool

  # What it answers depends on the prompt alone, and takes a while.
  defp model(context) do
    options = :persistent_term.get(__MODULE__)
    Process.sleep(:rand.uniform(options.think))
    said = Context.get_iteration_messages(context, context.current_iteration)

    case List.last(Enum.map(said, & &1.content)) do
      # The results are in the iteration before.
      nil -> {:ok, %{content: "re: " <> text(context)}}
      "!" <> _ -> {:ok, %{tool_calls: [%{name: "effect", arguments: %{}}]}}
      text -> {:ok, %{content: "re: " <> text}}
    end
  end

  defp text(context) do
    context
    |> Context.get_iteration_messages(Context.turn_start(context))
    |> Enum.filter(&(&1.role == :user and is_binary(&1.content)))
    |> List.last()
    |> Map.fetch!(:content)
  end

  # It happens, and then takes time: a crash in between leaves its outcome unknown.
  defp effect(_arguments, %{idempotency_key: key}) do
    note(["effect ", key])
    Process.sleep(:rand.uniform(200))
    {:ok, "done"}
  end

  ## Clients

  defp client(options, number), do: client(options, number, 1)

  defp client(options, number, count) do
    if :persistent_term.get({__MODULE__, :stop}, false) do
      :counters.add(:persistent_term.get({__MODULE__, :queries}), 2, 1)
    else
      mark = if rem(:rand.uniform(4), 4) == 0, do: "!", else: "."
      text = "#{mark}#{options.vm}-#{number}-#{count}"
      id = conversation(options.conversations)
      note(["asked ", text, " ", id])
      outcome = prompt(id, text)
      note([outcome(outcome, text), " ", text | reason(outcome)])
      # Nobody asks again at once after a refusal.
      if match?({:refused, _}, outcome), do: Process.sleep(1_000 + :rand.uniform(2_000))
      client(options, number, count + 1)
    end
  end

  # A few conversations are wanted by many at once.
  defp conversation(all) do
    number = if :rand.uniform(20) == 1, do: :rand.uniform(min(500, all)), else: :rand.uniform(all)
    "c#{number}"
  end

  defp prompt(id, text) do
    if :rand.uniform(5) == 1, do: later(id, text), else: now(id, text)
  rescue
    # While it is deployed the sessions are not running.
    ArgumentError -> {:refused, :not_running}
    error -> {:refused, "crash:#{inspect(error.__struct__)}"}
  catch
    :exit, {:timeout, _} -> :unanswered
    :exit, _reason -> {:refused, :exit}
  end

  defp now(id, text), do: said(Sessions.prompt(@sessions, id, text, await: 900_000), text)

  defp later(id, text) do
    with {:ok, ref} <- Sessions.prompt_async(@sessions, id, text) do
      note(["confirmed ", text])
      await(ref, text)
    end
    |> case do
      {:error, _} = error -> said(error, text)
      outcome -> outcome
    end
  end

  # Nothing more comes when the session has moved; the prompt is stored.
  defp await(ref, text) do
    receive do
      {Session, ^ref, {:context, _context}} -> await(ref, text)
      {Session, ^ref, reply} -> said(reply, text)
    after
      60_000 -> {:refused, :moved}
    end
  end

  defp said({:ok, %{output: output}}, text),
    do: if(output == "re: " <> text, do: :answered, else: :wrong)

  defp said({:error, %{reason: reason}}, _text), do: {:refused, label(reason)}
  defp said({:error, reason}, _text) when is_atom(reason), do: {:refused, reason}

  defp outcome({:refused, _}, _text), do: "refused"
  defp outcome(word, _text), do: Atom.to_string(word)

  defp reason({:refused, reason}), do: [" ", to_string(reason)]
  defp reason(_outcome), do: []

  defp label({:store_error, {:owned, _}}), do: "store_error:owned"
  defp label({:store_error, %{reason: {word, _}}}), do: "store_error:#{word}"
  defp label({:store_error, reason}) when is_atom(reason), do: "store_error:#{reason}"
  defp label({:store_error, reason}) when is_tuple(reason), do: "store_error:#{elem(reason, 0)}"
  defp label({:lost, reason}), do: "lost:#{reason}"
  defp label(reason) when is_tuple(reason), do: reason |> elem(0) |> Atom.to_string()
  defp label(reason), do: Atom.to_string(reason)

  defp note(words) do
    options = :persistent_term.get(__MODULE__)
    File.write!(Path.join(options.folder, "notes-#{options.vm}"), [words, ?\n], [:append])
  end

  def stop_clients, do: :persistent_term.put({__MODULE__, :stop}, true)

  @doc "Where the clients are that have not ended."
  def stuck do
    for pid <- :persistent_term.get({__MODULE__, :clients}),
        {:current_stacktrace, trace} <- [Process.info(pid, :current_stacktrace)],
        do: trace |> Enum.take(8) |> Exception.format_stacktrace()
  end

  @doc "How many clients have ended, queries were made, and sessions are there."
  def state do
    counter = :persistent_term.get({__MODULE__, :queries})
    registry = Module.concat(@sessions, Names)
    sessions = if Process.whereis(registry), do: Registry.count(registry), else: 0
    %{ended: :counters.get(counter, 2), queries: :counters.get(counter, 1), sessions: sessions}
  end
end
